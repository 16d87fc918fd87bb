"""JSON that others wrote: strict where a tool would run on it, lenient where it only carries a reply. No I/O."""

import json
import math
import re
from typing import Final, NoReturn

from pydantic import JsonValue

from turnwright._base.frozen import deeper_than

from .text_buffer import TooLargeError, mend

#: What is nested deeper is not read. Nothing that we know goes near it, and whatever walks the value later may recurse.
MAX_DEPTH: Final = 100
#: The most objects, lists and commas in one text. What holds more is no reply, but takes seconds to look through, and
#: many times its length in memory. A reply of 4,000 tokens, with twenty alternatives for each, stays below it.
MAX_PARTS: Final = 600_000

# No reply has used more tokens than a double can count; a larger number is a slip, and would not survive as JSON.
_MOST: Final = 2**53

# As many digits as an index has at most.
_DIGITS: Final = 9

_HALF_PAIR: Final = re.compile(r"\\u[dD][89a-fA-F]")


def read_json(text: str) -> JsonValue:
    """Read `text` as leniently as it is safe to: NaN, the infinities and numbers too large for a float are None.

    Raises `ValueError`, and nothing else, where it cannot be read or is nested deeper than `MAX_DEPTH`;
    `TooLargeError`, which is one, where it holds more than `MAX_PARTS`.
    """
    return _read(text, strict=False)


def whole_object(raw: str) -> dict[str, JsonValue] | None:
    """Read the arguments of a call: a dict where `raw` is one whole JSON object, `{}` where it is blank, else None.

    NaN and the infinities are not JSON, a number too large for a float has no value, and what is nested deeper than
    `MAX_DEPTH` or holds more than `MAX_PARTS` is not read: all are None, for arguments that are only nearly right must
    not run.
    """
    if not raw.strip():
        return {}
    try:
        value = _read(raw, strict=True)
        if _HALF_PAIR.search(raw):
            value = json.loads(mend(json.dumps(value, ensure_ascii=False)))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def read_count(value: JsonValue) -> int | None:
    """Read a count of tokens, which some servers write as a text or with a point; None where it is no number.

    What is negative counts as 0, and what is larger than a double can count as 2**53.
    """
    if isinstance(value, str) and value.isdecimal() and len(value) < len(str(_MOST)):
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return min(max(int(value), 0), _MOST)
    return None


def read_id(value: JsonValue) -> str:
    """Read the id of a call, which may be a number; empty where it is none."""
    return mend(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def read_index(value: JsonValue) -> int | None:
    """Read the number by which a server tells calls or choices apart, which may be a text; None where it is none.

    It is a name and no position: it may be negative. What has more than nine digits is none.
    """
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _DIGITS:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 10**_DIGITS:
        return None
    return value


def _read(text: str, *, strict: bool) -> JsonValue:
    # Counting costs little, and settles all but the strangest texts.
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


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _nothing(_constant: str) -> None:
    return None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large for a number")
    return number


def _finite_or_none(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


# Made once: `json.loads` would make one for each of the thousands of chunks of a reply.
_STRICT: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)
# Some servers write line ends and tabs into a text as they are.
_LENIENT: Final = json.JSONDecoder(parse_float=_finite_or_none, parse_constant=_nothing, strict=False)
