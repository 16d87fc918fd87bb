"""The tab of the transcript: a turn's messages with their parts, each call in a row with its result."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from turnwright.message import AnyPart, Message, ToolCallPart, ToolResultPart
from turnwright.transcript.part_seq import fact_of
from turnwright.transcript.tool_phase import message_ids
from turnwright_inspector.views.call_row import CallRow, call_row
from turnwright_inspector.views.pagination import Window
from turnwright_inspector.views.rule_decisions import DecisionRow, decision_rows
from turnwright_inspector.views.steps import Step
from turnwright_inspector.views.turn_record import TabContext

#: Rows a page, and how many messages of what was said before the turn.
_PAGE: Final = 100
_BEFORE: Final = 50
#: Parts that say what the head of a message says.
_OF_THE_HEAD: Final = frozenset({"step_start", "step_finish"})


@dataclass(frozen=True, slots=True)
class TranscriptPart:
    """A part of a message. `kind` is the part's type; a `tool_call` has its `row`, with the result."""

    kind: str
    part: AnyPart
    fact: int
    row: CallRow | None = None


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """A message: its number, its id, its role, its parts on this page, and its step.

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
    """The transcript, as many rows as a page has: a call is one, and what a message says beside its calls is one.

    `instructions` are the agent's. `before` is the last of what was said before the turn, and `missing` how many
    messages came before that.
    """

    instructions: str
    before: Sequence[Message]
    missing: int
    lines: tuple[TranscriptLine, ...]
    window: Window


@dataclass(frozen=True, slots=True)
class _Row:
    """Parts of the message at `place` that are shown together."""

    place: int
    parts: tuple[AnyPart, ...]


def view(tab_context: TabContext) -> TranscriptView:
    """Return the transcript of the turn, with the chosen step's messages marked."""
    turn, messages = tab_context.turn, tab_context.turn.result.messages
    results = {part.call: part for message in messages for part in message.parts if isinstance(part, ToolResultPart)}
    rows = tuple(_rows(messages))
    window = Window.of(len(rows), _PAGE, tab_context.until, _rows_of(tab_context.step, rows, messages))
    ids = message_ids(turn.row.id, messages)
    decisions: dict[str, list[DecisionRow]] = {}
    if turn.started.rules:
        for row in decision_rows(turn.row.id, turn.facts):
            decisions.setdefault(row.decision.call or "", []).append(row)
    transcript = _Lines(tab_context, results, decisions)
    lines = tuple(
        transcript.line(place, ids[place], messages[place], [part for row in group for part in row.parts])
        for place, group in groupby(rows[window.part], key=lambda row: row.place)
    )
    before = tab_context.history[-_BEFORE:]
    instructions = str(turn.started.agent.get("instructions") or "")
    return TranscriptView(instructions, before, len(tab_context.history) - len(before), lines, window)


def _rows(messages: Sequence[Message]) -> Iterator[_Row]:
    """The rows of all messages. A result is in the row of its call; one without a call is a row.

    A reply of which nothing came is a row only while it is the last message.
    """
    call_ids = {part.id for message in messages for part in message.parts if isinstance(part, ToolCallPart)}
    for place, message in enumerate(messages):
        shown_parts = [
            part
            for part in message.parts
            if part.type not in _OF_THE_HEAD and not (isinstance(part, ToolResultPart) and part.call in call_ids)
        ]
        calls = [part for part in shown_parts if isinstance(part, ToolCallPart)]
        texts = tuple(part for part in shown_parts if not isinstance(part, ToolCallPart))
        empty = message.role == "tool" or (message.role == "assistant" and place + 1 < len(messages))
        if texts or not (calls or empty):
            yield _Row(place, texts)
        for call in calls:
            yield _Row(place, (call,))


def _first_seq(message: Message) -> int:
    """The fact that a message began with; 0 for one without parts."""
    return fact_of(message.parts[0]) if message.parts else 0


def _rows_of(step: Step | None, rows: Sequence[_Row], messages: Sequence[Message]) -> tuple[int, int] | None:
    """The numbers of a step's first row and its last, if it has one."""
    if step is None:
        return None
    inside = {place for place, message in enumerate(messages) if step.first <= _first_seq(message) <= step.last}
    numbers = [number for number, row in enumerate(rows, start=1) if row.place in inside]
    return (numbers[0], numbers[-1]) if numbers else None


@dataclass(frozen=True, slots=True)
class _Lines:
    """Makes the lines of a turn's messages. `results` are those of its calls, by their ids.

    `decisions` are those of rules about each call.
    """

    tab_context: TabContext
    results: Mapping[str, ToolResultPart]
    decisions: Mapping[str, Sequence[DecisionRow]]

    def line(self, place: int, name: str, message: Message, parts_of_row: Sequence[AnyPart]) -> TranscriptLine:
        steps, first = self.tab_context.turn.steps, _first_seq(message)
        before = bisect_right(steps, first, key=lambda step: step.first)
        step = steps[before - 1] if before and first <= steps[before - 1].last else None
        parts = tuple(TranscriptPart(part.type, part, fact_of(part), self._row(part, step)) for part in parts_of_row)
        is_chosen = self.tab_context.step is not None and step is self.tab_context.step
        return TranscriptLine(place + 1, name, message.role, parts, step, is_chosen)

    def _row(self, part: AnyPart, step: Step | None) -> CallRow | None:
        if not isinstance(part, ToolCallPart):
            return None
        call = None if step is None else step.call(part.id)
        turn = self.tab_context.turn
        row = call_row(part, self.results.get(part.id), call, turn.children, self.decisions.get(part.id, ()))
        is_driverless = row.status == "running" and not turn.cut and not turn.driven
        return replace(row, status="interrupted") if is_driverless else row
