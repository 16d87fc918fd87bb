"""Log records of turns, and a formatter that writes them as JSON lines.

The package logs through the standard library, under `turnwright`, and configures nothing. Each record that is about a
turn has the attributes of `FIELDS` that are known where it is made, so that any formatter can use them. Where an
attribute is missing, it was not known or is not meant.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from .privacy.secrets import Secrets

#: What the command line reads, as `--log-format` and `--log-level`.
FORMAT_VARIABLE: Final = "TURNWRIGHT_LOG_FORMAT"
LEVEL_VARIABLE: Final = "TURNWRIGHT_LOG_LEVEL"

#: The attributes by name, and what each one is. The first four say where a turn is.
FIELDS: Final[Mapping[str, str]] = {
    "turn": "the turn's id; a sub-agent's begins with its caller's",
    "step": "how many steps have started",
    "state": "the state of the chart that the turn is in now",
    "reason": "why it stops: the reason of its outcome",
    "outcome": "how it ended",
    "agent": "the name of its agent",
    "call": "the id of a tool call, unique in the turn",
    "tool": "the name of a tool",
    "cause": "why an attempt at a model call failed",
}

_NOTHING: Final = Secrets()
_PLAIN: Final = logging.Formatter()


class JsonFormatter(logging.Formatter):
    """Writes each record as a JSON object in one line of ASCII.

    It has `time` (ISO 8601, UTC, with microseconds), `level`, `logger` and `message`; those of `fields` that the record
    has; and, of an error that was logged, `exception`: its traceback as text. `secrets` are shown as `***` in all of
    them.
    """

    def __init__(self, *, secrets: Secrets = _NOTHING, fields: Sequence[str] = tuple(FIELDS)) -> None:
        super().__init__()
        self._secrets = secrets
        self._fields = tuple(fields)

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end. Raises what a message raises whose arguments do not fit it."""
        entry: dict[str, object] = {
            "time": utc(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {name: value for name in self._fields if (value := getattr(record, name, None)) is not None}
        told = _traceback(record)
        if told:
            entry["exception"] = told
        # Escapes of JSON would hide a secret from whoever looks for it, so they come last.
        line = json.dumps({name: self._plain(value) for name, value in entry.items()})
        return line.replace("\x7f", "\\u007f")  # the one control character that JSON leaves as it is

    def _plain(self, value: object) -> object:
        """A number as it is, anything else as text: an embedder's records may have anything under our names."""
        # Half a surrogate pair is valid in Python's JSON alone: `?` stands for it.
        return value if isinstance(value, int) else self._secrets.hide(str(value)).encode(errors="replace").decode()


def utc(seconds: float) -> str:
    """A moment, in seconds since the epoch, as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _traceback(record: logging.LogRecord) -> str:
    """The traceback of a record as text, and the stack where it asked for that."""
    # A filter that hides secrets leaves the text alone (`hiding.py`).
    told = record.exc_text or ("" if not record.exc_info else _PLAIN.formatException(record.exc_info))
    return "\n".join(filter(None, (told, record.stack_info)))
