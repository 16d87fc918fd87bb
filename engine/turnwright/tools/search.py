"""Searching files for lines that contain a text or match a regular expression.

Python's `re` can run for ever on a few characters (`(a+)+b`) and blocks the interpreter, so neither a thread nor a
timeout helps. So a regular expression runs in a child process, which is killed at the timeout.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from threading import Timer
from typing import Final

from turnwright._base.words import cut_clean, escape_unprintable

from .errors import ToolFailedError
from .files import LEFT_OUT, is_binary
from .result import RESULT_LIMIT
from .workspace import FilePosition, is_folder, list_folder, open_file

HIT_LIMIT: Final = 100
#: The maximum size of a searched file in bytes. Larger files are mostly generated.
FILE_LIMIT: Final = 1024 * 1024
#: Characters of a line that are searched, and that are shown.
LINE_LIMIT: Final = 2_000
SHOWN_LIMIT: Final = 300
#: Seconds after which a search returns the hits so far, and a regular expression is killed.
SECONDS: Final = 10.0
_OUTPUT_LIMIT: Final = RESULT_LIMIT - 2 * 1024

#: Reads the pattern, then one list of lines per input line. Writes an error or null, then the numbers of the matches.
_CHILD: Final = """
import json, re, sys
try:
    pattern = re.compile(json.loads(sys.stdin.readline()))
except (re.error, RecursionError, OverflowError, MemoryError) as error:
    print(json.dumps(str(error)), flush=True)
    sys.exit()
print("null", flush=True)
for lines in sys.stdin:
    print(json.dumps([n for n, line in enumerate(json.loads(lines)) if pattern.search(line)]), flush=True)
"""

#: Returns the indexes of the lines that match.
Matcher = Callable[[list[str]], list[int]]


@dataclass(slots=True)
class _SearchResult:
    lines: list[str] = field(default_factory=list)
    size: int = 0
    skipped: int = 0
    stopped: str = ""


def search(place: FilePosition, pattern: str, *, glob: str | None, regex: bool, seconds: float = SECONDS) -> str:
    """Search a file, or every file below a folder. Returns at most `HIT_LIMIT` lines of the form `path:line: text`.

    `glob` selects files by name or by path below `place`. Links are not followed. Binary files, files larger than
    `FILE_LIMIT` and the folders in `LEFT_OUT` are skipped. After `seconds` the search returns its hits so far; a
    regular expression that still runs then is an error. Raises `ToolFailedError`.
    """
    until = time.monotonic() + seconds
    result = _SearchResult()
    if regex:
        with _regex(pattern, seconds) as match:
            _search(place, glob, match, until, result)
    else:
        _search(place, glob, lambda lines: [n for n, line in enumerate(lines) if pattern in line], until, result)
    notes = [f"[{result.stopped}]"] if result.stopped else []
    if result.skipped:
        notes.append(f"[skipped: {result.skipped} files or folders that are binary, too large or unreadable]")
    return "\n".join([*(result.lines or ["(nothing found)"]), *notes])


def _search(place: FilePosition, glob: str | None, match: Matcher, until: float, result: _SearchResult) -> None:
    for file, path in _walk_files(place, until, result):
        if _is_late(until, result):
            return
        if glob is not None and not _fits(path, glob):
            continue
        lines = _read(file)
        if lines is None:
            result.skipped += 1
            continue
        for number in match(lines):
            line = f"{file.shown_path}:{number + 1}: {escape_unprintable(cut_clean(lines[number], SHOWN_LIMIT))}"
            result.size += len(line.encode()) + 1
            if len(result.lines) == HIT_LIMIT or result.size > _OUTPUT_LIMIT:
                result.stopped = f"stopped after {len(result.lines)} hits: use a longer pattern or a smaller folder"
                return
            result.lines.append(line)


def _walk_files(place: FilePosition, until: float, result: _SearchResult) -> Iterator[tuple[FilePosition, str]]:
    """Yield each file below a folder, in order of names, with its path below the folder, until the time is up.

    The time is checked for each folder too, because a tree may have many folders and no file.
    """
    if not is_folder(place):
        yield place, place.parts[-1]
        return
    folders = [(place, "")]
    while folders:
        folder, path = folders.pop()
        try:
            entries = list_folder(folder, until=until)
        except ToolFailedError:
            if folder is place:
                raise
            result.skipped += 1
            continue
        if _is_late(until, result):
            return
        inner: list[tuple[FilePosition, str]] = []
        for entry in entries:
            if entry.kind == "file":
                yield folder.child(entry.name), path + entry.name
            elif entry.kind == "folder" and entry.name not in LEFT_OUT:
                inner.append((folder.child(entry.name), f"{path}{entry.name}/"))
        folders.extend(reversed(inner))


def _is_late(until: float, result: _SearchResult) -> bool:
    if time.monotonic() <= until:
        return False
    result.stopped = "stopped at the time limit: search a smaller folder"
    return True


def _fits(path: str, glob: str) -> bool:
    """Whether a glob matches a file's name or path. `**/` also matches no folder at all."""
    name = path.rpartition("/")[2]
    return any(fnmatchcase(text, form) for form in {glob, glob.replace("**/", "")} for text in (name, path))


def _read(place: FilePosition) -> list[str] | None:
    try:
        with open_file(place) as file:
            if is_binary(file):
                return None
            data = file.read(FILE_LIMIT + 1)
    except (ToolFailedError, OSError):
        return None
    if len(data) > FILE_LIMIT:
        return None
    return [line[:LINE_LIMIT].rstrip("\r") for line in data.decode(errors="replace").split("\n")]


@contextmanager
def _regex(pattern: str, seconds: float) -> Iterator[Matcher]:
    command = [sys.executable or "python3", "-I", "-S", "-W", "ignore", "-c", _CHILD]
    try:
        child = subprocess.Popen(  # noqa: S603 (our own interpreter and our own program; the pattern is its input)
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="ascii"
        )
    except OSError as error:
        raise ToolFailedError(f"regular expressions cannot run here ({error}): search for plain text") from error

    def ask(value: object) -> object:
        try:
            print(json.dumps(value), file=child.stdin, flush=True)
            answer = child.stdout.readline() if child.stdout else ""
        except OSError:
            answer = ""
        if not answer:
            raise ToolFailedError(
                f"the regular expression took more than {seconds:g} s, or crashed: simplify it, or search less"
            )
        return json.loads(answer)

    watchdog = Timer(seconds, child.kill)
    watchdog.daemon = True
    watchdog.start()
    try:
        if (problem := ask(pattern)) is not None:
            raise ToolFailedError(f"{cut_clean(pattern, 200)!r} is not a regular expression: {problem}")
        yield lambda lines: _numbers(ask(lines))
    finally:
        watchdog.cancel()
        child.kill()
        try:
            child.communicate()
        except (OSError, ValueError):
            child.wait()


def _numbers(answer: object) -> list[int]:
    return [number for number in answer if isinstance(number, int)] if isinstance(answer, list) else []
