"""The runner finds what is planted, makes it small, and writes it down; and it finds nothing in what ships."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

import anyio
import pytest
from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright import Agent, ConfigError, Engine, tool
from turnwright.message import Message
from turnwright.model import asks_for
from turnwright.model.protocol import Model, ModelRequest
from turnwright.store import Claim, InboxItem, Status
from turnwright.tools import Ask, Tool, ToolContext, builtin_tools
from turnwright_states import InterruptKind
from turnwright_states import facts as f
from turnwright_states.verdict import Verdict
from turnwright_testing import Build, EngineParts, FaultyStore, InvariantViolatedError
from turnwright_testing.failing_test import FailureOrigin
from turnwright_testing.fuzz import Found, Target, as_test, fuzz


@tool
def look(path: str) -> str:
    """Look at a path; a stand-in answers."""
    raise AssertionError(f"it ran, with {path}, though a stand-in takes its place")


AGENT = Agent(name="Somebody")
TOOLS: tuple[Tool, ...] = (look,)


class Losing(FaultyStore):
    """Says that it has written the result of a call, and has not."""

    async def append(
        self, claim: Claim, facts: Sequence[f.Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        kept_facts = [fact for fact in facts if not isinstance(fact, f.CallSettled)]
        return await super().append(claim, kept_facts, status, consumed)


class Doubling(FaultyStore):
    """Writes the result of a call twice."""

    async def append(
        self, claim: Claim, facts: Sequence[f.Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        doubled = [repeated for fact in facts for repeated in [fact] * (1 + isinstance(fact, f.CallSettled))]
        return await super().append(claim, doubled, status, consumed)


class Endless(FaultyStore):
    """Loses the last append of every turn, and says that it was written."""

    async def append(
        self, claim: Claim, facts: Sequence[f.Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        if isinstance(facts[-1], f.TurnEnded):
            return []
        return await super().append(claim, facts, status, consumed)


class Stubborn:
    """A model adapter that has retries of its own, beside the chart's."""

    def __init__(self, inner: Model) -> None:
        self.name = inner.name
        self._inner = inner

    async def stream(self, request: ModelRequest):  # type: ignore[no-untyped-def]  # noqa: ANN201 (a generator of four types)
        for attempt in range(3):
            try:
                async for item in self._inner.stream(request):
                    yield item
            except Exception:
                if attempt == 2:
                    raise
            else:
                return


class Twice(Tool):
    """A tool that does its work twice."""

    def __init__(self, inner: Tool) -> None:
        super().__init__(name=inner.name, description=inner.description, parameters=inner.parameters)
        self._inner = inner

    async def execute(self, values: dict[str, object], context: ToolContext) -> object:  # type: ignore[override]
        await self._inner.execute(values, context)
        return await self._inner.execute(values, context)


async def forget_results(messages: Sequence[Message]) -> list[Message]:
    """A `history_processor` hook that leaves results out to save tokens, which only a strict engine refuses."""
    return [message for message in messages if message.role != "tool"]


async def answer_last(messages: Sequence[Message]) -> list[Message]:
    """A `history_processor` hook that ends the conversation with the model's own words."""
    return [*messages, Message.assistant("I was about to say")]


async def wait_for_ever(_messages: Sequence[Message]) -> list[Message]:
    """A `history_processor` hook that never comes back."""
    await anyio.Event().wait()
    raise AssertionError


class Broken(BaseException):
    """An exception that no hook may raise."""


async def break_out(_messages: Sequence[Message]) -> list[Message]:
    """A `history_processor` hook that raises what nobody catches."""
    raise Broken("out")


def loses_results(**parts: Unpack[EngineParts]) -> Engine:
    parts["store"] = Losing(parts["store"])
    return Engine(**parts)


def doubles_results(**parts: Unpack[EngineParts]) -> Engine:
    parts["store"] = Doubling(parts["store"])
    return Engine(**parts)


def loses_the_end(**parts: Unpack[EngineParts]) -> Engine:
    parts["store"] = Endless(parts["store"])
    return Engine(**parts)


def retries_by_itself(**parts: Unpack[EngineParts]) -> Engine:
    parts["model"] = Stubborn(parts["model"])
    return Engine(**parts)


def runs_twice(**parts: Unpack[EngineParts]) -> Engine:
    parts["tools"] = [Twice(tool) for tool in parts["tools"]]
    return Engine(**parts)


def hides_its_tools(**parts: Unpack[EngineParts]) -> Engine:
    parts["tools"] = []
    return Engine(**parts)


def forgets_results(**parts: Unpack[EngineParts]) -> Engine:
    return Engine(**parts, history_processor=forget_results, unpaired="reject")


def answers_last(**parts: Unpack[EngineParts]) -> Engine:
    return Engine(**parts, history_processor=answer_last)


def waits_for_ever(**parts: Unpack[EngineParts]) -> Engine:
    return Engine(**parts, history_processor=wait_for_ever, tool_timeout=None)


def breaks_out(**parts: Unpack[EngineParts]) -> Engine:
    return Engine(**parts, history_processor=break_out)


PLANTED: dict[Build, str] = {
    loses_results: "every call is settled exactly once in the journal",
    doubles_results: "every call is settled exactly once in the journal",
    loses_the_end: "the turn ends",
    retries_by_itself: "model calls <= (allowance + 1) x (1 + max_retries) + 2 x max_compactions",
    runs_twice: "no call runs again, unless its tool is idempotent or a person said so",
    hides_its_tools: "every request is paired, ends with no assistant message, and has the tools of its step",
    forgets_results: "no turn fails by a bug of the engine, a tool or a hook",
    answers_last: "every request is paired, ends with no assistant message, and has the tools of its step",
    waits_for_ever: "the turn ends",
    breaks_out: "no turn fails by a bug of the engine, a tool or a hook",
}
IDS: Callable[[Build], str] = lambda build: build.__name__  # type: ignore[attr-defined]  # noqa: E731


def found_in(build: Build, seed: int = 1) -> Found:
    report = fuzz(Target((AGENT,), TOOLS, build=build), examples=60, seed=seed)
    assert report.verdict is Verdict.VIOLATED
    assert report.found is not None
    return report.found


def run_as_test(text: str) -> None:
    """Run the printed file as pytest would."""
    names: dict[str, Callable[[], None]] = {}
    exec(compile(text, "test_found.py", "exec"), names)  # noqa: S102 (it is what we printed)
    names["test_every_invariant_holds"]()


@pytest.mark.slow
@pytest.mark.parametrize("build", PLANTED, ids=IDS)
def test_planted_fault_is_detected_shrunk_and_written_down(build: Build) -> None:
    finding = found_in(build)
    assert PLANTED[build] in [check.claim for check in finding.checks]
    assert finding.comes_back
    scenario = finding.scenario
    assert len(scenario.script) <= 2
    assert len(scenario.behaviours) + len(scenario.people) <= 1
    assert (scenario.crash, scenario.abort_at, scenario.synthesis) == (None, None, None)
    origin = FailureOrigin((Agent, look, build), 'Agent(name="Somebody")', "[look]", IDS(build))
    text = as_test(finding, origin, command="turnwright fuzz --seed 1")
    assert text.count("\n") < 60
    with pytest.raises(InvariantViolatedError, match=re.escape(PLANTED[build])):
        run_as_test(text)


@dataclass
class Moody:
    """An engine that fails once, and never again."""

    failed: bool = False

    def __call__(self, **parts: Unpack[EngineParts]) -> Engine:
        if self.failed:
            return Engine(**parts)
        return Engine(**parts, history_processor=self._fail)

    async def _fail(self, _messages: Sequence[Message]) -> list[Message]:
        self.failed = True
        raise RuntimeError("once")


def test_unreproducible_failure_is_reported_unshrunk() -> None:
    """It is found all the same; nothing could be made smaller."""
    moody = Moody(failed=True)

    def wake(examples: int, _smaller: bool) -> None:
        if examples == 3:
            moody.failed = False

    report = fuzz(Target((AGENT,), TOOLS, build=moody), examples=20, seed=1, progress=wake)
    assert report.verdict is Verdict.VIOLATED
    assert report.found is not None
    assert not report.found.comes_back
    assert "RuntimeError: once" in report.found.checks[0].detail


@pytest.mark.slow
def test_shipped_engine_keeps_every_invariant_and_takes_most_rows() -> None:
    tools = tuple(builtin_tools(Path()))
    agents = (
        AGENT,
        Agent(name="Few", steps=2, budget=3, tools=("read_file",)),
        Agent(name="Within", concluding="within"),
    )
    report = fuzz(Target(agents, tools), examples=60, seed=20)
    assert report.verdict is Verdict.HOLDS
    assert (report.examples, report.found, report.stopped) == (60, None, "")
    assert sum(report.ends.values()) >= 60
    assert len(report.ends) >= 8
    assert report.rows.covered >= 25


@pytest.mark.slow
def test_same_seed_repeats_the_run_and_another_does_not() -> None:
    first, same, third = (fuzz(Target((AGENT,), TOOLS), examples=25, seed=seed) for seed in (5, 5, 6))
    assert (first.ends, first.rows) == (same.ends, same.rows)
    assert (first.ends, first.rows) != (third.ends, third.rows)


def test_interrupted_run_is_no_pass() -> None:
    def interrupt(examples: int, _smaller: bool) -> None:
        if examples == 3:
            raise KeyboardInterrupt

    report = fuzz(Target((AGENT,), TOOLS), examples=10, seed=1, progress=interrupt)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert {check.detail for check in report.checks} == {"it was interrupted after 3 of 10 examples"}


def test_run_out_of_time_is_no_pass() -> None:
    report = fuzz(Target((AGENT,), TOOLS), examples=10, seed=1, seconds=1e-6)
    assert (report.verdict, report.stopped) == (Verdict.INCONCLUSIVE, "the time was up after 0 of 10 examples")


def test_violation_before_an_interruption_stays_a_violation() -> None:
    """Ctrl-C while a failing example is being made smaller: the report has the findings so far."""

    def interrupt(_examples: int, smaller: bool) -> None:
        if smaller:
            raise KeyboardInterrupt

    target = Target((AGENT,), TOOLS, build=loses_the_end)
    report = fuzz(target, examples=10, seed=1, progress=interrupt)
    assert (report.verdict, report.stopped) == (Verdict.VIOLATED, "")
    assert report.found is not None


def test_unrunnable_agent_is_a_configuration_mistake() -> None:
    with pytest.raises(ConfigError, match="there is no tool 'nowhere'"):
        fuzz(Target((replace_tools(AGENT, "nowhere"),), TOOLS), examples=1, seed=1)


def replace_tools(agent: Agent, *names: str) -> Agent:
    return agent.model_copy(update={"tools": names})


@pytest.mark.slow
def test_real_tools_run_and_errors_become_results() -> None:
    notes: list[str] = []

    @tool
    def note(text: str) -> str:
        """Note something."""
        notes.append(text)
        raise RuntimeError("no")

    assert fuzz(Target((AGENT,), (note,)), examples=20, seed=1).verdict is Verdict.HOLDS
    assert notes == []
    assert fuzz(Target((AGENT,), (note,), run_tools=True), examples=20, seed=1).verdict is Verdict.HOLDS
    assert notes


def test_values_of_the_user_reach_the_tools() -> None:
    """By parameter, for each reply of a model that obeys."""
    paths: set[str] = set()

    @tool
    def note(path: str) -> str:
        """Note a path."""
        paths.add(path)
        return "noted"

    target = Target((AGENT,), (note,), run_tools=True, values={"path": st.just("C3")})
    assert fuzz(target, examples=20, seed=1).verdict is Verdict.HOLDS
    assert "C3" in paths


class Careless(Tool):
    """A tool that is not a function, and takes for granted what a model may leave out."""

    def asks(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> Ask | None:
        assert context.call_id
        return Ask(InterruptKind.APPROVAL) if arguments["much"] else None

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> str:
        return f"{context.call_id} {len(values)}"


@pytest.mark.parametrize("run_tools", [False, True])
def test_tool_with_a_raising_check_is_detected_run_or_not(run_tools: bool) -> None:
    pay = Careless(
        name="pay", description="", parameters={"type": "object", "properties": {"much": {"type": "boolean"}}}
    )
    report = fuzz(Target((AGENT,), (pay,), run_tools=run_tools), examples=40, seed=1)
    assert report.found is not None
    assert [(check.claim, check.detail) for check in report.found.checks] == [
        ("no turn fails by a bug of the engine, a tool or a hook", "KeyError: 'much'")
    ]
    assert report.found.scenario.script == (asks_for(("pay", {})),)


@pytest.mark.parametrize("error", [Broken("too far"), asyncio.CancelledError("a task of my own")], ids=repr)
def test_exception_in_a_running_tool_is_no_fault(error: BaseException) -> None:
    """It is the result of the call, and the turn continues."""

    @tool
    async def bad() -> str:
        """Go too far."""
        raise error

    assert fuzz(Target((AGENT,), (bad,), run_tools=True), examples=20, seed=1).verdict is Verdict.HOLDS


def test_printed_failure_names_the_command_and_the_violation() -> None:
    finding = found_in(breaks_out)
    text = as_test(
        replace(finding, checks=(replace(finding.checks[0], detail='a """ quote\nand a line'),)),
        FailureOrigin((Agent,), 'Agent(name="Somebody")', "[]"),
        command="turnwright fuzz --seed 4",
        run_tools=True,
    )
    head = text.splitlines()[:2]
    assert head == [
        '# violated: no turn fails by a bug of the engine, a tool or a hook: \'a """ quote\\nand a line\'',
        "# Found by: turnwright fuzz --seed 4",
    ]
    assert "run_tools=True" in text
    compile(text, "test_found.py", "exec")
