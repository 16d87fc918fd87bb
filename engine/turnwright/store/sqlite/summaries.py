"""The summaries of a SQLite file (`store/summaries.py`), with a full-text index of their texts (FTS5)."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from turnwright.store.rows import Columns
from turnwright.store.summaries import (
    MOST_PART,
    UNREAD,
    TurnFilter,
    TurnSummary,
    Unsummarized,
)
from turnwright.store.summary_sql import (
    Dialect,
    Query,
    SqlSummaries,
    stored,
    stored_failures,
    stored_tools,
    words_of,
)
from turnwright_states import State
from turnwright_states.state import FINAL

from .rows import LAST_FACT, TURN_COLUMNS
from .tables import SqliteTables

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
_SUMMARIZE: Final = """
    UPDATE summaries SET names = lower(:names), agent = :agent, model = :model, session = :session, seq = :seq,
        complete = :complete, outcome = :outcome, reason = :reason, steps = :steps, tool_calls = :tool_calls,
        input_tokens = :input_tokens, output_tokens = :output_tokens, cached_tokens = :cached_tokens,
        reasoning_tokens = :reasoning_tokens, cost = :cost, seconds = :seconds, retries = :retries,
        pauses = :pauses, sub_turns = :sub_turns, fault = :fault,
        measures = :measures || ',' || coalesce(CAST(created_at / 60 AS integer), 0) || ',' || (:failing * number)
    WHERE number = :number
"""
_INDEXED: Final = "SELECT 1 FROM sqlite_master WHERE name = 'search' AND sql LIKE '%fts5%'"


def _dialect(matching: str) -> Dialect:
    return Dialect(
        prefix="",
        turns=TURN_COLUMNS,
        joined=f"JOIN turns ON number = n LEFT JOIN {LAST_FACT}",
        texts="search ON search.rowid",
        like="LIKE",
        joined_text="group_concat({})",
        name_condition="instr(names, lower(:part)) > 0",
        matches=matching,
        live=f"SELECT number FROM turns JOIN {LAST_FACT} WHERE live = 1",  # noqa: S608 (constant)
        listed="SELECT value FROM json_each('[' || :numbers || ']')",
        parameter=r":\1",
    )


_SEARCHED: Final = _dialect("SELECT rowid FROM search WHERE search MATCH :words")
_SCANNED: Final = _dialect("SELECT rowid FROM search WHERE text LIKE :words ESCAPE '!'")


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
        deleted = db.execute(f"DELETE FROM {table} WHERE {key} IN ({numbers})", values)  # noqa: S608 (constant)
    if deleted.rowcount > 0 and sqlite3.sqlite_version_info < _FORGETS and db.execute(_INDEXED).fetchone():
        db.execute("INSERT INTO search (search) VALUES ('optimize')")


class SqliteSummaries(SqlSummaries, SqliteTables):
    """The summaries of a store with a SQLite connection. Its methods are described at `SummaryStore`."""

    _outdated = _UNSUMMARIZED

    async def summarize(self, summaries: Sequence[tuple[Unsummarized, TurnSummary]]) -> None:
        """See `SummaryStore.summarize`."""
        async with self._transaction():
            for turn, summary in summaries:
                for (number,) in self._db.execute("SELECT number FROM turns WHERE turn_id = ?", (turn.id,)).fetchall():
                    values = stored(turn, summary) | {"number": number}
                    self._db.execute(_SUMMARIZE, values)
                    self._db.execute("DELETE FROM failures WHERE number = ?", (number,))
                    self._db.executemany(
                        "INSERT OR REPLACE INTO failures VALUES (?, ?, ?)",
                        [(number, *columns) for columns in stored_failures(summary)],
                    )
                    self._db.execute("DELETE FROM tools WHERE number = ?", (number,))
                    self._db.executemany(
                        "INSERT OR REPLACE INTO tools VALUES (?, ?, ?, ?, ?)",
                        [(number, *columns) for columns in stored_tools(summary)],
                    )
                    self._db.execute("DELETE FROM search WHERE rowid = ?", (number,))
                    self._db.execute(
                        "INSERT INTO search (rowid, prompt, answer, text) VALUES (:number, :prompt, :answer, :text)",
                        values,
                    )

    async def _rows(self, query: Query) -> list[Columns]:
        async with self._reading():
            return self._db.execute(*query).fetchall()

    async def _search(self, turn_filter: TurnFilter) -> tuple[Dialect, str]:
        words = words_of(turn_filter.text)
        if not words:
            return _SEARCHED, ""
        if not await self._rows((_INDEXED, {})):
            return _SCANNED, f"%{turn_filter.text[:MOST_PART]}%"
        return _SEARCHED, _matching(words)


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
