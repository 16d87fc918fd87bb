"""The model that an agent names is the one that serves it, wherever its turn begins or continues."""

from collections.abc import Awaitable, Callable

import pytest

from turnwright import Agent, CannotRunError, ConfigError, Engine, Limits, agent_tool, tool
from turnwright.driver.dependencies import Dependencies
from turnwright.message import ToolResultPart
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright_states import CallStatus, Outcome
from turnwright_testing.behavior import Returns
from turnwright_testing.play import play
from turnwright_testing.scenario import Scenario

X = Agent(name="Tidier", model="x")
MISFIT = (
    "agent 'Tidier': model 'x': the engine has only 'a': give it models=, a function that returns the model of a name,"
    " or leave the agent's model out"
)


def model(name: str, *script: str) -> ScriptedModel:
    """A model of this name, which says `script`, or else its name."""
    return ScriptedModel(*(script or (name,)), name=name, repeat=True)


async def run(engine: Engine, agent: Agent) -> None:
    """Run a turn of the agent."""
    await engine.run(agent, "hi")


async def stream(engine: Engine, agent: Agent) -> None:
    """Stream a turn of the agent."""
    async with engine.stream(agent, "hi") as events:
        async for _ in events:
            pass


async def submit(engine: Engine, agent: Agent) -> None:
    """Submit a turn of the agent."""
    await engine.submit(agent, "hi")


@pytest.mark.anyio
@pytest.mark.parametrize("begin", [run, stream, submit])
async def test_model_missing_from_the_engine_begins_no_turn(
    begin: Callable[[Engine, Agent], Awaitable[None]],
) -> None:
    only = model("a")
    async with Engine(model=only) as engine:
        with pytest.raises(ConfigError) as raised:
            await begin(engine, X)
        assert str(raised.value) == MISFIT
        assert (await engine.turns(), only.requests) == ([], [])


def test_engine_without_any_model_is_reported() -> None:
    with pytest.raises(ConfigError, match="model 'x': the engine has none: give it models="):
        Dependencies().model_for(X)
    with pytest.raises(ConfigError, match="agent 'Plain': no model"):
        Dependencies().model_for(Agent(name="Plain"))


def test_an_agent_may_name_the_engines_own_model() -> None:
    own = model("x")
    assert Dependencies(model=own).model_for(X) is own
    assert Dependencies(model=own).model_for(Agent(name="Plain")) is own


def test_models_may_know_a_model_by_another_name() -> None:
    """An alias (`fast`) is what `models` is for."""
    own, fast = model("a"), model("gpt-5-mini")
    assert Dependencies(model=own, models={"x": fast}.__getitem__).model_for(X) is fast


def test_models_is_asked_first_also_for_the_name_of_the_engines_own_model() -> None:
    own, another = model("x"), model("x")
    assert Dependencies(model=own, models={"x": another}.__getitem__).model_for(X) is another
    assert Dependencies(model=own, models={"x": another}.__getitem__).model_for(Agent(name="Plain")) is own


@pytest.mark.anyio
async def test_turn_continues_only_where_the_agents_model_is() -> None:
    store = MemoryStore()
    begun = await Engine(model=model("x"), store=store).submit(X, "hi")
    elsewhere = model("a")
    other_engine = Engine(model=elsewhere, store=store)
    with pytest.raises(CannotRunError) as raised:
        await other_engine.resume(begun)
    assert str(raised.value) == MISFIT
    assert await other_engine.recover() == []
    assert elsewhere.requests == []
    assert (await Engine(model=elsewhere, models={"x": model("x")}.__getitem__, store=store).resume(begun)).text == "x"


@pytest.mark.anyio
async def test_sub_agent_has_the_named_model_or_does_not_begin(caplog: pytest.LogCaptureFixture) -> None:
    reader = Agent(name="Reader", description="Reads.", model="x")
    only = ScriptedModel(asks_for(("Reader", {"prompt": "Read."})), "Done.", name="a")
    turn = await Engine(model=only, tools=[agent_tool(reader)]).run(Agent(name="Lead"), "hi")
    parts = [part for message in turn.messages for part in message.parts]
    (result,) = (part for part in parts if isinstance(part, ToolResultPart))
    assert result.status is CallStatus.ERROR
    assert "agent 'Reader': model 'x': the engine has only 'a'" in caplog.text
    assert len(only.requests) == 2


def test_a_fuzzed_agent_may_name_a_model() -> None:
    """The script speaks for every model."""

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    scenario = Scenario(script=(asks_for(("look", {})), "Done."), behaviours=(Returns(),), limits=Limits())
    (driven,) = play(scenario, agent=X, tools=[look])
    assert driven.raised == driven.gave_up == ""
    assert getattr(driven.facts[-1][1], "outcome", None) is Outcome.FINISHED
