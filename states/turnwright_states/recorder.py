"""Makes facts and applies each as it makes it, so that what the machine knows is always the fold of what it said."""

from . import facts as f
from .chart import Chart, Row
from .errors import BadCall, IllegalEvent
from .events import Event, InterruptKind
from .state import State, Trigger
from .turn import Call, CallState, Turn

#: Facts after which a limit may have come near.
_RAISES = (f.StepStarted, f.ModelReplied, f.AttemptFailed, f.CallStarted, f.CallSettled)


class Recorder:
    """What the machine stands on: the turn, where `transitions.Machine` stands, and the facts of the event at hand."""

    __slots__ = ("_chart", "_elapsed", "_out", "_undelivered", "state", "turn")

    # Of the event at hand: its time, and the messages that were not taken in.
    _elapsed: float
    _undelivered: tuple[str, ...]

    def __init__(self, turn: Turn, chart: Chart) -> None:
        #: What is known of the turn: counters, the open batch, the open interrupts.
        self.turn = turn
        #: Where `transitions.Machine` stands; the same as `turn.state` whenever `feed` has returned.
        self.state: State = turn.state
        self._chart = chart
        self._out: list[f.Fact] = []

    def _fire(self, trigger: Trigger) -> Row:
        return self._chart.fire(self, trigger, self.turn.counters)

    def _emit(self, kind: type[f.Fact], *, state: State | None = None, **fields: object) -> None:
        fact = kind.model_validate({"elapsed": self._elapsed, "state": state or self.turn.state, **fields})
        self.turn.apply(fact)
        self._seal(fact)
        self._out.append(fact)
        if kind in _RAISES:
            self._notice(fact)

    def _seal(self, fact: f.Fact) -> None:
        # Frozen for everybody else: the hash is of the state after the fact, so it is known only now.
        object.__setattr__(fact, "hash", self.turn.digest())

    def _notice(self, fact: f.Fact) -> None:
        turn = self.turn
        if isinstance(fact, f.ModelReplied) and fact.usage is None and "usage_unknown" not in turn.noticed:
            self._emit(f.Notice, limit="usage_unknown")
        for limit, used, most in turn.use():
            # Four fifths without fractions: 0.8 is no binary number.
            if most and limit not in turn.noticed and 5 * used >= 4 * most:
                self._emit(f.Notice, limit=limit, used=used, of=most)

    def _taken_out(self) -> list[f.Fact]:
        facts, self._out = self._out, []
        return facts

    def _need_row(self, trigger: Trigger, event: Event) -> None:
        if not self._chart.accepts(self.state, trigger):
            raise IllegalEvent(type(event).__name__, self.state)

    def _need_tools(self, event: Event) -> None:
        if self.state is not State.TOOL_EXEC:
            raise IllegalEvent(type(event).__name__, self.state)

    def _need_ear(self, event: Event) -> None:
        """A message is taken in before a model call that may use tools, and never between a call and its result.

        So in STREAM, or before the last result of a batch, where CHECK will hear of it too: also while a call waits for
        a person. A doom loop that a person is asked about was decided before.
        """
        match self.state:
            case State.STREAM:
                return
            case State.TOOL_EXEC if self._runnable():
                return
            case State.PAUSED if all(asked.call for asked in self.turn.interrupts.values()):
                return
        raise IllegalEvent(type(event).__name__, self.state)

    def _need_synthesis(self, event: Event) -> None:
        self._need_tools(event)
        if self._runnable() or not self.turn.synthesis:
            raise IllegalEvent(type(event).__name__, self.state)

    def _call(self, event: Event, call_id: str) -> Call:
        self._need_tools(event)
        call = self.turn.batch.get(call_id)
        if call is None:
            raise BadCall(type(event).__name__, call_id, "there is no such call in the open batch")
        if call.state not in (CallState.READY, CallState.STARTED):
            raise BadCall(type(event).__name__, call_id, f"it is {call.state}")
        return call

    def _runnable(self) -> tuple[Call, ...]:
        calls = self.turn.batch.values()
        return tuple(call for call in calls if call.state in (CallState.READY, CallState.STARTED))

    def _next_interrupt(self, kind: InterruptKind) -> str:
        name = (
            "doom" if kind is InterruptKind.DOOM_LOOP else "unknown" if kind is InterruptKind.UNKNOWN_OUTCOME else kind
        )
        return f"{name}-{self.turn.interrupts_asked.get(kind, 0) + 1}"
