"""The parts of the reference simulator: the reasons of endings, the way to an ending, and a call."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Final

from turnwright_states import CallStatus, Cause, EndReason, Outcome

from .turn_script import PersonAct, ScriptedCall, ScriptedTool

#: The causes of failed attempts that are never retried (docs/reasons.md#causes).
_REFUSED: Final = {Cause.BAD_REQUEST, Cause.AUTHENTICATION, Cause.PERMISSION, Cause.NOT_FOUND, Cause.REJECTED}
LASTING: Final = _REFUSED | {Cause.CONTEXT_OVERFLOW, Cause.CONTENT_FILTER}
#: The causes that are reasons too. All other causes end a turn as `model_error`.
REASONS: Final = {Cause.EMPTY_REPLY, Cause.CONTENT_FILTER, Cause.CONTEXT_OVERFLOW}
LIMITS: Final = {EndReason.STEP_CAP, EndReason.BUDGET, EndReason.TOKENS, EndReason.COST, EndReason.DEADLINE}
#: The reasons of each outcome (docs/reasons.md). All other reasons are failures.
OUTCOMES: Final = {
    Outcome.FINISHED: {EndReason.ANSWERED, EndReason.TEXT_ONLY, EndReason.TRUNCATED},
    Outcome.SYNTHESIS_DONE: {EndReason.SYNTHESIZED},
    Outcome.CAP_HIT: LIMITS,
    Outcome.DOOM_LOOP: {EndReason.DOOM_LOOP},
    Outcome.ABORTED: {EndReason.ABORTED, EndReason.SUPERSEDED},
}

#: A turn that runs. It yields at each question to a person, and receives the person's act.
Life = Generator[None, PersonAct, None]


class StopError(Exception):
    """The reason why the turn stops, and the other limits that were reached."""

    def __init__(self, why: EndReason, also: Iterable[EndReason] = ()) -> None:
        self.why, self.also = why, tuple(also)


class EndError(StopError):
    """The turn ends (docs/rules.md#outcomes)."""


class LimitError(StopError):
    """A limit stops the turn, which concludes (docs/rules.md#concluding)."""


@dataclass(slots=True)
class Call:
    """A call of a reply. It is open until it has a status."""

    asked: ScriptedCall
    tool: ScriptedTool | None
    status: CallStatus | None = None
    asks: bool = False
    approved: bool = False
    judged: bool = False
    answers: bool = False


def has_answer(calls: Iterable[Call]) -> bool:
    """Return whether a call gave the turn's answer (docs/rules.md#direct-results)."""
    return any(call.status is CallStatus.OK and call.answers for call in calls)
