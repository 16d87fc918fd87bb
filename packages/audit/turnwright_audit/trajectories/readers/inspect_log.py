"""Reads logs of Inspect: a whole log in JSON, and a sample of an `.eval` archive.

A sample is a run. Its messages are the replies and results; its events have the tokens of each reply.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from turnwright_audit.trajectories.atif import ResultStatus, StepMetrics, Trajectory
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.shapes import Shape, join_texts
from turnwright_audit.trajectories.source import HEAD, Recording
from turnwright_audit.trajectories.values import Values

from .chat_messages import named_by_hash

NAME: Final = "inspect"
_TERMINAL: Final = "submit"
_GRADES: Final = frozenset({"C", "P", "I", "N"})
_ATTACHMENT: Final = re.compile(r"attachment://([0-9a-f]{32})")
_SAMPLE: Final = frozenset({"id", "epoch", "input", "target"})


class Part(Struct):
    """A part of a message's content."""

    type: str = ""
    text: str | None = None
    reasoning: str | None = None
    image: str | None = None
    audio: str | None = None
    video: str | None = None


class Call(Struct):
    """A tool call."""

    id: str | None = None
    function: str = ""
    arguments: Any = None


class ToolError(Struct):
    """The failure of a call."""

    type: str = ""
    message: str = ""


class Message(Struct):
    """A message of a sample."""

    id: str | None = None
    role: str = ""
    content: str | list[Part] | None = None
    source: str | None = None
    model: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None
    error: ToolError | None = None


class Usage(Struct):
    """Tokens. Those of the cache may be apart, so the total decides."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    input_tokens_cache_read: int | None = None
    input_tokens_cache_write: int | None = None

    @property
    def metrics(self) -> StepMetrics:
        """The tokens as those of a step."""
        cached_tokens = (self.input_tokens_cache_read or 0) + (self.input_tokens_cache_write or 0)
        prompt = self.total_tokens - self.output_tokens if self.total_tokens else self.input_tokens + cached_tokens
        return StepMetrics(prompt, self.output_tokens, self.input_tokens_cache_read)


class Choice(Struct):
    """A choice of the output."""

    message: Message | None = None
    stop_reason: str | None = None


class Output(Struct):
    """The output of a model."""

    choices: list[Choice] | None = None
    usage: Usage | None = None


class Event(Struct):
    """An event of a sample. Those of models have an output."""

    event: str = ""
    output: Output | str | None = None
    timestamp: str | None = None


class Limit(Struct):
    """The limit that ended a sample."""

    type: str = ""


class Score(Struct):
    """The score that a scorer gave."""

    value: Any = None


class Sample(Struct):
    """A run."""

    id: str | int | None = None
    epoch: int | None = None
    input: Any = None
    target: Any = None
    messages: list[Message] | None = None
    output: Output | None = None
    scores: dict[str, Score] | None = None
    events: list[Event] | None = None
    model_usage: dict[str, Usage] | None = None
    attachments: dict[str, str] | None = None
    error: Any = None
    limit: Limit | None = None


class Eval(Struct):
    """The settings of a log."""

    model: str | None = None
    task: str | None = None


class Log(Sample):
    """A whole log, or a sample."""

    eval: Eval | None = None
    samples: list[Sample] | None = None


_SHAPE: Final = Shape(Log)


def recognizes(recording: Recording) -> bool:
    """Whether the document has the settings of an evaluation and samples, or is a sample. A header alone is neither."""
    first = recording.document
    if not isinstance(first, Mapping):
        return False
    settings = first.get("eval")
    is_log = isinstance(settings, Mapping) and "task" in settings and "model" in settings and "status" in first
    if is_log:
        return "samples" in first or len(recording.head) == HEAD
    return first.keys() >= _SAMPLE


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield the run of each sample."""
    values = Values(recording, _SHAPE, {"samples", "messages", "events"})
    return values.noted(_runs(values), "it has no sample with messages")


def _runs(values: Values[Log]) -> Iterator[Trajectory]:
    for log in values:
        model = log.eval.model if log.eval else None
        for sample in [log] if log.samples is None else log.samples:
            if sample.messages:
                yield _run(sample, model)


def _run(sample: Sample, model: str | None) -> Trajectory:
    name = None if sample.id is None else f"{sample.id}" if sample.epoch is None else f"{sample.id}, {sample.epoch}"
    run = RunBuilder(NAME, agent=NAME, model=model, run=name)
    run.notes.terminal_tools = [_TERMINAL]
    usage_by_message = dict(_list_usage(sample.events or []))
    attachments = sample.attachments or {}
    unreadable = sum(not _add(run, message, usage_by_message, attachments) for message in sample.messages or ())
    usages = [usage.metrics for usage in (sample.model_usage or {}).values()]
    last = run.steps[-1].tool_calls if run.steps else None
    has_submitted = any(call.function_name == _TERMINAL for call in last or ())
    return run.finish(
        ending=_ending(sample) if not has_submitted or sample.limit or sample.error else _TERMINAL,
        success=_success(sample),
        unreadable_lines=unreadable,
        totals=StepMetrics.sum_of(usages) if usages else None,
    )


def _list_usage(events: list[Event]) -> Iterator[tuple[str, tuple[StepMetrics, str | None]]]:
    """Yield the tokens and the time of each reply, by the id of its message."""
    for event in events:
        output = event.output
        if event.event != "model" or not isinstance(output, Output) or output.usage is None or not output.choices:
            continue
        message = output.choices[0].message
        if message is not None and message.id:
            yield message.id, (output.usage.metrics, event.timestamp)


def _add(
    run: RunBuilder,
    message: Message,
    usage_by_message: Mapping[str, tuple[StepMetrics, str | None]],
    attachments: Mapping[str, str],
) -> bool:
    text = _ATTACHMENT.sub(lambda match: attachments.get(match[1], match[0]), _text(message.content))
    if message.role == "assistant" and message.source != "input":
        metrics, at = usage_by_message.get(message.id or "", (None, None))
        parts = message.content if isinstance(message.content, list) else []
        reasoning = join_texts(*(part.reasoning for part in parts))
        step = run.reply(text, at=at, model=message.model, reasoning=reasoning, metrics=metrics)
        for call in message.tool_calls or ():
            if call.function:
                run.call(call.id, call.function, call.arguments, step=step)
    elif message.role == "tool":
        run.result(
            message.tool_call_id, text or (message.error.message if message.error else ""), status=_status(message)
        )
    elif message.role == "user":
        run.user(text)
    elif message.role:
        run.system(text)
    return bool(message.role)


def _text(content: str | list[Part] | None) -> str:
    if not isinstance(content, list):
        return content or ""
    spent_time = (
        part.text if part.text is not None else named_by_hash(part.type, part.image or part.audio or part.video)
        for part in content
        if part.type != "reasoning"
    )
    return "\n".join(spent_time)


def _status(message: Message) -> ResultStatus:
    if message.error is None:
        return "ok"
    return "denied" if message.error.type == "approval" else "error"


def _ending(sample: Sample) -> str | None:
    if sample.error is not None:
        return "error"
    if sample.limit is not None:
        return f"{sample.limit.type} limit"
    choices = sample.output.choices if sample.output else None
    return choices[0].stop_reason if choices else None


def _success(sample: Sample) -> bool | None:
    """Return the first score as a label: right, or wholly right."""
    value = next(iter((sample.scores or {}).values()), Score()).value
    if isinstance(value, (bool, int, float)):
        return value >= 1
    return value == "C" if isinstance(value, str) and value in _GRADES else None
