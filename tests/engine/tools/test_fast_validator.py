"""The quick check of arguments: what it takes, it takes as the plain check does, and it takes nothing else."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Literal, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, JsonValue

from turnwright.tools.errors import ToolInputError
from turnwright.tools.schema import Arguments, Parameter, QuickCheck
from turnwright_testing import json_values


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Place(BaseModel):
    x: int
    title: str = "somewhere"


@dataclass
class Item:
    name: str
    count: int = 1


def scalars(place: int, name: str, share: float, sure: bool) -> None: ...
def optional(place: int = 3, name: str | None = None) -> None: ...
def nested(places: list[int], sizes: dict[str, float], pair: tuple[int, str]) -> None: ...
def rich(day: date, size: Size, kind: Literal["a", "b"], place: Place, item: Item) -> None: ...
def noted(count: Annotated[int, Field(ge=0, le=9, description="how many")]) -> None: ...
def anything(value: JsonValue, self: object = None) -> None: ...


FUNCTIONS: list[Callable[..., None]] = [scalars, optional, nested, rich, noted, anything]
LIKELY: st.SearchStrategy[JsonValue] = st.sampled_from(
    [1, 3.0, "5", "x", "small", "a", "2026-11-22", True, None, [1, 2], [1, "x"], {"x": 1}, {"name": "n"}, {"a": 0.5}]
)


def quick_check(function: Callable[..., None]) -> QuickCheck:
    hints = get_type_hints(function, include_extras=True)
    return QuickCheck(
        [
            Parameter(parameter.name, hints[parameter.name], parameter.default)
            for parameter in inspect.signature(function).parameters.values()
        ]
    )


CHECKS = {function: (quick_check(function), Arguments(function, {})) for function in FUNCTIONS}


@given(st.data())
def test_plain_and_fast_argument_check_agree(data: st.DataObject) -> None:
    function = data.draw(st.sampled_from(FUNCTIONS))
    names = [*inspect.signature(function).parameters, "unknown"]
    arguments = data.draw(st.dictionaries(st.sampled_from(names), LIKELY | json_values.json_values()))
    quick, plain = CHECKS[function]
    values = quick.parse(arguments)
    try:
        expected = plain.parse_plainly(arguments)
    except ToolInputError:
        assert values is None
    else:
        assert values is None or values == expected
        assert "true" in repr(arguments).lower() or "false" in repr(arguments).lower() or values is not None


def test_a_boolean_is_left_to_the_plain_check() -> None:
    """Pydantic takes it for a number."""
    assert quick_check(scalars).parse({"place": True, "name": "n", "share": 1.0, "sure": True}) is None


def test_defaults_of_the_function_are_not_filled_in() -> None:
    assert quick_check(optional).parse({"name": "n"}) == {"name": "n"}


@pytest.mark.parametrize(
    ("annotation", "covered"),
    [
        (int, True),
        (Annotated[int, Field(ge=0, description="how many")], True),
        (Annotated[int, Field(alias="n")], False),
        (Annotated[int, Field(validation_alias="n")], False),
        (Annotated[int, Field(default=3)], False),
        (Annotated[list[int], Field(default_factory=list)], False),
    ],
)
def test_fast_check_covers_no_field_with_an_alias_or_a_default(annotation: object, covered: bool) -> None:
    assert QuickCheck.covers(Parameter("name", annotation, inspect.Parameter.empty)) is covered
