"""The steps of a recorded run, in the form of a turn's steps, as far as they were recorded.

Times are seconds of active time: what a user took until the next message is left out. A format records when a reply
began, or when it was complete. In the latter case it has the times of results, and a model call begins where something
ended. In the former a step ends where the next entry begins.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from turnwright.privacy.redaction import redactor
from turnwright.store.summaries import ToolCalls
from turnwright_audit.rounds import calls_of, is_reply, is_step, read_count, text_of
from turnwright_audit.trajectories.atif import (
    ResultNotes,
    StepMetrics,
    Trajectory,
    TrajectoryCall,
    TrajectoryResult,
    TrajectoryStep,
)
from turnwright_audit.trajectories.source import seconds_of
from turnwright_states import State, Usage
from turnwright_states import facts as f

from .steps import MOST_TURNS, Step, StepCall, SubAgent

#: The statuses of calls, by those of the format.
STATUSES: Final = {"ok": "ok", "error": "error", "denied": "rejected", "canceled": "aborted"}
#: The status of a result without one, and that of a call without a result.
RECORDED: Final = "recorded"
NO_RESULT: Final = "no result"


def inner_runs(whole: Trajectory) -> dict[str, int]:
    """Return the numbers of the runs of sub-agents in a run, by their ids."""
    return {run.trajectory_id: number for number, run in enumerate(whole.every()) if number and run.trajectory_id}


def inner_of(result: TrajectoryResult | None, numbers: Mapping[str, int]) -> int | None:
    """Return the number of the sub-agent's run that made a result."""
    refs = (result.subagent_trajectory_ref if result is not None else None) or ()
    return next((numbers[ref.trajectory_id or ""] for ref in refs if ref.trajectory_id in numbers), None)


def notes_of(result: TrajectoryResult | None) -> ResultNotes:
    """Return the notes on a result; empty ones if there are none."""
    return ResultNotes() if result is None else result.result_notes


def recorded_steps(run: Trajectory, numbers: Mapping[str, int]) -> tuple[Step, ...]:
    """Return the replies of a run as steps. `numbers` are those of the runs of sub-agents, by their ids.

    A call's id is that of its place on the page of the run.
    """
    reading = _Reading(run, numbers)
    for line, step in enumerate(run.steps, start=1):
        if not step.is_copied_context:
            reading.take(line, step)
    return tuple(reading.steps)


def recorded_sub_agents(whole: Trajectory, steps: Sequence[Step]) -> Mapping[str, SubAgent]:
    """Return the runs below these steps of a run in `whole`, by their calls; the first, where there are very many."""
    numbers, every, remaining = inner_runs(whole), list(whole.every()), MOST_TURNS

    def read(steps: Sequence[Step]) -> Mapping[str, SubAgent]:
        nonlocal remaining
        agents: dict[str, SubAgent] = {}
        for call in (call for step in steps for call in step.calls):
            if call.child is not None and remaining > 0:
                remaining -= 1
                inner = recorded_steps(every[int(call.child)], numbers)
                agents[call.made.id] = SubAgent(call.child, inner, read(inner))
        return agents

    return read(steps)


def tool_calls(whole: Trajectory) -> Mapping[str, ToolCalls]:
    """Return the calls of a run and its sub-agents by tool, with the times of those whose end was recorded."""
    calls: Counter[str] = Counter()
    failure_counts: Counter[str] = Counter()
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for step in (step for run in whole.every() for step in run.steps if not step.is_copied_context):
        for call, result in calls_of(step):
            notes = notes_of(result)
            calls[call.function_name] += 1
            failure_counts[call.function_name] += notes.status == "error"
            end = seconds_of(notes.ended_at)
            start = None if end is None else seconds_of(notes.started_at) or seconds_of(step.timestamp)
            if end is not None and start is not None:
                seconds[call.function_name].append(max(end - start, 0.0))
    return {name: ToolCalls(number, failure_counts[name], tuple(seconds[name])) for name, number in calls.items()}


def lasts(steps: Sequence[Step]) -> float:
    """Return the seconds of active time of a run; 0 if no times were recorded."""
    return max((max(step.ended, *(call.ended or 0.0 for call in step.calls), 0.0) for step in steps), default=0.0)


class _Reading:
    """The steps so far, and the time. `now` is in seconds of active time."""

    def __init__(self, run: Trajectory, numbers: Mapping[str, int]) -> None:
        self.steps: list[Step] = []
        self._numbers = numbers
        results = [result.result_notes for step in run.steps for result in step.results]
        #: Whether the time of a reply is when it was complete.
        self._complete = any(result.ended_at for result in results) and not any(result.started_at for result in results)
        self._now = 0.0
        self._last: float | None = None
        self._messages: list[str] = []

    def take(self, line: int, step: TrajectoryStep) -> None:
        """Take in the next entry."""
        before = self._now
        is_idle = step.source == "user" and not step.step_notes.steered
        self._advance(seconds_of(step.timestamp), idle=is_idle)
        if not self._complete and self.steps and not is_idle:
            self.steps[-1].ended = max(self.steps[-1].ended, self._now)
        if step.source == "user":
            # The messages before the first reply are the prompt.
            if self.steps:
                self._messages.append(text_of(step.message))
        elif is_reply(step):
            self.steps.append(self._step(line, step, before if self._complete else self._now))

    def _step(self, line: int, step: TrajectoryStep, start: float) -> Step:
        reply_time, metrics, number = self._now, step.metrics or StepMetrics(), len(self.steps) + 1
        calls = [self._call(f"call-{line}-{place}", line, *pair) for place, pair in enumerate(calls_of(step), 1)]
        starts = [at for call in calls for at, _ in call.attempts]
        ends = [call.ended for call in calls if call.ended is not None]
        model_ended = reply_time if self._complete else min(starts, default=None)
        messages, self._messages = self._messages, []
        new_step = Step(
            key=str(number),
            title=f"Step {number:,}" if is_step(step) else "Conclusion",
            first=line,
            last=line,
            began=start,
            ended=max([reply_time, *ends]),
            state=State.STREAM,
            text=text_of(step.message),
            reasoning=step.reasoning_content or "",
            replied=line,
            replied_at=model_ended if model_ended is not None and model_ended > start else None,
            usage=Usage(
                input_tokens=int(read_count(metrics.prompt_tokens)),
                output_tokens=int(read_count(metrics.completion_tokens)),
                cost=float(read_count(metrics.cost_usd)),
            ),
            calls=calls,
            messages=messages,
        )
        if self._complete:
            for result in step.results:
                self._advance(seconds_of(result.result_notes.ended_at))
        return new_step

    def _call(self, name: str, line: int, call: TrajectoryCall, result: TrajectoryResult | None) -> StepCall:
        notes = notes_of(result)
        raw = call.call_notes.arguments_raw or ""
        call_fact = f.CallMade(id=name, name=call.function_name, arguments=call.arguments, raw=raw)
        inner = inner_of(result, self._numbers)
        step_call = StepCall(call_fact, NO_RESULT, child=None if inner is None else str(inner), timed=False)
        if result is not None:
            step_call.status = STATUSES.get(notes.status or "", RECORDED)
            step_call.result_fact = f.CallSettled(
                call=name, result=text_of(result.content), state=State.TOOL_EXEC, elapsed=0.0
            )
        end = self._at(notes.ended_at)
        if end is not None:
            start = self._at(notes.started_at) or self._now
            step_call.attempts, step_call.ended = [(start, line)], max(end, start)
        return step_call

    def _at(self, timestamp: str | None) -> float | None:
        """Return a time after the last one, in seconds of active time."""
        moment = seconds_of(timestamp)
        if moment is None or self._last is None:
            return None
        return self._now + max(moment - self._last, 0.0)

    def _advance(self, moment: float | None, *, idle: bool = False) -> None:
        if moment is None:
            return
        if self._last is not None and moment > self._last and not idle:
            self._now += moment - self._last
        self._last = moment if self._last is None else max(moment, self._last)


def text_before(run: Trajectory, line: int) -> str:
    """Return the entries before a line of a run as text: what was sent, as far as it was recorded."""
    return "\n".join(_lines(run.steps[: line - 1]))


def _lines(steps: Sequence[TrajectoryStep]) -> Iterator[str]:
    for step in steps:
        yield from ("", f"{'assistant' if step.source == 'agent' else step.source}:")
        yield text_of(step.message)
        for call, result in calls_of(step):
            yield f"{call.function_name}({json.dumps(redactor().hide_fields(call.arguments), ensure_ascii=False)})"
            yield f"{call.function_name}: {NO_RESULT if result is None else text_of(result.content)}"
