"""The summaries of a SQLite file (`store/summaries.py`), with a full-text index of their texts (FTS5)."""

import sqlite3
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from turnwright.store.rows import Columns
from turnwright.store.sql import Dialect, Done, Query, Run
from turnwright.store.summaries import MOST_PART, UNREAD, TurnFilter
from turnwright.store.summary_sql import Search, SqlSummaries, words_of
from turnwright_states import State
from turnwright_states.state import FINAL

from .statements import LAST_FACT, TURN_COLUMNS

#: Copies turns into rows without names and totals, which readers write: drivers do not look for secrets.
NEW_SUMMARIES: Final = (
    "INSERT INTO summaries (number, root, created_at) SELECT number, instr(turn_id, ':') = 0, created_at FROM turns"
)
#: From this version on, FTS5 can forget deleted words at once.
_FORGETS: Final = (3, 42)
_RESTING: Final = ", ".join(f"'{state}'" for state in sorted({*FINAL, State.PAUSED}))
_UNSUMMARIZED: Final = f"""
    SELECT turns.turn_id, turns.agent, turns.model, turns.session,
        CASE WHEN facts.state IN ({_RESTING}) THEN facts.seq ELSE {UNREAD} END AS version, live = 0
    FROM summaries JOIN turns USING (number) JOIN {LAST_FACT}
    WHERE complete = 0 AND version <> summaries.seq AND (summaries.seq = 0 OR version <> {UNREAD})
    ORDER BY number DESC LIMIT :limit
"""  # noqa: S608 (constant)
_INDEXED: Final = "SELECT 1 FROM sqlite_master WHERE name = 'search' AND sql LIKE '%fts5%'"


DIALECT: Final = Dialect(
    prefix="",
    texts="SELECT value FROM json_each(:texts)",
    numbers="SELECT value FROM json_each(:numbers)",
    locked="",
    position="instr",
    join="group_concat",
    like="LIKE",
    bytewise="",
    minute="coalesce(CAST(created_at / 60 AS integer), 0)",
    is_live="live = 1",
    is_ended="live = 0",
    turns=TURN_COLUMNS,
    all_turns=f"turns LEFT JOIN {LAST_FACT}",
    joined=f"JOIN turns ON number = n LEFT JOIN {LAST_FACT}",
    live=f"SELECT number FROM turns JOIN {LAST_FACT} WHERE live = 1",  # noqa: S608 (constant)
    search_key="search.rowid",
    search_columns="rowid, prompt, answer, text",
    search_values=":text",
)
_INDEXED_WORDS: Final = "SELECT rowid FROM search WHERE search MATCH :words"
_SCANNED_TEXTS: Final = "SELECT rowid FROM search WHERE text LIKE :words ESCAPE '!'"


def create_search(db: sqlite3.Connection) -> None:
    """Create the table of texts, with an index where SQLite was built with FTS5. Otherwise a search reads all texts."""
    try:
        db.execute("CREATE VIRTUAL TABLE search USING fts5 (prompt UNINDEXED, answer UNINDEXED, text)")
    except sqlite3.OperationalError:
        db.execute("CREATE TABLE search (prompt TEXT, answer TEXT, text TEXT)")
        return
    if sqlite3.sqlite_version_info >= _FORGETS:
        db.execute("INSERT INTO search (search, rank) VALUES ('secure-delete', 1)")


def delete_summaries(db: sqlite3.Connection, numbers: str, values: Mapping[str, object]) -> None:
    """Delete the summaries of turns, whose numbers are the results of a query. No word of theirs stays in the file."""
    for table, key in (("failures", "number"), ("tools", "number"), ("summaries", "number"), ("search", "rowid")):
        deletion = db.execute(f"DELETE FROM {table} WHERE {key} IN ({numbers})", values)  # noqa: S608 (constant)
    if deletion.rowcount > 0 and sqlite3.sqlite_version_info < _FORGETS and db.execute(_INDEXED).fetchone():
        db.execute("INSERT INTO search (search) VALUES ('optimize')")


class SqliteSummaries(SqlSummaries):
    """The summaries of a store with a SQLite connection. Its methods are described at `SummaryStore`."""

    _db: sqlite3.Connection
    _outdated = _UNSUMMARIZED

    @abstractmethod
    def _reading(self) -> AbstractAsyncContextManager[None]:
        """Read in the block. Errors of SQLite become errors of the store."""

    @abstractmethod
    def _transaction(self) -> AbstractAsyncContextManager[None]:
        """Write in the block, all of it or nothing. Errors of SQLite become errors of the store."""

    async def _rows(self, query: Query) -> list[Columns]:
        text, values = query
        async with self._reading():
            return self._db.execute(DIALECT.write(text), values).fetchall()

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[Run]:
        async def run(statement: str, values: Mapping[str, object]) -> Done:
            cursor = self._db.execute(DIALECT.write(statement), values)
            return Done(cursor.rowcount, cursor.fetchall())

        async with self._transaction():
            yield run

    async def _search(self, turn_filter: TurnFilter) -> Search:
        words = words_of(turn_filter.text)
        if words and not await self._rows((_INDEXED, {})):
            return Search(_SCANNED_TEXTS, f"%{turn_filter.text[:MOST_PART]}%")
        return Search(_INDEXED_WORDS, _matching(words))


def numbers_with(db: sqlite3.Connection, text: str) -> Iterator[int]:
    """Yield the numbers of the texts with the words of a search, from the table of `create_search` alone."""
    words = words_of(text)
    if not words:
        return
    if db.execute(_INDEXED).fetchone():
        rows = db.execute("SELECT rowid FROM search WHERE search MATCH ?", (_matching(words),))
    else:
        rows = db.execute("SELECT rowid FROM search WHERE instr(lower(text), lower(?))", (text,))
    for (number,) in rows:
        yield number


def _matching(words: Iterable[str]) -> str:
    """Return the words as FTS5 looks for them. In quotes a word is text; with the star it may go on."""
    return " ".join('"{}"*'.format(word.replace('"', '""')) for word in words)
