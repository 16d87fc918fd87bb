"""The `seq` of a message's part, made of three numbers.

They are a fact's place in the journal, a slot after that fact, and how many facts later the part's own fact came. For
most parts the last number is 0. A part that comes before an earlier fact's parts, or after parts that are still
missing, takes a slot reserved for it: a result in call order, the end of a step with results, and a message that came
before the reply.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pydantic import JsonValue

from turnwright.errors import StoreError
from turnwright.message import AnyPart, FilePart

#: The width of a fact and of a slot in `seq`. All numbers are exact as floats too, for JavaScript.
FACT: Final = 1 << 32
SLOT: Final = 1 << 16
#: The first slot for messages before the step that has begun.
FIRST_MESSAGE: Final = SLOT >> 1


def fact_of(part: AnyPart) -> int:
    """Return the place in the journal of the fact that made a message's part."""
    return part.seq // FACT + part.seq % SLOT


def kept_seq(slot: int, at: int) -> int:
    """Return the `seq` of a part made by the fact at `at`, in the slot reserved for it."""
    later = at // FACT - slot // FACT
    return slot + (later if later < FIRST_MESSAGE else FIRST_MESSAGE)  # noqa: FURB136 (`min` is a call)


def files_at(at: int, files: Iterable[Mapping[str, JsonValue]], apart: int = 1) -> tuple[FilePart, ...]:
    """Return the parts of files, the first at `at`, the others `apart` from each other. Raises `StoreError`."""
    try:
        return tuple(FilePart.of_json({**file, "seq": at + place * apart}) for place, file in enumerate(files))
    except ValueError as error:
        raise StoreError(f"a file in the journal cannot be read: {error}") from None
