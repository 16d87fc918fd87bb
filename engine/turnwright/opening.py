"""Takes a claimed turn up: finds its agent, its model, its tools, and what was said before it."""

import math

from turnwright_states import CallState, Turn
from turnwright_states.facts import TurnStarted

from .agent import Agent
from .errors import ConfigError
from .ledger import Ledger, Publish, beginning
from .message import Message
from .pairing import renamed
from .segment import Segment
from .setup import Setup
from .store import Claim, Store
from .transcript import Transcript


async def open_segment(store: Store, setup: Setup, claim: Claim, publish: Publish | None) -> Segment:
    """The claimed turn, ready to be driven.

    Raises `ConfigError` when a tool that the turn still needs, or its model, is not there, and `StoreError` when its
    journal cannot be read.
    """
    ledger = await Ledger.open(store, claim, publish)
    agent = Agent.from_json(ledger.started.agent)
    _need_tools(claim.turn, ledger.machine.turn, setup)
    history = await said_before(store, claim.turn, ledger.started)
    return Segment(setup, ledger, agent=agent, model=setup.model_for(agent), history=tuple(renamed(history)))


def _need_tools(turn_id: str, turn: Turn, setup: Setup) -> None:
    missing = sorted(
        {c.name for c in turn.batch.values() if c.state is not CallState.SETTLED and c.name not in setup.tools}
    )
    if missing:
        raise ConfigError(f"turn {turn_id}: its open calls need the tools {', '.join(missing)}: give them (--tools)")


async def said_before(store: Store, turn_id: str, started: TurnStarted, *, until: float = math.inf) -> list[Message]:
    """The messages that the embedder brought, the turn that this one goes on from, the session's earlier turns.

    All of the session's other turns are earlier ones while this is its live one. Afterwards `until` tells them from the
    later ones: it is when this turn was created.
    """
    earlier: list[str] = []
    if started.session is not None:
        rows = await store.turns(session=started.session, live=False)
        earlier = [row.id for row in reversed(rows) if row.id != turn_id and row.created_at <= until]
    messages = [Message.model_validate(message) for message in started.history]
    if started.continues is not None and started.continues not in earlier:
        messages += await _said_in(store, started.continues, within=())
    for other in earlier:
        messages += await _said_in(store, other, within=earlier)
    return messages


async def _said_in(store: Store, turn_id: str, within: "list[str] | tuple[str, ...]") -> list[Message]:
    """What one earlier turn was given and what it said. `within` are the turns whose own words are taken anyway."""
    facts = await store.facts(turn_id)
    first = beginning(turn_id, facts)
    messages = [Message.model_validate(message) for message in first.history]
    if first.continues is not None and first.continues not in within:
        messages += await _said_in(store, first.continues, within)
    return [*messages, *Transcript.of(facts).messages]
