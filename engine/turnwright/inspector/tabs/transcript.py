"""The tab of the transcript: a turn's messages with their parts, including the sentinel."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from turnwright.inspector.views.pagination import Window
from turnwright.inspector.views.steps import Step, StepCall
from turnwright.inspector.views.tab_context import TabContext
from turnwright.message import Message, Part, ToolCallPart, ToolResultPart
from turnwright.transcript.part_seq import fact_of
from turnwright.transcript.tool_phase import message_ids

#: Messages a page, and how many of what was said before the turn.
_PAGE: Final = 50
_BEFORE: Final = 50


@dataclass(frozen=True, slots=True)
class TranscriptPart:
    """A part of a message, and the call that it belongs to, if it does. `kind` is the part's type."""

    kind: str
    part: Part
    fact: int
    call: StepCall | None = None


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """A message: its number, its id, its role, its parts, and its step.

    `chosen` if that is the chosen one.
    """

    number: int
    id: str
    role: str
    parts: tuple[TranscriptPart, ...]
    step: Step | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class TranscriptView:
    """The transcript, as many messages as a page has. `instructions` are the agent's.

    `before` is the last of what was said before the turn, and `missing` how many messages came before that.
    """

    instructions: str
    before: Sequence[Message]
    missing: int
    lines: tuple[TranscriptLine, ...]
    window: Window


def view(tab_context: TabContext) -> TranscriptView:
    """Return the transcript of the turn, with the chosen step's messages marked."""
    turn, messages = tab_context.turn, tab_context.turn.result.messages
    firsts = [_first(message) for message in messages]
    window = Window.of(len(messages), _PAGE, tab_context.until, _lines_of(tab_context.step, firsts))
    ids = message_ids(turn.row.id, messages)
    lines = tuple(
        _line(number, ids[number - 1], messages[number - 1], tab_context)
        for number in range(window.first, window.last + 1)
    )
    before = tab_context.history[-_BEFORE:]
    instructions = str(turn.started.agent.get("instructions") or "")
    return TranscriptView(instructions, before, len(tab_context.history) - len(before), lines, window)


def _first(message: Message) -> int:
    """The fact that a message began with; 0 for one without parts."""
    return fact_of(message.parts[0]) if message.parts else 0


def _lines_of(step: Step | None, firsts: Sequence[int]) -> tuple[int, int] | None:
    """The numbers of a step's first message and its last, if it has one."""
    numbers = [number for number, fact in enumerate(firsts, start=1) if step and step.first <= fact <= step.last]
    return (numbers[0], numbers[-1]) if numbers else None


def _line(number: int, name: str, message: Message, tab_context: TabContext) -> TranscriptLine:
    steps, first = tab_context.turn.steps, _first(message)
    place = bisect_right(steps, first, key=lambda step: step.first)
    step = steps[place - 1] if place and first <= steps[place - 1].last else None
    parts = tuple(TranscriptPart(part.type, part, fact_of(part), _call_of(part, step)) for part in message.parts)
    return TranscriptLine(
        number, name, message.role, parts, step, tab_context.step is not None and step is tab_context.step
    )


def _call_of(part: Part, step: Step | None) -> StepCall | None:
    if step is None:
        return None
    if isinstance(part, ToolCallPart):
        return step.call(part.id)
    return step.call(part.call) if isinstance(part, ToolResultPart) else None
