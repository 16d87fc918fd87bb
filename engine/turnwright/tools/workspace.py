"""The folder that the built-in tools may read, and how a path of the model's is kept inside it.

A path is resolved first, with every link followed, and refused if what it leads to lies outside the root and outside
every grant. The resolved path has no links left, so it is then walked from the root one folder at a time, and no
link is followed: whoever swaps a folder for a link in between gets an error, not a file from elsewhere. What cannot
be seen from here is a hard link, which is the file itself, and a mount.
"""

import math
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from errno import EACCES, ELOOP, ENOENT, ENOTDIR, EPERM
from itertools import islice, takewhile
from pathlib import Path
from typing import BinaryIO, Final, Literal

from turnwright.errors import ConfigError

from .errors import ToolFailedError
from .text import one_line, shorten

#: Entries of one folder that are looked at, so that a folder of millions does not fill the memory.
SCAN_LIMIT: Final = 20_000
_PATH_LIMIT: Final = 4_096
#: Folders are passed through, not read: on Linux that needs no permission to list them.
_PASS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
#: Never wait: between the check and the opening a file may become a pipe.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

Kind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """What a folder holds under one name. `size` is in bytes."""

    name: str
    kind: Kind
    size: int


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A path that may be read. `parts` lead from `anchor` to it without links; `shown` is its name for the model."""

    anchor: str
    parts: tuple[str, ...]
    shown: str

    def child(self, name: str) -> "FilePosition":
        """Give the place of an entry of this folder."""
        shown = one_line(name) if self.shown == "." else f"{self.shown.rstrip('/')}/{one_line(name)}"
        return replace(self, parts=(*self.parts, name), shown=shown)


class Workspace:
    """The folder `root`, and what was granted beside it. Raises `ConfigError` if `root` is not a folder."""

    def __init__(self, root: Path) -> None:
        try:
            self.root = root.expanduser().resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise ConfigError(f"the root folder {root} cannot be used ({error}): give a folder that exists") from error
        if not self.root.is_dir():
            raise ConfigError(f"the root {root} is not a folder: give a folder that exists")

    def resolve(self, path: str) -> Path:
        """Follow `path` (from the root, from `/` or from `~`) through every link; raises `ToolFailedError`.

        What does not exist is resolved as far as it does.
        """
        shown = repr(shorten(path, 200))
        if "\0" in path or len(path) > _PATH_LIMIT:
            raise ToolFailedError(f"{shown} is not a path: it holds a NUL character or is too long")
        try:
            home = path == "~" or path.startswith("~/")
            real = (Path(path).expanduser() if home else self.root / path).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise ToolFailedError(f"{shown} is not a path that can be followed: {_why(error)}") from error
        return real

    def allows(self, real: Path, grants: Sequence[str]) -> bool:
        """Say whether a resolved path lies in the root or in a grant (itself a resolved path)."""
        return real.is_relative_to(self.root) or any(real.is_relative_to(grant) for grant in grants if grant)

    def place(self, path: str, grants: Sequence[str] = ()) -> FilePosition:
        """Give the place that `path` leads to; raises `ToolFailedError` if it may not be read."""
        real = self.resolve(path)
        if not self.allows(real, grants):
            raise ToolFailedError(
                f"{one_line(path)!r} leads to {one_line(str(real))!r}, outside the folder that you may read."
                " Call request_read_access with that path to ask a person for it"
            )
        if real.is_relative_to(self.root):
            inside = real.relative_to(self.root)
            return FilePosition(str(self.root), inside.parts, one_line(inside.as_posix()))
        return FilePosition(real.anchor, real.parts[1:], one_line(real.as_posix()))


def open_file(place: FilePosition) -> BinaryIO:
    """Open a regular file to read its bytes; raises `ToolFailedError` for anything else, without waiting for it."""
    if not place.parts:
        raise _refused(place, "is a folder: list_files shows what is in it")
    with _explained(place), _parent(place) as folder:
        name = place.parts[-1]
        _check(place, os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        file = os.fdopen(os.open(name, _READ, dir_fd=folder), "rb")
    try:
        _check(place, os.fstat(file.fileno()).st_mode)
    except BaseException:
        file.close()
        raise
    return file


def list_folder(place: FilePosition, *, until: float = math.inf) -> list[FolderEntry]:
    """List a folder by name, of a very large one only the first `SCAN_LIMIT` found; raises `ToolFailedError`.

    After the moment `until` of `time.monotonic`, it gives what it has found by then.
    """
    entries: list[FolderEntry] = []
    with _explained(place):
        if place.parts:
            with _parent(place) as folder:
                opened = os.open(place.parts[-1], _LIST, dir_fd=folder)
        else:
            opened = os.open(place.anchor, _LIST)
        try:
            with os.scandir(opened) as found:
                in_time = takewhile(lambda _: time.monotonic() <= until, found)
                entries.extend(_entry(entry) for entry in islice(in_time, SCAN_LIMIT))
        finally:
            os.close(opened)
    return sorted(entries, key=lambda entry: entry.name)


def is_folder(place: FilePosition) -> bool:
    """Say whether a place is a folder; raises `ToolFailedError` if there is nothing."""
    if not place.parts:
        return True
    with _explained(place), _parent(place) as folder:
        return stat.S_ISDIR(os.stat(place.parts[-1], dir_fd=folder, follow_symlinks=False).st_mode)


@contextmanager
def _parent(place: FilePosition) -> Iterator[int]:
    """Walk to the folder that holds a place, following no link, and give its descriptor."""
    folder = os.open(place.anchor, _PASS)
    try:
        for part in place.parts[:-1]:
            inner = os.open(part, _PASS, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


@contextmanager
def _explained(place: FilePosition) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise _refused(place, _why(error)) from error


def _check(place: FilePosition, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise _refused(place, "is a folder: list_files shows what is in it")
    if not stat.S_ISREG(mode):
        raise _refused(place, "is not a regular file (a device, a pipe, a socket or a link), and is not read")


def _entry(entry: os.DirEntry[str]) -> FolderEntry:
    try:
        info = entry.stat(follow_symlinks=False)
    except OSError:  # gone since
        return FolderEntry(entry.name, "other", 0)
    if stat.S_ISLNK(info.st_mode):
        return FolderEntry(entry.name, "link", 0)
    if stat.S_ISDIR(info.st_mode):
        return FolderEntry(entry.name, "folder", 0)
    return FolderEntry(entry.name, "file" if stat.S_ISREG(info.st_mode) else "other", info.st_size)


def _refused(place: FilePosition, why: str) -> ToolFailedError:
    return ToolFailedError(f"{place.shown!r} {why}")


def _why(error: Exception) -> str:
    if not isinstance(error, OSError):
        return "it is no valid name, or its links go in a circle"
    if error.errno == ENOENT:
        return "does not exist: list_files shows what does"
    if error.errno in (EACCES, EPERM):
        return "may not be read by this user"
    if error.errno in (ELOOP, ENOTDIR):
        return "is not a folder, or goes through something that is none"
    return f"cannot be read: {error.strerror or error}"
