"""Interrupts that a client answers with a result, and approvals of several people (docs/rules.md#waits)."""

import pytest
from ag_ui.core import ResumeEntry

from turnwright import Answer, Interrupt, InvalidAnswerError, settled
from turnwright.transcript.events import FactEvent, TurnPausedEvent
from turnwright_protocols.ag_ui.interrupts import answers_of, interrupt_of
from turnwright_protocols.items import left_open
from turnwright_states import Decision, InterruptKind, State
from turnwright_states.facts import Answered

SETTLED = (InterruptKind.RESULT, InterruptKind.UNKNOWN_OUTCOME)


def answer_to(kind: InterruptKind, payload: object) -> str | bool | Answer:
    interrupt = Interrupt(id="it-1", kind=kind)
    return answers_of([interrupt], {"it-1": ResumeEntry(interrupt_id="t/it-1", status="resolved", payload=payload)})[
        "it-1"
    ]


@pytest.mark.parametrize("kind", SETTLED)
def test_result_of_a_client_settles_the_call(kind: InterruptKind) -> None:
    """A wait and an unknown outcome take a result, an error, or a decision."""
    assert answer_to(kind, {"result": {"a": 1}}) == settled({"a": 1})
    assert answer_to(kind, {"result": None}) == settled(None)
    assert answer_to(kind, {"error": "closed"}) == settled(error="closed")
    assert answer_to(kind, "rerun") == "rerun"
    schema = interrupt_of("t", Interrupt(id="it-1", kind=kind)).response_schema
    assert schema is not None
    assert [form["type"] for form in schema["anyOf"]] == ["string", "object", "object"]


@pytest.mark.parametrize("payload", [{}, {"error": 5}, {"result": 1, "error": "x"}, {"result": "\ud800"}, 5, None])
def test_payload_that_is_no_result_is_refused(payload: object) -> None:
    """The turn can still be settled."""
    with pytest.raises(InvalidAnswerError):
        answer_to(InterruptKind.RESULT, payload)


def test_approval_of_several_stays_open_until_the_last() -> None:
    """The client counts the approvals that are still needed."""
    paused = TurnPausedEvent(
        turn="t", seq=5, interrupts=(Interrupt(id="approval-1", kind=InterruptKind.APPROVAL, approvals=2),), tools=None
    )
    for number, (by, needed) in enumerate((("ann", 1), ("bob", 0)), start=6):
        fact = Answered(0.0, State.PAUSED, interrupt="approval-1", decision=Decision.APPROVE, by=by)
        still_paused = left_open(paused, FactEvent("t", number, fact, "", None, "", ""))
        assert [interrupt.approvals for interrupt in ([] if still_paused is None else still_paused.interrupts)] == (
            [needed] if needed else []
        )
        paused = still_paused or paused


def test_approval_that_a_rule_asks_for_names_the_rule() -> None:
    """A client can say which rules an approval covers."""
    interrupt = Interrupt(id="approval-1", kind=InterruptKind.APPROVAL, rules=("large",))
    metadata = interrupt_of("t", interrupt).metadata
    assert metadata is not None
    assert metadata["turnwright"]["rules"] == ["large"]
