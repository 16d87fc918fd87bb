"""Chat messages of OpenAI are read from documents, lines and logs of requests."""

import json
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
from turnwright_audit.trajectories.source import UnreadableRecordingError

FORMAT = "openai-chat"


def call(own: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": own, "type": "function", "function": {"name": name, "arguments": arguments}}


MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "You book trains."},
    {"role": "user", "content": [{"type": "text", "text": "To Vienna, bitte schön 🚂"}]},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Two dates.",
        "tool_calls": [call("c1", "search", '{"day": 1}'), call("c2", "search", '{"day": 2}')],
    },
    {"role": "tool", "tool_call_id": "c2", "content": "none"},
    {
        "role": "tool",
        "tool_call_id": "c1",
        "content": [{"type": "text", "text": "08:12"}, {"type": "text", "text": "€9"}],
    },
    {"role": "assistant", "content": "At 08:12.", "tool_calls": None, "refusal": None},
]
TAU: list[dict[str, Any]] = [
    {"task_id": 4, "reward": 1.0, "info": {"task": {"actions": [{"name": "pay"}]}}, "traj": MESSAGES, "trial": 0},
    {
        "task_id": 4,
        "reward": 0.0,
        "info": {},
        "traj": [*MESSAGES, {"role": "user", "content": "No, thanks ###STOP###"}],
        "trial": 1,
    },
]


def dumps(value: Any) -> bytes:  # noqa: ANN401 (any JSON)
    return json.dumps(value, ensure_ascii=False).encode()


def lines(values: list[Any]) -> bytes:
    return b"\n".join(map(dumps, values)) + b"\n"


@pytest.mark.parametrize(
    "data",
    [
        dumps(MESSAGES),
        dumps({"messages": MESSAGES}),
        dumps([{"messages": MESSAGES}]),
        lines([{"messages": MESSAGES}]),
        lines(MESSAGES),
        json.dumps({"messages": MESSAGES}, indent=2).encode(),
    ],
    ids=["list", "object", "records", "conversation a line", "message a line", "indented"],
)
def test_conversation_is_read_from_each_form_of_file(data: bytes) -> None:
    assert recognized(data) == FORMAT
    [run] = read(data, FORMAT)
    assert [step.source for step in run.steps] == ["system", "user", "agent", "agent"]
    assert calls([run]) == {("search", '{"day": 1}'): 1, ("search", '{"day": 2}'): 1}
    assert results([run]) == 2
    assert results_of([run]) == ["none", "08:12\n€9"]
    assert run.steps[2].reasoning_content == "Two dates."
    assert run.steps[1].message == "To Vienna, bitte schön 🚂"


def test_tau_bench_rewards_are_success_labels() -> None:
    assert recognized(dumps(TAU)) == FORMAT
    first, second = read(dumps(TAU), FORMAT)
    assert (first.run_notes.run, first.run_notes.success, first.run_notes.ending) == ("4.0", True, None)
    assert (second.run_notes.run, second.run_notes.success, second.run_notes.ending) == ("4.1", False, "user_stop")


SIMULATION: dict[str, Any] = {
    "id": "s1",
    "task_id": "4",
    "trial": 0,
    "termination_reason": "user_stop",
    "reward_info": {"reward": 1.0},
    "messages": [
        {"role": "assistant", "content": "Hello", "cost": 0.0},
        {"role": "user", "content": "Pay.", "cost": 0.1},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "name": "pay", "arguments": {"n": 1}, "requestor": "assistant"}],
            "cost": 0.25,
            "usage": {"prompt_tokens": 9, "completion_tokens": 2},
        },
        {"id": "a", "role": "tool", "content": "no money", "requestor": "assistant", "error": True},
        {"role": "user", "content": None, "tool_calls": [{"id": "u", "name": "look", "arguments": {}}]},
        {"id": "u", "role": "tool", "content": "seen", "requestor": "user", "error": False},
        {"role": "user", "content": "Thanks ###STOP###"},
    ],
}


def test_simulation_has_only_the_calls_of_the_agent() -> None:
    data = dumps({"timestamp": "now", "info": {"seed": 1}, "tasks": [{"id": "4"}], "simulations": [SIMULATION] * 2})
    assert recognized(data) == FORMAT
    run, _ = read(data, FORMAT)
    assert [step.source for step in run.steps] == ["agent", "user", "agent", "user"]
    assert calls([run]) == {("pay", '{"n": 1}'): 1}
    assert results_of([run]) == ["no money"]
    assert (run.run_notes.run, run.run_notes.success, run.run_notes.ending) == ("s1", True, "user_stop")
    metrics = run.steps[2].metrics
    assert metrics is not None
    assert (metrics.prompt_tokens, metrics.cost_usd) == (9, 0.25)


def test_simulations_behind_megabytes_of_tasks_are_recognized() -> None:
    info = {"num_trials": 4, "user_info": {}, "agent_info": {"llm": "small"}, "environment_info": {"domain_name": "x"}}
    tasks = [{"id": str(number), "notes": "n" * 1000} for number in range(400)]
    data = dumps({"timestamp": "now", "info": info, "tasks": tasks, "simulations": [SIMULATION] * 2})
    assert recognized(data) == FORMAT
    assert len(read(data, FORMAT)) == 2


def request(count: int, usage: dict[str, Any] | None = None) -> dict[str, Any]:
    """The log of a request with so many messages; the next one is the reply."""
    return {
        "request": {"model": "small", "messages": MESSAGES[:count]},
        "response": {
            "model": "small-2",
            "choices": [{"index": 0, "finish_reason": "stop", "message": MESSAGES[count]}],
            "usage": usage,
        },
    }


def test_continued_requests_are_a_single_run() -> None:
    usage = {"prompt_tokens": 90, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}
    logged = [request(2, usage), request(5)]
    for data in (dumps(logged), lines(logged)):
        assert recognized(data) == FORMAT
        [run] = read(data, FORMAT)
        assert [step.source for step in run.steps] == ["system", "user", "agent", "agent"]
        assert calls([run]) == calls(read(dumps(MESSAGES), FORMAT))
        metrics = run.steps[2].metrics
        assert metrics is not None
        assert (metrics.prompt_tokens, metrics.completion_tokens, metrics.cached_tokens) == (90, 7, 64)
        assert run.run_notes.ending == "stop"
        assert run.agent.model_name == "small"


def test_requests_with_another_time_in_the_prompt_are_a_single_run() -> None:
    first, second = request(2), request(5)
    for number, logged in enumerate((first, second)):
        prompt = {"role": "system", "content": f"It is 10:0{number}."}
        logged["request"]["messages"] = [prompt, *logged["request"]["messages"][1:]]
    [run] = read(lines([first, second]), FORMAT)
    assert [step.source for step in run.steps] == ["system", "user", "agent", "agent"]
    assert calls([run]) == calls(read(dumps(MESSAGES), FORMAT))


def test_requests_of_two_conversations_are_two_runs() -> None:
    other_request = request(2)
    other_request["request"]["messages"] = [{"role": "user", "content": "And to Graz?"}]
    assert len(read(lines([request(2), other_request, request(5)]), FORMAT)) == 2


def test_repeated_request_belongs_to_the_same_run() -> None:
    [run] = read(lines([request(2), request(5), request(5)]), FORMAT)
    assert [step.source for step in run.steps] == ["system", "user", "agent", "agent", "agent"]
    assert len(read(lines([request(2), request(2)]), FORMAT)) == 2


def test_failed_request_is_a_system_error() -> None:
    failed = {"request": {"messages": MESSAGES[:2]}, "error": "overloaded"}
    [run] = read(lines([failed, request(2)]), FORMAT)
    assert [step.source for step in run.steps] == ["system", "user", "system", "agent"]


def test_calls_of_functions_and_of_custom_tools_are_calls() -> None:
    messages = [
        {"role": "assistant", "content": None, "function_call": {"name": "pay", "arguments": '{"n": 1}'}},
        {"role": "function", "name": "pay", "content": "paid"},
        {"role": "assistant", "tool_calls": [{"id": "x", "type": "custom", "custom": {"name": "run", "input": "ls"}}]},
        {"role": "tool", "tool_call_id": "x", "content": "files"},
        {"role": "assistant", "content": None, "refusal": "I cannot."},
    ]
    [run] = read(dumps(messages), FORMAT)
    assert calls([run]) == {("pay", '{"n": 1}'): 1, ("run", '{"input": "ls"}'): 1}
    assert results([run]) == 2
    assert run.steps[-1].message == "I cannot."


def test_call_with_an_unreadable_name_is_counted_not_invented() -> None:
    messages = [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"arguments": "{}"}}]}]
    [run] = read(dumps(messages), FORMAT)
    assert not calls([run])
    extra = run.steps[0].extra
    assert extra is not None
    assert extra.turnwright is not None
    assert extra.turnwright.unreadable_calls == 1


@pytest.mark.parametrize(
    ("marks", "errors"),
    [
        ({"is_error": True}, 1),
        ({"error": True}, 1),
        ({"error": "no such page"}, 1),
        ({"status": "error"}, 1),
        ({"status": "success", "is_error": False, "error": False}, 0),
        ({"status": None, "is_error": None, "error": None}, 0),
    ],
)
def test_failed_result_is_an_error_by_its_mark(marks: dict[str, Any], errors: int) -> None:
    ask = {"role": "assistant", "tool_calls": [call("a", "look", "{}")]}
    [run] = read(dumps([ask, {"role": "tool", "tool_call_id": "a", "content": "page 1", **marks}]), FORMAT)
    assert measure(run, "-").errors == errors


def test_pictures_are_equal_results_only_with_equal_data() -> None:
    picture = {"role": "tool", "content": [{"type": "image_url", "image_url": {"url": "data:,A"}}]}
    other_picture = {"role": "tool", "content": [{"type": "image_url", "image_url": {"url": "data:,B"}}]}
    ask = {"role": "assistant", "tool_calls": [call("", "look", "{}")]}
    first, second, third = results_of(read(dumps([ask, picture, ask, other_picture, ask, picture]), FORMAT))
    assert first == third != second


def test_malformed_json_accepted_by_lenient_readers_is_read() -> None:
    data = dumps([*TAU, {"reward": 1, "traj": MESSAGES}]).replace(b'"reward": 1,', b'"reward": NaN,')
    assert calls(read(data.replace(b"none", b"\\ud83d \xff"), FORMAT)) == calls(read(dumps(TAU * 2), FORMAT)[:3])


def test_anthropic_messages_are_left_to_the_anthropic_reader() -> None:
    block = {"type": "tool_use", "id": "t", "name": "pay", "input": {}}
    assert recognized(dumps([{"role": "assistant", "content": [block]}])) == "anthropic-messages"


def test_recording_without_a_message_is_unreadable() -> None:
    with pytest.raises(UnreadableRecordingError):
        read(b'{"messages": []}', FORMAT)


def chunk(own: str, delta: dict[str, Any], stop: str | None = None) -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta, "finish_reason": stop}, {"index": 1, "delta": {"content": "other"}}]
    return {"id": own, "object": "chat.completion.chunk", "model": "small", "choices": choices}


def part(index: int, arguments: str, **head: Any) -> dict[str, Any]:  # noqa: ANN401 (any JSON)
    name = {"name": head.pop("name")} if head else {}
    return {"tool_calls": [{"index": index, **head, "function": {"arguments": arguments, **name}}]}


CHUNKS: list[dict[str, Any]] = [
    chunk("r1", {"role": "assistant", "content": "I "}),
    chunk("r1", {"content": "look."}),
    chunk("r1", part(0, "", id="c1", name="search")),
    chunk("r1", part(0, '{"day": ')),
    chunk("r1", part(1, '{"day": 2}', id="c2", name="search")),
    chunk("r1", part(0, "1}")),
    chunk("r1", {}, "tool_calls"),
    {**chunk("r1", {}), "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}},
    chunk("r2", {"role": "assistant", "content": "Done."}, "stop"),
]
STREAM = lines(CHUNKS)


def test_stream_chunks_form_replies() -> None:
    stream = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in CHUNKS) + "data: [DONE]\n\n"
    for data in (STREAM, stream.encode(), dumps(CHUNKS)):
        assert recognized(data) == FORMAT
        runs = read(data, FORMAT)
        assert [step.message for run in runs for step in run.steps] == ["I look.", "Done."]
        assert calls(runs) == {("search", '{"day": 1}'): 1, ("search", '{"day": 2}'): 1}
        metrics = runs[0].steps[0].metrics
        assert metrics is not None
        assert (metrics.prompt_tokens, metrics.completion_tokens, runs[0].agent.model_name) == (9, 4, "small")


def test_call_with_damaged_chunks_counts_as_unreadable() -> None:
    damaged_lines = [dumps(chunk) for chunk in CHUNKS]
    damaged_lines[3] = b"{"
    for data, lost in ((b"\n".join(damaged_lines), 2), (lines(CHUNKS[:5]), 1)):
        run = read(data, FORMAT)[0]
        assert calls([run]).total() == 2 - lost
        assert measure(run, "f").lost_calls == lost


RECORDINGS = [
    dumps(MESSAGES),
    dumps(TAU),
    lines(MESSAGES),
    lines([request(2), request(5)]),
    dumps([request(2)]),
    STREAM,
]


@given(data=st.sampled_from(RECORDINGS), share=st.floats(0, 1))
def test_no_cut_invents_a_call(data: bytes, share: float) -> None:
    assert_a_cut_is_safe(data, int(share * len(data)), FORMAT)


@given(document=st.one_of(damaged(TAU), damaged(MESSAGES), damaged([request(2), request(5)])))
def test_values_of_wrong_types_are_left_out(document: Any) -> None:  # noqa: ANN401 (any JSON)
    assert_damage_is_safe(dumps(document), dumps(TAU), FORMAT)


@pytest.mark.parametrize("at", range(len(MESSAGES)))
def test_line_of_garbage_is_left_out(at: int) -> None:
    assert_garbage_is_safe(list(map(dumps, MESSAGES)), at, FORMAT)


@pytest.mark.parametrize("at", range(len(CHUNKS)))
def test_chunk_of_garbage_is_left_out(at: int) -> None:
    assert_garbage_is_safe(list(map(dumps, CHUNKS)), at, FORMAT)
