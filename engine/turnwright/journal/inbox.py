"""Writes and reads the items of a turn's inbox, and polls inboxes for aborts. No other module knows their format."""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Final

import anyio
from msgspec import ValidationError, convert

from turnwright._base.ids import TOKENS
from turnwright.errors import ConfigError
from turnwright.store import InboxItem, InboxKind, Store
from turnwright.store.protocol import RESUMING_KINDS
from turnwright.transcript.interrupt import CallProgress, Interrupt
from turnwright_states import AnsweredInput, Decision, InvalidInputError, State
from turnwright_states import facts as f
from turnwright_states.construct import construct

#: The id of an abort.
ABORT: Final = "abort"
#: The prefix of an answer's id. The interrupt follows: for a result this prefix and the call.
ANSWER_PREFIX: Final = "answer:"
RESULT_PREFIX: Final = "result-"
PROGRESS_PREFIX: Final = "progress:"
_FORWARDED_PREFIX: Final = "forwarded:"


def abort_item(turn: str) -> InboxItem:
    """Make an abort. A turn has at most one, however often it is posted."""
    return InboxItem(turn, ABORT, InboxKind.ABORT)


def steer_item(turn: str, text: str) -> InboxItem:
    """Make a message to a running turn. Raises `ConfigError` for a blank text, or one that is not Unicode."""
    text = writable(text)
    if not text.strip():
        raise ConfigError("the message to the turn is blank")
    return InboxItem(turn, f"steer:{TOKENS.get()(6)}", InboxKind.STEER, json.dumps({"text": text}))


def to_answered_input(item: InboxItem, elapsed: float) -> AnsweredInput | None:
    """Return the answer as the machine takes it, or None for another item."""
    try:
        return construct(AnsweredInput, {**_read(item), "elapsed": elapsed})
    except InvalidInputError:
        return None


def is_same_answer(item: InboxItem, waiting: InboxItem) -> bool:
    """Whether two answers to an interrupt differ at most in who answered, where and when."""
    answer, waiting_answer = (
        {name: value for name, value in _read(answer).items() if name not in {"by", "via", "at"}}
        for answer in (item, waiting)
    )
    return answer == waiting_answer


def read_answer(item: InboxItem) -> dict[str, object]:
    """Return the fields of an answer; empty for another or a damaged item."""
    return _read(item) if item.kind is InboxKind.ANSWER else {}


def forwarded(item: InboxItem) -> InboxItem:
    """Return the answer of a caller to its sub-agent, for an inbox that has another answer to this interrupt.

    The other one is a result that was not accepted, because the caller has this answer.
    """
    return replace(item, id=f"{_FORWARDED_PREFIX}{item.id}")


def in_order(items: Iterable[InboxItem]) -> list[InboxItem]:
    """Return the items in the order in which they count: first the answers that a caller forwards against another."""
    return sorted(items, key=lambda item: not item.id.startswith(_FORWARDED_PREFIX))


def has_request(items: Iterable[InboxItem]) -> bool:
    """Whether an abort or an answer is among the items: it resumes a paused turn."""
    return any(item.kind in RESUMING_KINDS for item in items)


def answers_in(items: Iterable[InboxItem], interrupts: Iterable[Interrupt]) -> frozenset[str]:
    """Return the ids of these interrupts that the answers among the items close.

    Where several people must approve, as many approvals do that as are still needed, or any other answer.
    """
    decisions: dict[str, list[object]] = {}
    for item in items:
        if item.kind is InboxKind.ANSWER:
            answer = _read(item)
            name = str(answer.get("interrupt", item.id.removeprefix(ANSWER_PREFIX)))
            decisions.setdefault(name, []).append(answer.get("decision"))
    return frozenset(
        interrupt.id
        for interrupt in interrupts
        if (answers := decisions.get(interrupt.id))
        and (len(answers) >= interrupt.approvals or any(decision != Decision.APPROVE for decision in answers))
    )


def progress_item(turn: str, interrupt: str, report: CallProgress) -> InboxItem:
    """Make a report of a call that waits for its result. It replaces an older one."""
    return InboxItem(turn, f"{PROGRESS_PREFIX}{interrupt}", InboxKind.PROGRESS, json.dumps(asdict(report)))


def reports(items: Iterable[InboxItem]) -> dict[str, CallProgress]:
    """Return the latest reports among the items, by the interrupts of their calls. Damaged ones are left out."""
    latest: dict[str, CallProgress] = {}
    for item in items:
        if item.kind is InboxKind.PROGRESS:
            with suppress(ValidationError):
                latest[item.id.removeprefix(PROGRESS_PREFIX)] = convert(_read(item), CallProgress)
    return latest


def with_inbox(interrupts: tuple[Interrupt, ...], items: Sequence[InboxItem]) -> tuple[Interrupt, ...]:
    """Return the interrupts with what waits in the inbox: the latest reports of calls, and approvals of people."""
    progress = reports(items)
    approvals: dict[str, tuple[f.Answered, ...]] = {}
    for item in items:
        answer = to_answered_input(item, 0.0) if item.kind is InboxKind.ANSWER else None
        if answer is not None and answer.decision is Decision.APPROVE:
            fact = f.Answered(
                0.0,
                State.PAUSED,
                interrupt=answer.interrupt,
                decision=answer.decision,
                by=answer.by,
                via=answer.via,
                at=answer.at,
            )
            approvals[answer.interrupt] = (*approvals.get(answer.interrupt, ()), fact)
    if not (progress or approvals):
        return interrupts
    return tuple(
        replace(
            interrupt,
            progress=progress.get(interrupt.id),
            approvals_so_far=interrupt.approvals_so_far + approvals.get(interrupt.id, ()),
        )
        for interrupt in interrupts
    )


def early_results(items: Iterable[InboxItem]) -> dict[str, InboxItem]:
    """Return the results among the items by the turn's own calls, whether or not these wait for them."""
    prefix = f"{ANSWER_PREFIX}{RESULT_PREFIX}"
    return {
        item.id.removeprefix(prefix): item
        for item in items
        if item.kind is InboxKind.ANSWER and item.id.startswith(prefix) and _read(item).get("given") is not None
    }


def steers(items: Iterable[InboxItem]) -> dict[str, str]:
    """Return the messages to the turn among the items, oldest first: text by item id.

    Another program may have written them. Blank ones are left out, and invalid characters become `?`.
    """
    texts = {item.id: str(_read(item).get("text", "")) for item in items if item.kind is InboxKind.STEER}
    return {name: text.encode(errors="replace").decode() for name, text in texts.items() if text.strip()}


def writable(text: str, subject: str = "the message") -> str:
    """Return the text if UTF-8 can encode it.

    Raises `ConfigError`, naming it by `subject`, for another value or half a surrogate pair.
    """
    if not isinstance(text, str):
        raise ConfigError(f"{subject} must be text, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{subject} has half a surrogate pair at character {error.start}") from None
    return text


def _read(item: InboxItem) -> dict[str, object]:
    try:
        fields: object = json.loads(item.payload)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


class AbortPoller:
    """Polls a store that other processes write to, for aborts of turns that this process drives.

    One task polls for all turns of a driver: that of one turn, and when it ends, that of another one. With a poll for
    each, ten thousand turns would keep a processor busy. `store` is asked every `poll_interval` seconds, and `abort`
    is called with each abort.
    """

    def __init__(self, store: Store, poll_interval: float, abort: Callable[[InboxItem], None]) -> None:
        self._store = store
        self._poll_interval = poll_interval
        self._abort = abort
        self._polling = False
        #: The tasks that wait to take over, in order of arrival.
        self._next: dict[anyio.Event, None] = {}

    async def keep(self) -> None:
        """Poll, as soon as no other task does, until canceled. Raises `StoreError`."""
        if self._polling:
            await self._wait()
        self._polling = True
        try:
            while True:
                await anyio.sleep(self._poll_interval)
                # A canceled query would cost its connection.
                with anyio.CancelScope(shield=True):
                    for request in await self._store.requests(InboxKind.ABORT):
                        self._abort(request)
        finally:
            self._hand_over()

    async def _wait(self) -> None:
        own_event = anyio.Event()
        self._next[own_event] = None
        try:
            await own_event.wait()
        except BaseException:
            if self._next.pop(own_event, self) is self:
                self._hand_over()  # canceled just when it was to take over
            raise

    def _hand_over(self) -> None:
        following = next(iter(self._next), None)
        if following is None:
            self._polling = False
        else:
            del self._next[following]
            following.set()
