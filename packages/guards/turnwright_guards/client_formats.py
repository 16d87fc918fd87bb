"""The formats of three client libraries: a reply is read, and messages are written as their next request has them.

A reply is the client's object or the same as a dictionary.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from turnwright.model.anthropic.reply_builder import MessageBuilder
from turnwright.model.http.reply_builder import Builder
from turnwright.model.openai_chat.reply_builder import ReplyBuilder
from turnwright.model.openai_responses.reply_builder import ResponseBuilder
from turnwright.model.protocol import ModelResponse, ResponseToolCall
from turnwright_states import Finish, ToolCall, Usage

from .turn import maybe_cut_off, tool_call

#: A JSON object of a request or a reply, whose fields differ by provider.
Json = dict[str, Any]
ClientApi = Literal["chat", "responses", "anthropic"]
_PAUSED: Final = "pause_turn"
_CALL_ITEMS: Final = frozenset({"function_call", "custom_tool_call"})


class ClientReply(Struct, frozen=True):
    """One reply: its text, its calls, and the messages that the next request repeats.

    `text_only` are those messages without calls, for a reply whose calls never run. `paused`: the provider asks for
    another request, without a result.
    """

    text: str
    calls: tuple[ToolCall, ...]
    messages: list[Json]
    text_only: list[Json]
    finish: Finish = Finish.STOP
    usage: Usage | None = None
    paused: bool = False


class ClientFormat(Protocol):
    """The format of one client: its messages and its replies."""

    #: The argument of the client's method that has the messages.
    messages: str
    #: The `tool_choice` that forbids calls.
    no_tools: object

    def reply(self, reply: object) -> ClientReply:
        """Read a reply."""
        ...

    def add_result(self, messages: list[Json], provider_id: str, text: str, *, error: bool) -> None:
        """Add the result of a call to the messages."""
        ...


class _Chat:
    """Chat completions, of OpenAI and the servers that speak its format."""

    messages = "messages"
    no_tools: object = "none"

    def reply(self, reply: object) -> ClientReply:
        data = _plain(reply)
        if "choices" not in data and ("role" in data or "message" in data):
            raise TypeError("a reply is the client's whole object, with `choices`: pass it, not its message")
        choice = (data.get("choices") or [{}])[0]
        message = _without_nulls(choice.get("message") or {})
        entries: list[Json] = message.pop("tool_calls", [])
        numbered_items = [
            {"index": number, "id": str(number), "function": _function_of(entry)}
            for number, entry in enumerate(entries)
        ]
        choice = {**choice, "message": {**message, "tool_calls": numbered_items, "function_call": None}}
        response = _decode(ReplyBuilder(), {**data, "choices": [choice]})
        read_entries = [entries[int(call.id)] for call in response.calls]
        return ClientReply(
            response.text,
            _tool_calls(response, [str(entry.get("id") or "") for entry in read_entries]),
            [{**message, "tool_calls": read_entries} if read_entries else message],
            [message],
            response.finish,
            response.usage,
        )

    def add_result(self, messages: list[Json], provider_id: str, text: str, *, error: bool) -> None:  # noqa: ARG002
        messages.append({"role": "tool", "tool_call_id": provider_id, "content": text})


class _Responses:
    """OpenAI's Responses API."""

    messages = "input"
    no_tools: object = "none"

    def reply(self, reply: object) -> ClientReply:
        data = _plain(reply)
        output: list[Json] = data.get("output") or []
        numbered_items = [
            {**_function_item(item), "call_id": str(number)} if item.get("type") in _CALL_ITEMS else item
            for number, item in enumerate(output)
        ]
        response = _decode(ResponseBuilder(), {**data, "output": numbered_items})
        # A reasoning item is refused without the call that follows it.
        bare = [item for item in output if item.get("type") == "message"]
        return ClientReply(
            response.text,
            _tool_calls(response, [str(output[int(call.id)].get("call_id") or "") for call in response.calls]),
            [_without_nulls(item) for item in output],
            [_without_nulls(item) for item in (bare if response.calls else output)],
            response.finish,
            response.usage,
        )

    def add_result(self, messages: list[Json], provider_id: str, text: str, *, error: bool) -> None:  # noqa: ARG002
        outputs = (message for message in reversed(messages) if message.get("call_id") == provider_id)
        custom = next(outputs, {}).get("type") == "custom_tool_call"
        kind = "custom_tool_call_output" if custom else "function_call_output"
        messages.append({"type": kind, "call_id": provider_id, "output": text})


class _Anthropic:
    """Anthropic's Messages API."""

    messages = "messages"
    no_tools: object = {"type": "none"}

    def reply(self, reply: object) -> ClientReply:
        data = _plain(reply)
        blocks = [_without_nulls(block) for block in data.get("content") or []]
        numbered_items = [
            {**block, "id": str(number)} if block.get("type") == "tool_use" else block
            for number, block in enumerate(blocks)
        ]
        response = _decode(MessageBuilder(), {**data, "type": "message", "content": numbered_items})
        is_paused = response.finish_reason == _PAUSED
        return ClientReply(
            response.text,
            _tool_calls(response, [str(blocks[int(call.id)].get("id") or "") for call in response.calls]),
            [{"role": "assistant", "content": blocks}],
            [{"role": "assistant", "content": [block for block in blocks if block.get("type") != "tool_use"]}],
            Finish.STOP if is_paused else response.finish,
            response.usage,
            paused=is_paused,
        )

    def add_result(self, messages: list[Json], provider_id: str, text: str, *, error: bool) -> None:
        """All results of a reply are in one message, right after it."""
        block = {"type": "tool_result", "tool_use_id": provider_id, "content": text, "is_error": error}
        if messages and messages[-1]["role"] == "user":
            messages[-1]["content"].append(block)
        else:
            messages.append({"role": "user", "content": [block]})


FORMATS: Final[Mapping[ClientApi, ClientFormat]] = {
    "chat": _Chat(),
    "responses": _Responses(),
    "anthropic": _Anthropic(),
}


def _plain(reply: object) -> Json:
    """Return a reply as JSON. The clients' objects are pydantic models."""
    dump = getattr(reply, "model_dump", None)
    data = reply if dump is None else dump(mode="json")
    if not isinstance(data, dict):
        raise TypeError(
            f"a reply is the client's object, with model_dump(), or a dictionary, not {type(reply).__name__}"
        )
    return data


def _without_nulls(item: Json) -> Json:
    """Return an item without the fields that the client's class added."""
    return {name: value for name, value in item.items() if value is not None}


def last_user_text(messages: Sequence[Json]) -> str:
    """Return the text of the last message of the user that has one; empty without one."""
    texts = (text_of(message.get("content")) for message in reversed(messages) if message.get("role") == "user")
    return next(filter(None, texts), "")


def text_of(content: object) -> str:
    """Return the text of a message's content, which is a text or a list of parts."""
    if not isinstance(content, Sequence) or isinstance(content, str):
        return str(content or "")
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in content if isinstance(part, dict))


def _decode(builder: Builder, data: Json) -> ModelResponse:
    """Decode a whole reply, whose calls have their numbers as ids: a builder cuts long ids, and drops empty calls."""
    builder.add(data)
    return builder.reply()


def _tool_calls(reply: ModelResponse, provider_ids: Sequence[str]) -> tuple[ToolCall, ...]:
    """Return the calls of a reply as the machine takes them, with the ids that the provider gave them."""
    pairs = zip(reply.calls, provider_ids, strict=True)
    return tuple(_tool_call(call, provider_id, reply) for call, provider_id in pairs)


def _tool_call(call: ResponseToolCall, provider_id: str, reply: ModelResponse) -> ToolCall:
    if call.arguments is None and reply.finish is Finish.LENGTH:
        return maybe_cut_off(tool_call(call.name, call.raw, provider_id), reply.usage)
    raw = call.raw if call.arguments is None else ""
    return ToolCall(name=call.name, arguments=call.arguments, raw=raw, provider_id=provider_id)


def _function_of(entry: Json) -> Json:
    """Return the function of a call in a chat completion. The call of a custom tool has a text instead of arguments."""
    custom = entry.get("custom")
    if custom:
        return {"name": custom.get("name"), "arguments": {"input": custom.get("input")}}
    return entry.get("function") or {}


def _function_item(item: Json) -> Json:
    """Return the item of a call as that of a function. The call of a custom tool has a text instead of arguments."""
    arguments = {"input": item["input"]} if "input" in item else item.get("arguments")
    return {**item, "type": "function_call", "arguments": arguments}
