"""Sessions of Claude Code are read: replies in several records, sub-agents, denials, and lines that are corrupt."""

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.audit.trajectories.reading import assert_a_cut_is_safe, calls, read, recognized, results

from turnwright_audit.invariants import check_run
from turnwright_audit.measure import measure
from turnwright_audit.trajectories.atif import ResultNotes, Trajectory, TrajectoryStep
from turnwright_audit.trajectories.files import runs
from turnwright_audit.trajectories.source import EmptyRecordingError, UnreadableRecordingError

NAME = "claude-code"


class Session:
    """The records of a session, each with the one before it as its parent."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def add(self, type: str, *, agent: str | None = None, sidechain: bool = False, **fields: Any) -> dict[str, Any]:  # noqa: A002, ANN401
        record = {
            "parentUuid": self.records[-1].get("uuid") if self.records else None,
            "isSidechain": sidechain or agent is not None,
            "sessionId": "s-1",
            "version": "2.1.9",
            "type": type,
            "uuid": f"u-{len(self.records)}",
            "timestamp": "2026-01-16T01:53:46.042Z",
            **({"agentId": agent} if agent else {}),
            **fields,
        }
        self.records.append(record)
        return record

    def user(self, content: Any, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
        return self.add("user", message={"role": "user", "content": content}, **fields)

    def result(self, call: str, text: str = "done", *, error: bool = False, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
        block = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": error}
        return self.user([block], **fields)

    def reply(self, id: str, *blocks: Any, output: int = 1, model: str = "claude", **fields: Any) -> None:  # noqa: A002, ANN401
        """Add a reply, with one record for each block; the usage of the last one is the right one."""
        for number, block in enumerate(blocks, 1):
            usage = {
                "input_tokens": 2,
                "cache_read_input_tokens": 30,
                "cache_creation_input_tokens": 400,
                "output_tokens": output if number == len(blocks) else 1,
            }
            message = {"id": id, "role": "assistant", "model": model, "content": [block], "usage": usage}
            self.add("assistant", message=message, **fields)

    @property
    def data(self) -> bytes:
        return b"".join(json.dumps(record).encode() + b"\n" for record in self.records)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(id: str, name: str = "Bash", **arguments: Any) -> dict[str, Any]:  # noqa: A002, ANN401
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def sample() -> Session:
    session = Session()
    session.records.append({"type": "summary", "summary": "About invoices", "leafUuid": "elsewhere"})
    session.records.append({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}})
    session.user("<local-command-caveat>Caveat: ...</local-command-caveat>", isMeta=True)
    session.user("<command-name>/clear</command-name>")
    session.user("<local-command-stdout></local-command-stdout>")
    session.user("Pay the invoices — alle fünf.")
    session.reply(
        "msg_1", {"type": "thinking", "thinking": "hm"}, text("Looking."), call("toolu_1", command="ls"), output=7
    )
    session.add("progress", data={"type": "bash_progress"})
    session.result("toolu_1")
    session.reply("msg_2", call("toolu_2", "Write", file="a"), call("toolu_3", "Write", file="b"), output=8)
    session.result("toolu_3", "Claude requested permissions to write to b, but you haven't granted it.", error=True)
    session.result("toolu_2", "Exit code 1", error=True)
    session.add("system", subtype="api_error", error={}, retryAttempt=1)
    session.reply("msg_3", text("Done."), output=9)
    return session


SAMPLE = sample().data


def agent_steps(run: Trajectory) -> list[TrajectoryStep]:
    return [step for step in run.steps if step.source == "agent"]


def notes(run: Trajectory) -> list[ResultNotes]:
    results = (step.observation.results if step.observation else [] for step in run.steps)
    return [result.extra.turnwright for all_ in results for result in all_ if result.extra and result.extra.turnwright]


def turns(run: Trajectory) -> list[object]:
    return [step.message for step in run.steps if step.source == "user"]


def test_session_has_turns_steps_calls_results_and_tokens() -> None:
    assert recognized(SAMPLE) == NAME
    [run] = read(SAMPLE, NAME)
    assert turns(run) == ["Pay the invoices — alle fünf."]
    first, second, third = agent_steps(run)
    assert (first.message, first.reasoning_content) == ("Looking.", "hm")
    assert [step.metrics and step.metrics.completion_tokens for step in (first, second, third)] == [7, 8, 9]
    assert first.metrics is not None
    assert (first.metrics.prompt_tokens, first.metrics.cached_tokens) == (432, 30)
    assert sum(calls([run]).values()) == results([run]) == 3
    assert [note.status for note in notes(run)] == ["ok", "denied", "error"]
    [failed] = [step for step in run.steps if step.extra and step.extra.turnwright and step.extra.turnwright.error]
    assert failed.source == "system"


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("This command requires approval", "denied"),
        ("Permission to use Bash has been auto-denied in dontAsk mode.", "denied"),
        ("The user doesn't want to proceed with this tool use. The tool use was rejected", "denied"),
        ("The agent proposed a plan that was rejected by the user. The user chose to stay in plan mode.", "denied"),
        ("[Request interrupted by user for tool use]", "canceled"),
        ("<tool_use_error>Sibling tool call errored</tool_use_error>", "canceled"),
        ("<tool_use_error>File does not exist.</tool_use_error>", "error"),
    ],
)
def test_error_result_tells_whether_the_call_was_denied(words: str, status: str) -> None:
    session = sample()
    session.reply("msg_4", call("toolu_4"))
    session.result("toolu_4", words, error=True)
    [run] = read(session.data, NAME)
    assert notes(run)[-1].status == status


@pytest.mark.parametrize(("tool", "waiting"), [("AskUserQuestion", 1), ("ExitPlanMode", 1), ("Bash", 0)])
def test_question_at_the_end_waits_for_a_person(tool: str, waiting: int) -> None:
    session = Session()
    session.user("Pay the invoices.")
    session.reply("msg_1", call("toolu_1", name=tool))
    measures = measure(read(session.data, NAME)[0], "f")
    assert (measures.waiting, measures.unpaired) == (waiting, 1 - waiting)
    session.user("No. Leave them.")
    measures = measure(read(session.data, NAME)[0], "f")
    assert (measures.waiting, measures.unpaired) == (0, 1)


def test_session_without_marks_of_sidechains_is_recognized() -> None:
    session = Session()
    session.user("Pay the invoices.")
    session.reply("msg_1", call("toolu_1", command="ls"))
    session.result("toolu_1")
    for record in session.records:
        del record["isSidechain"]
    assert recognized(session.data) == NAME
    [run] = read(session.data, NAME)
    assert (turns(run), results([run])) == (["Pay the invoices."], 1)


def test_repeated_record_counts_once() -> None:
    [once], [twice] = read(SAMPLE, NAME), read(SAMPLE + SAMPLE, NAME)
    assert calls([once]) == calls([twice])
    assert len(once.steps) == len(twice.steps)


@pytest.mark.parametrize(
    "words",
    [
        *("<task-notification>\n<task-id>b1</task-id>", "[Request interrupted by user]", "<bash-input>ls</bash-input>"),
        "<system-reminder>The file changed.</system-reminder>\n<system-reminder>No todos.</system-reminder>\n",
        *("This session is being continued from a previous conversation that ran out of context.", " \n"),
        "Caveat: The messages below were generated by the user while running local commands. DO NOT respond to these.",
    ],
)
def test_program_messages_as_the_user_open_no_turn(words: str) -> None:
    session = sample()
    session.user(words)
    session.user([text(words)], isMeta=True)
    session.user("The build is done.", origin={"kind": "task-notification"})
    [run] = read(session.data, NAME)
    assert len(turns(run)) == 1


def test_queued_message_joins_the_running_turn() -> None:
    session = sample()
    queued = {"type": "queued_command", "prompt": "Check the dates, too.", "commandMode": "prompt"}
    notice = {**queued, "prompt": "<task-notification>", "commandMode": "task-notification"}
    session.add("attachment", attachment=queued)
    session.add("attachment", attachment=notice)
    session.reply("msg_5", text("Both are fine."))
    [run] = read(session.data, NAME)
    assert measure(run, "f").turns == 1
    assert [step.message for step in run.steps[-2:]] == ["Check the dates, too.", "Both are fine."]
    assert check_run(run, "f", "r").turns == 1


def test_command_answered_by_a_model_opens_a_turn() -> None:
    session = sample()
    session.user("<command-message>review</command-message>\n<command-name>/review</command-name>")
    session.user([text("Review the code.")], isMeta=True)
    session.reply("msg_4", text("Fine."))
    [run] = read(session.data, NAME)
    assert len(turns(run)) == 2


def test_compaction_is_an_event_of_the_system() -> None:
    session = sample()
    session.add("system", subtype="compact_boundary", content="Conversation compacted")
    session.user("This session is being continued", isCompactSummary=True)
    [run] = read(session.data, NAME)
    assert len(turns(run)) == 1
    assert [step.message for step in run.steps[-2:]] == ["Conversation compacted", "This session is being continued"]


def test_api_error_in_place_of_a_reply_is_no_step() -> None:
    session = sample()
    session.user("Go on")
    session.reply("x", text("Invalid API key"), model="<synthetic>", isApiErrorMessage=True)
    [run] = read(session.data, NAME)
    assert len(agent_steps(run)) == 3
    assert run.run_notes.ending == "api_error"


@pytest.mark.parametrize("is_named", [True, False], ids=["agent id", "chain of parents"])
def test_sidechain_is_a_sub_agent_run(is_named: bool) -> None:
    session = sample()
    session.reply("msg_4", call("toolu_4", "Task", prompt="Find them"))
    inside: dict[str, Any] = {"agent": "a1"} if is_named else {"sidechain": True}
    session.user("Find them", **inside)
    if not is_named:
        session.records[-1]["parentUuid"] = None
    session.reply("msg_5", call("toolu_5", "Grep", pattern="x"), output=5, **inside)
    session.result("toolu_5", **inside)
    session.result("toolu_4", toolUseResult={"agentId": "a1"} if is_named else "found")
    [run] = read(session.data, NAME)
    assert len(turns(run)) == 1
    [agent] = run.subagent_trajectories or []
    assert calls([agent]) == Counter({("Grep", '{"pattern": "x"}'): 1})
    [result] = [result for step in run.steps[-1:] if step.observation for result in step.observation.results]
    assert result.subagent_trajectory_ref is not None
    assert result.subagent_trajectory_ref[0].trajectory_id == agent.trajectory_id


def test_sub_agent_file_is_a_recording_referred_to_by_the_session(tmp_path: Path) -> None:
    session = sample()
    session.reply("msg_4", call("toolu_4", "Task", prompt="Find them"))
    session.add("progress", parentToolUseID="toolu_4", data={"type": "agent_progress", "agentId": "a1", "message": {}})
    session.result("toolu_4", toolUseResult={"agentId": "a1"})
    agent = Session()
    agent.user("Find them", agent="a1")
    agent.reply("msg_5", call("toolu_5", "Grep"), agent="a1")
    folder = tmp_path / "s-1" / "subagents"
    folder.mkdir(parents=True)
    (tmp_path / "s-1.jsonl").write_bytes(session.data)
    (folder / "agent-a1.jsonl").write_bytes(agent.data)
    [inner, outer] = [run.found for run in runs([tmp_path])]
    assert isinstance(outer, Trajectory)
    assert isinstance(inner, Trajectory)
    assert outer.subagent_trajectories is None
    assert inner.trajectory_id == "a1"
    assert outer.steps[-1].observation is not None
    [result] = outer.steps[-1].observation.results
    assert result.subagent_trajectory_ref is not None
    assert result.subagent_trajectory_ref[0].trajectory_path == "s-1/subagents/agent-a1.jsonl"


def test_sub_agent_in_session_and_file_counts_once(tmp_path: Path) -> None:
    session = sample()
    session.user("Look.", isSidechain=True, agentId="a1")
    session.reply("msg_7", text("Nothing."), isSidechain=True, agentId="a1")
    (tmp_path / "alone").mkdir()
    folder = tmp_path / "s-1" / "subagents"
    folder.mkdir(parents=True)
    own = session.data.splitlines(keepends=True)[-2:]
    (folder / "agent-a1.jsonl").write_bytes(b"".join(own))
    for place in (tmp_path, tmp_path / "alone"):
        (place / "s-1.jsonl").write_bytes(session.data)
    alone, inner, outer = (
        measure(run.found, "f").steps for run in runs([tmp_path]) if isinstance(run.found, Trajectory)
    )
    assert (inner, outer) == (1, alone - 1)


def test_unreadable_call_is_counted_beside_the_reason_to_stop() -> None:
    session = Session()
    session.user("Hi")
    session.reply("msg_1", {"type": "tool_use", "id": "toolu_1", "input": {}}, text("Done."))
    session.records[-1]["message"]["stop_reason"] = "end_turn"
    [run] = read(session.data, NAME)
    run_measure = measure(run, "f")
    assert (run_measure.lost_calls, run_measure.ending) == (1, "end_turn")


@pytest.mark.parametrize("is_copied", [True, False])
@pytest.mark.parametrize("packing", ["", "zip", "tar", "gztar"])
def test_steps_that_the_continuation_repeats_count_once(is_copied: bool, packing: str, tmp_path: Path) -> None:
    session = sample()
    root = tmp_path / "sessions"
    (root / "a").mkdir(parents=True)
    (root / "a" / "s-1.jsonl").write_bytes(session.data)
    own_records = list(session.records)
    session.records.append({"type": "continued-in", "sessionId": "s-1", "continuedInSessionId": "s-2"})
    (root / "s-1.jsonl").write_bytes(session.data)
    later = Session()
    later.records = [{**record, "sessionId": "s-2"} for record in own_records] if is_copied else []
    later.user("And now?", uuid="later-1", sessionId="s-2")
    later.reply("msg_9", text("Nothing."), uuid="later-2", sessionId="s-2")
    (root / "s-2.jsonl").write_bytes(later.data)
    path = shutil.make_archive(str(tmp_path / "packed"), packing, root) if packing else root
    measures = [measure(run.found, run.file) for run in runs([path]) if isinstance(run.found, Trajectory)]
    alone, first, second = sorted(measures, key=lambda run: ("a/s-1" not in run.file, run.file))
    assert first.steps + second.steps == alone.steps + 1
    assert first.calls + second.calls == alone.calls > 0
    assert first.tokens + second.tokens == alone.tokens + 433
    assert (first.ending, first.steps) == ("continued", 0 if is_copied else alone.steps)


@pytest.mark.parametrize("forked", [True, False], ids=["forked", "resumed"])
def test_records_repeated_from_another_session_are_copied_context(forked: bool, tmp_path: Path) -> None:
    (tmp_path / "s-1.jsonl").write_bytes(SAMPLE)
    session = sample()
    if forked:
        for record in session.records:
            record.update(sessionId="s-2", forkedFrom={"sessionId": "s-1", "messageUuid": record.get("uuid")})
    session.user("And the receipts?", sessionId="s-2")
    session.reply("msg_9", text("Done, too."), sessionId="s-2")
    (tmp_path / "s-2.jsonl").write_bytes(session.data)
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "s-2.jsonl").write_bytes(session.data)
    alone, _, resumed = (run.found for run in runs([tmp_path]))
    assert isinstance(alone, Trajectory)
    assert isinstance(resumed, Trajectory)
    assert [step.message for step in resumed.steps if not step.is_copied_context] == ["And the receipts?", "Done, too."]
    assert not any(step.is_copied_context for step in alone.steps)
    assert {alone.session_id, resumed.session_id} == {"s-2"}


def test_call_or_result_in_a_corrupt_line_is_unreadable_not_lost() -> None:
    lines = SAMPLE.split(b"\n")
    called = next(number for number, line in enumerate(lines) if b'"toolu_1"' in line)
    answered = next(number for number, line in enumerate(lines) if b'"tool_use_id": "toolu_2"' in line)
    lines[called] = lines[called][:-1]
    lines[answered] = b'{"broken' + lines[answered]
    [run] = read(b"\n".join(lines), NAME)
    assert run.run_notes.unreadable_lines == 2
    assert {note.orphan_id for note in notes(run) if note.unreadable} == {"toolu_1", None}
    assert sum(note.unreadable for note in notes(run)) == 2


def test_printed_stream_is_read_as_a_session() -> None:
    lines = [
        {"type": "system", "subtype": "init", "session_id": "s", "tools": []},
        {
            "type": "assistant",
            "session_id": "s",
            "parent_tool_use_id": None,
            "message": {"id": "m1", "role": "assistant", "content": [call("toolu_1", "Task", prompt="x")]},
        },
        {
            "type": "assistant",
            "session_id": "s",
            "parent_tool_use_id": "toolu_1",
            "message": {"id": "m2", "role": "assistant", "content": [call("toolu_2")]},
        },
        {"type": "result", "subtype": "error_max_turns", "session_id": "s", "total_cost_usd": 0.5},
    ]
    data = b"\n".join(json.dumps(line).encode() for line in lines)
    assert recognized(data) == NAME
    [run] = read(data, NAME)
    assert run.run_notes.ending == "error_max_turns"
    assert run.final_metrics is not None
    assert run.final_metrics.total_cost_usd == 0.5
    assert len(turns(run)) == 1
    assert [len(agent_steps(trajectory)) for trajectory in run.every()] == [1, 1]


def streamed(*lines: dict[str, Any]) -> Trajectory:
    first = {"type": "system", "subtype": "init", "tools": []}
    data = b"\n".join(
        json.dumps({"session_id": "s", "parent_tool_use_id": None} | line).encode() for line in (first, *lines)
    )
    [run] = read(data, NAME)
    return run


ANSWERED = {"type": "result", "subtype": "success"}


def answer(id: str) -> dict[str, Any]:  # noqa: A002
    return {"type": "assistant", "message": {"id": id, "role": "assistant", "content": [text("Yes.")]}}


@pytest.mark.parametrize(
    ("between", "opened"),
    [
        ([], 2),
        ([{"type": "user", "isReplay": True, "message": {"role": "user", "content": "And now?"}}], 2),
        ([{"type": "system", "subtype": "task_notification"}], 1),
    ],
)
def test_reply_after_the_stream_result_answers_another_message(between: Any, opened: int) -> None:  # noqa: ANN401
    run = streamed(answer("m1"), ANSWERED, *between, answer("m2"), ANSWERED)
    assert (len(turns(run)), len(agent_steps(run))) == (opened, 2)
    assert len(turns(streamed(answer("m1"), ANSWERED))) == 1


def test_server_tool_result_is_in_the_reply() -> None:
    session = Session()
    session.user("What is new?")
    searched = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "news"}}
    search = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    session.reply("m1", searched, search, text("Nothing."))
    [run] = read(session.data, NAME)
    assert (calls([run]).total(), results([run]), len(agent_steps(run))) == (1, 1, 1)


def test_interruption_mark_may_stand_beside_a_result() -> None:
    session = Session()
    session.user("Clean up.")
    session.reply("m1", call("toolu_1"))
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Stopped.", "is_error": True}
    session.user([block, text("[Request interrupted by user for tool use]")])
    [run] = read(session.data, NAME)
    assert (run.run_notes.ending, len(turns(run)), results([run])) == ("interrupted", 1, 1)


def test_result_of_an_earlier_turn_is_not_the_ending() -> None:
    assert streamed(answer("m1"), ANSWERED, answer("m2")).run_notes.ending is None


def test_session_without_messages_is_empty() -> None:
    data = b"\n".join(SAMPLE.split(b"\n")[:2])
    assert recognized(data) == NAME
    with pytest.raises(EmptyRecordingError):
        read(data, NAME)


def test_file_ending_inside_a_line_is_cut() -> None:
    [run] = read(SAMPLE[:-20], NAME)
    assert (run.run_notes.cut, run.run_notes.unreadable_lines) == (True, 0)


def test_printed_messages_may_be_a_list() -> None:
    listed = b"[" + b",\n".join(SAMPLE.strip().split(b"\n")) + b"]"
    assert recognized(listed) == NAME
    assert read(listed, NAME) == read(SAMPLE, NAME)
    [run] = read(listed[:-20], NAME)
    assert run.run_notes.cut
    assert not calls([run]) - calls(read(SAMPLE, NAME))


@given(at=st.integers(0, len(SAMPLE)))
def test_no_cut_invents_a_call(at: int) -> None:
    assert_a_cut_is_safe(SAMPLE, at, NAME)


@given(place=st.integers(0, len(SAMPLE.split(b"\n")) - 1), garbage=st.binary(max_size=40) | st.just(b"[" * 5000))
def test_garbage_line_invents_no_call(place: int, garbage: bytes) -> None:
    lines = SAMPLE.split(b"\n")
    lines[place] = garbage
    assert not calls(read(b"\n".join(lines), NAME)) - calls(read(SAMPLE, NAME))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data())
def test_values_of_wrong_types_raise_no_error(data: st.DataObject) -> None:
    records = [json.loads(line) for line in SAMPLE.splitlines()]
    record = data.draw(st.sampled_from(records))
    for _ in range(2):
        inner = record.get("message")
        holder = inner if inner and isinstance(inner, dict) and data.draw(st.booleans()) else record
        holder[data.draw(st.sampled_from(sorted(holder)))] = data.draw(VALUES)
    try:
        read_runs = read(b"\n".join(json.dumps(record).encode() for record in records), NAME)
    except UnreadableRecordingError:
        return
    assert all(run.steps for run in read_runs)


@pytest.mark.skipif("TURNWRIGHT_RUNS" not in os.environ, reason="the recorded runs are not here")
def test_real_sessions_have_the_counts_of_other_readers() -> None:
    total: Counter[str] = Counter()
    for run in runs([Path(os.environ["TURNWRIGHT_RUNS"]) / "claude-extra"]):
        assert isinstance(run.found, Trajectory)
        notes_of_run = notes(run.found)
        total["files"] += 1
        total["calls"] += sum(calls([run.found]).values())
        total["results"] += sum(note.orphan_id is not None or not note.unreadable for note in notes_of_run)
        total["orphans"] += sum(note.orphan_id is not None for note in notes_of_run)
        total["unreadable"] += sum(note.orphan_id is None and note.unreadable for note in notes_of_run)
        total["lines"] += run.found.run_notes.unreadable_lines
        total["tokens"] += sum((step.metrics.completion_tokens or 0) for step in run.found.steps if step.metrics)
    assert total == {
        "files": 18,
        "calls": 538,
        "results": 525,
        "orphans": 19,
        "unreadable": 31,
        "lines": 109,
        "tokens": 81_787,
    }
