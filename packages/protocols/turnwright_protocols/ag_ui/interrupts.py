"""Translate the interrupts of a paused turn to AG-UI, and the client's answers back."""

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from ag_ui.core import Interrupt as AgUiInterrupt
from ag_ui.core import ResumeEntry
from pydantic import JsonValue

from turnwright.errors import InvalidAnswerError
from turnwright.journal.answers import ANSWERABLE, Answer, make_default_answer
from turnwright.journal.questions import ALWAYS_WORDS, words
from turnwright.transcript.interrupt import Interrupt
from turnwright_protocols.client_tools import read_settlement
from turnwright_protocols.items import APPROVALS, asking_call, clean, clean_json
from turnwright_states import DECISIONS, Decision, InterruptKind

from .messages import call_id, metadata

_LOG = logging.getLogger(__name__)

#: The protocol's own reasons where one fits; others carry our prefix.
_REASONS: Final[Mapping[InterruptKind, str]] = {
    InterruptKind.QUESTION: "input_required",
    InterruptKind.GRANT: "tool_call",
    InterruptKind.APPROVAL: "tool_call",
    InterruptKind.UNKNOWN_OUTCOME: "turnwright:unknown_outcome",
    InterruptKind.RESULT: "turnwright:result",
    InterruptKind.DOOM_LOOP: "turnwright:doom_loop",
}
_DECIDED: Final[dict[str, JsonValue]] = {
    "approved": {"type": "boolean"},
    "reason": {"type": "string", "description": "The message that the model receives when the call is rejected."},
}
_APPROVAL: Final[dict[str, JsonValue]] = {"type": "object", "properties": _DECIDED, "required": ["approved"]}
_PROPERTIES: Final[dict[str, JsonValue]] = {
    **_DECIDED,
    "editedArgs": {"type": "object", "description": "All arguments of the approved call, instead of the model's."},
}
_EDITABLE: Final[dict[str, JsonValue]] = {**_APPROVAL, "properties": _PROPERTIES}
#: The forms of a call's result.
_RESULT: Final[list[JsonValue]] = [
    {"type": "object", "properties": {name: schema}, "required": [name], "additionalProperties": False}
    for name, schema in (("result", dict[str, JsonValue]()), ("error", dict[str, JsonValue](type="string")))
]
_ABANDONED: Final = "nobody answered"


def interrupt_id(turn: str, interrupt: str) -> str:
    """Return the id of an interrupt in its conversation; `read_interrupt_id` parses it."""
    return f"{turn}/{interrupt}"


def read_interrupt_id(identifier: str) -> tuple[str, str]:
    """Return the turn and its interrupt; both empty for a foreign id."""
    turn, slash, interrupt = identifier.partition("/")
    return (turn, interrupt) if slash else ("", "")


def interrupt_of(turn: str, interrupt: Interrupt) -> AgUiInterrupt:
    """Translate an open interrupt."""
    *path, _ = interrupt.id.split("/")
    call = asking_call(interrupt)
    return AgUiInterrupt(
        id=interrupt_id(turn, interrupt.id),
        reason=_REASONS[interrupt.kind],
        message=clean(words(interrupt, choices=False)),
        tool_call_id=call_id(turn, call) if call else None,
        response_schema=_schema(interrupt),
        expires_at=None if interrupt.expires_at is None else _date(interrupt.expires_at),
        # A forwarded interrupt is a sub-agent's, and its id names the calls that lead there.
        subagent_run_id=":".join([turn, *path]) if path else None,
        metadata=metadata(
            kind=str(interrupt.kind),
            tool=interrupt.tool or None,
            arguments=interrupt.arguments,
            choices=list(interrupt.choices) or None,
            grant=interrupt.grant,
            rules=list(interrupt.rules) or None,
        ),
    )


def answers_of(interrupts: Sequence[Interrupt], entries: Mapping[str, ResumeEntry]) -> dict[str, str | bool | Answer]:
    """Translate `entries`, by the ids of our interrupts, into answers for `Engine.resume`.

    An abandoned interrupt is answered like an expired one. Entries without an open interrupt are ignored, with a
    warning. A call may go on waiting for its result. Raises `InvalidAnswerError` for another interrupt without an
    entry, and for a payload that does not match its `responseSchema`.
    """
    ids = [interrupt.id for interrupt in interrupts]
    for name in entries.keys() - set(ids):
        _LOG.warning("the resume answers %r, which is not open: ignored", name)
    answers: dict[str, str | bool | Answer] = {}
    for interrupt in interrupts:
        entry = entries.get(interrupt.id)
        if entry is None and interrupt.kind is InterruptKind.RESULT:
            continue
        if entry is None:
            raise InvalidAnswerError(
                interrupt.id, "the resume has no entry for it, and every open interrupt needs one", ids
            )
        if entry.status == "cancelled":
            answers[interrupt.id] = make_default_answer(interrupt, _ABANDONED)
        else:
            answers[interrupt.id] = _answer(interrupt, entry.payload, ids)
    return answers


def _answer(interrupt: Interrupt, payload: object, ids: Sequence[str]) -> str | bool | Answer:
    if isinstance(payload, str | bool):
        return payload
    if interrupt.kind in APPROVALS and isinstance(payload, Mapping):
        is_approved, reason, new_arguments = (
            payload.get("approved"),
            payload.get("reason", ""),
            payload.get("editedArgs"),
        )
        always = payload.get("always", False)
        is_fit = isinstance(is_approved, bool) and isinstance(reason, str) and isinstance(always, bool)
        if is_fit and isinstance(reason, str) and (new_arguments is None or isinstance(new_arguments, dict)):
            decision, arguments = (Decision.APPROVE, new_arguments) if is_approved else (Decision.REJECT, None)
            return Answer(decision, reason, arguments, always=bool(is_approved and always))
    if (settlement := read_settlement(interrupt, payload, ids)) is not None:
        return settlement
    schema = json.dumps(_schema(interrupt))
    why = f"its payload does not fit its responseSchema, {schema}"
    raise InvalidAnswerError(interrupt.id, why, ids, is_unfit=True)


def _schema(interrupt: Interrupt) -> dict[str, JsonValue]:
    match interrupt.kind:
        case InterruptKind.APPROVAL:
            if not interrupt.may_cover_equal_calls:
                return _EDITABLE
            always: dict[str, JsonValue] = {"type": "boolean", "description": f"{ALWAYS_WORDS}, without editedArgs."}
            return {**_EDITABLE, "properties": {**_PROPERTIES, "always": always}}
        case InterruptKind.GRANT:
            return _APPROVAL
        case InterruptKind.QUESTION:
            # Any text is accepted, not only the offered choices.
            return clean_json(
                {"type": "string", **({"examples": list(interrupt.choices)} if interrupt.choices else {})}
            )
        case _:
            words: dict[str, JsonValue] = {"type": "string", "enum": [*map(str, ANSWERABLE[interrupt.kind])]}
            return {"anyOf": [words, *_RESULT]} if Decision.SETTLE in DECISIONS[interrupt.kind] else words


def _date(seconds: float) -> str | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, OSError, ValueError):  # beyond the last date
        return None
