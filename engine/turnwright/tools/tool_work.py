"""The work of one started call: run its tool, and turn the outcome into an input of the machine."""

import logging
import math
from collections.abc import Sequence
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel
from msgspec.structs import asdict

from turnwright._base.words import clean, text_of
from turnwright.errors import Retry
from turnwright_states import Call, CallSettledInput, CallStartedInput, CallStatus, CallWaitingInput, Decision
from turnwright_states.construct import construct_unchecked
from turnwright_states.facts import Answered
from turnwright_states.inputs import CallQuestion
from turnwright_states.payload import thaw

from .batch_context import BatchContext, Failed, Values
from .context import AbortSignal, Ask, GivenAnswer, NeedsPersonError, ProgressLine, ToolContext
from .errors import ToolError, ToolFailedError, ToolTimeoutError, describe, holds
from .job_tasks import in_tasks
from .loop_handle import in_event_loop
from .result import ToolResult, bound_result
from .timing import CLOCK, noting_wait
from .tool import Tool
from .work_item import JobOutcome, Outcome, WorkItem

_LOG: Final = logging.getLogger(__name__)


async def outcome_of(
    call: Call, tool: Tool, batch: BatchContext, values: Values | None, on_error: Failed | None = None
) -> Outcome:
    """Run the tool and return the outcome of the call. An error of the tool is also passed to `on_error`."""
    final_outcomes: list[Outcome] = []

    async def keep(*outcomes: JobOutcome) -> None:
        final_outcomes.extend(outcome for outcome in outcomes if not isinstance(outcome, CallStartedInput))

    try:
        await in_tasks([ToolWork(call, tool, batch, values, on_error)], batch.cancel_grace, keep)
    except anyio.get_cancelled_exc_class():
        if not final_outcomes:  # a call that has finished keeps its result
            raise
    return final_outcomes[0]


async def asked_first(call: Call, tool: Tool, batch: BatchContext) -> Ask | None:
    """Return the question to a person before this call runs (`Tool.asks_first`, with its errors).

    An approval function that ignores its cancellation is abandoned after the grace, and the call is refused.
    """
    if not tool.asks_by_code:
        return await tool.asks_first(call.arguments, context_of(call, batch))
    inquiry = Inquiry(call, tool, batch)
    await in_tasks([inquiry], batch.cancel_grace)
    return inquiry.ask


class Inquiry(WorkItem):
    """A job that finds out whether a person must approve a call."""

    __slots__ = ("_batch", "_call", "_tool", "ask")

    def __init__(self, call: Call, tool: Tool, batch: BatchContext) -> None:
        super().__init__(tool, tool.seconds_of_call(batch.tool_timeout))
        self.ask: Ask | None = None
        self._call = call
        self._tool = tool
        self._batch = batch

    async def __call__(self) -> None:
        """Ask the tool. Raises the `ToolError` that refuses the call."""
        CLOCK.set(self)
        self.at_work = True
        try:
            context = context_of(self._call, self._batch)
            self.ask = await noting_wait(self._tool.asks_first(self._call.arguments, context))
        finally:
            self.at_work = False
        # A late answer is possible: the function swallowed its cancellation, or kept the event loop busy.
        if anyio.current_time() >= self.deadline:
            await self.time_out(has_ended=True)

    def abandon(self) -> None:
        """See `WorkItem.abandon`."""
        call, turn, tool, grace = self._call.id, self._batch.turn, self._tool.name, self._batch.cancel_grace
        message = (
            "the approval check of tool %s ignored its cancellation for %g s and is abandoned: it still runs, but call"
            " %s of turn %s will not run"
        )
        _LOG.warning(message, tool, grace, call, turn, extra={"turn": turn, "call": call, "tool": tool})

    async def finish_closed(self, error: GeneratorExit) -> None:
        """See `WorkItem.finish_closed`: raises the `ToolError` that refuses the call."""
        raise ToolError(f"refused and not run: the approval check of {self._tool.name} raised {describe(error)}")

    async def time_out(self, *, has_ended: bool) -> None:
        """See `WorkItem.time_out`: raises the `ToolError` that refuses the call."""
        suffix = "" if has_ended else ", and could not be stopped"
        late = f"did not finish within {self.seconds:g} s{suffix}"
        raise ToolError(f"refused and not run: the approval check of {self._tool.name} {late}")


class ToolWork(WorkItem):
    """A job that runs the tool of a started call."""

    __slots__ = ("_batch", "_call", "_context", "_line", "_on_error", "_tool", "_values")

    def __init__(
        self,
        call: Call,
        tool: Tool,
        batch: BatchContext,
        values: Values | None,
        on_error: Failed | None = None,
    ) -> None:
        super().__init__(tool, tool.seconds_of_call(batch.tool_timeout))
        self._call = call
        self._tool = tool
        self._batch = batch
        self._values = values
        self._on_error = on_error
        self._line: ProgressLine | None = None
        self._context = _NO_CONTEXT

    async def __call__(self) -> Outcome:
        """Run the tool, and return the outcome of the call. Then close the progress line."""
        call, tool, batch = self._call, self._tool, self._batch
        CLOCK.set(self)
        if tool.takes_context:
            self._make_context()
        self.at_work = True
        try:
            if self._values is not None and tool.runs_plainly:
                result = await tool.run_unlimited(self._values, self._context)
            else:
                result = await tool.run(call.arguments, self._context)
            return make_result(call, CallStatus.OK, result, batch, final=tool.return_direct)
        except NeedsPersonError as needs:
            return waits(call, needs.ask, batch, needs.more)
        except (Retry, ToolError) as error:
            return self._settle_error(error)
        except Exception:
            raise  # a bug in an overridden `run`: the turn fails with this error
        except BaseException as error:
            if not await is_its_own(error):
                raise
            return self._settle_error(error)
        finally:
            self.at_work = False  # also after a cancellation, because `_abandon_all` reads it later
            if self._line is not None:
                self._close_line()

    def abandon(self) -> None:
        """See `WorkItem.abandon`."""
        self._close_line()
        if self._context is not _NO_CONTEXT:
            self._context.abort_signal.set()
        call, turn, grace = self._call.id, self._batch.turn, self._batch.cancel_grace
        message = (
            "tool %s: call %s of turn %s ignored its cancellation for %g s and is abandoned: it still runs, and its"
            " result will be dropped"
        )
        about = {"turn": turn, "call": call, "tool": self._tool.name}
        _LOG.warning(message, self._tool.name, call, turn, grace, extra=about)

    async def finish_closed(self, error: GeneratorExit) -> Outcome:
        """See `WorkItem.finish_closed`: the call has its result."""
        return self._settle_error(error)

    async def time_out(self, *, has_ended: bool) -> Outcome:
        """See `WorkItem.time_out`: the call has its result."""
        hint = "; part of its work may be done" if has_ended else ", and could not be stopped: it may still be running"
        return self._settle_error(ToolTimeoutError(f"{self._tool.name} did not finish within {self.seconds:g} s{hint}"))

    def _settle_error(self, error: BaseException) -> CallSettledInput:
        if self._on_error is not None:
            self._on_error(error)
        if isinstance(error, Retry):
            return make_result(
                self._call, CallStatus.ERROR, ToolResult(clean(str(error.feedback))), self._batch, retry=True
            )
        log_bug(error, self._tool.name, self._call.id, self._batch.turn)
        text = text_of(error) if isinstance(error, ToolError) else describe(error)
        return make_result(self._call, CallStatus.ERROR, ToolResult(text), self._batch)

    def _make_context(self) -> None:
        call, batch = self._call, self._batch
        self._line = ProgressLine(partial(batch.progress, call))
        self._context = context_of(call, batch, abort=batch.abort.below(), line=self._line)

    def _close_line(self) -> None:
        if self._line is not None:
            self._line.close()
            self._batch.abort.forget(self._context.abort_signal)


def log_bug(error: BaseException, tool: str, call: str, turn: str) -> None:
    """Log an exception of a tool that is no `ToolError` and no `Retry`: it is a bug, and only the model reads of it."""
    if isinstance(error, ToolFailedError) or not isinstance(error, ToolError):
        bug, about = error.__cause__ or error, {"turn": turn, "call": call, "tool": tool}
        _LOG.warning(
            "tool %s: call %s of turn %s raised %s", tool, call, turn, describe(bug), exc_info=bug, extra=about
        )


async def is_its_own(error: BaseException) -> bool:
    """Whether the app's code itself caused `error`, and not Ctrl-C or a requested cancellation.

    A cancellation was requested if a scope around this task was canceled: by the abort of the turn, or by the batch
    after its own task was canceled. When a loop cancels all of its tasks at once, the batch needs one round of the loop
    for that.
    """
    if holds(error, KeyboardInterrupt) or (isinstance(error, GeneratorExit) and not in_event_loop()):
        return False
    if not holds(error, anyio.get_cancelled_exc_class()):
        return True
    await anyio.lowlevel.cancel_shielded_checkpoint()
    return anyio.current_effective_deadline() > -math.inf


def context_of(
    call: Call, batch: BatchContext, *, abort: AbortSignal | None = None, line: ProgressLine | None = None
) -> ToolContext:
    """Return the context for the tool of this call."""
    turn = batch.context()
    return ToolContext(
        turn_id=turn.turn_id,
        deps=turn.deps,
        session=turn.session,
        metadata=turn.metadata,
        agent=turn.agent,
        step=turn.step,
        usage=turn.usage,
        messages=turn.messages,
        call_id=call.id,
        attempt=max(call.attempt, 1),
        answers=_order_answers(call.answers) if call.answers else (),
        grants=batch.grants,
        kept=thaw(call.kept),
        abort_signal=abort or AbortSignal(),
        _line=line or ProgressLine(),
        _callback=batch.callback,
    )


def _order_answers(answers: Sequence[Answered]) -> tuple[GivenAnswer, ...]:
    """Return a call's answers, with its replies in the order of their questions. One pause's are given in any order."""
    replies = iter(sorted([answer for answer in answers if answer.decision is Decision.REPLY], key=_number_of))
    ordered_answers = [next(replies) if answer.decision is Decision.REPLY else answer for answer in answers]
    return tuple([GivenAnswer(answer.decision, answer.text) for answer in ordered_answers])


def _number_of(answer: Answered) -> int:
    """Return the number of an answered question, which is the end of its id."""
    return int(answer.interrupt.rpartition("-")[2])


#: For a tool that does not use its context.
_NO_CONTEXT: Final = ToolContext(turn_id="", call_id="")


def make_result(
    call: Call,
    status: CallStatus,
    result: ToolResult,
    batch: BatchContext,
    *,
    final: bool = False,
    retry: bool = False,
) -> CallSettledInput:
    """Return the input that settles a call with this result. It is the turn's answer if it says so, or with `final`."""
    result = bound_result(result)
    return construct_unchecked(
        CallSettledInput,
        call=call.id,
        status=status,
        result=result.text,
        structured=result.structured,
        files=tuple([file.kept() for file in result.files]) if result.files else (),
        final=final or result.final,
        retry=retry,
        elapsed=batch.elapsed(),
    )


def waits(call: Call, ask: Ask, batch: BatchContext, more_questions: Sequence[Ask] = ()) -> CallWaitingInput:
    """Return the input that makes a call wait for people, or for its result. `more_questions` are further ones."""
    first, *more_interrupts = [_question_of(question, batch) for question in (ask, *more_questions)]
    return CallWaitingInput(
        call=call.id, kept=ask.kept, more=tuple(more_interrupts), elapsed=batch.elapsed(), **asdict(first)
    )


def _question_of(ask: Ask, batch: BatchContext) -> CallQuestion:
    return CallQuestion(
        interrupt_kind=ask.kind,
        question=ask.question,
        choices=ask.choices,
        grant=ask.grant,
        expires_at=None if ask.expires_in is None else batch.now() + ask.expires_in,
        approvals=ask.approvals,
        otherwise=ask.otherwise,
        schema=ask.schema,
        restricted=batch.restricted,
    )
