"""The items of a turn's account: what happened to its texts and calls, in no protocol's words.

`TurnReader` makes them of events. A message's id is `{turn}/assistant-{n}`, and a call's id is unique in its turn.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from msgspec.structs import replace
from pydantic import JsonValue

from turnwright.context import JsonObject
from turnwright.message import FilePart
from turnwright.transcript.events import FactEvent, ToolProgressEvent, TurnEndedEvent, TurnPausedEvent
from turnwright.transcript.interrupt import Interrupt
from turnwright.transcript.tool_phase import ToolPhase
from turnwright_states import Decision, InterruptKind
from turnwright_states import facts as f
from turnwright_states.state import Stall

#: The interrupts that are answered by approving or rejecting a call.
APPROVALS: Final = frozenset({InterruptKind.APPROVAL, InterruptKind.GRANT})
#: A message has a text, and the reasoning before it.
Kind = Literal["text", "reasoning"]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a reply. `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class TurnStartItem:
    """The turn has begun."""

    agent: str
    prompt: str
    files: tuple[FilePart, ...]


@dataclass(frozen=True, slots=True)
class StepStartItem:
    """A step has begun."""

    number: int
    nudge: bool
    stall: Stall | None


@dataclass(frozen=True, slots=True)
class StepEndItem:
    """A step has ended: with `fact`, or without one if another step or the turn's end followed."""

    number: int
    fact: f.StepFinished | None = None
    tools: ToolPhase | None = None


@dataclass(frozen=True, slots=True)
class TextStartItem:
    """A text begins, or continues after a pause of the stream."""

    message: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class TextDeltaItem:
    """A text grows by `delta`, which is not empty."""

    message: str
    kind: Kind
    delta: str


@dataclass(frozen=True, slots=True)
class TextEndItem:
    """No piece of the text follows. `ReplyItem` says whether it is valid."""

    message: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class CallInputStartItem:
    """The arguments of a call begin to arrive."""

    call: str
    name: str
    message: str


@dataclass(frozen=True, slots=True)
class CallInputDeltaItem:
    """The JSON text of a call's arguments grows by `delta`, which is not empty."""

    call: str
    delta: str


@dataclass(frozen=True, slots=True)
class CallInputEndItem:
    """The arguments of a call are complete, or the call is dropped with its reply."""

    call: str


@dataclass(frozen=True, slots=True)
class ReplyItem:
    """The texts of a reply are settled; both are empty if it was dropped.

    `replaced`: pieces that were sent are wrong. Show these texts, and these of the streamed `calls`, instead.
    """

    message: str
    reasoning: str
    text: str
    calls: tuple[Call, ...]
    replaced: bool


@dataclass(frozen=True, slots=True)
class CallsItem:
    """The calls of a reply are announced: the journal has them, and none has started."""

    message: str
    text: str
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class CallRunItem:
    """A call has started."""

    call: str
    event: FactEvent


@dataclass(frozen=True, slots=True)
class CallProgressItem:
    """A call is in progress."""

    call: str
    event: ToolProgressEvent


@dataclass(frozen=True, slots=True)
class CallResultItem:
    """A call is settled. `changed` are the arguments that a person approved instead of the model's."""

    call: str
    fact: f.CallSettled
    changed: JsonObject | None


@dataclass(frozen=True, slots=True)
class CallAskItem:
    """A call waits for a person."""

    call: str
    interrupts: tuple[f.InterruptRecord, ...]
    event: FactEvent


@dataclass(frozen=True, slots=True)
class UserMessageItem:
    """A message to the running turn was delivered."""

    message: str
    text: str


@dataclass(frozen=True, slots=True)
class FactItem:
    """A fact that changes no text and no call."""

    event: FactEvent


@dataclass(frozen=True, slots=True)
class PauseItem:
    """The turn waits for answers."""

    event: TurnPausedEvent


@dataclass(frozen=True, slots=True)
class EndItem:
    """The turn has ended."""

    event: TurnEndedEvent


Item: TypeAlias = (
    TurnStartItem
    | StepStartItem
    | StepEndItem
    | TextStartItem
    | TextDeltaItem
    | TextEndItem
    | CallInputStartItem
    | CallInputDeltaItem
    | CallInputEndItem
    | ReplyItem
    | CallsItem
    | CallRunItem
    | CallProgressItem
    | CallResultItem
    | CallAskItem
    | UserMessageItem
    | FactItem
    | PauseItem
    | EndItem
)


def asking_call(interrupt: Interrupt) -> str:
    """Return the turn's own call that an interrupt belongs to, also if a sub-agent asks; empty for a doom loop."""
    return interrupt.call.partition(":")[0]


def arguments_text(interrupt: Interrupt) -> str:
    """Return the arguments of a call that an interrupt is about, as JSON text."""
    return clean(json.dumps({**(interrupt.arguments or {})}))


def left_open(pause: TurnPausedEvent, event: FactEvent) -> TurnPausedEvent | None:
    """Return the interrupts that are still open after a fact; None for a turn that is no longer paused.

    A call with a result has no open interrupt.
    """
    match event.fact:
        case f.Answered(interrupt=interrupt_id, decision=Decision.APPROVE) if _needs_more(pause, interrupt_id):
            interrupts = tuple(
                dataclasses.replace(
                    interrupt, approvals=interrupt.approvals - 1, approved_by=(*interrupt.approved_by, event.fact.by)
                )
                if interrupt.id == interrupt_id
                else interrupt
                for interrupt in pause.interrupts
            )
        case f.Answered(interrupt=interrupt_id):
            interrupts = tuple(interrupt for interrupt in pause.interrupts if interrupt.id != interrupt_id)
        case f.CallSettled(call=call):
            interrupts = tuple(interrupt for interrupt in pause.interrupts if asking_call(interrupt) != call)
        case _:
            interrupts = pause.interrupts
    return replace(pause, seq=event.seq, interrupts=interrupts) if interrupts else None


def _needs_more(pause: TurnPausedEvent, name: str) -> bool:
    """Return whether the interrupt of this name needs approvals of further people after this one."""
    return any(interrupt.id == name and interrupt.approvals > 1 for interrupt in pause.interrupts)


def clean(text: str) -> str:
    """Replace halves of surrogate pairs, which UTF-8 cannot encode, by `?`, as the journal does."""
    return text.encode(errors="replace").decode()


def clean_json(value: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Replace halves of surrogate pairs in JSON."""
    clean_value: dict[str, JsonValue] = json.loads(clean(json.dumps(value, ensure_ascii=False)))
    return clean_value
