"""JSON Schemas that are not a function's: validators of results and answers, and checks of arguments."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, cast

from pydantic import JsonValue

from turnwright._base.frozen import count_values
from turnwright._base.schema_faults import dangling_refs
from turnwright._base.words import cut
from turnwright.errors import ConfigError
from turnwright_states.payload import thaw

from .errors import ToolInputError

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

#: The most values of a schema, with its references inside, and of checked arguments: a check takes time for each pair.
_MOST_OF_A_SCHEMA: Final = 1_000
_MOST_CHECKED: Final = 5_000
_MOST_NESTED: Final = 64
#: Lists of schemas that can be checked in part: a value that fits the whole schema fits the part too.
_LISTS: Final = frozenset({"allOf", "anyOf", "prefixItems"})
#: Other keywords that take no longer than reading the value.
_PLAIN: Final = frozenset(
    {"const", "enum", "exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength", "maxProperties", "maximum"}
    | {"minItems", "minLength", "minProperties", "minimum", "multipleOf", "required", "type"}
)
#: Faults that are shown, and the longest words of one.
_MOST_FAULTS: Final = 8
_LONGEST: Final = 300


def schema_validator(schema: Mapping[str, JsonValue], place: str) -> "Draft202012Validator":
    """Return the validator of a JSON Schema. `place` names the schema in errors.

    Raises `ConfigError` for another schema, one that nests too deep, and one with references that lead nowhere; and
    without jsonschema.
    """
    try:
        from jsonschema import Draft202012Validator  # noqa: PLC0415 (few schemas are checked, and it is slow to import)
        from jsonschema.exceptions import SchemaError  # noqa: PLC0415 (likewise)
    except ModuleNotFoundError:
        raise _explain_missing(place) from None
    plain_schema = thaw(schema)
    try:
        Draft202012Validator.check_schema(plain_schema)
    except SchemaError as error:
        raise ConfigError(f"{place} is not a JSON Schema: {error.message}") from None
    except RecursionError:
        raise ConfigError(f"{place} nests too many lists and objects") from None
    if dangling := dangling_refs(plain_schema):
        raise ConfigError(f"{place}: {dangling[0]}")
    return Draft202012Validator(plain_schema)


def _explain_missing(place: str) -> ConfigError:
    return ConfigError(f"{place} needs jsonschema: pip install 'turnwright[schema]'")


class ArgumentCheck:
    """Checks arguments against the part of a schema whose check takes no longer than reading them.

    Clients write such schemas, so patterns and comparisons of all items are left to the client that runs the call.
    References are followed, except circular ones. Raises `ConfigError` without the package jsonschema, if there is
    something to check. `place` names the schema in that error.
    """

    def __init__(self, schema: Mapping[str, JsonValue], place: str) -> None:
        self._schema = _Part(schema).schema
        self._validator: Draft202012Validator | None = None
        if self._schema.keys() - {"type"} and find_spec("jsonschema") is None:
            raise _explain_missing(place)

    def check(self, arguments: Mapping[str, JsonValue]) -> None:
        """Raise `ToolInputError` for arguments that do not fit, with the first faults."""
        if not self._schema.keys() - {"type"} or count_values(arguments, _MOST_CHECKED) > _MOST_CHECKED:
            return
        if self._validator is None:
            from jsonschema import Draft202012Validator  # noqa: PLC0415 (few tools need it, and it is slow to import)

            self._validator = Draft202012Validator(self._schema)
        faults = [
            f"- {fault.json_path}: {_words(fault.message, str(fault.validator), fault.validator_value)}"
            for fault in self._validator.iter_errors(thaw(arguments))
        ]
        if faults:
            more_lines = [f"- and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
            raise ToolInputError("\n".join(["invalid arguments:", *faults[:_MOST_FAULTS], *more_lines]))


class _Part:
    """The part of a schema that is checked: empty for a schema that is too large."""

    def __init__(self, schema: Mapping[str, JsonValue]) -> None:
        self._whole = thaw(schema)
        self._budget = _MOST_OF_A_SCHEMA
        part = self._of(self._whole, (), 0)
        self.schema: dict[str, JsonValue] = part if self._budget >= 0 and isinstance(part, dict) else {}

    def _of(self, schema: object, refs: tuple[str, ...], depth: int) -> JsonValue:
        """Return the part of a schema inside. `refs` are the references that lead there."""
        if not isinstance(schema, dict):
            return schema if isinstance(schema, bool) else {}
        part: dict[str, JsonValue] = {name: schema[name] for name in sorted(_PLAIN & schema.keys())}
        self._budget -= count_values(part, _MOST_OF_A_SCHEMA)
        if self._budget < 0 or depth > _MOST_NESTED:
            return {}
        factor, properties, ref = part.get("multipleOf", 1), schema.get("properties"), schema.get("$ref")
        if not (isinstance(factor, int) and factor > 0):  # jsonschema fails for 0, and for a fraction of a huge number
            del part["multipleOf"]
        if isinstance(properties, dict) and properties:
            part["properties"] = {name: self._of(value, refs, depth + 1) for name, value in properties.items()}
        for name in sorted(_LISTS & schema.keys()):
            schemas = schema[name]
            part[name] = [self._of(value, refs, depth + 1) for value in schemas] if isinstance(schemas, list) else []
        if isinstance(schema.get("items"), dict | bool):  # older drafts have lists there
            part["items"] = self._of(schema["items"], refs, depth + 1)
        additional = schema.get("additionalProperties", True)
        if (
            additional is not True and "patternProperties" not in schema
        ):  # names that a pattern allows are not additional
            part["additionalProperties"] = self._of(additional, refs, depth + 1)
        if isinstance(ref, str):
            target = self._target(ref, refs, depth + 1)
            part["allOf"] = [*cast("list[JsonValue]", part.get("allOf", [])), target]
        return part

    def _target(self, ref: str, refs: tuple[str, ...], depth: int) -> JsonValue:
        """Return the part of the schema to which a reference in this document leads: empty for a circular one."""
        if ref in refs or not ref.startswith("#/"):
            return {}
        value: object = self._whole
        for name in ref[2:].split("/"):
            value = value.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(value, dict) else None
        return self._of(value, (*refs, ref), depth)


def _words(message: str, keyword: str, value: object) -> str:
    """Return a fault in words. jsonschema's begin with the value, which may be long."""
    return message if len(message) <= _LONGEST else cut(f"does not fit {keyword}: {value!r}", _LONGEST)
