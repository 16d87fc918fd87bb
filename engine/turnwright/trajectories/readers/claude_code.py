"""Reads the sessions of Claude Code: the JSON lines below `~/.claude/projects`, and what `claude -p` streams.

One file is one run. Sub-agents inside it are runs of their own in that run; the file of a sub-agent is another
recording. `agent_progress` records show parts of such a file, so they are no record of calls.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from msgspec import Struct, field
from pydantic import JsonValue

from turnwright.trajectories.atif import (
    FinalMetrics,
    StepExtra,
    StepNotes,
    SubagentRef,
    Trajectory,
    TrajectoryStep,
)
from turnwright.trajectories.builder import RunBuilder
from turnwright.trajectories.readers.anthropic_blocks import (
    Block,
    Message,
    blocks_of,
    result_text,
    status_of,
    text_of,
)
from turnwright.trajectories.shapes import Shape
from turnwright.trajectories.source import EmptyRecordingError, Recording

NAME: Final = "claude-code"
_SYNTHETIC: Final = "<synthetic>"
_SUBAGENT_TOOLS: Final = ("Task", "Agent")
_BESIDE_MESSAGES: Final = ("summary", "file-history-snapshot", "queue-operation")
#: The output of commands that the program runs by itself, which no model sees as a request.
_LOCAL: Final = ("<local-command-", "<bash-input>", "<bash-stdout>", "<bash-stderr>")
_COMMAND: Final = ("<command-name>", "<command-message>")
_INTERRUPTED: Final = "[Request interrupted by user"
_NOTICES: Final = (_INTERRUPTED, "<task-notification>")
_IDS: Final = re.compile(rb'"(?:id|tool_use_id)" ?: ?"([^"\\]{1,128})"|\b((?:toolu|call)_[\w-]+)')
_FILE_PART: Final = re.compile(r"[\w-]+")


class _Made(Struct):
    """The part of a tool's own result that names the sub-agent behind it."""

    agent_id: str | None = field(default=None, name="agentId")


class _Origin(Struct):
    """The author of a message: "human", or a part of the program."""

    kind: str | None = None


class _Fork(Struct):
    """The session from which a record was copied."""

    session: str | None = field(default=None, name="sessionId")


class _Record(Struct, rename="camel"):
    """A line of a session, or (`session_id`, `parent_tool_use_id`, and the `result`) of a stream."""

    type: str = ""
    subtype: str = ""
    uuid: str | None = None
    parent_uuid: str | None = None
    session: str | None = field(default=None, name="sessionId")
    streamed_session: str | None = field(default=None, name="session_id")
    parent_call: str | None = field(default=None, name="parent_tool_use_id")
    is_sidechain: bool = False
    is_meta: bool | None = None
    is_compact_summary: bool = False
    is_api_error_message: bool = False
    agent_id: str | None = None
    timestamp: str | None = None
    version: str | None = None
    request_id: str | None = None
    cost: float | None = field(default=None, name="costUSD")
    total_cost: float | None = field(default=None, name="total_cost_usd")
    content: Any = None
    error: Any = None
    origin: _Origin | None = None
    forked_from: _Fork | None = None
    message: Message | None = None
    tool_use_result: _Made | str | list[Any] | None = None


class _Waiting(NamedTuple):
    """A result whose call has not been seen."""

    block: Block
    at: str | None


_SHAPE: Final = Shape(_Record)


def recognizes(recording: Recording) -> bool:
    """Whether one of the first lines is a record of a session or of a stream."""
    first = recording.document
    return any(map(_is_record, recording.records)) or (isinstance(first, Mapping) and _is_record(first))


def _is_record(record: Mapping[str, JsonValue]) -> bool:
    kind = record.get("type")
    if isinstance(record.get("sessionId"), str):
        return "isSidechain" in record or kind == "queue-operation" or "leafUuid" in record
    if isinstance(record.get("session_id"), str):
        message = record.get("message")
        return (kind == "system" and record.get("subtype") == "init" and "tools" in record) or (
            kind in ("user", "assistant") and isinstance(message, Mapping) and "parent_tool_use_id" in record
        )
    return (kind == "summary" and "leafUuid" in record) or (kind == "file-history-snapshot" and "snapshot" in record)


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield the run of a session. Lines that cannot be read are counted; their calls and results are no lost ones."""
    session = _Session(recording)
    whole = True
    for line in recording.raw_lines():
        whole = session.line(line) or line.endswith(b"\n")
    yield from session.finish(cut=not whole)


class _Session:
    """A session in the making: its own thread, and those of its sub-agents."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._name = PurePath(recording.name.rpartition(":")[2]).name.partition(".")[0]
        self._others: dict[str, bool] = {}
        self._threads: dict[str | None, _Thread] = {}
        self._thread_of: dict[str, str | None] = {}
        self._seen: set[str] = set()
        self._prompts: dict[str, str] = {}
        self._made: dict[str, str] = {}
        self._lost: set[str] = set()
        self._unreadable = 0
        self._ending: str | None = None
        self._totals: FinalMetrics | None = None

    def line(self, line: bytes) -> bool:
        """Add a line; False if it cannot be read."""
        if not line.strip():
            return True
        record = _SHAPE.decode(line)
        if record is None:
            self._unreadable += 1
            self._lost.update((one or other).decode("utf-8", "replace") for one, other in _IDS.findall(line))
            return False
        if record.uuid is not None:
            if record.uuid in self._seen:
                return True
            self._seen.add(record.uuid)
        match record.type:
            case "assistant" | "user" | "system":
                self._message(self._thread(record), record)
            case "result":
                self._ending = record.subtype or None
                self._totals = FinalMetrics(total_cost_usd=record.total_cost)
            case _ if record.uuid is not None:
                self._thread_of[record.uuid] = self._key(record)
        return True

    def _key(self, record: _Record) -> str | None:
        """Return the name of the thread of a record: that of a sub-agent, or None."""
        if record.parent_call is not None:
            return record.parent_call
        if not record.is_sidechain:
            return None
        return record.agent_id or self._thread_of.get(record.parent_uuid or "") or record.uuid or ""

    def _thread(self, record: _Record) -> "_Thread":
        key = self._key(record)
        if record.uuid is not None and record.is_sidechain:
            self._thread_of[record.uuid] = key
        found = self._threads.get(key)
        if found is None:
            found = self._threads[key] = _Thread(record, key)
        return found

    def _message(self, thread: "_Thread", record: _Record) -> None:
        known = len(thread.run.steps)
        if record.type == "system":
            thread.system(record)
        elif record.message is not None:
            (self._reply if record.type == "assistant" else self._user)(thread, record, record.message)
        if self._is_copy(record):
            for step in thread.run.steps[known:]:
                step.is_copied_context = True

    def _is_copy(self, record: _Record) -> bool:
        """Whether a record was copied from a session that this one resumes, and whose own file is beside this one."""
        origin = (record.forked_from and record.forked_from.session) or record.session
        if record.is_sidechain or origin is None or origin == self._name:
            return False
        if origin not in self._others:
            self._others[origin] = bool(_FILE_PART.fullmatch(origin)) and self._recording.beside(f"{origin}.jsonl")
        return self._others[origin]

    def _reply(self, thread: "_Thread", record: _Record, message: Message) -> None:
        for block in thread.reply(record, message):
            prompt = block.input.get("prompt") if isinstance(block.input, dict) else None
            if block.name in _SUBAGENT_TOOLS and block.id and isinstance(prompt, str):
                self._prompts[prompt] = block.id

    def _user(self, thread: "_Thread", record: _Record, message: Message) -> None:
        blocks = blocks_of(message.content)
        results = [block for block in blocks if block.type == "tool_result"]
        made = record.tool_use_result
        for block in results:
            agent = made.agent_id if isinstance(made, _Made) else None
            thread.result(block, record.timestamp, self._subagent(block.tool_use_id, agent, record))
        if results:
            return
        text = text_of(blocks)
        if not thread.run.steps and thread.key is not None and text in self._prompts:
            self._made[self._prompts[text]] = thread.key
        thread.user(text, record)

    def _subagent(self, call: str | None, agent: str | None, record: _Record) -> SubagentRef | None:
        """Return the reference to the sub-agent behind a result: a thread of this file, or the file of its own."""
        for key in (agent, call, self._made.get(call or "")):
            if key is not None and key in self._threads:
                return SubagentRef(trajectory_id=key)
        if agent is None or not _FILE_PART.fullmatch(agent):
            return None
        for path in (f"{self._name}/subagents/agent-{agent}.jsonl", f"agent-{agent}.jsonl"):
            if self._recording.beside(path):
                return SubagentRef(trajectory_id=agent, trajectory_path=path, session_id=record.session)
        return None

    def finish(self, *, cut: bool) -> Iterator[Trajectory]:
        """Yield the session with its sub-agents; these alone if it has no message of its own."""
        found = [thread for thread in self._threads.values() if thread.finish(self._lost)]
        if not found:
            raise EmptyRecordingError("it is a session without messages")
        own = next((thread for thread in found if thread.key is None), None)
        for thread in found:
            if thread is own or own is None:
                continue
            thread.run.finish(ending=thread.ending)
            own.run.subagent(thread.run.trajectory)
        unreadable = self._unreadable - cut
        for thread in found if own is None else [own]:
            yield thread.run.finish(
                ending=self._ending or thread.ending, cut=cut, unreadable_lines=unreadable, totals=self._totals
            )
            unreadable = 0


class _Thread:
    """The messages of a session or of one sub-agent."""

    def __init__(self, record: _Record, key: str | None) -> None:
        self.key = key
        self.run = RunBuilder(
            NAME,
            agent=NAME,
            version=record.version or "",
            session=record.session or record.streamed_session,
            run=key,
            id=key,
        )
        self.ending: str | None = None
        self._replies: dict[str, TrajectoryStep] = {}
        self._calls: set[str] = set()
        self._waiting: list[_Waiting] = []
        self._command: _Record | None = None

    def user(self, text: str, record: _Record) -> None:
        """Add what stands as a message of the user, though the program wrote many of these."""
        if text.startswith(_NOTICES) or (record.origin and record.origin.kind not in (None, "human")):
            self._command = None
            self.run.system(text, at=record.timestamp)
            self.ending = "interrupted" if text.startswith(_INTERRUPTED) else None
        elif record.is_compact_summary:
            self.run.system(text, at=record.timestamp)
        elif text.startswith(_LOCAL):
            self._command = None
        elif record.is_meta:
            pass
        elif text.startswith(_COMMAND):
            self._command = record  # a turn only if a model replies
        else:
            self._command = None
            self.run.user(text, at=record.timestamp)
            self.ending = None

    def system(self, record: _Record) -> None:
        """Add an event of the program: a failed request, or a conversation made shorter."""
        if record.subtype == "api_error":
            text = record.error if isinstance(record.error, str) else record.content
            self.run.system(text if isinstance(text, str) else "", at=record.timestamp, error=True)
            self.ending = "api_error"
        elif record.subtype == "compact_boundary":
            self.run.system(record.content if isinstance(record.content, str) else "", at=record.timestamp)
        elif record.subtype == "local_command" and isinstance(record.content, str):
            self._command = None

    def reply(self, record: _Record, message: Message) -> Iterator[Block]:
        """Add a record of a reply, and yield its new calls. A reply has one record for each of its blocks."""
        if self._command is not None:
            command, self._command = self._command, None
            self.run.user(
                text_of(blocks_of(command.message.content if command.message else None)), at=command.timestamp
            )
        blocks = blocks_of(message.content)
        text = text_of(block for block in blocks if block.type == "text")
        if message.model == _SYNTHETIC or record.is_api_error_message:
            self.run.system(text, at=record.timestamp, error=record.is_api_error_message)
            self.ending = "api_error" if record.is_api_error_message else None
            return
        step = self._step(record, message)
        thinking = "\n".join(block.thinking for block in blocks if block.thinking)
        step.message = "\n".join(part for part in (step.message, text) if isinstance(part, str) and part)
        step.reasoning_content = "\n".join(part for part in (step.reasoning_content, thinking) if part) or None
        for block in blocks:
            if block.type == "tool_use" and block.name and block.id not in self._calls:
                call = self.run.call(block.id, block.name, block.input, step=step)
                self._calls.add(block.id or call.tool_call_id)
                yield block

    def _step(self, record: _Record, message: Message) -> TrajectoryStep:
        """Return the step of a reply, with the usage of its latest record."""
        key = message.id or record.request_id or record.uuid or ""
        step = self._replies.get(key) if key else None
        if step is None:
            step = self._replies[key] = self.run.reply(at=record.timestamp, model=message.model)
        metrics = message.usage.metrics(record.cost) if message.usage else None
        step.metrics = metrics or step.metrics
        self.ending = message.stop_reason
        if message.stop_reason:
            step.extra = StepExtra(turnwright=StepNotes(stop_reason=message.stop_reason))
        return step

    def result(self, block: Block, at: str | None, subagent: SubagentRef | None) -> None:
        """Add a result; one whose call is unknown waits for it to the end."""
        if block.tool_use_id in self._calls:
            self._settle(block, at, subagent)
        else:
            self._waiting.append(_Waiting(block, at))

    def _settle(self, block: Block, at: str | None, subagent: SubagentRef | None) -> None:
        text = result_text(block.content)
        self.run.result(block.tool_use_id or "", text, status=status_of(block, text), ended=at, subagent=subagent)

    def finish(self, lost: set[str]) -> bool:
        """Add what waited, mark what is `lost` in lines that cannot be read; False if there are no messages."""
        for block, at in self._waiting:
            self._settle(block, at, None)
        self.run.mark_unreadable(lost)
        models = (step.model_name for step in self.run.steps if step.model_name)
        self.run.trajectory.agent.model_name = next(models, None)
        return bool(self.run.steps)
