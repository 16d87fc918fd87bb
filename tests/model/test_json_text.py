import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright.model.json_text import MAX_DEPTH, read_json, whole_object

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("raw", ["", " ", "\n\t"])
def test_blank_arguments_are_none_at_all(raw: str) -> None:
    assert whole_object(raw) == {}


@pytest.mark.parametrize(
    "raw",
    [
        '{"a": 1',
        '{"a": 1}{"a": 1}',
        "[1]",
        "null",
        '"text"',
        "1",
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        "{'a': 1}",
        "{" * 100_000,
        '{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1),
        '{"a": ' + "9" * 5000 + "}",
    ],
)
def test_what_is_not_one_whole_json_object_is_not_read(raw: str) -> None:
    assert whole_object(raw) is None


def test_arguments_may_be_deep_up_to_the_bound() -> None:
    assert whole_object('{"a":' * MAX_DEPTH + "1" + "}" * MAX_DEPTH) is not None


def test_half_a_surrogate_pair_does_not_get_into_arguments() -> None:
    assert whole_object(r'{"a": "\ud83d", "b": "\ud83d\ude00"}') == {"a": "\ufffd", "b": "😀"}


@given(value=st.dictionaries(st.text(), JSON))
def test_every_json_object_is_read_as_json_reads_it(value: dict[str, JsonValue]) -> None:
    assert whole_object(json.dumps(value)) == value


@given(raw=st.text(st.characters(exclude_categories=())))
def test_no_text_raises(raw: str) -> None:
    assert whole_object(raw) is None or isinstance(whole_object(raw), dict)


def test_a_chunk_is_read_leniently() -> None:
    assert read_json('{"a": NaN, "b": 1e999, "c": [Infinity]}') == {"a": None, "b": None, "c": [None]}


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[" * 101 + "]" * 101])
def test_what_cannot_be_read_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(text)
