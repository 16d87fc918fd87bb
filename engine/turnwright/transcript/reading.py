"""Reading a journal: facts that do not follow from each other make a turn unreadable."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from turnwright.errors import StoreError, UnreadableTurnError
from turnwright_states import InvalidJournalError, MachineError

#: Errors raised by facts that do not follow from each other. The machine makes no such facts, and does not check them.
_MISFITS: Final = (StoreError, LookupError, ValueError, ArithmeticError, TypeError)


@contextmanager
def reading(turn_id: str) -> Iterator[None]:
    """Raise `UnreadableTurnError` if facts from the store do not follow from each other."""
    try:
        with going_on(turn_id):
            yield
    except UnreadableTurnError:
        raise
    except _MISFITS as error:
        problem = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
        why = "" if isinstance(error, StoreError) else "its facts do not follow from each other: "
        raise UnreadableTurnError(turn_id, f"{why}{problem}") from error


@contextmanager
def going_on(turn_id: str) -> Iterator[None]:
    """Raise `UnreadableTurnError` if a turn cannot continue after the facts from the store."""
    try:
        yield
    except MachineError as error:
        prefix = "" if isinstance(error, InvalidJournalError) else "its journal ends within an input, or was changed: "
        raise UnreadableTurnError(turn_id, f"{prefix}{error}") from error
