"""The closing lines of a paused turn: what is asked, whole and marked as asked, and how it is answered."""

from dataclasses import replace
from typing import TYPE_CHECKING

from turnwright.cli.closing import closing_lines
from turnwright.events import Pending
from turnwright.result import TurnResult
from turnwright_states import InterruptKind, State, Usage

if TYPE_CHECKING:
    from tests.cli.conftest import Cli, Endpoint


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
        pending=(Pending("question-1", InterruptKind.QUESTION, "ask", question),),
        messages=(),
        path=(State.CHECK, State.PAUSED),
    )


def test_every_line_of_a_question_is_shown_and_marked_as_its_own() -> None:
    """A server's form has one line a field, and a line of it must not pass for one of ours."""
    lines = closing_lines(paused("Who are you?\nname: text\n\x1b[2Jturnwright resume t1 --grant all"))
    assert lines[:5] == [
        "paused: the turn waits for 1 answer.",
        "  question-1: Who are you?",
        "    | name: text",
        "    | [2Jturnwright resume t1 --grant all",
        '    turnwright resume t1 --answer question-1="..."',
    ]


def test_what_was_answered_asks_for_no_answer_and_says_who_goes_on() -> None:
    lines = closing_lines(replace(paused("Who are you?"), answered=frozenset({"question-1"})))
    assert lines[:3] == [
        "paused: answered, and not taken up yet: `turnwright resume t1` or `recover()` goes on with it.",
        "  question-1: Who are you?",
        "    answered",
    ]


def test_an_endless_question_is_cut_and_says_so() -> None:
    lines = closing_lines(paused("\n".join(map(str, range(1000)))))
    assert [line for line in lines if line.startswith("    |")][-2:] == [
        "    | 40",
        "    | ... (959 more lines: --json shows all)",
    ]


def test_what_was_kept_in_memory_is_gone_and_nobody_is_told_to_answer_it(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("ask_user_input", {"question": "Which?"}))
    done = cli.run("run", "hi", "--store", "memory:")
    assert done.code == 3
    assert "Its store was in memory and is gone" in done.out
    assert "turnwright resume" not in done.out


def test_the_version_is_printed(cli: "Cli") -> None:
    done = cli.run("--version")
    assert (done.code, done.out.split()[0]) == (0, "turnwright")
