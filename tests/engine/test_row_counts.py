"""The file of rows taken is read as it was written, and one that is not of our chart is refused by name."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.errors import ConfigError
from turnwright.row_counts import RowCounts
from turnwright_states.chart import CHART, ROWS, VERSION
from turnwright_states.counters import Counters
from turnwright_states.limits import Limits
from turnwright_states.state import Trigger
from turnwright_states.turn import Turn

COUNTS = st.lists(st.integers(0, 10**9), min_size=len(ROWS), max_size=len(ROWS)).map(tuple).map(RowCounts)


def _file(path: Path, **changed: object) -> Path:
    """A good file with other fields."""
    path.write_text(json.dumps(json.loads(RowCounts.none().to_json()) | changed), encoding="utf-8")
    return path


def _rows(**changed: object) -> list[dict[str, object]]:
    """The rows of a good file, the third one with other fields."""
    rows: list[dict[str, object]] = json.loads(RowCounts.none().to_json())["rows"]
    rows[2] |= changed
    return rows


@given(COUNTS)
def test_written_counts_are_read_back(tmp_path_factory: pytest.TempPathFactory, counts: RowCounts) -> None:
    path = tmp_path_factory.getbasetemp() / "rows.json"
    counts.write(path)
    assert RowCounts.read(path) == counts


@given(COUNTS, COUNTS)
def test_counts_are_added_and_subtracted_row_by_row(first: RowCounts, second: RowCounts) -> None:
    assert first + second - second == first
    assert (first + second).taken == tuple(a + b for a, b in zip(first.taken, second.taken, strict=True))
    assert RowCounts.none() + first == first


def test_file_has_number_name_and_count_of_each_row_in_order() -> None:
    counts = RowCounts(tuple(range(len(ROWS))))
    file = json.loads(counts.to_json())
    assert file["schema"] == "turnwright/rows/1"
    assert file["chart"] == VERSION
    assert file["rows"] == [
        {"number": number, "row": row.name, "taken": number - 1} for number, row in enumerate(ROWS, start=1)
    ]


def test_current_counts_equal_the_chart_counts() -> None:
    before = RowCounts.now()
    CHART.fire(Turn(), Trigger.PROCEED, Counters(Limits(steps=3)))
    after = RowCounts.now() - before
    (place,) = [place for place, row in enumerate(ROWS) if row.name == "CHECK --proceed--> STREAM"]
    assert after.taken == tuple(int(row == place) for row in range(len(ROWS)))
    assert after.covered == 1
    assert len(after.untaken) == len(ROWS) - 1


def test_untaken_rows_are_named_with_numbers() -> None:
    counts = RowCounts(tuple(int(place not in (0, 18)) for place in range(len(ROWS))))
    assert counts.untaken == ((1, ROWS[0].name), (19, "STREAM --attempt_failed--> FAILED"))
    assert counts.covered == len(ROWS) - 2


def test_wrong_number_of_counts_is_refused() -> None:
    with pytest.raises(ValueError, match=f"1 counts for the {len(ROWS)} rows"):
        RowCounts((1,))


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "{}", '{"schema": "turnwright/rows/1"}'])
def test_file_without_row_counts_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"rows\.json: is not a file of row counts \(turnwright/rows/1\): "):
        RowCounts.read(path)


@pytest.mark.parametrize("count", [-1, 1.5, True, "1", None])
def test_invalid_count_is_refused_with_the_place(tmp_path: Path, count: object) -> None:
    path = _file(tmp_path / "rows.json", rows=_rows(taken=count))
    with pytest.raises(ConfigError, match=r"rows\.2\.taken: "):
        RowCounts.read(path)


def test_another_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="schema: Input should be 'turnwright/rows/1'"):
        RowCounts.read(_file(tmp_path / "rows.json", schema="turnwright/rows/2"))


def test_file_of_another_chart_is_refused(tmp_path: Path) -> None:
    path = _file(tmp_path / "rows.json", chart=VERSION + 1)
    with pytest.raises(ConfigError, match=f"written under chart {VERSION + 1}, and this release has chart {VERSION}"):
        RowCounts.read(path)


def test_file_with_another_row_is_refused_with_both_rows(tmp_path: Path) -> None:
    path = _file(tmp_path / "rows.json", rows=_rows(row="CHECK --proceed--> FAILED"))
    with pytest.raises(ConfigError) as caught:
        RowCounts.read(path)
    assert f"row 3 is CHECK --proceed--> FAILED, where the chart has 3: {ROWS[2].name}" in str(caught.value)


def test_file_with_fewer_rows_is_refused(tmp_path: Path) -> None:
    path = _file(tmp_path / "rows.json", rows=_rows()[:-1])
    with pytest.raises(ConfigError, match=f"has {len(ROWS) - 1} rows, and the chart has {len(ROWS)}"):
        RowCounts.read(path)


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json: cannot be read: "):
        RowCounts.read(tmp_path / "none.json")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="bytes: cannot be read: "):
        RowCounts.read(tmp_path / "bytes")
