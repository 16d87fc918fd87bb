"""Additions to msgspec for the JSON text of facts.

msgspec encodes and decodes facts in a twentieth of a microsecond a field. This module adds pydantic's values (limits),
half surrogate pairs, frozen containers, and the name of the field that does not fit.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, Never, TypeVar

from msgspec import ValidationError as Misfit
from msgspec import to_builtins
from msgspec.json import Encoder
from pydantic import ValidationError

from .limits import Limits

T = TypeVar("T")
V = TypeVar("V")

#: All bytes but the brackets and the quotation mark of JSON.
_NO_MARKS: Final = bytes(set(range(256)) - set(b'[]{}"'))


def plain(value: object) -> object:
    """Convert a value that msgspec cannot encode. Raises `TypeError` for a value that is not JSON."""
    if isinstance(value, Limits):
        return value.model_dump()
    if isinstance(value, Mapping):
        return dict(value)
    # Of these, msgspec encodes no subclasses, such as the texts of other libraries.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


class FrozenDict(dict[str, V]):
    """An immutable dict in a fact. `copy.deepcopy` makes an ordinary dict of it."""

    __slots__ = ()

    def __deepcopy__(self, memo: object) -> object:
        return thaw(self)

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)


class FrozenList(list[V]):
    """An immutable list in a fact. `copy.deepcopy` makes an ordinary list of it."""

    __slots__ = ()

    def __deepcopy__(self, memo: object) -> object:
        return thaw(self)

    def __reduce__(self) -> tuple[object, ...]:
        return list, (list(self),)


def _refuse(*_: object, **__: object) -> Never:
    raise TypeError("a value in the journal cannot be changed: make a copy with copy.deepcopy(...)")


for _name in ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(FrozenDict, _name, _refuse)
for _name in ("__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "clear", "extend", "insert"):
    setattr(FrozenList, _name, _refuse)
for _name in ("pop", "remove", "reverse", "sort"):
    setattr(FrozenList, _name, _refuse)

_FROZEN: Final[Mapping[type, type]] = {dict: FrozenDict, list: FrozenList}
_EMPTY: Final[FrozenDict[object]] = FrozenDict()
_THAWED: Final[Mapping[type, type]] = {FrozenDict: dict, FrozenList: list, dict: dict, list: list}


def freeze(value: T) -> T:
    """Return an equal value whose dicts and lists are immutable. A frozen value is returned itself."""
    if type(value) is dict and not value:
        return _EMPTY  # type: ignore[return-value]  # a dict; turns in flight share it
    return _copy_as(value, _FROZEN)


def thaw(value: T) -> T:
    """Return a copy whose dicts and lists are ordinary ones."""
    return _copy_as(value, _THAWED)


def _copy_as(value: T, kinds: Mapping[type, type]) -> T:
    """Copy with other kinds of dicts and lists. Not recursive, because JSON may be nested deeper than calls."""
    kind = type(value)
    if kind not in kinds:
        return value
    copy: T = kinds[kind](value)
    stack: list[object] = [copy]
    while stack:
        container = stack.pop()
        if isinstance(container, dict):
            for name, inner in container.items():
                if type(inner) in kinds:
                    inner_copy = kinds[type(inner)](inner)
                    dict.__setitem__(container, name, inner_copy)
                    stack.append(inner_copy)
        else:
            assert isinstance(container, list)  # noqa: S101 (only dicts and lists are added)
            for place, inner in enumerate(container):
                if type(inner) in kinds:
                    inner_copy = kinds[type(inner)](inner)
                    list.__setitem__(container, place, inner_copy)
                    stack.append(inner_copy)
    return copy


_ENCODER: Final = Encoder(enc_hook=plain)
_encode, _encode_lines = _ENCODER.encode, _ENCODER.encode_lines


def text_of(value: object) -> str:
    """Return the value as JSON text. Half a surrogate pair, which UTF-8 cannot encode, becomes a question mark."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        whole = json.dumps(to_builtins(value, enc_hook=plain), ensure_ascii=False, separators=(",", ":"))
        return whole.encode(errors="replace").decode()


def lines_of(values: Sequence[object]) -> str:
    """Return the `text_of` of each value, with line breaks between them. JSON on one line contains none."""
    try:
        return _encode_lines(values)[:-1].decode()
    except UnicodeEncodeError:
        return "\n".join(map(text_of, values))


def nests_deeper(text: str, levels: int) -> bool:
    """Return whether a JSON text nests more than `levels` brackets, without parsing it.

    Most texts have too few brackets, so counting is enough. In the others, only brackets and quotation marks are kept.
    Brackets between two quotation marks are part of a string.
    """
    if text.count("[") + text.count("{") <= levels:
        return False
    marks = text.replace("\\\\", "").replace('\\"', "").encode(errors="replace").translate(None, _NO_MARKS)
    depth = 0
    for bracket in b"".join(marks.replace(b'""', b"").split(b'"')[::2]):
        if bracket in b"[{":
            depth += 1
            if depth > levels:
                return True
        else:
            depth -= 1
    return False


def find_repeated_key(text: str) -> str | None:
    """Return the first name that occurs twice in an object of this JSON text, or None."""
    repeats: list[str] = []

    def once(pairs: list[tuple[str, object]]) -> None:
        if len(dict(pairs)) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            repeats.append(next(name for name, count in counts.items() if count > 1))

    json.loads(text, object_pairs_hook=once)
    return repeats[0] if repeats else None


def model(kind: type, fields: object) -> Limits:
    """Parse the limits in a fact. Raises pydantic's `ValidationError` if they do not fit."""
    assert kind is Limits  # noqa: S101 (msgspec knows the kinds of all other fields)
    return _limits_of(json.dumps(fields))


@lru_cache(maxsize=64)
def _limits_of(text: str) -> Limits:
    """Return the limits in a JSON text. The turns of a session mostly have the same ones, which none can change."""
    return Limits.model_validate(json.loads(text))


def misfit(error: Misfit) -> str:
    """Return the field that does not fit, and the reason: "calls.0.lease.calls: Expected `int | null`, got `str`"."""
    match = re.match(r"(.*) - at `(key` in `)?\$(.*)`$", str(error), re.DOTALL)
    why, of_key, path = match.groups() if match else (str(error), None, "")
    names = re.findall(r"[^.\[\]`]+", path)
    if of_key:
        why = why.replace("`,", "` as a key,", 1)
    if isinstance(error.__cause__, ValidationError):
        first = error.__cause__.errors()[0]
        names, why = [*names, *map(str, first["loc"])], first["msg"]
    field_match = re.match(r"Object (?:missing required|contains unknown) field `(.*)`$", why, re.DOTALL)
    return f"{'.'.join([*names, field_match[1]] if field_match else names)}: {why}"
