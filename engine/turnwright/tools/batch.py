"""The calls of one step, run concurrently. Each call is journaled before it starts and when it has its result."""

from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol, TypeVar

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from turnwright._base.ids import child_id
from turnwright_states import (
    Call,
    CallSettledInput,
    CallStartedInput,
    CallState,
    CallStatus,
    CallWaitingInput,
    Decision,
    InterruptKind,
    InvalidCallError,
)
from turnwright_states.construct import construct_unchecked

from .batch_context import BatchContext, CallJudge, Failed, Values
from .context import NeedsPersonError
from .errors import ToolError, describe
from .job_tasks import in_tasks
from .rate_limiter import RateLimiter, Slot
from .result import ToolResult
from .tool import Tool
from .tool_work import ToolWork, asked_first, is_its_own, make_result, outcome_of, waits
from .work_item import Outcome


class CallReport(Protocol):
    """Journals in one append what happened to calls: starts, outcomes, or the start and the result of one call."""

    async def __call__(
        self,
        event: CallStartedInput | Outcome,
        /,
        *more: CallStartedInput | Outcome,
    ) -> None:
        """Journal the inputs, then return."""
        ...


#: The results of calls that ran.
_RAN: Final = frozenset({CallStatus.OK, CallStatus.ERROR})
UNKNOWN_OUTCOME: Final = "outcome unknown: the process died while this call ran; verify before retrying"


async def run_batch(calls: tuple[Call, ...], batch: BatchContext, report: CallReport, max_parallel_tools: int) -> None:
    """Run every call that is ready, at most `max_parallel_tools` of them at once.

    A call of a sequential tool runs alone, after the calls before it and before the calls after it. An error of
    `report` ends the batch and is raised here. An error of a tool becomes a result. Canceling the batch cancels the
    calls; a call that ignores its cancellation is abandoned after the grace. A sub-agent that was started before is
    resumed from its own journal.
    """
    ready = [call for call in calls if call.state is CallState.READY or _is_resumed(call)]
    lost_call = None if ready else next((call for call in calls if call.state is CallState.STARTED), None)
    if lost_call is not None:  # otherwise the driver would repeat this action for ever
        raise InvalidCallError("RunTools", lost_call.id, "it started and has no outcome: the journal was changed")
    for side_by_side in _split_at_barriers(ready, batch):
        if len(side_by_side) <= max_parallel_tools and _start_at_once(side_by_side, batch):
            await _start_together(side_by_side, batch, report)
            continue
        room = anyio.Semaphore(max_parallel_tools) if len(side_by_side) > max_parallel_tools else None
        order = _AskingOrder(side_by_side)
        jobs = [partial(_run_in_order, call, batch, report, room, order) for call in side_by_side]
        await in_tasks(jobs, deliver=report)


class _AskingOrder:
    """Lets calls that run side by side ask a person in their order, whichever check is the fastest.

    A call passes when it needs no approval, or has asked for one.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self._passed_events = {call.id: anyio.Event() for call in calls} if len(calls) > 1 else {}

    def let_pass(self, call: Call) -> None:
        """Note that a call has passed."""
        if call.id in self._passed_events:
            self._passed_events[call.id].set()

    def lets_ask(self, call: Call) -> bool:
        """Return whether all calls before this one have passed."""
        return all(event.is_set() for event in self._before(call))

    async def wait(self, call: Call) -> None:
        """Wait until all calls before this one have passed."""
        for event in self._before(call):
            await event.wait()

    def _before(self, call: Call) -> Iterator[anyio.Event]:
        for name, event in self._passed_events.items():
            if name == call.id:
                return
            yield event


def can_start_at_once(tools: Sequence[Tool], max_parallel_tools: int) -> bool:
    """Whether calls of these tools, with valid arguments, need not ask, wait or lease anything before they start."""
    if len(tools) > max_parallel_tools:
        return False
    for tool in tools:
        if not tool.never_asks or tool.limiter is not None or tool.delegates or (tool.sequential and len(tools) > 1):
            return False
    return True


def can_be_repeated(tools: Sequence[Tool]) -> bool:
    """Whether calls of these tools may run again without a record that they ran (docs/rules.md#repeatable-steps).

    The calls of another reply have the same idempotency keys, so a tool that changes something must not know its key.
    """
    return all(tool.on_crash == "rerun" and (tool.read_only or not tool.takes_context) for tool in tools)


def _start_at_once(calls: Sequence[Call], batch: BatchContext) -> bool:
    """Whether the calls can start at once: nothing to ask, to check or to wait for."""
    if batch.judge is not None and batch.judge.judges_before:
        return False
    if any(call.id not in batch.checked or call.made.lease is not None for call in calls):
        return False
    return can_start_at_once([batch.tools[call.name] for call in calls], len(calls))


async def _start_together(calls: Sequence[Call], batch: BatchContext, report: CallReport) -> None:
    """Run calls whose starts are journaled in one append. A commit for each would cost more than most tools."""
    if batch.stopping():
        return
    elapsed = batch.elapsed()
    first, *more = [construct_unchecked(CallStartedInput, call=call.id, elapsed=elapsed) for call in calls]
    await report(first, *more)
    await run_started(calls, batch, report)


def run_started(calls: Sequence[Call], batch: BatchContext, report: CallReport) -> Awaitable[None]:
    """Run calls side by side that were journaled as started. `stopping` is the caller's to check."""
    if batch.execute is None and (batch.judge is None or not batch.judge.judges_after):
        work = [ToolWork(call, batch.tools[call.name], batch, batch.checked.pop(call.id)) for call in calls]
        return in_tasks(work, batch.cancel_grace, report)
    return in_tasks([partial(_work, call, batch) for call in calls], deliver=report)


async def _work(call: Call, batch: BatchContext, values: Values | None = None) -> Outcome:
    """Run a started call, and return its outcome as the hooks leave it."""
    values = batch.checked.pop(call.id, values)
    return await _judge_outcome(call, batch, await _run_execution(call, batch.tools[call.name], batch, values))


async def _judge_outcome(call: Call, batch: BatchContext, outcome: Outcome) -> Outcome:
    """Return the outcome of a call that ran as the hooks leave it."""
    if batch.judge is None or not batch.judge.judges_after or not isinstance(outcome, CallSettledInput):
        return outcome
    return await batch.judge.after(call, batch, outcome) if outcome.status in _RAN else outcome


def _split_at_barriers(calls: Sequence[Call], batch: BatchContext) -> list[list[Call]]:
    """Return the calls in order, in groups whose calls may run concurrently."""
    groups: list[list[Call]] = []
    barrier = True
    for call in calls:
        tool = batch.tools.get(call.name)
        alone = tool is not None and tool.sequential
        if alone or barrier:
            groups.append([])
        groups[-1].append(call)
        barrier = alone
    return groups


async def _run_in_order(
    call: Call, batch: BatchContext, report: CallReport, room: "anyio.Semaphore | None", order: _AskingOrder
) -> Outcome | None:
    """Run a call as `_run_when_free` does. Those behind it need not wait for one that ends without asking."""
    try:
        return await _run_when_free(call, batch, report, room, order)
    finally:
        order.let_pass(call)


async def _run_when_free(
    call: Call, batch: BatchContext, report: CallReport, room: "anyio.Semaphore | None", order: _AskingOrder
) -> Outcome | None:
    """Run a call when its batch has room and its tool's limiter, if any, has a slot.

    Returns its outcome, or None if that is journaled already: it is, before a call that waits gets the place.

    `room` is None if the batch has room for all of its calls. A call that waits holds nothing: it takes the second of
    the two only if it is free at once, else it releases the first. So no deadlock is possible. If the batch has no
    room, another of its calls runs, so a call repeats this less often than its batch has calls.
    """
    while True:
        if room is None:
            outcome = await _run(call, batch, report, order)
        else:
            async with room:
                outcome = await _run(call, batch, report, order)
                waits_for_turn = isinstance(outcome, CallWaitingInput) and not order.lets_ask(call)
                if outcome is not None and not isinstance(outcome, RateLimiter) and not waits_for_turn:
                    await report(outcome)
                    return None
        if isinstance(outcome, CallWaitingInput):
            await order.wait(call)  # interrupts are numbered as they come; a call before it may need the room
        if not isinstance(outcome, RateLimiter):
            return outcome
        async with _hold_slot(outcome, batch) as slot:
            if slot is None:
                return None
            try:
                if room is not None:
                    room.acquire_nowait()
            except anyio.WouldBlock:
                continue
            try:
                return None if batch.stopping() else await _execute(call, batch, report, slot)
            finally:
                if room is not None:
                    room.release()


@asynccontextmanager
async def _hold_slot(limiter: RateLimiter, batch: BatchContext) -> AsyncIterator[Slot | None]:
    """Wait for a slot and hold it during the block. The slot is None if the turn is being stopped."""
    slot = None
    with batch.abort.scope():
        slot = await limiter.wait()
    try:
        yield slot
    finally:
        if slot is not None:
            slot.release()


async def settle_after_crash(calls: tuple[Call, ...], batch: BatchContext, report: CallReport) -> None:
    """Apply the crash policy of its tool (`on_crash`) to each call that a crash interrupted.

    A call with the policy `rerun` runs here. See docs/rules.md#recovery.
    """
    for call in calls:
        if call.state is not CallState.STARTED or _is_resumed(call):
            continue
        tool = batch.tools[call.name]
        if tool.on_crash == "rerun":
            await in_tasks([partial(_rerun, call, tool, batch, report)], deliver=report)
        elif tool.on_crash == "ask":
            question = f"The process died while {call.name} ran. Run it again, or leave its outcome unknown?"
            await report(
                CallWaitingInput(
                    call=call.id,
                    interrupt_kind=InterruptKind.UNKNOWN_OUTCOME,
                    question=question,
                    choices=(Decision.RERUN, Decision.UNKNOWN),
                    elapsed=batch.elapsed(),
                )
            )
        else:
            await report(make_result(call, CallStatus.UNKNOWN, ToolResult(UNKNOWN_OUTCOME), batch))


async def _run(
    call: Call, batch: BatchContext, report: CallReport, order: _AskingOrder
) -> Outcome | RateLimiter | None:
    """Run a call and return its outcome, for example its question, or the limiter that the call must wait for."""
    if batch.stopping():
        return None
    if _is_resumed(call):
        order.let_pass(call)
        return await _work(call, batch)
    tool = batch.tools[call.name]
    values = await _check_before_start(call, tool, batch)
    if not isinstance(values, CallWaitingInput):
        order.let_pass(call)
    if isinstance(values, CallSettledInput | CallWaitingInput):
        return values
    if batch.stopping() or await _settle_without_running(call, batch, report):  # an approval check may take long
        return None
    slot = None
    if tool.limiter is not None:
        slot = tool.limiter.take_now()
        if slot is None:
            return tool.limiter
    try:
        return await _execute(call, batch, report, slot, values)
    finally:
        if slot is not None:
            slot.release()


async def _check_before_start(call: Call, tool: Tool, batch: BatchContext) -> Values | Outcome:
    """Return the values for the call, or the outcome of a call that cannot start.

    The decisions of hooks, if there are any, stay in `batch.decided`.
    """
    values = batch.checked.pop(call.id, None)
    try:
        if batch.judge is not None and batch.judge.judges_before:
            return await _decide_values(call, tool, batch, values, batch.judge)
        ask = None if tool.never_asks else await asked_first(call, tool, batch)
        if ask is None:
            # An approved call is validated again, because the world may have changed since the question.
            return tool.parse(call.arguments) if values is None else values
    except NeedsPersonError as needs:
        ask = needs.ask
    except ToolError as error:
        return _add_decisions(make_result(call, CallStatus.ERROR, ToolResult(str(error)), batch), batch)
    except Exception:
        raise
    except BaseException as error:
        if not await is_its_own(error):
            raise
        return _add_decisions(make_result(call, CallStatus.ERROR, ToolResult(describe(error)), batch), batch)
    return _add_decisions(waits(call, ask, batch), batch)


async def _decide_values(
    call: Call, tool: Tool, batch: BatchContext, values: Values | None, judge: CallJudge
) -> Values | Outcome:
    """Do what `_check_before_start` does for a call that hooks or guardrails decide about. Raises what they raise."""
    decision = batch.decided.get(call.id)
    if decision is None:  # else it was asked, and had to wait for a free slot
        decision = await judge.before(call, tool, batch)
        batch.decided[call.id] = decision
    if decision.rejected is not None:
        outcome = make_result(call, CallStatus.REJECTED, ToolResult(decision.rejected), batch)
        return _add_decisions(outcome, batch)
    if decision.result is not None:
        return {}
    final = replace(call, arguments=decision.arguments) if decision.changed else call
    ask = None if tool.never_asks else await asked_first(final, tool, batch)
    if decision.ask is not None and (ask is None or not ask.question):
        ask = decision.ask
    if ask is not None:
        return _add_decisions(waits(call, ask, batch), batch)
    if decision.values is not None:
        return decision.values
    return tool.parse(call.arguments) if values is None or decision.changed else values


T = TypeVar("T", CallSettledInput, CallWaitingInput)


def _add_decisions(outcome: T, batch: BatchContext) -> T:
    """Add the decisions about a call that did not start to its outcome, and the arguments that a person sees."""
    decision = batch.decided.pop(outcome.call, None)
    if decision is None:
        return outcome
    update: dict[str, object] = {"decisions": tuple(decision.decisions)}
    if decision.changed and isinstance(outcome, CallWaitingInput):
        update["changed"] = decision.arguments
    return replace(outcome, **update)


async def _settle_without_running(call: Call, batch: BatchContext, report: CallReport) -> bool:
    """If a hook gave the result of the call, start and settle it in one append, and return True."""
    decision = batch.decided.get(call.id)
    if decision is None or decision.result is None:
        return False
    result = decision.result
    event = _make_start(call, batch)
    final = batch.tools[call.name].return_direct
    outcome = await _judge_outcome(call, batch, make_result(call, CallStatus.OK, result, batch, final=final))
    assert isinstance(outcome, CallSettledInput)  # noqa: S101 (what it was made from)
    await report(event, outcome)
    return True


def _make_start(call: Call, batch: BatchContext, child: str | None = None) -> CallStartedInput:
    """Return the input that starts a call, with the decisions about it."""
    event = construct_unchecked(CallStartedInput, call=call.id, child=child, elapsed=batch.elapsed())
    decision = batch.decided.pop(call.id, None)
    if decision is None or not decision.decisions:
        return event
    arguments = decision.arguments if decision.changed else None
    return replace(event, arguments=arguments, decisions=tuple(decision.decisions))


async def _rerun(call: Call, tool: Tool, batch: BatchContext, report: CallReport) -> Outcome | None:
    if tool.limiter is None:
        return await _execute(call, batch, report)
    async with _hold_slot(tool.limiter, batch) as slot:
        return None if slot is None else await _execute(call, batch, report, slot)


async def _execute(
    call: Call, batch: BatchContext, report: CallReport, slot: Slot | None = None, values: Values | None = None
) -> Outcome | None:
    """Journal the start of a call, and run it. Return its outcome, which is journaled before a slot is released."""
    child = child_id(batch.turn, call.id) if call.made.lease is not None else None
    await report(_make_start(call, batch, child))
    if call.state is not CallState.STARTED:  # a rerun without a retry left was settled instead
        return None
    if slot is None:
        return await _work(call, batch, values)
    slot.start()
    await report(await _work(call, batch, values))
    return None


async def _run_execution(call: Call, tool: Tool, batch: BatchContext, values: Values | None = None) -> Outcome:
    """Run a started call, by its tool or as a sub-agent, and return its outcome."""
    delegates = call.made.lease is not None

    def run(on_error: Failed | None = None) -> Awaitable[Outcome]:
        return batch.delegate(call) if delegates else outcome_of(call, tool, batch, values, on_error)

    return await (run() if batch.execute is None else batch.execute(call, tool, run))


def _is_resumed(call: Call) -> bool:
    return call.state is CallState.STARTED and call.made.lease is not None
