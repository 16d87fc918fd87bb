"""JSON values out of a JSON Schema, as tools and MCP servers write them, and values that do not fit it.

Read are `type`, `enum`, `const`, `examples`, `anyOf`, `oneOf`, `allOf` of one, `$ref` into `$defs`, and the bounds of
numbers, texts, lists and objects. Examples are drawn three times of four, and bounds of numbers often. What
else a schema demands is not read: a value may then be refused, which a model's may be, too.
"""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import cache
from typing import Final, cast
from uuid import UUID

from hypothesis import strategies as st
from pydantic import JsonValue
from pydantic_core import to_jsonable_python

Schema = Mapping[str, JsonValue]
Values = st.SearchStrategy[JsonValue]
#: Strategies by the name of a property, or by `type:` and a type of JSON Schema.
ChosenValues = Mapping[str, Values]
#: Strategies of a user: by parameter (`order`, or `cancel.order` of one tool), or by type.
ArgumentValues = Mapping[str | type, st.SearchStrategy[object]]

#: Texts that tools trip over, the plain ones first.
TEXTS: Final[tuple[str, ...]] = ("a", "", "a b", "../a", "line\nbreak", "naïve ☃", '{"a": 1}', "\x00", "0")
#: Numbers that arithmetic trips over, the plain ones first: times 100, most of the fractions are not whole.
_NUMBERS: Final = (0.5, 1.0, 0.0, -1.0, 0.07, 0.29, 2.675, 19.99, 1e300)
_TYPES: Final[Mapping[type, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    date: "date",
    datetime: "date-time",
    timedelta: "duration",
    UUID: "uuid",
}
_KEYS: Final[tuple[str, ...]] = ("a", "b", "path")
_LONGEST: Final = 3
#: Whole numbers that are few, so that each comes often.
_FEW: Final = 13
_NOTHING_CHOSEN: Final[ChosenValues] = {}
_ANY_TYPE: Final = ("string", "integer", "boolean", "null", "number", "array", "object")
#: The form of a value. Short and few: a model repeats itself, and a test is read by people. Models leave offsets out.
_FORMATS: Final[Mapping[str, tuple[str, ...]]] = {
    "date": ("2026-01-31", "2026-02-01", "2026-02-28", "2026-03-01", "2024-02-29", "2025-12-31"),
    "date-time": (
        "2026-01-31T12:00:00Z",
        "2026-01-31T23:30:00-05:00",
        "2026-03-29T01:30:00Z",
        "2024-02-29T00:00:00Z",
        "2025-12-31T23:30:00Z",
        "2026-03-01T09:00:00",
    ),
    "time": ("12:00:00", "00:00:00", "23:59:59"),
    "duration": ("PT1H", "PT0S", "P1D"),
    "uuid": ("00000000-0000-4000-8000-000000000000", "00000000-0000-4000-8000-000000000001"),
    "email": ("a@example.org", "b@example.org"),
    "uri": ("https://example.org/", "http://localhost/a?b=c"),
}


@cache
def json_values() -> Values:
    """Any JSON value, small."""
    plain: Values = st.none() | st.booleans() | st.integers(-2, 9) | st.sampled_from(_NUMBERS) | st.sampled_from(TEXTS)
    return st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=_LONGEST) | st.dictionaries(_names(), inner, max_size=_LONGEST),
        max_leaves=4,
    )


def values_of(schema: Schema, strategies: ChosenValues = _NOTHING_CHOSEN) -> Values:
    """Values that fit `schema`, of these `strategies` where they have its property or its type."""
    return _Reader(schema, strategies).read(schema)


def arguments_of(schema: Schema, strategies: ChosenValues = _NOTHING_CHOSEN) -> st.SearchStrategy[dict[str, JsonValue]]:
    """Generate arguments for a tool whose `parameters` are `schema`. See `values_of`."""
    return values_of({**schema, "type": "object"}, strategies).map(_mapping)


def property_names(schema: JsonValue | Schema) -> Iterator[str]:
    """Yield the names of the fields of a schema's objects, at any depth."""
    if isinstance(schema, Mapping):
        yield from _mapping(schema.get("properties"))
        for inner in schema.values():
            yield from property_names(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from property_names(inner)


def choose_values(tool: str, values: ArgumentValues) -> ChosenValues:
    """Return a user's strategies for the arguments of one tool. Dates, enums and the like become their JSON."""
    strategies: dict[str, Values] = {}
    for name, strategy in values.items():
        if isinstance(name, type):
            strategies[f"type:{_TYPES.get(name, name.__name__)}"] = strategy.map(_as_json)
        elif "." not in name or name.startswith(f"{tool}."):
            strategies[name.rpartition(".")[2]] = strategy.map(_as_json)
    return strategies


def _as_json(value: object) -> JsonValue:
    return cast("JsonValue", to_jsonable_python(value, fallback=str))


def chosen_type(strategies: ChosenValues, kind: str, schema: Schema) -> str:
    """Return the name of the strategy that is chosen for the class, the format or the type of a value; or nothing."""
    definition = str(schema.get("$ref", "")).rpartition("/")[2]
    names = (f"type:{definition}", f"type:{schema.get('format', kind)}", f"type:{kind}")
    return next((name for name in names if name in strategies), "")


def misfits_of(schema: Schema) -> st.SearchStrategy[dict[str, JsonValue]]:
    """Arguments with a mistake: one is missing, one too many, or one is of any other kind."""
    properties = _mapping(schema.get("properties"))
    names = sorted(properties)
    one_too_many = arguments_of(schema).map(lambda fitting: {**fitting, "no_such_argument": 1})
    if not names:
        return one_too_many
    without = st.builds(
        lambda fitting, name: {key: value for key, value in fitting.items() if key != name},
        arguments_of(schema),
        st.sampled_from(names),
    )
    extra_fields = st.builds(
        lambda fitting, name, value: {**fitting, name: value},
        arguments_of(schema),
        st.sampled_from(names),
        json_values(),
    )
    return without | one_too_many | extra_fields


class _Reader:
    """Reads the parts of one schema. A definition that refers to itself is read once, when it is drawn."""

    def __init__(self, root: Schema, strategies: ChosenValues) -> None:
        self._strategies = strategies
        self._definitions = {**_mapping(root.get("definitions")), **_mapping(root.get("$defs"))}
        self._read: dict[str, Values] = {}

    def read(self, schema: JsonValue | Schema) -> Values:  # noqa: PLR0911 (one return a keyword: flat)
        if not isinstance(schema, Mapping):  # true: anything fits
            return json_values()
        if isinstance(reference := schema.get("$ref"), str):
            name = chosen_type(self._strategies, "", schema)
            return self._strategies[name] if name else self._definition(reference.rpartition("/")[2])
        if "const" in schema:
            return st.just(schema["const"])
        if isinstance(choices := schema.get("enum"), list) and choices:
            return st.sampled_from(choices)
        if isinstance(examples := schema.get("examples"), list) and examples:
            plain = {key: value for key, value in schema.items() if key != "examples"}
            general = self.read(plain)
            return st.integers(0, 3).flatmap(lambda place: st.sampled_from(examples) if place else general)
        branches = schema.get("anyOf", schema.get("oneOf", schema.get("allOf")))
        if isinstance(branches, list) and branches:
            # Of several that must all fit, the first is a guess.
            return st.one_of([self.read(branch) for branch in (branches[:1] if "allOf" in schema else branches)])
        kind = schema.get("type", "object" if "properties" in schema else None)
        kinds = kind if isinstance(kind, list) else [kind]
        return st.one_of([self._kind(str(kind), schema) if kind in _ANY_TYPE else json_values() for kind in kinds])

    def _kind(self, kind: str, schema: Schema) -> Values:
        name = chosen_type(self._strategies, kind, schema)
        return self._strategies[name] if name else self._of_type(kind, schema)

    def _definition(self, name: str) -> Values:
        if name not in self._definitions:
            return json_values()
        if name not in self._read:
            self._read[name] = st.deferred(lambda: self.read(self._definitions[name]))
        return self._read[name]

    def _of_type(self, kind: str, schema: Schema) -> Values:  # noqa: PLR0911 (one return a type: flat)
        match kind:
            case "object":
                return self._object(schema)
            case "array":
                return self._array(schema)
            case "string":
                return _text(schema)
            case "integer":
                low, high = _bounds(schema, 1)
                return _whole_numbers(math.ceil(low), math.floor(high))
            case "number":
                low, high = _bounds(schema, 0.001)
                bounds = [bound for bound in (low, high) if bound in schema.values()]
                fitting = [*bounds, *(number for number in _NUMBERS if low <= number <= high)]
                return st.sampled_from(fitting or [low])
            case "boolean":
                return st.booleans()
            case _:
                return st.none()

    def _object(self, schema: Schema) -> Values:
        properties = {
            name: self._strategies[name] if name in self._strategies else self.read(inner)
            for name, inner in _mapping(schema.get("properties")).items()
        }
        names = schema.get("required")
        required_names = set(map(str, names)) if isinstance(names, list) else set()
        known_fields: Values = st.fixed_dictionaries(
            {name: inner for name, inner in properties.items() if name in required_names},
            optional={name: inner for name, inner in properties.items() if name not in required_names},
        )
        more_schema = schema.get("additionalProperties")
        if properties or not isinstance(more_schema, Mapping):
            return known_fields
        return st.dictionaries(_names(), self.read(more_schema), max_size=_LONGEST).map(_mapping)

    def _array(self, schema: Schema) -> Values:
        prefix = schema.get("prefixItems")
        if isinstance(prefix, list):
            return st.tuples(*map(self.read, prefix)).map(list)
        least = _whole(schema.get("minItems"), 0)
        most = max(least, min(_whole(schema.get("maxItems"), _LONGEST), least + _LONGEST))
        unique = repr if schema.get("uniqueItems") else None
        return st.lists(self.read(schema.get("items", True)), min_size=least, max_size=most, unique_by=unique).map(list)


def _whole_numbers(low: int, high: int) -> Values:
    """Whole numbers, of which every other one is at a bound where they are many."""
    if low > high:
        return st.just(low)
    near = [number for number in (low, low + 1, high - 1, high) if low <= number <= high]
    numbers = st.integers(low, high)
    return numbers if high - low <= _FEW else st.sampled_from(near) | st.integers(low, low + _FEW) | numbers


@cache
def _names() -> st.SearchStrategy[str]:
    return st.sampled_from(_KEYS)


def _text(schema: Schema) -> Values:
    form, pattern = schema.get("format"), schema.get("pattern")
    if isinstance(form, str) and form in _FORMATS:
        return st.sampled_from(_FORMATS[form])
    with suppress(re.error):  # patterns of JSON Schema are those of JavaScript, and some are none of Python
        if isinstance(pattern, str):
            return st.from_regex(re.compile(pattern), fullmatch=True)
    least, most = _whole(schema.get("minLength"), 0), _whole(schema.get("maxLength"), 1 << 16)
    fitting = [text for text in TEXTS if least <= len(text) <= most]
    return st.sampled_from(fitting or ["a" * least])


def _bounds(schema: Schema, step: float) -> tuple[float, float]:
    """The lowest and the highest number, a few apart where the schema leaves one open."""
    low, high = _number(schema.get("minimum")), _number(schema.get("maximum"))
    above, below = _number(schema.get("exclusiveMinimum")), _number(schema.get("exclusiveMaximum"))
    low = above + step if above is not None else low
    high = below - step if below is not None else high
    if low is None and high is None:
        return -3, 10
    if low is None:
        return (high or 0) - 10, high or 0
    return low, low + 10 if high is None else high


def _number(value: JsonValue) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: JsonValue, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise


def _mapping(value: JsonValue) -> dict[str, JsonValue]:
    return dict(value) if isinstance(value, Mapping) else {}
