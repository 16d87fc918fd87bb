"""A SQLite store whose facts have a row each, for tests that change single facts."""

import sqlite3

from turnwright.store.protocol import Status
from turnwright.store.rows import split_facts
from turnwright_states.fact_parser import parse_fact
from turnwright_states.turn import Turn


def one_row_a_fact(db: sqlite3.Connection) -> None:
    """Split the rows of all appends, as if each fact had been appended alone."""
    for (number,) in db.execute("SELECT number FROM turns").fetchall():
        turn = Turn()
        rows = db.execute(
            "SELECT seq, kind, payload, at, epoch, owner FROM facts WHERE turn = ? ORDER BY seq", (number,)
        ).fetchall()
        db.execute("DELETE FROM facts WHERE turn = ?", (number,))
        for seq, kinds, payloads, at, epoch, owner in rows:
            for place, kind, payload in split_facts([(seq, kinds, payloads)]):
                turn.apply(parse_fact(kind, payload))
                status, driver = Status.of(turn), (epoch, owner) if place == seq else (None, None)
                db.execute(
                    "INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (number, place, kind, payload, at, *_columns(status), *driver),
                )


def _columns(status: Status) -> tuple[str, str | None, int, int]:
    reason = None if status.reason is None else str(status.reason)
    return str(status.state), reason, status.steps, status.tool_calls
