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
    kind = class_of(a_tool(read_only=is_read_only) for is_read_only in declared)
    if any(is_read_only is False for is_read_only in declared):
        assert kind == "writing"
    elif all(declared):
        assert kind == "read_only"
    else:
        assert kind == "default"


def test_undeclared_tool_does_not_count_as_read_only() -> None:
    @tool
    def act() -> None: ...

    assert act.read_only is None
    assert class_of([act]) == "default"


def test_every_built_in_tool_only_reads(tmp_path: Path) -> None:
    tools = builtin_tools(tmp_path)
    assert {tool.name: tool.read_only for tool in tools} == dict.fromkeys((tool.name for tool in tools), True)
    assert class_of(tools) == "read_only"
