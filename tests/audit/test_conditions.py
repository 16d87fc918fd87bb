"""Conditions are parsed, compared and named."""

import pytest
from tests.audit.recorded import call, run_of

from turnwright_audit.conditions import InvalidConditionError, parse_conditions
from turnwright_audit.measure import measure
from turnwright_audit.totals import Totals


def totals() -> Totals:
    totals = Totals()
    totals.take(measure(run_of(*[call("read")] * 4, "Done.", cost=0.5), "-"))
    totals.take(measure(run_of(call("read", "a", None), "Done.", success=False), "-"))
    return totals


@pytest.mark.parametrize(
    "text",
    [
        "loops>0",
        "loops>=1",
        "loops > 49%",
        "unpaired>=20%",
        "steps.p50>1",
        "tokens.max>=500",
        "cost.p99>2.4",
        "failed>99%",
    ],
)
def test_condition_holds_for_matching_totals(text: str) -> None:
    [condition] = parse_conditions(text)
    assert condition.holds(totals())
    assert condition.text == text


@pytest.mark.parametrize(
    "text", ["loops>1", "loops>50%", "unpaired>20%", "steps.max>5", "orphans>0", "errors>0%", "cut>0"]
)
def test_condition_fails_for_other_totals(text: str) -> None:
    assert not parse_conditions(text)[0].holds(totals())


@pytest.mark.parametrize(
    ("text", "lacks"), [("cost.max>1", "no cost"), ("tokens.p50>1", "no tokens"), ("failed>1", "no label")]
)
def test_condition_on_unrecorded_data_cannot_be_checked(text: str, lacks: str) -> None:
    [condition] = parse_conditions(text)
    assert not condition.lacks(totals())
    assert not condition.lacks(Totals())
    without = Totals()
    without.take(measure(run_of("Done.", tokens=None), "-"))
    assert condition.lacks(without) == lacks


def test_conditions_are_separated_by_commas() -> None:
    assert [condition.name for condition in parse_conditions("loops>1%, unpaired>0")] == ["loops", "unpaired"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a condition"),
        ("loops<1", "is not a condition"),
        ("loops>-1", "is not a condition"),
        ("loop>1", "NAME must be one of loops, unpaired"),
        ("steps>1", "NAME must be one of loops, .*; or steps, calls, tokens, cost with p50, p95, p99, max"),
        ("steps.p90>1", "write steps, calls, tokens, cost with p50, p95, p99, max"),
        ("loops.p99>1", "write steps"),
        ("steps.p99>1%", "without %"),
    ],
)
def test_condition_mistake_is_explained(text: str, why: str) -> None:
    with pytest.raises(InvalidConditionError, match=why):
        parse_conditions(text)
