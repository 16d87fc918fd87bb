"""Checks of a trajectory that the validators of its format do not make, or not alike."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from .atif import Trajectory, TrajectoryStep

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
    known = {one.trajectory_id for one in run.every() if one.trajectory_id}
    for one in run.every():
        if one.schema_version not in _VERSIONS:
            yield Finding("unknown version", 0, one.schema_version)
        yield from _pairing(one)
        latest: datetime | None = None
        for step in one.steps:
            yield from _references(step, known)
            yield from _counts(step)
            at = _time(step.timestamp)
            if at is not None and latest is not None and at < latest:
                yield Finding("time runs backwards", step.step_id, step.timestamp or "")
            latest = at if latest is None or (at is not None and at > latest) else latest
        totals = one.final_metrics
        if totals is not None:
            sums = totals.total_prompt_tokens, totals.total_completion_tokens, totals.total_cached_tokens
            yield from _amounts(
                0, (*sums, totals.total_cost_usd), totals.total_prompt_tokens, totals.total_cached_tokens
            )


def _pairing(run: Trajectory) -> Iterator[Finding]:
    seen = Counter(call.tool_call_id for step in run.steps for call in step.tool_calls or ())
    answered: Counter[str] = Counter()
    for step in run.steps:
        own = {call.tool_call_id for call in step.tool_calls or ()}
        for call in own:
            if seen[call] > 1:
                yield Finding("duplicate call id", step.step_id, call)
        for result in step.observation.results if step.observation else ():
            call_id = result.source_call_id
            if call_id is None:
                continue
            answered[call_id] += 1
            if answered[call_id] > seen[call_id] > 0:
                yield Finding("duplicate result", step.step_id, call_id)
            if not seen[call_id]:
                yield Finding("result without its call", step.step_id, call_id)
            elif call_id not in own:
                yield Finding("result at another step", step.step_id, call_id)


def _references(step: TrajectoryStep, known: set[str]) -> Iterator[Finding]:
    for result in step.observation.results if step.observation else ():
        for reference in result.subagent_trajectory_ref or ():
            named = reference.trajectory_id
            if named not in known and reference.trajectory_path is None and reference.session_id is None:
                yield Finding("sub-agent not found", step.step_id, named or "")


def _counts(step: TrajectoryStep) -> Iterator[Finding]:
    used = step.metrics
    if used is not None:
        counts = used.prompt_tokens, used.completion_tokens, used.cached_tokens, used.cost_usd
        yield from _amounts(step.step_id, counts, used.prompt_tokens, used.cached_tokens)


def _amounts(step: int, counts: tuple[float | None, ...], prompt: int | None, cached: int | None) -> Iterator[Finding]:
    for count in counts:
        if count is not None and count < 0:
            yield Finding("negative count", step, str(count))
    if cached is not None and prompt is not None and cached > prompt:
        yield Finding("more cached than prompt tokens", step, f"{cached} of {prompt}")


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
