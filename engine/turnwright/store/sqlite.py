"""The store in one SQLite file: the default for turns that must outlive their process.

Every method runs its few statements inline: a commit costs less than handing it to a thread. WAL mode lets any number
of processes read while one writes. `synchronous=FULL` makes an acknowledged append survive a loss of power.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from turnwright.errors import ConfigError, Fenced, SessionBusy, StoreError, TurnBusy, UnknownTurn
from turnwright_states import BadJournal, EndReason, State
from turnwright_states.facts import Fact, parse_fact

from .owner import OwnerLock
from .protocol import Claim, InboxItem, InboxKind, NewTurn, Status, TurnRow

Durability = Literal["full", "normal"]

SCHEMA_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS turns (
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
CREATE INDEX IF NOT EXISTS turns_by_session ON turns (session, created_at);
CREATE UNIQUE INDEX IF NOT EXISTS one_live_turn_a_session ON turns (session) WHERE live = 1 AND session IS NOT NULL;
CREATE INDEX IF NOT EXISTS turns_by_time ON turns (created_at);
CREATE TABLE IF NOT EXISTS facts (
    turn_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (turn_id, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS inbox (
    turn_id TEXT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (turn_id, id)
) WITHOUT ROWID;
"""
_ROW: Final = "turn_id, session, agent, model, created_at, updated_at, epoch, owner, state, steps, tool_calls, reason"


#: The owner of a turn whose driver died, and that nobody drives.
_NOBODY: Final = ""
#: A row as `sqlite3` gives it: it does not know the columns' types.
_Columns = tuple[Any, ...]


class SqliteStore:
    """Keeps turns in the SQLite file `path`, which is made if it is not there.

    `durability`: `full` survives a loss of power, `normal` survives a crash of the process. Raises `ConfigError` when
    the file cannot be made, is no database, or was written by a newer release. Use it from one thread.
    """

    shared = True

    def __init__(self, path: Path | str, *, durability: Durability = "full") -> None:
        self.path = Path(path)
        self._owner = OwnerLock(self.path)
        #: The epochs under which this process drives, by turn.
        self._driving: dict[str, int] = {}
        try:
            self._db = sqlite3.connect(self.path, timeout=10.0, isolation_level=None)
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        try:
            self._prepare(durability)
        except sqlite3.Error as error:
            self._db.close()
            raise self._unusable(error) from None
        except ConfigError:
            self._db.close()
            raise

    def _prepare(self, durability: Durability) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={'FULL' if durability == 'full' else 'NORMAL'}")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise ConfigError(
                f"store {self.path}: written by a newer release (schema {version}, this one knows"
                f" {SCHEMA_VERSION}): upgrade turnwright"
            )
        if version < SCHEMA_VERSION:
            self._db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version={SCHEMA_VERSION}; COMMIT;")

    def _unusable(self, error: sqlite3.Error) -> ConfigError:
        hint = "name a file in a folder that exists and can be written"
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            hint = "another process holds it: try again when that has finished"
        return ConfigError(f"store {self.path}: {error}: {hint}")

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status) -> Claim:
        """See `Store.create`."""
        owner = self._owner.take()
        with self._transaction():
            if new.session is not None:
                busy = self._db.execute(
                    "SELECT turn_id FROM turns WHERE session = ? AND live = 1", (new.session,)
                ).fetchone()
                if busy is not None:
                    raise SessionBusy(new.session, busy[0])
            self._db.execute(
                "INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?)",
                (new.id, new.session, new.agent, new.model, new.created_at, new.created_at, owner, *_columns(status)),
            )
            self._insert(new.id, 0, facts)
        self._driving[new.id] = 1
        return Claim(turn=new.id, epoch=1, seq=len(facts))

    async def claim(self, turn_id: str) -> Claim:
        """See `Store.claim`."""
        owner = self._owner.take()
        with self._transaction():
            row = _row(self._one(f"SELECT {_ROW} FROM turns WHERE turn_id = ?", turn_id))  # noqa: S608 (constant)
            if row.owner and self._lives(turn_id, row.owner):
                raise TurnBusy(turn_id, row.owner)
            self._db.execute("UPDATE turns SET epoch = epoch + 1, owner = ? WHERE turn_id = ?", (owner, turn_id))
            (seq,) = self._db.execute("SELECT MAX(seq) FROM facts WHERE turn_id = ?", (turn_id,)).fetchone()
        self._driving[turn_id] = row.epoch + 1
        return Claim(turn=turn_id, epoch=row.epoch + 1, seq=seq or 0, crashed=row.owner is not None)

    async def release(self, claim: Claim, *, crashed: bool = False) -> None:
        """See `Store.release`."""
        if self._driving.get(claim.turn) == claim.epoch:
            del self._driving[claim.turn]
        with self._transaction():
            self._db.execute(
                "UPDATE turns SET owner = ? WHERE turn_id = ? AND epoch = ?",
                (_NOBODY if crashed else None, claim.turn, claim.epoch),
            )

    async def append(self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()) -> int:
        """See `Store.append`."""
        with self._transaction():
            changed = self._db.execute(
                "UPDATE turns SET updated_at = ?, state = ?, reason = ?, steps = ?, tool_calls = ?, live = ?"
                " WHERE turn_id = ? AND epoch = ?",
                (time.time(), *_columns(status), claim.turn, claim.epoch),
            )
            if changed.rowcount == 0:
                raise Fenced(claim.turn, claim.epoch)
            self._insert(claim.turn, claim.seq, facts)
            if consumed:
                rows = [(claim.turn, item) for item in consumed]
                self._db.executemany("DELETE FROM inbox WHERE turn_id = ? AND id = ?", rows)
        claim.seq += len(facts)
        return claim.seq

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        """See `Store.facts`."""
        with self._reading():
            self._one("SELECT 1 FROM turns WHERE turn_id = ?", turn_id)
            rows = self._db.execute(
                "SELECT seq, kind, payload FROM facts WHERE turn_id = ? AND seq > ? ORDER BY seq", (turn_id, after)
            ).fetchall()
        try:
            return [(seq, parse_fact(kind, payload, seq)) for seq, kind, payload in rows]
        except BadJournal as error:
            raise StoreError(f"store {self.path}: turn {turn_id}: {error}") from error

    async def get(self, turn_id: str) -> TurnRow:
        """See `Store.get`."""
        with self._reading():
            return _row(self._one(f"SELECT {_ROW} FROM turns WHERE turn_id = ?", turn_id))  # noqa: S608 (constant)

    async def turns(
        self, *, session: str | None = None, live: bool | None = None, limit: int | None = None
    ) -> list[TurnRow]:
        """See `Store.turns`."""
        with self._reading():
            rows = self._db.execute(
                f"SELECT {_ROW} FROM turns WHERE (:session IS NULL OR session = :session)"  # noqa: S608 (constant)
                " AND (:live IS NULL OR live = :live)"
                " ORDER BY created_at DESC, turn_id LIMIT :limit",
                {"session": session, "live": live, "limit": -1 if limit is None else limit},
            ).fetchall()
        return [_row(row) for row in rows]

    async def is_driven(self, turn_id: str) -> bool:
        """See `Store.is_driven`."""
        owner = (await self.get(turn_id)).owner
        return self._lives(turn_id, owner) if owner else False

    async def post(self, item: InboxItem) -> bool:
        """See `Store.post`."""
        with self._transaction():
            self._one("SELECT 1 FROM turns WHERE turn_id = ?", item.turn)
            made = self._db.execute(
                "INSERT OR IGNORE INTO inbox VALUES (?, ?, ?, ?, ?)",
                (item.turn, item.id, item.kind, item.payload, time.time()),
            )
        return made.rowcount == 1

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        """See `Store.inbox`."""
        with self._reading():
            rows = self._db.execute(
                "SELECT id, kind, payload FROM inbox WHERE turn_id = ? ORDER BY at, id", (turn_id,)
            ).fetchall()
        return [InboxItem(turn_id, name, InboxKind(kind), payload) for name, kind, payload in rows]

    async def aclose(self) -> None:
        """See `Store.aclose`."""
        self._driving.clear()
        self._db.close()
        self._owner.let_go()

    def _lives(self, turn_id: str, owner: str) -> bool:
        if owner == self._owner.name:
            return turn_id in self._driving
        return self._owner.is_held(owner)

    def _insert(self, turn_id: str, seq: int, facts: Sequence[Fact]) -> None:
        now = time.time()
        rows = [(turn_id, n, fact.kind, fact.payload(), now) for n, fact in enumerate(facts, start=seq + 1)]
        self._db.executemany("INSERT INTO facts VALUES (?, ?, ?, ?, ?)", rows)

    def _one(self, query: str, turn_id: str) -> _Columns:
        row: _Columns | None = self._db.execute(query, (turn_id,)).fetchone()
        if row is None:
            raise UnknownTurn(turn_id)
        return row

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._reading():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._db.rollback()
                raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"store {self.path}: {error}; nothing was written, and the turn can be resumed") from error


def _columns(status: Status) -> tuple[str, str | None, int, int, int]:
    return (status.state, status.reason, status.steps, status.tool_calls, int(status.outcome is None))


def _row(row: _Columns) -> TurnRow:
    turn, session, agent, model, created_at, updated_at, epoch, owner, state, steps, calls, reason = row
    status = Status(State(state), steps, calls, None if reason is None else EndReason(reason))
    return TurnRow(turn, session, agent, model, created_at, updated_at, epoch, owner, status)
