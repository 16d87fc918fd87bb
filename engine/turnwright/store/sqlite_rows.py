"""What a SQLite store reads: its longer questions, and its rows as the store's own words."""

from typing import Any, Final

from turnwright_states import EndReason, State

from .protocol import Status, TurnRow

#: What `turn_row` takes. A turn has the status that was written with its last fact.
TURNS: Final = """
    SELECT turn_id, session, agent, model, created_at, at, turns.epoch, turns.owner, state, steps, tool_calls, reason,
        number
    FROM turns JOIN facts ON turn = number AND seq = (
        SELECT MAX(seq) FROM facts WHERE turn = number AND state IS NOT NULL
    )
"""
#: The fields of a `Stretch`, of the turn numbered :turn. A stretch begins with a fact that keeps its driver, and ends
#: before the next such fact, or with the last one of all. That is the last fact of an append, so it has the time.
STRETCHES: Final = """
    SELECT seq, epoch, owner, at, (
        SELECT at FROM facts WHERE turn = :turn
        AND seq = COALESCE(next - 1, (SELECT MAX(seq) FROM facts WHERE turn = :turn))
    ) FROM (
        SELECT seq, epoch, owner, at, LEAD(seq) OVER (ORDER BY seq) AS next
        FROM facts WHERE turn = :turn AND epoch IS NOT NULL
    ) ORDER BY seq
"""
#: The turn :id, and those whose ids begin with it and a colon: the semicolon is the next character.
FAMILY: Final = "(turn_id = :id OR (turn_id > :id || ':' AND turn_id < :id || ';'))"
#: A row as `sqlite3` gives it: it does not know the columns' types.
Columns = tuple[Any, ...]


def turn_row(row: Columns) -> TurnRow:
    """The turn of a row of `TURNS`."""
    turn, session, agent, model, created_at, updated_at, epoch, owner, state, steps, calls, reason, number = row
    status = Status(State(state), steps, calls, None if reason is None else EndReason(reason))
    return TurnRow(turn, session, agent, model, created_at, updated_at, epoch, owner, status, number)
