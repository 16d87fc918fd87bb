"""Encode the account of one turn as AG-UI's events, in whichever run, and keep the client's messages."""

from collections.abc import Iterator

from ag_ui.core import (
    AssistantMessage,
    BaseEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    StepFinishedEvent,
    StepStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    UserMessage,
)

from turnwright.transcript.events import TurnEvent
from turnwright_protocols import items as i
from turnwright_protocols.items import Item
from turnwright_protocols.turn_reader import TurnReader
from turnwright_states import facts as f

from .messages import (
    AgUiConversation,
    CallDraft,
    MessageDraft,
    call_id,
    call_of,
    content_of,
    draft_message,
    metadata,
    reasoning_id,
    result_of,
)
from .own_events import OwnEvents

Events = Iterator[BaseEvent]


class TurnEncoder:
    """The encoder of one turn. `owner` is the id of a sub-agent's turn, None for the run's own turn.

    It records sent messages in the conversation.
    """

    def __init__(self, turn: str, conversation: AgUiConversation, owner: str | None = None) -> None:
        self.turn = turn
        self.owner = owner
        #: The agent's name, once it is known.
        self.name = ""
        self.own = OwnEvents(turn, owner)
        self._reader = TurnReader(turn)
        self._conversation = conversation

    def encode(self, event: TurnEvent) -> Events:
        """Return the client's events for an event."""
        for item in self._reader.read(event):
            yield from self._encode(item)

    def meet(self, fact: f.Fact) -> None:
        """Read the agent's name, if the fact has it."""
        if isinstance(fact, f.TurnStarted):
            self.name = str(fact.agent.get("name", ""))

    def restate(self) -> None:
        """Drop the streamed part of the expected reply, so that a snapshot is valid for every client."""
        message = self._reader.message
        self._reader.resend_calls()
        draft = self._conversation.drafts.get(message)
        if draft is not None and draft.calls:
            draft.calls.clear()
            if not draft.pieces:
                del self._conversation.drafts[message]
                self._conversation.forget(message)
        name = reasoning_id(message)
        if self._reader.expects_reply and name not in self._conversation.drafts:
            self._conversation.tell(draft_message(name, MessageDraft("reasoning", self.owner)))

    def resume(self) -> Events:
        """Open the current step again in a new run; the streamed message follows with its next piece."""
        self._reader.reopen()
        if self._reader.step:
            yield StepStartedEvent(step_name=_step(self._reader.step), subagent_run_id=self.owner)

    def suspend(self) -> Events:
        """Close everything that is open. The step continues in the next run."""
        for item in self._reader.suspend():
            yield from self._encode(item)
        if self._reader.step:
            yield StepFinishedEvent(step_name=_step(self._reader.step), subagent_run_id=self.owner)

    def _encode(self, item: Item) -> Events:  # noqa: C901 (one case an item: flat)
        match item:
            case i.TurnStartItem():
                yield from self._begin(item)
            case i.StepStartItem(number=number, nudge=nudge, stall=stall):
                details = metadata(nudge=nudge or None, stall=stall)
                yield StepStartedEvent(step_name=_step(number), subagent_run_id=self.owner, metadata=details)
            case i.StepEndItem():
                yield self._end_step(item)
            case i.TextStartItem() | i.TextDeltaItem() | i.TextEndItem():
                yield from self._write(item)
            case i.CallInputStartItem() | i.CallInputDeltaItem() | i.CallInputEndItem():
                yield self._write_call(item)
            case i.ReplyItem():
                yield from self._settle_reply(item)
            case i.CallsItem():
                self._tell_calls(item)
            case i.CallProgressItem(event=event):
                yield self.own.progress(event)
            case i.CallResultItem():
                yield from self._settle_call(item)
            case i.UserMessageItem(message=identifier, text=text):
                owner = self.owner
                self._conversation.tell(UserMessage(id=identifier, content=text, subagent_run_id=owner))
                yield TextMessageStartEvent(message_id=identifier, role="user", subagent_run_id=owner)
                yield TextMessageContentEvent(message_id=identifier, delta=text, subagent_run_id=owner)
                yield TextMessageEndEvent(message_id=identifier, subagent_run_id=owner)
            case i.FactItem(event=event) | i.CallRunItem(event=event) | i.CallAskItem(event=event):
                yield self.own.fact(event)
            case i.PauseItem() | i.EndItem():
                pass  # the run's

    def _begin(self, item: i.TurnStartItem) -> Events:
        self.name = item.agent
        if self.owner is None and not self._conversation.has_prompt:
            content = content_of(item.prompt, item.files)
            self._conversation.tell(UserMessage(id=f"{self.turn}/user-1", content=content))
            yield self._conversation.snapshot()

    def _end_step(self, item: i.StepEndItem) -> BaseEvent:
        details, fact = None, item.fact
        if fact is not None:
            usage = {name: count for name, count in fact.usage.to_json().items() if name != "cost"}
            tools = None if item.tools is None else item.tools.to_json(self.turn)
            details = metadata(usage=usage, seconds=fact.seconds, tools=tools)
        return StepFinishedEvent(step_name=_step(item.number), subagent_run_id=self.owner, metadata=details)

    def _write(self, item: i.TextStartItem | i.TextDeltaItem | i.TextEndItem) -> Events:
        owner, kind = self.owner, item.kind
        identifier = item.message if kind == "text" else reasoning_id(item.message)
        match item:
            case i.TextStartItem():
                self._conversation.draft(identifier, kind, owner)
                if kind == "text":
                    yield TextMessageStartEvent(message_id=identifier, role="assistant", subagent_run_id=owner)
                else:
                    yield ReasoningStartEvent(message_id=identifier, subagent_run_id=owner)
                    yield ReasoningMessageStartEvent(message_id=identifier, role="reasoning", subagent_run_id=owner)
            case i.TextDeltaItem(delta=delta):
                self._conversation.draft(identifier, kind, owner).pieces.append(delta)
                content = TextMessageContentEvent if kind == "text" else ReasoningMessageContentEvent
                yield content(message_id=identifier, delta=delta, subagent_run_id=owner)
            case i.TextEndItem() if kind == "text":
                yield TextMessageEndEvent(message_id=identifier, subagent_run_id=owner)
            case i.TextEndItem():
                yield ReasoningMessageEndEvent(message_id=identifier, subagent_run_id=owner)
                yield ReasoningEndEvent(message_id=identifier, subagent_run_id=owner)

    def _write_call(self, item: i.CallInputStartItem | i.CallInputDeltaItem | i.CallInputEndItem) -> BaseEvent:
        identifier, owner = call_id(self.turn, item.call), self.owner
        match item:
            case i.CallInputStartItem(name=name, message=message):
                self._conversation.draft(message, "text", owner).calls[identifier] = CallDraft(name)
                return ToolCallStartEvent(
                    tool_call_id=identifier, tool_call_name=name, parent_message_id=message, subagent_run_id=owner
                )
            case i.CallInputDeltaItem(delta=delta):
                self._conversation.extend_call(identifier, delta)
                return ToolCallArgsEvent(tool_call_id=identifier, delta=delta, subagent_run_id=owner)
            case i.CallInputEndItem():
                return ToolCallEndEvent(tool_call_id=identifier, subagent_run_id=owner)

    def _settle_reply(self, item: i.ReplyItem) -> Events:
        self._conversation.settle(reasoning_id(item.message), MessageDraft("reasoning", self.owner, [item.reasoning]))
        if item.calls:
            self._tell_calls(item)
        else:
            self._conversation.settle(item.message, MessageDraft("text", self.owner, [item.text]))
        if item.replaced:
            yield self._conversation.snapshot()

    def _tell_calls(self, item: i.ReplyItem | i.CallsItem) -> None:
        self._conversation.drafts.pop(item.message, None)  # its place stays
        calls = [call_of(self.turn, call.id, call.name, call.arguments) for call in item.calls]
        self._conversation.tell(
            AssistantMessage(id=item.message, content=item.text or None, tool_calls=calls, subagent_run_id=self.owner)
        )

    def _settle_call(self, item: i.CallResultItem) -> Events:
        identifier = call_id(self.turn, item.call)
        yield from self.own.end_progress(item.fact)
        if identifier in self._conversation.calls_with_result:
            return
        message = result_of(identifier, item.fact, item.changed, self.owner)
        self._conversation.tell(message)
        yield ToolCallResultEvent(
            message_id=identifier,
            tool_call_id=identifier,
            content=message.content,
            metadata=message.metadata,
            subagent_run_id=self.owner,
        )


def _step(number: int) -> str:
    return f"step-{number}"
