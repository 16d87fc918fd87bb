"""Takes a claimed turn up: finds its agent, its model, its tools, and what was said before it."""

import logging

from msgspec import structs
from pydantic import ValidationError

from turnwright_states import CallState, Turn
from turnwright_states.facts import Fact, ModelReplied, TurnStarted

from .admission import Begun
from .agent import Agent
from .errors import ConfigError, StoreError, UnknownTurn
from .ledger import Ledger, Listeners, beginning
from .message import Message, ReasoningPart
from .pairing import UnpairedError, check_pairing, renamed, repaired
from .segment import Segment
from .setup import Setup
from .store import Claim, Store
from .transcript import Transcript

_LOG = logging.getLogger(__name__)


async def open_segment(
    store: Store, setup: Setup, claim: Claim, listeners: Listeners | None, begun: Begun | None = None
) -> Segment:
    """The claimed turn, ready to be driven. One that was just `begun` need not be read.

    Raises `ConfigError` when a tool that the turn still needs, or its model, is not there, or what was said before is
    not paired and the setup is strict about it, and `StoreError` when its journal cannot be read.
    """
    if begun is None:
        ledger = await Ledger.open(store, claim, listeners)
        agent = _agent(ledger)
    else:
        facts = list(enumerate(begun.facts, start=1))
        ledger, agent = Ledger(store, claim, facts, listeners, begun.machine), begun.agent
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
        raise StoreError(f"turn {ledger.turn_id}: its agent cannot be read: {said}") from error


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
        _LOG.warning("turn %s: what was said before it is repaired: %s", turn_id, note)
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
    """
    model = started.model if model is None else model
    earlier: list[str] = []
    if started.session is not None:
        number = (await store.get(turn_id)).number
        rows = await store.turns(session=started.session, live=False)
        earlier = [row.id for row in reversed(rows) if row.number < number]
    messages = _brought(turn_id, started)
    if started.forked_from is not None and started.model != model:
        # What was brought is what the original was told, whose model was the same.
        messages = list(map(_unsigned, messages))
    if started.continues is not None and started.continues not in earlier:
        messages += await _said_in(store, started.continues, within=(), model=model)
    for other in earlier:
        messages += await _said_in(store, other, within=earlier, model=model)
    return messages


def _brought(turn_id: str, started: TurnStarted) -> list[Message]:
    """The history that an embedder brought. Raises `StoreError` for one that this release cannot read."""
    try:
        return [Message.of_json(message) for message in started.history]
    except ValueError as error:
        raise StoreError(f"turn {turn_id}: its history cannot be read: {error}") from error


async def _said_in(store: Store, turn_id: str, within: "list[str] | tuple[str, ...]", model: str) -> list[Message]:
    """What one earlier turn was given and what it said, as it may be sent to `model`.

    `within` are the turns whose own words are taken anyway.
    """
    try:
        facts = await store.facts(turn_id)
    except UnknownTurn:
        _LOG.warning("turn %s was deleted, and what it said is missing from what is said before a later one", turn_id)
        return []
    first = beginning(turn_id, facts)
    brought, said = _brought(turn_id, first), list(Transcript.of(facts).messages)
    if first.model != model:
        # A history is for the model that it was brought for; that of a fork is from it.
        brought, said = list(map(_unsigned, brought)), list(map(_unsigned, said))
    if first.continues is not None and first.continues not in within:
        brought += await _said_in(store, first.continues, within, model)
    return [*brought, *said]


def _unsigned(message: Message) -> Message:
    """The message without another model's signatures, which its provider alone can read, and which others refuse."""
    if not any(isinstance(part, ReasoningPart) and part.details for part in message.parts):
        return message
    parts = (structs.replace(p, details=()) if isinstance(p, ReasoningPart) else p for p in message.parts)
    return structs.replace(message, parts=tuple(parts))


def _unsigned_fact(fact: Fact) -> Fact:
    return structs.replace(fact, reasoning_details=()) if isinstance(fact, ModelReplied) else fact
