"""What the command line does to its own process: its streams, its log, and how it leaves."""

import logging
import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Final, NoReturn, TextIO

from turnwright.errors import ConfigError

_STDERR: Final = 2
#: Seconds that threads get to end by themselves when the process does.
_LAST_MOMENT: Final = 0.2
#: Temporal's client has threads of its own, which abort a process whose interpreter ends while one calls back into it.
_UNTIDY: Final = "temporalio"


class Output:
    """Lines for whoever reads them. The reader may leave: that is said once on stderr, and the turn goes on.

    With `alone` it takes the stream away from everybody else: what a tool prints, or a program that a tool starts,
    goes to stderr from then on, so that no line of ours is torn.
    """

    def __init__(self, *, alone: bool = False) -> None:
        self._stream: TextIO = _taken() if alone else sys.stdout
        self._gone = False

    def write(self, *lines: str) -> None:
        """Write lines, and flush them."""
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


class _OneLine(logging.Formatter):
    """A log record as one line: of an error its type and its text, and no traceback."""

    def format(self, record: logging.LogRecord) -> str:
        said = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        return f"turnwright: {said}" if error is None else f"turnwright: {said}: {type(error).__name__}: {error}"


def prepare() -> None:
    """Make the streams fit for any text, and log in lines."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that cannot show a character shows another; that is no reason to fail.
            stream.reconfigure(errors="replace")
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (it lives as long as the process)
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
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
    """Say something to the user, on stderr."""
    with suppress(OSError, AttributeError):  # nobody may be there to hear it
        sys.stderr.write(f"turnwright: {text}\n")
        sys.stderr.flush()


def say_bug(error: Exception) -> None:
    """Say that something happened that should not have, and where, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    say(f"this is a bug, please report it: {type(error).__name__}: {error}{where}")


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
    with suppress(OSError):
        os.write(_STDERR, f"turnwright: {text}\n".encode())
    os._exit(code)


def _taken() -> TextIO:
    """Standard output, for us alone."""
    ours = sys.stdout
    with suppress(OSError):  # no file is behind it, as in a test that runs us in its own process
        descriptor = ours.fileno()
        ours.flush()
        # For as long as the process lives, so that nobody closes it.
        ours = os.fdopen(os.dup(descriptor), "w", encoding="utf-8", closefd=False)
        os.dup2(_STDERR, descriptor)
    sys.stdout = sys.stderr
    return ours
