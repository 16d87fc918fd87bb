"""A SQLite store whose facts have a row each, as older releases wrote them, for tests that change single facts."""

import sqlite3

from turnwright.store.rows import split_facts


def one_row_a_fact(db: sqlite3.Connection) -> None:
    """Split the rows of all appends. The first fact keeps the driver, the last one the status, and both the time."""
    for rowid, turn, seq, kind, payload, at, *status, epoch, owner in db.execute(
        "SELECT rowid, * FROM facts"
    ).fetchall():
        facts = [*split_facts([(seq, kind, payload)])]
        db.execute("DELETE FROM facts WHERE rowid = ?", (rowid,))
        for fact in facts:
            ends, begins = fact is facts[-1], fact is facts[0]
            columns = (at if ends or begins else None, *(status if ends else [None] * len(status)))
            driver = (epoch, owner) if begins else (None, None)
            db.execute("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (turn, *fact, *columns, *driver))
