"""The fields of forms, and the statuses of failed ones."""

from typing import Final

from starlette.datastructures import FormData

from turnwright.errors import (
    ConfigError,
    InvalidAnswerError,
    LeaseLostError,
    RuntimeUnavailableError,
    StoreError,
    TurnAlreadyEndedError,
    TurnBusyError,
    TurnwrightError,
)

#: The HTTP status of a failed action, by its error.
_STATUS: Final[dict[type[TurnwrightError], int]] = {
    InvalidAnswerError: 409,
    TurnAlreadyEndedError: 409,
    TurnBusyError: 409,
    LeaseLostError: 409,
    ConfigError: 422,
    RuntimeUnavailableError: 503,
    StoreError: 503,
}


class Form:
    """The text fields of a form."""

    def __init__(self, form: FormData) -> None:
        self._fields = {name: value for name, value in form.items() if isinstance(value, str)}

    def text(self, name: str) -> str:
        """Return a field, with normalized line ends; empty for a missing one."""
        return self._fields.get(name, "").replace("\r\n", "\n")

    @property
    def typed(self) -> dict[str, str]:
        return {name: self.text(name) for name in self._fields if name != "csrf"}


def status_of(error: TurnwrightError) -> int:
    """Return the status of the page that shows this error."""
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
