"""Logs of Inspect are read, whole ones and the samples of archives."""

import io
import json
import zipfile
from pathlib import Path
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

from turnwright_audit.trajectories.archives import Problem
from turnwright_audit.trajectories.atif import Trajectory
from turnwright_audit.trajectories.files import runs
from turnwright_audit.trajectories.source import UnreadableRecordingError

FORMAT = "inspect"
LONG = "0123456789abcdef0123456789abcdef"
CALLS: list[dict[str, Any]] = [
    {"id": "a", "function": "look", "arguments": {"place": "ä"}, "type": "function"},
    {"id": "b", "function": "look", "arguments": {"place": "b"}, "type": "function"},
]
USAGE = {"input_tokens": 10, "output_tokens": 4, "total_tokens": 44, "input_tokens_cache_read": 30}
REPLY: dict[str, Any] = {
    "id": "m1",
    "role": "assistant",
    "source": "generate",
    "model": "small",
    "content": [{"type": "reasoning", "reasoning": "Where?"}, {"type": "text", "text": "I look."}],
    "tool_calls": CALLS,
}
SAMPLE: dict[str, Any] = {
    "id": "s 1",
    "epoch": 1,
    "input": "Is it open?",
    "target": "yes",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": "An example.", "source": "input"},
        {"role": "user", "content": "Is it open?", "source": "input"},
        REPLY,
        {"role": "tool", "tool_call_id": "a", "function": "look", "content": f"attachment://{LONG}"},
        {"role": "tool", "tool_call_id": "b", "content": "", "error": {"type": "timeout", "message": "too slow"}},
        {"id": "m2", "role": "assistant", "content": "Yes.", "model": "small"},
    ],
    "output": {"model": "small", "choices": [{"message": {"role": "assistant"}, "stop_reason": "stop"}]},
    "scores": {"match": {"value": "C", "answer": "yes"}},
    "events": [
        {"event": "tool", "function": "look"},
        {
            "event": "model",
            "timestamp": "2026-01-02T03:04:05+00:00",
            "output": {"choices": [{"message": REPLY, "stop_reason": "tool_calls"}], "usage": USAGE},
        },
    ],
    "model_usage": {"small": USAGE},
    "attachments": {LONG: "It is open."},
}
LIMITED: dict[str, Any] = {
    **SAMPLE,
    "epoch": 2,
    "scores": {"match": {"value": 0.5}},
    "limit": {"type": "message", "limit": 9},
}
LOG: dict[str, Any] = {
    "version": 2,
    "status": "success",
    "eval": {"task": "open", "model": "lab/small", "run_id": "r"},
    "samples": [SAMPLE, LIMITED],
}


def dumps(value: Any) -> bytes:  # noqa: ANN401 (any JSON)
    return json.dumps(value, ensure_ascii=False).encode()


def test_each_sample_is_a_run_with_label_and_ending() -> None:
    assert recognized(dumps(LOG)) == FORMAT
    first, second = read(dumps(LOG), FORMAT)
    assert [step.source for step in first.steps] == ["system", "system", "user", "agent", "agent"]
    assert calls([first]).total() == results([first]) == 2
    assert results_of([first]) == ["It is open.", "too slow"]
    assert (first.run_notes.run, first.run_notes.success, first.run_notes.ending) == ("s 1, 1", True, "stop")
    assert (second.run_notes.run, second.run_notes.success, second.run_notes.ending) == (
        "s 1, 2",
        False,
        "message limit",
    )
    assert first.agent.model_name == "lab/small"


def test_tokens_come_from_the_events_and_the_sample() -> None:
    run, _ = read(dumps(LOG), FORMAT)
    metrics = run.steps[3].metrics
    assert metrics is not None
    assert (metrics.prompt_tokens, metrics.completion_tokens, metrics.cached_tokens) == (40, 4, 30)
    assert (run.steps[3].timestamp, run.steps[3].reasoning_content) == ("2026-01-02T03:04:05+00:00", "Where?")
    assert run.steps[4].metrics is None
    assert run.final_metrics is not None
    assert run.final_metrics.total_prompt_tokens == 40


def test_samples_of_an_archive_are_found(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("samples/1_epoch_1.json", dumps(SAMPLE))
        archive.writestr("header.json", dumps({key: value for key, value in LOG.items() if key != "samples"}))
    (tmp_path / "log.eval").write_bytes(packed.getvalue())
    [run] = runs([tmp_path])
    assert run.format is not None
    assert run.format.name == FORMAT
    assert isinstance(run.found, Trajectory)


@pytest.mark.parametrize(
    ("value", "success"), [("C", True), ("I", False), (True, True), (1, True), (0, False), ("text", None), ([1], None)]
)
def test_first_score_is_the_label(value: Any, success: bool | None) -> None:  # noqa: ANN401 (any JSON)
    [run] = read(dumps({**SAMPLE, "scores": {"match": {"value": value}, "other": {"value": "I"}}}), FORMAT)
    assert run.run_notes.success == success


def test_final_submission_call_is_the_ending() -> None:
    call = {"id": "z", "function": "submit", "arguments": {"answer": "yes"}}
    messages = [*SAMPLE["messages"], {"role": "assistant", "content": "", "tool_calls": [call]}]
    assert read(dumps({**SAMPLE, "messages": messages}), FORMAT)[0].run_notes.ending == "submit"
    assert read(dumps({**LIMITED, "messages": messages}), FORMAT)[0].run_notes.ending == "message limit"


@pytest.mark.skipif(hasattr(zipfile, "ZIP_ZSTANDARD"), reason="this Python unpacks Zstandard")
def test_archive_unsupported_by_python_is_a_single_problem(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("samples/1_epoch_1.json", b"{}")
        archive.writestr("header.json", b"{}")
        for info in archive.infolist():
            info.compress_type = 93
    (tmp_path / "log.eval").write_bytes(packed.getvalue())
    [run] = runs([tmp_path])
    assert isinstance(run.found, Problem)
    assert "Zstandard" in run.found.message


def test_failed_sample_ends_in_an_error() -> None:
    [run] = read(dumps({**SAMPLE, "error": {"message": "?"}, "scores": None}), FORMAT)
    assert (run.run_notes.ending, run.run_notes.success) == ("error", None)


def test_log_without_samples_is_unreadable() -> None:
    with pytest.raises(UnreadableRecordingError):
        read(dumps({**LOG, "samples": []}), FORMAT)


@given(document=st.sampled_from([LOG, SAMPLE]), share=st.floats(0, 1))
def test_no_cut_invents_a_call(document: Any, share: float) -> None:  # noqa: ANN401 (any JSON)
    data = dumps(document)
    assert_a_cut_is_safe(data, int(share * len(data)), FORMAT)


@given(document=st.one_of(damaged(LOG), damaged(SAMPLE)))
def test_values_of_wrong_types_are_left_out(document: Any) -> None:  # noqa: ANN401 (any JSON)
    assert_damage_is_safe(dumps(document), dumps(LOG), FORMAT)
