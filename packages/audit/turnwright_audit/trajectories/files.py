"""Finds recordings in files, folders, archives and standard input, and reads their runs."""

import io
import os
import stat
import sys
import time
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from .accounting import call_mark, count_calls, misread
from .archives import UNPACKING_ERRORS, Bounds, Meter, Problem, keep, reason, unpack
from .atif import Trajectory
from .formats import FORMATS, Format, format_of
from .source import EmptyRecordingError, Recording, UnreadableRecordingError, may_hold_runs, opener

STDIN: Final = "-"
#: Seconds in which a program must begin to write to a pipe, or open it.
_PATIENCE: Final = 3.0
#: The runs of a file without any call so far that are held back until one comes, or the account of the file is made.
_MOST_HELD: Final = 1000
#: What the name of a SQLite database's log ends in: new data are in it first.
_LOG: Final = "-wal"
#: Folders that hold no recordings of runs, but many files.
_LEFT_OUT: Final = frozenset({".git", "node_modules", "__pycache__"})


class FoundFile(NamedTuple):
    """A file to read, with its size in bytes. `problem` is the reason why it, or a folder, cannot be read.

    `named`: its path was given, so that it is a problem if it is not a recording. `changed_at` is the time of its last
    change, or of its log if it is a SQLite database, in nanoseconds since 1970.
    """

    path: str
    size: int
    problem: str = ""
    named: bool = False
    changed_at: int = 0


class Run(NamedTuple):
    """One run of a recording. `found` is a `Problem` where a file, or the rest of it, could not be read."""

    file: str
    format: Format | None
    found: Trajectory | Problem


def runs(
    paths: Iterable[str | Path],
    format: Format | None = None,  # noqa: A002 (the command's word)
    *,
    stdin: BinaryIO | None = None,
    bounds: Bounds | None = None,
) -> "Runs":
    """Return the runs at these paths, to iterate over once.

    A path is a file, a folder (with all below it), an archive, or `-` for standard input. Without a `format`, it is
    recognized for each file. Files are read in the order of their names, members in that of the archive, one by one.
    """
    return Runs(find(paths), format, stdin, bounds)


def find(paths: Iterable[str | Path]) -> Iterator[FoundFile]:
    """Yield the files at paths, each once, also if several paths lead to it. Standard input has no size."""
    names = dict.fromkeys(str(path) for path in paths)
    named_files = {os.path.realpath(name) for name in names}
    seen_files: set[str] = set()
    for name in names:
        for file in [FoundFile(STDIN, 0)] if name == STDIN else _below(name):
            own_path = STDIN if name == STDIN else os.path.realpath(file.path)
            if own_path not in seen_files:
                seen_files.add(own_path)
                yield file._replace(named=name == STDIN or own_path in named_files)


class Runs:
    """The runs in files that were found, read while it is iterated over.

    `files` is the number of recordings read, `skipped` that of files in folders and archives that are not recordings.
    `first_skipped` is the name of the first of these. `done` and `size` are bytes on disk.
    """

    def __init__(
        self,
        files: Iterable[FoundFile],
        format: Format | None = None,  # noqa: A002 (the command's word)
        stdin: BinaryIO | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self._files = tuple(files)
        self._format = format
        self._stdin = stdin
        self._bounds = bounds or Bounds()
        self._before = 0
        self._meter = Meter(0, self._bounds)
        self.files = 0
        self.skipped = 0
        self.first_skipped = ""

    @property
    def done(self) -> int:
        """The bytes on disk that are read."""
        return self._before + self._meter.position

    def size(self) -> int:
        """Return the bytes on disk of all files. Standard input counts as nothing."""
        return sum(file.size for file in self._files)

    def __iter__(self) -> Iterator[Run]:
        for file in self._files:
            if file.path == STDIN:
                stdin = self._stdin or (sys.stdin and sys.stdin.buffer)
                yield from self._one_pass(STDIN, stdin or io.BytesIO())  # a program may begin with its input closed
            elif file.problem:
                yield Run(file.path, None, Problem(file.path, file.problem))
            else:
                yield from self._file(file, is_named=file.named)
            self._before += file.size
            self._meter = Meter(0, self._bounds)

    def _file(self, file: FoundFile, *, is_named: bool) -> Iterator[Run]:
        path = Path(file.path)
        if path.is_file():
            recording = Recording(file.path, opener(path))
            recording.path = path
            recording.beside = partial(_beside, path)
            yield from self._recording(recording, file.size, is_named=is_named)
            return
        try:  # a pipe of the shell, which can be read only once
            with io.FileIO(path, opener=_open_at_once) as stream:
                yield from self._one_pass(
                    file.path, cast("BinaryIO", stream), _read_beginning(stream) if path.is_fifo() else b""
                )
        except OSError as error:
            yield Run(file.path, None, Problem(file.path, reason(error)))

    def _one_pass(self, name: str, stream: BinaryIO, head: bytes = b"") -> Iterator[Run]:
        recording, problem = keep(name, stream, self._bounds, head)
        yield from self._recording(recording, self._bounds.memory, is_named=True)
        if problem is not None:
            yield Run(name, None, problem)

    def _recording(self, file: Recording, size: int, *, is_named: bool) -> Iterator[Run]:
        self._meter = Meter(size, self._bounds)
        for recording in unpack(file, self._meter, is_named=is_named):
            if isinstance(recording, Problem):
                yield Run(recording.file, None, recording)
            else:
                yield from self._runs(recording, is_named=is_named and recording.name == file.name)

    def _runs(self, recording: Recording, *, is_named: bool) -> Iterator[Run]:
        """Yield the runs of one recording.

        One that is none is a problem only if it is named itself, or has calls. The runs of one that was taken for
        another format are left out.
        """
        run_format = None
        number = calls = 0
        empty = unread = False
        head = b""
        held_runs: list[Run] = []
        try:
            head = recording.head
            if is_named or may_hold_runs(head):
                run_format = self._format or format_of(recording)
            for run in run_format.read(recording) if run_format else ():
                calls += count_calls(run)
                held_runs.append(Run(recording.name, run_format, run))
                if calls or len(held_runs) >= _MOST_HELD:
                    number += len(held_runs)
                    yield from held_runs
                    held_runs = []
        except UnreadableRecordingError as error:
            problem = str(error)
            empty = isinstance(error, EmptyRecordingError)
        except UNPACKING_ERRORS as error:
            problem, unread = reason(error), True
        except Exception as error:  # noqa: BLE001 (one bad file must not end an audit of thousands)
            problem = f"the reader failed: {type(error).__name__}: {error}"
        else:
            problem = _misread(recording, run_format, calls) if run_format else _unknown(recording)
            held_runs = [] if problem else held_runs
        number += len(held_runs)
        yield from held_runs
        self.files += run_format is not None and (is_named or number > 0 or not problem)
        foreign = problem and not run_format and may_hold_runs(head) and call_mark([head])
        if problem and (is_named or number or unread or foreign or (run_format and not self._format and not empty)):
            yield Run(recording.name, run_format, Problem(recording.name, problem))
        elif problem:
            self.skipped += 1
            self.first_skipped = self.first_skipped or recording.name


def _beside(file: Path, relative: str) -> Recording | None:
    paths = file.parent.glob(relative) if "*" in relative else [file.parent / relative]
    path = next((path for path in paths if path.is_file() and not path.samefile(file)), None)
    return None if path is None else Recording(str(path), opener(path))


def _open_at_once(path: str, flags: int) -> int:
    """Open a file, or a pipe that no program has opened to write."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


def _read_beginning(pipe: io.FileIO) -> bytes:
    """Return the first byte of a pipe, or none if it comes later. Raises `OSError` if no program writes to it."""
    os.set_blocking(pipe.fileno(), False)
    until = time.monotonic() + _PATIENCE
    while (first := pipe.read(1)) == b"":
        if time.monotonic() > until:
            raise OSError("no program writes to this pipe")
        time.sleep(0.02)
    os.set_blocking(pipe.fileno(), True)
    return first or b""


def _misread(recording: Recording, format: Format, calls: int) -> str:  # noqa: A002 (the field's word)
    """Return the problem of a recording that was taken for this format; empty if there is none."""
    why = "" if format.exact else misread(recording, calls)
    return why and f"it was read as {format.name}, but {why}: it may be of another format, which no reader knows"


def _unknown(recording: Recording) -> str:
    if not recording.head:
        return "it is empty"
    if recording.head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "it is UTF-16: convert it to UTF-8"
    names = ", ".join(known_format.name for known_format in FORMATS)
    return f"its format is not known; if it is one of these, name it with --format: {names}"


def _below(path: str) -> Iterator[FoundFile]:
    """Yield the file at a path, or those below it, each folder once, ordered by name."""
    try:
        if os.path.isdir(path):  # noqa: PTH112 (paths stay text, as they are shown)
            yield from _walk(path, os.path.realpath(path), {_identity(path)})
        else:
            status = os.stat(path)  # noqa: PTH116
            is_readable = stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)
            file = _make_found_file(path, status, Path(path + _LOG))
            yield file if is_readable else file._replace(problem="it is a device or a socket, and not a file")
    except OSError as error:
        yield FoundFile(path, 0, reason(error))


def _walk(folder: str, root: str, seen_folders: set[tuple[int, int]]) -> Iterator[FoundFile]:
    """Yield the files below a folder. A link is followed unless its target is below the root anyway."""
    try:
        with os.scandir(folder) as folder_entries:
            entries = sorted(folder_entries, key=lambda entry: entry.name)
    except OSError as error:
        yield FoundFile(folder, 0, reason(error))
        return
    logs = {entry.name: entry for entry in entries if entry.name.endswith(_LOG)}
    for entry in entries:
        if entry.is_symlink() and _inside(os.path.realpath(entry.path), root):
            continue
        kind = _status(entry)
        if kind is None:
            continue
        if stat.S_ISREG(kind.st_mode):
            yield _make_found_file(entry.path, kind, logs.get(entry.name + _LOG))
        elif stat.S_ISDIR(kind.st_mode) and entry.name not in _LEFT_OUT:
            identity = _identity(entry.path)
            if identity not in seen_folders:
                seen_folders.add(identity)
                yield from _walk(entry.path, root, seen_folders)


def _make_found_file(path: str, kind: os.stat_result, log: "os.DirEntry[str] | Path | None") -> FoundFile:
    log_kind = None if log is None else _status(log)
    changed_at = kind.st_mtime_ns
    if log_kind is not None and log_kind.st_size:  # a reader may make an empty log
        changed_at = max(changed_at, log_kind.st_mtime_ns)
    return FoundFile(path, kind.st_size, changed_at=changed_at)


def _status(entry: "os.DirEntry[str] | Path") -> os.stat_result | None:
    """Return the status of a file; None for a link to nothing, or a file that is gone."""
    try:
        return entry.stat()
    except OSError:
        return None


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116
    return status.st_dev, status.st_ino


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)
