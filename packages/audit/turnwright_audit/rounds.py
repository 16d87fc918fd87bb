"""The turns of a recorded run, as the machine counts them: steps with their calls, tokens and cost."""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

from turnwright_audit.trajectories.atif import (
    Content,
    ContentPart,
    StepMetrics,
    Trajectory,
    TrajectoryCall,
    TrajectoryResult,
    TrajectoryStep,
)
from turnwright_states.doom import call_key
from turnwright_states.result_key import result_key

#: The beginnings of results that are errors, where a recording does not mark them.
_ERRORS: Final = ("error", "traceback (most recent call last)", "exception:", "fatal:")
_LONGEST_BEGINNING: Final = 40
#: A larger number of tokens, or a larger cost, is a mistake of the recording.
_LARGEST: Final = 10**15


class AuditCall(Struct):
    """A call with its result. `key` is the doom-loop detector's; `exact` is a digest of the result as it is.

    `status` is None without a result. `valid`: the arguments were a JSON object, so that the call takes a place in the
    budget.
    """

    name: str
    key: str
    text: str
    exact: bytes
    status: str | None
    valid: bool
    _masked: str = ""

    @property
    def result(self) -> str:
        """The key of the result without noise. Most calls are never asked for it, since it takes time."""
        if not self._masked and self.status is not None:
            self._masked = result_key(self.text)
        return self._masked

    @property
    def failed(self) -> bool:
        """Whether the result is an error or a denial."""
        return self.status in ("error", "denied")


class AuditStep(Struct):
    """A reply of the model. `number` counts the replies of the run from 1. `answers`: it has a text."""

    number: int
    calls: list[AuditCall]
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    answers: bool = False

    @property
    def tokens(self) -> int:
        """The tokens of the reply, input and output."""
        return self.input_tokens + self.output_tokens


def turns_of(run: Trajectory) -> Iterator[list[AuditStep]]:
    """Yield the steps of each turn. A turn is what follows one user message; it may have no step.

    Steps before the first message are a turn too. History that a run copied from another is left out.
    """
    turn: list[AuditStep] = []
    late = late_results(run)
    number = 0
    has_opened = False
    for step in run.steps:
        if step.is_copied_context:
            continue
        if step.source == "user":
            if step.step_notes.steered:
                continue
            if has_opened or turn:
                yield turn
            turn, has_opened = [], True
        elif is_step(step):
            number += 1
            turn.append(_step(number, step, late))
    if has_opened or turn:
        yield turn


def is_reply(step: TrajectoryStep) -> bool:
    """Whether the step is a reply of a model of this run."""
    return step.source == "agent" and step.llm_call_count != 0 and not step.is_copied_context


def is_step(step: TrajectoryStep) -> bool:
    """Whether the step is a reply that a limit of steps counts."""
    return is_reply(step) and not step.step_notes.conclusion


def shared_result(step: TrajectoryStep) -> TrajectoryResult | None:
    """Return the result that other programs give to all calls of a step together, as that of no call."""
    shared = (result for result in step.results if result.source_call_id is None)
    return next((result for result in shared if result.result_notes.orphan_id is None), None)


def late_results(run: Trajectory) -> dict[str, TrajectoryResult]:
    """Return the results that other programs write at another step than that of their call, by its id."""
    late: dict[str, TrajectoryResult] = {}
    for step in run.steps:
        own_ids = {call.tool_call_id for call in step.tool_calls or ()} if step.observation else set()
        for result in step.results:
            if result.source_call_id is not None and result.source_call_id not in own_ids:
                late.setdefault(result.source_call_id, result)
    return late


def calls_of(
    step: TrajectoryStep, late: Mapping[str, TrajectoryResult] = {}
) -> Iterator[tuple[TrajectoryCall, TrajectoryResult | None]]:
    """Yield the calls of a step with their results. `late` has those of other steps."""
    results: dict[str | None, TrajectoryResult] = {}
    for result in step.results:
        results.setdefault(result.source_call_id, result)
    common_result = shared_result(step)
    for call in step.tool_calls or ():
        yield call, results.get(call.tool_call_id) or late.get(call.tool_call_id, common_result)


def _step(number: int, step: TrajectoryStep, late: Mapping[str, TrajectoryResult]) -> AuditStep:
    metrics = step.metrics or StepMetrics()
    return AuditStep(
        number,
        [_call(call, result) for call, result in calls_of(step, late)],
        int(read_count(metrics.prompt_tokens)),
        int(read_count(metrics.completion_tokens)),
        read_count(metrics.cost_usd),
        bool(text_of(step.message).strip()),
    )


def _call(call: TrajectoryCall, result: TrajectoryResult | None) -> AuditCall:
    raw = call.call_notes.arguments_raw
    key = call_key(call.function_name, call.arguments if raw is None else None, raw or "", None)
    text = text_of(result.content) if result else ""
    exact = blake2b(text.encode(errors="replace"), digest_size=8).digest() if result else b""
    return AuditCall(call.function_name, key, text, exact, status_of(result, text), raw is None)


def status_of(result: TrajectoryResult | None, text: str) -> str | None:
    """Return the status of a result, from its text where the recording does not say it; None without a result."""
    if result is None:
        return None
    if status := result.result_notes.status:
        return status
    return "error" if text[:_LONGEST_BEGINNING].lstrip().lower().startswith(_ERRORS) else "ok"


def read_count(number: float | None) -> float:
    """Return a number of tokens, or a cost; 0 for an impossible value."""
    return number if number is not None and 0 <= number <= _LARGEST else 0


def text_of(content: Content | None) -> str:
    """Return the text of a message or a result. An image is named by its place."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(map(_part, content))


def _part(part: ContentPart) -> str:
    return part.text if part.text is not None else msgspec.json.encode(part).decode()
