"""Messages and their parts: what a transcript is made of, and what a model is sent.

The parts keep more than any provider takes (steps, sentinels): each model adapter sends what its provider knows
and leaves the rest.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

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

        `tool_calls` and `tool_call_id` are read too; content other than text is not. Raises `ValueError` for a
        message that is not of that format.
        """
        content = message.get("content")
        if content is not None and not isinstance(content, str):
            raise ValueError(f"content must be text, not {type(content).__name__}")
        if message.get("role") == "tool":
            return cls.result(str(message.get("tool_call_id", "")), str(message.get("name", "")), content or "")
        calls = message.get("tool_calls") or []
        parts: list[JsonValue] = [{"type": "text", "text": content}] if content else []
        parts += [_call_of(call) for call in calls] if isinstance(calls, list) else []
        return cls.model_validate({"role": message.get("role"), "parts": parts})


def _call_of(call: JsonValue) -> JsonValue:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        raise ValueError(f"a tool call must be {{'id': ..., 'function': {{...}}}}, not {call!r}")  # noqa: TRY004
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = json.loads(arguments or "{}")
    return {"type": "tool_call", "id": call.get("id"), "name": function.get("name"), "arguments": arguments}
