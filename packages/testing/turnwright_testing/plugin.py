"""A pytest plugin that reports which rows of the chart a test run took, and which it never took.

Enable it in the top conftest.py with `pytest_plugins = ["turnwright_testing.plugin"]`, or with
`-p turnwright_testing.plugin`. It is not a plugin that pytest loads by itself: every run would pay for importing
Turnwright, and tools that measure coverage would miss the lines that the import executes.

    --turnwright-rows              say at the end how many rows were taken, and name those that never were
    --turnwright-rows-file FILE    write the counts; `turnwright diagram --coverage FILE` draws them
    --turnwright-rows-require      fail the run (exit status 1) when a row was never taken

Counted is what the run took, not what was taken before it. With pytest-xdist the workers hand in their counts, and
the sum is reported. Rows taken in child processes of tests are not seen.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from turnwright._base.regular_files import write_regular
from turnwright_states.chart import VERSION
from turnwright_states.row_counts import RowCounts

_OUTPUT: Final = "turnwright_rows"
_NAME: Final = "turnwright-rows"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("turnwright", "Turnwright: the rows of the chart that the tests take")
    group.addoption("--turnwright-rows", action="store_true", help="Say which rows of the chart were never taken.")
    group.addoption(
        "--turnwright-rows-file",
        type=Path,
        metavar="FILE",
        help="Write how often each row was taken, for `turnwright diagram --coverage FILE`.",
    )
    group.addoption("--turnwright-rows-require", action="store_true", help="Fail when a row was never taken.")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count, if an option asks for it. Raises `UsageError` when the file's folder is not there."""
    if not any(config.getoption(f"turnwright_rows{suffix}") for suffix in ("", "_file", "_require")):
        return
    if hasattr(config, "workeroutput"):
        config.pluginmanager.register(_Worker(config), _NAME)
    else:
        config.pluginmanager.register(_Report(config), _NAME)


class _Worker:
    """The plugin in a worker of pytest-xdist: it sends the counts."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._before = RowCounts.now()

    def pytest_sessionfinish(self) -> None:
        rows_taken = (RowCounts.now() - self._before).taken
        output: dict[str, object] = self._config.workeroutput  # type: ignore[attr-defined]  # pytest-xdist's
        output[_OUTPUT] = list(rows_taken)


class _Report:
    """The plugin in the reporting process: it adds up the counts of the workers and its own."""

    def __init__(self, config: pytest.Config) -> None:
        file: Path | None = config.getoption("turnwright_rows_file")
        self._file = None if file is None else config.invocation_params.dir / file
        self._require = bool(config.getoption("turnwright_rows_require"))
        self._before = RowCounts.now()
        self._handed_in = RowCounts.zeros()
        self._silent_workers = 0
        self._summary: list[str] = []
        self._failed: list[str] = []
        if self._file is not None and not self._file.parent.is_dir():
            raise pytest.UsageError(f"--turnwright-rows-file {file}: there is no folder {self._file.parent}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        output = getattr(node, "workeroutput", {})
        if _OUTPUT in output:
            self._handed_in += RowCounts(tuple(output[_OUTPUT]))
        else:
            self._silent_workers += 1

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if session.config.getoption("collectonly"):
            return
        counts = self._handed_in + RowCounts.now() - self._before
        self._summary = list(_lines(counts, self._silent_workers))
        if self._file is not None:
            self._write(counts, self._file)
        if self._require and counts.untaken:
            were = "row was" if len(counts.untaken) == 1 else "rows were"
            self._failed.append(f"{len(counts.untaken)} {were} never taken (--turnwright-rows-require)")
        if self._failed and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._summary:
            return
        terminalreporter.section("rows of the chart")
        for line in self._summary:
            terminalreporter.line(line)
        for line in self._failed:
            terminalreporter.line(f"FAILED: {line}", red=True, bold=True)

    def _write(self, counts: RowCounts, file: Path) -> None:
        try:
            write_regular(file, counts.to_json().encode())
        except OSError as error:
            self._failed.append(f"--turnwright-rows-file: {file}: {error.strerror or error}")
        else:
            command = f"turnwright diagram --format svg --coverage {shlex.quote(str(file))} > rows.svg"
            self._summary.append(f"written to {file}; to see it: {command}")


def _lines(counts: RowCounts, silent_workers: int) -> Iterator[str]:
    total = len(counts.taken)
    yield f"{counts.covered} of {total} rows of chart {VERSION} taken, {sum(counts.taken)} times in all"
    if counts.untaken:
        yield "never taken:"
    for number, name in counts.untaken:
        yield f"  {number:>2}  {name}"
    if silent_workers:
        yield f"workers that died before they handed in their counts: {silent_workers}; what they took is missing"
