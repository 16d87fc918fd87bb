"""The recorded runs at some paths: their measures in memory, and the runs themselves in a file of their own.

They are read in a thread, so that pages show those that were read meanwhile. Turns that were exported for another
inspector are no runs: they go to its store.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock, Thread
from typing import Final, Self

import anyio
import anyio.to_thread
import msgspec

from turnwright.audit.measure import RunMeasure, measure
from turnwright.errors import ConfigError, TurnwrightError
from turnwright.journal.transfer import import_turns
from turnwright.privacy.redaction import redactor
from turnwright.store import Store
from turnwright.trajectories.archives import Problem
from turnwright.trajectories.atif import Trajectory
from turnwright.trajectories.files import FoundFile, find, runs_of

#: Bytes that may hold the first line of an exported turn.
_HEAD: Final = 64 * 1024 * 1024
_decode = msgspec.json.Decoder(Trajectory).decode


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run in the list. `loops` is the number of its loops; `found` has its other measures.

    `names` are those that a search looks in, as pages show them: a search must not find out what is hidden.
    """

    number: int
    found: RunMeasure
    loops: int
    offset: int
    length: int
    names: tuple[str, ...]

    def matches(self, text: str) -> bool:
        """Whether the text is a part of a name of the run, in either case."""
        return any(text.casefold() in name for name in self.names)


class RunLibrary:
    """The runs at some paths. `reading` is true until all are read; `problems` could not be read.

    `turns` is the number of exported turns among them.

    Use it as a context manager: it has a temporary file. Raises `ConfigError` for a path that does not exist.
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
        self._runs = TemporaryFile()  # noqa: SIM115 (it is open as long as the library)
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._runs.close()

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
        file, place = "", 0
        for run in runs_of(self._files):
            if run.file != file:
                file, place = run.file, 0
            if isinstance(run.found, Problem):
                self.problems.append(run.found)
                continue
            try:
                self._keep(run.found, run.file, place)
            except Exception as error:  # noqa: BLE001 (one bad run must not hide the others)
                self.problems.append(Problem(file, f"run {place + 1} cannot be shown: {type(error).__name__}: {error}"))
            place += 1
        self.reading = False

    def run(self, number: int) -> tuple[RunEntry, Trajectory] | None:
        """Return a run; None for an unknown number."""
        if not 0 < number <= len(self.entries):
            return None
        entry = self.entries[number - 1]
        with self._lock:
            self._runs.seek(entry.offset)
            data = self._runs.read(entry.length)
        return entry, _decode(data)

    def _keep(self, run: Trajectory, file: str, place: int) -> None:
        found = measure(run, file, place)
        loops, found.loops, found.measured = len(found.loops), [], []
        data = _encoded(run)
        with self._lock:
            offset = self._runs.seek(0, 2)
            self._runs.write(data)
        names = (found.run, found.file, found.format, found.agent, found.model, found.ending)
        shown = tuple(redactor().hide(name).casefold() for name in names)
        self.entries.append(RunEntry(len(self.entries) + 1, found, loops, offset, len(data), shown))


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


def matching(entries: Sequence[RunEntry], text: str) -> Iterator[RunEntry]:
    """Yield the runs whose names have a text, in order; all for an empty one."""
    return (entry for entry in entries if not text or entry.matches(text))
