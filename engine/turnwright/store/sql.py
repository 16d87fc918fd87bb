"""The parts of a store that SQLite and PostgreSQL share: lists, annotations and the outbox."""

# ruff: noqa: S608 (every statement is made of constants)

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

from turnwright.errors import ConfigError, SessionNotFoundError, TurnNotFoundError, UnreadableTurnError

from .annotations import Annotation, AnnotationKind
from .outbox import NoticeCounts, NoticeRow
from .protocol import InboxItem, InboxKind, TurnRow
from .rows import Columns, requests_of, turn_row

#: A shared statement, and the values of its parameters.
Query = tuple[str, Mapping[str, object]]

#: The tables that databases share, with their indexes. The names in braces are the `prefix` of each table, the types of
#: ids, of a key that is a `number` and of a `serial` one, and the `end` of a table with another key.
SHARED_TABLES: Final = """
    CREATE TABLE {prefix}inbox (
        n {serial},
        turn_id {id} NOT NULL,
        id {id} NOT NULL,
        kind text NOT NULL,
        payload text NOT NULL,
        at double precision NOT NULL,
        UNIQUE (turn_id, id)
    );

    -- The number of a session is that of its last turn.
    CREATE TABLE {prefix}sessions (session {id} PRIMARY KEY, title text NOT NULL, number bigint NOT NULL UNIQUE);

    CREATE TABLE {prefix}annotations (
        turn_id {id} NOT NULL,
        kind text NOT NULL,
        name {id} NOT NULL,
        value double precision,
        text text NOT NULL,
        at double precision NOT NULL,
        PRIMARY KEY (turn_id, kind, name)
    ){end};
    CREATE INDEX {prefix}annotations_by_tag ON {prefix}annotations (name, turn_id) WHERE kind = 'tag';

    -- Each turn has a summary from its creation, which readers fill from its journal, without secrets.
    -- `seq` is the place in the journal up to which it is summarized. `complete`: it has ended, nothing will change.
    CREATE TABLE {prefix}summaries (
        number {number} PRIMARY KEY,
        names {id},
        root integer NOT NULL,
        agent {id},
        model {id},
        session {id},
        created_at double precision NOT NULL,
        seq bigint NOT NULL DEFAULT 0,
        complete integer NOT NULL DEFAULT 0,
        outcome text,
        reason text,
        steps bigint NOT NULL DEFAULT 0,
        tool_calls bigint NOT NULL DEFAULT 0,
        input_tokens bigint NOT NULL DEFAULT 0,
        output_tokens bigint NOT NULL DEFAULT 0,
        cached_tokens bigint NOT NULL DEFAULT 0,
        reasoning_tokens bigint NOT NULL DEFAULT 0,
        cost double precision NOT NULL DEFAULT 0,
        seconds double precision NOT NULL DEFAULT 0,
        retries bigint NOT NULL DEFAULT 0,
        pauses bigint NOT NULL DEFAULT 0,
        sub_turns bigint NOT NULL DEFAULT 0,
        fault text NOT NULL DEFAULT '',
        measures text
    );
    CREATE INDEX {prefix}summaries_to_write ON {prefix}summaries (number) WHERE complete = 0;
    CREATE TABLE {prefix}failures (
        number bigint NOT NULL,
        tool text NOT NULL,
        failed bigint NOT NULL,
        PRIMARY KEY (number, tool)
    ){end};
    CREATE TABLE {prefix}tools (
        number bigint NOT NULL,
        tool text NOT NULL,
        calls bigint NOT NULL,
        failed bigint NOT NULL,
        millis text NOT NULL,
        PRIMARY KEY (number, tool)
    ){end};

    CREATE TABLE {prefix}subscriptions (name {id} PRIMARY KEY){end};
    -- `next_at`: when the next delivery is due, or NULL if it was given up.
    CREATE TABLE {prefix}outbox (
        n {serial},
        name {id} NOT NULL,
        turn_id {id} NOT NULL,
        seq bigint NOT NULL,
        kind text NOT NULL,
        at double precision NOT NULL,
        tries integer NOT NULL DEFAULT 0,
        next_at double precision DEFAULT 0,
        error text NOT NULL DEFAULT '',
        UNIQUE (name, turn_id, seq)
    );
    CREATE INDEX {prefix}outbox_by_time ON {prefix}outbox (next_at, n) WHERE next_at IS NOT NULL;
    CREATE INDEX {prefix}outbox_by_turn ON {prefix}outbox (turn_id);
"""


class Done(NamedTuple):
    """The result of a statement: how many rows it changed, and the rows that it returned."""

    changed: int
    rows: list[Columns]


#: Runs a statement in a transaction.
Run = Callable[[str, Mapping[str, object]], Awaitable[Done]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The parts of statements that differ between databases. A shared statement has their names in braces.

    `prefix` begins the name of each table. `texts` and `numbers` are the values of a JSON list, the parameter of this
    name. `locked` ends a query that locks its rows, without those that are locked. `position`, `join` and `like` are
    functions and an operator; `like` ignores case. `bytewise` compares texts as bytes. `minute` is that of a turn's
    creation. `is_live` and `is_ended` are conditions of turns. `turns` are the columns of `rows.turn_row`, which are in
    `all_turns`, and for a table `page` with a column `n` where they are `joined`. `live` are the numbers of turns that
    have not ended, where their `state` is. `search_key` and `search_columns` are of the table of texts, `search_values`
    go into it.
    """

    prefix: str
    texts: str
    numbers: str
    locked: str
    position: str
    join: str
    like: str
    bytewise: str
    minute: str
    is_live: str
    is_ended: str
    turns: str
    all_turns: str
    joined: str
    live: str
    search_key: str
    search_columns: str
    search_values: str

    def write(self, statement: str) -> str:
        """Return a shared statement as this database has it, with parameters like `:name`."""
        return statement.format_map({field.name: getattr(self, field.name) for field in fields(self)})


class SqlTables(ABC):
    """Some tables of a store in a database. Statements are shared ones: see `Dialect`."""

    @abstractmethod
    async def _rows(self, query: Query) -> list[Columns]:
        """Return the rows of a query."""

    @abstractmethod
    def _writing(self) -> AbstractAsyncContextManager[Run]:
        """Write in the block, all of it or nothing."""


class SqlTurns(SqlTables):
    """The lists of turns and requests of a store in a database, and titles. Its methods are described at `Store`."""

    async def turns(
        self,
        *,
        session: str | None = None,
        live: bool | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[TurnRow]:
        """See `Store.turns`."""
        query = "SELECT {turns} FROM {all_turns} WHERE true"
        if live is not None:
            query += " AND {is_live}" if live else " AND {is_ended}"  # constants, for which there is an index
        query += "" if session is None else " AND session = :session"
        query += "" if before is None else " AND number < :before"
        query += " ORDER BY number DESC" + ("" if limit is None else " LIMIT :limit")
        return [
            turn_row(row) for row in await self._rows((query, {"session": session, "before": before, "limit": limit}))
        ]

    async def set_title(self, session: str, title: str) -> None:
        """See `Store.set_title`."""
        change = "UPDATE {prefix}sessions SET title = :title WHERE session = :session"
        async with self._writing() as run:
            if (await run(change, {"title": title, "session": session})).changed == 0:
                raise SessionNotFoundError(session)

    async def requests(self, *kinds: InboxKind) -> list[InboxItem]:
        """See `Store.requests`."""
        query = "SELECT turn_id, id, kind, payload FROM {prefix}inbox WHERE kind IN ({texts})"
        return requests_of(await self._rows((query, {"texts": json.dumps(kinds)})))


_ANNOTATE: Final = """
    INSERT INTO {prefix}annotations SELECT turn_id, :kind, :name, :value, :text, :at FROM {prefix}turns
    WHERE turn_id = :turn ON CONFLICT (turn_id, kind, name)
    DO UPDATE SET value = excluded.value, text = excluded.text, at = excluded.at
"""
_UNANNOTATE: Final = "DELETE FROM {prefix}annotations WHERE turn_id = :turn AND kind = :kind AND name = :name"
_ANNOTATIONS: Final = """
    SELECT turn_id, kind, name, value, text, at FROM {prefix}annotations WHERE turn_id IN ({texts})
    ORDER BY at, kind, name
"""


class SqlAnnotations(SqlTables):
    """The annotations of a store in a database. Its methods are described at `AnnotationStore`."""

    async def annotate(self, *annotations: Annotation) -> None:
        """See `AnnotationStore.annotate`."""
        async with self._writing() as run:
            for entry in annotations:
                row = {
                    "turn": entry.turn,
                    "kind": entry.kind.value,
                    "name": entry.name,
                    "value": entry.value,
                    "text": entry.text,
                    "at": entry.at,
                }
                if (await run(_ANNOTATE, row)).changed == 0:
                    raise TurnNotFoundError(entry.turn)

    async def unannotate(self, turn_id: str, kind: AnnotationKind, name: str) -> bool:
        """See `AnnotationStore.unannotate`."""
        async with self._writing() as run:
            return (await run(_UNANNOTATE, {"turn": turn_id, "kind": kind.value, "name": name})).changed > 0

    async def annotations(self, turn_ids: Sequence[str]) -> list[Annotation]:
        """See `AnnotationStore.annotations`."""
        places = {turn_id: place for place, turn_id in enumerate(dict.fromkeys(turn_ids))}
        rows = await self._rows((_ANNOTATIONS, {"texts": json.dumps([*places])}))
        rows.sort(key=lambda row: places[row[0]])
        return [_read_annotation(row) for row in rows]


def _read_annotation(row: Columns) -> Annotation:
    """Return an annotation. Raises `UnreadableTurnError`: a damaged one may have revoked an approval."""
    turn, kind, name, value, text, at = row
    try:
        return Annotation(turn, AnnotationKind(kind), name, value, text, float(at))
    except (ConfigError, ValueError, TypeError, AttributeError) as error:
        raise UnreadableTurnError(turn, f"an annotation is damaged: {error}") from error


_COLUMNS: Final = "name, turn_id, seq, kind, at, tries, next_at, error"
_DUE: Final = "FROM {prefix}outbox WHERE next_at <= :now AND name IN ({texts}) ORDER BY next_at, n LIMIT :limit"
_NOTICE: Final = "name = :name AND turn_id = :turn AND seq = :seq"


class SqlOutbox(SqlTables):
    """The outbox of a store in a database. Its methods are described at `OutboxStore`."""

    async def subscribe(self, names: Collection[str]) -> None:
        """See `OutboxStore.subscribe`."""
        async with self._writing() as run:
            for name in sorted(names):
                await run("INSERT INTO {prefix}subscriptions VALUES (:name) ON CONFLICT DO NOTHING", {"name": name})

    async def unsubscribe(self, name: str) -> bool:
        """See `OutboxStore.unsubscribe`."""
        async with self._writing() as run:
            await run("DELETE FROM {prefix}outbox WHERE name = :name", {"name": name})
            return (await run("DELETE FROM {prefix}subscriptions WHERE name = :name", {"name": name})).changed > 0

    async def lease_notices(self, names: Collection[str], now: float, until: float, limit: int) -> list[NoticeRow]:
        """See `OutboxStore.lease_notices`. If there are none, it does not write."""
        values = {"now": now, "texts": json.dumps([*names]), "limit": limit}
        if not await self._rows((f"SELECT 1 {_DUE}", values)):
            return []
        async with self._writing() as run:
            rows = (await run(f"SELECT n, {_COLUMNS} {_DUE} {{locked}}", values)).rows
            lease = {"until": until, "numbers": json.dumps([row[0] for row in rows])}
            await run("UPDATE {prefix}outbox SET next_at = :until WHERE n IN ({numbers})", lease)
        return [NoticeRow(*row[1:]) for row in rows]

    async def delivered(self, notice: NoticeRow) -> None:
        """See `OutboxStore.delivered`."""
        async with self._writing() as run:
            await run(f"DELETE FROM {{prefix}}outbox WHERE {_NOTICE}", _key(notice))

    async def failed(self, notice: NoticeRow, error: str, next_at: float | None) -> None:
        """See `OutboxStore.failed`."""
        change = "UPDATE {prefix}outbox SET tries = tries + 1, next_at = :next_at, error = :error"
        async with self._writing() as run:
            await run(f"{change} WHERE {_NOTICE}", _key(notice) | {"next_at": next_at, "error": error})

    async def notices(self) -> list[NoticeRow]:
        """See `OutboxStore.notices`."""
        rows = await self._rows((f"SELECT {_COLUMNS} FROM {{prefix}}outbox ORDER BY n", {}))
        return [NoticeRow(*row) for row in rows]

    async def count_notices(self) -> NoticeCounts:
        """See `OutboxStore.count_notices`."""
        ((total, pending),) = await self._rows(("SELECT count(*), count(next_at) FROM {prefix}outbox", {}))
        return NoticeCounts(pending, total - pending)

    async def retry_notices(self) -> int:
        """See `OutboxStore.retry_notices`."""
        change = "UPDATE {prefix}outbox SET next_at = 0, tries = 0 WHERE next_at IS NULL OR next_at <> 0"
        async with self._writing() as run:
            return (await run(change, {})).changed


def _key(notice: NoticeRow) -> dict[str, object]:
    return {"name": notice.name, "turn": notice.turn, "seq": notice.seq}
