"""Encode the account of a turn as session updates of ACP."""

import json
import posixpath
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from acp import schema
from acp.helpers import text_block, tool_content
from pydantic import JsonValue

from turnwright.journal.questions import call_lines
from turnwright.transcript.events import FactEvent, TurnEndedEvent, TurnEvent, TurnPausedEvent
from turnwright_protocols import items as i
from turnwright_protocols.endings import Ending, ending_of
from turnwright_protocols.items import Item, clean
from turnwright_protocols.segment_usage import SegmentUsage
from turnwright_protocols.turn_reader import TurnReader
from turnwright_states import CallStatus
from turnwright_states.amounts import format_number
from turnwright_states.payload import thaw

from .editor_tools import KINDS, read_diff

Update = (
    schema.UserMessageChunk
    | schema.AgentMessageChunk
    | schema.AgentThoughtChunk
    | schema.ToolCallStart
    | schema.ToolCallProgress
)
StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]

#: The most bytes of a text in one update: some clients read lines of at most 64 KiB, and JSON escapes make text longer.
_LARGEST: Final = 8 * 1024
#: Why a prompt ended. A turn that failed is an error.
_STOP_REASONS: Final[Mapping[Ending, StopReason]] = {
    "answered": "end_turn",
    "cut": "max_tokens",
    "writing limit": "max_tokens",
    "limit": "max_turn_requests",
    "stopped": "cancelled",
    "refused": "refusal",
}


class UpdateEncoder:
    """Translates the events of one turn into updates. No I/O."""

    def __init__(self, turn: str, terminals: Mapping[str, schema.TerminalToolCallContent] | None = None) -> None:
        self.turn = turn
        #: The terminals that the editor shows in its calls, by the call's id.
        self._terminals = {} if terminals is None else terminals
        self._reader = TurnReader(turn)
        self._usage = SegmentUsage()
        #: How often the text of a message was replaced: the valid one is another message.
        self._replaced: dict[str, int] = {}
        self.pause: TurnPausedEvent | None = None
        self.end: TurnEndedEvent | None = None

    def encode(self, event: TurnEvent) -> list[Update]:
        """Return the updates of an event."""
        if event.turn != self.turn:
            return []
        if isinstance(event, FactEvent):
            self._usage.add(event.fact)
        self.pause = None
        return [update for item in self._reader.read(event) for update in self._encode(item)]

    @property
    def usage(self) -> schema.Usage:
        """The usage of the turn so far."""
        own_usage, tokens = self._usage.own, self._usage.input_tokens
        return schema.Usage(
            total_tokens=tokens + own_usage.output_tokens,
            input_tokens=tokens,
            output_tokens=own_usage.output_tokens,
            thought_tokens=own_usage.reasoning_tokens or None,
            cached_read_tokens=own_usage.cached_tokens or None,
        )

    def _encode(self, item: Item) -> Iterator[Update]:
        match item:
            case i.TextDeltaItem(message=message, kind=kind, delta=delta):
                yield from self._say(message, kind, delta)
            case i.ReplyItem(message=message) if item.replaced:
                self._replaced[message] = self._replaced.get(message, 1) + 1
                yield from self._say(message, "reasoning", item.reasoning)
                yield from self._say(message, "text", item.text)
            case i.CallsItem(calls=calls):
                yield from map(self._announce, calls)
            case i.CallRunItem(call=call):
                yield schema.ToolCallProgress(
                    tool_call_id=self.id_of(call), status="in_progress", session_update="tool_call_update"
                )
            case i.CallProgressItem():
                yield self._progress(item)
            case i.CallResultItem():
                yield self._settle(item)
            case i.UserMessageItem(message=message, text=text):
                yield from user_chunks(text, message)
            case i.PauseItem(event=event):
                self.pause = event
            case i.EndItem(event=end_event):
                self.end = end_event
                self._usage.end(end_event.usage)
            case _:
                pass

    def id_of(self, call: str) -> str:
        """Return the id of a call in its session."""
        return f"{self.turn}/{call}"

    def _say(self, message: str, kind: i.Kind, text: str) -> Iterator[Update]:
        number = self._replaced.get(message)
        identifier = f"{message}~{number}" if number else message
        if kind == "text":
            yield from agent_chunks(text, identifier)
            return
        for piece in pieces(text):
            yield schema.AgentThoughtChunk(
                content=text_block(piece), message_id=f"{identifier}/reasoning", session_update="agent_thought_chunk"
            )

    def _announce(self, call: i.Call) -> schema.ToolCallStart:
        try:
            arguments: JsonValue = json.loads(call.arguments)
        except (ValueError, RecursionError):
            arguments = call.arguments
        fields: dict[str, JsonValue] = arguments if isinstance(arguments, dict) else {}
        return schema.ToolCallStart(
            tool_call_id=self.id_of(call.id),
            title=call_lines(call.name, fields)[0],
            kind=KINDS.get(call.name, "other"),
            locations=_locations(fields),
            status="pending",
            raw_input=fitting(arguments),
            session_update="tool_call",
        )

    def _progress(self, item: i.CallProgressItem) -> schema.ToolCallProgress:
        event = item.event
        amount = format_number(event.progress)
        if event.total is not None:
            amount += f" of {format_number(event.total)}"
        text = f"{event.message} ({amount})" if event.message else amount
        return schema.ToolCallProgress(
            tool_call_id=self.id_of(item.call),
            status="in_progress",
            content=[tool_content(text_block(next(pieces(clean(text)), "")))],
            session_update="tool_call_update",
        )

    def _settle(self, item: i.CallResultItem) -> schema.ToolCallProgress:
        fact = item.fact
        text = next(pieces(clean(fact.result)), "")
        if len(text) < len(fact.result):
            text += f"\n... {len(fact.result) - len(text):,} more characters"
        call, diff, terminal = (
            self.id_of(item.call),
            read_diff(fact.structured),
            self._terminals.get(self.id_of(item.call)),
        )
        return schema.ToolCallProgress(
            tool_call_id=call,
            status="completed" if fact.status is CallStatus.OK else "failed",
            raw_input=None if item.changed is None else fitting({**item.changed}),
            content=[part for part in (diff, terminal, tool_content(text_block(text))) if part is not None],
            raw_output=fitting({"text": text, "structured": thaw(fact.structured)}) if diff is None else None,
            session_update="tool_call_update",
        )


def pieces(text: str) -> Iterator[str]:
    """Cut a text into pieces that fit into a line."""
    while text:
        piece = text[:_LARGEST]
        while len(json.dumps(piece)) > 3 * _LARGEST:
            piece = piece[: len(piece) // 2]
        yield piece
        text = text[len(piece) :]


def fitting(value: JsonValue) -> JsonValue:
    """Return a value that fits into a line, or else None."""
    return value if len(json.dumps(value)) <= 2 * _LARGEST else None


def _locations(arguments: Mapping[str, JsonValue]) -> list[schema.ToolCallLocation] | None:
    """Return the file of a call, so that the editor can follow it: an absolute `path` among its arguments."""
    path = arguments.get("path")
    if not isinstance(path, str) or not posixpath.isabs(path) or len(path) > _LARGEST:
        return None
    return [schema.ToolCallLocation(path=clean(path))]


def user_chunks(text: str, message: str) -> Iterator[schema.UserMessageChunk]:
    """Return a message of the user."""
    for piece in pieces(text):
        yield schema.UserMessageChunk(
            content=text_block(piece), message_id=message, session_update="user_message_chunk"
        )


def agent_chunks(text: str, message: str) -> Iterator[schema.AgentMessageChunk]:
    """Return a message of the agent."""
    for piece in pieces(text):
        yield schema.AgentMessageChunk(
            content=text_block(piece), message_id=message, session_update="agent_message_chunk"
        )


def stop_reason(event: TurnEndedEvent) -> StopReason | None:
    """Return why a prompt ended; None for an error."""
    return _STOP_REASONS.get(ending_of(event.outcome, event.reason))
