"""The arguments of a function: their JSON Schema, and their validation."""

import copy
import inspect
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property, partial
from numbers import Number
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    ForwardRef,
    Literal,
    NamedTuple,
    NotRequired,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import (
    CoreSchema,
    ErrorDetails,
    PydanticCustomError,
    PydanticSerializationError,
    SchemaValidator,
    to_json,
    to_jsonable_python,
)
from typing_extensions import TypedDict

from turnwright._base.words import cut_clean, escape_unprintable
from turnwright.context import TurnContext
from turnwright.errors import ConfigError

from .context import ToolContext
from .errors import ToolInputError, describe, holds

_SHOWN_PROBLEMS: Final = 8
_SHOWN_VALUE: Final = 80


class Parameter(NamedTuple):
    """A parameter of a function."""

    name: str
    annotation: object
    default: object

    @property
    def own_default(self) -> bool:
        """Whether the function's signature has a default for the parameter."""
        return self.default is not inspect.Parameter.empty and not isinstance(self.default, FieldInfo)

    @property
    def is_filled(self) -> bool:
        """Whether a `Field` has a default for the parameter."""
        notes = get_args(self.annotation)[1:] if get_origin(self.annotation) is Annotated else ()
        return any(isinstance(note, FieldInfo) and not note.is_required() for note in (*notes, self.default))

    def key(self, *, with_default: bool) -> object:
        """Return the type of the parameter as a key of a typed dictionary."""
        # The last alias counts: the parameter's name, unless the default is a `Field` that has one.
        name = Field(self.default, alias=self.name) if self.own_default and with_default else Field(alias=self.name)
        annotation: object = Annotated[self.annotation, name]
        if isinstance(self.default, FieldInfo):
            annotation = Annotated[annotation, self.default]
        return NotRequired[annotation] if self.own_default or self.is_filled else annotation


class Arguments:
    """The arguments that a model may pass to a function.

    Pydantic reads the annotations, and coerces as for JSON: `"5"` becomes an int, an ISO string a date. A boolean is
    not accepted as a number, nor are `"NaN"` and infinities, unless the type asks for them (`allow_inf_nan=True`). An
    unknown argument is an error. A parameter without annotation takes any JSON value.
    `contexts` names the parameters annotated `ToolContext` (or `ToolContext[Deps]`), which are not arguments.

    Raises `ConfigError` for a function that cannot be called by keyword (positional-only parameters, `*args`,
    `**kwargs`, an unbound method), and for an annotation without a JSON Schema.
    """

    def __init__(self, function: Callable[..., object], descriptions: Mapping[str, str]) -> None:
        """`descriptions` describe the arguments whose annotations have no description."""
        self._label = getattr(function, "__qualname__", repr(function))
        self._parameters, self.contexts = _parameters(function, self._label)
        #: The defaults of the signature, which the function fills in.
        self._defaults = {parameter.name: parameter.default for parameter in self._parameters if parameter.own_default}
        schema = plain_schema(self._parameters)
        if schema is None:  # only pydantic knows whether it reads these annotations
            schema = self._read_schema(self._parameters)
        self.schema: dict[str, JsonValue] = _add_descriptions(schema, descriptions)

    def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Validate `arguments` and return the keyword arguments for the function; raises `ToolInputError`.

        Missing arguments with a default in the signature stay missing.
        """
        try:
            data = to_json(dict(arguments))
            values = self._validate(data)
        except ValidationError as error:
            lines = [
                _describe_problem(detail, arguments)
                for detail in error.errors(include_url=False, include_context=False)
            ]
            raise ToolInputError(self._explain(lines)) from None
        except ValueError:
            lines = [f"{name}: nested too deeply, or not valid Unicode" for name in _find_unreadable(arguments)]
            raise ToolInputError(self._explain(lines)) from None
        except BaseException as error:
            if holds(error, KeyboardInterrupt):
                raise
            # A validator of the app may raise anything. The call cannot run, but the turn continues.
            raise ToolInputError(f"the arguments could not be validated: {describe(error)}") from error
        # Pydantic accepts booleans as numbers.
        if (b"true" in data or b"false" in data) and (
            lines := [f"{where}: should be a number, not a boolean" for where in _find_booleans(arguments, values)]
        ):
            raise ToolInputError(self._explain(lines))
        return values

    def complete(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Validate `arguments` and return the values of all parameters, with defaults; raises `ToolInputError`."""
        defaults = {
            name: copy.deepcopy(default) if default.__hash__ is None else default
            for name, default in self._defaults.items()
        }
        return {**defaults, **self.parse(arguments)}

    def plain(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Validate `arguments` and return them as JSON values, with defaults; raises `ToolInputError`.

        They are coerced, so that a loop key sees the values that the function gets. Defaults that are not JSON are left
        out.
        """
        values = self.parse(arguments)
        try:
            return self._to_json({**self._defaults, **values})
        except PydanticSerializationError:
            return self._to_json(values)

    def _to_json(self, values: dict[str, object]) -> dict[str, JsonValue]:
        data: dict[str, JsonValue] = self._adapter.dump_python(values, mode="json", by_alias=True, warnings=False)
        return data

    @cached_property
    def _adapter(self) -> TypeAdapter[dict[str, object]]:
        """The validator, built for the first call."""
        return _typed_dict(self._parameters, with_defaults=False)

    @cached_property
    def _validate(self) -> Callable[[bytes], dict[str, object]]:
        finite = json_validator(self._adapter.core_schema)
        return self._adapter.validator.validate_json if finite is None else finite.validate_json

    def _explain(self, problems: list[str]) -> str:
        unique = list(dict.fromkeys(problems))
        hidden_count = len(unique) - _SHOWN_PROBLEMS
        lines = [f"- {problem}" for problem in unique[:_SHOWN_PROBLEMS]] + (
            [f"- and {hidden_count} more"] if hidden_count > 0 else []
        )
        return "\n".join(["invalid arguments:", *lines, f"Expected: {self._describe_expected()}."])

    def _describe_expected(self) -> str:
        properties = cast("dict[str, dict[str, JsonValue]]", self.schema["properties"])
        required_names = cast("list[str]", self.schema.get("required", []))
        definitions = cast("dict[str, dict[str, JsonValue]]", self.schema.get("$defs", {}))
        words = [
            f"{name} ({_describe_kind(schema, definitions)}{'' if name in required_names else ', optional'})"
            for name, schema in properties.items()
        ]
        return ", ".join(words) or "no arguments"

    def _read_schema(self, parameters: Sequence[Parameter]) -> dict[str, JsonValue]:
        """Return the schema of the parameters. Raises `ConfigError` if they cannot be read."""
        try:
            return read_schema(parameters)
        except (PydanticUserError, TypeError, NameError) as error:
            for parameter in parameters if len(parameters) > 1 else ():
                self._read_schema([parameter])
            names = ", ".join(repr(parameter.name) for parameter in parameters)
            raise ConfigError(
                f"tool {self._label}: parameter {names} has an annotation without a JSON Schema"
                f" ({getattr(error, 'message', error)}): use JSON types, pydantic models, or ToolContext"
            ) from error


def read_schema(parameters: Sequence[Parameter]) -> dict[str, JsonValue]:
    """Return pydantic's schema of the parameters, without titles, which only repeat names."""
    adapter = _typed_dict(parameters, with_defaults=True)
    return cast("dict[str, JsonValue]", _drop_titles(adapter.json_schema(schema_generator=_Schema)))


def _typed_dict(parameters: Sequence[Parameter], *, with_defaults: bool) -> TypeAdapter[dict[str, object]]:
    """Return an adapter of a typed dictionary of the parameters. A model would be slower by 6 % of a step."""
    keys = {parameter.name: parameter.key(with_default=with_defaults) for parameter in parameters}
    shape = TypedDict("Arguments", keys)  # type: ignore[misc]  # mypy reads literals only
    shape.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]  # pydantic's convention
    return cast("TypeAdapter[dict[str, object]]", TypeAdapter(shape))


#: The types that have one schema each, whatever is around them.
_PLAIN_TYPES: Final = ((str, "string"), (int, "integer"), (float, "number"), (bool, "boolean"), (NoneType, "null"))


def plain_schema(parameters: Sequence[Parameter]) -> dict[str, JsonValue] | None:
    """Return the schema that pydantic makes of plain parameters, without titles. None: only pydantic knows.

    Plain are `str`, `int`, `float`, `bool`, literals of texts, lists and dictionaries of them, and each of them or
    None, described or not, with a default of one of these types. Most parameters are, and pydantic takes several
    milliseconds a tool: an engine with 300 tools started late. A test compares the schemas of the two.
    """
    properties: dict[str, JsonValue] = {}
    for parameter in parameters:
        schema = _plain_property(parameter)
        if schema is None:
            return None
        properties[parameter.name] = schema
    required_names: list[JsonValue] = [parameter.name for parameter in parameters if not parameter.own_default]
    return {
        "additionalProperties": False,
        "properties": properties,
        **({"required": required_names} if required_names else {}),
        "type": "object",
    }


def _plain_property(parameter: Parameter) -> dict[str, JsonValue] | None:
    annotation, description = parameter.annotation, None
    if get_origin(annotation) is Annotated:
        annotation, *notes = get_args(annotation)
        if len(notes) != 1 or not isinstance(notes[0], FieldInfo):
            return None
        description = notes[0].description
        if repr(notes[0]) != repr(Field(description=description)):  # it has a limit, an alias, a default, ...
            return None
    schema = _plain_type(annotation)
    if schema is None:
        return None
    if parameter.own_default:
        default = parameter.default
        if not _is_plain_value(default):
            return None
        schema["default"] = cast("JsonValue", default)
    elif parameter.default is not inspect.Parameter.empty:
        return None
    if description is not None:
        schema["description"] = description
    return dict(sorted(schema.items()))


def _plain_type(annotation: object) -> dict[str, JsonValue] | None:
    """Return the schema of a plain annotation, or None."""
    for kind, name in _PLAIN_TYPES:
        if annotation is kind:
            return {"type": name}
    origin, options = get_origin(annotation), get_args(annotation)
    if origin is Literal and all(isinstance(option, str) and _is_plain_value(option) for option in options):
        return {"const": options[0], "type": "string"} if len(options) == 1 else {"enum": [*options], "type": "string"}
    # `List` and `Dict` without types have no options.
    if origin is list and options and (items := _plain_type(options[0])) is not None:
        return {"items": items, "type": "array"}
    if origin is dict and options and options[0] is str and (values := _plain_type(options[1])) is not None:
        return {"additionalProperties": values, "type": "object"}
    if origin in (Union, UnionType) and NoneType in options:
        choices = [option for option in options if option is not NoneType]
        inner = _plain_type(choices[0]) if len(choices) == 1 else None
        return None if inner is None else {"anyOf": [inner, {"type": "null"}]}
    return None


def _is_plain_value(value: object) -> bool:
    """Whether a value is its own JSON. A text that is not printable may have surrogates, which JSON cannot have."""
    if type(value) is str:
        return value.isprintable()
    return value is None or type(value) in (bool, int) or (type(value) is float and math.isfinite(value))


def json_validator(schema: CoreSchema) -> SchemaValidator | None:
    """Return a validator of JSON that differs from pydantic's in two ways, or None if the schema needs neither.

    It accepts NaN and the infinities only where the schema asks for them by `allow_inf_nan`. Pydantic takes the texts
    `"NaN"` and `"1e999"` for numbers, and NaN is neither above nor below a limit. And a `Literal` of a member of an
    enumeration accepts the member's value, as its JSON Schema says.
    """
    finite = _adapt_schema(schema)
    if finite == schema:
        return None
    # The validator of a model that is a part of the schema would be used as it is.
    return SchemaValidator(cast("CoreSchema", finite), _use_prebuilt=False)


#: The keys of a schema of pydantic whose values are not schemas.
_NO_SCHEMAS: Final = frozenset({"config", "default", "expected", "members", "metadata", "serialization"})


def _adapt_schema(schema: object, *, asks: bool = False) -> object:
    """Return a schema for `json_validator`. It `asks` for numbers that are not finite if a model around it does."""
    if isinstance(schema, list | tuple):
        return [_adapt_schema(item, asks=asks) for item in schema]
    if not isinstance(schema, dict):
        return schema
    config = schema.get("config")
    if isinstance(config, dict) and "allow_inf_nan" in config:
        asks = bool(config["allow_inf_nan"])
    parts = {key: value if key in _NO_SCHEMAS else _adapt_schema(value, asks=asks) for key, value in schema.items()}
    return _adapt_node(parts, asks=asks)


def _adapt_node(schema: dict[str, Any], *, asks: bool) -> dict[str, Any]:
    """Return one node of a schema for `json_validator`."""
    kind = schema.get("type")
    if kind == "literal" and any(isinstance(member, Enum) for member in schema["expected"]):
        members = [member for member in schema["expected"] if isinstance(member, Enum)]
        convert = {"type": "no-info", "function": partial(_find_member, members)}
        return {"type": "function-before", "function": convert, "schema": schema}
    if kind == "tagged-union":
        by_value = {tag.value: choice for tag, choice in schema["choices"].items() if isinstance(tag, Enum)}
        return {**schema, "choices": {**by_value, **schema["choices"]}}
    if kind == "float" and not asks:
        return {"allow_inf_nan": False, **schema}
    if kind in ("any", "complex") and not asks:
        check = {"type": "no-info", "function": _need_finite}
        return {"type": "function-after", "function": check, "schema": schema}
    return schema


def _find_member(members: Sequence[Enum], value: object) -> object:
    """Return the member that has this value, or else the value."""
    return next((member for member in members if type(member.value) is type(value) and member.value == value), value)


def _need_finite(value: object) -> object:
    """Return a JSON value, or a complex number. Raises `PydanticCustomError` for NaN and the infinities in it."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            stack += item.values()
        elif isinstance(item, list):
            stack += item
        elif isinstance(item, float | complex) and not (math.isfinite(item.real) and math.isfinite(item.imag)):
            raise PydanticCustomError("finite_number", "Input should be a finite number")
    return value


class _Schema(GenerateJsonSchema):
    """Omits a default that is not JSON, such as a sentinel, without a warning."""

    def encode_default(self, dft: object) -> object:
        """Return the default as JSON. Raises `PydanticSerializationError` for NaN and the infinities."""
        try:
            _need_finite(to_jsonable_python(dft, inf_nan_mode="constants", fallback=str))
        except PydanticCustomError:
            raise PydanticSerializationError("not finite") from None
        return super().encode_default(dft)

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 (pydantic declares it so)


def _parameters(function: Callable[..., object], label: str) -> tuple[list[Parameter], tuple[str, ...]]:
    try:
        hints = hints_of(function)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise ConfigError(
            f"tool {label}: its annotations cannot be resolved ({error}):"
            " import the annotated types at run time, and define them at module level"
        ) from error
    try:
        signature = inspect.signature(function)
    except ValueError:  # as some functions that are written in C
        raise ConfigError(f"tool {label}: it has no signature: wrap it in a function") from None
    parameters: list[Parameter] = []
    contexts: list[str] = []
    for number, parameter in enumerate(signature.parameters.values()):
        annotation = hints.get(parameter.name, object)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ConfigError(
                f"tool {label}: parameter '{parameter}' takes any number of arguments: name each one, or take a list"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ConfigError(f"tool {label}: parameter {parameter.name!r} is positional-only: remove the '/'")
        if number == 0 and parameter.name in ("self", "cls") and parameter.name not in hints:
            raise ConfigError(f"tool {label}: it is a method without its object: use tool(the_object.the_method)")
        if is_context(annotation):
            contexts.append(parameter.name)
        else:
            parameters.append(Parameter(parameter.name, annotation, parameter.default))
    return parameters, tuple(contexts)


def hints_of(function: Callable[..., object]) -> dict[str, object]:
    """Return the annotations of the parameters of a function, resolved. That of its result need not exist here.

    Of an object that can be called they are those of its `__call__`, without those that `functools.partial` bound.
    """
    while isinstance(function, partial):
        function = function.func
    function = function if inspect.isroutine(function) else type(function).__call__
    if sys.version_info >= (3, 14):
        from annotationlib import Format, get_annotations  # noqa: PLC0415 (older versions have none)

        annotations = get_annotations(function, format=Format.FORWARDREF)
    else:
        annotations = inspect.get_annotations(function)
    parameter_annotations = {name: annotation for name, annotation in annotations.items() if name != "return"}
    names = getattr(inspect.unwrap(function), "__globals__", {})
    return get_type_hints(SimpleNamespace(__annotations__=parameter_annotations), globalns=names, include_extras=True)


def deps_needed(function: Callable[..., object]) -> str:
    """Return the dependencies that the context of a function needs, as people write their type; else an empty text."""
    try:
        hints = hints_of(function)
    except Exception:  # noqa: BLE001 (annotations that cannot be resolved say nothing)
        return ""
    for hint in hints.values():
        for option in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
            deps_type = get_args(option)[0] if get_origin(option) in (ToolContext, TurnContext) else object
            if not _fits_none(deps_type):
                return getattr(deps_type, "__name__", str(deps_type))
    return ""


def _fits_none(deps: object) -> bool:
    """Whether a function whose dependencies have this type can be called without any."""
    if get_origin(deps) in (Union, UnionType):
        return any(map(_fits_none, get_args(deps)))
    return deps in (object, Any, None, NoneType) or isinstance(deps, TypeVar | ForwardRef)


def is_context(annotation: object) -> bool:
    """Whether a parameter with this annotation receives the context of the call, with or without the type of deps."""
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return any(is_context(option) for option in get_args(annotation))
    return (get_origin(annotation) or annotation) in (ToolContext, TurnContext)


def _add_descriptions(schema: dict[str, JsonValue], descriptions: Mapping[str, str]) -> dict[str, JsonValue]:
    """Return the schema with these descriptions of its properties that have none."""
    properties = cast("dict[str, dict[str, JsonValue]]", schema.setdefault("properties", {}))
    for name, property_schema in properties.items():
        if text := descriptions.get(name):
            property_schema.setdefault("description", text)
    return schema


def _drop_titles(schema: JsonValue) -> JsonValue:
    if isinstance(schema, list):
        return [_drop_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain: dict[str, JsonValue] = {}
    for key, value in schema.items():
        if key in ("properties", "patternProperties", "$defs") and isinstance(value, dict):
            plain[key] = {name: _drop_titles(inner) for name, inner in value.items()}
        elif key in ("default", "const", "enum", "examples"):
            plain[key] = value
        elif key != "title":
            plain[key] = _drop_titles(value)
    return plain


def _describe_kind(schema: Mapping[str, JsonValue], definitions: Mapping[str, Mapping[str, JsonValue]]) -> str:
    if isinstance(reference := schema.get("$ref"), str):
        schema = definitions.get(reference.rpartition("/")[2], {})
    if isinstance(choices := schema.get("enum"), list):
        return "one of " + json.dumps(choices, ensure_ascii=False)
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    if isinstance(branches := schema.get("anyOf", schema.get("oneOf")), list):
        return " or ".join(
            dict.fromkeys(_describe_kind(branch, definitions) for branch in branches if isinstance(branch, dict))
        )
    kind = schema.get("type")
    if not isinstance(kind, str):
        return "any value"
    items = schema.get("items")
    return f"{kind} of {_describe_kind(items, definitions)}" if isinstance(items, dict) and items else kind


def _find_unreadable(arguments: Mapping[str, JsonValue]) -> Iterator[str]:
    for name, value in arguments.items():
        try:
            to_json({name: value})
        except ValueError:
            yield cut_clean(name, _SHOWN_VALUE)


def _describe_problem(detail: ErrorDetails, arguments: Mapping[str, JsonValue]) -> str:
    """Return the path of an error, the error, and the value that the model passed."""
    path = ""
    value = cast("object", arguments)
    for part in detail["loc"]:
        # Pydantic also names the branch of a union, which means nothing to the model.
        if isinstance(value, Mapping) and isinstance(part, str) and part in value:
            path, value = f"{path}.{part}", value[part]
        elif isinstance(part, int) and isinstance(value, list) and part < len(value):
            path, value = f"{path}[{part}]", value[part]
    if detail["type"] == "missing":
        return f"{path}.{detail['loc'][-1]}".lstrip(".") + ": is missing"
    path = escape_unprintable(cut_clean(path.lstrip("."), _SHOWN_VALUE))
    if detail["type"] == "extra_forbidden":
        return f"{path}: unknown argument"
    message = detail["msg"].removeprefix("Input ").removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if not path:
        return message
    passed_value = json.dumps(detail["input"], ensure_ascii=False, default=str)
    return f"{path}: {message}; you passed {cut_clean(passed_value, _SHOWN_VALUE)}"


def _find_booleans(value: object, parsed_value: object, path: str = "") -> Iterator[str]:
    """Yield the paths where pydantic accepted a boolean as a number."""
    if isinstance(value, bool):
        if isinstance(parsed_value, Number) and not isinstance(parsed_value, bool):
            yield path
    elif isinstance(value, Mapping):
        for key, item in value.items():
            inner = parsed_value.get(key) if isinstance(parsed_value, Mapping) else getattr(parsed_value, key, None)
            yield from _find_booleans(item, inner, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list) and isinstance(parsed_value, list | tuple):
        for number, (item, inner) in enumerate(zip(value, parsed_value, strict=False)):
            yield from _find_booleans(item, inner, f"{path}[{number}]")
