"""Reads logs of AG-UI events: JSON lines, a list, or the `data:` lines of a stream. Each thread is a run.

The assistant's texts and calls up to the first result, or the next `STEP_STARTED`, are one reply. A call whose end is
not in the log is not a call: it is counted in `unreadable_calls`, since its arguments are incomplete.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from pydantic import JsonValue

from turnwright.model.http.json_text import read_text
from turnwright_audit.trajectories.atif import StepMetrics, Trajectory, TrajectoryStep
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.shapes import BROKEN, read_json
from turnwright_audit.trajectories.source import Recording, UnreadableRecordingError

from .ag_ui_events import (
    Event,
    content_of,
    decode,
    decode_list,
    decode_snake,
    from_snake,
    is_snake,
    objects_of,
    time_of,
)

NAME: Final = "ag-ui"
_RUN_EVENTS: Final = frozenset({"RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT"})
_TEXT_EVENTS: Final = frozenset({"TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CHUNK"})
_REASONING_EVENTS: Final = frozenset(
    {"REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_CHUNK", "THINKING_TEXT_MESSAGE_CONTENT"}
)
_CALL_EVENTS: Final = frozenset(
    {"TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT", "TOOL_CALL_CHUNK"}
)
#: Types of events that occur in no other format.
_TYPES: Final = _RUN_EVENTS | _TEXT_EVENTS | _CALL_EVENTS


class _OpenCall:
    """A call whose arguments still arrive."""

    def __init__(self, name: str, step: TrajectoryStep, unreadable: int) -> None:
        self.name = name
        self.step = step
        self.unreadable = unreadable
        self.arguments: list[str] = []


def recognizes(recording: Recording) -> bool:
    """Whether one of the first events has a type of the protocol."""
    document = recording.document
    first: list[JsonValue] = [*document[:50]] if isinstance(document, list) else [*recording.records]
    return any(isinstance(value, Mapping) and str(value.get("type")) in _TYPES for value in first)


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield the run of each thread."""
    log = _Log()
    read_event = decode_snake if is_snake(recording) else decode
    is_cut = False
    if recording.head.lstrip().startswith(b"["):
        is_cut = yield from log.feed_list(recording)
    else:
        for line in recording.lines() if recording.is_lines else recording.record_lines():
            try:
                event = read_event(line)
            except BROKEN:
                log.unreadable += 1
                continue
            kind = event.type
            if log.thread is not None and kind != "RUN_STARTED" and isinstance(kind, str):  # nearly all events
                log.thread.feed(event, log.unreadable)
            else:
                yield from log.feed(event)
    if log.thread is None:
        raise UnreadableRecordingError("it has no event of a run")
    last = log.thread.finish()
    last.run_notes.unreadable_lines += log.unreadable
    last.run_notes.cut = last.run_notes.cut or is_cut
    yield last


class _Log:
    """The events of a file. Those between two `RUN_STARTED` belong to the first one's thread."""

    def __init__(self) -> None:
        self.thread: _Thread | None = None
        self.unreadable = 0

    def feed_list(self, recording: Recording) -> Generator[Trajectory, None, bool]:
        """Take in the events of a list; return whether it is cut."""
        data = recording.data()
        events: Sequence[Event] | None = None
        snake = is_snake(recording)
        if data is not None and not snake:
            with suppress(*BROKEN):
                events = decode_list(data)
        if events is not None:
            for event in events:
                yield from self.feed(event)
            return False
        items = recording.items("item")
        for item in items:
            if isinstance(item, Mapping):
                yield from self.feed(from_snake(item) if snake else msgspec.convert(item, Event))
            else:
                self.unreadable += 1
        return items.cut

    def feed(self, event: Event) -> Iterator[Trajectory]:
        """Take in an event; yield the run of a thread that it ends."""
        if not isinstance(event.type, str):
            self.unreadable += 1
            return
        thread = self.thread
        if event.type == "RUN_STARTED" and thread and thread.id and read_text(event.thread_id) not in {"", thread.id}:
            yield thread.finish()
            thread = None
        if thread is None:
            thread = self.thread = _Thread(read_text(event.thread_id))
        thread.feed(event, self.unreadable)


class _Thread:
    """The run of one thread, or of a sub-agent in it."""

    def __init__(self, id: str, agent: str = "") -> None:  # noqa: A002 (the protocol's word)
        self.id = id
        self.builder = RunBuilder(NAME, agent=agent, run=id or None, session=id or None)
        self._reply: TrajectoryStep | None = None
        self._replies: dict[str, TrajectoryStep] = {}
        self._calls: dict[str, _OpenCall] = {}
        self._known_ids: set[str] = set()
        self._prompt: TrajectoryStep | None = None
        self._streamed = False
        #: Whether an event named the message of the open reply.
        self._is_named = False
        self._running = False
        self._ending: str | None = None
        self._unreadable = 0
        self._inner: dict[str, _Thread] = {}

    def feed(self, event: Event, unreadable: int) -> None:
        """Take in an event. `unreadable` is the number of lines so far that could not be read."""
        owner = event.subagent_run_id
        if owner and isinstance(owner, str) and owner != self.id:
            if owner not in self._inner:
                self._inner[owner] = _Thread(owner, "sub-agent")
            self._inner[owner].feed(event, unreadable)
            return
        self._unreadable = unreadable
        kind = event.type
        if kind in _CALL_EVENTS:
            self._call_event(event, kind)
        elif kind in _TEXT_EVENTS:
            self._text_event(event)
        elif kind in _REASONING_EVENTS and self._reply is not None:
            self._reply.reasoning_content = (self._reply.reasoning_content or "") + read_text(event.delta)
        elif kind == "STEP_STARTED":
            self._reply = None
        elif kind in _RUN_EVENTS:
            self._run_event(event, kind)
        elif kind == "RAW" and isinstance(event.event, Mapping):
            self._raw(event.event)

    def _raw(self, event: Mapping[str, JsonValue]) -> None:
        """Take the tokens and the model of a reply from an event of LangGraph, whose own events have neither."""
        data = event.get("data")
        output = data.get("output") if isinstance(data, Mapping) else None
        if event.get("event") != "on_chat_model_end" or not isinstance(output, Mapping):
            return
        step = self._replies.get(read_text(output.get("id"))) or self._reply
        usage, about = output.get("usage_metadata"), output.get("response_metadata")
        if step is None or step.source != "agent":
            return
        if isinstance(about, Mapping):
            step.model_name = step.model_name or read_text(about.get("model_name")) or None
        if isinstance(usage, Mapping):
            prompt, completion = usage.get("input_tokens"), usage.get("output_tokens")
            if isinstance(prompt, int) and isinstance(completion, int):
                step.metrics = StepMetrics(prompt_tokens=prompt, completion_tokens=completion)

    def _run_event(self, event: Event, kind: str) -> None:
        if kind == "MESSAGES_SNAPSHOT":
            self._end_calls()
            self._snapshot(event.messages)
        elif kind == "RUN_STARTED":
            self._start(event)
        else:
            self._stop(event, kind)

    def finish(self) -> Trajectory:
        """Return the run."""
        self._end_calls(is_broken_off=True)
        for id_, inner in self._inner.items():
            inner.builder.trajectory.trajectory_id = id_
            trajectory = inner.finish()
            trajectory.run_notes.cut = False
            self.builder.subagent(trajectory)
        return self.builder.finish(
            ending=self._ending, success=False if self._ending == "error" else None, cut=self._running
        )

    def _start(self, event: Event) -> None:
        self._end_calls(is_broken_off=True)
        self._reply, self._running, self._streamed = None, True, False
        input_messages = event.input.get("messages") if isinstance(event.input, Mapping) else None
        messages = objects_of(input_messages)
        for message in messages:
            if message.get("role") == "tool":
                self._answer(message)
        if messages and messages[-1].get("role") == "tool":
            return  # the client gives a result, and the turn continues
        if not messages and self._prompt is not None and self.builder.open_calls:
            return
        prompt = messages[-1] if messages and messages[-1].get("role") == "user" else {}
        self._known_ids.update(read_text(message.get("id")) for message in messages)
        self._prompt = self.builder.user(content_of(prompt.get("content")), at=time_of(event))

    def _stop(self, event: Event, kind: str) -> None:
        self._end_calls(is_broken_off=kind == "RUN_ERROR")
        self._reply, self._running = None, False
        if kind == "RUN_ERROR":
            self._ending = "error"
            self.builder.system(read_text(event.message), at=time_of(event), error=True)
            return
        outcome = event.outcome.get("type") if isinstance(event.outcome, Mapping) else event.outcome
        self._ending = read_text(outcome) or "finished"

    def _text_event(self, event: Event) -> None:
        message_id = read_text(event.message_id)
        role = read_text(event.role)
        if event.type != "TEXT_MESSAGE_CONTENT" and role == "user":
            if message_id not in self._replies:
                self._reply = None
                self._replies[message_id] = self._prompt = self.builder.user("", at=time_of(event))
        elif event.type != "TEXT_MESSAGE_CONTENT" and role in {"system", "developer"}:
            self._replies[message_id] = self.builder.system("", at=time_of(event))
        elif message_id not in self._replies and (message_id or event.type == "TEXT_MESSAGE_START"):
            has_content = self._reply is not None and bool(self._reply.message or self._reply.tool_calls)
            waiting = any(call.step is self._reply for call in self._calls.values())
            self._replies[message_id] = self._assistant(event, new=has_content or waiting)
            self._is_named = bool(message_id)
        step = self._replies.get(message_id) or self._reply
        if step is not None and isinstance(step.message, str):
            step.message += read_text(event.delta)

    def _assistant(self, event: Event, *, new: bool = False) -> TrajectoryStep:
        """Return the open reply, or a new one."""
        self._streamed = True
        if self._reply is None or new:
            if self._prompt is None:
                self._prompt = self.builder.user("")
            self._reply = self.builder.reply(at=time_of(event))
            self._is_named = False
        return self._reply

    def _call_event(self, event: Event, kind: str) -> None:
        message_id = read_text(event.tool_call_id)
        if kind == "TOOL_CALL_CHUNK" and not message_id and self._calls:
            message_id = next(reversed(self._calls))
        call = self._calls.get(message_id)
        if call is None and kind in {"TOOL_CALL_START", "TOOL_CALL_CHUNK"} and read_text(event.tool_call_name):
            above = read_text(event.parent_message_id)
            step = self._replies.get(above) if above else None
            if step is None or step.source != "agent":
                step = self._assistant(event, new=self._is_named and bool(above))
            if above:
                self._replies.setdefault(above, step)
                self._is_named = True
            call = self._calls[message_id] = _OpenCall(read_text(event.tool_call_name), step, self._unreadable)
        if call is not None and kind in {"TOOL_CALL_ARGS", "TOOL_CALL_CHUNK"}:
            call.arguments.append(read_text(event.delta))
        elif kind == "TOOL_CALL_END":
            self._end_call(message_id)
        elif kind == "TOOL_CALL_RESULT":
            self._end_call(message_id)
            self._result(event, message_id)

    def _result(self, event: Event, message_id: str) -> None:
        status = event.metadata.get("status") if isinstance(event.metadata, Mapping) else None
        is_open = message_id in self.builder.open_calls
        result = self.builder.result(message_id or None, content_of(event.content), ended=time_of(event))
        notes = result.result_notes
        notes.status = "error" if status == "error" else "denied" if status in {"denied", "rejected"} else None
        notes.unreadable = not is_open and self._unreadable > 0
        self._reply = None

    def _end_calls(self, *, is_broken_off: bool = False) -> None:
        for message_id in tuple(self._calls):
            self._end_call(message_id, is_broken_off=is_broken_off)

    def _end_call(self, message_id: str, *, is_broken_off: bool = False) -> None:
        """Add a call whose arguments are complete; count one with a part that is lost."""
        call = self._calls.pop(message_id, None)
        if call is None:
            return
        arguments = "".join(call.arguments)
        incomplete = is_broken_off and read_json(arguments.encode(errors="replace")) is None
        if incomplete or call.unreadable != self._unreadable:
            call.step.note().unreadable_calls += 1
        else:
            self.builder.call(message_id or None, call.name, arguments, step=call.step)

    def _answer(self, message: Mapping[str, JsonValue]) -> None:
        call = read_text(message.get("toolCallId") or message.get("tool_call_id"))
        if call in self.builder.open_calls:
            self.builder.result(call, content_of(message.get("content")))
            self._reply = None

    def _snapshot(self, value: JsonValue) -> None:
        """Take from a snapshot what was not streamed: the prompt, results, and replies of a run that streams none."""
        messages = objects_of(value)
        latest = max((n for n, message in enumerate(messages) if message.get("role") == "user"), default=-1)
        if self._prompt is not None and not self._prompt.message and latest >= 0:
            self._prompt.message = content_of(messages[latest].get("content"))
        for number, message in enumerate(messages):
            message_id = read_text(message.get("id"))
            if message.get("role") == "tool":
                self._answer(message)
            elif message.get("role") == "assistant" and number > latest and not self._streamed:
                if message_id in self._known_ids:
                    continue
                step = self.builder.reply(content_of(message.get("content")))
                for call in objects_of(message.get("toolCalls") or message.get("tool_calls")):
                    function = call.get("function")
                    fields: Mapping[str, JsonValue] = function if isinstance(function, Mapping) else call
                    name = read_text(fields.get("name"))
                    if name:
                        self.builder.call(read_text(call.get("id")) or None, name, fields.get("arguments"), step=step)
            self._known_ids.add(message_id)
