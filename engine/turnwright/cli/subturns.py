"""The turns that the calls of a turn drove: its sub-agents'."""

from collections.abc import Iterable
from contextlib import suppress

from turnwright.errors import UnknownTurn
from turnwright.ids import child_id
from turnwright.store import Store, TurnRow
from turnwright_states import facts as f
from turnwright_states.facts import Fact

from .stores import Journal


async def sub_turns(store: Store, turn: str, facts: Iterable[tuple[int, Fact]]) -> dict[str, TurnRow]:
    """The turns that calls of this one drove, by call and in call order. One that was deleted is left out.

    `facts` are the turn's own.
    """
    lent = (call.id for _, fact in facts if isinstance(fact, f.ModelReplied) for call in fact.calls if call.lease)
    found: dict[str, TurnRow] = {}
    for call in lent:
        with suppress(UnknownTurn):  # it never began
            found[call] = await store.get(child_id(turn, call))
    return found


async def unfinished_below(store: Store, turn: str, facts: Iterable[tuple[int, Fact]]) -> dict[str, Journal]:
    """The journals of the sub-agents' turns that have not ended, near and far, by turn; each after its caller's."""
    found: dict[str, Journal] = {}
    for row in (await sub_turns(store, turn, facts)).values():
        if row.status.outcome is None:
            found[row.id] = await store.facts(row.id)
            found |= await unfinished_below(store, row.id, found[row.id])
    return found
