"""The schema of a SQLite store, as migration steps. Each step is one version.

A new file takes all of them. A released step is never edited, because files that took it exist.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from turnwright.errors import ConfigError
from turnwright.store.old_words import KINDS, renamed, with_hash
from turnwright.store.sessions import title_of

from .annotations import ANNOTATIONS, TAGS
from .summaries import MEASURES, SUMMARIES, TOOLS, UNNAMED, create_search


def _rename_words(db: sqlite3.Connection) -> None:
    """Translate journals and inboxes into today's words."""
    for old, new in KINDS.items():
        after = 0
        some = "SELECT rowid, payload FROM facts WHERE kind = ? AND rowid > ? ORDER BY rowid LIMIT 500"
        while rows := db.execute(some, (old, after)).fetchall():
            changed = [(new, renamed(payload), number) for number, payload in rows if isinstance(payload, str)]
            db.executemany("UPDATE facts SET kind = ?, payload = ? WHERE rowid = ?", changed)
            after = rows[-1][0]
    ended = db.execute("SELECT rowid, turn FROM facts WHERE reason = 'synthesised'").fetchall()
    for number, turn in ended:
        journal = db.execute("SELECT kind, payload FROM facts WHERE turn = ? ORDER BY seq", (turn,)).fetchall()
        change = (with_hash(journal), number)
        db.execute("UPDATE facts SET payload = ?, reason = 'synthesized' WHERE rowid = ?", change)
    answers = db.execute("SELECT n, payload FROM inbox WHERE kind = 'answer'").fetchall()
    db.executemany("UPDATE inbox SET payload = ? WHERE n = ?", [(renamed(payload), n) for n, payload in answers])


def _title_sessions(db: sqlite3.Connection) -> None:
    """Give each session a row, with the number of its last turn and a title from its first prompt."""
    db.execute("CREATE TABLE sessions (session TEXT PRIMARY KEY, title TEXT NOT NULL, number INTEGER NOT NULL)")
    db.execute("CREATE INDEX sessions_by_number ON sessions (number)")
    named = "FROM turns WHERE session IS NOT NULL GROUP BY session"
    db.execute(f"INSERT INTO sessions SELECT session, '', max(number) {named}")
    for first, last in db.execute(f"SELECT min(number), max(number) {named}").fetchall():
        for (payload,) in db.execute("SELECT payload FROM facts WHERE turn = ? AND seq = 1", (first,)):
            db.execute("UPDATE sessions SET title = ? WHERE number = ?", (title_of(payload), last))


#: The step at index n leads from version n to n + 1. It is a function, or statements. Each statement ends with a
#: semicolon and contains no other semicolon.
_STEPS: Final[tuple[str | Callable[[sqlite3.Connection], None], ...]] = (
    """
    CREATE TABLE turns (
        turn_id TEXT PRIMARY KEY,
        session TEXT,
        agent TEXT NOT NULL,
        model TEXT NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        epoch INTEGER NOT NULL,
        owner TEXT,
        state TEXT NOT NULL,
        reason TEXT,
        steps INTEGER NOT NULL,
        tool_calls INTEGER NOT NULL,
        live INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX turns_by_session ON turns (session, created_at);
    CREATE UNIQUE INDEX one_live_turn_a_session ON turns (session) WHERE live = 1 AND session IS NOT NULL;
    CREATE INDEX turns_by_time ON turns (created_at);
    CREATE TABLE facts (
        turn_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        kind TEXT NOT NULL,
        payload TEXT NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (turn_id, seq)
    ) WITHOUT ROWID;
    CREATE TABLE inbox (
        turn_id TEXT NOT NULL,
        id TEXT NOT NULL,
        kind TEXT NOT NULL,
        payload TEXT NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (turn_id, id)
    ) WITHOUT ROWID;
    """,
    # Numbers give the order of turns and inbox items. Times would reverse it when the clock is set back.
    """
    ALTER TABLE turns RENAME TO turns_1;
    CREATE TABLE turns (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        turn_id TEXT NOT NULL UNIQUE,
        session TEXT,
        agent TEXT NOT NULL,
        model TEXT NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        epoch INTEGER NOT NULL,
        owner TEXT,
        state TEXT NOT NULL,
        reason TEXT,
        steps INTEGER NOT NULL,
        tool_calls INTEGER NOT NULL,
        live INTEGER NOT NULL
    );
    INSERT INTO turns SELECT row_number() OVER (ORDER BY created_at, turn_id), * FROM turns_1;
    DROP TABLE turns_1;
    CREATE INDEX turns_by_session ON turns (session);
    CREATE UNIQUE INDEX one_live_turn_a_session ON turns (session) WHERE live = 1 AND session IS NOT NULL;
    ALTER TABLE inbox RENAME TO inbox_1;
    CREATE TABLE inbox (
        n INTEGER PRIMARY KEY AUTOINCREMENT,
        turn_id TEXT NOT NULL,
        id TEXT NOT NULL,
        kind TEXT NOT NULL,
        payload TEXT NOT NULL,
        at REAL NOT NULL,
        UNIQUE (turn_id, id)
    );
    INSERT INTO inbox SELECT row_number() OVER (ORDER BY turn_id, at, id), * FROM inbox_1;
    DROP TABLE inbox_1;
    """,
    # The cost of a commit is the number of changed pages. Facts are stored in the order of writing, so the facts of
    # many turns share pages. The last fact of an append has the time and the status, so the turn's row does not change.
    """
    ALTER TABLE turns RENAME TO turns_2;
    CREATE TABLE turns (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        turn_id TEXT NOT NULL UNIQUE,
        session TEXT,
        agent TEXT NOT NULL,
        model TEXT NOT NULL,
        created_at REAL NOT NULL,
        epoch INTEGER NOT NULL,
        owner TEXT,
        live INTEGER NOT NULL
    );
    INSERT INTO turns
        SELECT number, turn_id, session, agent, model, created_at, epoch, owner, live FROM turns_2 ORDER BY number;
    DELETE FROM sqlite_sequence WHERE name = 'turns';
    INSERT INTO sqlite_sequence SELECT 'turns', seq FROM sqlite_sequence WHERE name = 'turns_2';
    ALTER TABLE facts RENAME TO facts_2;
    CREATE TABLE facts (
        turn INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        kind TEXT NOT NULL,
        payload TEXT NOT NULL,
        at REAL,
        state TEXT,
        reason TEXT,
        steps INTEGER,
        tool_calls INTEGER
    );
    INSERT INTO facts (turn, seq, kind, payload, at)
        SELECT number, seq, kind, payload, at FROM facts_2 JOIN turns_2 ON turns_2.turn_id = facts_2.turn_id
        ORDER BY at, number, seq;
    CREATE UNIQUE INDEX facts_by_turn ON facts (turn, seq);
    UPDATE facts SET (at, state, reason, steps, tool_calls) =
            (SELECT max(at, updated_at), state, reason, steps, tool_calls FROM turns_2 WHERE number = turn)
        WHERE seq = (SELECT max(seq) FROM facts AS every WHERE every.turn = facts.turn);
    DROP TABLE facts_2;
    DROP TABLE turns_2;
    CREATE INDEX turns_by_session ON turns (session);
    CREATE UNIQUE INDEX one_live_turn_a_session ON turns (session) WHERE live = 1 AND session IS NOT NULL;
    """,
    # The first fact under a claim records its driver, also for the facts that follow it.
    """
    ALTER TABLE facts ADD COLUMN epoch INTEGER;
    ALTER TABLE facts ADD COLUMN owner TEXT;
    """,
    _rename_words,
    _title_sessions,
    # From here on the facts of an append are one row (`store/rows.py`). Earlier rows, of one fact each, stay valid.
    "",
    # Readers fill the summaries from the journals. Each turn has a row from its creation.
    SUMMARIES,
    create_search,
    ANNOTATIONS,
    TAGS,
    # From here on the names in summaries have no secrets: readers write them.
    UNNAMED,
    TOOLS,
    MEASURES,
)

SCHEMA_VERSION: Final = len(_STEPS)


def check(db: sqlite3.Connection | sqlite3.Cursor, path: Path) -> None:
    """Raise `ConfigError` unless `path`, which `db` has open, has the schema of this release."""
    if db.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION:
        return
    version = known_version(db, path)
    if version < SCHEMA_VERSION:
        raise ConfigError(
            f"store {path}: schema {version}, this release needs {SCHEMA_VERSION}:"
            f" run `turnwright migrate --store sqlite:///{path}`"
        )


def known_version(db: sqlite3.Connection | sqlite3.Cursor, path: Path) -> int:
    """Return the schema version of `path`, 0 for a new file. Raises `ConfigError` for a newer release's."""
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise ConfigError(
            f"store {path}: written by a newer release (schema {version}, this one knows {SCHEMA_VERSION}):"
            " upgrade turnwright"
        )
    return version


def prepare(db: sqlite3.Connection, path: Path, patience: float) -> None:
    """Create the store if `path` is new or empty, and switch on WAL, so that many can read while one writes.

    Raises `ConfigError` for a file of a newer release or of another program, and does not change that file.
    """
    # In this order: another process may create the tables and the version between the two reads.
    has_tables = db.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
    version = known_version(db, path)
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
        migrate(db, path)


def migrate(db: sqlite3.Connection, path: Path, refuse_if_driven: Callable[[], None] = lambda: None) -> tuple[int, int]:
    """Migrate `path` to this release's schema in one transaction, and return the versions before and after.

    The version is read in that transaction, so two processes may migrate at once. `refuse_if_driven` raises while a
    turn is driven; no driver can start during that check. Raises `ConfigError` for a file of a newer release.
    """
    with immediate(db):
        before = known_version(db, path)
        if 0 < before < SCHEMA_VERSION:
            refuse_if_driven()
        # All steps or none: a new file must never look like the file of an older release.
        create_tables(db, before)
        if 0 < before < SCHEMA_VERSION:
            # An append does not check the version: a new epoch stops a driver of the older release that looked dead.
            # Epoch 0 stays, because it marks a turn that waits for its first driver.
            db.execute("UPDATE turns SET epoch = epoch + 1 WHERE epoch > 0")
    return before, SCHEMA_VERSION


def create_tables(db: sqlite3.Connection, before: int = 0) -> None:
    """Take the steps after the version `before`."""
    for version, step in enumerate(_STEPS[before:], start=before + 1):
        if isinstance(step, str):
            for statement in filter(str.strip, step.split(";")):
                db.execute(statement)
        else:
            step(db)
        db.execute(f"PRAGMA user_version={version}")


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
