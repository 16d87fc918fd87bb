"""Approvals as sentences."""

import pytest
from pydantic import JsonValue

from turnwright.errors import InvalidAnswerError
from turnwright.privacy.redaction import Redactor
from turnwright.transcript.interrupt import Interrupt
from turnwright_inspector.http.questions import need_shown, question_text
from turnwright_states import InterruptKind

HIDER = Redactor({})


def asking(arguments: dict[str, JsonValue] | None, kind: InterruptKind = InterruptKind.APPROVAL) -> Interrupt:
    grant = "reading /etc" if kind is InterruptKind.GRANT else None
    return Interrupt("approval-1", kind, "act", arguments=arguments, grant=grant)


@pytest.mark.parametrize(
    ("arguments", "ending"),
    [
        ({}, ""),
        ({"path": "old.log"}, ": old.log"),
        ({"path": "old.log", "force": True}, ": path old.log, force true"),
        ({"amount": 1200.5, "currency": "EUR", "recipient": "ACME GmbH"}, ": 1,200.50 EUR to ACME GmbH"),
        ({"to": "a@b.example", "subject": "Hi: you"}, ': to a@b.example, subject "Hi: you"'),
        ({"amount": 7, "currency": "coins, to you"}, ': amount 7, currency "coins, to you"'),
        ({"text": "a\nb\u202e"}, r': "a\nb\u202e"'),
        ({"rows": [1, {"a": None}], "n": 1234567}, ': rows [1, {"a": null}], n 1,234,567'),
        ({"text": "x" * 100}, f': "{"x" * 60}…"'),
    ],
)
def test_approval_is_a_sentence(arguments: dict[str, JsonValue], ending: str) -> None:
    assert question_text(HIDER, asking(arguments), "Clerk").sentence == f"Clerk wants to run act{ending}"


def test_details_too_long_for_the_sentence_are_below() -> None:
    question = question_text(HIDER, asking({f"name{number}": "a word" for number in range(40)}), "Clerk")
    assert question.sentence.endswith("…")
    assert '| name39: "a word"' in question.words


def test_grant_becomes_a_sentence_and_a_question_stays_unchanged() -> None:
    assert question_text(HIDER, asking(None, InterruptKind.GRANT), "Clerk").sentence == (
        "Clerk wants to be allowed: reading /etc"
    )
    assert question_text(HIDER, asking({"question": "Who?"}, InterruptKind.QUESTION), "Clerk").sentence == ""


def test_sentence_hides_secrets_and_hidden_parts_block_approval() -> None:
    interrupt = asking({"password": "correct horse battery", "to": "x"})
    question = question_text(HIDER, interrupt, "Clerk")
    assert (question.sentence, question.hides) == ('Clerk wants to run act: password "***" to x', True)
    with pytest.raises(InvalidAnswerError, match="parts of it are hidden"):
        need_shown("approval-1", interrupt)
    need_shown("approval-1", asking({"to": "x"}))
