"""Takes a claimed turn up: finds its agent, its model, its tools, and what was said before it."""

import logging
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import structs
from pydantic import ValidationError

from turnwright_states import CallState, Turn
from turnwright_states.facts import Fact, ModelReplied, TurnStarted

from .admission import Begun
from .agent import Agent
from .errors import ConfigError, StoreError, UnknownTurn, UnreadableTurnError
from .ledger import Ledger, Listeners, beginning
from .message import Message, ReasoningPart
from .pairing import UnpairedError, check_pairing, renamed, repaired
from .segment import Segment
from .setup import Setup
from .store import Claim, Store
from .transcript import Transcript, reading

_LOG = logging.getLogger(__name__)
#: How many turns of a circle an error names, and how many characters of each.
_MOST_NAMED: Final = 6
_NAMED: Final = 60
_UNREAD: Final = "turn %s: what was said in turn %s, earlier in its session, is left out, for it cannot be read: %s"


async def open_segment(
    store: Store, setup: Setup, claim: Claim, listeners: Listeners | None, begun: Begun | None = None
) -> Segment:
    """The claimed turn, ready to be driven. One that was just `begun` need not be read.

    Raises `ConfigError` when a tool that the turn still needs, or its model, is not there, or what was said before is
    not paired and the setup is strict about it, and `StoreError` when its journal cannot be read.
    """
    if begun is None:
        ledger = await Ledger.open(store, claim, listeners, setup.telemetry, setup.now)
        now = ledger.machine.turn
        about = {"turn": claim.turn, "step": now.counters.steps, "state": str(now.state)}
        _LOG.info("turn %s: taken up in %s, step %d", claim.turn, now.state, now.counters.steps, extra=about)
        agent = _agent(ledger)
    else:
        facts = list(enumerate(begun.facts, start=1))
        ledger = Ledger(store, claim, facts, listeners, begun.machine, telemetry=setup.telemetry, now=setup.now)
        agent = begun.agent
        ledger.log(begun.facts)
    _need_tools(claim.turn, ledger.machine.turn, setup)
    model = setup.model_for(agent)
    if model.name != ledger.started.model:
        facts = [(seq, _unsigned_fact(fact)) for seq, fact in await store.facts(claim.turn)]
        ledger.transcript = Transcript.following(ledger.machine.turn, facts)
    history = _paired(claim.turn, await said_before(store, claim.turn, ledger.started, model.name), setup)
    return Segment(setup, ledger, agent=agent, model=model, history=tuple(renamed(history)))


def _agent(ledger: Ledger) -> Agent:
    try:
        return Agent.from_json(ledger.started.agent)
    except ValidationError as error:
        said = error.errors()[0]["msg"]
        raise UnreadableTurnError(ledger.turn_id, f"its agent cannot be read: {said}") from error


def _paired(turn_id: str, history: list[Message], setup: Setup) -> list[Message]:
    """What was said before, as it may be sent: repaired here, so that hooks see it and it is warned of once."""
    if setup.history == "strict":
        try:
            check_pairing(history)
        except UnpairedError as error:
            raise ConfigError(
                f"turn {turn_id}: what was said before it: {error}: a provider would refuse it;"
                ' drive the turn with history="repair"'
            ) from None
        return history
    paired, notes = repaired(history)
    for note in notes:
        _LOG.warning("turn %s: what was said before it is repaired: %s", turn_id, note, extra={"turn": turn_id})
    return paired


def _need_tools(turn_id: str, turn: Turn, setup: Setup) -> None:
    missing = sorted(
        {c.name for c in turn.batch.values() if c.state is not CallState.SETTLED and c.name not in setup.tools}
    )
    if missing:
        raise ConfigError(f"turn {turn_id}: its open calls need the tools {', '.join(missing)}: give them (--tools)")


async def said_before(store: Store, turn_id: str, started: TurnStarted, model: str | None = None) -> list[Message]:
    """The messages that the embedder brought, the turn that this one goes on from, the session's earlier turns.

    They are as they may be sent to `model`, by default the one that the turn began with: without the signatures of
    another one. Whose are in a history that was brought for this turn is the embedder's knowledge, and they stay.

    An earlier turn of the session that cannot be read is left out, with a warning: it does not keep the session from
    going on. Raises `UnreadableTurnError` where that is the turn which this one goes on from, and `StoreError` where
    turns go on from each other in a circle, which only a changed journal can say.
    """
    model = started.model if model is None else model
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
    if started.continues is not None and started.continues not in earlier:
        messages += await _said_up_to(store, started.continues, before=turn_id, within=(), model=model)
    for other in earlier:
        try:
            messages += await _said_up_to(store, other, before=turn_id, within=earlier, model=model)
        except UnreadableTurnError as error:
            if started.continues == error.turn:
                raise
            _LOG.warning(_UNREAD, turn_id, error.turn, error.why, extra={"turn": turn_id})
    return messages


def _brought(turn_id: str, started: TurnStarted) -> list[Message]:
    """The history that an embedder brought. Raises `StoreError` for one that this release cannot read."""
    try:
        return [Message.of_json(message) for message in started.history]
    except ValueError as error:
        raise UnreadableTurnError(turn_id, f"its history cannot be read: {error}") from error


async def _said_up_to(store: Store, last: str, *, before: str, within: Collection[str], model: str) -> list[Message]:
    """What the turn `last` was given and said, and all that it goes on from, as it may be sent to `model`.

    `within` are the turns whose own words are taken anyway, `before` the one that it is all said before. Raises
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
            facts = await store.facts(other)
        except UnknownTurn:
            told = "turn %s was deleted, and what it said is missing from what is said before a later one"
            _LOG.warning(told, other, extra={"turn": other})
            break
        first = beginning(other, facts)
        with reading(other):
            given, spoken = _brought(other, first), Transcript.of(facts).messages
        if first.model != model:
            # A history is for the model that it was brought for; that of a fork is from it.
            given, spoken = list(map(_unsigned, given)), tuple(map(_unsigned, spoken))
        brought += given
        said.append(spoken)
        other = None if first.continues in within else first.continues
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


def _unsigned_fact(fact: Fact) -> Fact:
    return structs.replace(fact, reasoning_details=()) if isinstance(fact, ModelReplied) else fact
