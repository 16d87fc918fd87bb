"""One turn of a trace, event by event, and its faults.

A fault is recorded where it becomes visible, with the lines that led there. Questions that need the complete turn, such
as whether the runtime records the start of its tools at all, are answered after the last event (`unknown`).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from turnwright_states.blank import is_blank
from turnwright_states.inputs import CallStatus

from .claims import TraceClaim
from .events import (
    TraceEvent,
    TraceLimits,
    TraceModelCalled,
    TraceModelFailed,
    TraceModelReplied,
    TracePaused,
    TraceResumed,
    TraceToolResult,
    TraceToolRetried,
    TraceToolStarted,
    TraceTurnEnded,
    TraceTurnStarted,
)

#: The number of lines in a witness.
WITNESS: Final = 8

#: The claims that need a record of model calls, and those that need a record of the tools' starts.
_OF_MODEL_CALLS: Final = frozenset(
    {
        TraceClaim.REPLIED,
        TraceClaim.STEPS,
        TraceClaim.MODEL_CALLS,
        TraceClaim.RETRIES,
        TraceClaim.DISABLED,
        TraceClaim.RESTED,
    }
)
_OF_STARTS: Final = frozenset(
    {TraceClaim.STARTED, TraceClaim.RETRIED, TraceClaim.CALLS, TraceClaim.DISABLED, TraceClaim.RESTED}
)
#: The results of calls that ran, and of some that could not (an error).
_RAN: Final = frozenset({CallStatus.OK, CallStatus.ERROR})


@dataclass(frozen=True, slots=True)
class Fault:
    """A claim that a turn broke: the line, the reason, and the lines that led there."""

    claim: TraceClaim
    line: int
    why: str
    witness: tuple[str, ...]


@dataclass(slots=True)
class _OpenCall:
    """A call without a result."""

    id: str
    line: int
    disabled: bool
    starts: int = 0
    retries: int = 0


class _Bound(NamedTuple):
    """A count and its limit; None if the trace has no such limit."""

    claim: TraceClaim
    what: str
    used: int
    most: int | None
    given_by: str


class History:
    """One turn, named `turn`. `take` its events in order, then read `found` and `unknown`.

    `place` is the word for the place of an event, such as a line.
    """

    def __init__(self, turn: str, place: str) -> None:
        self.turn = turn
        self._place = place
        self._faults: list[Fault] = []
        self.steps = self.calls = self.model_calls = 0
        self.limits = TraceLimits()
        #: Whether the first event was `turn_started`. If not, a part is missing and nothing can be checked.
        self.whole: bool | None = None
        self.ended = False
        self._open: list[_OpenCall] = []
        #: The reason why a call is not open any more, by id.
        self._past: dict[str, str] = {}
        #: The model call without reply or failure, with its line.
        self._in_flight: tuple[int, TraceModelCalled] | None = None
        #: The model call that has just failed: one more like it is a retry.
        self._failed: TraceModelCalled | None = None
        self._attempts = 0
        self._paused = self._ever_paused = False
        #: Whether the user gets a text, in a reply or at the end; None if the trace does not show it.
        self._speaks: bool | None = None
        self._lines: deque[str] = deque(maxlen=WITNESS)
        self._line = 0
        # These are faults only if the runtime records such events at all.
        self._without_call: list[Fault] = []
        self._without_start: list[Fault] = []
        self._ran_unseen = False

    def take(self, line: int, event: TraceEvent) -> None:
        """Apply the next event of the turn, from line `line`."""
        self._line = line
        self._lines.append(f"{self._at(line)}: {event.event} {event.words}".rstrip())
        if self.whole is None:
            self.whole = isinstance(event, TraceTurnStarted)
        elif isinstance(event, TraceTurnStarted):
            self._fault(TraceClaim.ONE_END, "the turn begins again")
            return
        if self.ended:
            again = isinstance(event, TraceTurnEnded)
            claim = TraceClaim.ONE_END if again else TraceClaim.NOTHING_AFTER
            self._fault(claim, "the turn ends again" if again else f"{event.event} after the end")
            return
        self._take(event)

    def unknown(self) -> dict[TraceClaim, str]:
        """Return the claims that cannot be decided unless a fault breaks them, each with the reason."""
        if not self.whole:
            return dict.fromkeys(
                TraceClaim, "the trace begins in the middle of the turn: there is no turn_started first"
            )
        if not self.ended:
            paused = " (it is paused)" if self._paused else ""
            return dict.fromkeys(TraceClaim, f"the trace stops before the turn ends{paused}: there is no turn_ended")
        gaps: dict[TraceClaim, str] = {}
        if self._without_call and not self.model_calls:
            why = "there are replies and no model_called: the runtime does not record its model calls"
            gaps.update(self._needed(_OF_MODEL_CALLS, why))
        if self._ran_unseen and not self.calls:
            why = "there are results and no tool_started: the runtime does not record when its tools start"
            gaps.update(self._needed(_OF_STARTS, why))
        for bound in self._bounds():
            if bound.most is None:
                gaps.setdefault(bound.claim, f"turn_started has no {bound.given_by}")
        if self._speaks is None:
            gaps[TraceClaim.WORDS] = "turn_ended has no `text`, and no reply had any"
        return gaps

    def found(self) -> list[Fault]:
        """Return the faults, oldest first. A turn without its beginning has none, because that may explain them."""
        if not self.whole:
            return []
        late = [*(self._without_call if self.model_calls else ()), *(self._without_start if self.calls else ())]
        return sorted([*self._faults, *late], key=lambda fault: fault.line)

    def _needed(self, claims: frozenset[TraceClaim], why: str) -> dict[TraceClaim, str]:
        # A turn that never paused ran nothing during a pause.
        return dict.fromkeys(claims if self._ever_paused else claims - {TraceClaim.RESTED}, why)

    def _take(self, event: TraceEvent) -> None:  # noqa: C901 (one case an event: flat)
        match event:
            case TraceTurnStarted():
                self.limits = event.limits
            case TraceModelCalled():
                self._model_called(event)
            case TraceModelReplied():
                self._model_replied(event)
            case TraceModelFailed():
                self._answer_model("a failure")
            case TraceToolStarted():
                self._tool_started(event)
            case TraceToolRetried():
                self._tool_retried(event)
            case TraceToolResult():
                self._tool_result(event)
            case TracePaused():
                self._paused = self._ever_paused = True
            case TraceResumed():
                self._paused = False
            case TraceTurnEnded():
                self._turn_ended(event)

    def _model_called(self, event: TraceModelCalled) -> None:
        self._need_no_pause("the model is called")
        self._need_results("the model is called")
        if self._in_flight is not None:
            self._fault(
                TraceClaim.REPLIED,
                f"the model is called, and the call of {self._at(self._in_flight[0])} has no reply yet",
            )
        again = self._failed is not None and self._failed.tools is event.tools
        self._attempts = self._attempts + 1 if again else 0
        self.steps += event.tools and not again
        self.model_calls += 1
        self._in_flight, self._failed = (self._line, event), None
        self._need_bounds()

    def _model_replied(self, event: TraceModelReplied) -> None:
        # If a runtime does not record its model calls, a reply shows that there was one.
        self._need_results("the model replies")
        called = self._answer_model("a reply")
        self._failed = None
        if not is_blank(event.text):
            self._speaks = True
        disabled = called is not None and not called.tools
        self._open = [_OpenCall(call.id, self._line, disabled) for call in event.calls]

    def _answer_model(self, what: str) -> TraceModelCalled | None:
        """Return the open model call, and mark it as failed; a reply takes the mark back."""
        if self._in_flight is None:
            self._without_call.append(self._made(TraceClaim.REPLIED, f"{what} without an open model call"))
            return None
        self._failed, self._in_flight = self._in_flight[1], None
        return self._failed

    def _tool_started(self, event: TraceToolStarted) -> None:
        self._need_no_pause(f"call {event.call} starts")
        # Ids need not be unique, so this is the oldest call that may start now.
        may_start = self._find(event.call, lambda one: one.starts <= one.retries)
        call = may_start or self._find(event.call, lambda _: True)
        if call is None:
            self._fault(TraceClaim.STARTED, f"call {event.call} starts, and {self._why_not(event.call)}")
            return
        if call.disabled:
            self._fault(
                TraceClaim.DISABLED,
                f"call {call.id} of {self._at(call.line)} starts, and tools were disabled there",
            )
        if may_start is None:
            self._fault(
                TraceClaim.RETRIED,
                f"call {call.id} of {self._at(call.line)} starts again, and no tool_retried says so",
            )
        self.calls += not call.starts
        call.starts += 1
        self._need_bounds()

    def _tool_retried(self, event: TraceToolRetried) -> None:
        call = self._find(event.call, lambda one: one.starts > one.retries)
        if call is None:
            self._fault(TraceClaim.RETRIED, f"a retry of call {event.call} is recorded without an earlier start")
        else:
            call.retries += 1

    def _tool_result(self, event: TraceToolResult) -> None:
        succeeded = event.status is CallStatus.OK
        fitting = self._find(event.call, lambda one: bool(one.starts) is succeeded)
        call = fitting or self._find(event.call, lambda _: True)
        if call is None:
            self._fault(TraceClaim.ASKED, f"a result for call {event.call}, and {self._why_not(event.call)}")
            return
        self._open.remove(call)
        self._past[call.id] = f"it has one already, in {self._at(self._line)}"
        if call.starts:
            return
        # A call that could not start may have an error, but without any recorded start this is unknown.
        self._ran_unseen |= event.status in _RAN
        if succeeded:
            why = f"call {call.id} of {self._at(call.line)} succeeds, and was never started"
            self._without_start.append(self._made(TraceClaim.STARTED, why))

    def _turn_ended(self, event: TraceTurnEnded) -> None:
        self._need_results("the turn ends")
        self.ended = True
        missing = [name for name in ("outcome", "reason") if not getattr(event, name).strip()]
        if missing:
            self._fault(TraceClaim.REASON, f"turn_ended has no {' and no '.join(missing)}")
        if event.text is not None:
            self._speaks = not is_blank(event.text)
        if self._speaks is False:
            self._fault(TraceClaim.WORDS, "turn_ended has a blank `text`: the user gets no text")

    def _need_results(self, when: str) -> None:
        if self._open:
            calls = ", ".join(f"{call.id} of {self._at(call.line)}" for call in self._open)
            self._fault(TraceClaim.PAIRED, f"{when}, and there is no result for {calls}")
            for call in self._open:
                self._past[call.id] = f"it comes too late: {self._at(self._line)} continued without it"
            self._open = []

    def _need_no_pause(self, what: str) -> None:
        if self._paused:
            self._fault(TraceClaim.RESTED, f"{what} while the turn is paused")

    def _need_bounds(self) -> None:
        broken = {fault.claim for fault in self._faults}
        for bound in self._bounds():
            if bound.most is not None and bound.used > bound.most and bound.claim not in broken:
                self._fault(bound.claim, f"this is {bound.what} {bound.used}, and the limit is {bound.most}")

    def _bounds(self) -> tuple[_Bound, ...]:
        most = self.limits
        models = "`model_calls`, nor `steps` and `max_retries`"
        return (
            _Bound(TraceClaim.STEPS, "step", self.steps, most.steps, "`steps`"),
            _Bound(TraceClaim.CALLS, "tool call", self.calls, most.tool_calls, "`tool_calls`"),
            _Bound(TraceClaim.MODEL_CALLS, "model call", self.model_calls, most.most_model_calls, models),
            _Bound(TraceClaim.RETRIES, "retry", self._attempts, most.max_retries, "`max_retries`"),
        )

    def _find(self, call: str, fits: Callable[[_OpenCall], bool]) -> _OpenCall | None:
        """Return the oldest open call with this id that fits."""
        return next((one for one in self._open if one.id == call and fits(one)), None)

    def _at(self, line: int) -> str:
        return f"{self._place} {line}"

    def _why_not(self, call: str) -> str:
        return self._past.get(call, "no reply asked for it")

    def _made(self, claim: TraceClaim, why: str) -> Fault:
        return Fault(claim, self._line, why, tuple(self._lines))

    def _fault(self, claim: TraceClaim, why: str) -> None:
        self._faults.append(self._made(claim, why))
