"""A recorded turn as a test: the printed file passes as it is, and fails when anything in it is changed."""

import ast
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from pydantic import JsonValue
from tests.hypothesis_examples import percent_of_examples

from turnwright import (
    Agent,
    CallView,
    ChangeRequest,
    Compact,
    ConfigError,
    EndReason,
    Engine,
    FilePart,
    Limits,
    Message,
    Outcome,
    Reject,
    RequireApproval,
    ReturnResult,
    ToolContext,
    ToolResult,
    Trip,
    TurnResult,
    after_tool,
    tool,
)
from turnwright.driver.dependencies import FinishedCall, Synthesis
from turnwright.driver.hooks.guardrails import GuardrailKind
from turnwright.message import StepStartPart
from turnwright.model import (
    Backoff,
    ModelError,
    ModelRequest,
    ModelResponse,
    ResponseToolCall,
    ScriptedModel,
    TextDelta,
    asks_for,
)
from turnwright.tools import Ask, Tool, ToolInputError
from turnwright.tools.batch import UNKNOWN_OUTCOME
from turnwright_states import (
    AnsweredInput,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    Cause,
    ConcludedInput,
    Decision,
    Finish,
    Input,
    InterruptKind,
    ModelRepliedInput,
    Spent,
    StartedInput,
    State,
    ToolCall,
    TurnMachine,
    Usage,
)
from turnwright_states import facts as f
from turnwright_testing import (
    Answers,
    Asks,
    Crash,
    Driven,
    Floods,
    GuardrailScript,
    Hangs,
    HookScript,
    Leaves,
    PlaybackError,
    Raises,
    Refuses,
    Returns,
    Scenario,
    Stalls,
    clock,
    play,
)
from turnwright_testing.facts_to_recording import read_facts
from turnwright_testing.faults import JumpingClock
from turnwright_testing.regression_test import as_test
from turnwright_testing.strategies import scenarios

Facts = Sequence[tuple[int, f.Fact]]

READ = asks_for(("read_file", {"path": "a.py"}))
WRITE = asks_for(("write_file", {"path": "b.py", "text": 'print("""\\n\'")'}))
POLL = asks_for(("poll", {}))
ASKS = asks_for(("poll", {}), ("send", {"to": "Ann"}))
TWICE = asks_for(("read_file", {"path": "a.py"}), ("write_file", {"path": "b.py", "text": ""}))
SLOWLY = ModelError("too slow", cause=Cause.TIMEOUT, partial=ModelResponse(text="So f", usage=Usage(input_tokens=5)))


@tool
async def read_file(path: str) -> str:
    """Read a file."""
    return path


@tool(on_crash="ask")
async def write_file(path: str, text: str) -> str:
    """Write a file."""
    return path + text


@tool(idempotent=True)
async def send(to: str) -> str:
    """Send a letter; twice does no harm."""
    return to


@tool(ignore_in_loop_detection=True)
async def poll() -> str:
    """Ask again and again."""
    return "not yet"


@tool(loop_key=lambda _: "whatever it is")
async def search(words: str) -> str:
    """Search, whatever for: the detector sees no difference."""
    return words


TOOLS: list[Tool] = [read_file, write_file, send, poll, search]

SCENARIOS = {
    "finished: answered": Scenario(script=(TWICE, "Done.")),
    "finished: answered after failed attempts": Scenario(
        script=(
            SLOWLY, ModelResponse(reasoning="hm"), READ,
            *(ModelError("x", cause=cause) for cause in list(Cause)[:3]), "S",
        )
    ),
    "finished: answered after mistakes": Scenario(
        script=(
            asks_for(
                ("read_file", {"path": 7}), ("no_such_tool", {"a": [None, {"b": 0.5}]}), ("Read file!", {}),
                ResponseToolCall("read_file", None, raw='{"path": "a'),
                ResponseToolCall("read_file", None, raw="", id="twice"),
                ResponseToolCall("poll", {}, id="twice"), ("read_file", {"path": "a.py"}),
            ),
            READ,
            "Done.",
        ),
        behaviours=(Raises(), Raises("SystemExit", "'\"\\ \x00\u2028"), Floods(70_000)),
    ),
    "finished: answered after a long result of many bytes a character": Scenario(
        script=(READ, "Done."), behaviours=(Returns("x" + "漢" * 30_000),)
    ),
    "finished: answered after questions": Scenario(
        script=(TWICE, asks_for(("send", {"to": "me"}), ("poll", {})), TWICE, "Done."),
        behaviours=(
            Asks(), Asks(InterruptKind.QUESTION, times=2), Asks(InterruptKind.GRANT), Asks(then=Raises()), Asks(),
        ),
        people=(Answers(0, "yes"), Answers(0, 'so "it" is'), Answers(1, "never"), Answers(0, "", first=1)),
    ),
    "finished: answered after questions in the middle of calls": Scenario(
        script=(TWICE, asks_for(("send", {"to": "me"}), ("search", {"words": "it"})), TWICE, "Done."),
        behaviours=(
            Asks(midway=True), Asks(times=2, then=Raises(), midway=True), Returns(), Asks(midway=True), Asks(),
        ),
        people=(Answers(0, "yes"), Answers(0, 'so "it" is'), Answers(1, "never"), Answers(0, "", first=1)),
    ),
    "finished: answered after a crash behind a question": Scenario(
        script=(asks_for(("send", {"to": "me"})), "Done."), behaviours=(Asks(times=2, midway=True),), crash=Crash(5)
    ),
    "finished: answered with questions refused": Scenario(
        script=(TWICE, "Done."), behaviours=(Returns(), Asks(midway=True)), limits=Limits(max_pauses=0)
    ),
    "finished: text_only": Scenario(script=(READ,), limits=Limits(steps=0)),
    "finished: truncated": Scenario(script=(ModelResponse(text="It is", finish=Finish.LENGTH),)),
    "synthesis_done: synthesized": Scenario(script=(READ,), synthesis=(None, "All of it.")),
    "cap_hit: step_cap": Scenario(script=(READ, WRITE, "What was done."), limits=Limits(steps=2)),
    "cap_hit: step_cap within": Scenario(script=(READ, TWICE), limits=Limits(steps=2, concluding="within")),
    "cap_hit: budget": Scenario(script=(TWICE, TWICE), limits=Limits(tool_calls=3, max_calls_per_step=2)),
    "cap_hit: tokens": Scenario(script=(READ, WRITE), limits=Limits(tokens=4)),
    "cap_hit: cost": Scenario(script=(READ, WRITE), limits=Limits(cost=3.5)),
    "cap_hit: deadline in a reply": Scenario(script=(READ, Stalls("So f")), limits=Limits(seconds=90)),
    "cap_hit: deadline in a call": Scenario(
        script=(TWICE, "I was too slow."), behaviours=(Returns("first"), Hangs()), limits=Limits(seconds=20)
    ),
    "cap_hit: deadline without a conclusion": Scenario(
        script=(READ, Stalls("So f"), ModelResponse()), limits=Limits(seconds=90)
    ),
    "cap_hit: deadline in text only": Scenario(script=(Stalls("It"),), limits=Limits(seconds=90, steps=0)),
    "doom_loop: doom_loop": Scenario(script=(READ, READ, READ, "It repeats itself.")),
    "doom_loop: doom_loop by keys": Scenario(
        script=(*(asks_for(("search", {"words": str(number)})) for number in range(3)), SLOWLY),
        limits=Limits(max_retries=0),
    ),
    "doom_loop: doom_loop after a nudge, a going on and a stop": Scenario(
        script=(READ,),
        limits=Limits(nudges=1, doom_response="ask"),
        people=(Answers(0), Answers(2)),
    ),
    "finished: answered after a loop for always": Scenario(
        script=(READ, READ, READ, READ, READ, "Done."), limits=Limits(doom_response="ask"), people=(Answers(1),)
    ),
    "finished: answered after polling": Scenario(script=(POLL, POLL, POLL, POLL, "Done.")),
    "aborted: aborted in a pause": Scenario(script=(TWICE,), behaviours=(Asks(),), people=(Leaves(),)),
    "aborted: aborted between calls": Scenario(script=(TWICE,), abort_at=2),
    "aborted: aborted before a reply": Scenario(script=(READ,), abort_at=2),
    "aborted: superseded": Scenario(script=(TWICE,), behaviours=(Asks(),), people=(Leaves("message"),)),
    "failed: model_error": Scenario(script=(READ, ModelError("no key", cause=Cause.AUTHENTICATION))),
    "failed: empty_reply": Scenario(script=(ModelResponse(usage=Usage(input_tokens=1)),)),
    "failed: content_filter": Scenario(script=(ModelResponse(text="Fi", finish=Finish.CONTENT_FILTER),)),
    "failed: context_overflow": Scenario(script=(READ, ModelError("long", cause=Cause.CONTEXT_OVERFLOW))),
    "failed: crashed": Scenario(script=("Done.",), limits=Limits(max_retries=0), crash=Crash(1)),
    "finished: answered after a crash": Scenario(script=(READ, "Done."), crash=Crash(2)),
    "finished: answered after a crash that was asked about": Scenario(
        script=(TWICE, "Done."), crash=Crash(3), people=(Answers(0),)
    ),
    "finished: answered after a crash and a second run": Scenario(
        script=(asks_for(("read_file", {"path": "a"}), ("send", {"to": "me"}), ("poll", {})), "Done."), crash=Crash(2)
    ),
    "finished: answered with pauses refused": Scenario(
        script=(TWICE, "Done."), behaviours=(Asks(), Returns()), limits=Limits(max_pauses=0)
    ),
    "finished: answered after decisions of hooks": Scenario(
        script=("Too long.", TWICE, ASKS, "Done."),
        hooks=HookScript(
            before_model=(ChangeRequest(append=("Be brief.",)), None, ChangeRequest(tools=("poll",))),
            after_model=(Refuses("shorter"),),
            before_tool=(Reject("not that"), ReturnResult("known"), RequireApproval("Really?")),
            after_tool=(None, ReturnResult({"n": 1})),
        ),
    ),
    "finished: answered after a call with other arguments": Scenario(
        script=(WRITE, "Done."),
        people=(Answers(arguments={"path": "c.py", "text": ""}),),
        hooks=HookScript(before_tool=(RequireApproval(),)),
    ),
    "finished: answered after a compaction": Scenario(
        script=(POLL, "In short.", POLL, "Done."), compaction=Compact(at_tokens=1, keep_steps=0, max_compactions=1)
    ),
    "failed: guardrail on a reply": Scenario(
        script=(READ, "A secret."),
        guardrails=(GuardrailScript(GuardrailKind.OUTPUT, (None, Trip("no", {"why": [1]}))),),
    ),
    "failed: guardrail on a prompt": Scenario(guardrails=(GuardrailScript(GuardrailKind.INPUT, (Trip("no"),)),)),
    "failed: guardrail on a call": Scenario(
        script=(TWICE,), guardrails=(GuardrailScript(GuardrailKind.TOOL_INPUT, (None, Trip("no"))),)
    ),
    "failed: invalid_output at last": Scenario(
        script=("Done.",), hooks=HookScript(after_model=(Refuses("no"),) * 4), limits=Limits(output_retries=1)
    ),
}  # fmt: skip


# Turns that no scenario has. Each of these drives one, and is named as it ends.


class Told:
    """The engine that drives the turn, for its tools and models."""

    engine: Engine


class Interrupted:
    """A model that is aborted in the middle of a word, in its second call."""

    name = "interrupted"

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        """Ask for a call; then begin to speak, and be aborted."""
        if len(request.messages) == 1:
            yield READ
            return
        yield TextDelta("In the e")
        (row,) = await Told.engine.store.turns()
        await Told.engine.abort(row.id)
        await anyio.sleep_forever()


class Fickle(Tool):
    """Its calls are approved, and then their arguments do not fit any more. With `bug`, asking raises."""

    def __init__(self, *, bug: bool = False) -> None:
        super().__init__(name="fickle", description="", parameters={"type": "object"})
        self._bug = bug
        self._parsed = 0

    def asks(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> Ask | None:
        """Ask once."""
        if self._bug:
            raise KeyError(str(arguments))
        return None if context.answers else Ask(InterruptKind.APPROVAL)

    def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Take the arguments the first time only."""
        self._parsed += 1
        if self._parsed > 1:
            raise ToolInputError(f"no longer: {arguments}")
        return {}

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
        """Never run."""
        raise AssertionError(f"it ran, as {context.call_id}, with {values}")


#: The clock of the engines below.
CLOCK = JumpingClock()


@tool
async def block() -> str:
    """Hold the process up."""
    CLOCK.jump(3600)
    return "at last"


@tool
async def draw() -> ToolResult:
    """Draw a picture, and say what is in it."""
    return ToolResult("drawn", {"points": [1, 2.5], "of": None}, (FilePart.of(b"png", "image/png", "a.png"),))


@tool
async def hang(context: ToolContext) -> str:
    """Never come back, and have the turn aborted."""
    await Told.engine.abort(context.turn_id)
    await anyio.sleep_forever()
    return ""


async def hook_with_a_bug(_: object) -> str | None:
    raise ZeroDivisionError


class Hesitant:
    """A synthesis that fails the first time."""

    failed = False

    async def __call__(self, batch: tuple[FinishedCall, ...]) -> str | None:
        if not self.failed:
            self.failed = True
            raise ModelError("not yet", cause=Cause.OVERLOADED)
        return f"All of {len(batch)}."


def model_with_a_bug(_: ModelRequest) -> ModelResponse:
    raise ZeroDivisionError


async def drive(
    engine: Engine,
    agent: Agent[None, object] | None = None,
    history: Sequence[Message] = (),
    files: Sequence[FilePart] = (),
) -> Facts:
    """The facts of one turn; every approval is given."""
    Told.engine = engine
    turn: TurnResult = await engine.run(agent or Agent(name="Anybody"), "Go on.", message_history=history, files=files)
    if turn.paused:
        turn = await engine.resume(turn.id, {interrupt.id: "yes" for interrupt in turn.interrupts})
    return await engine.store.facts(turn.id)


def scripted(
    *lines: str | ModelResponse | Callable[[ModelRequest], ModelResponse],
    tools: Sequence[Tool] = (),
    synthesize: Synthesis | None = None,
    max_parallel_tools: int = 8,
) -> Engine:
    return Engine(
        model=ScriptedModel(*lines),
        tools=[*TOOLS, *tools],
        synthesize=synthesize,
        max_parallel_tools=max_parallel_tools,
        cancel_grace=0,
        clock=CLOCK,
    )


@tool(name="hang")
async def still() -> str:
    """Never return."""
    await anyio.sleep_forever()
    return ""


@after_tool(tools=["poll"])
async def breaks(ctx: ToolContext, call: CallView, result: ToolResult) -> None:
    raise KeyError(ctx.turn_id, call.id, result.text)


HANGS = asks_for(("hang", {}), ("read_file", {"path": "a.py"}))
FICKLE = asks_for(("read_file", {"path": "a.py"}), ("fickle", {}))
BLOCKS = asks_for(("read_file", {"path": "a.py"}), ("block", {}))
ANSWER = asks_for(("final_result", {"n": 5}), ("poll", {}))


@dataclass
class Counted:
    """A typed answer."""

    n: int


LATE = Agent(name="Late", budget=Limits(seconds=3600))

DRIVEN: dict[str, Callable[[], Awaitable[Facts]]] = {
    "aborted: aborted in a reply": lambda: drive(Engine(model=Interrupted(), tools=TOOLS)),
    "aborted: aborted in the conclusion": lambda: drive(
        Engine(model=Interrupted(), tools=TOOLS), Agent(name="A", steps=1)
    ),
    "aborted: aborted in a call": lambda: drive(scripted(HANGS, tools=[hang])),
    "aborted: aborted before the second call": lambda: drive(scripted(HANGS, tools=[hang], max_parallel_tools=1)),
    "failed: engine_error in a model": lambda: drive(scripted(READ, model_with_a_bug)),
    "failed: engine_error in a synthesis": lambda: drive(scripted(READ, synthesize=hook_with_a_bug)),
    "failed: engine_error in a tool": lambda: drive(scripted(FICKLE, tools=[Fickle(bug=True)], max_parallel_tools=1)),
    "synthesis_done: synthesized at the second attempt": lambda: drive(
        Engine(model=ScriptedModel(READ), tools=TOOLS, synthesize=Hesitant(), backoff=Backoff(initial=0))
    ),
    "finished: answered with data and a picture": lambda: drive(
        scripted(asks_for(("draw", {})), "Done.", tools=[draw])
    ),
    "finished: answered after other arguments": lambda: drive(scripted(FICKLE, "Done.", tools=[Fickle()])),
    "cap_hit: deadline in a process that was held up": lambda: drive(
        scripted(BLOCKS, "Late.", tools=[block], max_parallel_tools=1), LATE
    ),
    "cap_hit: step_cap when the time was up too": lambda: drive(
        scripted(BLOCKS, "Late.", tools=[block], max_parallel_tools=1), LATE.model_copy(update={"steps": 1})
    ),
    "finished: answered about a picture": lambda: drive(
        scripted("A pixel."), files=[FilePart.of(b"png", "image/png", "a.png")]
    ),
    "finished: answered with a type": lambda: drive(
        scripted(asks_for(("final_result", {"n": "x"})), READ, ANSWER), Agent(name="Counter", output_type=Counted)
    ),
    "failed: engine_error in a hook beside a call": lambda: drive(
        Engine(
            model=ScriptedModel(asks_for(("hang", {}), ("poll", {}))),
            tools=[poll, still],
            hooks=[breaks],
            cancel_grace=0,
        )
    ),
    "finished: answered with a history": lambda: drive(
        scripted("Done."),
        Agent(name='"""', instructions="\\", description="漢" * 99, tools=("read_file",)),
        history=[Message.user("Hi"), Message.assistant("Yes?")],
    ),
}


def core(started: StartedInput, *events: Input) -> Facts:
    """The facts of a turn that no engine of ours drove."""
    machine, facts = TurnMachine.start(started)
    for event in events:
        facts += machine.feed(event)
    return list(enumerate(facts, start=1))


def round_of(number: int, elapsed: float = 0.0) -> list[Input]:
    """One step that asks for the same call again."""
    call = f"call{number:05d}"
    tool_call = ToolCall(name="look", arguments={})
    return [
        ModelRepliedInput(calls=(tool_call,), usage=Usage(input_tokens=1), elapsed=elapsed),
        CallStartedInput(call=call, elapsed=elapsed),
        CallSettledInput(call=call, result="seen", elapsed=elapsed),
    ]


def facts_of(name: str) -> Facts:
    """The facts of the turn of that name."""
    if name in DRIVEN:
        return clock.run(DRIVEN[name])
    first = play(SCENARIOS[name], tools=TOOLS)[0]
    assert first.raised == ""
    return first.facts


def prefixes(facts: Facts) -> list[Facts]:
    """Journals that the turn had on its way, up to where something was fed."""
    fed = f.ModelReplied | f.AttemptFailed | f.CallStarted | f.CallWaiting | f.Answered | f.Concluded
    return [facts[:place] for place, (_, fact) in enumerate(facts) if place and isinstance(fact, fed)]


def run(text: str) -> None:
    """Run a printed test here."""
    names: dict[str, Callable[[], None]] = {}
    exec(compile(text, "test_incident.py", "exec"), names)  # noqa: S102 (that it runs is the point)
    (test,) = [names[name] for name in names if name.startswith("test_")]
    test()


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """The test of each turn."""
    return {name: as_test(name, facts_of(name), recorded="2026-11-22") for name in [*SCENARIOS, *DRIVEN]}


#: Changes that make a printed test wrong: of which turn, what is changed, and into what.
CHANGES = [
    ("finished: answered", "Outcome.FINISHED", "Outcome.FAILED"),
    ("finished: answered", 'turn.text == "Done."', 'turn.text == "Dane."'),
    ("finished: answered", '("read_file", {"path": "a.py"})', '("no_such_tool", {"path": "a.py"})'),
    ("finished: answered", '"Done."', '"Done?"'),
    ("cap_hit: step_cap", "Limits(steps=2, ", "Limits(steps=3, "),
    ("cap_hit: budget", "tool_calls=3", "tool_calls=4"),
    ("cap_hit: cost", "cost=3.5", "cost=350"),
    ("cap_hit: deadline in a call", '"deadline"', '"abort"'),
    ("doom_loop: doom_loop by keys", '"call00002": "', '"call00002": "other than'),
    ("finished: answered after polling", 'ignore_in_loop_detection=("poll",)', "ignore_in_loop_detection=()"),
    ("finished: answered after questions", "approve()", "reject()"),
    ("finished: answered after questions in the middle of calls", '"call00001": (1,)', '"call00001": (2,)'),
    ("aborted: superseded", '"superseded"', '"abort"'),
    ("finished: answered after a crash and a second run", '"rerun"', '"unknown"'),
    ("finished: answered after failed attempts", "Cause.TIMEOUT", "Cause.REJECTED"),
    ("finished: answered after decisions of hooks", "refused=True, ", "refused=False, "),
    ("finished: answered after decisions of hooks", ', at="hook"', ""),
    ("finished: answered after decisions of hooks", 'tools=("poll",)', 'tools=("send",)'),
    (
        "finished: answered after a call with other arguments",
        'approve(arguments={"path": "c.py"',
        'approve(arguments={"path": "d.py"',
    ),
    ("finished: answered after a compaction", "OversizedInput(tokens=", "CompactedInput(kept="),
    ("failed: guardrail on a reply", '"why": [1]', '"why": [2]'),
    ("failed: guardrail on a call", '"decision"', '"abort"'),
    ("failed: guardrail on a prompt", 'checks="input"', 'checks="output"'),
    ("failed: invalid_output at last", "output_retries=1", "output_retries=2"),
    ("finished: answered with a type", 'answer="call00003"', 'answer="call00004"'),
    ("finished: answered with a type", 'output={"n": 5}', 'output={"n": 6}'),
    ("failed: engine_error in a hook beside a call", '"decision"', '"abort"'),
]


@pytest.mark.slow
def test_every_printed_test_passes_and_every_changed_test_fails(printed: dict[str, str], tmp_path: Path) -> None:
    """In one run of pytest, in a folder without any configuration, warnings being errors."""
    for number, (name, text) in enumerate(printed.items()):
        (tmp_path / f"test_{number:03d}_right.py").write_text(f"{text}# {name}\n", encoding="utf-8")
    for number, (name, old, new) in enumerate(CHANGES):
        assert old in printed[name], (name, old)
        text = printed[name].replace(old, new, 1)
        (tmp_path / f"test_{number:03d}_wrong.py").write_text(f"{text}# {name}: {old}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-W", "error", "--tb=line", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    files = {line.split("::")[0] for line in done.stdout.splitlines() if line.startswith(("PASSED", "FAILED"))}
    right = {f"PASSED test_{number:03d}_right.py" for number in range(len(printed))}
    assert files == right | {f"FAILED test_{number:03d}_wrong.py" for number in range(len(CHANGES))}, done.stdout


@pytest.mark.slow
def test_every_printed_test_names_the_ending_of_the_turn(printed: dict[str, str]) -> None:
    for name, text in printed.items():
        outcome, reason = name.split()[:2]
        assert f'    """{outcome} {reason}. Model calls: ' in text, name


def test_no_playback_differs_from_the_recording(printed: dict[str, str]) -> None:
    assert [name for name, text in printed.items() if "DIFFERENT" in text] == []


def test_printed_text_passes_a_linter(printed: dict[str, str]) -> None:
    """No name is imported in vain, no line is longer than 120 columns."""
    for name, text in printed.items():
        tree = ast.parse(text)
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        imported = {a.name for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names}
        assert imported <= names, name
        assert max(map(len, text.splitlines())) <= 120, name


def test_only_turnwright_is_imported(printed: dict[str, str]) -> None:
    lines = [line.split() for text in printed.values() for line in text.splitlines()]
    imported = {words[1].partition(".")[0] for words in lines if words[:1] in (["from"], ["import"])}
    assert imported == {"turnwright", "turnwright_states", "turnwright_testing"}


def test_file_describes_the_recording_and_the_contents(printed: dict[str, str]) -> None:
    head = printed["finished: answered"].partition('"""\n\n')[0]
    assert head.startswith('"""Turn finished: answered, recorded 2026-11-22, to be played again.\n')
    for words in ("pytest FILE", "secrets among them", "Not reproduced: times and waits"):
        assert words in " ".join(head.split())


def test_data_files_and_questions_are_printed(printed: dict[str, str]) -> None:
    text = printed["finished: answered with data and a picture"]
    assert 'structured={"points": [1, 2.5], "of": None}' in text
    assert 'files=(FilePart(media_type="image/png", data="cG5n", name="a.png"),)' in text
    assert (
        '    files=(FilePart(media_type="image/png", data="cG5n", name="a.png"),),'
        in printed["finished: answered about a picture"]
    )
    text = printed["finished: answered after questions in the middle of calls"]
    assert 'asked_in={"call00001": (1,), "call00002": (1, 2), "call00004": (1,)},' in text


def test_changes_for_playback_are_mentioned(printed: dict[str, str]) -> None:
    in_a_call = " ".join(printed["cap_hit: deadline in a call"].split())
    assert "Its limit of 20 seconds is 60 here" in in_a_call
    assert "limits=Limits(tool_calls=50, seconds=60.0)" in in_a_call
    held_up = " ".join(printed["cap_hit: deadline in a process that was held up"].split())
    assert "limits=Limits(tool_calls=50, seconds=3600.0)" in held_up
    assert 'At(6, "delay")' in held_up


def test_difference_in_playback_is_mentioned_and_not_asserted() -> None:
    """A journal that no engine writes: the model's answer did not end the turn as answers do."""
    facts = list(facts_of("finished: answered"))
    seq, last = facts[-1]
    facts[-1] = (seq, structs.replace(last, reason=EndReason.TRUNCATED))
    text = as_test("forged", facts)
    assert "DIFFERENT: turn.reason was <EndReason.TRUNCATED: 'truncated'>" in " ".join(text.split())
    assert "assert turn.outcome == Outcome.FINISHED" in text
    assert "assert turn.reason" not in text
    run(text)


def test_printed_text_is_deterministic() -> None:
    name = "finished: answered after a crash that was asked about"
    facts = facts_of(name)
    assert as_test("turn", facts) == as_test("turn", facts)


@pytest.mark.slow
def test_open_turn_is_played_to_the_recorded_place() -> None:
    """Wherever its driver left it, and where it waits for a person."""
    for name in ("finished: answered after questions", "cap_hit: step_cap", "finished: text_only"):
        for facts in prefixes(facts_of(name)):
            text = as_test("turn", facts)
            assert "DIFFERENT" not in text
            paused = facts[-1][1].state is State.PAUSED
            assert ("Nobody has driven it to its end" in " ".join(text.split())) is not paused
            assert f"assert turn.state == State.{facts[-1][1].state}" in text
            assert "[asked.id for asked in turn.interrupts]" in text or not paused
            run(text)


def test_session_history_can_be_supplied() -> None:
    """By who knows the session; bookkeeping of earlier turns is left out."""
    history = [Message.user("Hi"), Message(role="assistant", parts=(StepStartPart(seq=9, step_number=1),))]
    text = as_test("turn", facts_of("finished: answered"), history=[*history, Message.assistant("Yes?")])
    assert text.count("Message(role=") == 2
    assert "seq" not in text
    run(text)


def test_any_id_makes_a_valid_name_and_header() -> None:
    run(as_test('"""\\ \n\ud800', facts_of("finished: answered")))


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        (f.MessageAdded(elapsed=0, state=State.TOOL_EXEC, text="wait"), "wrote to the turn while it ran"),
        (f.CallStarted(elapsed=0, state=State.TOOL_EXEC, call="call00001", child="t2"), "sub-agents"),
        (
            f.CallWaiting(
                elapsed=0,
                state=State.TOOL_EXEC,
                call="call00001",
                interrupt=f.InterruptRecord(id="call00001/question-1", kind=InterruptKind.QUESTION, call="call00001"),
            ),
            "sub-agents",
        ),
        (f.CallSettled(elapsed=0, state=State.TOOL_EXEC, call="call00001", spent=Spent(calls=1)), "sub-agents"),
    ],
)
def test_unplayable_journal_is_refused(fact: f.Fact, words: str) -> None:
    facts = facts_of("cap_hit: step_cap")[:3]
    with pytest.raises(ConfigError, match=words):
        as_test("turn", [*facts, (4, fact)])


def test_bug_during_calls_is_played() -> None:
    facts = facts_of("aborted: aborted in a call")
    (seq, turn_ended) = facts[-1]
    failed = structs.replace(turn_ended, outcome=Outcome.FAILED, reason=EndReason.ENGINE_ERROR, error="a bug")
    text = as_test("turn", [*facts[:-1], (seq, failed)])
    assert "turn.reason == EndReason.ENGINE_ERROR" in text
    run(text)


def test_empty_journal_is_refused() -> None:
    with pytest.raises(ConfigError, match="no fact"):
        as_test("turn", [])


def test_fixed_summary_with_times_is_not_compared(printed: dict[str, str]) -> None:
    text = printed["cap_hit: deadline without a conclusion"]
    assert "The turn's text is a fixed summary that contains times" in " ".join(text.split())
    assert "assert turn.text" not in text


def test_turn_of_another_driver_is_played() -> None:
    """Another driver names no agent, and chooses its own words. Here the time was up before a person answered."""
    started = StartedInput(prompt="Go on.", limits=Limits(seconds=90, doom_response="ask"))
    rounds = [event for number in (1, 2, 3) for event in round_of(number)]
    answered = AnsweredInput(interrupt="doom-1", decision=Decision.GO_ON, text="fine", elapsed=91)
    facts = core(started, *rounds, answered, ConcludedInput(text="Late.", usage=Usage(input_tokens=1)))
    text = as_test("turn", facts)
    assert "DIFFERENT" not in text
    assert "assert turn.reason == EndReason.DEADLINE" in text
    assert 'At(17, "deadline"), {"doom-1": Answer(Decision.GO_ON, text="fine")}' in text
    run(text)


def test_irreproducible_turn_is_refused() -> None:
    """Its tool was another one after the second crash: what happened then cannot happen again."""
    first_reply, begun, _ = round_of(1)
    unknown = CallSettledInput(call="call00001", status=CallStatus.UNKNOWN, result=UNKNOWN_OUTCOME)
    facts = core(StartedInput(prompt="Go on."), first_reply, begun, begun, unknown)
    _, notes = read_facts(fact for _, fact in facts)
    assert notes[0] == "The tool 'look' did not do the same after every crash; the test has it do so."
    with pytest.raises(PlaybackError, match=r"turn t1 cannot be played again as it was recorded: .* stands still"):
        as_test("t1", facts)


def test_turn_with_a_removed_review_is_refused() -> None:
    facts = [fact for _, fact in facts_of("finished: answered with a type")]
    at = max(place for place, fact in enumerate(facts) if isinstance(fact, f.Reviewed))
    with pytest.raises(PlaybackError, match=r"turn t1 cannot be played again as it was recorded: .* typed answer"):
        as_test("t1", [*enumerate([*facts[:at], *facts[at + 1 :]], start=1)])


def test_differing_results_are_mentioned() -> None:
    """An engine never answers a call whose arguments were not whole with other words than its own."""
    facts = list(facts_of("finished: answered after mistakes"))
    for place, (seq, fact) in enumerate(facts):
        if isinstance(fact, f.CallSettled) and "not one whole JSON object" in fact.result:
            facts[place] = (seq, structs.replace(fact, result="forged"))
    text = as_test("turn", facts)
    assert "DIFFERENT: some calls have other results" in " ".join(text.split())
    assert "results_of" not in text
    run(text)


@settings(max_examples=percent_of_examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(scenario=scenarios(TOOLS), data=st.data())
def test_any_turn_can_be_replayed_as_a_test(scenario: Scenario, data: st.DataObject) -> None:
    """To its end, and as far as it had come at any time, with what hooks, guardrails and compactions decided."""
    check_played_again(play(scenario, tools=TOOLS), data)


TYPED = Agent(name="Typed", output_type=Counted)


@settings(max_examples=percent_of_examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(scenario=scenarios(TOOLS, agent=TYPED), data=st.data())
def test_any_turn_with_a_typed_answer_can_be_replayed_as_a_test(scenario: Scenario, data: st.DataObject) -> None:
    check_played_again(play(scenario, agent=TYPED, tools=TOOLS), data)


def test_printed_test_counts_no_conclusion_that_nobody_asked_for() -> None:
    limits = Limits(ceiling=1, concluding="never")
    (turn,) = play(Scenario((asks_for(("read_file", {"path": "a"})),), limits=limits), tools=TOOLS)
    text = as_test("turn", turn.facts)
    assert "Model calls: 1." in text
    run(text)


def test_call_that_waits_behind_a_refused_one_does_not_begin() -> None:
    same_calls = asks_for(("read_file", {"path": "a"}), ("read_file", {"path": "a"}))
    hooks = HookScript(before_tool=(None, Reject("no")))
    (turn,) = play(Scenario(script=(same_calls, "Done."), hooks=hooks), tools=TOOLS)
    for facts in (turn.facts, *prefixes(turn.facts)):
        text = as_test("turn", facts)
        assert "DIFFERENT" not in text
        run(text)


def check_played_again(turns: Sequence[Driven], data: st.DataObject) -> None:
    for turn in turns:
        journals = [turn.facts, *prefixes(turn.facts)]
        text = as_test("turn", data.draw(st.sampled_from(journals[:1] + journals)))
        assert "DIFFERENT" not in text
        run(text)
