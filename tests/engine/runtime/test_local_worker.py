"""The worker of one machine, in one process: how many turns it drives, when it looks, and what it leaves alone."""

import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest

from turnwright import Agent, ConfigError, Engine, StoreError, TurnNotFoundError, tool
from turnwright.errors import TurnwrightError, UnreadableTurnError
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.runtime import Local, TurnStatus
from turnwright.store import NONE_ABANDONED, AbandonedDrivers, Claim, DueTurn, MemoryStore, SqliteStore, Store, TurnRow
from turnwright.tools import Tool, ToolContext
from turnwright_states import CallStatus, Outcome
from turnwright_states import facts as f
from turnwright_testing import FaultyStore
from turnwright_testing.faults import StoreWrapper

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")
OFTEN = 0.01


class Gate:
    """Turns whose one tool runs until it may go on, and how many ran at once."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.most = 0
        self.may_go_on = anyio.Event()

        @tool(idempotent=True)
        async def hold(context: ToolContext) -> str:
            self.running.append(context.turn_id)
            self.most = max(self.most, len(self.running))
            try:
                await self.may_go_on.wait()
            finally:
                self.running.remove(context.turn_id)
            return "held"

        self.hold: Tool = hold

    def engine(self, store: Store | str = "memory:", runtime: Local | None = None, *tools: Tool) -> Engine:
        model = ScriptedModel(_next, repeat=True)
        return Engine(model=model, tools=tools or [self.hold], store=store, runtime=runtime or Local(every=OFTEN))


def _next(request: ModelRequest) -> ModelResponse | str:
    return "Done." if any(message.calls for message in request.messages) else asks_for(("hold", {}))


class Moody(StoreWrapper):
    """A store that cannot be reached, or not claimed from, for a while; and how often it was looked through."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.lost = False
        self.unclaimable = 0
        self.looks = 0
        #: What reading the journal of a turn raises.
        self.raises: dict[str, TurnwrightError] = {}

    async def turns(
        self,
        *,
        session: str | None = None,
        live: bool | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[TurnRow]:
        self.looks += 1
        if self.lost:
            raise StoreError("the server is away")
        return await super().turns(session=session, live=live, limit=limit, before=before)

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, f.Fact]]:
        if turn_id in self.raises:
            raise self.raises[turn_id]
        return await super().facts(turn_id, after)

    async def claim(self, turn_id: str, *, abandoned: AbandonedDrivers = NONE_ABANDONED) -> Claim:
        if self.unclaimable:
            self.unclaimable -= 1
            raise StoreError("the server is away")
        return await super().claim(turn_id, abandoned=abandoned)


@pytest.fixture
def gate() -> Gate:
    return Gate()


async def until(holds: Callable[[], object]) -> None:
    with anyio.fail_after(60):
        while not holds():  # noqa: ASYNC110 (what happens in the engine sets no event of ours)
            await anyio.sleep(0.001)


async def ended(engine: Engine, turn: str) -> Outcome | None:
    with anyio.fail_after(60):
        while (await engine.get(turn)).outcome is None:  # noqa: ASYNC110 (likewise)
            await anyio.sleep(0.001)
    return (await engine.get(turn)).outcome


@asynccontextmanager
async def working(*engines: Engine) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        for engine in engines:
            group.start_soon(engine.run_worker)
        yield
        group.cancel_scope.cancel()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_worker_drives_no_more_turns_at_once_than_allowed(gate: Gate) -> None:
    """As soon as one ends it begins another, until there are none."""
    engine = gate.engine(runtime=Local(concurrency=3, every=OFTEN))
    turns = [await engine.submit(AGENT, "hi") for _ in range(8)]
    async with working(engine):
        await until(lambda: len(gate.running) == 3)
        gate.may_go_on.set()
        assert {await ended(engine, turn) for turn in turns} == {Outcome.FINISHED}
    assert gate.most == 3


async def test_turn_submitted_in_the_worker_process_is_driven_at_once(gate: Gate) -> None:
    """However seldom it looks by itself; and an answer likewise."""

    @tool(needs_approval=True)
    async def hold() -> str:
        return "held"

    engine = gate.engine("memory:", Local(every=3600.0), hold)
    async with working(engine):
        turn = await engine.submit(AGENT, "hi")
        with anyio.fail_after(60):
            while not (await engine.get(turn)).interrupts or await engine.store.is_driven(turn):  # noqa: ASYNC110 (as above)
                await anyio.sleep(0.001)
        await engine.answer(turn, {"approval-1": True})
        assert await ended(engine, turn) is Outcome.FINISHED


async def test_run_drives_the_turn_beside_the_worker(gate: Gate) -> None:
    """The worker leaves it alone, and its place is nobody's."""
    engine = gate.engine(runtime=Local(concurrency=1, every=OFTEN))
    gate.may_go_on.set()
    async with working(engine):
        turn = await engine.run(AGENT, "hi")
    assert turn.outcome is Outcome.FINISHED
    assert (await engine.store.get(turn.id)).epoch == 1


async def test_stopping_worker_starts_no_turn_and_waits_for_running_turns(gate: Gate) -> None:
    """It returns when that has ended."""
    engine, stopping = gate.engine(runtime=Local(every=OFTEN)), anyio.Event()
    turn, waiting = await engine.submit(AGENT, "hi"), ""
    async with anyio.create_task_group() as group:
        group.start_soon(engine.run_worker, stopping)
        await until(lambda: gate.running)
        stopping.set()
        waiting = await engine.submit(AGENT, "hi")
        gate.may_go_on.set()
    assert (await engine.get(turn)).outcome is Outcome.FINISHED
    assert (await engine.store.get(waiting)).epoch == 0  # nobody has claimed it


@pytest.mark.parametrize("drain", [0.0, 0.05])
async def test_turn_outlasting_the_drain_is_released(gate: Gate, drain: float) -> None:
    """Another worker takes it up at once, and nobody takes the first one for dead."""
    engine, stopping = gate.engine(runtime=Local(every=OFTEN, drain=drain)), anyio.Event()
    turn = await engine.submit(AGENT, "hi")
    async with anyio.create_task_group() as group:
        group.start_soon(engine.run_worker, stopping)
        await until(lambda: gate.running)
        stopping.set()
    assert gate.running == []
    assert (await engine.store.get(turn)).owner is None
    gate.may_go_on.set()
    async with working(other_engine := gate.engine(engine.store)):
        assert await ended(other_engine, turn) is Outcome.FINISHED


async def test_worker_with_a_migrated_store_ends_with_an_error(tmp_path: Path) -> None:
    """Its error is the store's own, and not that of a group."""
    path = tmp_path / "turns.db"
    engine = Gate().engine(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 999")
    with pytest.raises(ConfigError, match="upgrade"):
        await engine.run_worker()
    await engine.aclose()


async def test_canceled_worker_releases_the_turns(gate: Gate) -> None:
    engine = gate.engine()
    turns = [await engine.submit(AGENT, "hi") for _ in range(2)]
    async with working(engine):
        await until(lambda: len(gate.running) == 2)
    assert [(await engine.store.get(turn)).owner for turn in turns] == [None, None]


async def test_undrivable_turn_is_skipped_with_a_single_warning(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    """However often it is found; others are driven, and a worker that has its tools takes it up."""
    store = Moody()
    rich, stopping = gate.engine(store, Local(every=OFTEN, drain=0.0)), anyio.Event()
    unread_turn = await rich.submit(AGENT, "hi")
    async with anyio.create_task_group() as group:
        group.start_soon(rich.run_worker, stopping)
        await until(lambda: gate.running)
        stopping.set()

    @tool
    async def other() -> str:
        return "other"

    poor = gate.engine(store, Local(every=OFTEN), other)
    with caplog.at_level(logging.WARNING, "turnwright"):
        async with working(poor):
            await until(lambda: warnings(caplog))
            looks = store.looks
            fine = await poor.submit(AGENT, "hi")
            assert await ended(poor, fine) is Outcome.FINISHED
            await until(lambda: store.looks > looks + 5)
    (warning,) = warnings(caplog)
    assert f"turn {unread_turn} is skipped" in warning
    assert "need the tools hold" in warning
    gate.may_go_on.set()
    async with working(gate.engine(store)):
        assert await ended(poor, unread_turn) is Outcome.FINISHED


@pytest.mark.parametrize("torn", [True, False], ids=["torn", "deleted"])
async def test_unreadable_or_deleted_turn_stops_no_other(
    gate: Gate, caplog: pytest.LogCaptureFixture, torn: bool
) -> None:
    """An unreadable turn is named once, a deleted one is not."""
    store = Moody()
    engine = gate.engine(store)
    gate.may_go_on.set()
    skipped_turn, fine = await engine.submit(AGENT, "hi"), await engine.submit(AGENT, "hi")
    store.raises[skipped_turn] = (
        UnreadableTurnError(skipped_turn, "its journal is torn") if torn else TurnNotFoundError(skipped_turn)
    )
    with caplog.at_level(logging.WARNING, "turnwright"):
        async with working(engine):
            assert await ended(engine, fine) is Outcome.FINISHED
            looks = store.looks
            await until(lambda: store.looks > looks + 5)
    start = f"turn {skipped_turn} is skipped for 60 s: turn {skipped_turn}: its journal is torn"
    assert [line[: len(start)] for line in warnings(caplog)] == ([start] if torn else [])


async def test_resubmitted_turn_is_considered_again(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    """Because a submission means that it can be driven now."""
    store = Moody()
    runtime = Local(every=OFTEN)
    engine = gate.engine(store, runtime)
    gate.may_go_on.set()
    store.unclaimable = 8
    turn = await engine.submit(AGENT, "hi")
    with caplog.at_level(logging.WARNING, "turnwright"):
        async with working(engine):
            await until(lambda: len(warnings(caplog)) == 7)  # it is left alone for longer each time
            while store.unclaimable:
                await runtime.submit(turn, 1)
                await anyio.sleep(0.001)
            await runtime.submit(turn, 1)
            assert await ended(engine, turn) is Outcome.FINISHED


async def test_worker_waits_for_an_unreachable_store(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    """With one warning, and without giving up what runs."""
    store = Moody()
    engine = gate.engine(store)
    running, waiting = await engine.submit(AGENT, "hi"), ""
    with caplog.at_level(logging.WARNING, "turnwright"):
        async with working(engine):
            await until(lambda: gate.running == [running])
            store.lost = True
            waiting = await engine.submit(AGENT, "hi")
            looks = store.looks
            await until(lambda: store.looks > looks + 5)
            store.lost = False
            await until(lambda: waiting in gate.running)
            gate.may_go_on.set()
            assert {await ended(engine, turn) for turn in (running, waiting)} == {Outcome.FINISHED}
    assert warnings(caplog) == ["no turn is resumed until the store can be reached again: the server is away"]


async def test_turn_with_a_failed_store_is_resumed_soon(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    """Unwritten work counts as if the process had died; the worker continues."""
    store = FaultyStore(MemoryStore(), at=3, heals=True)
    engine = gate.engine(store)
    gate.may_go_on.set()
    with caplog.at_level(logging.WARNING, "turnwright"):
        async with working(engine):
            turn = await engine.submit(AGENT, "hi")
            assert await ended(engine, turn) is Outcome.FINISHED
    assert warnings(caplog)[0] == f"turn {turn} is skipped for 0.01 s: append 3 fails, as planned"
    settled = [fact for _, fact in await store.facts(turn) if isinstance(fact, f.CallSettled)]
    assert [fact.status for fact in settled] == [CallStatus.OK]


async def test_turn_with_a_failing_store_is_skipped_for_growing_times(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """And driven when that is over."""
    store = Moody()
    engine = gate.engine(store)
    gate.may_go_on.set()
    store.unclaimable = 4
    turn = await engine.submit(AGENT, "hi")
    with caplog.at_level(logging.WARNING, "turnwright"):
        async with working(engine):
            assert await ended(engine, turn) is Outcome.FINISHED
    waits = [line.partition(" skipped for ")[2].partition(" s:")[0] for line in warnings(caplog)]
    assert waits == ["0.01", "0.02", "0.04", "0.08"]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"concurrency": 0}, "at least 1, not 0"),
        ({"every": 0.0}, "every must be above 0"),
        ({"drain": -1.0}, "drain at least 0 seconds, not 1 and -1"),
        ({"every": float("nan")}, "every must be above 0"),
    ],
)
def test_invalid_numbers_are_refused(numbers: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Local(**numbers)  # type: ignore[arg-type]


async def test_runtime_without_an_engine_has_no_worker() -> None:
    """Without one it has nothing to drive."""
    runtime = Local()
    with pytest.raises(ConfigError, match="belongs to no engine"):
        await runtime.run_worker()
    Engine(runtime=runtime)
    with pytest.raises(ConfigError, match="belongs to another engine"):
        Engine(runtime=runtime)


class Listener:
    """Notes what a worker does, and stops it after some attempts."""

    def __init__(self, attempts: int) -> None:
        self.lines: list[tuple[str, ...]] = []
        self.stopping = anyio.Event()
        self._attempts = attempts

    def claimed(self, turn_id: str) -> None:
        self.lines.append(("claimed", turn_id))

    def ended(self, turn_id: str, ending: TurnStatus | BaseException, *, claimed: bool, seconds: float) -> None:
        assert seconds >= 0
        kind = str(ending.state) if isinstance(ending, TurnStatus) else type(ending).__name__
        self.lines.append((kind, turn_id, "claimed" if claimed else "not claimed"))
        self._attempts -= 1
        if not self._attempts:
            self.stopping.set()

    def waits(self, error: StoreError) -> None:
        self.lines.append(("waits", str(error)))
        self.stopping.set()


async def test_listener_receives_claims_and_endings() -> None:
    """A turn whose tool is missing is refused, and was not claimed for the listener."""
    store = MemoryStore()
    turn = await Engine(model=ScriptedModel(), store=store).submit(AGENT, "hi")
    lacking = await Gate().engine(store).submit(Agent(name="Holder", tools=["hold"]), "hi")
    engine, listener = Engine(model=ScriptedModel("Done."), store=store, runtime=Local(every=OFTEN)), Listener(2)
    await engine.run_worker(listener.stopping, listener=listener)
    assert [line for line in listener.lines if turn in line] == [("claimed", turn), ("FINISHED", turn, "claimed")]
    assert [line for line in listener.lines if lacking in line] == [("CannotRunError", lacking, "not claimed")]


async def test_listener_receives_that_the_worker_waits() -> None:
    store = Moody()
    store.lost = True
    engine, listener = Gate().engine(store), Listener(1)
    await engine.run_worker(listener.stopping, listener=listener)
    assert listener.lines == [("waits", "the server is away")]


class Counting(StoreWrapper):
    """Counts the calls of a store, and the turns whose journal is read."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls = 0
        self.folded: list[str] = []

    def enter(self) -> None:
        self.calls += 1

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, f.Fact]]:
        self.folded.append(turn_id)
        return await super().facts(turn_id, after)

    async def due(
        self,
        now: float,
        *,
        limit: int | None = None,
        idle: float = 0.0,
        skipped: Collection[str] = (),
        claim: bool = False,
    ) -> list[DueTurn]:
        self.enter()
        return await self.inner.due(now, limit=limit, idle=idle, skipped=skipped, claim=claim)


async def calls_before_the_first_turn(turns: int) -> tuple[int, int]:
    """Return the store calls, and the journals that are read, before a worker's first model call."""
    store, counted = Counting(MemoryStore()), list[tuple[int, int]]()

    def reply(request: ModelRequest) -> str:  # noqa: ARG001 (a script has it)
        counted.append((store.calls, len(store.folded)))
        return "Done."

    engine = Engine(model=ScriptedModel(reply, repeat=True), store=store, runtime=Local(concurrency=4, every=OFTEN))
    for _ in range(turns):
        await engine.submit(AGENT, "hi")
    store.calls = 0
    async with working(engine):
        await until(lambda: counted)
    return counted[0]


@pytest.mark.slow
async def test_first_turn_of_a_long_queue_takes_as_few_calls_as_of_a_short_one() -> None:
    """One call claims a turn for each free place. Only claimed turns are read."""
    short, long = await calls_before_the_first_turn(8), await calls_before_the_first_turn(4000)
    assert short == long
    assert long[1] <= 4


async def test_worker_drives_turns_in_the_order_of_submission() -> None:
    store, prompts = MemoryStore(), list[str]()

    def reply(request: ModelRequest) -> str:
        prompts.append(request.messages[-1].text)
        return "Done."

    engine = Engine(model=ScriptedModel(reply, repeat=True), store=store, runtime=Local(concurrency=2, every=OFTEN))
    queued = [f"prompt {number}" for number in range(20)]
    turns = [await engine.submit(AGENT, prompt) for prompt in queued]
    async with working(engine):
        assert await ended(engine, turns[-1]) is Outcome.FINISHED
        assert await ended(engine, turns[-2]) is Outcome.FINISHED
    assert prompts == queued


async def test_two_workers_read_no_turn_twice(tmp_path: Path) -> None:
    """A turn is claimed before its journal is read, by the worker that has a free place for it."""
    stores = [Counting(SqliteStore(tmp_path / "turns.db")) for _ in range(2)]
    model = ScriptedModel("Done.", repeat=True)
    engines = [Engine(model=model, store=store, runtime=Local(concurrency=3, every=OFTEN)) for store in stores]
    turns = [await engines[0].submit(AGENT, "hi") for _ in range(30)]
    for store in stores:
        store.folded.clear()
    async with working(*engines):
        for turn in turns:
            with anyio.fail_after(60):
                while (await stores[0].inner.get(turn)).status.outcome is None:  # noqa: ASYNC110 (as above)
                    await anyio.sleep(0.001)
    assert sorted(stores[0].folded + stores[1].folded) == sorted(turns)
    assert all(store.folded for store in stores)
    for store in stores:
        await store.aclose()


async def test_undrivable_turns_do_not_block_later_turns(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    """Though there are more of them than places. Each is tried once a minute."""
    rich, poor = gate.engine(store := MemoryStore()), Engine(model=ScriptedModel("Done."), store=store)
    blocked_turns = [await rich.submit(Agent(name="Holder", tools=["hold"]), "hi") for _ in range(7)]
    fine = await poor.submit(AGENT, "hi")
    poor = Engine(model=ScriptedModel("Done."), store=store, runtime=Local(concurrency=2, every=3600.0))
    with caplog.at_level(logging.WARNING, "turnwright"):
        async with working(poor):
            assert await ended(poor, fine) is Outcome.FINISHED
    assert [line.split()[1] for line in warnings(caplog)] == blocked_turns
    assert {(await store.get(turn)).owner for turn in blocked_turns} == {None}


class Counted(StoreWrapper):
    """A store that counts the looks for due turns."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.looks = 0

    async def due(
        self,
        now: float,
        *,
        limit: int | None = None,
        idle: float = 0.0,
        skipped: Collection[str] = (),
        claim: bool = False,
    ) -> list[DueTurn]:
        """See `Store.due`."""
        self.looks += 1
        return await super().due(now, limit=limit, idle=idle, skipped=skipped, claim=claim)


@pytest.mark.parametrize(("places", "looks"), [(1, 7), (8, 4)])
async def test_worker_looks_after_a_turn_only_if_all_places_were_taken(places: int, looks: int) -> None:
    """At its start, after each of three submissions, and with one place after a turn that filled it."""
    store, stop = Counted(), anyio.Event()
    runtime = Local(every=3_600.0, concurrency=places)
    model = ScriptedModel("Done.", repeat=True)
    async with Engine(model=model, store=store, runtime=runtime) as engine, anyio.create_task_group() as group:
        group.start_soon(engine.run_worker, stop)
        await anyio.wait_all_tasks_blocked()
        for _ in range(3):
            turn_id = await engine.submit(AGENT, "go")
            assert [event async for event in engine.events(turn_id, wait=True)]
            await anyio.wait_all_tasks_blocked()
        stop.set()
    assert store.looks == looks
