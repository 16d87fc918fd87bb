"""Recorded runs in the Agent Trajectory Interchange Format (ATIF 1.8).

Every reader returns these structs, and `turnwright export --format atif` writes them. Fields have the names and the
meaning of the format. What it cannot express is in `extra.turnwright`.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from pydantic import JsonValue
else:  # msgspec decodes only its own name for any JSON value
    JsonValue = Any

VERSION: Final = "ATIF-v1.8"
#: The state of a call that a person must answer first.
WAITING: Final = "waiting"

#: How a call ended: it ran, it failed, a person or a rule denied it, or it was canceled.
ResultStatus = Literal["ok", "error", "denied", "canceled"]
Source = Literal["system", "user", "agent"]


class _Object(Struct, omit_defaults=True, kw_only=True):
    """An object of the format. Fields with their defaults are not written; unknown ones are ignored.

    The format demands a few fields that may be empty. A factory that is not a type makes msgspec write them.
    """


N = TypeVar("N")


class Extra(_Object, Generic[N]):
    """The `extra` of an object of the format: our notes on it."""

    turnwright: N | None = None


class MediaSource(_Object):
    """The place of an image or a recording."""

    media_type: str
    path: str


class ContentPart(_Object):
    """One part of a message or a result: text, image or audio."""

    type: str
    text: str | None = None
    source: MediaSource | None = None


Content = str | list[ContentPart]


class CallNotes(_Object):
    """Notes on a call, which the format has no fields for.

    `arguments_raw` is text that was not a JSON object. `state` is that of a call without a result.
    """

    arguments_raw: str | None = None
    state: str | None = None


def _no_arguments() -> dict[str, JsonValue]:
    return {}


class TrajectoryCall(_Object):
    """A tool call that a model asked for."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, JsonValue] = msgspec.field(default_factory=_no_arguments)
    extra: Extra[CallNotes] | None = None

    @property
    def call_notes(self) -> CallNotes:
        """The notes on the call; empty ones if it has none."""
        return (self.extra and self.extra.turnwright) or CallNotes()

    def note(self) -> CallNotes:
        """Return the notes on the call, to change them."""
        notes = self.call_notes
        self.extra = Extra(turnwright=notes)
        return notes


class ResultNotes(_Object):
    """Notes on a result, which the format has no fields for.

    `orphan_id` is the id of the call of a result whose call is nowhere in the run. Times are ISO 8601. `order` is the
    position of the result in the run, from 1. `unreadable`: the record of the call, or of the result, could not be
    read, so the two are not evidence of a lost result. `hosted`: the provider ran the call, within its reply.
    """

    status: ResultStatus | None = None
    started_at: str | None = None
    ended_at: str | None = None
    order: int | None = None
    orphan_id: str | None = None
    unreadable: bool = False
    hosted: bool = False


class SubagentRef(_Object):
    """A reference from a result to the trajectory of the sub-agent that made it."""

    trajectory_id: str | None = None
    trajectory_path: str | None = None
    session_id: str | None = None


class TrajectoryResult(_Object):
    """The result of a call. `source_call_id` is the call's `tool_call_id`."""

    source_call_id: str | None = None
    content: Content | None = None
    subagent_trajectory_ref: list[SubagentRef] | None = None
    extra: Extra[ResultNotes] | None = None

    @property
    def result_notes(self) -> ResultNotes:
        """The notes on the result; empty ones if it has none."""
        return (self.extra and self.extra.turnwright) or ResultNotes()


class Observation(_Object):
    """The results that belong to the calls of one step."""

    results: list[TrajectoryResult]


class StepMetrics(_Object):
    """The tokens and the cost (US dollars) of one reply. `prompt_tokens` includes `cached_tokens`."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None

    @classmethod
    def sum_of(cls, requests: "Sequence[StepMetrics]") -> "StepMetrics":
        """Return the tokens of several requests together."""
        return cls(
            prompt_tokens=sum(metrics.prompt_tokens or 0 for metrics in requests),
            completion_tokens=sum(metrics.completion_tokens or 0 for metrics in requests),
            cached_tokens=sum(metrics.cached_tokens or 0 for metrics in requests),
        )


class StepNotes(_Object):
    """Notes on a step, which the format has no fields for.

    `error` marks a `system` step that is a failed or retried request to the model, or the step of such a request itself
    where a format counts them. `steered` marks a user message to a running turn, which opens no turn.
    `unreadable_calls` is the number of calls that the step asked for, but whose records could not be read.
    `conclusion` marks a reply that sums up at a limit, and is none of the turn's steps (docs/rules.md#steps).
    """

    turn_id: str | None = None
    attempt: int | None = None
    stop_reason: str | None = None
    error: bool = False
    steered: bool = False
    unreadable_calls: int = 0
    conclusion: bool = False


class TrajectoryStep(_Object):
    """A user message, a model reply with its calls and their results, or an event of the system."""

    step_id: int
    source: Source
    message: Content = msgspec.field(default_factory=lambda: "")
    timestamp: str | None = None
    model_name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[TrajectoryCall] | None = None
    observation: Observation | None = None
    metrics: StepMetrics | None = None
    llm_call_count: int | None = None
    is_copied_context: bool | None = None
    extra: Extra[StepNotes] | None = None

    @property
    def step_notes(self) -> StepNotes:
        """The notes on the step; empty ones if it has none."""
        return (self.extra and self.extra.turnwright) or StepNotes()

    def note(self) -> StepNotes:
        """Return the notes on the step, to change them."""
        notes = self.step_notes
        self.extra = Extra(turnwright=notes)
        return notes

    @property
    def results(self) -> list[TrajectoryResult]:
        """The results at the step."""
        return self.observation.results if self.observation else []


class FinalMetrics(_Object):
    """The tokens and the cost of a whole run, where the source only has sums, or repeats them."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int | None = None


class TrajectoryAgent(_Object):
    """The agent system that made the run. `version` is "unknown" where the source has none."""

    name: str
    version: str
    model_name: str | None = None


class RunNotes(_Object):
    """Notes on a run, which the format has no fields for.

    `format` is the name of the reader. `ending` is the source's own word for how the run ended. `success` is the label
    of the source. `cut`: the file ends inside the run. `unreadable_lines` could not be read. `terminal_tools` end the
    run, so their calls have no result by design. `limits` and `spent` are those of a turn of a journal.
    """

    format: str | None = None
    run: str | None = None
    ending: str | None = None
    success: bool | None = None
    cut: bool = False
    unreadable_lines: int = 0
    terminal_tools: list[str] | None = None
    journal_format: int | None = None
    limits: dict[str, JsonValue] | None = None
    spent: dict[str, JsonValue] | None = None
    hash: str | None = None


class Trajectory(_Object):
    """One recorded run of an agent. `steps` are numbered from 1."""

    schema_version: str
    agent: TrajectoryAgent
    session_id: str | None = None
    trajectory_id: str | None = None
    steps: list[TrajectoryStep] = msgspec.field(default_factory=list)
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    subagent_trajectories: "list[Trajectory] | None" = None
    extra: Extra[RunNotes] | None = None

    @property
    def run_notes(self) -> RunNotes:
        """The notes of the run; empty ones if it has none."""
        return (self.extra and self.extra.turnwright) or RunNotes()

    def note(self) -> RunNotes:
        """Return the notes of the run, to change them."""
        notes = self.run_notes
        self.extra = Extra(turnwright=notes)
        return notes

    def every(self) -> "Iterator[Trajectory]":
        """Yield this run and the runs of its sub-agents, at every depth."""
        yield self
        for inner in self.subagent_trajectories or ():
            yield from inner.every()
