"""`docs/reliability.md` tells the truth: its tables are the last report's, and its crash is what happens."""

import re
import subprocess
import sys
from pathlib import Path

import anyio

from turnwright.cli.show import journal_lines
from turnwright.store import SqliteStore
from turnwright.testing.faults.audit import CLAIMS
from turnwright.testing.faults.report import FaultReport, put_into
from turnwright_states.facts import KINDS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reliability.md").read_text(encoding="utf-8")
REPORT = FaultReport.from_json((DOCS / "reliability.json").read_text(encoding="utf-8"))


def block(heading: str) -> str:
    """The code block below a comment."""
    found = re.search(rf"<!-- {re.escape(heading)} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None, heading
    return found[1]


def test_the_tables_are_those_of_the_last_report() -> None:
    assert put_into(PAGE, REPORT) == PAGE


def test_the_last_report_is_of_enough_kills_and_of_no_fault() -> None:
    """At least 500 recoveries on SQLite, 200 on PostgreSQL; and it counts what the audit counts now."""
    assert REPORT.stores["sqlite"].recoveries >= 500
    assert REPORT.stores["postgres"].recoveries >= 200
    for report in REPORT.stores.values():
        assert report.faults == dict.fromkeys(CLAIMS, 0)


def test_kills_fell_after_every_kind_of_fact_that_is_written_while_a_turn_is_driven() -> None:
    fell = {kind for report in REPORT.stores.values() for kind in report.killed_after}
    never_last = {"step_finished", "concluded", "synthesized"}  # what follows from them is written with them
    assert fell >= KINDS.keys() - never_last
    assert fell <= KINDS.keys()


def test_the_crash_on_the_page_is_what_happens(tmp_path: Path) -> None:
    """Apart from times."""
    (tmp_path / "crash.py").write_text(block("file: crash.py"), encoding="utf-8")
    command, *promised = block("output of crash.py").splitlines()
    assert command == "$ python crash.py"
    ran = subprocess.run([sys.executable, "crash.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout.splitlines(), ran.returncode) == (promised, 0), ran.stderr
    said = anyio.run(journal, tmp_path)
    for line, shown in zip(said[3:12], block("facts 4 to 12 of its journal").splitlines(), strict=True):
        begin, cut, _ = timeless(shown).partition(" ...")
        assert timeless(line)[: len(begin) if cut else None] == begin


async def journal(folder: Path) -> list[str]:
    """The facts of the only turn, as `turnwright show --journal` prints them."""
    store = SqliteStore(folder / "turns.db")
    (row,) = await store.turns()
    facts = await store.facts(row.id)
    await store.aclose()
    return [*journal_lines(facts)]


def timeless(line: str) -> str:
    return re.sub(r" +[\d.]+ s  ", "  ", line)
