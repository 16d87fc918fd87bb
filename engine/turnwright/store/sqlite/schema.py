"""The schema of a SQLite store: the tables of a new file, and the steps from one version to the next."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from turnwright.errors import ConfigError
from turnwright.store.sql import SHARED_TABLES

from .summaries import create_search

#: What leads to one version: a function, or statements. A semicolon ends each statement, and is nowhere else.
Step = str | Callable[[sqlite3.Connection], None]

_TABLES: Final = (
    SHARED_TABLES.format(
        prefix="", number="integer", serial="integer PRIMARY KEY AUTOINCREMENT", id="text", end=" WITHOUT ROWID"
    )
    + """
    -- A number gives the order of turns. Times would reverse it when the clock is set back.
    -- `due_at`: from when on a driver may resume the turn. 0 unless it is paused, then the first expiry or NULL.
    CREATE TABLE turns (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        turn_id TEXT NOT NULL UNIQUE,
        session TEXT,
        agent TEXT NOT NULL,
        model TEXT NOT NULL,
        created_at REAL NOT NULL,
        due_at REAL,
        epoch INTEGER NOT NULL,
        owner TEXT,
        live INTEGER NOT NULL
    );
    CREATE INDEX turns_by_session ON turns (session);
    CREATE UNIQUE INDEX one_live_turn_a_session ON turns (session) WHERE live = 1 AND session IS NOT NULL;
    CREATE INDEX live_turns ON turns (number) WHERE live = 1;
    CREATE INDEX due_turns ON turns (due_at, number) WHERE due_at IS NOT NULL;

    -- The facts of an append are one row, with the time and the status after them: the row of the turn does not change.
    -- A commit costs the pages that it changes. Rows are in the order of writing, so many turns share pages.
    -- The first row under a claim records the driver, also for the rows that follow it.
    CREATE TABLE facts (
        turn INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        kind TEXT NOT NULL,
        payload TEXT NOT NULL,
        at REAL,
        state TEXT,
        reason TEXT,
        steps INTEGER,
        tool_calls INTEGER,
        epoch INTEGER,
        owner TEXT
    );
    CREATE UNIQUE INDEX facts_by_turn ON facts (turn, seq);

    -- This index has all that searches, totals and agents read.
    CREATE INDEX summaries_by_agent ON summaries (
        agent, model, outcome, reason, created_at, cost, measures, names,
        steps, tool_calls, input_tokens, output_tokens, seconds
    ) WHERE root = 1;
"""
)


class Schema:
    """Versions of a schema: the step at index n leads from version n to n + 1. Version 0 is a new file.

    A released step is never edited, because files that took it exist.
    """

    def __init__(self, *steps: Step) -> None:
        self._steps: Sequence[Step] = steps
        self.version: Final = len(steps)

    def check(self, db: sqlite3.Connection | sqlite3.Cursor, path: Path) -> None:
        """Raise `ConfigError` unless `path`, which `db` has open, has the last version."""
        if db.execute("PRAGMA user_version").fetchone()[0] == self.version:
            return
        version = self._version_of(db, path)
        if version < self.version:
            raise ConfigError(
                f"store {path}: schema {version}, this release needs {self.version}:"
                f" run `turnwright migrate --store sqlite:///{path}`"
            )

    def prepare(self, db: sqlite3.Connection, path: Path, patience: float) -> None:
        """Create the store if `path` is new or empty, and switch on WAL, so that many can read while one writes.

        Raises `ConfigError` for a file of a newer release or of another program, and does not change that file.
        """
        # In this order: another process may create the tables and the version between the two reads.
        has_tables = db.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
        version = self._version_of(db, path)
        if has_tables and version == 0:
            raise ConfigError(f"store {path}: this is another program's database: name another file")
        if version == 0:
            # An append writes two pages. With 4096 bytes per page it takes a sixth longer, with 1024 it takes as long.
            db.execute("PRAGMA page_size=2048")
        ends = time.monotonic() + patience
        while True:
            try:
                db.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError as error:
                # SQLite's busy timeout does not cover this statement when others open the new file too.
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= ends:
                    raise
                time.sleep(0.01)
        if version == 0:
            self.migrate(db, path)

    def migrate(
        self, db: sqlite3.Connection, path: Path, refuse_if_driven: Callable[[], None] = lambda: None
    ) -> tuple[int, int]:
        """Migrate `path` to the last version in one transaction, and return the versions before and after.

        The version is read in that transaction, so two processes may migrate at once. `refuse_if_driven` raises while
        a turn is driven; no driver can start during that check. Raises `ConfigError` for a file of a newer release.
        """
        with immediate(db):
            before = self._version_of(db, path)
            is_older = 0 < before < self.version
            if is_older:
                refuse_if_driven()
            # All steps or none: a new file must never look like the file of an older release.
            self.create_tables(db, before)
            if is_older:
                # An append does not check the version: a new epoch stops a driver of the older release that looked
                # dead. Epoch 0 stays, because it marks a turn that waits for its first driver.
                db.execute("UPDATE turns SET epoch = epoch + 1 WHERE epoch > 0")
        return before, self.version

    def create_tables(self, db: sqlite3.Connection, before: int = 0) -> None:
        """Take the steps after the version `before`."""
        for step in self._steps[before:]:
            if callable(step):
                step(db)
            else:
                _execute_all(db, step)
        db.execute(f"PRAGMA user_version={self.version}")

    def _version_of(self, db: sqlite3.Connection | sqlite3.Cursor, path: Path) -> int:
        """Return the version of `path`, 0 for a new file. Raises `ConfigError` for a newer release's."""
        version: int = db.execute("PRAGMA user_version").fetchone()[0]
        if version > self.version:
            raise ConfigError(
                f"store {path}: written by a newer release (schema {version}, this one knows {self.version}):"
                " upgrade turnwright"
            )
        return version


def create_store(db: sqlite3.Connection) -> None:
    """Create the tables of a new file."""
    _execute_all(db, _TABLES)
    create_search(db)


def _execute_all(db: sqlite3.Connection, statements: str) -> None:
    # `executescript` would commit first.
    for statement in filter(str.strip, statements.split(";")):
        db.execute(statement)


#: The schema of this release.
SCHEMA: Final = Schema(create_store)


@contextmanager
def immediate(db: sqlite3.Connection) -> Iterator[None]:
    """Open a transaction that holds the write lock from its beginning."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        db.rollback()
        raise
