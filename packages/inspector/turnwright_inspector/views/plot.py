"""Stacked columns over time: the places of an SVG with two labeled axes, and the rows of the table behind it.

The template `plot.html` draws it. Places are percentages, so that texts keep their size at every width.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, floor, log10
from typing import Final

from turnwright.store.summaries import Spending

#: At most so many columns, each as wide as the first of these (in seconds) that is enough.
_COLUMNS: Final = 48
_WIDTHS: Final = (1, 5, 15, 60, 300, 900, 3_600, 4 * 3_600, 86_400, 7 * 86_400, 28 * 86_400)
#: The axis has room for so many columns at least, and a column fills this part of its place.
_FEWEST: Final = 12
_FILLED: Final = 0.86
#: At most so many marks on the axis of time, this many seconds apart, and on that of values.
_TIMES: Final = 7
_STEPS: Final = (1, 5, 15, 30, 60, 300, 900, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600, 86_400, 7 * 86_400, 28 * 86_400)
_VALUES: Final = 5
_MINUTE, _DAY = 60, 86_400
_LARGEST: Final = 1e15
#: The tones of series that have none of their own, in order; what is left is the last series.
HUES: Final = tuple(f"hue-{number}" for number in range(1, 7))


@dataclass(frozen=True, slots=True)
class Series:
    """One layer of the columns. `tone` is a class of the style sheet; `values` are pairs: a moment and its value."""

    name: str
    tone: str
    values: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class PlotBar:
    """A part of a column: one value of a series. `x`, `y`, `width` and `height` are percentages of the drawn area."""

    began: float
    name: str
    tone: str
    value: float
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class TimeMark:
    """A mark on the axis of time, at a percentage. `day` is empty where it is that of the mark before."""

    at: float
    clock: str
    day: str


@dataclass(frozen=True, slots=True)
class PlotRow:
    """A column as a row of the table: its beginning, in seconds since the Unix epoch, and the value of each series."""

    began: float
    values: tuple[float, ...]

    @property
    def total(self) -> float:
        return sum(self.values)


@dataclass(frozen=True, slots=True)
class Plot:
    """Stacked columns over time. `width` is the span of a column in seconds, `unit` what the values count."""

    unit: str
    width: float
    names: tuple[str, ...]
    tones: tuple[str, ...]
    rows: tuple[PlotRow, ...]
    low: float
    high: float
    values: tuple[float, ...]

    @property
    def totals(self) -> tuple[float, ...]:
        return tuple(map(sum, zip(*(row.values for row in self.rows), strict=True)))

    @property
    def value_marks(self) -> list[tuple[float, float]]:
        """The marks on the axis of values: the place of each, as a percentage from above, and its value."""
        return [(100 - 100 * value / self.values[-1], value) for value in self.values]

    @property
    def time_marks(self) -> list[TimeMark]:
        span = self.high - self.low
        step = next((width for width in _STEPS if span / width <= _TIMES), _DAY * ceil(span / _TIMES / _DAY))
        marks: list[TimeMark] = []
        shown_day = ""
        for number in range(ceil(self.low / step), floor(self.high / step) + 1):
            at = datetime.fromtimestamp(number * step, UTC)
            day = f"{at:%b} {at.day}" if span < 300 * _DAY else f"{at:%Y-%m-%d}"
            clock = "" if step >= _DAY else f"{at:%H:%M}" if step >= _MINUTE else f"{at:%H:%M:%S}"
            marks.append(TimeMark(100 * (number * step - self.low) / span, clock, day if day != shown_day else ""))
            shown_day = day
        return marks

    @property
    def bars(self) -> list[PlotBar]:
        bars: list[PlotBar] = []
        span = self.high - self.low
        for row in self.rows:
            y = 100.0
            for name, tone, value in zip(self.names, self.tones, row.values, strict=True):
                if value:
                    height = 100 * value / self.values[-1]
                    y -= height
                    x, width = 100 * (row.began - self.low) / span, 100 * self.width / span * _FILLED
                    bars.append(PlotBar(row.began, name, tone, value, x, y, width, height))
        return bars


def plot_of(unit: str, series: Sequence[Series], *, whole: bool = False, least: float = 0.0) -> Plot | None:
    """Return the columns of these series, without those that are zero; None if nothing is left.

    Moments are in seconds since the Unix epoch, within the years 1 to 9999. `whole`: the values count things, so no
    mark stands between two numbers. A column has at least `least` seconds. A value that is not a number is left out,
    and a huge one, of a forged journal, cut.
    """
    series = [
        Series(line.name, line.tone, [(at, min(value, _LARGEST)) for at, value in line.values if value > 0])
        for line in series
    ]
    series = [line for line in series if line.values]
    moments = [at for line in series for at, _ in line.values]
    if not moments:
        return None
    width = max(width_of(moments), least)
    columns: dict[int, list[float]] = {}
    for place, line in enumerate(series):
        for at, value in line.values:
            columns.setdefault(int(at // width), [0.0] * len(series))[place] += value
    rows = tuple(PlotRow(number * width, tuple(columns[number])) for number in sorted(columns) if any(columns[number]))
    high = rows[-1].began + width
    return Plot(
        unit=unit,
        width=width,
        names=tuple(line.name for line in series),
        tones=tuple(line.tone for line in series),
        rows=rows,
        low=min(rows[0].began, high - _FEWEST * width),
        high=high,
        values=tuple(_marks(max(row.total for row in rows), whole=whole)),
    )


def series_of(values: Mapping[str, Sequence[tuple[float, float]]]) -> list[Series]:
    """Return a series for each name, the largest first; those beyond the tones that there are become one."""
    largest = sorted(values, key=lambda name: sum(value for _, value in values[name]), reverse=True)
    most = len(HUES) if len(largest) <= len(HUES) else len(HUES) - 1
    named_series = [Series(name, tone, values[name]) for name, tone in zip(largest[:most], HUES, strict=False)]
    other_pairs = [pair for name in largest[most:] for pair in values[name]]
    return (
        [*named_series, Series(f"{len(largest) - most} others", HUES[-1], other_pairs)] if other_pairs else named_series
    )


def spent_over_time(spendings: Sequence[Spending], by: str, width: float) -> tuple[tuple[str, Plot], ...]:
    """Return the plots of cost and of tokens by `by`, agent or model, without a plot of zeros."""
    plots: list[tuple[str, Plot]] = []
    for name, unit in (("Cost", "dollars"), ("Tokens", "tokens")):
        values: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        for spending in spendings:
            value = float(spending.tokens) if unit == "tokens" else spending.cost
            values[getattr(spending, by) or "no name"].append((spending.began, value))
        plot = plot_of(unit, series_of(values), whole=unit == "tokens", least=width)
        if plot is not None:
            plots.append((name, plot))
    return tuple(plots)


def width_of(moments: Sequence[float]) -> float:
    """Return the seconds of a column: few enough that a change is seen, and enough that all columns have room."""
    span = max(moments) - min(moments)
    return next((width for width in _WIDTHS if span <= width * (_COLUMNS - 1)), float(ceil(span / (_COLUMNS - 1))))


def _marks(highest: float, *, whole: bool) -> list[float]:
    """Round values from 0 on, the last of them not below the highest."""
    least = highest / _VALUES
    size = 10.0 ** floor(log10(least))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= least * (1 - 1e-9))
    step = max(step, 1.0) if whole else step
    return [step * number for number in range(ceil(highest / step - 1e-9) + 1)]
