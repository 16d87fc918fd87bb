"""The check of arguments against the JSON Schema of a tool without a function (docs/rules.md#waits)."""

import pytest
from pydantic import JsonValue

from turnwright.tools.errors import ToolInputError
from turnwright.tools.json_schema import ArgumentCheck

Json = dict[str, JsonValue]

ADDRESS: Json = {"type": "object", "properties": {"zip": {"type": "string", "minLength": 5}}, "required": ["zip"]}
SCHEMA: Json = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "minimum": 1, "multipleOf": 5},
        "to": {"$ref": "#/$defs/Address"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        "note": {"anyOf": [{"type": "string", "pattern": "^x"}, {"type": "null"}]},
    },
    "required": ["amount"],
    "additionalProperties": False,
    "$defs": {"Address": ADDRESS},
}
CIRCLE: Json = {"type": "object", "properties": {"child": {"$ref": "#/properties/child"}, "n": {"type": "integer"}}}


def faults(schema: Json, arguments: Json) -> list[str]:
    """The lines of a refusal; none for arguments that fit."""
    try:
        ArgumentCheck(schema, "tool pay: parameters").check(arguments)
    except ToolInputError as error:
        first, *lines = str(error).splitlines()
        assert first == "invalid arguments:"
        return lines
    return []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "- $: 'amount' is a required property"),
        ({"amount": "5"}, "- $.amount: '5' is not of type 'integer'"),
        ({"amount": 4}, "- $.amount: 4 is not a multiple of 5"),
        ({"amount": 5, "to": {}}, "- $.to: 'zip' is a required property"),
        ({"amount": 5, "tags": ["a", "c"]}, "- $.tags[1]: 'c' is not one of ['a', 'b']"),
        ({"amount": 5, "note": 1}, "- $.note: 1 is not valid under any of the given schemas"),
        ({"amount": 5, "x": 1}, "- $: Additional properties are not allowed ('x' was unexpected)"),
        ({"amount": "9" * 1000}, "- $.amount: does not fit type: 'integer'"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments: Json, words: str) -> None:
    assert faults(SCHEMA, arguments) == [words]
    assert faults(SCHEMA, {"amount": 5, "to": {"zip": "12345"}, "tags": ["b"], "note": "no x"}) == []


def test_many_faults_are_counted() -> None:
    schema: Json = {"type": "object", "additionalProperties": {"type": "string"}}
    lines = faults(schema, {f"a{number}": number for number in range(20)})
    assert (len(lines), lines[-1]) == (9, "- and 12 more")


def test_hostile_schema_takes_no_time() -> None:
    """Patterns, circles, references that double, long chains of them, and large schemas and arguments."""
    text = "a" * 5000
    twice: list[list[JsonValue]] = [[{"$ref": f"#/$defs/a{n + 1}"}] * 2 for n in range(40)]
    doubling: Json = {f"a{n}": {"allOf": refs} for n, refs in enumerate(twice)}
    chain: Json = {f"a{n}": {"properties": {"x": {"$ref": f"#/$defs/a{n + 1}"}}} for n in range(900)}
    schemas: list[Json] = [
        {
            "properties": {"a": {"pattern": "^(a+)+$"}},
            "patternProperties": {"(a+)+$": {}},
            "additionalProperties": False,
        },
        {"$ref": "#"},
        {"$defs": doubling, "$ref": "#/$defs/a0"},
        {"$defs": chain, "$ref": "#/$defs/a0"},
        {"properties": {f"p{n}": {"type": "object", "properties": {"q": {"type": "null"}}} for n in range(2000)}},
        {"properties": {"a": {"multipleOf": 0}, "n": {"multipleOf": 0.1}}},
        {"properties": {"a": {"not": {"pattern": "x"}}, "b": {"oneOf": [{"pattern": "x"}, {"pattern": "y"}]}}},
    ]
    for schema in schemas:
        assert faults({"type": "object", **schema}, {"a": text + "!", "n": 10**400, "many": [*range(6000)]}) == []
        assert faults({"type": "object", **schema}, {"a": text, "b": "z"}) == []
    assert faults(CIRCLE, {"child": {"child": 1}, "n": "1"}) == ["- $.n: '1' is not of type 'integer'"]
