"""The pytest plugin counts the rows that a run took, over all workers, and fails a run that left some out.

Most tests run pytest inside this process, which is fast; what the inner runs take is not counted as this run's.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwright_proof.draw import read_row_counts
from turnwright_states.chart import CHART, ROWS

pytest_plugins = ["pytester"]

PLUGIN = ("-p", "turnwright_testing.plugin", "-p", "no:cacheprovider")
#: Each takes rows 11 and 16: a step starts, and the model answers.
ANSWERS = """
    import pytest
    from turnwright_states import ModelRepliedInput, StartedInput, TurnMachine

    @pytest.mark.parametrize("number", range({times}))
    def test_answers(number):
        machine, _ = TurnMachine.start(StartedInput(prompt="x"))
        machine.feed(ModelRepliedInput(text="y"))
"""
#: Takes every row once, whatever its guard says.
EVERY_ROW = """
    from turnwright_states.chart import CHART

    def test_every_row():
        for place in range(len(CHART.taken)):
            CHART.taken[place] += 1
"""


@pytest.fixture(autouse=True)
def counts_stay() -> Iterator[None]:
    """Afterwards this process has taken the rows that it had taken before."""
    before = list(CHART.taken)
    yield
    CHART.taken[:] = before


def _counts(path: Path) -> dict[int, int]:
    """The rows that were taken, with how often."""
    return {number: count for number, count in enumerate(read_row_counts(path).taken, start=1) if count}


def test_run_lists_the_untaken_rows(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ANSWERS.format(times=3))
    result = pytester.runpytest_inprocess(*PLUGIN, "--turnwright-rows")
    result.assert_outcomes(passed=3)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["*= rows of the chart =*", "2 of 75 rows of chart 4 taken, 6 times in all", "never taken:"], consecutive=True
    )
    options = [line.split(maxsplit=1) for line in result.outlines if "--" in line and line.startswith("  ")]
    assert options == [[str(n), row.name] for n, row in enumerate(ROWS, start=1) if n not in (11, 16)]


def test_untaken_required_row_fails_the_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ANSWERS.format(times=1))
    result = pytester.runpytest_inprocess(*PLUGIN, "--turnwright-rows-require")
    result.assert_outcomes(passed=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["FAILED: 73 rows were never taken (--turnwright-rows-require)"])


def test_run_taking_every_row_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(EVERY_ROW)
    result = pytester.runpytest_inprocess(*PLUGIN, "--turnwright-rows-require")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["75 of 75 rows of chart 4 taken, 75 times in all"])
    result.stdout.no_fnmatch_line("*never taken*")


def test_failing_run_keeps_the_exit_status(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(")
    result = pytester.runpytest_inprocess(*PLUGIN, "--turnwright-rows-require")
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_run_without_an_option_prints_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ANSWERS.format(times=1))
    result = pytester.runpytest_inprocess(*PLUGIN)
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*rows*")


def test_collecting_takes_and_requires_no_rows(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ANSWERS.format(times=1))
    result = pytester.runpytest_inprocess(*PLUGIN, "--collect-only", "--turnwright-rows-require")
    assert result.ret == 0


def test_rows_taken_before_the_run_are_not_counted(pytester: pytest.Pytester) -> None:
    """A row that is taken while pytest starts up says nothing about the tests."""
    pytester.makepyfile(ANSWERS.format(times=1))
    pytester.makepyfile(
        early="""
        from turnwright_states import StartedInput, TurnMachine

        TurnMachine.start(StartedInput(prompt="x"))
        """
    )
    file = pytester.path / "rows.json"
    pytester.syspathinsert()
    result = pytester.runpytest_inprocess("-p", "early", *PLUGIN, "--turnwright-rows-file", file)
    assert result.ret == 0
    assert _counts(file) == {11: 1, 16: 1}


@pytest.mark.slow
def test_counts_of_workers_are_added_up(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["turnwright_testing.plugin"]')
    pytester.makepyfile(ANSWERS.format(times=4))
    result = pytester.runpytest_inprocess("-n", "2", "--turnwright-rows", "--turnwright-rows-file", "rows.json")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["2 of 75 rows of chart 4 taken, 8 times in all"])
    assert _counts(pytester.path / "rows.json") == {11: 4, 16: 4}


@pytest.mark.slow
def test_dead_worker_is_reported(pytester: pytest.Pytester) -> None:
    """Else its rows would look as if nobody had taken them."""
    pytester.makepyfile("import os\n\ndef test_dies():\n    os._exit(1)\n")
    result = pytester.runpytest_inprocess(*PLUGIN, "-n", "1", "--max-worker-restart", "0", "--turnwright-rows")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["workers that died before they handed in their counts: 1; what they took is missing"])


def test_file_in_a_missing_folder_is_a_usage_error(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(*PLUGIN, "--turnwright-rows-file", "none/rows.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --turnwright-rows-file none/rows.json: there is no folder *none"])


def test_unwritable_file_fails_the_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ANSWERS.format(times=1))
    (pytester.path / "rows.json").mkdir()
    result = pytester.runpytest_inprocess(*PLUGIN, "--turnwright-rows-file", "rows.json")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["FAILED: --turnwright-rows-file: *rows.json: Is a directory"])


@pytest.mark.slow
def test_file_contains_the_drawing_command_and_is_drawable(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ANSWERS.format(times=2))
    result = pytester.runpytest_inprocess(*PLUGIN, "--turnwright-rows-file", "rows.json")
    file = pytester.path / "rows.json"
    result.stdout.fnmatch_lines([f"written to {file}; to see it: turnwright diagram --format svg --coverage *"])
    assert json.loads(file.read_text(encoding="utf-8"))["schema"] == "turnwright/rows/1"
    drawn = pytester.run(sys.executable, "-m", "turnwright", "diagram", "--format", "table", "--coverage", file)
    assert drawn.ret == 0
    drawn.stdout.fnmatch_lines(["[*][*]2 of 75 rows taken[*][*]", "| 11 | 2 * | CHECK *"])
