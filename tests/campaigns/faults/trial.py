"""One trial: processes drive a turn, are killed, and others resume it, until it ends or pauses."""

import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import anyio

from turnwright._base.ids import root_of
from turnwright.errors import AlreadySettledError, InvalidAnswerError, TurnAlreadyEndedError
from turnwright.journal.answers import Answer
from turnwright.runtime.engine import Engine
from turnwright.store import open_store
from turnwright_states import InterruptKind, State
from turnwright_states.facts import Fact
from turnwright_testing.faults import DriverProcess, Witness, WitnessLine
from turnwright_testing.faults.watched import SUBMITTED

from .plan import Kill, KillAfter, Plan, PlanWord
from .worker_process import Role, act

#: Seconds after which a process that neither ends nor rests is a fault.
_STUCK = 60.0
#: Processes that a turn is given: far more than its pauses and its kills ask for.
_MOST = 60


@dataclass(slots=True)
class Evidence:
    """The observations of one trial, for the audit."""

    plan: Plan
    turn: str = ""
    facts: list[tuple[int, Fact]] = field(default_factory=list)
    lines: list[WitnessLine] = field(default_factory=list)
    #: The processes that were killed while they drove the turn, with the place that was meant.
    killed: list[tuple[int, Kill]] = field(default_factory=list)
    #: Kills that came when the process was over, or before it drove.
    missed: int = 0
    #: Whether somebody aborted the turn while nobody drove it, so that it can have no other end.
    aborted: bool = False
    #: The messages that were accepted, and what still waits in the inbox.
    messages: list[str] = field(default_factory=list)
    #: The results that were accepted, with the keys of their calls.
    results: list[tuple[str, str]] = field(default_factory=list)
    inbox: set[str] = field(default_factory=set)
    #: Why the trial was given up, or a process ended otherwise than it should.
    wrong: str = ""
    #: The facts of the sub-agents' turns.
    below: dict[str, list[tuple[int, Fact]]] = field(default_factory=dict)


async def run_trial(seed: int, number: int, address: str = "") -> Evidence:
    """Run one trial of a campaign. Without an address it has an SQLite file of its own."""
    with tempfile.TemporaryDirectory(prefix="turnwright-") as folder:
        trial = _Trial(
            Plan.of(seed, number), address or f"sqlite:///{folder}/turns.db", Witness(Path(folder, "witness"))
        )
        await trial.run()
        return trial.evidence


class _Trial:
    def __init__(self, plan: Plan, address: str, witness: Witness) -> None:
        self.evidence = Evidence(plan)
        self._plan = plan
        self._address = address
        self._witness = witness
        self._kills = deque(plan.kills)
        self._draw = Random(f"{plan.seed}/{plan.number}/drives")  # noqa: S311 (a trial must be the same again)
        self._pauses = 0

    async def run(self) -> None:
        """Drive the turn until it ends, pauses, or fails; then read its journal."""
        for drive in range(1, _MOST + 1):
            for word in self._plan.words:
                if word.drive == drive and not word.live:
                    await self._say(word)
            if not await self._drive(drive):
                break
        else:
            self.evidence.wrong = f"it still runs after {_MOST} processes"
        await self._read()

    async def _drive(self, drive: int) -> bool:
        kill = self._kills.popleft() if self._kills else None
        before = len(self._witness.lines())
        role = self._role(kill)
        with DriverProcess(act, role) as process:
            await self._accompany(process, kill, drive, before)
            if not process.ended:
                self.evidence.wrong = f"process {drive} neither ended nor rested in {_STUCK:g} s"
                return False
            code = process.wait(0)
        lines = [line for line in self._witness.lines()[before:] if line.process == process.pid]
        self.evidence.turn = self.evidence.turn or next(
            (line.words[1] for line in lines if line.words[0] == "claimed"), ""
        )
        if not self.evidence.turn:
            # A kill may fall between the commit of a new turn and the line that says so: a second turn would be begun.
            self.evidence.turn = await made_turn(self._address)
        if kill is not None and code < 0:
            root = self.evidence.turn
            drove = [line.words[0] for line in lines if line.words[:2] in (("claimed", root), ("released", root))]
            if drove[-1:] == ["claimed"]:
                self.evidence.killed.append((process.pid, kill))
            else:
                self.evidence.missed += 1
            return True
        self.evidence.missed += kill is not None
        if code:
            self.evidence.wrong = f"process {drive} ended with exit code {code}"
            return False
        return self._goes_on(lines)

    def _role(self, kill: Kill | None) -> Role:
        pending = self._pending()
        answers: dict[str, Answer] = {}
        if pending:
            # After a kill somebody else may answer, and not know what was answered; some answer only in part.
            is_other, some = self._draw.randrange(3) == 0, self._draw.randrange(5) == 0
            for name, kind in pending[: 1 if some else None]:
                answers[name] = self._plan.answer(name, kind, self._pauses, is_other=is_other)
        sweep = self._draw.choice((True, False))
        by = self._draw.choice(("ann", "bob"))
        return Role(self._plan, self._address, self._witness.path, self.evidence.turn, answers, by, sweep, kill)

    def _pending(self) -> list[tuple[str, InterruptKind]]:
        """The interrupts that a process last reported."""
        pending: list[tuple[str, InterruptKind]] = []
        latest: list[tuple[str, InterruptKind]] = []
        for line in self._witness.lines():
            if line.words[0] == "pending":
                latest.append((line.words[1], InterruptKind(line.words[2])))
            elif line.words[0] == "stands":
                pending, latest = latest, []
        return pending

    async def _accompany(self, process: DriverProcess, kill: Kill | None, drive: int, before: int) -> None:
        """Wait for the process, and do the plan's actions meanwhile. `before` is the number of lines at its start."""
        words = [word for word in self._plan.words if word.drive == drive and word.live]
        with anyio.move_on_after(_STUCK):
            if isinstance(kill, KillAfter):
                if kill.is_driving:
                    await _until(lambda: len(self._witness.lines()) > before or process.ended)
                await anyio.sleep(kill.seconds)
                process.kill()
            for word in words:
                if word.kind == "settle":
                    await _until(lambda: len(self._submitted(before)) > 0 or process.ended)
                await self._say(word)
            await _until(lambda: process.ended)

    async def _say(self, word: PlanWord) -> None:
        turn = self.evidence.turn or next(
            (line.words[1] for line in self._witness.lines() if line.words[0] == "claimed"), ""
        )
        if not turn:
            return
        async with Engine(store=open_store(self._address)) as engine:
            if (await engine.store.get(turn)).status.outcome is not None:
                return
            if word.kind == "settle":
                await self._settle(engine)
                return
            if word.kind == "abort":
                await engine.abort(turn)
                self.evidence.aborted = self.evidence.aborted or not word.live
                return
            text = f"message-{word.drive}"
            with suppress(TurnAlreadyEndedError):  # it may have ended since we looked
                await engine.steer(turn, text)
                self.evidence.messages.append(text)

    async def _settle(self, engine: Engine) -> None:
        """Give the result of the last job, as its service does."""
        result = f"result-{len(self.evidence.results)}"
        for key in self._submitted()[-1:]:
            with suppress(InvalidAnswerError, AlreadySettledError, TurnAlreadyEndedError):
                if await engine.settle(key, result):
                    self.evidence.results.append((key, result))

    def _submitted(self, before: int = 0) -> list[str]:
        """Return the keys of the submitted jobs, in the lines after `before`."""
        return [line.words[1] for line in self._witness.lines()[before:] if line.words[0] == SUBMITTED]

    def _goes_on(self, lines: list[WitnessLine]) -> bool:
        state = next((line.words[1] for line in reversed(lines) if line.words[0] == "stands"), "")
        if not state:
            self.evidence.wrong = "its only driver was overtaken"
            return False
        if State(state) is not State.PAUSED:
            if State(state).outcome is None:
                self.evidence.wrong = f"it was left in {state}"
            return False
        self._pauses += 1
        return self._plan.answers is None or self._pauses <= self._plan.answers

    async def _read(self) -> None:
        self.evidence.lines = self._witness.lines()
        if not self.evidence.turn:
            return
        store = open_store(self._address)
        try:
            self.evidence.facts = await store.facts(self.evidence.turn)
            for row in await store.turns():
                if root_of(row.id) == self.evidence.turn:
                    self.evidence.inbox |= {item.id for item in await store.inbox(row.id)}
                    if row.id != self.evidence.turn:
                        self.evidence.below[row.id] = await store.facts(row.id)
            if await store.is_driven(self.evidence.turn):
                self.evidence.wrong = self.evidence.wrong or "it is driven, and nobody drives it"
            else:
                await store.delete(self.evidence.turn)  # a trial after this one may use the store, and sweeps it
        finally:
            await store.aclose()


async def made_turn(address: str) -> str:
    """Return the id of the trial's turn in its store; empty if there is none."""
    store = open_store(address)
    try:
        return next((row.id for row in await store.turns() if root_of(row.id) == row.id), "")
    finally:
        await store.aclose()


async def _until(holds: Callable[[], bool]) -> None:
    """Wait for a condition that another process makes true."""
    while not holds():  # noqa: ASYNC110 (nobody in this process could set an event)
        await anyio.sleep(0.002)
