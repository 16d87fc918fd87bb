"""The summaries of a PostgreSQL store (`store/summaries.py`), with a full-text index of their texts."""

# ruff: noqa: S608 (every query is made of constants)

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from turnwright.store.rows import LAST_SEQ, Columns
from turnwright.store.sql import Dialect, Done, Query, Run
from turnwright.store.summaries import UNREAD, TurnFilter
from turnwright.store.summary_sql import Search, SqlSummaries, words_of

from .connections import Connections
from .statements import COLUMNS

_UNSUMMARIZED: Final = f"""
    SELECT turn.turn_id, turn.agent, turn.model, turn.session,
        CASE WHEN NOT live OR state = 'PAUSED' THEN last.seq ELSE {UNREAD} END, NOT live
    FROM turnwright_summaries summary
    JOIN turnwright_turns turn USING (number)
    CROSS JOIN LATERAL (
        SELECT {LAST_SEQ} AS seq FROM turnwright_facts WHERE turn_id = turn.turn_id ORDER BY seq DESC LIMIT 1
    ) last
    WHERE complete = 0 AND summary.seq <> last.seq AND (summary.seq = 0 OR NOT live OR state = 'PAUSED')
    ORDER BY number DESC LIMIT :limit
"""
_DIALECT: Final = Dialect(
    prefix="turnwright_",
    texts="SELECT json_array_elements_text(CAST(:texts AS json))",
    numbers="SELECT CAST(json_array_elements_text(CAST(:numbers AS json)) AS bigint)",
    locked="FOR UPDATE SKIP LOCKED",
    position="strpos",
    join="string_agg",
    like="ILIKE",
    bytewise=' COLLATE "C"',
    minute="CAST(floor(created_at / 60) AS bigint)",
    is_live="live",
    is_ended="NOT live",
    turns=COLUMNS,
    all_turns="turnwright_turns",
    joined="JOIN turnwright_turns ON number = n",
    live="SELECT number FROM turnwright_turns WHERE live",
    search_key="turn_number",
    search_columns="turn_number, prompt, answer, words",
    search_values="to_tsvector('simple', :text)",
)
# In a query of its own the words are not known when it is planned: it would read all texts for a common one, which
# takes ten times as long as the index.
_MATCHES: Final = "SELECT turn_number FROM turnwright_search WHERE words @@ (SELECT to_tsquery('simple', :words))"
_PARAMETER: Final = re.compile(r"(?<!:):([a-z_]+)")


class PostgresSummaries(SqlSummaries):
    """The summaries of a store in PostgreSQL. Its methods are described at `SummaryStore`."""

    _connections: Connections
    _outdated = _UNSUMMARIZED

    async def _rows(self, query: Query) -> list[Columns]:
        text, values = query
        return await self._connections.read(_write_statement(text), values)

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[Run]:
        async with self._connections.transaction() as connection:

            async def run(statement: str, values: Mapping[str, object]) -> Done:
                cursor = await connection.execute(_write_statement(statement), values)
                return Done(cursor.rowcount, await cursor.fetchall() if cursor.description else [])

            yield run

    async def _search(self, turn_filter: TurnFilter) -> Search:
        # In quotes a word is text, whatever characters it has. With the star it may go on.
        escaped_words = (word.replace("\\", "\\\\").replace("'", "''") for word in words_of(turn_filter.text))
        return Search(_MATCHES, " & ".join(f"'{word}':*" for word in escaped_words))


def _write_statement(statement: str) -> bytes:
    """Return a shared statement with parameters as psycopg writes them."""
    return _PARAMETER.sub(r"%(\1)s", _DIALECT.write(statement)).encode()
