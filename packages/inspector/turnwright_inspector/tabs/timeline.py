"""The waterfall of a turn with its sub-agents and attempts, and which process drove it when.

Times are seconds of active time, without pauses and the time between two processes. A process that resumes a turn reads
the earlier part and runs none of it again: its lane is hatched for that part, and solid for its own work.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from turnwright_inspector.views.timeline import Boundary, Scale, TimelineLane, TimelineView, timeline_of
from turnwright_inspector.views.turn_record import TabContext, TurnRecord
from turnwright_inspector.views.waterfall import BarKind, Span, waterfall
from turnwright_states import State


def view(tab_context: TabContext) -> TimelineView:
    """Return the waterfall of the turn up to the shown place."""
    turn, step = tab_context.turn, tab_context.step
    total = turn.facts[-1][1].elapsed
    live = turn.driven and not turn.cut and turn.row.status.outcome is None and turn.result.state is not State.PAUSED
    moment = time.time()
    if live:
        total += max(moment - turn.row.updated_at, 0.0)
    whole = timeline_of(
        list(waterfall(turn.steps, tab_context.below, total, live=live)),
        total,
        zoom=tab_context.zoom,
        step=None if step is None else step.key,
        until=tab_context.until,
        moment=moment,
    )
    return replace(
        whole,
        processes=tuple(_processes(turn, whole.scale, total if live else None)),
        boundaries=tuple(_boundaries(turn, whole.scale)),
    )


def _processes(turn: TurnRecord, scale: Scale, now: float | None) -> Iterator[TimelineLane]:
    """Return a lane for each claim span, with its input and its work. `now` is where the last one is, if it runs."""
    spans = [span for span in turn.claim_spans if span.first <= turn.at]
    ends = [span.first - 1 for span in spans[1:]] + [turn.at][: len(spans)]  # there may be none
    copied_count = turn.started.forked_at or 0
    owners: dict[str, int] = {}
    for number, (span, last) in enumerate(zip(spans, ends, strict=True), start=1):
        start, end = _elapsed(turn, span.first - 1), _elapsed(turn, last)
        end = end if now is None or number < len(spans) else now
        bars = []
        if number == 1 and copied_count:
            start = _elapsed(turn, min(copied_count, last))
            bars.append(Span(BarKind.COPIED, 0.0, start, f"facts 1 to {copied_count} are copied"))
        elif span.first > 1:
            title = f"facts 1 to {span.first - 1} were read from the journal, and not run again"
            bars.append(Span(BarKind.READ, 0.0, start, title))
        if not (number == 1 and copied_count >= last):
            title = f"facts {max(span.first, copied_count + 1 if number == 1 else 0)} to {last} were executed here"
            bars.append(Span(BarKind.DRIVEN, start, end, title))
        detail = f"driver {span.owner}, epoch {span.epoch}"
        number_of_owner = owners.setdefault(span.owner, len(owners) + 1)
        again = " again" if number > 1 and span.owner in [earlier.owner for earlier in spans[: number - 1]] else ""
        yield TimelineLane(f"Process {number_of_owner}{again}", detail, scale.bars(bars), end - start, chosen=False)


def _boundaries(turn: TurnRecord, scale: Scale) -> Iterator[Boundary]:
    for before, after in pairwise(turn.claim_spans):
        at = _elapsed(turn, after.first - 1) if after.first <= turn.at else -1.0
        if scale.has(at, at):
            pause = max(after.began - before.ended, 0.0)
            yield Boundary(scale.at(at), after.owner, after.epoch, pause, after.owner != before.owner)


def _elapsed(turn: TurnRecord, seq: int) -> float:
    return turn.journal[seq - 1][1].elapsed if seq else 0.0
