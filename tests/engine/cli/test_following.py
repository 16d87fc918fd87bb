"""The events of a turn that passes from another process to this one."""

import random
from collections.abc import Sequence

import anyio
import pytest

from turnwright import Agent, Engine
from turnwright.cli.interactive import FollowedTurn
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore, TurnRow
from turnwright.tools import tool
from turnwright.transcript.events import FactEvent, TextDeltaEvent, TurnEndedEvent, TurnEvent
from turnwright_states.facts import Fact


@tool
async def look() -> str:
    """Look."""
    return "nothing"


@pytest.fixture(scope="module")
def played() -> tuple[MemoryStore, TurnRow, list[tuple[int, Fact]], list[TurnEvent]]:
    """A turn that has ended: its store, its row, its facts, its events."""
    store, events = MemoryStore(), list[TurnEvent]()

    async def play() -> tuple[TurnRow, list[tuple[int, Fact]]]:
        model = ScriptedModel(asks_for(("look", {})), "Nothing there.")
        engine = Engine(model=model, tools=[look], store=store, on_event=[events.append])
        turn = await engine.run(Agent(name="Tester"), "Look")
        return await store.get(turn.id), await store.facts(turn.id)

    row, facts = anyio.run(play)
    return store, row, facts, events


def told(heard: Sequence[TurnEvent]) -> list[int]:
    """The facts among the events."""
    return [event.seq for event in heard if isinstance(event, FactEvent | TurnEndedEvent)]


@pytest.mark.parametrize("seed", range(20))
def test_each_fact_is_received_once_and_in_order_from_any_source(
    played: tuple[MemoryStore, TurnRow, list[tuple[int, Fact]], list[TurnEvent]], seed: int
) -> None:
    """This process takes over at any place, and the journal is read at any time."""
    store, row, facts, events = played
    chance = random.Random(seed)  # noqa: S311 (no secret)
    before, ours = sorted(chance.sample(range(1, len(facts)), 2))
    heard: list[TurnEvent] = []
    followed = FollowedTurn(heard.append, row, facts[:before], driven=True)

    async def follow() -> None:
        for event in events:
            if event.seq > ours:
                followed.observe(event)
            if chance.random() < 0.2:
                await followed.catch_up(store)
        await followed.catch_up(store)

    anyio.run(follow)
    assert told(heard) == list(range(before + 1, len(facts) + 1))
    assert heard[-1] == events[-1]


def test_pieces_of_a_reply_wait_for_the_preceding_facts(
    played: tuple[MemoryStore, TurnRow, list[tuple[int, Fact]], list[TurnEvent]],
) -> None:
    store, row, facts, _ = played
    heard: list[TurnEvent] = []
    followed = FollowedTurn(heard.append, row, facts[:-2], driven=True)
    piece = TextDeltaEvent(turn=row.id, seq=len(facts), index=0, text="more")
    followed.observe(piece)
    assert heard == []
    anyio.run(followed.catch_up, store)
    assert told(heard[:-1]) == [len(facts) - 1, len(facts)]
    assert heard[-1] == piece


def test_sub_agent_events_come_at_once_after_the_preceding_events(
    played: tuple[MemoryStore, TurnRow, list[tuple[int, Fact]], list[TurnEvent]],
) -> None:
    """The events of the process that drove the turn before come first."""
    store, row, facts, events = played
    below = TextDeltaEvent(turn=f"{row.id}:call00001", seq=1, index=0, text="more")
    heard: list[TurnEvent] = []
    resumed = FollowedTurn(heard.append, row, facts, driven=False)
    resumed.observe(below)
    assert heard == [below]
    heard.clear()
    taken_over = FollowedTurn(heard.append, row, facts[:-3], driven=True)
    for event in (below, events[-2], below, events[-1]):
        taken_over.observe(event)
    assert heard == []
    anyio.run(taken_over.catch_up, store)
    assert [event.seq for event in heard] == [len(facts) - 2, 1, len(facts) - 1, 1, len(facts)]
    assert heard[1] == heard[3] == below
