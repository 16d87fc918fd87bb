"""The tables of `docs/scale.md` are those of the last run, which had no fault."""

from pathlib import Path

import pytest
from bench.scale.audit import CLAIMS, UNPAIRED
from bench.scale.report import Report, put_into

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "scale.md").read_text(encoding="utf-8")
TEXT = (DOCS / "scale.json").read_text(encoding="utf-8")
REPORT = Report.from_json(TEXT)


def test_tables_equal_the_last_run() -> None:
    assert put_into(PAGE, REPORT) == PAGE


def test_report_survives_a_round_trip() -> None:
    assert REPORT.to_json() == TEXT


def test_last_run_had_1000_turns_and_4_workers_with_deaths() -> None:
    load = REPORT.phases["killed"].load
    assert (load.turns, load.workers, load.stalls) == (1000, 4, True)
    assert len(REPORT.deaths) >= load.deaths >= 6
    assert sum(death.stalled for death in REPORT.deaths) == 1


def test_last_run_ended_all_turns_without_a_fault() -> None:
    """And it counted what is counted now."""
    assert REPORT.faults == dict.fromkeys([*CLAIMS, UNPAIRED], 0)
    assert sum(REPORT.endings.values()) == REPORT.counts["turns"] == 1000


def test_last_run_recovered_9_of_10_turns_within_two_patiences() -> None:
    """The others were taken over by a worker that died as well."""
    assert REPORT.recovery.count > 0
    assert REPORT.recovery.p90 < 20


def test_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="<!-- measured -->"):
        put_into("# A page", REPORT)
