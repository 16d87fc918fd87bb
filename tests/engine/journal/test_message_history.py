"""Turns that go on from turns that go on from others: however many there are, and where they have no beginning."""

import sys
from collections.abc import Mapping, Sequence

import pytest
from msgspec import structs

from turnwright import Agent, Engine, StoreError
from turnwright.journal.message_history import messages_before
from turnwright.journal.turn_journal import first_fact
from turnwright.model.scripted import ScriptedModel
from turnwright.store import MemoryStore, NewTurn, Status, Store
from turnwright_states import TurnMachine
from turnwright_states.facts import Fact, TurnStarted

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")


async def write_going_on(store: Store, facts: Sequence[Fact], going_on: Mapping[str, str | None]) -> None:
    """Write turns of these facts, each of which continues the one that it is mapped to."""
    for name, continues in going_on.items():
        assert isinstance(facts[0], TurnStarted)
        first = structs.replace(facts[0], continue_from=continues, prompt=name)
        status = Status.of(TurnMachine.resume(facts).turn)
        claim = await store.create(NewTurn(name, None, AGENT.name, "scripted", 1.0), [first, *facts[1:]], status)
        await store.release(claim)


async def test_turns_may_go_on_from_each_other_without_end() -> None:
    """More of them than a function may call itself."""
    model, store = ScriptedModel("Done.", repeat=True), MemoryStore()
    engine = Engine(model=model, store=store)
    facts = [fact for _, fact in await store.facts((await engine.run(AGENT, "begin")).id)]
    count = sys.getrecursionlimit() + 200
    names = [f"t{number}" for number in range(count)]
    await write_going_on(store, facts, dict(zip(names, (None, *names), strict=False)))
    await engine.run(AGENT, "go on", continue_from=names[-1])
    prompts = [message.text for message in model.requests[-1].messages if message.role == "user"]
    assert prompts == [*names, "go on"]


@pytest.mark.parametrize(
    ("going_on", "turn_names"),
    [
        ({"a": "a"}, ["'a'", "'a'"]),
        ({"a": "b", "b": "c", "c": "b"}, ["'b'", "'c'", "'b'"]),
        (dict(zip("abcdefgh", "bcdefgha", strict=True)), ["'a'", "'b'", "'c'", "'d'", "4 more", "'a'"]),
    ],
)
async def test_circular_continuation_is_refused_by_name(going_on: dict[str, str], turn_names: list[str]) -> None:
    """Only a changed journal says so: what was said before has no beginning then, and nothing is sent."""
    model, store = ScriptedModel("Done.", repeat=True), MemoryStore()
    engine = Engine(model=model, store=store)
    facts = [fact for _, fact in await store.facts((await engine.run(AGENT, "begin")).id)]
    await write_going_on(store, facts, going_on)
    message = f"in a cycle: {', which continues '.join(turn_names)}: a journal was edited"
    with pytest.raises(StoreError, match=message):
        await engine.run(AGENT, "go on", continue_from="a")
    assert len(model.requests) == 1
    first = first_fact("a", await store.facts("a"))
    with pytest.raises(StoreError, match="in a cycle"):
        await messages_before(store, "a", first)
