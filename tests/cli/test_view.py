"""The line of a call on a display."""

import pytest

from turnwright.cli.view import CallLine
from turnwright_states import CallStatus, State
from turnwright_states.facts import CallSettled


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ("ValueError: no such file\nlook again", "ValueError: no such file"),
        ("ValueError: \n\n  first line\nsecond", "ValueError: first line"),
        ("\n\n  first line\nsecond", "first line"),
        ("ValueError:", "ValueError:"),
        ("", ""),
    ],
)
def test_a_call_that_failed_shows_the_first_line_with_words(result: str, shown: str) -> None:
    call = CallLine("fail", "")
    call.settle(
        CallSettled(call="c1", status=CallStatus.ERROR, result=result, state=State.TOOL_EXEC, elapsed=0.0), None
    )
    assert call.error == shown
