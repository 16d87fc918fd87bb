"""The names of servers' tools: what providers take, all different, and the same tomorrow."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.tools.mcp import tool_names


def test_tool_name_joins_server_and_tool() -> None:
    assert tool_names([("files", "read_file"), ("web", "read-file")]) == ["files__read_file", "web__read-file"]


@pytest.mark.parametrize(
    ("pair", "begins"),
    [
        (("my server", "read"), "my_server__read_"),
        (("files", "read.all"), "files__read_all_"),
        (("files", "r" * 80), "files__" + "r" * 48 + "_"),
        (("Datei", "öffnen"), "Datei___ffnen_"),
    ],
)
def test_invalid_name_is_changed_and_marked(pair: tuple[str, str], begins: str) -> None:
    (name,) = tool_names([pair])
    assert re.fullmatch(re.escape(begins) + "[0-9a-f]{8}", name)


def test_colliding_names_are_both_marked() -> None:
    names = tool_names([("a", "b__c"), ("a__b", "c"), ("a", "d")])
    assert names[2] == "a__d"
    assert all(name.startswith("a__b__c_") for name in names[:2])
    assert len(set(names)) == len(names)


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=80)), unique=True, max_size=8))
def test_names_are_always_valid_and_unique(pairs: list[tuple[str, str]]) -> None:
    names = tool_names(pairs)
    assert len(set(names)) == len(pairs)
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names)
