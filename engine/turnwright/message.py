"""Messages and their parts, as a transcript holds them and a model receives them.

The parts keep more than any provider takes (steps, sentinels): each model adapter sends what its provider knows
and leaves the rest.
"""

import base64
import binascii
import json
import mimetypes
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, NoReturn, Self, final

import msgspec
from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, JsonValue
from pydantic_core import CoreSchema, core_schema

from turnwright_states import CallStatus, EndReason, Outcome

from ._base.frozen import Value
from .errors import ConfigError

Role = Literal["system", "user", "assistant", "tool"]

#: The largest file that a message may hold, in bytes. It stands in the journal, and goes out with every request.
MAX_FILE: Final = 32 * 1024 * 1024

_MEDIA_TYPE: Final = re.compile(r"[a-z]+/[\w.+*-]+")
_DATA_URL: Final = re.compile(r"data:([^;,]*)(?:;[^,]*)?;base64,", re.IGNORECASE)


class ToolSpec(msgspec.Struct, frozen=True, weakref=True):
    """A tool as the model sees it: `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, JsonValue]


# The garbage collector need not look at parts: a part is made after all that it holds, so no cycle goes through one.
class Part(Value, frozen=True, kw_only=True, gc=False):
    """A part of a message. `seq` is its place in the turn, which rises from part to part."""

    type: ClassVar[str]

    seq: int = 0

    def to_json(self) -> dict[str, JsonValue]:
        """The part as JSON, with its `type`; `of_json` takes it back."""
        return {"seq": self.seq, "type": self.type, **super().to_json()}


@final
class TextPart(Part, frozen=True, kw_only=True):
    """Text that a person, the model or the engine wrote."""

    type: ClassVar[Literal["text"]] = "text"

    text: str


class FilePart(Part, frozen=True, kw_only=True):
    """A picture or a document: its content as base64 (`data`), or the address where the provider finds it (`url`).

    `media_type` is a MIME type, such as `image/png` or `application/pdf`; `image/*` where only that is known. `name`
    is a file name, for people and for providers that want one. Which types a model reads is its provider's affair.

    Raises `ValueError` unless there is either content or an address, for content that is not base64 or larger than
    `MAX_FILE`, an address that is neither http(s) nor a `data:` URL, and a media type that is none.
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
        for name, value in _inlined(self.url).items():
            msgspec.structs.force_setattr(self, name, value)
        if not _MEDIA_TYPE.fullmatch(self.media_type):
            raise ValueError(f"media_type is a MIME type such as image/png, not {self.media_type[:40]!r}")
        if bool(self.data) == bool(self.url):
            raise ValueError("a file has either its content (data, as base64) or an address (url)")
        if self.url and not self.url.lower().startswith(("https://", "http://")):
            raise ValueError("url is an address that begins with https:// or http://")
        if len(self.data) > MAX_FILE * 4 // 3 + 4:
            raise ValueError(f"the file is larger than {MAX_FILE:,} bytes")
        try:
            base64.b64decode(self.data, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("data is the content as base64") from None

    def __repr__(self) -> str:  # without the content: a picture is a megabyte of letters
        return f"FilePart(media_type={self.media_type!r}, url={self.url!r}, name={self.name!r}, seq={self.seq})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """As of any part. A `data:` URL says itself of which media type it is."""

        def read(fields: object) -> object:
            return {**fields, **_inlined(fields.get("url"))} if isinstance(fields, Mapping) else fields

        fields = super().__get_pydantic_core_schema__(source, handler)
        return core_schema.no_info_before_validator_function(read, fields)

    @property
    def is_image(self) -> bool:
        """Whether it is a picture."""
        return self.media_type.startswith("image/")

    @property
    def address(self) -> str:
        """Its `url`, or its content as a `data:` URL."""
        return self.url or f"data:{self.media_type};base64,{self.data}"

    def kept(self) -> dict[str, JsonValue]:
        """The file as a journal keeps it; `of_json` takes it back."""
        return {name: said for name in ("media_type", "data", "url", "name") if (said := getattr(self, name))}

    @classmethod
    def of(cls, content: bytes, media_type: str, name: str = "") -> Self:
        """A file with this content. Raises `TypeError` for content that is no bytes."""
        if not isinstance(content, bytes | bytearray):
            raise TypeError(f"the content of a file is bytes, and not {type(content).__name__}: encode a text first")
        return cls(media_type=media_type, data=base64.b64encode(content).decode(), name=name)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The file at `path`; its name says what it is.

        Raises `ConfigError` if it cannot be read, is empty or too large, or has a name that does not tell what it is.
        """
        from ._base.regular_files import FileTooLargeError, read_regular  # noqa: PLC0415 (few turns have files)

        path = Path(path)
        media_type, packed = mimetypes.guess_type(path.name)
        if media_type is None or packed is not None:
            raise ConfigError(
                f"file {path}: its name does not say what is in it: give it an ending such as .png or .pdf"
            )
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
    """What the model thought aloud. `details` goes back to the provider unchanged (signatures)."""

    type: ClassVar[Literal["reasoning"]] = "reasoning"

    text: str
    details: tuple[Mapping[str, JsonValue], ...] = ()


@final
class ToolCallPart(Part, frozen=True, kw_only=True):
    """A call that the model asked for. `id` is ours, unique in the turn, and is what is sent."""

    type: ClassVar[Literal["tool_call"]] = "tool_call"

    id: str
    name: str
    #: Empty where the model's text was not a JSON object; the result then says so.
    arguments: Mapping[str, JsonValue] = msgspec.field(default_factory=dict)


@final
class ToolResultPart(Part, frozen=True, kw_only=True):
    """The one result of a call: what the model reads, and the same as data for programs (`structured`).

    `files` are shown to the model with the text, where its provider takes them.
    """

    type: ClassVar[Literal["tool_result"]] = "tool_result"

    call: str
    name: str
    status: CallStatus = CallStatus.OK
    text: str
    structured: JsonValue = None
    files: tuple[FilePart, ...] = ()


class StepStartPart(Part, frozen=True, kw_only=True):
    """A step began: its number, and when.

    `started_at` is the time in UTC (RFC 3339, to the millisecond), None where the journal does not have it; `elapsed`
    is in seconds of driving since the turn began.
    """

    type: ClassVar[Literal["step_start"]] = "step_start"

    step_number: int
    #: A history that an earlier release wrote has seconds of driving here.
    started_at: Annotated[str | None, BeforeValidator(lambda at: None if isinstance(at, int | float) else at)] = None
    elapsed: float = 0.0


class StepFinishPart(Part, frozen=True, kw_only=True):
    """A step ended: what it used, and how long it took in seconds of driving."""

    type: ClassVar[Literal["step_finish"]] = "step_finish"

    step_number: int
    input_tokens: int
    output_tokens: int
    seconds: float


class SentinelPart(Part, frozen=True, kw_only=True):
    """Tells the user why the turn was stopped, or why no tool could run, and that they can continue."""

    type: ClassVar[Literal["sentinel"]] = "sentinel"

    kind: Outcome
    reason: EndReason
    text: str


#: What only the engine and people read.
_BOOKKEEPING: Final = frozenset({StepStartPart, StepFinishPart, SentinelPart})

AnyPart = Annotated[
    TextPart | FilePart | ReasoningPart | ToolCallPart | ToolResultPart | StepStartPart | StepFinishPart | SentinelPart,
    Field(discriminator="type"),
]


class Message(Value, frozen=True, kw_only=True, weakref=True):
    """One message of a conversation. A message of role `tool` holds exactly one `ToolResultPart`."""

    role: Role
    parts: tuple[AnyPart, ...] = ()

    @property
    def text(self) -> str:
        """The text parts, joined. A tool's message has none: its result is a part, `message.parts[0].text`."""
        return "".join([part.text for part in self.parts if type(part) is TextPart])

    @property
    def files(self) -> tuple[FilePart, ...]:
        """The pictures and documents, in their order."""
        return tuple([part for part in self.parts if isinstance(part, FilePart)])

    @property
    def says_something(self) -> bool:
        """Whether there is anything in it but the engine's bookkeeping (steps and sentinels)."""
        for part in self.parts:  # noqa: SIM110 (each message of a turn is asked, and a generator costs more than it does)
            if type(part) not in _BOOKKEEPING:
                return True
        return False

    @property
    def calls(self) -> tuple[ToolCallPart, ...]:
        """The tool calls, in the order in which the model asked for them."""
        return tuple([part for part in self.parts if type(part) is ToolCallPart])

    @classmethod
    def system(cls, text: str) -> "Message":
        """An instruction."""
        return cls(role="system", parts=(TextPart(text=text),))

    @classmethod
    def user(cls, text: str, files: Sequence[FilePart] = ()) -> "Message":
        """What a person says, with what she shows, or what the engine says in a person's place."""
        return cls(role="user", parts=(TextPart(text=text), *files))

    @classmethod
    def assistant(cls, text: str = "", calls: Sequence[ToolCallPart] = ()) -> "Message":
        """What a model said."""
        return cls(role="assistant", parts=(*((TextPart(text=text),) if text else ()), *calls))

    @classmethod
    def result(
        cls, call: str, name: str, text: str, status: CallStatus = CallStatus.OK, files: Sequence[FilePart] = ()
    ) -> "Message":
        """The result of one call."""
        part = ToolResultPart(call=call, name=name, text=text, status=status, files=tuple(files))
        return cls(role="tool", parts=(part,))

    @classmethod
    def from_chat(cls, message: Mapping[str, JsonValue]) -> "Message":
        """Read a message of the chat completions format, such as `{"role": "user", "content": "..."}`.

        Content is text, null, or a list of parts: text, and in a user's message `image_url` and `file` with its
        content; a refusal is text. `developer` is read as `system`. A call or a result without an id has the empty one.
        Arguments that are not a JSON object are read as none (DESIGN 4.8). What is not known to this package (`name` of
        a person, `annotations`) is left out.

        Raises `ValueError` for a message that is not of that format, for content of other kinds (sound), and for
        `function_call`, which came before `tool_calls`.
        """
        if not isinstance(message, Mapping):
            raise _unreadable("a message", message, "a Message or a mapping (such as its model_dump())")
        role = str(message.get("role"))
        if role == "function" or message.get("function_call") is not None:
            raise ValueError("function_call and the role function are not read: write tool_calls and the role tool")
        if role not in _CHAT_ROLES:
            raise ValueError(f"role is one of {', '.join(_CHAT_ROLES)}, not {role!r}")
        content = [*_parts_of(message.get("content")), *_parts_of(message.get("refusal"))]
        if role != "user" and any(isinstance(part, FilePart) for part in content):
            raise ValueError(f"pictures and files belong to the role user, not to {role}")
        text = "".join(part.text for part in content if isinstance(part, TextPart))
        calls = _calls_of(message.get("tool_calls"))
        if calls and role != "assistant":
            raise ValueError(f"tool_calls belong to the role assistant, not to {role}")
        if role == "tool":
            answered = _string_of("tool_call_id", message.get("tool_call_id"))
            return cls.result(answered, _string_of("the name of a tool", message.get("name")), text)
        parts = (*(part for part in content if isinstance(part, FilePart) or part.text), *calls)
        return cls(role=_CHAT_ROLES[role], parts=parts)


#: The roles of the chat completions format, and what they are here.
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
    said = part.get(kind) if isinstance(kind, str) else None
    if kind in ("text", "refusal") and isinstance(said, str):
        return TextPart(text=said)
    if kind == "image_url" and isinstance(said, dict):
        return _file_of({"media_type": "image/*", "url": said.get("url")})
    if kind == "file" and isinstance(said, dict) and "file_data" in said:
        return _file_of({"url": said["file_data"], "name": said.get("filename") or ""})
    raise ValueError(f"content holds a part of type {kind!r}, but only text, pictures and files are read")


def _file_of(fields: Mapping[str, JsonValue]) -> FilePart:
    try:
        return FilePart.of_json(fields)
    except ValueError as error:
        raise ValueError(f"content holds a file that cannot be read: {error}") from None


def _inlined(url: object) -> dict[str, str]:
    """The fields of a file whose content stands in a `data:` URL: there is one way to say the same."""
    if not isinstance(url, str) or (found := _DATA_URL.match(url)) is None:
        return {}
    return {"media_type": found[1].lower() or "text/plain", "url": "", "data": url[found.end() :]}


def _calls_of(calls: JsonValue) -> list[ToolCallPart]:
    if not isinstance(calls, list | None):
        raise _unreadable("tool_calls", calls, "a list")
    return [_call_of(call) for call in calls or ()]


def _call_of(call: JsonValue) -> ToolCallPart:
    wanted = "{'id': ..., 'type': 'function', 'function': {'name': ..., 'arguments': ...}}"
    if not isinstance(call, dict):
        raise _unreadable("a tool call", call, wanted)
    function = call.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str):
        kind = call.get("type")
        raise ValueError(f"a tool call is {wanted}; one of type {kind!r} is not")  # noqa: TRY004 (see from_chat)
    identifier = _string_of("the id of a tool call", call.get("id"))
    return ToolCallPart(id=identifier, name=name, arguments=_arguments_of(function.get("arguments")))


def _arguments_of(arguments: JsonValue) -> dict[str, JsonValue]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, parse_constant=_no_number)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, dict) else {}


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _string_of(what: str, value: JsonValue) -> str:
    if value is not None and not isinstance(value, str):
        raise _unreadable(what, value, "text")
    return value or ""


def _unreadable(what: str, value: object, wanted: str) -> ValueError:
    """Name the type of what is wrong, and not the thing itself: it may be a picture."""
    return ValueError(f"{what} is {wanted}, not {type(value).__name__}")
