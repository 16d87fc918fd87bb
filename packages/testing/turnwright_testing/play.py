"""Play a scenario through the real engine, and return a record of each of its turns."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Final, Never, Protocol, TypedDict, TypeVar, cast, overload

import anyio

from turnwright.agent import Agent
from turnwright.context import DepsT, JsonObject
from turnwright.driver.dependencies import FinishedCall, Synthesis
from turnwright.errors import ConfigError, InvalidAnswerError, StoreError
from turnwright.journal.answers import ANSWERABLE, Answer, approve, parse_answer
from turnwright.journal.result import TurnResult
from turnwright.model.prices import Price
from turnwright.model.protocol import Model
from turnwright.model.retry import Backoff
from turnwright.runtime.engine import Engine
from turnwright.store import MemoryStore, Store
from turnwright.tools import Tool
from turnwright.tools.errors import describe, holds
from turnwright.transcript.interrupt import Interrupt
from turnwright_states import Decision, InterruptKind, Limits

from . import clock
from .behavior import Driven, Returns, Runs, Stage
from .faults import FaultyStore, StoreCall
from .flaky import FlakyModel
from .hook_script import Prompter
from .reached import Reached, ReachedTurns
from .run_report import ending_of
from .scenario import Answers, Leaves, Scenario

R = TypeVar("R")

_SESSION: Final = "fuzzed"
#: Longer than all the waiting of a scenario, in seconds: what has not ended then waits for ever.
_FOREVER: Final = 30 * 24 * 3600.0
#: The same where time is real: a tool that takes longer has no place in a fuzz run.
_REAL_FOREVER: Final = 60.0
#: A token costs one, so that budgets of money are spent as those of tokens are.
_PRICE: Final = Price(input=1_000_000, output=1_000_000)
_NEVER_WAIT: Final = Backoff(initial=0.0, max_retry_after=0.0)
#: The most resumptions of a turn beside its pauses: far more than one crash needs.
_SPARE: Final = 8


class EngineParts(TypedDict):
    """The arguments of a builder: `**parts: Unpack[EngineParts]`, which it passes on to `Engine`."""

    model: Model
    tools: Sequence[Tool]
    store: Store
    limits: Limits
    prices: Mapping[str, Price]
    synthesize: Synthesis | None
    backoff: Backoff


class Build(Protocol[DepsT]):
    """A builder of the tested engine. `Engine` itself is one; write another to add hooks or dependencies of your own.

    The model, the tools and the store that it is given may be wrapped, but must be at the bottom.
    """

    def __call__(
        self,
        *,
        model: Model,
        tools: Sequence[Tool],
        store: Store,
        limits: Limits,
        prices: Mapping[str, Price],
        synthesize: Synthesis | None,
        backoff: Backoff,
    ) -> Engine[DepsT]:
        """Build an engine; called once more after a crash."""
        ...


@overload
def play(
    scenario: Scenario,
    *,
    agent: Agent[None, object] | None = None,
    tools: Sequence[Tool[None]] = (),
    build: Build = Engine,
    run_tools: bool = False,
    real_time: bool = False,
    store: Callable[[], Store] | None = None,
) -> list[Driven]: ...
@overload
def play(
    scenario: Scenario,
    *,
    agent: Agent[DepsT, object] | None = None,
    tools: Sequence[Tool[DepsT]] = (),
    build: Build[DepsT],
    run_tools: bool = False,
    real_time: bool = False,
    store: Callable[[], Store] | None = None,
) -> list[Driven]: ...
def play(
    scenario: Scenario,
    *,
    agent: Agent[Never, object] | None = None,
    tools: Sequence[Tool[Never]] = (),
    build: Build[DepsT] | Build = Engine,
    run_tools: bool = False,
    real_time: bool = False,
    store: Callable[[], Store] | None = None,
) -> list[Driven]:
    """Drive the turns of a scenario to their ends, and return a record of each, oldest first.

    The tools and sub-agents are replaced by stand-ins. With `run_tools` those tools without a behavior in the scenario
    do their real work; time is real then, and else it is skipped (see `clock`), unless `real_time` is set, which hooks
    need that wait for sockets. `store` opens the journal, and opens it again after a crash; None keeps it in memory.
    Not to be called from a running event loop. In a property test, the statistics of Hypothesis have what was reached.

    Raises `ConfigError` for an agent that cannot run with these tools. Other errors of the engine are in
    `Driven.raised`.
    """
    stage = Stage(scenario.behaviours, Runs() if run_tools else Returns())
    # From here on, deps are `object`, as they are in the engine.
    plain = Agent(name="assistant") if agent is None else cast("Agent", agent)
    scenario_run = _ScenarioRun(scenario, plain, cast("Sequence[Tool]", tools), cast("Build", build), stage, store)
    real = run_tools or real_time
    try:
        turns = clock.run(partial(scenario_run.play, _REAL_FOREVER if real else _FOREVER), real_time=real)
    except (SystemExit, asyncio.CancelledError) as error:  # nobody asked for them, and they end the loop
        scenario_run.raised, scenario_run.gave_up = describe(error), ""
        turns = clock.run(scenario_run.seen)
    _count_for_hypothesis(turns)
    return turns


def _count_for_hypothesis(turns: Sequence[Driven]) -> None:
    """Count what the turns reached in the statistics of a running property test: `--hypothesis-show-statistics`."""
    hypothesis = sys.modules.get("hypothesis")  # the kit does not need it
    if hypothesis is None or not hypothesis.currently_in_test_context():
        return
    reach_counts, questions = Reached(), dict[str, None]()
    for driven_turn in turns:
        reach_counts.expect_tools(driven_turn.tools or ())
        turn = ReachedTurns(reach_counts)
        for _, fact in driven_turn.facts:
            turn.add("", fact)
        reach_counts.ends[ending_of(driven_turn.facts[-1][1] if driven_turn.facts else None)] += 1
        questions |= {f"{consultation.on}: asked": None for consultation in driven_turn.consulted or ()}
    for text in (*reach_counts.events(), *questions):
        hypothesis.event(text)


def _may_stand_in(tool: Tool, agent: Agent) -> bool:
    """Whether the agent's turns have a stand-in for the tool: not for a sub-agent that it may not call."""
    return not tool.delegates or agent.may_use(tool.name, delegates=True)


class _ScenarioRun:
    """Everything around the engine that is tested: its model, its tools, its journal, and the people."""

    def __init__(  # noqa: PLR0917 (the arguments of `play`)
        self,
        scenario: Scenario,
        agent: Agent,
        tools: Sequence[Tool],
        build: Build,
        stage: Stage,
        open_store: Callable[[], Store] | None,
    ) -> None:
        self._scenario = scenario
        self._tools = stage.tools([tool for tool in tools if _may_stand_in(tool, agent)])
        self._offered = {tool.name: tool for tool in self._tools if agent.may_use(tool.name)}
        self._open_store = open_store
        self._journal: Store = MemoryStore() if open_store is None else open_store()
        self._prompter = Prompter(scenario.hooks, scenario.guardrails, self._facts_of)
        self._agent = self._prompter.instruct(without_models(agent), self._offered, scenario.compaction)
        self._limits = self._agent.limits_for(scenario.limits)
        self._build = build
        self._stage = stage
        self._model = FlakyModel(scenario.script)
        self._batches = 0
        self._pauses = 0
        #: How many model calls had been made before each turn began, by its id.
        self._marks: dict[str, int] = {}
        #: See `Driven`; of the last turn.
        self.raised = self.gave_up = ""
        crash = scenario.crash
        self._store = _WatchedStore(self._journal, scenario.abort_at)
        if crash is not None:
            self._store.at, self._store.after, self._store.heals = crash.at, crash.after, crash.heals
        self._engine = self._new_engine()

    async def play(self, forever: float) -> list[Driven]:
        self.gave_up = f"it had not ended after {forever:g} s"
        with anyio.move_on_after(forever):
            try:
                self.gave_up = await self._drive_all()
            except (ConfigError, KeyboardInterrupt, anyio.get_cancelled_exc_class()):
                raise
            except BaseException as error:
                if holds(error, KeyboardInterrupt):
                    raise
                self.raised, self.gave_up = describe(error), ""
        return await self.seen()

    async def seen(self) -> list[Driven]:
        rows = list(reversed(await self._journal.turns()))
        begins = [self._marks[row.id] for row in rows]
        turns = [
            Driven(
                facts=await self._journal.facts(row.id),
                requests=self._model.requests[begin:end],
                executions=[execution for execution in self._stage.executions if execution.turn == row.id],
                tools=self._offered,
                consulted=[consultation for consultation in self._prompter.consulted if consultation.turn == row.id],
            )
            for row, (begin, end) in zip(rows, pairwise([*begins, len(self._model.requests)]), strict=True)
        ]
        if self._open_store is not None:
            await self._journal.aclose()
        last = turns.pop() if turns else Driven(facts=())
        return [*turns, replace(last, raised=self.raised, gave_up=self.gave_up)]

    async def _drive_all(self) -> str:
        whole = await self._begin("hi")
        for _ in range(self._limits.max_pauses + len(self._scenario.people) + _SPARE):
            turn = await self._newest()
            if turn.outcome is not None:
                return ""
            if turn.paused and whole:
                whole = await self._go_to_person(turn)
            else:  # after a failure too: an answer may wait in the inbox, and nobody is asked again
                whole = await self._do(partial(self._engine.resume, turn.id, agent=self._agent))
        state = (await self._newest()).state
        return "" if state.outcome else f"it is still in {state} after the last resumption"

    async def _begin(self, prompt: str) -> bool:
        before = len(self._model.requests)
        self._model.most = before + self._limits.model_calls + 1
        try:
            run = partial(
                self._engine.run,
                self._agent,
                prompt,
                session=_SESSION,
                model_settings=self._scenario.settings,
                metadata=self._scenario.metadata,
            )
            return await self._do(run)
        finally:
            for row in await self._journal.turns(limit=1):
                self._marks.setdefault(row.id, before)

    async def _newest(self) -> TurnResult:
        rows = await self._engine.store.turns(session=_SESSION, limit=1)
        return await self._engine.get(rows[0].id)

    async def _go_to_person(self, turn: TurnResult) -> bool:
        people, number = self._scenario.people, self._pauses
        self._pauses += 1
        match people[number] if number < len(people) else Answers():
            case Answers() as person:
                interrupts = turn.interrupts[: person.first]
                answers: dict[str, Answer] = {}
                for interrupt in interrupts:
                    takes = ANSWERABLE[interrupt.kind]
                    answer = Answer(takes[person.decision % len(takes)], person.text)
                    answers[interrupt.id] = self._with_arguments(answer, interrupt, person.arguments)
                return await self._do(partial(self._engine.resume, turn.id, answers, agent=self._agent))
            case Leaves(then="abort"):
                return await self._do(partial(self._engine.abort, turn.id))
            case Leaves():
                return await self._begin("Something else.")

    def _with_arguments(self, answer: Answer, interrupt: Interrupt, arguments: JsonObject | None) -> Answer:
        """Return the answer with other arguments for the call, if it may have them and its tool accepts them."""
        is_approved = (interrupt.kind, answer.decision) == (InterruptKind.APPROVAL, Decision.APPROVE)
        if arguments is None or not is_approved:
            return answer
        try:
            return parse_answer((interrupt,), interrupt.id, approve(arguments=arguments), tools=self._offered)
        except InvalidAnswerError:
            return answer

    async def _facts_of(self, turn_id: str) -> int:
        return len(await self._journal.facts(turn_id))

    async def _do(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Run the engine. If the store fails as planned, the next process takes over: then False."""
        try:
            await work()
        except StoreError:
            if not self._store.failed:
                raise
            self._store.failed = False
            await self._prompter.process_died()
            if self._store.dead:
                await self._store.aclose()
                if self._open_store is not None:
                    self._journal = self._open_store()
                self._store = _WatchedStore(self._journal, self._scenario.abort_at, self._store.appends)
                self._engine = self._new_engine()
            return False
        return True

    def _new_engine(self) -> Engine:
        engine = self._build(
            model=self._model,
            tools=self._tools,
            store=self._store,
            limits=self._scenario.limits,
            prices={self._model.name: _PRICE},
            synthesize=None if self._scenario.synthesis is None else self._synthesize,
            backoff=_NEVER_WAIT,
        )
        self._store.abort = engine.abort
        return engine

    async def _synthesize(self, _batch: tuple[FinishedCall, ...]) -> str | None:
        texts, number = self._scenario.synthesis or (), self._batches
        self._batches += 1
        return texts[number] if number < len(texts) else None


class _WatchedStore(FaultyStore):
    """A store after whose append number `abort_at` the turn is aborted. `appends` were tried before."""

    def __init__(self, inner: Store, abort_at: int | None, appends: int = 0) -> None:
        super().__init__(inner)
        self.abort: Callable[[str], Awaitable[None]] | None = None
        self.appends = appends
        self._abort_at = abort_at

    async def around(self, call: StoreCall, make: Callable[[], Awaitable[R]]) -> R:
        result = await super().around(call, make)
        if call.name == "append" and self.appends == self._abort_at and self.abort is not None:
            await self.abort(call.turn)
        return result


def without_models(agent: Agent) -> Agent:
    """Return the agent without the names of models: the script speaks for every model."""
    fields: dict[str, object] = {"model": None}
    if agent.compaction is not None:
        fields["compaction"] = agent.compaction.model_copy(update={"model": None})
    return agent.model_copy(update=fields)
