"""The remains of a reply on which a guardrail tripped (docs/rules.md#guardrails)."""

from collections.abc import Collection, Sequence
from typing import Final

from msgspec.structs import replace
from pydantic import JsonValue

from turnwright.message import AnyPart, ReasoningPart, TextPart, ToolCallPart
from turnwright_states.facts import CallMade
from turnwright_states.payload import FrozenDict

_NO_ARGUMENTS: Final[FrozenDict[JsonValue]] = FrozenDict()


def without_answer(call: CallMade) -> CallMade:
    """Return a call without the typed answer that a guardrail withheld."""
    return replace(call, arguments=_NO_ARGUMENTS, raw="") if call.output else call


def withheld_parts(parts: Sequence[AnyPart], text: str, answers: Collection[str]) -> tuple[AnyPart, ...]:
    """Return the parts of a withheld reply, without its reasoning: `text` in place of its text.

    `answers` has the ids of the calls that are typed answers: they lose their arguments.
    """
    return tuple([_withheld(part, text, answers) for part in parts if not isinstance(part, ReasoningPart)])


def _withheld(part: AnyPart, text: str, answers: Collection[str]) -> AnyPart:
    if isinstance(part, TextPart):
        return TextPart(seq=part.seq, text=text)
    return replace(part, arguments=_NO_ARGUMENTS) if isinstance(part, ToolCallPart) and part.id in answers else part
