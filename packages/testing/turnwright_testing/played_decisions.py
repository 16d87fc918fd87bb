"""Plays the recorded decisions of hooks, guardrails, the output type and compaction, in place of the app's own code."""

import dataclasses
from collections.abc import Callable
from typing import Never

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from turnwright.driver.participants import Participants
from turnwright.driver.review import Review, Reviewing, TripError
from turnwright.driver.segment import Segment
from turnwright.driver.segment_hooks import SegmentHooks
from turnwright.errors import HookFailedError, Retry
from turnwright.model.protocol import ModelError
from turnwright.tools import Tool
from turnwright.tools.batch_context import BatchContext, BeforeCall
from turnwright_states import (
    AttemptFailedInput,
    Call,
    CallModel,
    CallSettledInput,
    CompactedInput,
    CompactHistory,
    ExpireInput,
    FailInput,
    Input,
    OversizedInput,
    RequestPreparedInput,
    ReviewedInput,
    TrippedInput,
)

from .recording import Decided, Recording


class PlayedDecisions(SegmentHooks):
    """The decisions of one recording. `written` returns the number of facts so far, by which they are found.

    It serves all engines of the turn: it is the world outside.
    """

    def __init__(self, recording: Recording, count_written: Callable[[], int]) -> None:
        self._recording = recording
        self._count_written = count_written
        self._segment: Segment | None = None
        self._review = Review()
        #: The input that ends the turn while its calls run, as soon as it is driven again.
        self._ending: Decided | None = None

    def participants(self, segment: Segment, participants: Participants) -> Participants:
        """See `SegmentHooks.participants`."""
        self._segment, self._review = segment, Review(self._check)
        if self._ending is not None:
            segment.batch_context = self._end  # type: ignore[method-assign]  # the calls do not run again
        judge, review = _Judge(self._recording), self._review
        return dataclasses.replace(participants, prepare=self._prepare, compaction=self, review=review, judge=judge)

    def end(self) -> None:
        """Let the next driver end the turn in the midst of its calls, as recorded."""
        self._ending = self._due()

    def begin_reply(self, number: int) -> None:
        """Begin the model call of this number, from 0. Raises the trip of a guardrail that ended the turn there."""
        if self._segment is None:
            return
        self._review.stages = (self._check,) if number in self._recording.reviewed else ()
        event = self._due()
        if isinstance(event, TrippedInput):
            raise _trip(event)

    def _due(self) -> Decided | None:
        return self._recording.decisions.get(self._count_written())

    def _elapsed(self) -> float:
        return 0.0 if self._segment is None else self._segment.elapsed()

    def _end(self) -> Never:
        if isinstance(self._ending, TrippedInput):
            raise _trip(self._ending)
        raise HookFailedError(self._ending.error if isinstance(self._ending, FailInput) else "nothing ends the turn")

    async def _prepare(self, _: CallModel) -> RequestPreparedInput | None:
        event = self._due()
        if not isinstance(event, RequestPreparedInput):
            return None
        return replace(event, elapsed=self._elapsed())

    def compact_oversized(self) -> Input | None:
        """See `Compaction.compact_oversized`."""
        event = self._due()
        return replace(event, elapsed=self._elapsed()) if isinstance(event, OversizedInput) else None

    async def compact(self, _: CompactHistory) -> Input:
        """See `Compaction.compact`."""
        event = self._due()
        match event:
            case CompactedInput() | AttemptFailedInput():
                return replace(event, elapsed=self._elapsed())
            case FailInput(error=error):
                raise RuntimeError(error)
            case _:
                await anyio.sleep_forever()
                raise AssertionError

    async def _check(self, reviewing: Reviewing) -> None:
        event = self._due()
        match event:
            case ReviewedInput(refused=True, feedback=feedback):
                raise Retry(feedback)
            case ReviewedInput(answer=answer, output=output):
                reviewing.answer, reviewing.output = answer, output
            case AttemptFailedInput(message=message, cause=cause):
                raise ModelError(message, cause=cause)
            case TrippedInput():
                raise _trip(event)
            case FailInput(error=error):
                raise RuntimeError(error)
            case ExpireInput():
                await anyio.sleep_forever()
            case _:
                await anyio.lowlevel.checkpoint()


class _Judge:
    """Rejects the calls that a hook rejected. What else hooks decided about calls is in the results of the calls."""

    judges_after = False

    def __init__(self, recording: Recording) -> None:
        self._rejected = {call: result.text for call, result in recording.results.items() if result.at == "hook"}

    @property
    def judges_before(self) -> bool:
        return bool(self._rejected)

    async def before(self, call: Call, tool: Tool, batch: BatchContext) -> BeforeCall:
        del tool, batch
        return BeforeCall(call.arguments, rejected=self._rejected.get(call.id))

    async def after(self, call: Call, batch: BatchContext, event: CallSettledInput) -> CallSettledInput:
        del call, batch
        return event


def _trip(event: TrippedInput) -> TripError:
    return TripError(event.guardrail, event.message, dict(event.metadata), event.checks)
