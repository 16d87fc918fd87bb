"""Trajectories in the ecosystem's format are read, whole, cut and line by line."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.trajectories.reading import assert_a_cut_is_safe, calls, read, recognized

from turnwright.trajectories.builder import RunBuilder


def sample() -> bytes:
    run = RunBuilder("atif", agent="clerk", version="1", session="s-1")
    run.user("Pay the invoice.")
    run.reply("Looking it up.")
    run.call("c1", "look_up", {"invoice": 7})
    run.call("c2", "look_up", '{"invoice": 8}')
    run.result("c2", "unpaid")
    run.result("c1", "paid")
    run.reply("Done.")
    return msgspec.json.encode(run.finish(ending="stop"))


SAMPLE = sample()


def test_a_trajectory_is_recognized_and_read_as_it_is() -> None:
    assert recognized(SAMPLE) == "atif"
    [run] = read(SAMPLE, "atif")
    assert msgspec.json.encode(run) == SAMPLE


def test_a_trajectory_in_each_line_is_one_run_each() -> None:
    runs = read(SAMPLE + b"\n{corrupt\n" + SAMPLE + b"\n", "atif")
    assert len(runs) == 2
    assert sum(run.run_notes.unreadable_lines for run in runs) == 1


def test_a_cut_document_keeps_its_complete_steps() -> None:
    [run] = read(SAMPLE[: SAMPLE.index(b'"Done."')], "atif")
    assert run.run_notes.cut
    assert [step.source for step in run.steps] == ["user", "agent"]
    assert calls([run]) == calls(read(SAMPLE, "atif"))


@given(at=st.integers(0, len(SAMPLE)))
def test_no_cut_invents_a_call(at: int) -> None:
    assert_a_cut_is_safe(SAMPLE, at, "atif")
