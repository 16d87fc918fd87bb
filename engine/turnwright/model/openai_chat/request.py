"""A request as chat completions wants it on the wire. No I/O."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeGuard

from pydantic import JsonValue

from turnwright.message import FilePart, Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart, ToolSpec
from turnwright.model.capabilities import Capabilities
from turnwright.model.fit import BRIDGE
from turnwright.model.http.attachments import IMAGES, PDF, SOME_IMAGE, in_words, media_type_of
from turnwright.model.http.encoding import EncodedMessage, checked_extra, dump, lengthened, sendable_name
from turnwright.model.http.prefix_cache import PrefixCache
from turnwright.model.protocol import ModelRequest, ToolChoice

MaxTokensField = Literal["max_tokens", "max_completion_tokens"]

#: What a request is made of here, so that nobody else may set it.
RESERVED: Final = frozenset({"model", "messages", "tools", "stream"})

_DEFAULTS: Final = Capabilities()
#: A detail that belongs to a call, whose number it holds: `{"type": "extra_content", "call": 0, "extra_content": {}}`.
_EXTRA: Final = "extra_content"
#: Details that go elsewhere: with their call, to Anthropic's own API, and to pydantic-ai's providers.
_NOT_SENT: Final = frozenset({_EXTRA, "thinking", "redacted_thinking", "block_order", "pydantic_ai"})


class OpenAIEncoder:
    """Makes the body of a request, and keeps what it encodes (`EncodedMessage`, `PrefixCache`) as long as it lives.

    `max_tokens_field` is the name under which the provider takes `Request.max_tokens`. `extra_body` is added to every
    request and goes before what stands here; a None in it removes a field. `tool_choice_first` takes the place of
    `auto` in the first request of a turn. `capabilities` are those that the requests were fitted to.

    Raises `ConfigError` for an `extra_body` that is not JSON or names a field in `RESERVED`.
    """

    def __init__(
        self,
        model: str,
        *,
        max_tokens_field: MaxTokensField = "max_tokens",
        extra_body: Mapping[str, JsonValue] | None = None,
        tool_choice_first: ToolChoice | None = None,
        capabilities: Capabilities = _DEFAULTS,
    ) -> None:
        self._model = model
        self._max_tokens_field = max_tokens_field
        self._extra_body = checked_extra(extra_body, RESERVED)
        self._tool_choice_first = tool_choice_first
        self._capabilities = capabilities
        self._tools: EncodedMessage[ToolSpec, bytes] = EncodedMessage(_tool)
        self._row = _Row(capabilities)
        # The last reply may be the `BRIDGE` to a word for one call only, and go with it.
        self._beginnings = PrefixCache(_Begun(), self._row.add, is_sent=self._row.is_sent, steps=2)

    def encode(self, request: ModelRequest) -> bytes:
        """Make the JSON body that asks for a streamed reply to `request`.

        What a provider does not know (steps, sentinels, reasoning that it did not ask for) is left out, and so is an
        assistant's message that holds nothing else. The message of a tool holds text alone, so the files of a batch's
        results follow it as one message of the user's, which says whose they are.
        """
        body: dict[str, JsonValue] = {"model": self._model, "stream": True, "stream_options": {"include_usage": True}}
        tools: tuple[bytes, ...] = ()
        if request.tools:
            tools = (b'"tools":[', b",".join(map(self._tools.of, request.tools)), b"],")
            choice = request.tool_choice
            if request.first and choice == "auto":
                choice = self._tool_choice_first or choice
            # `auto` is what every provider does unasked, and some refuse to be told.
            if choice != "auto":
                body["tool_choice"] = choice
            if not self._capabilities.parallel_tool_calls and choice != "none":
                body["parallel_tool_calls"] = False
        if request.max_tokens is not None:
            body[self._max_tokens_field] = request.max_tokens
        body.update(self._extra_body)
        settings = dump({name: value for name, value in body.items() if value is not None})
        begun, rest = self._beginnings.of(request.messages)
        messages = b",".join(self._row.whole(begun.shown, rest))
        return b"".join([b'{"messages":[', *begun.chunks, messages, b"],", *tools, settings[1:]])

    @property
    def remembered(self) -> int:
        """How many messages are kept encoded."""
        return len(self._row.kept)


class _Begun(NamedTuple):
    """The beginning of a conversation: its messages with a comma behind each, and the files of the last batch."""

    chunks: tuple[bytes, ...] = ()
    shown: tuple[bytes, ...] = ()


class _Row:
    def __init__(self, capabilities: Capabilities) -> None:
        self._capabilities = capabilities
        #: Each message, and the files that a result shows.
        self.kept: EncodedMessage[Message, tuple[bytes, bytes]] = EncodedMessage(
            lambda message: (_joined(to_wire(message, capabilities)), _joined(_shown_by(message)))
        )

    def is_sent(self, message: Message) -> bool:
        return bool(self.kept.of(message)[0])

    def add(self, begun: _Begun, messages: Sequence[Message]) -> _Begun:
        row, shown = self._encoded(begun.shown, messages)
        return _Begun(lengthened(begun.chunks, [piece for each in row for piece in (each, b",")]), tuple(shown))

    def whole(self, shown: Sequence[bytes], messages: Sequence[Message]) -> list[bytes]:
        """The last messages, behind files that are still to be shown."""
        row, shown = self._encoded(shown, messages)
        return [*row, *self._showing(shown)]

    def _encoded(self, shown: Sequence[bytes], messages: Sequence[Message]) -> tuple[list[bytes], Sequence[bytes]]:
        row: list[bytes] = []
        for message in messages:
            if shown and message.role != "tool":
                row += self._showing(shown)
                shown = ()
            encoded, files = self.kept.of(message)
            if encoded:
                row.append(encoded)
            if files:
                shown = (*shown, files)
        return row, shown

    def _showing(self, files: Sequence[bytes]) -> Iterator[bytes]:
        if files and self._capabilities.strict_alternation:
            yield self.kept.of(BRIDGE)[0]
        if files:
            yield b'{"role":"user","content":[' + b",".join(files) + b"]}"


def to_wire(message: Message, capabilities: Capabilities = _DEFAULTS) -> list[dict[str, JsonValue]]:
    """Translate one message: one on the wire, one for each result of a tool, or none if nothing in it is sent.

    The content of an assistant's message without text is null: some servers want the key, some templates print an
    empty text. That of a user's message with files is a list of parts; files of any other role are not sent. Pictures
    of the kinds that models read are sent, at an address too, and PDF as content; a file of text becomes text, and of
    any other the model is told in words, for one that is refused would be so in every later request as well.

    The details of a reasoning, and what belongs to a call, are for the server that sent them, so they go back as they
    came, unless `capabilities` say that this one sends none; the text of it goes back where they say so and there are
    no details, which hold the same, or where it is required.
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


def _tool(tool: ToolSpec) -> bytes:
    parameters = dict(tool.parameters)
    function: JsonValue = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return dump({"type": "function", "function": function})


def _result(part: ToolResultPart) -> dict[str, JsonValue]:
    # Where there is nothing to read, some servers see no result.
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
    field, required = capabilities.reasoning_field, capabilities.reasoning_required
    text = "".join([part.text for part in thoughts])
    if field is not None and (required or (text and not wire)):
        wire[field] = text
    return wire


def _shown_by(message: Message) -> list[dict[str, JsonValue]]:
    shown: list[dict[str, JsonValue]] = []
    for part in message.parts:
        if isinstance(part, ToolResultPart) and part.files:
            shown.append({"type": "text", "text": f"From the result of {part.name} (call {part.call}):"})
            shown += map(_part, part.files)
    return shown


def _is_shown(part: object) -> TypeGuard[TextPart | FilePart]:
    # An empty text beside a file is refused by some.
    return isinstance(part, FilePart) or (isinstance(part, TextPart) and bool(part.text))


def _part(part: TextPart | FilePart) -> dict[str, JsonValue]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    media_type = media_type_of(part)
    if media_type in IMAGES or (part.url and media_type == SOME_IMAGE):
        url = part.url or f"data:{media_type};base64,{part.data}"
        return {"type": "image_url", "image_url": {"url": url}}
    if media_type == PDF and not part.url:
        # A name is wanted.
        return {"type": "file", "file": {"filename": part.name or "file.pdf", "file_data": part.address}}
    return {"type": "text", "text": in_words(part)}


def _joined(values: Iterable[Mapping[str, JsonValue]]) -> bytes:
    return b",".join(map(dump, values))
