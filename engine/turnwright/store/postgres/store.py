"""The store in a PostgreSQL database, for turns that several machines may drive.

Every method is one transaction, and an append is one round trip. The server's setting `synchronous_commit` decides
whether an acknowledged append survives a crash of the server.
"""

import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from math import inf
from typing import LiteralString

from turnwright.errors import (
    ConfigError,
    LeaseLostError,
    SessionBusyError,
    SessionNotFoundError,
    StoreError,
    TurnBusyError,
    TurnExistsError,
    TurnNotFoundError,
    UnreadableTurnError,
)
from turnwright.store.agent_statistics import KnownGroups
from turnwright.store.copies import TurnColumns, append_columns
from turnwright.store.outbox import noticed_facts
from turnwright.store.protocol import (
    NOBODY,
    NONE_ABANDONED,
    AbandonedDrivers,
    Changed,
    Claim,
    ClaimSpan,
    DueTurn,
    InboxItem,
    NewTurn,
    Status,
    TurnRow,
    addressee,
    conflicting_items,
)
from turnwright.store.rows import (
    Columns,
    claim_spans_of,
    facts_of,
    read_claim,
    readable,
    readable_items,
    session_info,
    turn_row,
    waiting,
)
from turnwright.store.sessions import SessionInfo
from turnwright.store.sql import SqlAnnotations, SqlOutbox, SqlTurns
from turnwright_states.facts import Fact

from . import statements as sql
from .connections import Connections, parse_address
from .notifications import Notifications
from .owner_lock import OwnerSession, is_held
from .pipeline import Statement, run_together
from .schema import SCHEMA, VERSION, Connection
from .summaries import PostgresSummaries


class PostgresStore(PostgresSummaries, SqlAnnotations, SqlOutbox, SqlTurns):
    """Keeps turns in the PostgreSQL database at `address`, as libpq writes it: `postgresql://user:password@host/db`.

    Its methods are described at `Store`.

    The tables are found by the search path of its sessions. `migrate` creates them; until then every other method
    raises `ConfigError`. `patience` is the timeout for a connection in seconds, also while the server restarts.
    `connections` is the size of the pool. Two more connections exist: one holds the lock that shows that this process
    is alive, and one receives notifications while a caller waits in `watching`. The lock and the notifications belong
    to a session, so a pooler must keep sessions (PgBouncer: `pool_mode = session`).

    With `notify`, each write notifies all watchers (`pg_notify`, channel `turnwright`, payload: the turn's id). The
    server makes such commits one after another in each database: with 2 ms per commit, at most 450 appends a second,
    compared with 3,000 for 32 concurrent turns without. So use it for few turns whose steps must show at once; other
    watchers poll. Writers and watchers need not have the same setting.

    The store connects at its first use, which raises `StoreError` if that fails. An address that libpq cannot read
    raises `ConfigError`. No message shows the password. Use the store from one asyncio event loop. A forked process
    must open its own.
    """

    shared = True
    inline = False
    _schema = SCHEMA

    def __init__(self, address: str, *, patience: float = 10.0, connections: int = 4, notify: bool = False) -> None:
        conninfo, self.place = parse_address(address, patience)
        self._writes = sql.TELLING if notify else sql.QUIET
        self._append = Statement("turnwright_append", self._writes.append)
        self._append_noticed = Statement("turnwright_append_noticed", self._writes.append_noticed)
        self._create = Statement("turnwright_create", self._writes.create)
        self._create_noticed = Statement("turnwright_create_noticed", self._writes.create_noticed)
        self._notifications = Notifications(conninfo)
        self._connections = Connections(conninfo, self.place, self._schema, patience, connections)
        self._owner = OwnerSession(conninfo, patience)
        self._groups = KnownGroups()
        #: The claims of the turns that this process drives, by turn.
        self._driven_claims: dict[str, Claim] = {}

    @property
    def _where(self) -> str:
        return f"store {self.place}"

    @property
    def owner(self) -> str:
        """See `Store.owner`. The session that holds the lock has this name too."""
        return self._owner.name

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status, *, driven: bool = True) -> Claim:
        claim = Claim(turn=new.id, epoch=int(driven), seq=len(facts))
        turn = {"turn": new.id, "session": new.session, "agent": new.agent, "model": new.model, "title": new.title}
        row = {**turn, **sql.status_of(status), **sql.parameters_of(facts, 0, new.created_at), "epoch": claim.epoch}
        create = self._create
        if notices := noticed_facts(new.id, facts, 0):
            create = self._create_noticed
            row |= sql.parameters_of_notices(notices)
        lock = self._owner.take if driven else None
        with self._driving([claim]):
            async with self._connections.lend(lock, writes=True) as connection:
                name = self._owner.name
                row |= {"owner": name if driven else None, "unrecorded_owner": name, "version": self._schema.version}
                if driven:
                    self._driven_claims.setdefault(new.id, claim)  # a turn with this id may be driven
                while not (await run_together(connection, (create, row)))[0]:
                    await self._refuse(connection, new)
                if driven:
                    self._driven_claims[new.id] = claim
        return claim

    async def claim(self, turn_id: str, *, abandoned: AbandonedDrivers = NONE_ABANDONED) -> Claim:
        claim = Claim(turn=turn_id, epoch=0, seq=0)
        async with self._claiming([claim]) as connection:
            # Of two concurrent claims the second waits here, and then sees what the first one wrote.
            epoch, owner, _ = read_claim(turn_id, await _read_one(connection, sql.LOCKED, turn_id), self._where)
            if owner and not abandoned.covers(owner, epoch) and await self._lives(connection, turn_id, owner):
                raise TurnBusyError(turn_id, owner)
            claim.crashed = owner is not None
            await self._claim_locked(connection, [claim])
            claim.waiting = await self._read_waiting(
                connection, turn_id
            )  # a damaged item raises before the turn is driven
        return claim

    async def _claim_locked(self, connection: Connection, claims: Sequence[Claim]) -> None:
        """Claim turns whose rows are locked."""
        by_turn = {claim.turn: claim for claim in claims}
        values = {"turns": [*by_turn], "owner": self._owner.name}
        for turn_id, *row in (await run_together(connection, (sql.CLAIM_LOCKED, values)))[0]:
            claim = by_turn[turn_id]
            claim.epoch, claim.unrecorded_owner, claim.seq = read_claim(turn_id, row, self._where)

    async def release(self, claim: Claim, *, crashed: bool = False) -> None:
        try:
            async with self._connections.lend(writes=True) as connection:
                owner = NOBODY if crashed else None
                row = {"turn": claim.turn, "epoch": claim.epoch, "owner": owner}
                await connection.execute(self._writes.release, row)
        finally:
            # Not earlier: until the row has no owner, a claim in this process would take the turn for a crashed one.
            driven_claim = self._driven_claims.get(claim.turn)
            if driven_claim is not None and driven_claim.epoch == claim.epoch:
                del self._driven_claims[claim.turn]

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """See `Store.append`. If the server is lost during the write, the error says that the outcome is unknown."""
        columns = sql.parameters_of(facts, claim.seq, time.time())
        turn = {
            "turn": claim.turn,
            "epoch": claim.epoch,
            "unrecorded_owner": claim.unrecorded_owner,
            "consumed": list(consumed),
        }
        async with self._connections.lend(self._owner.keep, writes=True) as connection:
            # The second statement sees items that were posted while the first one waited for the row.
            values = {**turn, **sql.status_of(status), **columns}
            append = self._append
            if notices := noticed_facts(claim.turn, facts, claim.seq):
                append = self._append_noticed
                values |= sql.parameters_of_notices(notices)
            append_result, inbox = await run_together(connection, (append, values), (sql.INBOX, turn))
            if not append_result and await (await connection.execute(sql.HOLDS, turn)).fetchone():
                raise StoreError(f"turn {claim.turn}: fact {claim.seq + 1} does not follow the last one")
        if not append_result:
            raise LeaseLostError(claim.turn, claim.epoch)
        if facts:
            claim.seq += len(facts)
            claim.unrecorded_owner = None
        return readable_items(claim.turn, inbox)

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        rows = await self._connections.read_prepared(sql.FACTS, {"turn": turn_id, "after": after})
        if not rows:
            raise TurnNotFoundError(turn_id)
        return facts_of(turn_id, (row for row in rows if row != (None, None, None)), self._where, after)

    async def claim_spans(self, turn_id: str) -> list[ClaimSpan]:
        rows = await self._connections.read(sql.CLAIM_SPANS, (turn_id,))
        if not rows:
            raise TurnNotFoundError(turn_id)
        return claim_spans_of(turn_id, (row for row in rows if row[0] is not None), self._where)

    async def columns(self, turn_id: str) -> TurnColumns:
        """See `CopyingStore.columns`."""
        rows = await self._connections.read(sql.COPIES, (turn_id,))
        if not rows:
            raise TurnNotFoundError(turn_id)
        turn: dict[str, object] = dict(zip(sql.COPIES_OF_TURN, rows[0], strict=False))
        return TurnColumns(turn, append_columns(turn_id, (row[len(sql.COPIES_OF_TURN) :] for row in rows)))

    async def get(self, turn_id: str) -> TurnRow:
        row, _ = await self._row(turn_id)
        return row

    def has(self, turn_id: str) -> None:
        """See `Store.has`."""

    async def sessions(self, *, limit: int | None = None, before: int | None = None) -> list[SessionInfo]:
        rows = await self._connections.read(sql.SESSIONS, {"limit": limit, "before": before})
        return [session_info(row) for row in rows]

    async def delete_session(self, session: str) -> int:
        async with self._connections.transaction() as connection:
            cursor = await connection.execute(
                "SELECT turn_id FROM turnwright_turns WHERE session = %s ORDER BY turn_id FOR UPDATE", (session,)
            )
            roots = [turn_id for (turn_id,) in await cursor.fetchall()]
            if not roots:
                raise SessionNotFoundError(session)
            return sum([await self._delete(connection, turn_id) for turn_id in roots])

    async def is_driven(self, turn_id: str) -> bool:
        row, is_driven_elsewhere = await self._row(turn_id)
        return turn_id in self._driven_claims if row.owner == self._owner.name else is_driven_elsewhere

    async def _row(self, turn_id: str) -> tuple[TurnRow, bool]:
        """Return the turn, and whether another process that lives owns it."""
        values = {"turn": turn_id, "owner": self._owner.name}
        for *row, is_driven_elsewhere in await self._connections.read_prepared(sql.ONE_WITH_LIFE, values):
            return readable(turn_row(tuple(row)), self._where), bool(is_driven_elsewhere)
        raise TurnNotFoundError(turn_id)

    async def post(self, *items: InboxItem) -> tuple[InboxItem, ...]:
        if not items:
            return ()
        turn_id = addressee(items)
        async with self._connections.transaction() as connection:
            # The row lock puts concurrent posts to one turn in order.
            await _read_one(connection, f"{sql.ONE} FOR UPDATE", turn_id)
            blocking = conflicting_items(await self._read_waiting(connection, turn_id), items)
            if not blocking:
                # Once each: one statement cannot update a row that it has inserted.
                fields = ((item.id, item.kind.value, item.payload) for item in dict.fromkeys(items))
                ids, kinds, payloads = zip(*fields, strict=True)
                arrays = {"ids": list(ids), "kinds": list(kinds), "payloads": list(payloads)}
                await connection.execute(self._writes.post, {"turn": turn_id, "at": time.time(), **arrays})
        return blocking

    async def _read_waiting(self, connection: Connection, turn_id: str) -> list[InboxItem]:
        rows = await (await connection.execute(sql.WAITING, {"turn": turn_id})).fetchall()
        return waiting(turn_id, rows, self._where)

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        return waiting(turn_id, await self._connections.read_prepared(sql.INBOX, {"turn": turn_id}), self._where)

    async def due(
        self,
        now: float,
        *,
        limit: int | None = None,
        idle: float = 0.0,
        skipped: Collection[str] = (),
        claim: bool = False,
    ) -> list[DueTurn]:
        """See `Store.due`. Claims of several turns take as many round trips as that of one."""
        values: dict[str, object] = {
            "now": now,
            "limit": limit,
            "written": now - idle if idle else inf,
            "skipped": [*skipped],
            "owner": self._owner.name,
            "driven": [*self._driven_claims],
        }
        if not claim:
            return [self._make_due_turn(turn_row(row)) for row in await self._connections.read(sql.DUE, values)]
        claims: list[Claim] = []
        with self._driving(claims):
            transaction = self._connections.prepared_transaction(self._owner.take, sql.DUE_LOCKED, values)
            async with transaction as (connection, locked_rows):
                rows = [row for row in map(turn_row, locked_rows) if not self._drives(row)]
                if not rows:
                    return []
                turns = {"turns": [row.id for row in rows]}
                items, facts = await run_together(connection, (sql.WAITING_FOR, turns), (sql.FACTS_OF, turns))
                items_by_turn, facts_by_turn = _by_turn(items), _by_turn(facts)
                due_turns = [self._make_due_turn(row, items_by_turn.get(row.id, ())) for row in rows]
                claims += [turn.claim for turn in due_turns if turn.claim is not None]
                await self._claim_locked(connection, claims)
                claims_by_turn = {claim.turn: claim for claim in claims}
                for turn_id, turn_claim in claims_by_turn.items():
                    with suppress(UnreadableTurnError):  # its driver reads it again, and reports that
                        turn_claim.facts = facts_of(turn_id, facts_by_turn.get(turn_id, ()), self._where)
                # Before the commit: a task of this process that sees the owner in the row must see it alive.
                self._driven_claims |= claims_by_turn
        return due_turns

    def _drives(self, row: TurnRow) -> bool:
        """Whether this process drives the turn, which it may have begun since the query was sent."""
        return row.owner == self._owner.name and row.id in self._driven_claims

    def _make_due_turn(self, row: TurnRow, items: Sequence[Columns] | None = None) -> DueTurn:
        """Return a due turn. With the items of its inbox, it is about to be claimed."""
        try:
            readable(row, self._where)
            if items is None:
                return DueTurn(row)
            claim = Claim(row.id, 0, 0, crashed=row.owner is not None, waiting=waiting(row.id, items, self._where))
        except UnreadableTurnError as error:
            return DueTurn(row, error=error)
        return DueTurn(row, claim)

    def watching(self, turn_id: str) -> AbstractAsyncContextManager[Changed]:
        return self._notifications.watching(turn_id)

    async def delete(self, turn_id: str) -> int:
        async with self._connections.transaction() as connection:
            await _read_one(connection, sql.ONE, turn_id)
            deleted_count = await self._delete(connection, turn_id)
            if not deleted_count:  # another delete was first, and this one waited for its locks
                raise TurnNotFoundError(turn_id)
            return deleted_count

    async def migrate(self) -> tuple[int, int]:
        """See `Store.migrate`. Also raises `ConfigError` while a process of the old release drives a turn."""
        async with self._connections.lend(writes=True, migrates=True) as connection, connection.transaction():

            async def refuse_if_driven() -> None:
                cursor = await connection.execute("SELECT turn_id, owner FROM turnwright_turns WHERE owner <> ''")
                for name, owner in await cursor.fetchall():
                    if await self._lives(connection, name, owner):
                        raise ConfigError(
                            f"store {self.place}: turn {name} is being driven by {owner}, a process of the older"
                            " release: migrate when that process has ended"
                        )

            return await self._schema.migrate(connection, self.place, refuse_if_driven)

    async def aclose(self) -> None:
        self._driven_claims.clear()
        await self._connections.aclose()
        await self._notifications.aclose()
        await self._owner.release()

    async def _delete(self, connection: Connection, turn_id: str) -> int:
        """Delete a turn, its sub-turns, and sessions without any other turn. Raises `TurnBusyError`."""
        family = {"id": turn_id}
        # Every delete locks in the same order, so two deletes cannot deadlock.
        cursor = await connection.execute(sql.LOCK_FAMILY, family)
        sessions: set[str] = set()
        for name, owner, session in await cursor.fetchall():
            if owner and await self._lives(connection, name, owner):
                raise TurnBusyError(name, owner)
            sessions |= {session} - {None}
        turn_count = 0
        for statement in sql.DELETE_FAMILY:
            turn_count = (await connection.execute(statement, family)).rowcount
        if sessions:
            await connection.execute(sql.LOCK_SESSIONS, {"sessions": [*sessions]})
            await connection.execute(sql.EMPTY_SESSIONS, {"sessions": [*sessions]})
        return turn_count

    async def _lives(self, connection: Connection, turn_id: str, owner: str) -> bool:
        if owner == self._owner.name:
            return turn_id in self._driven_claims
        return await is_held(connection, owner)

    async def _refuse(self, connection: Connection, new: NewTurn) -> None:
        """Raise the reason why a turn cannot be created. Does nothing if the other turn has ended meanwhile."""
        self._schema.check(await (await connection.execute(VERSION)).fetchone(), self.place)
        cursor = await connection.execute(
            "SELECT turn_id FROM turnwright_turns WHERE turn_id = %(id)s OR (session = %(session)s AND live)"
            " ORDER BY turn_id <> %(id)s",
            {"id": new.id, "session": new.session},
        )
        for (name,) in await cursor.fetchall():
            if name == new.id or new.session is None:
                raise TurnExistsError(name, where=f"store {self.place}")
            raise SessionBusyError(new.session, name)

    @asynccontextmanager
    async def _claiming(self, claims: Sequence[Claim]) -> AsyncIterator[Connection]:
        """Open a transaction at whose end this process drives under `claims`. The block sets their epochs."""
        with self._driving(claims):
            async with self._connections.transaction(self._owner.take) as connection:
                yield connection
                # Before the commit: a task of this process that sees the owner in the row must see it alive.
                self._driven_claims |= {claim.turn: claim for claim in claims}

    @contextmanager
    def _driving(self, claims: Sequence[Claim]) -> Iterator[None]:
        """Forget the claims if the block, which writes them, raises."""
        try:
            yield
        except BaseException:
            for claim in claims:
                # Keep the entry of another claim, which may have waited for this row and got the same epoch.
                if self._driven_claims.get(claim.turn) is claim:
                    del self._driven_claims[claim.turn]
            raise


def _by_turn(rows: Iterable[Columns]) -> dict[str, list[Columns]]:
    """Return the rows by their first column, a turn's id, without it."""
    rows_by_turn: dict[str, list[Columns]] = {}
    for turn_id, *row in rows:
        rows_by_turn.setdefault(turn_id, []).append(tuple(row))
    return rows_by_turn


async def _read_one(connection: Connection, query: LiteralString, turn_id: str) -> Columns:
    row = await (await connection.execute(query, (turn_id,))).fetchone()
    if row is None:
        raise TurnNotFoundError(turn_id)
    return row


def open_postgres(address: str, *, create: bool, notify: bool = False) -> PostgresStore:  # noqa: ARG001 (it is never made)
    """Open the store at `address`, which connects at its first use. Raises `ConfigError` (see `open_store`)."""
    return PostgresStore(address, notify=notify)
