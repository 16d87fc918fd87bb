"""The messages of a conversation in the SDK's form, for a page that is loaded again."""

from collections.abc import Collection, Iterable, Sequence

from pydantic import JsonValue

from turnwright.message import FilePart
from turnwright.runtime.engine import Engine
from turnwright.transcript.events import FactEvent, TurnEndedEvent, TurnEvent, TurnPausedEvent, content_size
from turnwright_protocols.conversations import root_turns, without_waits
from turnwright_protocols.items import clean
from turnwright_states import facts as f

from .chunks import DATA, Chunk, ChunkEncoder

#: The channels of answers: a part of a message, and a message of its own.
VIA, VIA_MESSAGE = "ui", "ui_message"
#: The most turns whose messages are returned: the newest ones.
_MOST_TURNS = 100
#: The state of a call's part after each chunk.
_STATES = {
    "tool-input-start": "input-streaming",
    "tool-input-available": "input-available",
    "tool-input-error": "output-error",
    "tool-approval-request": "approval-requested",
    "tool-output-available": "output-available",
    "tool-output-error": "output-error",
    "tool-output-denied": "output-denied",
}
_COPIED = ("toolName", "input", "output", "errorText", "providerExecuted")


async def chat_messages(
    engine: Engine, session: str, *, reasoning: bool = True, client_tools: Collection[str] = ()
) -> list[Chunk]:
    """Return the messages of a session, oldest first: the newest 100 turns. A turn that asks ends with its questions.

    What another open turn streams now is left out: a client that reconnects receives it from its beginning.
    """
    messages: list[Chunk] = []
    for row in reversed(root_turns(await engine.turns(session=session, limit=_MOST_TURNS))):
        events = without_waits(await engine.snapshot(row.id), client_tools)
        rests = bool(events) and isinstance(events[-1], TurnEndedEvent | TurnPausedEvent)
        of_turn = turn_messages(row.id, events, reasoning=reasoning, client_tools=client_tools)
        messages += of_turn if rests else of_turn[:-1]
    return messages


def turn_messages(
    turn: str, events: Sequence[TurnEvent], *, reasoning: bool = True, client_tools: Collection[str] = ()
) -> list[Chunk]:
    """Return the messages that a client has after all chunks of a turn: the prompt, the assistant's, and answers."""
    encoder = ChunkEncoder(turn, reasoning=reasoning, closed_ids=closed_in(events), client_tools=client_tools)
    messages = [_prompt(turn, events)] if events else []
    for number, segment in enumerate(split_events(events)):
        if number:
            messages.append(_answer(segment[0]))
        builder = MessageBuilder(message_id(turn, number))
        builder.add(encoder.start(message_id(turn, number), announces=number > 0))
        builder.add(chunk for event in segment for chunk in encoder.encode(event))
        messages.append(builder.to_json())
    return messages


def split_events(events: Sequence[TurnEvent]) -> list[list[TurnEvent]]:
    """Split the events of a turn where a message of the user answered a question: another message follows it."""
    segments: list[list[TurnEvent]] = [[]]
    for event in events:
        if isinstance(event, FactEvent) and isinstance(event.fact, f.Answered) and event.fact.via == VIA_MESSAGE:
            segments.append([])
        segments[-1].append(event)
    return segments


def message_id(turn: str, number: int) -> str:
    """Return the id of the turn's message of that number, from 0."""
    return f"{turn}/{number + 1}" if number else turn


def _prompt(turn: str, events: Sequence[TurnEvent]) -> Chunk:
    """Return the prompt of a turn. A file is described, without its content."""
    parts: list[JsonValue] = []
    first = events[0]
    if isinstance(first, FactEvent) and isinstance(first.fact, f.TurnStarted):
        if first.fact.prompt:
            parts.append({"type": "text", "text": clean(first.fact.prompt)})
        parts += [_describe(FilePart.of_json(file)) for file in first.fact.files]
    return {"id": f"{turn}/user-1", "role": "user", "parts": parts}


def _answer(event: TurnEvent) -> Chunk:
    fact = event.fact if isinstance(event, FactEvent) else None
    text = clean(fact.text or str(fact.decision)) if isinstance(fact, f.Answered) else ""
    return {"id": f"{event.turn}/answer-{event.seq}", "role": "user", "parts": [{"type": "text", "text": text}]}


def closed_in(events: Sequence[TurnEvent]) -> set[str]:
    """Return the interrupts that need no answer any more: they were answered, or the turn continued without."""
    facts = [event.fact for event in events if isinstance(event, FactEvent)]
    pauses = [event for event in events if isinstance(event, TurnPausedEvent)]
    if pauses and not isinstance(events[-1], TurnEndedEvent):
        pauses.pop()
    closed_ids = {interrupt.id for pause in pauses for interrupt in pause.interrupts}
    return closed_ids | {fact.interrupt for fact in facts if isinstance(fact, f.Answered)}


class MessageBuilder:
    """A message of the assistant, as the SDK's client builds it of chunks."""

    def __init__(self, identifier: str) -> None:
        self._id = identifier
        self._parts: list[Chunk] = []
        self._texts: dict[str, Chunk] = {}
        self._calls: dict[str, Chunk] = {}
        self._metadata: JsonValue = None

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Read chunks."""
        for chunk in chunks:
            self._metadata = chunk.get("messageMetadata", self._metadata)
            kind = str(chunk["type"])
            if kind == "start-step":
                self._parts.append({"type": "step-start"})
            elif kind in ("text-start", "reasoning-start"):
                part = self._texts[str(chunk["id"])] = {
                    "type": kind.removesuffix("-start"),
                    "text": "",
                    "state": "done",
                }
                self._parts.append(part)
            elif kind in ("text-delta", "reasoning-delta"):
                part = self._texts[str(chunk["id"])]
                part["text"] = f"{part['text']}{chunk['delta']}"
            elif kind in _STATES:
                self._update_call(kind, chunk)
            elif kind.startswith(DATA) and not chunk.get("transient"):
                self._parts.append(dict(chunk))

    def _update_call(self, kind: str, chunk: Chunk) -> None:
        identifier = chunk["toolCallId"]
        part = self._calls.get(str(identifier))
        if part is None:
            is_dynamic = chunk.get("dynamic") is True
            kind_of_part = "dynamic-tool" if is_dynamic else f"tool-{chunk['toolName']}"
            part = self._calls[str(identifier)] = {"type": kind_of_part, "toolCallId": identifier}
            self._parts.append(part)
        part["state"] = _STATES[kind]
        part |= {name: chunk[name] for name in _COPIED if name in chunk}
        if part["type"] != "dynamic-tool":  # its type has the name
            part.pop("toolName", None)
        if "approvalId" in chunk:
            part["approval"] = {"id": chunk["approvalId"]}

    def to_json(self) -> Chunk:
        """Return the message."""
        message: Chunk = {"id": self._id, "role": "assistant", "parts": [*self._parts]}
        return message if self._metadata is None else {**message, "metadata": self._metadata}


def _describe(file: FilePart) -> JsonValue:
    details: Chunk = {"mediaType": file.media_type, "name": file.name}
    return {"type": f"{DATA}file", "data": {**details, "size": content_size(file.data)} if file.data else details}
