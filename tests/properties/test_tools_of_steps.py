"""A tool runs only in the steps that have it (docs/rules.md#tools-of-a-step)."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from turnwright import Agent, Engine, TurnContext, tool
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.testing.clock import run
from turnwright.tools import Tool, ToolContext

NAMES = ("look", "write", "erase")


@given(
    chosen=st.lists(st.lists(st.sampled_from(NAMES), unique=True), min_size=1, max_size=3),
    asked=st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), min_size=1, max_size=3),
)
def test_a_call_runs_if_its_step_has_the_tool(chosen: list[list[str]], asked: list[list[str]]) -> None:
    ran: list[tuple[int, str]] = []

    async def prepare(context: TurnContext, offered: tuple[str, ...]) -> Sequence[str]:
        mine = chosen[(context.step - 1) % len(chosen)]
        return [name for name in offered if name in mine]

    def made(name: str) -> Tool:
        @tool(name=name)
        async def work(context: ToolContext) -> str:
            ran.append((context.step, name))
            return "done"

        return work

    async def play() -> None:
        replies = [asks_for(*[(name, {}) for name in names]) for names in asked]
        async with Engine(model=ScriptedModel(*replies, "Done."), tools=list(map(made, NAMES))) as engine:
            await engine.run(Agent(name="Clerk", prepare_tools=prepare), "Work.")

    run(play)
    steps = enumerate(asked, 1)
    allowed = [(step, name) for step, names in steps for name in names if name in chosen[(step - 1) % len(chosen)]]
    assert sorted(ran) == sorted(allowed)
