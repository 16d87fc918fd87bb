"""The schema of a function's arguments, and the check of what a model sent."""

import cProfile
import inspect
import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import reduce
from operator import or_
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, Union, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from turnwright.errors import ConfigError
from turnwright.tools import ToolContext, ToolInputError, tool
from turnwright.tools.schema import Parameter, plain_schema, read_schema

CONTEXT = ToolContext(turn_id="t1", call_id="c1")


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Place(BaseModel):
    """A place on a map."""

    x: int
    title: str = "somewhere"


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: date
    pair: tuple[int, int]


class Picky(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def _look_up(cls, n: int) -> int:
        return {1: n}[n]


@dataclass
class Item:
    name: str
    count: int = 1


def problem(function: Callable[..., object], arguments: Mapping[str, JsonValue]) -> str:
    with pytest.raises(ToolInputError) as caught:
        tool(function).parse(arguments)
    assert "pydantic" not in str(caught.value)
    return str(caught.value)


def test_a_schema_is_of_type_object_and_closed() -> None:
    def nothing() -> None: ...

    assert tool(nothing).parameters == {"type": "object", "properties": {}, "additionalProperties": False}


def test_annotations_and_defaults_become_a_json_schema_without_titles() -> None:
    def act(
        a: int,
        b: Literal["u", "v"] | None = None,
        *,
        c: Annotated[str, Field(description="the c", max_length=3)] = "x",
        d: dict[str, list[float]],
        title: bool = False,
    ) -> None: ...

    assert tool(act).parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["a", "d"],
        "properties": {
            "a": {"type": "integer"},
            "b": {"anyOf": [{"enum": ["u", "v"], "type": "string"}, {"type": "null"}], "default": None},
            "c": {"type": "string", "description": "the c", "maxLength": 3, "default": "x"},
            "d": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "number"}}},
            "title": {"type": "boolean", "default": False},
        },
    }


def test_models_and_dataclasses_are_parameters() -> None:
    def act(place: Place, items: list[Item]) -> None: ...

    act_tool = tool(act)
    assert act_tool.parameters["$defs"] == {
        "Place": {
            "type": "object",
            "description": "A place on a map.",
            "required": ["x"],
            "properties": {"x": {"type": "integer"}, "title": {"type": "string", "default": "somewhere"}},
        },
        "Item": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}},
        },
    }
    assert act_tool.parse({"place": {"x": 1}, "items": [{"name": "a"}]}) == {"place": Place(x=1), "items": [Item("a")]}


def test_a_description_of_the_annotation_wins_over_the_docstring() -> None:
    def act(a: Annotated[int, Field(description="annotated")], b: int, place: Place) -> None:
        """Act.

        Args:
            a: from the docstring
            b: from the docstring
            place: where
        """

    properties = tool(act).parameters["properties"]
    assert isinstance(properties, dict)
    assert properties["a"] == {"type": "integer", "description": "annotated"}
    assert properties["b"] == {"type": "integer", "description": "from the docstring"}
    assert properties["place"] == {"$ref": "#/$defs/Place", "description": "where"}


def test_a_parameter_without_annotation_takes_any_json_value() -> None:
    def act(value) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001 (that is the point)

    act_tool = tool(act)
    assert act_tool.parameters["properties"] == {"value": {}}
    assert act_tool.parse({"value": {"a": [1, None]}}) == {"value": {"a": [1, None]}}


def test_any_name_may_be_a_parameter() -> None:
    def act(model_config: int, json: str, schema: str = "s", copy: bool = True, _under: int = 0) -> None: ...

    act_tool = tool(act)
    assert act_tool.parse({"model_config": 1, "json": "j"}) == {"model_config": 1, "json": "j"}
    assert act_tool.parse({"model_config": 1, "json": "j", "_under": 2})["_under"] == 2


def test_omitted_argument_keeps_the_default_of_the_function() -> None:
    missing = object()

    def act(a: object = missing, b: list[int] = []) -> bool:  # noqa: B006 (that is the point)
        return a is missing and b == []

    act_tool = tool(act)
    assert act_tool.parse({}) == {}
    assert act_tool.plain({"b": [1]}) == {"b": [1]}
    assert act_tool.parameters["properties"] == {
        "a": {},
        "b": {"type": "array", "items": {"type": "integer"}, "default": []},
    }


def test_a_default_of_a_field_is_filled_in() -> None:
    def act(a: Annotated[int, Field(default=3)], b: int = Field(4, description="b")) -> None: ...

    assert tool(act).parse({}) == {"a": 3, "b": 4}


def test_alias_counts_in_a_default_and_not_in_an_annotation() -> None:
    def act(a: Annotated[int, Field(alias="x")], b: int = Field(alias="y")) -> None: ...

    assert tool(act).parameters["required"] == ["a", "y"]
    assert tool(act).parse({"a": 1, "y": 2}) == {"a": 1, "b": 2}


def test_approval_sees_a_copy_of_a_mutable_default() -> None:
    def act(a: list[int] = []) -> None: ...  # noqa: B006 (that is the point)

    act_tool = tool(act)
    cast("list[int]", act_tool.complete({})["a"]).append(1)
    assert act_tool.complete({}) == {"a": []}


def test_numbers_and_dates_are_taken_from_strings() -> None:
    def act(n: int, f: float, day: date, *, where: Path, size: Size, tags: set[str]) -> None: ...

    arguments: dict[str, JsonValue] = {
        "n": "5", "f": 1, "day": "2026-01-02", "where": "a/b", "size": "small", "tags": ["x", "x"],
    }  # fmt: skip
    assert tool(act).parse(arguments) == {
        "n": 5, "f": 1.0, "day": date(2026, 1, 2), "where": Path("a/b"), "size": Size.SMALL, "tags": {"x"},
    }  # fmt: skip


def test_strict_models_are_checked_as_json() -> None:
    def act(value: Strict) -> None: ...

    assert tool(act).parse({"value": {"day": "2026-01-02", "pair": [1, 2]}}) == {
        "value": Strict(day=date(2026, 1, 2), pair=(1, 2))
    }


def test_plain_arguments_are_json_after_coercion_with_defaults() -> None:
    def act(n: int, day: date, force: bool = False) -> None: ...

    assert tool(act).plain({"n": "5", "day": "2026-01-02"}) == {"n": 5, "day": "2026-01-02", "force": False}


def test_a_missing_argument_is_named() -> None:
    def act(path: str, limit: int = 5) -> None: ...

    assert problem(act, {}) == (
        "invalid arguments:\n- path: is missing\nExpected: path (string), limit (integer, optional)."
    )


def test_an_unknown_argument_is_named() -> None:
    def act() -> None: ...

    assert problem(act, {"pfad": 1}) == ("invalid arguments:\n- pfad: unknown argument\nExpected: no arguments.")


def test_wrong_value_is_named_with_path_and_value() -> None:
    def act(place: Place, rows: list[dict[str, int]], size: Size, either: int | list[int]) -> None: ...

    text = problem(act, {"place": {"x": 1.5}, "rows": [{}, {"a": "b"}], "size": "big", "either": "z" * 500})
    assert "- place.x: should be a valid integer, got a number with a fractional part; you passed 1.5\n" in text
    assert '- rows[1].a: should be a valid integer, unable to parse string as an integer; you passed "b"\n' in text
    assert "- size: should be 'small' or 'large'; you passed \"big\"\n" in text
    assert '- either: should be a valid array; you passed "zzz' in text
    assert "z" * 100 not in text
    assert text.endswith(
        'Expected: place (object), rows (array of object), size (one of ["small", "large"]),'
        " either (integer or array of integer)."
    )


def test_missing_field_of_a_model_is_named_with_the_path() -> None:
    def act(places: list[Place]) -> None: ...

    assert "- places[0].x: is missing\n" in problem(act, {"places": [{}]})


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"n": True, "f": 1.0, "some": [], "place": {"x": 1}}, "n"),
        ({"n": 1, "f": False, "some": [], "place": {"x": 1}}, "f"),
        ({"n": 1, "f": 1.0, "some": [1, True], "place": {"x": 1}}, "some[1]"),
        ({"n": 1, "f": 1.0, "some": [], "place": {"x": False}}, "place.x"),
    ],
)
def test_a_boolean_is_not_taken_for_a_number(arguments: dict[str, JsonValue], where: str) -> None:
    def act(n: int, f: float, some: list[int], place: Place) -> None: ...

    assert f"- {where}: should be a number, not a boolean\n" in problem(act, arguments)


def test_boolean_is_accepted_where_allowed() -> None:
    def act(a: bool, b: int | bool, c: JsonValue) -> None: ...

    assert tool(act).parse({"a": True, "b": True, "c": [True]}) == {"a": True, "b": True, "c": [True]}


def test_many_problems_are_counted_not_listed() -> None:
    def act() -> None: ...

    text = problem(act, {f"a{number}": 1 for number in range(20)})
    assert text.count("unknown argument") == 8
    assert "- and 12 more\n" in text


def test_invalid_unicode_is_an_input_error() -> None:
    def act(a: str, b: str) -> None: ...

    assert "- b: nested too deeply, or not valid Unicode\n" in problem(act, {"a": "x", "b": "\ud800"})


def test_deeply_nested_values_are_an_input_error() -> None:
    def act(a: JsonValue) -> None: ...

    deep: JsonValue = 1
    for _ in range(500):
        deep = [deep]
    assert "invalid arguments" in problem(act, {"a": deep})


def test_broken_validator_is_an_input_error() -> None:
    def act(value: Picky) -> None: ...

    with pytest.raises(ToolInputError, match="could not be validated: KeyError: 2"):
        tool(act).parse({"value": {"n": 2}})


def test_the_context_is_no_argument() -> None:
    def act(a: int, context: ToolContext, other_context: ToolContext | None = None) -> None: ...

    assert tool(act).parameters["properties"] == {"a": {"type": "integer"}}
    assert "unknown argument" in problem(act, {"a": 1, "context": {}})


def takes_any_number(*paths: str) -> None: ...
def takes_any_names(**options: str) -> None: ...
def takes_by_position(path: str, /) -> None: ...
def takes_a_callable(path: str, then: Callable[[], None]) -> None: ...
def takes_an_unknown_class(thing: Path, unknown: type["Unknown"]) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (takes_any_number, r"takes_any_number: parameter '\*paths: str' takes any number"),
        (takes_any_names, r"takes_any_names: parameter '\*\*options: str' takes any number"),
        (takes_by_position, "takes_by_position: parameter 'path' is positional-only"),
        (max, "tool max: it has no signature: wrap it in a function"),
        (takes_a_callable, "takes_a_callable: parameter 'then' has an annotation without a JSON Schema"),
        (takes_an_unknown_class, "takes_an_unknown_class: its annotations cannot be resolved.*Unknown"),
    ],
)
def test_function_unfit_for_models_is_refused(function: Callable[..., object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        tool(function)
    assert "errors.pydantic.dev" not in str(caught.value)


def test_method_is_a_tool_once_bound() -> None:
    class Counter:
        def __init__(self) -> None:
            self.total = 0

        def add(self, count: int) -> int:
            self.total += count
            return self.total

    with pytest.raises(ConfigError, match=r"Counter\.add: it is a method without its object"):
        tool(Counter.add)
    assert tool(Counter().add)(2) == 2


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["n", "place", "rows", "any", "x"]) | st.text(max_size=3), _JSON, max_size=5))
def test_any_arguments_are_taken_or_refused_in_words(arguments: dict[str, Any]) -> None:
    def act(n: int, place: Place | None = None, rows: list[bool | int] | None = None, any: object = None) -> None: ...  # noqa: A002

    act_tool = tool(act)
    try:
        values = act_tool.parse(arguments)
    except ToolInputError as error:
        message = str(error)
    else:
        message = ""
        assert values.keys() == arguments.keys()
        assert isinstance(values["n"], int)
    assert "pydantic" not in message
    message.encode()


SCALARS: st.SearchStrategy[Any] = st.sampled_from(
    [str, int, float, bool, Literal["a"], Literal["a", "b"], Literal["", "é"], list[str], list[int], dict[str, float]]
)
TYPES = st.recursive(
    SCALARS,
    lambda inner: (
        inner.map(lambda kind: list[kind])  # type: ignore[valid-type]
        | inner.map(lambda kind: dict[str, kind])  # type: ignore[valid-type]
        | inner.map(lambda kind: Union[kind, None])  # noqa: UP007 (users write it)
        | inner.map(lambda kind: reduce(or_, [NoneType, kind]))
    ),
    max_leaves=4,
)
ANNOTATIONS = (
    TYPES
    | st.just(NoneType)
    | st.tuples(TYPES, st.text(max_size=9)).map(lambda pair: Annotated[pair[0], Field(description=pair[1])])
)
DEFAULTS = st.sampled_from([inspect.Parameter.empty, None, 0, 1.5, -0.0, float("nan"), "x", "", "\ud800", True, 10**30])
PARAMETERS = st.tuples(ANNOTATIONS, DEFAULTS)


@given(st.lists(PARAMETERS, max_size=3))
def test_plain_schema_is_the_schema_of_pydantic(pairs: list[tuple[object, object]]) -> None:
    """To the byte, because a prompt cache compares bytes; a default that is not JSON is left to pydantic."""
    parameters = [Parameter(f"a{number}", *pair) for number, pair in enumerate(pairs)]
    schema = plain_schema(parameters)
    if any(default == "\ud800" or default != default for _, default in pairs):  # noqa: PLR0124 (NaN)
        assert schema is None
    else:
        expected = read_schema(parameters)
        assert json.dumps(schema) == json.dumps(expected)


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (Annotated[int, Field(ge=0)], inspect.Parameter.empty),
        (Annotated[int, Field(alias="n")], inspect.Parameter.empty),
        (Annotated[int, Field(strict=True)], inspect.Parameter.empty),
        (Annotated[int, Field(examples=[1])], inspect.Parameter.empty),
        (Annotated[int, Field(deprecated=True)], inspect.Parameter.empty),
        (Annotated[int, Field(json_schema_extra={"x": 1})], inspect.Parameter.empty),
        (Annotated[int, "note"], inspect.Parameter.empty),
        (int, Field(3)),
        (int, ...),
        (list[int], []),
        (int | str, inspect.Parameter.empty),
        (list, inspect.Parameter.empty),
        (vars(typing)["List"], inspect.Parameter.empty),
        (vars(typing)["Dict"], inspect.Parameter.empty),
        (Place, inspect.Parameter.empty),
        (object, inspect.Parameter.empty),
        (Literal[1], inspect.Parameter.empty),
        (Literal["\ud800"], inspect.Parameter.empty),
        (dict[int, str], inspect.Parameter.empty),
    ],
)
def test_schema_of_any_other_parameter_is_left_to_pydantic(annotation: object, default: object) -> None:
    assert plain_schema([Parameter("a", annotation, default)]) is None


def generated_schemas(make: Callable[[], object]) -> int:
    """Return how many JSON Schemas pydantic generates meanwhile."""
    with cProfile.Profile() as profile:
        make()
    return sum(
        entry.callcount
        for entry in profile.getstats()
        if not isinstance(entry.code, str)
        and entry.code.co_name == "generate"
        and Path(entry.code.co_filename).name == "json_schema.py"
    )


def test_tool_generates_one_schema_and_a_plain_one_none() -> None:
    """An engine with 300 tools takes as long as their schemas."""

    def plain(place: int, names: list[str] | None = None) -> None:
        """Look.

        Args:
            place: where.
        """

    def rich(place: Place, day: date) -> None: ...

    assert generated_schemas(lambda: tool(plain)) == 0
    assert generated_schemas(lambda: tool(rich)) == 1


def test_plain_tool_is_validated_with_its_defaults() -> None:
    def look(place: int, name: str | None = None) -> None: ...

    looking = tool(look)
    assert looking.parse({"place": "5"}) == {"place": 5}
    assert looking.complete({"place": 5}) == {"place": 5, "name": None}
    assert problem(look, {"place": "x", "other": 1}).startswith("invalid arguments:\n- place: ")
