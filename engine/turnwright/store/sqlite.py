"""The store in one SQLite file: the default for turns that must outlive their process.

Every method runs its few statements inline: a commit costs less than handing it to a thread. WAL mode lets any number
of processes read while one writes. `synchronous=FULL` makes an acknowledged append survive a loss of power.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

from turnwright.errors import ConfigError, Fenced, SessionBusy, StoreError, TurnBusy, UnknownTurn
from turnwright_states import BadJournal, EndReason, State
from turnwright_states.facts import Fact, parse_fact

from .owner import OwnerLock
from .posting import addressee, in_the_way
from .protocol import NOBODY, Claim, InboxItem, InboxKind, NewTurn, Status, TurnRow
from .sqlite_schema import check, immediate, migrate, prepare

Durability = Literal["full", "normal"]

_ROW: Final = (
    "turn_id, session, agent, model, created_at, updated_at, epoch, owner, state, steps, tool_calls, reason, number"
)
#: The turn :id, and those whose ids begin with it and a colon: the semicolon is the next character.
_FAMILY: Final = "(turn_id = :id OR (turn_id > :id || ':' AND turn_id < :id || ';'))"
#: A row as `sqlite3` gives it: it does not know the columns' types.
_Columns = tuple[Any, ...]

#: What to do about SQLite's primary result codes.
_HINTS: Final = {
    sqlite3.SQLITE_BUSY: "another process holds it: try again when that has finished",
    sqlite3.SQLITE_CANTOPEN: "name a file in a folder that exists and can be written",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore a copy, or save what `sqlite3 FILE .recover` still reads",
    sqlite3.SQLITE_FULL: "make room on the disk",
    sqlite3.SQLITE_IOERR: "see to the disk: it may be full, or failing",
    sqlite3.SQLITE_NOTADB: "name a SQLite database, or a file that is not there yet",
    sqlite3.SQLITE_READONLY: "let this user write the file and its folder",
}


class SqliteStore:
    """Keeps turns in the SQLite file `path`, which is made, for this user only, if it is not there.

    `durability`: `full` survives a loss of power, `normal` survives a crash of the process. `patience`: how many
    seconds a call waits while another process writes. Raises `ConfigError` when the file cannot be made, is no
    database, is another program's, or was written by a newer release. A file of an older release is left as it is:
    until `migrate` was called, every method raises `ConfigError`. Use it from one thread. A forked process opens its
    own: SQLite's connections cannot be taken along.
    """

    shared = True

    def __init__(self, path: Path | str, *, durability: Durability = "full", patience: float = 10.0) -> None:
        self.path = Path(path)
        # As SQLite sees it: two that come by different links, or change their folder, mean the same locks.
        place = Path(os.path.realpath(path))
        self._owner = OwnerLock(place)
        #: The epochs under which this process drives, by turn.
        self._driving: dict[str, int] = {}
        try:
            _make_private(place)
            self._db = sqlite3.connect(place, timeout=patience, isolation_level=None)
        except (sqlite3.Error, OSError) as error:
            raise self._unusable(error) from None
        try:
            prepare(self._db, self.path, patience)
            self._db.execute(f"PRAGMA synchronous={'NORMAL' if durability == 'normal' else 'FULL'}")
            # What was deleted is not to stay readable in the file's free pages.
            self._db.execute("PRAGMA secure_delete=ON")
        except (sqlite3.Error, ConfigError) as error:
            self._db.close()
            raise (error if isinstance(error, ConfigError) else self._unusable(error)) from None

    def _unusable(self, error: sqlite3.Error | OSError) -> ConfigError:
        return ConfigError(f"store {self.path}: {_explain(error)}")

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status) -> Claim:
        """See `Store.create`."""
        owner = self._owner.take()
        with self._transaction():
            if self._db.execute("SELECT 1 FROM turns WHERE turn_id = ?", (new.id,)).fetchone() is not None:
                raise StoreError(f"store {self.path}: turn {new.id} is there already")
            if new.session is not None:
                busy = self._db.execute(
                    "SELECT turn_id FROM turns WHERE session = ? AND live = 1", (new.session,)
                ).fetchone()
                if busy is not None:
                    raise SessionBusy(new.session, busy[0])
            self._db.execute(
                "INSERT INTO turns (turn_id, session, agent, model, created_at, updated_at, epoch, owner,"
                " state, reason, steps, tool_calls, live) VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?)",
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
                (NOBODY if crashed else None, claim.turn, claim.epoch),
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
        wanted = {"session": session, "live": live}
        where = " AND ".join(f"{column} = :{column}" for column, value in wanted.items() if value is not None)
        with self._reading():
            rows = self._db.execute(
                f"SELECT {_ROW} FROM turns WHERE {where or 1} ORDER BY number DESC LIMIT :limit",  # noqa: S608 (constant)
                {**wanted, "limit": -1 if limit is None else limit},
            ).fetchall()
        return [_row(row) for row in rows]

    async def is_driven(self, turn_id: str) -> bool:
        """See `Store.is_driven`."""
        owner = (await self.get(turn_id)).owner
        return self._lives(turn_id, owner) if owner else False

    async def post(self, *items: InboxItem) -> tuple[InboxItem, ...]:
        """See `Store.post`."""
        if not items:
            return ()
        turn_id, now = addressee(items), time.time()
        with self._transaction():
            self._one("SELECT 1 FROM turns WHERE turn_id = ?", turn_id)
            blocking = in_the_way(self._waiting(turn_id), items)
            if not blocking:
                self._db.executemany(
                    "INSERT OR IGNORE INTO inbox (turn_id, id, kind, payload, at) VALUES (?, ?, ?, ?, ?)",
                    [(turn_id, item.id, item.kind, item.payload, now) for item in items],
                )
        return blocking

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        """See `Store.inbox`."""
        with self._reading():
            return self._waiting(turn_id)

    async def delete(self, turn_id: str) -> int:
        """See `Store.delete`."""
        with self._transaction():
            self._one("SELECT 1 FROM turns WHERE turn_id = ?", turn_id)
            for name, owner in self._driven(_FAMILY, turn_id):
                raise TurnBusy(name, owner)
            for table in ("facts", "inbox", "turns"):
                deleted = self._db.execute(f"DELETE FROM {table} WHERE {_FAMILY}", {"id": turn_id})  # noqa: S608 (constant)
        return deleted.rowcount

    async def migrate(self) -> tuple[int, int]:
        """See `Store.migrate`. Raises `ConfigError` too while somebody drives: that process knows the old schema."""
        with self._errors():
            return migrate(self._db, self.path, self._refuse_if_driven)

    async def aclose(self) -> None:
        """See `Store.aclose`."""
        self._driving.clear()
        self._db.close()
        self._owner.let_go()

    def _lives(self, turn_id: str, owner: str) -> bool:
        if owner == self._owner.name:
            return turn_id in self._driving
        return self._owner.is_held(owner)

    def _driven(self, where: str = "1", turn_id: str = "") -> Iterator[tuple[str, str]]:
        query = f"SELECT turn_id, owner FROM turns WHERE {where} AND owner <> ''"  # noqa: S608 (constant)
        owned: list[tuple[str, str]] = self._db.execute(query, {"id": turn_id}).fetchall()
        return (one for one in owned if self._lives(*one))

    def _refuse_if_driven(self) -> None:
        for name, owner in self._driven():
            raise ConfigError(
                f"store {self.path}: turn {name} is being driven by {owner}, a process of the older release:"
                " migrate when that has ended"
            )

    def _insert(self, turn_id: str, seq: int, facts: Sequence[Fact]) -> None:
        now = time.time()
        rows = [(turn_id, n, fact.kind, fact.payload(), now) for n, fact in enumerate(facts, start=seq + 1)]
        self._db.executemany("INSERT INTO facts VALUES (?, ?, ?, ?, ?)", rows)

    def _waiting(self, turn_id: str) -> list[InboxItem]:
        rows = self._db.execute("SELECT id, kind, payload FROM inbox WHERE turn_id = ? ORDER BY n", (turn_id,))
        return [InboxItem(turn_id, name, InboxKind(kind), payload) for name, kind, payload in rows]

    def _one(self, query: str, turn_id: str) -> _Columns:
        row: _Columns | None = self._db.execute(query, (turn_id,)).fetchone()
        if row is None:
            raise UnknownTurn(turn_id)
        return row

    # Every method looks at the version: somebody may have migrated the file since it was opened.

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors(), immediate(self._db):
            check(self._db, self.path)
            yield

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._errors():
            check(self._db, self.path)
            yield

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeEncodeError) as error:
            why = _explain(error)
            raise StoreError(f"store {self.path}: {why}; nothing was written, and the turn can be resumed") from error


def _make_private(path: Path) -> None:
    """Make the file before SQLite does, which would let everybody read what users said. Its log takes after it."""
    with suppress(FileExistsError):
        path.touch(mode=0o600, exist_ok=False)


def _explain(error: sqlite3.Error | OSError | UnicodeEncodeError) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror}: {_HINTS[sqlite3.SQLITE_CANTOPEN]}"
    # The low byte is the primary code. What the module itself raises, for a closed store, has none.
    hint = _HINTS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    return f"{error}: {hint}" if hint else str(error)


def _columns(status: Status) -> tuple[str, str | None, int, int, int]:
    return (status.state, status.reason, status.steps, status.tool_calls, int(status.outcome is None))


def _row(row: _Columns) -> TurnRow:
    turn, session, agent, model, created_at, updated_at, epoch, owner, state, steps, calls, reason, number = row
    status = Status(State(state), steps, calls, None if reason is None else EndReason(reason))
    return TurnRow(turn, session, agent, model, created_at, updated_at, epoch, owner, status, number)
