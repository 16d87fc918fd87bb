"""A turn as the machine knows it: what the journal's facts add up to.

`Turn.apply` is the fold. It asks no guard and decides nothing: each fact says what was decided. The machine
(`machine.py`) keeps the same object while it decides, by applying each fact as it makes it, so that the fold of a
journal and the live turn cannot differ.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from pydantic import JsonValue

from . import facts as f
from .counters import Counters
from .doom import Round, looping, make_round, remember
from .events import Decision, Spent, Usage
from .limits import Limits
from .reasons import EndReason
from .state import LIVE, State

#: The stage of each state in the rank; the smaller, the nearer the end.
STAGE: Final = {
    State.PAUSED: 6,
    State.STREAM: 5,
    State.TOOL_EXEC: 4,
    State.CONTINUE: 3,
    State.CHECK: 2,
    State.CONCLUDE: 1,
    State.TEXT_ONLY: 1,
}

Rank = tuple[int, int, int, int, int, int, int]


class CallState(StrEnum):
    """Where a call of the open batch stands."""

    READY = "ready"
    STARTED = "started"
    WAITING = "waiting"
    SETTLED = "settled"


class Call:
    """One call of the open batch."""

    __slots__ = ("answers", "attempt", "counted", "made", "state")

    def __init__(self, made: f.CallMade) -> None:
        #: The call as it was journalled with its reply.
        self.made = made
        self.state = CallState.READY
        #: Times that it was started.
        self.attempt = 0
        #: Whether it has taken its place in the budget.
        self.counted = False
        #: What people said to its interrupts, oldest first.
        self.answers: tuple[f.Answered, ...] = ()

    @property
    def id(self) -> str:
        """The call's id, unique in the turn."""
        return self.made.id

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.made.name

    @property
    def arguments(self) -> Mapping[str, JsonValue]:
        """The arguments; empty where they were not a JSON object."""
        return self.made.arguments or {}

    def copy(self) -> "Call":
        """A copy that shares only what cannot change."""
        twin = object.__new__(Call)
        twin.made, twin.state, twin.attempt = self.made, self.state, self.attempt
        twin.counted, twin.answers = self.counted, self.answers
        return twin


class Turn:
    """What the facts so far add up to. Bounded in size, however long the turn: texts stay in the journal."""

    __slots__ = (
        "also_reached",
        "always_for",
        "batch",
        "calls_made",
        "carried",
        "cost",
        "counters",
        "depth",
        "elapsed",
        "grants",
        "input_tokens",
        "interrupts",
        "interrupts_asked",
        "limits",
        "loop_tools",
        "noticed",
        "nudge",
        "output_tokens",
        "reason",
        "rounds",
        "state",
        "step_open",
        "step_started_at",
        "step_usage",
        "synthesis",
        "synthesis_done",
    )

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.state: State = State.CHECK
        self.counters = Counters(self.limits)
        self.synthesis = False
        self.depth = 0
        #: Seconds of driving so far.
        self.elapsed = 0.0
        self.input_tokens = 0
        self.output_tokens = 0
        self.cost = 0.0
        #: Calls that replies asked for, over the turn: makes their ids.
        self.calls_made = 0
        #: The calls of the open step, by id, in the order in which the model asked.
        self.batch: dict[str, Call] = {}
        #: What no person has answered yet, by id.
        self.interrupts: dict[str, f.Interrupt] = {}
        self.interrupts_asked: dict[str, int] = {}
        self.grants: tuple[str, ...] = ()
        self.rounds: tuple[Round, ...] = ()
        self.loop_tools: tuple[str, ...] = ()
        self.always_for: frozenset[str] = frozenset()
        self.nudge = False
        self.step_open = False
        self.step_started_at = 0.0
        self.step_usage = Usage()
        #: Whether the open batch has been offered to the synthesis.
        self.synthesis_done = False
        self.noticed: frozenset[str] = frozenset()
        #: The reason that a conclusion carries, then the reason of the end.
        self.carried: EndReason | None = None
        self.reason: EndReason | None = None
        self.also_reached: tuple[EndReason, ...] = ()

    @property
    def usage(self) -> Usage:
        """What all model calls of the turn used, sub-agents included."""
        return Usage(input_tokens=self.input_tokens, output_tokens=self.output_tokens, cost=self.cost)

    @property
    def rank(self) -> Rank:
        """What every event lowers, in lexicographic order (DESIGN 2): why the turn ends.

        Steps left, pauses left, stage, retries left, open interrupts (while paused), calls that can still run, calls
        that have not started.
        """
        c = self.counters
        can_run = [call for call in self.batch.values() if call.state in (CallState.READY, CallState.STARTED)]
        return (
            c.steps_left,
            c.pauses_left,
            STAGE.get(self.state, 0),
            c.retries_left,
            c.waiting if self.state is State.PAUSED else 0,
            len(can_run),
            sum(call.state is CallState.READY for call in can_run),
        )

    def use(self) -> Iterable[tuple[str, float, float]]:
        """How much of each limit that is set is used: (name, used, limit)."""
        c, limits = self.counters, self.limits
        yield "steps", c.steps, limits.cap
        if limits.tool_calls is not None:
            yield "tool_calls", c.calls, limits.tool_calls
        if limits.tokens is not None:
            yield "tokens", self.input_tokens + self.output_tokens, limits.tokens
        if limits.cost is not None:
            yield "cost", self.cost, limits.cost
        if limits.seconds is not None:
            yield "seconds", self.elapsed, limits.seconds

    def open_calls(self) -> list[Call]:
        """The calls of the batch that have no result yet, in call order."""
        return [call for call in self.batch.values() if call.state is not CallState.SETTLED]

    def apply(self, fact: f.Fact) -> None:  # noqa: C901, PLR0912, PLR0915 (one case a fact: flat)
        """Take one fact in. It must follow from the ones before; nothing is checked here."""
        entered = fact.state is not self.state
        self.state = fact.state
        self.elapsed = max(self.elapsed, fact.elapsed)
        c = self.counters
        if self.limits.seconds is not None:
            c.time_spent = self.elapsed >= self.limits.seconds
        match fact:
            case f.TurnStarted():
                self._begin(fact)
            case f.StepStarted():
                c.steps = fact.number
                c.nudges_left -= fact.nudge
                self.nudge = fact.nudge
                self.step_open, self.step_started_at, self.step_usage = True, fact.elapsed, Usage()
                self.batch, self.synthesis_done = {}, False
            case f.ModelReplied():
                self._use(fact.usage)
                self._reply(fact)
            case f.AttemptFailed():
                self._use(fact.usage)
                c.retries_left -= fact.retry
            case f.CallStarted():
                self._start(self.batch[fact.call], fact)
            case f.CallSettled():
                self._settle(self.batch[fact.call], fact)
            case f.CallWaiting():
                self.batch[fact.call].state = CallState.WAITING
                self._ask(fact.interrupt)
            case f.Paused():
                c.pauses_left -= 1
                if fact.interrupt is not None:
                    self._ask(fact.interrupt)
            case f.Synthesised():
                self.synthesis_done = True
            case f.Answered():
                self._answer(fact)
            case f.StepFinished():
                self.step_open, self.nudge = False, False
            case f.Stopping():
                self._use(fact.usage)
                self.carried, self.also_reached = fact.reason, fact.also_reached
                c.carried_doom = fact.reason is EndReason.DOOM_LOOP
            case f.MessageAdded():
                self._forget_rounds()
            case f.Concluded():
                self._use(fact.usage)
            case f.Halted():
                self._use(fact.usage)
                self.reason, self.also_reached = fact.reason, fact.also_reached
                self.interrupts, c.waiting = {}, 0
            case f.Notice():
                self.noticed |= {fact.limit}
            case _:
                raise TypeError(f"{type(fact).__name__} is no fact of a turn")
        if entered and self.state in LIVE:
            c.retries_left = self.limits.max_retries

    def _begin(self, fact: f.TurnStarted) -> None:
        self.limits = fact.limits
        self.counters = Counters(fact.limits)
        self.synthesis, self.depth = fact.synthesis, fact.depth

    def _use(self, usage: Usage | None) -> None:
        if usage is None:
            return
        self.step_usage += usage
        self._spend(usage.input_tokens, usage.output_tokens, usage.cost)

    def _spend(self, input_tokens: int, output_tokens: int, cost: float) -> None:
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
        self.cost += cost
        if self.limits.tokens is not None:
            self.counters.tokens_spent = self.input_tokens + self.output_tokens >= self.limits.tokens
        if self.limits.cost is not None:
            self.counters.cost_spent = self.cost >= self.limits.cost

    def _reply(self, fact: f.ModelReplied) -> None:
        self.batch = {made.id: Call(made) for made in fact.calls}
        self.calls_made += len(fact.calls)
        self.synthesis_done = False
        threshold = self.limits.doom_threshold
        latest = make_round((made.name, made.key) for made in fact.calls if made.key)
        if threshold is None or latest is None:
            self.counters.doom = False
            return
        self.rounds = remember(self.rounds, latest, threshold)
        self.loop_tools = looping(self.rounds, threshold)
        self.counters.doom = bool(self.loop_tools)

    def _forget_rounds(self) -> None:
        self.rounds, self.loop_tools, self.counters.doom = (), (), False

    def _start(self, call: Call, fact: f.CallStarted) -> None:
        if call.state is CallState.STARTED:
            self.counters.retries_left -= 1
        if not call.counted:
            self.counters.calls += 1
            call.counted = True
        call.state, call.attempt = CallState.STARTED, fact.attempt

    def _settle(self, call: Call, fact: f.CallSettled) -> None:
        call.state = CallState.SETTLED
        for interrupt in [i.id for i in self.interrupts.values() if i.call == call.id]:
            del self.interrupts[interrupt]
        self.counters.waiting = len(self.interrupts)
        spent = fact.spent or Spent()
        self.counters.calls += spent.calls
        self._spend(spent.tokens, 0, spent.cost)

    def _ask(self, interrupt: f.Interrupt) -> None:
        self.interrupts[interrupt.id] = interrupt
        if not interrupt.forwarded:
            self.interrupts_asked[interrupt.kind] = self.interrupts_asked.get(interrupt.kind, 0) + 1
        self.counters.waiting = len(self.interrupts)

    def _answer(self, fact: f.Answered) -> None:
        interrupt = self.interrupts.pop(fact.interrupt)
        self.counters.waiting = len(self.interrupts)
        if fact.grant is not None:
            self.grants = (*self.grants, fact.grant)
        if not interrupt.call and fact.decision in (Decision.GO_ON, Decision.ALWAYS):
            self._forget_rounds()
            self.always_for |= frozenset(fact.always_for)
        if interrupt.call:
            call = self.batch[interrupt.call]
            call.answers, call.state = (*call.answers, fact), CallState.READY

    def digest(self) -> str:
        """Eight hexadecimal digits that change with anything that could change what the turn does next."""
        known = (
            self.state,
            self.counters.kept(),
            self.input_tokens,
            self.output_tokens,
            self.cost,
            self.calls_made,
            self.carried,
            self.reason,
            self.grants,
            self.rounds,
            sorted(self.always_for),
            tuple((call.id, call.state, call.attempt, call.counted) for call in self.batch.values()),
            tuple(self.interrupts),
            self.step_open,
            self.synthesis_done,
            sorted(self.noticed),
        )
        return blake2b(repr(known).encode(), digest_size=4).hexdigest()

    def copy(self) -> "Turn":
        """A copy that shares only what cannot change."""
        twin = object.__new__(Turn)
        for name in Turn.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.counters = self.counters.copy()
        twin.batch = {name: call.copy() for name, call in self.batch.items()}
        twin.interrupts = dict(self.interrupts)
        twin.interrupts_asked = dict(self.interrupts_asked)
        return twin


def fold(facts: Iterable[f.Fact]) -> Turn:
    """What the facts add up to."""
    turn = Turn()
    for fact in facts:
        turn.apply(fact)
    return turn
