"""The command line on a real terminal: all of its streams are one, of a given size, and a person types into it."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.engine.cli.fixtures import Cli
from tests.servers.forked_python import Python

#: Seconds that anything may take on a busy machine.
PATIENCE = 60.0


class Tty:
    """A command that runs on a terminal. Used as a context manager."""

    def __init__(
        self,
        cli: Cli,
        arguments: Sequence[str],
        *,
        rows: int = 24,
        columns: int = 80,
        fresh: bool = False,
        **env: str,
    ) -> None:
        self._here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        python = Python(None) if fresh else cli.python
        variables = {**cli.env, "TERM": "xterm-256color", **env}
        words = ["-m", "turnwright", *arguments]
        self._process = python.begin(words, (there, there, there), variables, cli.folder, terminal=True)
        os.close(there)
        self._output = b""
        #: How much of what was shown `until` has gone past.
        self._at = 0

    @property
    def shown(self) -> str:
        """All that was printed so far."""
        return self._output.decode(errors="replace").replace("\r\n", "\n")

    def until(self, words: str) -> str:
        """Wait until these words are printed, behind those that were waited for last. Returns what came before them."""
        ends = time.monotonic() + PATIENCE
        while (at := self._output.find(words.encode(), self._at)) < 0:
            assert self._read(ends), f"ended without {words!r}: {self.shown}"
        output, self._at = self._output[self._at : at], at + len(words.encode())
        return output.decode(errors="replace").replace("\r\n", "\n")

    def types(self, keys: str) -> Self:
        """Type something."""
        os.write(self._here, keys.encode())
        return self

    def done(self) -> int:
        """Wait for its end, as long as it prints something now and then, and return the exit code."""
        while self._read(time.monotonic() + PATIENCE):
            pass
        return self._process.wait(PATIENCE)

    def _read(self, ends: float) -> bool:
        assert select.select([self._here], [], [], max(ends - time.monotonic(), 0))[0], f"nothing came: {self.shown}"
        try:
            data = os.read(self._here, 65_536)
        except OSError:  # nobody has it open any more
            return False
        self._output += data
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)
        os.close(self._here)


def plain(terminal: Tty) -> str:
    """Return what was shown, without colors and movements."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.shown)


def enter(terminal: Tty, line: str, expected: str) -> None:
    """Type a line at the prompt, and wait until these words are shown."""
    terminal.until("> ")
    terminal.types(f"{line}\n").until(expected)
