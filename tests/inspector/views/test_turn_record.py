"""A turn as its store has it: whole, at an earlier place, and with a journal that somebody forged."""

from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from turnwright import Agent, Engine, tool
from turnwright.errors import TurnNotFoundError
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import MemoryStore, NewTurn, Status, Store
from turnwright_inspector.views.turn_record import Turns, history_of, read_turn
from turnwright_states import State
from turnwright_states import facts as f

pytestmark = pytest.mark.anyio


@tool
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: nothing found"


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    lines = asks_for(("look_up", {"word": "alpha"})), "It is not there."
    async with Engine(model=ScriptedModel(*lines, repeat=True), tools=[look_up]) as engine:
        yield engine


async def turn_of(engine: Engine, **options: str) -> str:
    return (await engine.run(Agent(name="Searcher"), "Find alpha.", session=options.get("session"))).id


async def write(store: Store, turn_id: str, facts: list[f.Fact]) -> None:
    """A turn of these facts, whatever they are."""
    new = NewTurn(turn_id, None, "Searcher", "scripted", 0.0)
    claim = await store.create(new, facts, Status(facts[-1].state))
    await store.release(claim)


async def test_turn_is_read_to_the_end_by_default(engine: Engine) -> None:
    turn = await read_turn(engine.store, await turn_of(engine))
    assert turn.at == turn.length
    assert not turn.cut
    assert turn.fault == ""
    assert turn.result.state is State.FINISHED


async def test_turn_at_each_place_has_only_the_facts_up_to_there(engine: Engine) -> None:
    name = await turn_of(engine)
    whole = await read_turn(engine.store, name)
    for place in whole.places:
        then = await read_turn(engine.store, name, place)
        assert then.at == place
        assert then.cut == (place < whole.length)
        assert then.result.state is whole.journal[place - 1][1].state
        assert then.facts == whole.journal[:place]
        assert all(step.last <= place for step in then.steps)
        assert then.length == whole.length


async def test_seq_between_two_places_selects_the_place_before(engine: Engine) -> None:
    name = await turn_of(engine)
    places = (await read_turn(engine.store, name)).places
    for seq in range(places[0], places[-1]):
        assert (await read_turn(engine.store, name, seq)).at == max(place for place in places if place <= seq)


@pytest.mark.parametrize("at", [0, -3])
async def test_seq_before_the_first_place_selects_the_first(engine: Engine, at: int) -> None:
    turn = await read_turn(engine.store, await turn_of(engine), at)
    assert turn.at == turn.places[0]


async def test_seq_past_the_end_selects_the_whole_turn(engine: Engine) -> None:
    assert not (await read_turn(engine.store, await turn_of(engine), 10_000)).cut


async def test_unknown_turn_raises_not_found(engine: Engine) -> None:
    with pytest.raises(TurnNotFoundError):
        await read_turn(engine.store, "nowhere")


async def test_forged_journal_names_the_fault_and_is_still_read(engine: Engine) -> None:
    whole = await read_turn(engine.store, await turn_of(engine))
    facts = [fact for _, fact in whole.journal]
    at = next(place for place, fact in enumerate(facts) if isinstance(fact, f.CallStarted))
    facts[at] = structs.replace(facts[at], state=State.STREAM)
    store = MemoryStore()
    await write(store, "forged", facts)
    forged = await read_turn(store, "forged")
    assert f"{at + 1}" in forged.fault or "call_started" in forged.fault
    assert forged.result.state is State.FINISHED
    assert [step.key for step in forged.steps] == ["1", "2"]
    assert forged.replayed.groups == whole.replayed.groups[: len(forged.replayed.groups)]
    assert len(forged.replayed.groups) < len(whole.replayed.groups)
    assert forged.places[-1] == forged.length


async def test_journal_with_a_forged_first_fact_has_a_single_place(engine: Engine) -> None:
    whole = await read_turn(engine.store, await turn_of(engine))
    facts = [fact for _, fact in whole.journal]
    facts[0] = structs.replace(facts[0], hash="0" * len(facts[0].hash))
    store = MemoryStore()
    await write(store, "forged", facts)
    forged = await read_turn(store, "forged", 1)
    assert forged.places == (forged.length,)
    assert forged.at == forged.length
    assert forged.fault
    assert all(not step.rows for step in forged.steps)


async def test_history_of_a_turn_comes_from_the_session(engine: Engine) -> None:
    await turn_of(engine, session="s1")
    second = await read_turn(engine.store, await turn_of(engine, session="s1"))
    assert (await history_of(engine.store, second))[0].role == "user"
    first = await read_turn(engine.store, await turn_of(engine))
    assert not await history_of(engine.store, first)


class Counting(MemoryStore):
    """A store that notes how many facts it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[int] = []

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, f.Fact]]:
        rows = await super().facts(turn_id, after)
        self.read.append(len(rows))
        return rows


async def test_second_reading_of_a_turn_reads_only_new_facts(engine: Engine) -> None:
    facts = [fact for _, fact in await engine.store.facts(await turn_of(engine))]
    places = (await read_turn(engine.store, (await engine.store.turns())[0].id)).places
    store, half = Counting(), places[-3]
    claim = await store.create(NewTurn("t", None, "A", "m", 0.0), facts[:half], Status(State.STREAM))
    turns = Turns(store)
    first = await turns.read("t")
    again = await turns.read("t")
    assert again == first
    assert again.replayed is first.replayed
    assert again.steps is first.steps
    earlier = await turns.read("t", places[0])
    assert (earlier.at, earlier.replayed is first.replayed) == (places[0], True)
    await store.append(claim, facts[half:], Status(State.FINISHED))
    whole = await turns.read("t")
    assert store.read == [half, 0, 0, len(facts) - half]
    assert [fact for _, fact in whole.journal] == facts
    anew = await read_turn(store, "t")
    assert (whole.result, whole.steps, whole.replayed.groups) == (anew.result, anew.steps, anew.replayed.groups)


async def test_turn_with_a_reused_id_is_read_again(engine: Engine) -> None:
    facts = [fact for _, fact in await engine.store.facts(await turn_of(engine))]
    store = MemoryStore()
    turns = Turns(store)
    await write(store, "t", facts)
    assert (await turns.read("t")).length == len(facts)
    await store.delete("t")
    with pytest.raises(TurnNotFoundError):
        await turns.read("t")
    await write(store, "t", facts[:1])
    assert (await turns.read("t")).length == 1
