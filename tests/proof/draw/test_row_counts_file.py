"""The file of rows taken is read as it was written, and one that is not of our chart is refused by name."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.errors import ConfigError
from turnwright_proof.draw import read_row_counts
from turnwright_states.chart import ROWS, VERSION
from turnwright_states.row_counts import RowCounts

COUNTS = st.lists(st.integers(0, 10**9), min_size=len(ROWS), max_size=len(ROWS)).map(tuple).map(RowCounts)


def _file(path: Path, **changed: object) -> Path:
    """A good file with other fields."""
    path.write_text(json.dumps(json.loads(RowCounts.zeros().to_json()) | changed), encoding="utf-8")
    return path


def _rows(**changed: object) -> list[dict[str, object]]:
    """The rows of a good file, the third one with other fields."""
    rows: list[dict[str, object]] = json.loads(RowCounts.zeros().to_json())["rows"]
    rows[2] |= changed
    return rows


@given(COUNTS)
def test_written_counts_are_read_back(tmp_path_factory: pytest.TempPathFactory, counts: RowCounts) -> None:
    path = tmp_path_factory.getbasetemp() / "rows.json"
    path.write_text(counts.to_json(), encoding="utf-8")
    assert read_row_counts(path) == counts


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "{}", '{"schema": "turnwright/rows/1"}'])
def test_file_without_row_counts_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"rows\.json: is not a file of row counts \(turnwright/rows/1\): "):
        read_row_counts(path)


@pytest.mark.parametrize("count", [-1, 1.5, True, "1", None])
def test_invalid_count_is_refused_with_the_place(tmp_path: Path, count: object) -> None:
    path = _file(tmp_path / "rows.json", rows=_rows(taken=count))
    with pytest.raises(ConfigError, match=r"rows\.2\.taken: "):
        read_row_counts(path)


def test_another_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="schema: Input should be 'turnwright/rows/1'"):
        read_row_counts(_file(tmp_path / "rows.json", schema="turnwright/rows/2"))


def test_file_of_another_chart_is_refused(tmp_path: Path) -> None:
    path = _file(tmp_path / "rows.json", chart=VERSION + 1)
    with pytest.raises(ConfigError, match=f"written under chart {VERSION + 1}, and this release has chart {VERSION}"):
        read_row_counts(path)


def test_file_with_another_row_is_refused_with_both_rows(tmp_path: Path) -> None:
    path = _file(tmp_path / "rows.json", rows=_rows(row="CHECK --proceed--> FAILED"))
    with pytest.raises(ConfigError) as caught:
        read_row_counts(path)
    assert f"row 3 is CHECK --proceed--> FAILED, where the chart has 3: {ROWS[2].name}" in str(caught.value)


def test_file_with_fewer_rows_is_refused(tmp_path: Path) -> None:
    path = _file(tmp_path / "rows.json", rows=_rows()[:-1])
    with pytest.raises(ConfigError, match=f"has {len(ROWS) - 1} rows, and the chart has {len(ROWS)}"):
        read_row_counts(path)


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json: cannot be read: "):
        read_row_counts(tmp_path / "none.json")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="bytes: cannot be read: "):
        read_row_counts(tmp_path / "bytes")
