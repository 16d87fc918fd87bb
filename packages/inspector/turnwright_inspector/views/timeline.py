"""The lanes of a waterfall on a scale, page by page.

A page has some of the lanes, and its scale is theirs, so that a long turn has no slivers; a strip above has the whole
time. A zoom is a part of the time, and has the lanes that are in it. Times are seconds of active time.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Final

from turnwright_inspector.http.render import seconds

from .pagination import Window
from .waterfall import BarKind, Span, WaterfallRow

#: The width of a lane in its own units.
WIDTH: Final = 1000.0
#: Lanes a page.
_PAGE: Final = 100
#: The least width, in those units: a shorter bar is drawn as wide, so that it can be seen.
_NARROWEST: Final = 2.0
#: Seconds between which a scale has marks. Only a forged journal has more.
_LEAST: Final = 1e-9
_MOST: Final = 1e12
#: Parts of the strip of the whole turn, and the lanes from which on there is one.
_PARTS: Final = 200
_FEW: Final = 25
_ZOOM: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)-(\d{1,12}(?:\.\d{1,9})?)")


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from `x` on, `width` wide, both of `WIDTH`. `title` has its name and duration in words."""

    kind: BarKind
    x: float
    width: float
    title: str
    status: str
    tab: str


@dataclass(frozen=True, slots=True)
class Scale:
    """The shown part of the time, in seconds of active time."""

    began: float
    ended: float

    def at(self, seconds: float) -> float:
        """Return the place of a time, of `WIDTH`."""
        return min(max((seconds - self.began) / (self.ended - self.began), 0.0), 1.0) * WIDTH

    def has(self, start: float, end: float) -> bool:
        """Whether some of that time is shown."""
        return start <= self.ended and end >= self.began

    def bars(self, spans: Sequence[Span]) -> tuple[Bar, ...]:
        """The bars on the scale, wide enough to be seen. The others of a step are within the first."""
        bars: list[Bar] = []
        for span in spans:
            if self.has(span.began, span.ended):
                low, high = 0.0, WIDTH
                if bars and bars[0].kind is BarKind.STEP:
                    low, high = bars[0].x, bars[0].x + bars[0].width
                x = max(min(self.at(span.began), high - _NARROWEST), low)
                width = max(min(self.at(span.ended), high) - x, _NARROWEST)
                bars.append(Bar(span.kind, x, width, span.title, span.status, span.tab))
        return tuple(bars)


@dataclass(frozen=True, slots=True)
class TimelineLane:
    """A row of the waterfall with its bars. See `WaterfallRow`."""

    label: str
    detail: str
    bars: tuple[Bar, ...]
    seconds: float | None
    chosen: bool
    row: WaterfallRow | None = None

    @property
    def depth(self) -> int:
        return 0 if self.row is None else self.row.depth

    @property
    def step(self) -> str:
        return "" if self.row is None else self.row.step


@dataclass(frozen=True, slots=True)
class Boundary:
    """The start of a driver, at `x` of `WIDTH`. `rested` are the seconds without a driver before it.

    `is_other_owner` is whether the process differs from the one before.
    """

    x: float
    owner: str
    epoch: int
    rested: float
    is_other_owner: bool


@dataclass(frozen=True, slots=True)
class RunsNow:
    """A running call or model call, the moment at which it began (in seconds of Unix), and the turn that it is of."""

    label: str
    since: float
    owner: str


@dataclass(frozen=True, slots=True)
class Zooms:
    """Other parts of the time, as addresses have them; None for the whole turn, and empty where there is none."""

    closer: str
    wider: str | None
    earlier: str
    later: str
    step: str


@dataclass(frozen=True, slots=True)
class TimelineView:
    """The waterfall: a scale with its marks (x and words), a lane for each process, and those of the steps.

    Of the latter there are as many as a page has, in the part of `seconds` that the scale has. `zoomed` is whether
    somebody chose that part. `strip` has the outlines of model calls and tool calls in all of the time.
    """

    seconds: float
    scale: Scale
    marks: tuple[tuple[float, str], ...]
    lanes: tuple[TimelineLane, ...]
    window: Window
    now: tuple[RunsNow, ...]
    zoomed: bool
    zooms: Zooms
    strip: tuple[tuple[BarKind, str], ...]
    processes: tuple[TimelineLane, ...] = ()
    boundaries: tuple[Boundary, ...] = ()

    @property
    def began(self) -> float:
        """The beginning of the shown part."""
        return self.scale.began

    @property
    def ended(self) -> float:
        """The end of the shown part."""
        return self.scale.ended


def timeline_of(
    rows: Sequence[WaterfallRow],
    total: float,
    *,
    zoom: str,
    step: str | None,
    until: int | None,
    moment: float | None = None,
) -> TimelineView:
    """Return the waterfall of these rows, whose time ends at `total`, without processes.

    `zoom` is a part of the time and `until` the end of the page, as addresses have them. `step` is the key of the
    chosen step. `moment` is the time now, in seconds since the Unix epoch, if something may run.
    """
    part_of = _zoom(zoom, total)
    step_rows = [row for row in rows if step is not None and row.step == step]
    if part_of is not None and step_rows and not part_of.has(step_rows[0].began, step_rows[0].ended):
        part_of = None
    shown_rows = [row for row in rows if part_of is None or part_of.has(row.began, row.ended)]
    places = [number for number, row in enumerate(shown_rows, start=1) if step is not None and row.step == step]
    window = Window.of(len(shown_rows), _PAGE, until, (places[0], places[-1]) if places else None)
    part = shown_rows[window.part]
    scale = part_of or Scale(0.0, total or 1.0)
    if part_of is None and len(part) < len(rows):
        scale = Scale(min(row.began for row in part), max(row.ended for row in part))
        scale = scale if scale.ended > scale.began else Scale(0.0, total or 1.0)
    return TimelineView(
        seconds=total,
        scale=scale,
        marks=tuple(_marks(scale)),
        lanes=tuple(
            TimelineLane(row.label, row.detail, scale.bars(row.spans), row.seconds, row.step == step, row)
            for row in part
        ),
        window=window,
        now=tuple(
            RunsNow(_name(row), moment - (total - row.since), row.owner)
            for row in rows
            if row.since is not None and moment is not None
        ),
        zoomed=part_of is not None,
        zooms=_zooms(scale, total, step_rows),
        strip=tuple(_strip(rows, total)) if len(rows) > _FEW or part_of is not None else (),
    )


def _name(row: WaterfallRow) -> str:
    return f"{row.label} ({row.call})" if row.call else f"the model call of {row.label.lower()}"


def _zoom(address: str, total: float) -> Scale | None:
    match = _ZOOM.fullmatch(address)
    if match is None:
        return None
    start, end = float(match[1]), min(float(match[2]), total)
    return Scale(start, end) if end - start > _LEAST else None


def _zooms(scale: Scale, total: float, step_rows: Sequence[WaterfallRow]) -> Zooms:
    size = scale.ended - scale.began
    middle = scale.began + size / 2

    def part(start: float, end: float) -> str:
        return f"{max(start, 0.0):.9f}-{min(end, total):.9f}" if 0 <= start < _MOST and 0 < end < _MOST else ""

    wide = max(middle - size, 0.0), min(middle + size, total)
    return Zooms(
        closer=part(middle - size / 4, middle + size / 4) if size > 8 * _LEAST else "",
        wider=None if wide[1] - wide[0] >= total * (1 - _LEAST) else part(*wide),
        earlier=part(max(scale.began - size / 2, 0.0), max(scale.began - size / 2, 0.0) + size)
        if scale.began > 0
        else "",
        later=part(min(scale.ended + size / 2, total) - size, scale.ended + size / 2) if scale.ended < total else "",
        step=part(step_rows[0].began, step_rows[0].ended)
        if step_rows and step_rows[0].ended > step_rows[0].began
        else "",
    )


def _strip(rows: Iterable[WaterfallRow], total: float) -> Iterator[tuple[BarKind, str]]:
    """The outlines of the turn's own model calls and tool calls: how much of each part of the time they fill."""
    if not _LEAST < total < _MOST:
        return
    size = total / _PARTS
    for kind in (BarKind.MODEL, BarKind.CALL):
        part_sizes = [0.0] * _PARTS
        for row in rows:
            for span in row.spans if not row.owner else ():
                if span.kind is kind or (kind is BarKind.MODEL and span.kind is BarKind.FAILED):
                    first, last = (min(max(int(at / size), 0), _PARTS - 1) for at in (span.began, span.ended))
                    for place in range(first, last + 1):
                        part_sizes[place] += max(
                            min(span.ended, (place + 1) * size) - max(span.began, place * size), 0.0
                        )
        heights = (100 - 100 * min(size_of_part / size, 1.0) for size_of_part in part_sizes)
        outline = " ".join(f"V{y:.1f} H{(place + 1) * WIDTH / _PARTS:g}" for place, y in enumerate(heights))
        yield kind, f"M0,100 {outline} V100 Z"


def _marks(scale: Scale) -> Iterator[tuple[float, str]]:
    marks = marks_of(scale.ended - scale.began)
    width = marks[1] if len(marks) > 1 else _MOST
    # Two marks that are near each other have different words.
    decimals = max(0, -floor(log10(width))) if width < 1 else 0
    first = -int(-scale.began // width)
    for value in (width * number for number in range(first, first + len(marks) + 1)):
        if value <= scale.ended:
            yield scale.at(value), f"{value:.{decimals}f} s" if decimals and value >= 1 else seconds(value)


def marks_of(total: float) -> Sequence[float]:
    """Four to eight round times, from 0 on."""
    if not _LEAST < total < _MOST:
        return (0.0,)
    size = 10.0 ** floor(log10(total / 4))
    width = next(size * factor for factor in (1, 2, 5, 10) if total / (size * factor) <= 8)  # noqa: PLR2004 (see above)
    return tuple(width * number for number in range(int(total / width) + 1))
