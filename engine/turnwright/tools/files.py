"""The list of a folder and the text of a file, in portions that fit a model."""

import os
from typing import BinaryIO, Final

from .errors import ToolFailedError
from .text import RESULT_LIMIT, cut
from .workspace import SCAN_LIMIT, FilePosition, FolderEntry, list_folder, open_file

LIST_LIMIT: Final = 500
#: Bytes of text in one portion; what is left of a result's limit is for the notices.
READ_LIMIT: Final = RESULT_LIMIT - 1024
#: Bytes that are passed over to reach a line, so that one call cannot read a disk from end to end.
SKIP_LIMIT: Final = 256 * 1024 * 1024
#: Folders that nobody wrote by hand: a model is told of them, and what is in them is left out.
LEFT_OUT: Final = frozenset({".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules"})
_PEEK: Final = 8 * 1024


def listing(place: FilePosition, *, recursive: bool) -> str:
    """List a folder, one entry a line: folders end in `/`, files have their size. Raises `ToolFailedError`."""
    lines: list[str] = []
    size = 0
    folders = [place]
    while folders:
        folder = folders.pop()
        try:
            entries = list_folder(folder)
        except ToolFailedError as error:
            if folder is place:
                raise
            lines.append(f"[{error}]")
            continue
        inner: list[FilePosition] = []
        for entry in entries:
            enter = recursive and entry.kind == "folder" and entry.name not in LEFT_OUT
            line = _line(folder.child(entry.name), entry, left_out=recursive and not enter)
            size += len(line.encode()) + 1
            if len(lines) == LIST_LIMIT or size > READ_LIMIT:
                return "\n".join([*lines, f"[cut: the first {len(lines)} entries; list a folder of it for the rest]"])
            lines.append(line)
            if enter:
                inner.append(folder.child(entry.name))
        if len(entries) == SCAN_LIMIT:
            lines.append(f"[{folder.shown} has more than {SCAN_LIMIT} entries; the rest is left out]")
        folders.extend(reversed(inner))
    return "\n".join(lines) or "(an empty folder)"


def portion(place: FilePosition, *, offset: int, limit: int | None) -> str:
    """Give the lines of a file from line `offset` (from 1) on, at most `limit` of them and `READ_LIMIT` bytes.

    A notice says where to go on. What is not UTF-8 is replaced; of a binary file only the size is given. Raises
    `ToolFailedError`.
    """
    with open_file(place) as file:
        size = os.fstat(file.fileno()).st_size
        if is_binary(file):
            return f"<a binary file of {size} bytes>"
        passed = _skip(file, place, offset - 1)
        if passed < offset - 1:
            return f"(the file has only {passed} lines)" if passed else "(an empty file)"
        return _lines(file, offset, limit) or ("(an empty file)" if offset == 1 else f"(the file has {passed} lines)")


def is_binary(file: BinaryIO) -> bool:
    """Say whether a file begins with what is no text; leaves it at its beginning."""
    head = file.read(_PEEK)
    file.seek(0)
    return b"\0" in head


def _line(place: FilePosition, entry: FolderEntry, *, left_out: bool) -> str:
    match entry.kind:
        case "folder":
            return f"{place.shown}/" + (" (not listed)" if left_out else "")
        case "file":
            return f"{place.shown} ({entry.size} bytes)"
        case "link":
            return f"{place.shown} (a link)"
        case "other":
            return f"{place.shown} (not a regular file)"


def _skip(file: BinaryIO, place: FilePosition, count: int) -> int:
    """Pass over `count` lines and give how many there were. A last line without a break is one too."""
    passed = read = 0
    inside = False  # a line whose end was not read yet
    while passed < count:
        piece = file.readline(RESULT_LIMIT)
        if not piece:
            return passed + inside
        read += len(piece)
        if read > SKIP_LIMIT:
            raise ToolFailedError(
                f"line {count + 1} of {place.shown!r} lies more than {SKIP_LIMIT} bytes into it; search it"
            )
        inside = not piece.endswith(b"\n")
        passed += not inside
    return passed


def _lines(file: BinaryIO, offset: int, limit: int | None) -> str:
    kept: list[str] = []
    size = 0
    more = False
    while not more and (limit is None or len(kept) < limit):
        number = offset + len(kept)
        raw = file.readline(READ_LIMIT + 1)
        if not raw:
            return "".join(kept)
        data = raw.decode(errors="replace").encode()
        size += len(data)
        if size <= READ_LIMIT:
            kept.append(data.decode())
        elif kept:
            more = True
        else:
            return (
                f"{cut(data, READ_LIMIT)}\n[line {number} is longer than {READ_LIMIT} bytes and is cut here;"
                f" go on with offset={number + 1}]"
            )
    text = "".join(kept)
    if not more and not file.read(1):
        return text
    end = offset + len(kept)
    # Each line that was kept ends in a break, for another follows it.
    return f"{text}[lines {offset} to {end - 1}; go on with offset={end}]"
