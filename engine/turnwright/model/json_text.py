"""JSON that others wrote: strict where a tool would run on it, lenient where it only carries a reply. No I/O."""

import json
import math
import re
from typing import Final, NoReturn

from pydantic import JsonValue

from .pieces import mend

#: What is nested deeper is not read. Nothing that we know goes near it, and whatever walks the value later may recurse.
MAX_DEPTH: Final = 100

_HALF_PAIR: Final = re.compile(r"\\u[dD][89a-fA-F]")


def read_json(text: str) -> JsonValue:
    """Read `text` as leniently as it is safe to: NaN, the infinities and numbers too large for a float are None.

    Raises `ValueError`, and nothing else, where it cannot be read or is nested deeper than `MAX_DEPTH`.
    """
    return _read(text, strict=False)


def whole_object(raw: str) -> dict[str, JsonValue] | None:
    """Read the arguments of a call: a dict where `raw` is one whole JSON object, `{}` where it is blank, else None.

    NaN and the infinities are not JSON, a number too large for a float has no value, and what is nested deeper than
    `MAX_DEPTH` is not read: all are None, for arguments that are only nearly right must not run.
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


def _read(text: str, *, strict: bool) -> JsonValue:
    try:
        value: JsonValue = (_STRICT if strict else _LENIENT).decode(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    # Counting brackets first costs little and settles all but the strangest texts.
    if text.count("{") + text.count("[") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
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


def _deeper_than(value: JsonValue, levels: int) -> bool:
    level: list[JsonValue] = [value]
    for _ in range(levels):
        level = [
            item
            for inner in level
            if isinstance(inner, dict | list)
            for item in (inner.values() if isinstance(inner, dict) else inner)
        ]
    return any(isinstance(inner, dict | list) for inner in level)


# Made once: `json.loads` would make one for each of the thousands of chunks of a reply.
_STRICT: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)
_LENIENT: Final = json.JSONDecoder(parse_float=_finite_or_none, parse_constant=_nothing)
