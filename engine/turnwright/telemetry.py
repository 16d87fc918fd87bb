"""Observes the work of an engine: stretches of driving, model calls and tool calls.

There are three kinds of work: a stretch of driving a turn, in it attempts at a model's reply, and calls of tools. Each
is a block that the telemetry is told of when it is entered and when it is left; what came of it stands in the work by
then. The blocks of one task nest: what a tool does itself happens within its call's block, a sub-agent's turn too.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol

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
from turnwright_states.payload import frozen

from ._base.ids import child_id
from .errors import LeaseLostError, TurnwrightError
from .model.protocol import (
    Model,
    ModelError,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    no_reply,
    too_long,
)

if TYPE_CHECKING:
    from .journal.dependencies import Price
    from .journal.turn_journal import TurnJournal
    from .tools.batch_context import Execution
    from .tools.tool import Tool

_LOG = logging.getLogger(__name__)

#: The error of a call whose tool said no more than that it went wrong.
OTHER_ERROR: Final = "_OTHER"


class TurnWork(Struct, eq=False, kw_only=True):
    """One stretch of driving a turn, from a claim to letting go.

    `turn` is a copy of the turn as it stood when something was journaled last; `state` is where its journal has it, for
    what could not be written did not happen. `model` is None where a turn is only ended. `begun` are the facts that a
    new turn begins with, of which nobody was told. Once the block is left, `let_go` is empty for a turn that ended or
    paused, and else says why it was let go of before: `fenced`, `cancelled` or `error`.
    """

    id: str
    epoch: int
    started: f.TurnStarted
    turn: Turn
    begun: tuple[f.Fact, ...] = ()
    model: Model | None = None
    let_go: str = ""
    state: State = State.CHECK

    def __post_init__(self) -> None:
        self.state = self.turn.state

    @property
    def agent(self) -> str:
        """The name of the turn's agent."""
        return _text(self.started.agent, "name")

    @property
    def description(self) -> str:
        """What the agent says of itself, if anything."""
        return _text(self.started.agent, "description")

    @property
    def outcome(self) -> Outcome | None:
        """How the turn ended; None while it has not."""
        return self.state.outcome


class AttemptWork(Struct, eq=False, kw_only=True):
    """One attempt at a reply. The wait before it is no part of it.

    `step` counts from 1, `attempt` too, anew for each reply; `state` says what the reply is for. Once the block is
    left, either `reply` is there, or `error` names what went wrong, or neither: the attempt was interrupted.
    """

    request: ModelRequest
    state: State
    step: int
    attempt: int
    reply: ModelResponse | None = None
    usage: Usage | None = None
    error: str = ""


class CallWork(Struct, eq=False, kw_only=True):
    """One execution of a call that has started. `child` is the turn that it drives, if it drives one.

    Once the block is left, `status` says what came of the call: how it was settled, or `waiting`; it is empty for one
    that was interrupted. `result` is the text for the model. `error` names the kind of an error.
    """

    id: str
    tool: str
    description: str
    arguments: Mapping[str, JsonValue]
    attempt: int
    child: str = ""
    status: str = ""
    result: str = ""
    error: str = ""

    def failed(self, error: BaseException) -> None:
        """Name the kind of what the tool raised."""
        self.error = error_type(error)


class Move(Struct, frozen=True):
    """A transition of the chart: from where to where, the kind of the fact that made it, and its reason."""

    source: State
    target: State
    fact: str
    reason: EndReason | Cause | None = None


#: A block of work.
Block = AbstractContextManager[object]


class TurnTelemetry(Protocol):
    """Hears of one stretch of driving: a block, in which the others are."""

    def __enter__(self) -> object:
        """Driving begins."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None:
        """The turn is let go of."""
        ...

    def moved(self, move: Move) -> None:
        """Hear of a transition that is journalled."""
        ...

    def attempt(self, work: AttemptWork) -> Block:
        """Give the block of one attempt."""
        ...

    def call(self, work: CallWork) -> Block:
        """Give the block of one call."""
        ...


class Telemetry(Protocol):
    """Hears of the work of an engine. What it raises is logged, and changes nothing."""

    def turn(self, work: TurnWork) -> TurnTelemetry:
        """Give the block of one stretch of driving."""
        ...


class ObservedStretch:
    """One stretch of driving, as the engine tells of it. Nothing that the telemetry raises comes through."""

    def __init__(self, telemetry: Telemetry, work: TurnWork) -> None:
        self.work = work
        #: The turn itself, which the telemetry is shown copies of: it changes nothing.
        self.turn = work.turn
        work.turn = work.turn.copy()
        self._state = State.CHECK if self.work.begun else self.turn.state
        self._hears: TurnTelemetry | None = None
        try:
            self._hears = telemetry.turn(self.work)
        except Exception:  # noqa: BLE001 (an embedder's; the turn goes on)
            _failed(self.work)
        self._guarded = Guarded(self._hears, self.work)

    @classmethod
    def of(cls, telemetry: Telemetry, journal: "TurnJournal") -> "ObservedStretch":
        """The stretch that begins with this journal."""
        new = journal.claim.epoch == 1 and journal.started.forked_from is None
        work = TurnWork(
            id=journal.turn_id,
            epoch=journal.claim.epoch,
            started=journal.started,
            turn=journal.machine.turn,
            begun=tuple(fact for _, fact in journal.fold.facts) if new else (),
        )
        return cls(telemetry, work)

    def __enter__(self) -> None:
        self._guarded.__enter__()
        self.journalled(self.work.begun)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.work.let_go = _let_go(error)
        self._guarded.__exit__(kind, error, trace)

    def journalled(self, facts: Sequence[f.Fact]) -> None:
        """Tell of the transitions that these facts made."""
        self.work.turn = self.turn.copy()
        for move in self._moves(facts):
            self._tell(move)

    def attempt(self, work: AttemptWork) -> "Guarded":
        """The block of one attempt."""
        return self._block(lambda hears: hears.attempt(work))

    def observed(self, model: Model, price: "Price | None", timed_out: Callable[[], bool]) -> Model:
        """See `Stretch.observed`."""
        self.work.model = model
        return ObservedModel(model, self, price, timed_out)

    async def execute(self, call: Call, tool: "Tool", execution: "Execution") -> CallSettledInput | CallWaitingInput:
        """See `Stretch.execute`: the block of one call, in which its tool works and its sub-agent's turn is driven."""
        work = CallWork(
            id=call.id,
            tool=call.name,
            description=tool.description,
            arguments=call.arguments,
            attempt=max(call.attempt, 1),
            child="" if call.made.lease is None else child_id(self.work.id, call.id),
        )
        with self._block(lambda hears: hears.call(work)):
            came = await execution(work.failed)
            if isinstance(came, CallWaitingInput):
                work.status = "waiting"
            else:
                work.status, work.result = str(came.status), came.result
                if came.status is CallStatus.ERROR:
                    work.error = work.error or OTHER_ERROR
            return came

    def _block(self, make: Callable[[TurnTelemetry], Block]) -> "Guarded":
        block: Block | None = None
        if self._hears is not None:
            try:
                block = make(self._hears)
            except Exception:  # noqa: BLE001 (an embedder's; the turn goes on)
                _failed(self.work)
        return Guarded(block, self.work)

    def _tell(self, move: Move) -> None:
        if self._hears is None:
            return
        try:
            self._hears.moved(move)
        except Exception:  # noqa: BLE001 (an embedder's; the turn goes on)
            _failed(self.work)

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
    """A model whose attempts are told to the telemetry of a stretch. Its replies cannot be changed afterwards."""

    def __init__(
        self, model: Model, stretch: ObservedStretch, price: "Price | None", timed_out: Callable[[], bool]
    ) -> None:
        self.name = model.name
        self._model = model
        self._stretch = stretch
        self._price = price
        self._timed_out = timed_out

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ReasoningDelta | ModelResponse]:
        """See `Model.stream`. Its stream is closed in the block, which is left before the reply is given."""
        turn = self._stretch.turn
        attempt = turn.limits.max_retries - turn.counters.retries_left + 1
        work = AttemptWork(request=request, state=turn.state, step=turn.counters.steps, attempt=attempt)
        with self._stretch.attempt(work):
            try:
                stream, reply = self._model.stream(request), None
                try:
                    async for item in stream:
                        if isinstance(item, ModelResponse):
                            reply = item
                            break
                        yield item
                    work.reply = reply = self._whole(reply)
                finally:
                    close = getattr(stream, "aclose", None)
                    if close is not None:
                        await close()
            except anyio.get_cancelled_exc_class():
                if self._timed_out():
                    work.error = str(Cause.TIMEOUT)
                raise
            except Exception as error:
                work.error = error_type(error)
                if isinstance(error, ModelError) and error.partial is not None:
                    work.usage = self._priced(error.partial.usage)
                raise
            work.usage = self._priced(reply.usage)
        yield reply

    def _whole(self, reply: ModelResponse | None) -> ModelResponse:
        if reply is None:
            raise no_reply(self.name)
        if len(reply.calls) > MAX_CALLS_PER_REPLY:
            raise too_long(self.name, reply)
        calls = tuple([structs.replace(call, arguments=frozen(call.arguments)) for call in reply.calls])
        return structs.replace(reply, calls=calls, reasoning_details=tuple(map(frozen, reply.reasoning_details)))

    def _priced(self, usage: Usage | None) -> Usage | None:
        return usage if usage is None or self._price is None else self._price.of(usage)


class Guarded:
    """A block that raises nothing of its own, and lets through whatever is raised in it.

    `work` is the driving that the block is part of, where that is known.
    """

    __slots__ = ("_block", "_work")

    def __init__(self, block: Block | None, work: TurnWork | None = None) -> None:
        self._block = block
        self._work = work

    def __enter__(self) -> None:
        if self._block is None:
            return
        try:
            self._block.__enter__()
        except Exception:  # noqa: BLE001 (an embedder's; the turn goes on)
            self._block = None
            _failed(self._work)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._block is None:
            return
        try:
            self._block.__exit__(kind, error, trace)
        except Exception as raised:  # noqa: BLE001 (an embedder's; the turn goes on)
            if raised is not error:
                _failed(self._work)


def error_type(error: BaseException) -> str:
    """The class of an error, as telemetry names it: of what was raised first, where an error of ours wraps it.

    An exception of Python goes by its name alone. A `ModelError` goes by its cause.
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


def _failed(work: TurnWork | None) -> None:
    known = {} if work is None else {"turn": work.id, "step": work.turn.counters.steps, "state": str(work.state)}
    _LOG.warning("the telemetry raised, and misses a part of a turn; the turn goes on", exc_info=True, extra=known)


def _let_go(error: BaseException | None) -> str:
    if error is None:
        return ""
    if isinstance(error, LeaseLostError):
        return "fenced"
    # What is no `Exception` ends the task: a cancellation, Ctrl-C, or that nobody awaits the coroutine any more.
    return "error" if isinstance(error, Exception) else "cancelled"


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
    said = agent.get(name)
    return said if isinstance(said, str) else ""
