"""The waterfall: when each step called its model and ran its calls, and which process did it.

Times are seconds of active time, without pauses and the time between two processes. A process that resumes a turn reads
the earlier part and runs none of it again: its lane is hatched for that part, and solid for its own work.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

from turnwright.inspector.views.pagination import Window
from turnwright.inspector.views.steps import Step, StepCall
from turnwright.inspector.views.tab_context import TabContext
from turnwright.inspector.views.turn_record import TurnRecord

#: The width of a lane in its own units.
WIDTH: Final = 1000.0
#: Lanes a page.
_PAGE: Final = 100
#: What is shorter than this is drawn as wide, in those units: it can still be seen.
_NARROWEST: Final = 2.0
#: Seconds between which a scale has marks. Only a forged journal has more.
_LEAST: Final = 1e-9
_MOST: Final = 1e12


class BarKind(StrEnum):
    """The kind of a bar."""

    STEP = "step"
    MODEL = "model"
    FAILED = "failed"
    CALL = "call"
    READ = "read"
    DRIVEN = "driven"
    COPIED = "copied"


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from `x` on, `width` wide, both of `WIDTH`. `title` has its name and duration in words."""

    kind: BarKind
    x: float
    width: float
    title: str
    status: str = ""


@dataclass(frozen=True, slots=True)
class TimelineLane:
    """A row of the waterfall. `step` is the key of the step that it belongs to; `depth` is 1 inside a step.

    `child` is the turn that the call drove.
    """

    label: str
    detail: str
    bars: tuple[Bar, ...]
    seconds: float | None
    step: str
    depth: int
    chosen: bool
    child: str | None = None


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
class TimelineView:
    """The waterfall: a scale with its marks (x, seconds), a lane for each process, and those of the steps.

    Of the latter there are as many as a page has.
    """

    seconds: float
    marks: tuple[tuple[float, float], ...]
    processes: tuple[TimelineLane, ...]
    lanes: tuple[TimelineLane, ...]
    window: Window
    boundaries: tuple[Boundary, ...]


@dataclass(frozen=True, slots=True)
class _Scale:
    seconds: float

    def at(self, seconds: float) -> float:
        return min(max(seconds / self.seconds, 0.0), 1.0) * WIDTH

    def bar(
        self,
        kind: BarKind,
        began: float,
        ended: float,
        title: str,
        *,
        status: str = "",
        within: Bar | None = None,
    ) -> Bar:
        """A bar from one time to the other, wide enough to be seen; inside the bar `within`, if there is one."""
        low, high = (0.0, WIDTH) if within is None else (within.x, within.x + within.width)
        x = max(min(self.at(began), high - _NARROWEST), low)
        return Bar(kind, x, max(min(self.at(ended), high) - x, _NARROWEST), title, status)


def view(tab_context: TabContext) -> TimelineView:
    """Return the waterfall of the turn up to the shown place."""
    turn = tab_context.turn
    total = turn.facts[-1][1].elapsed
    scale = _Scale(total or 1.0)
    lanes: list[TimelineLane] = []
    for step in turn.steps:
        lanes += _lanes(step, scale, total, chosen=tab_context.step is step)
    chosen = [number for number, lane in enumerate(lanes, start=1) if lane.chosen]
    window = Window.of(len(lanes), _PAGE, tab_context.until, (chosen[0], chosen[-1]) if chosen else None)
    return TimelineView(
        seconds=total,
        marks=tuple((scale.at(mark), mark) for mark in marks_of(total)),
        processes=tuple(_processes(turn, scale)),
        lanes=tuple(lanes[window.part]),
        window=window,
        boundaries=tuple(_boundaries(turn, scale)),
    )


def _lanes(step: Step, scale: _Scale, now: float, *, chosen: bool) -> Iterator[TimelineLane]:
    whole = scale.bar(BarKind.STEP, step.began, step.ended, f"{step.title}: {step.seconds:.3f} s")
    bars, began = [whole], step.began
    for failed in step.attempts:
        began = min(began, failed.at)
        title = f"attempt {failed.number} failed: {failed.cause}, after {failed.at - began:.3f} s"
        bars.append(scale.bar(BarKind.FAILED, began, failed.at, title, within=whole))
        began = failed.at + failed.wait
    if step.replied_at is not None:
        began = min(began, step.replied_at)
        title = f"model call: {step.replied_at - began:.3f} s"
        bars.append(scale.bar(BarKind.MODEL, began, step.replied_at, title, within=whole))
    detail = ", ".join(dict.fromkeys(call.made.name for call in step.calls)) or step.text
    yield TimelineLane(step.title, detail, tuple(bars), step.seconds, step.key, 0, chosen)
    for call in step.calls:
        yield _of_call(call, step, scale, now, whole, chosen=chosen)


def _of_call(call: StepCall, step: Step, scale: _Scale, now: float, whole: Bar, *, chosen: bool) -> TimelineLane:
    starts = [at for at, _ in call.attempts]
    ended = now if call.ended is None else call.ended
    bars = []
    for number, (start, end) in enumerate(pairwise([*starts, ended]), start=1):
        last = number == len(starts)
        asked = "asked a person, and was run again" if call.interrupt is not None else "cut off: it was run again"
        how = call.status if last else asked
        title = f"{call.made.name} {call.made.id}, attempt {number}: {how}, {end - start:.3f} s"
        bars.append(scale.bar(BarKind.CALL, start, end, title, status=call.status if last else "cut", within=whole))
    detail = call.status if starts else f"{call.status}, did not run"
    return TimelineLane(call.made.name, detail, tuple(bars), call.seconds, step.key, 1, chosen, call.child)


def _processes(turn: TurnRecord, scale: _Scale) -> Iterator[TimelineLane]:
    """Return a lane for each claim span, with its input and its work."""
    spans = [span for span in turn.claim_spans if span.first <= turn.at]
    ends = [span.first - 1 for span in spans[1:]] + [turn.at][: len(spans)]  # there may be none
    copied = turn.started.forked_at or 0
    owners: dict[str, int] = {}
    for number, (span, last) in enumerate(zip(spans, ends, strict=True), start=1):
        began, ended = _elapsed(turn, span.first - 1), _elapsed(turn, last)
        bars = []
        if number == 1 and copied:
            bars.append(
                scale.bar(BarKind.COPIED, 0.0, _elapsed(turn, min(copied, last)), f"facts 1 to {copied} are copied")
            )
            began = _elapsed(turn, min(copied, last))
        elif span.first > 1:
            title = f"facts 1 to {span.first - 1} were read from the journal, and not run again"
            bars.append(scale.bar(BarKind.READ, 0.0, began, title))
        if not (number == 1 and copied >= last):
            title = f"facts {max(span.first, copied + 1 if number == 1 else 0)} to {last} were executed here"
            bars.append(scale.bar(BarKind.DRIVEN, began, ended, title))
        detail = f"driver {span.owner}, epoch {span.epoch}"
        known = owners.setdefault(span.owner, len(owners) + 1)
        again = " again" if number > 1 and span.owner in [one.owner for one in spans[: number - 1]] else ""
        yield TimelineLane(f"Process {known}{again}", detail, tuple(bars), ended - began, "", 0, chosen=False)


def _boundaries(turn: TurnRecord, scale: _Scale) -> Iterator[Boundary]:
    for before, after in pairwise(turn.claim_spans):
        if after.first <= turn.at:
            rested = max(after.began - before.ended, 0.0)
            yield Boundary(
                scale.at(_elapsed(turn, after.first - 1)), after.owner, after.epoch, rested, after.owner != before.owner
            )


def _elapsed(turn: TurnRecord, seq: int) -> float:
    return turn.journal[seq - 1][1].elapsed if seq else 0.0


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
