"""A Turnwright turn as a trace: its journal as the events of other runtimes."""

from collections.abc import Iterator, Sequence

from turnwright.message import SentinelPart
from turnwright.transcript.transcript import Transcript
from turnwright_audit import traces
from turnwright_states import CallStatus, Cause, State
from turnwright_states import facts as f


def trace_of(turn: str, facts: Sequence[f.Fact]) -> list[traces.TraceEvent]:
    """The trace of the turn `turn` from its facts, oldest first: a whole journal, or the beginning of one.

    A call that could not even start (an unknown tool, arguments that do not fit) has the status `refused` in the
    trace. Events without facts are missing: the calls of a sub-agent, and those that a concluding reply asked for. The
    model calls of compactions are missing too. A model call after a compaction is a retry of the one that overflowed,
    so `max_retries` includes the compactions.
    """
    return list(_Tracer(turn, facts).events())


class _Tracer:
    """A single pass through the facts. `_waits` is whether a model call waits for its reply."""

    def __init__(self, turn: str, facts: Sequence[f.Fact]) -> None:
        self._turn = turn
        self._facts = facts
        self._waits, self._asks_for_conclusion = False, True
        self._paused = self._compacting = False
        self._started: set[str] = set()

    def events(self) -> Iterator[traces.TraceEvent]:
        for fact in self._facts:
            if self._paused and not isinstance(fact, f.Paused | f.TurnEnded) and fact.state is not State.PAUSED:
                self._paused = False
                yield traces.TraceResumed(turn=self._turn)
            yield from self._trace_fact(fact)

    def _trace_fact(self, fact: f.Fact) -> Iterator[traces.TraceEvent]:  # noqa: C901, PLR0912 (one case a fact: flat)
        turn = self._turn
        match fact:
            case f.TurnStarted():
                limits = fact.limits
                self._asks_for_conclusion = limits.asks_for_conclusion
                yield traces.TraceTurnStarted(
                    turn=turn,
                    limits=traces.TraceLimits(
                        steps=limits.allowance,
                        tool_calls=limits.call_limit,
                        max_retries=limits.max_retries + limits.max_compactions,
                        model_calls=limits.model_calls,
                    ),
                )
                if fact.state is State.TEXT_ONLY:
                    yield self._call_model(tools=False)
            case f.StepStarted():
                yield self._call_model(tools=True)
            case f.ModelReplied():
                self._waits = False
                calls = tuple(traces.TraceCall(id=call.id, name=call.name) for call in fact.calls)
                yield traces.TraceModelReplied(turn=turn, text=fact.text, calls=calls)
            case f.CompactionStarted():
                self._compacting = True
            case f.Compacted() | f.AttemptFailed() if self._compacting:
                self._compacting = fact.state is State.COMPACT
                if fact.state is State.STREAM and not self._waits:
                    yield self._call_model(tools=True)
            case f.AttemptFailed() if self._waits:
                yield self._fail(fact.cause)
                if fact.retry:
                    yield self._call_model(tools=fact.state is State.STREAM)
            case f.CallStarted():
                if fact.attempt > 1:
                    yield traces.TraceToolRetried(turn=turn, call=fact.call)
                self._started.add(fact.call)
                yield traces.TraceToolStarted(turn=turn, call=fact.call)
            case f.CallSettled():
                yield traces.TraceToolResult(turn=turn, call=fact.call, status=self._status(fact))
            case f.MessageAdded():
                yield traces.TraceMessage(turn=turn, text=fact.text)
            case f.Paused():
                self._paused = True
                yield traces.TracePaused(turn=turn)
            case f.Stopping():
                if self._waits:
                    yield self._fail(Cause.TIMEOUT)
                if self._asks_for_conclusion:
                    yield self._call_model(tools=False)
            case f.Concluded() if self._asks_for_conclusion:
                self._waits = False
                yield traces.TraceModelReplied(turn=turn, text=fact.text or "")
                if fact.retry:
                    yield self._call_model(tools=False)
            case f.TurnEnded():
                yield traces.TraceTurnEnded(
                    turn=turn, outcome=fact.outcome, reason=fact.reason, text=self._last_words()
                )
            case _:
                pass

    def _call_model(self, *, tools: bool) -> traces.TraceModelCalled:
        self._waits = True
        return traces.TraceModelCalled(turn=self._turn, tools=tools)

    def _fail(self, cause: Cause) -> traces.TraceModelFailed:
        self._waits = False
        return traces.TraceModelFailed(turn=self._turn, cause=cause)

    def _status(self, fact: f.CallSettled) -> CallStatus:
        could_not_start = fact.status is CallStatus.ERROR and fact.call not in self._started
        return CallStatus.REFUSED if could_not_start else fact.status

    def _last_words(self) -> str:
        """Return the text for the user: the turn's text, and the line with the reason of the stop."""
        transcript = Transcript.of(enumerate(self._facts, start=1))
        sentinels = [part.text for part in transcript.messages[-1].parts if isinstance(part, SentinelPart)]
        return "\n".join(filter(None, [transcript.text, *sentinels]))
