"""Builds a trajectory from the parts that a reader finds, in the order of the recording.

Readers know their formats; the builder pairs results with calls, numbers the steps, and keeps what does not fit.
"""

from collections import deque
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from msgspec.structs import asdict
from pydantic import JsonValue

from turnwright._base.words import cut
from turnwright.model.http.json_text import whole_object
from turnwright.model.protocol import MAX_CALL_ID

from .atif import (
    VERSION,
    WAITING,
    Content,
    Extra,
    FinalMetrics,
    Observation,
    ResultNotes,
    ResultStatus,
    RunNotes,
    Source,
    StepMetrics,
    SubagentRef,
    Trajectory,
    TrajectoryAgent,
    TrajectoryCall,
    TrajectoryResult,
    TrajectoryStep,
)
from .shapes import json_text

_UNKNOWN: Final = "unknown"


class _Asked(NamedTuple):
    id: str
    step: TrajectoryStep
    call: TrajectoryCall


class _Orphan(NamedTuple):
    step: TrajectoryStep
    result: TrajectoryResult
    notes: ResultNotes


class RunBuilder:
    """One run in the making.

    `format` is the name of the reader, `run` names the run within its file. Times are ISO 8601.
    """

    def __init__(
        self,
        format: str,  # noqa: A002 (the field's name)
        *,
        agent: str,
        version: str = _UNKNOWN,
        model: str | None = None,
        run: str | None = None,
        session: str | None = None,
        id: str | None = None,  # noqa: A002 (the field's name)
    ) -> None:
        self.notes = RunNotes(format=format, run=run)
        self.trajectory = Trajectory(
            schema_version=VERSION,
            agent=TrajectoryAgent(name=agent or _UNKNOWN, version=version or _UNKNOWN, model_name=model),
            session_id=session,
            trajectory_id=id,
            extra=Extra(turnwright=self.notes),
        )
        self._latest: TrajectoryStep | None = None
        self._calls: dict[str, deque[_Asked]] = {}
        self._answered: dict[str, _Asked] = {}
        self._open: dict[str, _Asked] = {}
        self._orphans: list[_Orphan] = []
        self._repeated: dict[str, int] = {}
        self._unreadable_calls: set[str] = set()
        self._results = 0

    @property
    def steps(self) -> list[TrajectoryStep]:
        """The steps so far."""
        return self.trajectory.steps

    @property
    def open_calls(self) -> tuple[str, ...]:
        """The ids of the calls that have no result yet, oldest first."""
        return tuple(self._open)

    def user(self, message: Content, *, at: str | None = None) -> TrajectoryStep:
        """Add a user message. It opens a turn."""
        return self._add("user", message, at)

    def system(self, message: Content, *, at: str | None = None, error: bool = False) -> TrajectoryStep:
        """Add an event of the system: its prompt, or (`error`) a failed or retried request to the model."""
        step = self._add("system", message, at)
        if error:
            step.note().error = True
        return step

    def reply(
        self,
        message: Content = "",
        *,
        at: str | None = None,
        model: str | None = None,
        reasoning: str | None = None,
        metrics: StepMetrics | None = None,
        stop_reason: str | None = None,
    ) -> TrajectoryStep:
        """Add a reply of a model. `call` adds its calls. The reader may change the step as more of it is found."""
        step = self._latest = self._add("agent", message, at)
        step.model_name, step.reasoning_content, step.metrics = model, reasoning or None, metrics
        step.llm_call_count = 1
        if stop_reason:
            step.note().stop_reason = stop_reason
        return step

    def call(
        self,
        call_id: str | None,
        name: str,
        arguments: JsonValue = None,
        *,
        step: TrajectoryStep | None = None,
    ) -> TrajectoryCall:
        """Add a call to a reply, the latest one by default; without any reply yet, an empty one is added first.

        `arguments` are an object, or its JSON text; what is neither is kept as `arguments_raw`. A call without an id
        gets one, and so does one whose id is taken. Ids are cut as the engine cuts them.
        """
        step = step or self._latest or self.reply()
        known_id = cut(call_id or "", MAX_CALL_ID) or f"call_{len(self._open) + len(self._answered) + 1}"
        own_id = known_id
        while own_id in self._open or own_id in self._answered:
            self._repeated[known_id] = self._repeated.get(known_id, 1) + 1
            own_id = f"{known_id}#{self._repeated[known_id]}"
        call = TrajectoryCall(tool_call_id=own_id, function_name=name)
        call.arguments, raw = _object(arguments)
        if raw is not None:
            call.note().arguments_raw = raw
        if step.tool_calls is None:
            step.tool_calls = []
        step.tool_calls.append(call)
        self._open[own_id] = _Asked(known_id, step, call)
        self._calls.setdefault(known_id, deque()).append(self._open[own_id])
        return call

    def lose_call(self, call_id: str) -> None:
        """Note the id of a call that could not be read, so that its result is not an orphan."""
        self._unreadable_calls.add(cut(call_id, MAX_CALL_ID))

    def result(
        self,
        call: str | None,
        content: Content | None,
        *,
        status: ResultStatus | None = None,
        started: str | None = None,
        ended: str | None = None,
        subagent: SubagentRef | None = None,
        hosted: bool = False,
    ) -> TrajectoryResult:
        """Add the result of the call with this id; of the oldest open call if it is None.

        It is added to the step of its call, however late it comes. So is a second result of a call. A result whose
        call is unknown is an orphan: it is kept at the latest step, with its id in the notes. If a call with this id
        comes later and gets no other result, it is the result of that call. `hosted`: the provider ran the call.
        """
        self._results += 1
        notes = ResultNotes(status=status, started_at=started, ended_at=ended, order=self._results, hosted=hosted)
        call = call and cut(call, MAX_CALL_ID)
        open_call = self._take(call)
        if open_call is None:
            step = self.steps[-1] if self.steps else self.system("")
            notes.orphan_id = call or ""
        else:
            step = open_call.step
        result = TrajectoryResult(
            source_call_id=open_call and open_call.call.tool_call_id,
            content=content,
            subagent_trajectory_ref=[subagent] if subagent else None,
            extra=Extra(turnwright=notes),
        )
        if open_call is None:
            self._orphans.append(_Orphan(step, result, notes))
        _observe(step, result)
        return result

    def mark_unreadable(self, ids: Collection[str]) -> None:
        """Mark calls without results, and orphans, whose ids are in lines that could not be read: these are not lost.

        Call it once, after all results were added.
        """
        self._pair_orphans()
        for orphan in self._orphans:
            orphan.notes.unreadable = orphan.notes.orphan_id in ids
        for own_id, open_call in tuple(self._open.items()):
            if open_call.id in ids:
                self.result(own_id, None).extra = Extra(turnwright=ResultNotes(unreadable=True))

    def mark_waiting(self, tools: Collection[str]) -> None:
        """Mark calls of tools that ask a person as waiting, if the run ends with them. Call it behind the last step."""
        for open_call in self._open.values():
            call = open_call.call
            if open_call.step is self.steps[-1] and call.function_name in tools:
                call.note().state = WAITING

    def subagent(self, run: Trajectory) -> None:
        """Add the run of a sub-agent. It must have a `trajectory_id`."""
        if self.trajectory.subagent_trajectories is None:
            self.trajectory.subagent_trajectories = []
        self.trajectory.subagent_trajectories.append(run)

    def finish(
        self,
        *,
        ending: str | None = None,
        success: bool | None = None,
        cut: bool = False,
        unreadable_lines: int = 0,
        totals: StepMetrics | None = None,
    ) -> Trajectory:
        """Return the run. A run without steps gets an empty one of the system, for the format demands one.

        `totals` are the tokens and the cost of the whole run, where the recording has them.
        """
        self._pair_orphans()
        for orphan in self._orphans:
            orphan.notes.unreadable = orphan.notes.unreadable or orphan.notes.orphan_id in self._unreadable_calls
        self.notes.ending, self.notes.success, self.notes.cut = ending, success, cut
        self.notes.unreadable_lines = unreadable_lines
        if totals is not None:
            sums = {f"total_{name}": amount for name, amount in asdict(totals).items()}
            self.trajectory.final_metrics = FinalMetrics(**sums)
        if not self.steps:
            self.system("")
        return self.trajectory

    def _pair_orphans(self) -> None:
        """Give open calls the results that came before them."""
        for orphan in tuple(self._orphans) if self._open else ():
            step, result, notes = orphan
            open_call = self._take(notes.orphan_id) if self._calls.get(notes.orphan_id or "") else None
            if open_call is not None and step.observation is not None:
                self._orphans.remove(orphan)
                other_results = [candidate for candidate in step.results if candidate is not result]
                step.observation = Observation(results=other_results) if other_results else None
                result.source_call_id = open_call.call.tool_call_id
                notes.orphan_id, notes.unreadable = None, False
                _observe(open_call.step, result)

    def _add(self, source: Source, message: Content, at: str | None) -> TrajectoryStep:
        step = TrajectoryStep(step_id=len(self.steps) + 1, source=source, message=message, timestamp=at)
        self.steps.append(step)
        return step

    def _take(self, call_id: str | None) -> _Asked | None:
        if call_id is None:
            open_call = next(iter(self._open.values()), None)
        else:
            waiting = self._calls.get(call_id)
            open_call = waiting[0] if waiting else self._open.get(call_id) or self._answered.get(call_id)
        if open_call is not None:
            own_id = open_call.call.tool_call_id
            if self._open.pop(own_id, None):
                self._calls[open_call.id].remove(open_call)
            self._answered[own_id] = open_call
        return open_call


def _observe(step: TrajectoryStep, result: TrajectoryResult) -> None:
    if step.observation is None:
        step.observation = Observation(results=[])
    step.observation.results.append(result)


def _object(arguments: JsonValue) -> tuple[dict[str, JsonValue], str | None]:
    """Return the arguments as an object, and the text that is none."""
    if isinstance(arguments, str):
        value = {} if arguments.strip() == "null" else whole_object(arguments)
        return ({}, arguments) if value is None else (value, None)
    if arguments is None:
        return {}, None
    if isinstance(arguments, Mapping):
        return dict(arguments), None
    return {}, json_text(arguments)
