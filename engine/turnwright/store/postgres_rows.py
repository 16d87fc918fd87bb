"""What a PostgreSQL store writes and reads: as rows and parameters of its statements, and as the store's own words."""

from collections.abc import Sequence
from typing import Any, Final

from turnwright_states import EndReason, State
from turnwright_states.facts import Fact

from .protocol import InboxItem, InboxKind, Status, TurnRow

#: What `turn_row` takes.
COLUMNS: Final = (
    "turn_id, session, agent, model, created_at, updated_at, epoch, owner, state, steps, tool_calls, reason, number"
)
#: A row as psycopg gives it: it does not know the columns' types.
Row = tuple[Any, ...]


def facts_of(facts: Sequence[Fact], seq: int, at: float) -> dict[str, object]:
    """The parameters of facts that come after place `seq`, written at the time `at`."""
    kinds, payloads = [fact.kind for fact in facts], [fact.payload() for fact in facts]
    return {"seq": seq, "at": at, "kinds": kinds, "payloads": payloads}


def status_of(status: Status) -> dict[str, object]:
    """The parameters of a status."""
    return {
        "state": status.state.value,
        "reason": None if status.reason is None else status.reason.value,
        "steps": status.steps,
        "calls": status.tool_calls,
        "live": status.outcome is None,
    }


def turn_row(row: Row) -> TurnRow:
    """The turn of a row of `COLUMNS`."""
    turn, session, agent, model, created_at, updated_at, epoch, owner, state, steps, calls, reason, number = row
    status = Status(State(state), steps, calls, None if reason is None else EndReason(reason))
    return TurnRow(turn, session, agent, model, created_at, updated_at, epoch, owner, status, number)


def inbox_items(turn_id: str, rows: Sequence[Row]) -> list[InboxItem]:
    """What waits in the inbox of a turn, of rows (id, kind, payload)."""
    return [InboxItem(turn_id, name, InboxKind(kind), payload) for name, kind, payload in rows]
