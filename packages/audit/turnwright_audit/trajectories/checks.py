"""Checks of a trajectory that the validators of its format do not make, or not alike."""

from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from .atif import Trajectory, TrajectoryStep
from .source import seconds_of

FindingKind = Literal[
    "unknown version",
    "duplicate call id",
    "duplicate result",
    "result without its call",
    "result at another step",
    "sub-agent not found",
    "negative count",
    "more cached than prompt tokens",
    "time runs backwards",
]
_VERSIONS: Final = frozenset(f"ATIF-v1.{minor}" for minor in range(9))


class Finding(NamedTuple):
    """Something in a trajectory that cannot be so. `step` is its number, 0 for the whole run."""

    kind: FindingKind
    step: int
    what: str


def findings_of(run: Trajectory) -> Iterator[Finding]:
    """Yield what is wrong in a run and in the runs of its sub-agents."""
    known_ids = {trajectory.trajectory_id for trajectory in run.every() if trajectory.trajectory_id}
    for trajectory in run.every():
        if trajectory.schema_version not in _VERSIONS:
            yield Finding("unknown version", 0, trajectory.schema_version)
        yield from _pairing(trajectory)
        latest: float | None = None
        for step in trajectory.steps:
            yield from _references(step, known_ids)
            yield from _counts(step)
            at = seconds_of(step.timestamp)
            if at is not None and latest is not None and at < latest:
                yield Finding("time runs backwards", step.step_id, step.timestamp or "")
            latest = at if latest is None or (at is not None and at > latest) else latest
        totals = trajectory.final_metrics
        if totals is not None:
            sums = totals.total_prompt_tokens, totals.total_completion_tokens, totals.total_cached_tokens
            yield from _amounts(
                0, (*sums, totals.total_cost_usd), totals.total_prompt_tokens, totals.total_cached_tokens
            )


def _pairing(run: Trajectory) -> Iterator[Finding]:
    call_counts = Counter(call.tool_call_id for step in run.steps for call in step.tool_calls or ())
    result_counts: Counter[str] = Counter()
    for step in run.steps:
        own_ids = {call.tool_call_id for call in step.tool_calls or ()}
        for call in own_ids:
            if call_counts[call] > 1:
                yield Finding("duplicate call id", step.step_id, call)
        for result in step.results:
            call_id = result.source_call_id
            if call_id is None:
                continue
            result_counts[call_id] += 1
            if result_counts[call_id] > call_counts[call_id] > 0:
                yield Finding("duplicate result", step.step_id, call_id)
            if not call_counts[call_id]:
                yield Finding("result without its call", step.step_id, call_id)
            elif call_id not in own_ids:
                yield Finding("result at another step", step.step_id, call_id)


def _references(step: TrajectoryStep, known_ids: set[str]) -> Iterator[Finding]:
    for result in step.results:
        for reference in result.subagent_trajectory_ref or ():
            referenced_id = reference.trajectory_id
            if referenced_id not in known_ids and reference.trajectory_path is None and reference.session_id is None:
                yield Finding("sub-agent not found", step.step_id, referenced_id or "")


def _counts(step: TrajectoryStep) -> Iterator[Finding]:
    metrics = step.metrics
    if metrics is not None:
        counts = metrics.prompt_tokens, metrics.completion_tokens, metrics.cached_tokens, metrics.cost_usd
        yield from _amounts(step.step_id, counts, metrics.prompt_tokens, metrics.cached_tokens)


def _amounts(
    step: int, counts: tuple[float | None, ...], prompt: int | None, cached_tokens: int | None
) -> Iterator[Finding]:
    for count in counts:
        if count is not None and count < 0:
            yield Finding("negative count", step, str(count))
    if cached_tokens is not None and prompt is not None and cached_tokens > prompt:
        yield Finding("more cached than prompt tokens", step, f"{cached_tokens} of {prompt}")
