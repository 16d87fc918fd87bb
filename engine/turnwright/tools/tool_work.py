"""The work of one started call: its tool runs, and what comes of that becomes an event."""

import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel

from turnwright_states import Call, CallSettledInput, CallStatus, CallWaitingInput
from turnwright_states.construct import construct_unchecked

from .batch_context import BatchContext, Failed, Values
from .context import AbortSignal, Ask, GivenAnswer, NeedsPersonError, ProgressLine, ToolContext
from .errors import ToolError, ToolTimeoutError, describe, holds
from .loop_handle import in_event_loop
from .result import ToolResult, bounded
from .run_concurrently import in_tasks
from .timing import watch_limit
from .tool import Tool
from .work_item import WorkItem

_LOG: Final = logging.getLogger(__name__)


async def outcome_of(
    call: Call, tool: Tool, around: BatchContext, values: Values | None, failed: Failed | None = None
) -> CallSettledInput | CallWaitingInput:
    """Let the tool do its work, and say what came of it. An error of its own is told to `failed`."""
    came: list[CallSettledInput | CallWaitingInput] = []

    async def keep(outcome: CallSettledInput | CallWaitingInput) -> None:
        came.append(outcome)

    try:
        await in_tasks([ToolWork(call, tool, around, keep, values, failed)], around.grace)
    except anyio.get_cancelled_exc_class():
        if not came:  # a call that ends all the same keeps its result
            raise
    return came[0]


async def asked_first(call: Call, tool: Tool, around: BatchContext) -> Ask | None:
    """Say what this call wants of a person before it runs (`Tool.asks_first`, and what that raises).

    An approval function that ignores its cancellation is abandoned after the grace, as a tool is: the call is refused.
    """
    if not tool.asks_by_code:
        return await tool.asks_first(call.arguments, context_of(call, around))
    inquiry = Inquiry(call, tool, around)
    await in_tasks([inquiry], around.grace)
    return inquiry.ask


class Inquiry(WorkItem):
    """What is asked of a tool before its call: whether a person has to approve it."""

    __slots__ = ("_around", "_call", "_tool", "ask")

    def __init__(self, call: Call, tool: Tool, around: BatchContext) -> None:
        self.at_work = False
        self.timed = tool.timeout is not None
        self.limit = None
        self.limited = None
        self.ask: Ask | None = None
        self._call = call
        self._tool = tool
        self._around = around

    async def __call__(self) -> None:
        """Ask the tool."""
        if self.timed:
            watch_limit(self.watch)
        self.at_work = True
        try:
            self.ask = await self._tool.asks_first(self._call.arguments, context_of(self._call, self._around))
        finally:
            self.at_work = False

    def abandon(self) -> None:
        """See `Work.abandon`."""
        call, turn, tool, grace = self._call.id, self._around.turn, self._tool.name, self._around.grace
        message = (
            "the approval check of tool %s ignored its cancellation for %g s and is abandoned: it still runs, and call"
            " %s of turn %s does not"
        )
        _LOG.warning(message, tool, grace, call, turn, extra={"turn": turn, "call": call, "tool": tool})

    async def closed(self, error: GeneratorExit) -> None:
        """See `Work.closed`: raises the `ToolError` that refuses the call."""
        raise ToolError(f"refused, and did not run: the approval check of {self._tool.name} raised {describe(error)}")

    async def time_out(self) -> None:
        """See `Work.time_out`: raises the `ToolError` that refuses the call."""
        raise ToolError(
            f"refused, and did not run: the approval check of {self._tool.name} did not finish within"
            f" {self._tool.timeout:g} s, and could not be stopped"
        )


class ToolWork(WorkItem):
    """What the tool of a started call does. `tell` is told what came of it, unless the work is abandoned."""

    __slots__ = ("_abandoned", "_around", "_call", "_context", "_line", "_raised", "_tell", "_tool", "_values")

    def __init__(  # noqa: PLR0917 (they go down together, as far as the tool)
        self,
        call: Call,
        tool: Tool,
        around: BatchContext,
        tell: Callable[[CallSettledInput | CallWaitingInput], Awaitable[None]],
        values: Values | None,
        failed: Failed | None = None,
    ) -> None:
        self.at_work = False
        self.timed = tool.timeout is not None
        self.limit = None
        self.limited = None
        self._call = call
        self._tool = tool
        self._around = around
        self._tell = tell
        self._values = values
        self._raised = failed
        self._line: ProgressLine | None = None
        self._context = _UNSEEN
        self._abandoned = False

    async def __call__(self) -> None:
        """Run the tool, and tell what came of it."""
        if self.timed:
            watch_limit(self.watch)
        self.at_work = True
        try:
            outcome = await self._outcome()
        finally:
            self.at_work = False  # also where it was canceled: whoever abandons work looks later
        if not self._abandoned:
            await self._tell(outcome)

    def abandon(self) -> None:
        """See `Work.abandon`."""
        self._abandoned = True
        self._hang_up()
        if self._context is not _UNSEEN:
            self._context.abort_signal.set()
        call, turn, grace = self._call.id, self._around.turn, self._around.grace
        message = (
            "tool %s: call %s of turn %s ignored its cancellation for %g s and is abandoned: it still runs, and its"
            " result will be dropped"
        )
        about = {"turn": turn, "call": call, "tool": self._tool.name}
        _LOG.warning(message, self._tool.name, call, turn, grace, extra=about)

    async def closed(self, error: GeneratorExit) -> None:
        """See `Work.closed`: the call has its result."""
        await self._tell(self._failed(error))

    async def time_out(self) -> None:
        """See `Work.time_out`: the call has its result."""
        tool = self._tool
        late = (
            f"{tool.name} did not finish within {tool.timeout:g} s, and could not be stopped: it may still be running"
        )
        await self._tell(self._failed(ToolTimeoutError(late)))

    async def _outcome(self) -> CallSettledInput | CallWaitingInput:
        """Run the tool, and say what came of it. Nobody hears of its progress any more then."""
        call, tool, around = self._call, self._tool, self._around
        if tool.takes_context:
            self._line = ProgressLine(partial(around.progress, call))
            self._context = context_of(call, around, abort=around.abort.below(), line=self._line)
        try:
            if self._values is not None and tool.runs_plainly:
                result = await tool.run_checked(self._values, self._context)
            else:
                result = await tool.run(call.arguments, self._context)
            return settled(call, CallStatus.OK, result, around)
        except NeedsPersonError as needs:
            return waits(call, needs.ask, around)
        except ToolError as error:
            return self._failed(error)
        except Exception:
            raise  # a `run` of somebody's own has a bug, as the engine might: the turn ends, and says so
        except BaseException as error:
            if not await is_its_own(error):
                raise
            return self._failed(error)
        finally:
            if self._line is not None:
                self._hang_up()

    def _failed(self, error: BaseException) -> CallSettledInput:
        if self._raised is not None:
            self._raised(error)
        said = str(error) if isinstance(error, ToolError) else describe(error)
        return settled(self._call, CallStatus.ERROR, ToolResult(said), self._around)

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
            self._around.abort.forget(self._context.abort_signal)


async def is_its_own(error: BaseException) -> bool:
    """Whether what came out of code that is not ours is that code's own doing, and not asked for by somebody.

    Ctrl-C is a person's. A cancellation was asked for if somebody cancelled a scope around this task: whoever stops the
    turn does, and whoever cancels the task that drives it makes the batch cancel its own. When all tasks of a loop are
    cancelled at once, as at its end, the batch needs one round of the loop for that.
    """
    if holds(error, KeyboardInterrupt) or (isinstance(error, GeneratorExit) and not in_event_loop()):
        return False
    if not holds(error, anyio.get_cancelled_exc_class()):
        return True
    await anyio.lowlevel.cancel_shielded_checkpoint()
    return anyio.current_effective_deadline() > -math.inf


def context_of(
    call: Call, around: BatchContext, *, abort: AbortSignal | None = None, line: ProgressLine | None = None
) -> ToolContext:
    """What the tool of this call is given, where it takes a context."""
    answers = tuple(GivenAnswer(answer.decision, answer.text) for answer in call.answers)
    return ToolContext(
        turn_id=around.turn,
        call_id=call.id,
        attempt=max(call.attempt, 1),
        answers=answers,
        grants=around.grants,
        abort_signal=abort or AbortSignal(),
        _line=line or ProgressLine(),
    )


#: For a tool that does not look at what it is told of its call.
_UNSEEN: Final = ToolContext(turn_id="", call_id="")


def settled(call: Call, status: CallStatus, result: ToolResult, around: BatchContext) -> CallSettledInput:
    """The event that a call has this result."""
    result = bounded(result)
    return construct_unchecked(
        CallSettledInput,
        call=call.id,
        status=status,
        result=result.text,
        structured=result.structured,
        files=tuple([file.kept() for file in result.files]) if result.files else (),
        elapsed=around.elapsed(),
    )


def waits(call: Call, ask: Ask, around: BatchContext) -> CallWaitingInput:
    """The event that a call waits for a person."""
    return CallWaitingInput(
        call=call.id,
        interrupt_kind=ask.kind,
        question=ask.question,
        choices=ask.choices,
        grant=ask.grant,
        expires_at=None if ask.expires_in is None else around.now() + ask.expires_in,
        elapsed=around.elapsed(),
    )
