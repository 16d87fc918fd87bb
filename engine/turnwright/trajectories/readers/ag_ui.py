"""Reads logs of AG-UI events: JSON lines, a list, or the `data:` lines of a stream. Each thread is a run.

The assistant's texts and calls up to the first result, or the next `STEP_STARTED`, are one reply. A call whose end is
not in the log is no call: it is counted in `unreadable_calls`, since its arguments are incomplete.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Struct
from pydantic import JsonValue

from turnwright.trajectories.atif import ResultNotes, StepExtra, StepNotes, Trajectory, TrajectoryStep
from turnwright.trajectories.builder import RunBuilder
from turnwright.trajectories.source import Recording, UnreadableRecordingError, iso_time

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
_BROKEN: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


class _Event(Struct, rename="camel"):
    """The fields that are read of any event. Their types are checked where they are used."""

    type: Any = None
    timestamp: Any = None
    thread_id: Any = None
    run_id: Any = None
    input: Any = None
    outcome: Any = None
    message: Any = None
    code: Any = None
    message_id: Any = None
    role: Any = None
    delta: Any = None
    tool_call_id: Any = None
    tool_call_name: Any = None
    parent_message_id: Any = None
    content: Any = None
    messages: Any = None
    subagent_run_id: Any = None
    metadata: Any = None


class _OpenCall:
    """A call whose arguments still arrive."""

    def __init__(self, name: str, step: TrajectoryStep, unreadable: int) -> None:
        self.name = name
        self.step = step
        self.unreadable = unreadable
        self.arguments: list[str] = []


_decode = msgspec.json.Decoder(_Event).decode
_decode_list = msgspec.json.Decoder(list[_Event]).decode
_decode_any = msgspec.json.Decoder(dict[str, Any]).decode
#: Names of fields in dumps of Python programs.
_SNAKE: Final = (b'"thread_id"', b'"message_id"', b'"tool_call_id"')


def recognizes(recording: Recording) -> bool:
    """Whether one of the first events has a type of the protocol."""
    document = recording.document
    first: list[JsonValue] = [*document[:50]] if isinstance(document, list) else [*recording.records]
    if not first:
        first = [_loose(line[5:]) for line in recording.head.splitlines()[:50] if line.startswith(b"data:")]
    return any(isinstance(one, Mapping) and str(one.get("type")) in _TYPES for one in first)


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield the run of each thread."""
    log = _Log()
    decode = _decode_snake if _is_snake(recording) else _decode
    cut = False
    if recording.head.lstrip().startswith(b"["):
        cut = yield from log.feed_list(recording)
    else:
        for line in recording.lines():
            data = line[5:] if line.startswith(b"data:") else line
            if line.startswith((b"event:", b"id:", b"retry:", b":")) or data.strip() == b"[DONE]":
                continue
            try:
                event = decode(data)
            except _BROKEN:
                log.unreadable += 1
            else:
                yield from log.feed(event)
    if log.thread is None:
        raise UnreadableRecordingError("it has no event of a run")
    last = log.thread.finish()
    last.run_notes.unreadable_lines += log.unreadable
    last.run_notes.cut = last.run_notes.cut or cut
    yield last


class _Log:
    """The events of a file. Those between two `RUN_STARTED` belong to the first one's thread."""

    def __init__(self) -> None:
        self.thread: _Thread | None = None
        self.unreadable = 0

    def feed_list(self, recording: Recording) -> Generator[Trajectory, None, bool]:
        """Take in the events of a list; return whether it is cut."""
        data = recording.data()
        events: Sequence[_Event] | None = None
        snake = _is_snake(recording)
        if data is not None and not snake:
            with suppress(*_BROKEN):
                events = _decode_list(data)
        if events is not None:
            for event in events:
                yield from self.feed(event)
            return False
        items = recording.items("item")
        for item in items:
            if isinstance(item, Mapping):
                yield from self.feed(_from_snake(item) if snake else msgspec.convert(item, _Event))
            else:
                self.unreadable += 1
        return items.cut

    def feed(self, event: _Event) -> Iterator[Trajectory]:
        """Take in an event; yield the run of a thread that it ends."""
        if not isinstance(event.type, str):
            self.unreadable += 1
            return
        thread = self.thread
        if event.type == "RUN_STARTED" and thread and thread.id and _text(event.thread_id) not in {"", thread.id}:
            yield thread.finish()
            thread = None
        if thread is None:
            thread = self.thread = _Thread(_text(event.thread_id))
        thread.feed(event, self.unreadable)


class _Thread:
    """The run of one thread, or of a sub-agent in it."""

    def __init__(self, id: str, agent: str = "") -> None:  # noqa: A002 (the protocol's word)
        self.id = id
        self.builder = RunBuilder(NAME, agent=agent, run=id or None, session=id or None)
        self._reply: TrajectoryStep | None = None
        self._replies: dict[str, TrajectoryStep] = {}
        self._calls: dict[str, _OpenCall] = {}
        self._known: set[str] = set()
        self._prompt: TrajectoryStep | None = None
        self._streamed = False
        self._running = False
        self._ending: str | None = None
        self._unreadable = 0
        self._inner: dict[str, _Thread] = {}

    def feed(self, event: _Event, unreadable: int) -> None:
        """Take in an event. `unreadable` is the number of lines so far that could not be read."""
        owner = _text(event.subagent_run_id)
        if owner and owner != self.id:
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
            self._reply.reasoning_content = (self._reply.reasoning_content or "") + _text(event.delta)
        elif kind == "STEP_STARTED":
            self._reply = None
        elif kind in _RUN_EVENTS:
            self._run_event(event, kind)

    def _run_event(self, event: _Event, kind: str) -> None:
        if kind == "MESSAGES_SNAPSHOT":
            self._snapshot(event.messages)
        elif kind == "RUN_STARTED":
            self._start(event)
        else:
            self._stop(event, kind)

    def finish(self) -> Trajectory:
        """Return the run."""
        self._end_calls(lost=True)
        for id_, inner in self._inner.items():
            inner.builder.trajectory.trajectory_id = id_
            found = inner.finish()
            found.run_notes.cut = False
            self.builder.subagent(found)
        return self.builder.finish(
            ending=self._ending, success=False if self._ending == "error" else None, cut=self._running
        )

    def _start(self, event: _Event) -> None:
        self._end_calls(lost=True)
        self._reply, self._running, self._streamed = None, True, False
        asked = event.input.get("messages") if isinstance(event.input, Mapping) else None
        messages = _messages(asked)
        for message in messages:
            if message.get("role") == "tool":
                self._answer(
                    _text(message.get("toolCallId") or message.get("tool_call_id")), _text(message.get("content"))
                )
        if messages and messages[-1].get("role") == "tool":
            return  # the client gives a result, and the turn goes on
        if not messages and self._prompt is not None and self.builder.open_calls:
            return
        prompt = messages[-1] if messages and messages[-1].get("role") == "user" else {}
        self._known.update(_text(one.get("id")) for one in messages)
        self._prompt = self.builder.user(_content(prompt.get("content")), at=_time(event))

    def _stop(self, event: _Event, kind: str) -> None:
        self._end_calls(lost=kind == "RUN_ERROR")
        self._reply, self._running = None, False
        if kind == "RUN_ERROR":
            self._ending = "error"
            self.builder.system(_text(event.message), at=_time(event), error=True)
            return
        outcome = event.outcome.get("type") if isinstance(event.outcome, Mapping) else event.outcome
        self._ending = _text(outcome) or "finished"

    def _text_event(self, event: _Event) -> None:
        own = _text(event.message_id)
        role = _text(event.role)
        if event.type != "TEXT_MESSAGE_CONTENT" and role == "user":
            if own not in self._replies:
                self._reply = None
                self._replies[own] = self._prompt = self.builder.user("", at=_time(event))
        elif event.type != "TEXT_MESSAGE_CONTENT" and role in {"system", "developer"}:
            self._replies[own] = self.builder.system("", at=_time(event))
        elif own not in self._replies and (own or event.type == "TEXT_MESSAGE_START"):
            taken = self._reply is not None and bool(self._reply.message or self._reply.tool_calls)
            waiting = any(one.step is self._reply for one in self._calls.values())
            self._replies[own] = self._assistant(event, new=taken or waiting)
        step = self._replies.get(own) or self._reply
        if step is not None and isinstance(step.message, str):
            step.message += _text(event.delta)

    def _assistant(self, event: _Event, *, new: bool = False) -> TrajectoryStep:
        """Return the open reply, or a new one."""
        self._streamed = True
        if self._reply is None or new:
            if self._prompt is None:
                self._prompt = self.builder.user("")
            self._reply = self.builder.reply(at=_time(event))
        return self._reply

    def _call_event(self, event: _Event, kind: str) -> None:
        own = _text(event.tool_call_id)
        if kind == "TOOL_CALL_CHUNK" and not own and self._calls:
            own = next(reversed(self._calls))
        call = self._calls.get(own)
        if call is None and kind in {"TOOL_CALL_START", "TOOL_CALL_CHUNK"} and _text(event.tool_call_name):
            above = _text(event.parent_message_id)
            parent = self._replies.get(above) if above else None
            step = parent if parent is not None and parent.source == "agent" else self._assistant(event)
            self._replies.setdefault(above or own, step)
            call = self._calls[own] = _OpenCall(_text(event.tool_call_name), step, self._unreadable)
        if call is not None and kind in {"TOOL_CALL_ARGS", "TOOL_CALL_CHUNK"}:
            call.arguments.append(_text(event.delta))
        elif kind == "TOOL_CALL_END":
            self._end_call(own)
        elif kind == "TOOL_CALL_RESULT":
            self._end_call(own)
            self._result(event, own)

    def _result(self, event: _Event, own: str) -> None:
        status = event.metadata.get("status") if isinstance(event.metadata, Mapping) else None
        known = own in self.builder.open_calls
        result = self.builder.result(own or None, _content(event.content), ended=_time(event))
        notes = (result.extra and result.extra.turnwright) or ResultNotes()
        notes.status = "error" if status == "error" else "denied" if status in {"denied", "rejected"} else None
        notes.unreadable = not known and self._unreadable > 0
        self._reply = None

    def _end_calls(self, *, lost: bool = False) -> None:
        for own in tuple(self._calls):
            self._end_call(own, lost=lost)

    def _end_call(self, own: str, *, lost: bool = False) -> None:
        """Add a call whose arguments are complete; count one with a part that is lost."""
        call = self._calls.pop(own, None)
        if call is None:
            return
        arguments = "".join(call.arguments)
        incomplete = lost and _loose(arguments.encode(errors="replace")) is None
        if incomplete or call.unreadable != self._unreadable:
            self._lose(call.step)
        else:
            self.builder.call(own or None, call.name, arguments, step=call.step)

    def _lose(self, step: TrajectoryStep) -> None:
        notes = (step.extra and step.extra.turnwright) or StepNotes()
        notes.unreadable_calls += 1
        step.extra = StepExtra(turnwright=notes)

    def _answer(self, call: str, content: str) -> None:
        if call in self.builder.open_calls:
            self.builder.result(call, content)

    def _snapshot(self, value: JsonValue) -> None:
        """Take from a snapshot what was not streamed: the prompt, results, and replies of a run that streams none."""
        messages = _messages(value)
        latest = max((n for n, one in enumerate(messages) if one.get("role") == "user"), default=-1)
        if self._prompt is not None and not self._prompt.message and latest >= 0:
            self._prompt.message = _content(messages[latest].get("content"))
        for number, message in enumerate(messages):
            own = _text(message.get("id"))
            if message.get("role") == "tool":
                self._answer(
                    _text(message.get("toolCallId") or message.get("tool_call_id")), _content(message.get("content"))
                )
            elif message.get("role") == "assistant" and number > latest and not self._streamed:
                if own in self._known:
                    continue
                step = self.builder.reply(_content(message.get("content")))
                for call in _messages(message.get("toolCalls") or message.get("tool_calls")):
                    function = call.get("function")
                    found: Mapping[str, JsonValue] = function if isinstance(function, Mapping) else call
                    name = _text(found.get("name"))
                    if name:
                        self.builder.call(_text(call.get("id")) or None, name, found.get("arguments"), step=step)
            self._known.add(own)


def _is_snake(recording: Recording) -> bool:
    return any(name in recording.head for name in _SNAKE)


def _decode_snake(line: bytes) -> _Event:
    return _from_snake(_decode_any(line))


def _from_snake(value: Mapping[str, Any]) -> _Event:
    return _Event(**{name: value[name] for name in _Event.__struct_fields__ if name in value})


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _content(value: JsonValue) -> str:
    """Return the text of a message: its content, or the texts of its parts."""
    if isinstance(value, list):
        return "\n".join(_text(one.get("text")) for one in value if isinstance(one, Mapping) and one.get("text"))
    return _text(value)


def _messages(value: JsonValue) -> list[Mapping[str, JsonValue]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _time(event: _Event) -> str | None:
    stamp = event.timestamp
    if isinstance(stamp, str):
        return stamp or None
    return None if not isinstance(stamp, int | float) or isinstance(stamp, bool) else iso_time(stamp / 1000)


def _loose(data: bytes) -> JsonValue:
    try:
        found: JsonValue = msgspec.json.decode(data)
    except _BROKEN:
        return None
    return found
