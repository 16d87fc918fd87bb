"""Parse foreign JSON: strictly if a tool would run with it, leniently if it only contains a reply. No I/O."""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Final

from pydantic import JsonValue

from turnwright._base.frozen import deeper_than, refuse_constant, unique_keys

from .text_buffer import TooLargeError, mend

#: The deepest nesting that is read, far above that of any reply. Later code may recurse over the value.
MAX_DEPTH: Final = 100
#: The most objects, lists and commas in one text. Above it, parsing takes seconds and much memory. A reply of 4,000
#: tokens with twenty alternatives for each stays below it.
MAX_PARTS: Final = 600_000

# The largest count that a double represents exactly; a larger one is an error, and would change in JSON.
_MOST: Final = 2**53

# The most digits of an index.
_DIGITS: Final = 9

#: The end of a stream of chat completions.
DONE: Final = "[DONE]"
# The most objects on one line; a larger number would block the event loop.
_MOST_OBJECTS: Final = 1000
_BETWEEN_OBJECTS: Final = re.compile(r"\s*(?:data:\s*(?=[{\[]))?")

_HALF_PAIR: Final = re.compile(r"\\u[dD][89a-fA-F]")


def read_json(text: str) -> JsonValue:
    """Parse `text` leniently: NaN, the infinities and numbers too large for a float become None.

    Raises `ValueError`, and nothing else, for invalid JSON or one nested deeper than `MAX_DEPTH`; `TooLargeError`, a
    `ValueError`, for one with more than `MAX_PARTS`.
    """
    return _read(text, strict=False)


def split_objects(text: str) -> list[str]:
    """Return the JSON objects that stand one behind another on a line, and `[DONE]`; empty for another line.

    Servers that lose the line end between two events send them so, with or without the name of the second one's field.
    """
    objects: list[str] = []
    begin = 0
    try:
        while begin < len(text) and len(objects) <= _MOST_OBJECTS:
            end = begin + len(DONE) if text.startswith(DONE, begin) else _LENIENT.raw_decode(text, begin)[1]
            objects.append(text[begin:end])
            between = _BETWEEN_OBJECTS.match(text, end)
            begin = between.end() if between else end
    except (ValueError, RecursionError):
        return []
    return objects if 1 < len(objects) <= _MOST_OBJECTS else []


def whole_object(raw: str) -> dict[str, JsonValue] | None:
    """Parse the arguments of a call: a dict if `raw` is one complete JSON object, `{}` if it is blank, else None.

    The result is also None for a key that occurs twice in one object, NaN, the infinities, numbers too large for a
    float, and JSON nested deeper than `MAX_DEPTH` or with more than `MAX_PARTS`, because a tool must not run with
    nearly right arguments.
    """
    if not raw.strip():
        return {}
    try:
        value = _read_arguments(raw)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def is_complete(raw: str) -> bool:
    """Whether `raw` is one complete JSON object, even one that no tool may run with."""
    try:
        return isinstance(read_json(raw), dict)
    except ValueError:
        return False


def copy_object(value: Mapping[str, JsonValue], count: Callable[[int], None]) -> dict[str, JsonValue]:
    """Return a copy of an object with texts that can be stored (see `mend`), after its size was counted."""
    raw = json.dumps(value, ensure_ascii=False)
    count(len(raw))
    fields: dict[str, JsonValue] = json.loads(mend(raw))
    return fields


def damage_of(raw: str) -> str:
    """Return why `whole_object` does not accept these arguments, for a model: where they break, and what was read."""
    from turnwright.privacy.redaction import Redactor  # noqa: PLC0415 (few calls are damaged)

    if not raw.strip():
        return "none arrived. If the tool needs none, pass `{}`"
    try:
        value = _read_arguments(raw)
    except json.JSONDecodeError as error:
        # Hidden first: a page recognizes a secret by its name, and the name may be before the part that is shown.
        excerpt = Redactor({}).hide(mend(raw[: error.pos]))
        if len(excerpt) > _READ:
            excerpt = _HALF_WORD_BEFORE.sub("", excerpt[-_READ:])
        return f"{error.msg.removesuffix(' at')} at character {error.pos + 1:,} of {len(raw):,}, after `{excerpt}`"
    except ValueError as error:
        return Redactor({}).hide(str(error))[: 2 * _READ]
    excerpt = Redactor({}).hide(mend(raw))
    if len(excerpt) > _READ:
        excerpt = _HALF_WORD_AFTER.sub("", excerpt[:_READ])
    return f"you passed {_KINDS[type(value)]}, `{excerpt}`"


#: Characters of damaged arguments that are shown.
_READ: Final = 60
#: What is not shown of a word that is cut: a page recognizes only a whole secret.
_HALF_WORD_BEFORE: Final = re.compile(r'\A[^\s"]+')
_HALF_WORD_AFTER: Final = re.compile(r'[^\s"]+\Z')
_KINDS: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}


def read_text(value: JsonValue) -> str:
    """Return a text; empty for another value."""
    return value if isinstance(value, str) else ""


def read_object(value: JsonValue) -> dict[str, JsonValue]:
    """Return an object; empty for another value."""
    return value if isinstance(value, dict) else {}


def read_objects(value: JsonValue) -> list[dict[str, JsonValue]]:
    """Return the objects in a list; none for another value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def read_count(value: JsonValue) -> int | None:
    """Parse a count of tokens, which some servers send as a text or with a decimal point; None for other values.

    A negative count becomes 0, and a count above 2**53 becomes 2**53.
    """
    if isinstance(value, str) and value.isdecimal() and len(value) < len(str(_MOST)):
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return min(max(int(value), 0), _MOST)
    return None


def read_id(value: JsonValue) -> str:
    """Parse the id of a call, which may be a number; empty for other values."""
    return mend(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def read_index(value: JsonValue) -> int | None:
    """Parse the index of a call or a choice, which may be a text; None for other values.

    The index is a name, not a position, and may be negative. It has at most nine digits.
    """
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _DIGITS:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 10**_DIGITS:
        return None
    return value


def _read_arguments(raw: str) -> JsonValue:
    value = _read(raw, strict=True)
    if _HALF_PAIR.search(raw):
        value = _STRICT.decode(mend(json.dumps(value, ensure_ascii=False)))
    return value


def _read(text: str, *, strict: bool) -> JsonValue:
    # Counting is cheap, and sufficient for nearly all texts.
    brackets = text.count("{") + text.count("[")
    if brackets + text.count(",") > MAX_PARTS:
        raise TooLargeError(f"the JSON has more than {MAX_PARTS:,} parts")
    try:
        value: JsonValue = (_STRICT if strict else _LENIENT).decode(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    if brackets > MAX_DEPTH and deeper_than(value, MAX_DEPTH):
        raise ValueError("the JSON is nested too deep")
    return value


def _read_none(_constant: str) -> None:
    return None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large for a number")
    return number


def _finite_or_none(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


class _RepeatedKeys(dict[str, JsonValue]):
    """An object in which a key came twice. The last value counts.

    `json.dumps` writes all pairs, so that arguments which came as an object are refused as those that came as text.
    """

    def __init__(self, pairs: list[tuple[str, JsonValue]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def items(self) -> list[tuple[str, JsonValue]]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return all pairs."""
        return self._pairs


def _keep_pairs(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else _RepeatedKeys(pairs)


# `json.loads` would make a decoder for each of the thousands of chunks of a reply.
_STRICT: Final = json.JSONDecoder(parse_float=_finite, parse_constant=refuse_constant, object_pairs_hook=unique_keys)
# Some servers do not escape line ends and tabs in texts.
_LENIENT: Final = json.JSONDecoder(
    parse_float=_finite_or_none, parse_constant=_read_none, strict=False, object_pairs_hook=_keep_pairs
)
