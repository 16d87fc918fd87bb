"""Checks a reply before anything of it runs (docs/rules.md#reviews).

The stages run in one order: parallel input guardrails, `after_model` hooks, the output type with its validators, output
guardrails. Each is asked once, and the machine decides what follows.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from turnwright.errors import PicklableError, Retry
from turnwright.model.protocol import ModelError
from turnwright.tools.result import cap
from turnwright_states import AttemptFailedInput, Call, Input, ReviewedInput, TrippedInput, Usage
from turnwright_states.facts import ModelReplied


@dataclass(slots=True)
class Reviewing:
    """A reply being reviewed: the fact, its open calls, and what the stages so far said.

    `answer` is the call that is the typed answer, and `output` the answer as data. `passed_stages` are not asked again
    if a later one fails and is retried.
    """

    reply: ModelReplied
    calls: Sequence[Call]
    answer: str | None = None
    output: JsonValue = None
    decisions: list[dict[str, JsonValue]] = field(default_factory=list)
    passed_stages: "list[Stage]" = field(default_factory=list)


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


class Review:
    """The review of the replies of one turn: its `stages`, in their order. A turn without stages is not reviewed."""

    __slots__ = ("_reviewing", "stages")

    def __init__(self, *stages: Stage) -> None:
        self.stages = stages
        #: The last reply: a further attempt continues where the last one failed.
        self._reviewing: Reviewing | None = None

    def drop(self, stage: Stage) -> None:
        """Ask a stage no longer, because it has nothing left to check."""
        self.stages = tuple(kept_stage for kept_stage in self.stages if kept_stage != stage)

    async def run(
        self,
        reply: ModelReplied,
        calls: Sequence[Call],
        elapsed: Callable[[], float],
        make_failure: Callable[[ModelError], AttemptFailedInput],
    ) -> Input:
        """Run the stages one after the other. Return the input to feed.

        A stage that raises anything else ends the turn as a failure of the engine. `make_failure` makes the input of a
        guardrail whose model failed.
        """
        reviewing = self._reviewing
        if reviewing is None or reviewing.reply is not reply:
            reviewing = self._reviewing = Reviewing(reply, calls)
        try:
            for stage in self.stages:
                if stage not in reviewing.passed_stages:
                    await stage(reviewing)
                    reviewing.passed_stages.append(stage)
        except Retry as refusal:
            feedback, decisions = cap(str(refusal.feedback)), tuple(reviewing.decisions)
            return ReviewedInput(refused=True, feedback=feedback, decisions=decisions, elapsed=elapsed())
        except TripError as trip:
            return trip.event(elapsed())
        except ModelError as error:
            return make_failure(error)
        return ReviewedInput(
            answer=reviewing.answer,
            output=reviewing.output,
            decisions=tuple(reviewing.decisions),
            elapsed=elapsed(),
        )
