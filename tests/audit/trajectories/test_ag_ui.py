"""Logs of AG-UI events are read as runs: as lines, as a list, and as a recorded stream."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from tests.audit.trajectories.reading import assert_a_cut_is_safe, calls, read, recognized, results

from turnwright_audit.trajectories.atif import StepMetrics, Trajectory, TrajectoryStep

Event = dict[str, JsonValue]


def event(kind: str, **fields: JsonValue) -> Event:
    return {"type": kind, **fields}


def said(message: str, *deltas: str, role: str = "assistant") -> list[Event]:
    return [
        event("TEXT_MESSAGE_START", messageId=message, role=role),
        *(event("TEXT_MESSAGE_CONTENT", messageId=message, delta=delta) for delta in deltas),
        event("TEXT_MESSAGE_END", messageId=message),
    ]


def called(call: str, name: str, *deltas: str, parent: str | None = None) -> list[Event]:
    return [
        event("TOOL_CALL_START", toolCallId=call, toolCallName=name, parentMessageId=parent),
        *(event("TOOL_CALL_ARGS", toolCallId=call, delta=delta) for delta in deltas),
        event("TOOL_CALL_END", toolCallId=call),
    ]


def answered(call: str, content: str) -> Event:
    return event("TOOL_CALL_RESULT", messageId=f"{call}-result", toolCallId=call, content=content, role="tool")


def started(*messages: JsonValue, thread: str = "t-1") -> Event:
    fields: Event = {"input": {"messages": list(messages)}} if messages else {}
    return event("RUN_STARTED", threadId=thread, runId="r-1", timestamp=1767323040000, **fields)


FINISHED = event("RUN_FINISHED", threadId="t-1", runId="r-1")
ASKED: JsonValue = {"id": "u-1", "role": "user", "content": "Pay the invoice."}
EVENTS = [
    started(ASKED),
    *said("m-1", "Look", "ing."),
    *called("c1", "look_up", '{"invo', 'ice": 7}', parent="m-1"),
    *called("c2", "look_up", '{"invoice": 8}'),
    answered("c2", "unpaid"),
    answered("c1", "paid é"),
    *said("m-2", "Done."),
    FINISHED,
]
LINES = "\n".join(json.dumps(event, ensure_ascii=False) for event in EVENTS).encode()
STREAM = "".join(f"event: message\ndata: {json.dumps(event)}\n\n" for event in EVENTS).encode()
LIST = json.dumps(EVENTS).encode()
NAMES = {"threadId": "thread_id", "runId": "run_id", "messageId": "message_id", "toolCallId": "tool_call_id"}
NAMES |= {"toolCallName": "tool_call_name", "parentMessageId": "parent_message_id"}
PYTHON = "\n".join(
    json.dumps({NAMES.get(key, key): value for key, value in event.items()}, ensure_ascii=False) for event in EVENTS
).encode()
FORMS = {"lines": LINES, "stream": STREAM, "list": LIST, "names of Python": PYTHON}


def one_run(*events: Event) -> Trajectory:
    [run] = read(json.dumps(events).encode(), "ag-ui")
    return run


def replies(run: Trajectory) -> list[TrajectoryStep]:
    return [step for step in run.steps if step.source == "agent"]


def prompts(run: Trajectory) -> list[object]:
    return [step.message for step in run.steps if step.source == "user"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_log_gives_the_same_run(form: str) -> None:
    assert recognized(FORMS[form]) == "ag-ui"
    [run] = read(FORMS[form], "ag-ui")
    assert (run.session_id, run.run_notes.ending, run.run_notes.cut) == ("t-1", "finished", False)
    assert prompts(run) == ["Pay the invoice."]
    assert [step.message for step in replies(run)] == ["Looking.", "Done."]
    assert calls([run]) == {("look_up", '{"invoice": 7}'): 1, ("look_up", '{"invoice": 8}'): 1}
    observation = replies(run)[0].observation
    assert observation is not None
    assert [(result.source_call_id, result.content) for result in observation.results] == [
        ("c2", "unpaid"),
        ("c1", "paid é"),
    ]


def test_call_without_an_end_is_counted_as_unreadable() -> None:
    [run] = read(LINES[: LINES.index(b'ice\\": 7}')], "ag-ui")
    assert not calls([run])
    [step] = replies(run)
    assert step.extra is not None
    assert step.extra.turnwright is not None
    assert step.extra.turnwright.unreadable_calls == 1
    assert run.run_notes.cut


def test_result_of_an_unreadable_call_is_marked_as_unreadable() -> None:
    [run] = read(LINES.replace(b'"delta": "ice', b'"delta": !"ice'), "ag-ui")
    assert run.run_notes.unreadable_lines == 1
    assert calls([run]) == {("look_up", '{"invoice": 8}'): 1}
    lost = [
        result.extra.turnwright.unreadable
        for step in run.steps
        if step.observation
        for result in step.observation.results
        if result.extra and result.extra.turnwright and result.source_call_id is None
    ]
    assert lost == [True]


def test_calls_without_texts_are_a_single_reply_until_a_result() -> None:
    run = one_run(
        started(ASKED),
        *called("a", "read", "{}"),
        *called("b", "read", "{}"),
        answered("a", "x"),
        answered("b", "y"),
        *called("c", "read", "{}"),
        answered("c", "z"),
        FINISHED,
    )
    assert [len(step.tool_calls or ()) for step in replies(run)] == [2, 1]


def test_chunks_form_a_message_and_a_call() -> None:
    run = one_run(
        started(ASKED),
        event("TEXT_MESSAGE_CHUNK", messageId="m", role="assistant", delta="Look"),
        event("TEXT_MESSAGE_CHUNK", messageId="m", delta="ing."),
        event("TOOL_CALL_CHUNK", toolCallId="c", toolCallName="read", parentMessageId="m", delta='{"n"'),
        event("TOOL_CALL_CHUNK", delta=": 1}"),
        answered("c", "x"),
        FINISHED,
    )
    assert [step.message for step in replies(run)] == ["Looking."]
    assert (calls([run]), results([run])) == ({("read", '{"n": 1}'): 1}, 1)


def test_call_of_another_message_is_another_reply() -> None:
    run = one_run(
        started(ASKED),
        *called("a", "read", "{}", parent="m-1"),
        *called("b", "read", "{}", parent="m-1"),
        *called("c", "read", "{}", parent="m-2"),
        FINISHED,
    )
    assert [len(step.tool_calls or ()) for step in replies(run)] == [2, 1]


def test_results_found_only_in_snapshots_end_the_reply() -> None:
    run = one_run(
        {**started(), "timestamp": 1767323040},
        event("TOOL_CALL_CHUNK", toolCallId="c1", toolCallName="look_up", delta="{}"),
        event("MESSAGES_SNAPSHOT", messages=SNAPSHOT),
        event("TEXT_MESSAGE_CHUNK", messageId="m", delta="Done."),
        FINISHED,
    )
    assert [step.message for step in replies(run)] == ["", "Done."]
    assert results([run]) == 1
    assert (run.steps[0].timestamp or "").startswith("2026-01-02")


def test_raw_framework_events_give_tokens_but_no_names() -> None:
    output: JsonValue = {"id": "m-1", "usage_metadata": {"input_tokens": 9, "output_tokens": 2}, "thread_id": "x"}
    raw: JsonValue = {"event": "on_chat_model_end", "data": {"output": output}}
    run = one_run(started(ASKED), *said("m-1", "Done."), event("RAW", event=raw), FINISHED)
    [step] = replies(run)
    assert (step.message, step.metrics) == ("Done.", StepMetrics(prompt_tokens=9, completion_tokens=2))


SNAPSHOT: JsonValue = [
    {"id": "u-0", "role": "user", "content": "Hello."},
    {"id": "a-0", "role": "assistant", "content": "Hi."},
    {"id": "u-1", "role": "user", "content": [{"type": "text", "text": "Pay the invoice."}]},
    {
        "id": "a-1",
        "role": "assistant",
        "toolCalls": [{"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}],
    },
    {"id": "x-1", "role": "tool", "toolCallId": "c1", "content": "paid"},
]


def test_snapshot_supplies_the_replies_of_an_unstreamed_run() -> None:
    run = one_run(started(), event("MESSAGES_SNAPSHOT", messages=SNAPSHOT), FINISHED)
    assert prompts(run) == ["Pay the invoice."]
    assert len(replies(run)) == 1
    assert (calls([run]), results([run])) == ({("look_up", "{}"): 1}, 1)


def test_snapshot_after_streaming_adds_only_prompt_and_results() -> None:
    run = one_run(started(), *called("c1", "look_up"), event("MESSAGES_SNAPSHOT", messages=SNAPSHOT), FINISHED)
    assert prompts(run) == ["Pay the invoice."]
    assert len(replies(run)) == 1
    assert results([run]) == 1


def test_run_with_the_result_of_an_earlier_call_continues_the_turn() -> None:
    answer: JsonValue = {"id": "x", "role": "tool", "toolCallId": "c", "content": "blue"}
    run = one_run(started(ASKED), *called("c", "ask"), FINISHED, started(ASKED, answer), *said("m", "Done."), FINISHED)
    assert prompts(run) == ["Pay the invoice."]
    assert results([run]) == 1


def test_each_thread_is_a_run_with_a_turn_for_each_of_the_runs() -> None:
    turn = [started(ASKED), *said("m", "Done."), FINISHED]
    runs = read(json.dumps([*turn, *turn, started(ASKED, thread="t-2")]).encode(), "ag-ui")
    assert [len(prompts(run)) for run in runs] == [2, 1]
    assert [run.run_notes.cut for run in runs] == [False, True]


def test_error_ends_the_run() -> None:
    run = one_run(started(ASKED), event("RUN_ERROR", message="overloaded"))
    assert (run.run_notes.ending, run.run_notes.success) == ("error", False)
    assert run.steps[-1].message == "overloaded"


def test_sub_agent_events_are_a_separate_run() -> None:
    inner = [{**fields, "subagentRunId": "sub-1"} for fields in [*said("s", "Found."), *called("d", "read", "{}")]]
    run = one_run(started(ASKED), *called("c", "helper"), *inner, answered("c", "found"), FINISHED)
    assert len(replies(run)) == 1
    [helper] = run.subagent_trajectories or []
    assert [step.message for step in replies(helper)] == ["Found."]
    assert calls([helper]) == {("read", "{}"): 1}


@given(form=st.sampled_from(sorted(FORMS)), data=st.data())
def test_no_cut_invents_a_call(form: str, data: st.DataObject) -> None:
    assert_a_cut_is_safe(FORMS[form], data.draw(st.integers(0, len(FORMS[form]))), "ag-ui")


@given(number=st.integers(0, len(EVENTS) - 1), garbage=st.binary(max_size=40))
def test_line_of_garbage_invents_no_call(number: int, garbage: bytes) -> None:
    lines = LINES.split(b"\n")
    lines[number] = b"{" + garbage.replace(b"\n", b" ")
    assert not calls(read(b"\n".join(lines), "ag-ui")) - calls(read(LINES, "ag-ui"))


VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(number=st.integers(1, len(EVENTS) - 1), value=VALUES, data=st.data())
def test_values_of_wrong_types_raise_no_error(number: int, value: JsonValue, data: st.DataObject) -> None:
    changed = list(EVENTS)
    changed[number] = {**changed[number], data.draw(st.sampled_from(sorted(changed[number]))): value}
    assert read(json.dumps(changed).encode(), "ag-ui")
