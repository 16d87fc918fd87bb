"""The decision of an answer: texts, bools and `Answer` objects, for each kind of interrupt."""

import pytest

from turnwright import Answer, InvalidAnswerError, approve, reject
from turnwright.journal.answers import ANSWERABLE, parse_answer
from turnwright.transcript.events import Interrupt
from turnwright_states import Decision, InterruptKind

K, D = InterruptKind, Decision


def pending(kind: InterruptKind) -> tuple[Interrupt, ...]:
    return (Interrupt(id="it-1", kind=kind), Interrupt(id="other-1", kind=K.QUESTION))


@pytest.mark.parametrize("kind", [K.APPROVAL, K.GRANT])
@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        (True, D.APPROVE),
        (False, D.REJECT),
        ("yes", D.APPROVE),
        (" Yes ", D.APPROVE),
        ("true", D.APPROVE),
        ("grant", D.APPROVE),
        ("no", D.REJECT),
        ("N", D.REJECT),
        ("deny", D.REJECT),
    ],
)
def test_answer_word_or_bool_approves_or_denies(kind: InterruptKind, answer: str | bool, decision: Decision) -> None:
    assert parse_answer(pending(kind), "it-1", answer) == Answer(decision)


@pytest.mark.parametrize("text", ["yes", "no", "deny", "", "blue, please"])
def test_question_takes_any_text_unchanged(text: str) -> None:
    assert parse_answer(pending(K.QUESTION), "it-1", text) == Answer(D.REPLY, text)


@pytest.mark.parametrize(
    ("kind", "answer", "decision"),
    [
        (K.DOOM_LOOP, "go_on", D.GO_ON),
        (K.DOOM_LOOP, "go-on", D.GO_ON),
        (K.DOOM_LOOP, "always", D.ALWAYS),
        (K.DOOM_LOOP, "STOP", D.STOP),
        (K.UNKNOWN_OUTCOME, "rerun", D.RERUN),
        (K.UNKNOWN_OUTCOME, "unknown", D.UNKNOWN),
    ],
)
def test_other_interrupts_take_decision_words(kind: InterruptKind, answer: str, decision: Decision) -> None:
    assert parse_answer(pending(kind), "it-1", answer) == Answer(decision)


def test_answer_object_carries_the_decision() -> None:
    assert parse_answer(pending(K.APPROVAL), "it-1", reject("not on a Friday")) == Answer(D.REJECT, "not on a Friday")
    assert parse_answer(pending(K.GRANT), "it-1", approve()) == Answer(D.APPROVE)
    assert parse_answer(pending(K.QUESTION), "it-1", reject("none of your business")).decision is D.REJECT


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (K.APPROVAL, "perhaps"),
        (K.APPROVAL, ""),
        (K.GRANT, "go_on"),
        (K.DOOM_LOOP, "yes"),
        (K.DOOM_LOOP, True),
        (K.UNKNOWN_OUTCOME, True),
        (K.UNKNOWN_OUTCOME, approve()),
        (K.QUESTION, approve()),
        (K.APPROVAL, Answer(D.STOP)),
    ],
)
def test_unfit_answer_is_refused_with_the_accepted_forms(kind: InterruptKind, answer: str | bool | Answer) -> None:
    """With what it takes, what it was given, and what is open."""
    with pytest.raises(InvalidAnswerError) as refused:
        parse_answer(pending(kind), "it-1", answer)
    assert refused.value.interrupt == "it-1"
    assert refused.value.interrupts == ("it-1", "other-1")
    assert str(refused.value).endswith("(open: it-1, other-1)")
    article = "an" if kind[0] in "aeiou" else "a"
    assert f"{article} {kind} takes " in refused.value.why
    assert refused.value.is_unfit


def test_unknown_interrupt_is_refused_with_the_open_interrupts() -> None:
    with pytest.raises(
        InvalidAnswerError, match=r"interrupt 'it-2': no such interrupt is open \(open: it-1, other-1\)"
    ):
        parse_answer(pending(K.APPROVAL), "it-2", True)
    with pytest.raises(InvalidAnswerError, match="none is open") as refused:
        parse_answer((), "it-1", True)
    assert not refused.value.is_unfit


@pytest.mark.parametrize("kind", [K.APPROVAL, K.QUESTION])
def test_text_of_an_answer_is_text(kind: InterruptKind) -> None:
    answer = Answer(D.REJECT if kind is K.APPROVAL else D.REPLY, 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidAnswerError, match="'it-1': its text must be text, not 3") as refused:
        parse_answer(pending(kind), "it-1", answer)
    assert refused.value.is_unfit


@pytest.mark.parametrize("kind", list(InterruptKind))
def test_every_decision_can_be_said_as_a_word(kind: InterruptKind) -> None:
    """As a text, but for the reply to a question, which is the text itself."""
    for decision in ANSWERABLE[kind]:
        if kind is not K.QUESTION:
            assert parse_answer(pending(kind), "it-1", str(decision)).decision is decision


def test_answer_expires_after_the_last_second() -> None:
    interrupts = (Interrupt(id="it-1", kind=K.APPROVAL, expires_at=100.0),)
    assert parse_answer(interrupts, "it-1", True, now=99.9) == approve()
    for now in (100.0, 100.1):
        with pytest.raises(InvalidAnswerError, match=r"'it-1': it has expired: .* \(open: it-1\)"):
            parse_answer(interrupts, "it-1", True, now=now)


@pytest.mark.parametrize("answer", ["settle", Answer(Decision.SETTLE)])
def test_decision_settle_without_a_result_is_refused(answer: str | Answer) -> None:
    """The machine would refuse it, and nobody would know."""
    interrupts = (Interrupt(id="unknown-1", kind=K.UNKNOWN_OUTCOME),)
    with pytest.raises(InvalidAnswerError, match="takes rerun or unknown, not"):
        parse_answer(interrupts, "unknown-1", answer)
