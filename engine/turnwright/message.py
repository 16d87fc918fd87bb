"""Messages and their parts: what a transcript is made of, and what a model is sent.

The parts keep more than any provider takes (steps, sentinels): each model adapter sends what its provider knows
and leaves the rest.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from turnwright_states import CallStatus, EndReason, Outcome

Role = Literal["system", "user", "assistant", "tool"]


class Part(BaseModel):
    """A part of a message. `seq` is its place in the turn; no two parts of a turn share one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int = 0


class TextPart(Part):
    """Text that a person, the model or the engine wrote."""

    type: Literal["text"] = "text"
    text: str


class ReasoningPart(Part):
    """What the model thought aloud. `details` goes back to the provider unchanged (signatures)."""

    type: Literal["reasoning"] = "reasoning"
    text: str
    details: tuple[Mapping[str, JsonValue], ...] = ()


class ToolCallPart(Part):
    """A call that the model asked for. `id` is ours, unique in the turn, and is what is sent."""

    type: Literal["tool_call"] = "tool_call"
    id: str
    name: str
    #: Empty where the model's text was not a JSON object; the result then says so.
    arguments: Mapping[str, JsonValue] = Field(default_factory=dict)


class ToolResultPart(Part):
    """The one result of a call."""

    type: Literal["tool_result"] = "tool_result"
    call: str
    name: str
    status: CallStatus = CallStatus.OK
    text: str


class StepStartPart(Part):
    """A step began: its number, and the seconds of driving at which it did."""

    type: Literal["step_start"] = "step_start"
    step_number: int
    started_at: float


class StepFinishPart(Part):
    """A step ended: what it used, and how long it took in seconds of driving."""

    type: Literal["step_finish"] = "step_finish"
    step_number: int
    input_tokens: int
    output_tokens: int
    seconds: float


class SentinelPart(Part):
    """Tells the user why the turn was stopped, and what to do next."""

    type: Literal["sentinel"] = "sentinel"
    kind: Outcome
    reason: EndReason
    text: str


AnyPart = Annotated[
    TextPart | ReasoningPart | ToolCallPart | ToolResultPart | StepStartPart | StepFinishPart | SentinelPart,
    Field(discriminator="type"),
]


class Message(BaseModel):
    """One message of a conversation. A message of role `tool` holds exactly one `ToolResultPart`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Role
    parts: tuple[AnyPart, ...] = ()

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def says_something(self) -> bool:
        """Whether there is anything in it but the engine's bookkeeping (steps and sentinels)."""
        return not all(isinstance(part, StepStartPart | StepFinishPart | SentinelPart) for part in self.parts)

    @property
    def calls(self) -> tuple[ToolCallPart, ...]:
        """The tool calls, in the order in which the model asked for them."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))

    @classmethod
    def system(cls, text: str) -> "Message":
        """An instruction."""
        return cls(role="system", parts=(TextPart(text=text),))

    @classmethod
    def user(cls, text: str) -> "Message":
        """What a person says, or what the engine says in a person's place."""
        return cls(role="user", parts=(TextPart(text=text),))

    @classmethod
    def assistant(cls, text: str = "", calls: Sequence[ToolCallPart] = ()) -> "Message":
        """What a model said."""
        return cls(role="assistant", parts=(*((TextPart(text=text),) if text else ()), *calls))

    @classmethod
    def result(cls, call: str, name: str, text: str, status: CallStatus = CallStatus.OK) -> "Message":
        """The result of one call."""
        return cls(role="tool", parts=(ToolResultPart(call=call, name=name, text=text, status=status),))

    @classmethod
    def from_chat(cls, message: Mapping[str, JsonValue]) -> "Message":
        """Read a message of the chat completions format, such as `{"role": "user", "content": "..."}`.

        Content is text, null, or a list of text parts; a refusal is text. `developer` is read as `system`. A call or
        a result without an id has the empty one. Arguments that are not a JSON object are read as none (DESIGN 4.8).
        What is not known to this package (`name` of a person, `annotations`) is left out.

        Raises `ValueError` for a message that is not of that format, for content other than text, and for
        `function_call`, which came before `tool_calls`.
        """
        if not isinstance(message, Mapping):
            raise _unreadable("a message", message, "a Message or a mapping (such as its model_dump())")
        role = str(message.get("role"))
        if role == "function" or message.get("function_call") is not None:
            raise ValueError("function_call and the role function are not read: write tool_calls and the role tool")
        if role not in _CHAT_ROLES:
            raise ValueError(f"role is one of {', '.join(_CHAT_ROLES)}, not {role!r}")
        texts = [*_texts_of(message.get("content")), *_texts_of(message.get("refusal"))]
        calls = _calls_of(message.get("tool_calls"))
        if calls and role != "assistant":
            raise ValueError(f"tool_calls belong to the role assistant, not to {role}")
        if role == "tool":
            answered = _string_of("tool_call_id", message.get("tool_call_id"))
            return cls.result(answered, _string_of("the name of a tool", message.get("name")), "".join(texts))
        parts = (*(TextPart(text=text) for text in texts if text), *calls)
        return cls(role=_CHAT_ROLES[role], parts=parts)


#: The roles of the chat completions format, and what they are here.
_CHAT_ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


def _texts_of(content: JsonValue) -> list[str]:
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise _unreadable("content", content, "text, or a list of text parts")
    return [_text_of(part) for part in content]


def _text_of(part: JsonValue) -> str:
    if not isinstance(part, dict):
        raise _unreadable("a part of a content", part, "a mapping")
    kind = part.get("type")
    text = part.get(kind) if kind in ("text", "refusal") and isinstance(kind, str) else None
    if not isinstance(text, str):
        raise ValueError(f"content holds a part of type {kind!r}, but only text is read")  # noqa: TRY004 (see from_chat)
    return text


def _calls_of(calls: JsonValue) -> list[ToolCallPart]:
    if calls is None:
        return []
    if not isinstance(calls, list):
        raise _unreadable("tool_calls", calls, "a list")
    return [_call_of(call) for call in calls]


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
