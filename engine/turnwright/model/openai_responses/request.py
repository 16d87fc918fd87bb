"""Requests in the format of the Responses API. No I/O."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from turnwright.errors import ConfigError
from turnwright.message import FilePart, Message, TextPart, ToolResultPart, ToolSpec
from turnwright.model.capabilities import Capabilities
from turnwright.model.http.attachments import IMAGES, PDF, SOME_IMAGE, in_words, media_type_of
from turnwright.model.http.encoding import EncodedMessage, dump, lengthened
from turnwright.model.model_settings import ModelSettings
from turnwright.model.prefix_cache import PrefixCache
from turnwright.model.protocol import ModelRequest, OutputFormat, ToolChoice
from turnwright.model.settings_mapping import MappedSettings, checked_extra, extra_of, supported

from .kept_items import Item, items_of

#: Fields that only this module sets. A request is never stored, because turns are in the journal.
RESERVED: Final = frozenset({"model", "input", "tools", "stream", "store", "previous_response_id", "conversation"})
#: The smallest limit of a reply, in tokens, that the API accepts.
MIN_TOKENS: Final = 16

_DEFAULTS: Final = Capabilities()
#: Kinds of tools whose calls only a client can answer. `function` is for tools of an agent.
_NOT_HOSTED: Final = frozenset(
    {"apply_patch", "computer", "computer_use_preview", "custom", "function", "local_shell", "namespace"}
)


#: The settings that have the API's own names.
_SAME: Final = ("temperature", "top_p", "parallel_tool_calls", "service_tier")
_MISSING: Final = ("seed", "stop_sequences")
_ON_OFF: Final = {True: "medium", False: "none"}


def map_responses_settings(
    settings: ModelSettings,
    capabilities: Capabilities,
    reserved: Collection[str],
    reasoning: Mapping[str, JsonValue] | None = None,
) -> MappedSettings:
    """Map settings to the fields of a request. `reserved` are the fields that `extra_body` must not contain.

    A level of thinking replaces the effort in `reasoning`, the client's own object. The API caches prompts by itself,
    so `cache` sends nothing: `auto` is what happens anyway. Raises `ConfigError` for a reserved field.
    """
    supported_settings, unsupported = supported(settings, capabilities)
    set_names = supported_settings.given
    body: dict[str, JsonValue] = {name: getattr(supported_settings, name) for name in _SAME if name in set_names}
    if supported_settings.parallel_tool_calls and not capabilities.parallel_tool_calls:
        del body["parallel_tool_calls"]
        unsupported["parallel_tool_calls"] = "the model makes one call at a time"
    unsupported.update(
        dict.fromkeys((name for name in _MISSING if name in set_names), "the Responses API has no such field")
    )
    thinking = supported_settings.thinking
    if isinstance(thinking, int) and not isinstance(thinking, bool):
        unsupported["thinking"] = f"{thinking} tokens: the server takes a level of effort, not a budget"
    elif thinking is not None:
        effort = _ON_OFF[thinking] if isinstance(thinking, bool) else thinking
        body["reasoning"] = {**(reasoning or {}), "effort": effort}
    if supported_settings.cache not in (None, "auto"):
        unsupported["cache"] = f"{supported_settings.cache!r} cannot be requested: the provider caches by itself"
    return MappedSettings(body | extra_of(settings, reserved), unsupported)


class ResponsesEncoder:
    """Builds request bodies, and caches encoded messages (`EncodedMessage`, `PrefixCache`).

    `reasoning` is sent unchanged. `hosted_tools` follow the tools of each request. With `send_item_ids` kept items are
    sent with their ids. `extra_body` is added to every request and overrides its fields; a None in it removes a field.
    The settings of a request override all of these. `tool_choice_first` replaces `auto` in the first request of a turn.
    The requests were fitted to `capabilities`; `reasoning_details` says whether the model has encrypted reasoning.

    Raises `ConfigError` for an `extra_body`, a `reasoning` or a hosted tool that is not JSON, for an `extra_body` with
    a field in `RESERVED`, and for a hosted tool whose calls the provider does not answer.
    """

    def __init__(
        self,
        model: str,
        *,
        reasoning: Mapping[str, JsonValue] | None = None,
        hosted_tools: Sequence[Mapping[str, JsonValue]] = (),
        send_item_ids: bool = True,
        extra_body: Mapping[str, JsonValue] | None = None,
        tool_choice_first: ToolChoice | None = None,
        capabilities: Capabilities = _DEFAULTS,
    ) -> None:
        self._model = model
        self._reasoning = None if reasoning is None else checked_extra(reasoning, (), "reasoning")
        self._hosted = tuple(dump(_hosted(tool)) for tool in hosted_tools)
        self._extra_body = checked_extra(extra_body, RESERVED)
        self._tool_choice_first: ToolChoice | None = tool_choice_first
        self._capabilities = capabilities
        self._tools: EncodedMessage[ToolSpec, bytes] = EncodedMessage(_tool)
        reasons = capabilities.reasoning_details
        encoded_messages: EncodedMessage[Message, bytes] = EncodedMessage(
            lambda message: _join(to_input(message, reasoning=reasons, ids=send_item_ids))
        )
        self._encoded_messages = encoded_messages
        # The last reply may be the `BRIDGE` before a message for one call only; the next request has neither.
        self._beginnings: PrefixCache[tuple[bytes, ...]] = PrefixCache(
            (),
            lambda beginning, messages: lengthened(
                beginning, [piece for pair in _encode_messages(encoded_messages, messages) for piece in pair]
            ),
            is_sent=lambda message: bool(encoded_messages.of(message)),
            steps=2,
        )

    def encode(self, request: ModelRequest) -> bytes:
        """Make the JSON body that asks for a streamed reply to `request`.

        A limit of the reply below `MIN_TOKENS` is raised to it. Parts that a provider does not know (steps, sentinels,
        foreign reasoning) are left out, and so is an assistant's message without other parts.
        """
        body: dict[str, JsonValue] = {"model": self._model, "stream": True, "store": False}
        if self._capabilities.reasoning_details:
            body["include"] = ["reasoning.encrypted_content"]
        if self._reasoning is not None:
            body["reasoning"] = self._reasoning
        mapped = {} if request.settings is None else self.map_settings(request.settings).body
        hosted = mapped.pop("tools", None)
        request_tools = [dump(tool) for tool in hosted if isinstance(tool, dict)] if isinstance(hosted, list) else []
        tools = [*map(self._tools.of, request.tools), *self._hosted, *request_tools]
        if tools:
            body.update(self._choice(request))
        else:
            mapped.pop("parallel_tool_calls", None)
        if request.max_tokens is not None:
            body["max_output_tokens"] = max(request.max_tokens, MIN_TOKENS)
        body.update(self._extra_body)
        body.update(mapped)
        if request.output is not None:
            text = body.get("text")
            body["text"] = {**(text if isinstance(text, dict) else {}), "format": _format(request.output)}
        settings = dump({name: value for name, value in body.items() if value is not None})
        beginning, rest = self._beginnings.of(request.messages)
        messages = b"".join([piece for pair in _encode_messages(self._encoded_messages, rest) for piece in pair])
        described = [b'"tools":[', b",".join(tools), b"],"] if tools else []
        # Each message has a comma behind it, except the last one.
        return b"".join([b'{"input":[', *beginning, messages[:-1], b"],", *described, settings[1:]])

    def _choice(self, request: ModelRequest) -> dict[str, JsonValue]:
        choice: ToolChoice = request.tool_choice
        if request.first and choice == "auto":
            choice = self._tool_choice_first or choice
        wire: dict[str, JsonValue] = {} if choice == "auto" else {"tool_choice": choice}
        single = not self._capabilities.parallel_tool_calls and choice != "none"
        return {**wire, "parallel_tool_calls": False} if single else wire

    def map_settings(self, settings: ModelSettings) -> MappedSettings:
        """Map settings to fields of a request. `tools` in their `extra_body` are hosted ones, beside the client's.

        Raises `ConfigError` for an `extra_body` with another field in `RESERVED`, and for a tool that is not hosted.
        """
        mapped = map_responses_settings(settings, self._capabilities, RESERVED - {"tools"}, self._reasoning)
        tools = mapped.body.get("tools")
        if tools is not None:
            if not isinstance(tools, list):
                raise ConfigError(f"model_settings.extra_body.tools must be a list of hosted tools, not {tools!r}")
            mapped.body["tools"] = [_hosted(tool) for tool in tools]
        return mapped

    @property
    def remembered(self) -> int:
        """The number of messages in the cache."""
        return len(self._encoded_messages)


def to_input(message: Message, *, reasoning: bool = True, ids: bool = True) -> list[Item]:
    """Translate one message to input items: one for each result of a tool; for a reply see `items_of`.

    A user's message with files has a list of parts. Pictures of common kinds and PDF are sent, also by address, in
    results too. A text file becomes text. A text describes any other file, because a rejected file would be rejected in
    every later request too.
    """
    if message.role == "tool":
        return [_result(part) for part in message.parts if isinstance(part, ToolResultPart)]
    if message.role == "assistant":
        return items_of(message, reasoning=reasoning, ids=ids)
    if message.role == "user" and message.files:
        return [{"role": "user", "content": _contents(message.parts)}]
    return [{"role": message.role, "content": message.text}]


def _encode_messages(
    encoded_messages: EncodedMessage[Message, bytes], messages: Iterable[Message]
) -> Iterable[tuple[bytes, bytes]]:
    return ((encoded_message, b",") for message in messages if (encoded_message := encoded_messages.of(message)))


def _tool(tool: ToolSpec) -> bytes:
    # The API rewrites schemas to strict ones by default, which makes every parameter required.
    wire: dict[str, JsonValue] = {"type": "function", "name": tool.name, "description": tool.description}
    return dump({**wire, "parameters": dict(tool.parameters), "strict": False})


def _format(output: OutputFormat) -> dict[str, JsonValue]:
    """Return the format that holds a text reply to a schema: strictly, if the schema allows it."""
    strict = output.strict_schema
    wire: dict[str, JsonValue] = {"type": "json_schema", "name": output.name}
    if strict is None:
        return {**wire, "schema": dict(output.schema)}
    return {**wire, "schema": dict(strict), "strict": True}


def _hosted(tool: object) -> dict[str, JsonValue]:
    """Check a hosted tool. Raises `ConfigError`."""
    kind = tool.get("type") if isinstance(tool, Mapping) else None
    if not isinstance(tool, Mapping) or not isinstance(kind, str) or not kind:
        raise ConfigError(f"hosted_tools has a tool without a type: write {{'type': 'web_search'}}, not {tool!r}")
    environment = tool.get("environment")
    is_local = kind == "shell" and not (isinstance(environment, Mapping) and environment.get("type") != "local")
    if kind in _NOT_HOSTED or is_local:
        hint = "give it to the agent as a function" if kind in {"function", "custom"} else "wrap it in a function tool"
        raise ConfigError(f"hosted_tools has {kind!r}, whose calls the provider does not answer: {hint}")
    if kind == "mcp" and tool.get("require_approval") in (None, "always"):
        raise ConfigError(
            "hosted_tools has an mcp server whose calls wait for an approval, which a turn does not see: set its"
            " require_approval to 'never', or connect the server to the agent (docs/mcp.md)"
        )
    return checked_extra(tool, (), "a hosted tool")


def _result(part: ToolResultPart) -> Item:
    output: JsonValue = part.text
    if part.files:
        output = _contents((*((TextPart(text=part.text),) if part.text else ()), *part.files))
    return {"type": "function_call_output", "call_id": part.call, "output": output}


def _contents(parts: Iterable[object]) -> list[JsonValue]:
    contents: list[JsonValue] = []
    for part in parts:
        if isinstance(part, TextPart) and part.text:
            contents.append({"type": "input_text", "text": part.text})
        elif isinstance(part, FilePart):
            contents.append(_file(part))
    return contents


def _file(part: FilePart) -> Item:
    media_type = media_type_of(part)
    if media_type in IMAGES or (part.url and media_type == SOME_IMAGE):
        return {"type": "input_image", "image_url": part.url or f"data:{media_type};base64,{part.data}"}
    if media_type == PDF and part.url:
        return {"type": "input_file", "file_url": part.url}
    if media_type == PDF:
        # The API requires a name.
        return {"type": "input_file", "filename": part.name or "file.pdf", "file_data": part.address}
    return {"type": "input_text", "text": in_words(part)}


def _join(items: Iterable[Mapping[str, JsonValue]]) -> bytes:
    return b",".join(map(dump, items))
