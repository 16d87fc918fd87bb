"""Frozen values that are small and quick to make, and are read from JSON field by field.

To make one in code checks nothing: types are the checker's affair there. What people and files bring is checked where
it comes in (`of_json`), by pydantic, which takes a value of this kind as a field of its models as well.
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Final, Self, TypeVar

import msgspec
from pydantic import GetCoreSchemaHandler, JsonValue, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, core_schema

from turnwright_states.payload import frozen

V = TypeVar("V")

#: A bracket of JSON, or a whole text, in which brackets are letters.
_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)

#: How many lists and objects of a value may stand in each other that a program gives: the machine takes few more.
MOST_NESTED: Final = 250

_JSON: Final = frozenset({str, int, float, bool, type(None), dict, list})


def deeper_than(value: object, levels: int) -> bool:
    """Whether lists and dicts are nested more than `levels` deep in a value. It does not recurse."""
    level = [value]
    for _ in range(levels):
        level = [
            item
            for inner in level
            if isinstance(inner, dict | list)
            for item in (inner.values() if isinstance(inner, dict) else inner)
        ]
    return any(isinstance(inner, dict | list) for inner in level)


def too_deep_at(text: str, levels: int) -> int | None:
    """Find where a JSON text opens more than `levels` brackets at once, before anything parses it; None if nowhere."""
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
    """A frozen value. A class constant `type`, where there is one, stands in the JSON and is looked for in it."""

    def to_json(self) -> dict[str, JsonValue]:
        """All its fields as JSON; `of_json` takes them back. Lists and objects in it stay the ones they are."""
        return {name: _as_json(value) for name, value in msgspec.structs.asdict(self).items()}

    @classmethod
    def of_json(cls, fields: Mapping[str, JsonValue]) -> Self:
        """The value with these fields; dicts and lists in them are copied, and frozen.

        Fields with a default may be left out.

        Raises `ValueError`, naming the field, for one that is missing, unknown, or not of its type.
        """
        try:
            value: Self = _reader(cls).validate_python(fields)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            said = str(first.get("ctx", {}).get("error") or first["msg"])
            where = ".".join(map(str, first["loc"]))
            raise ValueError(f"{where}: {said}" if where else said) from None
        return value

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """How pydantic reads one: a value as it is, and else its fields, of which none may be unknown."""
        fields = {
            field.name: core_schema.typed_dict_field(handler.generate_schema(field.type), required=field.required)
            for field in msgspec.structs.fields(cls)
        }
        name = getattr(cls, "type", None)
        if isinstance(name, str):
            fields["type"] = core_schema.typed_dict_field(core_schema.literal_schema([name]), required=False)

        def made(fields: dict[str, object]) -> Value:
            fields.pop("type", None)
            return cls(**{name: frozen(value) for name, value in fields.items()})

        def read(value: object, check: Callable[[object], Value]) -> Value:
            return value if type(value) is cls else check(value)

        return core_schema.no_info_wrap_validator_function(
            read,
            core_schema.no_info_after_validator_function(
                made, core_schema.typed_dict_schema(fields, extra_behavior="forbid")
            ),
            serialization=core_schema.plain_serializer_function_ser_schema(cls.to_json),
        )


@cache
def _reader(kind: type[V]) -> TypeAdapter[V]:
    return TypeAdapter(kind)


def _as_json(value: object) -> JsonValue:
    plain: object = value
    if type(value) is tuple:
        plain = [_as_json(one) for one in value]
    elif type(value) in _JSON:  # asked first, for it costs less than to ask for a value that is none
        pass
    elif isinstance(value, Value):
        plain = value.to_json()
    elif isinstance(value, Enum):
        plain = value.value
    return plain  # type: ignore[return-value]
