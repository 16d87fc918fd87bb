"""The summaries of a PostgreSQL store (`store/summaries.py`), with a full-text index of their texts."""

# ruff: noqa: S608 (every query is made of constants)

from collections.abc import Sequence
from typing import Final

from turnwright.store.rows import LAST_SEQ, Columns
from turnwright.store.summaries import (
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
    ORDER BY number DESC LIMIT %(limit)s
"""
_SUMMARIZE: Final = """
    UPDATE turnwright_summaries SET names = lower(%(names)s COLLATE "C"), agent = %(agent)s, model = %(model)s,
        session = %(session)s, seq = %(seq)s, complete = %(complete)s, outcome = %(outcome)s, reason = %(reason)s,
        steps = %(steps)s, tool_calls = %(tool_calls)s, input_tokens = %(input_tokens)s,
        output_tokens = %(output_tokens)s, cached_tokens = %(cached_tokens)s,
        reasoning_tokens = %(reasoning_tokens)s, cost = %(cost)s, seconds = %(seconds)s, retries = %(retries)s,
        pauses = %(pauses)s, sub_turns = %(sub_turns)s, fault = %(fault)s,
        measures = %(measures)s || ',' || CAST(floor(created_at / 60) AS bigint) || ',' || (%(failing)s * number)
    WHERE number = (SELECT number FROM turnwright_turns WHERE turn_id = %(turn)s) RETURNING number
"""
_FAILURE: Final = (
    "INSERT INTO turnwright_failures VALUES (%s, %s, %s)"
    " ON CONFLICT (number, tool) DO UPDATE SET failed = excluded.failed"
)
_TOOL: Final = (
    "INSERT INTO turnwright_tools VALUES (%s, %s, %s, %s, %s) ON CONFLICT (number, tool) DO UPDATE SET"
    " calls = excluded.calls, failed = excluded.failed, millis = excluded.millis"
)
_INDEX: Final = """
    INSERT INTO turnwright_search VALUES (%(number)s, %(prompt)s, %(answer)s, to_tsvector('simple', %(text)s))
    ON CONFLICT (turn_number) DO UPDATE SET prompt = excluded.prompt, answer = excluded.answer, words = excluded.words
"""
_DIALECT: Final = Dialect(
    prefix="turnwright_",
    turns=COLUMNS,
    joined="JOIN turnwright_turns ON number = n",
    texts="turnwright_search ON turn_number",
    like="ILIKE",
    joined_text="string_agg(({})::text, ',')",
    name_condition='strpos(names, lower(:part COLLATE "C")) > 0',
    # In a query of its own the words are not known when it is planned: it would read all texts for a common one, which
    # takes ten times as long as the index.
    matches="SELECT turn_number FROM turnwright_search WHERE words @@ (SELECT to_tsquery('simple', :words))",
    live="SELECT number FROM turnwright_turns WHERE live",
    listed="SELECT unnest(string_to_array(:numbers, ',')::bigint[])",
    parameter=r"%(\1)s",
)


class PostgresSummaries(SqlSummaries):
    """The summaries of a store in PostgreSQL. Its methods are described at `SummaryStore`."""

    _connections: Connections
    _outdated = _UNSUMMARIZED

    async def summarize(self, summaries: Sequence[tuple[Unsummarized, TurnSummary]]) -> None:
        """See `SummaryStore.summarize`."""
        async with self._connections.transaction() as connection:
            # Two readers may write the same summaries: in one order, they do not deadlock.
            for turn, summary in sorted(summaries, key=lambda pair: pair[0].id):
                columns = stored(turn, summary)
                for (number,) in await (await connection.execute(_SUMMARIZE, columns)).fetchall():
                    await connection.execute("DELETE FROM turnwright_failures WHERE number = %s", (number,))
                    for failure_columns in stored_failures(summary):
                        await connection.execute(_FAILURE, (number, *failure_columns))
                    await connection.execute("DELETE FROM turnwright_tools WHERE number = %s", (number,))
                    for tool_columns in stored_tools(summary):
                        await connection.execute(_TOOL, (number, *tool_columns))
                    await connection.execute(_INDEX, columns | {"number": number})

    async def _rows(self, query: Query) -> list[Columns]:
        text, values = query
        return await self._connections.read(text.encode(), values)

    async def _search(self, turn_filter: TurnFilter) -> tuple[Dialect, str]:
        # In quotes a word is text, whatever characters it has. With the star it may go on.
        quoted = (word.replace("\\", "\\\\").replace("'", "''") for word in words_of(turn_filter.text))
        return _DIALECT, " & ".join(f"'{word}':*" for word in quoted)
