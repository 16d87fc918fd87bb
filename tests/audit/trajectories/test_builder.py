"""The builder pairs results with calls, however a recording orders them."""

import pytest

from turnwright_audit.measure import measure
from turnwright_audit.trajectories.builder import RunBuilder


def build() -> RunBuilder:
    return RunBuilder("openai-chat", agent="clerk")


def test_late_result_is_placed_at_the_step_of_the_call() -> None:
    run = build()
    first = run.reply("one")
    run.call("a", "read")
    run.reply("two")
    run.result("a", "late")
    assert first.observation is not None
    assert [result.source_call_id for result in first.observation.results] == ["a"]
    assert run.open_calls == ()


def test_result_without_a_call_is_kept_as_an_orphan() -> None:
    run = build()
    step = run.reply("one")
    result = run.result("nowhere", "?")
    assert step.observation is not None
    assert result.source_call_id is None
    assert result.extra is not None
    assert result.extra.turnwright is not None
    assert result.extra.turnwright.orphan_id == "nowhere"


def test_result_before_the_call_is_paired_with_the_call() -> None:
    run = build()
    early = run.reply("one")
    run.result("a", "early")
    run.result("b", "of a call that is nowhere")
    run.result("c", "of another call with this id")
    step = run.reply("two")
    run.call("a", "read")
    run.call("c", "read")
    run.result("c", "own")
    run.finish()
    assert step.observation is not None
    assert [(result.source_call_id, result.content) for result in step.observation.results] == [
        ("c", "own"),
        ("a", "early"),
    ]
    assert early.observation is not None
    assert [result.source_call_id for result in early.observation.results] == [None, None]
    measures = measure(run.trajectory, "f")
    assert (measures.results, measures.unpaired, measures.orphans) == (2, 0, 2)


def test_calls_with_equal_ids_take_results_in_order() -> None:
    run = build()
    run.reply()
    first = run.call("a", "read", {"n": 1})
    second = run.call("a", "read", {"n": 2})
    assert first.tool_call_id != second.tool_call_id
    assert run.result("a", "1").source_call_id == first.tool_call_id
    assert run.result("a", "2").source_call_id == second.tool_call_id


def test_partners_of_unreadable_calls_and_results_are_marked() -> None:
    run = build()
    step = run.reply()
    run.call("a", "read")
    run.call("b", "read")
    run.result("c", "?")
    run.result("d", "?")
    run.mark_unreadable({"a", "c"})
    assert step.observation is not None
    notes = [result.extra.turnwright for result in step.observation.results if result.extra]
    assert [(note.orphan_id, note.unreadable) for note in notes if note] == [("c", True), ("d", False), (None, True)]
    assert run.open_calls == ("b",)


def test_result_without_an_id_answers_the_oldest_open_call() -> None:
    run = build()
    run.reply()
    first = run.call(None, "read")
    second = run.call(None, "read")
    assert run.result(None, "1").source_call_id == first.tool_call_id
    assert run.result(second.tool_call_id, "2").source_call_id == second.tool_call_id


def test_arguments_other_than_an_object_are_kept_as_text() -> None:
    run = build()
    run.reply()
    call = run.call("a", "read", '{"cut')
    assert call.arguments == {}
    assert call.extra is not None
    assert call.extra.turnwright is not None
    assert call.extra.turnwright.arguments_raw == '{"cut'


def test_run_without_steps_gets_a_system_step() -> None:
    assert [step.source for step in build().finish().steps] == ["system"]


@pytest.mark.parametrize("raw", ['{"n": NaN}', '{"n": 1e999}', "[" * 200, '{"n": ' * 200 + "1" + "}" * 200])
def test_arguments_accepted_by_no_client_are_kept_as_text(raw: str) -> None:
    call = build().call("c", "look", raw)
    assert call.arguments == {}
    assert call.extra is not None
    assert call.extra.turnwright is not None
    assert call.extra.turnwright.arguments_raw == raw


@pytest.mark.parametrize("raw", ["", " ", "null", " null "])
def test_arguments_without_a_value_are_empty(raw: str) -> None:
    call = build().call("c", "look", raw)
    assert (call.arguments, call.extra) == ({}, None)
