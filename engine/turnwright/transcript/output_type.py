"""The typed answer of an agent: its JSON Schema, its validation, and the ways to ask a model for it.

See docs/rules.md#typed-answers.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import PydanticSerializationError, from_json

from turnwright._base.frozen import MOST_NESTED, deeper_than
from turnwright.errors import ConfigError, Retry
from turnwright.tools.errors import describe, holds
from turnwright.tools.json_schema import schema_validator
from turnwright.tools.schema import json_validator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jsonschema import Draft202012Validator
    from pydantic_core import ErrorDetails

JsonObject = Mapping[str, JsonValue]

_DESCRIPTION: Final = "Give the final answer of this task. Call it once, when the task is done."
#: The field of the answer where its schema is not an object: providers take objects only.
_WRAPPED: Final = "response"
_FENCED: Final = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL | re.IGNORECASE)
_SHOWN_PROBLEMS: Final = 8
_SHOWN_VALUE: Final = 80


class OutputType:
    """The type of an agent's answer, from a Python type or from a JSON Schema alone.

    `type_` is a class, a dataclass, a `TypedDict`, a `Literal`, a union or a list, as pydantic reads it. `schema` is
    the JSON Schema that models receive; by default that of the type. Without a type the answer is plain JSON, which
    the package jsonschema checks.

    Raises `ConfigError` for a type without a JSON Schema, an invalid schema, and a missing jsonschema.
    """

    def __init__(self, agent: str, type_: object = None, schema: JsonObject | None = None) -> None:
        self._agent = agent
        self._adapter: TypeAdapter[Any] | None = None
        self._json_validator: Callable[[str], object] | None = None
        if type_ is not None:
            self._adapter = self._make_adapter(type_)
            schema = schema or self._schema_of(self._adapter)
        elif schema is None:
            raise ConfigError(f"agent {agent!r}: a typed answer needs an output_type or an output_schema")
        #: The JSON Schema of the answer.
        self.schema: JsonObject = schema
        if self._adapter is None:
            _ = self._validator  # a wrong schema fails now, not in the middle of a turn

    def _make_adapter(self, type_: Any) -> TypeAdapter[Any]:  # noqa: ANN401 (any type that pydantic reads)
        if isinstance(type_, str):  # a forward reference, for pydantic
            why = "is a name: give the type itself; only a file of agents names one"
            raise ConfigError(f"agent {self._agent!r}: output_type: {type_!r:.80} {why}")
        try:
            return TypeAdapter(type_)
        except PydanticSchemaGenerationError as error:
            form = "give a pydantic model, a dataclass, or a type such as list[str]"
            raise ConfigError(
                f"agent {self._agent!r}: output_type: {type_!r:.80} is not a type of data: {form}"
            ) from error
        except PydanticUserError as error:
            raise ConfigError(f"agent {self._agent!r}: output_type: {error.message}") from error

    def _schema_of(self, adapter: TypeAdapter[Any]) -> JsonObject:
        try:
            schema: dict[str, JsonValue] = adapter.json_schema()
        except PydanticUserError as error:
            raise ConfigError(f"agent {self._agent!r}: output_type has no JSON Schema: {error.message}") from error
        return schema

    @cached_property
    def _validator(self) -> "Draft202012Validator":
        return schema_validator(self.schema, f"agent {self._agent!r}: output_schema")

    @property
    def is_wrapped(self) -> bool:
        """Whether models are asked for an object with one field, because the type itself is not an object."""
        return self.schema.get("type") != "object"

    @cached_property
    def asked(self) -> JsonObject:
        """The JSON Schema of the object that models are asked for."""
        if not self.is_wrapped:
            return self.schema
        inner = {name: value for name, value in self.schema.items() if name != "$defs"}
        wrapper: dict[str, JsonValue] = {"type": "object", "properties": {_WRAPPED: inner}, "required": [_WRAPPED]}
        wrapper["additionalProperties"] = False
        return wrapper | {name: self.schema[name] for name in ("$defs",) if name in self.schema}

    @property
    def field(self) -> str:
        """The field of that object with the answer; empty if the object is the answer."""
        return _WRAPPED if self.is_wrapped else ""

    @property
    def description(self) -> str:
        """The description of the tool that takes the answer."""
        own_text = self.schema.get("description")
        return f"{_DESCRIPTION}\n\n{own_text}" if isinstance(own_text, str) else _DESCRIPTION

    @property
    def prompt(self) -> str:
        """The instruction for a model that is asked for JSON in its text."""
        schema = json.dumps(dict(self.asked), ensure_ascii=False)
        return (
            "When the task is done, reply with nothing but one JSON object that fits this JSON Schema, without Markdown"
            f" around it:\n{schema}"
        )

    def find_in_text(self, text: str) -> JsonValue:
        """Return the data of the answer in a reply's text, which may be inside a Markdown fence.

        Raises `Retry` if the text is not JSON.
        """
        fence = _FENCED.match(text)
        try:
            data: JsonValue = from_json(_bytes(fence[1] if fence else text), allow_inf_nan=False)
        except ValueError as error:
            raise Retry(f"the reply is not one JSON object: {error}") from None
        return self.unwrap(data)

    def unwrap(self, data: JsonValue) -> JsonValue:
        """Return the data of the answer in the object that the model was asked for."""
        return data[_WRAPPED] if self.is_wrapped and isinstance(data, Mapping) and set(data) == {_WRAPPED} else data

    def load(self, data: JsonValue) -> object:
        """Return the answer from its own JSON, as the journal keeps it. Raises `Retry` with the mistakes."""
        if deeper_than(data, MOST_NESTED):
            raise Retry(f"the answer nests more than {MOST_NESTED} lists and objects: give a flatter one")
        if self._adapter is None:
            return self._check_data(data)
        try:
            # As JSON, because a date or an enumeration is a text there.
            return self._validate(self._adapter)(json.dumps(data, allow_nan=False))
        except ValidationError as error:
            raise Retry(_join_problems(map(_describe_problem, error.errors(include_url=False)))) from None
        except BaseException as error:
            if holds(error, KeyboardInterrupt):
                raise
            # NaN, or a validator of the app, which may raise anything where data has not the form that it expects.
            raise Retry(f"the answer could not be validated: {describe(error)}") from error

    def _validate(self, adapter: TypeAdapter[Any]) -> Callable[[str], object]:
        """Return the validator of JSON, made at its first use."""
        if self._json_validator is None:
            validator = json_validator(adapter.core_schema)
            self._json_validator = adapter.validate_json if validator is None else validator.validate_json
        return self._json_validator

    def _check_data(self, data: JsonValue) -> JsonValue:
        try:
            problems = [
                f"{'.'.join(map(str, error.absolute_path)) or 'the answer'}: {error.message}"
                for error in self._validator.iter_errors(data)
            ]
        except RecursionError:  # of a schema that refers to itself
            raise Retry("the answer nests too many lists and objects: give a flatter one") from None
        if problems:
            raise Retry(_join_problems(problems))
        return data

    def dump(self, value: object, data: JsonValue) -> JsonValue:
        """Return an answer as JSON that `load` reads as this answer, for the journal.

        Types with aliases, serializers or computed fields write what they do not read. They are written by alias, or as
        the `data` from which the answer was made. Raises `TypeError` for an answer that cannot be written so.
        """
        problem, readable = "", list[JsonValue]()
        for round_trip in (False, True):
            try:
                dumped_data = self._dump(value, round_trip=round_trip)
                if _are_equal(self.load(dumped_data), value):
                    return dumped_data
                readable.append(dumped_data)
            except (Retry, TypeError) as error:
                problem = problem or str(error)
        if _are_equal(self.load(data), value):
            return data
        if readable:  # of a class that does not compare
            return readable[0]
        raise TypeError(problem)

    def _dump(self, value: object, *, round_trip: bool) -> JsonValue:
        try:
            adapter = self._adapter or TypeAdapter(JsonValue)
            data: JsonValue = adapter.dump_python(
                value, mode="json", warnings="error", round_trip=round_trip, by_alias=round_trip or None
            )
            json.dumps(data, allow_nan=False, ensure_ascii=False).encode()
        except (PydanticSerializationError, ValidationError, ValueError) as error:
            raise TypeError(f"the answer is not JSON: {error}") from error
        return data

    def partial(self, text: str) -> JsonValue:
        """Return the part of an answer that has streamed in, unvalidated; None as long as there is none."""
        try:
            data: JsonValue = from_json(_bytes(text), allow_partial="trailing-strings")
        except ValueError:
            return None
        if self.is_wrapped and isinstance(data, dict):
            return data.get(_WRAPPED)
        return data


def _are_equal(value: object, answer: object) -> bool:
    try:
        return bool(value == answer)
    except Exception:  # noqa: BLE001 (the comparison is the app's)
        return False


def _bytes(text: str) -> bytes:
    """Return a text in UTF-8, with a `?` for half a surrogate pair, which the parser does not take."""
    return text.encode(errors="replace")


def _join_problems(problems: "Iterable[str]") -> str:
    problem_list = list(problems)
    suffix = f"; and {len(problem_list) - _SHOWN_PROBLEMS} more" if len(problem_list) > _SHOWN_PROBLEMS else ""
    return "the answer does not fit: " + "; ".join(problem_list[:_SHOWN_PROBLEMS]) + suffix


def _describe_problem(error: "ErrorDetails") -> str:
    where = ".".join(map(str, error["loc"])) or "the answer"
    suffix = "" if error["type"] == "missing" else f", not {json.dumps(error['input'], default=str)[:_SHOWN_VALUE]}"
    return f"{where}: {error['msg']}{suffix}"
