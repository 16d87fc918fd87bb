"""A turn whose calls cannot run ends, in the engine (docs/rules.md#idle-steps)."""

import pytest

from turnwright import Agent, CallView, EndReason, Engine, Hooks, Outcome, Reject, ToolContext, tool
from turnwright.model.protocol import ModelRequest, ModelResponse, ResponseToolCall
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright_states import Finish, Limits

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Clerk")
#: Nothing else stops these turns.
LOOSE = Limits(doom_threshold=None)


@tool
def look(place: int = 0) -> str:
    return f"nothing at {place}"


class Stubborn:
    """A model that asks for one call after the other, each with new arguments."""

    def __init__(self, name: str, finish: Finish = Finish.STOP, raw: str = "") -> None:
        self.calls = 0
        self._name, self._finish, self._raw = name, finish, raw

    def __call__(self, request: ModelRequest) -> ModelResponse:
        self.calls += 1
        if request.tool_choice == "none":
            return ModelResponse(text="No tool could help.")
        call = ResponseToolCall(self._name, None if self._raw else {"place": self.calls}, raw=self._raw)
        return ModelResponse(calls=(call,), finish=self._finish)


async def test_a_missing_tool_costs_six_model_calls() -> None:
    model = Stubborn("nowhere")
    async with Engine(model=ScriptedModel(model, repeat=True), tools=[look], limits=LOOSE) as engine:
        turn = await engine.run(AGENT, "Find it.")
    assert (turn.outcome, turn.reason, turn.steps) == (Outcome.CAP_HIT, EndReason.NO_CALL_RAN, 5)
    assert model.calls == 6
    assert turn.text == "No tool could help."


async def test_ending_is_reported_to_user_and_developer() -> None:
    model = ScriptedModel(Stubborn("nowhere"), repeat=True)
    async with Engine(model=model, tools=[look], limits=LOOSE) as engine:
        turn = await engine.run(AGENT, "Find it.")
    assert turn.sentinel is not None
    assert turn.sentinel.text.startswith("Stopped because no tool call could run in 5 steps in a row.")
    assert "idle_steps" not in turn.sentinel.text
    assert "raise `idle_steps`" in turn.advice


async def test_endlessly_cut_off_calls_end_the_turn() -> None:
    model = Stubborn("look", Finish.LENGTH, '{"place": 1')
    async with Engine(model=ScriptedModel(model, repeat=True), tools=[look], limits=LOOSE) as engine:
        turn = await engine.run(AGENT, "Find it.")
    assert (turn.reason, model.calls) == (EndReason.NO_CALL_RAN, 6)


async def test_endlessly_rejected_calls_end_the_turn() -> None:
    class Never(Hooks):
        async def before_tool(self, ctx: ToolContext, call: CallView) -> Reject:
            del ctx, call
            return Reject("not today")

    model = ScriptedModel(Stubborn("look"), repeat=True)
    async with Engine(model=model, tools=[look], hooks=[Never()], limits=LOOSE) as engine:
        turn = await engine.run(AGENT, "Find it.")
    assert (turn.reason, turn.steps) == (EndReason.NO_CALL_RAN, 5)


async def test_agent_may_set_idle_steps() -> None:
    model = ScriptedModel(Stubborn("nowhere"), repeat=True)
    async with Engine(model=model, tools=[look], limits=LOOSE) as engine:
        turn = await engine.run(Agent(name="Clerk", idle_steps=2), "Find it.")
        longer = await engine.run(Agent(name="Clerk", idle_steps=None, steps=9), "Find it.")
    assert (turn.reason, turn.steps) == (EndReason.NO_CALL_RAN, 2)
    assert (longer.reason, longer.steps) == (EndReason.STEP_CAP, 9)


async def test_turn_never_concluding_makes_no_further_call() -> None:
    """The fixed summary takes the place of the model's."""
    model = ScriptedModel(*[asks_for(("look", {"place": place})) for place in range(2)])
    async with Engine(model=model, tools=[look]) as engine:
        turn = await engine.run(Agent(name="Clerk", steps=2, concluding="never"), "Find it.")
    assert (turn.outcome, turn.reason) == (Outcome.CAP_HIT, EndReason.STEP_CAP)
    assert len(model.requests) == 2
    assert turn.text.startswith("Stopped at the step limit (2 of 2). The model was not asked for a summary.")
    assert turn.sentinel is not None
