"""Reads and measures runs, in several processes if there is much to read.

The measures of each run go to a file of their own folder, so memory does not grow with the number of runs.
"""

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final, NamedTuple, Self

import msgspec

from turnwright_audit.trajectories.archives import Problem
from turnwright_audit.trajectories.atif import Trajectory
from turnwright_audit.trajectories.files import STDIN, FoundFile, Runs, find
from turnwright_audit.trajectories.formats import format_named
from turnwright_audit.trajectories.source import UnreadableRecordingError
from turnwright_states.rules import RuleList

from .broken_rules import broken_rules
from .invariants import check_run
from .measure import RunMeasure, measure
from .outcomes import Outcomes
from .totals import Totals

#: Files are read in batches of about this size. Less than that is not worth another process.
_BATCH: Final = 4 * 1024**2
_MOST_FILES: Final = 100
_LENGTH: Final = 4
_encode = msgspec.msgpack.Encoder().encode
_decode_run = msgspec.msgpack.Decoder(RunMeasure).decode


class Settings(NamedTuple):
    """The settings of an audit: the format of all files, labels of runs, whether to check invariants, and rules."""

    format: str | None = None
    outcomes: Outcomes | None = None
    strict: bool = False
    rules: RuleList | None = None


class Batch(NamedTuple):
    """Some files that were read. `rows` is the file with the measures of their runs, `size` their bytes on disk.

    `labels` is the number of runs that the outcomes label.
    """

    rows: Path
    size: int
    files: int
    skipped: int
    first_skipped: str
    problems: list[Problem]
    totals: Totals
    labels: int

    def runs(self) -> Iterator[RunMeasure]:
        """Yield the measures of the runs, in order."""
        with self.rows.open("rb") as stream:
            while length := stream.read(_LENGTH):
                yield _decode_run(stream.read(int.from_bytes(length)))


class Audit:
    """An audit of the runs at some paths. Use it as a context manager: it has a temporary folder.

    Iterate over `batches`; then `totals`, `files`, `skipped`, `first_skipped`, `labels` and `runs` are known.
    `jobs` is the number of processes.
    """

    def __init__(self, paths: Iterable[str | Path], settings: Settings | None = None, *, jobs: int = 1) -> None:
        self._settings = settings or Settings()
        self._files = tuple(find(paths))
        self._jobs = jobs
        self._folder = TemporaryDirectory(prefix="turnwright-audit-")
        self._done: list[Batch] = []
        self.totals = Totals()
        self.files = self.skipped = self.labels = 0
        self.first_skipped = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._folder.cleanup()

    @property
    def size(self) -> int:
        """The bytes on disk of all files."""
        return sum(file.size for file in self._files)

    def batches(self, advance: Callable[[int], None] | None = None) -> Iterator[Batch]:
        """Yield batch by batch, in the order of the files. `advance` gets bytes on disk as they are read."""
        tasks = [
            _Task(files, self._settings, str(Path(self._folder.name) / str(number)))
            for number, files in enumerate(_make_batches(self._files))
        ]
        alone = self._jobs == 1 or len(tasks) <= 1 or any(file.path == STDIN for file in self._files)
        for batch in _read_here(tasks, advance) if alone else _elsewhere(tasks, self._jobs, advance):
            self.totals.merge(batch.totals)
            self.files += batch.files
            self.skipped += batch.skipped
            self.first_skipped = self.first_skipped or batch.first_skipped
            self.labels += batch.labels
            self._done.append(batch._replace(totals=Totals()))
            yield batch

    def runs(self) -> Iterator[RunMeasure]:
        """Yield the measures of all runs once more."""
        for batch in self._done:
            yield from batch.runs()


class _Task(NamedTuple):
    files: Sequence[FoundFile]
    settings: Settings
    rows: str


def _make_batches(files: Iterable[FoundFile]) -> Iterator[list[FoundFile]]:
    batch: list[FoundFile] = []
    size = 0
    for file in files:
        if batch and (size + file.size > _BATCH or len(batch) == _MOST_FILES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch


def _read_here(tasks: Iterable[_Task], advance: Callable[[int], None] | None) -> Iterator[Batch]:
    for task in tasks:
        yield _read(task, advance)


def _elsewhere(tasks: Sequence[_Task], jobs: int, advance: Callable[[int], None] | None) -> Iterator[Batch]:
    # A new interpreter, since a fork copies the threads of a progress bar, or their locks without them.
    workers = min(jobs, len(tasks))
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_leave_interrupts_to_the_parent) as pool:
        futures = deque(pool.submit(_read, task) for task in tasks)
        try:
            while futures:
                batch = futures.popleft().result()
                if advance:
                    advance(batch.size)
                yield batch
        finally:
            pool.shutdown(cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _read(task: _Task, advance: Callable[[int], None] | None = None) -> Batch:
    """Read some files. The measures of their runs are written to the file of the task."""
    settings = task.settings
    reading = Runs(task.files, format_named(settings.format) if settings.format else None)
    totals = Totals()
    problems: list[Problem] = []
    file, place, done_bytes, labels = "", 0, 0, 0
    with Path(task.rows).open("wb") as rows:
        for run in reading:
            if run.file != file:
                file, place = run.file, 0
            row = run.found if isinstance(run.found, Problem) else _measure(run.found, run.file, place, settings)
            if isinstance(row, Problem):
                problems.append(row)
            else:
                labels += settings.outcomes is not None and settings.outcomes.of(row, place) is not None
                totals.take(row)
                _write(rows, row)
                place += 1
            if advance:
                advance(reading.done - done_bytes)
                done_bytes = reading.done
    if advance:
        advance(reading.done - done_bytes)
    skip_counts = reading.skipped, reading.first_skipped
    return Batch(Path(task.rows), reading.done, reading.files, *skip_counts, problems, totals, labels)


def _measure(run: Trajectory, file: str, place: int, settings: Settings) -> RunMeasure | Problem:
    try:
        run_measure = measure(run, file, place)
        if settings.outcomes is not None and (label := settings.outcomes.of(run_measure, place)) is not None:
            run_measure.success = label
        if settings.strict:
            run_measure.invariants = check_run(run, file, run_measure.run)
        if settings.rules is not None:
            run_measure.rules = broken_rules(run, settings.rules)
    except Exception as error:  # noqa: BLE001 (one bad run must not end an audit of thousands)
        why = str(error) if isinstance(error, UnreadableRecordingError) else f"{type(error).__name__}: {error}"
        return Problem(file, f"run {place + 1} could not be audited: {why}")
    return run_measure


def _write(rows: BinaryIO, run: RunMeasure) -> None:
    try:
        row = _encode(run)
    except UnicodeEncodeError:  # half a surrogate pair, such as in a file's name that is not UTF-8
        row = _encode(_mend(msgspec.to_builtins(run)))
    rows.write(len(row).to_bytes(_LENGTH))
    rows.write(row)


def _mend(value: object) -> object:
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case list():
            return [_mend(item) for item in value]
        case dict():
            return {_mend(key): _mend(item) for key, item in value.items()}
        case _:
            return value


def cpus() -> int:
    """Return the number of processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
