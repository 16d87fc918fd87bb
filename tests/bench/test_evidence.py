"""The tables of `docs/evidence.md` are those of the last measurement, and the preset for coding follows from them."""

from pathlib import Path

import msgspec
import pytest
from bench.evidence import Evidence, datasets, gather, put_into
from tests.audit.recorded import call, run_of

from turnwright_audit.outcomes import Outcomes
from turnwright_states import Limits

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "evidence.md").read_text(encoding="utf-8")
TEXT = (DOCS / "evidence.json").read_text(encoding="utf-8")
EVIDENCE = msgspec.json.decode(TEXT, type=Evidence)


def test_tables_equal_the_last_measurement() -> None:
    assert put_into(PAGE, EVIDENCE) == PAGE
    assert EVIDENCE.to_json() == TEXT
    assert f"These are {sum(of.runs for of in EVIDENCE.datasets.values()):,} runs" in PAGE


def test_coding_budget_stops_no_good_run_unlike_the_default() -> None:
    coding = [EVIDENCE.datasets[name] for name in ("mini-swe-agent", "ISO-Bench")]
    budget = str(Limits.preset("coding").tool_calls)
    assert all(of.stopped[budget] == 0 and of.good for of in EVIDENCE.datasets.values() if of.good)
    assert all(of.stopped["50"] > of.good / 10 for of in coding)
    assert f"allows {budget}, which stops none of these runs" in PAGE


def test_recordings_are_counted_by_dataset_and_era(tmp_path: Path) -> None:
    looping, fine = run_of(*[call("read")] * 8, "Done.", success=False), run_of(call("read"), "Done.", success=True)
    for dataset in datasets():
        (tmp_path / dataset.folder).mkdir()
        for name, run in (("a", looping), ("b", fine)):
            (tmp_path / dataset.folder / f"{name}.json").write_bytes(msgspec.json.encode(run))
    evidence = gather(tmp_path, Outcomes.parse("file,success\na.json,true\n"))
    assert {(of.files, of.runs, of.steps, of.calls, of.unpaired) for of in evidence.datasets.values()} == {
        (2, 2, 11, 9, 0)
    }
    assert {of.loops["same result"] for of in evidence.datasets.values()} == {1}
    assert evidence.datasets["mini-swe-agent"].good == 1
    assert evidence.labeled == {"2023": (1, 1), "2024": (1, 1), "2025-26": (2, 3)}
    acts = evidence.detectors["2023"]["doom_threshold results:3"]
    assert (acts.runs, acts.succeeded, acts.saved) == (1, 0, round(6 / 9, 4))


def test_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="marks of budgets"):
        put_into(PAGE.replace("<!-- budgets -->", ""), EVIDENCE)
