"""The messages before a turn: imported history, the turn that it continues, earlier turns of its session."""

import logging
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import structs

from turnwright.errors import StoreError, TurnNotFoundError, UnreadableTurnError
from turnwright.message import Message, ReasoningPart
from turnwright.store import Store
from turnwright.transcript.transcript import Transcript, reading
from turnwright_states.facts import Fact, TurnStarted

from .turn_journal import first_fact

_LOG = logging.getLogger(__name__)
#: How many turns of a circle an error names, and how many characters of each.
_MOST_NAMED: Final = 6
_NAMED: Final = 60
_UNREAD: Final = "turn %s: what was said in turn %s, earlier in its session, is left out, for it cannot be read: %s"


#: The journals of earlier turns that were read already, by turn.
EarlierJournals = dict[str, list[tuple[int, Fact]]]


async def messages_before(
    store: Store,
    turn_id: str,
    started: TurnStarted,
    model: str | None = None,
    known: EarlierJournals | None = None,
) -> list[Message]:
    """The messages that the embedder brought, the turn that this one goes on from, the session's earlier turns.

    They are as they may be sent to `model`, by default the one that the turn began with: without the signatures of
    another one. Whose are in a history that was brought for this turn is the embedder's knowledge, and they stay.
    Journals that are `known` are taken out there, and not read again.

    An earlier turn of the session that cannot be read is left out, with a warning: it does not keep the session from
    going on. Raises `UnreadableTurnError` where that is the turn which this one goes on from, and `StoreError` where
    turns go on from each other in a circle, which only a changed journal can say.
    """
    model, known = started.model if model is None else model, {} if known is None else known
    earlier: list[str] = []
    if started.session is not None:
        number = (await store.get(turn_id)).number
        rows = [row for row in await store.turns(session=started.session, live=False) if row.number < number]
        for row in rows:
            if row.fault:
                _LOG.warning(_UNREAD, turn_id, row.id, row.fault, extra={"turn": turn_id})
        earlier = [row.id for row in reversed(rows) if not row.fault]
    messages = _brought(turn_id, started)
    if started.forked_from is not None and started.model != model:
        # What was brought is what the original was told, whose model was the same.
        messages = list(map(_unsigned, messages))
    if started.continue_from is not None and started.continue_from not in earlier:
        messages += await _said_up_to(
            store, started.continue_from, before=turn_id, session_turns=(), model=model, known=known
        )
    for other in earlier:
        try:
            messages += await _said_up_to(store, other, before=turn_id, session_turns=earlier, model=model, known=known)
        except UnreadableTurnError as error:
            if started.continue_from == error.turn:
                raise
            _LOG.warning(_UNREAD, turn_id, error.turn, error.why, extra={"turn": turn_id})
    return messages


def _brought(turn_id: str, started: TurnStarted) -> list[Message]:
    """The history that an embedder brought. Raises `StoreError` for one that this release cannot read."""
    try:
        return [Message.of_json(message) for message in started.message_history]
    except ValueError as error:
        raise UnreadableTurnError(turn_id, f"its history cannot be read: {error}") from error


async def _said_up_to(
    store: Store, last: str, *, before: str, session_turns: Collection[str], model: str, known: EarlierJournals
) -> list[Message]:
    """What the turn `last` was given and said, and all that it goes on from, as it may be sent to `model`.

    `session_turns` are turns that the caller reads itself; `before` is the turn that all of this precedes. Raises
    `StoreError`, naming the turns, where they go on from each other in a circle.
    """
    brought: list[Message] = []
    said: list[Sequence[Message]] = []
    followed = {before: None}
    other: str | None = last
    while other is not None:
        if other in followed:
            raise _circle(before, [*followed, other])
        followed[other] = None
        try:
            facts = known.pop(other, None) or await store.facts(other)
        except TurnNotFoundError:
            told = "turn %s was deleted, and what it said is missing from what is said before a later one"
            _LOG.warning(told, other, extra={"turn": other})
            break
        first = first_fact(other, facts)
        with reading(other):
            given, spoken = _brought(other, first), Transcript.of(facts).messages
        if first.model != model:
            # A history is for the model that it was brought for; that of a fork is from it.
            given, spoken = list(map(_unsigned, given)), tuple(map(_unsigned, spoken))
        brought += given
        said.append(spoken)
        other = None if first.continue_from in session_turns else first.continue_from
    return [*brought, *(message for messages in reversed(said) for message in messages)]


def _circle(turn_id: str, followed: Sequence[str]) -> StoreError:
    """The error for turns, each of which continues the next, where the last has been among them before."""
    turns = followed[followed.index(followed[-1]) :]
    named = [repr(one[:_NAMED]) for one in turns]
    if len(named) > _MOST_NAMED:
        named = [*named[: _MOST_NAMED - 2], f"{len(named) - _MOST_NAMED + 1} more", named[-1]]
    return StoreError(
        f"turn {turn_id}: what was said before it cannot be told, for turns go on from each other in a circle:"
        f" {', which continues '.join(named)}: somebody changed a journal"
    )


def _unsigned(message: Message) -> Message:
    """The message without another model's signatures, which its provider alone can read, and which others refuse."""
    if not any(isinstance(part, ReasoningPart) and part.details for part in message.parts):
        return message
    parts = (structs.replace(p, details=()) if isinstance(p, ReasoningPart) else p for p in message.parts)
    return structs.replace(message, parts=tuple(parts))
