"""Trajectories of trae-agent are read, with the errors that ended them."""

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

FORMAT = "trae-agent"


def response(text: str, *called: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "content": text,
        "model": "small-1",
        "finish_reason": "tool_use",
        "usage": {
            "input_tokens": 10,
            "output_tokens": 3,
            "cache_creation_input_tokens": 2,
            "cache_read_input_tokens": 40,
        },
        "tool_calls": [
            {"call_id": own, "name": name, "arguments": arguments, "id": None} for own, name, arguments in called
        ],
    }


FIRST = response("Looking.", ("t1", "bash", {"command": "ls"}), ("t2", "edit", {"path": "ä.py"}))
LAST = response("", ("t3", "task_done", {}))
RESULTS: list[dict[str, Any]] = [
    {"call_id": "t1", "success": True, "result": "ä.py", "error": "warning"},
    {"call_id": "t2", "success": False, "result": None, "error": "no such file"},
]
DOCUMENT: dict[str, Any] = {
    "task": "Make it fast.",
    "start_time": "2025-12-24T15:08:14.635526",
    "provider": "anthropic",
    "model": "small",
    "max_steps": 9,
    "llm_interactions": [
        {
            "timestamp": "2025-12-24T15:08:18.648593",
            "provider": "anthropic",
            "input_messages": [
                {"role": "system", "content": "You are fast."},
                {"role": "user", "content": "Make it fast."},
            ],
            "response": FIRST,
        },
        {
            "timestamp": "2025-12-24T15:08:21",
            "provider": "anthropic",
            "input_messages": [
                *({"role": "user", "content": None, "tool_result": result} for result in RESULTS),
                {"role": "user", "content": "<reminder>Be quick.</reminder>"},
            ],
            "response": LAST,
        },
    ],
    "agent_steps": [
        {"step_number": 1, "state": "completed", "llm_response": FIRST, "tool_results": RESULTS, "error": None},
        {"step_number": 2, "state": "completed", "llm_response": LAST, "tool_results": None, "error": None},
    ],
    "success": True,
    "final_result": "Faster.",
}


def dumps(value: Any) -> bytes:  # noqa: ANN401 (any JSON)
    return json.dumps(value, ensure_ascii=False).encode()


def test_replies_have_calls_results_and_tokens() -> None:
    assert recognized(dumps(DOCUMENT)) == FORMAT
    [run] = read(dumps(DOCUMENT), FORMAT)
    assert [step.source for step in run.steps] == ["system", "user", "agent", "system", "agent"]
    assert calls([run]).total() == 3
    assert results_of([run]) == ["ä.py\nwarning", "no such file"]
    metrics = run.steps[2].metrics
    assert metrics is not None
    assert (metrics.prompt_tokens, metrics.completion_tokens, metrics.cached_tokens) == (52, 3, 40)
    assert (run.run_notes.ending, run.run_notes.success) == ("task_done", True)
    assert run.run_notes.terminal_tools == ["task_done"]


def test_cache_tokens_count_as_input_with_other_providers() -> None:
    [run] = read(dumps(DOCUMENT).replace(b'"anthropic"', b'"openai"'), FORMAT)
    assert run.steps[2].metrics is not None
    assert run.steps[2].metrics.prompt_tokens == 10


def test_request_failed_after_the_terminal_tool_is_the_ending() -> None:
    failed = {"step_number": 3, "state": "completed", "llm_response": None, "error": "400: no result"}
    document = {**DOCUMENT, "agent_steps": [*DOCUMENT["agent_steps"], failed], "success": False}
    [run] = read(dumps(document), FORMAT)
    assert (run.run_notes.ending, run.run_notes.success) == ("error", False)
    last = run.steps[-1]
    assert last.source == "system"
    assert last.extra is not None
    assert last.extra.turnwright is not None
    assert last.extra.turnwright.error


def test_run_out_of_steps_ends_with_max_steps() -> None:
    document = {**DOCUMENT, "final_result": "Task execution exceeded maximum steps without completion."}
    assert read(dumps(document), FORMAT)[0].run_notes.ending == "max_steps"


@pytest.mark.parametrize("missing", ["llm_interactions", "agent_steps"])
def test_either_of_the_two_lists_is_enough(missing: str) -> None:
    document = {key: value for key, value in DOCUMENT.items() if key != missing}
    runs = read(dumps(document), FORMAT)
    assert recognized(dumps(document)) == FORMAT
    assert calls(runs) == calls(read(dumps(DOCUMENT), FORMAT))
    assert results(runs) == 2


@given(share=st.floats(0, 1))
def test_no_cut_invents_a_call(share: float) -> None:
    data = dumps(DOCUMENT)
    assert_a_cut_is_safe(data, int(share * len(data)), FORMAT)


@given(document=damaged(DOCUMENT))
def test_values_of_wrong_types_are_left_out(document: Any) -> None:  # noqa: ANN401 (any JSON)
    assert_damage_is_safe(dumps(document), dumps(DOCUMENT), FORMAT)
