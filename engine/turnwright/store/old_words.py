"""Translation of stored journals into today's words, for `migrate`.

Only words change. The facts, their order and their meaning stay.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from turnwright_states import MachineError, fold
from turnwright_states.fact_parser import parse_fact

#: The kinds of facts whose words changed, with their names of today.
KINDS: Final[Mapping[str, str]] = {
    "turn_started": "turn_started",
    "answered": "answered",
    "call_settled": "call_settled",
    "synthesised": "synthesized",
    "halted": "turn_ended",
}

#: The errors that a damaged journal raises. Its hash is then left as it is.
_DAMAGED: Final = (MachineError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

_FIELDS: Final[Mapping[str, str]] = {
    "history": "message_history",
    "context": "metadata",
    "continues": "continue_from",
    "calls_a_step": "max_calls_per_step",
}
_VALUES: Final[Mapping[tuple[str, object], str]] = {
    ("decision", "grant"): "approve",
    ("decision", "deny"): "reject",
    ("status", "denied"): "rejected",
    ("reason", "synthesised"): "synthesized",
}


def renamed(payload: str) -> str:
    """Translate the payload of a fact, or of an answer in an inbox. Anything but a JSON object stays as it is."""
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError):
        return payload
    if not isinstance(fields, dict):
        return payload
    written = _renamed(fields)
    for name in ("limits", "agent"):
        if isinstance(below := written.get(name), dict):
            written[name] = _renamed(below)
    return payload if written == fields else json.dumps(written, ensure_ascii=False, separators=(",", ":"))


def _renamed(fields: Mapping[str, object]) -> dict[str, object]:
    return {
        _FIELDS.get(name, name): _VALUES.get((name, value), value) if isinstance(value, str) else value
        for name, value in fields.items()
    }


def with_hash(facts: Sequence[tuple[str, str]]) -> str:
    """Return the last payload of an ended turn with a new hash. The hash covers the reason, whose word changed.

    `facts` are the kinds and payloads of the complete turn. A damaged journal keeps its last payload.
    """
    last = facts[-1][1]
    try:
        turn = fold([parse_fact(kind, payload, seq) for seq, (kind, payload) in enumerate(facts, start=1)])
    except _DAMAGED:
        return last
    return json.dumps(json.loads(last) | {"hash": turn.digest()}, ensure_ascii=False, separators=(",", ":"))
