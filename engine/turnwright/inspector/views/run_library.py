"""The recorded runs at some paths: their measures in memory, the runs and their texts in a temporary database.

They are read in a thread, so that pages show those that were read meanwhile. Turns that were exported for another
inspector are no runs: they go to its store.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, Thread
from typing import Final, NamedTuple, Self

import anyio
import anyio.to_thread
import msgspec

from turnwright.audit.measure import RunMeasure, measure
from turnwright.audit.rounds import text_of
from turnwright.errors import ConfigError, TurnwrightError
from turnwright.journal.summarize import searched_text, shown_line
from turnwright.journal.transfer import import_turns
from turnwright.privacy.redaction import redactor
from turnwright.store import Store
from turnwright.store.sqlite.summaries import create_search, numbers_with
from turnwright.trajectories.archives import Problem
from turnwright.trajectories.atif import Trajectory
from turnwright.trajectories.files import FoundFile, find, runs_of

#: Bytes that may hold the first line of an exported turn.
_HEAD: Final = 64 * 1024 * 1024
#: Characters of a run that a search looks in.
_TEXTS: Final = 2_000_000
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
    """A run in the list. `found` has its measures, and `loops` is the number of its loops.

    `place` is the file, below the folder that was given. `prompt` is the beginning of its first message. `began` is the
    first moment in it, in seconds since the Unix epoch, and `seconds` the time from there to the last one; None where
    no times were recorded. `changed_at` is when the file was changed last, None for a member of an archive.
    """

    number: int
    found: RunMeasure
    loops: int
    names: RunNames
    place: str
    prompt: str
    began: float | None
    seconds: float | None
    changed_at: int | None

    @property
    def standing(self) -> str:
        """Say whether the file has changed since it was read; empty if it has not."""
        if self.changed_at is None:
            return ""
        now = _changed_at(self.found.file)
        if now is None:
            return "The file is gone: this is what was read from it."
        return (
            "" if now == self.changed_at else "The file has changed since it was read: serve it again to see the rest."
        )


class RunLibrary:
    """The runs at some paths. `reading` is true until all are read; `problems` could not be read.

    `turns` is the number of exported turns among them.

    Use it as a context manager: it has a temporary database. Raises `ConfigError` for a path that does not exist.
    """

    def __init__(self, paths: Sequence[str | Path]) -> None:
        for path in paths:
            if not Path(path).exists():
                raise ConfigError(f"{path}: there is no such file or folder")
        self.entries: list[RunEntry] = []
        self.problems: list[Problem] = []
        self.reading = True
        self.turns = 0
        self._files = list(find(paths))
        self._above = f"{paths[0]}{os.sep}" if len(paths) == 1 else ""
        # The database without a name is a file that is gone when it is closed. Nothing is committed: none recovers it.
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("CREATE TABLE runs (number INTEGER PRIMARY KEY, run BLOB)")
        create_search(self._db)
        self._db.execute("BEGIN")
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._db.close()

    async def take_turns(self, store: Store) -> int:
        """Import the exported turns among the files into a store, and return how many there are."""
        for file in await anyio.to_thread.run_sync(lambda: list(filter(_is_exported, self._files))):
            self._files.remove(file)
            try:
                lines = (await anyio.Path(file.path).read_bytes()).splitlines()
                self.turns += len(await import_turns(store, lines))
            except (TurnwrightError, OSError) as error:
                self.problems.append(Problem(file.path, str(error)))
        return self.turns

    def start(self) -> None:
        """Begin to read in a thread that ends with the process."""
        Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        """Read all runs."""
        file, place, changed_at = "", 0, None
        for run in runs_of(self._files):
            if run.file != file:
                file, place, changed_at = run.file, 0, _changed_at(run.file)
            if isinstance(run.found, Problem):
                self.problems.append(run.found)
                continue
            try:
                self._keep(run.found, run.file, place, changed_at)
            except Exception as error:  # noqa: BLE001 (one bad run must not hide the others)
                self.problems.append(Problem(file, f"run {place + 1} cannot be shown: {type(error).__name__}: {error}"))
            place += 1
        self.reading = False

    def run(self, number: int) -> tuple[RunEntry, Trajectory] | None:
        """Return a run; None for an unknown number."""
        if not 0 < number <= len(self.entries):
            return None
        with self._lock:
            (data,) = self._db.execute("SELECT run FROM runs WHERE number = ?", (number,)).fetchone()
        return self.entries[number - 1], _decode(data)

    def saying(self, text: str) -> frozenset[int]:
        """Return the numbers of the runs whose prompts, answers, calls and results have the words of a text."""
        with self._lock:
            return frozenset(numbers_with(self._db, text))

    def _keep(self, run: Trajectory, file: str, place: int, changed_at: int | None) -> None:
        found = measure(run, file, place)
        loops, found.loops, found.measured = len(found.loops), [], []
        hide = redactor().hide
        names = (found.run, found.file, found.format, found.agent, found.model, found.ending)
        times = [at for one in run.every() for step in one.steps if (at := seconds_of(step.timestamp)) is not None]
        prompt = next((text_of(step.message) for step in run.steps if step.source == "user"), "")
        entry = RunEntry(
            number=len(self.entries) + 1,
            found=found,
            loops=loops,
            names=RunNames(*(hide(name).casefold() for name in names)),
            place=file.removeprefix(self._above),
            prompt=shown_line(prompt, hide),
            began=min(times, default=None),
            seconds=max(times) - min(times) if len(times) > 1 else None,
            changed_at=changed_at,
        )
        data, text = _encoded(run), searched_text(_texts(run), hide, room=_TEXTS).encode(errors="replace").decode()
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?)", (entry.number, data))
            self._db.execute("INSERT INTO search (rowid, text) VALUES (?, ?)", (entry.number, text))
        self.entries.append(entry)


def _changed_at(file: str) -> int | None:
    try:
        return os.stat(file).st_mtime_ns  # noqa: PTH116 (paths stay text)
    except (OSError, ValueError):
        return None


def seconds_of(timestamp: str | None) -> float | None:
    """Return a moment of a recording in seconds since the Unix epoch; None for one that nobody can read."""
    try:
        at = datetime.fromisoformat(timestamp) if timestamp else None
        return None if at is None else (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _texts(run: Trajectory) -> Iterator[str]:
    for one in run.every():
        for step in one.steps:
            yield text_of(step.message)
            for call in step.tool_calls or ():
                arguments = redactor().hide_fields(call.arguments)
                yield f"{call.function_name} {json.dumps(arguments, ensure_ascii=False)}"
            yield from (text_of(result.content) for result in (step.observation.results if step.observation else ()))


def _encoded(run: Trajectory) -> bytes:
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
