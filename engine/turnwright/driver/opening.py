"""Takes a claimed turn up: finds its agent, its model, its tools, and what was said before it."""

import logging

from msgspec import structs
from pydantic import ValidationError

from turnwright.agent import Agent
from turnwright.errors import ConfigError, UnreadableTurnError
from turnwright.journal.admission import NewTurnClaim
from turnwright.journal.dependencies import Dependencies
from turnwright.journal.message_history import messages_before
from turnwright.journal.turn_journal import JournalFold, Listeners, TurnJournal
from turnwright.message import Message
from turnwright.store import Claim, Store
from turnwright.transcript.pairing import UnpairedError, check_pairing, renamed, repaired
from turnwright.transcript.transcript import Transcript
from turnwright_states import CallState, Turn
from turnwright_states.facts import Fact, ModelReplied

from .segment import Segment

_LOG = logging.getLogger(__name__)


async def open_segment(  # noqa: PLR0917 (what a driver has, then what it knows)
    store: Store,
    setup: Dependencies,
    claim: Claim,
    listeners: Listeners | None,
    begun: NewTurnClaim | None = None,
    known: JournalFold | None = None,
) -> Segment:
    """The claimed turn, ready to be driven. One that was just `begun` need not be read, nor what is `known` of it.

    Raises `ConfigError` when a tool that the turn still needs, or its model, is not there, or what was said before is
    not paired and the setup is strict about it, and `StoreError` when its journal cannot be read.
    """
    if begun is None:
        journal = await TurnJournal.open(store, claim, listeners, setup.now, known)
        now = journal.machine.turn
        about = {"turn": claim.turn, "step": now.counters.steps, "state": str(now.state)}
        _LOG.info("turn %s: taken up in %s, step %d", claim.turn, now.state, now.counters.steps, extra=about)
        agent = _agent(journal)
    else:
        fold = JournalFold(claim.turn, list(enumerate(begun.facts, start=1)), begun.machine)
        journal = TurnJournal(store, claim, fold, listeners, now=setup.now)
        agent = begun.agent
        journal.log(begun.facts)
    _need_tools(claim.turn, journal.machine.turn, setup)
    model = setup.model_for(agent)
    if model.name != journal.started.model:
        facts = [(seq, _unsigned_fact(fact)) for seq, fact in await store.facts(claim.turn)]
        journal.transcript = Transcript.following(journal.machine.turn, facts)
    started = journal.started
    if started.session is not None or started.continue_from is not None:
        journal.waiting = None  # to read what was said before takes its time
    earlier = {} if begun is None else begun.earlier
    history = _paired(claim.turn, await messages_before(store, claim.turn, started, model.name, earlier), setup)
    return Segment(setup, journal, agent=agent, model=model, history=tuple(renamed(history)))


def _agent(journal: TurnJournal) -> Agent:
    try:
        return Agent.from_json(journal.started.agent)
    except ValidationError as error:
        said = error.errors()[0]["msg"]
        raise UnreadableTurnError(journal.turn_id, f"its agent cannot be read: {said}") from error


def _paired(turn_id: str, history: list[Message], setup: Dependencies) -> list[Message]:
    """What was said before, as it may be sent: repaired here, so that hooks see it and it is warned of once."""
    if setup.unpaired == "reject":
        try:
            check_pairing(history)
        except UnpairedError as error:
            raise ConfigError(
                f"turn {turn_id}: what was said before it: {error}: a provider would refuse it;"
                ' drive the turn with unpaired="repair"'
            ) from None
        return history
    paired, notes = repaired(history)
    for note in notes:
        _LOG.warning("turn %s: what was said before it is repaired: %s", turn_id, note, extra={"turn": turn_id})
    return paired


def _need_tools(turn_id: str, turn: Turn, setup: Dependencies) -> None:
    missing = sorted(
        {c.name for c in turn.batch.values() if c.state is not CallState.SETTLED and c.name not in setup.tools}
    )
    if missing:
        raise ConfigError(f"turn {turn_id}: its open calls need the tools {', '.join(missing)}: give them (--tools)")


def _unsigned_fact(fact: Fact) -> Fact:
    return structs.replace(fact, reasoning_details=()) if isinstance(fact, ModelReplied) else fact
