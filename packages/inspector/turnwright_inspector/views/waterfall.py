"""The rows of a waterfall: the steps of a turn, their calls, and below a call the steps of its sub-agent.

Times are seconds of the turn's active time. A sub-agent's begin with its call, and none leaves the call.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from .steps import Step, StepCall, SubAgent, name_tools


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
class Span:
    """A bar by its times. `title` has its name and duration in words, `tab` is the tab that has more about it."""

    kind: BarKind
    began: float
    ended: float
    title: str
    status: str = ""
    tab: str = ""


@dataclass(frozen=True, slots=True)
class WaterfallRow:
    """A step or a call. `depth` is even for steps: 0 for the turn's, 2 for its sub-agents', and so on.

    `step` is the key of the turn's own step that the row belongs to. `key` is that of the row's step in its turn
    `owner`, which is empty for the shown turn itself. `child` is the turn that a call drove. `since` is when what runs
    now began, in seconds of active time.
    """

    label: str
    detail: str
    spans: tuple[Span, ...]
    seconds: float | None
    step: str
    key: str
    depth: int
    owner: str = ""
    call: str = ""
    child: str | None = None
    since: float | None = None

    @property
    def began(self) -> float:
        return min((span.began for span in self.spans), default=0.0)

    @property
    def ended(self) -> float:
        return max((span.ended for span in self.spans), default=0.0)


@dataclass(frozen=True, slots=True)
class _Frame:
    """A turn in the waterfall, which began at `low` and ends by `high`. `live` is whether it runs now."""

    low: float
    high: float
    depth: int
    owner: str
    step: str
    live: bool

    def at(self, seconds: float) -> float:
        return min(max(self.low + seconds, self.low), self.high)


def waterfall(
    steps: Sequence[Step], below: Mapping[str, SubAgent], now: float, *, live: bool
) -> Iterator[WaterfallRow]:
    """Yield the rows of a turn. `now` is where its active time is, and `live` whether it runs."""
    return _rows(steps, below, _Frame(0.0, now, 0, "", "", live))


def _rows(steps: Sequence[Step], below: Mapping[str, SubAgent], frame: _Frame) -> Iterator[WaterfallRow]:
    for step in steps:
        live = frame.live and step is steps[-1]
        inner = replace(frame, step=frame.step or step.key, live=live)
        yield _of_step(step, inner)
        for call in step.calls:
            row = _of_call(call, step, inner)
            yield row
            child = below.get(call.made.id)
            if child is not None and call.attempts:
                running = row.since is not None and child.live
                yield from _rows(
                    child.steps,
                    child.below,
                    _Frame(row.began, row.ended, frame.depth + 2, child.id, inner.step, running),
                )


def _of_step(step: Step, frame: _Frame) -> WaterfallRow:
    end = frame.high if frame.live else frame.at(step.ended)
    spans = [Span(BarKind.STEP, frame.at(step.began), end, f"{step.title}: {end - frame.at(step.began):.3f} s")]
    start, since = step.began, None
    for attempt in step.attempts:
        start = min(start, attempt.at)
        title = f"attempt {attempt.number} failed: {attempt.cause}, after {attempt.at - start:.3f} s"
        spans.append(Span(BarKind.FAILED, frame.at(start), frame.at(attempt.at), title, tab="request"))
        start = attempt.at + attempt.wait
    if step.replied_at is not None:
        start = min(start, step.replied_at)
        title = f"model call: {step.replied_at - start:.3f} s"
        spans.append(Span(BarKind.MODEL, frame.at(start), frame.at(step.replied_at), title, tab="request"))
    elif frame.live:
        since = frame.at(start)
        title = f"model call: running for {frame.high - since:.3f} s"
        spans.append(Span(BarKind.MODEL, since, frame.high, title, "running", "request"))
    return WaterfallRow(
        label=step.title,
        detail=name_tools(call.made.name for call in step.calls) or step.text[:200],
        spans=tuple(spans),
        seconds=end - frame.at(step.began),
        step=frame.step,
        key=step.key,
        depth=frame.depth,
        owner=frame.owner,
        since=since,
    )


def _of_call(call: StepCall, step: Step, frame: _Frame) -> WaterfallRow:
    starts = [at for at, _ in call.attempts]
    running = frame.live and call.status == "running"
    # A bar without an end by the last fact ends now, or when its turn stopped.
    open_until = frame.high if frame.live or not frame.owner else frame.at(step.ended)
    call_end = open_until if call.ended is None else frame.at(call.ended)
    spans = []
    for number, (start, end) in enumerate(pairwise([*map(frame.at, starts), call_end]), start=1):
        last = number == len(starts)
        again = "asked a person, and was run again" if call.interrupt is not None else "cut off: it was run again"
        title = (
            f"{call.made.name} {call.made.id}, attempt {number}: {call.status if last else again}, {end - start:.3f} s"
        )
        spans.append(Span(BarKind.CALL, start, end, title, call.status if last else "cut", "transcript"))
    return WaterfallRow(
        label=call.made.name,
        detail=call.status if starts or not call.timed else f"{call.status}, did not run",
        spans=tuple(spans),
        seconds=call_end - frame.at(starts[0]) if running else call.seconds,
        step=frame.step,
        key=step.key,
        depth=frame.depth + 1,
        owner=frame.owner,
        call=call.made.id,
        child=call.child,
        since=frame.at(starts[-1]) if running else None,
    )
