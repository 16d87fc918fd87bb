"""Walks every configuration that a turn can reach within small bounds, and checks that each path ends.

What is walked is the machine that ships: `TurnMachine` over `chart.ROWS`, fed with everything that its surroundings
may do at each point (replies of every kind, failed attempts, crashes, waiting and denied calls, partial answers,
expiry, abort, a failure of the engine). Two configurations are one when they differ only in names and texts.

On every edge: the rank of the turn falls (`Turn.rank`), steps stay within the allowance, started calls within the
budget, and every call of a closed step has its result. At every end: one outcome, one reason, one `halted`. At every
other configuration: a way on. Over a whole walk: no cycle, model calls within the formula of `Limits.model_calls`,
and (over all walks of a campaign) every row of the chart taken. Source: DESIGN 2.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Final, NamedTuple

from . import facts as f
from .actions import AwaitPerson, CallModel, Conclude, Halt, RunTools, Synthesise
from .chart import CHART, Chart, Row
from .errors import MachineError
from .events import (
    DECISIONS,
    Abort,
    Answered,
    AttemptFailed,
    CallSettled,
    CallStarted,
    CallStatus,
    CallWaits,
    Concluded,
    Event,
    Expire,
    Fail,
    Finish,
    InterruptKind,
    ModelReplied,
    Started,
    Steered,
    Synthesised,
    ToolCall,
    Usage,
)
from .limits import Limits
from .machine import TurnMachine
from .reasons import REASONS_OF, Cause, EndReason
from .state import State, Trigger
from .turn import Call, CallState, Rank, Turn

_USAGE: Final = Usage(input_tokens=1)


class Violation(Exception):  # noqa: N818 (it is what was found, and carries the way to it)
    """A check failed. `path` lists the events that lead there, oldest first."""

    def __init__(self, what: str, limits: Limits, path: tuple[str, ...]) -> None:
        changed = limits.model_dump(exclude_defaults=True)
        steps = "\n".join(f"  {number}. {step}" for number, step in enumerate(path, start=1))
        super().__init__(f"{what}\nlimits: {changed}\n{steps}")
        self.what = what
        self.limits = limits
        self.path = path

    def __reduce__(self) -> tuple[type["Violation"], tuple[str, Limits, tuple[str, ...]]]:
        # An exception is rebuilt from its arguments when it comes from another process.
        return Violation, (self.what, self.limits, self.path)


@dataclass(slots=True)
class Walk:
    """What one walk, or several added up, has seen."""

    walks: int = 0
    configurations: int = 0
    edges: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    rows: set[Row] = field(default_factory=set)
    #: The longest way through, in model calls, of any walk.
    model_calls: int = 0

    def add(self, other: "Walk") -> None:
        """Add another walk's counts to these."""
        self.walks += other.walks
        self.configurations += other.configurations
        self.edges += other.edges
        for end, count in other.ends.items():
            self.ends[end] = self.ends.get(end, 0) + count
        self.rows |= other.rows
        self.model_calls = max(self.model_calls, other.model_calls)

    def untaken(self, chart: Chart = CHART) -> tuple[Row, ...]:
        """The rows that no edge took."""
        return tuple(row for row in chart.rows if row not in self.rows)


class WalkedMachine(TurnMachine):
    """The machine, noting the rows it takes, and without the hashes that nobody reads in a walk."""

    __slots__ = ("rows",)

    def __init__(self, turn: Turn, chart: Chart = CHART) -> None:
        super().__init__(turn, chart)
        self.rows: list[Row] = []

    def _fire(self, trigger: Trigger) -> Row:
        row = super()._fire(trigger)
        self.rows.append(row)
        return row

    def _seal(self, fact: f.Fact) -> None:
        """No hash."""


Key = tuple[object, ...]


def key_of(machine: TurnMachine) -> Key:
    """What two configurations share when they are one: all that can change what comes next, without names and texts."""
    turn = machine.turn
    calls = {call.id: place for place, call in enumerate(turn.batch.values())}
    return (
        machine.state,
        turn.state,
        turn.counters.kept(),
        turn.carried,
        turn.reason,
        tuple(one.digest for one in turn.rounds),
        turn.always_for,
        tuple((call.state, call.counted, call.made.refused, bool(call.answers)) for call in turn.batch.values()),
        tuple((asked.kind, calls.get(asked.call)) for asked in turn.interrupts.values()),
        turn.step_open,
        turn.synthesis_done,
        turn.nudge,
    )


class Case(NamedTuple):
    """One walk: the limits, whether the embedder has a synthesis, and how many calls the widest batch has (1 or 2)."""

    limits: Limits
    synthesis: bool = False
    widest: int = 2


def walk(case: Case, *, chart: Chart = CHART, machine: type[WalkedMachine] = WalkedMachine) -> Walk:
    """Walk everything that a turn can reach.

    `chart` and `machine` are other ones only to show that a fault in them is found. Raises `Violation`, with the way
    that led there, at the first fault.
    """
    return _Walker(case, chart).run(machine)


class _Walker:
    """A depth-first walk with an explicit stack: a configuration met again on its own path is a cycle."""

    def __init__(self, case: Case, chart: Chart) -> None:
        self.case = case
        self.limits = case.limits
        self.chart = chart
        self.walk = Walk(walks=1)
        #: The most model calls from a configuration to an end; None while the configuration is on the path.
        self.longest: dict[Key, int | None] = {}
        self.path: list[Event] = []

    def run(self, machine: type[WalkedMachine]) -> Walk:
        start = Started(prompt="x", limits=self.limits, synthesis=self.case.synthesis)
        try:
            begun, facts = machine.start(start, chart=self.chart)
        except MachineError as error:
            raise self._violation(f"the turn cannot start: {error}") from None
        assert isinstance(begun, WalkedMachine)  # noqa: S101 (start builds its own class)
        self.walk.rows |= set(begun.rows)
        self._check_configuration(begun, begun.turn.rank, facts)
        calls = self._explore(begun)
        if calls > self.limits.model_calls:
            raise self._violation(f"{calls} model calls, and the formula allows {self.limits.model_calls}")
        self.walk.model_calls = calls
        self.walk.configurations = len(self.longest)
        return self.walk

    def _explore(self, root: WalkedMachine) -> int:
        key = key_of(root)
        self.longest[key] = None
        stack = [(key, root, root.turn.rank, iter(tuple(moves(root, self.case))), [0])]
        while True:
            key, here, rank, events, best = stack[-1]
            event = next(events, None)
            if event is None:
                stack.pop()
                self.longest[key] = best[0] + _calls_model(here)
                if not stack:
                    return best[0] + _calls_model(here)
                self.path.pop()
                parent = stack[-1][4]
                parent[0] = max(parent[0], best[0] + _calls_model(here))
                continue
            self.path.append(event)
            there, lower = self._edge(here, rank, event)
            key = key_of(there)
            if key == stack[-1][0] and isinstance(event, Steered):
                self.path.pop()
                continue
            if key in self.longest:
                known = self.longest[key]
                if known is None:
                    raise self._violation("a cycle: this configuration was on the way here")
                best[0] = max(best[0], known)
                self.path.pop()
                continue
            self.longest[key] = None
            stack.append((key, there, lower, iter(tuple(moves(there, self.case))), [0]))

    def _edge(self, here: WalkedMachine, before: Rank, event: Event) -> tuple[WalkedMachine, Rank]:
        there = type(here)(here.turn.copy(), self.chart)
        self.walk.edges += 1
        try:
            facts = there.feed(event)
        except MachineError as error:
            raise self._violation(f"no way on: {error}") from None
        except Exception as error:
            raise self._violation(f"the machine broke: {type(error).__name__}: {error}") from error
        self.walk.rows |= set(there.rows)
        after = there.turn.rank
        if isinstance(event, Steered):
            if before != after:
                raise self._violation(f"a message changed the rank from {before} to {after}")
        elif after >= before:
            raise self._violation(f"the rank did not fall: {before} to {after}")
        self._check_configuration(there, after, facts)
        return there, after

    def _check_configuration(self, machine: WalkedMachine, rank: Rank, facts: list[f.Fact]) -> None:
        fault = _fault_of(machine, rank, facts)
        if fault:
            raise self._violation(fault)
        if machine.turn.state.outcome is not None:
            self._check_end(machine, facts)

    def _check_end(self, machine: WalkedMachine, facts: list[f.Fact]) -> None:
        halts = [fact for fact in facts if isinstance(fact, f.Halted)]
        if len(halts) != 1 or facts[-1] is not halts[0]:
            raise self._violation("an end needs one halted, as its last fact")
        outcome, reason = halts[0].outcome, machine.turn.reason
        if reason is None or outcome is not machine.turn.state.outcome or not isinstance(machine.action, Halt):
            raise self._violation("an end without one outcome and one reason")
        end = f"{outcome}/{reason}"
        if reason not in REASONS_OF[outcome]:
            raise self._violation(f"{end} is no ending: a turn that is {outcome} has another reason")
        if any(self.chart.accepts(machine.state, trigger) for trigger in Trigger):
            raise self._violation(f"the final state {machine.state} has a way out")
        self.walk.ends[end] = self.walk.ends.get(end, 0) + 1

    def _violation(self, what: str) -> Violation:
        return Violation(what, self.limits, tuple(_named(event) for event in self.path))


def _fault_of(machine: WalkedMachine, rank: Rank, facts: list[f.Fact]) -> str:  # noqa: PLR0911 (one line a check)
    """What is wrong with a configuration that `facts` led to; empty if nothing is."""
    turn, c = machine.turn, machine.turn.counters
    if machine.state is not turn.state:
        return f"the chart stands in {machine.state}, the facts in {turn.state}"
    if min(rank) < 0:
        return f"the rank went below nothing: {rank}"
    if c.steps_left < 0:
        return f"{c.steps} steps of an allowance of {c.allowance}"
    if c.calls > c.budget:
        return f"{c.calls} calls of a budget of {c.budget}"
    spent = c.calls >= c.budget or c.tokens_spent or c.cost_spent or c.time_spent
    if spent and any(isinstance(fact, f.StepStarted) for fact in facts):
        return "a step started on a spent budget"
    if turn.state not in (State.TOOL_EXEC, State.PAUSED) and turn.open_calls():
        return f"a call without a result in {turn.state}"
    if turn.state.outcome is None and any(isinstance(fact, f.Halted) for fact in facts):
        return "halted, and not in a final state"
    return ""


def _calls_model(machine: TurnMachine) -> int:
    return isinstance(machine.action, CallModel | Conclude)


def _named(event: Event) -> str:
    fields = event.model_dump(exclude_defaults=True, mode="json")
    return type(event).__name__ + (f" {fields}" if fields else "")


_A, _B = ToolCall(name="a", arguments={}), ToolCall(name="b", arguments={})
_BAD = ToolCall(name="a", problem="unknown")
_INTERRUPTED: Final = (AttemptFailed(cause=Cause.CONNECTION), AttemptFailed(cause=Cause.BAD_REQUEST))
_STOPPED: Final = (Abort(), Fail(error="x"))


def moves(machine: TurnMachine, case: Case) -> Iterator[Event]:
    """Everything that the surroundings may do to the turn where it stands: the model, the tools, people, crashes."""
    turn = machine.turn
    expire = (Expire(elapsed=1.0),) if turn.limits.seconds is not None else ()
    match machine.action:
        case CallModel(tools=tools):
            yield from _replies(case, tools=tools)
            yield from (*_INTERRUPTED, AttemptFailed(cause=Cause.CRASH), *expire, *_STOPPED)
        case RunTools(calls=calls):
            for call in calls:
                yield from _call_moves(call)
            yield from (Steered(text="x"), *expire, *_STOPPED)
        case Synthesise():
            yield from (Synthesised(text="x"), Synthesised(), AttemptFailed(cause=Cause.CRASH), *expire, *_STOPPED)
        case AwaitPerson(interrupts=interrupts):
            for asked in interrupts:
                for decision in DECISIONS[asked.kind]:
                    yield Answered(interrupt=asked.id, decision=decision)
            yield from (Abort(), Abort(reason=EndReason.SUPERSEDED))
        case Conclude():
            yield from (Concluded(text="x", usage=_USAGE), Concluded(calls=(_A,)), *_INTERRUPTED)
            yield from (AttemptFailed(cause=Cause.CRASH), *_STOPPED)
        case Halt():
            return


def _replies(case: Case, *, tools: bool) -> Iterator[Event]:
    limits = case.limits
    yield ModelReplied(text="x")
    yield ModelReplied(text="x", finish=Finish.LENGTH)
    yield ModelReplied(finish=Finish.CONTENT_FILTER)
    yield ModelReplied()
    batches: list[tuple[ToolCall, ...]] = [(_A,)]
    if tools and limits.doom_threshold is not None:
        batches.append((_B,))
    if tools and case.widest > 1:
        batches += [(_A, _A), (_A, _BAD), *([(_A, _B)] if limits.doom_threshold is not None else [])]
    for batch in batches:
        yield ModelReplied(calls=batch)
    if limits.tokens is not None or limits.cost is not None:
        yield ModelReplied(calls=(_A,), usage=Usage(input_tokens=1, cost=1.0))
    if limits.seconds is not None:
        yield ModelReplied(calls=(_A,), elapsed=1.0)


def _call_moves(call: Call) -> Iterator[Event]:
    if call.state is CallState.READY:
        yield CallStarted(call=call.id)
        yield CallSettled(call=call.id, status=CallStatus.ERROR)
        if not call.answers:
            yield CallWaits(call=call.id, interrupt_kind=InterruptKind.APPROVAL)
        return
    yield CallSettled(call=call.id)
    # The process died while the call ran: its tool reruns it, or asks.
    yield CallStarted(call=call.id)
    yield CallWaits(call=call.id, interrupt_kind=InterruptKind.UNKNOWN_OUTCOME)


def grid() -> Iterator[Case]:
    """The campaign of `turnwright verify`, the small cases first.

    Without a doom loop to look for: caps 0 to 3, both ways to count the concluding call, budgets 0, 1, 2, 4, pauses 1
    and 2, retries 0 and 1, with and without a synthesis. With one: thresholds 2 and 3, each response, with and
    without a nudge, up to caps 4 and 5, which a cycle or a nudged repetition needs. Then tokens, cost and time.
    """
    for cap, concluding, budget, pauses, retries, synthesis in product(
        range(4), ("after", "within"), (0, 1, 2, 4), (1, 2), (0, 1), (False, True)
    ):
        limits = _limits(steps=cap, concluding=concluding, tool_calls=budget, max_pauses=pauses, max_retries=retries)
        yield Case(limits, synthesis)
    for response, nudges, pauses in product(("stop", "ask"), (0, 1), (1, 2)):
        doom = {"doom_response": response, "nudges": nudges, "max_pauses": pauses}
        for cap, budget in ((1, 1), (2, 2), (2, 4)):
            yield Case(_limits(steps=cap, tool_calls=budget, doom_threshold=2, **doom))
        for cap, threshold in ((4, 2), (4, 3), (5, 3)):
            yield Case(_limits(steps=cap, tool_calls=4, doom_threshold=threshold, max_retries=0, **doom), widest=1)
    for spent in ({"tokens": 1}, {"cost": 1.0}, {"seconds": 1.0}, {"tokens": 1, "cost": 1.0, "seconds": 1.0}):
        for cap, response in product((0, 1, 2), ("stop", "ask")):
            doom = {"doom_threshold": 2, "doom_response": response, "nudges": 1}
            yield Case(_limits(steps=cap, tool_calls=2, **doom, **spent))


def _limits(**fields: object) -> Limits:
    small = {"doom_threshold": None, "max_retries": 1, "max_pauses": 1}
    return Limits.model_validate(small | fields)


def campaign(cases: Iterable[Case]) -> Walk:
    """Walk each case and add the counts up. Raises `Violation` at the first fault."""
    total = Walk()
    for case in cases:
        total.add(walk(case))
    return total
