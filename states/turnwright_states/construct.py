"""Construction of frozen values without validation, for fields that are valid already.

pydantic validates every field of every value. The machine and the engine make values from fields that were validated
before, so they use `construct_unchecked`, which takes half the time. A test makes one value of each kind in both ways
and compares them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from pydantic import BaseModel
from pydantic.fields import FieldInfo

P = ParamSpec("P")
V = TypeVar("V", bound=BaseModel)

_new: Final = object.__new__
_set: Final = object.__setattr__


class _Kind(NamedTuple):
    """The field defaults of a kind in their order, its default factories, and the names of its fields."""

    template: dict[str, object]
    factories: tuple[tuple[str, Callable[[], object]], ...]
    names: set[str]


_KNOWN: Final[dict[object, _Kind]] = {}


def construct_unchecked(kind: Callable[P, V], /, *_: P.args, **fields: P.kwargs) -> V:
    """Return a value of the frozen model `kind` with these fields.

    Nothing is checked or converted: a list stays a list. A field with a default may be omitted. All fields count as
    set.
    """
    try:
        template, factories, names = _KNOWN[kind]
    except KeyError:
        template, factories, names = _KNOWN[kind] = _learnt(kind)
    for name, factory in factories:
        if name not in fields:
            fields[name] = factory()
    value: V = _new(kind)  # type: ignore[arg-type]
    _set(value, "__dict__", template | fields)
    _set(value, "__pydantic_fields_set__", names)
    _set(value, "__pydantic_extra__", None)
    _set(value, "__pydantic_private__", None)
    return value


def _learnt(kind: Any) -> _Kind:  # noqa: ANN401 (a class to pydantic, and to type checkers what it is called with)
    fields: dict[str, FieldInfo] = kind.model_fields
    return _Kind(
        {name: field.default for name, field in fields.items()},
        tuple(
            (name, partial(field.get_default, call_default_factory=True))
            for name, field in fields.items()
            if field.default_factory
        ),
        set(fields),
    )
