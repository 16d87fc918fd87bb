"""The class of an agent: what its tools do, taken together. The limit of each class is BooCode's checklist."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from turnwright import Tool, tool
from turnwright.agents.bounds import class_of
from turnwright.tools.builtin import builtin_tools


def a_tool(*, read_only: bool | None) -> Tool:
    @tool(read_only=read_only)
    def act() -> None: ...

    return act


@given(st.lists(st.sampled_from([True, False, None])))
def test_most_powerful_tool_decides_the_class(declared: list[bool | None]) -> None:
    """In any order and number."""
    one = class_of(a_tool(read_only=each) for each in declared)
    if any(each is False for each in declared):
        assert one == "writing"
    elif all(declared):
        assert one == "read_only"
    else:
        assert one == "default"


def test_undeclared_tool_does_not_count_as_read_only() -> None:
    @tool
    def act() -> None: ...

    assert act.read_only is None
    assert class_of([act]) == "default"


def test_every_built_in_tool_only_reads(tmp_path: Path) -> None:
    tools = builtin_tools(tmp_path)
    assert {one.name: one.read_only for one in tools} == dict.fromkeys((one.name for one in tools), True)
    assert class_of(tools) == "read_only"
