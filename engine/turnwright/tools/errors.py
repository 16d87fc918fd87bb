"""The errors of tools. They become the results of calls, and the model reads their messages.

TurnwrightError
└── ToolError             the call failed
    ├── ToolInputError    the model's arguments are invalid
    ├── ToolTimeoutError  the tool exceeded its timeout
    └── ToolFailedError   the tool raised an error
"""

from typing import Final, TypeVar

from turnwright._base.words import clean, cut_clean, text_of
from turnwright.errors import TurnwrightError

E = TypeVar("E", bound=BaseException)

_ERROR_LIMIT: Final = 2_000


class ToolError(TurnwrightError):
    """A failed call. The model reads the message. A tool may raise it to choose the message itself."""

    def __init__(self, message: str) -> None:
        super().__init__(clean(message))


class ToolInputError(ToolError):
    """Invalid arguments. The message names each argument, the problem, and the expected type."""


class ToolTimeoutError(ToolError):
    """The tool exceeded its timeout."""


class ToolFailedError(ToolError):
    """The tool raised an error. The message is `TypeName: text`, shortened; the error is the cause."""


def find_error(error: BaseException, kind: type[E]) -> E | None:
    """Return the error, or the first error in the group, that is of a kind; else None."""
    if isinstance(error, kind):
        return error
    inner_errors = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    found_errors = (find_error(inner_error, kind) for inner_error in inner_errors)
    return next((found_error for found_error in found_errors if found_error is not None), None)


def holds(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether an error is of a kind, or is a group that contains one."""
    return find_error(error, kind) is not None


def describe(error: BaseException) -> str:
    """Return `TypeName: text`, for a group that of each error in it."""
    if isinstance(error, BaseExceptionGroup):
        return cut_clean("; ".join(describe(inner) for inner in error.exceptions), _ERROR_LIMIT)
    text = text_of(error)
    return cut_clean(f"{type(error).__name__}: {text}" if text else type(error).__name__, _ERROR_LIMIT)
