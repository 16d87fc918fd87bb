"""The command line on a real terminal: all of its streams are one, of a given size, and a person types into it."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

#: Seconds that anything may take on a busy machine.
PATIENCE = 60.0


class Tty:
    """A command that runs on a terminal. Used as a context manager."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        env: Mapping[str, str],
        *,
        rows: int = 24,
        columns: int = 80,
        term: str = "xterm-256color",
    ) -> None:
        self._here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "turnwright", *arguments],
            cwd=folder,
            env={**env, "TERM": term},
            stdin=there,
            stdout=there,
            stderr=there,
            start_new_session=True,
            preexec_fn=_own_terminal,  # noqa: PLW1509 (one call of the system; Ctrl-C is a signal on such a terminal alone)
        )
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
        self._process.kill()
        self._process.wait()
        os.close(self._here)


def plain(terminal: Tty) -> str:
    """Return what was shown, without colors and movements."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.shown)


def enter(terminal: Tty, line: str, expected: str) -> None:
    """Type a line at the prompt, and wait until these words are shown."""
    terminal.until("> ")
    terminal.types(f"{line}\n").until(expected)


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell that runs the tests in the background has it ignored
