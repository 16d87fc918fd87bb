"""Results of calls that come from outside: found by the call's key, checked, then posted to the turn's inbox."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import anyio
from msgspec import to_builtins

from turnwright._base.words import cut_clean
from turnwright.errors import AlreadySettledError, ConfigError, InvalidAnswerError, TurnNotFoundError, need_kind
from turnwright.store import InboxItem, Store
from turnwright.tools.context import MESSAGE_LIMIT, check_number
from turnwright.transcript.interrupt import CallProgress, Interrupt
from turnwright_states import CallState, Decision, InterruptKind, State
from turnwright_states import facts as f
from turnwright_states.inputs import GivenResult
from turnwright_states.payload import plain

from .answers import (
    OTHER_ANSWER,
    Answer,
    Judge,
    Signature,
    answer_item,
    answering_of,
    has_moved,
    need_authorized,
    need_live,
    parse_answer,
)
from .inbox import RESULT_PREFIX, progress_item, read_answer, readdressed, writable
from .turn_journal import JournalFold

#: The kinds of interrupts that a result closes.
_SETTLED: Final = frozenset({InterruptKind.RESULT, InterruptKind.UNKNOWN_OUTCOME})


@dataclass(frozen=True, slots=True)
class Addressee:
    """The turn that takes a call's result, and the interrupt that the result closes.

    `is_early`: the call runs and does not wait yet. Its own turn takes the result then, also if it is a sub-agent's.
    """

    fold: JournalFold
    interrupt: Interrupt
    is_early: bool = False


async def settle_call(
    store: Store,
    key: str,
    given_result: GivenResult,
    *,
    signature: Signature,
    now: float,
    judge: Judge | None,
    poll_interval: float,
) -> Addressee | None:
    """Post the result of the call with this key. Returns where it was stored, or None if it has the same one already.

    Raises `InvalidAnswerError` for a key without an open call, for a call that waits for something else, and for a
    result that does not fit; `AlreadySettledError` if the call has another result, and `TurnNotFoundError`.
    """
    root, answer = _root_of(key), Answer(Decision.SETTLE, given=given_result)
    stored: tuple[InboxItem, Addressee] | None = None
    while True:
        fold = await JournalFold.read(store, root, keep_facts=True)
        earlier = await _settled_before(store, fold, key)
        if earlier is not None:
            _need_same(key, given_result, earlier.given, earlier.at, earlier.by or earlier.via)
            return stored[1] if stored is not None and Signature.of(earlier) == signature else None
        addressee = await _find(store, fold, key)
        interrupt, turn_id = addressee.interrupt, addressee.fold.turn_id
        parse_answer((interrupt,), interrupt.id, answer, now=now)
        await need_authorized(judge, answering_of(fold, interrupt, answer.decision, signature), [interrupt.id])
        item = answer_item(turn_id, interrupt.id, answer, signature)
        waiting = [waiting for waiting in await store.inbox(turn_id) if waiting.id == item.id] or await store.post(item)
        if stored is not None and stored[0] in waiting:
            break
        if not waiting:
            stored = item, addressee
        # If a turn has moved since it was read, another answer may have been used: nothing waits for what was posted.
        if await has_moved(store, fold, addressee.fold):
            continue
        if not waiting:
            break
        _need_same_item(key, given_result, waiting[0])
        return None
    if addressee.is_early and turn_id != root:
        await _hand_over(store, root, key, item, poll_interval)
    return addressee


async def report_progress(
    store: Store, key: str, progress: float, total: float | None, message: str
) -> tuple[Addressee, CallProgress]:
    """Post the latest report of an open call. Return its turn and the report.

    Raises `ConfigError` for numbers that are not finite, and what `settle_call` raises about the key.
    """
    try:
        check_number("progress", progress)
        if total is not None:
            check_number("total", total)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    report = CallProgress(progress, total, cut_clean(writable(message), MESSAGE_LIMIT))
    fold = await JournalFold.read(store, _root_of(key), keep_facts=True)
    addressee = await _find(store, fold, key)
    await store.post(progress_item(addressee.fold.turn_id, addressee.interrupt.id, report))
    return addressee, report


def _root_of(key: str) -> str:
    """Return the turn of a call's key. Raises `ConfigError` for a key that is not text."""
    need_kind("key", key, str, "text: TURN:CALL, as `Interrupt.key` has it")
    return key.partition(":")[0]


async def _find(store: Store, fold: JournalFold, key: str) -> Addressee:
    """Return where the result of an open call goes. Raises `InvalidAnswerError`."""
    root, *path = key.split(":")
    turn = fold.machine.turn
    interrupts = [interrupt for interrupt in Interrupt.all_of(root, turn) if interrupt.key == key]
    for interrupt in interrupts:
        if interrupt.kind in _SETTLED:
            return Addressee(fold, interrupt)
    if interrupts:
        name = interrupts[0].id
        raise InvalidAnswerError(name, f"call {key} waits for {name}, not for a result", [name])
    if path:
        early = await _find_early(store, fold, path)
        if early is not None:
            return early
    if turn.state.outcome is not None and turn.reason is not None and not path:
        need_live(root, turn.state.outcome, turn.reason)
    open_keys = [interrupt.key for interrupt in Interrupt.all_of(root, turn) if interrupt.kind in _SETTLED]
    raise InvalidAnswerError(key, f"no open call has the key {key!r:.300}", open_keys)


async def _find_early(store: Store, fold: JournalFold, path: list[str]) -> Addressee | None:
    """Return the turn of a call that runs, or whose sub-agent's questions its caller does not have yet."""
    turn_id = ":".join([fold.turn_id, *path[:-1]])
    if path[:-1]:
        try:
            fold = await JournalFold.read(store, turn_id, keep_facts=True)
        except TurnNotFoundError:
            return None
    turn, name = fold.machine.turn, path[-1]
    call = turn.batch.get(name)
    if call is None or turn.state.outcome is not None:
        return None
    for interrupt in Interrupt.all_of(turn_id, turn):
        if interrupt.call == name and interrupt.kind in _SETTLED:
            return Addressee(fold, interrupt, is_early=True)
    if call.state is not CallState.STARTED or call.made.lease is not None:
        return None
    wait = f.InterruptRecord(
        id=f"{RESULT_PREFIX}{name}",
        kind=InterruptKind.RESULT,
        call=name,
        tool=call.name,
        restricted=fold.started.restricted,
    )
    return Addressee(fold, Interrupt.of(turn_id, turn, wait), is_early=True)


async def _hand_over(store: Store, root: str, key: str, item: InboxItem, poll_interval: float) -> None:
    """See that an early result of a sub-agent's call is read: by its turn, or after its pause by the root turn.

    A sub-agent that has just paused reads no inbox before the root turn is answered, whose driver is about to journal
    the questions.
    """
    while any(waiting.id == item.id for waiting in await store.inbox(item.turn)):
        try:
            paused = (await store.get(item.turn)).status.state is State.PAUSED
        except TurnNotFoundError:
            return
        if not paused:
            return
        turn = (await JournalFold.read(store, root)).machine.turn
        interrupt = next((question for question in Interrupt.all_of(root, turn) if question.key == key), None)
        if interrupt is not None:
            await store.post(readdressed(item, root, interrupt.id))
            return
        if not await store.is_driven(root):
            return
        await anyio.sleep(poll_interval)


async def _settled_before(store: Store, fold: JournalFold, key: str) -> f.Answered | None:
    """Return the answer that gave the call its result, if the root turn's journal or a sub-agent's has one."""
    root, *path = key.split(":")
    for depth in range(max(len(path), 1)):
        if depth:
            try:
                fold = await JournalFold.read(store, ":".join([root, *path[:depth]]), keep_facts=True)
            except TurnNotFoundError:
                return None
        keys = dict(_keys(fold))
        for _, fact in fold.facts:
            if isinstance(fact, f.Answered) and fact.given is not None and keys.get(fact.interrupt) == key:
                return fact
    return None


def _keys(fold: JournalFold) -> Iterator[tuple[str, str]]:
    for _, fact in fold.facts:
        if isinstance(fact, f.CallWaiting):
            for interrupt in fact.interrupts:
                path = f"{interrupt.call}:{interrupt.path}" if interrupt.path else interrupt.call
                yield interrupt.id, f"{fold.turn_id}:{path}"


def _need_same_item(key: str, given_result: GivenResult, item: InboxItem) -> None:
    """Raise for an answer in the inbox that is not the same result."""
    fields = read_answer(item)
    if fields.get("decision") != Decision.SETTLE:
        raise InvalidAnswerError(key, OTHER_ANSWER, [])
    at, by = fields.get("at"), fields.get("by") or fields.get("via")
    _need_same(key, given_result, fields.get("given"), at if isinstance(at, float | int) else None, str(by or ""))


def _need_same(key: str, given_result: GivenResult, earlier: object, since: float | None, by: str) -> None:
    """Raise `AlreadySettledError` for another result than the earlier one."""
    if isinstance(earlier, GivenResult):
        earlier = to_builtins(earlier, enc_hook=plain)
    if earlier != to_builtins(given_result, enc_hook=plain):
        raise AlreadySettledError(key, since, by)
