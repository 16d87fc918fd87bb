"""Opening the file of a SQLite store, also one that can only be read, such as one on a read-only disk.

A file in WAL mode is read with its log and the log's index. In a folder that cannot be written, SQLite creates neither.
If both exist, it reads with the process that writes. If neither does, the file is complete, and is read as one that
nobody changes (`immutable`). A log without its index cannot be read there, and without the log turns would be missing.

The connection never waits for a file that another process has locked (`busy_timeout` is 0), because it would stop every
turn of the process. `LockWait` waits instead, while the event loop runs.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple

import anyio

from turnwright.errors import ConfigError, StoreReplacedError

from .schema import Schema

Durability = Literal["full", "normal"]

#: Inode, size and time of the last change of the file, its log and the log's index; None for one that does not exist.
Files = tuple[tuple[int, int, int] | None, ...]
_ENDS: Final = ("", "-wal", "-shm")
#: Seconds between two attempts: SQLite's own. The last is repeated.
_DELAYS: Final = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.025, 0.025, 0.05, 0.05, 0.1)


class StoreFiles:
    """The inode numbers of the files of a store that was just opened at `path`. `place` is the path without links.

    SQLite continues writing to a file that was deleted or replaced while it was open. Every commit would succeed, and
    the journals would be lost when the process ends.

    The files are the database, its log and the log's index, which coordinates the processes. The log and its index
    exist while a process has the store open; a read-only store may have none. The inode number of an open file is not
    reused.
    """

    def __init__(self, path: Path, place: Path) -> None:
        self._path = path
        # Links are followed at each check, because other processes open the file that they lead to now.
        database = Path.cwd() / path
        self._files = tuple(_identities(database, *(place.with_name(place.name + end) for end in ("-wal", "-shm"))))

    def check(self) -> None:
        """Raise `StoreReplacedError`, naming the file, unless each file is the one that was opened."""
        for file, identity in self._files:
            try:
                now = os.stat(file)  # noqa: PTH116 (called once a step, with a third of the calls of `Path.stat`)
            except OSError as error:
                raise self._make_loss_error(file, f"is gone ({error.strerror})") from error
            if (now.st_dev, now.st_ino) != identity:
                raise self._make_loss_error(file, "is another file now")

    def _make_loss_error(self, file: str, change: str) -> StoreReplacedError:
        return StoreReplacedError(
            f"store {self._path}: {file} {change}: it was deleted, moved or replaced while it was open, and writes to"
            " it are lost: end this process; if the file was moved, put it back and resume the turn, else run the turn"
            " again"
        )


def _identities(*files: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for file in files:
        try:
            now = file.stat()
        except FileNotFoundError:
            continue
        yield str(file), (now.st_dev, now.st_ino)


class OpenFile(NamedTuple):
    """An open file. `read_only` are its files if it can only be read, else None."""

    db: sqlite3.Connection
    place: StoreFiles
    read_only: Files | None


def open_file(path: Path, place: Path, schema: Schema, durability: Durability, patience: float) -> OpenFile:
    """Open the file at `path`, whose real path is `place`. A missing file is created, readable for this user only.

    Only the creation of the tables may have to wait for another process, at most `patience` seconds. The connection
    does not wait afterwards (`LockWait`).

    Raises the errors of `sqlite3` and of the operating system, and `ConfigError` for a file that is not a store of
    `schema` or of an older version, or that cannot be read whole.
    """
    with suppress(FileExistsError):
        # SQLite would let everybody read it. The log gets the same permissions.
        place.touch(mode=0o600, exist_ok=False)
    read_only = read_only_files(path, place)
    is_frozen = read_only is not None and not all(read_only) and not os.access(place.parent, os.W_OK)
    address = f"{place.as_uri()}?mode=ro&immutable=1" if is_frozen else place
    db = sqlite3.connect(address, uri=is_frozen, timeout=patience, isolation_level=None)
    try:
        if read_only is None:
            schema.prepare(db, path, patience)
        db.execute("PRAGMA busy_timeout=0")
        db.execute(f"PRAGMA synchronous={'NORMAL' if durability == 'normal' else 'FULL'}")
        # Deleted data must not stay readable in the file's free pages.
        db.execute("PRAGMA secure_delete=ON")
        # Text that is not UTF-8 damages its own row only. By default `sqlite3` would fail for all rows of a query.
        db.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
        return OpenFile(db, StoreFiles(path, place), read_only)
    except BaseException:
        db.close()
        raise


def read_only_files(path: Path, place: Path) -> Files | None:
    """Return the files of a store that can only be read, and None for another one.

    If they change, the store has to be opened again. Sizes and times are left out where SQLite notices a change. Raises
    `ConfigError` for a log without its index.
    """
    files = tuple(map(_read_identity, (place.with_name(place.name + end) for end in _ENDS)))
    _, log, index = files
    if os.access(place.parent, os.W_OK) or (log and index):
        return None if os.access(place, os.W_OK) else tuple(file and (file[0], 0, 0) for file in files)
    if log and log[1]:
        raise ConfigError(
            f"store {path}: {place.name}-wal has turns that are not in the file yet, and cannot be read where nothing"
            " can be written: copy both files to a folder that can be written, and name the copy"
        )
    return files


def _read_identity(file: Path) -> tuple[int, int, int] | None:
    try:
        now = file.stat()
    except FileNotFoundError:
        return None
    return now.st_ino, now.st_size, now.st_mtime_ns


class LockWait:
    """The wait of one call, for at most `patience` seconds."""

    def __init__(self, patience: float) -> None:
        self._ends = time.monotonic() + patience
        self._attempts = 0

    async def pause(self) -> bool:
        """Wait until the next attempt. Return False, without waiting, if there is none."""
        remaining = self._ends - time.monotonic()
        if remaining <= 0:
            return False
        delay = _DELAYS[min(self._attempts, len(_DELAYS) - 1)]
        self._attempts += 1
        await anyio.sleep(min(delay, remaining))
        return True


def is_locked(error: BaseException) -> bool:
    """Whether SQLite raised this error because another connection has locked the file."""
    return isinstance(error, sqlite3.OperationalError) and (
        getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
    )
