"""The evidence for the defaults, from public recordings: `docs/evidence.json`, and the tables of `docs/evidence.md`.

    python -m bench.evidence RUNS [--outcomes FILE]     measure
    python -m bench.evidence                            write the tables again

`bench/evidence.toml` names the recordings. The numbers are those of `turnwright audit`, which computes what limits do.
Times are CPU seconds of one process.
"""

import argparse
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from turnwright_audit.loops import LoopKind
from turnwright_audit.measure import RunMeasure, measure
from turnwright_audit.outcomes import Outcomes
from turnwright_audit.totals import Tally, Totals
from turnwright_audit.trajectories.archives import Problem
from turnwright_audit.trajectories.files import Run, Runs, find

_HERE: Final = Path(__file__).parent
_DOCS: Final = _HERE.parent / "docs"
_DETECTORS: Final = {
    "doom_threshold calls:3": "same calls, three times",
    "doom_threshold results:3": "same calls and results, three times",
    "doom_threshold results:3, 1 nudge": "the same, after a nudge",
    "detector errors:4": "same error, four times",
    "detector nothing:6": "nothing new for six rounds",
    "detector results:3 + errors:4 + nothing:6": "the same results, the same error, or nothing new",
}
_BUDGETS: Final = (20, 30, 50, 75, 100, 150, 200)


class Dataset(Struct, frozen=True):
    """Some public recordings. `labels`: "recorded", "outcomes", "done" or "none"."""

    folder: str
    name: str
    repository: str
    commit: str
    license: str
    era: str
    labels: str


class Acts(Struct, frozen=True):
    """The runs that a detector stops, those of them that had succeeded, and the share of failed runs' steps saved."""

    runs: int
    succeeded: int
    saved: float


class Of(Struct, frozen=True):
    """The numbers of a dataset. `good_calls` has p95, p99 and max; `stopped` the good runs that each budget stops."""

    format: str
    files: int
    runs: int
    steps: int
    calls: int
    unpaired: int
    loops: dict[str, int]
    seconds: float
    mib: float
    good: int
    good_calls: dict[str, int]
    stopped: dict[str, int]


class Evidence(Struct, frozen=True):
    """The numbers by dataset, and what each detector does by era. `labeled` has successes and failures by era."""

    datasets: dict[str, Of]
    detectors: dict[str, dict[str, Acts]]
    labeled: dict[str, tuple[int, int]]

    def to_json(self) -> str:
        """The numbers as JSON text, to be committed."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode() + "\n"


def datasets() -> list[Dataset]:
    """The datasets that the file names."""
    tables = tomllib.loads((_HERE / "evidence.toml").read_text(encoding="utf-8"))
    return msgspec.convert(tables["dataset"], list[Dataset])


def gather(folder: Path, outcomes: Outcomes | None) -> Evidence:
    """Measure the recordings in a folder."""
    eras: dict[str, Totals] = {}
    measured = {}
    for dataset in datasets():
        files = list(find([folder / dataset.folder]))
        reading = Runs(files)
        totals = Totals()
        start = time.process_time()
        for run in _measured(reading, dataset, outcomes):
            totals.take(run)
        seconds = time.process_time() - start
        measured[dataset.name] = _of(totals, reading.files, seconds, sum(file.size for file in files))
        eras.setdefault(dataset.era, Totals()).merge(totals)
    return Evidence(
        measured,
        {era: {name: _acts(totals, name) for name in _DETECTORS} for era, totals in eras.items()},
        {era: (totals.succeeded, totals.failed) for era, totals in eras.items()},
    )


def _measured(reading: Iterable[Run], dataset: Dataset, outcomes: Outcomes | None) -> Iterator[RunMeasure]:
    file, place = "", 0
    for run in reading:
        file, place = (run.file, place + 1) if run.file == file else (run.file, 0)
        if isinstance(run.found, Problem):
            raise SystemExit(f"{run.found.file}: {run.found.message}")
        measured_run = measure(run.found, run.file, place)
        if dataset.labels == "done":
            measured_run.success = measured_run.terminal > 0
        elif dataset.labels != "recorded":
            measured_run.success = (
                outcomes.of(measured_run, place) if outcomes and dataset.labels == "outcomes" else None
            )
        yield measured_run


def _of(totals: Totals, files: int, seconds: float, size: int) -> Of:
    loops = {kind.words: totals.kinds[kind].loops for kind in LoopKind if kind in totals.kinds}
    calls = totals.good.calls
    stopped = {str(budget): totals.tallies.get(f"tool_calls {budget}", Tally()).succeeded for budget in _BUDGETS}
    return Of(
        ", ".join(sorted(totals.formats)),
        files,
        totals.runs,
        totals.steps,
        totals.calls,
        totals.unpaired,
        loops,
        round(seconds, 2),
        round(size / 2**20, 1),
        totals.good.runs,
        {name: number for name, number in calls.shares().items() if name != "p50"},
        stopped,
    )


def _acts(totals: Totals, name: str) -> Acts:
    tally = totals.tallies.get(name, Tally())
    return Acts(tally.runs, tally.succeeded, round(tally.saved_failed / max(totals.failed_steps, 1), 4))


def put_into(page: str, evidence: Evidence) -> str:
    """The page with the tables between its marks."""
    tables = {"data": _data(evidence), "detectors": _detectors(evidence), "budgets": _budgets(evidence)}
    return put_tables(page, tables)


def put_tables(page: str, tables: Mapping[str, Iterable[str]]) -> str:
    """Return the page with the rows of each table between its marks. Raises `ValueError` if a mark is missing."""
    for mark, rows in tables.items():
        begin, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise ValueError(f"the page must have the marks of {mark} once")
        before, _, rest = page.partition(begin)
        page = "\n".join([before + begin, *rows, "", end + rest.partition(end)[2]])
    return page


def _data(evidence: Evidence) -> Iterator[str]:
    kinds = [kind.words for kind in LoopKind]
    yield from table_head(
        ("data", "format", "license"), "files", "runs", "steps", "calls", "unpaired", *kinds, "CPU s", "MiB"
    )
    datasets_by_name = {dataset.name: dataset for dataset in datasets()}
    for name, of in evidence.datasets.items():
        dataset = datasets_by_name[name]
        link = f"[{name}](https://github.com/{dataset.repository}/tree/{dataset.commit[:8]})"
        numbers = (of.files, of.runs, of.steps, of.calls, of.unpaired, *(of.loops.get(kind, 0) for kind in kinds))
        counts = (f"{number:,}" for number in numbers)
        yield table_row(link, of.format, dataset.license, *counts, f"{of.seconds}", f"{of.mib}")


def _detectors(evidence: Evidence) -> Iterator[str]:
    eras = [f"{era} ({good:,} ok, {bad:,} failed)" for era, (good, bad) in evidence.labeled.items()]
    yield from table_head(("a turn is stopped by",), *eras)
    for name, words in _DETECTORS.items():
        acts = (of[name] for of in evidence.detectors.values())
        yield table_row(words, *(f"{savings.runs:,} / {savings.succeeded:,} / {savings.saved:.1%}" for savings in acts))


def _budgets(evidence: Evidence) -> Iterator[str]:
    yield from table_head(("data",), "good runs", "p95", "p99", "max", *map(str, _BUDGETS))
    for name, of in evidence.datasets.items():
        if of.good:
            yield table_row(
                name, *(f"{number:,}" for number in (of.good, *of.good_calls.values(), *of.stopped.values()))
            )


def table_head(labels: Sequence[str], *right: str) -> Iterator[str]:
    """Yield the first two rows of a table, whose columns `right` are aligned to the right."""
    yield table_row(*labels, *right)
    yield table_row(*("---",) * len(labels), *("--:",) * len(right))


def table_row(*cells: str) -> str:
    """Return a row without spaces around its cells, for the words of the pages are counted."""
    return f"|{'|'.join(cells)}|"


def main(arguments: Sequence[str]) -> None:
    """Measure, or read what was measured, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.evidence")
    parser.add_argument("runs", type=Path, nargs="?")
    parser.add_argument("--outcomes", type=Path)
    options = parser.parse_args(arguments)
    numbers, page = _DOCS / "evidence.json", _DOCS / "evidence.md"
    if options.runs is not None:
        labels = None if options.outcomes is None else Outcomes.parse(options.outcomes.read_text(encoding="utf-8"))
        numbers.write_text(gather(options.runs, labels).to_json(), encoding="utf-8")
    evidence = msgspec.json.decode(numbers.read_bytes(), type=Evidence)
    page.write_text(put_into(page.read_text(encoding="utf-8"), evidence), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
