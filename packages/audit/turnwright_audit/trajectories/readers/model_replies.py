"""Replies of models in recordings, decoded by the builders that the clients use.

The builders read what a server sends. What only a recording does, such as lost lines, is dealt with here.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from turnwright.model.http.reply_builder import Builder
from turnwright.model.http.text_buffer import TooLargeError
from turnwright.model.protocol import ModelResponse, ResponseToolCall
from turnwright_audit.trajectories.atif import StepExtra, StepMetrics, StepNotes, TrajectoryStep
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.source import WHOLE

#: A call that counts as unreadable, since it has no name.
_UNREADABLE: Final = ResponseToolCall(name="", arguments=None)


class StreamedReply:
    """A reply in the making, from the events of a recorded stream.

    `lost_lines` is the number of lines before it that could not be read.
    """

    def __init__(self, builder: type[Builder], lost_lines: int) -> None:
        self._builder = _new(builder)
        self._lost_lines = lost_lines
        self._is_damaged = False
        self._is_too_large = False

    @property
    def is_finished(self) -> bool:
        """Whether its finish reason has come."""
        return self._builder.finished

    def add(self, event: Mapping[str, Any], lost_lines: int) -> None:
        """Add an event. The reply is damaged if a line was lost since it began."""
        self._is_damaged = self._is_damaged or lost_lines != self._lost_lines
        self._is_too_large = self._is_too_large or not _add(self._builder, event)

    def reply(self) -> ModelResponse:
        """Return the reply so far. Calls that may have lost a part of their arguments have no name."""
        reply = self._builder.reply()
        calls = [call if self._is_readable(call) else replace(call, name="") for call in reply.calls]
        return replace(reply, calls=(*calls, *([_UNREADABLE] if self._is_too_large else ())))

    def _is_readable(self, call: ResponseToolCall) -> bool:
        return not self._is_damaged and (self.is_finished or not (call.arguments is None or call.is_blank))


def read_reply(builder: type[Builder], value: Mapping[str, Any]) -> ModelResponse:
    """Return a reply that was recorded whole."""
    building = _new(builder)
    is_complete = _add(building, value)
    reply = building.reply()
    return reply if is_complete else replace(reply, calls=(*reply.calls, _UNREADABLE))


def add_reply(run: RunBuilder, reply: ModelResponse, *, at: str | None = None) -> TrajectoryStep:
    """Add a reply to a run. Calls without a name count as unreadable."""
    step = run.reply(
        reply.text,
        at=at,
        model=(reply.response.model if reply.response else "") or None,
        reasoning=reply.reasoning,
        metrics=metrics_of(reply),
        stop_reason=reply.finish_reason,
    )
    for call in reply.calls:
        if call.name:
            arguments = call.raw if call.arguments is None else dict(call.arguments)
            run.call(call.id or None, call.name, arguments, step=step)
        else:
            count_unreadable_call(step)
    return step


def count_unreadable_call(step: TrajectoryStep) -> None:
    """Note that a reply has a call that could not be read."""
    step.extra = step.extra or StepExtra()
    step.extra.turnwright = step.extra.turnwright or StepNotes()
    step.extra.turnwright.unreadable_calls += 1


def metrics_of(reply: ModelResponse) -> StepMetrics | None:
    """Return the tokens and the cost of a reply; None if it has none."""
    if reply.usage is None:
        return None
    reports_cached = reply.response is not None and reply.response.cache_read_input_tokens is not None
    return StepMetrics(
        prompt_tokens=reply.usage.input_tokens,
        completion_tokens=reply.usage.output_tokens,
        cached_tokens=reply.usage.cached_tokens if reports_cached else None,
        cost_usd=reply.usage.cost or None,
    )


def _new(builder: type[Builder]) -> Builder:
    return builder(max_reply=WHOLE, max_arguments=WHOLE)


def _add(builder: Builder, value: Mapping[str, Any]) -> bool:
    """Add an event, or a whole reply; False if it is too large, or nested too deep."""
    try:
        builder.add(value)
    except (TooLargeError, RecursionError):
        return False
    return True
