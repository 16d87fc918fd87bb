"""Forks a turn: copies the beginning of its journal into a new turn.

A fork executes: it calls the model and runs tools, so actions of the original may be repeated. To check a journal
without executing it, replay it (`turnwright_states.replay`). Only a turn with a valid journal can be forked.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio
from msgspec import structs

from turnwright._base.ids import child_id, root_of
from turnwright.errors import ConfigError, TurnNotFoundError
from turnwright.store import NewTurn, Status, Store
from turnwright_states import CallState, ModelRepliedInput, Turn, TurnMachine
from turnwright_states.facts import CallStarted, Fact
from turnwright_states.replay import FactGroup, replay
from turnwright_states.verdict import Verdict

from .message_history import messages_before
from .turn_journal import first_fact

if TYPE_CHECKING:
    from .fork_changes import ForkChanges


async def fork_turn(store: Store, turn_id: str, at: int, *, new_id: str, changes: "ForkChanges | None" = None) -> str:
    """Copy the first `at` facts of a turn into a new turn with the id `new_id`, and return that id.

    `at` must be the last fact of an input: `fork_places` lists them. The fork has the original's prompt, agent, limits,
    usage and open interrupts up to there, and its earlier messages as history. It belongs to no session and is not
    driven yet. For a call without a result at that place, the tool's `on_crash` applies when the fork is driven.

    If a call waits for a question of its sub-agent's turn, that turn is forked too, at the question, which can be
    answered in the fork.

    With `changes`, it is as if the original had had those from the beginning; under other limits, or with other
    results, its inputs are played again.

    Raises `TurnNotFoundError`, and `ConfigError` for another `at`, an invalid journal, changes that are not possible,
    and a sub-agent's turn that is not there.
    """
    row = await store.get(turn_id)
    journal = await store.facts(turn_id)
    places = fork_places(turn_id, journal)
    _need_place(turn_id, at, places, len(journal))
    first = first_fact(turn_id, journal)
    model = (changes or {}).get("model", first.model)
    history = await messages_before(store, turn_id, first, model)
    turn_start = structs.replace(
        first,
        session=None,
        continue_from=None,
        parent_turn=None,
        parent_call=None,
        message_history=tuple(message.to_json() for message in history),
        forked_from=turn_id,
        forked_at=at,
        forked_with=(),
        request={},
    )
    facts: list[Fact] = [turn_start, *(fact for _, fact in journal[1:at])]
    model = row.model
    if changes:
        from .fork_changes import changed_facts  # noqa: PLC0415 (most forks have none)

        facts = changed_facts(turn_start, journal, inputs_until(at, places, journal), changes)
        model = changes.get("model", model)
    new = NewTurn(id=new_id, session=None, agent=row.agent, model=model, created_at=time.time())
    await _write_fork(store, turn_id, new, facts)
    return new_id


async def _write_fork(store: Store, turn_id: str, new: NewTurn, facts: Sequence[Fact]) -> None:
    """Write a fork, after those of the sub-agents' turns for which it waits."""
    turn = TurnMachine.resume(facts).turn
    for call, interrupts in _asked_below(turn).items():
        await _fork_below(store, child_id(turn_id, call), child_id(new.id, call), interrupts, parent=new.id)
    claim = await store.create(new, facts, Status.of(turn))
    with anyio.CancelScope(shield=True):
        await store.release(claim)


async def _fork_below(store: Store, turn_id: str, new_id: str, interrupt_ids: set[str], *, parent: str) -> None:
    """Fork a sub-agent's turn where it waits for the answers to `interrupt_ids`, its own interrupts."""
    try:
        row, journal = await store.get(turn_id), await store.facts(turn_id)
    except TurnNotFoundError:
        raise ConfigError(
            f"turn {root_of(turn_id)} waits for a question of its sub-agent's turn {turn_id}, which was deleted: fork"
            " it before that call"
        ) from None
    turn, at = Turn(), 0
    ends = {group.last for group in fork_places(turn_id, journal)}
    for seq, fact in journal:
        turn.apply(fact)
        if seq in ends and interrupt_ids <= turn.interrupts.keys():
            at = seq
    lineage = {"parent_turn": parent, "forked_from": turn_id, "forked_at": at, "forked_with": ()}
    turn_start = structs.replace(first_fact(turn_id, journal), **lineage)
    new = NewTurn(id=new_id, session=None, agent=row.agent, model=row.model, created_at=time.time())
    await _write_fork(store, turn_id, new, [turn_start, *(fact for _, fact in journal[1:at])])


def _asked_below(turn: Turn) -> dict[str, set[str]]:
    """Return the interrupts of its sub-agent's turn that each call waits for, or whose answers it is about to pass on.

    The interrupts have their ids in that turn.
    """
    ids_by_call: dict[str, set[str]] = {}
    for interrupt in turn.interrupts.values():
        if interrupt.forwarded:
            ids_by_call.setdefault(interrupt.call, set()).add(interrupt.id.removeprefix(f"{interrupt.call}/"))
    for call in turn.batch.values():
        last = call.answers[-1].interrupt if call.answers and call.state is CallState.READY else ""
        if call.id not in ids_by_call and last.startswith(f"{call.id}/"):
            ids_by_call[call.id] = {last.removeprefix(f"{call.id}/")}
    return ids_by_call


def fork_places(turn_id: str, journal: Sequence[tuple[int, Fact]]) -> tuple[FactGroup, ...]:
    """Return the inputs after which a turn can be forked: all but the one that ended it.

    A reply whose calls started with it is two places: the fork starts the calls itself, or finds them started.
    `journal` has (seq, fact) pairs, oldest first. Raises `ConfigError` if it is invalid.
    """
    replay_result = replay(journal)
    if replay_result.check.verdict is not Verdict.HOLDS:
        raise ConfigError(
            f"turn {turn_id} cannot be forked, because its journal is invalid: {replay_result.check.detail}:"
            f" `turnwright replay {turn_id}` checks it"
        )
    return places_of(replay_result.groups, journal)


def places_of(groups: Sequence[FactGroup], journal: Sequence[tuple[int, Fact]]) -> tuple[FactGroup, ...]:
    """Do what `fork_places` does, for the groups that a replay found in a valid journal."""
    return tuple(part for group in groups if group.state.outcome is None for part in _parts(group, journal))


def inputs_until(at: int, places: Sequence[FactGroup], journal: Sequence[tuple[int, Fact]]) -> tuple[FactGroup, ...]:
    """Return the inputs that a fork at the place `at` copies. The two places of a reply are one input."""
    inputs: list[FactGroup] = []
    for group in places:
        if group.last > at:
            break
        if isinstance(group.event, ModelRepliedInput) and isinstance(journal[group.first - 1][1], CallStarted):
            inputs[-1] = structs.replace(group, first=inputs[-1].first)
        else:
            inputs.append(group)
    return tuple(inputs)


def _parts(group: FactGroup, journal: Sequence[tuple[int, Fact]]) -> tuple[FactGroup, ...]:
    """Return the group, in two parts if it ends with the starts of the reply's calls."""
    event, first = group.event, group.last
    if not isinstance(event, ModelRepliedInput) or not isinstance(journal[first - 1][1], CallStarted):
        return (group,)
    while isinstance(journal[first - 2][1], CallStarted):
        first -= 1
    first_group = structs.replace(group, event=structs.replace(event, starts=False), last=first - 1)
    return (first_group, structs.replace(group, first=first))


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
        raise ConfigError(f"turn {turn_id} ended with fact {at}: {use}")
    raise ConfigError(f"turn {turn_id}: fact {at} and the next one come from one input: {use}")
