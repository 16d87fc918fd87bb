"""Columns over time: their places on the axes, and the words of the marks."""

from datetime import UTC, datetime

import pytest

from turnwright_inspector.views.plot import HUES, Plot, Series, plot_of, series_of, width_of

DAY = 86_400.0
NOON = datetime(2026, 11, 27, 12, tzinfo=UTC).timestamp()


def drawn(*values: tuple[float, float], whole: bool = True) -> Plot:
    plot = plot_of("turns", [Series("a", "good", values)], whole=whole)
    assert plot is not None
    return plot


def test_column_position_is_proportional_to_time() -> None:
    """Two columns an hour from each other, and one ten hours later: the gap stays."""
    plot = drawn((NOON, 1), (NOON + 3_600, 2), (NOON + 11 * 3_600, 1))
    places = [round(bar.x / plot.bars[0].width * 0.86, 6) for bar in plot.bars]
    assert [place - places[0] for place in places] == pytest.approx([0, 3_600 / plot.width, 39_600 / plot.width])
    assert len(plot.rows) == 3
    assert all(row.total for row in plot.rows)


def test_layers_are_stacked_from_the_ground_inside_the_area() -> None:
    plot = plot_of("turns", [Series("a", "good", [(NOON, 3)]), Series("b", "bad", [(NOON, 4), (NOON + DAY, 1)])])
    assert plot is not None
    low, high = plot.bars[0], plot.bars[1]
    assert low.y + low.height == pytest.approx(100)
    assert high.y + high.height == pytest.approx(low.y)
    assert all(0 <= bar.x < bar.x + bar.width <= 100 and -1e-9 <= bar.y <= 100 for bar in plot.bars)
    assert plot.totals == (3, 5)


def test_zero_series_is_omitted_and_an_empty_plot_is_none() -> None:
    plot = plot_of("turns", [Series("a", "good", [(NOON, 1)]), Series("b", "bad", [(NOON, 0)])])
    assert plot is not None
    assert plot.names == ("a",)
    assert plot_of("turns", [Series("b", "bad", [(NOON, 0)])]) is None
    assert plot_of("turns", []) is None


@pytest.mark.parametrize(
    ("value", "whole", "marks"),
    [
        (4, True, [0, 1, 2, 3, 4]),
        (1, True, [0, 1]),
        (23, True, [0, 5, 10, 15, 20, 25]),
        (0.05, False, [0, 0.01, 0.02, 0.03, 0.04, 0.05]),
    ],
)
def test_value_marks_are_round_and_end_above_the_highest_value(value: float, whole: bool, marks: list[float]) -> None:
    plot = drawn((NOON, value), whole=whole)
    assert [mark for _, mark in plot.value_marks] == pytest.approx(marks)
    assert (plot.value_marks[0][0], plot.value_marks[-1][0]) == (100, 0)


def test_time_marks_name_the_day_at_each_change() -> None:
    plot = drawn(*((NOON + hour * 3_600, 1) for hour in range(30)))
    marks = [(mark.clock, mark.day) for mark in plot.time_marks]
    assert marks == [
        ("12:00", "Nov 27"),
        ("18:00", ""),
        ("00:00", "Nov 28"),
        ("06:00", ""),
        ("12:00", ""),
        ("18:00", ""),
    ]
    days = drawn(*((NOON + day * DAY, 1) for day in range(5)))
    assert {mark.clock for mark in days.time_marks} <= {"", "00:00", "12:00"}
    years = drawn((NOON, 1), (NOON + 900 * DAY, 1))
    assert all(mark.clock == "" and mark.day.startswith("202") for mark in years.time_marks)


@pytest.mark.parametrize("span", [0.0, 1.0, 47 * 60.0, 47 * 60.0 + 1, DAY, 4e7, 1e9])
def test_columns_and_marks_fit_the_plot(span: float) -> None:
    times = [NOON, NOON + span]
    width = width_of(times)
    assert times[1] // width - times[0] // width < 48
    assert len(drawn(*((at, 1) for at in times)).time_marks) <= 8


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, -1])
def test_impossible_counts_are_drawn_within_bounds_or_left_out(value: float) -> None:
    plot = drawn((NOON, 1), (NOON + DAY, value))
    assert all(0 <= bar.height <= 100 + 1e-9 for bar in plot.bars)


def test_smallest_series_are_merged_into_others() -> None:
    merged = series_of({str(number): [(NOON, number)] for number in range(1, 10)})
    assert [series.name for series in merged] == ["9", "8", "7", "6", "5", "4 others"]
    assert [series.tone for series in merged] == list(HUES)
    assert sum(value for _, value in merged[-1].values) == 1 + 2 + 3 + 4
    assert [series.name for series in series_of({"a": [(NOON, 1)], "b": [(NOON, 2)]})] == ["b", "a"]
