"""The sequential model of a store: the contract of `turnwright.store.Store` for one call after the other.

It is written from docs/rules.md#journal and docs/rules.md#leases, and shares no code with any store.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, assert_never

from turnwright.store import NOBODY

from .calls import Append, Create, Delete, Die, Post, Read, Release, StoreCall, StoreResult, TakeClaim, TurnCall


class TurnState(NamedTuple):
    """One turn. `owner` is None after a release; `items` is the inbox, (id, payload) pairs in the order of posting."""

    marks: tuple[str, ...]
    epoch: int
    owner: str | None
    number: int
    session: str | None
    ended: bool = False
    items: tuple[tuple[str, str], ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.items)


class StoreState(NamedTuple):
    """All turns by id, in the order of ids, and the owners that may look dead."""

    turns: tuple[tuple[str, TurnState], ...] = ()
    dead: frozenset[str] = frozenset()

    def get(self, turn: str) -> TurnState | None:
        return dict(self.turns).get(turn)

    def with_turn(self, turn: str, state: TurnState | None) -> "StoreState":
        turns = {**dict(self.turns), turn: state}
        return self._replace(
            turns=tuple((name, turn_state) for name, turn_state in sorted(turns.items()) if turn_state is not None)
        )


Allowed = Iterator[tuple[StoreResult, StoreState]]

_NOT_FOUND: Final = StoreResult("not_found")
_LOST: Final = StoreResult("lease_lost")
_BUSY: Final = StoreResult("busy")
_ERROR: Final = StoreResult("error")


class StoreModel:
    """See `SequentialModel`. A process that looks dead may come back, so its turns may be busy or free to others."""

    initial = StoreState()

    def outcomes(self, state: StoreState, call: StoreCall) -> Allowed:
        match call:
            case Create():
                return _create(state, call)
            case Die():
                return iter([(StoreResult(), state._replace(dead=state.dead | set(call.owners)))])
            case _:
                turn = state.get(call.turn)
                return _of_missing(state, call) if turn is None else _of_turn(state, turn, call)


def _create(state: StoreState, call: Create) -> Allowed:
    if state.get(call.turn) is not None:
        yield _ERROR, state
        return
    live = [turn for _, turn in state.turns if turn.session == call.session and not turn.ended]
    if call.session is not None and live:
        yield StoreResult("session_busy"), state
        return
    epoch, owner = (1, call.owner) if call.driven else (0, None)
    turn_state = TurnState(call.marks, epoch, owner, call.number, call.session)
    yield StoreResult(epoch=epoch, seq=len(call.marks)), state.with_turn(call.turn, turn_state)


def _of_missing(state: StoreState, call: TurnCall) -> Allowed:
    match call:
        case Append():
            yield _LOST, state
        case Release():
            yield StoreResult(), state
        case Read(what="inbox"):
            yield StoreResult(), state
        case _:
            yield _NOT_FOUND, state


def _of_turn(state: StoreState, turn: TurnState, call: TurnCall) -> Allowed:
    match call:
        case TakeClaim():
            yield from _claim(state, turn, call)
        case Release():
            if turn.epoch == call.epoch:
                turn = turn._replace(owner=NOBODY if call.crashed else None)
            yield StoreResult(), state.with_turn(call.turn, turn)
        case Append():
            yield from _append(state, turn, call)
        case Post():
            stored_items, new_items = dict(turn.items), dict(call.items)
            blocking = tuple(name for name, payload in turn.items if new_items.get(name, payload) != payload)
            new = () if blocking else tuple(item for item in call.items if item[0] not in stored_items)
            yield StoreResult(items=blocking), state.with_turn(call.turn, turn._replace(items=turn.items + new))
        case Delete():
            driven_values = _may_be_driven(state, turn)
            if True in driven_values:
                yield _BUSY, state
            if False in driven_values:
                yield StoreResult(number=1), state.with_turn(call.turn, None)
        case Read():
            yield from ((result, state) for result in _read(state, turn, call))
        case _:
            assert_never(call)


def _claim(state: StoreState, turn: TurnState, call: TakeClaim) -> Allowed:
    driven_values = {False} if turn.owner in call.abandoned else _may_be_driven(state, turn)
    if True in driven_values:
        yield _BUSY, state
    if False in driven_values:
        epoch, has_crashed = turn.epoch + 1, turn.owner is not None
        result = StoreResult(epoch=epoch, seq=len(turn.marks), items=turn.ids, flag=has_crashed)
        yield result, state.with_turn(call.turn, turn._replace(epoch=epoch, owner=call.owner))


def _append(state: StoreState, turn: TurnState, call: Append) -> Allowed:
    if turn.epoch != call.epoch:
        yield _LOST, state
        return
    if call.marks and call.seq != len(turn.marks):
        yield _ERROR, state
        return
    items = tuple(item for item in turn.items if item[0] not in call.consumed)
    has_ended = call.ends or turn.ended
    turn = turn._replace(marks=turn.marks + call.marks, number=call.number, ended=has_ended, items=items)
    yield StoreResult(seq=call.seq + len(call.marks), items=turn.ids), state.with_turn(call.turn, turn)


def _read(state: StoreState, turn: TurnState, call: Read) -> Iterator[StoreResult]:
    match call.what:
        case "facts":
            yield StoreResult(items=turn.marks[call.after :])
        case "get":
            yield StoreResult(epoch=turn.epoch, number=turn.number, owner=turn.owner, flag=turn.ended)
        case "inbox":
            yield StoreResult(items=turn.ids)
        case "is_driven":
            yield from (StoreResult(flag=flag) for flag in _may_be_driven(state, turn))
        case _:
            assert_never(call.what)


def _may_be_driven(state: StoreState, turn: TurnState) -> set[bool]:
    """Return whether a living driver owns the turn: both, if its owner may look dead."""
    if not turn.owner:
        return {False}
    return {True, False} if turn.owner in state.dead else {True}
