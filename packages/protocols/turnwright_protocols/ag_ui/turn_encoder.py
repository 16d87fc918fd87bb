"""Encode one turn as AG-UI's events: its steps, messages, calls and results, in whichever run."""

import json
from collections.abc import Generator, Iterator, Sequence
from typing import Final

from ag_ui.core import (
    AssistantMessage,
    BaseEvent,
    StepFinishedEvent,
    StepStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCall,
    ToolCallResultEvent,
    UserMessage,
)
from pydantic import JsonValue

from turnwright.context import JsonObject
from turnwright.events import (
    DeltaEvent,
    FactEvent,
    OutputDeltaEvent,
    ReasoningDeltaEvent,
    ResponseRestartedEvent,
    ResponseWithdrawnEvent,
    TextDeltaEvent,
    ToolCallDeltaEvent,
    ToolProgressEvent,
    TurnEndedEvent,
    TurnEvent,
    TurnPausedEvent,
)
from turnwright.message import FilePart
from turnwright.transcript.tool_phase import assistant_id
from turnwright_states import EndReason, Outcome
from turnwright_states import facts as f
from turnwright_states.inputs import is_blank

from .drafts import close, close_call, close_text, extend, settle, write_call
from .messages import (
    AgUiConversation,
    CallDraft,
    MessageDraft,
    call_id,
    call_of,
    clean,
    content_of,
    draft_message,
    metadata,
    reasoning_id,
    result_of,
)
from .own_events import OwnEvents

#: After these facts a model is called; with these its reply is there.
_CALLS: Final = f.TurnStarted | f.StepStarted | f.Stopping
_REPLIES: Final = f.ModelReplied | f.Concluded

Events = Iterator[BaseEvent]


class TurnEncoder:
    """The encoder of one turn. `owner` is the id of a sub-agent's turn, None for the run's own turn.

    It pairs the starts and ends of events, and records sent messages in the conversation.
    """

    def __init__(self, turn: str, conversation: AgUiConversation, owner: str | None = None) -> None:
        self.turn = turn
        self.owner = owner
        #: The agent's name, once it is known.
        self.name = ""
        #: The step that is open; empty between steps.
        self.step = ""
        #: The calls that interrupts are about, by the interrupt's id.
        self.asking_calls: dict[str, str] = {}
        #: The arguments that a person approved instead of a call's own, by call.
        self._changed: dict[str, JsonObject] = {}
        self.own = OwnEvents(turn, owner)
        self._conversation = conversation
        self._seq = 0
        #: The next piece's index; a piece with another one belongs to an unknown reply.
        self._index = 0
        #: The number of the assistant's messages so far, and whether the last one is open.
        self._messages = 0
        self._message_open = False
        #: Whether a reply is expected, of which pieces may have arrived.
        self._due = False
        self._users = 1
        self._text = ""
        #: The number of calls of earlier replies, if the turn is known from its beginning.
        self._calls: int | None = None
        #: The arguments of streamed calls that were not sent.
        self._unsent: dict[str, str] = {}
        #: Calls without a result, and messages to the turn, which follow the results.
        self._unsettled: set[str] = set()
        self._steers: list[str] = []

    def encode(self, event: TurnEvent) -> Events:
        """Return the client's events for an event."""
        match event:
            case DeltaEvent():
                if event.seq >= self._seq:  # else the journal has its reply
                    yield from self._hear(event)
            case ResponseRestartedEvent() | ResponseWithdrawnEvent():
                if event.seq >= self._seq:
                    yield from self._drop()
            case ToolProgressEvent() if event.call in self._unsettled:
                yield self.own.progress(event)
            case FactEvent():
                self._seq = event.seq
                if isinstance(event.fact, _CALLS | _REPLIES):
                    again = isinstance(event.fact, f.Concluded) and event.fact.retry
                    self._due = isinstance(event.fact, _CALLS) or again
                yield from self._fact(event)
            case TurnPausedEvent():
                self._seq, self._due = event.seq, False
                yield from self._hand_over()
            case TurnEndedEvent():
                self._seq, self._due = event.seq, False
                yield from self._halt(event)
            case _:
                pass

    def meet(self, fact: f.Fact) -> None:
        """Read the agent's name, if the fact has it."""
        if isinstance(fact, f.TurnStarted):
            self.name = str(fact.agent.get("name", ""))

    def restate(self) -> None:
        """Drop the streamed part of the expected reply, so that a snapshot is valid for every client."""
        thought, message = reasoning_id(self._message), self._message
        draft = self._conversation.drafts.get(message)
        if draft is not None and draft.calls:
            # A client of a new stream has none of them open. Each is sent from its beginning.
            self._unsent |= {identifier: call.arguments for identifier, call in draft.calls.items()}
            draft.calls.clear()
            if not draft.pieces:
                del self._conversation.drafts[message]
                self._conversation.forget(message)
        if self._due and thought not in self._conversation.drafts:
            self._conversation.tell(draft_message(thought, MessageDraft("reasoning", self.owner)))

    def resume(self) -> Events:
        """Open the current step again in a new run; the streamed message follows with its next piece."""
        for _, draft in self._drafts():
            draft.open = False
        if self.step:
            yield StepStartedEvent(step_name=self.step, subagent_run_id=self.owner)

    def suspend(self) -> Events:
        """Close everything that is open. The step continues in the next run."""
        for identifier, draft in self._drafts():
            yield from close(identifier, draft)
        if self.step:
            yield StepFinishedEvent(step_name=self.step, subagent_run_id=self.owner)

    # Facts.

    def _fact(self, event: FactEvent) -> Events:  # noqa: C901, PLR0912 (one case a fact: flat)
        match event.fact:
            case f.TurnStarted() as fact:
                self.meet(fact)
                self._calls = 0
                if self.owner is None and not self._conversation.has_prompt:
                    files = tuple(map(FilePart.of_json, fact.files))
                    self._conversation.tell(
                        UserMessage(id=f"{self.turn}/user-1", content=content_of(fact.prompt, files))
                    )
                    yield self._conversation.snapshot()
            case f.StepStarted(number=number, nudge=nudge, stall=stall):
                yield from self._end_step()
                self._messages, self._message_open, self._index = number, True, 0
                self.step = f"step-{number}"
                details = metadata(nudge=nudge or None, stall=stall)
                yield StepStartedEvent(step_name=self.step, subagent_run_id=self.owner, metadata=details)
            case f.ModelReplied() as fact:
                yield from self._reply(fact)
            case f.CallSettled() as fact:
                yield from self._settle_call(fact)
            case f.StepFinished() as fact:
                tools = None if event.tools is None else event.tools.to_json(self.turn)
                usage = {name: count for name, count in fact.usage.to_json().items() if name != "cost"}
                yield from self._end_step(usage=usage, seconds=fact.seconds, tools=tools)
            case f.MessageAdded(text=text):
                if self._unsettled:
                    self._steers.append(text)
                else:
                    yield from self._say(text)
            case f.Stopping() as fact:
                yield from self._settle("", _said(fact.partial))
                self._message_open = False
                yield self.own.fact(event)
            case f.CallWaiting(call=call, interrupts=interrupts):
                self.asking_calls |= {interrupt.id: call for interrupt in interrupts}
                yield self.own.fact(event)
            case f.Answered(arguments=dict() as arguments) if "/" not in event.fact.interrupt:
                self._changed[self.asking_calls.get(event.fact.interrupt, "")] = arguments
                yield self.own.fact(event)
            case _:
                yield self.own.fact(event)

    def _reply(self, fact: f.ModelReplied) -> Events:
        if fact.text or fact.reasoning or fact.reasoning_details or fact.calls:
            message = self._begin()
        else:
            message = self._message
        calls = [
            call_of(self.turn, call.id, call.name, call.raw if call.arguments is None else json.dumps(call.arguments))
            for call in fact.calls
        ]
        if self._calls is not None:
            self._calls += len(calls)
        calls_sent = yield from self._finish_calls(message, calls)
        yield from self._settle(fact.reasoning, fact.text, calls_sent)
        if not is_blank(fact.text):
            self._text = clean(fact.text)
        for call in calls:
            if call not in calls_sent:
                draft, function = MessageDraft("text", self.owner), call.function
                begun = CallDraft(function.name)
                yield from write_call(call.id, begun, message, draft, function.arguments)
                yield from close_call(call.id, begun, draft)
        if calls:
            assistant_message = AssistantMessage(
                id=message, content=clean(fact.text) or None, tool_calls=calls, subagent_run_id=self.owner
            )
            self._conversation.tell(assistant_message)
        self._unsettled = {call.id for call in fact.calls}

    def _finish_calls(self, message: str, calls: Sequence[ToolCall]) -> Generator[BaseEvent, None, list[ToolCall]]:
        """Complete the streamed calls. Returns those that the client has; any others are dropped with the message."""
        calls_sent: list[ToolCall] = []
        draft = self._conversation.drafts.get(message)
        if draft is None:
            return calls_sent
        for call in calls:
            begun = draft.calls.get(call.id)
            rest = None if begun is None else begun.rest(call.function)
            if begun is None or rest is None or (rest and not begun.open):
                break  # a client has the calls in the order in which it received them
            if begun.open:
                yield from write_call(call.id, begun, message, draft, rest)
                yield from close_call(call.id, begun, draft)
            del draft.calls[call.id]
            calls_sent.append(call)
        return calls_sent

    def _settle_call(self, fact: f.CallSettled) -> Events:
        identifier = call_id(self.turn, fact.call)
        yield from self.own.end_progress(fact)
        message = result_of(identifier, fact, self._changed.get(fact.call), self.owner)
        self._conversation.tell(message)
        yield ToolCallResultEvent(
            message_id=identifier,
            tool_call_id=identifier,
            content=message.content,
            metadata=message.metadata,
            subagent_run_id=self.owner,
        )
        self._unsettled.discard(fact.call)
        if not self._unsettled:
            yield from self._hand_over()

    def _halt(self, event: TurnEndedEvent) -> Events:
        unsaid = event.reason is EndReason.TEXT_ONLY and not self._text
        concludes = unsaid or event.outcome in (Outcome.CAP_HIT, Outcome.DOOM_LOOP, Outcome.SYNTHESIS_DONE)
        partial = _said(event.partial)
        if partial or not concludes:  # else what streamed in is the conclusion
            yield from self._settle("", partial)
        self._message_open = False
        yield from self._hand_over()
        if concludes:
            yield from self._settle("", event.text)
        yield from self._end_step()

    def _end_step(self, **beside: JsonValue) -> Events:
        if self.step:
            yield StepFinishedEvent(step_name=self.step, subagent_run_id=self.owner, metadata=metadata(**beside))
            self.step = ""

    def _hand_over(self) -> Events:
        steers, self._steers = self._steers, []
        for text in steers:
            yield from self._say(text)

    def _say(self, text: str) -> Events:
        """A message to the running turn."""
        self._users += 1
        identifier, owner, text = f"{self.turn}/user-{self._users}", self.owner, clean(text)
        self._conversation.tell(UserMessage(id=identifier, content=text, subagent_run_id=owner))
        yield TextMessageStartEvent(message_id=identifier, role="user", subagent_run_id=owner)
        yield TextMessageContentEvent(message_id=identifier, delta=text, subagent_run_id=owner)
        yield TextMessageEndEvent(message_id=identifier, subagent_run_id=owner)

    # Replies, as they stream in and as the journal has them.

    @property
    def _message(self) -> str:
        """Return the id of the assistant's open message, or of the next one."""
        return assistant_id(self.turn, self._messages + (not self._message_open))

    def _begin(self) -> str:
        identifier = self._message
        self._messages += not self._message_open
        self._message_open = True
        return identifier

    def _drafts(self) -> Sequence[tuple[str, MessageDraft]]:
        drafts = self._conversation.drafts
        return [
            (identifier, drafts[identifier])
            for identifier in (reasoning_id(self._message), self._message)
            if identifier in drafts
        ]

    def _hear(self, piece: DeltaEvent) -> Events:
        if isinstance(piece, OutputDeltaEvent):
            return  # the text or the call that it was read from is a piece of its own
        if piece.index == 0 and self._index:
            yield from self._drop()  # another driver started again
        if piece.index != self._index:
            return  # sent once the journal has it
        self._index += 1
        message, thought = self._message, reasoning_id(self._message)
        match piece:
            case ReasoningDeltaEvent(text=text) if text:
                yield from extend(self._conversation, thought, "reasoning", self.owner, clean(text))
            case TextDeltaEvent(text=text) if text:
                yield from self._close_text(thought)
                yield from extend(self._conversation, message, "text", self.owner, clean(text))
            case ToolCallDeltaEvent():
                yield from self._hear_call(message, piece)
            case _:
                pass

    def _hear_call(self, message: str, piece: ToolCallDeltaEvent) -> Events:
        if self._calls is None:
            return
        # The id that the machine will give the call. If it gives another, the call is dropped and sent again.
        identifier = call_id(self.turn, f"call{self._calls + piece.call_index + 1:05}")
        draft, delta = self._conversation.drafts.get(message), clean(piece.arguments_delta)
        call = None if draft is None else draft.calls.get(identifier)
        if draft is not None and call is not None:
            if call.open:  # else the run was suspended in between
                yield from write_call(identifier, call, message, draft, delta)
            return
        delta = self._unsent.pop(identifier, "") + delta
        if not piece.tool or piece.call_index != (0 if draft is None else len(draft.calls)):
            self._unsent[identifier] = delta
            return
        yield from self._close_text(reasoning_id(message))
        yield from self._close_text(message)
        draft = self._conversation.draft(message, "text", self.owner)
        yield from write_call(identifier, CallDraft(clean(piece.tool)), message, draft, delta)

    def _close_text(self, identifier: str) -> Events:
        draft = self._conversation.drafts.get(identifier)
        if draft is not None:
            yield from close_text(identifier, draft)

    def _drop(self) -> Events:
        """Drop the streamed part of the reply."""
        self._index = 0
        yield from self._settle("", "")

    def _settle(self, reasoning: str, text: str, calls: Sequence[ToolCall] = ()) -> Events:
        """Complete or correct the streamed part of a message. `calls` are those that the client has."""
        message = self._message
        if text or reasoning:
            message = self._begin()
        self._index = 0
        self._unsent.clear()
        talk = self._conversation
        dropped = yield from settle(talk, reasoning_id(message), "reasoning", self.owner, clean(reasoning))
        dropped |= yield from settle(talk, message, "text", self.owner, clean(text))
        if calls:
            cleaned_text = clean(text) or None
            self._conversation.tell(
                AssistantMessage(id=message, content=cleaned_text, tool_calls=list(calls), subagent_run_id=self.owner)
            )
        if dropped:
            yield self._conversation.snapshot()


def _said(partial: str) -> str:
    """Return the text of an interrupted reply; None for a blank one, which is not a message of the turn either."""
    return "" if is_blank(partial) else partial
