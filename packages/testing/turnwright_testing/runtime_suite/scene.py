"""One test of a runtime: its workers, its clients, and the observations of its turns."""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

import anyio
import pytest

from turnwright._base.ids import root_of
from turnwright.errors import StoreError
from turnwright.journal.result import TurnResult
from turnwright.runtime import Runtime
from turnwright.runtime.engine import Engine
from turnwright_states import CallStatus
from turnwright_states import facts as f
from turnwright_testing.faults.audit import WitnessedTurn
from turnwright_testing.faults.process import DriverProcess
from turnwright_testing.faults.witness import Ran, Witness

from .bench import RuntimeBench
from .worker import AGENT, OLD, Call, Desk, Shift, engine_of, prompt, work

#: Seconds beside the runtime's own patience after which what should have happened did not: far more than it takes.
_LONG: Final = 200.0
#: Between two looks at what should happen.
_LOOK: Final = 0.02


class Scene:
    """The tools of a test. `client` is an engine with the runtime under test, of a process that drives nothing.

    (With a runtime that drives where a turn is run, it drives what it runs.)
    """

    def __init__(self, bench: RuntimeBench, folder: Path) -> None:
        self.bench = bench
        self.witness = Witness(folder / "witness")
        self._processes: list[DriverProcess] = []
        self._engines: list[Engine[Desk]] = []
        self.runtime = bench.make_runtime()
        self.client = self.user(self.runtime)

    async def __aenter__(self) -> Self:
        await self.client.store.migrate()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Kill every worker, and close every engine."""
        for process in self._processes:
            process.kill()
        with anyio.CancelScope(shield=True):
            for engine in self._engines:
                await engine.aclose()

    # Who is there.

    def shift(self, version: int = OLD) -> Shift:
        return Shift(self.bench.address, self.witness.path, self.bench.make_runtime, version)

    def worker(self, version: int = OLD, *, patient: bool = False) -> DriverProcess:
        """Start one more worker, with this release of the tools; a `patient` one has time to end running calls."""
        shift = self.shift(version)
        if patient and self.bench.make_patient:
            shift = replace(shift, make_runtime=self.bench.make_patient)
        process = DriverProcess(work, shift)
        self._processes.append(process)
        return process

    def workers(self, number: int) -> list[DriverProcess]:
        return [self.worker() for _ in range(number)]

    def user(self, runtime: Runtime | None = None) -> Engine[Desk]:
        engine = engine_of(self.shift(), runtime or self.bench.make_runtime())
        self._engines.append(engine)
        return engine

    async def close(self, engine: Engine[Desk]) -> None:
        self._engines.remove(engine)
        await engine.aclose()

    async def told_to_stop(self, process: DriverProcess) -> None:
        """Ask a worker to stop, and return when it has received the signal."""
        os.kill(process.pid, signal.SIGTERM)
        await self.until(
            lambda: (process.pid, ("stops",)) in [(line.process, line.words) for line in self.witness.lines()]
        )

    async def gone(self, process: DriverProcess) -> None:
        """Wait until a worker has ended by itself, without an error."""
        await self.until(lambda: process.ended)
        assert process.wait(0) == 0

    async def restart_store(self) -> None:
        await _restart(self.bench.restart_store, "the store has no server that could be restarted")

    async def restart_service(self) -> None:
        await _restart(self.bench.restart_service, "the runtime has no service that could be restarted")

    # What is done.

    async def submit(self, *steps: Sequence[Call], desk: str = "") -> str:
        """Submit a turn that does these steps, for this desk. Returns its id."""
        return await self.client.submit(AGENT, prompt(*steps), metadata={"desk": desk})

    # What is seen.

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something that other processes bring about."""

        async def look() -> bool:
            return holds()

        await self._until(look)

    async def ended(self, turn: str) -> TurnResult:
        """Wait until a turn has ended, audit its journal and witness, and return how it ended."""
        result = await self._stands(turn, lambda turn_result: turn_result.outcome is not None)
        await self._audit(turn)
        return result

    async def paused(self, turn: str) -> TurnResult:
        """Wait until a turn is paused, and no process owns it."""
        result = await self._stands(turn, lambda turn_result: turn_result.paused)
        await self._let_go_of(turn)
        return result

    async def begun(self, turn: str, *calls: str, times: int = 1) -> int:
        """Wait until all of these calls have begun so often. Returns the process that ran the last one."""
        await self.until(lambda: all(len(self.runs(turn, call)) >= times for call in calls))
        return self.runs(turn, calls[-1])[-1].process

    async def settled(self, turn: str, *calls: str) -> None:
        await self._written(
            turn, lambda facts: set(calls) <= {fact.call for fact in facts if type(fact) is f.CallSettled}
        )

    async def answered(self, turn: str, interrupt: str) -> None:
        await self._written(
            turn, lambda facts: interrupt in {fact.interrupt for fact in facts if type(fact) is f.Answered}
        )

    async def statuses(self, turn: str) -> dict[str, CallStatus]:
        """Return the statuses of the turn's finished calls."""
        facts = await self.client.store.facts(turn)
        return {fact.call: fact.status for _, fact in facts if isinstance(fact, f.CallSettled)}

    async def told(self, turn: str) -> dict[str, str]:
        """Return the texts of the turn's finished calls."""
        facts = await self.client.store.facts(turn)
        return {fact.call: fact.result for _, fact in facts if isinstance(fact, f.CallSettled)}

    def runs(self, turn: str, call: str = "") -> list[Ran]:
        """Return each start of a tool for a turn, or for one call of it."""
        return [run for run in self.witness.ran() if run.turn == turn and call in ("", run.call)]

    def drivers(self, turn: str) -> list[int]:
        """Return the processes that wrote to a turn, in order; the first created it."""
        wrote = [line for line in self.witness.lines() if line.words[:2] == ("wrote", turn)]
        return list({line.words[2]: line.process for line in wrote}.values())

    def process(self, number: int) -> DriverProcess:
        return next(process for process in self._processes if process.pid == number)

    def logged(self) -> str:
        log = self.shift().log
        return log.read_text(encoding="utf-8") if log.exists() else ""

    def account(self) -> str:
        """Return the observations, to explain a failed test."""
        lines = "\n".join(f"{line.process} {' '.join(line.words)}" for line in self.witness.lines())
        return f"This process is {os.getpid()}. What was seen:\n{lines}\nWhat the workers logged:\n{self.logged()}"

    async def _until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        with anyio.fail_after(_LONG + self.bench.patience):
            while not await holds():
                for process in self._processes:
                    if process.ended and process.wait(0) > 0:
                        raise AssertionError(f"worker {process.pid} ended with exit code {process.wait(0)}")
                await anyio.sleep(_LOOK)

    async def _stands(self, turn: str, holds: Callable[[TurnResult], bool]) -> TurnResult:
        results: list[TurnResult] = []

        async def look() -> bool:
            # A server that was restarted may have cut the connection at which it is asked.
            with suppress(StoreError):
                results.append(await self.client.get(turn))
            return bool(results) and holds(results[-1])

        await self._until(look)
        return results[-1]

    async def _written(self, turn: str, holds: Callable[[Sequence[f.Fact]], bool]) -> None:
        async def look() -> bool:
            return holds([fact for _, fact in await self.client.store.facts(turn)])

        await self._until(look)

    async def _let_go_of(self, turn: str) -> None:
        async def look() -> bool:
            return not await self.client.store.is_driven(turn)

        await self._until(look)

    async def _audit(self, turn: str) -> None:
        """Check a turn and its sub-agents' turns: nothing lost, nothing run again, nothing sent unpaired."""
        await self._let_go_of(turn)
        lines, store = self.witness.lines(), self.client.store
        for row in await store.turns():
            if root_of(row.id) != turn:
                continue
            # Who asks a model does not say for which turn.
            own_lines = [line for line in lines if row.id in line.words[:2] or line.words[0] == "asked"]
            inbox = {item.id for item in await store.inbox(row.id)}
            violations = WitnessedTurn(row.id, await store.facts(row.id), own_lines, inbox).violations()
            assert {claim: faults for claim, faults in violations.items() if faults} == {}


class SceneFacts:
    """Part of `RuntimeSuite`: tests that have a scene."""

    @pytest.fixture
    async def scene(self, bench: RuntimeBench, tmp_path: Path) -> AsyncIterator[Scene]:
        """Make the scene of one test. Pytest shows its observations when the test fails."""
        async with Scene(bench, tmp_path) as scene:
            yield scene
            print(scene.account())  # noqa: T201 (pytest shows it)


async def _restart(restart: Callable[[], Awaitable[None]] | None, why_not: str) -> None:
    if restart is None:
        pytest.skip(why_not)
    await restart()
