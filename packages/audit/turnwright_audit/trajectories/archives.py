"""Unpacks archives and compressed files of recorded runs, member by member, with bounded memory.

Nothing is written under a name from an archive: a member too large for memory is in a temporary file of its own.
"""

import bz2
import fnmatch
import glob
import gzip
import importlib
import lzma
import posixpath
import shutil
import tarfile
import tempfile
import weakref
import zipfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, Final, NamedTuple, cast

from .source import HEAD, Recording, may_hold_runs, opener

#: The names of packed files that are opened in folders and in archives. A path that is given is opened by its content.
SUFFIXES: Final = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".tzst", ".eval")
_NO_ZSTANDARD: Final = "it is packed with Zstandard: use Python 3.14 or newer, or `pip install backports.zstd`"
_ZIP_ZSTANDARD: Final = 93
_MAGIC: Final = {
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"\x1f\x8b": "gz",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zst",
}
_DEEPEST: Final = 2
_PIECE: Final = 256 * 1024
#: The errors of reading and unpacking a file that is damaged, encrypted, or packed in an unknown way.
UNPACKING_ERRORS: Final = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
)


class Problem(NamedTuple):
    """A file, or a member of an archive, that could not be read, and why."""

    file: str
    message: str


class Bounds(NamedTuple):
    """The bounds of unpacking, in bytes. An archive may unpack to `base` and `ratio` times its size.

    What does not fit into `memory` is in a temporary file in `folder`, by default that of the system.
    """

    memory: int = 32 * 1024**2
    member: int = 4 * 1024**3
    base: int = 1024**3
    ratio: int = 1000
    folder: Path | None = None


class Meter:
    """Counts what is unpacked. `position` is how far the archive is read, in bytes of the archive."""

    def __init__(self, size: int, bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self.position = 0
        self._remaining = self.bounds.base + size * self.bounds.ratio

    def take(self, number: int) -> None:
        """Count unpacked bytes. Raises `OSError` if there are too many."""
        self._remaining -= number
        if self._remaining < 0:
            raise OSError("it unpacks to more than its size allows, so it may be an archive bomb")


def packing(head: bytes) -> str | None:
    """Return how a file is packed, by its first bytes: "zip", "tar", "gz", "bz2", "xz", "zst", or None."""
    if head[257:262] == b"ustar":
        return "tar"
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def keep(
    name: str, stream: "BinaryIO | _Stream", bounds: Bounds, head: bytes = b""
) -> tuple[Recording, Problem | None]:
    """Return a recording of a stream that can be read only once, with the problem that ended the reading.

    `head` are its first bytes, if they were read already.
    """
    kept_bytes = bytearray(head)
    problem = None
    folder = file = None
    size = 0
    try:
        while piece := stream.read(_PIECE):
            size += len(piece)
            if size > bounds.member:
                raise OSError("it is too large")
            if file is None and size > bounds.memory:
                folder = Path(tempfile.mkdtemp(prefix="turnwright-", dir=bounds.folder))
                file = (folder / "recording").open("wb")
                file.write(kept_bytes)
                kept_bytes.clear()
            (kept_bytes.extend if file is None else file.write)(piece)
    except UNPACKING_ERRORS as error:
        problem = Problem(name, reason(error))
    if folder is None or file is None:
        return Recording.of(bytes(kept_bytes), name), problem
    file.close()
    recording = Recording(name, opener(Path(file.name)))
    weakref.finalize(recording, shutil.rmtree, folder, ignore_errors=True)
    return recording, problem


def reason(error: BaseException) -> str:
    """Return the words of an error, without the file that it names."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def unpack(
    recording: Recording, meter: Meter, *, is_named: bool = True, depth: int = 0
) -> Iterator[Recording | Problem]:
    """Yield the recordings in a file: its members if it is an archive, else the file itself, unpacked."""
    try:
        kind = packing(recording.head) if is_named or recording.name.lower().endswith(SUFFIXES) else None
    except UNPACKING_ERRORS as error:
        yield Problem(recording.name, reason(error))
        return
    if kind is None or depth == _DEEPEST:
        yield recording
        return
    try:
        with recording.open() as raw:
            if kind == "zip":
                yield from _zip(recording.name, raw, meter, depth)
            elif kind == "tar":
                yield from _tar(recording, raw, raw, meter, depth)
            else:
                yield from _read_compressed(recording, kind, raw, meter, depth)
    except Exception as error:  # noqa: BLE001 (the standard library's readers of archives raise anything)
        yield Problem(recording.name, reason(error))


def _read_compressed(
    recording: Recording, kind: str, raw: BinaryIO, meter: Meter, depth: int
) -> Iterator[Recording | Problem]:
    with _open_compressed(kind, raw) as stream_inside:
        stream = _Stream(stream_inside, meter)
        if packing(stream.peek(512)) == "tar":
            yield from _tar(recording, cast("BinaryIO", stream), raw, meter, depth)
        else:
            yield from _member(recording.name, stream, meter, _DEEPEST)


def _open_compressed(kind: str, raw: BinaryIO) -> BinaryIO:
    if kind == "gz":
        return cast("BinaryIO", gzip.GzipFile(fileobj=raw))
    if kind == "bz2":
        return cast("BinaryIO", bz2.BZ2File(raw))
    if kind == "xz":
        return cast("BinaryIO", lzma.LZMAFile(raw))
    zstd = _module("compression.zstd") or _module("backports.zstd")
    if zstd is None:
        raise OSError(_NO_ZSTANDARD)
    return cast("BinaryIO", zstd.ZstdFile(raw))


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _zip(name: str, raw: BinaryIO, meter: Meter, depth: int) -> Iterator[Recording | Problem]:
    knows = hasattr(zipfile, "ZIP_ZSTANDARD")
    newer = None if knows else _module("backports.zstd.zipfile")
    with (newer or zipfile).ZipFile(raw) as archive:
        if not (knows or newer) and any(info.compress_type == _ZIP_ZSTANDARD for info in archive.infolist()):
            yield Problem(name, _NO_ZSTANDARD)
            return

        def read(member: str) -> Recording:
            with archive.open(member) as stream:
                return keep(member, _Stream(cast("BinaryIO", stream), meter), meter.bounds)[0]

        siblings = _Siblings(name, archive.namelist, read)
        for info in archive.infolist():
            if info.is_dir():
                continue
            member = f"{name}:{info.filename}"
            try:
                with archive.open(info) as stream:
                    stream_inside = _Stream(cast("BinaryIO", stream), meter)
                    yield from _member(member, stream_inside, meter, depth, partial(siblings.find, info.filename))
            except Exception as error:  # noqa: BLE001 (as above)
                yield Problem(member, reason(error))
            meter.position += info.compress_size


def _tar(
    recording: Recording, stream: BinaryIO, raw: BinaryIO, meter: Meter, depth: int
) -> Iterator[Recording | Problem]:
    def scan() -> Iterator[tuple[str, BinaryIO | None]]:
        with recording.open() as again, tarfile.open(fileobj=again, mode="r|*") as archive:
            for info in archive:
                archive.members.clear()  # type: ignore[attr-defined] # it keeps them all
                yield info.name, cast("BinaryIO | None", archive.extractfile(info))

    def names() -> Iterator[str]:
        with suppress(*UNPACKING_ERRORS):
            yield from (name for name, _ in scan())

    def read(member: str) -> Recording:
        members = scan()  # which has the archive open
        stream = next(stream for name, stream in members if name == member and stream is not None)
        return keep(member, _Stream(stream, meter), meter.bounds)[0]

    siblings = _Siblings(recording.name, names, read)
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for info in archive:
            archive.members.clear()  # type: ignore[attr-defined] # it keeps them all
            member_stream = archive.extractfile(info) if info.isreg() else None
            if member_stream is not None:
                name = f"{recording.name}:{info.name}"
                stream_inside = _Stream(cast("BinaryIO", member_stream))
                yield from _member(name, stream_inside, meter, depth, partial(siblings.find, info.name))
            if not depth:
                meter.position = raw.tell()


def _member(
    name: str, stream: "_Stream", meter: Meter, depth: int, beside: Callable[[str], Recording | None] | None = None
) -> Iterator[Recording | Problem]:
    """Yield a member. Of one that is not a recording only the head is kept."""
    head = stream.peek(HEAD) or stream.read()  # which raises the error of a stream that has only that
    is_nested = depth + 1 < _DEEPEST and name.lower().endswith(SUFFIXES) and packing(head)
    if not is_nested and not may_hold_runs(head.removeprefix(BOM_UTF8)):
        yield Recording.of(head, name)
        return
    recording, problem = keep(name, stream, meter.bounds)
    recording.beside = beside or recording.beside
    yield from unpack(recording, meter, is_named=False, depth=depth + 1)
    if problem is not None:
        yield problem


class _Siblings:
    """The members of an archive, which `read` reads, as the files beside one another that they were."""

    def __init__(self, archive: str, names: Callable[[], Iterable[str]], read: Callable[[str], Recording]) -> None:
        self._archive = archive
        self._list_names = names
        self._read = read

    @cached_property
    def _names(self) -> dict[str, str]:
        return {posixpath.normpath(name): name for name in self._list_names()}

    def find(self, member: str, relative: str) -> Recording | None:
        """Return the recording at a path relative to the folder of a member, as `Recording.beside` does."""
        folder = posixpath.dirname(member)
        if "*" in relative:
            pattern = posixpath.normpath(posixpath.join(glob.escape(folder), relative))
            paths: Iterable[str] = fnmatch.filter(self._names, pattern)
        else:
            paths = [posixpath.normpath(posixpath.join(folder, relative))]
        names = (self._names[path] for path in paths if path in self._names)
        name = next((name for name in names if name != member), None)
        return None if name is None else Recording(f"{self._archive}:{name}", partial(self._open, name))

    def _open(self, name: str) -> BinaryIO:
        try:
            return self._read(name).open()
        except UNPACKING_ERRORS as error:
            raise OSError(reason(error)) from error


class _Stream:
    """A stream of unpacked bytes, which are counted. What comes before an error is kept."""

    def __init__(self, stream: BinaryIO, meter: Meter | None = None) -> None:
        self._read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
        self._meter = meter
        self._head = b""
        self._error: Exception | None = None

    def peek(self, number: int) -> bytes:
        """Return the next bytes, which are read again."""
        while len(self._head) < number and self._error is None:
            try:
                piece = self._read_next(number)
            except UNPACKING_ERRORS as error:
                self._error = error
            else:
                self._head += piece
                if not piece:
                    break
        return self._head[:number]

    def read(self, number: int = _PIECE) -> bytes:
        """Return the next bytes, not more than the number; none at the end."""
        if self._head:
            head, self._head = self._head[:number], self._head[number:]
            return head
        if self._error is not None:
            raise self._error
        return self._read_next(number)

    def _read_next(self, number: int) -> bytes:
        data = self._read(number)
        if self._meter is not None:
            self._meter.take(len(data))
        return data
