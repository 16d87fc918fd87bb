"""Traces of turns are read as runs without arguments and results."""

from hypothesis import given
from hypothesis import strategies as st
from tests.audit.trajectories.reading import assert_a_cut_is_safe, calls, read, recognized, results

from turnwright_audit.trajectories.traced_run import TracedRun

SAMPLE = b"""\
{"event": "turn_started", "turn": "t1", "limits": {"steps": 5}}
{"event": "model_called", "turn": "t1"}
{"event": "turn_started", "turn": "t2"}
{"event": "model_replied", "turn": "t1", "text": "", "calls": [{"id": "a", "name": "read"}, {"id": "b", "name": "rm"}]}
{"event": "tool_result", "turn": "t1", "call": "b", "status": "rejected"}
{"event": "tool_result", "turn": "t1", "call": "a"}
{"event": "model_failed", "turn": "t2", "cause": "overloaded"}
{"event": "model_replied", "turn": "t1", "text": "Done."}
{"event": "turn_ended", "turn": "t1", "outcome": "finished", "reason": "answered"}
"""


def test_each_turn_is_a_run() -> None:
    assert recognized(SAMPLE) == "trace"
    first, second = read(SAMPLE, "trace")
    assert [run.run_notes.run for run in (first, second)] == ["t1", "t2"]
    assert [step.source for step in first.steps] == ["user", "agent", "agent"]
    assert (sum(calls([first]).values()), results([first])) == (2, 2)
    assert (first.run_notes.ending, second.run_notes.ending) == ("finished: answered", None)
    assert isinstance(first, TracedRun)
    assert [line for line, _ in first.events()] == [1, 2, 4, 5, 6, 8, 9]


def test_unreadable_line_damages_every_turn_and_counts_once() -> None:
    runs = read(SAMPLE + b'{"event": "nonsense"}\n', "trace")
    assert [run.run_notes.unreadable_lines for run in runs] == [1, 0]
    damage = [run.damage for run in runs if isinstance(run, TracedRun)]
    assert damage == [f"line {len(SAMPLE.splitlines()) + 1} is not an event of a trace"] * 2


@given(st.integers(0, len(SAMPLE)))
def test_no_cut_invents_a_call(at: int) -> None:
    assert_a_cut_is_safe(SAMPLE, at, "trace")
