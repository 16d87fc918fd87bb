"""A request as chat completions wants it on the wire. No I/O."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeGuard

from pydantic import JsonValue

from turnwright.message import FilePart, Message, ReasoningPart, TextPart, ToolResultPart

from .capabilities import Capabilities
from .encoding import Kept, checked_extra, dump, sendable_name
from .file_words import IMAGES, PDF, SOME_IMAGE, in_words, media_type_of
from .fit import BRIDGE
from .protocol import Request, ToolChoice

MaxTokensField = Literal["max_tokens", "max_completion_tokens"]

#: What a request is made of here, so that nobody else may set it.
RESERVED: Final = frozenset({"model", "messages", "tools", "stream"})

_DEFAULTS: Final = Capabilities()
#: Details of a reasoning that came from elsewhere, and are for there: Anthropic's own API, and pydantic-ai's providers.
_FOREIGN: Final = frozenset({"thinking", "redacted_thinking", "block_order", "pydantic_ai"})
#: A detail that belongs to a call, whose number it holds: `{"type": "extra_content", "call": 0, "extra_content": {}}`.
_EXTRA: Final = "extra_content"


class Encoder:
    """Makes the body of a request, and keeps each message's encoded form for as long as the message lives.

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
        #: Each message, and the files that a result shows.
        self._encoded: Kept[tuple[bytes, bytes]] = Kept(
            lambda message: (_joined(to_wire(message, capabilities)), _joined(_shown_by(message)))
        )

    def encode(self, request: Request) -> bytes:
        """Make the JSON body that asks for a streamed reply to `request`.

        What a provider does not know (steps, sentinels, reasoning that it did not ask for) is left out, and so is an
        assistant's message that holds nothing else. The message of a tool holds text alone, so the files of a batch's
        results follow it as one message of the user's, which says whose they are.
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
            if not self._capabilities.parallel_tool_calls and choice != "none":
                body["parallel_tool_calls"] = False
        if request.max_tokens is not None:
            body[self._max_tokens_field] = request.max_tokens
        body.update(self._extra_body)
        rest = dump({name: value for name, value in body.items() if value is not None})
        return b'{"messages":[' + b",".join(self._messages(request.messages)) + b"]," + rest[1:]

    @property
    def remembered(self) -> int:
        """How many messages are kept encoded."""
        return len(self._encoded)

    def _messages(self, messages: Sequence[Message]) -> Iterator[bytes]:
        shown: list[bytes] = []
        for message in messages:
            if shown and message.role != "tool":
                yield from self._showing(shown)
                shown = []
            encoded, files = self._encoded.of(message)
            if encoded:
                yield encoded
            if files:
                shown.append(files)
        if shown:
            yield from self._showing(shown)

    def _showing(self, files: list[bytes]) -> Iterator[bytes]:
        if self._capabilities.strict_alternation:
            yield self._encoded.of(BRIDGE)[0]
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
    if message.role == "tool":
        return [_result(part) for part in message.parts if isinstance(part, ToolResultPart)]
    if message.role == "user" and message.files:
        return [{"role": "user", "content": [_part(p) for p in message.parts if _is_shown(p)]}]
    if message.role != "assistant":
        return [{"role": message.role, "content": message.text}]
    if not message.text and not message.calls:
        return []
    wire: dict[str, JsonValue] = {"role": "assistant", "content": message.text or None}
    details = [dict(detail) for part in message.parts if isinstance(part, ReasoningPart) for detail in part.details]
    wire.update(_reasoning(message, [detail for detail in details if detail.get("type") != _EXTRA], capabilities))
    if message.calls:
        extras = {
            number: detail.get(_EXTRA)
            for detail in details
            if detail.get("type") == _EXTRA and isinstance(number := detail.get("call"), int)
        }
        wire["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": sendable_name(call.name), "arguments": dump(dict(call.arguments)).decode()},
                **({_EXTRA: extras[number]} if number in extras else {}),
            }
            for number, call in enumerate(message.calls)
        ]
    return [wire]


def _result(part: ToolResultPart) -> dict[str, JsonValue]:
    # Where there is nothing to read, some servers see no result.
    text = part.text or ("The result follows as a file." if part.files else "")
    return {"role": "tool", "tool_call_id": part.call, "content": text}


def _reasoning(
    message: Message, details: list[dict[str, JsonValue]], capabilities: Capabilities
) -> dict[str, JsonValue]:
    wire: dict[str, JsonValue] = {}
    details = [detail for detail in details if detail.get("type") not in _FOREIGN]
    if details and capabilities.reasoning_details:
        wire["reasoning_details"] = [*details]
    field, required = capabilities.reasoning_field, capabilities.reasoning_required
    text = "".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
    if field is not None and (required or (text and not wire)):
        wire[field] = text
    return wire


def _shown_by(message: Message) -> list[dict[str, JsonValue]]:
    """The parts of a user's message that shows the files of a result."""
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
