"""The common parts of all encoders of requests: their options, JSON as bytes, a cache, and files. No I/O."""

import json
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, TypedDict, TypeVar, get_args

import msgspec
from msgspec import structs
from pydantic import JsonValue

from turnwright.errors import ConfigError
from turnwright.message import FilePart, Message, ReasoningPart, TextPart, ToolCallPart, ToolSpec
from turnwright.model.capabilities import Capabilities, checked_capabilities
from turnwright.model.model_settings import ModelSettings
from turnwright.model.prefix_cache import PrefixCache
from turnwright.model.protocol import ModelRequest, OutputFormat, ToolChoice
from turnwright.model.settings_mapping import MappedSettings, checked_extra

from .json_text import read_objects
from .text_buffer import mend

Source = TypeVar("Source")
Encoded = TypeVar("Encoded")

#: The size, in bytes, from which a chunk is long (see `extend_chunks`).
CHUNK: Final = 64 * 1024

_JSON: Final = msgspec.json.Encoder()
_DEFAULTS: Final = Capabilities()


class EncodedMessage(Generic[Source, Encoded]):
    """A cache of the encoded form of each message, or of another immutable object, for as long as that lives.

    A turn sends its messages again with every step, so each is encoded once (docs/rules.md#speed).
    """

    def __init__(self, encode: Callable[[Source], Encoded]) -> None:
        self._encode = encode
        self._entries: dict[int, tuple[weakref.ref[Source], Encoded]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Forget all messages, because they are encoded in another way from now on."""
        self._entries.clear()

    def of(self, source: Source) -> Encoded:
        """Return the encoded form of `source`."""
        entry = self._entries.get(id(source))
        if entry is not None and entry[0]() is source:
            return entry[1]
        encoded_form = self._encode(source)
        # By identity, since an object with a mapping has no hash. The entry is deleted with its source.
        entries, key = self._entries, id(source)
        entries[key] = (weakref.ref(source, lambda _: entries.pop(key, None)), encoded_form)
        return encoded_form

    def get(self, source: Source) -> Encoded | None:
        """Return the encoded form of `source`, if it was asked for before."""
        entry = self._entries.get(id(source))
        return entry[1] if entry is not None and entry[0]() is source else None


def _without_reasoning(message: Message) -> Message:
    parts = tuple(part for part in message.parts if not isinstance(part, ReasoningPart))
    return structs.replace(message, parts=parts)


def dump(value: Mapping[str, JsonValue]) -> bytes:
    """Encode JSON.

    Half a surrogate pair becomes U+FFFD; NaN and the infinities, which are not JSON, become null. Raises `TypeError`
    for a value that JSON cannot represent.
    """
    try:
        # Six times as fast as the standard library's: 0.4 us for a reply with two calls.
        return _JSON.encode(value)
    except (UnicodeEncodeError, TypeError):
        # msgspec rejects half pairs, and supports fewer types of keys.
        return _JSON.encode(json.loads(mend(json.dumps(value, ensure_ascii=False))))


def join(values: Iterable[Mapping[str, JsonValue]]) -> bytes:
    """Encode objects as JSON, separated by commas."""
    return b",".join(map(dump, values))


def extend_chunks(chunks: tuple[bytes, ...], pieces: Iterable[bytes]) -> tuple[bytes, ...]:
    """Append pieces to chunks. Short chunks are merged, so that few are left to join; a long one is not copied."""
    row = [*chunks]
    short = [row.pop()] if row and len(row[-1]) < CHUNK else []
    for piece in pieces:
        if len(piece) < CHUNK:
            short.append(piece)
        else:
            row += [b"".join(short), piece]
            short = []
    row.append(b"".join(short))
    return tuple([chunk for chunk in row if chunk])


def replies_of(message: Message) -> Iterator[tuple[ReasoningPart | None, list[TextPart | ToolCallPart]]]:
    """Return the replies in a message: one, unless messages were merged. Reasoning begins a reply."""
    reasoning: ReasoningPart | None = None
    parts: list[TextPart | ToolCallPart] = []
    for part in message.parts:
        if isinstance(part, ReasoningPart):
            yield reasoning, parts
            reasoning, parts = part, []
        elif isinstance(part, TextPart | ToolCallPart):
            parts.append(part)
    yield reasoning, parts


class EncoderOptions(TypedDict, total=False):
    """The options of every encoder: see `RequestEncoder`."""

    extra_body: Mapping[str, JsonValue] | None
    tool_choice_first: ToolChoice | None
    capabilities: Capabilities


class RequestEncoder(ABC, Generic[Encoded]):
    """Builds request bodies, and caches encoded messages and tools (`EncodedMessage`).

    `extra_body` is added to every request and overrides its fields, except those in `reserved`; a None in it removes a
    field. The settings of a request override it. `hosted_tools`, which `_check_hosted` checks, follow the tools of each
    request. `tool_choice_first` replaces `auto` in the first request of a turn. The requests were fitted to
    `capabilities`.

    Raises `ConfigError` for an `extra_body` that is not JSON or has a reserved field, for a hosted tool that the
    provider does not run, for another choice of tools, and for another type of `capabilities`.
    """

    #: The encoded beginnings of conversations.
    _beginnings: PrefixCache[Any]

    def __init__(
        self,
        model: str,
        encode_message: Callable[[Message], Encoded],
        encode_tool: Callable[[ToolSpec], bytes],
        reserved_fields: Collection[str],
        *,
        extra_body: Mapping[str, JsonValue] | None = None,
        tool_choice_first: ToolChoice | None = None,
        capabilities: Capabilities = _DEFAULTS,
        hosted_tools: Sequence[Mapping[str, JsonValue]] = (),
    ) -> None:
        if tool_choice_first is not None and tool_choice_first not in get_args(ToolChoice):
            raise ConfigError(f"tool_choice_first must be auto, required or none, not {tool_choice_first!r}")
        self._model = model
        self.capabilities = checked_capabilities(capabilities)
        self._extra_body = checked_extra(extra_body, reserved_fields)
        self._messages: EncodedMessage[Message, Encoded] = EncodedMessage(encode_message)
        #: Messages whose reasoning the server refused, without it.
        self._bare: EncodedMessage[Message, Message] = EncodedMessage(_without_reasoning)
        self._encode_tools: EncodedMessage[ToolSpec, bytes] = EncodedMessage(encode_tool)
        self._hosted = [dump(self._check_hosted(tool)) for tool in hosted_tools]
        self._tool_choice_first: ToolChoice | None = tool_choice_first

    @property
    def remembered(self) -> int:
        """The number of messages in the cache."""
        return len(self._messages)

    @abstractmethod
    def encode(self, request: ModelRequest, /) -> bytes:
        """Make the JSON body that asks for a streamed reply to `request`."""

    @abstractmethod
    def map_settings(self, settings: ModelSettings, /) -> MappedSettings:
        """Map settings to fields of a request. Raises `ConfigError` for an `extra_body` with a reserved field."""

    def rename_limit(self, _request: ModelRequest, _refusal: bytes, /) -> bytes | None:
        """Make another body of a request whose body was refused because of the name of its limit, or return None."""
        return None

    def refuse_reasoning(self, request: ModelRequest, refused_body: bytes) -> bytes | None:
        """Make the body of a request whose body was refused because of the reasoning in it; None if none differs.

        The reasoning of its messages is not sent from now on.
        """
        for message in request.messages:
            if any(isinstance(part, ReasoningPart) for part in message.parts):
                self._bare.of(message)
        body = self.encode(request)
        return None if body == refused_body else body

    def require_reasoning(self, request: ModelRequest, refused_body: bytes) -> bytes | None:
        """Make the body of a request whose body was refused because reasoning was missing; None if none differs.

        Reasoning is sent back from now on, as to a server that is known to require it.
        """
        field = self.capabilities.reasoning_field or "reasoning_content"
        self.capabilities = replace(self.capabilities, reasoning_field=field, reasoning_required=True)
        self._messages.clear()
        self._beginnings.clear()
        body = self.encode(request)
        return None if body == refused_body else body

    def _list_messages(self, request: ModelRequest) -> tuple[Message, ...]:
        """Return the messages of a request, without refused reasoning."""
        if not len(self._bare):
            return request.messages
        return tuple([self._bare.get(message) or message for message in request.messages])

    def _check_hosted(self, tool: object) -> dict[str, JsonValue]:
        """Check a tool that the provider runs. Raises `ConfigError`."""
        raise ConfigError(f"hosted_tools: this provider runs no tools, so it cannot run {tool!r}")

    def _choose(self, request: ModelRequest) -> ToolChoice:
        """Return the choice of tools of a request."""
        choice = request.tool_choice
        return self._tool_choice_first or choice if request.first and choice == "auto" else choice

    def _list_tools(self, request: ModelRequest, fields: dict[str, JsonValue]) -> list[bytes]:
        """Return the tools of a request, and the hosted ones. Those of its settings are taken out of `fields`."""
        of_request = map(dump, read_objects(fields.pop("tools", None)))
        return [*map(self._encode_tools.of, request.tools), *self._hosted, *of_request]

    def _check_hosted_of(self, mapped_settings: MappedSettings) -> MappedSettings:
        """Check the hosted tools among the fields of settings. Raises `ConfigError`."""
        tools = mapped_settings.body.get("tools")
        if tools is not None:
            if not isinstance(tools, list):
                raise ConfigError(f"model_settings.extra_body.tools must be a list of hosted tools, not {tools!r}")
            mapped_settings.body["tools"] = [self._check_hosted(tool) for tool in tools]
        return mapped_settings


def describe_output(output: OutputFormat) -> dict[str, JsonValue]:
    """Return the name and the schema that a text reply is held to: strictly, if the schema allows it."""
    strict = output.strict_schema
    if strict is None:
        return {"name": output.name, "schema": dict(output.schema)}
    return {"name": output.name, "schema": dict(strict), "strict": True}


def need_hosted(tool: object, example: str) -> tuple[Mapping[str, JsonValue], str]:
    """Return a hosted tool and its type. Raises `ConfigError` without a type; the message shows `example`."""
    kind = tool.get("type") if isinstance(tool, Mapping) else None
    if not isinstance(tool, Mapping) or not isinstance(kind, str) or not kind:
        raise ConfigError(f"hosted_tools has a tool without a type: write {example}, not {tool!r}")
    return tool, kind


#: The kinds of pictures that every vision model reads.
IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
#: A picture at an address, of unknown kind.
SOME_IMAGE: Final = "image/*"
PDF: Final = "application/pdf"


def media_type_of(part: FilePart) -> str:
    """Return the media type that APIs know: people write `image/jpg` for `image/jpeg`."""
    return "image/jpeg" if part.media_type == "image/jpg" else part.media_type


def in_words(part: FilePart) -> str:
    """Describe a file that the API does not accept: its name, with its text or its address."""
    name = f"{part.name} " if part.name else ""
    text = part.decoded_text
    if text:
        return f"A file, {name}({part.media_type}), holds:\n\n{text}"
    where = f"is at {part.url}" if part.url else "cannot be shown here."
    return f"A file, {name}({part.media_type}), {where}"
