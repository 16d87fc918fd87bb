"""The tool calls of a chat completion, put together from their deltas. No I/O.

Providers agree on little here: an index may be missing, start at 1, leave gaps or stay the same for every call; ids
and names come once, with every delta, or never; arguments come as text in pieces, as one text, or as an object.
Each rule below is one of STREAMS.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from turnwright.model.http.json_text import read_id, read_index, whole_object
from turnwright.model.http.text_buffer import MAX_ARGUMENTS, MAX_CALLS, Meter, Pieces, TooLargeError, mend
from turnwright.model.protocol import ResponseToolCall

from .fast_events import QuickCall

# What a call costs in memory beside its texts, counted as characters.
_CALL_SIZE: Final = 256
# What another index of a call costs.
_INDEX_SIZE: Final = 64
_EXTRA: Final = "extra_content"
# What opens and closes an object, and the strings in which a brace does neither.
_MARK: Final = re.compile(r'\\.?|["{}]', re.DOTALL)


class _Call:
    def __init__(self, meter: Meter, max_arguments: int) -> None:
        meter.reserve(_CALL_SIZE)
        self.id = ""
        self.name = ""
        self.arguments = Pieces(meter)
        self.extra: Mapping[str, JsonValue] | None = None
        self.indexed = False
        self._end = ""
        self._braces = _Braces()
        self._whole: bool | None = None
        self._meter = meter
        self._max_arguments = max_arguments

    def add(self, call_id: str, function: dict[str, JsonValue]) -> None:
        """Take what a delta says: id and name once, the first that is not empty; arguments as they come."""
        name = function.get("name")
        if call_id and not self.id:
            self._meter.take(len(call_id))
            self.id = call_id
        if isinstance(name, str) and name and not self.name:
            self._meter.take(len(name))
            self.name = mend(name)
        arguments = function.get("arguments")
        # An object instead of a text is already whole. An empty one says no more than an empty text.
        if arguments and not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if isinstance(arguments, str):
            self.add_arguments(arguments)

    def add_arguments(self, piece: str) -> None:
        if len(self.arguments) + len(piece) > self._max_arguments:
            raise TooLargeError(f"the arguments of a call are longer than {self._max_arguments:,} characters")
        self.arguments.add(piece)
        self._follow(piece)

    def keep_extra(self, extra: JsonValue) -> None:
        """Keep what the provider wants back with the call, once: the first that is not empty."""
        if self.extra is None and isinstance(extra, dict) and extra:
            raw = json.dumps(extra, ensure_ascii=False)
            self._meter.take(len(raw))
            self.extra = whole_object(mend(raw))

    def goes_on(self, function: dict[str, JsonValue]) -> bool:
        """Whether an entry with the id of this call is more of it.

        It repeats the name, or has none; a name with arguments of its own, behind whole ones, begins another call.
        """
        name = function.get("name")
        if not name:
            return True
        return self.name in ("", name) and not (_speaks(function.get("arguments")) and self.whole)

    @property
    def begun(self) -> bool:
        """Whether arguments have begun and are not whole, so that what follows can only be more of them."""
        return bool(self._end) and not self.whole

    @property
    def whole(self) -> bool:
        """Whether the arguments have come to an end, so that more of them could only spoil them."""
        if self._end != "}" or self._braces.open:
            return False
        # Read once, lest long arguments are read again with every piece.
        if self._whole is None:
            self._whole = whole_object(str(self.arguments)) is not None
        return self._whole

    @property
    def empty(self) -> bool:
        """Whether there is nothing in it: some servers open a list of calls and never fill it."""
        return not self.name and not len(self.arguments)

    def reply(self) -> ResponseToolCall:
        raw = str(self.arguments)
        return ResponseToolCall(name=self.name, arguments=whole_object(raw), raw=raw, id=self.id)

    def _follow(self, arguments: str) -> None:
        self._end = arguments.rstrip()[-1:] or self._end
        self._braces.add(arguments)
        if self._whole is not None and arguments.strip():
            # Whatever follows an object makes none of it, and what was none with its braces closed never becomes one.
            self._whole = False


class _Braces:
    """Follows which braces of a JSON text in pieces are open: while one is, the text is not whole."""

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def add(self, piece: str) -> None:
        marks = _MARK.findall(piece, int(self._escaped))
        for mark in marks:
            if mark == '"':
                self._quoted = not self._quoted
            elif mark in "{}" and not self._quoted:
                self._depth += 1 if mark == "{" else -1
        if piece:
            self._escaped = marks[-1:] == ["\\"]

    @property
    def open(self) -> bool:
        return self._quoted or self._depth != 0


class CallAssembler:
    """Takes the `tool_calls` of deltas, gives the calls in the order in which they appeared.

    `meter` counts what is kept; `max_arguments` bounds the arguments of one call, in characters.
    """

    def __init__(self, meter: Meter, max_arguments: int = MAX_ARGUMENTS) -> None:
        self._meter = meter
        self._max_arguments = max_arguments
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._last: _Call | None = None
        self._legacy: _Call | None = None

    def __bool__(self) -> bool:
        return bool(self._calls) or self._legacy is not None

    @property
    def any(self) -> bool:
        """Whether there is a call that is not empty."""
        return bool(self._found())

    def add(self, entries: Sequence[JsonValue]) -> None:
        """Take the entries of one delta. What is no object is skipped. Raises `TooLargeError`."""
        for entry in entries:
            if isinstance(entry, dict):
                function = entry.get("function")
                self._add(entry, function if isinstance(function, dict) else {})

    def add_quickly(self, entry: QuickCall) -> None:
        """Take an entry of a call that `has` its index."""
        self._last = call = self._by_index[entry.index]
        call.add_arguments(entry.function.arguments)

    def has(self, entries: Sequence[QuickCall]) -> bool:
        """Whether the calls of all these entries have begun."""
        return all(entry.index in self._by_index for entry in entries)

    def add_function_call(self, function: dict[str, JsonValue]) -> None:
        """Take a delta of the deprecated `function_call`: one call at most, without an id. Raises `TooLargeError`."""
        if self._legacy is None:
            self._legacy = _Call(self._meter, self._max_arguments)
        self._legacy.add("", function)

    def calls(self) -> tuple[ResponseToolCall, ...]:
        """Give the calls so far."""
        return tuple(call.reply() for call in self._found())

    def extras(self) -> tuple[Mapping[str, JsonValue], ...]:
        """Give what must go back unchanged with some of the calls, each with the number of its call in `calls`.

        In `extra_content` of a call, Gemini sends a signature without which it refuses the next request.
        """
        found = enumerate(call.extra for call in self._found())
        return tuple({"type": _EXTRA, "call": number, _EXTRA: dict(extra)} for number, extra in found if extra)

    def _found(self) -> "list[_Call]":
        found = [call for call in self._calls if not call.empty]
        # Servers that still know `function_call` repeat the first call there.
        if not found and self._legacy is not None and not self._legacy.empty:
            found = [self._legacy]
        return found

    def _add(self, entry: dict[str, JsonValue], function: dict[str, JsonValue]) -> None:
        call_id = read_id(entry.get("id"))
        index = read_index(entry.get("index"))
        call = self._unindexed(call_id, function) if index is None else self._indexed(index, call_id, function)
        if call is None or _is_another(call, call_id, function):
            call = self._begin()
        if index is not None:
            if index not in self._by_index:
                self._meter.reserve(_INDEX_SIZE)
            self._by_index[index] = call
            call.indexed = True
        self._last = call
        call.add(call_id, function)
        call.keep_extra(entry.get(_EXTRA))
        if call.id and call.id == call_id:
            self._by_id[call_id] = call

    def _begin(self) -> _Call:
        if len(self._calls) == MAX_CALLS:
            raise TooLargeError(f"the reply asks for more than {MAX_CALLS:,} calls")
        call = _Call(self._meter, self._max_arguments)
        self._calls.append(call)
        return call

    def _indexed(self, index: int, call_id: str, function: dict[str, JsonValue]) -> _Call | None:
        """Find the call that an entry with an index goes on with: the one of its index, unless its id tells another.

        Some servers give one index to all calls; what tells these apart is the id alone. Others number a call only
        after it has begun.
        """
        call = self._by_index.get(index)
        known = self._by_id.get(call_id)
        if call is None:
            if function.get("name"):
                return None
            last = self._last
            return known or (last if last is not None and not last.indexed and not call_id else None)
        return known if known is not None and call.id != call_id and known.goes_on(function) else call

    def _unindexed(self, call_id: str, function: dict[str, JsonValue]) -> _Call | None:
        """Find the call that an entry without an index goes on with; None if it is a call of its own.

        Without a name it belongs to the call of its id, else to the last one. With a name it is one of its own, unless
        it repeats the id and the name of one that it can go on with: ids are not unique. Without an id, the same name
        is a repetition only where the last call's arguments are still open.
        """
        last, name = self._last, function.get("name")
        known = self._by_id.get(call_id)
        if not name:
            return known or last
        if call_id:
            return known if known is not None and known.goes_on(function) else None
        return last if last is not None and name == last.name and last.begun else None


def _is_another(call: _Call, call_id: str, function: dict[str, JsonValue]) -> bool:
    """Whether an entry begins another call in the place of `call`.

    A new id does. But some servers make up an id for every delta: what has no name and more of the arguments, while
    those are not whole, goes on. Where no id tells, a name behind whole arguments, with arguments of its own, does.
    """
    name, arguments = function.get("name"), function.get("arguments")
    if call_id and call.id:
        return call_id != call.id and (bool(name) or not call.name or arguments is None or call.whole)
    return bool(name and call.name and not call_id and _speaks(arguments) and call.whole)


def _speaks(arguments: JsonValue) -> bool:
    return bool(arguments.strip() if isinstance(arguments, str) else arguments)
