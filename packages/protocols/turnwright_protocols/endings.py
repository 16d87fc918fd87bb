"""The end of a turn for clients: how and why it ended, and its record, without the error, which may name hosts."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from pydantic import JsonValue

from turnwright.status import describe_ending
from turnwright.transcript.events import TurnEndedEvent
from turnwright_states import EndReason, Outcome

from .items import clean, clean_json

#: Outcomes whose text is the answer.
DONE: Final = frozenset({Outcome.FINISHED, Outcome.SYNTHESIS_DONE})
#: How a turn ended, as protocols distinguish it: with an answer, or one that was cut off at its length; stopped by a
#: limit on what the model may write, by another one, or by somebody; with a refusal of the content, or failed.
Ending: TypeAlias = Literal["answered", "cut", "writing limit", "limit", "stopped", "refused", "failed"]
_BY_REASON: Final[Mapping[EndReason, Ending]] = {
    EndReason.TRUNCATED: "cut",
    EndReason.TOKENS: "writing limit",
    EndReason.COST: "writing limit",
    EndReason.CONTENT_FILTER: "refused",
    EndReason.GUARDRAIL: "refused",
}
_BY_OUTCOME: Final[Mapping[Outcome, Ending]] = {
    Outcome.FINISHED: "answered",
    Outcome.SYNTHESIS_DONE: "answered",
    Outcome.ABORTED: "stopped",
    Outcome.FAILED: "failed",
}


def ending_of(outcome: Outcome, reason: EndReason) -> Ending:
    """Return how a turn ended."""
    return _BY_REASON.get(reason) or _BY_OUTCOME.get(outcome, "limit")


def record_end(event: TurnEndedEvent) -> dict[str, JsonValue]:
    """Return the public part of a turn's last event, without the fields of every event."""
    return clean_json({name: value for name, value in event.public().items() if name not in ("type", "seq")})


def explain_end(event: TurnEndedEvent) -> str:
    """Return the reason of an end for people."""
    text = "" if event.sentinel is None else clean(event.sentinel.text)
    return describe_ending(event.reason, text) if event.error or not text else text
