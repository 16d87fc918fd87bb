"""Writes facts down and applies each as it is written, so that what the machine knows is the fold of what it said."""

from typing import ClassVar, Final, NoReturn

from msgspec.structs import force_setattr

from . import facts as f
from .call import Call, CallState
from .chart import Chart, Row
from .errors import IllegalInputError, InvalidCallError
from .inputs import Input, InterruptKind
from .state import State, Trigger
from .turn import Turn

#: Facts after which a limit may have come near.
_RAISES: Final = frozenset({f.StepStarted, f.ModelReplied, f.AttemptFailed, f.CallStarted, f.CallSettled})


class Recorder:
    """What the machine stands on: the turn, where `transitions.Machine` stands, and the facts of the event at hand."""

    __slots__ = ("_chart", "_elapsed", "_event", "_out", "state", "turn")

    #: Whether facts get their hashes. A walk, in which nobody reads them, goes without.
    hashed: ClassVar[bool] = True

    # The event at hand, and its time to the microsecond.
    _event: Input
    _elapsed: float

    def __init__(self, turn: Turn, chart: Chart) -> None:
        #: What is known of the turn: counters, the open batch, the open interrupts.
        self.turn = turn
        #: Where `transitions.Machine` stands; the same as `turn.state` whenever `feed` has returned.
        self.state: State = turn.state
        self._chart = chart
        self._out: list[f.Fact] = []

    def _fire(self, trigger: Trigger) -> Row:
        try:
            return self._chart.fire(self, trigger, self.turn.counters)
        except IllegalInputError as error:
            if not self._out:
                raise
            # Only a machine from which somebody took a transition stops in the middle of an event.
            raise IllegalInputError(error.event, error.state, made=len(self._out)) from None

    def _emit(self, fact: f.Fact) -> None:
        """Write a fact down. Nobody has seen it: so it gets its hash, which is of the state after it, though frozen."""
        turn = self.turn
        turn.apply(fact)
        if self.hashed:
            force_setattr(fact, "hash", turn.digest())
        self._out.append(fact)
        if turn.near and type(fact) in _RAISES:
            self._notice(fact)

    def _notice(self, fact: f.Fact) -> None:
        """Give notice of each limit that is near, and of a reply whose usage is not told."""
        turn = self.turn
        if isinstance(fact, f.ModelReplied) and fact.usage is None and "usage_unknown" not in turn.noticed:
            self._emit(f.Notice(self._elapsed, turn.state, limit="usage_unknown"))
        for limit, used, most in turn.use():
            if 5 * used >= getattr(turn.marks, limit):
                self._emit(f.Notice(self._elapsed, turn.state, limit=limit, used=used, of=most))

    def _need_ear(self, event: Input) -> None:
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
        raise IllegalInputError(event.title(), self.state)

    def _need_synthesis(self, event: Input) -> None:
        if self.state is not State.TOOL_EXEC or self._runnable() or not self.turn.synthesis:
            raise IllegalInputError(event.title(), self.state)

    def _call(self, event: Input, call_id: str) -> Call:
        if self.state is not State.TOOL_EXEC:
            raise IllegalInputError(event.title(), self.state)
        batch = self.turn.batch
        call = batch[call_id] if call_id in batch else None  # noqa: SIM401 (`get` is a call)
        if call is None or (call.state is not CallState.READY and call.state is not CallState.STARTED):
            self._refuse_call(event, call_id, call)
        return call

    def _open_call(self, event: Input, call_id: str) -> Call:
        """Return the call of the open batch, or refuse the event if there is none or it has its result."""
        call = self.turn.batch.get(call_id)
        if call is None or call.state is CallState.SETTLED:
            self._refuse_call(event, call_id, call)
        return call

    def _refuse_call(self, event: Input, call_id: str, call: Call | None) -> NoReturn:
        why = "there is no such call in the open batch" if call is None else f"it is {call.state}"
        raise InvalidCallError(event.title(), call_id, why)

    def _runnable(self) -> tuple[Call, ...]:
        calls = self.turn.batch.values()
        return tuple([call for call in calls if call.state is CallState.READY or call.state is CallState.STARTED])

    def _next_interrupt(self, kind: InterruptKind) -> str:
        name = (
            "doom" if kind is InterruptKind.DOOM_LOOP else "unknown" if kind is InterruptKind.UNKNOWN_OUTCOME else kind
        )
        return f"{name}-{self.turn.interrupts_asked.get(kind, 0) + 1}"
