import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright.model.http.json_text import (
    MAX_DEPTH,
    MAX_PARTS,
    damage_of,
    read_count,
    read_index,
    read_json,
    whole_object,
)
from turnwright.model.http.text_buffer import TooLargeError

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
def test_incomplete_json_object_is_not_read(raw: str) -> None:
    assert whole_object(raw) is None


def test_arguments_may_be_deep_up_to_the_bound() -> None:
    assert whole_object('{"a":' * MAX_DEPTH + "1" + "}" * MAX_DEPTH) is not None


@pytest.mark.slow
def test_json_with_too_many_parts_is_not_read() -> None:
    for part in ("1", "{}", "[]"):
        most = MAX_PARTS // (1 if part == "1" else 2)
        assert whole_object(f'{{"a": [{part}{f",{part}" * (most - 3)}]}}') is not None
        more = f'{{"a": [{part}{f",{part}" * most}]}}'
        assert whole_object(more) is None
        with pytest.raises(TooLargeError, match="600,000 parts"):
            read_json(more)


def test_half_a_surrogate_pair_does_not_get_into_arguments() -> None:
    assert whole_object(r'{"a": "\ud83d", "b": "\ud83d\ude00"}') == {"a": "\ufffd", "b": "😀"}


@given(value=st.dictionaries(st.text(), JSON))
def test_every_json_object_is_read_as_by_json(value: dict[str, JsonValue]) -> None:
    assert whole_object(json.dumps(value)) == value


@given(raw=st.text(st.characters(exclude_categories=())))
def test_no_text_makes_the_reader_raise(raw: str) -> None:
    assert whole_object(raw) is None or isinstance(whole_object(raw), dict)


def test_a_chunk_is_read_leniently() -> None:
    assert read_json('{"a": NaN, "b": 1e999, "c": [Infinity]}') == {"a": None, "b": None, "c": [None]}
    assert read_json('{"a": "tab\tline\nend"}') == {"a": "tab\tline\nend"}
    assert whole_object('{"a": "tab\tline\nend"}') is None


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[" * 101 + "]" * 101])
def test_unreadable_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7),
        ("7", 7),
        (7.0, 7),
        (0, 0),
        (-1, 0),
        (10**400, 2**53),
        ("9" * 16, None),
        (True, None),
        (None, None),
        ("", None),
        ("-7", None),
        ("7.0", None),
        ([7], None),
    ],
)
def test_count_is_read_in_any_form(value: JsonValue, expected: int | None) -> None:
    assert read_count(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7),
        ("7", 7),
        (-1, -1),
        (999_999_999, 999_999_999),
        (10**9, None),
        ("9" * 10, None),
        ("-1", None),
        ("²", None),
        (True, None),
        (7.0, None),
        (None, None),
        ({}, None),
    ],
)
def test_index_is_read_in_any_form(value: JsonValue, expected: int | None) -> None:
    assert read_index(value) == expected


@pytest.mark.parametrize(
    "raw", ['{"note": "%s", "n": }', '{"note": "x %s y", "n": [1, }', '["%s"]', '["x %s y"]', '{"n": 1}{"m": "%s"}']
)
def test_damage_never_quotes_a_part_of_a_word(raw: str) -> None:
    """A page recognizes a secret of its environment only by the whole text."""
    for distance in range(0, 70, 3):
        quote = damage_of(raw % f"{'a' * distance} correct-horse-battery {'a' * distance}").replace(
            "correct-horse-battery", ""
        )
        assert not any(part in quote for part in ("correct", "horse", "battery")), distance
