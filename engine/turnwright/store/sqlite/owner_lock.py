"""The driver's lock of a SQLite store: one lock file for each process, beside the store's file.

The operating system releases the lock when the process dies. So no heartbeat is needed, and a suspended process does
not look dead. A forked process closes the lock file that it inherits, and may outlive the driver.
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
    """The name of this process among the drivers of a store, and the lock that shows that it is alive."""

    def __init__(self, store: Path) -> None:
        self._folder = store.parent
        self._stem = store.name
        self.name = process_name()
        self._file: IO[bytes] | None = None
        _LOCKS.add(self)

    def take(self) -> str:
        """Take the lock and return the owner's name. Raises `StoreError` if the lock file cannot be created."""
        if self._file is None:
            try:
                self._file = self._path(self.name).open("ab")
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                self.release()
                raise StoreError(
                    f"store {self._folder / self._stem}: the driver's lock: {error.strerror}: the"
                    " store's folder must exist and be writable"
                ) from error
        return self.name

    def is_held(self, owner: str) -> bool:
        """Whether the process with the name `owner` is alive. The file of a dead one is removed.

        Many processes may ask at once, because they share the lock. Each may remove the file: names are not reused.
        """
        if not _NAME.fullmatch(owner):
            return False  # a changed row: no process has such a name, and no other file may be removed
        path = self._path(owner)
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                with suppress(OSError):  # in a folder that cannot be written it stays
                    path.unlink(missing_ok=True)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        except OSError as error:
            raise StoreError(f"store {self._folder / self._stem}: the driver's lock: {error.strerror}") from error
        return False

    def release(self) -> None:
        """Release the lock and remove its file."""
        if self._file is not None:
            with suppress(OSError):
                self._path(self.name).unlink(missing_ok=True)
            self._file.close()
            self._file = None

    def leave_to_parent(self) -> None:
        """Close the inherited lock file in a forked process. The lock stays the parent's."""
        self.name = process_name()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self, owner: str) -> Path:
        return self._folder / f"{self._stem}-owner-{owner}"


#: The form of a name that `process_name` returns.
_NAME: Final = re.compile(r"[0-9]{1,20}-[0-9a-f]{1,40}")
#: The locks of this process.
_LOCKS: Final[WeakSet[OwnerLock]] = WeakSet()


def _leave_to_parent() -> None:
    for lock in list(_LOCKS):
        lock.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)
