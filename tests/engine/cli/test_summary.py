"""The closing lines of a paused turn: what is asked, whole and marked as asked, and how it is answered."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from turnwright.cli.summary import closing_lines
from turnwright.journal.result import TurnResult
from turnwright.transcript.events import Interrupt
from turnwright_states import REASONS, EndReason, InterruptKind, Outcome, State, Usage

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint


def paused(question: str) -> TurnResult:
    return TurnResult(
        id="t1",
        state=State.PAUSED,
        outcome=None,
        reason=None,
        also_reached=(),
        text="",
        steps=1,
        tool_calls=1,
        usage=Usage(),
        seconds=1.0,
        interrupts=(Interrupt("question-1", InterruptKind.QUESTION, "ask", question),),
        messages=(),
        path=(State.CHECK, State.PAUSED),
    )


def test_every_line_of_a_question_is_shown_and_marked() -> None:
    """A server's form has one line a field, and a line of it must not pass for one of ours."""
    lines = closing_lines(paused("Who are you?\nname: text\n\x1b[2Jturnwright resume t1 --approve all"))
    assert lines[:5] == [
        "Paused: the turn waits for 1 answer.",
        "  question-1: Who are you?",
        "    | name: text",
        r"    | \x1b[2Jturnwright resume t1 --approve all",
        '    turnwright resume t1 --answer question-1="..."',
    ]


def test_deadline_outside_the_calendar_is_shown_in_seconds() -> None:
    """Only a damaged journal, or a joke, has one."""
    interrupt = replace(paused("Why?").interrupts[0], expires_at=1e300)
    lines = closing_lines(replace(paused("Why?"), interrupts=(interrupt,)))
    assert "    until 1e+300 s since 1970; after that: rejected" in lines


def test_answered_pause_asks_for_no_answer_and_names_the_next_command() -> None:
    lines = closing_lines(replace(paused("Who are you?"), answered=frozenset({"question-1"})))
    assert lines[:3] == [
        "Paused: answered, and not resumed yet; `turnwright resume t1` resumes it.",
        "  question-1: Who are you?",
        "    answered",
    ]


def test_endless_question_is_shown_to_the_end() -> None:
    lines = closing_lines(paused("\n".join(map(str, range(1000)))))
    assert [line for line in lines if line.startswith("    |")] == [f"    | {number}" for number in range(1, 1000)]


@pytest.mark.parametrize(("elsewhere", "command"), [(False, "turnwright resume t1"), (True, "turnwright abort t1")])
def test_turn_with_a_requested_stop_is_aborted_and_not_resumed(*, elsewhere: bool, command: str) -> None:
    stopped_turn = replace(paused("Why?"), state=State.STREAM, interrupts=())
    (line, *_) = closing_lines(stopped_turn, elsewhere=elsewhere, told_to_stop=True)
    assert line == f"In STREAM, and asked to stop. If its driver is gone, `{command}` ends it."


def ended(outcome: Outcome, reason: EndReason, share: float) -> list[str]:
    turn = replace(
        paused(""),
        state=State[outcome.name],
        outcome=outcome,
        reason=reason,
        interrupts=(),
        next_limit="the tool-call limit (n of 50)",
        next_limit_used=share,
    )
    return closing_lines(turn)


@pytest.mark.parametrize(
    ("outcome", "reason", "share", "is_shown"),
    [
        (Outcome.FINISHED, EndReason.ANSWERED, 0.1, False),
        (Outcome.FINISHED, EndReason.ANSWERED, 0.7, False),
        (Outcome.FINISHED, EndReason.ANSWERED, 0.72, True),
        (Outcome.CAP_HIT, EndReason.STEP_CAP, 0.1, True),
        (Outcome.CAP_HIT, EndReason.BUDGET, 0.1, True),
        (Outcome.DOOM_LOOP, EndReason.DOOM_LOOP, 0.1, False),
        (Outcome.FAILED, EndReason.MODEL_ERROR, 0.1, False),
    ],
)
def test_nearest_limit_is_named_if_reached_or_near(
    outcome: Outcome, reason: EndReason, share: float, is_shown: bool
) -> None:
    lines = ended(outcome, reason, share)
    qualifier = "other " if outcome is Outcome.CAP_HIT else ""
    assert (f"The nearest {qualifier}limit is the tool-call limit (n of 50)." in lines) == is_shown


def test_limit_named_in_the_text_above_is_not_repeated() -> None:
    reached = replace(
        paused(""),
        state=State.CAP_HIT,
        outcome=Outcome.CAP_HIT,
        reason=EndReason.STEP_CAP,
        interrupts=(),
        advice="Raise.",
    )
    means = REASONS[EndReason.STEP_CAP].means
    assert closing_lines(reached)[:2] == [means, "Raise."]
    assert closing_lines(reached, above=f"{means} The model gave no summary.")[0] == "Raise."


def test_turn_of_another_program_is_not_resumed_here() -> None:
    lines = closing_lines(paused("Who are you?"), elsewhere=True)
    assert lines[2:4] == [
        '    turnwright answer t1 --answer question-1="..."',
        "  Then `Engine.recover()` or a worker of the program that began it resumes the turn.",
    ]
    crashed = replace(paused(""), state=State.STREAM, interrupts=())
    (first, *_) = closing_lines(crashed, elsewhere=True)
    assert (
        first
        == "In STREAM. If its driver is gone, `Engine.recover()` or a worker of the program that began it resumes it."
    )


def test_turn_of_a_memory_store_offers_no_continuation(cli: "Cli", endpoint: "Endpoint") -> None:
    cli.agent("steps: 1")
    endpoint.calls(("list_files", {})).says("Not done.")
    done = cli.run("run", "hi", "--agents", "AGENTS.md", "--store", "memory:")
    assert done.code == 4
    assert "--continue" not in done.out


def test_pause_of_a_memory_store_offers_no_answer(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("ask_user_input", {"question": "Which?"}))
    done = cli.run("run", "hi", "--store", "memory:")
    assert done.code == 3
    assert "its store was in memory and is gone" in done.out
    assert "turnwright resume" not in done.out


def test_version_is_printed(cli: "Cli") -> None:
    done = cli.run("--version")
    assert (done.code, done.out.split()[0]) == (0, "turnwright")
