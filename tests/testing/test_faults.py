"""The kit that injects faults does what it says."""

import inspect
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.campaigns.faults.plan import Kill, KillIn, Plan
from tests.campaigns.faults.worker_process import Role, act
from tests.engine.store.outbox_facts import OutboxFacts
from tests.engine.store.summary_facts import SummaryFacts

from turnwright import Agent, Engine, StoreError
from turnwright.model.scripted import ScriptedModel
from turnwright.store import Claim, MemoryStore, NewTurn, SqliteStore, Store
from turnwright.tools import ToolContext
from turnwright_testing.faults import (
    DriverProcess,
    FaultyStore,
    JumpingClock,
    KillAt,
    Ran,
    StoreCall,
    StoreWrapper,
    Witness,
    WitnessLine,
    full_disk,
)
from turnwright_testing.store_suite import Bench, StoreSuite

pytestmark = pytest.mark.anyio

R = TypeVar("R")

AGENT = Agent(name="Clerk")
#: One step with two calls, one after the other, and the answer: 1-2 as it is made, then facts 3 to 9.
PLAN = Plan(seed=0, number=0, steps=((("put", 1), ("put", 2)),), parallel=1)
KINDS = ["model_replied", *(["call_started", "call_settled"] * 2), "step_finished", "step_started"]


class WrappedBench:
    """Memory behind a wrapper that changes nothing."""

    def __init__(self) -> None:
        self._store = StoreWrapper(MemoryStore())

    async def open(self) -> Store:
        return self._store

    async def bury(self, store: Store) -> None:
        await store.aclose()


class TestStoreWrapper(StoreSuite, SummaryFacts, OutboxFacts):
    """A wrapper passes everything on."""

    @pytest.fixture
    def bench(self) -> Bench:
        return WrappedBench()


class SilentStore(StoreWrapper):
    """Notes the names of calls, and makes none."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.names: list[str] = []

    async def around(self, call: StoreCall, make: Callable[[], Awaitable[R]]) -> R:
        del make
        self.names.append(call.name)
        raise StoreError("not made")


async def test_wrapper_passes_every_call_through_one_method() -> None:
    """A call that goes past `around` would never fail on purpose."""
    store = SilentStore()
    methods = {name: value for name, value in vars(StoreWrapper).items() if inspect.iscoroutinefunction(value)}
    for outside in ("around", "due", "aclose"):
        del methods[outside]
    new = NewTurn(id="t", session="s", agent="Clerk", model="scripted", created_at=0.0)
    values = {"new": new, "claim": Claim("t", 1, 0), "facts": (), "status": None, "items": (), "kinds": ()}
    for method in methods.values():
        _, *parameters = inspect.signature(method).parameters.values()
        needed = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
        starred = {parameter.name for parameter in parameters if parameter.kind is parameter.VAR_POSITIONAL}
        with pytest.raises(StoreError, match="not made"):
            await method(store, *(values.get(name, "t") for name in needed if name not in starred))
    assert store.names == list(methods)


async def test_dead_store_has_no_effect_and_can_be_closed() -> None:
    store = FaultyStore(MemoryStore(), at=1)
    with pytest.raises(StoreError, match="append 1 fails, as planned"):
        await Engine(model=ScriptedModel("Hello."), store=store).run(AGENT, "hi")
    for call in (store.turns(), store.get("t"), store.inbox("t"), store.migrate(), store.delete("t"), store.post()):
        with pytest.raises(StoreError, match="the store is dead"):
            await call
    await store.aclose()


# Processes.


def wait_until(holds: Callable[[], object]) -> None:
    """Wait for something that another process brings about."""
    ends = time.monotonic() + 100
    while not holds():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.005)


def role(folder: Path, kill: Kill | None = None, plan: Plan = PLAN) -> Role:
    return Role(plan, f"sqlite:///{folder / 'turns.db'}", folder / "witness", kill=kill)


async def left_in(folder: Path) -> list[str]:
    """The kinds of the facts after the first two."""
    store = SqliteStore(folder / "turns.db")
    rows = await store.turns()
    kinds = [fact.kind for _, fact in await store.facts(rows[0].id)] if rows else []
    await store.aclose()
    assert kinds[:2] in (["turn_started", "step_started"], [])
    return kinds[2:]


@pytest.mark.parametrize(
    ("kill", "remaining"),
    [
        (KillAt(), 0),
        (KillAt(after=True), 2),
        (KillAt(number=3, after=True), 7),
        (KillAt(fact="call_settled"), 2),
        (KillAt(fact="call_settled", number=2), 4),
        (KillAt(fact="call_settled", after=True), 4),
        (KillAt(seq=5), 2),
        (KillAt(seq=5, after=True), 4),
        (KillAt("create", after=True), 0),
        (KillIn("tool", 2), 4),
        (KillIn("model", 2), 7),
    ],
    ids=str,
)
async def test_process_dies_at_the_chosen_place(tmp_path: Path, kill: Kill, remaining: int) -> None:
    """And what it had written before is there."""
    with DriverProcess(act, role(tmp_path, kill)) as process:
        assert process.wait(100) == -signal.SIGKILL
    assert await left_in(tmp_path) == KINDS[:remaining]


async def test_process_killed_before_creating_the_turn_leaves_no_turn(tmp_path: Path) -> None:
    with DriverProcess(act, role(tmp_path, KillAt("create"))) as process:
        assert process.wait(100) == -signal.SIGKILL
    assert await left_in(tmp_path) == []


async def test_surviving_process_ends_the_turn(tmp_path: Path) -> None:
    """Its place of death may never come."""
    with DriverProcess(act, role(tmp_path, KillAt(fact="paused"))) as process:
        assert process.wait(100) == 0
        process.kill()
        process.stop()
        assert process.wait(0) == 0
    assert await left_in(tmp_path) == [*KINDS, "model_replied", "step_finished", "turn_ended"]


def test_stopped_process_is_idle_until_continued(tmp_path: Path) -> None:
    slow = Plan(seed=0, number=0, steps=tuple((("dwell", n),) for n in range(10, 60)))
    witness = Witness(tmp_path / "witness")
    with DriverProcess(act, role(tmp_path, plan=slow)) as process:
        wait_until(witness.ran)
        process.stop()
        with pytest.raises(TimeoutError, match=rf"process {process.pid} still runs after 0\.05 s"):
            process.wait(0.05)
        stands = witness.lines()
        with pytest.raises(TimeoutError):
            process.wait(0.05)
        assert witness.lines() == stands
        process.go_on()
        wait_until(lambda: witness.lines() != stands)
        assert not process.ended
    assert process.wait(0) == -signal.SIGKILL


def test_witness_lists_started_and_ended_runs(tmp_path: Path) -> None:
    """The kill came while the second tool ran."""
    with DriverProcess(act, role(tmp_path, KillIn("tool", 2))) as process:
        process.wait(100)
    witness = Witness(tmp_path / "witness")
    (turn,) = {execution.turn for execution in witness.ran()}
    assert witness.ran() == [
        Ran(process.pid, turn, "call00001", 1, ended=True),
        Ran(process.pid, turn, "call00002", 1, ended=False),
    ]


def test_witness_without_writers_has_no_lines(tmp_path: Path) -> None:
    assert Witness(tmp_path / "witness").lines() == []


def test_witness_lines_are_complete_and_in_order(tmp_path: Path) -> None:
    witness = Witness(tmp_path / "witness")
    with witness.runs(ToolContext(turn_id="t1", call_id="call00001", attempt=2)):
        witness.note("in", "between")
    assert witness.lines() == [
        WitnessLine(os.getpid(), ("t1", "call00001", "2", "start")),
        WitnessLine(os.getpid(), ("in", "between")),
        WitnessLine(os.getpid(), ("t1", "call00001", "2", "end")),
    ]


# The disk.


def test_full_disk_limits_files_and_space_returns_afterwards(tmp_path: Path) -> None:
    """The bytes that fit are written: the rest of the same write is refused."""
    file = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    with full_disk(1000):
        assert os.write(file, b"x" * 1500) == 1000
        with pytest.raises(OSError, match="File too large"):
            os.write(file, b"x")
    assert os.write(file, b"x" * 500) == 500
    os.close(file)


# The clock.


def test_clock_jumps_forward_and_backward() -> None:
    clock = JumpingClock()
    clock.jump(3600)
    assert clock() - time.time() == pytest.approx(3600, abs=1)
    clock.jump(-7200)
    assert clock() - time.time() == pytest.approx(-3600, abs=1)


def test_fake_clock_replaces_every_clock() -> None:
    clock = JumpingClock()
    clock.jump(1e6)
    with clock.everywhere():
        assert time.time() == pytest.approx(clock(), abs=1)
        assert clock() - clock.off == pytest.approx(clock() - 1e6, abs=1)
    assert time.time() == pytest.approx(clock() - 1e6, abs=1)
