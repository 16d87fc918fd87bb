"""The folder that the built-in tools may read, and the checks that keep a path inside it.

A path is resolved first, with all links followed, and refused if it leads outside the root and all grants. The resolved
path has no links. It is opened from the root, one folder at a time, without following links: if a folder is replaced by
a link in between, the result is an error and not a file from elsewhere. Hard links and mounts cannot be detected.
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

from turnwright._base.words import cut_clean, escape_unprintable
from turnwright.errors import ConfigError

from .errors import ToolFailedError

#: The maximum number of entries read of one folder, to limit the memory.
SCAN_LIMIT: Final = 20_000
_PATH_LIMIT: Final = 4_096
#: Parent folders are opened without reading them. On Linux that needs no permission to list them.
_PASS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
#: Non-blocking, because a file may become a pipe between the check and the opening.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

Kind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """An entry of a folder. `size` is in bytes."""

    name: str
    kind: Kind
    size: int


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A readable path. `parts` lead from `anchor` to it without links; `shown_path` is its name for the model."""

    anchor: str
    parts: tuple[str, ...]
    shown_path: str

    def child(self, name: str) -> "FilePosition":
        """Return the position of an entry of this folder."""
        shown_path = (
            escape_unprintable(name)
            if self.shown_path == "."
            else f"{self.shown_path.rstrip('/')}/{escape_unprintable(name)}"
        )
        return replace(self, parts=(*self.parts, name), shown_path=shown_path)


class Workspace:
    """The folder `root`, which the tools may read. Raises `ConfigError` if `root` is not a folder."""

    def __init__(self, root: Path) -> None:
        try:
            self.root = root.expanduser().resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise ConfigError(f"the root folder {root} cannot be used ({error}): give a folder that exists") from error
        if not self.root.is_dir():
            raise ConfigError(f"the root {root} is not a folder: give a folder that exists")

    def resolve(self, path: str) -> Path:
        """Resolve `path` (from the root, from `/` or from `~`) with all links; raises `ToolFailedError`.

        A path that does not exist is resolved as far as it exists.
        """
        shown_path = repr(cut_clean(path, 200))
        if "\0" in path or len(path) > _PATH_LIMIT:
            raise ToolFailedError(f"{shown_path} is not a path: it contains a NUL character or is too long")
        try:
            home = path == "~" or path.startswith("~/")
            real = (Path(path).expanduser() if home else self.root / path).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise ToolFailedError(
                f"{shown_path} is not a path that can be followed: {_explain_cause(error)}"
            ) from error
        return real

    def allows(self, real: Path, grants: Sequence[str]) -> bool:
        """Whether a resolved path is in the root or in a grant, which is a resolved path too."""
        return real.is_relative_to(self.root) or any(real.is_relative_to(grant) for grant in grants if grant)

    def place(self, path: str, grants: Sequence[str] = ()) -> FilePosition:
        """Return the position that `path` leads to; raises `ToolFailedError` if it may not be read."""
        real = self.resolve(path)
        if not self.allows(real, grants):
            raise ToolFailedError(
                f"{escape_unprintable(path)!r} leads to {escape_unprintable(str(real))!r}, outside the folder that you"
                " may read. Call request_read_access with that path to ask the user for access"
            )
        if real.is_relative_to(self.root):
            inside = real.relative_to(self.root)
            return FilePosition(str(self.root), inside.parts, escape_unprintable(inside.as_posix()))
        return FilePosition(real.anchor, real.parts[1:], escape_unprintable(real.as_posix()))


def open_file(place: FilePosition) -> BinaryIO:
    """Open a regular file for reading bytes; raises `ToolFailedError` for anything else, without blocking."""
    if not place.parts:
        raise _make_refusal(place, "is a folder: list_files shows what is in it")
    with _explain_errors(place), _open_parent(place) as folder:
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
    """List a folder in order of names, at most `SCAN_LIMIT` entries; raises `ToolFailedError`.

    At the time `until` of `time.monotonic`, it returns the entries found so far.
    """
    entries: list[FolderEntry] = []
    with _explain_errors(place):
        if place.parts:
            with _open_parent(place) as folder:
                descriptor = os.open(place.parts[-1], _LIST, dir_fd=folder)
        else:
            descriptor = os.open(place.anchor, _LIST)
        try:
            with os.scandir(descriptor) as scan:
                in_time = takewhile(lambda _: time.monotonic() <= until, scan)
                entries.extend(_make_entry(entry) for entry in islice(in_time, SCAN_LIMIT))
        finally:
            os.close(descriptor)
    return sorted(entries, key=lambda entry: entry.name)


def is_folder(place: FilePosition) -> bool:
    """Whether a position is a folder; raises `ToolFailedError` if it does not exist."""
    if not place.parts:
        return True
    with _explain_errors(place), _open_parent(place) as folder:
        return stat.S_ISDIR(os.stat(place.parts[-1], dir_fd=folder, follow_symlinks=False).st_mode)


@contextmanager
def _open_parent(place: FilePosition) -> Iterator[int]:
    """Open the folder that contains a position, without following links, and yield its descriptor."""
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
def _explain_errors(place: FilePosition) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise _make_refusal(place, _explain_cause(error)) from error


def _check(place: FilePosition, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise _make_refusal(place, "is a folder: list_files shows what is in it")
    if not stat.S_ISREG(mode):
        raise _make_refusal(place, "is not a regular file (but a device, a pipe, a socket or a link)")


def _make_entry(entry: os.DirEntry[str]) -> FolderEntry:
    try:
        info = entry.stat(follow_symlinks=False)
    except OSError:  # deleted meanwhile
        return FolderEntry(entry.name, "other", 0)
    if stat.S_ISLNK(info.st_mode):
        return FolderEntry(entry.name, "link", 0)
    if stat.S_ISDIR(info.st_mode):
        return FolderEntry(entry.name, "folder", 0)
    return FolderEntry(entry.name, "file" if stat.S_ISREG(info.st_mode) else "other", info.st_size)


def _make_refusal(place: FilePosition, why: str) -> ToolFailedError:
    return ToolFailedError(f"{place.shown_path!r} {why}")


def _explain_cause(error: Exception) -> str:
    if not isinstance(error, OSError):
        return "it is not a valid name, or its links form a circle"
    if error.errno == ENOENT:
        return "does not exist: list_files shows the existing files"
    if error.errno in (EACCES, EPERM):
        return "may not be read by this user"
    if error.errno in (ELOOP, ENOTDIR):
        return "is not a folder, or goes through a file or a link"
    return f"cannot be read: {error.strerror or error}"
