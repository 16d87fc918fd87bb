"""Trajectories of SWE-agent are read, and demonstrations that have only a history."""

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

from turnwright_audit.trajectories.source import UnreadableRecordingError

FORMAT = "swe-agent"


def item(action: str, observation: str | None, response: str) -> dict[str, Any]:
    return {"action": action, "observation": observation, "response": response, "thought": response, "state": {}}


def call(own: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": own, "type": "function", "function": {"name": name, "arguments": arguments}}


PROMPT: list[dict[str, Any]] = [
    {"role": "system", "content": "You are a programmer.", "agent": "main", "message_type": "system_prompt"},
    {"role": "user", "content": "Here is how it is done: open x.py", "agent": "main", "is_demo": True},
    {"role": "user", "content": [{"type": "text", "text": "Mend the bug, bitte schön."}], "agent": "main"},
]
HISTORY: dict[str, Any] = {
    "history": [
        *PROMPT,
        {
            "role": "assistant",
            "content": "I look.",
            "action": 'open "a.py"',
            "agent": "main",
            "tool_calls": [call("c1", "open", '{"path": "a.py"}')],
        },
        {"role": "tool", "content": "1: x = 1", "agent": "main", "tool_call_ids": ["c1"]},
        {"role": "assistant", "content": "I submit.", "action": "submit\n", "agent": "main"},
        {"role": "user", "content": "diff", "agent": "main", "message_type": "observation"},
    ]
}
DOCUMENT: dict[str, Any] = {
    "environment": "main",
    "trajectory": [
        item('open "a.py"', "1: x = 1", "I look."),
        item("python a.py", "", "I run it."),
        item("", None, "I am not sure."),
        item("submit", "diff", "I submit."),
    ],
    "history": HISTORY["history"],
    "info": {
        "exit_status": "submitted",
        "submission": "diff",
        "model_stats": {"instance_cost": 0.5, "tokens_sent": 900, "tokens_received": 30, "api_calls": 4},
    },
    "replay_config": json.dumps({"agent": {"model": {"name": "small"}}}),
}


def dumps(value: Any) -> bytes:  # noqa: ANN401 (any JSON)
    return json.dumps(value, ensure_ascii=False).encode()


def test_each_item_is_a_reply_with_command_and_observation() -> None:
    assert recognized(dumps(DOCUMENT)) == FORMAT
    [run] = read(dumps(DOCUMENT), FORMAT)
    assert [step.source for step in run.steps] == ["system", "user", *["agent"] * 4]
    assert run.steps[1].message == "Mend the bug, bitte schön."
    assert sorted(calls([run])) == [
        ("bash", '{"command": "python a.py"}'),
        ("open", json.dumps({"command": 'open "a.py"'})),
        ("submit", '{"command": "submit"}'),
    ]
    assert results_of([run]) == ["1: x = 1", "", "diff"]
    assert (run.run_notes.ending, run.run_notes.success, run.agent.model_name) == ("submitted", None, "small")
    assert run.final_metrics is not None
    assert (run.final_metrics.total_prompt_tokens, run.final_metrics.total_cost_usd) == (900, 0.5)


def test_failed_request_or_limit_is_no_reply() -> None:
    items = [item("exit_cost", "Exited", "Exit due to cost limit"), item("", "", "Exit due to context window")]
    document = {**DOCUMENT, "trajectory": [*DOCUMENT["trajectory"][:1], *items], "info": {"exit_status": "exit_cost"}}
    [run] = read(dumps(document), FORMAT)
    assert [step.source for step in run.steps] == ["system", "user", "agent", "system", "system"]
    assert run.run_notes.ending == "exit_cost"


def test_history_alone_has_calls_of_tools_and_commands() -> None:
    assert recognized(dumps(HISTORY)) == FORMAT
    [run] = read(dumps(HISTORY), FORMAT)
    assert [step.source for step in run.steps] == ["system", "user", "agent", "agent"]
    assert sorted(calls([run])) == [("open", '{"path": "a.py"}'), ("submit", json.dumps({"command": "submit\n"}))]
    assert results([run]) == 2


def test_each_attempt_is_a_run() -> None:
    document = {**DOCUMENT, "attempts": [DOCUMENT, {**DOCUMENT, "info": {"exit_status": "exit_cost"}}]}
    runs = read(dumps(document), FORMAT)
    assert [(run.run_notes.run, run.run_notes.ending) for run in runs] == [
        ("attempt 1", "submitted"),
        ("attempt 2", "exit_cost"),
    ]


def test_sums_of_a_replay_are_unknown() -> None:
    zero = {"instance_cost": 0, "tokens_sent": 0, "tokens_received": 0}
    document = {**DOCUMENT, "info": {"model_stats": zero}, "replay_config": "{", "history": []}
    [run] = read(dumps(document), FORMAT)
    assert run.final_metrics is None
    assert [step.source for step in run.steps][:2] == ["user", "agent"]


def test_other_json_is_unreadable() -> None:
    with pytest.raises(UnreadableRecordingError):
        read(b"[]", FORMAT)


@given(document=st.sampled_from([DOCUMENT, HISTORY]), share=st.floats(0, 1))
def test_no_cut_invents_a_call(document: Any, share: float) -> None:  # noqa: ANN401 (any JSON)
    data = dumps(document)
    assert_a_cut_is_safe(data, int(share * len(data)), FORMAT)


@given(document=st.one_of(damaged(DOCUMENT), damaged(HISTORY)))
def test_values_of_wrong_types_are_left_out(document: Any) -> None:  # noqa: ANN401 (any JSON)
    assert_damage_is_safe(dumps(document), dumps(DOCUMENT), FORMAT)
