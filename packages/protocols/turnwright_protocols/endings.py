"""The end of a turn for clients: its record, and why it ended, without the error, which may name hosts and files."""

from typing import Final

from pydantic import JsonValue

from turnwright.status import describe_ending
from turnwright.transcript.events import TurnEndedEvent
from turnwright_states import EndReason, Outcome

from .items import clean, clean_json

#: Outcomes whose text is the answer.
DONE: Final = frozenset({Outcome.FINISHED, Outcome.SYNTHESIS_DONE})
#: Limits on what the model may write.
WRITING_LIMITS: Final = frozenset({EndReason.TOKENS, EndReason.COST})
#: Failures that are refusals of the content.
CONTENT_REFUSED: Final = frozenset({EndReason.CONTENT_FILTER, EndReason.GUARDRAIL})


def record_end(event: TurnEndedEvent) -> dict[str, JsonValue]:
    """Return the public part of a turn's last event, without the fields of every event."""
    return clean_json({name: value for name, value in event.public().items() if name not in ("type", "seq")})


def explain_end(event: TurnEndedEvent) -> str:
    """Return the reason of an end for people."""
    text = "" if event.sentinel is None else clean(event.sentinel.text)
    return describe_ending(event.reason, text) if event.error or not text else text
