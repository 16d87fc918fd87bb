"""Forks a turn: copies the beginning of its journal into a new turn, which then goes its own way.

A fork executes. Driven on, it calls the model and runs tools like any other turn, and what the original had done after
that place may be done again, or otherwise. To check a journal without doing anything is a replay
(`turnwright_states.replay`), and only a turn whose journal holds is forked.
"""

import time
from collections.abc import Sequence

import anyio
from msgspec import structs

from turnwright.errors import ConfigError
from turnwright.store import NewTurn, Status, Store
from turnwright_states import TurnMachine
from turnwright_states.facts import Fact
from turnwright_states.replay import FactGroup, replay
from turnwright_states.verdict import Verdict

from .message_history import messages_before
from .turn_journal import first_fact


async def fork_turn(store: Store, turn_id: str, at: int, *, new_id: str) -> str:
    """Copy the first `at` facts of a turn into a new turn with the id `new_id`, and return that id.

    `at` must be the last fact of an event: `fork_places` lists them. The original is only read. The fork has its
    prompt, agent and limits, what it had used up to there, and its open interrupts. It belongs to no session, and what
    was said before the original is its history. Nobody drives it yet. A call that had started and has no result there
    is to the fork as one whose process died: when the fork is driven, the tool's `on_crash` decides.

    Raises `TurnNotFoundError`, and `ConfigError` for another `at` and for a journal that does not hold.
    """
    row = await store.get(turn_id)
    journal = await store.facts(turn_id)
    _need_place(turn_id, at, fork_places(turn_id, journal), len(journal))
    first = first_fact(turn_id, journal)
    history = await messages_before(store, turn_id, first)
    started = structs.replace(
        first,
        session=None,
        continue_from=None,
        parent_turn=None,
        parent_call=None,
        message_history=tuple(message.to_json() for message in history),
        forked_from=turn_id,
        forked_at=at,
    )
    facts: list[Fact] = [started, *(fact for _, fact in journal[1:at])]
    new = NewTurn(id=new_id, session=None, agent=row.agent, model=row.model, created_at=time.time())
    claim = await store.create(new, facts, Status.of(TurnMachine.resume(facts).turn))
    with anyio.CancelScope(shield=True):
        await store.release(claim)
    return new_id


def fork_places(turn_id: str, journal: Sequence[tuple[int, Fact]]) -> tuple[FactGroup, ...]:
    """The events after which a turn can be forked: all but the one that ended it.

    `journal` is its (seq, fact) pairs, oldest first. Raises `ConfigError` when it does not hold.
    """
    replayed = replay(journal)
    if replayed.check.verdict is not Verdict.HOLDS:
        raise ConfigError(
            f"turn {turn_id} cannot be forked, for its journal does not hold: {replayed.check.detail}:"
            f" `turnwright replay {turn_id}` checks it"
        )
    return tuple(group for group in replayed.groups if group.state.outcome is None)


def _need_place(turn_id: str, at: int, places: Sequence[FactGroup], facts: int) -> None:
    """Raise `ConfigError`, naming the nearest places, unless `at` is one of them."""
    ends = [group.last for group in places]
    if at in ends:
        return
    near = [*[end for end in ends if end < at][-1:], *[end for end in ends if end > at][:1]]
    use = f"fork it at fact {' or '.join(map(str, near))}"
    if not 0 < at <= facts:
        raise ConfigError(f"turn {turn_id} has no fact {at}: it has {facts}: {use}")
    if at == facts:
        raise ConfigError(f"turn {turn_id} has ended with fact {at}, and nothing is left to do after it: {use}")
    raise ConfigError(f"turn {turn_id}: fact {at} and the next one come from one event: {use}")
