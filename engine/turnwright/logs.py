"""Log records of turns, and a formatter that writes them as JSON lines.

The package logs through the standard library, under `turnwright`, and configures nothing. A record about a turn has
those attributes of `FIELDS` that are known, for any formatter to use.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from .privacy.secrets import Secrets

#: Environment variables for `--log-format` and `--log-level` of the command line.
FORMAT_VARIABLE: Final = "TURNWRIGHT_LOG_FORMAT"
LEVEL_VARIABLE: Final = "TURNWRIGHT_LOG_LEVEL"

#: The attributes by name, with descriptions. The first four say where a turn is.
FIELDS: Final[Mapping[str, str]] = {
    "turn": "the turn's id; a sub-agent's begins with its parent's",
    "step": "how many steps have started",
    "state": "the current state of the turn in the chart",
    "reason": "why the turn ends",
    "outcome": "how the turn ended",
    "agent": "the agent's name",
    "call": "the id of a tool call",
    "tool": "the name of a tool",
    "cause": "why an attempt at a model call failed",
}

_NOTHING: Final = Secrets()
_PLAIN: Final = logging.Formatter()


class JsonFormatter(logging.Formatter):
    """Writes each record as a JSON object in one line of ASCII.

    It has `time` (ISO 8601, UTC, with microseconds), `level`, `logger` and `message`, the `fields` that the record has,
    and `exception` with the traceback of a logged error. `secrets` are replaced by `***` in all of them.
    """

    def __init__(self, *, secrets: Secrets = _NOTHING, fields: Sequence[str] = tuple(FIELDS)) -> None:
        super().__init__()
        self._secrets = secrets
        self._fields = tuple(fields)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without its end. Raises what a message with misfit arguments raises."""
        entry: dict[str, object] = {
            "time": utc(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {name: value for name in self._fields if (value := getattr(record, name, None)) is not None}
        trace = _traceback(record)
        if trace:
            entry["exception"] = trace
        # Secrets are replaced first, because JSON escapes would hide them.
        line = json.dumps({name: self._plain(value) for name, value in entry.items()})
        return line.replace("\x7f", "\\u007f")  # the only control character that JSON does not escape

    def _plain(self, value: object) -> object:
        """Return a number as it is and anything else as text: a record of the embedder may have other types."""
        # JSON parsers other than Python's reject half a surrogate pair, so it becomes `?`.
        return value if isinstance(value, int) else self._secrets.hide(str(value)).encode(errors="replace").decode()


def utc(seconds: float) -> str:
    """Return a time in seconds since the Unix epoch as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _traceback(record: logging.LogRecord) -> str:
    """Return the traceback of a record as text, and the stack if the record has it."""
    # The filter that hides secrets leaves only the text (`privacy/secrets.py`).
    trace = record.exc_text or ("" if not record.exc_info else _PLAIN.formatException(record.exc_info))
    return "\n".join(filter(None, (trace, record.stack_info)))
