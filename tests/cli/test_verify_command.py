"""`turnwright verify`: its verdict and its report. That the checks hold is shown by the tests of the machine."""

import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from turnwright.cli.verify import verdict
from turnwright_states import Limits
from turnwright_states.chart import CHART
from turnwright_states.verify import Case, Violation, Walk, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Cli

SMALL = Case(Limits(steps=1, tool_calls=1, max_pauses=0, max_retries=0, doom_threshold=None), widest=1)


def test_counts_are_added_up_and_every_row_was_taken(capsys: pytest.CaptureFixture[str]) -> None:
    rest = Walk(walks=2, configurations=1_000, edges=2_000, ends={"aborted/aborted": 7}, rows=set(CHART.rows))
    small = walk(SMALL)
    assert verdict([small, rest]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert (
        f"walked {small.configurations + 1_000:,} configurations over {small.edges + 2_000:,} edges in 3 walks" in out
    )
    assert f"holds: every row of the chart was taken ({len(CHART.rows)})" in out
    assert "holds: the rank falls on every edge" in out
    (aborted,) = (line.split() for line in out.splitlines() if "aborted/aborted" in line)
    assert int(aborted[1]) == small.ends["aborted/aborted"] + 7


def test_a_row_that_no_walk_took_is_a_violation(capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict([walk(SMALL)]) == 1
    out, err = capsys.readouterr()
    assert "every row" not in out
    assert "violated: no walk took the row " in err


def test_a_fault_is_told_with_the_way_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    def walks() -> "Iterator[Walk]":
        yield walk(SMALL)
        raise Violation("the rank did not fall", SMALL.limits, ("ModelReplied", "CallStarted"))

    assert verdict(walks()) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "violated: the rank did not fall"
    assert err.splitlines()[-2:] == ["  1. ModelReplied", "  2. CallStarted"]


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="pgrep tells when the walks have begun")
def test_ctrl_c_ends_all_its_processes(cli: "Cli") -> None:
    """A terminal sends it to each of them; none shows a traceback."""
    with subprocess.Popen(
        [sys.executable, "-m", "turnwright", "verify", "--processes", "2"],
        cwd=cli.folder,
        env=cli.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        cli.await_children(process.pid, 2)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (130, "", "")
