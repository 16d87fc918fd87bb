"""Adds messages in the form of OpenAI's chat completions to a run. Several formats have them."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnwright.model.http.json_text import read_text
from turnwright.model.http.text_buffer import MAX_CALLS
from turnwright.model.openai_chat.reply_builder import ReplyBuilder
from turnwright.model.protocol import ModelResponse
from turnwright_audit.trajectories.atif import StepMetrics, TrajectoryStep
from turnwright_audit.trajectories.builder import RunBuilder

from .model_replies import UNREADABLE_CALL, add_reply, metrics_of, read_reply

Content = str | list[Any] | dict[str, Any] | None
#: The roles of instructions.
SYSTEM_ROLES: Final = frozenset({"system", "developer"})
#: The types of the parts that the client reads in a reply. A part without a type is a text.
_PARTS: Final = ("text", "output_text", "refusal", "thinking", "reasoning")


class Message(Struct):
    """A message of any role. Benchmarks note who asked for a call, whether it failed, and what a reply cost."""

    id: str | None = None
    role: str = ""
    content: Content = None
    tool_calls: Any = None
    tool_call_id: str | None = None
    name: str | None = None
    function_call: Any = None
    refusal: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    usage: Any = None
    requestor: str | None = None
    error: Any = None
    is_error: bool | None = None
    status: str | None = None
    cost: float | None = None


class Chat:
    """A run that grows by messages."""

    def __init__(self, run: RunBuilder) -> None:
        self.run = run
        self._function: str | None = None

    def add(self, message: Message, *, model: str | None = None, usage: object = None, stop: object = None) -> bool:
        """Add a message; False if it has no role. What is given beside it is known of a reply."""
        text = text_of(message.content)
        match message.role:
            case "":
                return False
            case "user" if text or not message.tool_calls:  # a simulated user may have tools of its own
                self.run.user(text)
            case "assistant":
                self.add_reply(
                    read_chat_reply(message, {"usage": usage or message.usage, "model": model}, stop), message
                )
            case "user":
                pass
            case "tool" if message.requestor != "user":
                has_failed = bool(message.error) or message.is_error or message.status == "error"
                self.run.result(message.tool_call_id or message.id, text, status="error" if has_failed else None)
            case "tool":
                pass
            case "function":
                self.run.result(self._function, text)
            case _:
                self.run.system(text)
        return True

    def add_reply(self, reply: ModelResponse, message: Message | None = None) -> TrajectoryStep:
        """Add a reply. `message` has what a recording notes beside it."""
        message = message or Message()
        step = add_reply(self.run, reply)
        if message.cost is not None:
            step.metrics = step.metrics or StepMetrics()
            step.metrics.cost_usd = message.cost
        if message.function_call is not None and step.tool_calls:
            self._function = step.tool_calls[0].tool_call_id
        return step


def read_chat_reply(message: Message, response: Mapping[str, Any] | None = None, stop: object = None) -> ModelResponse:
    """Decode a message of the model as a reply. `response` has the fields of the response around it."""
    fields = {
        "content": readable_parts(message.content),
        "refusal": message.refusal,
        "reasoning_content": message.reasoning_content,
        "reasoning": message.reasoning,
        "reasoning_details": message.reasoning_details,
        "function_call": message.function_call,
    }
    calls = list(_calls_of(message))
    named_calls = [call for call in calls if isinstance(name := call["function"].get("name"), str) and name]
    named_calls = named_calls[:MAX_CALLS]
    read_indexes = {call["index"] for call in named_calls}
    choice = {"message": {**fields, "tool_calls": named_calls}, "finish_reason": stop}
    reply = read_reply(ReplyBuilder, {**(response or {}), "choices": [choice]})
    unreadable_calls = [
        replace(UNREADABLE_CALL, id=read_text(call.get("id"))) for call in calls if call["index"] not in read_indexes
    ]
    foreign_calls = [UNREADABLE_CALL] * _count_foreign_calls(message)
    return replace(reply, calls=(*reply.calls, *unreadable_calls, *foreign_calls))


def read_chat_usage(usage: object) -> StepMetrics | None:
    """Decode the usage of a response, in the words of chat completions or of responses."""
    return metrics_of(read_reply(ReplyBuilder, {"usage": usage}))


def _calls_of(message: Message) -> Iterator[dict[str, Any]]:
    """Yield the calls of a whole message as those of functions, each with an index of its own.

    Some programs write the function's fields into the call itself.
    """
    calls = message.tool_calls
    for index, call in enumerate(calls if isinstance(calls, list) else [calls]):
        if isinstance(call, Mapping):
            function, custom = call.get("function"), call.get("custom")
            if isinstance(custom, Mapping) and custom.get("name"):
                function = {"name": custom["name"], "arguments": {"input": custom.get("input")}}
            yield {**call, "index": index, "function": function if isinstance(function, Mapping) else call}


def _count_foreign_calls(message: Message) -> int:
    """Return the number of calls that are not objects, but for example a text."""
    calls = message.tool_calls if isinstance(message.tool_calls, list) else [message.tool_calls]
    return sum(bool(call) and not isinstance(call, Mapping) for call in (*calls, message.function_call))


def readable_parts(content: Content) -> list[object]:
    """Return the parts of a reply's content as those that the client reads."""
    return list(map(_readable_part, _parts_of(content)))


def _readable_part(part: str | Mapping[str, Any]) -> object:
    if isinstance(part, str) or part.get("type", "text") in _PARTS:
        return part
    return {"type": "text", "text": _text_of(part)}


def text_of(content: Content) -> str:
    """Return the text of a content. Pictures and recordings are named by the hashes of their data."""
    return "\n".join(map(_text_of, _parts_of(content)))


def _parts_of(content: Content) -> list[str | Mapping[str, Any]]:
    parts = content if isinstance(content, list) else [content]
    return [part for part in parts if isinstance(part, str | Mapping)]


def _text_of(part: str | Mapping[str, Any]) -> str:
    if isinstance(part, str):
        return part
    for name in ("text", "refusal"):
        text = part.get(name)
        if isinstance(text, str):
            return text
    data = part.get("image_url") or part.get("input_audio") or part.get("file")
    return named_by_hash(str(part.get("type") or "part"), data)


def named_by_hash(kind: str, data: object) -> str:
    """Return a name for data that is not text: equal data have equal names."""
    digest = hashlib.sha256(msgspec.json.encode(data)).hexdigest()
    return f"[{kind} {digest[:12]}]"
