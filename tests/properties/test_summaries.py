"""Lists, totals, searches and agents agree with a plain count of the turns, whatever is written and deleted."""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import ceil
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.servers.postgres_server import PostgresServer

from turnwright.store import MemoryStore, SqliteStore, Store
from turnwright.store.memory_summaries import summaries_of
from turnwright.store.postgres import PostgresStore
from turnwright.store.summaries import (
    UNFINISHED,
    Grouping,
    Order,
    Quantiles,
    SummaryStore,
    TurnFilter,
    TurnNames,
    TurnSummary,
    Unsummarized,
)
from turnwright_states import EndReason, Outcome, Usage
from turnwright_testing.store_suite import Written
from turnwright_testing.store_suite.bench import NOW

ENDINGS = [
    (Outcome.FINISHED, EndReason.ANSWERED),
    (Outcome.FAILED, EndReason.MODEL_ERROR),
    (Outcome.CAP_HIT, EndReason.STEP_CAP),
    (Outcome.CAP_HIT, EndReason.DEADLINE),
]
WORDS = ["zebra", "lion", "order"]
NAMES = ["Order taker", "Clerk", "clerk%2", "é_order\x1f"]
AGES = [0.0, 90.0, 7_200.0, 40 * 86_400.0]


@dataclass
class Turn:
    """A turn as the plain count knows it. Without a summary it has no names either."""

    id: str
    created: float
    place: int
    ended: bool = False
    summary: TurnSummary | None = None

    @property
    def names(self) -> TurnNames:
        return self.summary.names if self.summary else TurnNames()

    @property
    def measures(self) -> tuple[int, int, int, int]:
        summary = self.summary or TurnSummary()
        return summary.steps, summary.usage.tokens, round(summary.usage.cost * 1e6), round(summary.seconds * 1e3)


summaries = st.builds(
    lambda ending, agent, model, session, numbers, words, failures: TurnSummary(
        outcome=ending[0],
        reason=ending[1],
        steps=numbers[0],
        tool_calls=numbers[1],
        usage=Usage(input_tokens=numbers[2], output_tokens=numbers[0], cost=numbers[3] / 1e6),
        seconds=numbers[1] / 1e3,
        failures=failures,
        text=" ".join(words),
        names=TurnNames("", agent, model, session),
    ),
    st.sampled_from(ENDINGS),
    st.sampled_from(NAMES),
    st.sampled_from(["model-1", "Model-2"]),
    st.sampled_from([None, "Order 7", "s"]),
    st.tuples(*[st.integers(0, 9) | st.integers(0, 5_000_000)] * 4),
    st.lists(st.sampled_from(WORDS), max_size=3),
    st.dictionaries(st.sampled_from(["look_up", "send"]), st.integers(1, 3), max_size=2),
)
turns = st.integers(0, 5)
starts = st.tuples(st.just("start"), st.sampled_from(AGES), st.none())
deeds = st.lists(
    st.one_of(
        starts,
        st.tuples(st.just("end"), turns, st.none()),
        st.tuples(st.just("summarize"), turns, summaries),
        st.tuples(st.just("summarize"), turns, summaries),
        st.tuples(st.just("delete"), turns, st.none()),
    ),
    max_size=25,
)
played = st.tuples(st.lists(starts, min_size=2, max_size=6), deeds).map(lambda pair: pair[0] + pair[1])
TEXTS = [*WORDS, "ORDER", "ord", "rder", "zebra lion", "erk%", "t1", "l-2", "er", "\x1f", "_"]
CONDITIONS: Mapping[str, Sequence[object]] = {
    "text": TEXTS,
    "agent": ["ORDER", "clerk", "%", "é"],
    "model": ["model", "l-2"],
    "session": ["Order 7", "order 7"],
    "outcome": [*map(str, Outcome), UNFINISHED],
    "reason": [str(reason) for _, reason in ENDINGS],
    "since": [NOW - age for age in AGES],
    "until": [NOW - age for age in AGES],
}
# Few conditions: nothing matches many of them.
filters = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.sampled_from(TEXTS)),
        *(st.tuples(st.just(name), st.sampled_from(values)) for name, values in CONDITIONS.items()),
    ),
    max_size=2,
).map(lambda chosen: TurnFilter(**dict(chosen)))


def ascii_lower(text: str) -> str:
    return text.encode().lower().decode()


def matches(turn: Turn, turn_filter: TurnFilter) -> bool:
    """Whether a filter has the turn."""
    own, summary = turn.names, turn.summary or TurnSummary()
    names = [own.id, own.agent, own.model, own.session or ""] if turn.summary else []
    words = turn_filter.text.replace("%", "").lower().split() if any(map(str.isalnum, turn_filter.text)) else []
    has_words = words and all(any(word.startswith(prefix) for word in summary.text.split()) for prefix in words)
    return (
        (
            not turn_filter.text
            or bool(has_words)
            or any(ascii_lower(turn_filter.text) in ascii_lower(name) for name in names)
        )
        and ascii_lower(turn_filter.agent) in ascii_lower(own.agent)
        and ascii_lower(turn_filter.model) in ascii_lower(own.model)
        and turn_filter.session in ("", own.session)
        and (turn_filter.outcome in ("", summary.outcome) or (turn_filter.outcome == UNFINISHED and not turn.ended))
        and turn_filter.reason in ("", summary.reason)
        and (turn_filter.since is None or turn_filter.since <= turn.created)
        and (turn_filter.until is None or turn.created < turn_filter.until)
    )


def quantiles(values: Sequence[int], unit: float = 1) -> Quantiles:
    ordered = sorted(values)
    p50, p90 = (ordered[ceil(len(ordered) * share) - 1] / unit for share in (0.5, 0.9))
    return Quantiles(p50, p90)


@dataclass
class Count:
    """Plays deeds in stores on the same data, which take turns as other processes do, and in a list of turns."""

    stores: Sequence[Store]
    turns: list[Turn] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.readers: list[SummaryStore] = [summaries_of(store) for store in self.stores]
        self.drafts: dict[str, tuple[Written, Any]] = {}

    async def play(self, deed: tuple[Any, ...]) -> None:
        kind, index, how = deed
        place = next(self.numbers)
        store, reader = self.stores[place % len(self.stores)], self.readers[place % len(self.stores)]
        if kind == "start":
            draft = Written(f"t{place}", age=index)
            self.drafts[draft.new.id] = draft, await draft.create(store)
            self.turns.append(Turn(draft.new.id, draft.new.created_at, place))
        elif index < len(self.turns):
            turn = self.turns[index]
            if kind == "delete":
                await self._end(turn, store)
                await store.delete(turn.id)
                self.turns.remove(turn)
            elif kind == "end":
                await self._end(turn, store)
            else:
                names = TurnNames(turn.id, how.names.agent, how.names.model, how.names.session)
                turn.summary = replace(how, names=names)
                await reader.unsummarized(limit=1)  # those in memory follow the store here
                await reader.summarize([(Unsummarized(turn.id, 1, turn.ended, names), turn.summary)])

    async def _end(self, turn: Turn, store: Store) -> None:
        if not turn.ended:
            draft, claim = self.drafts[turn.id]
            await store.append(claim, draft.abort(), draft.status)
            await store.release(claim)
            turn.ended = True

    async def compare(self, turn_filter: TurnFilter) -> None:
        expected = [turn for turn in self.turns if matches(turn, turn_filter)]
        for reader in self.readers:
            await self._lists(reader, turn_filter, expected)
            totals = await reader.totals(turn_filter)
            assert totals.turns == len(expected), turn_filter
            outcomes = Counter(turn.summary.outcome for turn in expected if turn.summary and turn.summary.outcome)
            assert totals.outcomes == outcomes
            sums = [sum(turn.measures[place] for turn in expected) for place in range(4)]
            assert [totals.steps, totals.tokens] == sums[:2]
            assert [round(totals.cost * 1e6), round(totals.seconds * 1e3)] == sums[2:]
            await self._agents(reader, turn_filter, [turn for turn in expected if turn.summary])

    async def _lists(self, reader: SummaryStore, turn_filter: TurnFilter, expected: Sequence[Turn]) -> None:
        values: Mapping[Order, Callable[[Turn], float]] = {
            Order.NEWEST: lambda turn: turn.place,
            Order.COST: lambda turn: turn.measures[2],
            Order.TOKENS: lambda turn: turn.measures[1],
        }
        for order, value in values.items():
            ordered = sorted(expected, key=lambda turn, value=value: (value(turn), turn.place), reverse=True)  # type: ignore[misc]
            hits = await reader.find(turn_filter, order=order, limit=3)
            if len(hits) == 3:
                hits += await reader.find(turn_filter, order=order, limit=100, after=hits[-1].row.number)
            assert [hit.row.id for hit in hits] == [turn.id for turn in ordered], (turn_filter, order)

    async def _agents(self, reader: SummaryStore, turn_filter: TurnFilter, expected: Sequence[Turn]) -> None:
        for by in Grouping:
            await self._agents_by(reader, turn_filter, expected, by)

    async def _agents_by(
        self, reader: SummaryStore, turn_filter: TurnFilter, expected: Sequence[Turn], by: Grouping
    ) -> None:
        def row(turn: Turn) -> tuple[str, str]:
            agent, model = turn.names.agent, turn.names.model
            return "" if by is Grouping.MODEL else agent, "" if by is Grouping.AGENT else model

        groups: defaultdict[tuple[str, str], list[Turn]] = defaultdict(list)
        for turn in expected:
            groups[row(turn)].append(turn)
        page = await reader.agents(turn_filter, by=by)
        assert {(agent.agent, agent.model) for agent in page.agents} == set(groups), turn_filter
        for group in page.agents:
            turns = groups[group.agent, group.model]
            steps, tokens, micros, millis = zip(*(turn.measures for turn in turns), strict=True)
            summaries = [turn.summary for turn in turns if turn.summary]
            assert group.others == len({(turn.names.agent, turn.names.model) for turn in turns})
            assert (group.turns, group.total_tokens, round(group.total_cost * 1e6)) == (
                len(turns),
                sum(tokens),
                sum(micros),
            )
            assert (group.steps, group.tokens) == (quantiles(steps), quantiles(tokens))
            assert (group.cost, group.seconds) == (quantiles(micros, 1e6), quantiles(millis, 1e3))
            assert group.outcomes == Counter(summary.outcome for summary in summaries)
            assert dict(group.reasons) == Counter(summary.reason for summary in summaries)
            assert dict(group.failures) == sum((Counter(summary.failures) for summary in summaries), Counter())
        spent: Counter[tuple[float, str, str]] = Counter()
        for turn in expected:
            spent[(turn.created // page.width * page.width, *row(turn))] += turn.measures[2]
        assert {
            (spending.began, spending.agent, spending.model): round(spending.cost * 1e6) for spending in page.spending
        } == spent


async def counted(stores: Sequence[Store], done: Sequence[tuple[Any, ...]], turn_filters: Sequence[TurnFilter]) -> None:
    """Play the deeds, and compare in the middle and at the end."""
    plain = Count(stores)
    try:
        for place, deed in enumerate(done):
            await plain.play(deed)
            if place == len(done) // 2:
                await plain.compare(TurnFilter())
        for turn_filter in (TurnFilter(), *turn_filters):
            await plain.compare(turn_filter)
    finally:
        for store in stores:
            await store.aclose()


@given(played, st.lists(filters, max_size=6))
def test_pages_agree_with_a_plain_count(done: list[tuple[Any, ...]], turn_filters: list[TurnFilter]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "turns.db"
        anyio.run(counted, [SqliteStore(path, durability="normal") for _ in range(2)], done, turn_filters)
    anyio.run(counted, [MemoryStore()], done, turn_filters)


@pytest.mark.slow
@settings(max_examples=20)
@given(played, st.lists(filters, max_size=6))
def test_pages_of_postgresql_agree_with_a_plain_count(
    postgres_server: PostgresServer, done: list[tuple[Any, ...]], turn_filters: list[TurnFilter]
) -> None:
    address = postgres_server.new_schema()

    async def play() -> None:
        first = PostgresStore(address)
        await first.migrate()
        await counted([first, PostgresStore(address)], done, turn_filters)

    anyio.run(play)
