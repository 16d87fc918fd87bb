"""The how-to guides and `docs/engine.md`: examples print what the pages show, and tables are those of the code."""

import inspect
import re
from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.servers.forked_python import Python

import turnwright
from turnwright import Engine, TurnwrightError
from turnwright.transcript import events
from turnwright_states.facts import KINDS

from .page_blocks import Block, Terminal, blocks_of, commands_of, text_of

#: Guides with Python blocks that are programs, each followed by its output. A comment above each names this file.
GUIDES = (
    "ask-a-person.md",
    "choose-a-model.md",
    "choose-instructions-and-tools.md",
    "choose-limits.md",
    "follow-a-turn.md",
    "get-a-typed-answer.md",
    "hand-over-to-another-agent.md",
    "list-and-fork.md",
    "manage-conversations.md",
    "resume-after-a-crash.md",
    "retry-a-tool.md",
    "run-an-engine.md",
    "run-in-the-background.md",
    "start-once.md",
    "wait-for-a-result.md",
    "answer-by-link.md",
    "notify.md",
    "steer-and-abort.md",
    "stop-a-turn-with-guardrails.md",
    "test-an-agent.md",
    "use-dependencies.md",
    "use-hooks.md",
    "use-sub-agents.md",
    "write-rules.md",
)
EXAMPLES = [
    pytest.param(block, below.text if below.language == "text" else "", id=f"{page}-{number}")
    for page in GUIDES
    for number, (block, below) in enumerate(
        zip(blocks_of(f"how-to/{page}"), [*blocks_of(f"how-to/{page}")[1:], Block("", "", "", "")], strict=True)
    )
    if block.language == "python" and block.comment == "tested by tests/docs/test_how_to.py"
]


def cells_below(comment: str) -> list[list[str]]:
    """Return the cells of the table of `docs/engine.md` below a comment, without its two head lines."""
    table = text_of("engine.md").split(f"<!-- {comment}", 1)[1].split("-->\n", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


@pytest.mark.parametrize(("block", "promised"), EXAMPLES)
def test_example_prints_the_output_of_the_page(
    block: Block, promised: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert promised
    exec(compile(block.text, "an example", "exec"), {"__name__": "__main__"})  # noqa: S102 (our own page)
    assert capsys.readouterr().out == promised


def test_every_argument_of_the_engine_is_explained() -> None:
    """The API's page is made of the docstring and the signature; `docs/engine.md` leads there."""
    explained = set(re.findall(r"`(\w+)", inspect.getdoc(Engine) or ""))
    assert set(inspect.signature(Engine).parameters) - explained == set()
    assert "(api/turnwright.md)" in text_of("engine.md")


def test_every_error_raised_by_the_engine_is_mentioned() -> None:
    names = {name for row in cells_below("the errors") for name in re.findall(r"`(\w+)`", row[0])}
    public = {name: getattr(turnwright, name) for name in turnwright.__all__}
    errors = {name for name, value in public.items() if inspect.isclass(value) and issubclass(value, TurnwrightError)}
    # What an agent file has wrong is a ConfigError; a tool's own error becomes a result.
    assert names == errors - {"TurnwrightError", "ToolError", "AgentFileError"} | {ValidationError.__name__}


def test_every_event_of_the_table_exists() -> None:
    rows = [[re.findall(r"`(\w+)`", cell) for cell in row[:2]] for row in cells_below("the events")]
    documented = {name: kind for names, kinds in rows for name, kind in zip(names, kinds, strict=True)}
    pieces = {
        kind.kind: kind.__name__
        for kind in (events.TextDeltaEvent, events.ReasoningDeltaEvent, events.ToolCallDeltaEvent)
    }
    other_kinds = {
        "output_delta": "OutputDeltaEvent",
        "response_restarted": "ResponseRestartedEvent",
        "response_withdrawn": "ResponseWithdrawnEvent",
        "paused": "TurnPausedEvent",
        "turn_ended": "TurnEndedEvent",
    }
    expected = {name: kind.__name__ for name, kind in KINDS.items()} | pieces | other_kinds
    assert documented == {name: expected[name] for name in documented}
    assert all(hasattr(events, expected[name]) for name in other_kinds)


def test_agent_file_is_listed_as_in_the_guide(tmp_path: Path, python: Python) -> None:
    """Run the commands of `write-agents-in-markdown.md`; each prints more than the guide shows."""
    file, commands, *_ = blocks_of("how-to/write-agents-in-markdown.md")
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "clerk.md").write_text(file.text)
    terminal = Terminal(tmp_path, python)
    for command, output in commands_of(commands):
        printed = terminal.run(command).splitlines()
        assert all(
            line.startswith(expected_line)
            for line, expected_line in zip(printed, output.removesuffix("...\n").splitlines(), strict=False)
        )
