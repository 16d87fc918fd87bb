"""Trajectories in the ecosystem's format are read, whole, cut and line by line."""

import json
from typing import Any

import msgspec
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
)

from turnwright_audit.measure import measure
from turnwright_audit.rounds import turns_of
from turnwright_audit.trajectories.builder import RunBuilder


def sample() -> bytes:
    run = RunBuilder("atif", agent="clerk", version="1", session="s-1")
    run.user("Pay the invoice.")
    run.reply("Looking it up.")
    run.call("c1", "look_up", {"invoice": 7})
    run.call("c2", "look_up", '{"invoice": 8}')
    run.result("c2", "unpaid")
    run.result("c1", "paid")
    run.reply("Done.")
    return msgspec.json.encode(run.finish(ending="stop"))


SAMPLE = sample()


def test_trajectory_is_recognized_and_read_unchanged() -> None:
    assert recognized(SAMPLE) == "atif"
    [run] = read(SAMPLE, "atif")
    assert msgspec.json.encode(run) == SAMPLE


def test_each_line_with_a_trajectory_is_a_run() -> None:
    runs = read(SAMPLE + b"\n{corrupt\n" + SAMPLE + b"\n", "atif")
    assert len(runs) == 2
    assert sum(run.run_notes.unreadable_lines for run in runs) == 1


def test_cut_document_keeps_complete_steps() -> None:
    [run] = read(SAMPLE[: SAMPLE.index(b'"Done."')], "atif")
    assert run.run_notes.cut
    assert [step.source for step in run.steps] == ["user", "agent"]
    assert calls([run]) == calls(read(SAMPLE, "atif"))


def test_only_invalid_parts_are_left_out() -> None:
    document = json.loads(SAMPLE)
    document["agent"] = {"name": "clerk", "version": 3, "extra": 1}
    document["subagent_trajectories"] = [{**json.loads(SAMPLE), "steps": [7]}, 7]
    document["steps"][1]["metrics"] = "many"
    document["steps"].append({"source": "robot"})
    [run] = read(json.dumps(document).encode(), "atif")
    assert (run.agent.name, run.agent.version) == ("clerk", "3")
    assert calls([run]) == calls(read(SAMPLE, "atif"))
    assert [len(trajectory.steps) for trajectory in run.every()] == [3, 1]
    assert [trajectory.run_notes.unreadable_lines for trajectory in run.every()] == [1, 1]


def of_harbor(**fields: Any) -> bytes:  # noqa: ANN401 (any JSON)
    """A trajectory as agents of Harbor write it: commands share the screen, and the last call has no result."""
    commands = [{"tool_call_id": f"c{n}", "function_name": "bash", "arguments": {"keys": "ls"}} for n in range(2)]
    done = [{"tool_call_id": "c3", "function_name": "mark_task_complete", "arguments": {}}]
    steps = [
        {"step_id": 1, "source": "user", "message": "List."},
        {"step_id": 2, "source": "agent", "tool_calls": commands, "observation": {"results": [{"content": "a b"}]}},
        {"step_id": 3, "source": "agent", "tool_calls": done},
    ]
    agent = {"name": "terminus-2", "version": "2"}
    return json.dumps({"schema_version": "ATIF-v1.6", "agent": agent, "steps": steps, **fields}).encode()


def test_call_that_breaks_the_format_is_read_or_counted() -> None:
    document = json.loads(of_harbor())
    document["steps"][1]["tool_calls"] = [
        {"function_name": "bash", "arguments": {"keys": "ls"}},
        {"tool_call_id": "c1", "function_name": "bash", "arguments": '{"keys": "pwd"}'},
        {"tool_call_id": "c2", "function_name": "bash", "arguments": "pwd"},
        {"tool_call_id": "c4", "arguments": {}},
        "bash",
    ]
    [run] = read(json.dumps(document).encode(), "atif")
    measures = measure(run, "f")
    assert (measures.calls, measures.results, measures.lost_calls, measures.terminal) == (4, 3, 2, 1)
    [turn] = turns_of(run)
    assert len({call.key for call in turn[0].calls}) == 3
    assert [call.valid for call in turn[0].calls] == [True, True, False]


@pytest.mark.parametrize(
    ("metrics", "totals", "tokens"),
    [
        ([{"prompt_tokens": 10}, {"prompt_tokens": 20}], {"total_prompt_tokens": 100}, 30),
        ([{"prompt_tokens": 10}, None], {"total_prompt_tokens": 100}, 100),
        ([{"prompt_tokens": 10}, {"completion_tokens": 2}], {"total_prompt_tokens": 100}, 102),
        ([{"prompt_tokens": 10}, None], {"total_prompt_tokens": 5}, 10),
        ([{"prompt_tokens": 10}, None], {}, 10),
        ([None, None], {"total_prompt_tokens": 100}, 100),
    ],
)
def test_sum_of_the_run_counts_where_a_step_lacks_its_tokens(
    metrics: list[dict[str, int] | None], totals: dict[str, int], tokens: int
) -> None:
    document = json.loads(of_harbor(final_metrics=totals))
    for step, step_metrics in zip(document["steps"][1:], metrics, strict=True):
        step["metrics"] = step_metrics
    [run] = read(json.dumps(document).encode(), "atif")
    assert measure(run, "f").tokens == tokens


def test_result_without_a_call_id_answers_all_calls_of_the_step() -> None:
    [run] = read(of_harbor(), "atif")
    measures = measure(run, "f")
    assert (measures.calls, measures.results, measures.unpaired, measures.terminal, measures.orphans) == (3, 2, 0, 1, 0)
    [turn] = turns_of(run)
    assert [call.text for call in turn[0].calls] == ["a b", "a b"]


def test_result_at_a_later_step_belongs_to_the_matching_call() -> None:
    document = json.loads(of_harbor())
    results = [{"source_call_id": "c3", "content": "done"}, {"source_call_id": "nowhere", "content": "?"}]
    document["steps"].append({"step_id": 4, "source": "system", "message": "", "observation": {"results": results}})
    [run] = read(json.dumps(document).encode(), "atif")
    measures = measure(run, "f")
    assert (measures.calls, measures.results, measures.unpaired, measures.terminal, measures.orphans) == (3, 3, 0, 0, 1)
    assert measures.findings == {"result at another step": 1, "result without its call": 1}
    [turn] = turns_of(run)
    assert [call.text for call in turn[1].calls] == ["done"]


def test_list_has_a_trajectory_in_each_item() -> None:
    data = b"[" + of_harbor(session_id="one") + b"," + of_harbor(session_id="two") + b"]"
    assert recognized(data) == "atif"
    assert [run.session_id for run in read(data, "atif")] == ["one", "two"]
    assert [run.run_notes.cut for run in read(data[:-20], "atif")] == [False, True]


def test_trajectory_continued_in_another_file_is_not_finished() -> None:
    [run] = read(of_harbor(continued_trajectory_ref="trajectory.cont-1.json"), "atif")
    assert (measure(run, "f").ending, measure(run, "f").finished) == ("continued", False)
    assert measure(read(of_harbor(), "atif")[0], "f").finished


def test_reimported_export_keeps_the_format_and_the_ending() -> None:
    [run] = read(
        SAMPLE.replace(b'"format":"atif"', b'"format":"turnwright"').replace(b'"ending"', b'"cut":true,"ending"'),
        "atif",
    )
    assert (run.run_notes.format, run.run_notes.ending, run.run_notes.cut) == ("atif", "stop", True)


@given(document=damaged(json.loads(of_harbor())))
def test_values_of_wrong_types_are_left_out(document: Any) -> None:  # noqa: ANN401 (any JSON)
    assert_damage_is_safe(json.dumps(document).encode(), of_harbor(), "atif")


@given(at=st.integers(0, len(SAMPLE)))
def test_no_cut_invents_a_call(at: int) -> None:
    assert_a_cut_is_safe(SAMPLE, at, "atif")
