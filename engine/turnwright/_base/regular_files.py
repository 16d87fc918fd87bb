"""Opening regular files only, and without blocking, for paths from users, repositories and configurations.

Opening a pipe waits for its other end, and a device such as `/dev/zero` never ends. Both would hang the command.
"""

import os
import stat
from contextlib import suppress
from errno import EFBIG, EINVAL, EISDIR
from pathlib import Path
from typing import BinaryIO, Final

# A pipe may replace the file between the check and the opening. With `O_NONBLOCK` that does not block either.
_FLAGS: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


class FileTooLargeError(OSError):
    """A file is larger than the reader's limit."""


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading bytes. Links are followed.

    Raises `IsADirectoryError` for a folder, and `OSError` with an explaining `strerror` for a pipe, a socket or a
    device. Raises `ValueError` for a path with a null character.
    """
    # Opening a device may have an effect, so the path is checked first, and then the opened file.
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

    Raises the errors of `open_regular`, and `FileTooLargeError` for a larger file.
    """
    with open_regular(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise FileTooLargeError(EFBIG, f"larger than {most:,} bytes", os.fspath(path))
    return data


def write_regular(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a regular file, or overwrite it. Links are followed. Raises `OSError` as `open_regular` does."""
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
