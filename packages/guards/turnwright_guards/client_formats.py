"""The formats of three client libraries: a reply is read, and messages are written as their next request has them.

A reply is the client's object or the same as a dictionary.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from turnwright.model.http.json_text import read_count
from turnwright.model.http.reply_builder import finish_of
from turnwright_states import Finish, ToolCall, Usage

from .turn import maybe_cut_off, tool_call

#: A JSON object of a request or a reply, whose fields differ by provider.
Json = dict[str, Any]
ClientApi = Literal["chat", "responses", "anthropic"]
_PAUSED: Final = "pause_turn"


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
        choice = (data.get("choices") or [{}])[0]
        message = choice.get("message") or {}
        calls = []
        for call in message.get("tool_calls") or ():
            function = call.get("function") or call.get("custom") or {}
            arguments = {"input": function["input"]} if "input" in function else function.get("arguments")
            calls.append(tool_call(str(function.get("name")), arguments, str(call.get("id") or "")))
        text = text_of(message.get("content")) or str(message.get("refusal") or "")
        usage = data.get("usage") or {}
        own = {name: value for name, value in message.items() if value is not None}
        bare = {name: value for name, value in own.items() if name != "tool_calls"}
        return ClientReply(
            text,
            tuple(calls),
            [own],
            [bare],
            finish_of(str(choice.get("finish_reason"))),
            _usage(
                usage,
                usage.get("prompt_tokens"),
                usage.get("completion_tokens"),
                usage.get("prompt_tokens_details"),
                usage.get("completion_tokens_details"),
            ),
        )

    def add_result(self, messages: list[Json], provider_id: str, text: str, *, error: bool) -> None:  # noqa: ARG002
        messages.append({"role": "tool", "tool_call_id": provider_id, "content": text})


class _Responses:
    """OpenAI's Responses API."""

    messages = "input"
    no_tools: object = "none"

    def reply(self, reply: object) -> ClientReply:
        data = _plain(reply)
        output = data.get("output") or []
        call_items = [item for item in output if item.get("type") in {"function_call", "custom_tool_call"}]
        calls = [
            tool_call(
                str(item.get("name")),
                {"input": item["input"]} if "input" in item else item.get("arguments"),
                str(item.get("call_id") or ""),
            )
            for item in call_items
        ]
        text = "".join(text_of(item.get("content")) for item in output if item.get("type") == "message")
        usage = data.get("usage") or {}
        why = (data.get("incomplete_details") or {}).get("reason")
        # A reasoning item is refused without the call that follows it.
        bare = [item for item in output if item.get("type") == "message"]
        return ClientReply(
            text,
            tuple(calls),
            [_without_nulls(item) for item in output],
            [_without_nulls(item) for item in (bare if call_items else output)],
            finish_of(str(why or data.get("status"))),
            _usage(
                usage,
                usage.get("input_tokens"),
                usage.get("output_tokens"),
                usage.get("input_tokens_details"),
                usage.get("output_tokens_details"),
            ),
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
        blocks = data.get("content") or []
        reason = str(data.get("stop_reason"))
        finish = Finish.STOP if reason == _PAUSED else finish_of(reason)
        calls = [
            tool_call(str(block.get("name")), block.get("input"), str(block.get("id") or ""))
            for block in blocks
            if block.get("type") == "tool_use"
        ]
        counts = data.get("usage") or {}
        cached = counts.get("cache_read_input_tokens") or 0
        read = (counts.get("input_tokens") or 0) + cached + (counts.get("cache_creation_input_tokens") or 0)
        usage = _usage(counts, read, counts.get("output_tokens"), {"cached_tokens": cached}, None)
        if finish is Finish.LENGTH and blocks[-1:] and blocks[-1].get("type") == "tool_use":
            calls[-1] = maybe_cut_off(calls[-1], usage)
        cleaned_blocks = [_without_nulls(block) for block in blocks]
        return ClientReply(
            text_of(blocks),
            tuple(calls),
            [{"role": "assistant", "content": cleaned_blocks}],
            [{"role": "assistant", "content": [block for block in cleaned_blocks if block.get("type") != "tool_use"]}],
            finish,
            usage,
            paused=reason == _PAUSED,
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


def text_of(content: object) -> str:
    """Return the text of a message's content, which is a text or a list of parts."""
    if not isinstance(content, Sequence) or isinstance(content, str):
        return str(content or "")
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in content if isinstance(part, dict))


def _usage(
    counts: Json, input_tokens: object, output_tokens: object, input_details: object, output_details: object
) -> Usage | None:
    def detail(details: object, name: str) -> int:
        return read_count(details.get(name)) or 0 if isinstance(details, dict) else 0

    if not counts:
        return None
    return Usage(
        input_tokens=read_count(input_tokens) or 0,
        output_tokens=read_count(output_tokens) or 0,
        cached_tokens=detail(input_details, "cached_tokens"),
        reasoning_tokens=detail(output_details, "reasoning_tokens"),
    )
