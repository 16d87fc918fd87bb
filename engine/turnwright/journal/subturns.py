"""The turns of a turn's sub-agents."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from turnwright._base.ids import child_id
from turnwright.errors import TurnNotFoundError, UnreadableTurnError
from turnwright.store import Store, TurnRow
from turnwright_states import facts as f
from turnwright_states.facts import Fact


def leased_calls(facts: Iterable[Fact]) -> Iterator[str]:
    """Yield the calls with leased limits, for a turn of their own, oldest first. Not all of them started one."""
    return (call.id for fact in facts if isinstance(fact, f.ModelReplied) for call in fact.calls if call.lease)


async def sub_turns(store: Store, turn: str, facts: Iterable[tuple[int, Fact]]) -> dict[str, TurnRow]:
    """Return the turns that this turn's calls started, by call and in call order.

    Deleted and damaged ones are left out. `facts` are the turn's own.
    """
    rows: dict[str, TurnRow] = {}
    for call in leased_calls(fact for _, fact in facts):
        with suppress(TurnNotFoundError, UnreadableTurnError):  # it never started, or is damaged
            rows[call] = await store.get(child_id(turn, call))
    return rows


async def unfinished_below(
    store: Store, turn: str, facts: Iterable[tuple[int, Fact]]
) -> dict[str, list[tuple[int, Fact]]]:
    """Return the journals of all sub-agents' turns, at any depth, that have not ended; parents first."""
    journals: dict[str, list[tuple[int, Fact]]] = {}
    for row in (await sub_turns(store, turn, facts)).values():
        if row.status.outcome is None:
            journals[row.id] = await store.facts(row.id)
            journals |= await unfinished_below(store, row.id, journals[row.id])
    return journals
