"""Encode the account of one segment of a turn as a response: its items, and the events of its stream."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import JsonValue

from turnwright.context import JsonObject
from turnwright.journal.questions import words
from turnwright.transcript.events import FactEvent, TurnEndedEvent, TurnEvent
from turnwright.transcript.interrupt import Interrupt
from turnwright_protocols import items as i
from turnwright_protocols.client_tools import call_reference, settleable, waits_for_client
from turnwright_protocols.conversations import without_approved
from turnwright_protocols.endings import Ending, ending_of, explain_end
from turnwright_protocols.items import APPROVALS, Item, arguments_text, clean
from turnwright_protocols.segment_usage import SegmentUsage
from turnwright_protocols.turn_reader import TurnReader
from turnwright_states import CallStatus
from turnwright_states.payload import thaw

Json = dict[str, JsonValue]
Events = Iterator[Json]

#: The label of the server whose tools were called: this one.
SERVER: Final = "turnwright"
#: The status of an ended turn's response, and why it is incomplete. Of another limit, that is the turn's reason.
_STATUSES: Final[Mapping[Ending, tuple[str, str]]] = {
    "answered": ("completed", ""),
    "cut": ("incomplete", "max_output_tokens"),
    "writing limit": ("incomplete", "max_output_tokens"),
    "limit": ("incomplete", ""),
    "stopped": ("cancelled", ""),
    "refused": ("incomplete", "content_filter"),
    "failed": ("failed", ""),
}


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """The items of responses.

    `calls`: calls of the server's tools are items `mcp_call`, which OpenAI's clients know, or `function_call_output`,
    which those of Open Responses know. `approvals`: an approval is an item `mcp_approval_request`, or a text that the
    next input answers with yes or no. With `reasoning`, the model's reasoning is an item.
    """

    calls: Literal["mcp", "outputs"] = "mcp"
    approvals: Literal["mcp", "text"] = "mcp"
    reasoning: bool = False


@dataclass(slots=True)
class Segment:
    """A segment of a turn, which is one response: from the fact after `seq` to the next pause or the end."""

    turn: str
    seq: int
    #: Fields of the response that repeat the request.
    request: Mapping[str, JsonValue] = field(default_factory=dict)
    created_at: float = 0.0

    @property
    def id(self) -> str:
        """The id of the response."""
        return f"resp_{self.turn}_{self.seq}"


class ResponseEncoder:
    """Translates the events of one segment into the events of its response. No I/O.

    `absorb` reads the events before the segment. `response` is the response so far. `user` approves once.
    """

    def __init__(self, segment: Segment, options: ResponseOptions | None = None, user: str = "") -> None:
        self._segment = segment
        self._options = options or ResponseOptions()
        self._reader = TurnReader(segment.turn)
        #: Chooses the interrupts that the client can answer.
        self.choose_questions = without_approved(
            user, lambda interrupts: settleable(interrupts, self._reader.client_tools)
        )
        self._usage = SegmentUsage()
        self._number = 0
        self._elapsed = 0.0
        self._output: list[Json] = []
        #: The places of open texts in the output, by message and kind; and the announced calls.
        self._open: dict[tuple[str, i.Kind], int] = {}
        self._calls: dict[str, i.Call] = {}
        #: The calls that the client runs, as far as it was sent them.
        self._client_calls: set[str] = set()
        self._status = "in_progress"
        self._error: JsonValue = None
        self._incomplete: JsonValue = None
        self._record: Json = {"turn": segment.turn}

    @property
    def is_over(self) -> bool:
        """Whether the segment has ended."""
        return self._status not in ("queued", "in_progress")

    def absorb(self, event: TurnEvent) -> None:
        """Read an event before the segment."""
        for item in self._reader.read(event):
            if isinstance(item, i.CallsItem):
                self._calls = {call.id: call for call in item.calls}
            elif isinstance(item, i.PauseItem):
                self._client_calls |= {interrupt.call for interrupt in self._client_interrupts(item)}
        if isinstance(event, FactEvent):
            self._usage.add(event.fact)
        self._usage.begin()

    def _client_interrupts(self, item: i.PauseItem) -> list[Interrupt]:
        client_tools = self._reader.client_tools
        return [interrupt for interrupt in item.event.interrupts if waits_for_client(interrupt, client_tools)]

    def start(self) -> list[Json]:
        """Return the first events of a stream."""
        self._reader.reopen()
        return [self._event(f"response.{kind}", response=self.response) for kind in ("created", "in_progress")]

    def encode(self, event: TurnEvent) -> list[Json]:
        """Return the events of the stream for an event of the turn."""
        if event.turn != self._segment.turn or self.is_over:
            return []
        if isinstance(event, FactEvent):
            self._usage.add(event.fact)
            self._elapsed = event.fact.elapsed
        return [chunk for item in self._reader.read(event) for chunk in self._encode(item)]

    def close(self, error: str) -> list[Json]:
        """End a stream whose turn did not end: the response stays in progress, or failed here."""
        return [self._event("error", code="server_error", message=error, param=None)]

    @property
    def response(self) -> Json:
        """The response so far."""
        fields: Json = {
            "id": self._segment.id,
            "object": "response",
            "created_at": int(self._segment.created_at),
            "completed_at": int(self._segment.created_at + self._elapsed) if self._status == "completed" else None,
            "status": self._status,
            "error": self._error,
            "incomplete_details": self._incomplete,
            "output": [*self._output],
            "usage": self._usage_json() if self.is_over else None,
            "tools": [],
            "tool_choice": "auto",
            "truncation": "disabled",
            "parallel_tool_calls": True,
            "text": {"format": {"type": "text"}},
            "top_p": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "top_logprobs": 0,
            "temperature": 1.0,
            "reasoning": None,
            "max_output_tokens": None,
            "max_tool_calls": None,
            "store": True,
            "background": False,
            "service_tier": "default",
            "safety_identifier": None,
            "prompt_cache_key": None,
            "previous_response_id": None,
            "instructions": None,
            "model": "",
            "metadata": {},
        }
        fields |= self._segment.request
        metadata = fields["metadata"] if isinstance(fields["metadata"], dict) else {}
        fields["metadata"] = {**metadata, SERVER: json.dumps(self._record)}
        return fields

    @property
    def items(self) -> dict[str, Json]:
        """The items of the response so far, by their ids."""
        return {str(item["id"]): item for item in self._output}

    def _encode(self, item: Item) -> Events:
        match item:
            case i.TextStartItem(message=message, kind=kind):
                yield from self._start_text(message, kind)
            case i.TextDeltaItem(message=message, kind=kind, delta=delta):
                yield from self._write(message, kind, delta)
            case i.TextEndItem(message=message, kind=kind):
                yield from self._end_text(message, kind)
            case i.ReplyItem() if item.replaced:
                yield from self._replace(item)
            case i.CallsItem(calls=calls):
                self._calls = {call.id: call for call in calls}
            case i.CallResultItem() if item.call not in self._client_calls:  # else the client gave the result
                yield from self._settle_call(item)
            case i.PauseItem(event=event):
                client_interrupts = self._client_interrupts(item)
                for interrupt in event.interrupts:
                    yield from self._hand_out(interrupt) if interrupt in client_interrupts else self._ask(interrupt)
                self._status = "completed"
                yield self._event("response.completed", response=self.response)
            case i.EndItem(event=event):
                yield from self._end(event)
            case _:
                pass

    # Texts.

    def _start_text(self, message: str, kind: i.Kind) -> Events:
        if kind == "reasoning" and not self._options.reasoning:
            return
        place = self._open[message, kind] = len(self._output)
        name = f"{message.rpartition('/')[2]}-{place}".replace("assistant", "")
        if kind == "text":
            item: Json = {"type": "message", "id": f"msg_{self._segment.turn}{name}", "role": "assistant"}
        else:
            item = {"type": "reasoning", "id": f"rs_{self._segment.turn}{name}", "summary": []}
        item |= {"status": "in_progress", "content": []}
        self._output.append(item)
        yield self._event("response.output_item.added", output_index=place, item={**item})
        if kind == "text":
            part = _text_part("")
            item["content"] = [part]
            yield self._part("response.content_part.added", place, part={**part})
        else:
            item["content"] = [{"type": "reasoning_text", "text": ""}]

    def _write(self, message: str, kind: i.Kind, delta: str) -> Events:
        place = self._open.get((message, kind))
        if place is None:
            return
        part = self._content(place)
        part["text"] = f"{part['text']}{delta}"
        if kind == "text":
            yield self._part("response.output_text.delta", place, delta=delta, logprobs=[])
        else:
            yield self._part("response.reasoning_text.delta", place, delta=delta)

    def _end_text(self, message: str, kind: i.Kind) -> Events:
        place = self._open.pop((message, kind), None)
        if place is None:
            return
        item, part = self._output[place], self._content(place)
        item["status"] = "completed"
        if kind == "text":
            yield self._part("response.output_text.done", place, text=part["text"], logprobs=[])
            yield self._part("response.content_part.done", place, part={**part})
        else:
            yield self._part("response.reasoning_text.done", place, text=part["text"])
        yield self._event("response.output_item.done", output_index=place, item={**item})

    def _replace(self, item: i.ReplyItem) -> Events:
        """Mark the streamed part of a reply as incomplete, as it cannot be taken back; then send the valid text."""
        name = item.message.rpartition("/")[2].replace("assistant", "")
        for output in self._output:
            if str(output["id"]).partition("_")[2].startswith(f"{self._segment.turn}{name}-"):
                output["status"] = "incomplete"
        yield from self._say(item.message, item.text)

    def _say(self, message: str, text: str) -> Events:
        if text:
            yield from self._start_text(message, "text")
            yield from self._write(message, "text", text)
            yield from self._end_text(message, "text")

    # Calls and questions.

    def _settle_call(self, item: i.CallResultItem) -> Events:
        call, fact = self._calls.get(item.call), item.fact
        arguments = "{}" if call is None else call.arguments
        if item.changed is not None:
            arguments = clean(json.dumps({**item.changed}))
        name, output = "" if call is None else call.name, clean(fact.result)
        is_ok, place = fact.status is CallStatus.OK, len(self._output)
        identifier = f"{self._segment.turn}_{item.call}"
        if self._options.calls == "outputs":
            result: Json = {"type": "function_call_output", "id": f"fco_{identifier}", "call_id": f"call_{identifier}"}
            result |= {"output": output, "status": "completed" if is_ok else "incomplete"}
            self._output.append(result | {"name": name, "arguments": arguments})
            yield self._event("response.output_item.added", output_index=place, item={**self._output[place]})
        else:
            result = {"type": "mcp_call", "id": f"mcp_{identifier}", "name": name, "server_label": SERVER}
            result |= {"arguments": "", "output": None, "error": None, "status": "in_progress"}
            self._output.append(result)
            yield self._event("response.output_item.added", output_index=place, item={**result})
            yield self._item("response.mcp_call.in_progress", place)
            yield self._item("response.mcp_call_arguments.delta", place, delta=arguments)
            result["arguments"] = arguments
            yield self._item("response.mcp_call_arguments.done", place, arguments=arguments)
            result["status"] = "completed" if is_ok else "failed"
            result["output" if is_ok else "error"] = output
            yield self._item(f"response.mcp_call.{result['status']}", place)
        yield self._event("response.output_item.done", output_index=place, item={**self._output[place]})

    def _hand_out(self, interrupt: Interrupt) -> Events:
        """Ask the client to run a call of its tool."""
        place, arguments = len(self._output), arguments_text(interrupt)
        item: Json = {
            "type": "function_call",
            "id": f"fc_{self._segment.turn}_{interrupt.call}",
            "call_id": call_reference(self._segment.turn, interrupt.call),
            "name": interrupt.tool,
            "arguments": "",
            "status": "in_progress",
        }
        self._output.append(item)
        yield self._event("response.output_item.added", output_index=place, item={**item})
        yield self._item("response.function_call_arguments.delta", place, delta=arguments)
        item |= {"arguments": arguments, "status": "completed"}
        yield self._item("response.function_call_arguments.done", place, name=interrupt.tool, arguments=arguments)
        yield self._event("response.output_item.done", output_index=place, item={**item})

    def _ask(self, interrupt: Interrupt) -> Events:
        if interrupt.kind in APPROVALS and self._options.approvals == "mcp":
            item: Json = {
                "type": "mcp_approval_request",
                "id": f"{self._segment.turn}/{interrupt.id}",
                "name": interrupt.tool,
                "arguments": arguments_text(interrupt),
                "server_label": SERVER,
            }
            place = len(self._output)
            self._output.append(item)
            yield self._event("response.output_item.added", output_index=place, item={**item})
            yield self._event("response.output_item.done", output_index=place, item={**item})
            return
        yield from self._say(f"-{interrupt.id.replace('/', '-')}", clean(words(interrupt)))

    # The end.

    def _end(self, event: TurnEndedEvent) -> Events:
        self._usage.end(event.usage)
        self._record = {"turn": self._segment.turn, "outcome": str(event.outcome), "reason": str(event.reason)}
        self._status, reason = _STATUSES[ending_of(event.outcome, event.reason)]
        if self._status == "failed":
            self._error = {"code": "server_error", "message": explain_end(event)}
        elif self._status == "incomplete":
            self._incomplete = {"reason": reason or str(event.reason)}
        # A canceled response has no event of its own.
        kind = "incomplete" if self._status == "cancelled" else self._status
        yield self._event(f"response.{kind}", response=self.response)

    def _usage_json(self) -> Json:
        own_usage, tokens = self._usage.own, self._usage.input_tokens
        return {
            "input_tokens": tokens,
            "input_tokens_details": {"cached_tokens": own_usage.cached_tokens},
            "output_tokens": own_usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": own_usage.reasoning_tokens},
            "total_tokens": tokens + own_usage.output_tokens,
        }

    def _content(self, place: int) -> Json:
        content = self._output[place]["content"]
        part = content[0] if isinstance(content, list) and content else {}
        return part if isinstance(part, dict) else {}

    def _part(self, kind: str, place: int, **fields: JsonValue) -> Json:
        return self._item(kind, place, content_index=0, **fields)

    def _item(self, kind: str, place: int, **fields: JsonValue) -> Json:
        return self._event(kind, item_id=self._output[place]["id"], output_index=place, **fields)

    def _event(self, kind: str, **fields: JsonValue) -> Json:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **fields}


def functions_of(declarations: Iterable[JsonObject]) -> list[JsonValue]:
    """Return the tools of a turn's client as the API has them."""
    names = ("name", "description", "parameters")
    return [
        {"type": "function", "strict": False, **{name: thaw(declaration[name]) for name in names}}
        for declaration in declarations
    ]


def _text_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
