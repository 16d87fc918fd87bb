"""Runs the calls of one step: side by side, each journalled before it starts and when it has its result."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.lowlevel

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

from .batch_context import BatchContext, Failed, Values
from .context import NeedsPersonError
from .errors import ToolError, describe
from .rate_limiter import Pace, Slot
from .result import ToolResult
from .run_concurrently import in_tasks
from .tool import Tool
from .tool_work import ToolWork, asked_first, is_its_own, outcome_of, settled, waits


class CallReport(Protocol):
    """Journals what happened to a call before it returns. `more` are calls that start together with it."""

    async def __call__(
        self, event: CallStartedInput | CallSettledInput | CallWaitingInput, /, *more: CallStartedInput
    ) -> None:
        """Journal, and return then."""
        ...


UNKNOWN_OUTCOME: Final = "outcome unknown: the process died while this call ran; verify before retrying"


async def run_batch(calls: tuple[Call, ...], around: BatchContext, report: CallReport, parallel: int) -> None:
    """Run every call that is ready, at most `max_parallel_tools` of them at once.

    A call of a sequential tool runs alone: behind those before it, and before those after it. `report` journals what
    it is given before it returns; whatever it raises ends the batch and is raised here. A tool's own errors become
    results. Cancelling the batch cancels the calls; one that ignores its cancellation is abandoned after the grace. A
    sub-agent that was started before is taken up where it stands: its own journal accounts for what happened to it.
    """
    ready = [call for call in calls if call.state is CallState.READY or _is_taken_up(call)]
    lost = None if ready else next((call for call in calls if call.state is CallState.STARTED), None)
    if lost is not None:  # the driver would come back here again and again
        raise InvalidCallError(
            "RunTools", lost.id, "it had started, and nobody accounted for that: the journal was changed"
        )
    for side_by_side in _between_barriers(ready, around):
        if len(side_by_side) <= parallel and _start_at_once(side_by_side, around):
            await _start_together(side_by_side, around, report)
            continue
        room = anyio.Semaphore(parallel) if len(side_by_side) > parallel else None
        await in_tasks([partial(_in_turn, call, around, report, room) for call in side_by_side])


def _start_at_once(calls: Sequence[Call], around: BatchContext) -> bool:
    """Whether nothing is left to ask, to check or to wait for."""
    for call in calls:
        if call.id not in around.checked or call.made.lease is not None:
            return False
        tool = around.tools[call.name]
        if not tool.asks_nobody or tool.pace is not None:
            return False
    return True


async def _start_together(calls: Sequence[Call], around: BatchContext, report: CallReport) -> None:
    """Run calls whose starts are journalled in one append: a commit for each would cost more than most tools."""
    if around.stopping():
        return
    elapsed = around.elapsed()
    first, *more = [construct_unchecked(CallStartedInput, call=call.id, elapsed=elapsed) for call in calls]
    await report(first, *more)
    if around.execute is None:
        work = [ToolWork(call, around.tools[call.name], around, report, around.checked.pop(call.id)) for call in calls]
        await in_tasks(work, around.grace)
    else:
        await in_tasks([partial(_report_outcome, call, around, report) for call in calls])


async def _report_outcome(call: Call, around: BatchContext, report: CallReport) -> None:
    await report(await _execution(call, around.tools[call.name], around, around.checked.pop(call.id)))


def _between_barriers(calls: Sequence[Call], around: BatchContext) -> list[list[Call]]:
    """The calls in their order, in groups that may run side by side."""
    groups: list[list[Call]] = []
    barrier = True
    for call in calls:
        tool = around.tools.get(call.name)
        alone = tool is not None and tool.sequential
        if alone or barrier:
            groups.append([])
        groups[-1].append(call)
        barrier = alone
    return groups


async def _in_turn(call: Call, around: BatchContext, report: CallReport, room: "anyio.Semaphore | None") -> None:
    """Run a call when there is room for it in its batch, and among all calls of its tool where that keeps a pace.

    `room` is None where the batch has room for all of its calls.

    Nothing is held while it waits, so that nobody waits for it: of the two places, the second is taken at once or
    the first is given back. If it is the batch that has no room then, another call of the batch is running: a call
    comes back here fewer times than its batch has calls.
    """
    while True:
        if room is None:
            pace = await _run(call, around, report)
        else:
            async with room:
                pace = await _run(call, around, report)
        if pace is None:
            return
        async with _place_of(pace, around) as place:
            if place is None:
                return
            try:
                if room is not None:
                    room.acquire_nowait()
            except anyio.WouldBlock:
                continue
            try:
                if not around.stopping():
                    await _execute(call, around.tools[call.name], around, report, place)
            finally:
                if room is not None:
                    room.release()
        return


@asynccontextmanager
async def _place_of(pace: Pace, around: BatchContext) -> AsyncIterator[Slot | None]:
    """Wait for a place and hold it while the block runs; None where the turn is about to be stopped before."""
    place = None
    with around.abort.ends():
        place = await pace.wait()
    try:
        yield place
    finally:
        if place is not None:
            place.leave()


async def settle_after_crash(calls: tuple[Call, ...], around: BatchContext, report: CallReport) -> None:
    """Do to each call that had started when its process died what its tool says (`on_crash`, DESIGN 4.13).

    One that is to be rerun is run here.
    """
    for call in calls:
        if call.state is not CallState.STARTED or _is_taken_up(call):
            continue
        tool = around.tools[call.name]
        if tool.on_crash == "rerun":
            await in_tasks([partial(_rerun, call, tool, around, report)])
        elif tool.on_crash == "ask":
            question = f"The process died while {call.name} ran. Run it again, or leave its outcome unknown?"
            await report(
                CallWaitingInput(
                    call=call.id,
                    interrupt_kind=InterruptKind.UNKNOWN_OUTCOME,
                    question=question,
                    choices=(Decision.RERUN, Decision.UNKNOWN),
                    elapsed=around.elapsed(),
                )
            )
        else:
            await report(settled(call, CallStatus.UNKNOWN, ToolResult(UNKNOWN_OUTCOME), around))


async def _run(call: Call, around: BatchContext, report: CallReport) -> Pace | None:
    """Run a call, or say what it wants of a person. Returns the pace that it has to wait for, if it has to."""
    if around.stopping():
        return None
    if _is_taken_up(call):
        await report(await _execution(call, around.tools[call.name], around))
        return None
    tool = around.tools[call.name]
    cleared = await _cleared(call, tool, around)
    if isinstance(cleared, CallSettledInput | CallWaitingInput):
        await report(cleared)
        return None
    if around.stopping():  # an approval check may take its time
        return None
    place = None
    if tool.pace is not None:
        place = tool.pace.place_now()
        if place is None:
            return tool.pace
    try:
        await _execute(call, tool, around, report, place, cleared)
    finally:
        if place is not None:
            place.leave()
    return None


async def _cleared(call: Call, tool: Tool, around: BatchContext) -> Values | CallSettledInput | CallWaitingInput:
    """Give the values that the call runs with, or say what became of it before it could start."""
    values = around.checked.pop(call.id, None)
    try:
        ask = None if tool.asks_nobody else await asked_first(call, tool, around)
        if ask is None:
            # An approved call is checked again: what was right when it was asked may not be now.
            return tool.parse(call.arguments) if values is None else values
    except NeedsPersonError as needs:
        ask = needs.ask
    except ToolError as error:
        return settled(call, CallStatus.ERROR, ToolResult(str(error)), around)
    except Exception:
        raise
    except BaseException as error:
        if not await is_its_own(error):
            raise
        return settled(call, CallStatus.ERROR, ToolResult(describe(error)), around)
    return waits(call, ask, around)


async def _rerun(call: Call, tool: Tool, around: BatchContext, report: CallReport) -> None:
    if tool.pace is None:
        await _execute(call, tool, around, report)
        return
    async with _place_of(tool.pace, around) as place:
        if place is not None:
            await _execute(call, tool, around, report, place)


async def _execute(  # noqa: PLR0917 (they go down together, as far as the tool)
    call: Call,
    tool: Tool,
    around: BatchContext,
    report: CallReport,
    place: Slot | None = None,
    values: Values | None = None,
) -> None:
    child = child_id(around.turn, call.id) if call.made.lease is not None else None
    await report(construct_unchecked(CallStartedInput, call=call.id, child=child, elapsed=around.elapsed()))
    if call.state is not CallState.STARTED:  # a rerun without a retry left was settled instead
        return
    if place is not None:
        place.start()
    await report(await _execution(call, tool, around, values))


async def _execution(
    call: Call, tool: Tool, around: BatchContext, values: Values | None = None
) -> CallSettledInput | CallWaitingInput:
    """Do what a started call asks for, by its tool or in a turn of its own, and say what came of it."""
    delegates = call.made.lease is not None

    def run(failed: Failed | None = None) -> Awaitable[CallSettledInput | CallWaitingInput]:
        return around.delegate(call) if delegates else outcome_of(call, tool, around, values, failed)

    return await (run() if around.execute is None else around.execute(call, tool, run))


def _is_taken_up(call: Call) -> bool:
    return call.state is CallState.STARTED and call.made.lease is not None
