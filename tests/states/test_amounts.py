"""Usage and what a sub-agent spent: structs that check themselves, also as fields of pydantic models."""

from math import inf, nan
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from turnwright_states import ModelRepliedInput, Spent, Usage
from turnwright_states import facts as f
from turnwright_states.amounts import LARGEST_FLOAT, format_number
from turnwright_states.fact_parser import parse_fact
from turnwright_states.state import State

if TYPE_CHECKING:
    from .conftest import Begin

KINDS: Final = pytest.mark.parametrize("kind", [Usage, Spent], ids=lambda kind: kind.__name__)
COUNTS: Final = st.integers(0, 2**60)
USAGES: Final = st.builds(
    Usage,
    input_tokens=COUNTS,
    output_tokens=COUNTS,
    cost=st.floats(0, 1e300) | st.just(-0.0),
    cached_tokens=COUNTS,
    reasoning_tokens=COUNTS,
)


def amounts_of(kind: type[Usage] | type[Spent]) -> list[str]:
    """The fields that are numbers: what a sub-agent spent also has the state of its caller's rules."""
    return [name for name in kind.__struct_fields__ if name != "rules"]


@KINDS
@pytest.mark.parametrize("wrong", [-1, -0.5, inf, nan, "1", None, True])
def test_each_field_refuses_an_invalid_amount(kind: type[Usage] | type[Spent], wrong: object) -> None:
    for name in amounts_of(kind):
        with pytest.raises(ValueError, match=f"^{name}: {wrong!r} is not a finite number from 0 on$"):
            kind(**{name: wrong})  # type: ignore[arg-type]


@KINDS
def test_cost_is_no_larger_than_a_float(kind: type[Usage] | type[Spent]) -> None:
    assert kind(cost=10**308).cost == 1e308
    assert kind(cost=LARGEST_FLOAT).cost == LARGEST_FLOAT
    with pytest.raises(ValueError, match=r"^cost: it is larger than every float$"):
        kind(cost=10**309)


@KINDS
def test_only_the_cost_has_fractions(kind: type[Usage] | type[Spent]) -> None:
    for name in amounts_of(kind):
        if name == "cost":
            assert repr(kind(cost=1).cost) == "1.0"
        else:
            assert repr(getattr(kind(**{name: 2.0}), name)) == "2"  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="is not a whole number"):
                kind(**{name: 2.5})  # type: ignore[arg-type]


def test_common_usage_is_accepted_without_the_full_check() -> None:
    class Unchecked(Usage, frozen=True):
        def _check(self) -> None:
            raise AssertionError(self)

    assert Unchecked() == Unchecked(input_tokens=0)
    assert Unchecked(cost=0.25).cost == 0.25
    assert Unchecked(input_tokens=1, output_tokens=1, cost=1.0, cached_tokens=1, reasoning_tokens=1).tokens == 2
    with pytest.raises(AssertionError):
        Unchecked(input_tokens=-1)


@given(USAGES)
def test_usage_survives_a_journal_and_a_pydantic_model(usage: Usage) -> None:
    fact = f.ModelReplied(1.0, State.STREAM, text="x", usage=usage)
    assert parse_fact("model_replied", fact.payload()) == fact
    replied = ModelRepliedInput(text="x", usage=usage)
    assert replied.usage is usage
    assert TypeAdapter(Usage).validate_json(TypeAdapter(Usage).dump_json(usage)) == usage
    assert TypeAdapter(Usage).validate_python(usage) is usage


def test_journal_omits_zeros() -> None:
    assert msgspec.json.encode(Usage(cost=-0.0, output_tokens=0)) == b"{}"
    assert msgspec.json.encode(Usage(output_tokens=1) + Usage(output_tokens=2)) == b'{"output_tokens":3}'
    assert Usage(cost=0.5, cached_tokens=1).to_json() == {
        "input_tokens": 0,
        "output_tokens": 0,
        "cost": 0.5,
        "cached_tokens": 1,
        "reasoning_tokens": 0,
    }


def test_pydantic_names_the_field() -> None:
    adapter = TypeAdapter(Usage)
    assert adapter.validate_python({"input_tokens": "3"}) == Usage(input_tokens=3)
    for wrong, says in (
        ({"input_tokens": -1}, "Expected `int` >= 0 - at `$.input_tokens`"),
        ({"tokens": 1}, "Object contains unknown field `tokens`"),
    ):
        with pytest.raises(ValidationError) as caught:
            adapter.validate_python(wrong)
        assert caught.value.errors()[0]["msg"] == f"Value error, {says}"


@KINDS
@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_field_has_a_json_schema(kind: type[Usage] | type[Spent], mode: Literal["validation", "serialization"]) -> None:
    fields = TypeAdapter(dict[str, kind]).json_schema(mode=mode)["additionalProperties"]  # type: ignore[valid-type]
    assert list(fields["properties"]) == list(kind.__struct_fields__)
    assert fields["properties"]["cost"]["type"] == "number"
    assert fields["additionalProperties"] is False


@given(USAGES, USAGES)
def test_sum_minus_a_part_is_the_rest(first: Usage, second: Usage) -> None:
    assert (first + second).tokens == first.tokens + second.tokens
    if second.input_tokens > first.input_tokens:
        with pytest.raises(ValueError, match="input_tokens"):
            _ = first - second


def test_sum_of_costs_is_no_larger_than_a_float(begin: "Begin") -> None:
    """A turn whose model reports such costs can still be read."""
    turn, most = begin(), Usage(cost=1.7e308)
    assert (most + most).cost == LARGEST_FLOAT
    turn.step("a", usage=most)
    turn.reply(text="Done.", usage=most)
    assert turn.machine.turn.usage.cost == LARGEST_FLOAT


def test_number_is_written_in_digits() -> None:
    assert list(map(format_number, (0.5, 3.0, 999_999.5, 1_600_001, -2e6, 0.00005, 1e300))) == [
        *("0.5", "3", "1000000", "1600001", "-2000000", "0.00005", "1e+300"),
    ]
