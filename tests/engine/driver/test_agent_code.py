"""An agent's code, which no journal can keep: it is found by the agent's name, or the turn is left alone."""

from collections.abc import Callable

import pytest
from pydantic import Field

from turnwright import Agent, CannotRunError, ConfigError, Engine, Outcome, agent_tool, tool
from turnwright.driver.dependencies import Dependencies
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright_states import facts as f

pytestmark = pytest.mark.anyio


class Coded(Agent):
    """An agent with a field that JSON cannot hold, as the fields for functions and types are declared."""

    check: Callable[[], str] | None = Field(default=None, exclude=True)


def strict() -> str:
    return "strict"


def lenient() -> str:
    return "lenient"


@tool(needs_approval=True)
def sign() -> str:
    return "signed"


def coded(check: Callable[[], str] = strict, **fields: object) -> Coded:
    return Coded.model_validate({"name": "Clerk", "check": check, **fields})


def engine(store: MemoryStore, *lines: Line, agents: tuple[Agent, ...] = ()) -> Engine:
    return Engine(model=ScriptedModel(*lines), tools=[sign], store=store, agents=agents)


async def test_the_journal_has_the_names_of_the_code_and_the_json_of_the_rest() -> None:
    store = MemoryStore()
    turn = await engine(store, "Done.").run(coded(steps=3), "hi")
    started = (await store.facts(turn.id))[0][1]
    assert isinstance(started, f.TurnStarted)
    assert started.agent == {"name": "Clerk", "steps": 3, "needs": ["check"]}
    assert Agent.from_json(started.agent) == Agent(name="Clerk", steps=3)


def test_resumed_agent_has_the_journaled_json_and_registered_code() -> None:
    journaled = coded(strict, instructions="Be brief.").to_journal(deps=False)
    registered = coded(lenient, instructions="Be verbose.", steps=9)
    setup = Dependencies(agents={"Clerk": registered})
    for agent in (setup.agent_of("t", journaled, None), Dependencies().agent_of("t", journaled, registered)):
        assert agent == coded(lenient, instructions="Be brief.")


def test_an_agent_of_another_name_supplies_nothing() -> None:
    journaled = coded().to_journal(deps=True)
    other_agent = Coded.model_validate({"name": "Reader", "check": strict})
    with pytest.raises(CannotRunError, match="not its check: register the agent"):
        Dependencies(agents={"Reader": other_agent}).agent_of("t", journaled, other_agent)


async def test_turn_without_the_needed_code_waits_and_is_resumed_with_code(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    paused = await engine(store, asks_for(("sign", {}))).run(coded(), "hi")
    await engine(store).answer(paused.id, {"approval-1": True})
    before = await store.facts(paused.id)
    assert await engine(store, "Done.").recover() == []
    skipped = f"turn {paused.id}: the journal keeps only the name of agent 'Clerk', not its check"
    assert [skipped in message for message in caplog.messages] == [True]
    with pytest.raises(CannotRunError, match=r"register the agent, Engine\(agents=\[...\]\), or give it to the call"):
        await engine(store).resume(paused.id)
    assert (await store.facts(paused.id), (await store.get(paused.id)).owner) == (before, None)
    (turn,) = await engine(store, "Done.", agents=(coded(),)).recover()
    assert turn.outcome is Outcome.FINISHED


async def test_agent_with_lost_code_is_refused_without_explicit_consent() -> None:
    journaled = coded().to_journal(deps=False)
    setup = Dependencies(agents={"Clerk": Agent(name="Clerk")})
    with pytest.raises(CannotRunError, match="it began with check of agent 'Clerk', which sets none here"):
        setup.agent_of("t", journaled, None)
    dropped = Coded.model_validate({"name": "Clerk", "check": None})
    assert setup.agent_of("t", journaled, dropped) == dropped


async def test_unusable_answer_is_not_written() -> None:
    store = MemoryStore()
    paused = await engine(store, asks_for(("sign", {}))).run(coded(), "hi")
    with pytest.raises(CannotRunError, match="not its check"):
        await engine(store).resume(paused.id, {"approval-1": True})
    assert await store.inbox(paused.id) == []


async def test_turn_is_resumed_with_the_agent_of_the_caller() -> None:
    store, agent = MemoryStore(), coded()
    paused = await engine(store, asks_for(("sign", {}))).run(agent, "hi")
    with pytest.raises(ConfigError, match=f"turn {paused.id} belongs to agent 'Clerk', not to 'Reader'"):
        await engine(store).resume(paused.id, {"approval-1": True}, agent=Agent(name="Reader"))
    turn = await engine(store, "Done.").resume(paused.id, {"approval-1": True}, agent=agent)
    assert turn.output == "Done."


async def test_subagent_is_resumed_with_the_code_of_the_tool() -> None:
    store = MemoryStore()
    helper = agent_tool(coded(mode="subagent", description="signs"))
    lines = asks_for(("Clerk", {"prompt": "sign"})), asks_for(("sign", {})), "signed", "Done."
    first = Engine(model=ScriptedModel(*lines[:2]), tools=[sign, helper], store=store)
    paused = await first.run(Agent(name="Lead"), "hi")
    second = Engine(model=ScriptedModel(*lines[2:]), tools=[sign, helper], store=store)
    turn = await second.resume(paused.id, {paused.interrupts[0].id: True})
    assert turn.output == "Done."


def test_registered_agents_are_agents_with_names_of_their_own() -> None:
    with pytest.raises(ConfigError, match="agents: two agents are called 'Clerk'"):
        Engine(agents=[coded(), Agent(name="Clerk")])
    with pytest.raises(ConfigError, match="agents: 'Clerk' is not an agent"):
        Engine(agents=["Clerk"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def test_the_parameters_of_the_type_are_for_type_checkers() -> None:
    assert Agent[object, str] is Agent


def test_json_schema_of_an_agent_has_names_for_code() -> None:
    fields = Agent.model_json_schema()["properties"]
    assert {fields[name]["type"] for name in ("prepare_tools", "output_type")} == {"string"}
    names = {"type": "array", "items": {"type": "string"}}
    for key in ("hooks", "guardrails", "output_validators"):
        assert names.items() <= fields[key].items()
