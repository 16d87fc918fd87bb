"""A request as chat completions wants it on the wire. No I/O."""

import json
import weakref
from collections.abc import Mapping
from typing import Final, Literal

from pydantic import JsonValue

from turnwright.errors import ConfigError
from turnwright.message import Message, ToolResultPart

from .pieces import mend
from .protocol import Request, ToolChoice

MaxTokensField = Literal["max_tokens", "max_completion_tokens"]

#: What a request is made of here, so that nobody else may set it.
RESERVED: Final = frozenset({"model", "messages", "tools", "stream"})


class Encoder:
    """Makes the body of a request, and keeps each message's encoded form for as long as the message lives.

    A turn sends its messages again with every step. Encoding them once keeps the steps equally cheap (DESIGN 10).
    `max_tokens_field` is the name under which the provider takes `Request.max_tokens`. `extra_body` is added to every
    request and goes before what stands here; a None in it removes a field. `tool_choice_first` takes the place of
    `auto` in the first request of a turn.

    Raises `ConfigError` for an `extra_body` that is not JSON or names a field in `RESERVED`.
    """

    def __init__(
        self,
        model: str,
        *,
        max_tokens_field: MaxTokensField = "max_tokens",
        extra_body: Mapping[str, JsonValue] | None = None,
        tool_choice_first: ToolChoice | None = None,
    ) -> None:
        wrong = RESERVED & set(extra_body or ())
        if wrong:
            raise ConfigError(f"extra_body may not hold {', '.join(sorted(wrong))}: the request itself says that")
        try:
            json.dumps(dict(extra_body or {}), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"extra_body cannot be written as JSON: {error}") from error
        self._model = model
        self._max_tokens_field = max_tokens_field
        self._extra_body = dict(extra_body or {})
        self._tool_choice_first = tool_choice_first
        self._encoded: dict[int, tuple[weakref.ref[Message], bytes]] = {}

    def encode(self, request: Request) -> bytes:
        """Make the JSON body that asks for a streamed reply to `request`.

        What a provider does not know (steps, sentinels, reasoning) is left out, and so is an assistant's message that
        holds nothing else.
        """
        body: dict[str, JsonValue] = {"model": self._model, "stream": True, "stream_options": {"include_usage": True}}
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": dict(tool.parameters),
                    },
                }
                for tool in request.tools
            ]
            choice = request.tool_choice
            if request.first and choice == "auto":
                choice = self._tool_choice_first or choice
            # `auto` is what every provider does unasked, and some refuse to be told.
            if choice != "auto":
                body["tool_choice"] = choice
        if request.max_tokens is not None:
            body[self._max_tokens_field] = request.max_tokens
        body.update(self._extra_body)
        rest = _dump({name: value for name, value in body.items() if value is not None})
        messages = b",".join(filter(None, map(self._message, request.messages)))
        return b'{"messages":[' + messages + b"]," + rest[1:]

    @property
    def remembered(self) -> int:
        """How many messages are kept encoded."""
        return len(self._encoded)

    def _message(self, message: Message) -> bytes:
        known = self._encoded.get(id(message))
        if known is not None and known[0]() is message:
            return known[1]
        encoded = b",".join(_dump(wire) for wire in to_wire(message))
        # By identity, since what holds a mapping has no hash; so the entry must go when the message goes.
        kept, key = self._encoded, id(message)
        kept[key] = (weakref.ref(message, lambda _: kept.pop(key, None)), encoded)
        return encoded


def to_wire(message: Message) -> list[dict[str, JsonValue]]:
    """Translate one message: one on the wire, one for each result of a tool, or none if nothing in it is sent.

    The content of an assistant's message without text is null: some servers want the key, some templates print an
    empty text.
    """
    if message.role == "tool":
        results = [part for part in message.parts if isinstance(part, ToolResultPart)]
        return [{"role": "tool", "tool_call_id": part.call, "content": part.text} for part in results]
    if message.role != "assistant":
        return [{"role": message.role, "content": message.text}]
    if not message.text and not message.calls:
        return []
    wire: dict[str, JsonValue] = {"role": "assistant", "content": message.text or None}
    if message.calls:
        wire["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _dump(dict(call.arguments)).decode()},
            }
            for call in message.calls
        ]
    return [wire]


def _dump(value: Mapping[str, JsonValue]) -> bytes:
    return mend(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()
