"""Writes of many turns in one SQLite transaction, compared with the same writes one by one."""

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint
from tests.engine.store.outbox_facts import OutboxFacts
from tests.engine.store.summary_facts import SummaryFacts

from turnwright.errors import StoreError
from turnwright.store import Claim, InboxItem, InboxKind, SqliteStore, Status, Store
from turnwright.store.sqlite.group_commit import CommitGroup
from turnwright.store.sqlite.opening import Durability
from turnwright.store.sqlite.writes import Write
from turnwright_states import State
from turnwright_states.facts import Fact, Notice
from turnwright_testing.faults import full_disk
from turnwright_testing.store_suite import StoreSuite, Written

pytestmark = pytest.mark.anyio
both_loops = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


class GroupingBench:
    """One file. Every handle writes in groups, however few turns it drives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: list[SqliteStore] = []

    async def open(self) -> SqliteStore:
        self.opened.append(SqliteStore(self.path, durability="normal", crowd=0))
        return self.opened[-1]

    async def bury(self, store: Store) -> None:
        assert store in self.opened
        for lock in self.path.parent.glob(f"{self.path.name}-owner-*"):
            lock.unlink()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[GroupingBench]:
    bench = GroupingBench(tmp_path / "turns.db")
    yield bench
    for store in bench.opened:
        await store.aclose()


class TestGroupingStore(StoreSuite, SummaryFacts, OutboxFacts):
    """The suite, over the fixture `bench` above."""


class Odd(Notice, frozen=True, kw_only=True):
    """A fact that cannot be written: half of a surrogate pair is not text."""

    kind = "\udcff"


class Blank(Write):
    """A write of nothing: what a group does with it is what is looked at."""

    def write(self, cursor: sqlite3.Cursor, path: Path) -> None:
        raise AssertionError(cursor, path)


class Turn:
    """A turn of a store, with an item in its inbox, and what it appends next."""

    def __init__(self, store: SqliteStore, claim: Claim, draft: Written) -> None:
        self.store, self.claim, self.draft = store, claim, draft
        self.facts: Sequence[Fact] = draft.calls("read_file", "read_file")
        self.consumed: Sequence[str] = ()
        self.error: Exception | None = None

    @classmethod
    async def make(cls, store: SqliteStore, name: str) -> "Turn":
        draft = Written(name, session=name)
        turn = cls(store, await draft.create(store), draft)
        await store.post(InboxItem(name, "steer", InboxKind.STEER))
        return turn

    async def append(self) -> None:
        try:
            await self.store.append(self.claim, self.facts, self.draft.status, self.consumed)
        except Exception as error:  # noqa: BLE001 (it is what came of it)
            self.error = error


async def append_at_once(turns: Sequence[Turn]) -> None:
    """All in the same round of the event loop."""
    async with anyio.create_task_group() as group:
        for turn in turns:
            group.start_soon(turn.append)


def dump(path: Path) -> list[list[tuple[object, ...]]]:
    """Return the contents of a store, without times and the order of turns."""
    queries = (
        "SELECT turn_id, session, agent, model, epoch, owner IS NULL, live FROM turns",
        "SELECT turn_id, seq, kind, payload, state, reason, steps, tool_calls FROM facts, turns WHERE turn = number",
        "SELECT turn_id, id, kind, payload FROM inbox",
    )
    with closing(sqlite3.connect(path)) as db:
        return [sorted(db.execute(query), key=repr) for query in queries]


async def play(path: Path, *, crowd: int) -> tuple[list[str], list[list[tuple[object, ...]]]]:
    """Return the outcomes of concurrent appends, and the contents of the store after them."""
    store = SqliteStore(path, durability="normal", crowd=crowd)
    turns = [await Turn.make(store, f"t{n}") for n in range(12)]
    turns[1].facts = turns[1].draft.abort()
    turns[2].consumed = ("steer", "never posted")
    turns[3].facts = ()
    turns[4].facts = (*turns[4].facts, Odd(elapsed=1, state=State.STREAM, limit="steps"))
    turns[5].claim = replace(turns[5].claim, epoch=7)
    turns[6].claim = replace(turns[6].claim, seq=0)
    turns[7].facts, turns[7].claim = (), replace(turns[7].claim, epoch=7)
    await store.release(turns[8].claim)
    await append_at_once(turns)
    async with anyio.create_task_group() as group:
        for turn in turns[9:]:
            group.start_soon(store.release, turn.claim)
    await store.aclose()
    outcomes = [f"{turn.claim.seq}: {type(turn.error).__name__}: {turn.error}" for turn in turns]
    return [line.replace(str(path), "PATH") for line in outcomes], dump(path)


@both_loops
async def test_grouped_writes_equal_single_writes(tmp_path: Path) -> None:
    """Also with a lost lease, a taken seq, invalid text or the end of a turn: each gets the same outcome."""
    outcomes, contents = await play(tmp_path / "group.db", crowd=0)
    assert (outcomes, contents) == await play(tmp_path / "single.db", crowd=1000)
    kinds = [line.split(": ")[1] for line in outcomes]
    assert [n for n, kind in enumerate(kinds) if kind != "NoneType"] == [4, 5, 6, 7]
    assert [kinds[n] for n in (4, 5, 6, 7)] == ["StoreError", "LeaseLostError", "StoreError", "LeaseLostError"]


def recording(sizes: list[int], error: BaseException | None = None) -> CommitGroup:
    """A group that writes down how many writes came together, and then makes them or raises."""

    def write(together: Sequence[Write]) -> None:
        sizes.append(len(together))
        if error is not None:
            raise error
        for queued_write in together:
            queued_write.note_commit()

    return CommitGroup(write, lambda error: error)


@both_loops
async def test_writes_of_a_round_are_a_single_transaction() -> None:
    """Also what comes in the next one, as long as the first has not been written."""
    sizes: list[int] = []
    writes, grouped = [Blank() for _ in range(50)], recording(sizes)
    async with anyio.create_task_group() as group:
        for write in writes:
            group.start_soon(grouped.add, write)
    await grouped.add(Blank())
    assert sizes == [50, 1]
    assert not any(write.waits for write in writes)
    assert grouped.under_way == 0


async def test_failing_transaction_fails_for_every_write(bench: GroupingBench) -> None:
    """With a full disk each append fails and nothing is written. With room again, the same appends succeed."""
    store = await bench.open()
    turns = [await Turn.make(store, f"t{n}") for n in range(20)]
    before = dump(bench.path)
    with full_disk(bench.path.with_name("turns.db-wal").stat().st_size):
        await append_at_once(turns)
    assert len({id(turn.error) for turn in turns}) == len(turns)
    for turn in turns:
        assert isinstance(turn.error, StoreError)
        assert "disk" in str(turn.error)
        assert "nothing was written" in str(turn.error)
        assert isinstance(turn.error.__cause__, sqlite3.Error)
    assert dump(bench.path) == before
    await append_at_once(turns)
    for turn in turns:
        assert await store.facts(turn.claim.turn) == list(enumerate(turn.draft.facts, start=1))


async def test_locked_file_is_waited_for_once() -> None:
    """Not one after the other: all of them fail after one wait."""
    sizes: list[int] = []
    writes, grouped = [Blank() for _ in range(20)], recording(sizes, sqlite3.OperationalError("database is locked"))
    with pytest.RaisesGroup(*[sqlite3.OperationalError] * 20):
        async with anyio.create_task_group() as group:
            for write in writes:
                group.start_soon(grouped.add, write)
    assert sizes == [20]


def test_interrupt_reaches_every_waiting_write() -> None:
    """Nobody takes for written what the process was stopped at."""
    writes = [Blank() for _ in range(3)]
    grouped = recording([], KeyboardInterrupt())

    async def run() -> None:
        async with anyio.create_task_group() as group:
            for write in writes:
                group.start_soon(grouped.add, write)

    with pytest.raises(KeyboardInterrupt):
        anyio.run(run)
    for write in writes:
        assert not write.waits
        assert isinstance(write.error, StoreError)


async def test_few_turns_write_without_grouping(tmp_path: Path) -> None:
    """And many together: what is driven at the time counts."""
    store = SqliteStore(tmp_path / "turns.db", durability="normal", crowd=3)
    claims: list[Claim] = []
    inline = [store.inline]
    for n in range(3):
        claims.append(await Written(f"t{n}").create(store))
        inline.append(store.inline)
    for claim in claims:
        await store.release(claim)
        inline.append(store.inline)
    assert inline == [True, True, True, False, True, True, True]
    claims = [await store.claim(f"t{n}") for n in range(3)]
    assert not store.inline
    await store.release(claims[0])
    assert store.inline
    await store.aclose()


async def test_write_waits_for_others_only_in_a_crowd(tmp_path: Path) -> None:
    """Until then it is made at once, also in a task that was canceled."""
    store = SqliteStore(tmp_path / "turns.db", durability="normal", crowd=2)
    results: list[bool] = []
    for name in ("t1", "t2"):
        draft = Written(name)
        claim = await draft.create(store)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await store.append(claim, draft.calls("read_file"), draft.status)
        results.append(len(await store.facts(name)) == len(draft.facts))
    assert results == [True, False]
    await store.aclose()


@pytest.mark.parametrize(("durability", "crowd"), [("full", 2), ("normal", 4)])
async def test_crowd_is_smaller_with_slow_commits(tmp_path: Path, durability: Durability, crowd: int) -> None:
    store = SqliteStore(tmp_path / "turns.db", durability=durability)
    inline = []
    for n in range(crowd):
        inline.append(store.inline)
        await Written(f"t{n}").create(store)
    assert [*inline, store.inline] == [*[True] * crowd, False]
    await store.aclose()


class SlowToWrite(SqliteStore):
    """Its appends suspend, however few turns it drives."""

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        await checkpoint()
        return await super().append(claim, facts, status, consumed)


class SlowToLook(SqliteStore):
    """Its reads of an inbox suspend."""

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        await checkpoint()
        return await super().inbox(turn_id)


async def test_subclass_methods_are_not_treated_as_inline(tmp_path: Path) -> None:
    stores = [kind(tmp_path / "turns.db") for kind in (SqliteStore, SlowToWrite, SlowToLook)]
    assert [store.inline for store in stores] == [True, False, False]
    for store in stores:
        await store.aclose()


@pytest.mark.parametrize("driven", [True, False])
async def test_turn_with_a_canceled_creator_can_be_claimed(bench: GroupingBench, *, driven: bool) -> None:
    """It was made with others, but nobody has its claim: one that was to be driven is left as after a crash."""
    store, scope, second = await bench.open(), anyio.CancelScope(), Written("t2")

    async def make_first() -> None:
        await Written("t1").create(store)
        scope.cancel()

    async def make_second() -> None:
        with scope:
            await store.create(second.new, second.facts, second.status, driven=driven)

    async with anyio.create_task_group() as group:
        group.start_soon(make_first)
        group.start_soon(make_second)
    assert scope.cancelled_caught
    assert [await store.is_driven(name) for name in ("t1", "t2")] == [True, False]
    assert (await store.claim("t2")).crashed is driven
