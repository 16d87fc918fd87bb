"""Folder listings and file contents for a model, cut to a size that fits a result."""

import os
from typing import BinaryIO, Final

from turnwright._base.words import cut_utf8

from .errors import ToolFailedError
from .result import RESULT_LIMIT
from .workspace import SCAN_LIMIT, FilePosition, FolderEntry, list_folder, open_file

LIST_LIMIT: Final = 500
#: Bytes of text in one portion. The rest of a result's limit is for the notices.
READ_LIMIT: Final = RESULT_LIMIT - 1024
#: Bytes that are skipped at most to reach a line, so that one call cannot read an entire disk.
SKIP_LIMIT: Final = 256 * 1024 * 1024
#: Generated folders. They are listed without their contents.
LEFT_OUT: Final = frozenset({".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules"})
_PEEK: Final = 8 * 1024


def listing(place: FilePosition, *, recursive: bool) -> str:
    """List a folder, one entry per line. Folders end in `/`, files have a size. Raises `ToolFailedError`."""
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
            line = _describe_entry(folder.child(entry.name), entry, left_out=recursive and not enter)
            size += len(line.encode()) + 1
            if len(lines) == LIST_LIMIT or size > READ_LIMIT:
                return "\n".join([*lines, f"[cut after {len(lines)} entries; for the rest, list a folder in it]"])
            lines.append(line)
            if enter:
                inner.append(folder.child(entry.name))
        if len(entries) == SCAN_LIMIT:
            lines.append(f"[{folder.shown_path} has more than {SCAN_LIMIT} entries; the others are left out]")
        folders.extend(reversed(inner))
    return "\n".join(lines) or "(an empty folder)"


def portion(place: FilePosition, *, offset: int, limit: int | None) -> str:
    """Return the lines of a file from line `offset` on, counted from 1: at most `limit` lines and `READ_LIMIT` bytes.

    A notice names the next offset. Bytes that are not UTF-8 are replaced. A binary file is described by its size.
    Raises `ToolFailedError`.
    """
    with open_file(place) as file:
        size = os.fstat(file.fileno()).st_size
        if is_binary(file):
            return f"<a binary file of {size} bytes>"
        line_count = _skip(file, place, offset - 1)
        if line_count < offset - 1:
            return f"(the file has only {line_count} lines)" if line_count else "(an empty file)"
        return _read_lines(file, offset, limit) or (
            "(an empty file)" if offset == 1 else f"(the file has {line_count} lines)"
        )


def is_binary(file: BinaryIO) -> bool:
    """Whether a file begins with binary data. Leaves the file at its beginning."""
    head = file.read(_PEEK)
    file.seek(0)
    return b"\0" in head


def _describe_entry(place: FilePosition, entry: FolderEntry, *, left_out: bool) -> str:
    match entry.kind:
        case "folder":
            return f"{place.shown_path}/" + (" (not listed)" if left_out else "")
        case "file":
            return f"{place.shown_path} ({entry.size} bytes)"
        case "link":
            return f"{place.shown_path} (a link)"
        case "other":
            return f"{place.shown_path} (not a regular file)"


def _skip(file: BinaryIO, place: FilePosition, count: int) -> int:
    """Skip `count` lines and return how many there were. A last line without a line break counts."""
    line_count = size = 0
    inside = False  # in a line whose end was not read yet
    while line_count < count:
        piece = file.readline(RESULT_LIMIT)
        if not piece:
            return line_count + inside
        size += len(piece)
        if size > SKIP_LIMIT:
            raise ToolFailedError(
                f"line {count + 1} of {place.shown_path!r} is more than {SKIP_LIMIT} bytes into the file; use"
                " search_files"
            )
        inside = not piece.endswith(b"\n")
        line_count += not inside
    return line_count


def _read_lines(file: BinaryIO, offset: int, limit: int | None) -> str:
    lines: list[str] = []
    size = 0
    has_more = False
    while not has_more and (limit is None or len(lines) < limit):
        number = offset + len(lines)
        raw = file.readline(READ_LIMIT + 1)
        if not raw:
            return "".join(lines)
        data = raw.decode(errors="replace").encode()
        size += len(data)
        if size <= READ_LIMIT:
            lines.append(data.decode())
        elif lines:
            has_more = True
        else:
            return (
                f"{cut_utf8(data, READ_LIMIT)}\n[line {number} is longer than {READ_LIMIT} bytes and is cut here;"
                f" continue with offset={number + 1}]"
            )
    text = "".join(lines)
    if not has_more and not file.read(1):
        return text
    end = offset + len(lines)
    # Each kept line ends with a line break, because another line follows.
    return f"{text}[lines {offset} to {end - 1}; continue with offset={end}]"
