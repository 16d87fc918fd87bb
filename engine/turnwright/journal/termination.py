"""Ends turns that nobody drives, without their tools and models."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Final

import anyio
from msgspec import structs

from turnwright._base.ids import child_id
from turnwright.errors import SessionBusyError, TurnBusyError, TurnExistsError, TurnNotFoundError, UnreadableTurnError
from turnwright.store import NONE_ABANDONED, AbandonedDrivers, Claim, Store
from turnwright.transcript.interrupt import Interrupt
from turnwright.transcript.transcript import going_on, reading
from turnwright_states import AbortInput, EndReason, Spent, State, TurnMachine
from turnwright_states.facts import Fact
from turnwright_states.inputs import AbortReason
from turnwright_states.payload import freeze
from turnwright_states.turn import fold

from .answers import answer_item, make_default_answer
from .inbox import ABORT, abort_item, steers
from .message_history import EarlierJournals
from .result import TurnResult, result_of
from .turn_journal import JournalFold, Listeners, TurnJournal, first_fact

_LOG = logging.getLogger(__name__)
#: Seconds between two tries to end a sub-agent's turn that another driver holds.
_PATIENCE: Final = 0.05


async def end_turn(
    store: Store,
    turn_id: str,
    listeners: Listeners | None = None,
    *,
    abandoned_drivers: AbandonedDrivers = NONE_ABANDONED,
) -> None:
    """Abort a turn that nobody drives, its sub-agents first.

    A driven turn is left to its driver, which finds the request in the inbox, unless `abandoned` covers that driver.
    If a sub-agent's turn is aborted while it waits for a person, its parents' copies of the question are rejected, so
    that they continue without it. Raises `TurnNotFoundError` and `StoreError`. See docs/rules.md#aborts, #sub-agents.
    """
    with suppress(TurnBusyError):
        await _end_claimed(store, turn_id, listeners, abandoned_drivers)
        with suppress(TurnNotFoundError):  # its parents are not in this store
            await _withdraw(store, turn_id)


async def end_claimed(
    store: Store,
    claim: Claim,
    listeners: Listeners | None = None,
    fold: JournalFold | None = None,
) -> TurnResult:
    """Abort a claimed turn, its sub-agents first, release it, and return its result."""
    async with _hold_turn(store, claim, listeners, fold) as journal:
        await _end(journal, EndReason.ABORTED)
    result = journal.result()
    late = tuple(steers(journal.waiting or ()).values())
    return replace(result, undelivered=(*result.undelivered, *late)) if late else result


async def supersede_session(
    store: Store, session: str, new_id: str, listeners: Listeners | None = None
) -> EarlierJournals:
    """End the paused turn of a session, which the message of the turn `new_id` replaces (docs/rules.md#sessions).

    Its interrupts are rejected. Returns the journals that were read. Raises `SessionBusyError` if a turn of the session
    runs or is driven, `TurnExistsError` if it is the new turn itself, and `UnreadableTurnError` if its state is
    unknown.
    """
    earlier: EarlierJournals = {}
    for row in await store.turns(session=session, live=True):
        if row.id == new_id:
            raise TurnExistsError(new_id)
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
    """End a paused turn that a new message replaces (docs/rules.md#sessions). Returns its journal.

    A turn that has continued meanwhile stays as it is. Raises `TurnBusyError` if it is driven, and `StoreError`.
    """
    fold = await JournalFold.read(store, turn_id, keep_facts=True)
    async with _hold_turn(store, await store.claim(turn_id), listeners, fold) as journal:
        if journal.machine.state is State.PAUSED:
            await _end(journal, EndReason.SUPERSEDED)
    return fold.facts


@asynccontextmanager
async def _claim_turn(
    store: Store,
    turn_id: str,
    listeners: Listeners | None,
    abandoned_drivers: AbandonedDrivers = NONE_ABANDONED,
) -> AsyncIterator[TurnJournal]:
    """Claim a turn that nobody drives, and release it."""
    claim = await store.claim(turn_id, abandoned=abandoned_drivers)
    claim.abandoned = abandoned_drivers
    async with _hold_turn(store, claim, listeners) as journal:
        yield journal


@asynccontextmanager
async def _hold_turn(
    store: Store,
    claim: Claim,
    listeners: Listeners | None,
    fold: JournalFold | None = None,
) -> AsyncIterator[TurnJournal]:
    """Open a claimed turn, and release it. A crash is left to the next driver unless the turn ends here."""
    has_crashed = claim.crashed
    try:
        try:
            journal = await TurnJournal.open(store, claim, listeners, fold=fold)
        except UnreadableTurnError as error:
            if not error.can_end:
                raise
            # Nothing of it runs any more, so it may end though it may not continue.
            _LOG.warning("turn %s is ended as it is: %s", claim.turn, error.why, extra={"turn": claim.turn})
            fold = JournalFold.to_end(claim.turn, await store.facts(claim.turn))
            journal = await TurnJournal.open(store, claim, listeners, fold=fold)
        with going_on(claim.turn), journal.observer or nullcontext():
            yield journal
        has_crashed = has_crashed and journal.machine.turn.state.outcome is None
    finally:
        with anyio.CancelScope(shield=True):
            await store.release(claim, crashed=has_crashed)


async def end_children(journal: TurnJournal) -> dict[str, Spent]:
    """Abort the unfinished sub-agents of a turn's open batch, the innermost first. Returns what they used, by call."""
    spent_by_call: dict[str, Spent] = {}
    for call in journal.machine.turn.open_calls():
        if call.made.lease is not None and call.counted:
            child = child_id(journal.turn_id, call.id)
            # It never started, or its usage is unknown: then its whole lease counts as spent.
            with suppress(TurnNotFoundError, UnreadableTurnError):
                abandoned_drivers = journal.claim.abandoned.for_children
                await end_child(journal.store, child, journal.listeners, abandoned_drivers=abandoned_drivers)
                facts = await journal.store.facts(child)
                spent_by_call[call.id] = spent_by(result_of(child, facts), facts)
    return spent_by_call


def spent_by(result: TurnResult, facts: Sequence[tuple[int, Fact]]) -> Spent:
    """Return what a sub-agent and its own sub-agents used, and the state in which it left the rules of its caller."""
    spending = Spent(calls=result.tool_calls, tokens=result.usage.tokens, cost=result.usage.cost)
    if not first_fact(result.id, facts).rules:
        return spending
    rules = fold([fact for _, fact in facts]).rules
    return spending if rules is None else structs.replace(spending, rules=freeze(rules.save_tree()))


async def end_child(
    store: Store,
    turn_id: str,
    listeners: Listeners | None = None,
    *,
    abandoned_drivers: AbandonedDrivers = NONE_ABANDONED,
) -> None:
    """Abort the turn of a sub-agent that its parent no longer drives, its own sub-agents first.

    It is claimed also from living owners in `abandoned`, and has ended when this returns. Raises `TurnNotFoundError`
    and `StoreError`.
    """
    while (await store.get(turn_id)).status.outcome is None:
        try:
            await _end_claimed(store, turn_id, listeners, abandoned_drivers)
        except TurnBusyError:
            # Another process is ending it, or a lost driver still holds it. Both find the abort in the inbox.
            await store.post(abort_item(turn_id))
            await anyio.sleep(_PATIENCE)


async def _end_claimed(
    store: Store, turn_id: str, listeners: Listeners | None, abandoned_drivers: AbandonedDrivers
) -> None:
    async with _claim_turn(store, turn_id, listeners, abandoned_drivers) as journal:
        await _end(journal, EndReason.ABORTED)


async def _end(journal: TurnJournal, reason: AbortReason) -> None:
    if journal.machine.turn.state.outcome is None:
        await journal.feed(AbortInput(reason=reason, spent=await end_children(journal)), consumed_items=(ABORT,))


async def _withdraw(store: Store, turn_id: str) -> None:
    """Reject the root turn's copies of the questions of this sub-agent, which has ended."""
    root, _, path = turn_id.partition(":")
    if path:
        facts = await store.facts(root)
        with reading(root):
            interrupts = Interrupt.all_of(root, TurnMachine.resume(fact for _, fact in facts).turn)
        for interrupt in interrupts:
            if interrupt.id.startswith(f"{path.replace(':', '/')}/"):
                await store.post(
                    answer_item(root, interrupt.id, make_default_answer(interrupt, "the sub-agent was aborted"))
                )
