"""The waterfall of a turn with its sub-agents and attempts, and which process drove it when.

Times are seconds of active time, without pauses and the time between two processes. A process that resumes a turn reads
the earlier part and runs none of it again: its lane is hatched for that part, and solid for its own work.

A page has some of the lanes, and its scale is theirs, so that a long turn has no slivers; a strip above has the whole
turn. A zoom is a part of the time, and has the lanes that are in it.
"""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from turnwright.inspector.http.render import seconds
from turnwright.inspector.views.pagination import Window
from turnwright.inspector.views.tab_context import TabContext
from turnwright.inspector.views.turn_record import TurnRecord
from turnwright.inspector.views.waterfall import BarKind, Span, WaterfallRow, waterfall
from turnwright_states import State

#: The width of a lane in its own units.
WIDTH: Final = 1000.0
#: Lanes a page.
_PAGE: Final = 100
#: What is shorter than this is drawn as wide, in those units: it can still be seen.
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

    `other` is whether the process differs from the one before.
    """

    x: float
    owner: str
    epoch: int
    rested: float
    other: bool


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

    Of the latter there are as many as a page has, in the time from `began` to `ended` of `seconds`. `zoomed` is
    whether somebody chose that part. `strip` has the outlines of model calls and tool calls in the whole turn.
    """

    seconds: float
    began: float
    ended: float
    marks: tuple[tuple[float, str], ...]
    processes: tuple[TimelineLane, ...]
    lanes: tuple[TimelineLane, ...]
    window: Window
    boundaries: tuple[Boundary, ...]
    now: tuple[RunsNow, ...]
    zoomed: bool
    zooms: Zooms
    strip: tuple[tuple[BarKind, str], ...]


@dataclass(frozen=True, slots=True)
class _Scale:
    began: float
    ended: float

    def at(self, seconds: float) -> float:
        return min(max((seconds - self.began) / (self.ended - self.began), 0.0), 1.0) * WIDTH

    def has(self, began: float, ended: float) -> bool:
        return began <= self.ended and ended >= self.began

    def bars(self, spans: Sequence[Span]) -> tuple[Bar, ...]:
        """The bars on the scale, wide enough to be seen. The others of a step are within the first."""
        drawn: list[Bar] = []
        for span in spans:
            if self.has(span.began, span.ended):
                low, high = 0.0, WIDTH
                if drawn and drawn[0].kind is BarKind.STEP:
                    low, high = drawn[0].x, drawn[0].x + drawn[0].width
                x = max(min(self.at(span.began), high - _NARROWEST), low)
                width = max(min(self.at(span.ended), high) - x, _NARROWEST)
                drawn.append(Bar(span.kind, x, width, span.title, span.status, span.tab))
        return tuple(drawn)


def view(tab_context: TabContext) -> TimelineView:
    """Return the waterfall of the turn up to the shown place."""
    turn, step = tab_context.turn, tab_context.step
    total = turn.facts[-1][1].elapsed
    live = turn.driven and not turn.cut and turn.row.status.outcome is None and turn.result.state is not State.PAUSED
    moment = time.time()
    if live:
        total += max(moment - turn.row.updated_at, 0.0)
    rows = list(waterfall(turn.steps, tab_context.below, total, live=live))
    zoom = _zoom(tab_context.zoom, total)
    chosen = [row for row in rows if step is not None and row.step == step.key]
    if zoom is not None and chosen and not zoom.has(chosen[0].began, chosen[0].ended):
        zoom = None
    shown = [row for row in rows if zoom is None or zoom.has(row.began, row.ended)]
    places = [number for number, row in enumerate(shown, start=1) if step is not None and row.step == step.key]
    window = Window.of(len(shown), _PAGE, tab_context.until, (places[0], places[-1]) if places else None)
    part = shown[window.part]
    scale = zoom or _Scale(0.0, total or 1.0)
    if zoom is None and len(part) < len(rows):
        scale = _Scale(min(row.began for row in part), max(row.ended for row in part))
        scale = scale if scale.ended > scale.began else _Scale(0.0, total or 1.0)
    return TimelineView(
        seconds=total,
        began=scale.began,
        ended=scale.ended,
        marks=tuple(_marks(scale)),
        processes=tuple(_processes(turn, scale, total if live else None)),
        lanes=tuple(
            TimelineLane(
                row.label,
                row.detail,
                scale.bars(row.spans),
                row.seconds,
                step is not None and row.step == step.key,
                row,
            )
            for row in part
        ),
        window=window,
        boundaries=tuple(_boundaries(turn, scale)),
        now=tuple(
            RunsNow(_name(row), moment - (total - row.since), row.owner) for row in rows if row.since is not None
        ),
        zoomed=zoom is not None,
        zooms=_zooms(scale, total, chosen),
        strip=tuple(_strip(rows, total)) if len(rows) > _FEW or zoom is not None else (),
    )


def _name(row: WaterfallRow) -> str:
    return f"{row.label} ({row.call})" if row.call else f"the model call of {row.label.lower()}"


def _zoom(asked: str, total: float) -> _Scale | None:
    found = _ZOOM.fullmatch(asked)
    if found is None:
        return None
    began, ended = float(found[1]), min(float(found[2]), total)
    return _Scale(began, ended) if ended - began > _LEAST else None


def _zooms(scale: _Scale, total: float, chosen: Sequence[WaterfallRow]) -> Zooms:
    size = scale.ended - scale.began
    middle = scale.began + size / 2

    def part(began: float, ended: float) -> str:
        return f"{max(began, 0.0):.9f}-{min(ended, total):.9f}" if 0 <= began < _MOST and 0 < ended < _MOST else ""

    wide = max(middle - size, 0.0), min(middle + size, total)
    return Zooms(
        closer=part(middle - size / 4, middle + size / 4) if size > 8 * _LEAST else "",
        wider=None if wide[1] - wide[0] >= total * (1 - _LEAST) else part(*wide),
        earlier=part(max(scale.began - size / 2, 0.0), max(scale.began - size / 2, 0.0) + size)
        if scale.began > 0
        else "",
        later=part(min(scale.ended + size / 2, total) - size, scale.ended + size / 2) if scale.ended < total else "",
        step=part(chosen[0].began, chosen[0].ended) if chosen and chosen[0].ended > chosen[0].began else "",
    )


def _strip(rows: Iterable[WaterfallRow], total: float) -> Iterator[tuple[BarKind, str]]:
    """The outlines of the turn's own model calls and tool calls: how much of each part of the time they fill."""
    if not _LEAST < total < _MOST:
        return
    size = total / _PARTS
    for kind in (BarKind.MODEL, BarKind.CALL):
        filled = [0.0] * _PARTS
        for row in rows:
            for span in row.spans if not row.owner else ():
                if span.kind is kind or (kind is BarKind.MODEL and span.kind is BarKind.FAILED):
                    first, last = (min(max(int(at / size), 0), _PARTS - 1) for at in (span.began, span.ended))
                    for place in range(first, last + 1):
                        filled[place] += max(min(span.ended, (place + 1) * size) - max(span.began, place * size), 0.0)
        heights = (100 - 100 * min(one / size, 1.0) for one in filled)
        outline = " ".join(f"V{y:.1f} H{(place + 1) * WIDTH / _PARTS:g}" for place, y in enumerate(heights))
        yield kind, f"M0,100 {outline} V100 Z"


def _processes(turn: TurnRecord, scale: _Scale, now: float | None) -> Iterator[TimelineLane]:
    """Return a lane for each claim span, with its input and its work. `now` is where the last one is, if it runs."""
    spans = [span for span in turn.claim_spans if span.first <= turn.at]
    ends = [span.first - 1 for span in spans[1:]] + [turn.at][: len(spans)]  # there may be none
    copied = turn.started.forked_at or 0
    owners: dict[str, int] = {}
    for number, (span, last) in enumerate(zip(spans, ends, strict=True), start=1):
        began, ended = _elapsed(turn, span.first - 1), _elapsed(turn, last)
        ended = ended if now is None or number < len(spans) else now
        bars = []
        if number == 1 and copied:
            began = _elapsed(turn, min(copied, last))
            bars.append(Span(BarKind.COPIED, 0.0, began, f"facts 1 to {copied} are copied"))
        elif span.first > 1:
            title = f"facts 1 to {span.first - 1} were read from the journal, and not run again"
            bars.append(Span(BarKind.READ, 0.0, began, title))
        if not (number == 1 and copied >= last):
            title = f"facts {max(span.first, copied + 1 if number == 1 else 0)} to {last} were executed here"
            bars.append(Span(BarKind.DRIVEN, began, ended, title))
        detail = f"driver {span.owner}, epoch {span.epoch}"
        known = owners.setdefault(span.owner, len(owners) + 1)
        again = " again" if number > 1 and span.owner in [one.owner for one in spans[: number - 1]] else ""
        yield TimelineLane(f"Process {known}{again}", detail, scale.bars(bars), ended - began, chosen=False)


def _boundaries(turn: TurnRecord, scale: _Scale) -> Iterator[Boundary]:
    for before, after in pairwise(turn.claim_spans):
        at = _elapsed(turn, after.first - 1) if after.first <= turn.at else -1.0
        if scale.has(at, at):
            rested = max(after.began - before.ended, 0.0)
            yield Boundary(scale.at(at), after.owner, after.epoch, rested, after.owner != before.owner)


def _elapsed(turn: TurnRecord, seq: int) -> float:
    return turn.journal[seq - 1][1].elapsed if seq else 0.0


def _marks(scale: _Scale) -> Iterator[tuple[float, str]]:
    found = marks_of(scale.ended - scale.began)
    width = found[1] if len(found) > 1 else _MOST
    # Two marks that are near each other have different words.
    decimals = max(0, -_floor_log(width)) if width < 1 else 0
    first = -int(-scale.began // width)
    for value in (width * number for number in range(first, first + len(found) + 1)):
        if value <= scale.ended:
            yield scale.at(value), f"{value:.{decimals}f} s" if decimals and value >= 1 else seconds(value)


def marks_of(total: float) -> Sequence[float]:
    """Four to eight round times, from 0 on."""
    if not _LEAST < total < _MOST:
        return (0.0,)
    size = 10.0 ** _floor_log(total / 4)
    width = next(size * factor for factor in (1, 2, 5, 10) if total / (size * factor) <= 8)  # noqa: PLR2004 (see above)
    return tuple(width * number for number in range(int(total / width) + 1))


def _floor_log(value: float) -> int:
    exponent = 0
    while value >= 10:  # noqa: PLR2004 (the base)
        value, exponent = value / 10, exponent + 1
    while value < 1:
        value, exponent = value * 10, exponent - 1
    return exponent
