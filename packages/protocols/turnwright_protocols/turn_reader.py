"""Reads the events of one turn, live or from its journal, as the items that every protocol encodes."""

import json
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from turnwright.context import JsonObject
from turnwright.message import FilePart
from turnwright.transcript.events import (
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
from turnwright.transcript.tool_phase import assistant_id
from turnwright_states import EndReason, Outcome
from turnwright_states import facts as f
from turnwright_states.inputs import is_blank

from . import items as i
from .client_tools import client_tools_in
from .items import Call, Item, Kind, clean

#: After these facts a model is called; with these its reply is there.
_CALLS: Final = f.TurnStarted | f.StepStarted | f.Stopping
_REPLIES: Final = f.ModelReplied | f.Concluded
_KINDS: Final[tuple[Kind, Kind]] = ("reasoning", "text")

Items = Iterator[Item]


@dataclass(slots=True)
class _CallDraft:
    """A streamed call, as far as it was passed on. It is `open` between its start and its end."""

    name: str
    arguments: str = ""
    open: bool = True

    def rest(self, whole: Call) -> str | None:
        """Return the part of the complete call that was not passed on; None if that was another call."""
        if self.name != whole.name:
            return None
        if whole.arguments.startswith(self.arguments):
            return whole.arguments[len(self.arguments) :]
        # The journal has the arguments as JSON, not as the model's text.
        try:
            is_same: bool = json.loads(self.arguments) == json.loads(whole.arguments)
        except ValueError:
            is_same = False
        return "" if is_same else None


@dataclass(slots=True)
class _Draft:
    """A streamed text with its streamed calls, as far as it was passed on."""

    pieces: list[str] = field(default_factory=list)
    open: bool = False
    calls: dict[str, _CallDraft] = field(default_factory=dict)


class TurnReader:
    """Reads the events of one turn, beginning with its first one.

    It pairs starts and ends: each text and each call that starts also ends, before anything else of its message. Pieces
    of a reply that do not connect to the earlier ones are left out, and the reply brings their text.
    """

    def __init__(self, turn: str, client_tools: Collection[str] = ()) -> None:
        self.turn = turn
        #: The tools that the client runs: these, and those that the turn's first fact declares.
        self.client_tools = frozenset(client_tools)
        #: The number of the open step; 0 between steps.
        self.step = 0
        #: Whether a reply is expected, of which pieces may have arrived.
        self.expects_reply = False
        self._seq = 0
        #: The next piece's index; a piece with another one belongs to an unknown reply.
        self._index = 0
        #: The number of the assistant's messages so far, and whether the last one is open.
        self._messages = 0
        self._message_open = False
        self._users = 1
        self._text = ""
        #: The number of calls of earlier replies, if the turn is known from its beginning.
        self._calls: int | None = None
        #: The texts and calls of the expected reply, by message and kind.
        self._drafts: dict[tuple[str, Kind], _Draft] = {}
        #: The arguments of streamed calls that were not passed on.
        self._unsent: dict[str, str] = {}
        #: Calls without a result, and messages to the turn, which follow the results.
        self._unsettled: set[str] = set()
        self._steers: list[str] = []
        #: The calls that interrupts are about, and the arguments that a person approved instead of a call's own.
        self._asking_calls: dict[str, str] = {}
        self._changed: dict[str, JsonObject] = {}

    @property
    def message(self) -> str:
        """The id of the assistant's open message, or of the next one."""
        return assistant_id(self.turn, self._messages + (not self._message_open))

    def read(self, event: TurnEvent) -> Items:
        """Return the items of an event, in order."""
        match event:
            case DeltaEvent():
                if event.seq >= self._seq:  # else the journal has its reply
                    yield from self._hear(event)
            case ResponseRestartedEvent() | ResponseWithdrawnEvent():
                if event.seq >= self._seq:
                    yield from self._drop()
            case ToolProgressEvent() if event.call in self._unsettled:
                yield i.CallProgressItem(event.call, event)
            case FactEvent():
                self._seq = event.seq
                if isinstance(event.fact, _CALLS | _REPLIES):
                    again = isinstance(event.fact, f.Concluded) and event.fact.retry
                    self.expects_reply = isinstance(event.fact, _CALLS) or again
                yield from self._fact(event)
            case TurnPausedEvent():
                self._seq, self.expects_reply = event.seq, False
                yield from self._deliver()
                yield i.PauseItem(event)
            case TurnEndedEvent():
                self._seq, self.expects_reply = event.seq, False
                yield from self._halt(event)
                yield i.EndItem(event)
            case _:
                pass

    def suspend(self) -> Items:
        """End every open text and call. Texts continue with their next pieces after `reopen`, calls with the reply."""
        for kind in _KINDS:
            draft = self._drafts.get((self.message, kind))
            if draft is not None:
                yield from self._close(self.message, kind, draft)

    def reopen(self) -> None:
        """Begin another stream: the open text starts again with its next piece."""
        for kind in _KINDS:
            draft = self._drafts.get((self.message, kind))
            if draft is not None:
                draft.open = False

    def resend_calls(self) -> None:
        """Pass streamed calls on from their beginning: a client of a new stream has none of them."""
        key: tuple[str, Kind] = (self.message, "text")
        draft = self._drafts.get(key)
        if draft is not None and draft.calls:
            self._unsent |= {call: call_draft.arguments for call, call_draft in draft.calls.items()}
            draft.calls.clear()
            if not draft.pieces:
                del self._drafts[key]

    # Facts.

    def _fact(self, event: FactEvent) -> Items:  # noqa: C901, PLR0912 (one case a fact: flat)
        match event.fact:
            case f.TurnStarted(agent=agent, prompt=prompt, files=files) as turn_start:
                self.client_tools |= client_tools_in(turn_start)
                self._calls = 0
                yield i.TurnStartItem(str(agent.get("name", "")), prompt, tuple(map(FilePart.of_json, files)))
            case f.StepStarted(number=number, nudge=nudge, stall=stall):
                yield from self._end_step()
                self._messages, self._message_open, self._index, self.step = number, True, 0, number
                yield i.StepStartItem(number, nudge, stall)
            case f.ModelReplied() as fact:
                yield from self._reply(fact)
            case f.CallStarted(call=call):
                yield i.CallRunItem(call, event)
            case f.CallSettled(call=call) as fact:
                yield i.CallResultItem(call, fact, self._changed.get(call))
                self._unsettled.discard(call)
                if not self._unsettled:
                    yield from self._deliver()
            case f.StepFinished() as fact:
                yield from self._end_step(fact, event)
            case f.MessageAdded(text=text):
                self._steers.append(text)
                if not self._unsettled:
                    yield from self._deliver()
            case f.Stopping() as fact:
                yield from self._settle("", _shown_text(fact.partial))
                self._message_open = False
                yield i.FactItem(event)
            case f.CallWaiting(call=call, interrupts=interrupts):
                self._asking_calls |= {interrupt.id: call for interrupt in interrupts}
                yield i.CallAskItem(call, tuple(interrupts), event)
            case f.Answered(interrupt=interrupt, arguments=dict() as arguments) if "/" not in interrupt:
                self._changed[self._asking_calls.get(interrupt, "")] = arguments
                yield i.FactItem(event)
            case _:
                yield i.FactItem(event)

    def _reply(self, fact: f.ModelReplied) -> Items:
        if fact.text or fact.reasoning or fact.reasoning_details or fact.calls:
            self._open_message()
        message = self.message
        calls = tuple(
            Call(
                call.id,
                clean(call.name),
                clean(call.raw if call.arguments is None else json.dumps(call.arguments)),
            )
            for call in fact.calls
        )
        if self._calls is not None:
            self._calls += len(calls)
        calls_sent = yield from self._finish_calls(message, calls)
        yield from self._settle(fact.reasoning, fact.text, calls_sent)
        if not is_blank(fact.text):
            self._text = clean(fact.text)
        for call in calls[len(calls_sent) :]:
            yield i.CallInputStartItem(call.id, call.name, message)
            if call.arguments:
                yield i.CallInputDeltaItem(call.id, call.arguments)
            yield i.CallInputEndItem(call.id)
        if calls:
            yield i.CallsItem(message, clean(fact.text), calls)
        self._unsettled = {call.id for call in fact.calls}

    def _finish_calls(self, message: str, calls: Sequence[Call]) -> Generator[Item, None, tuple[Call, ...]]:
        """Complete the streamed calls. Returns those that were passed on; the others are dropped."""
        calls_sent: list[Call] = []
        draft = self._drafts.get((message, "text"))
        if draft is None:
            return ()
        for call in calls:
            call_draft = draft.calls.get(call.id)
            tail = None if call_draft is None else call_draft.rest(call)
            if call_draft is None or tail is None or (tail and not call_draft.open):
                break  # a client has the calls in the order in which it received them
            if call_draft.open:
                if tail:
                    yield i.CallInputDeltaItem(call.id, tail)
                yield i.CallInputEndItem(call.id)
            del draft.calls[call.id]
            calls_sent.append(call)
        return tuple(calls_sent)

    def _halt(self, event: TurnEndedEvent) -> Items:
        is_unsaid = event.reason is EndReason.TEXT_ONLY and not self._text
        concludes = is_unsaid or event.outcome in (Outcome.CAP_HIT, Outcome.DOOM_LOOP, Outcome.SYNTHESIS_DONE)
        partial = _shown_text(event.partial)
        if partial or not concludes:  # else what streamed in is the conclusion
            yield from self._settle("", partial)
        self._message_open = False
        yield from self._deliver()
        if concludes:
            yield from self._settle("", event.text)
        yield from self._end_step()

    def _end_step(self, fact: f.StepFinished | None = None, event: FactEvent | None = None) -> Items:
        if self.step:
            yield i.StepEndItem(self.step, fact, None if event is None else event.tools)
            self.step = 0

    def _deliver(self) -> Items:
        """Pass on the messages to the running turn."""
        steers, self._steers = self._steers, []
        for text in steers:
            self._users += 1
            yield i.UserMessageItem(f"{self.turn}/user-{self._users}", clean(text))

    # Replies, as they stream in and as the journal has them.

    def _open_message(self) -> None:
        self._messages += not self._message_open
        self._message_open = True

    def _hear(self, piece: DeltaEvent) -> Items:
        if isinstance(piece, OutputDeltaEvent):
            return  # the text or the call that it was read from is a piece of its own
        if piece.index == 0 and self._index:
            yield from self._drop()  # another driver started again
        if piece.index != self._index:
            return  # passed on once the journal has it
        self._index += 1
        match piece:
            case ReasoningDeltaEvent(text=text) if text:
                yield from self._write(self.message, "reasoning", clean(text))
            case TextDeltaEvent(text=text) if text:
                yield from self._close_text(self.message, "reasoning")
                yield from self._write(self.message, "text", clean(text))
            case ToolCallDeltaEvent():
                yield from self._hear_call(self.message, piece)
            case _:
                pass

    def _hear_call(self, message: str, piece: ToolCallDeltaEvent) -> Items:
        if self._calls is None:
            return
        # The id that the machine will give the call. If it gives another, the call is dropped and sent again.
        identifier = f"call{self._calls + piece.call_index + 1:05}"
        draft, delta = self._drafts.get((message, "text")), clean(piece.arguments_delta)
        call = None if draft is None else draft.calls.get(identifier)
        if call is not None:
            if call.open and delta:  # else the stream was suspended in between
                call.arguments += delta
                yield i.CallInputDeltaItem(identifier, delta)
            return
        delta = self._unsent.pop(identifier, "") + delta
        if not piece.tool or piece.call_index != (0 if draft is None else len(draft.calls)):
            self._unsent[identifier] = delta
            return
        for kind in _KINDS:
            yield from self._close_text(message, kind)
        draft = self._drafts.setdefault((message, "text"), _Draft())
        draft.calls[identifier] = _CallDraft(clean(piece.tool), delta)
        yield i.CallInputStartItem(identifier, clean(piece.tool), message)
        if delta:
            yield i.CallInputDeltaItem(identifier, delta)

    def _drop(self) -> Items:
        """Drop the streamed part of the reply."""
        self._index = 0
        yield from self._settle("", "")

    def _settle(self, reasoning: str, text: str, calls: tuple[Call, ...] = ()) -> Items:
        """Complete or correct the streamed part of a message. `calls` are its streamed calls that are valid."""
        message, reasoning, text = self.message, clean(reasoning), clean(text)
        if text or reasoning:
            self._open_message()
        self._index = 0
        self._unsent.clear()
        is_empty = not (reasoning or text or calls or any((message, kind) in self._drafts for kind in _KINDS))
        is_replaced = yield from self._complete(message, "reasoning", reasoning)
        is_replaced |= yield from self._complete(message, "text", text)
        if not is_empty:
            yield i.ReplyItem(message, reasoning, text, calls, is_replaced)

    def _complete(self, message: str, kind: Kind, final: str) -> Generator[Item, None, bool]:
        """Complete one text of a message. Returns whether the part that was passed on is wrong."""
        draft = self._drafts.get((message, kind))
        text_so_far = "" if draft is None else "".join(draft.pieces)
        is_valid = final.startswith(text_so_far) and not (draft is not None and draft.calls)
        if is_valid and final != text_so_far:
            yield from self._write(message, kind, final[len(text_so_far) :])
        draft = self._drafts.pop((message, kind), None)
        if draft is not None:
            yield from self._close(message, kind, draft)
        return not is_valid

    def _write(self, message: str, kind: Kind, delta: str) -> Items:
        draft = self._drafts.setdefault((message, kind), _Draft())
        if not draft.open:
            draft.open = True
            yield i.TextStartItem(message, kind)
        draft.pieces.append(delta)
        yield i.TextDeltaItem(message, kind, delta)

    def _close(self, message: str, kind: Kind, draft: _Draft) -> Items:
        for identifier, call in draft.calls.items():
            if call.open:
                call.open = False
                yield i.CallInputEndItem(identifier)
        yield from self._close_text(message, kind, draft)

    def _close_text(self, message: str, kind: Kind, draft: _Draft | None = None) -> Items:
        draft = self._drafts.get((message, kind)) if draft is None else draft
        if draft is not None and draft.open:
            draft.open = False
            yield i.TextEndItem(message, kind)


def _shown_text(partial: str) -> str:
    """Return the text of an interrupted reply; empty for a blank one, which is not a message of the turn either."""
    return "" if is_blank(partial) else partial
