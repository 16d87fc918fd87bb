"""A driver that stalls is overtaken: one of the two wins, the other stops, and starts no tool that it may not."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from tests.campaigns.faults.audit import audit
from tests.campaigns.faults.plan import Plan
from tests.campaigns.faults.trial import Evidence
from tests.campaigns.faults.worker_process import Role, act, engine_of

from turnwright import Engine, TurnBusyError, TurnResult
from turnwright.store import open_store
from turnwright_states import CallStatus, Outcome
from turnwright_states import facts as f
from turnwright_testing.faults import DriverProcess, KillAt, Witness

pytestmark = pytest.mark.anyio

#: The first call of the first step is where the driver stalls; one call runs at a time.
PLAN = Plan(seed=0, number=0, steps=((("dwell", 100), ("send", 1), ("put", 2)), (("send", 3),)), parallel=1)


def wait_until(holds: Callable[[], object]) -> None:
    """Wait for something that another process brings about."""
    ends = time.monotonic() + 100
    while not holds():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.005)


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    """The address of a new database."""
    return f"sqlite:///{tmp_path / 'turns.db'}"


@pytest.fixture
def postgres(new_database: Callable[[], str]) -> str:
    """Likewise: nobody else is to lose a lock here."""
    return new_database()


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest) -> str:
    value: str = request.getfixturevalue(request.param)
    return value


def take_lock_away(address: str, owner: str) -> None:
    """Remove the lock as an operator or a network may: the driver lives, and looks dead to other processes."""
    if address.startswith("sqlite:///"):
        path = Path(address.removeprefix("sqlite:///"))
        path.with_name(f"{path.name}-owner-{owner}").unlink()
        return
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(address, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
            (f"turnwright driver {owner}",),
        ).fetchall()
    assert ended == [(True,)]


async def test_overtaken_driver_writes_and_starts_nothing(tmp_path: Path, address: str) -> None:
    """It was stopped while a tool ran, and its lock was taken away. The tool comes to its end, and that is all."""
    witness = Witness(tmp_path / "witness")
    with DriverProcess(act, Role(PLAN, address, witness.path)) as zombie:
        wait_until(witness.ran)
        zombie.stop()
        async with engine_of(Role(PLAN, address, witness.path), witness) as engine:
            (row,) = await engine.store.turns()
            with pytest.raises(TurnBusyError):
                await engine.resume(row.id)
            take_lock_away(address, row.owner or "")
            turn = await taken_over(engine, row.id)
            written_facts = await engine.store.facts(row.id)
            assert turn.outcome is Outcome.FINISHED
            zombie.go_on()
            assert zombie.wait(100) == 0
            assert await engine.store.facts(row.id) == written_facts
            assert not await engine.store.is_driven(row.id)
    lines = [line.words for line in witness.lines() if line.process == zombie.pid]
    assert lines[-1] == ("fenced", row.id, "1")
    assert [run.call for run in witness.ran() if run.process == zombie.pid] == ["call00001"]
    seqs = [seq for seq, _ in written_facts]
    assert seqs == list(range(1, len(seqs) + 1))
    statuses = {fact.call: fact.status for _, fact in written_facts if isinstance(fact, f.CallSettled)}
    assert statuses == {
        "call00001": CallStatus.UNKNOWN,
        "call00002": CallStatus.OK,
        "call00003": CallStatus.OK,
        "call00004": CallStatus.OK,
    }
    result = audit(Evidence(PLAN, row.id, written_facts, witness.lines()))
    assert {claim: faults for claim, faults in result.faults.items() if faults} == {}


async def taken_over(engine: Engine, turn: str) -> TurnResult:
    """Take a turn up as soon as its driver looks dead."""
    with anyio.fail_after(60):
        while True:
            with suppress(TurnBusyError):
                return await engine.resume(turn)
            await anyio.sleep(0.01)


async def test_simultaneous_resumptions_have_a_single_driver(tmp_path: Path, address: str) -> None:
    """The other waits for it, finds that it has ended, and writes nothing."""
    witness = Witness(tmp_path / "witness")
    with DriverProcess(act, Role(PLAN, address, witness.path, kill=KillAt(number=3))) as dead:
        assert dead.wait(100) == -signal.SIGKILL
    (turn,) = {line.words[1] for line in witness.lines() if line.words[0] == "claimed"}
    role = Role(PLAN, address, witness.path, turn)
    with DriverProcess(act, role) as first, DriverProcess(act, role) as second:
        assert (first.wait(100), second.wait(100)) == (0, 0)
    store = open_store(address)
    facts = await store.facts(turn)
    await store.aclose()
    wrote = {line.process for line in witness.lines() if line.words[0] == "wrote"}
    assert wrote in ({dead.pid, first.pid}, {dead.pid, second.pid})
    result = audit(Evidence(PLAN, turn, facts, witness.lines(), killed=[(dead.pid, KillAt(number=3))]))
    assert {claim: faults for claim, faults in result.faults.items() if faults} == {}
    assert (result.ending, result.recoveries) == ("finished/answered", 1)
