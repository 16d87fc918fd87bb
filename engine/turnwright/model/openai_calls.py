"""The tool calls of a chat completion, put together from their deltas. No I/O.

Providers agree on little here: an index may be missing, start at 1, leave gaps or stay the same for every call; ids
and names come once, with every delta, or never; arguments come as text in pieces, as one text, or as an object.
Each rule below is one of STREAMS.
"""

import json
from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from .json_text import whole_object
from .pieces import MAX_ARGUMENTS, Meter, Pieces, TooLarge, mend
from .protocol import ReplyCall

# What a call costs in memory beside its texts, counted as characters.
_CALL_SIZE: Final = 256


class _Call:
    """One call, as far as it has arrived."""

    def __init__(self, meter: Meter, max_arguments: int) -> None:
        meter.take(_CALL_SIZE)
        self.id = ""
        self.name = ""
        self.arguments = Pieces(meter)
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
            if len(self.arguments) + len(arguments) > self._max_arguments:
                raise TooLarge(f"the arguments of a call are longer than {self._max_arguments:,} characters")
            self.arguments.add(arguments)

    @property
    def begun(self) -> bool:
        """Whether arguments have begun and are not whole, so that what follows can only be more of them."""
        raw = str(self.arguments)
        return bool(raw.strip()) and whole_object(raw) is None

    @property
    def empty(self) -> bool:
        """Whether there is nothing in it: some servers open a list of calls and never fill it."""
        return not self.id and not self.name and not len(self.arguments)

    def reply(self) -> ReplyCall:
        raw = str(self.arguments)
        return ReplyCall(name=self.name, arguments=whole_object(raw), raw=raw, id=self.id)


class CallAssembler:
    """Takes the `tool_calls` of deltas, gives the calls in the order in which they appeared.

    `meter` counts what is kept; `max_arguments` bounds the arguments of one call, in characters.
    """

    def __init__(self, meter: Meter, max_arguments: int = MAX_ARGUMENTS) -> None:
        self._meter = meter
        self._max_arguments = max_arguments
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._last: _Call | None = None
        self._legacy: _Call | None = None

    def __bool__(self) -> bool:
        return bool(self._calls) or self._legacy is not None

    def add(self, entries: Sequence[JsonValue]) -> None:
        """Take the entries of one delta. What is no object is skipped. Raises `TooLarge`."""
        for entry in entries:
            if isinstance(entry, dict):
                function = entry.get("function")
                self._add(entry, function if isinstance(function, dict) else {})

    def add_function_call(self, function: dict[str, JsonValue]) -> None:
        """Take a delta of the deprecated `function_call`: one call at most, without an id. Raises `TooLarge`."""
        if self._legacy is None:
            self._legacy = _Call(self._meter, self._max_arguments)
        self._legacy.add("", function)

    def calls(self) -> tuple[ReplyCall, ...]:
        """Give the calls so far."""
        found = [call.reply() for call in self._calls if not call.empty]
        # Servers that still know `function_call` repeat the first call there.
        if not found and self._legacy is not None and not self._legacy.empty:
            found = [self._legacy.reply()]
        return tuple(found)

    def _add(self, entry: dict[str, JsonValue], function: dict[str, JsonValue]) -> None:
        found = entry.get("id")
        call_id = mend(str(found)) if isinstance(found, str | int) and not isinstance(found, bool) else ""
        index = _index(entry.get("index"))
        call = self._by_index.get(index) if index is not None else self._unindexed(call_id, function)
        if call is None or (call_id and call.id and call_id != call.id):
            call = _Call(self._meter, self._max_arguments)
            self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        self._last = call
        call.add(call_id, function)

    def _unindexed(self, call_id: str, function: dict[str, JsonValue]) -> _Call | None:
        """Find the call that an entry without an index goes on with; None if it is a call of its own.

        With a name it is one of its own, also if its id is not new: ids are not unique. Only where the same id comes
        while the arguments are still open is the name a repetition.
        """
        last = self._last
        if last is None:
            return None
        if not function.get("name"):
            return last
        return last if call_id and call_id == last.id and last.begun else None


def _index(value: JsonValue) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:9])
    return value if isinstance(value, int) and not isinstance(value, bool) else None
