"""Performs the machine's actions: one function for each, which returns the input to feed.

No function retries or decides. A failed attempt is fed as such, and the chart decides what follows.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import anyio
from msgspec.structs import replace
from pydantic import JsonValue

from turnwright._base.ids import child_id
from turnwright._base.words import cut_clean, name_of, show_value, text_of
from turnwright.agent import Agent
from turnwright.errors import CannotRunError, HookFailedError, TurnNotFoundError
from turnwright.journal.inbox import early_results
from turnwright.journal.termination import end_child
from turnwright.message import Message
from turnwright.model.protocol import (
    ModelError,
    ModelRequest,
    ModelResponse,
    ResponseToolCall,
    check_reply,
    no_reply,
    stream_reply,
    too_long,
)
from turnwright.tools.batch import (
    CallReport,
    can_be_repeated,
    can_start_at_once,
    make_work,
    run_batch,
    settle_after_crash,
)
from turnwright.tools.batch_context import Values
from turnwright.tools.errors import ToolError, describe, holds
from turnwright.tools.function_tool import FunctionTool
from turnwright.tools.job_tasks import in_tasks
from turnwright.tools.tool import Tool
from turnwright.tools.tool_work import log_bug
from turnwright.tools.work_item import JobOutcome
from turnwright.transcript.events import ResponseRestartedEvent
from turnwright.transcript.wording import cut_off_problem
from turnwright_states import (
    Action,
    AttemptFailedInput,
    Call,
    CallModel,
    CallState,
    Cause,
    CompactHistory,
    Conclude,
    ConcludedInput,
    Finish,
    Input,
    ModelRepliedInput,
    ReviewedInput,
    ReviewReply,
    RunTools,
    Synthesize,
    SynthesizedInput,
    ToolCall,
)
from turnwright_states.batch import NOT_WHOLE
from turnwright_states.facts import TurnEnded
from turnwright_states.inputs import is_blank
from turnwright_states.limits import MAX_CALLS_PER_REPLY
from turnwright_states.payload import FrozenDict, freeze

from .dependencies import FinishedCall, Prepare
from .reply_events import replied_input, settled_input
from .review import Review, TripError
from .segment import Segment

#: Characters of an unknown tool's name that are sent back to the model.
_SHOWN_NAME: Final = 100
_REPEATED: Final = "not executed: the reply has this call twice, with the same id and arguments, and it counts once"
#: The usual types of the arguments of a call.
_ARGUMENTS: Final = frozenset({dict, FrozenDict, type(None)})
#: The stop reason of Anthropic for a reply that filled the rest of the context window.
_WINDOW_FULL: Final = "model_context_window_exceeded"


def perform(segment: Segment, action: Action) -> Awaitable[Input | None]:
    """Perform one action when it is awaited: the input to feed, or None if everything was fed already.

    No layer waits here: each would be in the memory of every turn in flight, and be passed at every wakeup.
    """
    match action:
        case CallModel():
            acting = segment.participants
            plain = acting.prepare is None and acting.compaction is None and acting.inputs is None
            return _attempt(segment, action) if plain else _call_model(segment, action)
        case RunTools(calls=calls):
            return _run_tools(segment, calls)
        case ReviewReply(calls=calls):
            return _review(segment, calls)
        case CompactHistory():
            compaction = segment.participants.compaction
            return refuse_compaction() if compaction is None else compaction.compact(action)
        case Synthesize():
            return _synthesize(segment)
        case Conclude():
            return _conclude(segment, action)
        case _:
            raise TypeError(f"{type(action).__name__} is nothing to perform")


async def refuse_compaction() -> Input:
    """Fail: the model is called with the whole conversation."""
    return AttemptFailedInput(cause=Cause.REJECTED, message="the agent has no `compaction` here")


_LOG: Final = logging.getLogger(__name__)
#: The actions during which a crash is a failed attempt.
_CALLS_A_MODEL: Final = (CallModel, ReviewReply, CompactHistory, Conclude, Synthesize)


async def account_for_crash(segment: Segment, *, crashed: bool) -> Input | None:
    """Account for what an earlier driver left half done (docs/rules.md#recovery). Returns the input to feed.

    `crashed` says that the driver died. A started call is settled by its tool's crash policy, however the driver ended.
    """
    interruption = segment.interruption
    await interruption.look()
    if interruption.aborting:
        return None  # an aborted turn needs no repair
    action = segment.machine.action
    if isinstance(action, RunTools):
        started_calls = tuple(call for call in action.calls if call.state is CallState.STARTED)
        if not started_calls:
            return None
        scope = interruption.scope()
        event = interruption.begin()
        if event is not None:
            return event
        with scope:
            try:
                early_items = early_results(await segment.journal.inbox())
                await settle_after_crash(started_calls, segment.batch_context(), segment.journal.feed, early_items)
            finally:
                interruption.end()
        return interruption.event() if scope.cancelled_caught else None
    if crashed and isinstance(action, _CALLS_A_MODEL) and not (isinstance(action, Conclude) and not action.asks_model):
        message = "the process died during this call"
        return AttemptFailedInput(cause=Cause.CRASH, message=message, elapsed=segment.elapsed())
    return None


async def _call_model(segment: Segment, action: CallModel) -> Input | None:
    acting = segment.participants
    prepare, compaction, inputs = acting.prepare, acting.compaction, acting.inputs
    if prepare is not None and segment.machine.turn.may_prepare:
        if segment.wait:
            await _back_off(segment, action)
        try:
            step_input = await prepare(action)
        except ModelError as error:  # of a guardrail
            return segment.fail_attempt(error)
        if step_input is not None:
            await segment.feed(step_input)
            if action.tools:
                await segment.take_in_messages()
    if compaction is not None and action.tools:
        overflow = compaction.compact_oversized()
        if overflow is not None:
            return overflow
    if inputs is not None and inputs.are_left:
        return await inputs.beside(partial(_attempt, segment, action), reviewed=action.tools)
    return await _attempt(segment, action)


async def _attempt(segment: Segment, action: CallModel) -> Input:
    segment.restart()
    if segment.wait:
        await _back_off(segment, action)
    try:
        reply = await _reply(segment, action)
    except ModelError as error:
        usage = segment.price_reply(error.partial)
        if error.cause is Cause.CONTENT_FILTER:
            return ModelRepliedInput(
                text=segment.partial, finish=Finish.CONTENT_FILTER, usage=usage, elapsed=segment.elapsed()
            )
        return segment.fail_attempt(error, usage)
    if not action.tools:  # a reply of a step is reviewed
        await _check_text(segment, reply)
    checked_values: list[Values | None] = []
    calls: tuple[ToolCall, ...] = ()
    cut_off = _problem_of_cut_off(reply) if reply.finish is Finish.LENGTH else ""
    ids: set[str] = set()
    has_equal_ids = False
    for call in reply.calls:  # a comprehension would put two cells into each turn that waits for its model
        calls += (_checked_call(segment, call, checked_values, cut_off),)
        has_equal_ids = has_equal_ids or call.id in ids
        ids |= {call.id}
    for place in _find_repeated(reply.calls) if has_equal_ids else ():
        if not (calls[place].problem or calls[place].output):
            calls = (*calls[:place], replace(calls[place], problem=_REPEATED), *calls[place + 1 :])
    if segment.has_async_keys:
        calls = await _with_keys(segment, calls)
    segment.checked_values = checked_values
    starts = bool(calls) and action.tools and _may_start(segment, calls)
    reply_input = replied_input(reply, calls, segment.account_for(reply), segment.elapsed(), starts=starts)
    if action.tools and reply.finish is Finish.CONTENT_FILTER and segment.holds_reply:
        reply_input = replace(reply_input, text="")  # the turn ends before its guardrails check it
    # Few turns have reviewers, so the constructor does not take it.
    review = segment.participants.review
    return replace(reply_input, review=True) if review is not None and review.stages and action.tools else reply_input


def _may_start(segment: Segment, calls: Sequence[ToolCall]) -> bool:
    """Whether the calls of this reply can start at once, so that one append holds their starts too.

    A turn that is being stopped starts none. Reviews, guardrails and hooks come before the starts.
    """
    interruption, limit = segment.interruption, segment.machine.turn.limits.seconds
    review, judge = segment.participants.review, segment.participants.judge
    if interruption.aborting or (limit is not None and segment.elapsed() >= limit):
        return False
    if (review is not None and review.stages) or (judge is not None and judge.judges_before):
        return False
    tools = [segment.tools[call.name] for call in calls if not call.problem and call.arguments is not None]
    if not tools or not can_start_at_once(tools, segment.setup.max_parallel_tools):
        return False
    segment.defers = segment.agent.repeatable_steps and judge is None and can_be_repeated(tools)
    rules = segment.machine.turn.rules
    if segment.defers and rules is not None:
        segment.defers = not any(rules.is_enforced_on(tool.name) for tool in tools)
    return True


async def _check_text(segment: Segment, reply: ModelResponse) -> None:
    """Ask the output guardrails about a reply that nothing reviews. Raises `TripError`."""
    outputs = segment.participants.outputs
    if outputs is not None:
        segment.unfed = segment.price_reply(reply)
        await outputs.check_text(reply.text)
        segment.unfed = None


async def _review(segment: Segment, calls: tuple[Call, ...]) -> Input:
    reply = segment.journal.transcript.reply
    assert reply is not None  # noqa: S101 (only a reply leads to REVIEW)
    await segment.back_off()
    review = segment.participants.review or Review()  # a driver before this one had stages
    event = await review.run(reply, calls, segment.elapsed, segment.fail_attempt)
    if isinstance(event, ReviewedInput) and event.refused and segment.journal.is_followed:
        segment.journal.publish(ResponseRestartedEvent(segment.journal.turn_id, segment.journal.claim.seq))
    return event


async def _conclude(segment: Segment, action: Conclude) -> Input:
    if not action.asks_model:
        return ConcludedInput(elapsed=segment.elapsed())
    inputs, outputs = segment.participants.inputs, segment.participants.outputs
    if inputs is not None and inputs.are_left:
        await inputs.check_all()
    await segment.back_off()  # waiting is not part of the attempt
    segment.restart()
    with anyio.move_on_after(action.seconds) as segment.action_scope:
        try:
            reply = await _reply(segment, action)
        except ModelError as error:
            usage = segment.price_reply(error.partial)
            if error.cause is Cause.EMPTY_REPLY:  # the second try needs no back-off: the provider is not overloaded
                return ConcludedInput(usage=usage, elapsed=segment.elapsed())
            return segment.fail_attempt(error, usage)
        await _check_text(segment, reply)
        if reply.calls:
            names = ", ".join(sorted({call.name for call in reply.calls}))
            extra = {"turn": segment.journal.turn_id}
            _LOG.warning("turn %s: its conclusion asks for tools: %s; refused", extra["turn"], names, extra=extra)
        return ConcludedInput(
            text=reply.text,
            calls=tuple(_checked_call(segment, call, []) for call in reply.calls),
            usage=segment.price_reply(reply),
            elapsed=segment.elapsed(),
        )
    partial_text, usage, segment.unfed = segment.partial, segment.unfed, None
    if outputs is None and not is_blank(partial_text):  # another attempt would take as long
        segment.reply_complete()
        return ConcludedInput(text=partial_text, elapsed=segment.elapsed())
    message = f"the concluding call did not answer within {action.seconds:g} s (`conclude_seconds`)"
    return AttemptFailedInput(
        cause=Cause.TIMEOUT, message=message, partial=partial_text, usage=usage, elapsed=segment.elapsed()
    )


async def _reply(segment: Segment, action: CallModel | Conclude) -> ModelResponse:
    """Send the request, and receive the reply."""
    if segment.participants.outputs is not None:
        segment.participants.outputs.hold()
    if segment.setup.history_processor is None:
        request = segment.conversation.request(action, segment.machine.turn)
    else:
        request = await _processed_request(segment, action, segment.setup.history_processor)
    model, reply = segment.called_model, None
    stream = stream_reply(model, request)
    try:
        async for item in stream:
            if isinstance(item, ModelResponse):
                reply = item
                break
            segment.receive(item)
    except Exception:
        raise
    except BaseException as error:
        from .hooks.asking import own_error  # noqa: PLC0415 (few models raise these)

        raise await own_error(model.name, error) from error
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
    reply = _checked_reply(model.name, reply)
    # A blank reply fails the attempt or repeats the conclusion. Its pieces are kept, so that the next attempt withdraws
    # them.
    if not is_blank(reply.text) or (reply.calls and isinstance(action, CallModel)):
        segment.reply_complete()
    return reply


def _checked_reply(model: str, reply: ModelResponse | None) -> ModelResponse:
    """Return the reply. Raises `ModelError` without one, or for too many calls, and `TypeError` for odd fields."""
    if reply is None:
        raise no_reply(model)
    if reply.text.__class__ is not str or (reply.calls and _has_odd_calls(reply.calls)):
        check_reply(model, reply)
    if len(reply.calls) > MAX_CALLS_PER_REPLY:
        raise too_long(model, reply)
    return reply


def _has_odd_calls(calls: Sequence[ResponseToolCall]) -> bool:
    for call in calls:  # runs in each step, so it calls no function
        if call.__class__ is not ResponseToolCall or call.arguments.__class__ not in _ARGUMENTS:
            return True
        if not (call.name.__class__ is call.raw.__class__ is call.id.__class__ is str):
            return True
    return False


async def _back_off(segment: Segment, action: CallModel) -> None:
    """Wait as long as the last failed attempt asked for, then take in the messages that arrived during the wait."""
    await segment.back_off()
    if action.tools:
        await segment.take_in_messages()


async def _processed_request(segment: Segment, action: CallModel | Conclude, process: Prepare) -> ModelRequest:
    """Return the request with the conversation as a function of the app leaves it."""
    conversation, turn = segment.conversation, segment.machine.turn
    messages = await _ask_engine(segment, "history_processor", process, conversation.messages)
    if not isinstance(messages, Sequence) or not all(isinstance(message, Message) for message in messages):
        raise HookFailedError(f"history_processor returned {show_value(messages)}: return a list of messages")
    return conversation.request(action, turn, messages)


async def _ask_engine(segment: Segment, option: str, function: Callable[..., object], *args: object) -> object:
    """Call a function that is an option of the engine. It has the time of a tool.

    Raises the `ModelError` of a model that it calls, and `HookFailedError`, which names it.
    """
    from .hooks.asking import MODEL_ERROR, ask  # noqa: PLC0415 (few engines have such functions)

    subject, seconds = f"{option} {name_of(function)!r}", segment.machine.turn.limits.tool_timeout
    return await ask(
        subject, function, *args, seconds=seconds, grace=segment.setup.cancel_grace, allowed_errors=MODEL_ERROR
    )


def _find_repeated(calls: Sequence[ResponseToolCall]) -> list[int]:
    """Return the places of the calls that a broken server sent again: with the id, name and arguments of another one.

    Equal ids alone say nothing, because some servers give one id to all calls.
    """
    calls_seen: set[tuple[str, str, str]] = set()
    places: list[int] = []
    for place, call in enumerate(calls):
        sent_call = (call.id, call.name, repr(call.arguments))
        if call.id and sent_call in calls_seen:
            places.append(place)
        calls_seen.add(sent_call)
    return places


def _problem_of_cut_off(reply: ModelResponse) -> str:
    """Return the problem of the calls without complete arguments in a reply that was cut off."""
    limit = reply.max_tokens or (None if reply.usage is None else reply.usage.output_tokens)
    return cut_off_problem(limit, window_full=reply.finish_reason == _WINDOW_FULL)


def _checked_call(
    segment: Segment, call: ResponseToolCall, checked_values: list[Values | None], cut_off: str = ""
) -> ToolCall:
    """Return a call of a reply as the machine takes it: whether it can run, and its key for loop detection.

    The parsed arguments are added to `checked_values`. `cut_off` is the problem of a call without complete arguments in
    a reply that was cut off.
    """
    incomplete = cut_off if call.arguments is None else ""
    if call.arguments is None and not cut_off and call.raw.strip() == "null" and _takes_none(segment, call.name):
        call = ResponseToolCall(call.name, {}, call.raw, call.id)
    elif call.arguments is None and not cut_off:
        from turnwright.model.http.json_text import damage_of  # noqa: PLC0415 (few calls are damaged)

        incomplete = f"{NOT_WHOLE}: {damage_of(call.raw)}"
    if segment.output is not None and segment.output.is_answer(call):
        checked_values.append(None)
        return settled_input(call, problem=incomplete, ignore_in_loop_detection=True, output=True)
    tool = segment.tools.get(call.name)
    # A tool's own code must not change the arguments. A function tool receives a parsed copy.
    reads = type(tool) is FunctionTool
    arguments: Mapping[str, JsonValue] | None = call.arguments if reads else freeze(call.arguments)
    problem, loop_key, values = incomplete, None, None
    retry_counts = segment.machine.turn.tool_retries
    preparation = segment.journal.transcript.prepared
    step_tools = None if preparation is None else preparation.tools
    if tool is None:
        tools = ", ".join(segment.tools if step_tools is None else step_tools) or "none"
        problem = f"there is no tool {cut_clean(call.name, _SHOWN_NAME)!r}; the tools are: {tools}"
    elif step_tools is not None and tool.name not in step_tools:
        problem = f"{tool.name} may not be called in this step; its tools are: {', '.join(step_tools) or 'none'}"
    elif tool.name in retry_counts and retry_counts[tool.name] > tool.retries:
        problem = (
            f"{tool.name} asked for another try more than {tool.retries} times in this turn, and is not called again:"
            " go on without it"
        )
    elif arguments is not None:
        values, problem = _parse_arguments(segment, tool, call.id, arguments)
    if tool is not None and arguments is not None:  # also for a call that cannot run: it is part of its round
        loop_key = None if tool.has_async_key else tool.loop_key(arguments)
    checked_values.append(values)
    return settled_input(
        call,
        problem=problem,
        loop_key=loop_key,
        ignore_in_loop_detection=tool is not None and tool.ignore_in_loop_detection,
        delegates=tool is not None and tool.delegates,
        reaches=_reached_tools(segment, tool) if tool is not None and tool.delegates else (),
    )


def _reached_tools(segment: Segment, tool: Tool) -> tuple[str, ...]:
    """Return the tools that a sub-agent may call, which a turn with rules must know."""
    agent = getattr(tool, "agent", None)
    if segment.machine.turn.rules is None or not isinstance(agent, Agent):
        return ()
    return tuple(segment.setup.reached_by(agent))


async def _with_keys(segment: Segment, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Return the calls of a reply with the keys for loop detection that async functions make."""
    keyed_calls: list[ToolCall] = []
    for call in calls:
        tool = segment.tools.get(call.name)
        if tool is not None and tool.has_async_key and call.arguments is not None:
            keyed_calls.append(replace(call, loop_key=await tool.awaited_loop_key(call.arguments)))
        else:
            keyed_calls.append(call)
    return tuple(keyed_calls)


def _parse_arguments(
    segment: Segment, tool: Tool, call_id: str | None, arguments: Mapping[str, JsonValue]
) -> tuple[Values | None, str]:
    """Return the parsed arguments of a call, or the problem with them."""
    try:
        return tool.parse(arguments), ""
    except ToolError as error:
        if error.__cause__ is not None:  # the bug of a validator
            log_bug(error.__cause__, tool.name, call_id or "", segment.journal.turn_id)
        return None, text_of(error)
    except BaseException as error:
        # An `Exception` from a custom `parse` is a bug, which ends the turn. Other exceptions must not leave this
        # function.
        if isinstance(error, Exception) or holds(error, KeyboardInterrupt):
            raise
        return None, describe(error)


def _takes_none(segment: Segment, name: str) -> bool:
    """Whether a tool has no parameters, so that some models send `null` as its arguments."""
    return name in segment.tools and not segment.tools[name].parameters.get("properties")


async def _run_tools(segment: Segment, calls: tuple[Call, ...]) -> Input | None:
    batch, is_started, segment.started = segment.batch_context(), segment.started, False
    report: CallReport = segment.journal.feed if segment.machine.turn.rules is None else partial(_report, segment)
    try:
        if not is_started:
            await run_batch(calls, batch, report, segment.setup.max_parallel_tools)
        elif not batch.stopping():
            calls = tuple([call for call in calls if call.state is CallState.STARTED])  # a rule may hold others up
            await in_tasks(make_work(calls, batch, batch.checked_values), batch.cancel_grace, report)
    except (anyio.get_cancelled_exc_class(), CannotRunError):
        await segment.journal.write()  # a paid reply is kept if the process can keep it
        raise
    return None


async def _report(segment: Segment, event: JobOutcome, /, *more_outcomes: JobOutcome) -> None:
    """Journal what happened to calls. Raises `TripError` if a rule has ended the turn, so that the other calls stop.

    Their sub-agents have ended then.
    """
    journal = segment.journal
    running_calls = [call for call in segment.machine.turn.open_calls() if call.made.lease is not None and call.counted]
    await journal.feed(event, *more_outcomes)
    last = journal.transcript.last
    if isinstance(last, TurnEnded) and last.guardrail is not None:
        for call in running_calls:
            with suppress(TurnNotFoundError):
                child = child_id(journal.turn_id, call.id)
                await end_child(
                    journal.store, child, journal.listeners, abandoned_drivers=journal.claim.abandoned.for_children
                )
        raise TripError(last.guardrail.name, last.guardrail.message, {}, last.guardrail.checks)


async def _synthesize(segment: Segment) -> Input:
    synthesize = segment.setup.synthesize
    await segment.back_off()
    try:
        text = (
            None
            if synthesize is None
            else await _ask_engine(segment, "synthesize", synthesize, _list_finished_calls(segment))
        )
    except ModelError as error:
        return segment.fail_attempt(error)
    if not isinstance(text, str | None):
        raise HookFailedError(f"synthesize returned {show_value(text)}: return the text of the answer, or None")
    return SynthesizedInput(text=text, elapsed=segment.elapsed())


def _list_finished_calls(segment: Segment) -> tuple[FinishedCall, ...]:
    results = segment.journal.transcript.results
    return tuple(
        FinishedCall(call.name, call.arguments, results[call.id].status, results[call.id].text)
        for call in segment.machine.turn.batch.values()
    )
