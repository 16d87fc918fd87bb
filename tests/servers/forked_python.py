"""Starts Python programs in processes that the nursery forks: each has what it would import already.

What a test says about the start of Python, or about what is imported, needs a new interpreter.
"""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, Self

from tests.servers import fork_client

#: Seconds that any program may take on a busy machine.
PATIENCE = 200.0

Streams = tuple[int, int, int]


class Process(Protocol):
    """A running process."""

    pid: int

    def wait(self, timeout: float) -> int:
        """Wait for the end of the process, and return its exit code."""
        ...


class Forked:
    """A process that the nursery forked."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("r")
        self.pid = int(self._lines.readline())
        self._code: int | None = None

    def wait(self, timeout: float) -> int:
        """Wait for the end of the process, and return its exit code."""
        if self._code is None:
            self._connection.settimeout(timeout)
            self._code = int(self._lines.readline())
            self._lines.close()
            self._connection.close()
        return self._code


class Program:
    """A program that runs, with pipes to its standard input and from its output. It is killed at the end of a block."""

    def __init__(self, process: Process, stdin: IO[str], stdout: IO[str]) -> None:
        self._process, self.stdin, self.stdout = process, stdin, stdout

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait for its end, and return its exit code."""
        return self._process.wait(PATIENCE)

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send it a signal that ends it. Return its exit code."""
        self.send(number)
        return self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.end()
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()


@dataclass(frozen=True)
class Python:
    """Starts programs with the arguments of `python`: `-W ACTION` if need be; then `-c`, `-m` or a file."""

    nursery: Path | None
    """The socket of the nursery. Without it each program is a new interpreter."""

    @property
    def command(self) -> list[str]:
        """The command in place of `python` where other programs start it. If it is killed, so is the program."""
        client = ["-I", "-S", fork_client.__file__, str(self.nursery)]
        return [sys.executable, *(client if self.nursery else ())]

    def begin(
        self, words: list[str], streams: Streams, env: Mapping[str, str], folder: Path, *, terminal: bool = False
    ) -> Process:
        """Start a program with these streams. `terminal`: its standard input is the terminal that controls it."""
        if self.nursery is None:
            return spawn([sys.executable, *words], streams, env, folder, terminal=terminal)
        return Forked(fork_client.ask(str(self.nursery), words, streams, env, str(folder), terminal=terminal))

    def start(self, *words: str | Path, env: Mapping[str, str] | None = None, folder: Path | None = None) -> Program:
        """Start a program with pipes."""
        (stdin, to_stdin), (from_stdout, stdout) = os.pipe(), os.pipe()
        streams = (stdin, stdout, 2)
        process = self.begin([*map(str, words)], streams, os.environ if env is None else env, folder or Path.cwd())
        os.close(stdin)
        os.close(stdout)
        return Program(process, os.fdopen(to_stdin, "w", 1), os.fdopen(from_stdout))

    def run(
        self,
        *words: str | Path,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        stdin: str = "",
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end."""
        with ExitStack() as files:
            source, out, err = (files.enter_context(tempfile.TemporaryFile("w+", newline="")) for _ in range(3))
            source.write(stdin)
            source.seek(0)
            streams = (source.fileno(), out.fileno(), err.fileno())
            process = self.begin([*map(str, words)], streams, os.environ if env is None else env, folder or Path.cwd())
            code = process.wait(PATIENCE)
            for file in (out, err):
                file.seek(0)
            return subprocess.CompletedProcess(words, code, out.read(), err.read())


def spawn(
    command: list[str], streams: Streams, env: Mapping[str, str], folder: Path, *, terminal: bool = False
) -> Process:
    """Start a new process."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        start_new_session=terminal,
        preexec_fn=_own_terminal if terminal else None,  # noqa: PLW1509 (two calls of the system)
    )


@contextmanager
def open_nursery() -> Iterator[Path | None]:
    """The socket of a nursery. None outside Linux: each program is a new process where forking is unsafe (macOS)."""
    if sys.platform != "linux":
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "socket"
        command = [sys.executable, str(Path(__file__).with_name("nursery.py")), str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            wait_until(lambda: path.exists() or process.poll() is not None)
            assert path.exists(), "the nursery did not start"
            yield path
            process.communicate()


def wait_until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds that another process or thread makes true."""
    ends = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.02)


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell that runs the tests in the background has it ignored
