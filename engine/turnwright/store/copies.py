"""The check of a store's columns that copy what the facts say (`turnwright replay`).

Queries read these columns, and nothing else would notice that one was changed. A column that a store does not have is
not checked.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final, Protocol, runtime_checkable

from msgspec import Struct

from turnwright.errors import UnreadableTurnError
from turnwright_states import InvalidJournalError
from turnwright_states.facts import Fact, StepStarted
from turnwright_states.state import FINAL
from turnwright_states.turn import Turn

from .protocol import Status
from .rows import Columns, is_time

#: Seconds between the facts and the times beside them, which two readings of a clock may be apart.
_TOLERANCE: Final = 5.0
_NAMES: Final = ("at", "epoch", "state", "reason", "steps", "tool_calls")


class AppendColumns(Struct, frozen=True):
    """The columns beside the facts of an append, from fact `first` to fact `last`."""

    first: int
    last: int
    #: By name: `at`, `epoch`, and the status after these facts, as far as the store has them. None is no value.
    values: Mapping[str, object]


class TurnColumns(Struct, frozen=True):
    """The columns of a turn: those of its row, by name, and those of its appends, oldest first."""

    turn: Mapping[str, object]
    appends: Sequence[AppendColumns]


def append_columns(turn: str, rows: Iterable[Columns]) -> list[AppendColumns]:
    """Return the columns of rows (first seq, kinds, at, epoch), perhaps with state, reason, steps and tool calls.

    Raises `UnreadableTurnError` for a row whose place is damaged.
    """
    appends: list[AppendColumns] = []
    for seq, kinds, *values in rows:
        if type(seq) is not int or not isinstance(kinds, str):
            raise UnreadableTurnError(turn, f"an append has no place: its seq is {seq!r}")
        appends.append(AppendColumns(seq, seq + kinds.count(","), dict(zip(_NAMES, values, strict=False))))
    return appends


@runtime_checkable
class CopyingStore(Protocol):
    """A store whose columns copy facts."""

    async def columns(self, turn_id: str) -> TurnColumns:
        """Return the columns of a turn as they are, damaged or not. Raises `TurnNotFoundError` and `StoreError`."""
        ...


def check_columns(facts: Sequence[tuple[int, Fact]], columns: TurnColumns) -> None:
    """Compare the columns with the facts, which follow from each other. Raises `InvalidJournalError`."""
    turn, last = Turn(), len(facts)
    for append in columns.appends:
        wrote = [fact for _, fact in facts[append.first - 1 : append.last]]
        for fact in wrote:
            turn.apply(fact)
        if "state" in append.values:
            _compare(append.first, append.values, _status(turn))
        _check_time(append, wrote, columns.turn["created_at"] if append.first == 1 else None)
    status = _status(turn) | {"live": turn.state not in FINAL, "due_at": Status.of(turn).due_at}
    _compare(last, columns.turn, {name: value for name, value in status.items() if name in columns.turn})
    _check_epochs(columns.appends, columns.turn["epoch"], last)
    _check_order(facts, columns)


def _status(turn: Turn) -> dict[str, object]:
    status = Status.of(turn)
    reason = None if status.reason is None else str(status.reason)
    return {
        "state": str(status.state),
        "reason": reason,
        "steps": status.steps,
        "tool_calls": status.tool_calls,
    }


def _compare(seq: int, values: Mapping[str, object], expected_values: Mapping[str, object]) -> None:
    for name, expected_value in expected_values.items():
        value = values.get(name)
        if value != expected_value:
            raise InvalidJournalError(seq, f"its column {name} is {value!r}, and the facts lead to {expected_value!r}")


def _check_time(append: AppendColumns, wrote: Sequence[Fact], created_at: object) -> None:
    """Check a time with that in the facts. The first append has the time at which the turn was created."""
    at = append.values["at"]
    if not is_time(at):
        raise InvalidJournalError(append.first, f"its column at is {at!r}, and no time")
    if created_at is not None and at != created_at:
        raise InvalidJournalError(append.first, f"its column at is {at!r}, and the turn was created at {created_at!r}")
    for fact in wrote:
        if isinstance(fact, StepStarted) and fact.started_at and created_at is None:
            try:
                start = datetime.fromisoformat(fact.started_at).timestamp()
            except ValueError as error:
                raise InvalidJournalError(append.first, f"its step began at {fact.started_at!r}: {error}") from None
            if not start - _TOLERANCE <= at <= start + _TOLERANCE:
                raise InvalidJournalError(append.first, f"its column at is {at!r}, and its step began at {start!r}")


def _check_epochs(appends: Sequence[AppendColumns], now: object, last: int) -> None:
    """Check that each claim has a higher epoch than the one before, and that a queued turn has one append before it."""
    epoch = -1
    for append in appends:
        value = append.values["epoch"]
        if value is None:
            if epoch == 0:
                raise InvalidJournalError(append.first, "it was written under epoch 0, which is that of no driver")
            continue
        first = epoch < 0
        if type(value) is not int or value <= epoch or (first and value > 1):
            range_words = "0 or 1" if first else f"above {epoch}"
            raise InvalidJournalError(append.first, f"its column epoch is {value!r}, and must be {range_words}")
        epoch = value
    if type(now) is not int or now < epoch:
        raise InvalidJournalError(last, f"the turn's column epoch is {now!r}, and its last facts have {epoch}")


def _check_order(facts: Sequence[tuple[int, Fact]], columns: TurnColumns) -> None:
    """Check that the times of appends are as far apart as their facts at least."""
    times = [fact.elapsed for _, fact in facts]
    time_rows = [
        (append.first, append.values["at"], times[append.first - 1], times[append.last - 1])
        for append in columns.appends
    ]
    if "updated_at" in columns.turn:
        time_rows.append((len(facts), columns.turn["updated_at"], times[-1], times[-1]))
    for (_, before, _, start), (seq, at, end, _) in pairwise(time_rows):
        if not is_time(before) or not is_time(at) or at < before + (end - start) - _TOLERANCE:
            raise InvalidJournalError(
                seq, f"its time is {at!r}, and {end - start:.3f} s of work before it, the time was {before!r}"
            )
