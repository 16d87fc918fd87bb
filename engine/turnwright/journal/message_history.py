"""The messages before a turn: imported history, the turn that it continues, earlier turns of its session."""

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from turnwright.errors import SessionNotFoundError, StoreError, TurnNotFoundError, UnreadableTurnError
from turnwright.message import Message, SentinelPart
from turnwright.store import Store
from turnwright.transcript.compaction import compact_history, history_needed
from turnwright.transcript.history import drop_signatures, unchecked_texts
from turnwright.transcript.refusal import Acceptance, refusal_message, shorten_messages
from turnwright.transcript.transcript import Transcript, reading
from turnwright.transcript.wording import withheld_text
from turnwright_states.facts import Fact, TurnEnded, TurnStarted

from .turn_journal import first_fact

_LOG = logging.getLogger(__name__)
#: How many turns of a cycle an error names, and how many characters of each.
_MOST_NAMED: Final = 6
_NAMED: Final = 60
#: The turns of a session that are listed at once.
_PAGE: Final = 50
#: Above the number of every turn.
_LAST: Final = 2**63 - 1
_UNREAD: Final = "turn %s: turn %s, earlier in its session, is left out of its history: it cannot be read: %s"


#: Journals of earlier turns that were read already, by turn.
EarlierJournals = dict[str, list[tuple[int, Fact]]]


async def messages_before(
    store: Store, turn_id: str, turn_start: TurnStarted, model: str | None = None
) -> list[Message]:
    """Return the messages before a turn: its imported history, the turn that it continues, its session's earlier turns.

    They are as `model` may receive them (default: the turn's model), without another model's signatures. Signatures in
    a history that was imported for this turn stay.

    Where a turn compacted its conversation, the older messages are left out as they were there, and turns that only
    have such messages are not read (docs/rules.md#compaction). A line replaces what a provider refused
    (docs/rules.md#refused-content).

    A session's earlier turn that cannot be read is left out with a warning. Raises `UnreadableTurnError` if the
    continued turn cannot be read, and `StoreError` if turns continue each other in a cycle, which only an edited
    journal can do.
    """
    return (await history_before(store, turn_id, turn_start, model))[0]


async def history_before(
    store: Store,
    turn_id: str,
    turn_start: TurnStarted,
    model: str | None = None,
    earlier: EarlierJournals | None = None,
) -> tuple[list[Message], tuple[str, ...]]:
    """Return what `messages_before` returns, and the texts in it that input guardrails have to check.

    Journals in `earlier` are removed from there instead of read again.
    """
    model, earlier = turn_start.model if model is None else model, {} if earlier is None else earlier
    session = None
    if turn_start.session is not None:
        session = SessionTurns(store, turn_start.session, (await store.get(turn_id)).number)
    messages = imported_messages = _read_imported(turn_id, turn_start)
    if turn_start.forked_from is not None and turn_start.model != model:
        # The imported history of a fork is the original's, for the original's model.
        messages = list(map(drop_signatures, messages))
    acceptance = Acceptance()
    for turn in await said_before(store, turn_id, turn_start, model, earlier, session):
        messages, acceptance = turn.after(messages, acceptance)
    if turn_start.forked_from is not None:  # its messages are those of the original, which were checked
        return messages, ()
    known_ids = set(map(id, imported_messages))
    new_messages = [message for message in messages[acceptance.messages :] if id(message) not in known_ids]
    return messages, unchecked_texts([*imported_messages, *new_messages])


async def said_before(  # noqa: PLR0917 (as in `messages_before`)
    store: Store,
    turn_id: str,
    turn_start: TurnStarted,
    model: str,
    earlier: EarlierJournals,
    session: "SessionTurns | None",
) -> "list[Said]":
    """Return the turns before a turn whose messages `messages_before` returns, the oldest first."""
    turns_before: list[Said] = []
    needs = _NeededMessages()
    while session is not None and not needs.are_read and (turns := await session.next_turns(turn_id)):
        for turn in turns:
            try:
                turns_read = await _said_until(
                    store, turn, before=turn_id, session=session, model=model, earlier=earlier
                )
                turns_before += turns_read
                needs.add(turns_read)
            except UnreadableTurnError as error:
                if turn_start.continue_from == error.turn:
                    raise
                session.is_whole = False
                _LOG.warning(_UNREAD, turn_id, error.turn, error.why, extra={"turn": turn_id})
            if needs.are_read:
                break
    before = turn_start.continue_from
    if before is not None and not (session is not None and await session.has(before)):
        turns_before += await _said_until(store, before, before=turn_id, session=None, model=model, earlier=earlier)
    return turns_before[::-1]


class SessionTurns:
    """The turns of a session that have a number below `before` and above `after`."""

    def __init__(self, store: Store, session: str, before: int = _LAST, after: int = 0) -> None:
        self._store = store
        self._session = session
        self.before = self._next = before
        self._after = after
        self._is_read = False
        #: The number of turns that were listed, and whether all of them could be read.
        self.listed = 0
        self.is_whole = True
        #: The newest turn that was listed, and the newest one that is not above `after`; empty if none was seen.
        self.newest = self.newest_known = ""
        #: Turns of no session, or another one, which turns of this one continue.
        self.outside: set[str] = set()

    async def next_turns(self, turn_id: str) -> list[str]:
        """Return the next ended turns that can be read, the newest first. Log a warning for each that cannot.

        `turn_id` is the turn whose history this is. The turns are listed by pages, because few of them may be needed.
        """
        while not self._is_read:
            # After a known turn, there is usually one.
            limit = 2 if self._after and not self.listed else _PAGE
            page = await self._store.turns(session=self._session, live=False, limit=limit, before=self._next)
            rows = [row for row in page if row.number > self._after]
            self.newest = self.newest or (rows[0].id if rows else "")
            self.newest_known = page[len(rows)].id if len(rows) < len(page) else ""
            self._is_read = len(rows) < limit
            self.listed += len(rows)
            for row in rows:
                self._next = row.number
                if row.fault:
                    self.is_whole = False
                    _LOG.warning(_UNREAD, turn_id, row.id, row.fault, extra={"turn": turn_id})
            if sound := [row.id for row in rows if not row.fault]:
                return sound
        return []

    async def has(self, turn_id: str | None) -> bool:
        """Whether the turn is one of them, so that its messages are collected anyway."""
        if turn_id is None:
            return False
        try:
            row = await self._store.get(turn_id)
        except (TurnNotFoundError, UnreadableTurnError):
            return False
        return row.session == self._session and row.number < self.before


class Said(NamedTuple):
    """An earlier turn: its imported history, its transcript, its model, and whether its signatures are of our model."""

    brought: list[Message]
    transcript: Transcript
    model: str
    signed: bool
    #: Our model; None if signatures stay.
    target: str | None = None

    @property
    def only_adds(self) -> bool:
        """Whether the turn leaves the messages before it as they are: without compactions and refused requests."""
        return not self.transcript.compactions and not self.transcript.refusal and not self._withheld_by

    @property
    def _withheld_by(self) -> str:
        """The guardrail that tripped on the messages before the turn; empty if none did."""
        last = self.transcript.last
        guardrail = last.guardrail if isinstance(last, TurnEnded) else None
        return guardrail.name if guardrail is not None and guardrail.checks == "history" else ""

    def after(self, messages: Sequence[Message], acceptance: Acceptance) -> tuple[list[Message], Acceptance]:
        """Return the messages before the turn and its own, as its compactions and refusals left them.

        `acceptance` says how many of the messages before the turn a model has accepted. The second result says how many
        of all of them.
        """
        before = [*messages, *self.brought]
        if self._withheld_by:
            before = [*messages[: acceptance.messages], Message.user(withheld_text(self._withheld_by))]
        base, replaced_count = compact_history(before, self.transcript.closed, self.transcript.compactions)
        own_messages = [
            message if self._is_signed(place) else drop_signatures(message)
            for place, message in enumerate(self.transcript.messages[replaced_count:], replaced_count)
        ]
        if replaced_count and not self.signed:
            given_ids = set(map(id, before))
            base = tuple(message if id(message) in given_ids else drop_signatures(message) for message in base)
        conversation = [*base, *own_messages]
        now = self.accepted_after(len(before), acceptance, len(conversation))
        if not self.transcript.refusal:
            return conversation, now
        accepted_messages, refused_messages = conversation[: now.messages], conversation[now.messages :]
        # The fixed summary of a turn whose conclusion was refused is the engine's text.
        last = (
            [refused_messages.pop()]
            if refused_messages and refused_messages[-1].text and _has_sentinel(refused_messages[-1])
            else []
        )
        is_other = self.signed and acceptance.model not in ("", self.model) and not self.transcript.replied_to
        accepted_messages = shorten_messages(accepted_messages, now.refusals + is_other)
        line = [refusal_message(refused_messages, self.transcript.refusal)] if refused_messages else []
        return [*accepted_messages, *line, *last], now._replace(messages=len(accepted_messages))

    def _is_signed(self, place: int) -> bool:
        """Whether the signatures of this message of the turn are of our model: a hook may choose one for a step."""
        step_model = self.transcript.step_models.get(place)
        return self.signed if step_model is None else self.target is None or step_model == self.target

    def accepted_after(self, before: int, acceptance: Acceptance, length: int) -> Acceptance:
        """Return how many of the first messages a model has accepted, if the turn follows `before` messages.

        `length` is the number of all messages. Compactions replace the first ones.
        """
        transcript = self.transcript
        has_replied = bool(transcript.replied_to)
        until = before + transcript.replied_to if has_replied else acceptance.messages
        new = before + len(transcript.closed) - until
        # The model made the summary itself.
        least = 1 if transcript.compactions and length else 0
        return Acceptance(
            messages=max(length - new, least),
            model=self.model if has_replied else acceptance.model,
            refusals=(0 if has_replied else acceptance.refusals) + bool(transcript.refusal),
        )


def _has_sentinel(message: Message) -> bool:
    return any(isinstance(part, SentinelPart) for part in message.parts)


class _NeededMessages:
    """Counts whether turns that are read, the newest first, have every message that compactions left."""

    def __init__(self) -> None:
        #: The messages still needed of the turns before those read; None if there was no compaction.
        self._count: int | None = None
        self.are_read = False

    def add(self, turns: Sequence[Said]) -> None:
        """Add the next turns, the newest first."""
        for turn in turns:
            needed_here = history_needed(turn.transcript.compactions)
            if needed_here is not None:
                self._count = needed_here
            elif self._count is not None:
                self._count -= len(turn.transcript.messages)
            self.are_read = self.are_read or (self._count is not None and self._count <= 0)


async def session_messages(store: Store, session: str) -> list[Message]:
    """Return the messages of a session's turns, oldest first, each after those that it brought or continues.

    Compactions leave nothing out. Raises `SessionNotFoundError`, and `UnreadableTurnError` if a turn cannot be read.
    """
    rows = (await store.turns(session=session))[::-1]
    if not rows:
        raise SessionNotFoundError(session)
    whole = SessionTurns(store, session)
    messages: list[Message] = []
    for row in rows:
        if row.fault:
            raise UnreadableTurnError(row.id, row.fault)
        turns = await _said_until(store, row.id, before="", session=whole, model=None, earlier={})
        for turn in reversed(turns):
            messages += [*turn.brought, *turn.transcript.messages]
    return messages


def _read_imported(turn_id: str, turn_start: TurnStarted) -> list[Message]:
    """Return the imported history. Raises `StoreError` if this release cannot read it."""
    try:
        return [Message.of_json(message) for message in turn_start.message_history]
    except ValueError as error:
        raise UnreadableTurnError(turn_id, f"its history cannot be read: {error}") from error


async def _said_until(
    store: Store, last: str, *, before: str, session: "SessionTurns | None", model: str | None, earlier: EarlierJournals
) -> list[Said]:
    """Return the turn `last` and all turns that it continues, the newest first. Without a `model`, signatures stay.

    Those of `session` are collected anyway. `before` is the turn whose history this is. Raises
    `StoreError`, naming the turns, if they continue each other in a cycle.
    """
    turns: list[Said] = []
    turn_ids = {before: None}
    turn_id: str | None = last
    while turn_id is not None:
        if turn_id in turn_ids:
            raise _cycle(before, [*turn_ids, turn_id])
        turn_ids[turn_id] = None
        try:
            facts = earlier.pop(turn_id, None) or await store.facts(turn_id)
        except TurnNotFoundError:
            _LOG.warning(
                "turn %s was deleted: a later turn's history lacks its messages",
                turn_id,
                extra={"turn": turn_id},
            )
            if session is not None:
                session.is_whole = False
            break
        if session is not None and turn_id != last:
            session.outside.add(turn_id)
        first = first_fact(turn_id, facts)
        with reading(turn_id):
            imported_messages, transcript = _read_imported(turn_id, first), Transcript.of(facts)
        is_same_model = model is None or first.model == model
        # An imported history is meant for the model of its turn, and a fork's comes from that model.
        imported_messages = imported_messages if is_same_model else list(map(drop_signatures, imported_messages))
        turns.append(Said(imported_messages, transcript, first.model, is_same_model, model))
        is_known = session is not None and await session.has(first.continue_from)
        turn_id = None if is_known else first.continue_from
    return turns


def _cycle(turn_id: str, turn_ids: Sequence[str]) -> StoreError:
    """Return the error for turns that continue each other, the last of which is also an earlier one."""
    turns = turn_ids[turn_ids.index(turn_ids[-1]) :]
    names = [repr(turn[:_NAMED]) for turn in turns]
    if len(names) > _MOST_NAMED:
        names = [*names[: _MOST_NAMED - 2], f"{len(names) - _MOST_NAMED + 1} more", names[-1]]
    return StoreError(
        f"turn {turn_id}: its history cannot be read, because turns continue each other in a cycle:"
        f" {', which continues '.join(names)}: a journal was edited"
    )
