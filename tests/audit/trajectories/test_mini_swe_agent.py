"""Trajectories of mini-swe-agent are read: the text protocol of version 1, and the tool calls of version 2."""

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

from turnwright_audit.trajectories.atif import ResultStatus, Trajectory
from turnwright_audit.trajectories.source import UnreadableRecordingError

FORMAT = "mini-swe-agent"


def response(cost: float) -> dict[str, Any]:
    return {
        "model": "small-1",
        "created": 1_700_000_000,
        "choices": [{"finish_reason": "stop"}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 5, "cost": cost},
    }


def reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "extra": {"response": response(0.25)}}


def block(command: str) -> str:
    return f"THOUGHT: so.\n\n```bash\n{command}\n```"


TEXT: dict[str, Any] = {
    "info": {
        "exit_status": "Submitted",
        "model_stats": {"instance_cost": 1.0, "api_calls": 4},
        "mini_version": "1.15.0",
        "config": {"model": {"model_name": "lab/small"}, "agent": {"step_limit": 9}},
    },
    "messages": [
        {"role": "system", "content": "You can use bash."},
        {"role": "user", "content": "Mend the bug, bitte schön. Example: " + block("ls")},
        reply(block("ls")),
        {"role": "user", "content": "<returncode>0</returncode>\n<output>\na.py\n</output>"},
        reply(block("ls") + block("cat a.py")),
        {"role": "user", "content": "Please always provide EXACTLY ONE action."},
        reply(block("false")),
        {"role": "user", "content": "<returncode>1</returncode>\n<output>\n</output>"},
        reply(block("submit")),
        {"role": "user", "content": "diff --git a/a.py"},
    ],
    "trajectory_format": "mini-swe-agent-1",
    "instance_id": "task-7",
}


def tool_call(own: str, command: str) -> dict[str, Any]:
    arguments = json.dumps({"command": command})
    return {"id": own, "type": "function", "function": {"name": "bash", "arguments": arguments}}


TOOLS: dict[str, Any] = {
    "info": {"exit_status": "Submitted", "mini_version": "2.1.0", "model_stats": {"instance_cost": 0.5}},
    "messages": [
        {"role": "system", "content": "You can use bash."},
        {"role": "user", "content": "Mend the bug."},
        {
            "role": "user",
            "content": "No tool calls found.",
            "extra": {"interrupt_type": "FormatError", "response": response(0.1), "model_response": "I am done."},
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [tool_call("a", "ls"), tool_call("b", "cat x")],
            "extra": {
                "actions": [{"command": "ls"}, {"command": "cat x"}],
                "cost": 0.2,
                "response": {"usage": {"prompt_tokens": 1}},
            },
        },
        {"role": "tool", "tool_call_id": "a", "content": "x", "extra": {"returncode": 0}},
        {"role": "tool", "tool_call_id": "b", "content": "no such file", "extra": {"returncode": 1}},
        {"role": "assistant", "content": "", "tool_calls": [tool_call("c", "submit")], "extra": {"cost": 0.2}},
        {"role": "exit", "content": "diff", "extra": {"exit_status": "Submitted", "submission": "diff"}},
    ],
    "trajectory_format": "mini-swe-agent-1.1",
}


def dumps(value: Any) -> bytes:  # noqa: ANN401 (any JSON)
    return json.dumps(value, ensure_ascii=False).encode()


def statuses(run: Trajectory) -> list[ResultStatus | None]:
    results = [result for step in run.steps if step.observation for result in step.observation.results]
    return [result.extra.turnwright.status if result.extra and result.extra.turnwright else None for result in results]


def test_reply_with_a_block_is_a_call_answered_by_the_next_message() -> None:
    assert recognized(dumps(TEXT)) == FORMAT
    [run] = read(dumps(TEXT), FORMAT)
    assert [step.source for step in run.steps] == ["system", "user", *["agent"] * 2, "system", *["agent"] * 2]
    assert calls([run]) == {("bash", json.dumps({"command": command})): 1 for command in ("ls", "false", "submit")}
    assert results([run]) == 3
    assert statuses(run) == ["ok", "error", None]
    assert (run.run_notes.run, run.run_notes.ending, run.run_notes.success) == ("task-7", "Submitted", None)
    assert (run.agent.version, run.agent.model_name) == ("1.15.0", "lab/small")


def test_timed_out_command_has_failed() -> None:
    notice = "The last command <command>sleep 99\nls</command> timed out and has been killed.\nThe output was:"
    messages = [*TEXT["messages"][:2], reply(block("sleep 99\nls")), {"role": "user", "content": notice}]
    [run] = read(dumps({**TEXT, "messages": messages}), FORMAT)
    assert statuses(run) == ["error"]


def test_tokens_times_and_costs_come_from_replies_and_run() -> None:
    [run] = read(dumps(TEXT), FORMAT)
    metrics = run.steps[2].metrics
    assert metrics is not None
    assert (metrics.prompt_tokens, metrics.completion_tokens, metrics.cost_usd) == (50, 5, 0.25)
    assert run.steps[2].timestamp == "2023-11-14T22:13:20+00:00"
    assert run.final_metrics is not None
    assert run.final_metrics.total_cost_usd == 1.0


def test_file_of_the_first_releases_has_no_version() -> None:
    info = {"exit_status": "Submitted", "submission": "diff", "model_stats": {"instance_cost": 1.0, "api_calls": 4}}
    assert recognized(dumps({"info": info, "messages": TEXT["messages"]})) == FORMAT
    assert recognized(dumps({"info": {"exit_status": "Submitted"}, "messages": TEXT["messages"]})) == "openai-chat"


def test_tool_calls_have_results_and_the_submission_is_last() -> None:
    assert recognized(dumps(TOOLS)) == FORMAT
    [run] = read(dumps(TOOLS), FORMAT)
    assert [step.source for step in run.steps] == ["system", "user", "agent", "system", "agent", "agent"]
    assert run.steps[2].message == "I am done."
    assert calls([run]) == {("bash", json.dumps({"command": command})): 1 for command in ("ls", "cat x", "submit")}
    assert results_of([run]) == ["x", "no such file", "diff"]
    assert statuses(run) == ["ok", "error", "ok"]
    assert run.steps[4].metrics is not None
    assert run.steps[4].metrics.cost_usd == 0.2


def test_responses_with_items_are_replies_too() -> None:
    text = {"type": "message", "content": [{"type": "output_text", "text": "I look."}]}
    called = {"type": "function_call", "call_id": "a", "name": "bash", "arguments": '{"command": "ls"}'}
    refused = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "No tool calls found."}]}
    usage = {"input_tokens": 7, "output_tokens": 2}
    messages = [
        *TOOLS["messages"][:2],
        {**refused, "extra": {"interrupt_type": "FormatError", "response": {"output": [text], "usage": usage}}},
        {"object": "response", "model": "small", "output": [text, called], "usage": usage, "extra": {"cost": 0.5}},
        {"type": "function_call_output", "call_id": "a", "output": "x", "extra": {"returncode": 0}},
    ]
    [run] = read(dumps({**TOOLS, "messages": messages}), FORMAT)
    assert [step.message for step in run.steps if step.source == "agent"] == ["I look.", "I look."]
    assert calls([run]) == {("bash", '{"command": "ls"}'): 1}
    assert results_of([run]) == ["x"]
    metrics = run.steps[-1].metrics
    assert metrics is not None
    assert (metrics.prompt_tokens, metrics.cost_usd) == (7, 0.5)


def test_text_protocol_with_a_custom_name_is_followed() -> None:
    document = json.loads(json.dumps(TEXT).replace("```bash", "```mswea_bash_command"))
    document["info"]["config"]["agent"]["action_regex"] = r"```mswea_bash_command\s*\n(.*?)\n```"
    assert calls(read(dumps(document), FORMAT)) == calls(read(dumps(TEXT), FORMAT))


def test_run_reaching_the_limits_has_no_extra_call() -> None:
    document = {**TOOLS, "info": {"mini_version": "2.1.0"}}
    limits = {"role": "exit", "content": "LimitsExceeded", "extra": {"exit_status": "LimitsExceeded"}}
    document["messages"] = [*TOOLS["messages"][:6], limits]
    [run] = read(dumps(document), FORMAT)
    assert (run.run_notes.ending, results([run])) == ("LimitsExceeded", 2)


def test_message_of_a_person_opens_a_turn() -> None:
    question = {"role": "user", "content": "And now?", "extra": {"interrupt_type": "UserNewTask"}}
    [run] = read(dumps({**TOOLS, "messages": [*TOOLS["messages"], question]}), FORMAT)
    assert [step.source for step in run.steps].count("user") == 2


def test_recording_without_messages_has_no_agent_steps() -> None:
    assert not calls(read(b'{"info": {"mini_version": "1"}}', FORMAT))
    with pytest.raises(UnreadableRecordingError):
        read(b"nothing", FORMAT)


@given(document=st.sampled_from([TEXT, TOOLS]), share=st.floats(0, 1))
def test_no_cut_invents_a_call(document: Any, share: float) -> None:  # noqa: ANN401 (any JSON)
    data = dumps(document)
    assert_a_cut_is_safe(data, int(share * len(data)), FORMAT)


@given(document=st.one_of(damaged(TEXT), damaged(TOOLS)))
def test_values_of_wrong_types_are_left_out(document: Any) -> None:  # noqa: ANN401 (any JSON)
    assert_damage_is_safe(dumps(document), dumps(TEXT), FORMAT)
