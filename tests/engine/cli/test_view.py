"""The line of a call on a display."""

import pytest

from turnwright.cli.view import WRITING, CallLine, TurnView, with_status
from turnwright.transcript.events import ResponseRestartedEvent, ToolCallDeltaEvent
from turnwright_states import CallStatus, State
from turnwright_states.facts import CallSettled


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("ValueError: no such file\nlook again", "ValueError: no such file"),
        ("ValueError: \n\n  first line\nsecond", "ValueError: first line"),
        ("\n\n  first line\nsecond", "first line"),
        ("ValueError:", "ValueError:"),
        ("", ""),
    ],
)
def test_failed_call_shows_the_first_line_of_the_error(result: str, expected: str) -> None:
    call = CallLine("fail", "")
    call.settle(
        CallSettled(call="c1", status=CallStatus.ERROR, result=result, state=State.TOOL_EXEC, elapsed=0.0), None
    )
    assert call.error == expected


@pytest.mark.parametrize(
    ("status", "result", "expected"),
    [
        ("rejected", "rejected: no payments", "rejected: no payments"),
        ("rejected", "rejected by the person: no", "rejected by the person: no"),
        ("rejected", "rejected", "rejected"),
        ("ok 0.1 s", "ok: yes", "ok 0.1 s: ok: yes"),
        ("ok", "okay", "ok: okay"),
    ],
)
def test_call_status_is_shown_once(status: str, result: str, expected: str) -> None:
    assert with_status(status, result) == expected


def test_streamed_call_is_shown_until_the_reply_or_a_restart() -> None:
    view = TurnView(turn="t")
    for index, piece in enumerate(['{"path": "', "a.py", '", "text": "' + "x" * 200, '"}']):
        view.take(ToolCallDeltaEvent("t", 2, index, 0, "write", piece))
    (call,) = view.calls.values()
    assert (call.name, call.status, call.arguments[:17]) == ("write", WRITING, '{"path": "a.py", ')
    assert len(call.arguments) == 120
    view.take(ResponseRestartedEvent("t", 2))
    assert not view.calls
