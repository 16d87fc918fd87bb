"""Sessions of opencode are read from exports, from messages and from the events of a run."""

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
from turnwright_audit.trajectories.atif import ResultStatus, Trajectory
from turnwright_audit.trajectories.source import UnreadableRecordingError

FORMAT = "opencode"
TOKENS = {"input": 10, "output": 4, "reasoning": 1, "cache": {"read": 30, "write": 2}}


def tool(own: str, name: str, arguments: dict[str, Any], **state: Any) -> dict[str, Any]:  # noqa: ANN401 (any JSON)
    return {"id": f"prt_{own}", "type": "tool", "callID": own, "tool": name, "state": {"input": arguments, **state}}


TIMES = {"start": 1_700_000_000_000, "end": 1_700_000_001_000}
PARTS: list[dict[str, Any]] = [
    {"type": "step-start"},
    {"type": "reasoning", "text": "Where?"},
    tool("a", "read", {"path": "ä"}, status="completed", output="1: x", time=TIMES),
    tool("b", "bash", {"command": "rm"}, status="error", error="The user rejected permission to use this tool call."),
    {"type": "step-finish", "reason": "tool-calls", "tokens": TOKENS, "cost": 0.25},
]
MORE: list[dict[str, Any]] = [
    {"type": "step-start"},
    tool("c", "task", {"prompt": "look"}, status="completed", output="seen", metadata={"sessionId": "ses_2"}),
    tool("d", "bash", {"command": "sleep"}, status="running"),
    {"type": "text", "text": "Done."},
    {"type": "step-finish", "reason": "stop", "tokens": TOKENS, "cost": 0.25},
]
ASSISTANT: dict[str, Any] = {"role": "assistant", "modelID": "small", "time": {"created": 1_700_000_000_000}}
SESSION: dict[str, Any] = {
    "info": {"id": "ses_1", "version": "1.0.0", "projectID": "p", "title": "Look"},
    "messages": [
        {"info": {"role": "user", "time": {"created": 1}}, "parts": [{"type": "text", "text": "Look, bitte schön."}]},
        {"info": {**ASSISTANT, "finish": "tool-calls"}, "parts": PARTS},
        {"info": {**ASSISTANT, "finish": "stop"}, "parts": MORE},
    ],
}
EVENTS: list[dict[str, Any]] = [
    {"type": part["type"].replace("-", "_"), "timestamp": 1_700_000_000_000, "sessionID": "ses_1", "part": part}
    for part in [*PARTS, *MORE]
]


def dumps(value: Any) -> bytes:  # noqa: ANN401 (any JSON)
    return json.dumps(value, ensure_ascii=False).encode()


def lines(values: list[Any]) -> bytes:
    return b"\n".join(map(dumps, values)) + b"\n"


def statuses(run: Trajectory) -> list[ResultStatus | None]:
    results = [result for step in run.steps if step.observation for result in step.observation.results]
    return [result.extra.turnwright.status if result.extra and result.extra.turnwright else None for result in results]


@pytest.mark.parametrize(
    "data",
    [dumps(SESSION), dumps(SESSION["messages"]), lines(SESSION["messages"]), lines(EVENTS)],
    ids=["export", "messages", "message a line", "events"],
)
def test_session_has_replies_calls_and_results(data: bytes) -> None:
    assert recognized(data) == FORMAT
    [run] = read(data, FORMAT)
    assert [step.source for step in run.steps] == ["user", "agent", "agent"]
    assert sorted(name for name, _ in calls([run])) == ["bash", "bash", "read", "task"]
    assert results_of([run]) == ["1: x", "The user rejected permission to use this tool call.", "seen"]
    assert statuses(run) == ["ok", "denied", "ok"]
    assert run.run_notes.ending == "stop"
    metrics = run.steps[1].metrics
    assert metrics is not None
    assert (metrics.prompt_tokens, metrics.completion_tokens, metrics.cached_tokens) == (42, 5, 30)
    assert (run.steps[1].reasoning_content, run.steps[2].message) == ("Where?", "Done.")
    assert run.steps[1].timestamp == "2023-11-14T22:13:20+00:00"


def test_sub_agent_result_refers_to_the_sub_agent_session() -> None:
    [run] = read(dumps(SESSION), FORMAT)
    observation = run.steps[2].observation
    assert observation is not None
    [result] = observation.results
    assert result.subagent_trajectory_ref is not None
    assert result.subagent_trajectory_ref[0].session_id == "ses_2"


def test_older_messages_have_several_replies_and_newer_may_lack_steps() -> None:
    older = {"info": {**ASSISTANT, "tokens": TOKENS}, "parts": [*PARTS, *MORE]}
    bare = {"info": {**ASSISTANT, "tokens": TOKENS, "cost": 1}, "parts": [{"type": "text", "text": "Hello"}]}
    [run] = read(dumps({**SESSION, "messages": [older, bare]}), FORMAT)
    assert [step.source for step in run.steps] == ["agent"] * 3
    assert run.steps[2].metrics is not None
    assert run.steps[2].metrics.cost_usd == 1


def test_errors_and_retries_are_errors_of_the_system() -> None:
    aborted = {"info": {**ASSISTANT, "error": {"name": "MessageAbortedError"}}, "parts": []}
    retried = {"info": ASSISTANT, "parts": [{"type": "retry", "error": {"name": "APIError"}}, *PARTS]}
    [run] = read(dumps({**SESSION, "messages": [retried, aborted]}), FORMAT)
    assert [step.source for step in run.steps] == ["system", "agent", "system"]
    assert run.run_notes.ending == "MessageAbortedError"


def test_aborted_call_is_canceled() -> None:
    part = tool("a", "bash", {}, status="error", error="Tool execution aborted")
    [run] = read(dumps([{"info": ASSISTANT, "parts": [part]}]), FORMAT)
    assert statuses(run) == ["canceled"]
    assert results([run]) == 1


def test_recording_without_messages_is_unreadable() -> None:
    with pytest.raises(UnreadableRecordingError):
        read(b"[]", FORMAT)


@given(document=st.sampled_from([SESSION, SESSION["messages"]]), share=st.floats(0, 1))
def test_no_cut_invents_a_call(document: Any, share: float) -> None:  # noqa: ANN401 (any JSON)
    data = dumps(document)
    assert_a_cut_is_safe(data, int(share * len(data)), FORMAT)


@given(share=st.floats(0, 1))
def test_no_cut_of_events_invents_a_call(share: float) -> None:
    data = lines(EVENTS)
    assert_a_cut_is_safe(data, int(share * len(data)), FORMAT)


@given(document=st.one_of(damaged(SESSION), damaged(EVENTS)))
def test_values_of_wrong_types_are_left_out(document: Any) -> None:  # noqa: ANN401 (any JSON)
    assert_damage_is_safe(dumps(document), dumps(SESSION), FORMAT)


@pytest.mark.parametrize(("name", "waiting"), [("question", 1), ("bash", 0)])
def test_question_at_the_end_waits_for_a_person(name: str, waiting: int) -> None:
    message = {"info": ASSISTANT, "parts": [{"type": "step-start"}, tool("a", name, {}, status="running")]}
    [run] = read(dumps({**SESSION, "messages": [*SESSION["messages"][:1], message]}), FORMAT)
    measures = measure(run, "f")
    assert (measures.waiting, measures.unpaired) == (waiting, 1 - waiting)
