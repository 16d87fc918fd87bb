"""The public events of a turn: one for each journaled fact, and the pieces of a reply.

A fact's event has the fact's `seq`. A piece has the last `seq`, and an `index` that counts within the attempt.
`to_json` is one line of `turnwright run --json`.

The event that ends a step's tools has their result in its field `tools`: the calls, how many of them count for the
tool-call limit, and the id of the next assistant message:

    step_finished   continue        the limits are checked again
    paused          paused          a person is asked; the same message continues afterwards
    synthesized     synthesis_done  the turn ends with the text of the synthesis

Message ids are `{turn}/assistant-{n}`: step n makes the n-th (`step_started` has it as `message`), and the conclusion
is one more. `tool_phase.message_ids` returns the ids of a transcript's messages.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Final, Generic, Literal, TypeAlias, cast

import msgspec
from pydantic import JsonValue
from pydantic_core import from_json
from typing_extensions import TypeVar

from turnwright.message import SentinelPart
from turnwright_states import EndReason, Outcome, Turn, Usage
from turnwright_states import facts as f
from turnwright_states.fact import TOKENS, PublicFields, PublicPart, allow

from .interrupt import Interrupt, JsonLine
from .tool_phase import ToolPhase, assistant_id
from .transcript import Transcript
from .wording import notice_text

#: Only what followers of a turn use.
__all__ = [
    "DeltaEvent",
    "FactEvent",
    "Interrupt",
    "JsonLine",
    "OutputDeltaEvent",
    "ReasoningDeltaEvent",
    "ResponseRestartedEvent",
    "ResponseWithdrawnEvent",
    "StreamEvent",
    "TextDeltaEvent",
    "ToolCallDeltaEvent",
    "ToolProgressEvent",
    "TurnEndedEvent",
    "TurnEvent",
    "TurnPausedEvent",
    "partial_arguments",
]

#: Fields that a line has even at their defaults, because an `ok` says something.
_ALWAYS: Final = frozenset({"status", "finish", "text", "result"})
#: Fields with files, or with messages that may have files.
_WITH_FILES: Final = frozenset({"files", "message_history"})
#: Fields that are public in every line.
_EVERYWHERE: Final = allow("type", "turn", "seq", "elapsed", "state")


#: The `type` of a `FactEvent`: all kinds of facts, but the two that have events of their own.
FactType: TypeAlias = Literal[
    "answered",
    "attempt_failed",
    "call_settled",
    "call_started",
    "call_waiting",
    "compacted",
    "compaction_started",
    "concluded",
    "message_added",
    "model_replied",
    "notice",
    "request_prepared",
    "reviewed",
    "step_finished",
    "step_started",
    "stopping",
    "synthesized",
    "turn_started",
]
#: The `type` of an event. Type checkers narrow a `StreamEvent` by it.
TypeT_co = TypeVar("TypeT_co", bound=str, default=str, covariant=True)


class TurnEvent(msgspec.Struct, Generic[TypeT_co], frozen=True):
    """An event of the turn `turn`, at its fact `seq`. The base of all events; `StreamEvent` is any of them."""

    #: The type of the event. A `FactEvent` has its fact's.
    kind: ClassVar[str]
    #: Which fields of its line may be sent to a browser, and which may not (`turnwright_states.fact`).
    public_fields: ClassVar[PublicFields] = {}
    private_fields: ClassVar[frozenset[str]] = frozenset()
    turn: str
    seq: int

    @property
    def type(self) -> TypeT_co:
        """The type of the event, the first field of its JSON line."""
        return cast("TypeT_co", self.kind)

    def to_json(self) -> JsonLine:
        """Return the event as a JSON object with `type`, `turn` and `seq` first.

        It is complete, for your own programs. `public` is for a browser.
        """
        return {"type": self.type, **{name: getattr(self, name) for name in self.__struct_fields__}}

    def public(self) -> JsonLine:
        """Return the part of `to_json` that may be sent to a browser: the conversation, and the turn's progress.

        Left out are the agent's instructions, limits, imported history, metadata and session, the model's reasoning,
        prices, and errors, which may name hosts and files (docs/security.md#what-a-browser-is-sent). Only listed fields
        are public.
        """
        return _public(self.to_json(), {**_EVERYWHERE, **self._public_fields()})

    def _public_fields(self) -> PublicFields:
        return self.public_fields


class FactEvent(TurnEvent[FactType], frozen=True):
    """A fact was journaled. `type` is the fact's kind.

    `message` is the id of the message that a `step_started` begins. `tool` is the tool name of a fact about a call, as
    the model wrote it. `tools` is the result of a step's tools, if this fact ended them. `text` is a notice for people.
    """

    fact: f.Fact
    message: str = ""
    tools: ToolPhase | None = None
    text: str = ""
    tool: str = ""

    @property
    def type(self) -> FactType:
        """The fact's kind."""
        return cast("FactType", self.fact.kind)

    def to_json(self) -> JsonLine:
        """Return the fact's fields without the hash. Most defaults are left out.

        A file has its `size` in bytes in place of its content, which is in the journal.
        """
        fields = self.fact.to_json()
        fields.pop("hash", None)
        for name in _WITH_FILES & fields.keys():
            fields[name] = without_content(fields[name])
        for name in _ALWAYS.intersection(self.fact.__struct_fields__):
            value = getattr(self.fact, name)
            fields.setdefault(name, None if value is None else str(value))
        line = {"type": self.type, "turn": self.turn, "seq": self.seq, **fields}
        if self.message:
            line["message"] = self.message
        if self.tool:
            line["tool"] = self.tool
        if self.tools is not None:
            line["tools"] = self.tools.to_json(self.turn)
        if self.text:
            line["text"] = self.text
        return line

    def _public_fields(self) -> PublicFields:
        # A field of the event replaces the fact's field of that name, which may be private.
        own_fields = allow(*(name for name in ("message", "tool", "tools", "text") if getattr(self, name)))
        return {**self.fact.public_fields, **own_fields}


class DeltaEvent(TurnEvent[TypeT_co], frozen=True):
    """A piece of a reply: the `index`-th of this attempt."""

    index: int


class TextDeltaEvent(DeltaEvent[Literal["text_delta"]], frozen=True):
    """A piece of the answer."""

    public_fields = allow("index", "text")
    kind = "text_delta"
    text: str


class ReasoningDeltaEvent(DeltaEvent[Literal["reasoning_delta"]], frozen=True):
    """A piece of the model's reasoning."""

    public_fields = allow("index")
    private_fields = frozenset({"text"})
    kind = "reasoning_delta"
    text: str


class ToolCallDeltaEvent(DeltaEvent[Literal["tool_call_delta"]], frozen=True):
    """A piece of the arguments of a tool call.

    `call_index` counts the calls of the reply from 0, and `tool` is the name that the model gave. `arguments_delta` is
    the next part of the arguments' JSON text; the first piece of a call may be empty. Nothing has been checked yet:
    the calls of the reply are those of the fact `model_replied`.
    """

    public_fields = allow("index", "call_index", "tool", "arguments_delta")
    kind = "tool_call_delta"
    call_index: int
    tool: str
    arguments_delta: str


class OutputDeltaEvent(TurnEvent[Literal["output_delta"]], frozen=True):
    """The typed answer as far as it has streamed in. Nothing of `partial` is validated."""

    public_fields = allow("partial")
    kind = "output_delta"
    partial: JsonValue


class ResponseRestartedEvent(TurnEvent[Literal["response_restarted"]], frozen=True):
    """The model is called again: discard the pieces of the reply so far."""

    kind = "response_restarted"


class ResponseWithdrawnEvent(TurnEvent[Literal["response_withdrawn"]], frozen=True):
    """The output guardrail tripped on a reply whose pieces were streamed: remove what was shown of it."""

    kind = "response_withdrawn"
    public_fields = allow("guardrail")
    guardrail: str


class ToolProgressEvent(TurnEvent[Literal["tool_progress"]], frozen=True):
    """A running call reports `progress` of `total`, if known, in a unit of its own.

    It is not journaled, and none follows the call's result or its pause.
    """

    kind = "tool_progress"
    public_fields = allow("call", "tool", "progress", "total", "message")
    call: str
    tool: str
    progress: float
    total: float | None = None
    message: str = ""


class TurnPausedEvent(TurnEvent[Literal["paused"]], frozen=True):
    """The turn is paused until all of `interrupts` are answered. `tools` is set unless a doom loop is asked about."""

    kind = "paused"
    public_fields = allow("tools", interrupts=Interrupt.public_fields)
    interrupts: tuple[Interrupt, ...]
    tools: ToolPhase | None = None

    def to_json(self) -> JsonLine:
        """Return the last line of a paused turn."""
        interrupts: list[JsonValue] = [interrupt.to_json() for interrupt in self.interrupts]
        line: JsonLine = {"type": self.type, "turn": self.turn, "seq": self.seq, "interrupts": interrupts}
        if self.tools is not None:
            line["tools"] = self.tools.to_json(self.turn)
        return line


class TurnEndedEvent(TurnEvent[Literal["turn_ended"]], frozen=True):
    """The turn has ended. `sentinel` says why it was stopped, if it was."""

    kind = "turn_ended"
    public_fields = allow(
        *("outcome", "reason", "also_reached", "steps", "tool_calls", "text", "partial", "undelivered"),
        usage=TOKENS,
        sentinel=allow("kind", "reason", "text"),
        guardrail=f.TrippedGuardrail.public_fields,
    )
    private_fields = frozenset({"error"})
    outcome: Outcome
    reason: EndReason
    also_reached: tuple[EndReason, ...]
    steps: int
    tool_calls: int
    text: str
    usage: Usage
    error: str = ""
    undelivered: tuple[str, ...] = ()
    sentinel: SentinelPart | None = None
    #: The received part of a reply that was cut off. It is a message of its own.
    partial: str = ""
    #: The guardrail that ended it, if one did.
    guardrail: f.TrippedGuardrail | None = None

    def to_json(self) -> JsonLine:
        """Return the last line of an ended turn."""
        line: JsonLine = {
            "type": self.type,
            "turn": self.turn,
            "seq": self.seq,
            "outcome": str(self.outcome),
            "reason": str(self.reason),
            "also_reached": [str(reason) for reason in self.also_reached],
            "steps": self.steps,
            "tool_calls": self.tool_calls,
            "text": self.text,
            "usage": self.usage.to_json(),
        }
        if self.error:
            line["error"] = self.error
        if self.guardrail is not None:
            trip = self.guardrail
            line["guardrail"] = {
                "name": trip.name,
                "message": trip.message,
                "checks": trip.checks,
                "metadata": dict(trip.metadata),
            }
        if self.undelivered:
            line["undelivered"] = list(self.undelivered)
        if self.sentinel is not None:
            line["sentinel"] = {
                "kind": str(self.sentinel.kind),
                "reason": str(self.sentinel.reason),
                "text": self.sentinel.text,
            }
        return line


#: Any event of a turn: `event.type == "text_delta"` makes it a `TextDeltaEvent` for type checkers.
StreamEvent: TypeAlias = (
    FactEvent
    | TextDeltaEvent
    | ReasoningDeltaEvent
    | ToolCallDeltaEvent
    | OutputDeltaEvent
    | ResponseRestartedEvent
    | ResponseWithdrawnEvent
    | ToolProgressEvent
    | TurnPausedEvent
    | TurnEndedEvent
)


def partial_arguments(text: str) -> JsonLine:
    """Read the beginning of a call's arguments, the joined `arguments_delta`s of its `ToolCallDeltaEvent`s.

    Returns what is known of the JSON object so far, with unfinished strings; empty if the text is none.
    """
    try:
        value: JsonValue = from_json(text, allow_partial="trailing-strings")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _public(line: Mapping[str, JsonValue], public: PublicFields) -> JsonLine:
    return {name: _public_part(value, public[name]) for name, value in line.items() if name in public}


def _public_part(value: JsonValue, rule: PublicPart) -> JsonValue:
    if rule is None or value is None:
        return value
    if isinstance(value, list):
        return [_public_part(item, rule) for item in value]
    return _public(value, rule) if isinstance(value, dict) else None


def without_content(value: JsonValue) -> JsonValue:
    """Return files, or messages with files, as JSON with the `size` in bytes in place of the content (`data`)."""
    if isinstance(value, list):
        return [without_content(item) for item in value]
    if not isinstance(value, dict):
        return value
    data = value.get("data")
    if "media_type" not in value or not isinstance(data, str):
        return {name: without_content(item) if name in ("parts", "files") else item for name, item in value.items()}
    other_items = {name: item for name, item in value.items() if name != "data"}
    return {**other_items, "size": content_size(data)} if data else other_items


def content_size(data: str) -> int:
    """Return the size in bytes of a base64 text."""
    return len(data) * 3 // 4 - data[-2:].count("=")


def event_of(turn_id: str, seq: int, fact: f.Fact, transcript: Transcript) -> StreamEvent:
    """Return the event of the fact at `seq`, the last one in `transcript`."""
    turn, message, tool, text = transcript.turn, "", "", ""
    tools: ToolPhase | None = None
    match fact:
        case f.TurnEnded():
            return TurnEndedEvent(
                turn=turn_id,
                seq=seq,
                outcome=fact.outcome,
                reason=fact.reason,
                also_reached=fact.also_reached,
                steps=turn.steps_taken,
                tool_calls=turn.counters.calls,
                text=transcript.text,
                usage=turn.usage,
                error=fact.error,
                undelivered=fact.undelivered,
                sentinel=transcript.sentinel,
                partial=fact.partial,
                guardrail=fact.guardrail,
            )
        case f.Paused():
            interrupts = Interrupt.all_of(turn_id, turn, transcript.started_at, transcript.asked_at)
            return TurnPausedEvent(turn=turn_id, seq=seq, interrupts=interrupts, tools=transcript.tools)
        case f.CallStarted() | f.CallSettled() | f.CallWaiting():
            tool = transcript.calls.get(fact.call, "")
        case f.StepStarted():
            message = assistant_id(turn_id, fact.number)
        case f.StepFinished() | f.Synthesized():
            tools = transcript.tools
        case f.Notice():
            text = notice_text(fact, turn.limits)
        case _:
            pass
    return FactEvent(turn_id, seq, fact, message, tools, text, tool)


def first_events(turn_id: str, facts: Iterable[f.Fact], turn: Turn) -> Iterator[StreamEvent]:
    """Yield the events of a new turn's first facts. `turn` has folded them."""
    transcript = Transcript(turn)
    for seq, fact in enumerate(facts, start=1):
        transcript.add(seq, fact)
        yield event_of(turn_id, seq, fact, transcript)
