"""Labels are found by run, by file, or by both, in CSV and in JSON lines."""

import pytest

from turnwright_audit.measure import RunMeasure
from turnwright_audit.outcomes import InvalidOutcomesError, Outcomes


def run(file: str, name: str) -> RunMeasure:
    return RunMeasure(file=file, run=name, format="atif", agent="a", model="m")


def test_csv_and_json_lines_name_runs() -> None:
    for text in (
        "run,success\nr1,true\nr2,0\nr3,maybe\n",
        '{"run": "r1", "success": true}\n\n{"run": "r2", "success": false}\n',
        "instance_id,resolved\nr1,1.0\nr2,no\n",
    ):
        outcomes = Outcomes.parse(text)
        assert len(outcomes) == 2
        assert [outcomes.of(run("x.json", name), 0) for name in ("r1", "r2", "r3")] == [True, False, None]


def test_file_label_matches_the_end_of_the_path() -> None:
    outcomes = Outcomes.parse("path,success\nruns/a/x.json,yes\nruns/b/x.json,no\n")
    assert outcomes.of(run("/data/runs/a/x.json", "0"), 0) is True
    assert outcomes.of(run("/data/runs/b/x.json", "0"), 0) is False
    assert outcomes.of(run("runs.tar.xz:runs/b/x.json", "0"), 0) is False
    assert outcomes.of(run("/data/runs/c/x.json", "0"), 0) is None
    assert outcomes.of(run("/data/runs/a/x.json", "1"), 1) is None


def test_runs_of_a_file_are_matched_by_name_or_position() -> None:
    outcomes = Outcomes.parse("file,run,success\nx.json,r1,yes\nx.json,x.json#1,no\n")
    assert outcomes.of(run("x.json", "r1"), 0) is True
    assert outcomes.of(run("x.json", "other"), 1) is False
    assert outcomes.of(run("x.json", "other"), 2) is None


def test_numeric_run_name_does_not_match_a_position() -> None:
    outcomes = Outcomes.parse("file,run,success\nx.json,x.json#3,yes\nx.json,4,no\n")
    assert [outcomes.of(run("x.json", str(name)), name - 1) for name in (3, 4, 5)] == [True, False, None]


def test_run_label_may_be_the_file_name() -> None:
    outcomes = Outcomes.parse("run,success\nx,yes\n")
    assert outcomes.of(run("a/x.json", "0"), 0) is True


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", '{"run": "r1"}', "run,success\nr1,perhaps\n"])
def test_outcomes_without_a_label_are_refused(text: str) -> None:
    with pytest.raises(InvalidOutcomesError, match="no row has a run"):
        Outcomes.parse(text)


def test_invalid_json_line_is_reported_by_number() -> None:
    with pytest.raises(InvalidOutcomesError, match="line 2"):
        Outcomes.parse('{"run": "r1", "success": true}\n{nonsense\n')


def test_row_without_a_usable_label_is_named_with_its_line() -> None:
    outcomes = Outcomes.parse("Run, Success\na,maybe\nb,true\n,true\nc,\n")
    assert len(outcomes) == 1
    assert outcomes.unusable == [
        "line 2: 'maybe' is not true or false",
        "line 4: it has no run and no file",
        "line 5: it has no success",
    ]


def test_run_with_two_labels_is_refused() -> None:
    """The same label twice is none of two."""
    assert len(Outcomes.parse('[{"run": "a", "success": true}, {"run": "a", "success": 1}]')) == 1
    with pytest.raises(InvalidOutcomesError, match=r"line 3: a of b\.json has the other label in an earlier row"):
        Outcomes.parse("file,run,success\nb.json,a,true\nb.json,a,false\n")
