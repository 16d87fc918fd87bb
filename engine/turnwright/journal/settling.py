"""Results of calls that come from outside: found by the call's key, checked, then posted to the turn's inbox."""

from collections.abc import Iterable, Iterator, Sequence
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
    parse_answer,
)
from .inbox import RESULT_PREFIX, progress_item, read_answer, writable
from .turn_journal import JournalFold

_KEY_FORM: Final = "TURN:CALL, as `Interrupt.key` has it"
#: The kinds of interrupts that a result closes.
_SETTLED: Final = frozenset({InterruptKind.RESULT, InterruptKind.UNKNOWN_OUTCOME})


@dataclass(frozen=True, slots=True)
class Addressee:
    """The turn that takes a call's result, and the interrupt that the result closes.

    `is_early`: the call runs, or the root turn does not wait for it yet. A sub-agent's turn may take the result then.
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
    answer = Answer(Decision.SETTLE, given=given_result)
    entry: tuple[InboxItem, Addressee] | None = None
    while True:
        folds = await _read_folds(store, key)
        earlier = _settled_before(folds, key)
        if earlier is not None:
            _need_same(key, given_result, earlier.given, earlier.at, earlier.by or earlier.via)
            return entry[1] if entry is not None and Signature.of(earlier) == signature else None
        addressee = _find(folds, key)
        interrupt, turn_id = addressee.interrupt, addressee.fold.turn_id
        parse_answer((interrupt,), interrupt.id, answer, now=now)
        await need_authorized(judge, answering_of(folds[0], interrupt, answer, signature), [interrupt.id])
        item = answer_item(turn_id, interrupt.id, answer, signature)
        waiting = [waiting for waiting in await store.inbox(turn_id) if waiting.id == item.id] or await store.post(item)
        is_still_there = entry is not None and entry[0] in waiting
        if not waiting:
            entry = item, addressee
        is_unread = addressee.is_early and await _reads_no_inbox(store, folds[0].turn_id, turn_id)
        # If a turn has moved since it was read, another answer may have been used: nothing waits for what was posted.
        # What is still there is used, unless a caller waits for the call by now.
        if await has_moved(store, *(folds[:-1] if is_still_there else folds)):
            continue
        if waiting and not is_still_there:
            _need_same_item(key, given_result, waiting[0])
        if not is_unread:
            return None if waiting and not is_still_there else addressee
        await anyio.sleep(poll_interval)


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
    addressee = _find(await _read_folds(store, key), key)
    await store.post(progress_item(addressee.fold.turn_id, addressee.interrupt.id, report))
    return addressee, report


async def _read_folds(store: Store, key: str) -> list[JournalFold]:
    """Read the root turn of a call's key, and the sub-agents' turns below it down to the call's own, if they exist.

    Raises `ConfigError` for a text that is not a key, and `TurnNotFoundError` without a root turn.
    """
    need_kind("key", key, str, f"text: {_KEY_FORM}")
    root, *path = key.split(":")
    try:
        folds = [await JournalFold.read(store, root, keep_facts=True)]
    except TurnNotFoundError:
        if path:
            raise
        raise ConfigError(f"{key!r:.80} is not the key of a call: write {_KEY_FORM}") from None
    for depth in range(1, len(path)):
        try:
            folds.append(await JournalFold.read(store, ":".join([root, *path[:depth]]), keep_facts=True))
        except TurnNotFoundError:
            break
    return folds


def _find(folds: Sequence[JournalFold], key: str) -> Addressee:
    """Return where the result of an open call goes.

    That is the outermost turn that waits for it, or its own turn while the call runs. Raises `InvalidAnswerError`.
    """
    for fold in folds:
        interrupts = [interrupt for interrupt in _interrupts_of(fold) if interrupt.key == key]
        for interrupt in interrupts:
            if interrupt.kind in _SETTLED:
                return Addressee(fold, interrupt, is_early=fold is not folds[0])
        if interrupts:
            name = interrupts[0].id
            raise InvalidAnswerError(name, f"call {key} waits for it, not for a result", [name])
    root = folds[0]
    turn_id, _, name = key.rpartition(":")
    if folds[-1].turn_id == turn_id:
        addressee = _find_running(folds[-1], name)
        if addressee is not None:
            return addressee
    turn = root.machine.turn
    open_keys = [interrupt.key for interrupt in _interrupts_of(root) if interrupt.kind in _SETTLED]
    why = "no open call has this key"
    if turn.state.outcome is not None:
        why = f"{why}, and turn {root.turn_id} has ended ({turn.state.outcome}: {turn.reason})"
    raise InvalidAnswerError(key, why, open_keys, subject="call")


def _find_running(fold: JournalFold, name: str) -> Addressee | None:
    """Return the wait that a call of the turn may still begin, if it runs."""
    turn = fold.machine.turn
    call = turn.batch.get(name)
    if call is None or turn.state.outcome is not None:
        return None
    if call.state is not CallState.STARTED or call.made.lease is not None:
        return None
    wait = f.InterruptRecord(
        id=f"{RESULT_PREFIX}{name}",
        kind=InterruptKind.RESULT,
        call=name,
        tool=call.name,
        restricted=fold.started.restricted,
    )
    return Addressee(fold, Interrupt.of(fold.turn_id, turn, wait), is_early=True)


async def _reads_no_inbox(store: Store, root: str, turn_id: str) -> bool:
    """Whether a turn is a sub-agent's that has just paused, so that the root turn is about to wait for its calls.

    It reads its inbox when the root turn is answered, or driven on by another process.
    """
    if turn_id == root or not await store.is_driven(root):
        return False
    return (await store.get(turn_id)).status.state is State.PAUSED


def _settled_before(folds: Iterable[JournalFold], key: str) -> f.Answered | None:
    """Return the answer that gave the call its result, if the root turn's journal or a sub-agent's has one."""
    for fold in folds:
        keys = dict(_keys(fold))
        for _, fact in fold.facts:
            if isinstance(fact, f.Answered) and fact.given is not None and keys.get(fact.interrupt) == key:
                return fact
    return None


def _interrupts_of(fold: JournalFold) -> tuple[Interrupt, ...]:
    return Interrupt.all_of(fold.turn_id, fold.machine.turn)


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
        raise InvalidAnswerError(key, OTHER_ANSWER, [], subject="call")
    at, by = fields.get("at"), fields.get("by") or fields.get("via")
    _need_same(key, given_result, fields.get("given"), at if isinstance(at, float | int) else None, str(by or ""))


def _need_same(key: str, given_result: GivenResult, earlier: object, since: float | None, by: str) -> None:
    """Raise `AlreadySettledError` for another result than the earlier one."""
    if isinstance(earlier, GivenResult):
        earlier = to_builtins(earlier, enc_hook=plain)
    if earlier != to_builtins(given_result, enc_hook=plain):
        raise AlreadySettledError(key, since, by)
