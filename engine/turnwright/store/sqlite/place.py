"""Detection of a store file that was deleted or replaced while it was open.

SQLite continues writing to the file that it has open. Every commit would succeed, and the journals would be lost when
the process ends.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from turnwright.errors import StoreReplacedError


class StoreFiles:
    """The inode numbers of the files of a store that was just opened at `path`. `place` is the path without links.

    The files are the database, its log and the log's index, which coordinates the processes. The log and its index
    exist while a process has the store open; a read-only store may have none. The inode number of an open file is not
    reused.
    """

    def __init__(self, path: Path, place: Path) -> None:
        self._path = path
        # Links are followed at each check, because other processes open the file that they lead to now.
        named = Path.cwd() / path
        self._files = tuple(_known(named, *(place.with_name(place.name + end) for end in ("-wal", "-shm"))))

    def check(self) -> None:
        """Raise `StoreReplacedError`, naming the file, unless each file is the one that was opened."""
        for file, known in self._files:
            try:
                now = os.stat(file)  # noqa: PTH116 (called once a step, with a third of the calls of `Path.stat`)
            except OSError as error:
                raise self._lost(file, f"is gone ({error.strerror})") from error
            if (now.st_dev, now.st_ino) != known:
                raise self._lost(file, "is another file now")

    def _lost(self, file: str, what: str) -> StoreReplacedError:
        return StoreReplacedError(
            f"store {self._path}: {file} {what}: it was deleted, moved or replaced while it was open, and writes to it"
            " are lost: end this process; if the file was moved, put it back and resume the turn, else run the turn"
            " again"
        )


def _known(*files: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for file in files:
        try:
            now = file.stat()
        except FileNotFoundError:
            continue
        yield str(file), (now.st_dev, now.st_ino)
