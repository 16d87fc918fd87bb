"""Chooses JSON values that fit a JSON Schema, mostly, without Hypothesis."""

from collections.abc import Mapping
from typing import Final, cast

from pydantic import JsonValue

from .choices import Choices

Schema = Mapping[str, JsonValue]

_TEXTS: Final = ("a", "b", "", "a b", "../a", "naïve ☃")
_DEEPEST: Final = 4


def arguments(schema: Schema, choices: Choices) -> dict[str, JsonValue]:
    """Choose arguments for a tool whose parameters have this schema."""
    sample = _value({**schema, "type": "object"}, schema, choices, 0)
    return sample if isinstance(sample, dict) else {}


def _value(schema: Schema, root: Schema, choices: Choices, depth: int) -> JsonValue:  # noqa: PLR0911 (a case a type: flat)
    if "const" in schema:
        return schema["const"]
    options = schema.get("enum") or schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if isinstance(options, list) and options:
        option = choices.of("arguments", options)
        return option if "enum" in schema else _value(_schema(option), root, choices, depth)
    reference = schema.get("$ref")
    if isinstance(reference, str) and depth < _DEEPEST:
        definition = _schema(_schema(root.get("$defs")).get(reference.rpartition("/")[2]))
        return _value(definition, root, choices, depth + 1)
    kind = schema.get("type")
    kind = choices.of("arguments", kind) if isinstance(kind, list) and kind else kind
    match kind:
        case "object":
            return _object(schema, root, choices, depth)
        case "array":
            least = int(cast("float", schema.get("minItems") or 0))
            items = _schema(schema.get("items"))
            number = max(least, choices.below("arguments", 2)) if depth < _DEEPEST else least
            return [_value(items, root, choices, depth + 1) for _ in range(number)]
        case "string":
            text = choices.of("arguments", _TEXTS)
            return text.ljust(int(cast("float", schema.get("minLength") or 0)), "x")
        case "integer" | "number":
            least = int(cast("float", schema.get("minimum") or schema.get("exclusiveMinimum") or 0))
            return least + choices.of("arguments", (1, 0, 2, 9, -1))
        case "boolean":
            return choices.of("arguments", (False, True))
        case _:
            return None


def _object(schema: Schema, root: Schema, choices: Choices, depth: int) -> JsonValue:
    names = schema.get("required")
    required_names = set(names) if isinstance(names, list) else set()
    fields: dict[str, JsonValue] = {}
    for name, inner in _schema(schema.get("properties")).items():
        if name in required_names or (depth < _DEEPEST and choices.one_in("arguments", 3)):
            fields[name] = _value(_schema(inner), root, choices, depth + 1)
    return fields


def _schema(value: JsonValue) -> Schema:
    return value if isinstance(value, dict) else {}
