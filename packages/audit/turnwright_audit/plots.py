"""Plots of an audit as inline SVG. Colors are classes of the page's style."""

from collections.abc import Callable, Sequence
from html import escape
from math import floor, log10
from typing import Final, NamedTuple

from turnwright._base.words import count

from .distribution import Distribution

_WIDTH: Final = 440
_HEIGHT: Final = 200
_LEFT: Final = 40
_BOTTOM: Final = 172
_TOP: Final = 26
_BINS: Final = 24
#: The width of a label of a quantile.
_LABEL: Final = 80
#: The highest shares that an axis may end with.
_TOPS: Final = (0.05, 0.1, 0.2, 0.5, 1.0)


class Line(NamedTuple):
    """A line of a plot: a class of the style, the words for its points, and its shares from 0 to 1."""

    style: str
    words: str
    shares: Sequence[float]


def histogram(name: str, numbers: Distribution, words: Callable[[float], str]) -> str:
    """Return a histogram with its quantiles. Bins are equal if the numbers are, else each is a factor wider."""
    scale = _Scale(numbers)
    bins = [0] * _BINS
    for number, times in numbers.counts.items():
        bins[scale.bin(number)] += times
    most = max(bins)
    width = (_WIDTH - _LEFT) / _BINS
    shapes = [
        f'<rect class="bar" x="{_LEFT + at * width + 1:.1f}" y="{_y(runs / most):.1f}" width="{width - 2:.1f}"'
        f' height="{_BOTTOM - _y(runs / most):.1f}"><title>{count(runs, "run")}</title></rect>'
        for at, runs in enumerate(bins)
        if runs
    ]
    labels: list[str] = []  # above the marks, which would cross them out
    row = 0
    label_end = -100.0  # where the labels of this row end
    for share, number in numbers.shares().items():
        x = min(_LEFT + (scale.place(number)) * (_WIDTH - _LEFT), _WIDTH - 1)
        anchor = "end" if x > _WIDTH - _LABEL else "start"
        row = row + 1 if (x - _LABEL if anchor == "end" else x) < label_end else 0
        label_end = max(label_end, x if anchor == "end" else x + _LABEL)
        shapes.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP + 12 * row - 8}" y2="{_BOTTOM}"/>')
        side = -4 if anchor == "end" else 4
        labels.append(_text(x + side, _TOP + 12 * row, f"{share} {words(number)}", anchor))
    shapes += labels
    shapes += [_text(_LEFT, _BOTTOM + 16, words(scale.least)), _text(_WIDTH, _BOTTOM + 16, words(numbers.max), "end")]
    shapes.append(_text(_LEFT - 6, _y(1) + 8, f"{most:,}", "end"))
    return _svg(f"{name} of a run: {count(numbers.n, 'run')}, at most {words(numbers.max)}", shapes)


def curves(name: str, values: Sequence[str], lines: Sequence[Line]) -> str:
    """Return lines of shares over values of a limit, at equal distances."""
    step = (_WIDTH - _LEFT - 28) / max(len(values) - 1, 1)
    highest = max(share for line in lines for share in line.shares)
    top = next(top for top in _TOPS if top >= highest)
    xs = [_LEFT + 8 + step * at for at in range(len(values))]
    shapes: list[str] = []
    for share in (0.0, top / 2, top):
        y = _y(share / top)
        shapes.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH}" y1="{y}" y2="{y}"/>')
        shapes.append(_text(_LEFT - 6, y + 4, f"{100 * share:g}%", "end"))
    for line in lines:
        points = list(zip(xs, (_y(share / top) for share in line.shares), strict=True))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        shapes.append(f'<polyline class="{line.style}" points="{path}"/>')
        for (x, y), value, share in zip(points, values, line.shares, strict=True):
            title = escape(f"{name} {value}: {line.words} {share:.1%}")
            place = f'cx="{x:.1f}" cy="{y:.1f}" r="3.5"'
            shapes.append(f'<circle class="{line.style}" {place}><title>{title}</title></circle>')
    shapes += [_text(x, _BOTTOM + 16, value, "middle") for x, value in zip(xs, values, strict=True)]
    return _svg(f"{name}: {' and '.join(line.words for line in lines)}, by the value of the limit", shapes)


class _Scale:
    """The places of numbers between the least and the most: linear in a small range, else logarithmic."""

    def __init__(self, numbers: Distribution) -> None:
        self.least = min(numbers.counts)
        self._most = max(numbers.max, self.least + 1)
        self._log = self._most > 50 * max(self.least, 1)

    def place(self, number: float) -> float:
        if not self._log:
            return (number - self.least) / (self._most - self.least)
        return _log(number, self.least) / _log(self._most, self.least)

    def bin(self, number: int) -> int:
        return min(floor(self.place(number) * _BINS), _BINS - 1)


def _log(number: float, least: float) -> float:
    return log10(max(number, 1)) - log10(max(least, 1))


def _y(share: float) -> float:
    return round(_BOTTOM - share * (_BOTTOM - _TOP), 1)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(label: str, shapes: Sequence[str]) -> str:
    axis = f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH}" y1="{_BOTTOM}" y2="{_BOTTOM}"/>'
    head = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">'
    return f"{head}{axis}{''.join(shapes)}</svg>"
