"""Sessions of Codex are read in their three forms, with the tokens of each reply and what the user really wrote."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.audit.trajectories.reading import (
    assert_a_cut_is_safe,
    assert_damage_is_safe,
    assert_garbage_is_safe,
    calls,
    damaged,
    read,
    recognized,
    results,
    results_of,
)

from turnwright_audit.measure import measure
from turnwright_audit.trajectories.atif import ResultNotes, Trajectory
from turnwright_audit.trajectories.files import runs
from turnwright_audit.trajectories.source import EmptyRecordingError

FORMAT = "codex"


def text(role: str, words: str) -> dict[str, Any]:
    return {
        "type": "message",
        "role": role,
        "content": [{"type": "output_text" if role == "assistant" else "input_text", "text": words}],
    }


def call(own: str, command: str) -> dict[str, Any]:
    return {"type": "function_call", "name": "shell", "arguments": json.dumps({"command": command}), "call_id": own}


def output(own: str, words: Any) -> dict[str, Any]:  # noqa: ANN401 (any JSON)
    return {"type": "function_call_output", "call_id": own, "output": words}


def record(kind: str, **payload: Any) -> dict[str, Any]:  # noqa: ANN401 (any JSON)
    return {"timestamp": "2026-02-23T11:41:32.239Z", "type": kind, "payload": payload}


def item(value: dict[str, Any]) -> dict[str, Any]:
    return record("response_item", **value)


def tokens(total: int, last: int) -> dict[str, Any]:
    details = {"cached_input_tokens": 10, "reasoning_output_tokens": 1}
    info = {
        "total_token_usage": {"input_tokens": total, "output_tokens": total // 10, **details},
        "last_token_usage": {"input_tokens": last, "output_tokens": last // 10, **details},
    }
    return record("event_msg", type="token_count", info=info, rate_limits={})


def user(words: str) -> list[dict[str, Any]]:
    return [item(text("user", words)), record("event_msg", type="user_message", message=words)]


SESSION: list[dict[str, Any]] = [
    record("session_meta", id="s-1", cli_version="0.104.0", base_instructions={"text": "?"}),
    item(text("developer", "Be brief.")),
    item(text("user", "<environment_context>\n<cwd>/</cwd></environment_context>")),
    *user("Zähl die Dateien 🗂"),
    record("turn_context", model="gpt-5", cwd="/"),
    record("event_msg", type="token_count", info=None, rate_limits={}),
    record("event_msg", type="agent_reasoning", text="List them."),
    item({"type": "reasoning", "summary": [{"type": "summary_text", "text": "List them."}], "encrypted_content": "x"}),
    item(text("assistant", "I look.")),
    item(call("c1", "ls")),
    item(call("c2", "wc")),
    tokens(100, 100),
    item(output("c1", "Exit code: 0\nWall time: 0 seconds\nOutput:\na b")),
    item(output("c2", json.dumps({"output": "2", "metadata": {"exit_code": 1, "duration_seconds": 0.1}}))),
    tokens(100, 100),
    item(
        {
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": "c3",
            "name": "apply_patch",
            "input": "*** Begin",
        }
    ),
    tokens(250, 150),
    item({"type": "custom_tool_call_output", "call_id": "c3", "output": "patch rejected by user"}),
    record("compacted", message="We counted."),
    tokens(300, 50),
    item({"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "q"}}),
    item(text("assistant", "Two.")),
    record("event_msg", type="agent_message", message="Two."),
    tokens(400, 100),
    record("event_msg", type="task_complete", turn_id="t"),
]


def dumps(value: Any) -> bytes:  # noqa: ANN401 (any JSON)
    return json.dumps(value, ensure_ascii=False).encode()


def lines(values: list[Any]) -> bytes:
    return b"\n".join(map(dumps, values)) + b"\n"


BARE: list[dict[str, Any]] = [
    {"id": "s-1", "timestamp": "2025-08-20T13:20:47.060Z", "instructions": None, "git": {}},
    {"record_type": "state"},
    text("user", "<user_instructions>\n\nBe brief.</user_instructions>"),
    text("user", "Count the files."),
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "List them."}]},
    call("c1", "ls"),
    output("c1", {"content": "a b", "success": True}),
    {"record_type": "state"},
    {"type": "local_shell_call", "call_id": "c2", "status": "completed", "action": {"type": "exec", "command": ["wc"]}},
    output("c2", [{"type": "input_text", "text": "2"}]),
    text("assistant", "Two."),
]
DOCUMENT = {
    "session": {"id": "s-1", "timestamp": "2025-05-01T00:00:00Z", "instructions": ""},
    "items": [{**fields, "id": str(number)} for number, fields in enumerate(BARE[3:])],
}


def notes(run: Trajectory) -> list[ResultNotes]:
    results = (step.observation.results if step.observation else [] for step in run.steps)
    return [result.extra.turnwright for all_ in results for result in all_ if result.extra and result.extra.turnwright]


def test_session_has_turns_replies_calls_results_and_tokens() -> None:
    assert recognized(lines(SESSION)) == FORMAT
    [run] = read(lines(SESSION), FORMAT)
    assert [step.message for step in run.steps if step.source == "user"] == ["Zähl die Dateien 🗂"]
    first, second, third = (step for step in run.steps if step.source == "agent")
    assert (first.message, first.reasoning_content, first.model_name) == ("I look.", "List them.", "gpt-5")
    assert calls([run]) == {
        ("shell", '{"command": "ls"}'): 1,
        ("shell", '{"command": "wc"}'): 1,
        ("apply_patch", '{"input": "*** Begin"}'): 1,
        ("web_search", '{"query": "q", "type": "search"}'): 1,
    }
    assert [note.status for note in notes(run)] == ["ok", "error", "denied", "ok"]
    assert results_of([run])[1:3] == ["2", "patch rejected by user"]
    prompt_sizes = [step.metrics.prompt_tokens for step in (first, second, third) if step.metrics]
    assert prompt_sizes == [100, 150, 150], "the last one has those of the request that made the conversation shorter"
    assert third.llm_call_count == 2
    assert (run.session_id, run.agent.version, run.run_notes.ending) == ("s-1", "0.104.0", "task_complete")


@pytest.mark.parametrize("data", [lines(BARE), dumps(DOCUMENT)], ids=["bare items", "document"])
def test_older_sessions_have_a_step_for_each_reply(data: bytes) -> None:
    assert recognized(data) == FORMAT
    [run] = read(data, FORMAT)
    assert [step.source for step in run.steps] == ["user", "agent", "agent", "agent"]
    assert calls([run]).total() == results([run]) == 2
    assert results_of([run]) == ["a b", "2"]
    assert run.session_id == "s-1"


def test_tokens_recorded_before_reply_items_belong_to_the_reply() -> None:
    """Older versions wrote the items of a reply, with results between them, when it was complete."""
    data = lines(
        [
            *SESSION[:5],
            tokens(100, 100),
            *(item(entry) for entry in (call("c1", "ls"), output("c1", "a"), call("c2", "wc"), output("c2", "2"))),
            tokens(150, 50),
            tokens(350, 200),
            item(text("assistant", "Two.")),
        ]
    )
    [run] = read(data, FORMAT)
    first, second = (step for step in run.steps if step.source == "agent")
    assert [len(step.tool_calls or ()) for step in (first, second)] == [2, 0]
    assert [step.metrics and step.metrics.prompt_tokens for step in (first, second)] == [100, 250]
    assert (first.llm_call_count, second.llm_call_count) == (1, 2)


def test_reply_tokens_are_the_difference_of_running_sums() -> None:
    values = json.loads(json.dumps(SESSION))
    for value in values:
        (value["payload"].get("info") or {}).pop("last_token_usage", None)
    [run], [known_run] = read(lines(values), FORMAT), read(lines(SESSION), FORMAT)
    sizes = [
        [step.metrics and step.metrics.prompt_tokens for step in trajectory.steps] for trajectory in (run, known_run)
    ]
    assert sizes[0] == sizes[1]


def test_interrupted_session_ends_as_aborted() -> None:
    data = lines([*SESSION[:11], record("event_msg", type="turn_aborted", reason="interrupted")])
    [run] = read(data, FORMAT)
    assert run.run_notes.ending == "turn_aborted"
    assert not run.run_notes.cut


@pytest.mark.parametrize(
    ("output_text", "status"),
    [
        ("apply_patch verification failed: Failed to find expected lines in a.py", "error"),
        ("unsupported call: lookup", "error"),
        ("Exit code: 0\nOutput:\nfailed to parse a.toml", "ok"),
        ("a plan", "ok"),
    ],
)
def test_tool_unable_to_run_has_failed(output_text: str, status: str) -> None:
    [run] = read(lines([*SESSION[:1], item(call("c1", "x")), item(output("c1", output_text))]), FORMAT)
    assert [note.status for note in notes(run)] == [status]


def test_failed_request_is_a_system_error() -> None:
    [run] = read(lines([*SESSION[:5], record("event_msg", type="stream_error", message="again")]), FORMAT)
    last = run.steps[-1]
    assert last.extra is not None
    assert last.extra.turnwright is not None
    assert (last.source, last.extra.turnwright.error) == ("system", True)


def test_result_in_a_corrupt_line_is_unreadable_and_not_lost() -> None:
    data = lines(SESSION)
    [run] = read(data.replace(b'"call_id": "c1", "output": "', b'"call_id": "c1", "output": ""'), FORMAT)
    assert run.run_notes.unreadable_lines == 1
    assert [note.unreadable for note in notes(run)].count(True) == 1


def test_session_without_messages_is_empty() -> None:
    with pytest.raises(EmptyRecordingError):
        read(lines(SESSION[:1]), FORMAT)


RECORDINGS = [lines(SESSION), lines(BARE), dumps(DOCUMENT)]


@given(data=st.sampled_from(RECORDINGS), share=st.floats(0, 1))
def test_no_cut_invents_a_call(data: bytes, share: float) -> None:
    assert_a_cut_is_safe(data, int(share * len(data)), FORMAT)


@given(values=st.one_of(damaged(SESSION), damaged(BARE)))
def test_values_of_wrong_types_are_left_out(values: Any) -> None:  # noqa: ANN401 (any JSON)
    data = lines(values) if isinstance(values, list) else dumps(values)
    assert_damage_is_safe(data, lines([*SESSION, *BARE]), FORMAT)


@given(document=damaged(DOCUMENT))
def test_values_of_wrong_types_in_a_document_are_left_out(document: Any) -> None:  # noqa: ANN401 (any JSON)
    assert_damage_is_safe(dumps(document), dumps(DOCUMENT), FORMAT)


@pytest.mark.parametrize("at", range(2, len(SESSION)))
def test_line_of_garbage_is_left_out(at: int) -> None:
    assert_garbage_is_safe(list(map(dumps, SESSION)), at, FORMAT)


@pytest.mark.parametrize(("tool", "waiting"), [("request_user_input", 1), ("shell", 0)])
def test_question_at_the_end_waits_for_a_person(tool: str, waiting: int) -> None:
    [run] = read(lines([*user("Count."), item({**call("c1", "?"), "name": tool})]), FORMAT)
    measures = measure(run, "f")
    assert (measures.waiting, measures.unpaired) == (waiting, 1 - waiting)


@pytest.mark.parametrize("day", ["2026/02/23", "2026/02/24", ""])
@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize("packing", ["", "zip", "tar", "gztar"])
def test_records_of_a_forked_session_count_in_its_parent(day: str, more: bool, packing: str, tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    parent, child = root / "2026/02/23" if day else root, root / day
    child.mkdir(parents=True, exist_ok=True)
    parent.mkdir(parents=True, exist_ok=True)
    (parent / "rollout-a-s-1.jsonl").write_bytes(lines(SESSION))
    copies = [{**fields, "timestamp": "2026-02-24T00:00:00Z"} for fields in SESSION]
    own_records = [*user("And now?"), item(text("assistant", "Nothing.")), tokens(450, 50)] if more else []
    forked = [record("session_meta", id="s-2", forked_from_id="s-1"), *copies, *own_records]
    (child / "rollout-b-s-2.jsonl").write_bytes(lines(forked))
    path = shutil.make_archive(str(tmp_path / "packed"), packing, root) if packing else root
    first, second = [measure(run.found, run.file) for run in runs([path]) if isinstance(run.found, Trajectory)]
    assert (first.run, second.run) == ("s-1", "s-2")
    assert measure(read(lines(SESSION), FORMAT)[0], "f").tokens == first.tokens > 0
    assert (second.turns, second.steps, second.calls, second.tokens) == ((1, 1, 0, 55) if more else (0, 0, 0, 0))


def test_forked_session_without_its_parent_counts_all(tmp_path: Path) -> None:
    forked = [record("session_meta", id="s-2", forked_from_id="s-1"), *SESSION]
    (tmp_path / "rollout-b-s-2.jsonl").write_bytes(lines(forked))
    [run] = runs([tmp_path])
    assert isinstance(run.found, Trajectory)
    assert measure(run.found, "f").steps == measure(read(lines(SESSION), FORMAT)[0], "f").steps
