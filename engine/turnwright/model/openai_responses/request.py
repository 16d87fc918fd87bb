"""Requests in the format of the Responses API. No I/O."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Unpack

from pydantic import JsonValue

from turnwright.errors import ConfigError
from turnwright.message import FilePart, Message, TextPart, ToolResultPart, ToolSpec
from turnwright.model.capabilities import Capabilities
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
    need_hosted,
)
from turnwright.model.model_settings import ModelSettings
from turnwright.model.prefix_cache import PrefixCache
from turnwright.model.protocol import ModelRequest
from turnwright.model.settings_mapping import (
    NO_BUDGET,
    MappedSettings,
    checked_extra,
    effort_of,
    extra_of,
    map_openai_settings,
)

from .kept_items import Item, items_of

#: Fields that only this module sets. A request is never stored, because turns are in the journal.
RESERVED: Final = frozenset({"model", "input", "tools", "stream", "store", "previous_response_id", "conversation"})
#: The smallest limit of a reply, in tokens, that the API accepts.
MIN_TOKENS: Final = 16

#: Kinds of tools whose calls only a client can answer. `function` is for tools of an agent.
_NOT_HOSTED: Final = frozenset(
    {"apply_patch", "computer", "computer_use_preview", "custom", "function", "local_shell", "namespace"}
)


#: The settings that have the API's own names.
_SAME: Final = ("temperature", "top_p", "parallel_tool_calls", "service_tier")
_MISSING: Final = ("seed", "stop_sequences")


def map_responses_settings(
    settings: ModelSettings,
    capabilities: Capabilities,
    reserved_fields: Collection[str],
    reasoning: Mapping[str, JsonValue] | None = None,
) -> MappedSettings:
    """Map settings to the fields of a request. `reserved_fields` are the fields that `extra_body` must not contain.

    A level of thinking replaces the effort in `reasoning`, the client's own object. Raises `ConfigError` for a reserved
    field.
    """
    supported_settings, (body, problems) = map_openai_settings(settings, capabilities, _SAME)
    problems.update(
        dict.fromkeys(
            (name for name in _MISSING if name in supported_settings.given), "the Responses API has no such field"
        )
    )
    if supported_settings.thinking is not None:
        effort = effort_of(supported_settings.thinking)
        if effort is None:
            problems["thinking"] = NO_BUDGET.format(supported_settings.thinking)
        else:
            body["reasoning"] = {**(reasoning or {}), "effort": effort}
    return MappedSettings(body | extra_of(settings, reserved_fields), problems)


class ResponsesEncoder(RequestEncoder[bytes]):
    """Builds request bodies: see `RequestEncoder`.

    `reasoning` is sent unchanged. With `send_item_ids` kept items are sent with their ids. `reasoning_details` of
    `capabilities` says whether the model has encrypted reasoning.

    Raises `ConfigError` also for a `reasoning` that is not JSON.
    """

    def __init__(
        self,
        model: str,
        *,
        reasoning: Mapping[str, JsonValue] | None = None,
        send_item_ids: bool = True,
        hosted_tools: Sequence[Mapping[str, JsonValue]] = (),
        **options: Unpack[EncoderOptions],
    ) -> None:
        super().__init__(
            model,
            lambda message: join(to_input(message, reasoning=self.capabilities.reasoning_details, ids=send_item_ids)),
            _tool,
            RESERVED,
            hosted_tools=hosted_tools,
            **options,
        )
        self._reasoning = None if reasoning is None else checked_extra(reasoning, (), "reasoning")
        encoded_messages = self._messages
        # The last reply may be the `BRIDGE` before a message for one call only; the next request has neither.
        self._beginnings: PrefixCache[tuple[bytes, ...]] = PrefixCache(
            (),
            lambda beginning, messages: extend_chunks(
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
        if self.capabilities.reasoning_details:
            body["include"] = ["reasoning.encrypted_content"]
        if self._reasoning is not None:
            body["reasoning"] = self._reasoning
        mapped_settings = {} if request.settings is None else self.map_settings(request.settings).body
        tools = self._list_tools(request, mapped_settings)
        if tools:
            body.update(self._choice(request))
        else:
            mapped_settings.pop("parallel_tool_calls", None)
        if request.max_tokens is not None:
            body["max_output_tokens"] = max(request.max_tokens, MIN_TOKENS)
        body.update(self._extra_body)
        body.update(mapped_settings)
        if request.output is not None:
            text = body.get("text")
            body["text"] = {
                **(text if isinstance(text, dict) else {}),
                "format": {"type": "json_schema", **describe_output(request.output)},
            }
        settings = dump({name: value for name, value in body.items() if value is not None})
        beginning, new_messages = self._beginnings.of(self._list_messages(request))
        messages = b"".join([piece for pair in _encode_messages(self._messages, new_messages) for piece in pair])
        tools_field = [b'"tools":[', b",".join(tools), b"],"] if tools else []
        # Each message has a comma behind it, except the last one.
        return b"".join([b'{"input":[', *beginning, messages[:-1], b"],", *tools_field, settings[1:]])

    def _choice(self, request: ModelRequest) -> dict[str, JsonValue]:
        choice = self._choose(request)
        wire: dict[str, JsonValue] = {} if choice == "auto" else {"tool_choice": choice}
        single = not self.capabilities.parallel_tool_calls and choice != "none"
        return {**wire, "parallel_tool_calls": False} if single else wire

    def map_settings(self, settings: ModelSettings) -> MappedSettings:
        """Map settings to fields of a request. `tools` in their `extra_body` are hosted ones, beside the client's.

        Raises `ConfigError` for an `extra_body` with another field in `RESERVED`, and for a tool that is not hosted.
        """
        return self._check_hosted_of(
            map_responses_settings(settings, self.capabilities, RESERVED - {"tools"}, self._reasoning)
        )

    def _check_hosted(self, tool: object) -> dict[str, JsonValue]:
        tool, kind = need_hosted(tool, "{'type': 'web_search'}")
        environment = tool.get("environment")
        is_local = kind == "shell" and not (isinstance(environment, Mapping) and environment.get("type") != "local")
        if kind in _NOT_HOSTED or is_local:
            hint = (
                "give it to the agent as a function" if kind in {"function", "custom"} else "wrap it in a function tool"
            )
            raise ConfigError(f"hosted_tools has {kind!r}, whose calls the provider does not answer: {hint}")
        if kind == "mcp" and tool.get("require_approval") in (None, "always"):
            raise ConfigError(
                "hosted_tools has an mcp server whose calls wait for an approval, which a turn does not see: set its"
                " require_approval to 'never', or connect the server to the agent (docs/mcp.md)"
            )
        return checked_extra(tool, (), "a hosted tool")


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
