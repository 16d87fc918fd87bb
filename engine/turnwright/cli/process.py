"""What the command line does to its own process: its streams, its log, and how it leaves."""

import json
import logging
import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TextIO

from turnwright.errors import ConfigError
from turnwright.logs import JsonFormatter, utc
from turnwright.privacy.invisible import escape, escaped
from turnwright.privacy.secrets import Secrets

if TYPE_CHECKING:
    from turnwright.privacy.redaction import Redactor

_STDERR: Final = 2
#: Seconds that threads get to end by themselves when the process does.
_LAST_MOMENT: Final = 0.2
#: Temporal's client has threads of its own, which abort a process whose interpreter ends while one calls back into it.
_UNTIDY: Final = "temporalio"


class Terminal(TextIOWrapper):
    """A standard stream. Whatever is written to it, by us or by others, holds no escape sequence when it leaves.

    This is the one place where text is made harmless for a terminal: all that nobody sees is written as an escape.
    Only `styled` goes around it.
    """

    def __init__(self, stream: TextIOWrapper) -> None:
        encoding, buffered = stream.encoding, stream.line_buffering
        # A terminal that cannot show a character shows another; that is no reason to fail.
        super().__init__(stream.buffer, encoding=encoding, errors="replace", line_buffering=buffered)
        self._beneath = stream  # which would close the file that it shares with this one

    def write(self, text: str) -> int:
        super().write(escaped(text))
        return len(text)

    def close(self) -> None:
        """See `IOBase.close`. At the exit it is closed by Python, which would say that the reader has left."""
        with suppress(OSError):
            super().close()

    def styled(self, text: str) -> int:
        """Write text that has escape sequences of ours, all else in it made harmless before. See `screen.Screen`."""
        return super().write(text)


def spelled(text: str) -> str:
    """Return a text in which nothing becomes another character on stdout, whatever it can show: escapes instead."""
    encoding = sys.stdout.encoding or "ascii"
    return escaped(text).encode(encoding, "backslashreplace").decode(encoding)


def echo(text: object = "", *, err: bool = False) -> None:
    stream = sys.stderr if err else sys.stdout
    # A stream of somebody else's, as where a command is called in a process of theirs, escapes nothing.
    stream.write(f"{text}\n" if isinstance(stream, Terminal) else escaped(f"{text}\n"))
    stream.flush()


def json_line(value: object) -> str:
    return json.dumps(value).replace("\x7f", r"\u007f")


def echo_json(value: object) -> None:
    echo(json_line(value))


class Output:
    """Lines for whoever reads them. The reader may leave: that is said once on stderr, and the turn goes on.

    With `alone` it takes the stream away from everybody else: what a tool prints, or a program that a tool starts,
    goes to stderr from then on, so that no line of ours is torn.
    """

    def __init__(self, *, alone: bool = False) -> None:
        self._stream: TextIO = _taken() if alone else sys.stdout
        self._gone = False

    def write(self, *lines: str) -> None:
        if self._gone:
            return
        try:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()
        except OSError as error:
            self._gone = True
            with suppress(OSError):
                # What is left in the buffer would be tried again at the exit, and fail again.
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            say(f"the output cannot be written ({error.strerror}); the turn goes on all the same")


#: What these say of a database that is gone, a `StoreError` says once.
_TOLD_BY_US: Final = ("psycopg", "psycopg.pool")


class _Unsaid(Secrets):
    """What no line of the log shows: the secrets of this process's environment, and what has the form of one."""

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
    """A log record as one line, without secrets: of an error its type and its text, and no traceback.

    A line break is shown as an escape: a server's words, or a model's, are in some.
    """

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return f"turnwright: {self._told(record)}"

    def _told(self, record: logging.LogRecord) -> str:
        told = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            told = f"{told}: {type(error).__name__}: {error}"
        return _one_line(self._secrets.hide(told).rstrip())


class _Stamped(_OneLine):
    """The same with the moment, the level and the logger in front, for those who asked for a log."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{utc(record.created)} {record.levelname} {_one_line(record.name)}: {self._told(record)}"


class _ToStderr(logging.StreamHandler[TextIO]):
    """Writes to stderr. Of a record that cannot be written out it tells the logger alone, and none of what it holds."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (the name is the base class's)
        error = sys.exc_info()[0]
        say(f"a record of the logger {record.name} cannot be written ({'' if error is None else error.__name__})")


class _Log:
    """How this process logs: in which format, once somebody has asked for one."""

    handler: logging.Handler | None = None
    #: What no line shows.
    secrets = Secrets()
    #: Where stderr is one JSON object a line, what is said to the user is one as well.
    json: JsonFormatter | None = None


def log_as(*, as_json: bool, level: int) -> None:
    """Log what is at least of `level` (of other packages, warnings at most) to stderr, as JSON or as stamped text."""
    _Log.json = JsonFormatter(secrets=_Log.secrets) if as_json else None
    if _Log.handler is not None:
        _Log.handler.setFormatter(_Log.json or _Stamped(_Log.secrets))
    logging.getLogger().setLevel(max(level, logging.WARNING))
    logging.getLogger("turnwright").setLevel(level)


def prepare() -> None:
    """Make the streams safe for any text, and log in lines, also what Python warns of."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout = Terminal(sys.stdout)
    if isinstance(sys.stderr, TextIOWrapper):
        sys.stderr = Terminal(sys.stderr)
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (it lives as long as the process)
    _Log.secrets = _Unsaid()
    _Log.handler = _ToStderr()
    _Log.handler.setFormatter(_OneLine(_Log.secrets))
    logging.basicConfig(level=logging.WARNING, handlers=[_Log.handler])
    logging.captureWarnings(capture=True)
    for name in _TOLD_BY_US:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def check_arguments(arguments: list[str]) -> None:
    """Raise `ConfigError` for an argument that is no text: it could be neither stored nor sent."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"the argument {argument!a} is not UTF-8 text: write it as such") from None


def say(text: str) -> None:
    with suppress(OSError, AttributeError):  # nobody may be there to hear it
        sys.stderr.write(_line(text))
        sys.stderr.flush()


def say_bug(error: Exception) -> None:
    """Say that something happened that should not have, and where, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    told = _one_line(_Log.secrets.hide(f"{type(error).__name__}: {error}"))
    say(f"this is a bug, please report it: {told}{where}")


def leave(code: int) -> NoReturn:
    """End the process. A thread that a tool, or a service's client, left behind neither holds it up nor breaks it."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    ends = time.monotonic() + _LAST_MOMENT
    for thread in threading.enumerate():
        if thread is threading.main_thread() or thread.daemon:
            continue
        thread.join(max(ends - time.monotonic(), 0.0))
        if thread.is_alive():
            os._exit(code)
    if _UNTIDY in sys.modules:
        os._exit(code)
    sys.exit(code)


def leave_now(code: int, text: str) -> NoReturn:
    """End the process wherever it is: also out of a signal handler, where streams may not be used."""
    _LastWords.say(text)
    os._exit(code)


def say_last(text: str) -> None:
    """Say why the process ends before it has done its work, unless a signal's handler or timer has said so already."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    _LastWords.say(text)


class _LastWords:
    """Said once, by whoever is first: the main thread, a timer, or a handler that interrupts the main thread."""

    _lock = threading.RLock()  # a handler may interrupt the thread that holds it
    _said = False

    @classmethod
    def say(cls, text: str) -> None:
        """Write them past the streams, whole: whoever comes second waits until they are out."""
        # Nobody waits for ever where stderr is a pipe that is full.
        held = cls._lock.acquire(timeout=_LAST_MOMENT)
        if cls._said or not held:
            return
        with suppress(OSError):
            os.write(_STDERR, escaped(_line(text)).encode())
        cls._said = True
        cls._lock.release()


def _line(text: str) -> str:
    if _Log.json is None:
        return f"turnwright: {text}\n"
    record = logging.LogRecord("turnwright.cli", logging.WARNING, __file__, 0, text, None, None)
    return f"{_Log.json.format(record)}\n"


def _one_line(text: str) -> str:
    r"""Return the text with each line break and tab as an escape (`\n`)."""
    return "".join(escape(mark) if mark in "\r\n\t" else mark for mark in text)


def _taken() -> TextIO:
    """Standard output, for us alone."""
    ours = sys.stdout
    with suppress(OSError):  # no file is behind it, as in a test that runs us in its own process
        descriptor = ours.fileno()
        ours.flush()
        # For as long as the process lives, so that nobody closes it.
        ours = Terminal(os.fdopen(os.dup(descriptor), "w", encoding="utf-8", closefd=False))
        os.dup2(_STDERR, descriptor)
    sys.stdout = sys.stderr
    return ours
