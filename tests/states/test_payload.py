"""Values in facts cannot be edited, and a copy of one can."""

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright_states.payload import FrozenDict, FrozenList, freeze, lines_of, nests_deeper, text_of, thaw

VALUE = {"a": [1, {"b": [2]}], "c": "text", "d": {"e": []}}


def test_edit_of_a_frozen_value_is_refused_at_every_depth() -> None:
    value: Any = freeze(VALUE)
    edits: list[Callable[[], object]] = [
        lambda: value.update(a=1),
        lambda: value.pop("a"),
        lambda: value["a"].append(3),
        value["a"][1]["b"].clear,
        lambda: value["d"]["e"].insert(0, 1),
    ]
    for edit in edits:
        with pytest.raises(TypeError, match="make a copy"):
            edit()
    with pytest.raises(TypeError, match=r"^a value in the journal cannot be changed: make a copy"):
        value["a"] = 1
    assert value == VALUE


@pytest.mark.parametrize(
    "copied",
    [thaw, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))],  # noqa: S301 (our own)
    ids=["thawed", "copy", "pickle"],
)
@pytest.mark.parametrize("value", [VALUE, [VALUE, [1]]], ids=["dict", "list"])
def test_copy_of_a_frozen_value_is_equal_and_editable(
    value: dict[str, object] | list[object], copied: Callable[[object], object]
) -> None:
    frozen_value = freeze(value)
    payload = copied(frozen_value)
    assert payload == value
    assert type(payload) is type(value)
    if isinstance(payload, dict):
        payload["new"] = 1
    elif isinstance(payload, list):
        payload.append(1)
    assert payload != frozen_value == value


def test_freezing_leaves_frozen_and_immutable_values_unchanged() -> None:
    assert (type(freeze({})), type(freeze([]))) == (FrozenDict, FrozenList)
    once = freeze(VALUE)
    assert freeze(once) is once
    assert freeze("text") == "text"
    assert thaw(1) == 1


class Words(str):
    """A text of another library."""

    __slots__ = ()

    def __str__(self) -> str:
        return "shown"


class Whole(int):
    """A whole number of another library."""


class Real(float):
    """A number of another library."""


def test_text_and_number_subclasses_are_written_as_plain_values() -> None:
    value = [Words("a"), {Words("b"): Whole(2**70)}, Real(0.5)]
    assert text_of(value) == '["a",{"b":1180591620717411303424},0.5]'
    assert text_of([Words("\ud800")]) == '["?"]'
    assert lines_of([Words("a"), Whole(1)]) == '"a"\n1'
    assert lines_of(["a", "\ud800"]) == '"a"\n"?"'
    with pytest.raises(TypeError, match=r"^object is not JSON$"):
        text_of(object())


TEXTS = st.text('[]{}"\\\\,:né\ud83d', max_size=6)
JSON: st.SearchStrategy[JsonValue] = st.recursive(
    TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=12
)


def levels_of(value: JsonValue) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(levels_of, value.values() if isinstance(value, dict) else value), default=0)


@example(["\\", "["], False, 1)
@given(JSON, st.booleans(), st.integers(0, 6))
def test_nesting_depth_of_a_text_is_measured_before_parsing(value: JsonValue, ascii_only: bool, most: int) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert nests_deeper(text, most) == (levels_of(value) > most)
