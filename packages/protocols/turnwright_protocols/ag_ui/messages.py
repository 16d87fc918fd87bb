"""The messages of a turn in AG-UI's form, and the client's copy of the conversation."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

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
from msgspec.structs import replace
from pydantic import JsonValue

from turnwright.agent import OUTPUT_TOOL
from turnwright.context import JsonObject
from turnwright.message import FilePart, Message, ReasoningPart, StepFinishPart, ToolCallPart, ToolResultPart
from turnwright.transcript.events import content_size
from turnwright.transcript.tool_phase import message_ids
from turnwright.transcript.wording import changed_arguments
from turnwright_protocols.items import Kind, clean, clean_json
from turnwright_states import CallStatus
from turnwright_states.facts import CallSettled

#: Our key in the metadata of events and messages.
METADATA_KEY: Final = "turnwright"

Metadata = dict[str, dict[str, JsonValue]]
Content = str | list[ContentPart]


def metadata(**fields: JsonValue) -> Metadata | None:
    """Return our metadata under our key; None if there is none."""
    set_fields = {name: value for name, value in fields.items() if value is not None}
    return {METADATA_KEY: clean_json(set_fields)} if set_fields else None


def call_id(turn: str, call: str) -> str:
    """Return the id of a call in its conversation: ours is only unique in its turn."""
    return f"{turn}/{call}"


def reasoning_id(message: str) -> str:
    """Return the id of the reasoning before the assistant's message of that id."""
    return f"{message}/reasoning"


def content_of(text: str, files: Sequence[FilePart] = ()) -> Content:
    """Return a text, or parts if there are files: each file's public fields, as text and as metadata of its part.

    AG-UI's media parts are not used, because they contain a file's content or its address, which may be signed.
    """
    if not files:
        return clean(text)
    parts = [TextPart(text=clean(text))] if text else []
    return [*parts, *map(_file_part, files)]


def result_metadata(status: CallStatus, data: JsonValue) -> Metadata | None:
    """Return the parts of a tool's result without a field in AG-UI: its status, and its data."""
    return metadata(status=str(status), structured=data)


def result_of(identifier: str, fact: CallSettled, new_arguments: JsonObject | None, owner: str | None) -> ToolMessage:
    """Translate the result of a call. `new_arguments` are those that a person approved instead of the model's."""
    text = fact.result if new_arguments is None else changed_arguments(new_arguments) + fact.result
    return ToolMessage(
        id=identifier,
        tool_call_id=identifier,
        content=content_of(text, tuple(map(FilePart.of_json, fact.files))),
        metadata=result_metadata(fact.status, fact.structured),
        subagent_run_id=owner,
    )


def call_of(turn: str, call: str, name: str, arguments: str) -> ToolCall:
    """Translate a call of an assistant's message, with its arguments as JSON text."""
    return ToolCall(
        id=call_id(turn, call), function=FunctionCall(name=clean(name), arguments=clean(arguments)), type="function"
    )


def messages_of(turn: str, messages: Sequence[Message]) -> list[AgUiMessage]:
    """Translate the messages of a turn (`TurnResult.messages`): a client has the same after all events.

    Empty messages, sentinels, the bounds of steps, refused replies and the feedback to them are left out.
    """
    encoded_messages: list[AgUiMessage] = []
    feedback = False
    for identifier, message in zip(message_ids(turn, messages), messages, strict=True):
        if feedback and message.role == "user":
            feedback = False
            continue
        is_refused = any(isinstance(part, StepFinishPart) and part.refused for part in message.parts)
        calls = any(isinstance(part, ToolCallPart) for part in message.parts)
        feedback = is_refused and not calls  # else the results of the calls have it
        encoded_messages += _make_messages(turn, identifier, _calls_of(message) if is_refused else message)
    return encoded_messages


def _calls_of(message: Message) -> Message:
    """Return a refused reply without its text and its typed answers, as followers receive it."""
    call_parts = [part for part in message.parts if isinstance(part, ToolCallPart)]
    return replace(message, parts=tuple(replace(p, arguments={}) if p.name == OUTPUT_TOOL else p for p in call_parts))


def _make_messages(turn: str, identifier: str, message: Message) -> Iterable[AgUiMessage]:
    if message.role == "user":
        yield UserMessage(id=identifier, content=content_of(message.text, message.files))
        return
    reasoning = "".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
    if reasoning:
        yield ReasoningMessage(id=reasoning_id(identifier), content=clean(reasoning))
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
    file_metadata: dict[str, JsonValue] = {"name": file.name} if file.name else {}
    file_metadata["media_type"] = file.media_type
    if file.data:
        file_metadata["size"] = content_size(file.data)
    words = ", ".join(f"{value:,} bytes" if name == "size" else str(value) for name, value in file_metadata.items())
    return TextPart(text=clean(f"[file: {words}]"), metadata=metadata(file=file_metadata))


@dataclass(slots=True)
class CallDraft:
    """A streamed call, as far as it was sent."""

    name: str
    arguments: str = ""


@dataclass(slots=True)
class MessageDraft:
    """A streamed message, as far as it was sent. `calls` are its streamed calls, by id."""

    kind: Kind
    owner: str | None
    pieces: list[str] = field(default_factory=list)
    calls: dict[str, CallDraft] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text that was sent."""
        return "".join(self.pieces)


class AgUiConversation:
    """The client's copy of the conversation: its own messages, the sent ones, and those that stream in."""

    def __init__(self, history: Iterable[AgUiMessage]) -> None:
        self._messages: dict[str, AgUiMessage] = {
            # Clients do not send activities to an agent; a snapshot with one activity would drop all others.
            message.id: message
            for message in history
            if message.role != "activity"
        }
        #: Whether the client's messages include a user's. If not, the prompt is sent too.
        self.has_prompt = any(message.role == "user" for message in self._messages.values())
        self.drafts: dict[str, MessageDraft] = {}
        #: The calls whose results the client has, because it gave or received them.
        self.calls_with_result = {
            message.tool_call_id for message in self._messages.values() if isinstance(message, ToolMessage)
        }
        #: The ids in the client's order: a message has its place when it begins.
        self._places = dict.fromkeys(self._messages)

    def draft(self, identifier: str, kind: Kind, owner: str | None) -> MessageDraft:
        """Return the streamed message with this id; a new one if there is none."""
        self._places.setdefault(identifier)
        return self.drafts.setdefault(identifier, MessageDraft(kind, owner))

    def extend_call(self, identifier: str, delta: str) -> None:
        """Add a piece to the arguments of a streamed call."""
        for draft in self.drafts.values():
            if identifier in draft.calls:
                draft.calls[identifier].arguments += delta

    def settle(self, identifier: str, final: MessageDraft) -> None:
        """Replace a streamed message by the final one; one without text is removed, but empty reasoning is kept."""
        draft = self.drafts.pop(identifier, None)
        if final.text or (draft is not None and final.kind == "reasoning"):
            self.tell(draft_message(identifier, final))
        elif draft is not None:
            self.forget(identifier)

    def tell(self, message: AgUiMessage) -> None:
        """Record a sent message, new or changed."""
        self._places.setdefault(message.id)
        self._messages[message.id] = message

    def change_arguments(self, identifier: str, arguments: JsonObject) -> bool:
        """Give a call the arguments that it runs with. Returns whether they differ from those that were sent."""
        for message in self._messages.values():
            calls = (message.tool_calls or []) if isinstance(message, AssistantMessage) else []
            for number, call in enumerate(calls):
                if call.id == identifier and json.loads(call.function.arguments or "{}") != arguments:
                    function = FunctionCall(name=call.function.name, arguments=json.dumps(arguments))
                    new_call = call.model_copy(update={"function": function})
                    changed_calls = [*calls[:number], new_call, *calls[number + 1 :]]
                    self._messages[message.id] = message.model_copy(update={"tool_calls": changed_calls})
                    return True
        return False

    def forget(self, identifier: str) -> None:
        """Remove a message that was dropped."""
        if identifier not in self._messages:
            self._places.pop(identifier, None)

    def snapshot(self) -> MessagesSnapshotEvent:
        """Return a snapshot of all messages. A client drops the messages that are missing in it.

        Clients keep reasoning unless the snapshot has other reasoning, so dropped reasoning is sent as empty.
        """
        streaming = {identifier: draft_message(identifier, draft) for identifier, draft in self.drafts.items()}
        shown_messages = self._messages | streaming
        return MessagesSnapshotEvent(messages=[shown_messages[identifier] for identifier in self._places])


def draft_message(identifier: str, draft: MessageDraft) -> AgUiMessage:
    """Return the sent part of a streamed message."""
    if draft.kind == "text":
        calls = [
            ToolCall(id=identifier, function=FunctionCall(name=call.name, arguments=call.arguments), type="function")
            for identifier, call in draft.calls.items()
        ]
        return AssistantMessage(
            id=identifier, content=draft.text, tool_calls=calls or None, subagent_run_id=draft.owner
        )
    return ReasoningMessage(id=identifier, content=draft.text, subagent_run_id=draft.owner)
