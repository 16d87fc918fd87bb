"""NaN and the infinities are invalid arguments unless the tool's type asks for them."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from typing_extensions import TypedDict

from turnwright import Agent, Engine, tool
from turnwright.model import ScriptedModel, asks_for
from turnwright.tools import ToolInputError
from turnwright.tools.schema import Arguments


class Line(BaseModel):
    price: float


@dataclass
class Weight:
    kilos: float


class Size(TypedDict):
    meters: float


class Place(NamedTuple):
    latitude: float


class Tree(BaseModel):
    value: float | None = None
    children: "list[Tree]" = []


class Measured(BaseModel):
    model_config = ConfigDict(allow_inf_nan=True)
    value: float


#: Types, and how an argument of each holds a number.
HOLDERS: list[tuple[Any, Any]] = [
    (float, lambda number: number),
    (float | None, lambda number: number),
    (int | float, lambda number: number),
    (Annotated[float, Field(ge=0)], lambda number: number),
    (Decimal, lambda number: number),
    (complex, lambda number: number),
    (list[float], lambda number: [1, number]),
    (tuple[float, ...], lambda number: [number]),
    (set[float], lambda number: [number]),
    (dict[str, float], lambda number: {"a": number}),
    (Line, lambda number: {"price": number}),
    (list[Line | None], lambda number: [{"price": number}]),
    (Weight, lambda number: {"kilos": number}),
    (Size, lambda number: {"meters": number}),
    (Place, lambda number: {"latitude": number}),
    (Tree, lambda number: {"children": [{"children": [{"value": number}]}]}),
]
TEXTS = ["NaN", "nan", "Infinity", "-Infinity", "inf", "-inf", "1e999", "-1E999", "9" * 400]


def both(kind: object, value: JsonValue) -> None:
    def look(number: object) -> None:
        del number

    look.__annotations__ = {"number": kind, "return": None}
    arguments = Arguments(look, {})
    for parse in (arguments.parse, arguments.complete, arguments.plain):
        parse({"number": value})


def is_refused(kind: object, value: JsonValue) -> bool:
    """Whether the check asks for a number."""
    try:
        both(kind, value)
    except ToolInputError as error:
        return "number" in str(error)
    return False


@pytest.mark.parametrize(("kind", "holding"), HOLDERS)
def test_text_converting_to_no_finite_number_is_invalid(kind: object, holding: Any) -> None:  # noqa: ANN401
    large = [text for text in TEXTS if (kind is Decimal and "99" in text) or (kind == int | float and text.isdigit())]
    assert [text for text in TEXTS if not is_refused(kind, holding(text))] == large


@pytest.mark.parametrize("kind", [float, list[float], object, JsonValue, Any, dict[str, object]])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_non_json_token_is_invalid(kind: object, number: float) -> None:
    holding: Any = number if kind in (float, object, Any, JsonValue) else [number]
    with pytest.raises(ToolInputError):
        both(kind, {"a": number} if kind == dict[str, object] else holding)


@pytest.mark.parametrize(("kind", "holding"), HOLDERS)
def test_a_finite_number_is_valid(kind: object, holding: Any) -> None:  # noqa: ANN401 (of any type)
    for number in ("2.5", 2.5, 3):
        both(kind, holding(number))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Annotated[float, Field(allow_inf_nan=True)], "NaN"),
        (list[Annotated[float, Field(allow_inf_nan=True)]], ["-Infinity"]),
        (Measured, {"value": "inf"}),
        (str, "NaN"),
        (float | str, "NaN"),
        (object, "NaN"),
    ],
)
def test_type_allowing_nan_or_infinity_accepts_both(kind: object, value: JsonValue) -> None:
    both(kind, value)


@pytest.mark.anyio
@pytest.mark.parametrize("amount", ["NaN", "-Infinity", float("nan")])
async def test_nan_does_not_pass_an_approval_check(amount: JsonValue) -> None:
    refunded: list[float] = []

    @tool(needs_approval=lambda amount: amount > 100)
    async def refund(amount: float) -> str:
        """Refund the customer."""
        refunded.append(amount)
        return "refunded"

    model = ScriptedModel(asks_for(("refund", {"amount": amount})), "Done.")
    turn = await Engine(model=model, tools=[refund]).run(Agent(name="Clerk"), "go")
    (result,) = (part for message in turn.messages for part in message.parts if part.type == "tool_result")
    assert result.text.startswith("invalid arguments:\n- amount: should be a finite number")
    assert refunded == []
