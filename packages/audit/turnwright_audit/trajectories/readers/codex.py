"""Reads the sessions of Codex: the JSON lines below `~/.codex/sessions`.

Three forms are known: a record with a `payload` in each line; bare items after a header (until September 2025); and a
document with `session` and `items` (the first, in TypeScript).
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice, takewhile
from pathlib import PurePath
from typing import Any, Final, Literal

from pydantic import JsonValue

from turnwright_audit.trajectories.atif import StepMetrics, Trajectory, TrajectoryStep
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.shapes import Shape, join_texts, read_object
from turnwright_audit.trajectories.source import EmptyRecordingError, Recording

from .chat_messages import named_by_hash, text_of
from .codex_items import Document, Info, Item, Line, Usage, output_of, status_of

NAME: Final = "codex"
_RECORDS: Final = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
#: What the program sends as the user before and between the user's own messages.
_CONTEXT: Final = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|turn_aborted|user_action|permissions|skill|user_shell_command"
    r"|subagent_notification|INSTRUCTIONS|hook_prompt)\b|# AGENTS\.md instructions)",
    re.IGNORECASE,
)
_SESSION_ID: Final = re.compile(r"[\w-]+")
_IDS: Final = re.compile(rb'"call_id" ?: ?"([^"\\]{1,128})"')
_REPLY: Final = re.compile(
    rb'"(?:assistant|reasoning|function_call|custom_tool_call|local_shell_call|web_search_call)"'
)
#: The tool that asks a person.
_QUESTION: Final = "request_user_input"
_Counted = Literal["after", "before", "nowhere"]


_LINE: Final = Shape(Line)
_DOCUMENT: Final = Shape(Document)


def recognizes(recording: Recording) -> bool:
    """Whether one of the first lines is a record, a header or a marker of a session, or the document is a session."""
    first = recording.document
    return any(map(_is_record, recording.objects)) or (isinstance(first, Mapping) and _is_document(first))


def _is_record(record: Mapping[str, JsonValue]) -> bool:
    if "payload" in record:
        return isinstance(record["payload"], Mapping) and str(record.get("type")) in _RECORDS
    return record.get("record_type") == "state" or (
        "type" not in record and {"id", "timestamp", "instructions"} <= record.keys() and "messages" not in record
    )


def _is_document(first: Mapping[str, JsonValue]) -> bool:
    session = first.get("session")
    return isinstance(session, Mapping) and "id" in session and "items" in first


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield the run of a session. Lines that cannot be read are counted; their calls and results are not lost ones."""
    if isinstance(recording.document, Mapping) and _is_document(recording.document):
        yield _read_document(recording)
        return
    count_place, has_prompts = _events(recording)
    session = _Session(count_place, has_prompts=has_prompts)
    lost_ids: set[str] = set()
    unreadable = 0
    whole = True
    copied_count = _count_copied(recording)
    for number, line in enumerate(recording.record_lines(), 1):
        record = _LINE.decode(line) if line.strip() else Line()
        whole = record is not None or line.endswith(b"\n")
        if record is not None:
            session.add(record)
        else:
            unreadable += 1
            lost_ids.update(lost_id.decode("utf-8", "replace") for lost_id in _IDS.findall(line))
        if number == copied_count:
            session.mark_copied()
    yield session.finish(lost_ids, cut=not whole, unreadable_lines=unreadable - (not whole))


def _count_copied(recording: Recording) -> int:
    """Return the number of lines at the beginning that the session from which this one was forked has too."""
    lines = recording.record_lines()
    _, header = _content_of(next(lines, b""))
    parent = header.get("forked_from_id") if isinstance(header, Mapping) else None
    if not isinstance(parent, str) or not _SESSION_ID.fullmatch(parent):
        return 0
    folders = islice(PurePath(recording.name.rpartition(":")[2]).parents, 3)
    is_dated = all(folder.name.isdecimal() for folder in folders)  # sessions/2025/11/30
    parent_recording = recording.beside(f"{'../../../*/*/*/' if is_dated else ''}*{parent}.jsonl")
    if parent_recording is None:
        return 0
    try:
        parent_contents = map(_content_of, parent_recording.raw_lines())
        return 1 + sum(1 for _ in takewhile(lambda line: _content_of(line) in parent_contents, lines))
    except OSError:
        return 0


def _content_of(line: bytes) -> tuple[JsonValue, JsonValue]:
    """Return a record without its time, which a copy has too."""
    record = read_object(line) or {}
    return record.get("type"), record.get("payload")


def _events(recording: Recording) -> tuple[_Counted, bool]:
    """Return where tokens are counted, and whether events repeat the messages of the user."""
    count_place: _Counted = "nowhere"
    has_reply = has_prompts = False
    for line in recording.record_lines():
        has_prompts = has_prompts or b'"user_message"' in line
        if count_place == "nowhere" and b'_token_usage"' in line:
            count_place = "after" if has_reply else "before"
        has_reply = has_reply or (b'"response_item"' in line and _REPLY.search(line) is not None)
        if has_prompts and count_place != "nowhere":
            break
    return count_place, has_prompts


def _read_document(recording: Recording) -> Trajectory:
    data = recording.data()
    document = None if data is None else _DOCUMENT.decode(data)
    whole = document is not None
    if document is None:
        first = recording.document
        head = first.get("session") if isinstance(first, Mapping) else None
        document = _DOCUMENT.convert({"session": head, "items": list(recording.items("items.item"))}) or Document()
    session = _Session("nowhere", has_prompts=False)
    session.header(document.session or Item())
    for item in document.items or ():
        session.item(item, item.timestamp)
    return session.finish(set(), cut=not whole, unreadable_lines=0)


class _Session:
    """A session in the making.

    A reply has several items, and its tokens are `counted` after them, or before them (until October 2025). If they are
    not, it ends where a result follows. `told`: events repeat the messages of the user, so that other messages in the
    user's role are not the user's.
    """

    def __init__(self, count_place: _Counted, *, has_prompts: bool) -> None:
        self.run = RunBuilder(NAME, agent=NAME)
        self._count_place = count_place
        self._has_prompts = has_prompts
        self._model: str | None = None
        self._step: TrajectoryStep | None = None
        self._latest: TrajectoryStep | None = None
        self._answered = False
        self._total: Usage | None = None
        self._requests: list[StepMetrics] = []
        self._ending: str | None = None

    def add(self, record: Line) -> None:
        """Add a line."""
        payload = record.payload
        if payload is None:
            if record.type:
                self.item(record, record.timestamp)
            elif record.id:
                self.header(record)
            return
        match record.type:
            case "session_meta":
                self.header(payload)
            case "turn_context":
                self._model = payload.model or self._model
            case "compacted":
                self.run.system(payload.message if isinstance(payload.message, str) else "", at=record.timestamp)
            case "event_msg":
                self._event(payload, record.timestamp)
            case "response_item":
                self.item(payload, record.timestamp)

    def mark_copied(self) -> None:
        """Mark the steps so far as those of the session from which this one was forked."""
        self._step = None
        for step in self.run.steps:
            step.is_copied_context = True

    def header(self, item: Item) -> None:
        """Add what a session says about itself. A session that was forked repeats that of its parent later."""
        trajectory = self.run.trajectory
        trajectory.session_id = trajectory.session_id or item.id
        if item.cli_version and not self.run.steps:
            trajectory.agent.version = item.cli_version

    def item(self, item: Item, at: str | None) -> None:
        """Add an item of the conversation."""
        match item.type:
            case "message" if item.role == "assistant":
                step = self._reply(at)
                step.message = join_texts(step.message, text_of(item.content))
            case "message":
                self._message(item, at)
            case "reasoning":
                step = self._reply(at)
                parts = (step.reasoning_content or "", text_of(item.summary), text_of(item.content))
                step.reasoning_content = join_texts(*parts) or None
            case "function_call" | "tool_search_call" if item.name or item.execution:
                self._call(item, item.name or "tool_search", item.arguments, at)
            case "custom_tool_call" if item.name:
                self._call(item, item.name, {"input": item.input}, at)
            case "local_shell_call":
                self._call(item, "local_shell", item.action, at)
            case "web_search_call" | "image_generation_call":
                self._add_served_call(item, at)
            case "function_call_output" | "custom_tool_call_output" | "tool_search_output":
                self._result(item, at)

    def _message(self, item: Item, at: str | None) -> None:
        text = text_of(item.content)
        if item.role != "user":
            self.run.system(text, at=at)
        elif not self._has_prompts and not _CONTEXT.match(text):
            self._user(text, at)

    def _user(self, text: str, at: str | None) -> None:
        self._step = None
        self._ending = None
        self.run.user(text, at=at)

    def _reply(self, at: str | None) -> TrajectoryStep:
        """Return the reply to which the next item belongs."""
        if self._step is None or (self._answered and self._count_place == "nowhere"):
            self._step = self._latest = self.run.reply(at=at, model=self._model)
            self._answered = False
            if self._count_place == "before":
                self._spend(self._step)
        return self._step

    def _call(self, item: Item, name: str, arguments: Any, at: str | None) -> str:  # noqa: ANN401
        call = self.run.call(item.call_id or item.id, name, arguments, step=self._reply(at))
        return call.tool_call_id

    def _add_served_call(self, item: Item, at: str | None) -> None:
        """Add a call that the model's server ran. Its item is its result too, once it is completed."""
        call = self._call(item, item.type.removesuffix("_call"), item.action or {}, at)
        if item.status in (None, "completed", "generating"):
            content = None if item.result is None else named_by_hash("image", item.result)
            self.run.result(call, content, status="ok", ended=at, hosted=True)
        elif item.status == "failed":
            self.run.result(call, None, status="error", ended=at, hosted=True)

    def _result(self, item: Item, at: str | None) -> None:
        text, has_failed = output_of(item.output if item.output is not None else item.tools)
        self.run.result(item.call_id or item.id or "", text, status=status_of(text, failed=has_failed), ended=at)
        self._answered = True

    def _event(self, event: Item, at: str | None) -> None:
        match event.type:
            case "token_count" if event.info is not None:
                self._count(event.info)
            case "user_message" if event.kind in (None, "plain") and isinstance(event.message, str):
                self._user(event.message, at)
            case "error" | "stream_error":
                self._step = None
                self.run.system(event.message if isinstance(event.message, str) else "", at=at, error=True)
                self._ending = event.type
            case "turn_aborted" | "task_complete" | "turn_complete":
                self._step = None
                self._ending = event.type

    def _count(self, info: Info) -> None:
        """Add the tokens of a request. Numbers that were given before are not a request."""
        total = info.total_token_usage
        usage = info.last_token_usage or (total and total.since(self._total))
        if usage is None or (total is not None and total == self._total):
            return
        self._total = total
        self._requests.append(usage.metrics)
        if self._step is not None and self._count_place == "after":
            self._spend(self._step)
        self._step = None

    def _spend(self, step: TrajectoryStep) -> None:
        """Give a reply the tokens that were counted: its own, and those of requests without one before it."""
        metrics = [*([step.metrics] if step.metrics else ()), *self._requests]
        if self._requests:
            step.llm_call_count = len(metrics)
            step.metrics = StepMetrics.sum_of(metrics)
            self._requests = []

    def finish(self, lost_ids: set[str], *, cut: bool, unreadable_lines: int) -> Trajectory:
        """Return the run."""
        if not self.run.steps:
            raise EmptyRecordingError("it is a session without messages")
        if self._latest is not None:
            self._spend(self._latest)
        self.run.mark_unreadable(lost_ids)
        self.run.mark_waiting([_QUESTION])
        self.run.trajectory.agent.model_name = self._model
        return self.run.finish(ending=self._ending, cut=cut, unreadable_lines=unreadable_lines)
