"""The tables of `docs/evidence.md` are those of the last run, which had no fault."""

from pathlib import Path

import pytest
from bench.scale.audit import CLAIMS, UNPAIRED
from bench.scale.report import Report, put_into

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "evidence.md").read_text(encoding="utf-8")
TEXT = (DOCS / "scale.json").read_text(encoding="utf-8")
REPORT = Report.from_json(TEXT)


def test_the_tables_are_those_of_the_last_run() -> None:
    assert put_into(PAGE, REPORT) == PAGE


def test_the_report_is_read_as_it_was_written() -> None:
    assert REPORT.to_json() == TEXT


def test_the_last_run_was_of_a_thousand_turns_and_four_workers_of_which_some_died() -> None:
    load = REPORT.phases["killed"].load
    assert (load.turns, load.workers, load.stalls) == (1000, 4, True)
    assert len(REPORT.deaths) >= load.deaths >= 6
    assert sum(death.stalled for death in REPORT.deaths) == 1


def test_in_the_last_run_all_turns_ended_and_nothing_was_lost_or_done_again() -> None:
    """And it counted what is counted now."""
    assert REPORT.faults == dict.fromkeys([*CLAIMS, UNPAIRED], 0)
    assert sum(REPORT.endings.values()) == REPORT.counts["turns"] == 1000


def test_of_ten_turns_that_were_taken_over_nine_went_on_within_two_patiences() -> None:
    """The others were taken over by a worker that died as well."""
    assert REPORT.recovery.count > 0
    assert REPORT.recovery.p90 < 20


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="<!-- measured -->"):
        put_into("# A page", REPORT)
