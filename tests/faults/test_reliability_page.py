"""`docs/evidence.md` has the tables of the last report, and a killed turn is recovered as it says."""

import re
import subprocess
import sys
from pathlib import Path

import anyio
from tests.campaigns.faults.audit import CLAIMS
from tests.campaigns.faults.report import FaultReport, put_into

from turnwright.cli.show import journal_lines
from turnwright.store import SqliteStore
from turnwright_states.facts import KINDS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "evidence.md").read_text(encoding="utf-8")
PROGRAM = Path(__file__).parent / "crash_program.py"
FACTS = """
   4  call_started  book (call00001)
   5  call_started  charge (call00002)
   6  call_settled  book (call00001): ok: booked
   7  call_started  upload (call00003)
   8  call_settled  charge (call00002): unknown: outcome unknown: the process died while this call ran; verify before retrying
   9  call_started  upload (call00003), attempt 2
  10  call_settled  upload (call00003): ok: uploaded as call00003
  11  call_started  notify (call00004)
  12  call_settled  notify (call00004): ok: notified
"""  # noqa: E501 (the text of a result)
REPORT = FaultReport.from_json((DOCS / "reliability.json").read_text(encoding="utf-8"))


def test_tables_equal_the_last_report() -> None:
    assert put_into(PAGE, REPORT) == PAGE


def test_last_report_has_enough_kills_and_no_fault() -> None:
    """At least 500 recoveries on SQLite, 200 on PostgreSQL; and it counts what the audit counts now."""
    assert REPORT.stores["sqlite"].recoveries >= 500
    assert REPORT.stores["postgres"].recoveries >= 200
    for report in REPORT.stores.values():
        assert report.faults == dict.fromkeys(CLAIMS, 0)


def test_kills_followed_every_kind_of_written_fact() -> None:
    fell = {kind for report in REPORT.stores.values() for kind in report.killed_after}
    # What follows from them is written with them; from the start of a turn, unless the app's code acts in between.
    never_last = {"step_finished", "concluded", "synthesized"}
    assert fell >= KINDS.keys() - never_last
    assert fell <= KINDS.keys()


def test_another_process_recovers_a_killed_turn(tmp_path: Path) -> None:
    """`book` had finished, `charge` and `upload` were running, `notify` had not started. The kill came after fact 7."""
    (tmp_path / "crash.py").write_text(PROGRAM.read_text(encoding="utf-8"), encoding="utf-8")
    ran = subprocess.run([sys.executable, "crash.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    printed = ["exit code -9", "finished Settled; check the charge."]
    assert (ran.stdout.splitlines(), ran.returncode) == (printed, 0), ran.stderr
    lines = anyio.run(journal, tmp_path)
    assert [timeless(line) for line in lines[3:12]] == [line for line in FACTS.splitlines() if line]


async def journal(folder: Path) -> list[str]:
    """The facts of the only turn, as `turnwright show --journal` prints them."""
    store = SqliteStore(folder / "turns.db")
    (row,) = await store.turns()
    facts = await store.facts(row.id)
    await store.aclose()
    return [*journal_lines(facts)]


def timeless(line: str) -> str:
    return re.sub(r" +[\d.]+ s  ", "  ", line)
