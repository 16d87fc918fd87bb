"""The recorded runs at some paths: their measures in memory, the runs and their texts in a temporary database.

They are read in a thread, so that pages show those that were read meanwhile. Later each page looks for files that are
new, have changed or are gone, by their names, sizes and times. Turns that were exported for another inspector are no
runs: they go to its store.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread
from typing import Final, NamedTuple, Self

import anyio
import anyio.to_thread
import msgspec

from turnwright.errors import ConfigError, TurnNotFoundError, TurnwrightError
from turnwright.journal.summarize import searched_text, shown_line
from turnwright.privacy.redaction import redactor
from turnwright.store import Store
from turnwright.store.sqlite.summaries import create_search, numbers_with
from turnwright.store.summaries import ToolCalls
from turnwright_audit.measure import RunMeasure, measure
from turnwright_audit.rounds import text_of
from turnwright_audit.trajectories.archives import Problem
from turnwright_audit.trajectories.atif import Trajectory
from turnwright_audit.trajectories.files import FoundFile, Runs, find
from turnwright_audit.trajectories.source import seconds_of
from turnwright_audit.transfer import import_turns

from .recorded_steps import tool_calls

#: Bytes that may hold the first line of an exported turn.
_HEAD: Final = 64 * 1024 * 1024
#: Characters of a run that a search looks in.
_TEXTS: Final = 2_000_000
#: Bytes of changed files that a page waits for.
_AT_ONCE: Final = 16 * 1024 * 1024
_decode = msgspec.json.Decoder(Trajectory).decode


class RunNames(NamedTuple):
    """The names of a run in lower case, as pages show them: a search must not find out what is hidden."""

    run: str
    file: str
    format: str
    agent: str
    model: str
    ending: str


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run in the list. `measures` has its measures, and `loops` is the number of its loops.

    `place` is the file, below the folder that was given. `prompt` is the beginning of its first message. `began` is the
    first moment in it, in seconds since the Unix epoch, and `seconds` the time from there to the last one; None where
    no times were recorded. `tools` has the calls of each tool, and their times if they were recorded. `read_from` is
    the file, or its archive, as it was read.
    """

    number: int
    measures: RunMeasure
    loops: int
    names: RunNames
    place: str
    prompt: str
    began: float | None
    seconds: float | None
    tools: Mapping[str, ToolCalls]
    read_from: FoundFile


@dataclass(slots=True)
class _ReadFile:
    """A file as it was when it was read: its runs, the exported turns in it, and what could not be read."""

    file: FoundFile
    entries: list[RunEntry] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


class RunLibrary:
    """The runs at some paths. `reading` is true until all are read.

    Use it as a context manager: it has a temporary database. Raises `ConfigError` for a path that does not exist.
    """

    def __init__(self, paths: Sequence[str | Path]) -> None:
        for path in paths:
            if not Path(path).exists():
                raise ConfigError(f"{path}: there is no such file or folder")
        self.reading = True
        self._paths = tuple(paths)
        self._above = f"{paths[0]}{os.sep}" if len(paths) == 1 else ""
        self._store: Store | None = None
        #: The files that were found last, in the order of the list, and the data read from them.
        self._found_files: dict[str, FoundFile] = {}
        self._read: dict[str, _ReadFile] = {}
        #: The numbers of the runs of each file, also of one that is gone: it may come back.
        self._numbers: dict[str, list[int]] = {}
        self._entries: dict[int, RunEntry] = {}
        self._last = 0
        self._waiting: list[FoundFile] | None = None
        self._unwanted: list[str] = []
        # The database without a name is a file that is gone when it is closed. Nothing is committed: none recovers it.
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("CREATE TABLE runs (number INTEGER PRIMARY KEY, run BLOB)")
        create_search(self._db)
        self._db.execute("BEGIN")
        self._lock = Lock()
        self._refreshing = anyio.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._db.close()

    @property
    def entries(self) -> list[RunEntry]:
        """The runs, in the order of their files."""
        return [entry for file in self._files() for entry in file.entries]

    @property
    def problems(self) -> list[Problem]:
        """The files, and parts of files, that could not be read."""
        return [problem for file in self._files() for problem in file.problems]

    @property
    def turns(self) -> int:
        """The number of exported turns in the files."""
        return sum(len(file.turns) for file in self._files())

    async def take_turns(self, store: Store) -> int:
        """Import the exported turns among the files into a store, and return how many there are.

        Those in files that come or change later are imported too.
        """
        self._store = store
        await self._look()
        return self.turns

    def start(self) -> None:
        """Begin to read in a thread that ends with the process."""
        Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        """Read all runs of files that are new or have changed."""
        waiting, self._waiting = self._waiting, None
        try:
            for file in self._list_changed() if waiting is None else waiting:
                self._read_file(file)
        finally:
            self.reading = False

    async def refresh(self, number: int | None = None) -> None:
        """Read what has changed at the paths, or only look at the file of one run first.

        Where much has changed, it is read in a thread, and `reading` is true meanwhile.
        """
        entry = self._entries.get(number or 0)
        if self.reading or (entry is not None and _is_as(entry.read_from)):
            return
        async with self._refreshing:
            if self.reading:
                return
            changed_files = await self._look()
            self.reading = bool(changed_files)
            if sum(file.size for file in changed_files) > _AT_ONCE:
                self.start()
            elif changed_files:
                await anyio.to_thread.run_sync(self.read)

    def run(self, number: int) -> tuple[RunEntry, Trajectory] | None:
        """Return a run; None for an unknown number."""
        with self._lock:
            entry = self._entries.get(number)
            if entry is None:
                return None
            (data,) = self._db.execute("SELECT run FROM runs WHERE number = ?", (number,)).fetchone()
        return entry, _decode(data)

    def is_stale(self, entry: RunEntry) -> bool:
        """Whether the file of a run has changed and is not read again yet."""
        return self._found_files.get(entry.read_from.path) != entry.read_from

    def saying(self, text: str) -> frozenset[int]:
        """Return the numbers of the runs whose prompts, answers, calls and results have the words of a text."""
        with self._lock:
            return frozenset(numbers_with(self._db, text))

    def _files(self) -> Iterator[_ReadFile]:
        return (file for path in list(self._found_files) if (file := self._read.get(path)) is not None)

    async def _look(self) -> list[FoundFile]:
        """Find the files to read, and import the exported turns among them."""
        changed_files = await anyio.to_thread.run_sync(self._list_changed)
        self._waiting = changed_files if self._store is None else await self._import(changed_files, self._store)
        return self._waiting

    def _list_changed(self) -> list[FoundFile]:
        """Return the files that are new or have changed, and forget those that are gone."""
        files = {file.path: file for file in find(self._paths)}
        self._found_files = files
        for path in self._read.keys() - files.keys():
            removed_file = self._read.pop(path)
            self._unwanted += removed_file.turns
            self._forget(removed_file.entries)
        changed_files = [
            file for path, file in files.items() if path not in self._read or self._read[path].file != file
        ]
        self._unwanted += (
            turn for file in changed_files if file.path in self._read for turn in self._read[file.path].turns
        )
        return changed_files

    async def _import(self, changed_files: Sequence[FoundFile], store: Store) -> list[FoundFile]:
        """Import the exported turns in these files, and return the other files."""
        while self._unwanted:
            with suppress(TurnNotFoundError):  # deleted with its caller
                await store.delete(self._unwanted.pop())
        exported_files = await anyio.to_thread.run_sync(lambda: [file for file in changed_files if _is_exported(file)])
        for file in exported_files:
            read_file = _ReadFile(file)
            try:
                lines = (await anyio.Path(file.path).read_bytes()).splitlines()
                read_file.turns = await import_turns(store, lines)
            except (TurnwrightError, OSError) as error:
                read_file.problems.append(Problem(file.path, str(error)))
            self._replace(read_file)
        return [file for file in changed_files if file not in exported_files]

    def _read_file(self, file: FoundFile) -> None:
        read_file, place, name = _ReadFile(file), 0, ""
        # The runs of a new file are listed while it is read, those of a changed one when it is read.
        self._read.setdefault(file.path, read_file)
        for run in Runs([file]):
            if run.file != name:
                name, place = run.file, 0
            if isinstance(run.found, Problem):
                read_file.problems.append(run.found)
                continue
            try:
                self._keep(run.found, run.file, place, read_file)
            except Exception as error:  # noqa: BLE001 (one bad run must not hide the others)
                read_file.problems.append(
                    Problem(name, f"run {place + 1} cannot be shown: {type(error).__name__}: {error}")
                )
            place += 1
        self._replace(read_file)

    def _replace(self, read_file: _ReadFile) -> None:
        """Put a file in the place of what was read of it before."""
        before = self._read.get(read_file.file.path)
        self._read[read_file.file.path] = read_file
        if before is not None:
            kept_numbers = {entry.number for entry in read_file.entries}
            self._forget([entry for entry in before.entries if entry.number not in kept_numbers])

    def _forget(self, entries: Sequence[RunEntry]) -> None:
        with self._lock:
            for entry in entries:
                self._entries.pop(entry.number, None)
                self._db.execute("DELETE FROM runs WHERE number = ?", (entry.number,))
                self._db.execute("DELETE FROM search WHERE rowid = ?", (entry.number,))

    def _number(self, file: str, place: int) -> int:
        """Return the number of the run at a place in a file; the same each time."""
        numbers = self._numbers.setdefault(file, [])
        if place == len(numbers):
            self._last += 1
            numbers.append(self._last)
        return numbers[place]

    def _keep(self, run: Trajectory, file: str, place: int, read_file: _ReadFile) -> None:
        measures = measure(run, file, place)
        loops, measures.loops, measures.measured = len(measures.loops), [], []
        hide = redactor().hide
        names = (measures.run, measures.file, measures.format, measures.agent, measures.model, measures.ending)
        times = [
            at
            for inner_run in run.every()
            for step in inner_run.steps
            if (at := seconds_of(step.timestamp)) is not None
        ]
        prompt = next((text_of(step.message) for step in run.steps if step.source == "user"), "")
        entry = RunEntry(
            number=self._number(read_file.file.path, len(read_file.entries)),
            measures=measures,
            loops=loops,
            names=RunNames(*(hide(name).casefold() for name in names)),
            place=file.removeprefix(self._above),
            prompt=shown_line(prompt, hide),
            began=min(times, default=None),
            seconds=max(times) - min(times) if len(times) > 1 else None,
            tools=tool_calls(run),
            read_from=read_file.file,
        )
        data, text = _encode(run), searched_text(_texts(run), hide, room=_TEXTS).encode(errors="replace").decode()
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?)", (entry.number, data))
            self._db.execute("DELETE FROM search WHERE rowid = ?", (entry.number,))
            self._db.execute("INSERT INTO search (rowid, text) VALUES (?, ?)", (entry.number, text))
            self._entries[entry.number] = entry
        read_file.entries.append(entry)


def _is_as(file: FoundFile) -> bool:
    """Whether a file is as it was found."""
    return next(find([file.path]), None) == file._replace(named=True)


def _texts(run: Trajectory) -> Iterator[str]:
    for inner_run in run.every():
        for step in inner_run.steps:
            yield text_of(step.message)
            for call in step.tool_calls or ():
                arguments = redactor().hide_fields(call.arguments)
                yield f"{call.function_name} {json.dumps(arguments, ensure_ascii=False)}"
            yield from (text_of(result.content) for result in step.results)


def _encode(run: Trajectory) -> bytes:
    plain = Trajectory(**{name: getattr(run, name) for name in Trajectory.__struct_fields__})
    try:
        return msgspec.json.encode(plain)
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(msgspec.to_builtins(plain)).encode()


def _is_exported(file: FoundFile) -> bool:
    """Whether a file has exported turns: its first line is a fact with the id of its turn."""
    if file.problem or not file.path.endswith(".jsonl"):
        return False
    try:
        with Path(file.path).open("rb") as stream:
            first = json.loads(stream.readline(_HEAD))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and first.keys() >= {"turn", "seq", "kind", "v", "created_at"}
