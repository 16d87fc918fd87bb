"""Messages and their parts, as a transcript holds them and a model receives them.

A message has more parts than a provider takes (steps, sentinels). Each model adapter sends what its provider supports.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self, final

import msgspec
from pydantic import Field, GetCoreSchemaHandler, JsonValue
from pydantic_core import CoreSchema, core_schema

from turnwright_states import CallStatus, EndReason, Outcome

from ._base.frozen import Value, refuse_constant
from .errors import ConfigError

Role = Literal["system", "user", "assistant", "tool"]

#: The largest file in a message, in bytes. It is kept in the journal and sent with every request.
MAX_FILE: Final = 32 * 1024 * 1024

_MEDIA_TYPE: Final = re.compile(r"[a-z]+/[\w.+*-]+")
#: The types of files with a text.
_TEXT_TYPE: Final = re.compile(
    r"text/.*|application/(?:.*\+|x-)?(?:json|jsonl|ndjson|xml|yaml|toml|markdown|javascript|sql|sh|tex)"
)
_DATA_URL: Final = re.compile(r"data:([^;,]*)(?:;[^,]*)?;base64,", re.IGNORECASE)


class ToolSpec(msgspec.Struct, frozen=True, weakref=True):
    """A tool as the model receives it: `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, JsonValue]


class OutputToolSpec(ToolSpec, frozen=True, weakref=True):
    """The tool by which a model gives the typed answer. `field` holds the answer if it is not an object; else empty."""

    field: str = ""


# The garbage collector may skip parts: a part is made after its contents, so it is in no reference cycle.
class Part(Value, frozen=True, kw_only=True, gc=False):
    """A part of a message. `seq` is its place in the turn, which rises from part to part."""

    type: ClassVar[str]

    seq: int = 0

    def to_json(self) -> dict[str, JsonValue]:
        """Return the part as JSON, with its `type`. `of_json` reads it."""
        return {"seq": self.seq, "type": self.type, **super().to_json()}


@final
class TextPart(Part, frozen=True, kw_only=True):
    """Text of a person, the model or the engine."""

    type: ClassVar[Literal["text"]] = "text"

    text: str


class FilePart(Part, frozen=True, kw_only=True):
    """A picture or a document: its content as base64 (`data`), or its address (`url`).

    `media_type` is a MIME type such as `image/png` or `application/pdf`, or `image/*` for an unknown picture. `name` is
    a file name. The provider decides which types its models read.

    Raises `ValueError` unless it has either a content or an address; for a content that is not base64 or larger than
    `MAX_FILE`, an address that is neither http(s) nor a `data:` URL, and an invalid media type.
    """

    type: ClassVar[Literal["file"]] = "file"

    media_type: str
    data: str = ""
    url: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        for name in ("media_type", "data", "url", "name"):
            if not isinstance(getattr(self, name), str):
                raise _unreadable(name, getattr(self, name), "text")
        for name, value in _inline(self.url).items():
            msgspec.structs.force_setattr(self, name, value)
        if not _MEDIA_TYPE.fullmatch(self.media_type):
            raise ValueError(f"media_type must be a MIME type such as image/png, not {self.media_type[:40]!r}")
        if bool(self.data) == bool(self.url):
            raise ValueError("a file must have either its content (data, as base64) or an address (url)")
        if self.url and not self.url.lower().startswith(("https://", "http://")):
            raise ValueError("url must begin with https:// or http://")
        if len(self.data) > MAX_FILE * 4 // 3 + 4:
            raise ValueError(f"the file is larger than {MAX_FILE:,} bytes")
        try:
            base64.b64decode(self.data, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("data must be base64") from None

    def __repr__(self) -> str:  # without the content, which may have megabytes
        return f"FilePart(media_type={self.media_type!r}, url={self.url!r}, name={self.name!r}, seq={self.seq})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read a file like any part. A `data:` URL contains its media type."""

        def read(fields: object) -> object:
            return {**fields, **_inline(fields.get("url"))} if isinstance(fields, Mapping) else fields

        fields = super().__get_pydantic_core_schema__(source, handler)
        return core_schema.no_info_before_validator_function(read, fields)

    @property
    def is_image(self) -> bool:
        """Whether the file is a picture."""
        return self.media_type.startswith("image/")

    @property
    def address(self) -> str:
        """The `url`, or the content as a `data:` URL."""
        return self.url or f"data:{self.media_type};base64,{self.data}"

    @property
    def decoded_text(self) -> str:
        """The content of a text file. It is empty for another kind, an address, and a content that is not UTF-8."""
        if self.url or not _TEXT_TYPE.fullmatch(self.media_type):
            return ""
        try:
            text = base64.b64decode(self.data).decode("utf-8-sig")
        except UnicodeDecodeError:
            return ""
        return text if text.strip() else ""

    def kept(self) -> dict[str, JsonValue]:
        """Return the file as the journal keeps it. `of_json` reads it."""
        return {name: field for name in ("media_type", "data", "url", "name") if (field := getattr(self, name))}

    @classmethod
    def of(cls, content: bytes, media_type: str, name: str = "") -> Self:
        """Make a file with this content. Raises `TypeError` unless it is bytes."""
        if not isinstance(content, bytes | bytearray):
            raise TypeError(f"the content of a file must be bytes, not {type(content).__name__}: encode a text first")
        return cls(media_type=media_type, data=base64.b64encode(content).decode(), name=name)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read the file at `path`. Its name gives the media type.

        Raises `ConfigError` if it cannot be read, is empty or too large, or has an unknown ending.
        """
        import mimetypes  # noqa: PLC0415 (few turns have files)

        from ._base.regular_files import FileTooLargeError, read_regular  # noqa: PLC0415

        path = Path(path)
        media_type, encoding = mimetypes.guess_type(path.name)
        if media_type is None or encoding is not None:
            raise ConfigError(f"file {path}: its type is unknown: give its name an ending such as .png or .pdf")
        try:
            content = read_regular(path, MAX_FILE)
        except FileTooLargeError:
            raise ConfigError(f"file {path}: it is larger than {MAX_FILE:,} bytes") from None
        except OSError as error:
            raise ConfigError(f"file {path}: it cannot be read: {error.strerror or error}") from None
        if not content:
            raise ConfigError(f"file {path}: it is empty")
        return cls.of(content, media_type, path.name)


class ReasoningPart(Part, frozen=True, kw_only=True):
    """Reasoning of the model. `details` are returned to the provider unchanged (signatures)."""

    type: ClassVar[Literal["reasoning"]] = "reasoning"

    text: str
    details: tuple[Mapping[str, JsonValue], ...] = ()


@final
class ToolCallPart(Part, frozen=True, kw_only=True):
    """A tool call of the model. `id` is ours, unique in the turn, and is sent to the provider."""

    type: ClassVar[Literal["tool_call"]] = "tool_call"

    id: str
    name: str
    #: Empty if the model's text was not a JSON object. The result then says so.
    arguments: Mapping[str, JsonValue] = msgspec.field(default_factory=dict)


@final
class ToolResultPart(Part, frozen=True, kw_only=True):
    """The result of a call: `text` for the model, and `structured`, the same as data for programs.

    `files` are sent to the model with the text, if its provider takes them. `retry`: the model is to make the call
    again, because its tool raised `Retry`, its tool or arguments did not exist or fit, or its reply was refused.
    """

    type: ClassVar[Literal["tool_result"]] = "tool_result"

    call: str
    name: str
    status: CallStatus = CallStatus.OK
    retry: bool = False
    text: str
    structured: JsonValue = None
    files: tuple[FilePart, ...] = ()


class StepStartPart(Part, frozen=True, kw_only=True):
    """The start of a step.

    `started_at` is the time in UTC (RFC 3339, to the millisecond), or None if the journal lacks it. `elapsed` is in
    seconds of driving since the turn began.
    """

    type: ClassVar[Literal["step_start"]] = "step_start"

    step_number: int
    started_at: str | None = None
    elapsed: float = 0.0


class StepFinishPart(Part, frozen=True, kw_only=True):
    """The end of a step: its usage, and its seconds of driving."""

    type: ClassVar[Literal["step_finish"]] = "step_finish"

    step_number: int
    input_tokens: int
    output_tokens: int
    seconds: float
    #: Parts of the input and output tokens.
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    #: Whether a review refused the step's reply: the model reads it, with the feedback, and people do not.
    refused: bool = False


class SentinelPart(Part, frozen=True, kw_only=True):
    """The text for the user about why the turn was stopped or no tool could run, and that they can continue."""

    type: ClassVar[Literal["sentinel"]] = "sentinel"

    kind: Outcome
    reason: EndReason
    text: str
    #: The provider's reason, if it refused the turn's last request for its content, and the `seq` of the first part
    #: that it had not accepted before. Later turns leave the messages from there on out.
    refusal: str = ""
    refused_from: int | None = None


#: Parts that no model receives.
_BOOKKEEPING: Final = frozenset({StepStartPart, StepFinishPart, SentinelPart})

AnyPart = Annotated[
    TextPart | FilePart | ReasoningPart | ToolCallPart | ToolResultPart | StepStartPart | StepFinishPart | SentinelPart,
    Field(discriminator="type"),
]


class Message(Value, frozen=True, kw_only=True, weakref=True):
    """A message of a conversation. A message of role `tool` has exactly one `ToolResultPart`."""

    role: Role
    parts: tuple[AnyPart, ...] = ()

    @property
    def text(self) -> str:
        """The text parts, joined. A tool's message has none: its result is a part, `message.parts[0].text`."""
        return "".join([part.text for part in self.parts if type(part) is TextPart])

    @property
    def files(self) -> tuple[FilePart, ...]:
        """The pictures and documents."""
        return tuple([part for part in self.parts if isinstance(part, FilePart)])

    @property
    def says_something(self) -> bool:
        """Whether it has any part besides steps and sentinels."""
        for part in self.parts:  # noqa: SIM110 (called for each message; a generator costs more than the loop)
            if type(part) not in _BOOKKEEPING:
                return True
        return False

    @property
    def calls(self) -> tuple[ToolCallPart, ...]:
        """The tool calls, in the model's order."""
        return tuple([part for part in self.parts if type(part) is ToolCallPart])

    @classmethod
    def system(cls, text: str) -> "Message":
        """Make a system message."""
        return cls(role="system", parts=(TextPart(text=text),))

    @classmethod
    def user(cls, text: str, files: Sequence[FilePart] = ()) -> "Message":
        """Make a user message: of a person, or of the engine in the user's role."""
        return cls(role="user", parts=(TextPart(text=text), *files))

    @classmethod
    def assistant(cls, text: str = "", calls: Sequence[ToolCallPart] = ()) -> "Message":
        """Make an assistant message."""
        return cls(role="assistant", parts=(*((TextPart(text=text),) if text else ()), *calls))

    @classmethod
    def result(
        cls, call: str, name: str, text: str, status: CallStatus = CallStatus.OK, files: Sequence[FilePart] = ()
    ) -> "Message":
        """Make the message of a call's result."""
        part = ToolResultPart(call=call, name=name, text=text, status=status, files=tuple(files))
        return cls(role="tool", parts=(part,))

    @classmethod
    def from_chat(cls, message: Mapping[str, JsonValue]) -> "Message":
        """Read a message of the chat completions format, such as `{"role": "user", "content": "..."}`.

        Content is text, null, or a list of parts: text, refusals, and in a user's message `image_url` and `file` with
        its content. `developer` is read as `system`. A missing id is empty. Arguments that are not a JSON object become
        `{}` (docs/rules.md#pairing). Unknown fields are left out.

        Raises `ValueError` for another format, for other content (sound), and for the old `function_call`.
        """
        if not isinstance(message, Mapping):
            raise _unreadable("a message", message, "a Message or a mapping (such as its model_dump())")
        role = str(message.get("role"))
        if role == "function" or message.get("function_call") is not None:
            raise ValueError("function_call and the role function are not supported: use tool_calls and the role tool")
        if role not in _CHAT_ROLES:
            raise ValueError(f"role must be one of {', '.join(_CHAT_ROLES)}, not {role!r}")
        content = [*_parts_of(message.get("content")), *_parts_of(message.get("refusal"))]
        if role != "user" and any(isinstance(part, FilePart) for part in content):
            raise ValueError(f"pictures and files must be in a message of role user, not {role}")
        text = "".join(part.text for part in content if isinstance(part, TextPart))
        calls = _calls_of(message.get("tool_calls"))
        if calls and role != "assistant":
            raise ValueError(f"tool_calls must be in a message of role assistant, not {role}")
        if role == "tool":
            call_id = _string_of("tool_call_id", message.get("tool_call_id"))
            return cls.result(call_id, _string_of("the name of a tool", message.get("name")), text)
        parts = (*(part for part in content if isinstance(part, FilePart) or part.text), *calls)
        return cls(role=_CHAT_ROLES[role], parts=parts)


#: The roles of the chat completions format, and ours.
_CHAT_ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


def _parts_of(content: JsonValue) -> list[TextPart | FilePart]:
    if content is None:
        return []
    if isinstance(content, str):
        return [TextPart(text=content)]
    if not isinstance(content, list):
        raise _unreadable("content", content, "text, or a list of parts")
    return [_part_of(part) for part in content]


def _part_of(part: JsonValue) -> TextPart | FilePart:
    if not isinstance(part, dict):
        raise _unreadable("a part of a content", part, "a mapping")
    kind = part.get("type")
    content = part.get(kind) if isinstance(kind, str) else None
    if kind in ("text", "refusal") and isinstance(content, str):
        return TextPart(text=content)
    if kind == "image_url" and isinstance(content, dict):
        return _file_of({"media_type": "image/*", "url": content.get("url")})
    if kind == "file" and isinstance(content, dict) and "file_data" in content:
        return _file_of({"url": content["file_data"], "name": content.get("filename") or ""})
    raise ValueError(f"content has a part of type {kind!r}: only text, pictures and files are supported")


def _file_of(fields: Mapping[str, JsonValue]) -> FilePart:
    try:
        return FilePart.of_json(fields)
    except ValueError as error:
        raise ValueError(f"content has an invalid file: {error}") from None


def _inline(url: object) -> dict[str, str]:
    """Return the fields of a file whose content is in a `data:` URL, so that there is one form only."""
    if not isinstance(url, str) or (match := _DATA_URL.match(url)) is None:
        return {}
    return {"media_type": match[1].lower() or "text/plain", "url": "", "data": url[match.end() :]}


def _calls_of(calls: JsonValue) -> list[ToolCallPart]:
    if not isinstance(calls, list | None):
        raise _unreadable("tool_calls", calls, "a list")
    return [_call_of(call) for call in calls or ()]


def _call_of(call: JsonValue) -> ToolCallPart:
    form = "{'id': ..., 'type': 'function', 'function': {'name': ..., 'arguments': ...}}"
    if not isinstance(call, dict):
        raise _unreadable("a tool call", call, form)
    function = call.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str):
        kind = call.get("type")
        raise ValueError(f"a tool call must be {form}, not of type {kind!r}")  # noqa: TRY004 (see from_chat)
    identifier = _string_of("the id of a tool call", call.get("id"))
    return ToolCallPart(id=identifier, name=name, arguments=_arguments_of(function.get("arguments")))


def _arguments_of(arguments: JsonValue) -> dict[str, JsonValue]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, parse_constant=refuse_constant)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, dict) else {}


def _string_of(subject: str, value: JsonValue) -> str:
    if value is not None and not isinstance(value, str):
        raise _unreadable(subject, value, "text")
    return value or ""


def _unreadable(subject: str, value: object, form: str) -> ValueError:
    """Return an error that names the type of the value and not the value, which may be a picture."""
    return ValueError(f"{subject} must be {form}, not {type(value).__name__}")
