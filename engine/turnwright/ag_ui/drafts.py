"""The events of a streamed message: its start, each piece, its end."""

from collections.abc import Iterator

from ag_ui.core import (
    BaseEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)

from .messages import MessageDraft


def write(identifier: str, draft: MessageDraft, delta: str) -> Iterator[BaseEvent]:
    """Send a piece, after the start of the message if it is not open."""
    owner = draft.owner
    if not draft.open:
        draft.open = True
        if draft.kind == "text":
            yield TextMessageStartEvent(message_id=identifier, role="assistant", subagent_run_id=owner)
        else:
            yield ReasoningStartEvent(message_id=identifier, subagent_run_id=owner)
            yield ReasoningMessageStartEvent(message_id=identifier, role="reasoning", subagent_run_id=owner)
    draft.pieces.append(delta)
    if draft.kind == "text":
        yield TextMessageContentEvent(message_id=identifier, delta=delta, subagent_run_id=owner)
    else:
        yield ReasoningMessageContentEvent(message_id=identifier, delta=delta, subagent_run_id=owner)


def close(identifier: str, draft: MessageDraft) -> Iterator[BaseEvent]:
    """Send the end of the message if it is open."""
    if not draft.open:
        return
    draft.open = False
    if draft.kind == "text":
        yield TextMessageEndEvent(message_id=identifier, subagent_run_id=draft.owner)
    else:
        yield ReasoningMessageEndEvent(message_id=identifier, subagent_run_id=draft.owner)
        yield ReasoningEndEvent(message_id=identifier, subagent_run_id=draft.owner)
