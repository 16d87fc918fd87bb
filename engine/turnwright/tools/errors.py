"""The errors of tools: they become the results of calls, and the model reads their messages.

TurnwrightError
└── ToolError           the call went wrong; the batch answers it with the message
    ├── ToolInputError  the model's: the arguments do not fit
    ├── ToolTimeoutError     the tool took longer than it may
    └── ToolFailedError      the tool's own: it raised
"""

from typing import Final, TypeVar

from turnwright.errors import TurnwrightError

from .text import clean, shorten

E = TypeVar("E", bound=BaseException)

_ERROR_LIMIT: Final = 2_000


class ToolError(TurnwrightError):
    """A call went wrong in a way that the model is told of. A tool may raise one to choose the words itself."""

    def __init__(self, message: str) -> None:
        super().__init__(clean(message))


class ToolInputError(ToolError):
    """The arguments do not fit. The message says which, what is wrong with it, and what is expected."""


class ToolTimeoutError(ToolError):
    """The tool did not finish within its time."""


class ToolFailedError(ToolError):
    """The tool raised. The message is `TypeName: text`, shortened; the error itself is the cause."""


def found(error: BaseException, kind: type[E]) -> E | None:
    """Give the first error of a kind in a group, or the error itself; None if there is none."""
    if isinstance(error, kind):
        return error
    inner = (found(one, kind) for one in error.exceptions) if isinstance(error, BaseExceptionGroup) else ()
    return next((one for one in inner if one is not None), None)


def holds(error: BaseException, kind: type[BaseException]) -> bool:
    """Say whether an error is of a kind, or is a group with one of that kind in it."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(kind) is not None
    return isinstance(error, kind)


def describe(error: BaseException) -> str:
    """Say `TypeName: text`; for a group, the errors in it, for its own text only counts them."""
    if isinstance(error, BaseExceptionGroup):
        return shorten("; ".join(describe(inner) for inner in error.exceptions), _ERROR_LIMIT)
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 (an error that cannot even be printed is still one)
        text = "(its text cannot be shown)"
    return shorten(f"{type(error).__name__}: {text}" if text else type(error).__name__, _ERROR_LIMIT)
