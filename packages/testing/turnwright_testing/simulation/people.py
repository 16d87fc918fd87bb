"""People and accidents: what happens to the turns from outside, each at a chosen time."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import anyio

from turnwright.driver.admission import TurnOptions
from turnwright.errors import InvalidAnswerError
from turnwright.journal.answers import Answer, settled
from turnwright.journal.result import TurnResult
from turnwright.transcript.events import FactEvent, TurnEndedEvent, TurnPausedEvent
from turnwright_states import DECISIONS, Decision
from turnwright_states import facts as f
from turnwright_testing.behavior import Execution

from .world import FOLLOWS, RETURNS, Process, World

#: Actions, and how often each is chosen.
_ACTIONS: Final = {
    "nothing": 1,
    "resume": 5,
    "answer": 6,
    "message": 2,
    "steer": 3,
    "abort": 1,
    "die": 3,
    "lose the lock": 2,
    "overtake": 3,
    "follow": 2,
    "jump": 1,
    "work": 1,
    "recover": 1,
}
#: Seconds before an action.
_WAITS: Final = (0.0, 0.02, 0.5, 3.0, 30.0)
_MOST_ACTIONS: Final = 5
#: Rounds of the end, in which a process is asked for every turn that has not ended.
_ROUNDS: Final = 40
#: Seconds that calls have to return when all turns have ended.
_RETURNS_WITHIN: Final = 300.0
_SESSION: Final = "simulated"
_PEOPLE: Final = ("ann", "bob")


class People:
    """The actors of one schedule. `group` runs the calls that they make."""

    def __init__(self, world: World, group: anyio.abc.TaskGroup) -> None:
        self._world = world
        self._group = group
        self._numbers = 0
        self._stopping = anyio.Event()

    async def live(self) -> None:
        """Begin a turn, let people act, and then bring every turn to its end."""
        world = self._world
        world.submitted = self._submit
        self._begin(world.new_process())
        async with anyio.create_task_group() as actors:
            for _ in range(world.choices.below("people", 4)):
                actors.start_soon(self._act)
        world.calm = True
        await self._finish()
        self._stopping.set()
        await self._await_returns()
        for process in world.processes:
            await process.engine.aclose()

    async def _act(self) -> None:
        choices = self._world.choices
        for _ in range(1 + choices.below("people", _MOST_ACTIONS)):
            await anyio.sleep(choices.of("people", _WAITS))
            self._do(list(_ACTIONS)[choices.weighted("action", list(_ACTIONS.values()))])

    def _do(self, action: str) -> None:
        world, process = self._world, self._world.living()
        turns = list(world.roots())
        if action == "die":
            world.note(process.owner, "dies")
            process.die()
        elif action == "lose the lock":
            self._lose_lock(process)
        elif action == "overtake":
            self._overtake(turns)
        elif action == "jump":
            world.jump(world.choices.of("people", (3600.0, -3600.0)))
        elif action == "work":
            self._start(process, "run_worker", partial(process.engine.run_worker, self._stopping))
        elif action == "recover":
            self._start(process, "recover", process.engine.recover)
        elif action == "message":
            self._begin(process)
        elif turns and action != "nothing":
            self._for_turn(action, process, world.choices.of("people", turns))

    def _for_turn(self, action: str, process: Process, turn: str) -> None:
        engine = process.engine
        match action:
            case "resume":
                self._start(process, f"resume {turn}", partial(engine.resume, turn, agent=self._world.agent))
            case "answer":
                self._start(process, f"answer {turn}", partial(self._answer, process, turn))
            case "steer":
                self._numbers += 1
                self._start(process, f"steer {turn}", partial(self._steer, process, turn, f"note {self._numbers}"))
            case "abort":
                self._start(process, f"abort {turn}", partial(engine.abort, turn))
            case "follow":
                self._start(process, f"follow {turn}", partial(self._follow, process, turn))

    def _start(self, process: Process, action: str, work: Callable[[], Awaitable[object]]) -> None:
        self._group.start_soon(self._world.call, process, action, work, self._world.opened(process, action))

    def _begin(self, process: Process) -> None:
        self._numbers += 1
        prompt, agent = f"hi {self._numbers}", self._world.agent
        self._world.prompts.append(prompt)
        match self._world.choices.below("begin", 3):
            case 1:
                self._start(process, f"start {prompt}", partial(self._start_turn, process, prompt))
            case 2:
                self._start(process, f"stream {prompt}", partial(self._stream, process, prompt))
            case _:
                run = partial(process.engine.run, agent, prompt, **self._options())
                self._start(process, f"run {prompt}", run)

    def _options(self) -> TurnOptions:
        return TurnOptions(session=_SESSION, metadata=self._world.metadata)

    async def _start_turn(self, process: Process, prompt: str) -> TurnResult:
        handle = await process.engine.start(self._world.agent, prompt, **self._options())
        return await handle.result()

    async def _stream(self, process: Process, prompt: str) -> None:
        async with process.engine.stream(self._world.agent, prompt, **self._options()) as events:
            async for _ in events:
                pass

    def _lose_lock(self, process: Process) -> None:
        """Let a process look dead for a while, as when its machine stalls or its connection breaks."""
        self._world.note(process.owner, "loses its lock")
        self._world.disk.held_locks.discard(process.owner)
        self._group.start_soon(self._regain_lock, process)

    async def _regain_lock(self, process: Process) -> None:
        world = self._world
        await anyio.sleep(world.choices.of("people", (0.5, 5.0, 60.0)))
        if process.alive:
            world.note(process.owner, "has its lock again")
            world.disk.held_locks.add(process.owner)

    def _overtake(self, turns: Sequence[str]) -> None:
        """Let a process lose its lock while it drives a turn, and another one resume the turn at once."""
        world = self._world
        drivers = [
            process
            for process in world.processes
            if process.alive and any(turn in process.store.driven_turns for turn in turns)
        ]
        if drivers:
            stalled_process = world.choices.of("process", drivers)
            turn = next(turn for turn in turns if turn in stalled_process.store.driven_turns)
            self._lose_lock(stalled_process)
            other_processes = [
                process for process in world.processes if process.alive and process is not stalled_process
            ]
            other_process = world.choices.of("process", other_processes) if other_processes else world.new_process()
            self._for_turn("resume", other_process, turn)

    async def _answer(self, process: Process, turn: str) -> TurnResult:
        """Answer some or all interrupts, with any decision that each takes."""
        choices, result = self._world.choices, await process.engine.get(turn)
        interrupts = result.interrupts[: choices.of("answer", (None, 1))]
        answers = {
            interrupt.id: _answer_with(choices.of("answer", DECISIONS[interrupt.kind])) for interrupt in interrupts
        }
        person = choices.of("answer", _PEOPLE)
        return await process.engine.resume(turn, answers, agent=self._world.agent, by=person)

    def _submit(self, execution: Execution) -> None:
        """Let a service do the job of a call: it gives the result early or late, sometimes twice, or never."""
        for _ in range(self._world.choices.of("service", (1, 1, 2, 0))):
            self._numbers += 1
            self._group.start_soon(self._serve, execution, f"film {self._numbers}")

    async def _serve(self, execution: Execution, result: str) -> None:
        world = self._world
        await anyio.sleep(world.choices.of("service", _WAITS))
        process, key = world.living(), f"{execution.turn}:{execution.call}"

        async def settle() -> None:
            if await process.engine.settle(key, result, by="service"):
                world.results.append((execution.turn, execution.call, result))

        action = f"settle {key}"
        await world.call(process, action, settle, world.opened(process, action))

    async def _steer(self, process: Process, turn: str, text: str) -> None:
        await process.engine.steer(turn, text)
        self._world.messages.append((turn, text))

    async def _follow(self, process: Process, turn: str) -> None:
        """Read a turn's events. Those of facts come once, in order, and the last one is there if the turn has ended."""
        world, seq, last = self._world, 0, None
        async for event in process.engine.events(turn, wait=world.choices.one_in("people", 2)):
            if isinstance(event, FactEvent | TurnPausedEvent | TurnEndedEvent):
                if event.seq <= seq and not isinstance(event, TurnPausedEvent):
                    world.violate(FOLLOWS, f"{process.owner} read event {event.seq} of {turn} after event {seq}")
                seq = max(seq, event.seq)
            last = event
        facts = world.disk.facts_now(turn)
        if isinstance(last, TurnEndedEvent) and seq != len(facts):
            world.violate(FOLLOWS, f"{process.owner} followed {turn} up to fact {seq} of {len(facts)}")

    async def _finish(self) -> None:
        """Bring every turn to its end, as a program would that starts again and asks a person."""
        world = self._world
        open_turns: list[str] = []
        for number in range(_ROUNDS):
            open_turns = [turn for turn in world.roots() if not self._ended(turn)]
            if not open_turns and not any(call.endswith(tuple(world.prompts)) for call in world.open_calls.values()):
                return
            if number == _ROUNDS // 2:  # a turn that its living process failed to release
                for process in world.processes:
                    process.die()
            process = world.living()
            for turn in open_turns:
                action = f"finish {turn}"
                await world.call(process, action, partial(self._go_on, process, turn), world.opened(process, action))
            await anyio.sleep(2.0)
        for turn in open_turns:  # calls that wait are reported later
            world.violate(RETURNS, f"turn {turn} has not ended after {_ROUNDS} resumptions")

    async def _go_on(self, process: Process, turn: str) -> TurnResult:
        result = await process.engine.get(turn)
        answers = {interrupt.id: _answer_with(DECISIONS[interrupt.kind][0]) for interrupt in result.interrupts}
        for person in _PEOPLE:  # one of whom may have approved already
            with suppress(InvalidAnswerError):  # some have expired: a resumption rejects them
                return await process.engine.resume(turn, answers, agent=self._world.agent, by=person)
        return await process.engine.resume(turn, agent=self._world.agent)

    def _ended(self, turn: str) -> bool:
        return isinstance(self._world.disk.facts_now(turn)[-1], f.TurnEnded)

    async def _await_returns(self) -> None:
        world = self._world
        with anyio.move_on_after(_RETURNS_WITHIN):
            while world.open_calls:  # noqa: ASYNC110 (each call removes itself)
                await anyio.sleep(1.0)
        for call in world.open_calls.values():
            world.violate(RETURNS, f"{call} has not returned {_RETURNS_WITHIN:g} s after the last turn's end")
        for process in world.processes:
            for scope in tuple(process.scopes):
                scope.cancel()


def _answer_with(decision: Decision) -> Answer:
    return settled("yes") if decision is Decision.SETTLE else Answer(decision, "yes")
