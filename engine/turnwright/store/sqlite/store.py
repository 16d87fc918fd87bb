"""The store in one SQLite file, the default for turns that must outlive their process.

Every method runs its few statements inline, because a commit costs less than a thread switch. With many turns, appends
share commits. In WAL mode any number of processes read while one writes. With `synchronous=FULL` an acknowledged append
survives a loss of power.
"""

import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar, get_args
from urllib.parse import parse_qsl

import anyio
from anyio.lowlevel import current_token

from turnwright.errors import (
    ConfigError,
    SessionNotFoundError,
    StoreError,
    TurnBusyError,
    TurnNotFoundError,
    UnreadableTurnError,
)
from turnwright.store.agent_statistics import KnownGroups
from turnwright.store.copies import TurnColumns, append_columns
from turnwright.store.protocol import (
    NONE_ABANDONED,
    AbandonedDrivers,
    Changed,
    Claim,
    ClaimSpan,
    DueTurn,
    InboxItem,
    InboxKind,
    NewTurn,
    Status,
    TurnRow,
    addressee,
    conflicting_items,
    poll_for_changes,
)
from turnwright.store.rows import (
    Columns,
    claim_spans_of,
    facts_of,
    read_claim,
    readable,
    session_info,
    turn_row,
    waiting,
)
from turnwright.store.sessions import SessionInfo
from turnwright.store.sql import SqlAnnotations, SqlOutbox, SqlTurns
from turnwright_states.facts import Fact

from .group_commit import CommitGroup
from .opening import Durability, LockWait, is_locked, open_file, read_only_files
from .owner_lock import OwnerLock
from .schema import SCHEMA
from .statements import CLAIM_SPANS, CLAIMED, COPIES, DUE, EMPTY_SESSIONS, FACTS, FAMILY, LAST, SESSIONS, TURNS, WAITING
from .summaries import SqliteSummaries, delete_summaries
from .writes import Append, Create, ReleaseWrite, Write, write

#: An item counts once, and a report of progress replaces the one before.
_POST: Final = "INSERT OR IGNORE INTO inbox (turn_id, id, kind, payload, at) VALUES (?, ?, ?, ?, ?)"
_REPORT: Final = _POST.replace("IGNORE", "REPLACE")
#: The number of turns from which group commit is faster, as measured.
_CROWDS: Final[dict[Durability, int]] = {"full": 2, "normal": 4}

#: The remedies for SQLite's primary result codes.
_HINTS: Final = {
    sqlite3.SQLITE_BUSY: "another process has locked it: try again when that process has finished",
    sqlite3.SQLITE_CANTOPEN: "name a file in a folder that exists and can be written",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore a copy, or save what `sqlite3 FILE .recover` still reads",
    sqlite3.SQLITE_ERROR: "the file is not as this release writes it: restore a copy",
    sqlite3.SQLITE_FULL: "make room on the disk",
    sqlite3.SQLITE_IOERR: "check the disk: it may be full, or failing",
    sqlite3.SQLITE_NOTADB: "name a SQLite database, or a new file",
    sqlite3.SQLITE_READONLY: "give this user write access to the file and its folder",
}

_T = TypeVar("_T")
#: The errors of `sqlite3`, also for text that UTF-8 cannot encode and for numbers of more than 64 bits.
_ERRORS: Final = (sqlite3.Error, UnicodeEncodeError, OverflowError)


class SqliteStore(SqliteSummaries, SqlAnnotations, SqlOutbox, SqlTurns):
    """Keeps turns in the SQLite file `path`. A missing file is created, readable for this user only.

    Its methods are described at `Store`.

    `durability`: `full` survives a loss of power, `normal` survives a crash of the process. `patience` is the number of
    seconds that a call waits while another process writes. The event loop runs meanwhile. `crowd` is the number of
    concurrently driven turns from which the writes of one round of the event loop share a transaction: by default 4,
    and 2 with `full`, where a transaction waits for the disk.

    A file that cannot be written, on a read-only disk too, is read (`read_only`).

    Raises `ConfigError` if the file cannot be created, is not a database, belongs to another program, or was written by
    a newer release. For a file of an older release, every method raises `ConfigError` until `migrate` is called. Use
    the store from one thread. A forked process must open its own, because SQLite connections do not survive a fork.
    """

    shared = True
    _schema = SCHEMA

    def __init__(
        self, path: Path | str, *, durability: Durability = "full", patience: float = 10.0, crowd: int | None = None
    ) -> None:
        self.path = Path(path)
        # The real path, as SQLite sees it: processes that use different links must find the same lock files.
        self._real_path = Path(os.path.realpath(path))
        self._owner = OwnerLock(self._real_path)
        #: The epochs of the turns that this process drives.
        self._driven_epochs: dict[str, int] = {}
        self._durability: Durability = durability
        self._patience = patience
        self._groups = KnownGroups()
        self._opened = False
        with suppress(sqlite3.OperationalError):  # in an event loop, the first call waits for a new file that is locked
            self._open(0 if _in_event_loop() else patience)
        store_type = type(self)
        crowd = _CROWDS[durability] if crowd is None else crowd
        # A subclass that overrides these methods may suspend in them.
        self._crowd = crowd if store_type.append is SqliteStore.append and store_type.inbox is SqliteStore.inbox else 0
        self._group = CommitGroup(self._write, self._explain_error, patience)

    def _open(self, patience: float) -> None:
        """Open the file. Raises the error of `sqlite3` if another process has locked it and there is no patience."""
        try:
            self._db, self._place, self._read_only = open_file(
                self.path, self._real_path, self._schema, self._durability, patience
            )
        except (sqlite3.Error, OSError) as error:
            if is_locked(error) and not patience:
                raise
            raise self._unusable(error) from None
        self._cursor = self._db.cursor()
        self._opened = True

    def _follow_files(self) -> None:
        """Open a store that can only be read again, if others have changed it, or whether they have it open."""
        if read_only_files(self.path, self._real_path) != self._read_only:
            self._db.close()
            self._opened = False
            self._open(0)

    @property
    def read_only(self) -> bool:
        """Whether the file can only be read. Then every method that writes raises `StoreError`."""
        return self._opened and self._read_only is not None

    @property
    def inline(self) -> bool:
        return self._group.under_way == 0 and len(self._driven_epochs) < self._crowd

    @property
    def owner(self) -> str:
        return self._owner.name

    @property
    def _where(self) -> str:
        return f"store {self.path}"

    def _unusable(self, error: sqlite3.Error | OSError) -> ConfigError:
        return ConfigError(f"store {self.path}: {_explain(error)}")

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status, *, driven: bool = True) -> Claim:
        if not self._opened:
            with self._errors():
                await self._retry_while_locked(lambda: None)
        if driven:
            new_turn = Create(new, facts, status, self._owner.take(), self._driven_epochs)
        else:
            new_turn = Create(new, facts, status, self._owner.name, None)
        try:
            await self._make(new_turn)
        except BaseException:
            if not new_turn.waits and new_turn.error is None:
                # Canceled after the commit: the claim is lost, so the turn is left as after a crash.
                self._driven_epochs.pop(new.id, None)
            raise
        return new_turn.claim

    async def claim(self, turn_id: str, *, abandoned: AbandonedDrivers = NONE_ABANDONED) -> Claim:
        owner = self._owner.take()
        async with self._transaction():
            claim = self._claim(turn_id, owner, abandoned)
        self._driven_epochs[turn_id] = claim.epoch
        return claim

    def _claim(self, turn_id: str, owner: str, abandoned: AbandonedDrivers = NONE_ABANDONED) -> Claim:
        """Write a claim, in a transaction. If it raises, nothing was written."""
        *row, due_at = self._read_one(CLAIMED, turn_id)
        epoch, last_owner, seq = read_claim(turn_id, row, self._where)
        if last_owner and not abandoned.covers(last_owner, epoch) and self._lives(turn_id, last_owner):
            raise TurnBusyError(turn_id, last_owner)
        items = self._waiting(turn_id)  # a damaged item raises before the turn is driven
        self._db.execute("UPDATE turns SET epoch = epoch + 1, owner = ? WHERE turn_id = ?", (owner, turn_id))
        has_crashed = last_owner is not None
        return Claim(turn_id, epoch + 1, seq, crashed=has_crashed, unrecorded_owner=owner, waiting=items, due_at=due_at)

    async def release(self, claim: Claim, *, crashed: bool = False) -> None:
        try:
            await self._make(ReleaseWrite(claim, crashed=crashed))
        finally:
            # Not earlier: until the row has no owner, a claim in this process would take the turn for a crashed one.
            if self._driven_epochs.get(claim.turn) == claim.epoch:
                del self._driven_epochs[claim.turn]

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        new_facts = Append(claim, facts, status, consumed)
        await self._make(new_facts)
        return new_facts.waiting

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        async with self._reading():
            (number,) = self._read_one("SELECT number FROM turns WHERE turn_id = ?", turn_id)
            rows = self._db.execute(FACTS, {"turn": number, "after": after}).fetchall()
        return facts_of(turn_id, rows, self._where, after)

    async def claim_spans(self, turn_id: str) -> list[ClaimSpan]:
        async with self._reading():
            (number,) = self._read_one("SELECT number FROM turns WHERE turn_id = ?", turn_id)
            rows = self._db.execute(CLAIM_SPANS, {"turn": number}).fetchall()
        return claim_spans_of(turn_id, rows, self._where)

    async def columns(self, turn_id: str) -> TurnColumns:
        """See `CopyingStore.columns`."""
        async with self._reading():
            number, created_at, epoch, live, due_at = self._read_one(
                "SELECT number, created_at, epoch, live, due_at FROM turns WHERE turn_id = ?", turn_id
            )
            rows = self._db.execute(f"{COPIES} WHERE turn = ? ORDER BY seq", (number,)).fetchall()
        turn = {"created_at": created_at, "epoch": epoch, "live": live, "due_at": due_at}
        return TurnColumns(turn, append_columns(turn_id, rows))

    async def get(self, turn_id: str) -> TurnRow:
        async with self._reading():
            return readable(turn_row(self._read_one(f"{TURNS} WHERE turn_id = ?", turn_id)), self._where)

    def has(self, turn_id: str) -> bool | None:
        if not self._opened:
            return None
        try:
            self._start_reading()
            return self._db.execute("SELECT 1 FROM turns WHERE turn_id = ?", (turn_id,)).fetchone() is not None
        except _ERRORS as error:
            if is_locked(error):
                return None
            raise self._explain_error(error) from error

    async def sessions(self, *, limit: int | None = None, before: int | None = None) -> list[SessionInfo]:
        page = {"limit": -1 if limit is None else limit, "before": LAST if before is None else before}
        async with self._reading():
            rows = self._db.execute(SESSIONS, page).fetchall()
        return [session_info(row) for row in rows]

    async def delete_session(self, session: str) -> int:
        async with self._transaction():
            roots = self._db.execute("SELECT turn_id FROM turns WHERE session = ?", (session,)).fetchall()
            if not roots:
                raise SessionNotFoundError(session)
            return sum(self._delete(turn_id) for (turn_id,) in roots)

    async def is_driven(self, turn_id: str) -> bool:
        owner = (await self.get(turn_id)).owner
        return self._lives(turn_id, owner) if owner else False

    async def post(self, *items: InboxItem) -> tuple[InboxItem, ...]:
        if not items:
            return ()
        turn_id, now = addressee(items), time.time()
        async with self._transaction():
            self._read_one("SELECT 1 FROM turns WHERE turn_id = ?", turn_id)
            blocking = conflicting_items(self._waiting(turn_id), items)
            if not blocking:
                for item in items:
                    statement = _REPORT if item.kind is InboxKind.PROGRESS else _POST
                    self._db.execute(statement, (turn_id, item.id, item.kind, item.payload, now))
        return blocking

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        try:
            if self._opened and not self.read_only:
                self._schema.check(self._cursor, self.path)
                return self._waiting(turn_id)
        except _ERRORS as error:
            if not is_locked(error):
                raise self._explain_error(error) from error
        async with self._reading():
            return self._waiting(turn_id)

    async def due(
        self,
        now: float,
        *,
        limit: int | None = None,
        idle: float = 0.0,
        skipped: Collection[str] = (),
        claim: bool = False,
    ) -> list[DueTurn]:
        """See `Store.due`. Only the rows up to the last turn of the result are read."""
        if not claim:
            async with self._reading():
                return list(islice(self._select_due(now, idle, skipped), limit))
        owner = self._owner.take()
        async with self._transaction():
            due_turns = [
                self._claim_due(turn, owner) for turn in [*islice(self._select_due(now, idle, skipped), limit)]
            ]
        for turn in due_turns:
            if turn.claim is not None:
                self._driven_epochs[turn.row.id] = turn.claim.epoch
        return due_turns

    def _select_due(self, now: float, idle: float, skipped: Collection[str]) -> Iterator[DueTurn]:
        living: dict[str, bool] = {}
        rows = (map(turn_row, self._db.execute(query, {"now": now})) for query in DUE)
        for row in merge(*rows, key=lambda row: row.number):
            if row.id in skipped:
                continue
            if row.fault:
                yield DueTurn(row, error=UnreadableTurnError(row.id, row.fault, where=self._where))
                continue
            if idle and row.updated_at > now - idle:
                continue
            if row.owner and (row.owner == self._owner.name or row.owner not in living):
                living[row.owner] = self._lives(row.id, row.owner)
            if not row.owner or not living[row.owner]:
                yield DueTurn(row)

    def _claim_due(self, turn: DueTurn, owner: str) -> DueTurn:
        if turn.error is not None:
            return turn
        try:
            return DueTurn(turn.row, self._claim(turn.row.id, owner))
        except UnreadableTurnError as error:
            return DueTurn(turn.row, error=error)

    def watching(self, turn_id: str) -> AbstractAsyncContextManager[Changed]:
        return poll_for_changes(turn_id)

    async def delete(self, turn_id: str) -> int:
        async with self._transaction():
            self._read_one("SELECT 1 FROM turns WHERE turn_id = ?", turn_id)
            return self._delete(turn_id)

    async def migrate(self) -> tuple[int, int]:
        """See `Store.migrate`. Also raises `ConfigError` while a process of the old release drives a turn."""
        with self._errors():
            return await self._retry_while_locked(
                lambda: self._schema.migrate(self._db, self.path, self._refuse_if_driven)
            )

    async def aclose(self) -> None:
        self._driven_epochs.clear()
        if self._opened:
            with self._errors():
                self._db.close()
        self._owner.release()

    def _delete(self, turn_id: str) -> int:
        """Delete a turn, its sub-turns, and sessions without any other turn. Raises `TurnBusyError`."""
        for name, owner in self._list_driven(FAMILY, turn_id):
            raise TurnBusyError(name, owner)
        family = {"id": turn_id}
        self._db.execute(EMPTY_SESSIONS, family)
        numbers = f"SELECT number FROM turns WHERE {FAMILY}"  # noqa: S608 (constant)
        self._db.execute(f"DELETE FROM facts WHERE turn IN ({numbers})", family)  # noqa: S608 (constant)
        delete_summaries(self._db, numbers, family)
        for table in ("annotations", "inbox", "outbox", "turns"):
            deletion = self._db.execute(f"DELETE FROM {table} WHERE {FAMILY}", family)  # noqa: S608 (constant)
        return deletion.rowcount

    def _lives(self, turn_id: str, owner: str) -> bool:
        if owner == self._owner.name:
            return turn_id in self._driven_epochs
        return self._owner.is_held(owner)

    def _list_driven(self, where: str = "1", turn_id: str = "") -> Iterator[tuple[str, str]]:
        query = f"SELECT turn_id, owner FROM turns WHERE {where} AND owner <> ''"  # noqa: S608 (constant)
        rows = self._db.execute(query, {"id": turn_id}).fetchall()
        # In a damaged row the owner may be no text, and then no process has its name.
        return ((name, owner) for name, owner in rows if isinstance(owner, str) and self._lives(name, owner))

    def _refuse_if_driven(self) -> None:
        for name, owner in self._list_driven():
            raise ConfigError(
                f"store {self.path}: turn {name} is being driven by {owner}, a process of the older release:"
                " migrate when that process has ended"
            )

    async def _make(self, change: Write) -> None:
        """Commit one write, together with those of other turns if many are driven."""
        if self._group.under_way or len(self._driven_epochs) >= self._crowd:  # not `inline`, and a call less
            await self._group.add(change)
            return
        try:
            write(self._cursor, self.path, self._place, self._schema, (change,))
        except _ERRORS as error:
            if not is_locked(error):
                raise self._explain_error(error) from error
            # The caller relies on a write that cannot be canceled (`inline`).
            with anyio.CancelScope(shield=True):
                await self._group.add(change)
        if change.error is not None:
            raise change.error

    def _write(self, together: Sequence[Write]) -> None:
        write(self._cursor, self.path, self._place, self._schema, together)

    def _waiting(self, turn_id: str) -> list[InboxItem]:
        rows = self._cursor.execute(WAITING, (turn_id,)).fetchall()
        return waiting(turn_id, rows, self._where) if rows else []

    def _read_one(self, query: str, turn_id: str) -> Columns:
        row: Columns | None = self._db.execute(query, (turn_id,)).fetchone()
        if row is None:
            raise TurnNotFoundError(turn_id)
        return row

    # Methods check the schema version and the place of the file: another process may have migrated or deleted it. An
    # append relies on its claim, because a migration ends all claims.

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        """Write in the block, which must not suspend, because all tasks share the connection."""
        with self._errors():
            await self._retry_while_locked(self._start_transaction)
            try:
                self._schema.check(self._db, self.path)
                self._place.check()
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._db.rollback()
                raise
            self._place.check()

    def _start_transaction(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[None]:
        with self._errors():
            await self._retry_while_locked(self._start_reading)
            yield

    def _start_reading(self) -> None:
        if self.read_only:
            self._follow_files()
        self._schema.check(self._db, self.path)
        self._place.check()

    async def _retry_while_locked(self, work: Callable[[], _T]) -> _T:
        """Do the work, if need be again and again while another process has locked the file.

        It cannot be canceled meanwhile, as it could not while it waited for the disk.
        """
        wait: LockWait | None = None
        while True:
            try:
                if not self._opened:
                    self._open(0)
                return work()
            except sqlite3.OperationalError as error:
                wait = wait or LockWait(self._patience)
                with anyio.CancelScope(shield=True):
                    if not is_locked(error) or not await wait.pause():
                        raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            raise self._explain_error(error) from error

    def _explain_error(self, error: Exception) -> Exception:
        if not isinstance(error, _ERRORS):
            return error
        why = _explain(error)
        explanation = StoreError(f"store {self.path}: {why}; nothing was written, and the turn can be resumed")
        explanation.__cause__ = error
        return explanation


def _in_event_loop() -> bool:
    try:
        current_token()
    except RuntimeError:
        return False
    return True


def _explain(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror}: {_HINTS[sqlite3.SQLITE_CANTOPEN]}"
    if isinstance(error, sqlite3.ProgrammingError) and "same thread" in str(error):
        return "it is used by another thread than the one that opened it: give each thread its own engine"
    # The low byte is the primary code. Errors of the Python module itself, such as for a closed store, have no code.
    hint = _HINTS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    return f"{error}: {hint}" if hint else str(error)


def open_sqlite(address: str, *, create: bool) -> SqliteStore:
    """Open the store at `address`, `sqlite:///relative.db` or `sqlite:////absolute.db`, perhaps with options.

    Raises `ConfigError` (see `open_store`).
    """
    _, separator, location = address.partition(":///")
    path, _, options = location.partition("?")
    if not separator or path in ("", "/"):
        raise ConfigError(
            "store sqlite:...: the address names no file: write sqlite:///relative.db or sqlite:////absolute.db"
        )
    durability: Durability = "full"
    for name, value in parse_qsl(options, keep_blank_values=True):
        valid = next((valid for valid in get_args(Durability) if (name, value) == ("durability", valid)), None)
        if valid is None:
            raise ConfigError(
                f"store sqlite:///{path}: unknown option {name}={value}: use durability=full or durability=normal"
            )
        durability = valid
    if not create and not Path(path).exists():
        raise ConfigError(f"there is no store {path}: name the file that the turns were written to (--store)")
    return SqliteStore(Path(path), durability=durability)
