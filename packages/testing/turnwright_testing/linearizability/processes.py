"""Histories of several processes, which are killed and stopped, and whose clocks jump."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, Literal

import anyio

from turnwright.store import Store, open_store
from turnwright_testing.faults import DriverProcess, JumpingClock

from .calls import Create, Die, StoreResult, TakeClaim
from .client import StoreClient
from .history import HistoryFile, StoreOperation, read_history

#: The processes, the tasks of each, and the calls that each task makes.
_PROCESSES: Final = 3
_TASKS: Final = 2
_CALLS: Final = 12
#: Seconds after which a process that still runs is a fault of the test.
_STUCK: Final = 60.0


@dataclass(frozen=True, slots=True)
class ClientRole:
    """The work of one process: random calls to the store at `address`, recorded in `file`, once `start` exists."""

    address: str
    file: Path
    start: Path
    seed: str
    turns: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Fault:
    """A process is killed, or stopped for so many seconds, so many seconds after its start."""

    process: int
    after: float
    action: Literal["kill", "stop"]
    seconds: float = 0.0


async def act(role: ClientRole) -> None:
    """Make the calls of one process. Its wall clock jumps between them."""
    draw, clock = Random(role.seed), JumpingClock()  # noqa: S311 (a history must be drawn again)
    store, history = open_store(role.address), HistoryFile(role.file)
    clients = [
        StoreClient(f"{role.file.stem}.{number}", store, history, draw, role.turns, role.names)
        for number in range(_TASKS)
    ]

    async def work(client: StoreClient) -> None:
        for _ in range(_CALLS):
            if draw.randrange(10) == 0:
                clock.jump(draw.uniform(-1e6, 1e6))
            await client.act()
            await anyio.sleep(draw.choice((0, 0, 0.001, 0.003)))

    while not role.start.exists():  # noqa: ASYNC110 (another process makes it)
        await anyio.sleep(0.001)
    with clock.everywhere():
        async with anyio.create_task_group() as group:
            for client in clients:
                group.start_soon(work, client)
        await _close(store, history, role.file.stem)


def run_history(address: str, folder: Path, seed: int) -> list[StoreOperation]:
    """Let processes use the store at `address`, and return their calls. `folder` is an empty one for their files.

    The turns have new ids for each seed. Raises `TimeoutError` for a process that does not end.
    """
    draw = Random(seed)  # noqa: S311 (likewise)
    turns = (f"p{seed}", f"p{seed}s/1", f"p{seed}s/2")[: draw.choice((1, 2, 3))]
    own_file = HistoryFile(folder / "parent")
    names = anyio.run(_begin, address, own_file, turns)
    roles = [
        ClientRole(address, folder / f"p{n}", folder / "start", f"{seed}/{n}", turns, names) for n in range(_PROCESSES)
    ]
    running = [DriverProcess(act, role) for role in roles]
    try:
        _disturb(running, roles, own_file, _faults(draw))
        for process in running:
            process.wait(_STUCK)
    finally:
        for process in running:
            process.kill()
    anyio.run(_end, address, own_file, turns)
    return [
        operation for file in (folder / "parent", *(role.file for role in roles)) for operation in read_history(file)
    ]


def _faults(draw: Random) -> list[_Fault]:
    faults: list[_Fault] = []
    for process in range(_PROCESSES):
        after = draw.uniform(0.0, 0.08)
        match draw.choice(("kill", "stop", "both", "none")):
            case "none":
                continue
            case "kill":
                faults.append(_Fault(process, after, "kill"))
            case "stop":
                faults.append(_Fault(process, after, "stop", draw.uniform(0.01, 0.1)))
            case _:
                faults.append(_Fault(process, after, "stop", draw.uniform(0.01, 0.1)))
                faults.append(_Fault(process, after + draw.uniform(0.0, 0.1), "kill"))
    return sorted(faults, key=lambda fault: fault.after)


def _disturb(
    running: Sequence[DriverProcess], roles: Sequence[ClientRole], own_file: HistoryFile, faults: Sequence[_Fault]
) -> None:
    _wait_for(roles)
    roles[0].start.touch()
    start = time.monotonic()
    later: list[tuple[float, DriverProcess]] = []
    for fault in faults:
        time.sleep(max(0.0, start + fault.after - time.monotonic()))
        process = running[fault.process]
        if fault.action == "stop":
            process.stop()
            later.append((time.monotonic() + fault.seconds, process))
            continue
        dies = own_file.now()
        process.kill()
        owners = _owners(roles[fault.process].file)
        own_file.begin("parent", Die(owners), at=dies)  # without an end: a server may notice it at any time
    for at, process in sorted(later, key=lambda entry: entry[0]):
        time.sleep(max(0.0, at - time.monotonic()))
        process.go_on()


def _wait_for(roles: Sequence[ClientRole]) -> None:
    """Wait until every process has opened its file, so that all begin at once."""
    ends = time.monotonic() + _STUCK
    while not all(role.file.exists() for role in roles):
        if time.monotonic() > ends:
            raise TimeoutError(f"a process has not begun after {_STUCK:g} s")
        time.sleep(0.001)


def _owners(file: Path) -> tuple[str, ...]:
    return tuple(
        sorted(
            {operation.call.owner for operation in read_history(file) if isinstance(operation.call, Create | TakeClaim)}
        )
    )


async def _close(store: Store, history: HistoryFile, name: str) -> None:
    """Close the store: its process looks dead from then on."""
    number = history.begin(name, Die((store.owner,)))
    await store.aclose()
    history.end(number, StoreResult())


async def _begin(address: str, history: HistoryFile, turns: Sequence[str]) -> tuple[str, ...]:
    store = open_store(address)
    client = StoreClient("parent", store, history, Random(turns[0]), turns)  # noqa: S311 (likewise)
    await client.create(turns[0], driven=False)
    names = (store.owner,)
    await _close(store, history, "parent")
    return names


async def _end(address: str, history: HistoryFile, turns: Sequence[str]) -> None:
    store = open_store(address)
    client = StoreClient("parent", store, history, Random(turns[0]), turns)  # noqa: S311 (likewise)
    await client.read_all()
    for turn in turns:
        await client.claim(turn)
    await client.read_all()
    await store.aclose()
