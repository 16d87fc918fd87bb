"""A server on this machine for tests: it can be started, stopped and killed, and ends with its process."""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, ClassVar, Final, Self, cast

from turnwright.errors import ConfigError, TurnwrightError

#: Below the ports that systems hand out for outgoing connections: so it is still free when the server starts again.
_PORTS: Final = range(20_000, 30_000)
#: The number of ports that are tried before the first start fails.
_TRIES: Final = 20
#: The bytes of the server's log that an error quotes.
_TAIL: Final = 2000


class LocalServer(ABC):
    """A server on a free port of 127.0.0.1, with its data in a temporary folder. `start_timeout` is in seconds.

    `start()` and `stop()` or `kill()` may follow each other; data and address stay the same. As a context manager it is
    started, and removed at the end. It is also removed when this object is collected, and when this process ends,
    however that happens.

    Raises `ConfigError` where there is no program to run (`reason_missing()` says so beforehand).
    """

    #: What messages call it, the signals that stop it and that end it for good, what it raises, and how its log says
    #: that the port is taken.
    _name: ClassVar[str]
    _stops: ClassVar[signal.Signals]
    _ends: ClassVar[signal.Signals]
    _error: ClassVar[type[TurnwrightError]]
    _in_use: ClassVar[bytes]

    def __init__(self, start_timeout: float, account: str | None = None) -> None:
        reason = self.reason_missing()
        if reason is not None:
            raise ConfigError(reason)
        self._start_timeout = start_timeout
        self._account = account
        self._folder = Path(tempfile.mkdtemp(prefix=f"turnwright-{self._name.lower()}-"))
        #: The log of the server, in the folder with all its files.
        self.log: Final = self._folder / "log"
        self._port: int | None = None
        #: The process that runs the server, if one does.
        self._keepers: list[subprocess.Popen[bytes]] = []
        self._end = weakref.finalize(self, _end, self._keepers, self._folder, self._ends)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on 127.0.0.1:{self._port}>"

    @staticmethod
    @abstractmethod
    def reason_missing() -> str | None:
        """Return why no server is available, for tests that are skipped then; None if one is."""

    @abstractmethod
    def _command(self, port: int) -> Sequence[str]: ...

    @abstractmethod
    def _is_ready(self) -> bool: ...

    def start(self) -> None:
        """Start the server unless it runs, and return when it takes requests.

        Raises `StoreError` for a database and `RuntimeUnavailableError` for a service, with the end of the server's
        log, when it does not start, or was closed.
        """
        if not self._end.alive:
            raise self._error(f"the {self._name} server on 127.0.0.1:{self._port}: it was closed")
        if any(keeper.poll() is None for keeper in self._keepers):
            return
        for port in (self._port,) if self._port is not None else _free_ports():
            self.kill()  # of one that ended by itself the pipe is open still
            self._keepers.append(self._run(port))
            if self._comes_up(self._keepers[0]):
                self._port = port
                return
            if self._in_use not in self._tail():
                break
        output = self._tail().decode(errors="replace").strip()
        raise self._error(f"the {self._name} server did not start: {output}")

    def stop(self) -> None:
        """Stop the server, if it runs, as an operator does, and return when it has ended."""
        _tell(self._keepers, self._stops)

    def kill(self) -> None:
        """End every process of the server with SIGKILL, as a machine that loses its power does."""
        _tell(self._keepers, signal.SIGKILL)

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End the server and remove its data. May be called twice; it cannot be started again."""
        self._end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _place(self) -> str:
        if self._port is None:
            called = f"the {self._name} server was never started"
            raise ConfigError(f"{called}: call start(), or use it as a context manager")
        return f"127.0.0.1:{self._port}"

    def _run(self, port: int) -> "subprocess.Popen[bytes]":
        # -P: a script's folder goes first on the path, and modules of this one would shadow others' names.
        keeper = [sys.executable, "-P", str(Path(__file__).with_name("server_keeper.py"))]
        options = [str(os.getpid()), str(self._folder), str(int(self._ends)), self._account or ""]
        command = self._command(port)
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [*keeper, *options, *command],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # Ctrl-C in a terminal goes to the whole group; the server stays for those who tidy up after it.
                start_new_session=True,
            )

    def _comes_up(self, keeper: "subprocess.Popen[bytes]") -> bool:
        """Wait for it; False when the server ended, or took too long and was ended."""
        until = time.monotonic() + self._start_timeout
        while keeper.poll() is None:
            if self._is_ready():
                return True
            if time.monotonic() > until:
                self.kill()
                break
            time.sleep(0.01)
        return False

    def _tail(self) -> bytes:
        return self.log.read_bytes()[-_TAIL:]


def _tell(keepers: "list[subprocess.Popen[bytes]]", sign: signal.Signals) -> None:
    """End the running server, if any, with a signal, and wait until it has ended."""
    while keepers:
        keeper = keepers.pop()
        pipe = cast("IO[bytes]", keeper.stdin)
        with suppress(BrokenPipeError):  # it has ended by itself
            pipe.write(b"%d\n" % sign)
        keeper.wait()
        pipe.close()


def _end(keepers: "list[subprocess.Popen[bytes]]", folder: Path, sign: signal.Signals) -> None:
    _tell(keepers, sign)
    shutil.rmtree(folder, ignore_errors=True)


def _free_ports() -> Sequence[int]:
    free: list[int] = []
    for port in random.sample(_PORTS, _TRIES):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                free.append(port)
    return free
