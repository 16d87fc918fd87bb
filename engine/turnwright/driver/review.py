"""Checks a reply before anything of it runs (docs/rules.md#reviews).

The stages run in one order: parallel input guardrails, `after_model` hooks, the output type with its validators, output
guardrails. Each is asked once, and the machine decides what follows.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import JsonValue

from turnwright.errors import PicklableError, Retry
from turnwright.model.protocol import ModelError
from turnwright.tools.text import cap
from turnwright_states import AttemptFailedInput, Call, Input, ReviewedInput, TrippedInput, Usage
from turnwright_states.facts import ModelReplied


@dataclass(slots=True)
class Reviewing:
    """A reply being reviewed: the fact, its open calls, and what the stages so far said.

    `answer` is the call that is the typed answer, and `output` the answer as data. `passed` are the stages that are not
    asked again if a later one fails and is retried.
    """

    reply: ModelReplied
    calls: Sequence[Call]
    answer: str | None = None
    output: JsonValue = None
    decisions: list[dict[str, JsonValue]] = field(default_factory=list)
    passed: "list[Stage]" = field(default_factory=list)


class InputChecks(Protocol):
    """The input guardrails of a turn, for its model calls."""

    @property
    def are_left(self) -> bool:
        """Whether a guardrail has not passed yet."""
        ...

    async def check_all(self) -> None:
        """Ask every guardrail that has not passed."""
        ...

    async def beside(self, attempt: Callable[[], Awaitable[Input]], *, reviewed: bool) -> Input | None:
        """Make an attempt beside the guardrails that have not passed. Return the input to feed."""
        ...


class OutputChecks(Protocol):
    """The output guardrails of a turn, for its model calls."""

    def hold(self) -> None:
        """Hold the pieces of the reply that begins back."""
        ...

    async def check_text(self, text: str | None) -> None:
        """Check a text that nothing reviews."""
        ...


#: One stage. It raises `Retry` to refuse the reply, and `TripError` if a guardrail trips.
Stage = Callable[[Reviewing], Awaitable[None]]


class TripError(PicklableError, Exception):
    """A guardrail tripped: its name, its message for people, its data for programs, and what it checks."""

    def __init__(self, guardrail: str, message: str, metadata: "dict[str, JsonValue]", kind: str = "") -> None:
        super().__init__(f"{guardrail}: {message}")
        self.kind = kind
        self.guardrail = guardrail
        self.message = message
        self.metadata = metadata

    def event(self, elapsed: float, usage: Usage | None = None) -> TrippedInput:
        """Return the input that ends the turn. `usage` is that of a reply that is not in the journal."""
        return TrippedInput(
            guardrail=self.guardrail,
            checks=self.kind,
            message=self.message,
            metadata=self.metadata,
            elapsed=elapsed,
            usage=usage,
        )


async def run_stages(
    stages: Sequence[Stage],
    reviewing: Reviewing,
    elapsed: Callable[[], float],
    failed: Callable[[ModelError], AttemptFailedInput],
) -> Input:
    """Run the stages one after the other. Return the input to feed.

    A stage that raises anything else ends the turn as a failure of the engine. `failed` makes the input of a guardrail
    whose model failed.
    """
    try:
        for stage in stages:
            if stage not in reviewing.passed:
                await stage(reviewing)
                reviewing.passed.append(stage)
    except Retry as refusal:
        return ReviewedInput(
            refused=True, feedback=cap(str(refusal.feedback)), decisions=tuple(reviewing.decisions), elapsed=elapsed()
        )
    except TripError as trip:
        return trip.event(elapsed())
    except ModelError as error:
        return failed(error)
    return ReviewedInput(
        answer=reviewing.answer,
        output=reviewing.output,
        decisions=tuple(reviewing.decisions),
        elapsed=elapsed(),
    )
