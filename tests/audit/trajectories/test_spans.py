"""Spans of models, tools and agents are read as runs, in each of their conventions and dumps."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from tests.audit.trajectories.reading import assert_a_cut_is_safe, calls, read, recognized, results

from turnwright_audit.measure import measure
from turnwright_audit.trajectories.atif import ResultNotes, Trajectory, TrajectoryStep
from turnwright_audit.trajectories.files import runs
from turnwright_audit.trajectories.formats import format_of
from turnwright_audit.trajectories.source import Recording, UnreadableRecordingError

Attributes = Mapping[str, JsonValue]
TRACE = "5b8efff798038103d269b633813fc60c"


def span(number: int, parent: int | None, attributes: Attributes, **more: JsonValue) -> dict[str, JsonValue]:
    """A span as exporters of the SDK print it. It starts and ends in the second of its number."""
    return {
        "name": f"span {number}",
        "context": {"trace_id": f"0x{TRACE}", "span_id": f"0x{number:016x}", "trace_state": "[]"},
        "parent_id": None if parent is None else f"0x{parent:016x}",
        "start_time": f"2026-01-02T03:04:{number:02}.000000Z",
        "end_time": f"2026-01-02T03:04:{number:02}.500000Z",
        "status": {"status_code": "UNSET"},
        "attributes": dict(attributes),
        "events": [],
        "resource": {"attributes": {"service.name": "clerk"}},
        **more,
    }


def as_otlp(spans: list[dict[str, JsonValue]]) -> dict[str, JsonValue]:
    """The same spans in one request of OTLP JSON."""
    records: list[JsonValue] = []
    for fields in spans:
        context, attributes, status = fields["context"], fields["attributes"], fields["status"]
        assert isinstance(context, dict)
        assert isinstance(attributes, dict)
        assert isinstance(status, dict)
        number = int(str(context["span_id"]), 16)
        parent = fields["parent_id"]
        records.append(
            {
                "traceId": str(context["trace_id"])[2:],
                "spanId": str(context["span_id"])[2:],
                "parentSpanId": str(parent)[2:] if parent else "",
                "name": fields["name"],
                "startTimeUnixNano": str((1767323040 + number) * 10**9),
                "endTimeUnixNano": str((1767323040 + number) * 10**9 + 5 * 10**8),
                "attributes": [{"key": key, "value": otlp_value(value)} for key, value in attributes.items()],
                "status": {"code": 2, "message": "it broke"} if status["status_code"] == "ERROR" else {},
            }
        )
    resource: JsonValue = {"attributes": [{"key": "service.name", "value": {"stringValue": "clerk"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "agent"}, "spans": records}]}]}


def otlp_value(value: JsonValue) -> dict[str, JsonValue]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [otlp_value(item) for item in value]}}
    return {"stringValue": str(value)}


def chat(parts: list[JsonValue], messages: list[JsonValue] | None = None, **more: JsonValue) -> dict[str, JsonValue]:
    """The attributes of a model call, in the newest convention."""
    attributes: dict[str, JsonValue] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "small",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts}]),
        **more,
    }
    if messages is not None:
        attributes["gen_ai.input.messages"] = json.dumps(messages)
    return attributes


def text(content: str) -> JsonValue:
    return {"type": "text", "content": content}


def call(id: str, name: str, **arguments: JsonValue) -> JsonValue:  # noqa: A002 (the field's name)
    return {"type": "tool_call", "id": id, "name": name, "arguments": arguments}


def tool(name: str, result: str, **call: JsonValue) -> dict[str, JsonValue]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.result": result,
        **{f"gen_ai.tool.call.{key}": value for key, value in call.items()},
    }


ASKED: list[JsonValue] = [
    {"role": "system", "parts": [text("You are a clerk.")]},
    {"role": "user", "parts": [text("Pay the invoice.")]},
]
SPANS = [
    span(3, 1, chat([call("c1", "look_up", invoice=7), call("c2", "look_up", invoice=8)], ASKED)),
    span(4, 1, tool("look_up", "unpaid", id="c2", arguments='{"invoice": 8}')),
    span(5, 1, tool("look_up", "paid", id="c1", arguments='{"invoice": 7}')),
    span(6, 1, chat([text("Done.")])),
    span(1, None, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}),
]
PRINTED = "\n".join(json.dumps(fields, indent=4) for fields in SPANS).encode()
LINES = "\n".join(json.dumps(as_otlp([fields])) for fields in SPANS).encode()
FORMS = {
    "printed": PRINTED,
    "list": json.dumps(SPANS).encode(),
    "spans": json.dumps({"spans": SPANS}).encode(),
    "lines": "\n".join(json.dumps(fields) for fields in SPANS).encode(),
    "otlp": json.dumps(as_otlp(SPANS)).encode(),
    "otlp lines": LINES,
    "documents": json.dumps(as_otlp(SPANS[:3])).encode() + json.dumps(as_otlp(SPANS[3:])).encode(),
}


def one_run(*spans: dict[str, JsonValue], format: str = "opentelemetry") -> Trajectory:  # noqa: A002
    [run] = read(json.dumps(list(spans)).encode(), format)
    return run


def replies(run: Trajectory) -> list[TrajectoryStep]:
    return [step for step in run.steps if step.source == "agent"]


@pytest.mark.parametrize("form", FORMS)
def test_each_dump_of_the_same_spans_is_the_same_run(form: str) -> None:
    assert recognized(FORMS[form]) == "opentelemetry"
    [run] = read(FORMS[form], "opentelemetry")
    assert run.agent.name == "clerk"
    assert [step.source for step in run.steps] == ["system", "user", "agent", "agent"]
    first, last = replies(run)
    assert first.observation is not None
    answered = [(result.source_call_id, result.content) for result in first.observation.results]
    assert answered == [("c2", "unpaid"), ("c1", "paid")]
    assert last.message == "Done."
    assert last.metrics is not None
    assert (last.metrics.prompt_tokens, last.metrics.completion_tokens) == (10, 3)
    assert run.run_notes.ending == "stop"
    assert not run.run_notes.cut
    assert run.run_notes.unreadable_lines == 0
    assert (first.timestamp or "").startswith("2026-01-02T03:04:03")


def test_ids_up_to_128_bits_are_kept_unchanged() -> None:
    number = 193014249579837554382251753808266698816
    data = json.dumps({"spans": [{**SPANS[0], "context": {"trace_id": number, "span_id": 2**64 - 1}}]}).encode()
    assert recognized(data) == "opentelemetry"
    assert [run.run_notes.run for run in read(data, "opentelemetry")] == [str(number)]
    assert [run.run_notes.run for run in read(data[:-1], "opentelemetry")] == [str(number)]


def test_tool_span_without_a_recorded_call_is_a_call_with_a_result() -> None:
    run = one_run(span(1, None, chat([text("Looking.")], ASKED)), span(2, None, tool("look_up", "paid")))
    assert sum(calls([run]).values()) == results([run]) == 1


def test_simultaneous_spans_keep_the_order_of_the_dump() -> None:
    moment: dict[str, JsonValue] = {"start_time": "2026-01-02T03:04:05Z", "end_time": "2026-01-02T03:04:05Z"}
    spans = [span(1, None, {"gen_ai.operation.name": "invoke_agent"}, **moment)]
    for number in (2, 4):
        spans.append(span(number, 1, chat([call(f"c{number}", "search", q="x")]), **moment))
        spans.append(span(number + 1, 1, tool("search", "none", id=f"c{number}"), **moment))
    run = one_run(*spans)
    assert [[tool_call.tool_call_id for tool_call in step.tool_calls or ()] for step in replies(run)] == [
        ["c2"],
        ["c4"],
    ]
    assert results([run]) == 2


def test_tool_span_without_an_id_answers_the_oldest_open_call() -> None:
    calls = [call("a", "read", n=1), call("b", "look_up", n=2), call("c", "look_up", n=3)]
    run = one_run(span(1, None, chat(calls)), span(2, None, tool("look_up", "x")))
    [step] = replies(run)
    assert step.observation is not None
    assert [result.source_call_id for result in step.observation.results] == ["b"]


def test_call_without_an_id_takes_the_id_of_the_tool_span() -> None:
    attributes = {"gen_ai.operation.name": "call_llm", "gen_ai.output": '[{"tool.name": "read", "tool.args": "{}"}]'}
    run = one_run(span(1, None, attributes), span(2, None, tool("read", "x", id="call-9")))
    assert sum(calls([run]).values()) == results([run]) == 1


def test_spans_of_the_agent_development_kit_are_read() -> None:
    user: JsonValue = {"role": "user", "parts": [{"text": "Pay the invoice."}]}
    part: JsonValue = {"function_call": {"id": "f1", "name": "look_up", "args": {"invoice": 7}}}
    request = {"gcp.vertex.agent.llm_request": json.dumps({"model": "small", "contents": [user]})}
    reply = {"gcp.vertex.agent.llm_response": json.dumps({"content": {"role": "model", "parts": [part]}})}
    ran = {"gen_ai.tool.name": "look_up", "gen_ai.tool.call.id": "f1", "gcp.vertex.agent.tool_response": '{"a": 1}'}
    run = one_run(
        span(1, None, {"gen_ai.operation.name": "call_llm", **request, **reply}),
        span(2, 1, ran),
        span(3, 1, {"gen_ai.tool.name": "(merged tools)"}),
    )
    assert [step.message for step in run.steps if step.source == "user"] == ["Pay the invoice."]
    assert calls([run]) == {("look_up", '{"invoice": 7}'): 1}
    assert results([run]) == 1


def test_arguments_of_a_tool_span_belong_to_the_call() -> None:
    ran = tool("read", "x", arguments='{"path": "a"}')
    assert calls([one_run(span(1, None, chat([call("c", "read")])), span(2, None, ran))]) == {
        ("read", '{"path": "a"}'): 1
    }


@pytest.mark.parametrize(
    "notation", ["{'path': 'a', 'deep': [1, None]}", json.dumps('{"path": "a", "deep": [1, null]}')]
)
def test_arguments_are_read_in_the_notations_of_frameworks(notation: str) -> None:
    run = one_run(span(1, None, tool("read", "x", args=notation) | {"gen_ai.tool.args": notation}))
    assert calls([run]) == {("read", '{"deep": [1, null], "path": "a"}'): 1}


def test_span_exported_twice_counts_once() -> None:
    ran = span(2, None, tool("look_up", "paid"))
    run = one_run(span(1, None, chat([text("Looking.")], ASKED)), ran, ran)
    assert sum(calls([run]).values()) == results([run]) == 1


def test_langchain_reply_has_calls_beside_the_message() -> None:
    tool_call: JsonValue = {
        "id": "c1",
        "type": "function",
        "function": {"name": "look_up", "arguments": '{"invoice": 7}'},
    }
    generation: JsonValue = {"message": {"content": "", "additional_kwargs": {"tool_calls": [tool_call]}}, "text": ""}
    run = one_run(span(1, None, {"gen_ai.operation.name": "call_llm", "genai.output": json.dumps(generation)}))
    assert calls([run]) == {("look_up", '{"invoice": 7}'): 1}


def test_results_found_only_in_a_later_request_are_read() -> None:
    answer: JsonValue = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "paid"}]}
    run = one_run(span(1, None, chat([call("c1", "look_up")], ASKED)), span(2, None, chat([text("ok")], [answer])))
    assert results([run]) == 1


def status_notes(run: Trajectory) -> list[ResultNotes]:
    results = [result for step in run.steps for result in (step.observation.results if step.observation else ())]
    return [result.extra.turnwright for result in results if result.extra and result.extra.turnwright]


def test_failed_tool_is_an_error() -> None:
    run = one_run(
        span(1, None, chat([call("c1", "look_up")])),
        span(2, None, {"gen_ai.tool.name": "look_up"}, status={"status_code": "ERROR", "description": "no such"}),
    )
    [step] = replies(run)
    assert step.observation is not None
    [result] = step.observation.results
    assert result.content == "no such"
    assert result.extra is not None
    assert result.extra.turnwright is not None
    assert result.extra.turnwright.status == "error"


@pytest.mark.parametrize(
    ("code", "status"), [("UNSET", "error"), ("StatusCode.UNSET", "error"), ("ERROR", "error"), ("OK", None)]
)
def test_error_type_is_an_error_unless_the_status_is_ok(code: str, status: str | None) -> None:
    tool: dict[str, JsonValue] = {"gen_ai.tool.name": "look_up", "error.type": "KeyError"}
    run = one_run(span(1, None, chat([call("c1", "look_up")])), span(2, None, tool, status={"status_code": code}))
    assert [result.status for result in status_notes(run)] == [status]
    assert measure(run, "f").errors == (status is not None)


def test_tool_result_alone_may_contain_the_error() -> None:
    tool: dict[str, JsonValue] = {"gen_ai.tool.name": "look_up", "gen_ai.tool.call.result": "Error: no such place"}
    run = one_run(span(1, None, chat([call("c1", "look_up")])), span(2, None, tool))
    assert measure(run, "f").errors == 1


def test_failed_request_is_an_error_step_and_opens_no_turn() -> None:
    failed = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(ASKED)}
    run = one_run(
        span(1, None, failed, status={"status_code": "ERROR", "description": "overloaded"}),
        span(2, None, chat([text("Done.")], ASKED)),
    )
    assert [step.source for step in run.steps] == ["system", "user", "agent", "agent"]
    first, _ = replies(run)
    assert first.message == "overloaded"
    assert first.extra is not None
    assert first.extra.turnwright is not None
    assert first.extra.turnwright.error


def test_user_message_after_a_reply_opens_a_turn() -> None:
    answer: JsonValue = {"role": "assistant", "parts": [text("Done.")]}
    thanks: JsonValue = {"role": "user", "parts": [text("Thanks.")]}
    later = [*ASKED, answer, thanks]
    run = one_run(span(1, None, chat([text("Done.")], ASKED)), span(2, None, chat([text("Welcome.")], later)))
    assert [step.message for step in run.steps if step.source == "user"] == ["Pay the invoice.", "Thanks."]


def test_agent_in_a_tool_is_a_sub_agent() -> None:
    inner: list[JsonValue] = [{"role": "user", "parts": [text("Find it.")]}]
    run = one_run(
        span(1, None, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "boss"}),
        span(2, 1, chat([call("c1", "helper")], ASKED)),
        span(3, 1, tool("helper", "found", id="c1")),
        span(4, 3, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}),
        span(5, 4, chat([text("found")], inner)),
        span(6, 1, chat([text("Done.")])),
    )
    assert len(replies(run)) == 2
    [helper] = run.subagent_trajectories or []
    assert helper.agent.name == "helper"
    assert [step.source for step in helper.steps] == ["user", "agent"]
    observation = replies(run)[0].observation
    assert observation is not None
    [reference] = observation.results[0].subagent_trajectory_ref or []
    assert reference.trajectory_id == helper.trajectory_id


def test_agent_continuing_the_conversation_is_not_a_sub_agent() -> None:
    run = one_run(
        span(1, None, {"openinference.span.kind": "AGENT", "input.value": '{"input": "Pay the invoice."}'}),
        span(2, 1, {"openinference.span.kind": "AGENT"}),
        span(3, 2, chat([text("Done.")], ASKED)),
    )
    assert run.subagent_trajectories is None
    assert len(replies(run)) == 1


def test_request_recorded_by_two_instruments_is_a_single_step() -> None:
    run = one_run(span(1, None, chat([text("Done.")], ASKED)), span(2, 1, chat([text("Done.")], ASKED)))
    assert len(replies(run)) == 1


def flat(prefix: str, *messages: Mapping[str, str]) -> dict[str, JsonValue]:
    return {
        f"{prefix}.{n}.message.{key}": value for n, message in enumerate(messages) for key, value in message.items()
    }


INFERENCE = [
    span(
        2,
        1,
        {
            "openinference.span.kind": "LLM",
            "llm.model_name": "small",
            "llm.token_count.prompt": 10,
            "llm.token_count.completion": 3,
            "llm.token_count.prompt_details.cache_read": 4,
            **flat("llm.input_messages", {"role": "user", "contents.0.message_content.text": "Pay the invoice."}),
            **flat(
                "llm.output_messages",
                {
                    "role": "assistant",
                    "tool_calls.0.tool_call.id": "c1",
                    "tool_calls.0.tool_call.function.name": "look_up",
                    "tool_calls.0.tool_call.function.arguments": '{"invoice": 7}',
                },
            ),
        },
    ),
    span(
        3,
        1,
        {
            "openinference.span.kind": "TOOL",
            "tool.name": "look_up",
            "input.value": '{"args": [], "sanitize_inputs_outputs": true, "kwargs": {"invoice": 7}}',
            "output.value": "paid",
        },
    ),
    span(1, None, {"openinference.span.kind": "AGENT", "session.id": "s-1"}),
]


def test_openinference_is_recognized_and_read() -> None:
    data = json.dumps(INFERENCE).encode()
    assert recognized(data) == "openinference"
    [run] = read(data, "openinference")
    assert run.session_id == "s-1"
    assert [step.message for step in run.steps if step.source == "user"] == ["Pay the invoice."]
    assert calls([run]) == {("look_up", '{"invoice": 7}'): 1}
    assert results([run]) == 1
    [step] = replies(run)
    assert step.model_name == "small"
    assert step.metrics is not None
    assert step.metrics.cached_tokens == 4


RESPONSES: dict[str, JsonValue] = {
    "chat": {
        "choices": [
            {
                "message": {
                    "content": "Looking.",
                    "reasoning": "Hm.",
                    "tool_calls": [{"id": "c1", "function": {"name": "look_up", "arguments": {"invoice": 7}}}],
                },
                "finish_reason": "tool_calls",
            }
        ]
    },
    "responses": {
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "message", "content": [{"type": "output_text", "text": "Looking."}]},
            {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": '{"invoice": 7}'},
        ]
    },
    "anthropic": {
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "Hm."},
            {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"invoice": 7}},
        ],
    },
}


@pytest.mark.parametrize("api", RESPONSES)
def test_provider_response_in_a_span_reads_as_in_the_client(api: str) -> None:
    attributes = {"openinference.span.kind": "LLM", "output.value": json.dumps(RESPONSES[api])}
    [run] = read(json.dumps([span(1, None, attributes)]).encode(), "openinference")
    [step] = replies(run)
    assert (step.message, step.reasoning_content) == ("Looking.", "Hm.")
    assert calls([run]) == {("look_up", '{"invoice": 7}'): 1}


EVENTS: list[JsonValue] = [
    {"event.name": "gen_ai.user.message", "role": "user", "content": "Pay the invoice."},
    {
        "event.name": "gen_ai.choice",
        "index": 0,
        "message": {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [{"id": "c1", "function": {"name": "look_up", "arguments": '{"invoice": 7}'}}],
        },
    },
]
OLDER: dict[str, tuple[Attributes, list[JsonValue]]] = {
    "events in an attribute": ({"events": json.dumps(EVENTS)}, []),
    "events of the span": (
        {},
        [
            {"name": "gen_ai.user.message", "attributes": {"content": "Pay the invoice."}},
            {"name": "gen_ai.choice", "attributes": {"gen_ai.event.content": json.dumps(EVENTS[1])}},
        ],
    ),
    "blocks in events": (
        {},
        [
            {"name": "gen_ai.user.message", "attributes": {"content": '[{"text": "Pay the invoice."}]'}},
            {
                "name": "gen_ai.choice",
                "attributes": {
                    "finish_reason": "tool_use",
                    "message": '[{"text": "Looking."},'
                    '{"toolUse": {"toolUseId": "c1", "name": "look_up", "input": {"invoice": 7}}}]',
                },
            },
        ],
    ),
    "numbered prompts": (
        {
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "Pay the invoice.",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "Looking.",
            "gen_ai.completion.0.tool_calls.0.id": "c1",
            "gen_ai.completion.0.tool_calls.0.name": "look_up",
            "gen_ai.completion.0.tool_calls.0.arguments": '{"invoice": 7}',
        },
        [],
    ),
    "content events": (
        {},
        [
            {"name": "gen_ai.content.prompt", "attributes": {"gen_ai.prompt": json.dumps([EVENTS[0]])}},
            {"name": "gen_ai.content.completion", "attributes": {"gen_ai.completion": json.dumps([EVENTS[1]])}},
        ],
    ),
}


@pytest.mark.parametrize("form", OLDER)
def test_older_conventions_give_the_same_run(form: str) -> None:
    attributes, events = OLDER[form]
    run = one_run(span(1, None, {"gen_ai.operation.name": "chat", **attributes}, events=events))
    assert [step.message for step in run.steps if step.source == "user"] == ["Pay the invoice."]
    assert [step.message for step in replies(run)] == ["Looking."]
    assert calls([run]) == {("look_up", '{"invoice": 7}'): 1}


def test_traces_of_a_file_are_separate_runs() -> None:
    other_spans = [
        {**fields, "context": {"trace_id": "0x9", "span_id": "0x1"}, "parent_id": None} for fields in SPANS[:1]
    ]
    data = json.dumps([{"trace_id": "a", "spans": SPANS}, {"trace_id": "b", "spans": other_spans}]).encode()
    assert [run.run_notes.run for run in read(data, "opentelemetry")] == [f"0x{TRACE}", "0x9"]


def test_unrelated_spans_are_no_runs() -> None:
    with pytest.raises(UnreadableRecordingError, match="it has no span of"):
        read(json.dumps([span(1, None, {"http.route": "/"})]).encode(), "opentelemetry")


def test_output_between_spans_is_skipped_and_corrupt_spans_counted() -> None:
    first, *rest = PRINTED.split(b"\n}\n")
    data = b"Starting ...\n" + first + b"\n}\nready\n" + b"\n}\n".join(rest).replace(b'"span 4",', b'"span 4"!')
    assert recognized(data) == "opentelemetry"
    [run] = read(data, "opentelemetry")
    assert run.run_notes.unreadable_lines == 1
    assert results([run]) == 1


@given(form=st.sampled_from(sorted(FORMS)), data=st.data())
def test_no_cut_invents_a_call(form: str, data: st.DataObject) -> None:
    assert_a_cut_is_safe(FORMS[form], data.draw(st.integers(0, len(FORMS[form]))), "opentelemetry")


@given(number=st.integers(0, 4), garbage=st.binary(max_size=40))
def test_garbage_line_affects_no_other_line(number: int, garbage: bytes) -> None:
    lines = LINES.split(b"\n")
    lines[number] = garbage.replace(b"\n", b" ")
    assert not calls(read(b"\n".join(lines), "opentelemetry")) - calls(read(LINES, "opentelemetry"))


VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(fields=st.sampled_from([*SPANS, *INFERENCE]), data=st.data())
def test_values_of_wrong_types_raise_no_error(fields: dict[str, JsonValue], data: st.DataObject) -> None:
    attributes = fields["attributes"]
    assert isinstance(attributes, dict)
    key = data.draw(st.sampled_from([*fields, *attributes]))
    value = data.draw(VALUES)
    bad = {**fields, key: value} if key in fields else {**fields, "attributes": {**attributes, key: value}}
    raw = json.dumps([bad, *SPANS]).encode()
    format_of(Recording.of(raw))
    assert read(raw, "opentelemetry")


@pytest.mark.parametrize("number", ["inf", "nan", "1e400", 10**400])
def test_invalid_number_counts_nothing(number: JsonValue) -> None:
    bad = span(3, 1, {**chat([text("Done.")]), "gen_ai.usage.input_tokens": number}, start_time=number)
    run = one_run(bad)
    assert [step.metrics and step.metrics.prompt_tokens for step in replies(run)] == [None]


def test_recorded_spans_have_the_expected_counts() -> None:
    """16 runs, 36 model calls, 22 tool spans; 13 of them are the only record of their call."""
    folder = os.environ.get("TURNWRIGHT_RUNS")
    if not folder:
        pytest.skip("TURNWRIGHT_RUNS names no folder of recorded runs")
    read_runs: list[Trajectory] = []
    for path in (file for part in ("smoltrace", "anyagent") for file in Path(folder, part).rglob("*.json")):
        recording = Recording.of(path.read_bytes(), str(path))
        reader = format_of(recording)
        assert reader is not None
        read_runs.extend(reader.read(recording))
    assert len(read_runs) == 16
    assert sum(len(replies(run)) for run in read_runs) == 36
    assert (sum(calls(read_runs).values()), results(read_runs)) == (22, 22)


def test_log_with_spans_between_output_is_read_only_if_named(tmp_path: Path) -> None:
    (tmp_path / "console.log").write_bytes(b"Starting ...\n" + PRINTED)
    assert [isinstance(run.found, Trajectory) for run in runs([tmp_path / "console.log"])] == [True]
    assert list(runs([tmp_path])) == []
