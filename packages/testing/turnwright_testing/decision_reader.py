"""Read what hooks, guardrails, the output type and compaction decided in a turn, from its facts."""

from typing import Final, Literal

from turnwright_states import (
    AttemptFailedInput,
    CompactedInput,
    ExpireInput,
    FailInput,
    OversizedInput,
    RequestPreparedInput,
    ReviewedInput,
    State,
    TrippedInput,
)
from turnwright_states import facts as f
from turnwright_states.payload import thaw

from .recording import Decided

#: The states in which a failed attempt, or the end of the turn, is a decision here.
DECIDING: Final = frozenset({State.REVIEW, State.COMPACT})


class DecisionReader:
    """A reader of facts, fact by fact. `decisions` are by the number of facts before each."""

    def __init__(self) -> None:
        self.decisions: dict[int, Decided] = {}
        #: The model's lines that were reviewed.
        self.reviewed: list[int] = []
        #: The way in which the typed answer was requested; None for an answer in text.
        self.output: Literal["tool", "prompt"] | None = None
        #: Whether the last reply was refused: then the results of its calls follow from that.
        self.refused = False

    def begin(self, fact: f.TurnStarted) -> None:
        self.output = "prompt" if "output_schema" in fact.agent else None

    def reply(self, fact: f.ModelReplied, line: int) -> None:
        self.refused = False
        if fact.state is State.REVIEW:
            self.reviewed.append(line)
        if any(call.output for call in fact.calls):
            self.output = "tool"

    def read(self, fact: f.Fact, at: int, previous: f.Fact | None) -> None:
        """Read a fact of these kinds that came after `at` others."""
        match fact:
            case f.RequestPrepared():
                self.decisions[at] = RequestPreparedInput(
                    instructions=fact.instructions,
                    tools=fact.tools,
                    settings=thaw(fact.settings),
                    append=fact.append,
                )
            case f.Reviewed():
                self.refused = fact.refused
                self.decisions[at] = ReviewedInput(
                    refused=fact.refused, feedback=fact.feedback, answer=fact.answer, output=thaw(fact.output)
                )
            case f.CompactionStarted() if _is_oversized(fact, previous):
                self.decisions[at] = OversizedInput(tokens=fact.tokens)
            case f.Compacted():
                self.decisions[at] = CompactedInput(
                    text=fact.text, cleared=fact.cleared, kept=fact.kept, usage=fact.usage
                )
            case f.AttemptFailed():
                self.decisions[at] = AttemptFailedInput(cause=fact.cause, message=fact.message, usage=fact.usage)
            case _:
                pass

    def begins(self, fact: f.Fact, previous: f.Fact | None) -> bool:
        """Whether a decision was fed here; otherwise the fact followed from an earlier input."""
        if isinstance(fact, f.CompactionStarted):
            return _is_oversized(fact, previous)
        return isinstance(fact, f.RequestPrepared | f.Reviewed | f.Compacted)

    def closes(self, call: f.CallMade) -> bool:
        """Whether the result of this call follows from the review of its reply."""
        return self.refused or call.output

    def trip(self, guardrail: f.TrippedGuardrail, at: int) -> None:
        self.decisions[at] = TrippedInput(
            guardrail=guardrail.name,
            message=guardrail.message,
            metadata=thaw(guardrail.metadata),
            checks=guardrail.checks,
        )

    def fail(self, error: str, at: int) -> None:
        self.decisions[at] = FailInput(error=error)

    def expire(self, at: int) -> None:
        self.decisions[at] = ExpireInput()


def _is_oversized(fact: f.CompactionStarted, previous: f.Fact | None) -> bool:
    """Whether the engine found the request too long, and not the provider, whose failed attempt comes before."""
    return bool(fact.tokens) or not isinstance(previous, f.AttemptFailed)
