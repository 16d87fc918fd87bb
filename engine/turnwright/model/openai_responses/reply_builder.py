"""A reply of the Responses API, built from its events: parsed JSON in, deltas and a `ModelResponse` out. No I/O.

Any field of an event may be missing, null or of another type; such fields are skipped.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec
from pydantic import JsonValue

from turnwright.model.http.json_text import (
    read_count,
    read_id,
    read_index,
    read_object,
    read_objects,
    read_text,
)
from turnwright.model.http.reply_builder import FINISHES, Builder, plain_reason
from turnwright.model.http.text_buffer import MAX_ARGUMENTS, MAX_REPLY, check_calls, mend
from turnwright.model.protocol import Delta, ModelResponse, ReasoningDelta, TextDelta, ToolCallDelta
from turnwright_states import Finish

from .kept_items import BLANK_LINE, CALL, ITEM, KEPT, REASONING, entries, is_encrypted, is_sent, order_entry
from .output_item import FUNCTION_CALL, MESSAGE, Channel, OutputItem, text_of, texts_of

#: The events that end a reply, and the status of the response that they mean.
ENDS: Final = {
    "response.completed": "completed",
    "response.done": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
#: The statuses of a response that is not a reply.
FAILED: Final = frozenset({"failed", "cancelled"})
#: The statuses of a response that is not there yet.
PENDING: Final = frozenset({"queued", "in_progress"})

#: The statuses of an item that say whether it is complete.
_COMPLETE: Final = {"completed": True, "incomplete": False}

# The memory of another index or id of an item.
_NAME_SIZE: Final = 64
_OURS: Final = frozenset({MESSAGE, REASONING, FUNCTION_CALL})

#: The ends of the names of events that have a complete part.
_WHOLE: Final = frozenset({"added", "done"})

_COUNTS: Final = (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens"))
_DETAILS: Final = (
    ("input_tokens_details", "cache_read_input_tokens", "cached_tokens"),
    ("input_tokens_details", "cache_creation_input_tokens", "cache_write_tokens"),
    ("output_tokens_details", "reasoning_tokens", "reasoning_tokens"),
)


# Indexes with more digits are not indexes to the plain path.
_Index = Annotated[int, msgspec.Meta(gt=-(10**9), lt=10**9)]


class QuickEvent(msgspec.Struct, gc=False):
    """The most common event: a `response.output_text.delta` without an error in it.

    Every other field that the plain path reads must be null, so any other event takes the plain path. A test compares
    both.
    """

    type: Literal["response.output_text.delta"]
    output_index: _Index
    content_index: _Index
    delta: str
    item_id: str = ""
    response: None = None
    error: None = None
    object: None = None


#: Decodes a quick event. Raises one of `turnwright.model.http.reply_stream.NOT_QUICK` for any other event.
read_event: Final = msgspec.json.Decoder(QuickEvent).decode


class ResponseBuilder(Builder):
    """Builds one reply from its events, in their order.

    An event belongs to the item of its `item_id`, else to that of its `output_index`: some gateways give each event
    another id, others give each item the same index, or the same id. The complete form of an item wins over its deltas,
    and the items of the last event fill in for those that no event had. A refusal is text.

    Source: "Streaming events" of OpenAI's Responses API.
    """

    def __init__(self, *, max_reply: int = MAX_REPLY, max_arguments: int = MAX_ARGUMENTS) -> None:
        super().__init__(max_reply=max_reply, max_arguments=max_arguments)
        self._items: list[OutputItem] = []
        self._by_index: dict[int, OutputItem] = {}
        #: None is an id that two items of one kind have.
        self._by_id: dict[str, OutputItem | None] = {}
        #: The item of each kind that began last, and the kinds that have text or readable reasoning.
        self._last: dict[str, OutputItem] = {}
        self._spoken_kinds: set[str] = set()
        self._calls = 0
        #: The number of calls whose deltas were returned.
        self._delta_count = 0
        self._status = ""
        self._reason = ""

    def add(self, event: Mapping[str, JsonValue]) -> list[Delta]:
        """Take one event, or a whole `response`: see `Builder`."""
        kind = read_text(event.get("type"))
        response = event.get("response")
        if kind in ENDS:
            return self._close(read_object(response), ENDS[kind])
        if isinstance(response, dict):
            self._note_response(response)
            return []
        if not kind:
            whole = isinstance(event.get("output"), list) and read_text(event.get("status")) not in PENDING
            return self._close(event, "completed") if whole else []
        name, _, phase = kind.rpartition(".")
        take = _TAKERS.get(name)
        return take(self, event, phase) if take else []

    def add_quickly(self, data: bytes, deltas: list[Delta]) -> bool:
        """Take the data of a delta that continues a text: see `Builder`."""
        event = read_event(data)
        item = self._by_id.get(event.item_id) or self._by_index.get(event.output_index)
        if item is None or item.kind != MESSAGE or item.done:
            return False
        part = item.part(event.content_index)
        if part is None or not len(part):
            return False
        if event.delta:
            deltas.append(TextDelta(part.add_mended(event.delta)))
        return True

    @property
    def finished(self) -> bool:
        """Whether the response has ended, completely or not, and did not fail."""
        return bool(self._status) and self._status not in FAILED

    def reply(self) -> ModelResponse:
        """Return the reply so far."""
        finish = self._finish()
        raws = [item.raw for item in self._items if item.raw is not None]
        partners = all(is_encrypted(item.raw or {}) for item in self._items if item.kind == REASONING)
        kept_entries = entries(raws, partners=partners)
        return ModelResponse(
            text=self._join_texts(MESSAGE),
            reasoning=self._join_texts(REASONING),
            reasoning_details=(*kept_entries, *order_entry([*self._row(partners=partners)]), *self._annotations()),
            calls=tuple(item.call(cut_off=finish is Finish.LENGTH) for item in self._items if item.is_call),
            finish=finish,
            usage=self._usage(),
            finish_reason=self._reason or self._status or None,
            response=self._info(),
        )

    def _join_texts(self, kind: str) -> str:
        return BLANK_LINE.join(text for item in self._items if item.kind == kind and (text := item.readable))

    def _finish(self) -> Finish:
        if not self._reason and self._status != "incomplete":
            return Finish.STOP
        # A reply that the provider calls incomplete was cut off, whatever the reason is called.
        return FINISHES.get(plain_reason(self._reason), Finish.LENGTH)

    def _row(self, *, partners: bool) -> Iterator[str | tuple[int, str]]:
        for item in self._items:
            if item.raw is not None:
                yield from (ITEM for entry in entries([item.raw], partners=partners) if is_sent(entry))
            elif item.is_call:
                yield CALL
            elif item.kind == MESSAGE and (text := item.readable):
                yield len(text), item.phase

    def _annotations(self) -> Iterator[Mapping[str, JsonValue]]:
        annotations = [annotation for item in self._items for annotation in item.annotations]
        if annotations:
            yield {"type": KEPT, "annotations": annotations}

    def _note_response(self, response: Mapping[str, JsonValue]) -> None:
        self._note_names(response)
        usage = read_object(response.get("usage"))
        for name, other_name in _COUNTS:
            self._note_count(name, usage[name] if read_count(usage.get(name)) is not None else usage.get(other_name))
        for place, name, field in _DETAILS:
            self._note_count(name, read_object(usage.get(place)).get(field))
        self._note_cost(usage)

    def _close(self, response: Mapping[str, JsonValue], status: str) -> list[Delta]:
        """End the reply. The items of the response fill in for missing ones, and their order counts."""
        self._note_response(response)
        response_status = read_text(response.get("status"))
        status = response_status if response_status in ENDS.values() else status
        reason = read_text(read_object(response.get("incomplete_details")).get("reason"))
        self._meter.reserve(len(reason))
        self._status, self._reason = status, mend(reason)
        items = [item for item in read_objects(response.get("output")) if read_text(item.get("type"))]
        deltas: list[Delta] = []
        order: list[OutputItem] = []
        for item, matched_item in zip(items, self._match_items(items), strict=True):
            output_item = matched_item or self._open(read_text(item.get("type")))
            deltas += [] if output_item.done else self._complete(output_item, item)
            order.append(output_item)
        placed_ids = set(map(id, order))
        self._items = [*order, *(item for item in self._items if id(item) not in placed_ids)]
        return deltas

    def _match_items(self, items: Sequence[Mapping[str, JsonValue]]) -> list[OutputItem | None]:
        """Find the known item of each item of the response: by its id, else the first unclaimed one of its kind."""
        claimed_ids: set[int] = set()
        matches: list[OutputItem | None] = [None] * len(items)
        for name in ("id", "call_id", "type"):
            items_by_mark: dict[tuple[str, str], deque[OutputItem]] = defaultdict(deque)
            for output_item in self._items:
                if id(output_item) not in claimed_ids:
                    items_by_mark[output_item.kind, output_item.mark(name)].append(output_item)
            for number, item in enumerate(items):
                mark = read_id(item.get(name))
                candidates = (
                    items_by_mark.get((read_text(item.get("type")), mark)) if mark and matches[number] is None else None
                )
                if candidates:
                    matches[number] = output_item = candidates.popleft()
                    claimed_ids.add(id(output_item))
        return matches

    def take_item(self, event: Mapping[str, JsonValue], phase: str) -> list[Delta]:
        """Take an event that begins or completes an item."""
        item, is_done = read_object(event.get("item")), phase == "done"
        kind = read_text(item.get("type"))
        if not kind:
            return []
        item_id, index = read_id(item.get("id")), read_index(event.get("output_index"))
        output_item = self._by_id.get(item_id) if item_id else None
        if output_item is None and index is not None:
            output_item = self._by_index.get(index)
        elif output_item is None:
            output_item = self._open_one(kind)
        if output_item is None or _is_another(output_item, item, done=is_done):
            if output_item is not None and output_item.kind == kind and self._by_id.get(item_id) is output_item:
                self._by_id[item_id] = None
            output_item = self._open(kind)
        self._name(output_item, item_id, index)
        if is_done:
            return [] if output_item.done else self._complete(output_item, item)
        if kind not in _OURS and not output_item.is_added:
            # Work on the provider's side counts when it begins.
            self._meter.take(len(kind))
        output_item.is_added = True
        output_item.describe(item)
        if kind != FUNCTION_CALL:
            return []
        output_item.announce_arguments(item.get("arguments"))
        return self._show(output_item, "")

    def _complete(self, output_item: OutputItem, item: Mapping[str, JsonValue]) -> list[Delta]:
        """Take the complete form of an item."""
        output_item.describe(item)
        output_item.is_added = output_item.done = True
        output_item.is_complete = _COMPLETE.get(read_text(item.get("status")))
        if output_item.kind == MESSAGE:
            output_item.annotate(item.get("content"))
            return self._complete_text(output_item, "".join(texts_of(item.get("content"))))
        if output_item.kind == FUNCTION_CALL:
            return self._show(output_item, output_item.complete_arguments(item.get("arguments")))
        output_item.keep(item)
        channels: tuple[Channel, ...] = ("content", "summary") if output_item.kind == REASONING else ()
        for channel in channels:
            text = BLANK_LINE.join(texts_of(item.get(channel)))
            if text and output_item.takes(channel):
                return self._complete_text(output_item, text)
        return []

    def _complete_text(self, item: OutputItem, whole: str) -> list[Delta]:
        spoke = item.speaks
        return self._speak(item, item.complete(whole), spoke=spoke)

    def take_text(self, event: Mapping[str, JsonValue], phase: str) -> list[Delta]:
        """Take an event with a piece of a message, or with its complete form."""
        whole = phase in _WHOLE
        piece = event.get("part") or event.get("text") or event.get("refusal") if whole else event.get("delta")
        if isinstance(piece, dict) and piece.get("type") == "reasoning_text":
            return self.take_thought(event, phase)
        return self._take_piece(event, MESSAGE, "content_index", text_of(piece), whole=whole)

    def take_summary(self, event: Mapping[str, JsonValue], phase: str) -> list[Delta]:
        """Take an event with a piece of a summary of the reasoning, or with its complete form."""
        return self._take_thought(event, phase, "summary", "summary_index")

    def take_thought(self, event: Mapping[str, JsonValue], phase: str) -> list[Delta]:
        """Take an event with a piece of the reasoning itself, or with its complete form."""
        return self._take_thought(event, phase, "content", "content_index")

    def take_arguments(self, event: Mapping[str, JsonValue], phase: str) -> list[Delta]:
        """Take an event with a piece of the arguments of a call, or with all of them."""
        piece = event.get("arguments" if phase == "done" else "delta")
        item = self._at(event, FUNCTION_CALL) if piece else None
        if item is None:
            return []
        new = item.complete_arguments(piece) if phase == "done" else item.add_arguments(read_text(piece))
        return self._show(item, new)

    def _take_thought(self, event: Mapping[str, JsonValue], phase: str, channel: Channel, index: str) -> list[Delta]:
        whole = phase in _WHOLE
        piece = text_of(event.get("part") or event.get("text") if whole else event.get("delta"))
        item = self._at(event, REASONING) if piece else None
        if item is None or not item.takes(channel):
            return []
        return self._take_piece(event, REASONING, index, piece, whole=whole)

    def _take_piece(
        self, event: Mapping[str, JsonValue], kind: str, index: str, piece: str, *, whole: bool
    ) -> list[Delta]:
        item = self._at(event, kind) if piece else None
        if item is None:
            return []
        spoke = item.speaks
        return self._speak(item, item.add(event.get(index), piece, whole=whole), spoke=spoke)

    def _speak(self, item: OutputItem, new: str, *, spoke: bool) -> list[Delta]:
        """Return the delta of new text. A blank line comes before the first text of a further item."""
        if not new:
            return []
        lead = BLANK_LINE if not spoke and item.kind in self._spoken_kinds else ""
        self._spoken_kinds.add(item.kind)
        return [TextDelta(lead + new) if item.kind == MESSAGE else ReasoningDelta(lead + new)]

    def _show(self, item: OutputItem, new: str) -> list[Delta]:
        """Return the delta of new arguments. The first one of a call names its tool, and has all arguments so far."""
        if not item.name:
            return []
        if item.number is None:
            item.number, new = self._delta_count, item.arguments
            self._delta_count += 1
        elif not new:
            return []
        return [ToolCallDelta(item.number, item.name, new)]

    def _at(self, event: Mapping[str, JsonValue], kind: str) -> OutputItem | None:
        """Return the item of a delta, which may never have been announced; None if it is complete.

        A delta at a place of another kind belongs to the open item of its own kind that began last.
        """
        item_id, index = read_id(event.get("item_id")), read_index(event.get("output_index"))
        item = self._by_id.get(item_id) if item_id else None
        if item is None and index is not None:
            item = self._by_index.get(index)
        if item is None or item.kind != kind:
            has_place = item is None and (item_id or index is not None)
            last = None if has_place else self._open_one(kind)
            item = last or self._open(kind)
            self._name(item, item_id, index)
        return None if item.done else item

    def _open_one(self, kind: str) -> OutputItem | None:
        """Return the item of this kind that began last, if it is open."""
        last = self._last.get(kind)
        return None if last is None or last.done else last

    def _open(self, kind: str) -> OutputItem:
        if kind == FUNCTION_CALL:
            self._calls += 1
            check_calls(self._calls)
        self._note_first()
        self._meter.reserve(len(kind))
        item = OutputItem(mend(kind), self._meter, self._max_arguments)
        self._items.append(item)
        self._last[kind] = item
        return item

    def _name(self, item: OutputItem, item_id: str, index: int | None) -> None:
        """Note under which id and index the events of an item come. A place of another kind keeps its item."""
        if item_id and item_id not in self._by_id:
            self._meter.reserve(_NAME_SIZE + len(item_id))
            self._by_id[item_id] = item
            item.id = item.id or item_id
        if index is not None and self._by_index.get(index) is not item:
            self._meter.reserve(_NAME_SIZE)
            self._by_index[index] = item


def _is_another(output_item: OutputItem, item: Mapping[str, JsonValue], *, done: bool) -> bool:
    """Whether an item that begins or ends is another one than the known item at its place.

    Without a difference in kind, id or call it repeats a complete item, and completes an open one.
    """
    if output_item.kind != item.get("type"):
        return True
    if done and not output_item.done:
        return False
    marks = [(read_id(item.get(name)), output_item.mark(name)) for name in ("id", "call_id")]
    if differences := [mark != known_mark for mark, known_mark in marks if mark and known_mark]:
        return any(differences)
    if output_item.raw is not None:
        return item != output_item.raw
    if output_item.kind == MESSAGE and output_item.done:
        return "".join(texts_of(item.get("content"))) != output_item.readable
    return output_item.done or (output_item.is_added and not output_item.empty)


_TAKERS: Final[Mapping[str, Callable[[ResponseBuilder, Mapping[str, JsonValue], str], list[Delta]]]] = {
    "response.output_item": ResponseBuilder.take_item,
    "response.content_part": ResponseBuilder.take_text,
    "response.output_text": ResponseBuilder.take_text,
    "response.refusal": ResponseBuilder.take_text,
    "response.reasoning_summary_part": ResponseBuilder.take_summary,
    "response.reasoning_summary_text": ResponseBuilder.take_summary,
    "response.reasoning_summary": ResponseBuilder.take_summary,
    "response.reasoning_text": ResponseBuilder.take_thought,
    "response.reasoning": ResponseBuilder.take_thought,
    "response.function_call_arguments": ResponseBuilder.take_arguments,
}
