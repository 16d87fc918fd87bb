"""Forms that a server sends during a call: as a question to a person, and the text answer as the form's fields.

A form is a flat JSON Schema (MCP, "elicitation"): texts, numbers, yes or no, one of several, some of several.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeGuard

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError
from pydantic import JsonValue

from .wire import is_quick

Schema = Mapping[str, object]

_TRUE: Final = frozenset({"yes", "y", "true", "1", "on"})
_FALSE: Final = frozenset({"no", "n", "false", "0", "off"})
_LINE: Final = re.compile(r"\s*([^=:\s]+)\s*[=:]\s*(.*)")
_HINTS: Final[Mapping[str, str]] = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
}


class FormAnswerError(ValueError):
    """The answer does not fit the form. The message says why, and what fits."""


def describe_form(message: str, schema: Schema) -> tuple[str, tuple[str, ...]]:
    """Return the question for a form, and the choices if it has one field with a few possible answers."""
    fields = _read_fields(schema)
    if not fields:
        return f"{message}\nTo agree, answer with any text.", ()
    if len(fields) == 1:
        ((name, field),) = fields.items()
        description = _describe(name, field, required=True)
        return f"{message}\n{description}", tuple(_list_options(field).values()) or (
            ("yes", "no") if field.get("type") == "boolean" else ()
        )
    names = schema.get("required")
    required_names = names if isinstance(names, Sequence) else ()
    lines = [f"- {_describe(name, field, required=name in required_names)}" for name, field in fields.items()]
    hint = "Answer with a line for each field, NAME=VALUE, or with a JSON object."
    return "\n".join([message, *lines, hint]), ()


def read_form(answer: str, schema: Schema) -> dict[str, JsonValue]:
    """Parse a person's answer to a form. Missing fields get their defaults. Raises `FormAnswerError`."""
    fields = _read_fields(schema)
    answers = _split_answer(answer, fields)
    content: dict[str, JsonValue] = {}
    for name, field in fields.items():
        if name in answers:
            content[name] = _convert_value(name, field, answers[name])
        elif _is_json(default := field.get("default")):
            content[name] = default
    try:
        faults = sorted(
            Draft202012Validator(_drop_patterns(schema), format_checker=FormatChecker()).iter_errors(content), key=str
        )
    except SchemaError as error:
        raise FormAnswerError(f"the server's form is broken ({type(error).__name__})") from None
    if faults:
        raise FormAnswerError("; ".join(f"{fault.json_path.removeprefix('$.')}: {fault.message}" for fault in faults))
    return content


def _drop_patterns(schema: Schema) -> dict[str, object]:
    """Return the schema without patterns, because matching a pattern can take for ever. The server checks them.

    Raises `FormAnswerError` for any other form whose validation may take that long.
    """
    other_keys = {key: value for key, value in schema.items() if key != "properties"}
    fields = {
        name: {key: value for key, value in field.items() if key != "pattern"}
        for name, field in _read_fields(schema).items()
    }
    if not all(map(is_quick, (other_keys, *fields.values()))):
        raise FormAnswerError("the server's form is broken (it is not a flat list of fields)")
    return {**other_keys, "properties": fields}


def _read_fields(schema: Schema) -> dict[str, Schema]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {str(name): field if isinstance(field, Mapping) else {} for name, field in properties.items()}


def _describe(name: str, field: Schema, *, required: bool) -> str:
    kind = {"boolean": "yes or no", "array": "some of", "string": str(field.get("format", "text"))}
    options = _list_options(field)
    hints = ["one of" if options and field.get("type") != "array" else kind.get(str(field.get("type")), "")]
    if not hints[0]:
        hints = [str(field.get("type", "any value"))]
    if options:
        hints[0] += " " + ", ".join(
            f"{value} ({title})" if title != value else value for value, title in options.items()
        )
    hints += [hint.format(field[key]) for key, hint in _HINTS.items() if key in field]
    if "default" in field:
        hints.append(f"default {json.dumps(field['default'], ensure_ascii=False, default=str)}")
    elif not required:
        hints.append("optional")
    about = " - ".join(str(field[key]) for key in ("title", "description") if field.get(key))
    return f"{name} ({'; '.join(hints)})" + (f": {about}" if about else "")


def _list_options(field: Schema) -> dict[str, str]:
    items = field.get("items")
    source = items if field.get("type") == "array" and isinstance(items, Mapping) else field
    variants = source.get("oneOf", source.get("anyOf"))
    if isinstance(variants, Sequence):
        titled_variants = [variant for variant in variants if isinstance(variant, Mapping) and "const" in variant]
        return {str(variant["const"]): str(variant.get("title", variant["const"])) for variant in titled_variants}
    values = source.get("enum")
    if not isinstance(values, Sequence):
        return {}
    titles = source.get("enumNames")
    labels = titles if isinstance(titles, Sequence) and len(titles) == len(values) else values
    return {str(value): str(title) for value, title in zip(values, labels, strict=True)}


def _split_answer(answer: str, fields: Mapping[str, Schema]) -> dict[str, object]:
    """Return the text of each field in the answer. For a single field, the answer may be the value alone."""
    text = answer.strip()
    if not fields:
        return {}
    if len(fields) == 1:
        return _parse_single(text, *fields.items())
    if text.startswith("{"):
        try:
            return _need_known_fields(json.loads(text), fields)
        except (ValueError, RecursionError) as error:
            if isinstance(error, FormAnswerError):
                raise
            raise FormAnswerError("it starts like a JSON object, but is not valid JSON") from None
    lines = [line for line in text.splitlines() if line.strip()]
    matches = [_LINE.fullmatch(line) for line in lines]
    for line, match in zip(lines, matches, strict=True):
        if match is None:
            raise FormAnswerError(f"{line!r} is not NAME=VALUE")
    return _need_known_fields({match[1]: match[2] for match in matches if match}, fields)


def _parse_single(text: str, item: tuple[str, Schema]) -> dict[str, object]:
    """Parse the answer to a single field: the value alone, NAME=VALUE, or a JSON object."""
    name, field = item
    with suppress(ValueError, RecursionError):
        data = json.loads(text) if text.startswith("{") else None
        if isinstance(data, dict) and list(data) == [name]:
            return {name: data[name]}
    match = _LINE.fullmatch(text)
    if match and match[1] == name:
        return {name: match[2]}
    return {} if not text and "default" in field else {name: text}


def _need_known_fields(answers: Mapping[str, object], fields: Mapping[str, Schema]) -> dict[str, object]:
    strange = [name for name in answers if name not in fields]
    if strange:
        raise FormAnswerError(f"there is no field {strange[0]!r} (there are {', '.join(fields)})")
    return dict(answers)


def _convert_value(name: str, field: Schema, value: object) -> JsonValue:
    """Convert a text to the field's type. A value from JSON stays as it is."""
    if not isinstance(value, str):
        return value if _is_json(value) else str(value)
    text, kind = value.strip(), field.get("type")
    if kind == "boolean":
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise FormAnswerError(f"{name}: {value!r} is neither yes nor no")
    if kind in ("integer", "number"):
        try:
            return int(text) if kind == "integer" or re.fullmatch(r"[+-]?\d+", text) else float(text)
        except ValueError:
            raise FormAnswerError(f"{name}: {value!r} is not a {'whole ' if kind == 'integer' else ''}number") from None
    if kind == "array":
        parts = _split_list(text)
        return [_find_option(part, field) for part in parts]
    return _find_option(value if not _list_options(field) else text, field)


def _split_list(text: str) -> list[str]:
    if text.startswith("["):
        try:
            return [str(part) for part in json.loads(text)]
        except (ValueError, RecursionError):
            raise FormAnswerError("it starts like a JSON list, but is not valid JSON") from None
    return [part.strip() for part in text.split(",") if part.strip()]


def _find_option(text: str, field: Schema) -> str:
    """Return the value that the person means: the text itself, or the option with that title."""
    options = _list_options(field)
    matching_values = [
        value for value, title in options.items() if title.lower() == text.lower() and text not in options
    ]
    return matching_values[0] if matching_values else text


def _is_json(value: object) -> TypeGuard[JsonValue]:
    return value is not None and isinstance(value, str | int | float | bool | list | dict)
