"""Regular files, opened without waiting: every file that a user, a repository or a configuration names.

Opening a pipe waits for its other end, and a device such as `/dev/zero` never ends. Either would hang the command.
"""

import os
import stat
from contextlib import suppress
from errno import EFBIG, EINVAL, EISDIR
from pathlib import Path
from typing import BinaryIO, Final

# What is checked may be replaced before it is opened. `O_NONBLOCK` keeps that from waiting too.
_FLAGS: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


class FileTooLargeError(OSError):
    """A file is larger than its reader takes."""


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file to read its bytes, following links.

    Raises `OSError` with a `strerror` that says why: `IsADirectoryError` for a folder, and a plain one for a pipe, a
    socket or a device. Raises `ValueError` for a path with a null character in it.
    """
    # Opening a device can have an effect, so the name is checked before the handle is.
    _check(path, Path(path).stat().st_mode)
    file = os.fdopen(os.open(path, os.O_RDONLY | _FLAGS | getattr(os, "O_CLOEXEC", 0)), "rb")
    try:
        _check(path, os.fstat(file.fileno()).st_mode)
    except OSError:
        file.close()
        raise
    return file


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """Read a regular file of at most `most` bytes.

    Raises what `open_regular` raises, and `FileTooLargeError` for a larger file.
    """
    with open_regular(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise FileTooLargeError(EFBIG, f"larger than {most:,} bytes", os.fspath(path))
    return data


def write_regular(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a regular file, following links; one that is there is overwritten.

    Raises `OSError` as `open_regular` does.
    """
    with suppress(FileNotFoundError):
        _check(path, Path(path).stat().st_mode)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS
    with os.fdopen(os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o666), "wb") as file:
        _check(path, os.fstat(file.fileno()).st_mode)
        file.write(data)


def _check(path: str | os.PathLike[str], mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), os.fspath(path))
    if not stat.S_ISREG(mode):
        raise OSError(EINVAL, "not a regular file, but a pipe, a socket or a device", os.fspath(path))
