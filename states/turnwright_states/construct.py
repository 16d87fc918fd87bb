"""Makes a frozen value without looking at its fields, where they are right already.

pydantic looks at every field of every value. That is right at the border, where people and files hand values in; what
the machine and the engine make of values that were looked at before is looked at in vain. `construct_unchecked` takes
half of the time. A test makes one of each kind both ways, and holds the two equal.
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
    """What is known of a kind: all its fields in their order, with their defaults; what makes the others; the names."""

    template: dict[str, object]
    factories: tuple[tuple[str, Callable[[], object]], ...]
    names: set[str]


_KNOWN: Final[dict[object, _Kind]] = {}


def construct_unchecked(kind: Callable[P, V], /, *_: P.args, **fields: P.kwargs) -> V:
    """A value of the frozen model `kind` from fields that fit it, which are taken over as they are.

    Nothing is checked and nothing is converted: a list stays a list. A field that has a default may be left out. The
    value counts every field as set.
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
