"""Requests and settings in pydantic-ai's format. No I/O."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

import pydantic_ai.messages as pai
from pydantic import JsonValue
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from turnwright.message import FilePart, Message, OutputToolSpec, ToolResultPart, ToolSpec
from turnwright.model.capabilities import Capabilities
from turnwright.model.http.encoding import EncodedMessage
from turnwright.model.model_settings import ModelSettings
from turnwright.model.protocol import ModelRequest
from turnwright.model.settings_mapping import MappedSettings, extra_of, select_supported
from turnwright_states import CallStatus

from .provider_details import response_of

Outcome = Literal["success", "failed", "denied", "interrupted", "retried"]

# Only failures are marked for the provider. A rejected call is not a failure of the tool, and its text explains it.
_OUTCOMES: Final[Mapping[CallStatus, Outcome]] = {
    CallStatus.OK: "success",
    CallStatus.ERROR: "failed",
    CallStatus.REJECTED: "denied",
    CallStatus.REFUSED: "denied",
    CallStatus.ABORTED: "interrupted",
    CallStatus.UNKNOWN: "interrupted",
}
_URLS: Final[Mapping[str, type[pai.ImageUrl | pai.AudioUrl | pai.VideoUrl]]] = {
    "image": pai.ImageUrl,
    "audio": pai.AudioUrl,
    "video": pai.VideoUrl,
}


def messages_of(messages: Sequence[Message]) -> list[pai.ModelMessage]:
    """Translate a conversation. The messages between two replies become one request, in their order.

    A system message at the beginning is the instructions of each request, as an agent of pydantic-ai has them. An
    assistant's message with only the engine's bookkeeping is left out. The translation of a message is cached, since
    pydantic-ai does not change a history.
    """
    model_messages: list[pai.ModelMessage] = []
    parts: list[pai.ModelRequestPart] = []
    instructions = instructions_of(messages)
    for message in messages if instructions is None else messages[1:]:
        if message.role != "assistant":
            parts += _REQUESTS.of(message)
            continue
        response = _RESPONSES.of(message)
        if response is None:
            continue
        if parts:
            model_messages.append(pai.ModelRequest(parts=parts, instructions=instructions))
            parts = []
        model_messages.append(response)
    return [*model_messages, pai.ModelRequest(parts=parts, instructions=instructions)] if parts else model_messages


def instructions_of(messages: Sequence[Message]) -> str | None:
    """Return the instructions of a conversation; None if it has none, or nothing that could have them."""
    text = messages[0].text if messages and messages[0].role == "system" else ""
    return text if text and any(message.role != "assistant" for message in messages[1:]) else None


def parameters_of(request: ModelRequest) -> ModelRequestParameters:
    """Define the tools, and the form of the answer.

    The tool of a typed answer is an output tool, unless no tool may be called. It is required unless the request
    leaves the choice to the model.
    """
    instructions = instructions_of(request.messages)
    outputs = [tool for tool in request.tools if isinstance(tool, OutputToolSpec) and request.tool_choice != "none"]
    return ModelRequestParameters(
        function_tools=[_tool(tool) for tool in request.tools if tool not in outputs],
        output_tools=[replace(_tool(tool), kind="output", outer_typed_dict_key=tool.field or None) for tool in outputs],
        output_mode="tool" if outputs else "text",
        allow_text_output=not outputs or request.tool_choice == "auto",
        instruction_parts=None if instructions is None else [pai.InstructionPart(content=instructions)],
    )


def has_output_tool(request: ModelRequest) -> bool:
    """Whether a tool of the request takes a typed answer."""
    return any(isinstance(tool, OutputToolSpec) for tool in request.tools)


def _tool(tool: ToolSpec) -> ToolDefinition:
    return ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters))


def _request_parts(message: Message) -> Iterator[pai.ModelRequestPart]:
    if message.role == "system":
        yield pai.SystemPromptPart(message.text)
    elif message.role == "user":
        yield pai.UserPromptPart(_write_content(message))
    else:
        for part in message.parts:
            if isinstance(part, ToolResultPart):
                yield _result(part)


def _write_content(message: Message) -> str | list[pai.UserContent]:
    if not message.files:
        return message.text
    return [*([message.text] if message.text else ()), *map(_file, message.files)]


def _result(part: ToolResultPart) -> pai.ToolReturnPart:
    content: str | list[pai.UserContent] = part.text
    if part.files:
        content = [*([part.text] if part.text else ()), *map(_file, part.files)]
    outcome = "retried" if part.retry else _OUTCOMES[part.status]
    return pai.ToolReturnPart(tool_name=part.name, content=content, tool_call_id=part.call, outcome=outcome)


def _file(part: FilePart) -> pai.MultiModalContent:
    name = part.name or None
    if part.data:
        return pai.BinaryContent(data=base64.b64decode(part.data), media_type=part.media_type, identifier=name)
    # For `image/*` the address may be more precise.
    media_type = None if part.media_type.endswith("*") else part.media_type
    kind: type[pai.ImageUrl | pai.AudioUrl | pai.VideoUrl | pai.DocumentUrl] = pai.DocumentUrl
    kind = _URLS.get(part.media_type.partition("/")[0], kind)
    return kind(url=part.url, media_type=media_type, identifier=name)


_REQUESTS: Final[EncodedMessage[Message, tuple[pai.ModelRequestPart, ...]]] = EncodedMessage(
    lambda message: tuple(_request_parts(message))
)
_RESPONSES: Final[EncodedMessage[Message, pai.ModelResponse | None]] = EncodedMessage(response_of)


#: The settings that have the same names there.
_SAME: Final = ("temperature", "top_p", "seed", "parallel_tool_calls")
_TIERS: Final = ("auto", "default", "flex", "priority")
_CACHE: Final[dict[str, JsonValue]] = {"auto": True, "5m": "5m", "1h": "1h", "off": False}


def map_pydantic_settings(settings: ModelSettings, model: Model, capabilities: Capabilities) -> MappedSettings:
    """Map settings to those of pydantic-ai, as far as every model behind this one sends them."""
    supported_settings, problems = select_supported(settings, capabilities)
    body: dict[str, JsonValue] = {
        name: getattr(supported_settings, name) for name in _SAME if name in supported_settings.given
    }
    if supported_settings.stop_sequences:
        body["stop_sequences"] = [*supported_settings.stop_sequences]
    if supported_settings.extra_body:
        body["extra_body"] = {
            name: value for name, value in extra_of(supported_settings, ()).items() if value is not None
        }
    if supported_settings.service_tier in _TIERS:
        body["service_tier"] = supported_settings.service_tier
    elif supported_settings.service_tier is not None:
        problems["service_tier"] = f"{supported_settings.service_tier!r}: pydantic-ai knows {', '.join(_TIERS)}"
    models = [*models_behind(model)]
    for name in sorted(body.keys() & {name for inner_model in models for name in inner_model.unsupported_settings}):
        del body[name]
        problems[name] = "pydantic-ai's adapter does not send it"
    body.update(_thinking(supported_settings, models, problems))
    if supported_settings.cache is not None and all(
        _takes(inner_model, supported_settings.cache) for inner_model in models
    ):
        body["cache"] = _CACHE[supported_settings.cache]
    elif supported_settings.cache is not None:
        problems["cache"] = f"{supported_settings.cache!r} cannot be requested from this provider"
    return MappedSettings(body, problems)


def models_behind(model: Model) -> Iterator[Model]:
    """Yield the models that do the work: the model itself, the one that it wraps, or those of a fallback."""
    inner = getattr(model, "models", None) or [getattr(model, "wrapped", None)]
    inner_models = (
        [inner_model for inner_model in inner if isinstance(inner_model, Model)] if isinstance(inner, list) else []
    )
    for inner_model in inner_models:
        yield from models_behind(inner_model)
    if not inner_models:
        yield model


def _takes(model: Model, cache: str) -> bool:
    """Return whether the policy can be requested. Some providers cache by themselves, without a choice."""
    if cache in ("auto", "off"):
        return cache == "auto" or not model.profile.get("supports_auto_cache")
    return cache in model.profile.get("supported_cache_retentions", ())


def _thinking(settings: ModelSettings, models: list[Model], problems: dict[str, str]) -> dict[str, JsonValue]:
    thinking = settings.thinking
    if thinking is None:
        return {}
    if not isinstance(thinking, bool | str):
        problems["thinking"] = f"{thinking} tokens: pydantic-ai takes a level of effort, not a budget"
    elif thinking and not any(inner_model.profile.get("supports_thinking") for inner_model in models):
        problems["thinking"] = "pydantic-ai knows no thinking of this model"
    else:
        return {"thinking": thinking}
    return {}
