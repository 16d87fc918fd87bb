"""Forms of servers: the question that a person reads, and what their answer means."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.tools.mcp.form import FormAnswerError, describe_form, read_form


def form(required: tuple[str, ...] = (), **fields: Mapping[str, object]) -> dict[str, object]:
    """A form with these fields."""
    return {"type": "object", "properties": fields, "required": list(required)}


TEXT = {"type": "string"}
SIZE = {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]}
HERO = {"type": "string", "oneOf": [{"const": "h1", "title": "Superman"}, {"const": "h2", "title": "Batman"}]}
FISH = {"type": "array", "items": {"anyOf": [{"const": "f1", "title": "Tuna"}, {"const": "f2", "title": "Trout"}]}}


@pytest.mark.parametrize(
    ("field", "line", "choices"),
    [
        (TEXT | {"title": "Name", "description": "In full"}, "x (text): Name - In full", ()),
        (TEXT | {"format": "email"}, "x (email)", ()),
        ({"type": "integer", "minimum": 1, "maximum": 9}, "x (integer; at least 1; at most 9)", ()),
        ({"type": "boolean", "default": False}, "x (yes or no; default false)", ("yes", "no")),
        (SIZE, "x (one of s (Small), l (Large))", ("Small", "Large")),
        (HERO, "x (one of h1 (Superman), h2 (Batman))", ("Superman", "Batman")),
        (FISH, "x (some of f1 (Tuna), f2 (Trout))", ("Tuna", "Trout")),
    ],
)
def test_a_field_is_described_in_a_line(field: dict[str, Any], line: str, choices: tuple[str, ...]) -> None:
    assert describe_form("Please:", form(x=field)) == (f"Please:\n{line}", choices)


def test_several_fields_are_a_line_each() -> None:
    question, choices = describe_form("Book:", form(("name",), name=TEXT, size=SIZE))
    assert question.splitlines() == [
        "Book:",
        "- name (text)",
        "- size (one of s (Small), l (Large); optional)",
        "Answer with a line for each field, NAME=VALUE, or with a JSON object.",
    ]
    assert choices == ()


@pytest.mark.parametrize(
    ("field", "answer", "value"),
    [
        (TEXT, "Ada = Lovelace", "Ada = Lovelace"),
        (TEXT, "x=Ada", "Ada"),
        (TEXT, '{"x": "Ada"}', "Ada"),
        (TEXT, "{braces}", "{braces}"),
        ({"type": "integer"}, " 7 ", 7),
        ({"type": "number"}, "7.5", 7.5),
        ({"type": "number"}, "7", 7),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "false", False),
        (SIZE, "l", "l"),
        (SIZE, "large", "l"),
        (HERO, "Batman", "h2"),
        (FISH, "Tuna, f2", ["f1", "f2"]),
        (FISH, '["f1"]', ["f1"]),
        (TEXT | {"default": "Ada"}, "", "Ada"),
    ],
)
def test_single_field_is_answered_with_the_value(field: dict[str, Any], answer: str, value: object) -> None:
    assert read_form(answer, form(("x",), x=field)) == {"x": value}


@pytest.mark.parametrize("answer", ["name=Ada\nage: 36", '{"name": "Ada", "age": 36}', "age=36\n\n  name = Ada"])
def test_several_fields_are_answered_in_lines_or_in_json(answer: str) -> None:
    """A missing field gets its default, or stays missing."""
    schema = form(("name",), name=TEXT, age={"type": "integer"}, size=SIZE | {"default": "s"}, note=TEXT)
    assert read_form(answer, schema) == {"name": "Ada", "age": 36, "size": "s"}


def test_a_form_without_fields_is_agreed_to() -> None:
    assert read_form("sure", {"type": "object", "properties": {}}) == {}


@pytest.mark.parametrize(
    ("schema", "answer", "words"),
    [
        (form(x={"type": "integer"}), "seven", "x: 'seven' is not a whole number"),
        (form(x={"type": "boolean"}), "perhaps", "neither yes nor no"),
        (form(x={"type": "integer", "maximum": 9}), "10", "x: 10 is greater than the maximum of 9"),
        (form(x=SIZE), "xl", "'xl' is not one of"),
        (form(x=TEXT | {"format": "email"}), "ada", "'ada' is not a 'email'"),
        (form(x=TEXT | {"minLength": 3}), "ad", "too short"),
        (form(("a", "b"), a=TEXT, b=TEXT), "a=1", "'b' is a required property"),
        (form(a=TEXT, b=TEXT), "hello", "'hello' is not NAME=VALUE"),
        (form(a=TEXT, b=TEXT), "c=1", "there is no field 'c' (there are a, b)"),
        (form(a=TEXT, b=TEXT), "{", "starts like a JSON object"),
        (form(x=FISH), "[", "starts like a JSON list"),
        (form(x={"allOf": [{"$ref": "#"}] * 2}), "a", "the server's form is broken"),
    ],
)
def test_unfit_answer_is_refused_with_the_reason(schema: dict[str, Any], answer: str, words: str) -> None:
    with pytest.raises(FormAnswerError) as caught:
        read_form(answer, schema)
    assert words in str(caught.value)


@pytest.mark.parametrize("pattern", ["(", "(a+)+b"])
def test_pattern_of_a_field_is_left_to_the_server(pattern: str) -> None:
    """The second one would take longer than anybody lives."""
    assert read_form("a" * 60, form(x=TEXT | {"pattern": pattern})) == {"x": "a" * 60}


def test_a_field_may_have_any_name() -> None:
    assert read_form("a", form(pattern=TEXT)) == {"pattern": "a"}


@given(st.dictionaries(st.sampled_from("abc"), st.text(alphabet=st.characters(codec="ascii"), max_size=9), min_size=3))
def test_json_brings_any_texts(values: dict[str, str]) -> None:
    assert read_form(json.dumps(values), form(a=TEXT, b=TEXT, c=TEXT)) == values


@given(st.text(max_size=40), st.sampled_from([TEXT, SIZE, HERO, FISH, {"type": "integer"}, {"type": "boolean"}]))
def test_any_answer_is_read_or_refused(answer: str, field: dict[str, Any]) -> None:
    try:
        content = read_form(answer, form(x=field))
    except FormAnswerError as bad:
        assert str(bad)  # noqa: PT017 (either of the two is a fact)
    else:
        assert set(content) <= {"x"}
