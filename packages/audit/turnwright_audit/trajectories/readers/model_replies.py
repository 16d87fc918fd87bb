"""Replies of models in recordings, decoded by the builders that the clients use.

The builders read what a server sends. What only a recording does, such as lost lines, is dealt with here.
"""

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

from msgspec.structs import replace
from typing_extensions import override

from turnwright.model.http.reply_builder import Builder
from turnwright.model.http.text_buffer import TooLargeError
from turnwright.model.protocol import ModelResponse, ResponseToolCall
from turnwright_audit.trajectories.atif import StepMetrics, TrajectoryStep
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.source import WHOLE

B = TypeVar("B", bound=Builder)
#: A call that counts as unreadable, since it has no name. Its id may be known all the same.
UNREADABLE_CALL: Final = ResponseToolCall(name="", arguments=None)


class RecordedReply(Generic[B]):
    """A reply that the builder of a client puts together. A reply of a recording may be longer than a client takes."""

    def __init__(self, builder: type[B]) -> None:
        self.builder = builder(max_reply=WHOLE, max_arguments=WHOLE)
        self._is_too_large = False

    def add(self, value: Mapping[str, Any]) -> None:
        """Add an event, or a whole reply."""
        try:
            self.builder.add(value)
        except (TooLargeError, RecursionError):
            self._is_too_large = True

    def reply(self) -> ModelResponse:
        """Return the reply so far. Of one that is too large, or nested too deep, a call is unreadable."""
        reply = self.builder.reply()
        return replace(reply, calls=(*reply.calls, UNREADABLE_CALL)) if self._is_too_large else reply


class StreamedReply(RecordedReply[B]):
    """A reply from the events of a recorded stream.

    `lost_lines` is the number of lines before it that could not be read. `is_repeated`: its last event repeats all.
    """

    def __init__(self, builder: type[B], lost_lines: int, *, is_repeated: bool = False) -> None:
        super().__init__(builder)
        self._lost_lines = lost_lines
        self._is_repeated = is_repeated
        self._is_damaged = False

    def add_event(self, event: Mapping[str, Any], lost_lines: int) -> None:
        """Add an event. The reply is damaged if a line was lost since it began."""
        self._is_damaged = self._is_damaged or lost_lines != self._lost_lines
        self.add(event)

    @override
    def reply(self) -> ModelResponse:
        """Return the reply so far. Calls that may have lost a part of their arguments are unreadable."""
        reply = super().reply()
        calls = (call if self._is_readable(call) else replace(call, name="") for call in reply.calls)
        return replace(reply, calls=tuple(calls))

    def _is_readable(self, call: ResponseToolCall) -> bool:
        is_finished = self.builder.finished
        if self._is_damaged and not (self._is_repeated and is_finished):
            return False
        return is_finished or not (call.arguments is None or call.is_blank)


def read_reply(builder: type[Builder], value: Mapping[str, Any]) -> ModelResponse:
    """Return a reply that was recorded whole."""
    recorded_reply = RecordedReply(builder)
    recorded_reply.add(value)
    return recorded_reply.reply()


def add_reply(run: RunBuilder, reply: ModelResponse, *, at: str | None = None) -> TrajectoryStep:
    """Add a reply to a run."""
    step = run.reply(
        reply.text,
        at=at,
        model=(reply.response.model if reply.response else "") or None,
        reasoning=reply.reasoning,
        metrics=metrics_of(reply),
        stop_reason=reply.finish_reason,
    )
    for call in reply.calls:
        add_call(run, step, call)
    return step


def add_call(run: RunBuilder, step: TrajectoryStep, call: ResponseToolCall) -> None:
    """Add a call to a reply. One without a name counts as unreadable."""
    if call.name:
        arguments = call.raw if call.arguments is None else dict(call.arguments)
        run.call(call.id or None, call.name, arguments, step=step)
    else:
        count_unreadable_call(run, step, call.id)


def count_unreadable_call(run: RunBuilder, step: TrajectoryStep, call_id: str) -> None:
    """Note that a reply has a call that could not be read, with its id if it has one."""
    if call_id:
        run.lose_call(call_id)
    step.note().unreadable_calls += 1


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
