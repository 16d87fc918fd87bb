"""The messages of a turn as AG-UI has them, and what a client holds of the conversation."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from ag_ui.core import (
    AssistantMessage,
    ContentPart,
    FunctionCall,
    MessagesSnapshotEvent,
    ReasoningMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from ag_ui.core import Message as AgUiMessage
from pydantic import JsonValue

from turnwright.events import content_size
from turnwright.message import FilePart, Message, ReasoningPart, ToolCallPart, ToolResultPart
from turnwright.transcript.tool_phase import message_ids
from turnwright_states import CallStatus

#: Our key in the metadata of events and messages.
METADATA_KEY: Final = "turnwright"

Metadata = dict[str, dict[str, JsonValue]]
Content = str | list[ContentPart]


def clean(text: str) -> str:
    """The text without halves of surrogate pairs, which no JSON in UTF-8 can hold: `?`, as in the journal."""
    return text.encode(errors="replace").decode()


def metadata(**fields: JsonValue) -> Metadata | None:
    """What we say beside the protocol, under our key; None if there is nothing."""
    told = {name: value for name, value in fields.items() if value is not None}
    return {METADATA_KEY: clean_json(told)} if told else None


def clean_json(value: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The same JSON without halves of surrogate pairs."""
    cleaned: dict[str, JsonValue] = json.loads(clean(json.dumps(value, ensure_ascii=False)))
    return cleaned


def call_id(turn: str, call: str) -> str:
    """The id of a call in its conversation: ours is unique in its turn alone."""
    return f"{turn}/{call}"


def reasoning_id(message: str) -> str:
    """The id of what was thought before the assistant's message of that id."""
    return f"{message}/reasoning"


def content_of(text: str, files: Sequence[FilePart] = ()) -> Content:
    """A text, or parts where there are files with it: of each what is public, in words and as metadata of its part.

    Its media parts are not for us: each of them has the content of a file or its address, which may be signed.
    """
    if not files:
        return clean(text)
    said = [TextPart(text=clean(text))] if text else []
    return [*said, *map(_file_part, files)]


def result_metadata(status: CallStatus, structured: JsonValue) -> Metadata | None:
    """What AG-UI has no field for in a tool's result: how it ended, and the result as data."""
    return metadata(status=str(status), structured=structured)


def call_of(turn: str, call: str, name: str, arguments: str) -> ToolCall:
    """A call of an assistant's message, its arguments as JSON text."""
    return ToolCall(
        id=call_id(turn, call), function=FunctionCall(name=clean(name), arguments=clean(arguments)), type="function"
    )


def messages_of(turn: str, messages: Sequence[Message]) -> list[AgUiMessage]:
    """The messages of a turn (`TurnResult.messages`) as AG-UI has them: what a client holds when it has heard it all.

    Messages that say nothing are left out; sentinels and the bounds of steps are no messages there.
    """
    told: list[AgUiMessage] = []
    for identifier, message in zip(message_ids(turn, messages), messages, strict=True):
        told += _told(turn, identifier, message)
    return told


def _told(turn: str, identifier: str, message: Message) -> Iterable[AgUiMessage]:
    if message.role == "user":
        yield UserMessage(id=identifier, content=content_of(message.text, message.files))
        return
    thought = "".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
    if thought:
        yield ReasoningMessage(id=reasoning_id(identifier), content=clean(thought))
    calls = [
        call_of(turn, part.id, part.name, json.dumps(dict(part.arguments)))
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]
    if message.role == "assistant" and (message.text or calls):
        yield AssistantMessage(id=identifier, content=clean(message.text) or None, tool_calls=calls or None)
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            yield ToolMessage(
                id=identifier,
                tool_call_id=call_id(turn, part.call),
                content=content_of(part.text, part.files),
                metadata=result_metadata(part.status, part.structured),
            )


def _file_part(file: FilePart) -> TextPart:
    known: dict[str, JsonValue] = {"name": file.name} if file.name else {}
    known["media_type"] = file.media_type
    if file.data:
        known["size"] = content_size(file.data)
    words = ", ".join(f"{value:,} bytes" if name == "size" else str(value) for name, value in known.items())
    return TextPart(text=clean(f"[file: {words}]"), metadata=metadata(file=known))


Kind = Literal["text", "reasoning"]


@dataclass(slots=True)
class MessageDraft:
    """A message that streams in: what was told of it so far. It is `open` between its start and its end."""

    kind: Kind
    owner: str | None
    pieces: list[str] = field(default_factory=list)
    open: bool = False

    @property
    def text(self) -> str:
        """What was told of it."""
        return "".join(self.pieces)


class AgUiConversation:
    """What the client holds: what it came with, what it was told since, and what it is being told."""

    def __init__(self, history: Iterable[AgUiMessage]) -> None:
        self._messages: dict[str, AgUiMessage] = {
            # Activities never travel to an agent; a snapshot with one of them would drop all the others.
            message.id: message
            for message in history
            if message.role != "activity"
        }
        #: Whether the client came with something that a person said: if not, it is told the prompt too.
        self.has_prompt = any(message.role == "user" for message in self._messages.values())
        self.drafts: dict[str, MessageDraft] = {}
        #: The ids in the order in which the client met them: a message has its place when it begins.
        self._places = dict.fromkeys(self._messages)

    def draft(self, identifier: str, kind: Kind, owner: str | None) -> MessageDraft:
        """The message that streams in under this id, begun if there is none."""
        self._places.setdefault(identifier)
        return self.drafts.setdefault(identifier, MessageDraft(kind, owner))

    def tell(self, message: AgUiMessage) -> None:
        """The client was told this message, or is told it anew."""
        self._places.setdefault(message.id)
        self._messages[message.id] = message

    def forget(self, identifier: str) -> None:
        """A message that came to nothing has no place any more."""
        if identifier not in self._messages:
            self._places.pop(identifier, None)

    def snapshot(self) -> MessagesSnapshotEvent:
        """All of it. A client drops the messages that are missing here, so that what is void is gone.

        Reasoning is dropped only by a snapshot with other reasoning, so what is void of that is told as empty.
        """
        streaming = {identifier: draft_message(identifier, draft) for identifier, draft in self.drafts.items()}
        held = self._messages | streaming
        return MessagesSnapshotEvent(messages=[held[identifier] for identifier in self._places])


def draft_message(identifier: str, draft: MessageDraft) -> AgUiMessage:
    """What there is of it, as a message."""
    if draft.kind == "text":
        return AssistantMessage(id=identifier, content=draft.text, subagent_run_id=draft.owner)
    return ReasoningMessage(id=identifier, content=draft.text, subagent_run_id=draft.owner)
