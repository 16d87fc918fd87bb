"""The walk over every configuration that a turn can reach within small bounds (docs/rules.md#termination).

It walks the shipped machine: `TurnMachine` over `chart.ROWS`, fed with every input of its environment at each point
(`environment.py`). Configurations with the same future count as one (`configuration.py`).

On every edge it checks that the rank falls (`rank.py`), and the rules of `invariants.py`. Every end has one outcome,
one reason and one `turn_ended`, and every other configuration has a way on. A complete walk has no cycle, and model
calls within `Limits.model_calls`. All walks of a campaign together take every row and reach every end.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from turnwright_proof.rank import Rank, rank_of
from turnwright_states import facts as f
from turnwright_states.actions import Action, CallModel, CompactHistory, Conclude
from turnwright_states.chart import CHART, ROWS, Chart, Row
from turnwright_states.errors import MachineError
from turnwright_states.inputs import Input, OversizedInput, RequestPreparedInput, SteeredInput
from turnwright_states.reasons import EndReason
from turnwright_states.state import FINAL, State, Trigger

from .case import Case
from .claims import Property, ViolationError
from .configuration import Key, WalkedMachine, whole_key_of
from .environment import Environment
from .invariants import fault_of, fault_of_end
from .path import Edge, Path, describe_path

#: The most configurations of one walk. A walk that reaches it counts as cut.
MOST: Final = 2_000_000
#: Inputs that arrive before the model call.
_BEFORE_CALL: Final = frozenset({SteeredInput, RequestPreparedInput, OversizedInput})
_MODEL_CALLS: Final = frozenset({CallModel, CompactHistory, Conclude})


@dataclass(slots=True)
class Walk:
    """The counts of one walk, or of several added up."""

    walks: int = 0
    #: The walks that were cut at their limit of configurations, so that they are incomplete.
    cut: int = 0
    #: Different configurations that are not ends.
    configurations: int = 0
    edges: int = 0
    #: The number of edges into each end, by "outcome/reason".
    ends: dict[str, int] = field(default_factory=dict)
    rows: set[Row] = field(default_factory=set)
    #: The most model calls on a path of any walk.
    model_calls: int = 0

    def add(self, walk: "Walk") -> None:
        """Add another walk's counts to these."""
        self.walks += walk.walks
        self.cut += walk.cut
        self.configurations += walk.configurations
        self.edges += walk.edges
        for end, count in walk.ends.items():
            self.ends[end] = self.ends.get(end, 0) + count
        self.rows |= walk.rows
        self.model_calls = max(self.model_calls, walk.model_calls)

    def untaken(self) -> tuple[Row, ...]:
        """Return the rows of the chart that no edge took."""
        return tuple(row for row in ROWS if row not in self.rows)


def walk(
    case: Case,
    *,
    chart: Chart = CHART,
    machine: type[WalkedMachine] = WalkedMachine,
    reduced: bool = True,
    most: int = MOST,
) -> Walk:
    """Walk everything that a turn can reach.

    Only tests pass another `chart` or `machine`, with a planted fault, and `reduced=False`, to compare the two keys.
    After `most` configurations the walk is cut. Raises `ViolationError`, with the path, at the first fault.
    """
    return _Walker(case, chart, reduced=reduced, most=most).run(machine)


class _Place:
    """A configuration on the path, its remaining inputs, and the most model calls from there to an end."""

    __slots__ = ("action", "asks", "best", "event", "events", "key", "machine", "rank")

    def __init__(self, key: Key, machine: WalkedMachine, rank: Rank, around: Environment) -> None:
        self.key = key
        self.machine = machine
        self.rank = rank
        self.action: Action = machine.action
        self.events: Iterator[Input] = around.moves(machine.turn, self.action)
        #: The current input.
        self.event: Input | None = None
        self.best = 0
        #: Whether the model is called here.
        self.asks = type(self.action) in _MODEL_CALLS

    def count(self, calls: int) -> None:
        """Count a successor with up to `calls` model calls. What comes before the model call adds none."""
        if self.asks and type(self.event) not in _BEFORE_CALL:
            calls += 1
        self.best = calls if calls > self.best else self.best  # noqa: FURB136 (`max` is a call)


class _Walker:
    """A depth-first walk with an explicit stack. A configuration that occurs again on its own path is a cycle."""

    def __init__(self, case: Case, chart: Chart, *, reduced: bool, most: int) -> None:
        self.case = case
        self.chart = chart
        self.most = most
        self.around = Environment(case, reduced=reduced)
        self.key_of = self.around.key_of
        self.walk = Walk(walks=1)
        self.leavable_states = frozenset(s for s in FINAL if any(chart.accepts(s, trigger) for trigger in Trigger))
        #: The most model calls from a configuration to an end; None while the configuration is on the path.
        self.longest: dict[Key, int | None] = {}
        self.stack: list[_Place] = []
        self.first: Path = ()
        #: The rows that were taken, by their identity, because a row's hash is slow; and the edges into each end.
        self.rows: dict[int, Row] = {}
        self.ends: dict[tuple[State, EndReason | None], int] = {}

    def run(self, machine: type[WalkedMachine]) -> Walk:
        limits = self.case.limits
        try:
            initial, facts = machine.start(self.case.started, chart=self.chart)
        except MachineError as error:
            raise self._violation(Property.WAY_ON, f"the turn cannot start: {error}") from None
        rank = rank_of(initial.turn)
        self.first = (Edge("the turn begins", "Started", initial.rows[0].source, tuple(initial.rows), initial.state),)
        self._take(initial.rows)
        self._check(initial, rank, facts)
        calls = self._explore(initial, rank)
        if calls > limits.model_calls:
            problem = f"{calls} model calls; the formula allows {limits.model_calls}"
            raise self._violation(Property.MODEL_CALLS, problem)
        self.walk.model_calls = calls
        self.walk.configurations = len(self.longest)
        self.walk.rows = set(self.rows.values())
        self.walk.ends = {f"{state.outcome}/{reason}": count for (state, reason), count in self.ends.items()}
        return self.walk

    def _explore(self, root: WalkedMachine, rank: Rank) -> int:
        """Walk everything from `root`. Return the most model calls on any path, or 0 if the walk was cut."""
        stack, longest = self.stack, self.longest
        self._enter(self.key_of(root.turn), root, rank)
        while True:
            place = stack[-1]
            event = place.event = next(place.events, None)
            if event is None:
                longest[place.key] = place.best
                stack.pop()
                if not stack:
                    return place.best
                stack[-1].count(place.best)
                continue
            successor, lower = self._edge(place, event)
            if successor.turn.state in FINAL:
                place.count(0)
                continue
            key = self.key_of(successor.turn)
            if key not in longest:
                if len(longest) >= self.most:
                    self.walk.cut = 1
                    return 0
                self._enter(key, successor, lower)
                continue
            known_length = longest[key]
            if known_length is not None:
                place.count(known_length)
            elif key != place.key or not isinstance(event, SteeredInput):
                raise self._violation(Property.CYCLE, "a cycle: this configuration is on the path already", successor)

    def _enter(self, key: Key, machine: WalkedMachine, rank: Rank) -> None:
        self.longest[key] = None
        self.stack.append(_Place(key, machine, rank, self.around))
        if self.case.delegates:
            self._refuse_false_accounts(self.stack[-1])

    def _refuse_false_accounts(self, place: _Place) -> None:
        """Feed all impossible inputs to one copy, because a refusal changes nothing."""
        successor = place.machine.twin()
        events = tuple(self.around.false_accounts(successor.turn, place.action))
        for event in events:
            place.event = event
            try:
                facts = successor.feed(event)
            except MachineError:
                continue
            self._check(successor, rank_of(successor.turn), facts)
            raise self._violation(Property.LEASES, "an impossible usage of a sub-agent was counted", successor)
        place.event = None
        if events and (successor.rows or whole_key_of(successor.turn) != whole_key_of(place.machine.turn)):
            raise self._violation(Property.LEASES, "a refusal changed the turn")

    def _edge(self, place: _Place, event: Input) -> tuple[WalkedMachine, Rank]:
        successor = place.machine.twin()
        self.walk.edges += 1
        try:
            facts = successor.feed(event)
        except MachineError as error:
            raise self._violation(Property.WAY_ON, f"no way on: {error}", successor) from None
        except Exception as error:
            problem = f"the machine broke: {type(error).__name__}: {error}"
            raise self._violation(Property.WAY_ON, problem, successor) from error
        self._take(successor.rows)
        before, after = place.rank, rank_of(successor.turn)
        if isinstance(event, SteeredInput):
            if before != after:
                raise self._violation(Property.RANK, f"a message changed the rank from {before} to {after}", successor)
        elif after >= before:
            raise self._violation(Property.RANK, f"the rank did not fall: {before} to {after}", successor)
        self._check(successor, after, facts)
        return successor, after

    def _take(self, rows: list[Row]) -> None:
        for row in rows:
            self.rows[id(row)] = row

    def _check(self, machine: WalkedMachine, rank: Rank, facts: list[f.Fact]) -> None:
        fault = fault_of(machine, rank, facts)
        state = machine.turn.state
        if state in FINAL:
            if fault is None:
                fault = fault_of_end(machine, facts)
                if state in self.leavable_states:
                    fault = Property.ONE_END, f"the final state {state} has a way out"
            end = state, machine.turn.reason
            self.ends[end] = self.ends.get(end, 0) + 1
        if fault is not None:
            raise self._violation(*fault, machine)

    def _violation(self, claim: Property, problem: str, successor: WalkedMachine | None = None) -> ViolationError:
        """Make the error. `successor` is the result of the current input; every other edge leads to the next place."""
        after = [place.machine for place in self.stack[1:]] + ([successor] if successor is not None else [])
        edges = (
            Edge(
                describe_path(place.event, place.machine.turn),
                place.event.title(),
                place.machine.state,
                tuple(next_.rows),
                next_.state,
            )
            for place, next_ in zip(self.stack, after, strict=False)
            if place.event is not None
        )
        return ViolationError(claim, problem, self.case, (*self.first, *edges))
