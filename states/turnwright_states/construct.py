"""The two ways to make an input: a call of its class checks the fields, and `construct_unchecked` does not.

The machine and the engine make inputs from values that were checked before. Without a second check, that takes a
quarter of the time.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, ParamSpec, Protocol, TypeVar, cast

import pydantic
from msgspec import Struct, StructMeta, ValidationError, convert
from msgspec.structs import force_setattr

from .errors import InvalidInputError
from .payload import misfit

P = ParamSpec("P")
V = TypeVar("V")
C = TypeVar("C", bound="Checked")

_JSON: Final = pydantic.TypeAdapter[pydantic.JsonValue](
    pydantic.JsonValue, config=pydantic.ConfigDict(defer_build=True)
)


class _CheckedCall(StructMeta):
    """The class of checked classes: it decides what a call of one does."""

    if not TYPE_CHECKING:  # pragma: no branch (for type checkers, a call is that of any struct)

        def __call__(self, /, *args: object, **fields: object) -> object:
            if args:
                raise TypeError(f"{self.__name__} takes its fields by name: {', '.join(self.__struct_fields__)}")
            return construct(self, fields)


# The garbage collector need not track these values, because their parts were made before them: no cycle is possible.
class Checked(Struct, metaclass=_CheckedCall, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """An immutable value that is given to the machine. A call of its class raises `InvalidInputError` if it is wrong.

    A list becomes a tuple where the field is one. `msgspec.structs.replace` returns a copy with other values, which it
    does not check.
    """

    #: The fields that contain JSON values. Each is copied.
    json_fields: ClassVar[tuple[str, ...]] = ()

    def _check(self) -> None:
        """Check what the types of the fields cannot express. Raises `ValueError`."""
        for name in self.json_fields:
            value = getattr(self, name)
            if value:
                force_setattr(self, name, _plain_json(name, value))


class _Constructor(Protocol):
    def __call__(self, kind: Callable[P, V], /, *_: P.args, **fields: P.kwargs) -> V: ...


#: Makes a value of a checked class with these fields. Nothing is checked or converted: a list stays a list.
construct_unchecked: Final = cast("_Constructor", StructMeta.__call__)
#: The same as a call of its class.
construct_checked: Final = cast("_Constructor", _CheckedCall.__call__)


def construct(kind: type[C], fields: Mapping[str, object]) -> C:
    """Return a value of the class with these fields. Raises `InvalidInputError`."""
    try:
        value = convert({name: _plain_texts(value) for name, value in fields.items()}, kind)
        value._check()  # noqa: SLF001 (of this module)
    except ValidationError as error:
        raise InvalidInputError(kind.__name__, misfit(error)) from None
    except ValueError as error:
        raise InvalidInputError(kind.__name__, str(error)) from None
    return value


def check_each(name: str, values: Iterable[Checked]) -> None:
    """Check values of a field, because msgspec makes some of them from mappings. Raises `ValueError`."""
    for place, value in enumerate(values):
        try:
            value._check()  # noqa: SLF001 (of this module)
        except ValueError as error:
            raise ValueError(f"{name}.{place}.{error}") from None


def writable(text: str) -> str:
    """Return the text with a question mark for half a surrogate pair, as in the journal.

    It is for texts on which the turn's state depends, so that the journal and the machine have the same.
    """
    return text.encode(errors="replace").decode()


def _plain_text(value: object) -> object:
    """Return a text whose class is a subclass of `str` as a plain one, because no journal can hold it."""
    return str.__str__(value) if isinstance(value, str) else value


def _plain_texts(value: object) -> object:
    return tuple(map(_plain_text, value)) if isinstance(value, tuple) else _plain_text(value)


def _plain_json(name: str, value: Any) -> object:  # noqa: ANN401 (any type: it is checked)
    """Return a copy of a JSON value, or of a tuple of them. Raises `ValueError` for another value."""
    try:
        if isinstance(value, tuple):
            return tuple(_JSON.validate_python(list(value)))  # type: ignore[arg-type]  # a list in, a list out
        return _JSON.validate_python(value)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = map(str, first["loc"][1::2])  # every other part is the kind of the value
        raise ValueError(f"{'.'.join([name, *place])}: {first['msg']}") from None
