"""Decodes JSON, also into typed structs of which it keeps what fits; and shows values as text."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from msgspec import inspect
from pydantic import JsonValue

T = TypeVar("T")
#: The errors of a decoder for what is not such JSON.
BROKEN: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
_MISFIT: Final = object()
#: Levels of nesting in which objects are looked for.
_LEVELS: Final = 8
#: No fraction is larger.
_LARGEST: Final = 10**300


def read_json(data: bytes | str) -> JsonValue:
    """Return a JSON value; None for anything else."""
    try:
        value: JsonValue = msgspec.json.decode(data)
    except BROKEN:
        return None
    return value


def read_object(data: bytes) -> dict[str, JsonValue] | None:
    """Return a JSON object; None for anything else."""
    value = read_json(data)
    return value if isinstance(value, dict) else None


def json_text(value: object) -> str:
    """Return a text as it is, and any other value as JSON; nothing for None, and for one that nests too deep."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return ""


def join_texts(*parts: object) -> str:
    """Return the texts that are not empty, one below another."""
    return "\n".join(part for part in parts if isinstance(part, str) and part)


def nested_objects(
    value: JsonValue,
    names: Sequence[str],
    is_leaf: Callable[[Mapping[str, JsonValue]], bool],
    *,
    levels: int = _LEVELS,
) -> Iterator[Mapping[str, JsonValue]]:
    """Yield the objects of a value, from its beginning, also those in fields of these names, but not within a leaf."""
    if not levels:
        return
    if isinstance(value, list):
        for part in value:
            yield from nested_objects(part, names, is_leaf, levels=levels - 1)
    elif isinstance(value, Mapping):
        yield value
        for name in () if is_leaf(value) else names:
            yield from nested_objects(value.get(name), names, is_leaf, levels=levels - 1)


class Shape(Generic[T]):
    """A type that recorded JSON should have. Its structs should give every field a default."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        self._decode = msgspec.json.Decoder(kind).decode
        self._any = msgspec.json.Decoder().decode

    def decode(self, data: bytes) -> T | None:
        """Return the value of these bytes; None if they are not JSON, or of another kind altogether.

        A field of the wrong type is left out. Bytes that are not UTF-8, halves of surrogate pairs, control characters
        and numbers that JSON has not are replaced.
        """
        try:
            return self._decode(data)
        except BROKEN:
            pass
        try:
            return self.convert(self._any(data))
        except BROKEN:
            pass
        mended_value = _mend(data)
        return None if mended_value is None else self.convert(mended_value)

    def convert(self, value: object) -> T | None:
        """Return the value as this type, without the fields that do not fit; None if nothing does."""
        try:
            return msgspec.convert(value, self.kind)
        except (msgspec.ValidationError, RecursionError):
            fit = _fit(value, inspect.type_info(self.kind))
            return None if fit is _MISFIT else cast("T", fit)


def _mend(data: bytes) -> JsonValue:
    """Return the value of bytes that a strict reader of JSON refuses; None if they are not JSON at all."""
    try:
        value = json.loads(data.decode("utf-8", "replace"), strict=False, parse_constant=lambda _: None)
        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        plain_value: JsonValue = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    return plain_value


def _fit(value: object, kind: inspect.Type) -> Any:  # noqa: ANN401 (a value of any type)
    match kind:
        case inspect.StructType() if isinstance(value, Mapping):
            return _fit_struct(value, kind)
        case inspect.ListType(item_type=item) if isinstance(value, Sequence) and not isinstance(value, str):
            return [fit for fit in (_fit(part, item) for part in value) if fit is not _MISFIT]
        case inspect.DictType(value_type=item) if isinstance(value, Mapping):
            parts = {str(name): _fit(part, item) for name, part in value.items()}
            return {name: fit for name, fit in parts.items() if fit is not _MISFIT}
        case inspect.UnionType(types=types):
            return next((fit for fit in (_fit(value, kind) for kind in types) if fit is not _MISFIT), _MISFIT)
        case inspect.AnyType():
            return value
        case _:
            return _fit_scalar(value, kind)


def _fit_struct(value: Mapping[Any, Any], kind: inspect.StructType) -> Any:  # noqa: ANN401
    fields = {
        field.name: _fit(value[field.encode_name], field.type) for field in kind.fields if field.encode_name in value
    }
    try:
        return kind.cls(**{name: fit for name, fit in fields.items() if fit is not _MISFIT})
    except TypeError:  # a field without a default is missing
        return _MISFIT


def _fit_scalar(value: object, kind: inspect.Type) -> Any:  # noqa: ANN401
    if value is None or isinstance(value, bool):
        return value if isinstance(kind, inspect.NoneType if value is None else inspect.BoolType) else _MISFIT
    match kind:
        case inspect.StrType() if isinstance(value, (str, int, float)):
            return str(value)
        case inspect.IntType() if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
            return int(value)
        case inspect.FloatType() if isinstance(value, float) or (isinstance(value, int) and abs(value) < _LARGEST):
            return float(value)
        case inspect.LiteralType(values=values) if value in values:
            return value
        case _:
            return _MISFIT
