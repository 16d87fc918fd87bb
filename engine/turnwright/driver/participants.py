"""The participants of a turn besides its model and its tools, by the place in the loop where each acts.

A new capability adds an object at such a place, and no branch to the loop.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from turnwright.journal.result import TurnResult
from turnwright.tools.batch_context import CallJudge, Delegate
from turnwright_states import (
    CallModel,
    CompactHistory,
    Input,
    RequestPreparedInput,
)

from .review import Review

#: Returns what is dynamic in the requests of a step, or None if nothing is.
Prepare = Callable[[CallModel], Awaitable[RequestPreparedInput | None]]


class InputChecks(Protocol):
    """The input guardrails of a turn."""

    @property
    def are_left(self) -> bool:
        """Whether a guardrail has not passed the prompt yet."""
        ...

    @property
    def has_unchecked_fork(self) -> bool:
        """Whether a fork changed what the guardrails check, and `check_fork` has not passed."""
        ...

    async def check_fork(self) -> None:
        """Check what a fork changed, before anything of it runs."""
        ...

    async def check_all(self) -> None:
        """Ask every guardrail that has not passed."""
        ...

    async def check_added(self, text: str, kind: str) -> None:
        """Check text that a person adds to the turn, of a kind. Raises `TripError` and `HookFailedError`."""
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


class Compaction(Protocol):
    """Makes the conversation of a turn shorter."""

    def compact_oversized(self) -> Input | None:
        """Return the input that compacts before the next request, if it is too long."""
        ...

    async def compact(self, action: CompactHistory, /) -> Input:
        """Perform the action: return `CompactedInput` or `AttemptFailedInput`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Participants:
    """The participants of a turn, in the order of a step. Few turns have more than `settle`."""

    #: Checks what people write: the prompt, messages, answers, and what a fork changed.
    inputs: InputChecks | None = None
    #: Prepares the requests of a step.
    prepare: Prepare | None = None
    #: Compacts a conversation that is too long for the next request.
    compaction: Compaction | None = None
    #: Holds the pieces of a reply back, and checks texts that nothing reviews.
    outputs: OutputChecks | None = None
    #: Reviews each reply of a step, before anything of it runs.
    review: Review | None = None
    #: Judges each call before it starts, and its result after it ran.
    judge: CallJudge | None = None
    #: Settles the calls of sub-agents.
    settle: Delegate
    #: Receives the result, after the turn has ended.
    on_end: Callable[[TurnResult], Awaitable[None]] | None = None
