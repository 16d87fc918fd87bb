"""The queries of summaries, in the words that SQLite and PostgreSQL share, and the rows that they return."""

# ruff: noqa: S608 (every query is made of constants)

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import msgspec

from turnwright_states import EndReason, Outcome, Usage

from .rows import Columns, turn_row
from .summaries import (
    MOST,
    PAUSED,
    UNFINISHED,
    UNREAD,
    AgentTotals,
    Order,
    Quantiles,
    Spending,
    SummarizedTurn,
    TurnFilter,
    TurnNames,
    TurnSummary,
    TurnTotals,
    Unsummarized,
)

Query = tuple[str, dict[str, object]]

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
#: Whole numbers, because the lists of a hundred thousand are read fast. Costs are in millionths, times in milliseconds.
_MEASURES: Final = (
    "steps",
    "input_tokens + output_tokens",
    "CAST(round(cost * 1e6) AS bigint)",
    "CAST(round(seconds * 1e3) AS bigint)",
)
#: The conditions of a filter's fields.
_COMPARED: Final = {
    "agent": "agent {like} :agent ESCAPE '!'",
    "model": "model {like} :model ESCAPE '!'",
    "session": "session = :session",
    "outcome": "outcome = :outcome",
    "reason": "reason = :reason",
    "since": "created_at >= :since",
    "until": "created_at < :until",
    "before": "number < :before",
}
_PARAMETER: Final = re.compile(r"(?<!:):([a-z_]+)")
_WORD: Final = re.compile(r"\w")
_integers: Final = msgspec.json.Decoder(list[int]).decode


@dataclass(frozen=True, slots=True)
class Dialect:
    """The parts of queries that differ between databases.

    `turns` are the columns of `rows.turn_row`, `joined` is where they are, for a table `page` with a column `n`.
    `texts` is the table of prompts and answers, with its key. `like` ignores case. `joined_text` joins integers with
    commas. `matching` are the numbers of the turns with the `:words`. `span` is the number of a turn's span of time.
    `paused` and `unfinished` are the numbers of such turns, `family` those of the turns below `:family`.
    `parameter` replaces a `:name`.
    """

    prefix: str
    turns: str
    joined: str
    texts: str
    like: str
    joined_text: str
    matching: str
    span: str
    paused: str
    unfinished: str
    family: str
    parameter: str

    def written(self, query: Query) -> Query:
        """Return the query with parameters as the database writes them."""
        return _PARAMETER.sub(self.parameter, query[0]), query[1]

    def where(self, wanted: TurnFilter, words: str, *, ended: bool = False) -> Query:
        """Return the condition of a filter. `words` is its text as the database searches it; empty for no search."""
        clauses, values = ["root = 1"], dict[str, object]()
        if wanted.family:
            clauses, values["family"] = ["root = 0", f"number IN ({self.family})"], wanted.family
        if wanted.outcome in (PAUSED, UNFINISHED):
            clauses.append(f"number IN ({self.paused if wanted.outcome == PAUSED else self.unfinished})")
        if ended:
            clauses.append("outcome IS NOT NULL")
        for name, compared in _COMPARED.items():
            value = getattr(wanted, name)
            if value not in (None, "", PAUSED, UNFINISHED):
                clauses.append(compared.format(like=self.like))
                values[name] = _part(value) if "{like}" in compared else value
        if wanted.text:
            names = ("turn_id", "agent", "model", "session")
            found = [f"{name} {self.like} :part ESCAPE '!'" for name in names]
            values["part"] = _part(wanted.text)
            if words:
                found.insert(0, f"number IN ({self.matching})")
                values["words"] = words
            clauses.append(f"({' OR '.join(found)})")
        return " AND ".join(clauses), values

    def find(self, wanted: TurnFilter, words: str, *, order: Order, ascending: bool, limit: int, offset: int) -> Query:
        """Return the query of `summarized_turns`."""
        condition, values = self.where(wanted, words)
        way, value = "ASC" if ascending else "DESC", _ORDERS[order]
        text = f"""
            SELECT {self.turns}, version, input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost, seconds,
                fault, sub_turns, retries, pauses, prompt, answer
            FROM (
                SELECT number AS n, {value} AS place FROM {self.prefix}summaries WHERE {condition}
                ORDER BY place {way}, number {way} LIMIT :limit OFFSET :offset
            ) AS page {self.joined} JOIN (SELECT {_TOTALS} FROM {self.prefix}summaries) AS totals ON summarized = n
            LEFT JOIN {self.texts} = n ORDER BY place {way}, n {way}
        """
        return self.written((text, values | {"limit": limit, "offset": offset}))

    def totals(self, wanted: TurnFilter, words: str) -> Query:
        """Return the query of `turn_totals`."""
        condition, values = self.where(wanted, words)
        text = f"""
            SELECT outcome, count(*), sum(steps), sum(tool_calls), sum(input_tokens + output_tokens), sum(cost),
                sum(seconds)
            FROM {self.prefix}summaries WHERE {condition} GROUP BY outcome
        """
        return self.written((text, values))

    def agents(self, wanted: TurnFilter, words: str) -> tuple[Query, Query, Query]:
        """Return the queries of `agent_totals`: measures, endings, and failures of tools."""
        condition, values = self.where(wanted, words, ended=True)
        table = f"{self.prefix}summaries"
        lists = ", ".join(map(self.joined_text.format, _MEASURES))
        measures = f"SELECT agent, model, sum(cost), {lists} FROM {table} WHERE {condition} GROUP BY agent, model"
        endings = (
            f"SELECT agent, model, outcome, reason, count(*) FROM {table} WHERE {condition}"
            " GROUP BY agent, model, outcome, reason"
        )
        failures = (
            f"SELECT agent, model, tool, sum(failed) FROM {self.prefix}failures JOIN {table} USING (number)"
            f" WHERE {condition} GROUP BY agent, model, tool"
        )
        first, second, third = (self.written((text, values)) for text in (measures, endings, failures))
        return first, second, third

    def spending(self, wanted: TurnFilter, words: str, width: float) -> Query:
        """Return the query of `spending_of`."""
        condition, values = self.where(wanted, words, ended=True)
        text = f"""
            SELECT {self.span} AS span, agent, model, count(*), sum(input_tokens + output_tokens), sum(cost)
            FROM {self.prefix}summaries WHERE {condition} GROUP BY span, agent, model ORDER BY span, agent, model
        """
        return self.written((text, values | {"width": width}))


def stored(turn: Unsummarized, summary: TurnSummary) -> dict[str, object]:
    """Return the columns of a summary."""
    usage = summary.usage
    return {
        "turn": turn.id,
        "turn_id": _text(summary.names.id),
        "agent": _text(summary.names.agent),
        "model": _text(summary.names.model),
        "session": None if summary.names.session is None else _text(summary.names.session),
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
        "retries": min(summary.retries, MOST),
        "pauses": min(summary.pauses, MOST),
        "sub_turns": min(summary.sub_turns, MOST),
        "fault": _text(summary.fault),
        "prompt": _text(summary.prompt),
        "answer": _text(summary.answer),
        "text": _text(summary.text),
    }


def words_of(text: str) -> list[str]:
    """Return the words of a search that have a letter or a digit."""
    return [word for word in text.split() if _WORD.search(word)]


def unsummarized_of(rows: Iterable[Columns]) -> list[Unsummarized]:
    """Return turns from rows (id, agent, model, session, version, whether it has ended). Damaged names are empty."""
    return [
        Unsummarized(
            turn, version, bool(ended), TurnNames(turn, _name(agent) or "", _name(model) or "", _name(session))
        )
        for turn, agent, model, session, version, ended in rows
        if isinstance(turn, str)
    ]


def summarized_turns(rows: Iterable[Columns]) -> list[SummarizedTurn]:
    """Return the turns of a list."""
    return [_summarized(row) for row in rows]


def turn_totals(rows: Iterable[Columns]) -> TurnTotals:
    """Return the sums from one row an outcome."""
    outcomes: dict[Outcome, int] = {}
    sums = [0.0] * 6
    for outcome, *values in rows:
        if (ending := _outcome(outcome)) is not None:
            outcomes[ending] = _count(values[0])
        sums = [whole + _number(value) for whole, value in zip(sums, values, strict=True)]
    turns, steps, calls, tokens, cost, seconds = sums
    return TurnTotals(int(turns), outcomes, int(steps), int(calls), int(tokens), cost, seconds)


def agent_totals(
    measures: Iterable[Columns], endings: Iterable[Columns], failures: Iterable[Columns]
) -> list[AgentTotals]:
    """Return the rows of agents, those with the most turns first."""
    outcomes: defaultdict[tuple[object, object], Counter[Outcome]] = defaultdict(Counter)
    reasons: defaultdict[tuple[object, object], Counter[EndReason]] = defaultdict(Counter)
    failed: defaultdict[tuple[object, object], Counter[str]] = defaultdict(Counter)
    for agent, model, outcome, reason, count in endings:
        if (ending := _outcome(outcome)) is not None:
            outcomes[agent, model][ending] += count
        if reason in _REASONS:
            reasons[agent, model][EndReason(reason)] += count
    for agent, model, tool, count in failures:
        failed[agent, model][str(tool)] += _count(count)
    found = []
    for agent, model, cost, *texts in measures:
        steps, tokens, micros, millis = (sorted(_integers(f"[{text}]")) for text in texts)
        found.append(
            AgentTotals(
                agent=str(agent),
                model=str(model),
                turns=len(steps),
                outcomes=outcomes[agent, model],
                reasons=reasons[agent, model].most_common(),
                steps=_quantiles(steps),
                tokens=_quantiles(tokens),
                cost=_quantiles(micros, 1e6),
                seconds=_quantiles(millis, 1e3),
                total_tokens=sum(tokens),
                total_cost=_number(cost),
                failures=failed[agent, model].most_common(),
            )
        )
    return sorted(found, key=lambda one: (-one.turns, one.agent, one.model))


def spending_of(rows: Iterable[Columns], width: float) -> list[Spending]:
    """Return the usage over time."""
    return [
        Spending(_number(span) * width, str(agent), str(model), _count(turns), _count(tokens), _number(cost))
        for span, agent, model, turns, tokens, cost in rows
    ]


_REASONS: Final = frozenset(EndReason)
_OUTCOMES: Final = frozenset(Outcome)


def _summarized(row: Columns) -> SummarizedTurn:
    *turn, version, inputs, outputs, cached, reasoning, cost, seconds, fault, below, retries, pauses, prompt, answer = (
        row
    )
    if not version or version == UNREAD:
        return SummarizedTurn(turn_row(tuple(turn)))
    usage = Usage(
        input_tokens=_count(inputs),
        output_tokens=_count(outputs),
        cached_tokens=_count(cached),
        reasoning_tokens=_count(reasoning),
        cost=_number(cost),
    )
    first, last, why = (one if isinstance(one, str) else "" for one in (prompt, answer, fault))
    counts = map(_count, (below, retries, pauses))
    return SummarizedTurn(turn_row(tuple(turn)), True, usage, _number(seconds), first, last, why, *counts)


def _quantiles(values: Sequence[int], unit: float = 1) -> Quantiles:
    """Return the quantiles of sorted values."""
    p50, p90 = (values[ceil(len(values) * share) - 1] / unit if values else 0.0 for share in (0.5, 0.9))
    return Quantiles(p50, p90)


def _name(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _part(text: str) -> str:
    escaped = re.sub(r"([!%_])", r"!\1", text)
    return f"%{escaped}%"


def _text(text: str) -> str:
    """Return a text that every database stores."""
    return text.replace("\0", "").encode(errors="replace").decode()


def _outcome(value: object) -> Outcome | None:
    return Outcome(str(value)) if value in _OUTCOMES else None


def _count(value: Any) -> int:  # noqa: ANN401 (a sum of a database, of any numeric type)
    return int(_number(value))


def _number(value: Any) -> float:  # noqa: ANN401 (likewise)
    """Return a number of a row; 0 for a damaged one. PostgreSQL's sums are decimals."""
    try:
        number = float(value or 0)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if 0 <= number <= MOST else 0.0
