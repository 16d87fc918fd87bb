"""What a listener hears of a turn: every fact as it is journalled, and the pieces of a reply as they stream in.

An event of a fact carries the fact's `seq`; a piece carries the last `seq` and an `index` that counts within the
attempt. `to_json` is one line of `turnwright run --json`.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from pydantic import JsonValue

from turnwright_states import EndReason, InterruptKind, Outcome, Turn, Usage
from turnwright_states import facts as f

JsonLine = dict[str, JsonValue]

#: Fields that a line has also when they are at their defaults: an `ok` says something.
_ALWAYS: Final = frozenset({"status", "finish", "text", "result"})


@dataclass(frozen=True, slots=True)
class TurnEvent:
    """Something about the turn `turn`, at its fact `seq`."""

    turn: str
    seq: int

    @property
    def type(self) -> str:
        """What happened, as the first field of its JSON line says it."""
        raise AttributeError("type")

    def to_json(self) -> JsonLine:
        """The event as a JSON object with `type`, `turn` and `seq` first."""
        return {"type": self.type, "turn": self.turn, "seq": self.seq}


@dataclass(frozen=True, slots=True)
class FactEvent(TurnEvent):
    """A fact was journalled. `type` is the fact's kind."""

    fact: f.Fact

    @property
    def type(self) -> str:
        """The fact's kind."""
        return self.fact.kind

    def to_json(self) -> JsonLine:
        """The fact's fields without the hash. Defaults are left out, but for what a reader looks for."""
        whole = isinstance(self.fact, f.TurnStarted)
        fields = self.fact.model_dump(mode="json", exclude_defaults=not whole, exclude={"hash"})
        for name in _ALWAYS & type(self.fact).model_fields.keys():
            value = getattr(self.fact, name)
            fields.setdefault(name, None if value is None else str(value))
        return {"type": self.type, "turn": self.turn, "seq": self.seq, **fields}


@dataclass(frozen=True, slots=True)
class Piece(TurnEvent):
    """A piece of a reply: the `index`-th of this attempt."""

    kind: ClassVar[str]
    index: int
    text: str

    @property
    def type(self) -> str:
        """`text_delta` or `reasoning_delta`."""
        return self.kind

    def to_json(self) -> JsonLine:
        """The piece with its index and its text."""
        return {"type": self.type, "turn": self.turn, "seq": self.seq, "index": self.index, "text": self.text}


@dataclass(frozen=True, slots=True)
class TextPiece(Piece):
    """A piece of the answer."""

    kind: ClassVar[str] = "text_delta"


@dataclass(frozen=True, slots=True)
class ReasoningPiece(Piece):
    """A piece of what the model thinks aloud."""

    kind: ClassVar[str] = "reasoning_delta"


@dataclass(frozen=True, slots=True)
class ReplyRestarted(TurnEvent):
    """The reply so far is void: the model is called again. Drop its pieces."""

    @property
    def type(self) -> str:
        """`reply_restarted`."""
        return "reply_restarted"


@dataclass(frozen=True, slots=True)
class Pending:
    """An open interrupt: what a person is asked, and how it can be answered."""

    id: str
    kind: InterruptKind
    tool: str = ""
    question: str = ""
    arguments: JsonLine | None = None
    choices: tuple[str, ...] = ()
    grant: str | None = None

    @classmethod
    def of(cls, turn: Turn, interrupt: f.Interrupt) -> "Pending":
        """The interrupt of a folded turn, with the arguments of its call."""
        call = turn.batch.get(interrupt.call)
        return cls(
            id=interrupt.id,
            kind=interrupt.kind,
            tool=interrupt.tool,
            question=interrupt.question,
            arguments=None if call is None else dict(call.arguments),
            choices=interrupt.choices,
            grant=interrupt.grant,
        )

    def to_json(self) -> JsonLine:
        """The interrupt as an element of `pending`."""
        line: JsonLine = {"id": self.id, "kind": str(self.kind), "tool": self.tool}
        if self.question:
            line["question"] = self.question
        if self.arguments is not None and self.kind is not InterruptKind.QUESTION:
            line["arguments"] = self.arguments
        line["choices"] = list(self.choices)
        return line


@dataclass(frozen=True, slots=True)
class TurnPaused(TurnEvent):
    """The turn rests until each of `pending` is answered."""

    pending: tuple[Pending, ...]

    @property
    def type(self) -> str:
        """`paused`."""
        return "paused"

    def to_json(self) -> JsonLine:
        """The last line of a turn that paused."""
        pending: list[JsonValue] = [one.to_json() for one in self.pending]
        return {"type": self.type, "turn": self.turn, "seq": self.seq, "pending": pending}


@dataclass(frozen=True, slots=True)
class TurnHalted(TurnEvent):
    """The turn is over: how, why, and what it came to."""

    outcome: Outcome
    reason: EndReason
    also_reached: tuple[EndReason, ...]
    steps: int
    tool_calls: int
    text: str
    usage: Usage
    error: str = ""

    @property
    def type(self) -> str:
        """`halted`."""
        return "halted"

    def to_json(self) -> JsonLine:
        """The last line of a turn that ended."""
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
            "usage": self.usage.model_dump(mode="json"),
        }
        if self.error:
            line["error"] = self.error
        return line


def event_of(turn_id: str, seq: int, fact: f.Fact, turn: Turn, text: str) -> TurnEvent:
    """The event of the fact at `seq`. `turn` is folded as far as this fact at least; `text` is what the turn says."""
    if isinstance(fact, f.Halted):
        return TurnHalted(
            turn=turn_id,
            seq=seq,
            outcome=fact.outcome,
            reason=fact.reason,
            also_reached=fact.also_reached,
            steps=turn.counters.steps,
            tool_calls=turn.counters.calls,
            text=text,
            usage=turn.usage,
            error=fact.error,
        )
    if isinstance(fact, f.Paused):
        pending = tuple(Pending.of(turn, interrupt) for interrupt in turn.interrupts.values())
        return TurnPaused(turn=turn_id, seq=seq, pending=pending)
    return FactEvent(turn=turn_id, seq=seq, fact=fact)
