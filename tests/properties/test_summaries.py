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
        one = self.summary or TurnSummary()
        return one.steps, one.usage.tokens, round(one.usage.cost * 1e6), round(one.seconds * 1e3)


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
played = st.tuples(st.lists(starts, min_size=2, max_size=6), deeds).map(lambda both: both[0] + both[1])
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


def matches(turn: Turn, wanted: TurnFilter) -> bool:
    """Whether a filter has the turn."""
    own, one = turn.names, turn.summary or TurnSummary()
    names = [own.id, own.agent, own.model, own.session or ""] if turn.summary else []
    words = wanted.text.replace("%", "").lower().split() if any(map(str.isalnum, wanted.text)) else []
    found = words and all(any(word.startswith(asked) for word in one.text.split()) for asked in words)
    return (
        (not wanted.text or bool(found) or any(ascii_lower(wanted.text) in ascii_lower(name) for name in names))
        and ascii_lower(wanted.agent) in ascii_lower(own.agent)
        and ascii_lower(wanted.model) in ascii_lower(own.model)
        and wanted.session in ("", own.session)
        and (wanted.outcome in ("", one.outcome) or (wanted.outcome == UNFINISHED and not turn.ended))
        and wanted.reason in ("", one.reason)
        and (wanted.since is None or wanted.since <= turn.created)
        and (wanted.until is None or turn.created < wanted.until)
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
        self.written: dict[str, tuple[Written, Any]] = {}

    async def play(self, deed: tuple[Any, ...]) -> None:
        what, which, how = deed
        place = next(self.numbers)
        store, reader = self.stores[place % len(self.stores)], self.readers[place % len(self.stores)]
        if what == "start":
            written = Written(f"t{place}", age=which)
            self.written[written.new.id] = written, await written.create(store)
            self.turns.append(Turn(written.new.id, written.new.created_at, place))
        elif which < len(self.turns):
            turn = self.turns[which]
            if what == "delete":
                await self._end(turn, store)
                await store.delete(turn.id)
                self.turns.remove(turn)
            elif what == "end":
                await self._end(turn, store)
            else:
                names = TurnNames(turn.id, how.names.agent, how.names.model, how.names.session)
                turn.summary = replace(how, names=names)
                await reader.unsummarized(limit=1)  # those in memory follow the store here
                await reader.summarize([(Unsummarized(turn.id, 1, turn.ended, names), turn.summary)])

    async def _end(self, turn: Turn, store: Store) -> None:
        if not turn.ended:
            written, claim = self.written[turn.id]
            await store.append(claim, written.abort(), written.status)
            await store.release(claim)
            turn.ended = True

    async def compare(self, wanted: TurnFilter) -> None:
        expected = [turn for turn in self.turns if matches(turn, wanted)]
        for reader in self.readers:
            await self._lists(reader, wanted, expected)
            totals = await reader.totals(wanted)
            assert totals.turns == len(expected), wanted
            outcomes = Counter(turn.summary.outcome for turn in expected if turn.summary and turn.summary.outcome)
            assert totals.outcomes == outcomes
            sums = [sum(turn.measures[place] for turn in expected) for place in range(4)]
            assert [totals.steps, totals.tokens] == sums[:2]
            assert [round(totals.cost * 1e6), round(totals.seconds * 1e3)] == sums[2:]
            await self._agents(reader, wanted, [turn for turn in expected if turn.summary])

    async def _lists(self, reader: SummaryStore, wanted: TurnFilter, expected: Sequence[Turn]) -> None:
        values: Mapping[Order, Callable[[Turn], float]] = {
            Order.NEWEST: lambda turn: turn.place,
            Order.COST: lambda turn: turn.measures[2],
            Order.TOKENS: lambda turn: turn.measures[1],
        }
        for order, value in values.items():
            ordered = sorted(expected, key=lambda turn, value=value: (value(turn), turn.place), reverse=True)  # type: ignore[misc]
            found = await reader.find(wanted, order=order, limit=3)
            if len(found) == 3:
                found += await reader.find(wanted, order=order, limit=100, after=found[-1].row.number)
            assert [one.row.id for one in found] == [turn.id for turn in ordered], (wanted, order)

    async def _agents(self, reader: SummaryStore, wanted: TurnFilter, expected: Sequence[Turn]) -> None:
        for by in Grouping:
            await self._agents_by(reader, wanted, expected, by)

    async def _agents_by(
        self, reader: SummaryStore, wanted: TurnFilter, expected: Sequence[Turn], by: Grouping
    ) -> None:
        def row(turn: Turn) -> tuple[str, str]:
            agent, model = turn.names.agent, turn.names.model
            return "" if by is Grouping.MODEL else agent, "" if by is Grouping.AGENT else model

        groups: defaultdict[tuple[str, str], list[Turn]] = defaultdict(list)
        for turn in expected:
            groups[row(turn)].append(turn)
        found = await reader.agents(wanted, by=by)
        assert {(one.agent, one.model) for one in found.agents} == set(groups), wanted
        for one in found.agents:
            those = groups[one.agent, one.model]
            steps, tokens, micros, millis = zip(*(turn.measures for turn in those), strict=True)
            made = [turn.summary for turn in those if turn.summary]
            assert one.others == len({(turn.names.agent, turn.names.model) for turn in those})
            assert (one.turns, one.total_tokens, round(one.total_cost * 1e6)) == (len(those), sum(tokens), sum(micros))
            assert (one.steps, one.tokens) == (quantiles(steps), quantiles(tokens))
            assert (one.cost, one.seconds) == (quantiles(micros, 1e6), quantiles(millis, 1e3))
            assert one.outcomes == Counter(summary.outcome for summary in made)
            assert dict(one.reasons) == Counter(summary.reason for summary in made)
            assert dict(one.failures) == sum((Counter(summary.failures) for summary in made), Counter())
        spent: Counter[tuple[float, str, str]] = Counter()
        for turn in expected:
            spent[(turn.created // found.width * found.width, *row(turn))] += turn.measures[2]
        assert {(one.began, one.agent, one.model): round(one.cost * 1e6) for one in found.spending} == spent


async def counted(stores: Sequence[Store], done: Sequence[tuple[Any, ...]], asked: Sequence[TurnFilter]) -> None:
    """Play the deeds, and compare in the middle and at the end."""
    plain = Count(stores)
    try:
        for place, deed in enumerate(done):
            await plain.play(deed)
            if place == len(done) // 2:
                await plain.compare(TurnFilter())
        for wanted in (TurnFilter(), *asked):
            await plain.compare(wanted)
    finally:
        for store in stores:
            await store.aclose()


@given(played, st.lists(filters, max_size=6))
def test_pages_agree_with_a_plain_count(done: list[tuple[Any, ...]], asked: list[TurnFilter]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "turns.db"
        anyio.run(counted, [SqliteStore(path, durability="normal") for _ in range(2)], done, asked)
    anyio.run(counted, [MemoryStore()], done, asked)


@pytest.mark.slow
@settings(max_examples=20)
@given(played, st.lists(filters, max_size=6))
def test_pages_of_postgresql_agree_with_a_plain_count(
    postgres_server: PostgresServer, done: list[tuple[Any, ...]], asked: list[TurnFilter]
) -> None:
    address = postgres_server.new_schema()

    async def play() -> None:
        first = PostgresStore(address)
        await first.migrate()
        await counted([first, PostgresStore(address)], done, asked)

    anyio.run(play)
