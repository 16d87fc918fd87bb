"""Ends turns that nobody drives. Neither their tools nor their models are needed for that."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Final

import anyio

from turnwright._base.ids import child_id
from turnwright.errors import SessionBusyError, TurnBusyError, TurnNotFoundError, UnreadableTurnError
from turnwright.result import TurnResult, result_of
from turnwright.store import NONE_ABANDONED, AbandonedDrivers, Claim, Store
from turnwright.transcript.transcript import going_on, reading
from turnwright_states import AbortInput, EndReason, Spent, State, TurnMachine
from turnwright_states.facts import Fact
from turnwright_states.inputs import AbortReason

from .answers import Answer, unanswered
from .inbox import ABORT, abort_item, answer_item, steers
from .message_history import EarlierJournals
from .turn_journal import JournalFold, Listeners, TurnJournal

#: Seconds between two tries to end a sub-agent that somebody holds.
_PATIENCE: Final = 0.05


async def end_turn(
    store: Store,
    turn_id: str,
    listeners: Listeners | None = None,
    *,
    abandoned: AbandonedDrivers = NONE_ABANDONED,
) -> None:
    """Abort a turn at rest, or one whose driver is gone, and its sub-agents before it.

    One that somebody drives is left to its driver, which finds the request in its inbox, unless it is in `abandoned`.
    Where the turn is a sub-agent that waits for a person, its parents wait for nothing any more: what it asked is
    turned down in the name of that person, so that they go on without it once they are resumed or recovered. Raises
    `TurnNotFoundError` and what the store raises. Source: DESIGN 4.11, 4.14.
    """
    with suppress(TurnBusyError):
        await _end_claimed(store, turn_id, listeners, abandoned)
        with suppress(TurnNotFoundError):  # its parents are not in this store
            await _withdraw(store, turn_id)


async def end_claimed(
    store: Store,
    claim: Claim,
    listeners: Listeners | None = None,
    known: JournalFold | None = None,
) -> TurnResult:
    """Abort a claimed turn and its sub-agents before it, release it, and return how it ended."""
    async with _held(store, claim, listeners, known) as journal:
        await _end(journal, EndReason.ABORTED)
    result = journal.result()
    late = tuple(steers(journal.waiting or ()).values())
    return replace(result, undelivered=(*result.undelivered, *late)) if late else result


async def supersede_session(store: Store, session: str, listeners: Listeners | None = None) -> EarlierJournals:
    """End the paused turn of a session, for a new message came: what it waits for is rejected (DESIGN 4.12).

    Returns the journals that were read for it.

    Raises `SessionBusyError` where a turn of the session is live and not paused, or somebody drives it, and
    `UnreadableTurnError` where it is not known how that stands.
    """
    earlier: EarlierJournals = {}
    for row in await store.turns(session=session, live=True):
        if row.fault:
            raise UnreadableTurnError(row.id, row.fault)
        if row.status.state is not State.PAUSED:
            raise SessionBusyError(session, row.id)
        try:
            earlier[row.id] = await supersede(store, row.id, listeners)
        except TurnBusyError:
            raise SessionBusyError(session, row.id) from None
    return earlier


async def supersede(store: Store, turn_id: str, listeners: Listeners | None = None) -> list[tuple[int, Fact]]:
    """End a paused turn because a new message came (DESIGN 4.12), or leave it as it is. Returns its journal.

    Raises `TurnBusyError` if somebody drives it, and `StoreError`. One that has gone on meanwhile is left alone.
    """
    known = await JournalFold.read(store, turn_id, keep_facts=True)
    async with _held(store, await store.claim(turn_id), listeners, known) as journal:
        if journal.machine.state is State.PAUSED:
            await _end(journal, EndReason.SUPERSEDED)
    return known.facts


@asynccontextmanager
async def _claimed(
    store: Store,
    turn_id: str,
    listeners: Listeners | None,
    abandoned: AbandonedDrivers = NONE_ABANDONED,
) -> AsyncIterator[TurnJournal]:
    """A turn that nobody drives."""
    claim = await store.claim(turn_id, abandoned=abandoned)
    claim.abandoned = abandoned
    async with _held(store, claim, listeners) as journal:
        yield journal


@asynccontextmanager
async def _held(
    store: Store,
    claim: Claim,
    listeners: Listeners | None,
    known: JournalFold | None = None,
) -> AsyncIterator[TurnJournal]:
    """A claimed turn. A crash that its end does not settle is left for the next driver to account for."""
    crashed = claim.crashed
    try:
        journal = await TurnJournal.open(store, claim, listeners, known=known)
        with going_on(claim.turn), journal.stretch or nullcontext():
            yield journal
        crashed = crashed and journal.machine.turn.state.outcome is None
    finally:
        with anyio.CancelScope(shield=True):
            await store.release(claim, crashed=crashed)


async def end_children(journal: TurnJournal) -> dict[str, Spent]:
    """Abort the sub-agents of a turn's open batch that have not ended, theirs before them.

    Returns what they used, by call.
    """
    spent: dict[str, Spent] = {}
    for call in journal.machine.turn.open_calls():
        if call.made.lease is not None and call.counted:
            child = child_id(journal.turn_id, call.id)
            # It never began, or nobody knows what it used: then what it was lent is spent.
            with suppress(TurnNotFoundError, UnreadableTurnError):
                abandoned = journal.claim.abandoned.for_children
                await end_child(journal.store, child, journal.listeners, abandoned=abandoned)
                spent[call.id] = spent_by(result_of(child, await journal.store.facts(child)))
    return spent


def spent_by(result: TurnResult) -> Spent:
    """What a sub-agent and its own used together."""
    return Spent(calls=result.tool_calls, tokens=result.usage.tokens, cost=result.usage.cost)


async def end_child(
    store: Store,
    turn_id: str,
    listeners: Listeners | None = None,
    *,
    abandoned: AbandonedDrivers = NONE_ABANDONED,
) -> None:
    """Abort a sub-agent, and its own before it, in the name of the turn that called it and that drives it no more.

    It is taken from the owners in `abandoned` even if they live, and has ended when this returns. Raises
    `TurnNotFoundError` and what the store raises.
    """
    while (await store.get(turn_id)).status.outcome is None:
        try:
            await _end_claimed(store, turn_id, listeners, abandoned)
        except TurnBusyError:
            # Somebody else is about to end it, or is a driver that its parent has lost; both find the request.
            await store.post(abort_item(turn_id))
            await anyio.sleep(_PATIENCE)


async def _end_claimed(store: Store, turn_id: str, listeners: Listeners | None, abandoned: AbandonedDrivers) -> None:
    async with _claimed(store, turn_id, listeners, abandoned) as journal:
        await _end(journal, EndReason.ABORTED)


async def _end(journal: TurnJournal, reason: AbortReason) -> None:
    if journal.machine.turn.state.outcome is None:
        await journal.feed(AbortInput(reason=reason, spent=await end_children(journal)), consumed=(ABORT,))


async def _withdraw(store: Store, turn_id: str) -> None:
    """Turn down what the turn that began it all still asks for this sub-agent, which has ended."""
    root, _, path = turn_id.partition(":")
    if path:
        facts = await store.facts(root)
        with reading(root):
            asked = TurnMachine.resume(fact for _, fact in facts).turn.interrupts.values()
        for one in asked:
            if one.id.startswith(f"{path.replace(':', '/')}/"):
                await store.post(answer_item(root, one.id, Answer(unanswered(one.kind), "the sub-agent was aborted")))
