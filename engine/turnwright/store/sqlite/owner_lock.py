"""Who drives: one lock file a process, beside the store's file.

The operating system lets go of the lock when the process dies, however it dies, so nobody has to keep a heart beating,
and nobody can take a paused process for a dead one. The lock is the driver's alone: a process that it forked, with
`os.fork` or by `multiprocessing`, closes what it inherited, and may outlive it.
"""

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import IO, Final
from weakref import WeakSet

from turnwright._base.ids import process_name
from turnwright.errors import StoreError


class OwnerLock:
    """The name of this process among the drivers of a store, and the lock that says that it lives."""

    def __init__(self, store: Path) -> None:
        self._folder = store.parent
        self._stem = store.name
        self.name = process_name()
        self._file: IO[bytes] | None = None
        _LOCKS.add(self)

    def take(self) -> str:
        """Hold the lock from now on, and return the owner's name. Raises `StoreError` when it cannot be made."""
        if self._file is None:
            try:
                self._file = self._path(self.name).open("ab")
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                self.let_go()
                raise StoreError(f"store {self._folder / self._stem}: the driver's lock: {error.strerror}") from error
        return self.name

    def is_held(self, owner: str) -> bool:
        """Whether the process that calls itself `owner` still lives. A dead one's file is removed.

        Any number may ask at once, for they share the lock. Each of them may remove the file: no name comes again.
        """
        if not _NAME.fullmatch(owner):
            return False  # somebody changed the row: no process has such a name, and no other file is touched
        path = self._path(owner)
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        except OSError as error:
            raise StoreError(f"store {self._folder / self._stem}: the driver's lock: {error.strerror}") from error
        return False

    def let_go(self) -> None:
        """Give the lock up, and leave no file behind."""
        if self._file is not None:
            with suppress(OSError):
                self._path(self.name).unlink(missing_ok=True)
            self._file.close()
            self._file = None

    def leave_to_parent(self) -> None:
        """In a process that was just forked: neither hold nor give up the lock, which is the parent's."""
        self.name = process_name()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self, owner: str) -> Path:
        return self._folder / f"{self._stem}-owner-{owner}"


#: The form of what `process_name` makes.
_NAME: Final = re.compile(r"[0-9]{1,20}-[0-9a-f]{1,40}")
#: Those of this process.
_LOCKS: Final[WeakSet[OwnerLock]] = WeakSet()


def _leave_to_parent() -> None:
    for lock in list(_LOCKS):
        lock.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)
