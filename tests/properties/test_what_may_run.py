"""A call runs only if its step has the tool, no hook rejects it, and no guardrail has tripped."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from turnwright import (
    Agent,
    CallView,
    Engine,
    Reject,
    ToolContext,
    Trip,
    TurnContext,
    before_tool,
    tool,
    tool_input_guardrail,
)
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.tools import Tool
from turnwright_states import EndReason
from turnwright_testing.clock import run

NAMES = ("look", "write", "erase")
#: The tools that are called in each step.
steps = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), min_size=1, max_size=3)
some = st.frozensets(st.sampled_from(NAMES), max_size=2)


class Ran:
    """The step and the tool of each call that ran."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, str]] = []

    def tools(self) -> list[Tool]:
        """Return tools that note their calls."""
        return list(map(self._tool, NAMES))

    def _tool(self, name: str) -> Tool:
        @tool(name=name)
        async def work(context: ToolContext) -> str:
            self.calls.append((context.step, name))
            return "done"

        return work


def model_of(called_names: Sequence[Sequence[str]]) -> ScriptedModel:
    return ScriptedModel(*[asks_for(*[(name, {}) for name in names]) for names in called_names], "Done.")


@given(chosen=st.lists(st.lists(st.sampled_from(NAMES), unique=True), min_size=1, max_size=3), called_names=steps)
def test_call_runs_exactly_if_the_step_has_the_tool(chosen: list[list[str]], called_names: list[list[str]]) -> None:
    ran = Ran()

    async def prepare(context: TurnContext, offered: tuple[str, ...]) -> Sequence[str]:
        mine = chosen[(context.step - 1) % len(chosen)]
        return [name for name in offered if name in mine]

    async def play() -> None:
        async with Engine(model=model_of(called_names), tools=ran.tools()) as engine:
            await engine.run(Agent(name="Clerk", prepare_tools=prepare), "Work.")

    run(play)
    calls = [(step, name) for step, names in enumerate(called_names, 1) for name in names]
    assert sorted(ran.calls) == sorted(call for call in calls if call[1] in chosen[(call[0] - 1) % len(chosen)])


@given(called_names=steps, rejected=some, trips=some)
def test_call_runs_exactly_if_not_rejected_and_no_guardrail_tripped(
    called_names: list[list[str]], rejected: frozenset[str], trips: frozenset[str]
) -> None:
    """A guardrail does not see a rejected call. One that trips ends the turn, beside other calls of its step."""
    ran = Ran()

    @before_tool
    async def watch(_: ToolContext, call: CallView) -> Reject | None:
        return Reject("not today") if call.tool in rejected else None

    @tool_input_guardrail
    async def guard(_: ToolContext, call: CallView) -> Trip | None:
        return Trip("not allowed") if call.tool in trips else None

    async def play() -> EndReason | None:
        async with Engine(model=model_of(called_names), tools=ran.tools(), hooks=[watch], guardrails=[guard]) as engine:
            return (await engine.run(Agent(name="Clerk"), "Work.")).reason

    reason = run(play)
    last = next((step for step, names in enumerate(called_names, 1) if trips - rejected & {*names}), None)
    assert (reason is EndReason.GUARDRAIL) == (last is not None)
    allowed_calls = [
        (step, name)
        for step, names in enumerate(called_names, 1)
        for name in names
        if name not in rejected | trips and (last is None or step <= last)
    ]
    before = sorted(call for call in allowed_calls if call[0] != last)
    assert sorted(call for call in ran.calls if call[0] != last) == before
    assert not [call for call in ran.calls if call not in allowed_calls]
