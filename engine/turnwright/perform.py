"""Does what the machine asks for: one function an action, each returning the event to feed.

None of them retries, and none decides: an attempt that failed is fed as one, and the chart says what follows.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import anyio
from pydantic import JsonValue

from turnwright_states import (
    Action,
    AttemptFailed,
    Call,
    CallModel,
    CallState,
    Cause,
    Conclude,
    Concluded,
    Event,
    Finish,
    ModelReplied,
    RunTools,
    Synthesise,
    Synthesised,
    ToolCall,
    Usage,
)

from .heard import call_heard, reply_heard
from .model.protocol import ModelError, Reply, ReplyCall, Request
from .segment import Segment
from .setup import FinishedCall
from .tools.batch import Values, run_batch, settle_after_crash
from .tools.text import shorten
from .tools.tool import ToolError

if TYPE_CHECKING:
    from .telemetry import Watched

#: How much of a name that a model made up it is told, in characters: it can be as long as a reply.
_SHOWN_NAME: Final = 100


async def perform(segment: Segment, action: Action) -> Event | None:
    """Do one action. Returns what to feed; None when everything was fed on the way."""
    during = segment.interruption.during
    match action:
        case CallModel():
            return await during(lambda: _call_model(segment, action))
        case RunTools(calls=calls):
            return await during(lambda: _run_tools(segment, calls))
        case Synthesise():
            return await during(lambda: _synthesise(segment))
        case Conclude():
            return await during(lambda: _conclude(segment, action), deadline=False)
        case _:
            raise TypeError(f"{type(action).__name__} is nothing to perform")


async def account_for_crash(segment: Segment, *, crashed: bool) -> Event | None:
    """Account for what a driver before left half done (DESIGN 4.13). Returns what to feed.

    `crashed`: it died. A call that was started is settled as its tool says, however its driver ended.
    """
    interruption = segment.interruption
    await interruption.look()
    if interruption.aborting:
        return None  # what is to be stopped need not be repaired
    action = segment.machine.action
    if isinstance(action, RunTools):
        started = tuple(call for call in action.calls if call.state is CallState.STARTED)
        if not started:
            return None
        event: Event | None = None
        with interruption.scope() as scope:
            event = await interruption.during(lambda: _settle_started(segment, started))
        return interruption.event() if event is None and scope.cancelled_caught else event
    if crashed and isinstance(action, CallModel | Conclude | Synthesise):
        message = "the process died during this call"
        return AttemptFailed(cause=Cause.CRASH, message=message, elapsed=segment.elapsed())
    return None


async def _call_model(segment: Segment, action: CallModel) -> Event:
    try:
        reply = await _reply(segment, action)
    except ModelError as error:
        usage = _priced(segment, error.partial.usage if error.partial else None)
        if error.cause is Cause.CONTENT_FILTER:
            return ModelReplied(
                text=segment.partial, finish=Finish.CONTENT_FILTER, usage=usage, elapsed=segment.elapsed()
            )
        return _failed(segment, error, usage)
    checked: list[Values | None] = []
    calls = tuple([_looked_up(segment, call, checked) for call in reply.calls])
    segment.checked = checked
    return reply_heard(reply, calls, _priced(segment, reply.usage), segment.elapsed())


async def _conclude(segment: Segment, action: Conclude) -> Event:
    await _back_off(segment)  # waiting is no part of the attempt
    with anyio.move_on_after(action.seconds) as within:
        try:
            reply = await _reply(segment, action, within)
        except ModelError as error:
            usage = _priced(segment, error.partial.usage if error.partial else None)
            return _failed(segment, error, usage)
        return Concluded(
            text=reply.text if reply.text.strip() else None,
            calls=tuple(_looked_up(segment, call, []) for call in reply.calls),
            usage=_priced(segment, reply.usage),
            elapsed=segment.elapsed(),
        )
    message = f"the concluding call did not answer within {action.seconds:g} s"
    segment.wait = 0.0
    return AttemptFailed(cause=Cause.TIMEOUT, message=message, partial=segment.partial, elapsed=segment.elapsed())


async def _reply(segment: Segment, action: CallModel | Conclude, within: anyio.CancelScope | None = None) -> Reply:
    """One attempt: wait if the one before asked for it, hear what people say, build the request, stream the reply.

    `within` is the scope that bounds how long it may take, if anything does.
    """
    segment.restart()
    if segment.wait:
        await _back_off(segment)
        if isinstance(action, CallModel) and action.tools:
            await segment.hear_messages()
    request, watched = await _request(segment, action), segment.watched
    reply = await (_stream(segment, request) if watched is None else _watched(segment, request, watched, within))
    if reply.text or reply.calls:  # an empty one is a failed attempt, and what was heard of it is dropped
        segment.heard()
    return reply


async def _back_off(segment: Segment) -> None:
    wait, segment.wait = segment.wait, 0.0
    if wait:
        await anyio.sleep(wait)


async def _request(segment: Segment, action: CallModel | Conclude) -> Request:
    conversation, turn, prepare = segment.conversation, segment.machine.turn, segment.setup.prepare
    if prepare is None:
        return conversation.request(action, turn)
    return conversation.request(action, turn, await prepare(conversation.messages))


async def _stream(segment: Segment, request: Request) -> Reply:
    stream = segment.model.stream(request)
    try:
        async for item in stream:
            if isinstance(item, Reply):
                return item
            segment.hear(item)
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
    raise ModelError(f"model {segment.model.name}: the stream ended without a reply", cause=Cause.INTERRUPTED)


async def _watched(segment: Segment, request: Request, watched: "Watched", within: anyio.CancelScope | None) -> Reply:
    """Stream the reply, and tell the telemetry of it."""
    from .telemetry import AttemptWork, error_type  # noqa: PLC0415 (most programs have no telemetry)

    turn, counters = segment.machine.turn, segment.machine.turn.counters
    attempt = turn.limits.max_retries - counters.retries_left + 1
    work = AttemptWork(request=request, state=turn.state, step=counters.steps, attempt=attempt)
    with watched.attempt(work):
        try:
            reply = await _stream(segment, request)
        except anyio.get_cancelled_exc_class():
            if within is not None and within.cancel_called:
                work.error = str(Cause.TIMEOUT)
            raise
        except Exception as error:
            work.error = error_type(error)
            if isinstance(error, ModelError):
                work.usage = _priced(segment, error.partial.usage if error.partial else None)
            raise
        work.reply, work.usage = reply, _priced(segment, reply.usage)
        return reply


def _failed(segment: Segment, error: ModelError, usage: Usage | None = None) -> AttemptFailed:
    limits, counters = segment.machine.turn.limits, segment.machine.turn.counters
    attempt = limits.max_retries - counters.retries_left + 1
    segment.wait = segment.setup.backoff.wait(attempt, error.retry_after)
    return AttemptFailed(
        cause=error.cause,
        message=str(error),
        partial=segment.partial,
        usage=usage,
        wait=segment.wait,
        elapsed=segment.elapsed(),
    )


def _priced(segment: Segment, usage: Usage | None) -> Usage | None:
    price = segment.setup.prices.get(segment.model.name)
    return usage if usage is None or price is None else price.of(usage)


def _looked_up(segment: Segment, call: ReplyCall, checked: list[Values | None]) -> ToolCall:
    """A call of a reply with what its tool says of it: whether it can run, and what the doom detector compares.

    What its tool made of the arguments is added to `checked`.
    """
    arguments: Mapping[str, JsonValue] | None = call.arguments
    tool = segment.tools.get(call.name)
    problem, loop_key, values = "", None, None
    if tool is None:
        problem = (
            f"there is no tool {shorten(call.name, _SHOWN_NAME)!r}; the tools are: {', '.join(segment.tools) or 'none'}"
        )
    elif arguments is not None:
        try:
            values = tool.parse(arguments)
        except ToolError as error:
            problem = str(error)
        loop_key = tool.loop_key(arguments)
    checked.append(values)
    return call_heard(
        call,
        problem=problem,
        loop_key=loop_key,
        exempt=tool is not None and tool.exempt,
        delegates=tool is not None and tool.delegates,
    )


async def _run_tools(segment: Segment, calls: tuple[Call, ...]) -> Event | None:
    await run_batch(calls, segment.surroundings(), segment.ledger.feed, segment.setup.parallel)
    return None


async def _settle_started(segment: Segment, calls: tuple[Call, ...]) -> Event | None:
    await settle_after_crash(calls, segment.surroundings(), segment.ledger.feed)
    return None


async def _synthesise(segment: Segment) -> Event:
    synthesise = segment.setup.synthesise
    await _back_off(segment)
    try:
        text = None if synthesise is None else await synthesise(_finished(segment))
    except ModelError as error:
        return _failed(segment, error)
    return Synthesised(text=text, elapsed=segment.elapsed())


def _finished(segment: Segment) -> tuple[FinishedCall, ...]:
    results = segment.ledger.transcript.results
    return tuple(
        FinishedCall(call.name, call.arguments, results[call.id].status, results[call.id].text)
        for call in segment.machine.turn.batch.values()
    )
