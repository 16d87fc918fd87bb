"""The texts of people and models, in the JSON of the conventions, without the content of files."""

import json
from collections.abc import Sequence

from pydantic import JsonValue

from turnwright.message import FilePart, Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright_states import Finish

_FINISH = {Finish.STOP: "stop", Finish.LENGTH: "length", Finish.CONTENT_FILTER: "content_filter"}

Part = dict[str, JsonValue]


def as_json(value: object) -> str:
    """Return a value as JSON text, because spans have no objects. A value outside JSON becomes its type's name."""
    # A model may write half a surrogate pair, which cannot be encoded: `?` replaces it.
    return json.dumps(value, ensure_ascii=False, default=repr).encode(errors="replace").decode()


def finish_of(reply: ModelResponse) -> str:
    """Return the finish reason in the words of the conventions."""
    return "tool_call" if reply.calls and reply.finish is Finish.STOP else _FINISH[reply.finish]


def instructions_of(request: ModelRequest) -> list[Part]:
    """The system messages of a request, as parts."""
    return [part for message in request.messages if message.role == "system" for part in _parts(message)]


def input_of(request: ModelRequest) -> list[JsonValue]:
    """The other messages of a request."""
    return [
        {"role": message.role, "parts": [*_parts(message)]} for message in request.messages if message.role != "system"
    ]


def output_of(reply: ModelResponse) -> list[JsonValue]:
    """A reply, as one message."""
    parts: list[JsonValue] = []
    if reply.reasoning:
        parts.append({"type": "reasoning", "content": reply.reasoning})
    if reply.text:
        parts.append({"type": "text", "content": reply.text})
    for call in reply.calls:
        arguments: JsonValue = call.raw if call.arguments is None else dict(call.arguments)
        parts.append({"type": "tool_call", "id": call.id or None, "name": call.name, "arguments": arguments})
    return [{"role": "assistant", "parts": parts, "finish_reason": finish_of(reply)}]


def definitions_of(request: ModelRequest) -> list[Part]:
    """The tools that a request offers."""
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
        }
        for tool in request.tools
    ]


def _parts(message: Message) -> list[Part]:
    parts: list[Part] = []
    for part in message.parts:
        match part:
            case TextPart():
                parts.append({"type": "text", "content": part.text})
            case ReasoningPart():
                parts.append({"type": "reasoning", "content": part.text})
            case ToolCallPart():
                call: Part = {"type": "tool_call", "id": part.id, "name": part.name, "arguments": dict(part.arguments)}
                parts.append(call)
            case ToolResultPart():
                parts.append({"type": "tool_call_response", "id": part.call, "response": part.text})
                parts += _files(part.files)
            case FilePart():
                parts += _files((part,))
            case _:
                pass  # the engine's bookkeeping, which models do not receive
    return parts


def _files(files: Sequence[FilePart]) -> list[Part]:
    """Describe files by their kind, without addresses, which may contain a key."""
    return [{"type": "turnwright.file", "mime_type": file.media_type, "name": file.name} for file in files]
