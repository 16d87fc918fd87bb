"""The invariants of a turn are checked on runs of any format, turn by turn."""

import pytest
from tests.audit.recorded import call, run_of
from tests.audit.trajectories.reading import read

from turnwright_audit.invariants import check_run
from turnwright_audit.traces import TraceClaim
from turnwright_audit.trajectories.atif import Observation, Trajectory, TrajectoryResult
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.verdicts import Invariants
from turnwright_states.verdict import Verdict

SOUND = [
    '{"event": "turn_started", "limits": {"steps": 2, "tool_calls": 5, "max_retries": 0}}',
    '{"event": "model_called"}',
    '{"event": "model_replied", "calls": [{"id": "c1", "name": "search"}]}',
    '{"event": "tool_started", "call": "c1"}',
    '{"event": "tool_result", "call": "c1"}',
    '{"event": "model_called"}',
    '{"event": "model_replied", "text": "Done."}',
    '{"event": "turn_ended", "outcome": "finished", "reason": "answered"}',
]


def checked(*runs: Trajectory) -> Invariants:
    invariants = Invariants()
    for run in runs:
        invariants.merge(check_run(run, "file", "run"))
    return invariants


def of_trace(lines: list[str]) -> Invariants:
    return checked(*read("\n".join(lines).encode(), "trace"))


def numbers(invariants: Invariants, claim: TraceClaim) -> tuple[int, int, int]:
    verdicts = invariants.claims[claim]
    return verdicts.holds, verdicts.violated, verdicts.unknown


def named(lines: list[str], turn: str) -> list[str]:
    return [f'{line[:-1]}, "turn": "{turn}"}}' for line in lines]


def test_every_claim_holds_on_a_sound_trace() -> None:
    invariants = of_trace(SOUND)
    assert invariants.verdict is Verdict.HOLDS
    assert {numbers(invariants, claim) for claim in TraceClaim} == {(1, 0, 0)}


def test_incomplete_turn_hides_no_fault_of_another() -> None:
    lost = [line for line in SOUND if "tool_result" not in line]
    invariants = of_trace([*named(SOUND, "a"), *named(SOUND[:-1], "b"), *named(lost, "c")])
    assert numbers(invariants, TraceClaim.PAIRED) == (1, 1, 1)
    assert numbers(invariants, TraceClaim.STEPS) == (2, 0, 1)
    assert invariants.claims[TraceClaim.STEPS].why.startswith("the trace stops before the turn ends")
    assert invariants.claims[TraceClaim.STEPS].verdict is Verdict.INCONCLUSIVE
    assert invariants.verdict is Verdict.VIOLATED
    [fault] = invariants.faults
    assert (fault.claim, fault.turn) == (TraceClaim.PAIRED, "c")
    assert fault.why == "line 20: the model is called, and there is no result for c1 of line 18"[9:]


def test_unreadable_line_makes_every_claim_undecided() -> None:
    invariants = of_trace([*[line for line in SOUND if "tool_result" not in line], "nonsense"])
    assert invariants.faults == []
    assert {numbers(invariants, claim) for claim in TraceClaim} == {(0, 0, 1)}


def test_lost_results_of_a_recorded_run_are_faults() -> None:
    invariants = checked(run_of(call("read", "a", None), call("read"), "Done."))
    assert numbers(invariants, TraceClaim.PAIRED) == (0, 1, 0)
    assert numbers(invariants, TraceClaim.ASKED) == (1, 0, 0)
    assert numbers(invariants, TraceClaim.WORDS) == (1, 0, 0)
    for claim in (TraceClaim.STEPS, TraceClaim.STARTED, TraceClaim.ONE_END, TraceClaim.REASON):
        assert numbers(invariants, claim) == (0, 0, 1)
    assert invariants.faults[0].witness[-1].startswith("step 3: model_replied")


def test_unrequested_and_duplicate_results_are_faults() -> None:
    run = RunBuilder("atif", agent="clerk")
    run.user("Go.")
    run.reply()
    run.call("a", "read")
    run.result("a", "one")
    run.result("a", "two")
    run.result("b", "three")
    run.reply("Done.")
    assert [fault.why for fault in checked(run.finish()).faults] == [
        "a result for call a, and it has one already, in step 2",
        "a result for call b, and no reply asked for it",
    ]


@pytest.mark.parametrize("cut", [True, False])
def test_last_turn_of_a_stopped_run_is_undecided(cut: bool) -> None:
    run = RunBuilder("atif", agent="clerk")
    for _ in range(2):
        run.user("Go.")
        run.reply("Done." if len(run.steps) == 1 else "")
    run.call("a", "read")
    invariants = checked(run.finish(cut=cut))
    assert numbers(invariants, TraceClaim.PAIRED) == (1, 0, 1)


def test_system_prompt_is_no_turn() -> None:
    run = RunBuilder("atif", agent="clerk")
    run.system("You are a clerk.")
    run.user("Go.")
    run.reply("Done.")
    assert checked(run.finish()).turns == 1


def test_calls_of_terminal_tools_need_no_result() -> None:
    run = RunBuilder("atif", agent="clerk")
    run.user("Go.")
    run.reply("Submitting.")
    run.call("a", "submit")
    run.notes.terminal_tools = ["submit"]
    assert numbers(checked(run.finish()), TraceClaim.PAIRED) == (1, 0, 0)


def test_result_without_a_call_id_answers_all_calls_of_the_step() -> None:
    run = run_of([*call("a", result=None), *call("b", result=None)], "Done.", ending="stop")
    [step, *_] = [step for step in run.steps if step.tool_calls]
    step.observation = Observation(results=[TrajectoryResult(content="both")])
    invariants = checked(run)
    assert numbers(invariants, TraceClaim.PAIRED) == numbers(invariants, TraceClaim.ASKED) == (1, 0, 0)
