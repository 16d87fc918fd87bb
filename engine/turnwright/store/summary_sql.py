"""The queries of summaries, which SQLite and PostgreSQL share, and the rows that they return."""

# ruff: noqa: S608 (every query is made of constants)

import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from turnwright._base.words import cut_utf8
from turnwright_states import Outcome, Usage

from .agent_statistics import KnownGroups
from .rows import Columns, count_of, integers, number_of, outcome_of, turn_row
from .sql import Query, SqlTables
from .summaries import (
    MOST,
    MOST_PART,
    MOST_WORDS,
    PAUSED,
    UNFINISHED,
    UNREAD,
    AgentStatistics,
    Grouping,
    Order,
    SummarizedTurn,
    ToolCalls,
    TurnFilter,
    TurnNames,
    TurnSummary,
    TurnTotals,
    Unsummarized,
)

#: The values by which lists are sorted.
_ORDERS: Final = {
    Order.NEWEST: "number",
    Order.STEPS: "steps",
    Order.CALLS: "tool_calls",
    Order.SECONDS: "seconds",
    Order.TOKENS: "input_tokens + output_tokens",
    Order.COST: "cost",
}
#: The totals of a page's turns, under names that their rows do not have.
_TOTALS: Final = (
    "number AS summarized, seq AS version, input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost, seconds,"
    " fault, sub_turns, retries, pauses"
)
#: The conditions of a filter's fields.
_COMPARED: Final = {
    "agent": "agent {like} :agent ESCAPE '!'",
    "model": "model {like} :model ESCAPE '!'",
    # The index of the other columns does not have it. In a query of its own SQLite reads the rows in their order.
    "session": "number IN (SELECT number FROM {prefix}summaries WHERE session = :session)",
    "outcome": "outcome = :outcome",
    "reason": "reason = :reason",
    "since": "created_at >= :since",
    "until": "created_at < :until",
}
#: The condition of the turns below one: the semicolon is the character after the colon.
_BELOW: Final = "turn_id > {0} || ':' AND turn_id < {0} || ';'"
#: The condition of turns whose names have the `:part`.
_NAMED: Final = "{position}(names, lower(:part{bytewise})) > 0"
_WORD: Final = re.compile(r"\w")
#: The most bytes of an id or a session that the `text` of a filter may be a part of, and of an agent or a model. A row
#: of PostgreSQL's index has them, the last two twice, and at most 2,700 bytes.
_COMPARED_BYTES: Final = 800
_NAME_BYTES: Final = 200
#: Between the names of a turn, and what replaces it in a name and in a part of one.
_BETWEEN, _INSTEAD = "\x1f", "\x1e"


#: Writes a summary into the row that its turn has from its creation.
_SUMMARIZE: Final = """
    UPDATE {prefix}summaries SET names = lower(:names{bytewise}), agent = :agent, model = :model, session = :session,
        seq = :seq, complete = :complete, outcome = :outcome, reason = :reason, steps = :steps,
        tool_calls = :tool_calls, input_tokens = :input_tokens, output_tokens = :output_tokens,
        cached_tokens = :cached_tokens, reasoning_tokens = :reasoning_tokens, cost = :cost, seconds = :seconds,
        retries = :retries, pauses = :pauses, sub_turns = :sub_turns, fault = :fault,
        measures = :measures || ',' || {minute} || ',' || (:failing * number)
    WHERE number = :number
"""
_FAILURE: Final = """
    INSERT INTO {prefix}failures VALUES (:number, :tool, :failed)
    ON CONFLICT (number, tool) DO UPDATE SET failed = excluded.failed
"""
_TOOL: Final = """
    INSERT INTO {prefix}tools VALUES (:number, :tool, :calls, :failed, :millis) ON CONFLICT (number, tool)
    DO UPDATE SET calls = excluded.calls, failed = excluded.failed, millis = excluded.millis
"""
_INDEX: Final = "INSERT INTO {prefix}search ({search_columns}) VALUES (:number, :prompt, :answer, {search_values})"
#: The failed calls of turns.
_FAILURES: Final = "SELECT number, tool, failed FROM {prefix}failures WHERE number IN ({numbers})"


class Search(NamedTuple):
    """The search for the text of a filter: the numbers of the turns that have the `:words`. No words: no search."""

    matches: str
    words: str


def _where(turn_filter: TurnFilter, search: Search, *, ended: bool = False) -> Query:
    """Return the condition of a filter."""
    clauses, values = ["root = 1"], dict[str, object]()
    if turn_filter.family:
        below = f"SELECT number FROM {{prefix}}turns WHERE {_BELOW.format(':family')}"
        clauses, values["family"] = ["root = 0", f"number IN ({below})"], turn_filter.family
    if turn_filter.outcome in (PAUSED, UNFINISHED):
        clauses.append(f"number IN ({{live}} AND state {'=' if turn_filter.outcome == PAUSED else '<>'} 'PAUSED')")
    if turn_filter.tag:
        tags = "{prefix}annotations JOIN {prefix}turns USING (turn_id)"
        clauses.append(f"number IN (SELECT number FROM {tags} WHERE kind = 'tag' AND name = :tag)")
        values["tag"] = turn_filter.tag
    if ended:
        clauses.append("outcome IS NOT NULL")
    for name, comparison in _COMPARED.items():
        value = getattr(turn_filter, name)
        if value not in (None, "", PAUSED, UNFINISHED):
            clauses.append(comparison)
            values[name] = _part(value) if "{like}" in comparison else value
    if turn_filter.text:
        clauses.append(f"(number IN ({search.matches}) OR {_NAMED})" if search.words else _NAMED)
        values |= {"part": turn_filter.text[:MOST_PART].replace(_BETWEEN, _INSTEAD)} | (
            {"words": search.words} if search.words else {}
        )
    return " AND ".join(clauses), values


def _find(
    turn_filter: TurnFilter,
    search: Search,
    *,
    order: Order,
    ascending: bool,
    limit: int,
    after: int | None,
    texts: bool,
) -> Query:
    """Return the query of a list."""
    condition, values = _where(turn_filter, search)
    way, beyond, value = "ASC" if ascending else "DESC", ">" if ascending else "<", _ORDERS[order]
    if after is not None:
        place = f"({value}, number) {beyond} (SELECT {value}, number FROM {{prefix}}summaries WHERE number = :after)"
        condition += f" AND {f'number {beyond} :after' if order is Order.NEWEST else place}"
        values = {**values, "after": after}
    search_join = "LEFT JOIN {prefix}search ON {search_key} = n" if texts else ""
    text = f"""
        SELECT {{turns}}, version, input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost, seconds,
            fault, sub_turns, retries, pauses, {"prompt, answer" if texts else "'', ''"}
        FROM (
            SELECT number AS n, {value} AS place FROM {{prefix}}summaries WHERE {condition}
            ORDER BY place {way}, number {way} LIMIT :limit
        ) AS page {{joined}} JOIN (SELECT {_TOTALS} FROM {{prefix}}summaries) AS totals ON summarized = n
        {search_join} ORDER BY place {way}, n {way}
    """
    return text, {**values, "limit": limit}


def _sum_up(turn_filter: TurnFilter, search: Search) -> Query:
    """Return the query of `_turn_totals`. In its groups SQLite's index has the turns, so it sorts none."""
    condition, values = _where(turn_filter, search)
    text = f"""
        SELECT outcome, count(*), sum(steps), sum(tool_calls), sum(input_tokens + output_tokens), sum(cost),
            sum(seconds)
        FROM {{prefix}}summaries WHERE {condition} GROUP BY agent, model, outcome
    """
    return text, values


def _group(turn_filter: TurnFilter, search: Search) -> Query:
    """Return the query of `AgentGroups`. An index has all of it, in this order."""
    condition, values = _where(turn_filter, search, ended=True)
    groups = "agent, model, outcome, reason"
    text = f"""
        SELECT {groups}, sum(cost), {{join}}(measures, ',') FROM {{prefix}}summaries WHERE {condition} GROUP BY {groups}
    """
    return text, values


def _find_tools(turn_filter: TurnFilter, search: Search, limit: int) -> Query:
    """Return the query of `_tool_calls`. The turns of sub-agents are found by the beginnings of their ids."""
    # In a join PostgreSQL would read the tools of all turns.
    condition, values = _where(turn_filter, search)
    text = f"""
        WITH page AS (
            SELECT number AS n, sub_turns FROM {{prefix}}summaries WHERE {condition}
            ORDER BY number DESC LIMIT :limit
        ), callers AS (
            SELECT (SELECT turn_id FROM {{prefix}}turns WHERE number = n) AS caller FROM page WHERE sub_turns > 0
        ), counted AS (
            SELECT n FROM page UNION ALL
            SELECT number FROM callers JOIN {{prefix}}turns ON {_BELOW.format("caller")}
        )
        SELECT tool, sum(calls), sum(failed), {{join}}(millis, ',') FROM {{prefix}}tools
        WHERE number IN (SELECT n FROM counted) GROUP BY tool
    """
    return text, {**values, "limit": limit}


class SqlSummaries(SqlTables):
    """The summaries of a store in a database. Its methods are described at `SummaryStore`."""

    _groups: KnownGroups
    #: The query of `_unsummarized_of`.
    _outdated: str

    @abstractmethod
    async def _search(self, turn_filter: TurnFilter) -> Search:
        """Return the search for the text of a filter."""

    async def unsummarized(self, *, limit: int) -> list[Unsummarized]:
        """See `SummaryStore.unsummarized`."""
        return _unsummarized_of(await self._rows((self._outdated, {"limit": limit})))

    async def summarize(self, summaries: Sequence[tuple[Unsummarized, TurnSummary]]) -> None:
        """See `SummaryStore.summarize`."""
        async with self._writing() as run:
            # Two readers may write the same summaries: in one order, they do not deadlock.
            for turn, summary in sorted(summaries, key=lambda pair: pair[0].id):
                row = summary_row(turn, summary)
                for (number,) in (await run("SELECT number FROM {prefix}turns WHERE turn_id = :turn", row)).rows:
                    key = {"number": number}
                    if (await run(_SUMMARIZE, row | key)).changed == 0:
                        continue  # it has just been deleted
                    await run("DELETE FROM {prefix}failures WHERE number = :number", key)
                    for failures in failure_rows(summary):
                        await run(_FAILURE, failures | key)
                    await run("DELETE FROM {prefix}tools WHERE number = :number", key)
                    for tools in tool_rows(summary):
                        await run(_TOOL, tools | key)
                    await run("DELETE FROM {prefix}search WHERE {search_key} = :number", key)
                    await run(_INDEX, row | key)

    async def find(
        self,
        turn_filter: TurnFilter,
        *,
        order: Order = Order.NEWEST,
        ascending: bool = False,
        limit: int,
        after: int | None = None,
        texts: bool = True,
    ) -> list[SummarizedTurn]:
        """See `SummaryStore.find`."""
        search = await self._search(turn_filter)
        query = _find(turn_filter, search, order=order, ascending=ascending, limit=limit, after=after, texts=texts)
        return [_summarized_turn(row) for row in await self._rows(query)]

    async def totals(self, turn_filter: TurnFilter) -> TurnTotals:
        """See `SummaryStore.totals`."""
        return _turn_totals(await self._rows(_sum_up(turn_filter, await self._search(turn_filter))))

    async def agents(self, turn_filter: TurnFilter, *, by: Grouping = Grouping.BOTH) -> AgentStatistics:
        """See `SummaryStore.agents`."""
        groups = self._groups.of(await self._rows(_group(turn_filter, await self._search(turn_filter))), by)
        return groups.statistics(await self._rows((_FAILURES, {"numbers": json.dumps(groups.failing)})))

    async def tools(self, turn_filter: TurnFilter, *, limit: int) -> Mapping[str, ToolCalls]:
        """See `SummaryStore.tools`."""
        return _tool_calls(await self._rows(_find_tools(turn_filter, await self._search(turn_filter), limit)))


def summary_row(turn: Unsummarized, summary: TurnSummary) -> dict[str, object]:
    """Return the columns of a summary."""
    usage, names = summary.usage, summary.names
    agent, model = (_cut_to_bytes(_text(name), _NAME_BYTES) for name in (names.agent, names.model))
    session = None if names.session is None else _text(names.session)
    columns = (
        _cut_to_bytes(_text(names.id), _COMPARED_BYTES),
        agent,
        model,
        _cut_to_bytes(session or "", _COMPARED_BYTES),
    )
    return {
        "turn": turn.id,
        "names": _BETWEEN.join(name.replace(_BETWEEN, _INSTEAD) for name in columns),
        "agent": agent,
        "model": model,
        "session": session,
        "seq": turn.version,
        "complete": int(turn.ended),
        "outcome": None if summary.outcome is None else str(summary.outcome),
        "reason": None if summary.reason is None else str(summary.reason),
        "steps": summary.steps,
        "tool_calls": summary.tool_calls,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cost": usage.cost,
        "seconds": summary.seconds,
        # Text, because lists of a hundred thousand are read fast. Costs in millionths, times in milliseconds.
        "measures": f"{summary.steps},{usage.tokens},{round(usage.cost * 1e6)},{round(summary.seconds * 1e3)}",
        "failing": int(bool(summary.failures)),
        "retries": min(summary.retries, MOST),
        "pauses": min(summary.pauses, MOST),
        "sub_turns": min(summary.sub_turns, MOST),
        "fault": _text(summary.fault),
        "prompt": _text(summary.prompt),
        "answer": _text(summary.answer),
        "text": _text(summary.text),
    }


def failure_rows(summary: TurnSummary) -> list[dict[str, object]]:
    """Return the columns of the tools with failed calls."""
    return [{"tool": _text(tool), "failed": count} for tool, count in summary.failures.items()]


def tool_rows(summary: TurnSummary) -> list[dict[str, object]]:
    """Return the columns of the tools of a summary, with the times of calls in milliseconds."""
    return [
        {
            "tool": _text(tool),
            "calls": calls.calls,
            "failed": calls.failed,
            "millis": ",".join(str(round(value * 1e3)) for value in calls.seconds),
        }
        for tool, calls in summary.tools.items()
    ]


def _tool_calls(rows: Iterable[Columns]) -> dict[str, ToolCalls]:
    """Return the calls of tools from rows like `tool_rows`."""
    return {
        str(tool): ToolCalls(count_of(calls), count_of(failed_count), [value / 1e3 for value in integers(millis)])
        for tool, calls, failed_count, millis in rows
    }


def words_of(text: str) -> list[str]:
    """Return the words of a search that have a letter or a digit, the first `MOST_WORDS`."""
    return list(islice(filter(_WORD.search, text.split()), MOST_WORDS))


def _unsummarized_of(rows: Iterable[Columns]) -> list[Unsummarized]:
    """Return turns from rows (id, agent, model, session, version, whether it has ended). Damaged names are empty."""
    return [
        Unsummarized(
            turn, version, bool(ended_at), TurnNames(turn, _name(agent) or "", _name(model) or "", _name(session))
        )
        for turn, agent, model, session, version, ended_at in rows
        if isinstance(turn, str)
    ]


def _turn_totals(rows: Iterable[Columns]) -> TurnTotals:
    """Return the sums from rows of an outcome and its sums."""
    outcomes: dict[Outcome, int] = {}
    sums = [0.0] * 6
    for outcome, *values in rows:
        if (ending := outcome_of(outcome)) is not None:
            outcomes[ending] = outcomes.get(ending, 0) + count_of(values[0])
        sums = [whole + number_of(value) for whole, value in zip(sums, values, strict=True)]
    turns, steps, calls, tokens, cost, seconds = sums
    return TurnTotals(int(turns), outcomes, int(steps), int(calls), int(tokens), cost, seconds)


def _summarized_turn(row: Columns) -> SummarizedTurn:
    (
        *turn,
        version,
        inputs,
        outputs,
        cached_tokens,
        reasoning,
        cost,
        seconds,
        fault,
        below,
        retries,
        pauses,
        prompt,
        answer,
    ) = row
    if not version or version == UNREAD:
        return SummarizedTurn(turn_row(tuple(turn)))
    usage = Usage(
        input_tokens=count_of(inputs),
        output_tokens=count_of(outputs),
        cached_tokens=count_of(cached_tokens),
        reasoning_tokens=count_of(reasoning),
        cost=number_of(cost),
    )
    first, last, why = (text if isinstance(text, str) else "" for text in (prompt, answer, fault))
    counts = map(count_of, (below, retries, pauses))
    return SummarizedTurn(turn_row(tuple(turn)), True, usage, number_of(seconds), first, last, why, *counts)


def _name(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _part(text: str) -> str:
    pattern = re.sub(r"([!%_])", r"!\1", text[:MOST_PART])
    return f"%{pattern}%"


def _text(text: str) -> str:
    """Return a text that every database stores."""
    return text.replace("\0", "").encode(errors="replace").decode()


def _cut_to_bytes(text: str, most: int) -> str:
    """Return the beginning of a text that has at most so many bytes."""
    return text if len(text) * 4 <= most else cut_utf8(text.encode(), most)
