"""Notices that the file of an open SQLite store was deleted or replaced.

SQLite goes on writing to the file that it has open, wherever that is now: every commit succeeds, and when the process
ends its journals are nowhere.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from turnwright.errors import StoreReplacedError


class StoreFiles:
    """The files of a store that was just opened at `path`, and is at `place` without links: the numbers that they have.

    Beside the database these are its log and the log's index, through which processes keep out of each other's way.
    Both stay for as long as one process has the store open; a store that may only be read may have none. A file that is
    open keeps its number, so that no other file can have it.
    """

    def __init__(self, path: Path, place: Path) -> None:
        self._path = path
        # Links are followed at each look: the file counts that others find there now.
        named = Path.cwd() / path
        self._files = tuple(_known(named, *(place.with_name(place.name + end) for end in ("-wal", "-shm"))))

    def check(self) -> None:
        """Raise `StoreReplacedError`, naming the file, unless each of them is the one that was opened."""
        for file, known in self._files:
            try:
                now = os.stat(file)  # noqa: PTH116 (asked once a step: a third of the calls of `Path.stat`)
            except OSError as error:
                raise self._lost(file, f"is gone ({error.strerror})") from error
            if (now.st_dev, now.st_ino) != known:
                raise self._lost(file, "is another file now")

    def _lost(self, file: str, what: str) -> StoreReplacedError:
        return StoreReplacedError(
            f"store {self._path}: {file} {what}: it was deleted, moved or replaced while it was open, and nothing that"
            " is written to it is kept: end this process; if the file was moved, put it back and resume the turn, else"
            " run the turn again"
        )


def _known(*files: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for file in files:
        try:
            now = file.stat()
        except FileNotFoundError:
            continue
        yield str(file), (now.st_dev, now.st_ino)
