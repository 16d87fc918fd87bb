"""An agent chooses the tools of each step, once, and the journal keeps the choice."""

from collections.abc import Sequence

import pytest

from turnwright import Agent, Engine, Outcome, TurnContext, tool
from turnwright.message import ToolResultPart
from turnwright.model.protocol import ModelError
from turnwright.model.retry import Backoff
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright_states import Cause, EndReason
from turnwright_states.facts import RequestPrepared

pytestmark = pytest.mark.anyio


@tool
def look() -> str:
    return "seen"


@tool
def write() -> str:
    return "written"


class Choice:
    """Offers `look` in the first step, and every tool later. `steps` has the steps."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    async def __call__(self, context: TurnContext, tools: tuple[str, ...]) -> Sequence[str]:
        assert tools == ("look", "write")
        self.steps.append(context.step)
        return ["look"] if context.step == 1 else tools


async def test_each_step_has_chosen_tools_and_the_journal_keeps_the_choice() -> None:
    choice, model = Choice(), ScriptedModel(asks_for(("look", {})), asks_for(("write", {})), "Done.")
    async with Engine(model=model, tools=[look, write]) as engine:
        turn = await engine.run(Agent(name="Clerk", prepare_tools=choice), "Work.")
        facts = [fact for _, fact in await engine.store.facts(turn.id)]
    assert (choice.steps, turn.tool_calls) == ([1, 2, 3], 2)
    assert [[tool.name for tool in request.tools] for request in model.requests] == [
        ["look"],
        ["look", "write"],
        ["look", "write"],
    ]
    assert [fact.tools for fact in facts if isinstance(fact, RequestPrepared)] == [("look",), None, None]


async def test_call_of_a_tool_outside_the_step_is_refused() -> None:
    choice, model = Choice(), ScriptedModel(asks_for(("write", {})), asks_for(("write", {})), "Done.")
    async with Engine(model=model, tools=[look, write]) as engine:
        turn = await engine.run(Agent(name="Clerk", prepare_tools=choice), "Work.")
    results = [part.text for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert results == ["write may not be called in this step; its tools are: look", "written"]
    assert (turn.outcome, turn.tool_calls) == (Outcome.FINISHED, 1)


@pytest.mark.parametrize(("names", "listed_names"), [((), "none"), (("look", "read"), "look, read")])
async def test_the_refusal_names_the_tools_of_the_step(names: Sequence[str], listed_names: str) -> None:
    @tool
    def read() -> str:
        return "read"

    def choose(*_: object) -> Sequence[str]:
        return names

    model = ScriptedModel(asks_for(("write", {}), ("fly", {})), "Done.")
    turn = await Engine(model=model, tools=[look, read, write]).run(Agent(name="Clerk", prepare_tools=choose), "Work.")
    results = [part.text for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert results == [
        f"write may not be called in this step; its tools are: {listed_names}",
        f"there is no tool 'fly'; the tools are: {listed_names}",
    ]


async def test_another_attempt_sends_the_same_tools_without_asking_again() -> None:
    choice, late = Choice(), ModelError("busy", cause=Cause.OVERLOADED)
    model = ScriptedModel(late, "Done.")
    async with Engine(model=model, tools=[look, write], backoff=Backoff(initial=0)) as engine:
        await engine.run(Agent(name="Clerk", prepare_tools=choice), "Work.")
    assert choice.steps == [1]
    assert [[tool.name for tool in request.tools] for request in model.requests] == [["look"], ["look"]]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["look", "fly"], "returned tools that the agent does not have: fly"),
        ("look", "returned 'look': return a list of names"),
        (None, "returned None: return a list of names"),
    ],
)
async def test_choice_of_invalid_names_ends_the_turn(names: object, why: str) -> None:
    def choose(*_: object) -> object:
        return names

    agent = Agent(name="Clerk", prepare_tools=choose)  # type: ignore[arg-type]
    turn = await Engine(model=ScriptedModel("Done."), tools=[look]).run(agent, "Work.")
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.ENGINE_ERROR)
    assert why in turn.error


async def test_choice_may_leave_no_tool() -> None:
    def none(*_: object) -> Sequence[str]:
        return ()

    model = ScriptedModel("Done.")
    async with Engine(model=model, tools=[look]) as engine:
        assert (await engine.run(Agent(name="Clerk", prepare_tools=none), "Work.")).text == "Done."
    assert model.requests[0].tools == ()


async def test_journal_names_the_code_needed_by_a_driver() -> None:
    agent = Agent(name="Clerk", prepare_tools=Choice())
    assert agent.to_journal(deps=False) == {"name": "Clerk", "needs": ["prepare_tools"]}
