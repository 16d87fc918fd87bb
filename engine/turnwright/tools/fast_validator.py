"""Checks arguments that fit, without making a model of them.

To make a pydantic model of one argument, and to take it apart again, costs 5 us; a typed dictionary of pydantic's costs
1.5, and a step has a call or more. Only what fits is quick: whatever else there is, and anything that this check does
not cover, is checked in the plain way (`schema.py`), which also finds the words for what is wrong. A test holds the
values of the two equal.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, NamedTuple, NotRequired, get_args, get_origin

from pydantic import ConfigDict, JsonValue, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_json
from typing_extensions import TypedDict


class Expected(NamedTuple):
    """A parameter of a function. `optional`: the function itself supplies what is left out."""

    name: str
    annotation: object
    optional: bool


class QuickCheck:
    """The parameters of a function, as a typed dictionary, made when the first call is checked."""

    def __init__(self, expected: Sequence[Expected]) -> None:
        self._expected = expected

    @staticmethod
    def covers(annotation: object) -> bool:
        """Whether a typed dictionary takes this annotation as a model does: without a name or a default of its own."""
        notes = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
        return not any(isinstance(note, FieldInfo) and _renames_or_fills(note) for note in notes)

    def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object] | None:
        """The arguments as the function takes them; None where they do not fit, or where this cannot tell."""
        try:
            data = to_json(dict(arguments))
            if b"true" in data or b"false" in data:  # which pydantic takes for numbers
                return None
            return self._adapter.validate_json(data)
        except Exception:  # noqa: BLE001 (a validator may raise anything; the plain check says what is wrong)
            return None

    @cached_property
    def _adapter(self) -> TypeAdapter[dict[str, Any]]:
        keys = {one.name: NotRequired[one.annotation] if one.optional else one.annotation for one in self._expected}
        shape = TypedDict("Arguments", keys)  # type: ignore[misc]  # likewise
        shape.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]  # as pydantic has it
        return TypeAdapter(shape)  # type: ignore[arg-type]  # likewise


def _renames_or_fills(note: FieldInfo) -> bool:
    named = note.alias is not None or note.validation_alias is not None
    return named or note.default is not PydanticUndefined or note.default_factory is not None
