"""Runs the calls of one step: side by side, each journalled before it starts and when it has its result."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import anyio

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
from .tool import Tool, ToolError

Report = Callable[[CallStarted | CallSettled | CallWaits], Awaitable[None]]

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


async def run_batch(calls: tuple[Call, ...], around: Surroundings, report: Report, limiter: anyio.Semaphore) -> None:
    """Run every call that is ready, at most as many at once as `limiter` lets through.

    `report` journals what it is given before it returns; whatever it raises ends the batch and is raised here. A
    tool's own errors become results. Cancelling the batch cancels the calls.
    """
    ready = [call for call in calls if call.state is CallState.READY]
    if len(ready) == 1:
        await _run(ready[0], around, report)
        return
    failures: list[Exception] = []

    async def run(call: Call, group: anyio.abc.TaskGroup) -> None:
        try:
            async with limiter:
                await _run(call, around, report)
        except Exception as error:  # noqa: BLE001 (the journal failed: raised below, without a group around it)
            failures.append(error)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for call in ready:
            group.start_soon(run, call, group)
    if failures:
        raise failures[0]


async def settle_after_crash(calls: tuple[Call, ...], around: Surroundings, report: Report) -> None:
    """Do to each call that had started when its process died what its tool says (`on_crash`, DESIGN 4.13).

    One that is to be rerun is run here.
    """
    for call in calls:
        if call.state is not CallState.STARTED:
            continue
        tool = around.tools[call.name]
        if tool.on_crash == "rerun":
            await _execute(call, tool, around, report)
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


async def _run(call: Call, around: Surroundings, report: Report) -> None:
    if around.stopping():
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
    await report(CallStarted(call=call.id, elapsed=around.elapsed()))
    if call.state is not CallState.STARTED:  # a rerun without a retry left was settled instead
        return
    try:
        result, status = await tool.run(call.arguments, _context(call, around)), CallStatus.OK
    except ToolError as error:
        result, status = str(error), CallStatus.ERROR
    await report(_settled(call, status, cap(result), around))


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
