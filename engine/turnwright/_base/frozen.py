"""Frozen values that are small and fast to create, with conversion from and to JSON.

The constructor validates nothing, because type checkers check code. `of_json` validates input with pydantic, whose
models accept these values as fields too.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Final, NoReturn, Self, TypeVar

import msgspec
from pydantic import GetCoreSchemaHandler, JsonValue, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, core_schema

from turnwright_states.payload import freeze

V = TypeVar("V")

#: A bracket of JSON, or a complete string, whose brackets do not count.
_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)

#: The maximum depth of a value from a program. The machine's limit is slightly higher.
MOST_NESTED: Final = 250

#: The longest key that an error shows, in characters.
_LONGEST_KEY: Final = 40

#: Digits of a whole number: Python reads no more.
_MOST_DIGITS: Final = 4_300

_JSON: Final = frozenset({str, int, float, bool, type(None), dict, list})


def unique_keys(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    """Return a JSON object of its pairs, as an `object_pairs_hook`. Raises `ValueError` if a key occurs twice.

    `json` takes the last of two values in silence, other parsers the first, so a person, a rule and a tool may each
    see another one.
    """
    fields = dict(pairs)
    if len(fields) < len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        # A key is shown as a whole or not at all, because a page recognizes only a whole secret.
        raise ValueError(f"the key {key!r} occurs twice" if len(key) <= _LONGEST_KEY else "a long key occurs twice")
    return fields


def refuse_constant(constant: str) -> NoReturn:
    """Refuse NaN and the infinities, as a `parse_constant` of `json`. Raises `ValueError`."""
    raise ValueError(f"{constant} is not JSON")


def strict_json(content: bytes) -> JsonValue:
    """Return JSON of others in UTF-8: with each key once, numbers that can be written again, and whole characters.

    Raises `json.JSONDecodeError` for content that is not JSON, other `ValueError`s for what it may not have, and
    `RecursionError`.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    value: JsonValue = json.loads(
        text,
        parse_constant=refuse_constant,
        parse_float=_read_float,
        parse_int=_read_integer,
        object_pairs_hook=unique_keys,
    )
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a text has half a surrogate pair") from None
    return value


def _read_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def _read_integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(digits):,} digits; the limit: {_MOST_DIGITS:,}")
    return int(digits)


def deeper_than(value: object, levels: int) -> bool:
    """Whether lists and dicts in a value are nested more than `levels` deep. Does not recurse."""
    level = [value]
    for _ in range(levels):
        level = [
            item
            for inner in level
            if isinstance(inner, dict | list)
            for item in (inner.values() if isinstance(inner, dict) else inner)
        ]
    return any(isinstance(inner, dict | list) for inner in level)


def count_values(value: object, most: int) -> int:
    """Return the number of values in a value, itself included. It stops after `most`. Does not recurse."""
    count, level = 0, [value]
    while level and count <= most:
        count += len(level)
        level = [
            item
            for inner in level
            if isinstance(inner, Mapping | list | tuple)
            for item in (inner.values() if isinstance(inner, Mapping) else inner)
        ]
    return count


def too_deep_at(text: str, levels: int) -> int | None:
    """Return the position where a JSON text has more than `levels` open brackets, or None. Does not parse the text."""
    depth = 0
    for mark in _BRACKETS.finditer(text):
        if mark[0] in "[{":
            depth += 1
            if depth > levels:
                return mark.start()
        elif mark[0] in "]}":
            depth -= 1
    return None


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen value. A class constant `type`, if there is one, is written to the JSON and checked when read."""

    def to_json(self) -> dict[str, JsonValue]:
        """Return all fields as JSON, for `of_json`. Lists and objects are not copied."""
        return {name: _as_json(value) for name, value in msgspec.structs.asdict(self).items()}

    @classmethod
    def of_json(cls, fields: Mapping[str, JsonValue]) -> Self:
        """Return the value with these fields. Dicts and lists in them are copied and frozen.

        Fields with a default are optional. Raises `ValueError`, which names the field, for a missing or unknown field
        and for a wrong type.
        """
        try:
            value: Self = _reader(cls).validate_python(fields)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            message = str(first.get("ctx", {}).get("error") or first["msg"])
            where = ".".join(map(str, first["loc"]))
            raise ValueError(f"{where}: {message}" if where else message) from None
        return value

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return pydantic's schema: an instance is accepted as it is, or a mapping without unknown fields."""
        fields = {
            field.name: core_schema.typed_dict_field(handler.generate_schema(field.type), required=field.required)
            for field in msgspec.structs.fields(cls)
        }
        name = getattr(cls, "type", None)
        if isinstance(name, str):
            fields["type"] = core_schema.typed_dict_field(core_schema.literal_schema([name]), required=False)

        def construct_value(fields: dict[str, object]) -> Value:
            fields.pop("type", None)
            return cls(**{name: freeze(value) for name, value in fields.items()})

        def read(value: object, check: Callable[[object], Value]) -> Value:
            return value if type(value) is cls else check(value)

        return core_schema.no_info_wrap_validator_function(
            read,
            core_schema.no_info_after_validator_function(
                construct_value, core_schema.typed_dict_schema(fields, extra_behavior="forbid")
            ),
            serialization=core_schema.plain_serializer_function_ser_schema(cls.to_json),
        )


@cache
def _reader(kind: type[V]) -> TypeAdapter[V]:
    return TypeAdapter(kind)


def _as_json(value: object) -> JsonValue:
    plain: object = value
    if type(value) is tuple:
        plain = [_as_json(item) for item in value]
    elif type(value) in _JSON:  # first, because it is faster than the checks below
        pass
    elif isinstance(value, Value):
        plain = value.to_json()
    elif isinstance(value, Enum):
        plain = value.value
    return plain  # type: ignore[return-value]
