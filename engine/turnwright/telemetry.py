"""Observes the work of an engine: segments, in them attempts at a model's reply, and tool calls.

Each is a block: the telemetry is called when it begins and when it ends, and by then the work has its result. The
blocks of one task nest. A tool's own work, even a sub-agent's turn, happens within the block of its call.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import anyio
from msgspec import Struct, structs
from pydantic import JsonValue

from turnwright_states import (
    Call,
    CallSettledInput,
    CallStatus,
    CallWaitingInput,
    Cause,
    EndReason,
    Outcome,
    State,
    Turn,
    Usage,
)
from turnwright_states import facts as f
from turnwright_states.limits import MAX_CALLS_PER_REPLY
from turnwright_states.payload import freeze
from turnwright_states.verdict import RuleDecision

from ._base.ids import child_id
from .errors import LeaseLostError, TurnwrightError
from .model.prices import PriceOf, price_usage
from .model.protocol import (
    Delta,
    Model,
    ModelError,
    ModelRequest,
    ModelResponse,
    no_reply,
    stream_reply,
    too_long,
)

if TYPE_CHECKING:
    from .journal.turn_journal import TurnJournal
    from .store.outbox import NoticeCounts
    from .tools.batch_context import Execution
    from .tools.tool import Tool

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

#: The error of a call whose tool gave no kind of error.
OTHER_ERROR: Final = "_OTHER"


class TurnWork(Struct, eq=False, kw_only=True):
    """One segment of a turn, from its claim to its release.

    `turn` is a copy of the turn at its last journaled fact, and `state` is its state in the journal. `model` is None if
    the turn is only ended. `first_facts` are those of a new turn. When the block ends, `released` is empty for a
    turn that ended or paused, or says why it was released earlier: `lease_lost`, `canceled` or `error`.
    """

    id: str
    epoch: int
    started: f.TurnStarted
    turn: Turn
    first_facts: tuple[f.Fact, ...] = ()
    model: Model | None = None
    released: str = ""
    state: State = State.CHECK

    def __post_init__(self) -> None:
        self.state = self.turn.state

    @property
    def agent(self) -> str:
        """The name of the turn's agent."""
        return _text(self.started.agent, "name")

    @property
    def description(self) -> str:
        """The description of the agent, if it has one."""
        return _text(self.started.agent, "description")

    @property
    def outcome(self) -> Outcome | None:
        """The outcome, or None while the turn has not ended."""
        return self.state.outcome


class AttemptWork(Struct, eq=False, kw_only=True):
    """One attempt at a reply, without the wait before it.

    `step` and `attempt` count from 1, `attempt` within each reply. `state` is the turn's state. When the block ends,
    `reply` is set, or `error` names the kind of error, or neither if the attempt was interrupted.
    """

    request: ModelRequest
    state: State
    step: int
    attempt: int
    reply: ModelResponse | None = None
    usage: Usage | None = None
    error: str = ""


class CallWork(Struct, eq=False, kw_only=True):
    """One execution of a started call, or the use of its result from outside.

    `child` is the id of the sub-agent's turn that it drives, if it drives one. `via` is the channel of the last answer
    to its questions, if there is one, and `wait` the seconds until that answer, if they are known. `broken` are the
    rules that the call breaks and may run all the same: they only report, or a person approved it.

    When the block ends, `status` is the call's status, `waiting`, or empty if it was interrupted. `result` is the text
    for the model. `error` names the kind of an error.
    """

    id: str
    tool: str
    description: str
    arguments: Mapping[str, JsonValue]
    attempt: int
    child: str = ""
    via: str = ""
    wait: float | None = None
    broken: tuple[RuleDecision, ...] = ()
    status: str = ""
    result: str = ""
    error: str = ""

    def failed(self, error: BaseException) -> None:
        """Set the kind of error from an exception of the tool."""
        self.error = error_type(error)


class JudgedCall(Struct, frozen=True):
    """A call, or an answer (without `call` and `tool`), that breaks rules: the severest one first.

    `runs`: the rules only report, and the call has a block of its own.
    """

    decisions: tuple[RuleDecision, ...]
    call: str = ""
    tool: str = ""
    runs: bool = False


class Move(Struct, frozen=True):
    """A transition of the chart: its states, the kind of its fact, and its reason."""

    source: State
    target: State
    fact: str
    reason: EndReason | Cause | None = None


#: A block of work.
Block = AbstractContextManager[object]


class TurnTelemetry(Protocol):
    """Observes one segment, as a context manager around the other blocks."""

    def __enter__(self) -> object:
        """Start the segment."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None:
        """End the segment: the turn was released."""
        ...

    def moved(self, move: Move) -> None:
        """Receive a journaled transition."""
        ...

    def judged(self, judged_call: JudgedCall) -> None:
        """Receive a call or an answer that breaks rules."""
        ...

    def attempt(self, work: AttemptWork) -> Block:
        """Return the block of one attempt."""
        ...

    def call(self, work: CallWork) -> Block:
        """Return the block of one call."""
        ...


class Telemetry(Protocol):
    """Observes the work of an engine. Its errors are logged, and change nothing."""

    def turn(self, work: TurnWork) -> TurnTelemetry:
        """Return the observer of one segment."""
        ...

    def outbox(self, counts: "NoticeCounts") -> None:
        """Receive the number of notices in the outbox, after each look of a worker that delivers them."""
        ...


class ObservedSegment:
    """Reports one segment to the telemetry. No error of the telemetry leaves it."""

    def __init__(
        self, telemetry: Telemetry, work: TurnWork, asked_at: Callable[[str], float | None] = lambda _: None
    ) -> None:
        self.work = work
        self._asked_at = asked_at
        #: The reported rules of calls that start.
        self._reported: dict[str, tuple[RuleDecision, ...]] = {}
        #: The tools of calls, by their ids.
        self._tools = {call.id: call.name for call in work.turn.batch.values()}
        #: The turn itself. The telemetry receives copies, so that it changes nothing.
        self.turn = work.turn
        work.turn = work.turn.copy()
        self._state = State.CHECK if self.work.first_facts else self.turn.state
        self._observer: TurnTelemetry | None = None
        try:
            self._observer = telemetry.turn(self.work)
        except Exception:  # noqa: BLE001 (an embedder's; the turn continues)
            _log_failure(self.work)
        self._guarded = Guarded(self._observer, self.work)

    @classmethod
    def of(cls, telemetry: Telemetry, journal: "TurnJournal") -> "ObservedSegment":
        """Return the observer of the segment that begins with this journal."""
        new = journal.claim.epoch == 1 and journal.started.forked_from is None
        work = TurnWork(
            id=journal.turn_id,
            epoch=journal.claim.epoch,
            started=journal.started,
            turn=journal.machine.turn,
            first_facts=tuple(fact for _, fact in journal.fold.facts) if new else (),
        )

        def read_time(interrupt: str) -> float | None:
            return journal.transcript.asked_at.get(interrupt)  # a new mapping for each question

        return cls(telemetry, work, read_time)

    def __enter__(self) -> None:
        self._guarded.__enter__()
        self.journaled(self.work.first_facts)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.work.released = _describe_release(error)
        self._guarded.__exit__(kind, error, trace)

    def journaled(self, facts: Sequence[f.Fact]) -> None:
        """Report the transitions that these facts made."""
        self.work.turn = self.turn.copy()
        for move in self._moves(facts):
            self._report(move)
        if self.work.started.rules:
            # The batch is over where the last call of a reply is refused.
            self._tools |= f.tool_names(facts)
            for fact in facts:
                self._report_rules(fact)

    def attempt(self, work: AttemptWork) -> "Guarded":
        """Return the block of one attempt."""
        return self._block(lambda observer: observer.attempt(work))

    def observed(self, model: Model, price: PriceOf | None, timed_out: Callable[[], bool]) -> Model:
        """See `SegmentObserver.observed`."""
        self.work.model = model
        return ObservedModel(model, self, price, timed_out)

    async def execute(self, call: Call, tool: "Tool", execution: "Execution") -> CallSettledInput | CallWaitingInput:
        """Execute a call within its block, which includes the sub-agent's turn that it drives."""
        work = CallWork(
            id=call.id,
            tool=call.name,
            description=tool.description,
            arguments=call.arguments,
            attempt=max(call.attempt, 1),
            child="" if call.made.lease is None else child_id(self.work.id, call.id),
            via=call.answers[-1].via if call.answers else "",
            wait=self._wait_of(call),
            broken=(
                *self._reported.pop(call.id, ()),
                *(RuleDecision(rule, "ask", call.id) for rule in call.approved_rules),
            ),
        )
        with self._block(lambda observer: observer.call(work)):
            outcome = await execution(work.failed)
            if isinstance(outcome, CallWaitingInput):
                work.status = "waiting"
            else:
                work.status, work.result = str(outcome.status), outcome.result
                if outcome.status is CallStatus.ERROR:
                    work.error = work.error or OTHER_ERROR
            return outcome

    def _report(self, move: Move) -> None:
        self._call(lambda observer: observer.moved(move))

    def _report_rules(self, fact: f.Fact) -> None:
        decisions = tuple([decision for decision in f.rule_decisions(fact) if decision.is_broken])
        if not decisions:
            return
        call = decisions[0].call or ""
        if runs := isinstance(fact, f.CallStarted):
            self._reported[call] = decisions
        judged_call = JudgedCall(decisions, call, self._tools.get(call, ""), runs)
        self._call(lambda observer: observer.judged(judged_call))

    def _wait_of(self, call: Call) -> float | None:
        """Return the seconds from the question of a call to its last answer, as far as the journal knows them."""
        if not call.answers:
            return None
        answer = call.answers[-1]
        asked_at = self._asked_at(answer.interrupt)
        return None if asked_at is None or answer.at is None else max(answer.at - asked_at, 0.0)

    def _block(self, make: Callable[[TurnTelemetry], Block]) -> "Guarded":
        return Guarded(self._call(make), self.work)

    def _call(self, function: Callable[[TurnTelemetry], T]) -> T | None:
        try:
            return None if self._observer is None else function(self._observer)
        except Exception:  # noqa: BLE001 (an embedder's; the turn continues)
            _log_failure(self.work)
            return None

    def _moves(self, facts: Sequence[f.Fact]) -> Iterator[Move]:
        for fact in facts:
            before, after, kind = self._state, fact.state, type(fact).kind
            self._state = self.work.state = after
            if type(fact) is f.StepFinished and after is State.CHECK:
                yield Move(before, State.CONTINUE, kind)
                before = State.CONTINUE
            if before is not after or type(fact) is f.AttemptFailed or (type(fact) is f.Concluded and fact.retry):
                yield Move(before, after, kind, _reason(fact))


class ObservedModel:
    """A model whose attempts are reported to the telemetry. Its replies are frozen."""

    silence_timeout: Final = None  # that of the model applies within the block

    def __init__(
        self, model: Model, segment: ObservedSegment, price: PriceOf | None, timed_out: Callable[[], bool]
    ) -> None:
        self.name = model.name
        self._model = model
        self._segment = segment
        self._price = price
        self._timed_out = timed_out

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        """See `Model.stream`. Its stream is closed within the block, which ends before the reply is yielded."""
        turn = self._segment.turn
        attempt = turn.limits.max_retries - turn.counters.retries_left + 1
        work = AttemptWork(request=request, state=turn.state, step=turn.counters.steps, attempt=attempt)
        with self._segment.attempt(work):
            try:
                stream, reply = stream_reply(self._model, request), None
                try:
                    async for item in stream:
                        if isinstance(item, ModelResponse):
                            reply = item
                            break
                        yield item
                    work.reply = reply = self._complete(reply)
                finally:
                    close = getattr(stream, "aclose", None)
                    if close is not None:
                        await close()
            except anyio.get_cancelled_exc_class():
                if self._timed_out():
                    work.error = str(Cause.TIMEOUT)
                raise
            except GeneratorExit:  # the driver ends a stream early only for a reply that repeats itself
                work.error = str(Cause.REPETITION)
                raise
            except Exception as error:
                work.error = error_type(error)
                if isinstance(error, ModelError) and error.partial is not None:
                    work.usage = price_usage(self._price, error.partial)
                raise
            work.usage = price_usage(self._price, reply)
        yield reply

    def _complete(self, reply: ModelResponse | None) -> ModelResponse:
        if reply is None:
            raise no_reply(self.name)
        if len(reply.calls) > MAX_CALLS_PER_REPLY:
            raise too_long(self.name, reply)
        calls = tuple([structs.replace(call, arguments=freeze(call.arguments)) for call in reply.calls])
        return structs.replace(reply, calls=calls, reasoning_details=tuple(map(freeze, reply.reasoning_details)))


class Guarded:
    """A block that raises no error of its own, and passes on every error of its body. `work` is its segment."""

    __slots__ = ("_block", "_work")

    def __init__(self, block: Block | None, work: TurnWork | None = None) -> None:
        self._block = block
        self._work = work

    def __enter__(self) -> None:
        if self._block is None:
            return
        try:
            self._block.__enter__()
        except Exception:  # noqa: BLE001 (an embedder's; the turn continues)
            self._block = None
            _log_failure(self._work)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._block is None:
            return
        try:
            self._block.__exit__(kind, error, trace)
        except Exception as other_error:  # noqa: BLE001 (an embedder's; the turn continues)
            if other_error is not error:
                _log_failure(self._work)


def error_type(error: BaseException) -> str:
    """Return the kind of an error: the class of the original error, if one of ours wraps it.

    Built-in exceptions have only a name. A `ModelError` has its cause.
    """
    if isinstance(error, ModelError):
        return str(error.cause)
    if isinstance(error, TurnwrightError):
        if error.__cause__ is None:
            return type(error).__name__
        error = error.__cause__
    kind = type(error)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def _log_failure(work: TurnWork | None) -> None:
    attributes = {} if work is None else {"turn": work.id, "step": work.turn.counters.steps, "state": str(work.state)}
    _LOG.warning(
        "the telemetry raised an error, and misses a part of a turn; the turn continues",
        exc_info=True,
        extra=attributes,
    )


def _describe_release(error: BaseException | None) -> str:
    if error is None:
        return ""
    if isinstance(error, LeaseLostError):
        return "lease_lost"
    # Other exceptions end the task: a cancellation, Ctrl-C, or a coroutine that nobody awaits.
    return "error" if isinstance(error, Exception) else "canceled"


def _reason(fact: f.Fact) -> EndReason | Cause | None:
    match fact:
        case f.TurnEnded() | f.Stopping():
            return fact.reason
        case f.AttemptFailed():
            return fact.cause
        case f.Concluded(retry=True):
            return Cause.EMPTY_REPLY
        case _:
            return None


def _text(agent: Mapping[str, JsonValue], name: str) -> str:
    text = agent.get(name)
    return text if isinstance(text, str) else ""
