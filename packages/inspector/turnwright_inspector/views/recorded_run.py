"""A recorded run as its page shows it: as far as the recording goes, and what it lacks in words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from turnwright.message import ToolCallPart, ToolResultPart
from turnwright_audit.measure import RunMeasure
from turnwright_audit.rounds import calls_of, shared_result, text_of
from turnwright_audit.trajectories.atif import (
    StepMetrics,
    Trajectory,
    TrajectoryStep,
)
from turnwright_audit.trajectories.source import seconds_of

from .call_row import CallRow, call_row
from .pagination import Window
from .recorded_steps import (
    STATUSES,
    inner_of,
    inner_runs,
    lasts,
    notes_of,
    recorded_steps,
    recorded_sub_agents,
)
from .steps import Step, StepSummary, step_summaries
from .timeline import TimelineView, timeline_of
from .waterfall import waterfall

#: Rows a page, and steps in the list beside them.
_PAGE: Final = 60
_LISTED: Final = 300


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call with its result. `recorded` is the status in the recording, empty without one.

    `inner` is the number of the sub-agent's run.
    """

    row: CallRow
    recorded: str
    inner: int | None


@dataclass(frozen=True, slots=True)
class RecordedLine:
    """A message or an event. `step` is the title of the reply's step, empty for others.

    `at` is in seconds since the Unix epoch. `orphans` are results whose calls are nowhere.
    """

    number: int
    role: str
    step: str
    text: str
    reasoning: str
    calls: tuple[RecordedCall, ...]
    orphans: tuple[str, ...]
    at: float | None
    tokens: int
    cost: float
    model: str
    error: bool
    copied: bool


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run, or that of a sub-agent in it. `lacks` says what was not recorded, a sentence each.

    `lines` are those of this page. `steps` are all replies, whose times end at `seconds`. `listed` are some of them
    around the chosen one, with the numbers of the steps before and after them. `inner` are the runs of sub-agents, by
    number.
    """

    run: Trajectory
    lacks: tuple[str, ...]
    lines: tuple[RecordedLine, ...]
    listed: tuple[StepSummary, ...]
    before: int | None
    after: int | None
    steps: tuple[Step, ...]
    seconds: float
    window: Window
    inner: Mapping[int, Trajectory]
    chosen: int


def recorded_run(whole: Trajectory, measure: RunMeasure, *, inner: int, step: int, until: int | None) -> RecordedRun:
    """Return a run as its page shows it. `inner` is the number of a sub-agent's run, 0 for the whole run.

    `step` is a reply that the page begins with, and `until` is where its lines end.
    """
    every, numbers = list(whole.every()), inner_runs(whole)
    run = every[inner] if 0 < inner < len(every) else whole
    steps = recorded_steps(run, numbers)
    chosen_number = steps[step - 1].first if 0 < step <= len(steps) else 0
    first = chosen_number or 1
    window = Window.of(len(run.steps), _PAGE, until, (first, min(first + _PAGE - 1, len(run.steps))))
    step_window = Window.of(len(steps), _LISTED, None, (max(step - _LISTED // 2, 1), len(steps)))
    return RecordedRun(
        run=run,
        lacks=tuple(_lacks(whole, measure, steps)),
        lines=tuple(_lines(run, window, {item.first: item.title for item in steps}, numbers)),
        listed=step_summaries(steps[step_window.part]),
        before=step_window.earlier,
        after=None if step_window.later is None else step_window.last + 1,
        steps=steps,
        seconds=lasts(steps),
        window=window,
        inner={number: item for number, item in enumerate(every) if number},
        chosen=chosen_number,
    )


def run_timeline(whole: Trajectory, run_view: RecordedRun, *, zoom: str, step: int, until: int | None) -> TimelineView:
    """Return the waterfall of a run with its sub-agents."""
    rows = waterfall(run_view.steps, recorded_sub_agents(whole, run_view.steps), run_view.seconds, live=False)
    return timeline_of(list(rows), run_view.seconds, zoom=zoom, step=str(step) if step else None, until=until)


def _lacks(run: Trajectory, measure: RunMeasure, replies: Sequence[Step]) -> Iterator[str]:
    notes, steps = run.run_notes, run.steps
    if notes.cut:
        yield "The recording ends inside the run."
    if notes.ending is None:
        yield f"How the run ended was not recorded; its last step shows: {measure.ending}."
    yield from _times(replies)
    if not measure.tokens:
        yield "Tokens were not recorded."
    if not measure.cost:
        yield "Costs were not recorded."
    if notes.limits is None:
        yield "Limits were not recorded."
    if not any(step.source == "system" and text_of(step.message).strip() for step in steps):
        yield "Instructions were not recorded."
    for count, singular, plural in (
        (measure.unpaired, "call has no recorded result", "calls have no recorded result"),
        (
            measure.lost_calls + measure.unreadable,
            "call or result could not be read",
            "calls or results could not be read",
        ),
        (measure.unreadable_lines, "line could not be read", "lines could not be read"),
    ):
        if count:
            yield f"{count:,} {singular if count == 1 else plural}."


def _times(steps: Sequence[Step]) -> Iterator[str]:
    if not lasts(steps):
        yield "Times were not recorded."
    elif not any(call.ended is not None for step in steps for call in step.calls):
        yield "How long calls took was not recorded."


def _lines(
    run: Trajectory, window: Window, titles: Mapping[int, str], numbers: Mapping[str, int]
) -> Iterator[RecordedLine]:
    for number, step in enumerate(run.steps[window.part], start=window.first):
        metrics = step.metrics or StepMetrics()
        yield RecordedLine(
            number=number,
            role="assistant" if step.source == "agent" else step.source,
            step=titles.get(number, ""),
            text=text_of(step.message),
            reasoning=step.reasoning_content or "",
            calls=tuple(_calls(step, numbers)),
            orphans=tuple(_orphans(step)),
            at=seconds_of(step.timestamp),
            tokens=(metrics.prompt_tokens or 0) + (metrics.completion_tokens or 0),
            cost=metrics.cost_usd or 0.0,
            model=step.model_name or "",
            error=step.step_notes.error,
            copied=bool(step.is_copied_context),
        )


def _calls(step: TrajectoryStep, numbers: Mapping[str, int]) -> Iterator[RecordedCall]:
    for call, result in calls_of(step):
        part = ToolCallPart(id=call.tool_call_id, name=call.function_name, arguments=call.arguments)
        result_part = None
        status = STATUSES.get(notes_of(result).status or "", "")
        if result is not None:
            result_part = ToolResultPart(call=part.id, name=part.name, text=text_of(result.content))
        row = replace(
            call_row(part, result_part, None, {}), status=status or "open", raw=call.call_notes.arguments_raw or ""
        )
        yield RecordedCall(row, status or ("no result recorded" if result is None else ""), inner_of(result, numbers))


def _orphans(step: TrajectoryStep) -> Sequence[str]:
    call_ids = {call.tool_call_id for call in step.tool_calls or ()}
    common_result = shared_result(step) if call_ids else None
    return [
        text_of(result.content)
        for result in step.results
        if result.source_call_id not in call_ids and result is not common_result
    ]
