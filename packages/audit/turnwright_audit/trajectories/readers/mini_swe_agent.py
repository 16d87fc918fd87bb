"""Reads the `.traj.json` files of mini-swe-agent.

Version 1 has a text protocol: a reply with exactly one block of bash is a call, and the user message after it is the
result. Any other reply is a format error. Versions 1.1 and 2 have tool calls, of chat completions or of responses, or
the commands that were parsed.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from turnwright_audit.trajectories.atif import ResultStatus, StepMetrics, Trajectory
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.shapes import Shape
from turnwright_audit.trajectories.source import Recording, iso_time
from turnwright_audit.trajectories.values import Values

from .chat_messages import Chat, Message, read_chat_usage, text_of
from .response_items import Item, Items, read_response, readable_items

NAME: Final = "mini-swe-agent"
_SUBMITTED: Final = "Submitted"
_BLOCK: Final = re.compile(r"```bash\s*\n(.*?)\n```", re.DOTALL)
_NAMED_BLOCK: Final = re.compile(r"```mswea_bash_command\s*\n(.*?)\n```", re.DOTALL)
_TIMED_OUT: Final = re.compile(r"The last command <command>.*?</command> timed out and has been killed", re.DOTALL)
_RETURN_CODE: Final = re.compile(r"\s*<returncode>(-?\d+)</returncode>")


class Action(Struct):
    """A command that the agent has parsed from a reply."""

    command: str | None = None


class LoggedChoice(Struct):
    """A choice of the response behind a reply."""

    finish_reason: str | None = None
    message: Message | None = None


class LoggedResponse(Struct):
    """The response behind a reply."""

    model: str | None = None
    created: float | None = None
    usage: Any = None
    choices: list[LoggedChoice] | None = None
    output: list[Item] | None = None


class Extra(Struct):
    """Facts of a message that the model is not sent."""

    actions: list[Action] | None = None
    response: LoggedResponse | None = None
    cost: float | None = None
    timestamp: float | None = None
    returncode: int | None = None
    interrupt_type: str | None = None
    model_response: str | None = None
    exit_status: str | None = None


class AgentMessage(Message):
    """A message, with what the agent notes of it; or, with models of the responses API, a response or an item."""

    extra: Extra | None = None
    object: str = ""
    type: str = ""
    call_id: str | None = None
    output: str | list[Item] | None = None
    model: str | None = None
    created_at: float | None = None


class ModelStats(Struct):
    """Sums of a run."""

    instance_cost: float | None = None


class ActionConfig(Struct):
    """The part of a configuration that decides the protocol."""

    model_name: str | None = None
    action_regex: str | None = None


class Config(Struct):
    """The configuration of a run."""

    agent: ActionConfig | None = None
    model: ActionConfig | None = None


class Info(Struct):
    """The end and the sums of a run."""

    exit_status: str | None = None
    model_stats: ModelStats | None = None
    mini_version: str | None = None
    config: Config | None = None


class Document(Struct):
    """A whole file."""

    info: Info | None = None
    messages: list[AgentMessage] | None = None
    instance_id: str | None = None


_SHAPE: Final = Shape(Document)


def recognizes(recording: Recording) -> bool:
    """Whether the document names the format or a version of the agent, or has messages with the sums of a run."""
    first = recording.document
    if not isinstance(first, Mapping) or not isinstance(first.get("messages"), list | None):
        return False
    info = first.get("info")
    is_named = str(first.get("trajectory_format")).startswith("mini-swe-agent")
    if is_named or not isinstance(info, Mapping):
        return is_named
    return "mini_version" in info or ("messages" in first and {"exit_status", "model_stats"} <= info.keys())


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield the run of each document."""
    values = Values(recording, _SHAPE, {"messages"})
    return values.noted(map(_run, values), "no run in it could be read")


def _run(document: Document) -> Trajectory:
    info = document.info or Info()
    config = info.config or Config()
    run = RunBuilder(
        NAME,
        agent=NAME,
        version=info.mini_version or "",
        model=config.model.model_name if config.model else None,
        run=document.instance_id,
    )
    regexes = [part.action_regex or "" for part in (config.agent, config.model) if part]
    chat = _AgentChat(run, _NAMED_BLOCK if any("mswea_bash_command" in regex for regex in regexes) else _BLOCK)
    unreadable = sum(not chat.add_message(message) for message in document.messages or ())
    cost = info.model_stats.instance_cost if info.model_stats else None
    return run.finish(
        ending=info.exit_status or chat.exit_status,
        unreadable_lines=unreadable,
        totals=None if cost is None else StepMetrics(cost_usd=cost),
    )


class _AgentChat(Chat):
    """A run that grows by the messages of the agent."""

    def __init__(self, run: RunBuilder, block: re.Pattern[str]) -> None:
        super().__init__(run)
        self.exit_status: str | None = None
        self._block = block
        self._replied = False
        self._has_reply_before = False

    def add_message(self, message: AgentMessage) -> bool:
        """Add a message; False if it has no role."""
        extra = message.extra or Extra()
        before, self._has_reply_before = self._has_reply_before, message.role == "assistant"
        match message.role or message.object or message.type:
            case "assistant":
                self._add_reply(message, extra)
            case "response":
                self._add_response(message, extra)
            case "function_call_output":
                self.run.result(message.call_id, str(message.output or ""), status=_status(extra.returncode))
            case "user":
                self._add_user(message, extra, after_reply=before)
            case "tool":
                self.run.result(message.tool_call_id, text_of(message.content), status=_status(extra.returncode))
            case "exit":
                self._exit(text_of(message.content), extra)
            case _:
                return self.add(message)
        return True

    def _add_reply(self, message: AgentMessage, extra: Extra) -> None:
        self._replied = True
        response = extra.response or LoggedResponse()
        stop = response.choices[0].finish_reason if response.choices else None
        self.add(message, model=response.model, usage=response.usage, stop=stop)
        step = self.run.steps[-1]
        step.timestamp = iso_time(response.created or extra.timestamp)
        if step.metrics is not None and step.metrics.cost_usd is None:
            step.metrics.cost_usd = extra.cost
        if message.tool_calls:
            return
        commands = [action.command for action in extra.actions or () if action.command is not None]
        if extra.actions is None:
            blocks = [block.strip() for block in self._block.findall(text_of(message.content))]
            commands = blocks if len(blocks) == 1 else []
        for command in commands:
            self.run.call(None, "bash", {"command": command}, step=step)

    def _add_response(self, message: AgentMessage, extra: Extra) -> None:
        self._replied = self._has_reply_before = True
        items = message.output if isinstance(message.output, list) else []
        reply = read_response({"model": message.model, "usage": message.usage, "output": readable_items(items)})
        step = Items(self.run).add_reply(reply, at=iso_time(message.created_at or extra.timestamp))
        if step.metrics is not None and step.metrics.cost_usd is None:
            step.metrics.cost_usd = extra.cost

    def _add_user(self, message: AgentMessage, extra: Extra, *, after_reply: bool) -> None:
        text = text_of(message.content)
        if extra.interrupt_type == "FormatError":
            if not after_reply:  # the reply is only in the notes of its error
                self._add_refused(extra)
            self.run.system(text)
        elif extra.interrupt_type is not None or not self._replied:
            self.run.user(text)
        elif self.run.open_calls:
            code = _RETURN_CODE.match(text)
            status = _status(int(code[1]) if code else extra.returncode)
            self.run.result(None, text, status="error" if _TIMED_OUT.match(text) else status)
        else:
            self.run.system(text)

    def _add_refused(self, extra: Extra) -> None:
        response = extra.response or LoggedResponse()
        choice = response.choices[0] if response.choices else LoggedChoice()
        text = extra.model_response or text_of(choice.message.content if choice.message else None)
        metrics = read_chat_usage(response.usage)
        if response.output:
            text = text or "\n".join(text_of(item.content) for item in response.output if item.type == "message")
        self.run.reply(text, model=response.model, metrics=metrics, stop_reason=choice.finish_reason)
        self._replied = True

    def _exit(self, text: str, extra: Extra) -> None:
        self.exit_status = extra.exit_status
        if self.run.open_calls and extra.exit_status == _SUBMITTED:
            self.run.result(None, text, status="ok")
        elif text:
            self.run.system(text)


def _status(code: int | None) -> ResultStatus | None:
    return None if code is None else "ok" if code == 0 else "error"
