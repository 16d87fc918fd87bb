"""How facts are written as JSON text, and what is read back of it.

msgspec does both, a twentieth of a microsecond a field. This room has the rest: what msgspec does not know (limits, and
what was used, which are pydantic's), half surrogate pairs, and which field is to blame for what does not fit.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from msgspec import ValidationError as Misfit
from msgspec import to_builtins
from msgspec.json import Encoder
from pydantic import BaseModel, ValidationError

from .events import Spent, Usage
from .limits import Limits


def plain(value: object) -> object:
    """What msgspec cannot write itself, as what it can. Raises `TypeError` for what is not JSON."""
    if type(value) is Usage or type(value) is Spent:
        return {name: number for name, number in value.__dict__.items() if number}
    if isinstance(value, Limits):
        return value.model_dump()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


_encode: Final = Encoder(enc_hook=plain).encode


def text_of(value: object) -> str:
    """The value as JSON text. Half a surrogate pair, which no UTF-8 can write, becomes a question mark."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        whole = json.dumps(to_builtins(value, enc_hook=plain), ensure_ascii=False, separators=(",", ":"))
        return whole.encode(errors="replace").decode()


def model(kind: type, fields: object) -> BaseModel:
    """What pydantic reads in a fact, from its JSON. Raises pydantic's `ValidationError` if it does not fit."""
    assert issubclass(kind, BaseModel)  # noqa: S101 (no field of a fact is of another kind that msgspec does not know)
    return kind.model_validate(fields)


def misfit(error: Misfit) -> str:
    """Which field does not fit, and why: "calls.0.lease.calls: Expected `int | null`, got `str`"."""
    why, at, path = str(error).rpartition(" - at `$")
    names = re.findall(r"[^.\[\]`]+", path) if at else []
    why = why if at else path
    if isinstance(error.__cause__, ValidationError):
        first = error.__cause__.errors()[0]
        names, why = [*names, *map(str, first["loc"])], first["msg"]
    named = re.match(r"Object (?:missing required|contains unknown) field `(.*)`$", why, re.DOTALL)
    return f"{'.'.join([*names, named[1]] if named else names)}: {why}"
