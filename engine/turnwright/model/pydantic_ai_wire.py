"""Requests in pydantic-ai's terms. No I/O."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    MultiModalContent,
    SystemPromptPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from turnwright.message import FilePart, Message, ToolResultPart
from turnwright_states import CallStatus

from .protocol import ToolSpec
from .pydantic_ai_details import response_of

Outcome = Literal["success", "failed", "denied", "interrupted"]

# Only a failure is marked as one for the provider. A refusal is no fault of the tool's, and the text says what it is.
_OUTCOMES: Final[Mapping[CallStatus, Outcome]] = {
    CallStatus.OK: "success",
    CallStatus.ERROR: "failed",
    CallStatus.DENIED: "denied",
    CallStatus.REFUSED: "denied",
    CallStatus.ABORTED: "interrupted",
    CallStatus.UNKNOWN: "interrupted",
}
_URLS: Final[Mapping[str, type[ImageUrl | AudioUrl | VideoUrl]]] = {
    "image": ImageUrl,
    "audio": AudioUrl,
    "video": VideoUrl,
}


def messages_of(messages: Sequence[Message]) -> list[ModelMessage]:
    """Translate a conversation. What stands between two replies is one request, in its order.

    An assistant's message that holds nothing but the engine's bookkeeping is left out.
    """
    out: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    for message in messages:
        if message.role != "assistant":
            parts += _request_parts(message)
            continue
        response = response_of(message)
        if response is None:
            continue
        if parts:
            out.append(ModelRequest(parts=parts))
            parts = []
        out.append(response)
    if parts:
        out.append(ModelRequest(parts=parts))
    return out


def parameters_of(tools: Sequence[ToolSpec]) -> ModelRequestParameters:
    """Define the tools. Text is always allowed beside them."""
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=_plain(tool.parameters))
            for tool in tools
        ]
    )


def _plain(schema: Mapping[str, object]) -> dict[str, object]:
    return dict(schema)


def _request_parts(message: Message) -> Iterator[ModelRequestPart]:
    if message.role == "system":
        yield SystemPromptPart(message.text)
    elif message.role == "user":
        yield UserPromptPart(_said(message))
    else:
        for part in message.parts:
            if isinstance(part, ToolResultPart):
                yield _result(part)


def _said(message: Message) -> str | list[UserContent]:
    if not message.files:
        return message.text
    return [*([message.text] if message.text else ()), *map(_file, message.files)]


def _result(part: ToolResultPart) -> ToolReturnPart:
    content: str | list[UserContent] = part.text
    if part.files:
        content = [*([part.text] if part.text else ()), *map(_file, part.files)]
    return ToolReturnPart(tool_name=part.name, content=content, tool_call_id=part.call, outcome=_OUTCOMES[part.status])


def _file(part: FilePart) -> MultiModalContent:
    name = part.name or None
    if part.data:
        return BinaryContent(data=base64.b64decode(part.data), media_type=part.media_type, identifier=name)
    # Of `image/*` the address may say more.
    media_type = None if part.media_type.endswith("*") else part.media_type
    kind: type[ImageUrl | AudioUrl | VideoUrl | DocumentUrl] = DocumentUrl
    kind = _URLS.get(part.media_type.partition("/")[0], kind)
    return kind(url=part.url, media_type=media_type, identifier=name)
