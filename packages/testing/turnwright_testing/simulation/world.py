"""The world of one schedule: the processes, their journal, the virtual clock, and everything that is chosen."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel

from turnwright._base.ids import root_of
from turnwright.agent import Agent
from turnwright.context import JsonObject
from turnwright.driver.subagents import AgentTool
from turnwright.errors import (
    AlreadySettledError,
    ConfigError,
    InvalidAnswerError,
    LeaseLostError,
    SessionBusyError,
    StoreError,
    TurnAlreadyEndedError,
    TurnBusyError,
)
from turnwright.journal.result import TurnResult
from turnwright.model.prices import Price
from turnwright.model.protocol import ModelRequest
from turnwright.model.retry import Backoff
from turnwright.runtime.engine import Engine
from turnwright.tools import Tool
from turnwright.tools.errors import describe
from turnwright.transcript.events import TurnEvent
from turnwright_states import Limits
from turnwright_states import facts as f
from turnwright_testing.behavior import Execution
from turnwright_testing.faults.store import Fault
from turnwright_testing.invariants import may_be_repeated

from .choices import Choices
from .disk import Disk, ProcessStore
from .model import SimulatedModel
from .tools import SimulatedStage

#: When a schedule begins, in seconds since the Unix epoch.
EPOCH: Final = 1_700_000_000.0
#: Seconds of virtual time that a delay may take, and how often each is chosen.
_DELAYS: Final = (0.0, 0.001, 0.05, 1.0, 8.0)
_DELAY_WEIGHTS: Final = (60, 20, 12, 6, 2)
#: One call of a store, a model or a tool in so many fails, or its process dies; 0 is none.
_FAULT_EVERY: Final = (0, 40, 10)
_FAULTS: Final[tuple[Fault, ...]] = ("die before", "die after", "fail before", "fail after")
_MOST_FAULTS: Final = 5
#: The engine's limits, over which the agent lays its own.
_LIMITS: Final = (
    Limits(),
    Limits(steps=2),
    Limits(steps=4, concluding="within"),
    Limits(tool_calls=2),
    Limits(seconds=3.0),
    Limits(tokens=60),
    Limits(steps=0),
    Limits(steps=3, cost=50.0),
    Limits(doom_threshold=2, doom_response="ask", nudges=1),
    Limits(max_pauses=1, max_retries=1),
)

RAISES: Final = "an engine raises only what other processes, people and faults cause"
DURABLE: Final = "facts are in the journal before anything follows from them"
RETURNS: Final = "nobody waits for ever"
FOLLOWS: Final = "a follower reads each fact once, in order"
KEEPS: Final = "no accepted message or result is lost"
MODEL_CALLS: Final = "model calls <= (allowance + 1) x (1 + max_retries) + takeovers"
CLAIMS: Final = (RAISES, DURABLE, RETURNS, FOLLOWS, KEEPS, MODEL_CALLS)

#: A token costs one, so that budgets of money are spent as those of tokens are.
_PRICE: Final = Price(input=1_000_000, output=1_000_000)
#: Errors of a call that other processes or people cause.
_RACES: Final = (
    AlreadySettledError,
    TurnBusyError,
    LeaseLostError,
    SessionBusyError,
    InvalidAnswerError,
    TurnAlreadyEndedError,
)


@dataclass
class Process:
    """One process: its engine, and the calls that run in it."""

    owner: str
    store: ProcessStore
    engine: Engine[None]
    scopes: set[anyio.CancelScope] = field(default_factory=set)

    @property
    def alive(self) -> bool:
        return not self.store.dead

    def die(self) -> None:
        """End the process: nothing that it does from here on reaches the journal."""
        self.store.close()
        for scope in tuple(self.scopes):
            scope.cancel()


class World:
    """See the module. `violations` are the broken promises that were seen while the schedule ran."""

    def __init__(
        self,
        agent: Agent[None, object],
        tools: Sequence[Tool],
        build: Callable[..., Engine[None]],
        choices: Choices,
        metadata: JsonObject,
    ) -> None:
        self.choices = choices
        self.metadata = metadata
        self.agent = agent.model_copy(update={"model": None})
        self.disk = Disk()
        #: The evidence for each broken claim.
        self.violations: dict[str, list[str]] = {}
        self.trace: list[str] = []
        self.processes: list[Process] = []
        #: Requests of each root turn, by its prompt.
        self.requests: dict[str, list[ModelRequest]] = {}
        #: The prompts of root turns, and the messages that were accepted for turns, in their order.
        self.prompts: list[str] = []
        self.messages: list[tuple[str, str]] = []
        #: Does the job of a call elsewhere, and gives its result.
        self.submitted: Callable[[Execution], None] = lambda _: None
        #: The turn and the call of each result that was accepted from outside, with the result.
        self.results: list[tuple[str, str, str]] = []
        #: From here on nothing fails, and nothing takes long.
        self.calm = False
        #: Calls that have not returned, for the report.
        self.open_calls: dict[int, str] = {}
        self.stage = SimulatedStage(self)
        self._build = build
        self.tools = tools
        self._faults = 0
        self._calls = 0
        limits = choices.of("mode", _LIMITS)
        self._limits = Limits() if limits.steps == 0 and agent.output_type is not None else limits
        #: The reason why the agent cannot run at all.
        self.cannot_run: ConfigError | None = None
        self._parallel = choices.of("mode", (8, 1, 2))
        self._slow = choices.below("mode", 2)
        self._fault_every = choices.of("mode", _FAULT_EVERY)
        self._order = choices.below("mode", 3)
        self._wall = 0.0
        #: The loop's time.
        self.clock: Callable[[], float] = lambda: 0.0

    # Time and order.

    def choose_next(self, ready: int) -> int:
        """Choose which of the ready callbacks runs."""
        if self._order == 0 or (self._order == 1 and not self.choices.one_in("order", 4)):
            return 0
        return self.choices.below("order", ready)

    def now(self) -> float:
        """Return the wall clock, which jumps."""
        return EPOCH + self.clock() + self._wall

    def jump(self, seconds: float) -> None:
        """Move the wall clock of all processes."""
        self._wall += seconds
        self.note("clock", f"jumps by {seconds:g} s")

    async def pause(self, where: str) -> None:
        """Let a chosen time pass."""
        is_slow = self._slow and not self.calm
        seconds = _DELAYS[self.choices.weighted(where, _DELAY_WEIGHTS)] if is_slow else 0.0
        if seconds:
            await anyio.sleep(seconds)
        else:
            await anyio.lowlevel.checkpoint()

    def fault(self) -> Fault:
        """See `Surroundings.fault`."""
        if not self._fault_every or self.calm or self._faults >= _MOST_FAULTS:
            return ""
        if not self.choices.one_in("fault", self._fault_every):
            return ""
        self._faults += 1
        return self.choices.of("fault kind", _FAULTS)

    def _maybe_die(self, owner: str) -> None:
        """End a process in the middle of a model call or a tool's work, by choice."""
        if self.fault().startswith("die"):
            self.note(owner, "dies at work")
            next(process for process in self.processes if process.owner == owner).die()

    # Processes.

    def new_process(self) -> Process:
        """Begin another process."""
        owner = f"p{len(self.processes) + 1}"
        store = ProcessStore(self.disk, owner, self, inline=self._slow == 0)
        engine = self._build(
            model=SimulatedModel(owner, self),
            tools=[self._tool(tool, owner) for tool in self.tools],
            store=store,
            limits=self._limits,
            prices={SimulatedModel.name: _PRICE},
            backoff=Backoff(initial=0.1, maximum=1.0),
            now=self.now,
            clock=self.clock,
            on_event=(partial(self._check_published, owner),),
            max_parallel_tools=self._parallel,
        )
        process = Process(owner, store, engine)
        store.die = process.die
        self.processes.append(process)
        self.note(owner, "begins")
        return process

    def living(self) -> Process:
        """Choose a process that lives; a new one if there is none."""
        alive = [process for process in self.processes if process.alive]
        return self.choices.of("process", alive) if alive else self.new_process()

    def _tool(self, tool: Tool, owner: str) -> Tool:
        if not isinstance(tool, AgentTool):
            return self.stage.tool(tool, owner)
        helper = copy(tool)
        helper.agent = tool.agent.model_copy(update={"model": None})  # one model speaks for all
        return helper

    # Calls.

    def opened(self, process: Process, action: str) -> int:
        """Note that a call begins, and return its number."""
        self._calls += 1
        self.open_calls[self._calls] = f"{process.owner}: {action}"
        return self._calls

    async def call(self, process: Process, action: str, work: Callable[[], Awaitable[object]], number: int) -> None:
        """Run a call of an engine to its end. Errors that nobody caused are violations."""
        self.note(process.owner, f"call {action}")
        try:
            with anyio.CancelScope() as scope:
                process.scopes.add(scope)
                try:
                    await self._run_guarded(process, action, work)
                finally:
                    process.scopes.discard(scope)
        finally:
            self.open_calls.pop(number, None)

    async def _run_guarded(self, process: Process, action: str, work: Callable[[], Awaitable[object]]) -> None:
        try:
            result = await work()
        except _RACES as error:
            self.note(process.owner, f"{action} raises {type(error).__name__}")
        except ConfigError as error:
            self.cannot_run = error
        except StoreError as error:
            self.note(process.owner, f"{action} raises {type(error).__name__}")
            if not process.store.failed and process.alive:
                self.violate(RAISES, f"{action} raised {describe(error)}, and no call of the store had failed")
        except Exception as error:  # noqa: BLE001 (whatever it is, the report has it)
            if process.alive:
                self.violate(RAISES, f"{action} raised {describe(error)}")
        else:
            if isinstance(result, TurnResult):
                self._check_returned(process, action, result)
            self.note(process.owner, f"{action} returns")

    # Promises that are checked while they can be broken.

    def violate(self, claim: str, problem: str) -> None:
        """Note that a claim does not hold."""
        self.note("violated", f"{claim}: {problem}")
        self.violations.setdefault(claim, []).append(problem)

    def asked(self, process: str, request: ModelRequest) -> None:
        """Note a model call, and the turn that makes it."""
        texts = [message.text for message in request.messages if message.role == "user"]
        prompt = next((text for text in reversed(texts) if text in self.prompts), "")
        self.requests.setdefault(prompt, []).append(request)
        self.note(process, f"model call with {len(request.messages)} messages")
        self._maybe_die(process)

    def executed(self, process: str, execution: Execution) -> None:
        """Check that the start of a tool is in the journal, under this process's claim."""
        self.note(
            process, f"runs {execution.tool} as {execution.call}, attempt {execution.attempt}, of {execution.turn}"
        )
        facts = self.disk.facts_now(execution.turn)
        is_journaled = any(
            isinstance(x, f.CallStarted) and (x.call, x.attempt) == (execution.call, execution.attempt) for x in facts
        )
        if not is_journaled and not may_be_repeated(facts[0], execution.tool, {tool.name: tool for tool in self.tools}):
            self.violate(
                DURABLE,
                f"{execution.tool} ran as {execution.call}, attempt {execution.attempt}, "
                "before its start was in the journal",
            )
        self._maybe_die(process)

    def _check_published(self, process: str, event: TurnEvent) -> None:
        fact_count = len(self.disk.facts_now(event.turn))
        if event.seq > fact_count:
            self.violate(
                DURABLE, f"{process} published {event.type} {event.seq}, and the journal has {fact_count} facts"
            )

    def _check_returned(self, process: Process, action: str, result: TurnResult) -> None:
        if result.outcome is None:
            return
        facts = self.disk.facts_now(result.id)
        last = facts[-1] if facts else None
        if not isinstance(last, f.TurnEnded) or (last.outcome, last.reason) != (result.outcome, result.reason):
            where = f"{action} in {process.owner}"
            self.violate(DURABLE, f"{where} returned {result.outcome}, and the journal does not end with it")

    def note(self, process: str, action: str) -> None:
        """See `Surroundings.note`."""
        self.trace.append(f"{self.clock():9.3f} {process}: {action}")

    def roots(self) -> Iterator[str]:
        """Return the turns that people began."""
        return (turn for turn in self.disk.turns_now() if root_of(turn) == turn)
