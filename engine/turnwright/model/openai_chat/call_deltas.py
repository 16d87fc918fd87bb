"""Assemble the tool calls of a chat completion from their deltas. No I/O.

Providers agree on little here. An index may be missing, start at 1, leave gaps or stay the same for every call. Ids and
names come once, with every delta, or never. Arguments come as pieces of text, as one text, or as an object.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal

import msgspec
from pydantic import JsonValue

from turnwright.model.http.json_text import (
    copy_object,
    is_complete,
    read_id,
    read_index,
    read_object,
    read_text,
    whole_object,
)
from turnwright.model.http.text_buffer import MAX_ARGUMENTS, Meter, Pieces, check_arguments, check_calls, mend
from turnwright.model.protocol import Delta, ResponseToolCall, ToolCallDelta

# The memory of a call without its texts, counted as characters.
_CALL_SIZE: Final = 256
# The memory of another index of a call.
_INDEX_SIZE: Final = 64
_EXTRA: Final = "extra_content"
# Gateways before Bedrock and Anthropic send the empty input that a call begins with, and then its arguments.
_NO_ARGUMENTS: Final = "{}{"
# Pieces behind a name of more characters are dropped: no tool has it, and joining many would take long.
_LONGEST_NAME: Final = 256
# The braces of an object, and strings, in which a brace does not count.
_MARK: Final = re.compile(r'\\.?|["{}]', re.DOTALL)


Nothing = Literal[""] | None


class QuickFunction(msgspec.Struct, gc=False):
    """A piece of the arguments of a call that has begun."""

    arguments: str = ""
    name: Nothing = None


class QuickCall(msgspec.Struct, gc=False):
    """A piece of the call with this index."""

    index: int
    function: QuickFunction
    id: Nothing = None
    extra_content: None = None


class _CallBuilder:
    def __init__(self, meter: Meter, max_arguments: int) -> None:
        meter.reserve(_CALL_SIZE)
        self.id = ""
        self.name = ""
        self.arguments = Pieces(meter)
        self.extra: Mapping[str, JsonValue] | None = None
        self.indexed = False
        #: Whether its arguments began under another index, so that those under its own index are another call's.
        self.is_elsewhere = False
        #: The call's number among those whose deltas were returned; None before its first delta.
        self.number: int | None = None
        #: Whether the arguments came as `{}` with the name, as the input that a call begins with (`_NO_ARGUMENTS`).
        self._opened_empty = False
        #: The last piece of the arguments, if each has repeated and continued the one before it; else None.
        self._growing: str | None = ""
        self._end = ""
        self._braces = _Braces()
        self._whole: bool | None = None
        self._meter = meter
        self._max_arguments = max_arguments

    def add(self, call_id: str, function: dict[str, JsonValue]) -> str:
        """Add a delta: the first id that is not empty, the name, and all arguments. Returns its readable arguments."""
        name = function.get("name")
        if call_id and not self.id:
            self._meter.take(len(call_id))
            self.id = call_id
        if isinstance(name, str) and name != self.name and len(self.name) <= _LONGEST_NAME:
            self._add_name(mend(name))
        arguments = function.get("arguments")
        # An object instead of a text is complete. An empty one counts as an empty text.
        if arguments and not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if not isinstance(arguments, str):
            return ""
        self._opened_empty = bool(name) and not len(self.arguments) and arguments.strip() == "{}"
        return self.add_arguments(arguments)

    def _add_name(self, name: str) -> None:
        """Add a piece of the name. Most servers send it once or repeat it, some in pieces, or as far as it has come."""
        before = len(self.name)
        self.name = name if name.startswith(self.name) else self.name + name
        self._meter.take(len(self.name) - before)

    def add_arguments(self, piece: str) -> str:
        """Add a piece of the arguments, or nothing if it repeats them all. Returns its readable part."""
        # First what is cheap: a text of these arguments is long, and nearly all pieces are shorter.
        if self._end == "}" and len(piece) == len(self.arguments) and self.whole and piece == str(self.arguments):
            return ""
        check_arguments(len(self.arguments) + len(piece), self._max_arguments)
        if piece and self._growing is not None:
            self._growing = piece if piece.startswith(self._growing) else None
        readable = self.arguments.add(piece)
        self._follow(piece)
        return readable

    @property
    def text(self) -> str:
        """The arguments once, if the provider repeated them: behind an empty input, with each piece, or all of them."""
        raw = str(self.arguments)
        if raw.startswith(_NO_ARGUMENTS) and is_complete(tail := raw.removeprefix("{}")):
            return tail
        if self.whole or not raw:
            return raw
        if self._growing and is_complete(self._growing):
            return self._growing
        with suppress(ValueError, RecursionError):
            _, end = json.JSONDecoder().raw_decode(raw)
            return raw[:end] if raw == raw[:end] * (len(raw) // end) else raw
        return raw

    def keep_extra(self, extra: JsonValue) -> None:
        """Keep the first value, if it is not empty, that the provider requires back with the call."""
        if self.extra is None and isinstance(extra, dict) and extra:
            self.extra = copy_object(extra, self._meter.take)

    def goes_on(self, function: dict[str, JsonValue]) -> bool:
        """Whether an entry with the id of this call continues it.

        Such an entry repeats the name or has none. A name with arguments behind complete ones begins another call.
        """
        name = function.get("name")
        if not name:
            return True
        return self.name in ("", name) and not (_speaks(function.get("arguments")) and self.whole)

    @property
    def is_incomplete(self) -> bool:
        """Whether the arguments have begun and are incomplete, so that the next ones must continue them."""
        return bool(self._end) and not self.whole

    @property
    def whole(self) -> bool:
        """Whether the arguments are a complete JSON object."""
        if self._end != "}" or self._braces.open:
            return False
        # Cached, so that long arguments are not parsed again with every piece.
        if self._whole is None:
            self._whole = is_complete(str(self.arguments))
        return self._whole

    @property
    def empty(self) -> bool:
        """Whether the call is empty. Some servers open a list of calls and never fill it."""
        return not self.name and not len(self.arguments)

    @property
    def blank(self) -> bool:
        """Whether no arguments have come, or only the empty input that a call begins with."""
        text = str(self.arguments).strip()
        return not text or (self._opened_empty and text == "{}")

    def takes(self, next_call: "_CallBuilder") -> bool:
        """Whether the arguments of the next call, which has no name, can only be those of this one."""
        return bool(self.name) and self.blank and not next_call.name and next_call.id in ("", self.id)

    def reply(self, arguments: "_CallBuilder", *, doubtful: bool) -> ResponseToolCall:
        """Return the call with the arguments of a builder. `doubtful`: an empty input may not be all of them."""
        raw = arguments.text
        call = ResponseToolCall(name=self.name, arguments=whole_object(raw), raw=raw, id=self.id)
        return call.without_arguments() if doubtful and arguments.blank else call

    def _follow(self, arguments: str) -> None:
        self._end = arguments.rstrip()[-1:] or self._end
        self._braces.add(arguments)
        if self._whole is not None and arguments.strip():
            # An object with text behind it is none, and a text with closed braces that is none never becomes one.
            self._whole = False


class _Braces:
    """A counter of the open braces of a JSON text in pieces: while one is open, the text is incomplete."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_quotes = False
        self._is_escaped = False

    def add(self, piece: str) -> None:
        marks = _MARK.findall(piece, int(self._is_escaped))
        for mark in marks:
            if mark == '"':
                self._in_quotes = not self._in_quotes
            elif mark in "{}" and not self._in_quotes:
                self._depth += 1 if mark == "{" else -1
        if piece:
            self._is_escaped = marks[-1:] == ["\\"]

    @property
    def open(self) -> bool:
        return self._in_quotes or self._depth != 0


class CallAssembler:
    """Assembles calls from the `tool_calls` of deltas, in the order in which they appeared.

    `meter` counts the memory; `max_arguments` limits the arguments of one call, in characters.
    """

    def __init__(self, meter: Meter, max_arguments: int = MAX_ARGUMENTS) -> None:
        self._meter = meter
        self._max_arguments = max_arguments
        self._calls: list[_CallBuilder] = []
        self._by_index: dict[int, _CallBuilder] = {}
        self._by_id: dict[str, _CallBuilder] = {}
        self._last: _CallBuilder | None = None
        self._legacy: _CallBuilder | None = None
        #: The number of calls whose deltas were returned.
        self._delta_count = 0

    def __bool__(self) -> bool:
        return bool(self._calls) or self._legacy is not None

    @property
    def any(self) -> bool:
        """Whether there is a call that is not empty."""
        return bool(self._list_calls())

    def add(self, entries: Sequence[JsonValue]) -> list[Delta]:
        """Add the entries of one delta, except those that are not objects. Raises `TooLargeError`."""
        deltas: list[Delta] = []
        for entry in entries:
            if isinstance(entry, dict):
                deltas += self._add(entry, read_object(entry.get("function")))
        return deltas

    def add_quickly(self, entry: QuickCall, deltas: list[Delta]) -> None:
        """Add an entry of a call for whose index `has` is true."""
        self._last = call = self._by_index[entry.index]
        piece = call.add_arguments(entry.function.arguments)
        if piece:
            deltas.append(self._delta(call, piece))

    def has(self, entries: Sequence[QuickCall]) -> bool:
        """Whether the calls of all these entries have begun, and have their arguments under these indices."""
        calls = [self._by_index.get(entry.index) for entry in entries]
        return all(call is not None and not call.is_elsewhere for call in calls)

    def add_function_call(self, function: dict[str, JsonValue]) -> None:
        """Add a delta of the deprecated `function_call`: one call at most, without an id. Raises `TooLargeError`."""
        if self._legacy is None:
            self._legacy = _CallBuilder(self._meter, self._max_arguments)
        self._legacy.add("", function)

    def calls(self, *, cut_off: bool = False) -> tuple[ResponseToolCall, ...]:
        """Return the calls so far. `cut_off`: the reply was, so that the last call may be incomplete."""
        rows = self._rows()
        is_lost = any(not call.name for call, _ in rows)
        last = rows[-1][0] if cut_off and rows else None
        return tuple(call.reply(arguments, doubtful=is_lost or call is last) for call, arguments in rows)

    def extras(self) -> tuple[Mapping[str, JsonValue], ...]:
        """Return the values that must be sent back unchanged, each with the number of its call in `calls`.

        Gemini sends a signature in the `extra_content` of a call, and rejects the next request without it.
        """
        numbered_extras = enumerate(call.extra or arguments.extra for call, arguments in self._rows())
        return tuple(
            {"type": _EXTRA, "call": number, _EXTRA: dict(extra)} for number, extra in numbered_extras if extra
        )

    def _list_calls(self) -> "list[_CallBuilder]":
        calls = [call for call in self._calls if not call.empty]
        # Servers that still send `function_call` repeat the first call there.
        if not calls and self._legacy is not None and not self._legacy.empty:
            calls = [self._legacy]
        return calls

    def _rows(self) -> list[tuple[_CallBuilder, _CallBuilder]]:
        """Return each call with the builder of its arguments.

        A gateway sends them under another index than the name. They are joined if each call without arguments is
        followed by arguments without a name. Otherwise nobody knows which belong together.
        """
        calls = self._list_calls()
        rows: list[tuple[_CallBuilder, _CallBuilder]] = []
        for call in calls:
            if rows and rows[-1][0] is rows[-1][1] and rows[-1][0].takes(call):
                rows[-1] = (rows[-1][0], call)
            else:
                rows.append((call, call))
        is_joined = len(rows) < len(calls) and not any(not call.name or arguments.blank for call, arguments in rows)
        return rows if is_joined else [(call, call) for call in calls]

    def _add(self, entry: dict[str, JsonValue], function: dict[str, JsonValue]) -> list[Delta]:
        call_id = read_id(entry.get("id"))
        index = read_index(entry.get("index"))
        call = (
            self._find_unindexed(call_id, function) if index is None else self._find_indexed(index, call_id, function)
        )
        last, is_new = self._last, call is None or _is_another(call, call_id, function)
        if call is None or is_new:
            call = self._begin()
        if index is not None:
            if index not in self._by_index:
                self._meter.reserve(_INDEX_SIZE)
            self._by_index[index] = call
            call.indexed = True
        self._last = call
        had_name = bool(call.name)
        piece = call.add(call_id, function)
        call.keep_extra(entry.get(_EXTRA))
        if call.id and call.id == call_id:
            self._by_id[call_id] = call
        if is_new and last is not None and last.takes(call):
            last.is_elsewhere = True
        return [self._delta(call, piece)] if piece or (call.name and not had_name) else []

    def _delta(self, call: _CallBuilder, piece: str) -> ToolCallDelta:
        if call.number is None:
            call.number = self._delta_count
            self._delta_count += 1
        return ToolCallDelta(call.number, call.name, piece)

    def _begin(self) -> _CallBuilder:
        check_calls(len(self._calls) + 1)
        call = _CallBuilder(self._meter, self._max_arguments)
        self._calls.append(call)
        return call

    def _find_indexed(self, index: int, call_id: str, function: dict[str, JsonValue]) -> _CallBuilder | None:
        """Find the call that an entry with an index continues: the one of its index, unless its id is another.

        Some servers give one index to all calls, which then differ by id only. Others number a call only after it has
        begun.
        """
        call = self._by_index.get(index)
        call_of_id = self._by_id.get(call_id)
        if call is not None and call.is_elsewhere and not (call_id or function.get("name")):
            return None
        if call is None:
            if function.get("name"):
                return None
            last = self._last
            return call_of_id or (last if last is not None and not last.indexed and not call_id else None)
        return call_of_id if call_of_id is not None and call.id != call_id and call_of_id.goes_on(function) else call

    def _find_unindexed(self, call_id: str, function: dict[str, JsonValue]) -> _CallBuilder | None:
        """Find the call that an entry without an index continues; None if it begins a call.

        Without a name it belongs to the call of its id, else to the last one. With a name it begins a call, unless it
        repeats the id and the name of a call that it can continue, since ids are not unique. Without an id, the same
        name is a repetition while the last call's arguments are open, and also before and behind them if that call has
        an id: a server gives one to each of its calls, or to none.
        """
        last, name = self._last, function.get("name")
        call_of_id = self._by_id.get(call_id)
        if not name:
            return call_of_id or last
        if call_id:
            return call_of_id if call_of_id is not None and call_of_id.goes_on(function) else None
        if last is None or name != last.name:
            return None
        return last if last.is_incomplete or (last.id and last.goes_on(function)) else None


def _is_another(call: _CallBuilder, call_id: str, function: dict[str, JsonValue]) -> bool:
    """Whether an entry begins another call in the place of `call`.

    A new id begins one. Some servers invent an id for every delta, so an entry without a name, or with the same one,
    continues incomplete arguments. Behind complete arguments another name begins a call, also behind those without a
    name, and so does the same one with arguments, unless the id is the same.
    """
    name, arguments = function.get("name"), function.get("arguments")
    if call_id and call.id and call_id != call.id:
        # The arguments of a call begin with a brace, so other ones continue those of its name.
        is_continued = call.is_incomplete and name == call.name and not read_text(arguments).lstrip().startswith("{")
        return not is_continued and (bool(name) or not call.name or arguments is None or call.whole)
    if not name or not call.whole:
        return False
    return name != call.name or bool(not call_id and _speaks(arguments))


def _speaks(arguments: JsonValue) -> bool:
    return bool(arguments.strip() if isinstance(arguments, str) else arguments)
