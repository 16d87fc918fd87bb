"""The process of the command line: its streams, its log, its telemetry, its signals and its exit."""

import json
import logging
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, BinaryIO, Final, NoReturn, Protocol, TextIO, runtime_checkable

import typer

from turnwright._base.regular_files import read_regular
from turnwright.errors import ConfigError, PicklableError, TurnwrightError
from turnwright.logs import JsonFormatter, utc
from turnwright.privacy.invisible import escape, escape_invisible
from turnwright.privacy.secrets import Secrets

if TYPE_CHECKING:
    from turnwright.privacy.redaction import Redactor
    from turnwright.telemetry import Telemetry

_STDERR: Final = 2
#: Seconds that threads get to end by themselves at the exit.
_LAST_MOMENT: Final = 0.2
#: Threads of Temporal's client abort a process whose interpreter ends while one of them calls into it.
_UNTIDY: Final = "temporalio"
# Of standard input, or a file of JSON lines. Far longer than any journal: a turn has at most 200 steps.
_MAX_BYTES: Final = 1024**3
#: Seconds that the event loop has to leave in order after a signal.
ORDERLY: Final = 1.0
#: The exit code of a process that a signal ended is its number above this.
_SIGNALED: Final = 128
#: Milliseconds for each provider of telemetry to send the rest before the process ends at once.
_LAST_TELEMETRY: Final = 5000


class Terminal(TextIOWrapper):
    """A standard stream that escapes every invisible character, and so every terminal escape sequence.

    All text for a terminal is made safe here, also what other packages write. Only `styled` bypasses it.
    """

    def __init__(self, stream: TextIOWrapper) -> None:
        encoding, is_buffered = stream.encoding, stream.line_buffering
        # A character that the terminal cannot show is replaced, and is not an error.
        super().__init__(stream.buffer, encoding=encoding, errors="replace", line_buffering=is_buffered)
        self._beneath = stream  # kept: its end would close the file that both share

    def write(self, text: str) -> int:
        super().write(escape_invisible(text))
        return len(text)

    def close(self) -> None:
        """See `IOBase.close`. Python closes it at the exit, and would report a reader that has left."""
        with suppress(OSError):
            super().close()

    def styled(self, text: str) -> int:
        """Write text with our own escape sequences. The rest of it must be escaped already: see `screen.Screen`."""
        return super().write(text)


def spell(text: str) -> str:
    """Return a text with an escape for each character that stdout cannot show, so that none is replaced silently."""
    encoding = sys.stdout.encoding or "ascii"
    return escape_invisible(text).encode(encoding, "backslashreplace").decode(encoding)


def echo(text: object = "", *, err: bool = False) -> None:
    stream = sys.stderr if err else sys.stdout
    # The stream is not ours if another program calls a command in its own process.
    stream.write(f"{text}\n" if isinstance(stream, Terminal) else escape_invisible(f"{text}\n"))
    stream.flush()


def json_line(value: object) -> str:
    return json.dumps(value).replace("\x7f", r"\u007f")


def echo_json(value: object) -> None:
    echo(json_line(value))


class Output:
    """Writes lines to standard output. If the reader leaves, one line on stderr says so, and the turn continues.

    With `alone`, everything else that is printed in this process or its children goes to stderr from then on. So a tool
    that prints cannot break a line.
    """

    def __init__(self, *, alone: bool = False) -> None:
        self._stream: TextIO = _claim_stdout() if alone else sys.stdout
        self._is_gone = False

    def write(self, *lines: str) -> None:
        if self._is_gone:
            return
        try:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()
        except OSError as error:
            self._is_gone = True
            report_unwritten(error, self._stream, "; the turn continues")


def report_unwritten(error: OSError, stream: TextIO, consequence: str = "") -> None:
    """Say that a stream cannot be written, and discard the rest of its buffer, which would fail again at the exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    say(f"the output cannot be written ({error.strerror}){consequence}")


#: Loggers that repeat what one `StoreError` says, that the database is gone; or what a client is answered, which could
#: fill the log.
_SILENCED: Final = ("psycopg", "psycopg.pool", "a2a")


class _EnvironmentSecrets(Secrets):
    """The secrets of this process's environment, and texts that look like a secret: no log line shows them."""

    __slots__ = ("_environ", "_redactor")

    def __init__(self) -> None:
        super().__init__()
        self._environ = dict(os.environ)
        self._redactor: Redactor | None = None

    def hide(self, text: str) -> str:
        if self._redactor is None:
            from turnwright.privacy.redaction import Redactor  # noqa: PLC0415 (most commands log nothing)

            self._redactor = Redactor(self._environ)
        return self._redactor.hide(text)


class _OneLine(logging.Formatter):
    """Formats a log record as one line, without secrets. An error is its type, its text, and the user's line.

    A line break becomes an escape, because some records quote a server or a model.
    """

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return f"turnwright: {self._text(record)}"

    def _text(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            words = f"{type(error).__name__}: {error}"
            text = f"{text if text.endswith(words) else f'{text}: {words}'}{_place_of(error)}"
        return _escape_breaks(self._secrets.hide(text).rstrip())


def _place_of(error: BaseException) -> str:
    """Return the innermost line of the user's own code in the traceback of an error, in brackets; empty without one."""
    from turnwright.tools.load import user_line  # noqa: PLC0415 (after an error only)

    while error.__cause__ is not None:
        error = error.__cause__
    line = user_line(error)
    return "" if line is None else f" ({line})"


def explain(error: TurnwrightError) -> str:
    """Return the text of an error, with the user's own line that caused it, unless that line raised it itself."""
    text, place = str(error), _place_of(error)
    places = [f" ({frame.f_code.co_filename}, line {line})" for frame, line in traceback.walk_tb(error.__traceback__)]
    return text if places[-1:] == [place] or text.endswith(place) else f"{text}{place}"


class _Stamped(_OneLine):
    """The same, with the time, the level and the logger, for a log that the user asked for."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{utc(record.created)} {record.levelname} {_escape_breaks(record.name)}: {self._text(record)}"


class _ToStderr(logging.StreamHandler[TextIO]):
    """Writes to stderr. A record that cannot be formatted is named by its logger only: it may hold secrets."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (the name is the base class's)
        error = sys.exc_info()[0]
        say(f"a record of the logger {record.name} cannot be written ({'' if error is None else error.__name__})")


class _Log:
    """The state of logging in this process."""

    handler: logging.Handler | None = None
    #: Hidden in every line.
    secrets = Secrets()
    #: Set if stderr has one JSON object per line. Then messages to the user are objects as well.
    json: JsonFormatter | None = None


def log_as(*, as_json: bool, level: int) -> None:
    """Log records from `level` on to stderr, as JSON or as text; of other packages, warnings and errors only."""
    _Log.json = JsonFormatter(secrets=_Log.secrets) if as_json else None
    if _Log.handler is not None:
        _Log.handler.setFormatter(_Log.json or _Stamped(_Log.secrets))
    logging.getLogger().setLevel(max(level, logging.WARNING))
    logging.getLogger("turnwright").setLevel(level)


def prepare() -> None:
    """Make the streams safe for any text, and log one line for each record and each Python warning."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout = Terminal(sys.stdout)
    if isinstance(sys.stderr, TextIOWrapper):
        sys.stderr = Terminal(sys.stderr)
    if sys.stdout is None:  # closed by the parent process
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (open until the process ends)
    _Log.secrets = _EnvironmentSecrets()
    _Log.handler = _ToStderr()
    _Log.handler.setFormatter(_OneLine(_Log.secrets))
    logging.basicConfig(level=logging.WARNING, handlers=[_Log.handler])
    logging.captureWarnings(capture=True)
    for name in _SILENCED:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def check_arguments(arguments: list[str]) -> None:
    """Raise `ConfigError` for an argument that is not UTF-8: it could be neither stored nor sent."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"the argument {argument!a} is not UTF-8 text: write it as such") from None


def say(text: str) -> None:
    with suppress(OSError, AttributeError):  # stderr may be closed
        sys.stderr.write(_line(text))
        sys.stderr.flush()


def words_of(error: Exception) -> str:
    """Return the words of an error: of one of the system its file and its reason, without a number."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def say_bug(error: Exception) -> None:
    """Report an unexpected error and its place, in one line. It is not ours if the user's code raised it."""
    from turnwright.tools.load import user_line  # noqa: PLC0415 (few commands have such an error)

    frames = traceback.extract_tb(error.__traceback__)
    text = _escape_breaks(_Log.secrets.hide(f"{type(error).__name__}: {error}"))
    if frames and user_line(error) == f"{frames[-1].filename}, line {frames[-1].lineno}":
        say(f"{text} ({user_line(error)})")
        return
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    say(f"this is a bug, please report it: {text}{where}")


def leave(code: int) -> NoReturn:
    """End the process, without waiting for threads that a tool or a client left behind."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    ends = time.monotonic() + _LAST_MOMENT
    for thread in threading.enumerate():
        if thread is threading.main_thread() or thread.daemon:
            continue
        thread.join(max(ends - time.monotonic(), 0.0))
        if thread.is_alive():
            _exit_without_handlers(code)
    if _UNTIDY in sys.modules:
        _exit_without_handlers(code)
    sys.exit(code)


def _exit_without_handlers(code: int) -> NoReturn:
    flush_telemetry()
    os._exit(code)


def leave_now(code: int, text: str) -> NoReturn:
    """End the process at once. Safe in a signal handler, where streams must not be used."""
    _FinalMessage.say(text)
    os._exit(code)


def say_last(text: str) -> None:
    """Print why the process ends early, unless a signal handler or a timer has done so."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    _FinalMessage.say(text)


class _FinalMessage:
    """A message that is printed once: by the main thread, a timer, or a signal handler, whichever is first."""

    _lock = threading.RLock()  # a handler may interrupt the thread that holds it
    _is_written = False

    @classmethod
    def say(cls, text: str) -> None:
        """Write the message to the descriptor. A second caller waits until it is written."""
        # Not forever: stderr may be a full pipe.
        is_locked = cls._lock.acquire(timeout=_LAST_MOMENT)
        if cls._is_written or not is_locked:
            return
        with suppress(OSError):
            os.write(_STDERR, escape_invisible(_line(text)).encode())
        cls._is_written = True
        cls._lock.release()


class RepeatedSignal:
    """A signal handler that ends the process if it does not leave by itself.

    The n-th signal gives the process `patience[n - 1]` seconds, and `math.inf` sets no limit. One signal more than
    there are entries ends the process at once. `farewell` returns the last message.
    """

    def __init__(self, patience: Sequence[float], farewell: Callable[[], str]) -> None:
        self._patience = tuple(patience)
        self._farewell = farewell
        self._received = 0

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        self._received += 1
        if self._received > len(self._patience):
            self._leave(number)
        seconds = self._patience[self._received - 1]
        if seconds < math.inf:
            timer = threading.Timer(seconds, self._leave, (number,))
            timer.daemon = True
            timer.start()

    def _leave(self, number: int) -> None:
        leave_now(_SIGNALED + number, self._farewell())


class QuitError(PicklableError, Exception):
    """The process must leave with the exit code `code`. The turn may continue. The text says why."""

    def __init__(self, code: int, how: str) -> None:
        super().__init__(how)
        self.code = code


def _line(text: str) -> str:
    if _Log.json is None:
        return "".join(f"turnwright: {line}\n" for line in text.split("\n"))
    record = logging.LogRecord("turnwright.cli", logging.WARNING, __file__, 0, text, None, None)
    return f"{_Log.json.format(record)}\n"


def _escape_breaks(text: str) -> str:
    r"""Return the text with each line break and tab as an escape (`\n`)."""
    return "".join(escape(mark) if mark in "\r\n\t" else mark for mark in text)


def _claim_stdout() -> TextIO:
    """Return standard output for us alone. What others print goes to stderr."""
    stdout = sys.stdout
    with suppress(OSError):  # no file, as in a test that runs a command in its own process
        descriptor = stdout.fileno()
        stdout.flush()
        # Never closed: it is used until the process ends.
        stdout = Terminal(os.fdopen(os.dup(descriptor), "w", encoding="utf-8", closefd=False))
        os.dup2(_STDERR, descriptor)
    sys.stdout = sys.stderr
    return stdout


def open_stdin() -> BinaryIO:
    """Return standard input, as an empty stream if it is closed from the beginning."""
    return BytesIO() if sys.stdin is None else typer.get_binary_stream("stdin")


def read_lines(file: str) -> list[str]:
    """Read the lines of a file of JSON lines; of standard input for `-`.

    Raises `ConfigError` for a file that cannot be read, and for one that is not a regular file.
    """
    try:
        # Split at line feeds only: a text may contain other line separators, which JSON does not escape.
        return (open_stdin().read() if file == "-" else read_regular(file, _MAX_BYTES)).decode().split("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except (OSError, ValueError) as error:  # ValueError: the name contains a null character
        raise ConfigError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error


def read_piped_text(subject: str) -> str | None:
    """Return the text on standard input, or None if standard input is a terminal. `subject` names the text.

    Raises `ConfigError` for input that is not UTF-8 text.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return None
    try:
        return open_stdin().read().decode().strip()
    except UnicodeDecodeError as error:
        raise ConfigError(f"the {subject} on standard input is not UTF-8 text (byte {error.start})") from None


@runtime_checkable
class _Buffered(Protocol):
    """A provider of the SDK. Those of the API alone hold nothing back."""

    def force_flush(self, timeout_millis: int) -> bool: ...


def configured_telemetry() -> "Telemetry | None":
    """Return spans and metrics for OpenTelemetry's global providers, or None if nothing has configured them.

    `opentelemetry-instrument` configures them before the command starts, and so may the file of a tool. OpenTelemetry
    takes long to import, so it is not imported to find out.
    """
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace  # noqa: PLC0415 (an extra)

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    from turnwright.otel import OpenTelemetry  # noqa: PLC0415 (an extra)

    return OpenTelemetry()


def flush_telemetry() -> None:
    """Send what the SDK still holds. Only for a process that skips the exit handlers, in which the SDK does it."""
    if configured_telemetry() is None:
        return
    from opentelemetry import metrics, trace  # noqa: PLC0415 (an extra)

    for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
        if isinstance(provider, _Buffered):
            provider.force_flush(_LAST_TELEMETRY)
