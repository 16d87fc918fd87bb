"""The table of reasons: its words are complete sentences, and each entry leads back to the table."""

import re

import pytest

from turnwright_states import Cause, EndReason, Limits, Outcome
from turnwright_states.reasons import REASONS, REASONS_OF, Meaning
from turnwright_states.state import Trigger

#: A sentence: a capital letter, then some small ones, and a period. It may contain code in backticks.
SENTENCE = re.compile(r"[A-Z][^A-Z]*\.")


def without_names(text: str) -> str:
    """Return the text without names in backticks."""
    return re.sub(r"`[a-z_]+`", "it", text)


@pytest.mark.parametrize("reason", EndReason)
def test_meaning_and_advice_of_a_reason_are_sentences(reason: EndReason) -> None:
    meaning = REASONS[reason]
    assert SENTENCE.fullmatch(without_names(meaning.means)), meaning.means
    assert SENTENCE.fullmatch(without_names(meaning.next)), meaning.next
    if meaning.for_users:
        assert SENTENCE.fullmatch(meaning.for_users), meaning.for_users


def test_reasons_without_an_answer_have_advice_for_users() -> None:
    silent = {reason for reason, meaning in REASONS.items() if not meaning.for_users}
    assert silent == {EndReason.ANSWERED, EndReason.TEXT_ONLY, EndReason.SYNTHESIZED}


def limits_of(meaning: Meaning) -> str:
    """Return the setting that the advice names."""
    (name,) = re.findall(r"`([a-z_]+)`", meaning.next)
    return str(name)


def test_limit_reason_names_the_setting_to_raise() -> None:
    capped = {reason: limits_of(meaning) for reason, meaning in REASONS.items() if meaning.outcome is Outcome.CAP_HIT}
    assert capped == {
        EndReason.STEP_CAP: "steps",
        EndReason.BUDGET: "tool_calls",
        EndReason.TOKENS: "tokens",
        EndReason.COST: "cost",
        EndReason.DEADLINE: "seconds",
        EndReason.NO_CALL_RAN: "idle_steps",
    }
    for reason, name in capped.items():
        meaning = REASONS[reason]
        assert (meaning.limit, name in Limits.model_fields) == (name, True)
        assert meaning.next.startswith("Continue in a new turn (it keeps the transcript), or raise ")
        assert meaning.for_users == "You can continue in a new message."
        assert meaning.triggers[0] is Trigger.PROCEED


def test_first_trigger_of_each_outcome_is_the_usual() -> None:
    first = {outcome: {REASONS[reason].triggers[0] for reason in reasons} for outcome, reasons in REASONS_OF.items()}
    assert first == {
        Outcome.FINISHED: {Trigger.REPLIED},
        Outcome.SYNTHESIS_DONE: {Trigger.SETTLED},
        Outcome.CAP_HIT: {Trigger.PROCEED},
        Outcome.DOOM_LOOP: {Trigger.PROCEED},
        Outcome.ABORTED: {Trigger.ABORT},
        Outcome.FAILED: {
            Trigger.ATTEMPT_FAILED,
            Trigger.REPLIED,
            Trigger.FAIL,
            Trigger.REVIEWED,
            Trigger.TRIPPED,
        },
    }


def test_each_cause_has_a_single_reason_and_each_reason_an_outcome() -> None:
    for cause in Cause:
        meaning = REASONS[cause.reason]
        assert (cause in meaning.passing, cause in meaning.lasting) == (cause.may_pass, not cause.may_pass)
    assert sorted(reason for reasons in REASONS_OF.values() for reason in reasons) == sorted(EndReason)
