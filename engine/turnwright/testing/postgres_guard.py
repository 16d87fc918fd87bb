"""The process between a test and its PostgreSQL server: it starts the server, and ends it when the test is gone.

It is run by its path, not as a module of the package, and imports nothing of it: so it starts in no time, and as few
things as possible can go wrong in it. `postgres_server.py` is its only caller. Each line that it reads is a command,
each line that it writes is the answer; the first line is the settings, and making the cluster answers it.
"""

import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, TypedDict

#: Below the ports that systems hand out for outgoing connections: so it is still free when the server starts again.
_PORTS: Final = range(20_000, 30_000)
#: How many ports are tried before the first start is given up.
_TRIES: Final = 20
#: How much of the server's log an error quotes, in bytes.
_TAIL: Final = 2000
#: The line of `postmaster.pid` that says whether connections are taken, from 0.
_STATUS_LINE: Final = 7


class GuardSettings(TypedDict):
    """What the parent writes first."""

    binaries: str
    #: Whom the server runs as; None: who we are.
    account: str | None
    user: str
    password: str
    options: list[str]
    parent: int
    #: In seconds.
    start_timeout: float


class _ServerError(Exception):
    """A command that could not be obeyed."""


class PostgresGuard:
    """One cluster in a folder of its own, and the server that runs on it now and then."""

    def __init__(self, settings: GuardSettings) -> None:
        self._settings = settings
        self._port: int | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="turnwright-postgres-"))
        self._data = self._folder / "data"
        self._log = self._folder / "log"

    def init(self) -> None:
        password = self._folder / "password"
        password.touch(mode=0o600)
        password.write_text(self._settings["password"])
        if (account := self._settings["account"]) is not None:
            for path in (self._folder, password):
                shutil.chown(path, account)
        options = ["--pgdata", str(self._data), "--username", self._settings["user"], "--pwfile", str(password)]
        done = self._spawn(
            "initdb", *options, "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync"
        ).wait()
        password.unlink()
        if done != 0:
            raise _ServerError(f"initdb ended with exit code {done}: {self._tail()}")

    def start(self) -> int:
        """Start the server unless it runs, wait until it takes connections, and return its port."""
        if self._server is not None and self._server.poll() is None and self._port is not None:
            return self._port
        for port in (self._port,) if self._port is not None else _free_ports():
            self._log.unlink(missing_ok=True)
            options = ["-D", str(self._data), "-p", str(port), "-k", str(self._folder), "-h", "127.0.0.1"]
            self._server = self._spawn("postgres", *options, *self._settings["options"])
            if self._takes_connections(self._server):
                self._port = port
                return port
            if "could not bind" not in self._tail():
                break
        raise _ServerError(f"postgres did not start: {self._tail()}")

    def stop(self, sign: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT ends its sessions and writes all down, SIGQUIT leaves it as a crash does."""
        if self._server is not None and self._server.poll() is None:
            self._server.send_signal(sign)
            self._server.wait()

    def kill(self) -> None:
        """End every process of the server with SIGKILL."""
        if self._server is None or self._server.poll() is not None:
            return
        # Stopped first: so it starts no more children, and tells nobody.
        self._server.send_signal(signal.SIGSTOP)
        children = list(_children(self._server.pid))
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._server.kill()
        self._server.wait()
        # The next start is refused as long as one of them has the shared memory.
        while any(map(_lives, children)):
            time.sleep(0.005)

    def close(self) -> None:
        """End the server at once, and remove the folder."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _spawn(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        account = self._settings["account"]
        with self._log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603 (PostgreSQL's own programs)
                [str(Path(self._settings["binaries"], program)), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                user=account,
                group=None if account is None else _group(account),
                extra_groups=None if account is None else (),
            )

    def _takes_connections(self, server: subprocess.Popen[bytes]) -> bool:
        """Wait for it; False when the server ended, or took too long and was ended."""
        until = time.monotonic() + self._settings["start_timeout"]
        while server.poll() is None:
            with suppress(FileNotFoundError):
                lines = (self._data / "postmaster.pid").read_text().splitlines()
                # A server that was killed left a file too: its first line says whose it is.
                if lines[:1] == [str(server.pid)] and "".join(lines[_STATUS_LINE:]).strip() == "ready":
                    return True
            if time.monotonic() > until:
                self.kill()
                break
            time.sleep(0.01)
        return False

    def _tail(self) -> str:
        try:
            return self._log.read_bytes()[-_TAIL:].decode(errors="replace").strip()
        except FileNotFoundError:
            return "it has no log"


def _group(account: str) -> int:
    import pwd  # noqa: PLC0415 (POSIX only, and only root needs it)

    return pwd.getpwnam(account).pw_gid


def _free_ports() -> Iterator[int]:
    for port in random.sample(_PORTS, _TRIES):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                continue
        yield port


def _children(parent: int) -> Iterator[int]:
    """The children of a process. Where there is no /proc none is found: they notice by themselves, a little later."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name stands in brackets and may hold anything; the parent is the second field after it.
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) == parent:
                yield int(stat.parent.name)


def _lives(process: int) -> bool:
    """Whether a process is there, and no zombie that nobody has buried yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _commands(parent: int) -> Iterator[str]:
    while os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin], [], [], 1.0)
        if readable:
            # A command follows only after the answer to the one before, so there is never a second line in the buffer.
            line = sys.stdin.readline()
            if not line:
                return
            yield line.strip()


def _answer(command: Callable[[], int | None]) -> None:
    try:
        answer: dict[str, int | str | None] = {"done": command()}
    except (_ServerError, OSError) as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)  # noqa: T201 (how it answers)


def main() -> None:
    """Obey until the parent is gone, then leave nothing behind."""
    settings: GuardSettings = json.loads(sys.stdin.readline())
    guard = PostgresGuard(settings)
    commands: dict[str, Callable[[], int | None]] = {"start": guard.start, "stop": guard.stop, "kill": guard.kill}
    try:
        _answer(guard.init)
        for command in _commands(settings["parent"]):
            _answer(commands[command])
    except BrokenPipeError:
        pass
    finally:
        guard.close()


if __name__ == "__main__":
    main()
