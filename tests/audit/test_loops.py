"""The loops of a turn, each with its kind, and the steps at which detectors would have acted."""

from hypothesis import given
from hypothesis import strategies as st
from tests.audit.recorded import call, run_of

from turnwright_audit.loops import THRESHOLDS, Loop, LoopKind, TurnLoops, loops_of
from turnwright_audit.rounds import turns_of
from turnwright_audit.trajectories.atif import Trajectory
from turnwright_states.doom import LONGEST_PERIOD, looping, make_round


def found(run: Trajectory) -> TurnLoops:
    [turn] = turns_of(run)
    return loops_of(turn)


def loops(run: Trajectory) -> list[Loop]:
    return found(run).loops


def test_same_call_and_result_three_times_is_a_loop() -> None:
    run = run_of(call("list"), *[call("read", "a", "old")] * 4, "Done.")
    assert loops(run) == [Loop("read", 2, 4, 200, LoopKind.SAME_RESULT)]


def test_results_differing_only_in_noise_are_equal() -> None:
    run = run_of(*[call("test", "a", f"1 failed in {second}.25s at 12:00:0{second}") for second in range(3)])
    assert [loop.kind for loop in loops(run)] == [LoopKind.SAME_RESULT]


def test_same_call_with_other_results_is_paging_or_polling() -> None:
    run = run_of(*[call("scroll", "down", f"page {page}") for page in range(5)])
    assert loops(run) == [Loop("scroll", 1, 5, 200, LoopKind.RESULTS_DIFFER)]
    assert [name for name in found(run).acts if name.startswith("results")] == []


def test_alternating_calls_are_a_single_loop() -> None:
    run = run_of(*[call("read", "a"), call("read", "b")] * 3)
    assert loops(run) == [Loop("read", 1, 6, 0, LoopKind.SAME_RESULT)]


def test_denied_calls_are_a_separate_kind_of_loop() -> None:
    run = run_of(*[call("rm", "a", "no")] * 3, statuses={"no": "denied"})
    assert [loop.kind for loop in loops(run)] == [LoopKind.DENIED]
    assert "results:3" not in found(run).acts
    then_allowed = run_of(*[call("rm", "a", "no")] * 3, *[call("rm", "a", "gone")] * 2, statuses={"no": "denied"})
    assert loops(then_allowed) == [Loop("rm", 1, 5, 200, LoopKind.DENIED)]
    other_arguments = run_of(*[call("rm", str(number), "no") for number in range(4)], statuses={"no": "denied"})
    assert [loop.kind for loop in loops(other_arguments)] == [LoopKind.DENIED]


def test_same_error_four_times_is_a_loop_for_any_arguments() -> None:
    rounds = [call("edit", str(number), "no match") for number in range(4)]
    assert loops(run_of(*rounds, statuses={"no match": "error"})) == [Loop("edit", 1, 4, 0, LoopKind.SAME_ERROR)]
    assert loops(run_of(*rounds)) == []
    assert loops(run_of(*rounds[:3], statuses={"no match": "error"})) == []


def test_error_text_counts_as_an_error_without_a_recorded_status() -> None:
    rounds = [call("edit", str(number), "Error: no match") for number in range(4)]
    run = run_of(*rounds)
    for step in run.steps:
        for result in step.observation.results if step.observation else ():
            assert result.extra is not None
            assert result.extra.turnwright is not None
            result.extra.turnwright.status = None
    assert [loop.kind for loop in loops(run)] == [LoopKind.SAME_ERROR]


def test_six_rounds_without_new_results_are_a_loop() -> None:
    new = [call("read", name) for name in "abcde"]
    run = run_of(*new, *new, call("read", "a"))
    assert loops(run) == [Loop("read", 6, 6, 0, LoopKind.NOTHING_NEW)]
    changed = run_of(*new, *new[:4], call("read", "e", "changed"), call("read", "a"))
    assert loops(changed) == []


def test_loop_is_reported_once() -> None:
    run = run_of(*[call("edit", "a", "no match")] * 8, statuses={"no match": "error"})
    assert loops(run) == [Loop("edit", 1, 8, 500, LoopKind.SAME_RESULT)]


def test_detectors_report_the_first_two_steps_of_action() -> None:
    acts = found(run_of("Look.", *[call("read")] * 6)).acts
    assert acts["calls:2"] == [2, 3]
    assert acts["calls:3"] == acts["results:3"] == [3, 4]
    assert acts["calls:5"] == [5, 6]


@given(st.lists(st.sampled_from("abc"), max_size=24), st.sampled_from(THRESHOLDS))
def test_detector_acts_at_the_step_of_the_machine(tools: list[str], threshold: int) -> None:
    run = run_of(*[call(tool) for tool in tools], "Done.")
    rounds = [make_round([(tool, tool)]) or b"" for tool in tools]
    expected = [
        at for at in range(len(tools)) if looping(tuple(rounds[: at + 1][-LONGEST_PERIOD * threshold :]), threshold)
    ]
    for compare in ("calls", "results"):
        assert found(run).acts.get(f"{compare}:{threshold}", []) == expected[:2]
