"""One item of a reply of the Responses API, built from its events. No I/O."""

import json
from collections.abc import Mapping
from typing import Final, Literal

from pydantic import JsonValue

from turnwright.model.http.json_text import copy_object, read_id, read_index, read_objects, read_text, whole_object
from turnwright.model.http.text_buffer import MAX_ARGUMENTS, Meter, Pieces, check_arguments, mend
from turnwright.model.protocol import ResponseToolCall

from .kept_items import BLANK_LINE, REASONING, Item

MESSAGE: Final = "message"
FUNCTION_CALL: Final = "function_call"

# The memory of an item, and of a part of it, without their texts, counted as characters.
_ITEM_SIZE: Final = 1024
_PART_SIZE: Final = 256

#: The field with the reasoning that people may read. A server that sends both repeats itself.
Channel = Literal["summary", "content"]


class OutputItem:
    """A message, reasoning, a call of one of our tools, or an item of another kind, which is kept as it is.

    `meter` counts the memory; `max_arguments` limits the arguments of a call, in characters.
    """

    def __init__(self, kind: str, meter: Meter, max_arguments: int = MAX_ARGUMENTS) -> None:
        meter.reserve(_ITEM_SIZE)  # to open an item adds nothing yet
        self.kind = kind
        self.id = ""
        #: Whether an event has announced the item, and whether one has completed it.
        self.is_added = False
        self.done = False
        #: Whether the provider says that the item is complete; None if it says neither.
        self.is_complete: bool | None = None
        #: The complete item, unless it is a message or a call.
        self.raw: Item | None = None
        self.phase = ""
        #: The sources that a message names in its text, as the provider describes them.
        self.annotations: list[JsonValue] = []
        #: Of a call, its number among those whose deltas were returned; None before its first delta.
        self.number: int | None = None
        self.call_id = ""
        self.name = ""
        self._meter = meter
        self._max_arguments = max_arguments
        self._parts: dict[int, Pieces] = {}
        self._channel: Channel | None = None
        self._arguments = Pieces(meter)
        #: The arguments with which the item was announced. They count if no others come.
        self._announced = ""

    @property
    def empty(self) -> bool:
        """Whether nothing of the item has come but its announcement."""
        return not (self._parts or self.name or self.call_id or self.raw or len(self._arguments))

    def mark(self, name: str) -> str:
        """Return what identifies the item under a name: its `id`, its `call_id`, or its kind as `type`."""
        return {"id": self.id, "call_id": self.call_id}.get(name, self.kind)

    @property
    def readable(self) -> str:
        """The text of a message, refusals included; the readable reasoning, with a blank line between its parts."""
        return (BLANK_LINE if self.kind == REASONING else "").join(str(part) for part in self._parts.values())

    @property
    def speaks(self) -> bool:
        """Whether there is any text or readable reasoning."""
        return any(len(part) for part in self._parts.values())

    def part(self, index: int) -> Pieces | None:
        """Return the part of this index, if it has begun."""
        return self._parts.get(index)

    def add(self, index: JsonValue, piece: str, *, whole: bool = False) -> str:
        """Add to a part, or replace it by its complete form. Returns the new readable text.

        A blank line comes before a further part of reasoning.
        """
        if not piece:
            return ""
        spoke = self.speaks
        part = self._part(index)
        lead = BLANK_LINE if self.kind == REASONING and spoke and not len(part) else ""
        new = part.complete(piece) if whole else part.add(piece)
        return lead + new if new else ""

    def complete(self, whole: str) -> str:
        """Replace all parts by their complete form, unless that is empty. Returns the new readable text."""
        if not whole or len(self._parts) <= 1:
            return self._part(None).complete(whole) if whole else ""
        text, whole = self.readable, mend(whole)
        if whole == text:
            return ""
        self._parts = {0: Pieces(self._meter)}
        self._parts[0].complete(whole)
        return whole[len(text) :] if whole.startswith(text) else ""

    def takes(self, channel: Channel) -> bool:
        """Whether readable reasoning of this channel counts: only the first channel that has any does."""
        self._channel = self._channel or channel
        return self._channel == channel

    @property
    def arguments(self) -> str:
        """The arguments of a call so far."""
        return str(self._arguments)

    def add_arguments(self, piece: str) -> str:
        """Add to the arguments of a call. Returns the new readable part. Raises `TooLargeError`."""
        check_arguments(len(self._arguments) + len(piece), self._max_arguments)
        return self._arguments.add(piece)

    def complete_arguments(self, whole: JsonValue) -> str:
        """Replace the arguments of a call by their complete form, unless that is empty. Raises `TooLargeError`.

        Returns the new readable part.
        """
        return self._arguments.complete(self._read_arguments(whole))

    def announce_arguments(self, whole: JsonValue) -> None:
        """Keep the arguments of a call that is announced. Raises `TooLargeError`."""
        self._announced = self._announced or self._take_name(self._read_arguments(whole), counts=True)

    def _read_arguments(self, whole: JsonValue) -> str:
        # An object instead of a text is complete.
        text = read_text(json.dumps(whole, ensure_ascii=False) if isinstance(whole, dict) and whole else whole)
        check_arguments(len(text), self._max_arguments)
        return text

    def describe(self, item: Mapping[str, JsonValue]) -> None:
        """Take the fields of an item that stay the same: the first value that is not empty counts."""
        self.id = self.id or self._take_name(read_id(item.get("id")))
        if self.kind == FUNCTION_CALL:
            self.call_id = self.call_id or self._take_name(read_id(item.get("call_id")), counts=True)
            self.name = self.name or self._take_name(read_text(item.get("name")), counts=True)
        elif self.kind == MESSAGE:
            self.phase = self.phase or self._take_name(read_text(item.get("phase")))

    def keep(self, item: Mapping[str, JsonValue]) -> None:
        """Keep the complete item as it is. Only the first one counts."""
        if self.raw is None:
            self.raw = copy_object(item, self._meter.take)

    def annotate(self, content: JsonValue) -> None:
        """Keep the annotations in the complete content of a message. Only the first ones count."""
        parts = [part.get("annotations") for part in read_objects(content)]
        annotations = [annotation for each_list in parts if isinstance(each_list, list) for annotation in each_list]
        if annotations and not self.annotations:
            kept_annotations = copy_object({"annotations": annotations}, self._meter.take)["annotations"]
            self.annotations = kept_annotations if isinstance(kept_annotations, list) else []

    @property
    def is_call(self) -> bool:
        """Whether the item calls one of our tools. An item that was only announced calls none."""
        return self.kind == FUNCTION_CALL and not self.empty

    def call(self, *, cut_off: bool) -> ResponseToolCall:
        """Return the call. `cut_off`: the reply was.

        A call without arguments is complete if the provider says so, or if neither the call nor the reply was cut off.
        """
        raw = self.arguments or ("" if cut_off else self._announced)
        if cut_off and self.is_complete and not raw.strip():
            raw = "{}"
        call = ResponseToolCall(name=self.name, arguments=whole_object(raw), raw=raw, id=self.call_id or self.id)
        return call.without_arguments() if self.is_complete is False and not call.arguments else call

    def _part(self, index: JsonValue) -> Pieces:
        """Return the part of an index; without an index, the last part."""
        part_index = read_index(index)
        number = part_index if part_index is not None else next(reversed(self._parts), 0)
        if number not in self._parts:
            self._meter.reserve(_PART_SIZE)
            self._parts[number] = Pieces(self._meter)
        return self._parts[number]

    def _take_name(self, name: str, *, counts: bool = False) -> str:
        (self._meter.take if counts else self._meter.reserve)(len(name))
        return mend(name)


def texts_of(content: JsonValue) -> list[str]:
    """Return the texts and refusals in a content, or in a summary."""
    return [text for part in (content if isinstance(content, list) else [content]) if (text := text_of(part))]


def text_of(part: JsonValue) -> str:
    """Return the text of a part of a content: a text, or the text or refusal in it."""
    if not isinstance(part, dict):
        return read_text(part)
    return read_text(part.get("text")) or read_text(part.get("refusal"))
