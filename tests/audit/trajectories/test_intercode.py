"""Results of InterCode are read, one run for each task."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.audit.trajectories.reading import (
    assert_a_cut_is_safe,
    assert_damage_is_safe,
    calls,
    damaged,
    read,
    recognized,
    results,
    results_of,
)

from turnwright_audit.measure import measure
from turnwright_audit.trajectories.source import UnreadableRecordingError

FORMAT = "intercode"


def task(actions: list[str], observations: list[Any], *, reward: float, turns: int, **history: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "environment": "ic_bash",
        "dataset": "tasks.json",
        "task_id": 0,
        "query": "How many files? ü",
        "turn_history": {"actions": actions, "observations": observations, "rewards": [0.1], **history},
        "summary": {"max_reward": reward, "max_reward_idx": 0, "turns_taken": turns, "turns_max": 3},
    }


TASKS: dict[str, Any] = {
    "0": task(["ls", "ls | wc -l"], ["a\nb", "2\n"], reward=1.0, turns=2, valid_action=[True, True]),
    "1": task(["ls", "cat x", "ls"], ["a", "no such file", "a"], reward=0.5, turns=3, valid_action=[True, False, None]),
    "2": task(["ls", "blocked"], ["a"], reward=0, turns=2),
    "3": task(["ls", "submit 2"], ["a", ["right"]], reward=1, turns=2, thoughts=["First I look.", "Two."]),
}

TASKS["2"]["environment"] = ""


def dumps(value: Any) -> bytes:  # noqa: ANN401 (any JSON)
    return json.dumps(value, ensure_ascii=False).encode()


@pytest.mark.parametrize("document", [TASKS, {"meta": {"env": "bash"}, "logs": TASKS}], ids=["tasks", "logs"])
def test_each_action_is_a_reply_with_a_call(document: Any) -> None:  # noqa: ANN401 (any JSON)
    assert recognized(dumps(document)) == FORMAT
    runs = read(dumps(document), FORMAT)
    assert [run.run_notes.run for run in runs] == ["0", "1", "2", "3"]
    assert [sum(step.source == "agent" for step in run.steps) for run in runs] == [2, 3, 2, 2]
    assert calls(runs)["bash", '{"command": "ls"}'] == 4
    assert calls(runs)["execute", '{"command": "ls"}'] == 1
    assert calls(runs)["submit", '{"command": "submit 2"}'] == 1
    assert results(runs) == 8
    assert results_of(runs[3:]) == ["a", '["right"]']


def test_reward_is_the_label_and_the_summary_the_ending() -> None:
    endings = [(run.run_notes.success, run.run_notes.ending) for run in read(dumps(TASKS), FORMAT)]
    assert endings == [(True, "reward 1"), (False, "cap"), (False, "blocked"), (True, "submitted")]


def test_invalid_action_results_in_an_error_and_thought_is_text() -> None:
    runs = read(dumps(TASKS), FORMAT)
    observation = runs[1].steps[2].observation
    assert observation is not None
    extra = observation.results[0].extra
    assert extra is not None
    assert extra.turnwright is not None
    assert extra.turnwright.status == "error"
    assert runs[3].steps[1].message == "First I look."


def test_calls_with_cut_observations_are_unreadable() -> None:
    document = dumps(TASKS)
    _, whole, cut = read(document[: document.index(b'["a"], "rewards"')], FORMAT)
    assert [measure(run, "f").unreadable for run in (whole, cut)] == [0, 2]
    assert [measure(run, "f").unpaired for run in (whole, cut)] == [0, 0]


def test_recording_without_a_history_is_unreadable() -> None:
    with pytest.raises(UnreadableRecordingError):
        read(b'{"0": {"environment": "ic_bash"}}', FORMAT)


@given(share=st.floats(0, 1))
def test_no_cut_invents_a_call(share: float) -> None:
    data = dumps(TASKS)
    assert_a_cut_is_safe(data, int(share * len(data)), FORMAT)


@given(document=damaged(TASKS))
def test_values_of_wrong_types_are_left_out(document: Any) -> None:  # noqa: ANN401 (any JSON)
    assert_damage_is_safe(dumps(document), dumps(TASKS), FORMAT)
