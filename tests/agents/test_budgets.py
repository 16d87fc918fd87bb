"""The budget of tool calls by class: how a class is told, and what a budget may be. The rest is BooCode's checklist."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from turnwright import Tool, tool
from turnwright.agents.budgets import Budgets, ToolClass, class_of
from turnwright.tools.builtin import builtin_tools


def a_tool(*, read_only: bool | None) -> Tool:
    @tool(read_only=read_only)
    def act() -> None: ...

    return act


@given(st.lists(st.sampled_from([True, False, None])))
def test_the_most_that_a_tool_may_do_makes_the_class(declared: list[bool | None]) -> None:
    """Whatever the order, and however many there are."""
    one = class_of(a_tool(read_only=each) for each in declared)
    if any(each is False for each in declared):
        assert one is ToolClass.WRITING
    elif all(declared):
        assert one is ToolClass.READ_ONLY
    else:
        assert one is ToolClass.DEFAULT


def test_a_tool_that_says_nothing_is_not_known_to_read_only() -> None:
    @tool
    def act() -> None: ...

    assert act.read_only is None
    assert class_of([act]) is ToolClass.DEFAULT


def test_every_built_in_tool_only_reads(tmp_path: Path) -> None:
    tools = builtin_tools(tmp_path)
    assert {one.name: one.read_only for one in tools} == dict.fromkeys((one.name for one in tools), True)
    assert class_of(tools) is ToolClass.READ_ONLY


def test_each_class_has_a_budget() -> None:
    assert {one: Budgets().of(one) for one in ToolClass} == {"read_only": 50, "writing": 10, "default": 50}
    assert set(Budgets.model_fields) == set(ToolClass)
    assert Budgets(writing=None).of(ToolClass.WRITING) is None


@pytest.mark.parametrize("value", [-1, True, 1.5, "10", float("nan"), 2**31])
def test_what_is_no_number_of_calls_is_refused_with_field_and_value(value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        Budgets.model_validate({"writing": value})
    (error,) = caught.value.errors()
    assert error["loc"] == ("writing",)
    assert "must be" in error["msg"]
    assert str(value) in error["msg"]


def test_another_class_is_refused() -> None:
    with pytest.raises(ValidationError, match="reading"):
        Budgets.model_validate({"reading": 5})
