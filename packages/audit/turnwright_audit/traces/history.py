"""One turn of a trace, event by event, and its faults.

A fault is recorded where it becomes visible, with the lines that led there. Questions that need the complete turn, such
as whether the runtime records the start of its tools at all, are answered after the last event (`unknown`).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from turnwright_states.inputs import CallStatus, is_blank

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


class TraceClaim(StrEnum):
    """One invariant of a turn. The value is the sentence that a verdict is about."""

    #: docs/rules.md#pairing.
    PAIRED = "each call has its result before the model is called again and before the turn ends"
    #: docs/rules.md#pairing.
    ASKED = "each result answers a call that a reply asked for, once"
    #: docs/rules.md#steps.
    REPLIED = "each model call has one reply or one failure, and no reply comes without a call"
    #: docs/rules.md#budgets, #recovery.
    STARTED = "each call that succeeded was started, and nothing starts that no reply asked for"
    #: docs/rules.md#retries, #recovery.
    RETRIED = "no call starts twice without a record of its retry"
    #: docs/rules.md#concluding.
    DISABLED = "no call runs that came while tools were disabled"
    #: docs/rules.md#approvals.
    RESTED = "nothing runs while the turn is paused"
    #: docs/rules.md#steps.
    STEPS = "steps stay within their limit"
    #: docs/rules.md#budgets.
    CALLS = "tool calls that start stay within their limit"
    #: docs/rules.md#model-calls.
    MODEL_CALLS = "model calls stay within their limit"
    #: docs/rules.md#retries.
    RETRIES = "no model call is tried again more often than allowed"
    #: docs/rules.md#outcomes.
    ONE_END = "the turn begins once and ends once"
    #: A final state has no rows.
    NOTHING_AFTER = "nothing happens after the end"
    #: docs/rules.md#outcomes.
    REASON = "the end names its outcome and its reason"
    #: docs/rules.md#concluding.
    WORDS = "the turn does not end silently: the user gets a text"


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
    subject: str
    amount: int
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
        self._failed_call: TraceModelCalled | None = None
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
            self._add_fault(TraceClaim.ONE_END, "the turn begins again")
            return
        if self.ended:
            again = isinstance(event, TraceTurnEnded)
            claim = TraceClaim.ONE_END if again else TraceClaim.NOTHING_AFTER
            self._add_fault(claim, "the turn ends again" if again else f"{event.event} after the end")
            return
        self._take(event)

    def unknown(self) -> dict[TraceClaim, str]:
        """Return the claims that cannot be decided unless a fault breaks them, each with the reason."""
        if not self.whole:
            return dict.fromkeys(
                TraceClaim, "the trace begins in the middle of the turn: there is no turn_started first"
            )
        if not self.ended:
            pause_words = " (it is paused)" if self._paused else ""
            return dict.fromkeys(
                TraceClaim, f"the trace stops before the turn ends{pause_words}: there is no turn_ended"
            )
        gaps: dict[TraceClaim, str] = {}
        if self._without_call and not self.model_calls:
            why = "there are replies and no model_called: the runtime does not record its model calls"
            gaps.update(self._explain_gaps(_OF_MODEL_CALLS, why))
        if self._ran_unseen and not self.calls:
            why = "there are results and no tool_started: the runtime does not record when its tools start"
            gaps.update(self._explain_gaps(_OF_STARTS, why))
        for bound in self._list_bounds():
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

    def _explain_gaps(self, claims: frozenset[TraceClaim], why: str) -> dict[TraceClaim, str]:
        # A turn that never paused ran nothing during a pause.
        return dict.fromkeys(claims if self._ever_paused else claims - {TraceClaim.RESTED}, why)

    def _take(self, event: TraceEvent) -> None:  # noqa: C901 (one case an event: flat)
        match event:
            case TraceTurnStarted():
                self.limits = event.limits
            case TraceModelCalled():
                self._take_model_call(event)
            case TraceModelReplied():
                self._take_model_reply(event)
            case TraceModelFailed():
                self._answer_model("a failure")
            case TraceToolStarted():
                self._take_tool_start(event)
            case TraceToolRetried():
                self._take_tool_retry(event)
            case TraceToolResult():
                self._take_tool_result(event)
            case TracePaused():
                self._paused = self._ever_paused = True
            case TraceResumed():
                self._paused = False
            case TraceTurnEnded():
                self._take_turn_end(event)

    def _take_model_call(self, event: TraceModelCalled) -> None:
        self._need_no_pause("the model is called")
        self._need_results("the model is called")
        if self._in_flight is not None:
            self._add_fault(
                TraceClaim.REPLIED,
                f"the model is called, and the call of {self._at(self._in_flight[0])} has no reply yet",
            )
        again = self._failed_call is not None and self._failed_call.tools is event.tools
        self._attempts = self._attempts + 1 if again else 0
        self.steps += event.tools and not again
        self.model_calls += 1
        self._in_flight, self._failed_call = (self._line, event), None
        self._need_bounds()

    def _take_model_reply(self, event: TraceModelReplied) -> None:
        # If a runtime does not record its model calls, a reply shows that there was one.
        self._need_results("the model replies")
        model_call = self._answer_model("a reply")
        self._failed_call = None
        if not is_blank(event.text):
            self._speaks = True
        is_disabled = model_call is not None and not model_call.tools
        self._open = [_OpenCall(call.id, self._line, is_disabled) for call in event.calls]

    def _answer_model(self, moment: str) -> TraceModelCalled | None:
        """Return the open model call, and mark it as failed; a reply takes the mark back."""
        if self._in_flight is None:
            self._without_call.append(self._make_fault(TraceClaim.REPLIED, f"{moment} without an open model call"))
            return None
        self._failed_call, self._in_flight = self._in_flight[1], None
        return self._failed_call

    def _take_tool_start(self, event: TraceToolStarted) -> None:
        self._need_no_pause(f"call {event.call} starts")
        # Ids need not be unique, so this is the oldest call that may start now.
        may_start = self._find(event.call, lambda candidate: candidate.starts <= candidate.retries)
        call = may_start or self._find(event.call, lambda _: True)
        if call is None:
            self._add_fault(TraceClaim.STARTED, f"call {event.call} starts, and {self._explain_absence(event.call)}")
            return
        if call.disabled:
            self._add_fault(
                TraceClaim.DISABLED,
                f"call {call.id} of {self._at(call.line)} starts, and tools were disabled there",
            )
        if may_start is None:
            self._add_fault(
                TraceClaim.RETRIED,
                f"call {call.id} of {self._at(call.line)} starts again, and no tool_retried says so",
            )
        self.calls += not call.starts
        call.starts += 1
        self._need_bounds()

    def _take_tool_retry(self, event: TraceToolRetried) -> None:
        call = self._find(event.call, lambda candidate: candidate.starts > candidate.retries)
        if call is None:
            self._add_fault(TraceClaim.RETRIED, f"a retry of call {event.call} is recorded without an earlier start")
        else:
            call.retries += 1

    def _take_tool_result(self, event: TraceToolResult) -> None:
        has_succeeded = event.status is CallStatus.OK
        fitting = self._find(event.call, lambda candidate: bool(candidate.starts) is has_succeeded)
        call = fitting or self._find(event.call, lambda _: True)
        if call is None:
            self._add_fault(
                TraceClaim.ASKED, f"a result for call {event.call}, and {self._explain_absence(event.call)}"
            )
            return
        self._open.remove(call)
        self._past[call.id] = f"it has one already, in {self._at(self._line)}"
        if call.starts:
            return
        # A call that could not start may have an error, but without any recorded start this is unknown.
        self._ran_unseen |= event.status in _RAN
        if has_succeeded:
            why = f"call {call.id} of {self._at(call.line)} succeeds, and was never started"
            self._without_start.append(self._make_fault(TraceClaim.STARTED, why))

    def _take_turn_end(self, event: TraceTurnEnded) -> None:
        self._need_results("the turn ends")
        self.ended = True
        missing_names = [name for name in ("outcome", "reason") if not getattr(event, name).strip()]
        if missing_names:
            self._add_fault(TraceClaim.REASON, f"turn_ended has no {' and no '.join(missing_names)}")
        if event.text is not None:
            self._speaks = not is_blank(event.text)
        if self._speaks is False:
            self._add_fault(TraceClaim.WORDS, "turn_ended has a blank `text`: the user gets no text")

    def _need_results(self, moment: str) -> None:
        if self._open:
            calls = ", ".join(f"{call.id} of {self._at(call.line)}" for call in self._open)
            self._add_fault(TraceClaim.PAIRED, f"{moment}, and there is no result for {calls}")
            for call in self._open:
                self._past[call.id] = f"it comes too late: {self._at(self._line)} continued without it"
            self._open = []

    def _need_no_pause(self, moment: str) -> None:
        if self._paused:
            self._add_fault(TraceClaim.RESTED, f"{moment} while the turn is paused")

    def _need_bounds(self) -> None:
        broken_claims = {fault.claim for fault in self._faults}
        for bound in self._list_bounds():
            if bound.most is not None and bound.amount > bound.most and bound.claim not in broken_claims:
                self._add_fault(bound.claim, f"this is {bound.subject} {bound.amount}, and the limit is {bound.most}")

    def _list_bounds(self) -> tuple[_Bound, ...]:
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
        return next((open_call for open_call in self._open if open_call.id == call and fits(open_call)), None)

    def _at(self, line: int) -> str:
        return f"{self._place} {line}"

    def _explain_absence(self, call: str) -> str:
        return self._past.get(call, "no reply asked for it")

    def _make_fault(self, claim: TraceClaim, why: str) -> Fault:
        return Fault(claim, self._line, why, tuple(self._lines))

    def _add_fault(self, claim: TraceClaim, why: str) -> None:
        self._faults.append(self._make_fault(claim, why))
