"""The events of a streamed message: its start, each piece, its end."""

from collections.abc import Generator, Iterator

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
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)

from .messages import AgUiConversation, CallDraft, Kind, MessageDraft, draft_message


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


def write_call(identifier: str, call: CallDraft, message: str, draft: MessageDraft, delta: str) -> Iterator[BaseEvent]:
    """Send a piece of a call's arguments, after the start of the call if it is not open."""
    owner = draft.owner
    if not call.open:
        call.open = True
        draft.calls[identifier] = call
        yield ToolCallStartEvent(
            tool_call_id=identifier, tool_call_name=call.name, parent_message_id=message, subagent_run_id=owner
        )
    if delta:
        call.pieces.append(delta)
        yield ToolCallArgsEvent(tool_call_id=identifier, delta=delta, subagent_run_id=owner)


def close_call(identifier: str, call: CallDraft, draft: MessageDraft) -> Iterator[BaseEvent]:
    """Send the end of the call if it is open."""
    if call.open:
        call.open = False
        yield ToolCallEndEvent(tool_call_id=identifier, subagent_run_id=draft.owner)


def close(identifier: str, draft: MessageDraft) -> Iterator[BaseEvent]:
    """Send the end of the message, and of its calls, if they are open."""
    for call_id, call in draft.calls.items():
        yield from close_call(call_id, call, draft)
    yield from close_text(identifier, draft)


def close_text(identifier: str, draft: MessageDraft) -> Iterator[BaseEvent]:
    """Send the end of the message's text if it is open."""
    if not draft.open:
        return
    draft.open = False
    if draft.kind == "text":
        yield TextMessageEndEvent(message_id=identifier, subagent_run_id=draft.owner)
    else:
        yield ReasoningMessageEndEvent(message_id=identifier, subagent_run_id=draft.owner)
        yield ReasoningEndEvent(message_id=identifier, subagent_run_id=draft.owner)


def extend(
    conversation: AgUiConversation, identifier: str, kind: Kind, owner: str | None, delta: str
) -> Iterator[BaseEvent]:
    """Send a piece of one part of a message."""
    yield from write(identifier, conversation.draft(identifier, kind, owner), delta)


def settle(
    conversation: AgUiConversation, identifier: str, kind: Kind, owner: str | None, final: str
) -> Generator[BaseEvent, None, bool]:
    """Complete one part of a message. Returns whether the sent part was wrong."""
    drafts = conversation.drafts
    heard = drafts[identifier].text if identifier in drafts else ""
    holds = final.startswith(heard) and not (identifier in drafts and drafts[identifier].calls)
    if holds and final != heard:
        yield from extend(conversation, identifier, kind, owner, final[len(heard) :])
    draft = drafts.pop(identifier, None)
    if draft is not None:
        yield from close(identifier, draft)
    if final or (draft is not None and kind == "reasoning"):
        conversation.tell(draft_message(identifier, MessageDraft(kind, owner, [final])))
    elif draft is not None:
        conversation.forget(identifier)
    return not holds
