"""Encode the account of a turn as the chunks of a UI message stream."""

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from pydantic import JsonValue

from turnwright.context import JsonObject
from turnwright.journal.questions import ALWAYS_WORDS, words
from turnwright.transcript.events import TurnEndedEvent, TurnEvent
from turnwright.transcript.interrupt import Interrupt
from turnwright_protocols import items as i
from turnwright_protocols.client_tools import settleable, waits_for_client
from turnwright_protocols.endings import ending_of, explain_end, record_end
from turnwright_protocols.items import APPROVALS, Call, Item, asking_call, clean, clean_json
from turnwright_protocols.turn_reader import TurnReader
from turnwright_states import CallStatus, Decision
from turnwright_states import facts as f

#: The key of our metadata, and the beginning of the types of our data parts.
METADATA_KEY: Final = "turnwright"
DATA: Final = "data-turnwright-"
#: Why a message ended; "other" for a limit.
_FINISHES: Final = {"answered": "stop", "cut": "length", "refused": "content-filter"}
_WITHDRAWN: Final = "the call was withdrawn"

Chunk = dict[str, JsonValue]
Chunks = Iterator[Chunk]


class ChunkEncoder:
    """Translates the events of one turn into chunks. No I/O.

    `absorb` reads what the client has already. `closed` are interrupts that need no answer any more. `client_tools` are
    tools that the page runs, besides those that the turn's first fact declares: a call of one is announced when it may
    run. With `resets`, a text that is withdrawn is removed by `reset-step`, which version 7 of the SDK knows; otherwise
    it stays, and the new text follows it.
    """

    def __init__(
        self,
        turn: str,
        *,
        resets: bool = False,
        reasoning: bool = True,
        closed_ids: Collection[str] = (),
        client_tools: Collection[str] = (),
    ) -> None:
        self.turn = turn
        self._resets = resets
        self._reasoning = reasoning
        self._closed = closed_ids
        self._reader = TurnReader(turn, client_tools)
        #: The message of the open step.
        self._step = ""
        #: Whether the message that streams is complete.
        self.is_over = False
        #: The number of texts so far: a text that starts again has another id.
        self._texts = 0
        #: The tools of streamed calls that are not announced yet; the announced calls without a result; and the
        #: sub-agents' calls that ask, by interrupt.
        self._streamed: dict[str, str] = {}
        self._unsettled: dict[str, Call] = {}
        self._forwarded: dict[str, str] = {}

    def choose_questions(self, interrupts: Sequence[Interrupt]) -> list[Interrupt]:
        """Return the interrupts without results that others than the page owe."""
        return settleable(interrupts, self._reader.client_tools)

    def absorb(self, event: TurnEvent) -> None:
        """Read an event that the client has."""
        for item in self._reader.read(event):
            list(self._encode(item))

    def start(self, message: str, *, announces: bool = False) -> list[Chunk]:
        """Return the first chunks of a stream. `message` is the id of the message that it continues.

        With `announces` that is a new message, in which the calls without a result are announced again.
        """
        self._reader.reopen()
        self.is_over = False
        start_chunk: Chunk = {"type": "start", "messageId": message}
        start_chunk["messageMetadata"] = {METADATA_KEY: {"turn": self.turn}}
        calls = [*self._unsettled.values()] if announces else []
        return [
            start_chunk,
            *(
                self._tool("tool-input-start", call.id, **self._name_tool(call.name))
                if call.name in self._reader.client_tools
                else self._announce(call.id, call.name, _parse(call.arguments))
                for call in calls
            ),
        ]

    def encode(self, event: TurnEvent) -> list[Chunk]:
        """Return the chunks of an event; empty for an event of another turn."""
        if event.turn != self.turn:
            return []
        return [chunk for item in self._reader.read(event) for chunk in self._encode(item)]

    def close(self, error: str) -> list[Chunk]:
        """End a stream that ends before the turn does."""
        chunks = [chunk for item in self._reader.suspend() for chunk in self._encode(item)]
        return [*chunks, *self._end_step(), {"type": "error", "errorText": error}]

    def _encode(self, item: Item) -> Chunks:  # noqa: C901, PLR0912 (one case an item: flat)
        match item:
            case i.TextStartItem() | i.TextDeltaItem() | i.TextEndItem():
                yield from self._write(item)
            case i.CallInputStartItem(call=call, name=name, message=message):
                yield from self._begin_step(message)
                self._streamed[call] = name
                yield self._tool("tool-input-start", call, **self._name_tool(name))
            case i.CallInputDeltaItem(call=call, delta=delta):
                yield self._tool("tool-input-delta", call, inputTextDelta=delta)
            case i.ReplyItem():
                yield from self._settle_reply(item)
            case i.CallsItem(calls=calls):
                self._unsettled = {new_call.id: new_call for new_call in calls}
                for new_call in calls:
                    self._streamed.pop(new_call.id, None)
                    if new_call.name not in self._reader.client_tools:  # the page would run the call before it may run
                        yield self._announce(new_call.id, new_call.name, _parse(new_call.arguments))
                yield from self._withdraw_calls()
            case i.CallRunItem(call=call):
                yield self._data("call", {"call": self._id(call), "state": "in_progress"}, transient=True)
            case i.CallProgressItem(call=call, event=event):
                progress = {name: value for name, value in event.public().items() if name not in ("turn", "seq")}
                yield self._data("progress", {**progress, "call": self._id(call)}, transient=True)
            case i.CallResultItem():
                yield from self._settle_call(item)
            case i.UserMessageItem(message=message, text=text):
                yield self._data("message", {"id": message, "text": text})
            case i.FactItem(event=event):
                yield from self._settle_forwarded(event.fact)
                if event.text:
                    yield self._data("notice", {"text": clean(event.text)}, transient=True)
            case i.PauseItem(event=event):
                yield from self._pause(event.interrupts)
            case i.EndItem(event=event):
                yield from self._end(event)
            case _:
                pass

    def _begin_step(self, message: str) -> Chunks:
        """Begin a step of the SDK with each message of the model: `reset-step` removes what follows its beginning."""
        if self._step != message:
            yield from self._end_step()
            self._step = message
            yield {"type": "start-step"}

    def _end_step(self) -> Chunks:
        if self._step:
            self._step = ""
            yield {"type": "finish-step"}

    def _write(self, item: i.TextStartItem | i.TextDeltaItem | i.TextEndItem) -> Chunks:
        if item.kind == "reasoning" and not self._reasoning:
            return
        if isinstance(item, i.TextStartItem):
            yield from self._begin_step(item.message)
            self._texts += 1
        chunk: Chunk = {"type": f"{item.kind}-start", "id": f"{item.message}#{self._texts}"}
        if isinstance(item, i.TextDeltaItem):
            chunk |= {"type": f"{item.kind}-delta", "delta": item.delta}
        elif isinstance(item, i.TextEndItem):
            chunk["type"] = f"{item.kind}-end"
        yield chunk

    def _settle_reply(self, item: i.ReplyItem) -> Chunks:
        """Correct a reply whose pieces were wrong: remove them if the client can, then send the valid text."""
        if not item.replaced:
            return
        if self._resets:
            self._streamed.clear()
            yield {"type": "reset-step"}
        texts: list[tuple[i.Kind, str]] = [("reasoning", item.reasoning), ("text", item.text)]
        for kind, text in texts:
            if text:
                yield from self._write(i.TextStartItem(item.message, kind))
                yield from self._write(i.TextDeltaItem(item.message, kind, text))
                yield from self._write(i.TextEndItem(item.message, kind))
        if self._resets:
            for call in item.calls:  # valid calls keep their place before those that follow
                self._streamed[call.id] = call.name
                yield self._tool("tool-input-start", call.id, **self._name_tool(call.name))

    def _announce(self, call: str, name: str, arguments: JsonValue) -> Chunk:
        return self._tool("tool-input-available", call, input=arguments, **self._name_tool(name))

    def _name_tool(self, tool: str) -> Chunk:
        """Return the fields of a call that name its tool. The page runs a call that is not the provider's."""
        if tool in self._reader.client_tools:
            return {"toolName": tool}
        return {"toolName": tool, "dynamic": True, "providerExecuted": True}

    def _withdraw_calls(self) -> Chunks:
        """Settle the calls that were streamed in a reply that is not valid."""
        for call, name in self._streamed.items():
            yield self._tool("tool-input-error", call, input=None, errorText=_WITHDRAWN, **self._name_tool(name))
        self._streamed.clear()

    def _settle_call(self, item: i.CallResultItem) -> Chunks:
        fact, call = item.fact, self._unsettled.pop(item.call, None)
        if item.changed is not None and call is not None and call.name not in self._reader.client_tools:
            yield self._announce(call.id, call.name, _json(item.changed))
        if fact.status is CallStatus.REJECTED:
            yield self._tool("tool-output-denied", item.call)
        elif fact.status is CallStatus.OK:
            output = fact.result if fact.structured is None else fact.structured
            yield self._tool("tool-output-available", item.call, output=output)
        else:
            yield self._tool("tool-output-error", item.call, errorText=fact.result or str(fact.status))

    def _settle_forwarded(self, fact: f.Fact) -> Chunks:
        """Settle the part of a sub-agent's question, whose call has no result of its own here."""
        if isinstance(fact, f.Answered) and (call := self._forwarded.pop(fact.interrupt, "")):
            if fact.decision is Decision.APPROVE:
                yield self._tool("tool-output-available", call, output=str(fact.decision))
            else:
                yield self._tool("tool-output-denied", call)

    def _pause(self, interrupts: Sequence[Interrupt]) -> Chunks:
        for interrupt in interrupts:
            if interrupt.kind in APPROVALS and interrupt.call != asking_call(interrupt):
                # A sub-agent asks: its call is not in this message yet.
                self._forwarded[interrupt.id] = interrupt.call
                yield self._announce(interrupt.call, interrupt.tool, _json(interrupt.arguments or {}))
            elif waits_for_client(interrupt, self._reader.client_tools):
                chunk = self._announce(interrupt.call, interrupt.tool, _json(interrupt.arguments or {}))
                # The page does not run a call again that has its output.
                yield {**chunk, "providerExecuted": True} if interrupt.id in self._closed else chunk
        open_interrupts = [interrupt for interrupt in interrupts if interrupt.id not in self._closed]
        client_calls = [
            interrupt for interrupt in open_interrupts if waits_for_client(interrupt, self._reader.client_tools)
        ]
        for interrupt in open_interrupts:
            if interrupt not in client_calls:
                yield from self._ask(interrupt)
        if open_interrupts:  # else the turn continues, and so does the stream
            yield from self._end_step()
            self.is_over = True
            has_calls = client_calls or any(interrupt.kind in APPROVALS for interrupt in open_interrupts)
            yield {"type": "finish", "finishReason": "tool-calls" if has_calls else "stop"}

    def _ask(self, interrupt: Interrupt) -> Chunks:
        identifier = f"{self.turn}/{interrupt.id}"
        question = clean(words(interrupt, choices=False))
        if interrupt.kind in APPROVALS:
            yield self._tool("tool-approval-request", interrupt.call, approvalId=identifier)
            approval: Chunk = {"id": identifier, "question": question}
            if interrupt.may_cover_equal_calls:
                approval["always"] = ALWAYS_WORDS
            yield self._data("approval", approval, identifier=identifier)
            return
        details = {name: value for name, value in interrupt.to_json().items() if name != "call"}
        details |= {"id": identifier, "question": question}
        if call := asking_call(interrupt):
            details["toolCallId"] = self._id(call)
        yield self._data("question", details, identifier=identifier)

    def _end(self, event: TurnEndedEvent) -> Chunks:
        yield from self._withdraw_calls()
        yield from self._end_step()
        self.is_over = True
        record: Chunk = {"turn": self.turn, **record_end(event)}
        metadata: Chunk = {"messageMetadata": {METADATA_KEY: record}}
        ending = ending_of(event.outcome, event.reason)
        if ending == "stopped":
            yield {"type": "message-metadata", **metadata}
            yield {"type": "abort", "reason": str(event.reason)}
            return
        if ending == "failed":
            yield {"type": "message-metadata", **metadata}
            yield {"type": "error", "errorText": explain_end(event)}
            return
        if event.sentinel is not None:
            yield self._data("notice", {"text": clean(event.sentinel.text)})
        yield {"type": "finish", "finishReason": _FINISHES.get(ending, "other"), **metadata}

    def _id(self, call: str) -> str:
        return f"{self.turn}/{call}"

    def _tool(self, kind: str, call: str, **fields: JsonValue) -> Chunk:
        return {"type": kind, "toolCallId": self._id(call), **fields}

    def _data(self, kind: str, data: Chunk, *, transient: bool = False, identifier: str = "") -> Chunk:
        chunk: Chunk = {"type": f"{DATA}{kind}", "data": data}
        if identifier:
            chunk["id"] = identifier
        return {**chunk, "transient": True} if transient else chunk


def _json(arguments: JsonObject) -> Chunk:
    return clean_json({**arguments})


def _parse(arguments: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value
