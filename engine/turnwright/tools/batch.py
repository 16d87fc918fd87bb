"""Runs the calls of one step: side by side, each journalled before it starts and when it has its result."""

import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel

from turnwright.ids import child_id
from turnwright_states import (
    Call,
    CallSettled,
    CallStarted,
    CallState,
    CallStatus,
    CallWaits,
    Decision,
    InterruptKind,
)

from .context import Answer, Ask, ToolContext
from .text import cap
from .tool import Tool, ToolError, describe, holds

Report = Callable[[CallStarted | CallSettled | CallWaits], Awaitable[None]]
#: Drives the sub-agent of a started call, until it has ended or waits for a person.
Delegate = Callable[[Call], Awaitable[CallSettled | CallWaits]]


async def nobody_delegates(call: Call) -> CallSettled | CallWaits:
    """Where nobody drives turns, no sub-agent can run."""
    raise TypeError(f"{call.name} is a sub-agent, and nobody here drives one")


UNKNOWN_OUTCOME: Final = "outcome unknown: the process died while this call ran; verify before retrying"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a batch needs to know of its turn."""

    turn: str
    tools: Mapping[str, Tool]
    grants: tuple[str, ...]
    #: Seconds of driving so far.
    elapsed: Callable[[], float]
    #: Seconds since the epoch of Unix.
    now: Callable[[], float] = time.time
    #: Whether the turn is about to be stopped, so that no further call may start.
    stopping: Callable[[], bool] = lambda: False
    delegate: Delegate = nobody_delegates


async def run_batch(calls: tuple[Call, ...], around: Surroundings, report: Report, limiter: anyio.Semaphore) -> None:
    """Run every call that is ready, at most as many at once as `limiter` lets through.

    `report` journals what it is given before it returns; whatever it raises ends the batch and is raised here. A
    tool's own errors become results. Cancelling the batch cancels the calls. A sub-agent that was started before is
    taken up where it stands: its own journal accounts for what happened to it.
    """

    async def run(call: Call) -> None:
        async with limiter:
            await _run(call, around, report)

    await _in_tasks([partial(run, call) for call in calls if call.state is CallState.READY or _is_taken_up(call)])


async def settle_after_crash(calls: tuple[Call, ...], around: Surroundings, report: Report) -> None:
    """Do to each call that had started when its process died what its tool says (`on_crash`, DESIGN 4.13).

    One that is to be rerun is run here.
    """
    for call in calls:
        if call.state is not CallState.STARTED or _is_taken_up(call):
            continue
        tool = around.tools[call.name]
        if tool.on_crash == "rerun":
            await _in_tasks([partial(_execute, call, tool, around, report)])
        elif tool.on_crash == "ask":
            question = f"The process died while {call.name} ran. Run it again, or leave its outcome unknown?"
            await report(
                CallWaits(
                    call=call.id,
                    interrupt_kind=InterruptKind.UNKNOWN_OUTCOME,
                    question=question,
                    choices=(Decision.RERUN, Decision.UNKNOWN),
                    elapsed=around.elapsed(),
                )
            )
        else:
            await report(_settled(call, CallStatus.UNKNOWN, UNKNOWN_OUTCOME, around))


async def _in_tasks(jobs: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Run each job in a task of its own, and raise what one of them raises, without a group around it.

    Also a job that is alone: a tool may swallow a cancellation, cancel its own task, or leave marks of one on it, and
    none of this may reach the task that drives the turn, for there it could not be told from what others ask for.
    """
    failures: list[BaseException] = []

    async def run(job: Callable[[], Awaitable[None]], group: anyio.abc.TaskGroup) -> None:
        try:
            await job()
        except GeneratorExit:
            raise  # the event loop is gone, and nothing can be done any more
        except BaseException as error:  # noqa: BLE001 (raised below)
            failures.append(error)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for job in jobs:
            group.start_soon(run, job, group)
    if failures:
        raise failures[0]


async def _run(call: Call, around: Surroundings, report: Report) -> None:
    if around.stopping():
        return
    if _is_taken_up(call):
        await report(await around.delegate(call))
        return
    tool = around.tools[call.name]
    context = _context(call, around)
    try:
        ask = tool.asks(call.arguments, context)
        if ask is None:
            # An approved call is checked again: what was right when it was asked may not be now.
            tool.parse(call.arguments)
    except ToolError as error:
        await report(_settled(call, CallStatus.ERROR, str(error), around))
        return
    if ask is not None:
        await report(_waits(call, ask, around))
        return
    await _execute(call, tool, around, report)


async def _execute(call: Call, tool: Tool, around: Surroundings, report: Report) -> None:
    child = child_id(around.turn, call.id) if call.made.lease is not None else None
    await report(CallStarted(call=call.id, child=child, elapsed=around.elapsed()))
    if call.state is not CallState.STARTED:  # a rerun without a retry left was settled instead
        return
    if child is not None:
        await report(await around.delegate(call))
        return
    try:
        result, status = await tool.run(call.arguments, _context(call, around)), CallStatus.OK
    except ToolError as error:
        result, status = str(error), CallStatus.ERROR
    except BaseException as error:
        if not await _is_its_own(error):
            raise
        result, status = describe(error), CallStatus.ERROR
    await report(_settled(call, status, cap(result), around))


async def _is_its_own(error: BaseException) -> bool:
    """Say whether what came out of a call is a cancellation that nobody asked for but the tool itself.

    Whoever stops the turn cancels a scope around the task of this call, and whoever cancels the task that drives the
    turn makes the batch cancel its own. When all tasks of a loop are cancelled at once, as at its end, the batch needs
    one round of the loop for that.
    """
    if holds(error, KeyboardInterrupt) or not holds(error, anyio.get_cancelled_exc_class()):
        return False
    await anyio.lowlevel.cancel_shielded_checkpoint()
    return anyio.current_effective_deadline() > -math.inf


def _is_taken_up(call: Call) -> bool:
    return call.state is CallState.STARTED and call.made.lease is not None


def _context(call: Call, around: Surroundings) -> ToolContext:
    answers = tuple(Answer(answer.decision, answer.text) for answer in call.answers)
    return ToolContext(around.turn, call.id, max(call.attempt, 1), answers, around.grants)


def _settled(call: Call, status: CallStatus, result: str, around: Surroundings) -> CallSettled:
    return CallSettled(call=call.id, status=status, result=result, elapsed=around.elapsed())


def _waits(call: Call, ask: Ask, around: Surroundings) -> CallWaits:
    return CallWaits(
        call=call.id,
        interrupt_kind=ask.kind,
        question=ask.question,
        choices=ask.choices,
        grant=ask.grant,
        expires_at=None if ask.expires_in is None else around.now() + ask.expires_in,
        elapsed=around.elapsed(),
    )
