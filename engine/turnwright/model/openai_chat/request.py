"""Requests in the format of chat completions. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeGuard, Unpack, get_args

from msgspec import structs
from pydantic import JsonValue

from turnwright.errors import ConfigError
from turnwright.message import FilePart, Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart, ToolSpec
from turnwright.model.capabilities import Capabilities, ThinkingControl
from turnwright.model.fit import BRIDGE, sendable_name, split_calls
from turnwright.model.http.encoding import (
    IMAGES,
    PDF,
    SOME_IMAGE,
    EncodedMessage,
    EncoderOptions,
    RequestEncoder,
    describe_output,
    dump,
    extend_chunks,
    in_words,
    join,
    media_type_of,
)
from turnwright.model.model_settings import ModelSettings
from turnwright.model.prefix_cache import PrefixCache
from turnwright.model.protocol import ModelRequest
from turnwright.model.settings_mapping import NO_BUDGET, MappedSettings, effort_of, extra_of, map_openai_settings

MaxTokensField = Literal["max_tokens", "max_completion_tokens"]

_OTHER_NAME: Final[Mapping[MaxTokensField, MaxTokensField]] = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}

#: Fields that only this module sets.
RESERVED: Final = frozenset({"model", "messages", "tools", "stream"})

_DEFAULTS: Final = Capabilities()
#: A detail of a call, with the call's number: `{"type": "extra_content", "call": 0, "extra_content": {}}`.
_EXTRA: Final = "extra_content"
#: Details that are not sent here: those of a call, of Anthropic's own API, of the Responses API, and of pydantic-ai's
#: providers.
_NOT_SENT: Final = frozenset({_EXTRA, "thinking", "redacted_thinking", "block_order", "openai_response", "pydantic_ai"})


#: The settings that have the API's own names.
_SAME: Final = ("temperature", "top_p", "seed", "parallel_tool_calls", "service_tier")


def map_chat_settings(settings: ModelSettings, capabilities: Capabilities) -> MappedSettings:
    """Map settings to the fields of a request. Raises `ConfigError` for an `extra_body` with a field in `RESERVED`."""
    supported_settings, (body, problems) = map_openai_settings(settings, capabilities, _SAME)
    if supported_settings.stop_sequences:
        body["stop"] = [*supported_settings.stop_sequences]
    if supported_settings.thinking is not None and capabilities.thinking is not None:
        thinking = map_thinking(supported_settings.thinking, capabilities.thinking)
        if isinstance(thinking, str):
            problems["thinking"] = thinking
        else:
            body.update(thinking)
    return MappedSettings(body | extra_of(settings, RESERVED), problems)


def map_thinking(thinking: bool | str | int, control: ThinkingControl) -> dict[str, JsonValue] | str:
    """Return the fields that set thinking, or the reason why this control cannot."""
    if control == "reasoning":
        kind = "enabled" if isinstance(thinking, bool) else "effort" if isinstance(thinking, str) else "max_tokens"
        return {"reasoning": {kind: thinking}}
    if control == "switch":
        if not isinstance(thinking, bool):
            return f"{thinking!r}: the server can only switch it on or off (True or False)"
        return {"thinking": {"type": "enabled" if thinking else "disabled"}}
    effort = effort_of(thinking)
    return NO_BUDGET.format(thinking) if effort is None else {"reasoning_effort": effort}


class OpenAIEncoder(RequestEncoder[tuple[bytes, bytes]]):
    """Builds request bodies: see `RequestEncoder`.

    `max_tokens_field` is the provider's name for `max_tokens`; `may_rename` says that it is a guess, which the server
    may correct.
    """

    def __init__(
        self,
        model: str,
        *,
        max_tokens_field: MaxTokensField = "max_tokens",
        may_rename: bool = False,
        **options: Unpack[EncoderOptions],
    ) -> None:
        # Each message, with the files of a result.
        super().__init__(
            model,
            lambda message: (join(to_wire(message, self.capabilities)), join(_list_shown_parts(message))),
            _tool,
            RESERVED,
            **options,
        )
        if max_tokens_field not in get_args(MaxTokensField):
            raise ConfigError(f"max_tokens_field must be one of {get_args(MaxTokensField)}, not {max_tokens_field!r}")
        self._max_tokens_field: MaxTokensField = max_tokens_field
        self._may_rename = may_rename
        self._row = _Row(self._messages, self.capabilities)
        # The last reply may be the `BRIDGE` before a message for one call only; the next request has neither.
        self._beginnings = PrefixCache(_Beginning(), self._row.add, is_sent=self._row.is_sent, steps=2)

    def encode(self, request: ModelRequest) -> bytes:
        """Make the JSON body that asks for a streamed reply to `request`.

        Parts that a provider does not know (steps, sentinels, foreign reasoning) are left out, and so is an
        assistant's message without other parts. A tool's message may contain text only, so the files of a batch's
        results follow in one user's message, which names the tools.
        """
        body: dict[str, JsonValue] = {"model": self._model, "stream": True, "stream_options": {"include_usage": True}}
        tools: tuple[bytes, ...] = ()
        if request.tools:
            tools = (b'"tools":[', b",".join(self._list_tools(request, {})), b"],")
            choice = self._choose(request)
            # `auto` is every provider's default, and some reject the field.
            if choice != "auto":
                body["tool_choice"] = choice
            if not self.capabilities.parallel_tool_calls and choice != "none":
                body["parallel_tool_calls"] = False
        if request.output is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": describe_output(request.output)}
        if request.max_tokens is not None:
            body[self._max_tokens_field] = request.max_tokens
        body.update(self._extra_body)
        if request.settings is not None:
            body.update(self.map_settings(request.settings).body)
            if not request.tools:
                body.pop("parallel_tool_calls", None)
        settings = dump({name: value for name, value in body.items() if value is not None})
        beginning, new_messages = self._beginnings.of(self._list_messages(request))
        messages = b",".join(self._row.whole(beginning.files, new_messages))
        return b"".join([b'{"messages":[', *beginning.chunks, messages, b"],", *tools, settings[1:]])

    def rename_limit(self, request: ModelRequest, refused_body: bytes) -> bytes | None:
        """Make the body of a request whose body was refused because of the name of its limit; None if none differs.

        The other name is used from now on. Only the first refusal changes it, so no server can switch it to and fro.
        """
        if self._may_rename:
            self._may_rename = False
            self._max_tokens_field = _OTHER_NAME[self._max_tokens_field]
        body = self.encode(request)
        return None if body == refused_body else body

    def map_settings(self, settings: ModelSettings) -> MappedSettings:
        """See `map_chat_settings`."""
        return map_chat_settings(settings, self.capabilities)


class _Beginning(NamedTuple):
    """The beginning of a conversation: its messages, each with a comma, and the files of the last batch."""

    chunks: tuple[bytes, ...] = ()
    files: tuple[bytes, ...] = ()


class _Row:
    def __init__(self, encodings: EncodedMessage[Message, tuple[bytes, bytes]], capabilities: Capabilities) -> None:
        self._capabilities = capabilities
        self.encodings = encodings

    def is_sent(self, message: Message) -> bool:
        return bool(self.encodings.of(message)[0])

    def add(self, beginning: _Beginning, messages: Sequence[Message]) -> _Beginning:
        row, files = self._encode_messages(beginning.files, messages)
        return _Beginning(
            extend_chunks(beginning.chunks, [piece for message in row for piece in (message, b",")]), tuple(files)
        )

    def whole(self, files: Sequence[bytes], messages: Sequence[Message]) -> list[bytes]:
        """Return the last messages, behind files that have not been sent yet."""
        row, files = self._encode_messages(files, messages)
        return [*row, *self._showing(files)]

    def _encode_messages(
        self, pending_files: Sequence[bytes], messages: Sequence[Message]
    ) -> tuple[list[bytes], Sequence[bytes]]:
        row: list[bytes] = []
        most = self._capabilities.calls_per_message
        for message in messages if most is None else split_calls(messages, most):
            if pending_files and message.role != "tool":
                row += self._showing(pending_files)
                pending_files = ()
            encoded_message, files = self.encodings.of(message)
            if encoded_message:
                row.append(encoded_message)
            if files:
                pending_files = (*pending_files, files)
        return row, pending_files

    def _showing(self, files: Sequence[bytes]) -> Iterator[bytes]:
        if files and self._capabilities.strict_alternation:
            yield self.encodings.of(BRIDGE)[0]
        if files:
            yield b'{"role":"user","content":[' + b",".join(files) + b"]}"


def to_wire(message: Message, capabilities: Capabilities = _DEFAULTS) -> list[dict[str, JsonValue]]:
    """Translate one message: to one, to one for each result of a tool, or to none if no part of it is sent.

    The content of an assistant's message without text is null, because some servers require the key and some templates
    print an empty text. A user's message with files has a list of parts; files of other roles are not sent. Pictures
    of common kinds are sent, also by address, and PDF by content. A text file becomes text. A text describes any other
    file, because a rejected file would be rejected in every later request too.

    Reasoning details, and extra values of a call, are sent back unchanged unless `capabilities` say that the server
    does not accept them. The text of the reasoning is sent back where `capabilities` name its field, if there are no
    details with the same content, or if it is required.
    """
    role = message.role
    if role == "tool":
        return [_result(part) for part in message.parts if isinstance(part, ToolResultPart)]
    if role == "user" and message.files:
        return [{"role": role, "content": [_part(part) for part in message.parts if _is_shown(part)]}]
    text = message.text
    if role != "assistant":
        return [{"role": role, "content": text}]
    calls = message.calls
    if not text and not calls:
        return []
    wire: dict[str, JsonValue] = {"role": role, "content": text or None}
    thoughts = [part for part in message.parts if isinstance(part, ReasoningPart)]
    if thoughts or capabilities.reasoning_required:
        wire.update(_reasoning(thoughts, capabilities))
    if calls:
        wire["tool_calls"] = _calls(calls, [detail for part in thoughts for detail in part.details])
    return [wire]


def chat_messages(messages: Sequence[Message]) -> list[dict[str, JsonValue]]:
    """Translate messages whose calls have their results. Their reasoning is left out: only its provider accepts it.

    As in a request, the files of a batch's results follow the results in a user's message, and a reply with more calls
    than a message may have becomes several.
    """
    chat: list[dict[str, JsonValue]] = []
    files: list[JsonValue] = []
    most = _DEFAULTS.calls_per_message
    for message in messages if most is None else split_calls(messages, most):
        if files and message.role != "tool":
            chat.append({"role": "user", "content": files})
            files = []
        parts = tuple(part for part in message.parts if not isinstance(part, ReasoningPart))
        chat += to_wire(structs.replace(message, parts=parts))
        files = [*files, *_list_shown_parts(message)]
    return [*chat, {"role": "user", "content": files}] if files else chat


def _tool(tool: ToolSpec) -> bytes:
    parameters = dict(tool.parameters)
    function: JsonValue = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return dump({"type": "function", "function": function})


def _result(part: ToolResultPart) -> dict[str, JsonValue]:
    # Some servers ignore a result with an empty text.
    text = part.text or ("The result follows as a file." if part.files else "")
    return {"role": "tool", "tool_call_id": part.call, "content": text}


def _calls(calls: Sequence[ToolCallPart], details: Sequence[Mapping[str, JsonValue]]) -> list[JsonValue]:
    wire: list[dict[str, JsonValue]] = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": sendable_name(call.name), "arguments": dump(dict(call.arguments)).decode()},
        }
        for call in calls
    ]
    for detail in details:
        number = detail.get("call") if detail.get("type") == _EXTRA else None
        if isinstance(number, int) and 0 <= number < len(wire):
            wire[number][_EXTRA] = detail.get(_EXTRA)
    return [*wire]


def _reasoning(thoughts: Sequence[ReasoningPart], capabilities: Capabilities) -> dict[str, JsonValue]:
    wire: dict[str, JsonValue] = {}
    details = [dict(detail) for part in thoughts for detail in part.details if detail.get("type") not in _NOT_SENT]
    if details and capabilities.reasoning_details:
        wire["reasoning_details"] = [*details]
    field, is_required = capabilities.reasoning_field, capabilities.reasoning_required
    text = "".join([part.text for part in thoughts])
    if field is not None and (is_required or (text and not wire)):
        wire[field] = text
    return wire


def _list_shown_parts(message: Message) -> list[dict[str, JsonValue]]:
    parts: list[dict[str, JsonValue]] = []
    for part in message.parts:
        if isinstance(part, ToolResultPart) and part.files:
            parts.append({"type": "text", "text": f"From the result of {part.name} (call {part.call}):"})
            parts += map(_part, part.files)
    return parts


def _is_shown(part: object) -> TypeGuard[TextPart | FilePart]:
    # Some servers reject an empty text beside a file.
    return isinstance(part, FilePart) or (isinstance(part, TextPart) and bool(part.text))


def _part(part: TextPart | FilePart) -> dict[str, JsonValue]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    media_type = media_type_of(part)
    if media_type in IMAGES or (part.url and media_type == SOME_IMAGE):
        url = part.url or f"data:{media_type};base64,{part.data}"
        return {"type": "image_url", "image_url": {"url": url}}
    if media_type == PDF and not part.url:
        # The API requires a name.
        return {"type": "file", "file": {"filename": part.name or "file.pdf", "file_data": part.address}}
    return {"type": "text", "text": in_words(part)}
