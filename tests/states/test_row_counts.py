"""Counts of the chart's rows are added row by row, and their text names each row."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_states.chart import CHART, ROWS, VERSION
from turnwright_states.counters import Counters
from turnwright_states.limits import Limits
from turnwright_states.row_counts import RowCounts
from turnwright_states.state import Trigger
from turnwright_states.turn import Turn

COUNTS = st.lists(st.integers(0, 10**9), min_size=len(ROWS), max_size=len(ROWS)).map(tuple).map(RowCounts)


@given(COUNTS, COUNTS)
def test_counts_are_added_and_subtracted_row_by_row(first: RowCounts, second: RowCounts) -> None:
    assert first + second - second == first
    assert (first + second).taken == tuple(a + b for a, b in zip(first.taken, second.taken, strict=True))
    assert RowCounts.zeros() + first == first


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
