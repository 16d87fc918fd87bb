"""The decoder of the Responses API: streams as OpenAI sends them, and what gateways make of them."""

import json
from collections.abc import Callable
from itertools import permutations

import pytest
from pydantic import JsonValue
from tests.engine.model.streams import events_in, run

from turnwright.model.http.text_buffer import MAX_CALLS
from turnwright.model.openai_responses.stream import ResponsesStream
from turnwright.model.protocol import (
    ModelError,
    ModelResponse,
    ReasoningDelta,
    ResponseToolCall,
    TextDelta,
    ToolCallDelta,
)
from turnwright_states import Cause, Finish, Usage

from .events import (
    SEARCH,
    Event,
    Item,
    added,
    arguments,
    call,
    completed,
    created,
    decode,
    done,
    failed,
    incomplete,
    kept,
    message,
    ordered,
    reasoning,
    reply,
    sse,
    streamed,
    summary,
    text,
    whole,
)

USED = Usage(input_tokens=25, output_tokens=15, cached_tokens=5, reasoning_tokens=8)


def called(name: str, raw: str = "{}", call_id: str = "call_1") -> ResponseToolCall:
    return ResponseToolCall(name=name, arguments=json.loads(raw), raw=raw, id=call_id)


def failure(*events: Event, more: bytes = b"") -> ModelError:
    with pytest.raises(ModelError) as caught:
        decode(*events, more=more).reply()
    return caught.value


class TestReplies:
    def test_text_streams_in_pieces(self) -> None:
        stream = ResponsesStream()
        assert stream.feed(sse(created(), added(0, message()), text(0, "Hel"))) == [TextDelta("Hel")]
        assert stream.feed(sse(text(0, "lo"))) == [TextDelta("lo")]
        assert stream.feed(sse(done(0, message("Hello")), completed(message("Hello")))) == []
        assert stream.done
        response = stream.reply()
        assert response == ModelResponse(text="Hello", usage=USED)
        assert (response.finish_reason, response.finish) == ("completed", Finish.STOP)

    def test_response_info_has_id_model_and_cached_tokens(self) -> None:
        info = decode(*whole(message("Hi"))).reply().response
        assert info is not None
        assert (info.id, info.model, info.cache_read_input_tokens) == ("resp_1", "gpt-5-mini", 5)
        assert info.time_to_first_chunk is not None

    def test_parallel_calls_keep_their_order_and_stream_arguments(self) -> None:
        stream = ResponsesStream()
        first, second = call("f", '{"a": 1}'), call("g", "{}", "call_2", "fc_2")
        events = [*streamed(0, first, ['{"a"', ": 1}"]), *streamed(1, second)]
        deltas = stream.feed(sse(created(), *events, completed(first, second)))
        assert deltas == [
            ToolCallDelta(0, "f", ""),
            ToolCallDelta(0, "f", '{"a"'),
            ToolCallDelta(0, "f", ": 1}"),
            ToolCallDelta(1, "g", ""),
            ToolCallDelta(1, "g", "{}"),
        ]
        assert stream.reply().calls == (called("f", '{"a": 1}'), called("g", call_id="call_2"))

    def test_reasoning_is_shown_by_the_summary_and_kept_whole(self) -> None:
        item = reasoning("Hm.", "So.", status="completed")
        response = decode(*whole(item, message("Hi"))).reply()
        assert (response.text, response.reasoning) == ("Hi", "Hm.\n\nSo.")
        assert response.reasoning_details == (kept(item),)

    def test_encrypted_reasoning_without_a_summary_is_kept(self) -> None:
        response = decode(*whole(reasoning(), call("f", "{}"))).reply()
        assert (response.reasoning, response.reasoning_details) == ("", (kept(reasoning()),))

    def test_kept_item_is_the_completed_item(self) -> None:
        """Its encrypted content has only begun."""
        begun = reasoning(sealed="begun")
        assert decode(created(), added(0, begun), more=b"").partial.reasoning_details == ()
        assert reply(added(0, begun), done(0, reasoning())).reasoning_details == (kept(reasoning()),)

    @pytest.mark.parametrize("content", ["", None, 5])
    def test_unencrypted_reasoning_does_not_go_back(self, content: JsonValue) -> None:
        item = {**reasoning("Hm."), "encrypted_content": content}
        response = decode(*whole(item, SEARCH, message("Hi"))).reply()
        assert response.reasoning == "Hm."
        assert response.reasoning_details == ({"type": "openai_response", "shown": SEARCH},)

    def test_items_of_hosted_tools_are_kept_in_place(self) -> None:
        two = message("Rain.", item_id="msg_2")
        response = decode(*whole(message("I look."), SEARCH, two)).reply()
        assert (response.text, response.calls) == ("I look.\n\nRain.", ())
        assert response.reasoning_details == (kept(SEARCH), ordered(7, "item", 5))

    def test_the_sources_of_a_text_are_kept(self) -> None:
        cited: JsonValue = {"type": "url_citation", "url": "https://host", "start_index": 0, "end_index": 5}
        part: JsonValue = {"type": "output_text", "text": "Rain.", "annotations": [cited]}
        response = decode(*whole(SEARCH, {**message(), "content": [part]})).reply()
        assert response.reasoning_details == (kept(SEARCH), {"type": "openai_response", "annotations": [cited]})

    def test_two_messages_are_two_paragraphs(self) -> None:
        stream = decode(*whole(message("One."), message("Two.", item_id="msg_2")))
        response = stream.reply()
        assert (response.text, response.reasoning_details) == ("One.\n\nTwo.", ())
        outcome = run(ResponsesStream, sse(*whole(message("One."), message("Two.", item_id="msg_2"))))
        assert outcome[0] == response.text

    def test_message_keeps_the_phase(self) -> None:
        response = decode(*whole(message("I look.", phase="commentary"), call("f", "{}"))).reply()
        assert response.reasoning_details == (ordered({"text": 7, "phase": "commentary"}, "call"),)

    def test_a_refusal_is_the_text(self) -> None:
        refused: Item = {**message(), "content": [{"type": "refusal", "refusal": "I cannot help with that."}]}
        outcome = run(ResponsesStream, sse(*whole(refused)))
        assert outcome[0] == outcome[2].text == "I cannot help with that."
        assert outcome[2].finish is Finish.STOP

    def test_the_reasoning_of_open_models_is_shown(self) -> None:
        item: Item = {"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text", "text": "Hm."}]}
        delta: Event = {"type": "response.reasoning_text.delta", "output_index": 0, "content_index": 0, "delta": "Hm."}
        part: Event = {"type": "response.content_part.done", "output_index": 0, "content_index": 0}
        part["part"] = {"type": "reasoning_text", "text": "Hm."}
        for events in ([added(0, item), delta, part, done(0, item)], [done(0, item)], [part]):
            outcome = run(ResponsesStream, sse(created(), *events, completed()))
            assert (outcome[1], outcome[2].reasoning, outcome[2].reasoning_details) == ("Hm.", "Hm.", ())

    def test_reasoning_with_a_summary_is_shown_once(self) -> None:
        item: Item = {**reasoning("Short."), "content": [{"type": "reasoning_text", "text": "Long."}]}
        assert reply(added(0, item), summary(0, "Short."), done(0, item)).reasoning == "Short."
        assert reply(done(0, item)).reasoning == "Long."


class TestGateways:
    def test_event_ids_may_change(self) -> None:
        """The index says where it belongs."""
        first, second = message("Hello"), call("f", "{}")
        events = [
            added(0, {**message(), "id": "a"}),
            text(0, "Hel", item_id="b"),
            text(0, "lo", item_id="c"),
            done(0, {**first, "id": "d"}),
            added(1, {**second, "id": "e", "arguments": ""}),
            arguments(1, "{}", item_id="f"),
            done(1, {**second, "id": "g"}),
        ]
        response = decode(created(), *events, completed({**first, "id": "h"}, {**second, "id": "i"})).reply()
        assert (response.text, response.calls) == ("Hello", (called("f"),))

    def test_all_items_may_have_the_same_index(self) -> None:
        """The id says which one is meant."""
        items = [message("Hi"), call("f", '{"a": 1}'), call("f", '{"a": 2}', "call_2", "fc_2")]
        events = [{**event, "output_index": 0} for item in items for event in streamed(0, item)]
        response = decode(created(), *events, completed(*items)).reply()
        assert response.text == "Hi"
        assert response.calls == (called("f", '{"a": 1}'), called("f", '{"a": 2}', "call_2"))

    def test_items_may_be_interleaved(self) -> None:
        first, second = call("f", '{"a": 1}'), call("g", '{"b": 2}', "call_2", "fc_2")
        begun = [added(0, {**first, "arguments": ""}), added(1, {**second, "arguments": ""})]
        pieces = [arguments(1, '{"b"'), arguments(0, '{"a"'), arguments(1, ": 2}"), arguments(0, ": 1}")]
        response = reply(*begun, *pieces, done(1, second), done(0, first))
        assert response.calls == (called("f", '{"a": 1}'), called("g", '{"b": 2}', "call_2"))

    def test_the_last_event_has_the_order(self) -> None:
        items = [reasoning(), message("Hi"), call("f", "{}")]
        for row in permutations(range(3)):
            events = [event for number in row for event in streamed(number, items[number])]
            response = decode(created(), *events, completed(*items)).reply()
            assert (response.text, response.calls) == ("Hi", (called("f"),))
            assert response.reasoning_details == (kept(reasoning()),)

    def test_delta_of_an_unannounced_item_counts(self) -> None:
        response = reply(summary(0, "Hm."), text(1, "He"), text(1, "y"), arguments(2, "{}"), done(2, call("f", "{}")))
        assert (response.reasoning, response.text, response.calls) == ("Hm.", "Hey", (called("f"),))

    def test_item_known_from_deltas_only_is_matched_by_id(self) -> None:
        """The last event lists another message before it, which had no event."""
        last = completed(message(item_id="msg_0"), message("Hi"))
        assert decode(created(), text(1, "Hi", item_id="msg_1"), last).reply().text == "Hi"

    def test_items_need_neither_ids_nor_indexes(self) -> None:
        bare = [{**item, "id": None} for item in (message("Hi"), call("f", "{}"), call("g", "{}", "call_2"))]
        begun = [
            added(None, {**bare[0], "content": []}),
            text(None, "H", None),
            text(None, "i", None),
            done(None, bare[0]),
        ]
        calls = [
            event
            for item in bare[1:]
            for event in (added(None, {**item, "arguments": ""}), arguments(None, "{}"), done(None, item))
        ]
        response = reply(*begun, *calls)
        assert (response.text, response.calls) == ("Hi", (called("f"), called("g", call_id="call_2")))

    def test_complete_item_continuing_the_deltas_adds_the_rest(self) -> None:
        outcome = run(ResponsesStream, sse(created(), text(0, "Hel"), done(0, message("Hello")), completed()))
        assert outcome[0] == outcome[2].text == "Hello"
        item = call("f", '{"a": 1}')
        outcome = run(
            ResponsesStream,
            sse(created(), added(0, {**item, "arguments": ""}), arguments(0, '{"a"'), done(0, item), completed()),
        )
        assert (outcome[2].calls, outcome[8]) == ((called("f", '{"a": 1}'),), {0: ("f", '{"a": 1}')})

    def test_complete_item_differing_from_the_deltas_wins(self) -> None:
        """A delta was lost: no tool runs with what is left."""
        outcome = run(ResponsesStream, sse(created(), text(0, "Hlo"), done(0, message("Hello")), completed()))
        assert (outcome[0], outcome[2].text) == ("Hlo", "Hello")
        item = call("f", '{"n": 1000}')
        response = reply(added(0, {**item, "arguments": ""}), arguments(0, '{"n": 1'), arguments(0, "}"), done(0, item))
        assert response.calls == (called("f", '{"n": 1000}'),)

    def test_empty_complete_item_does_not_win(self) -> None:
        response = reply(
            text(0, "Hi"), done(0, message()), added(1, call("f", "")), arguments(1, "{}"), done(1, call("f", ""))
        )
        assert (response.text, response.calls) == ("Hi", (called("f"),))

    def test_part_index_may_differ_in_the_complete_item(self) -> None:
        assert reply(text(0, "He", 1), text(0, "y", 1), done(0, message("Hey"))).text == "Hey"
        assert reply(text(0, "a", 0), text(0, "b", 1), done(0, message("a", "b"))).text == "ab"

    def test_deltas_behind_a_complete_item_are_not_added_again(self) -> None:
        response = reply(done(0, message("Hi")), text(0, "Hi", item_id="msg_1"), done(0, message("Hi")))
        assert response.text == "Hi"
        repeated = done(0, call("f", "{}"))
        assert reply(repeated, arguments(0, "{}", "fc_1"), repeated, added(0, call("f", "{}"))).calls == (called("f"),)

    def test_repeated_event_begins_nothing(self) -> None:
        begun = added(0, call("f", ""))
        assert reply(begun, begun, arguments(0, "{}"), begun, done(0, call("f", "{}"))).calls == (called("f"),)
        assert reply(added(0, message()), added(0, message()), text(0, "Hi")).text == "Hi"

    def test_calls_with_the_same_id_are_both_kept(self) -> None:
        first, second = call("f", '{"a": 1}', "call_0"), call("g", '{"a": 2}', "call_0", "fc_2")
        response = decode(*whole(first, second)).reply()
        assert response.calls == (called("f", '{"a": 1}', "call_0"), called("g", '{"a": 2}', "call_0"))

    def test_all_items_may_have_the_same_id(self) -> None:
        """The place says which one is meant."""
        first, second, third = (call("f", json.dumps({"n": n}), f"call_{n}", "fc") for n in range(3))
        calls = tuple(called("f", json.dumps({"n": n}), f"call_{n}") for n in range(3))
        assert decode(*whole(first, second, third)).reply().calls == calls
        begun = [added(place, {**item, "arguments": ""}) for place, item in enumerate((first, second, third))]
        pieces = [arguments(place, piece, "fc") for piece in ('{"n":', "}") for place in (2, 0, 1)]
        numbers = [arguments(place, f" {place}", "fc") for place in (1, 2, 0)]
        assert decode(created(), *begun, *pieces[:3], *numbers, *pieces[3:], completed()).reply().calls == calls

    def test_arguments_may_come_only_with_the_announcement(self) -> None:
        """The call ran without arguments. In a reply that was cut off, an announced `{}` may not be all of them."""
        assert reply(added(0, call("f", '{"a": 1}'))).calls == (called("f", '{"a": 1}'),)
        assert reply(added(0, call("f", "{}")), arguments(0, '{"a": 1}')).calls == (called("f", '{"a": 1}'),)
        cut_off = decode(created(), added(0, call("f", '{"a": 1}')), incomplete("max_output_tokens")).reply()
        assert cut_off.calls[0].raw == ""

    def test_arguments_may_be_an_object(self) -> None:
        assert reply(done(0, {**call("f", ""), "arguments": {"a": 1}})).calls == (called("f", '{"a": 1}'),)

    def test_usage_may_have_the_names_of_chat_completions(self) -> None:
        usage: Event = {"prompt_tokens": 3, "completion_tokens": 2}
        assert decode(created(), completed(message("Hi"), usage=usage)).reply().usage == Usage(
            input_tokens=3, output_tokens=2
        )

    @pytest.mark.parametrize(
        "odd",
        [
            {},
            {"type": None},
            {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws_1"},
            {
                "type": "response.output_text.annotation.added",
                "output_index": 0,
                "annotation": {"type": "url_citation"},
            },
            {"type": "response.code_interpreter_call_code.delta", "output_index": 0, "delta": "x"},
            {"type": "response.heard_of.next_year.delta", "output_index": 0, "delta": "x"},
            {"type": "response.output_text.delta", "output_index": 0},
            {"type": "response.output_text.delta", "output_index": 0, "delta": ["x"]},
            {"type": "response.output_item.added", "output_index": 0, "item": None},
            {"type": "response.output_item.done", "output_index": 0, "item": {"type": ["message"]}},
            {"type": "response.content_part.added", "output_index": 0, "part": None},
            {"type": "response.in_progress", "response": {"status": "in_progress", "output": []}},
            {"type": "response.created"},
            {"type": "keepalive", "sequence_number": 3},
            {"type": "ping"},
            [],
            "text",
        ],
    )
    def test_unknown_events_are_skipped(self, odd: JsonValue) -> None:
        line = f"data: {json.dumps(odd)}\n\n".encode()
        data = sse(created()) + line + sse(added(0, message())) + line + sse(text(0, "Hi")) + line
        assert run(ResponsesStream, data + sse(completed()))[2] == ModelResponse(text="Hi", usage=USED)

    def test_unknown_item_is_kept(self) -> None:
        item: Item = {"type": "heard_of_next_year", "id": "x_1", "secret": [1]}
        assert reply(added(0, item), done(0, item)).reasoning_details == (kept(item),)

    @pytest.mark.parametrize("kind", ["custom_tool_call", "computer_call", "mcp_approval_request"])
    def test_item_waiting_for_output_is_only_shown(self, kind: str) -> None:
        item: Item = {"type": kind, "id": "x_1", "input": "x"}
        assert reply(done(0, item)).reasoning_details == ({"type": "openai_response", "shown": item},)


class TestFraming:
    WHOLE = sse(*whole(reasoning("Hm."), message("Hé\u2028😀"), call("f", "{}")))

    @pytest.mark.parametrize(
        "spelt",
        [
            lambda data: data.replace(b"\n", b"\r\n"),
            lambda data: data.replace(b"\n", b"\r"),
            lambda data: b"\xef\xbb\xbf" + data,
            lambda data: data.replace(b": ", b":"),
            lambda data: data[:-2],
            lambda data: b": keep-alive\n\n" + data.replace(b"\n\n", b"\n\n: keep-alive\n\n"),
            lambda data: data.replace(b"\n\n", b"\n"),
            lambda data: data + b"data: [DONE]\n\n",
            lambda data: data.replace(b"event: response.completed", b"data: [DONE]\n\nevent: response.completed"),
            lambda data: b"".join(line + b"\n\n" for line in data.split(b"\n") if line.startswith(b"data")),
        ],
    )
    def test_every_spelling_of_the_events_is_read(self, spelt: Callable[[bytes], bytes]) -> None:
        assert run(ResponsesStream, spelt(self.WHOLE))[2] == run(ResponsesStream, self.WHOLE)[2]

    def test_event_name_counts_if_the_json_has_no_type(self) -> None:
        events = whole(message("Hi"))
        data = b"".join(f"event: {event.pop('type')}\ndata: {json.dumps(event)}\n\n".encode() for event in events)
        assert run(ResponsesStream, data)[2] == ModelResponse(text="Hi", usage=USED)

    def test_an_emoji_may_be_cut_in_two(self) -> None:
        events = [created(), text(0, "a\ud83d"), text(0, "\ude00"), done(0, message("a😀")), completed()]
        data = sse(*events, ascii_only=True)
        for pieces in ([data], events_in(data)):
            assert run(ResponsesStream, *pieces)[0] == "a😀"
        half = sse(*events[:2], *events[3:], ascii_only=True)
        assert run(ResponsesStream, half)[0] == run(ResponsesStream, half)[2].text == "a😀"


class TestEnds:
    @pytest.mark.parametrize(
        ("reason", "finish"),
        [
            ("max_output_tokens", Finish.LENGTH),
            ("content_filter", Finish.CONTENT_FILTER),
            ("heard_of_next_year", Finish.LENGTH),
            ("", Finish.LENGTH),
        ],
    )
    def test_incomplete_response_is_a_cut_off_reply(self, reason: str, finish: Finish) -> None:
        response = decode(created(), text(0, "Hi"), incomplete(reason, message("Hi", status="incomplete"))).reply()
        assert (response.text, response.finish, response.usage) == ("Hi", finish, USED)
        assert response.finish_reason == (reason or "incomplete")

    def test_call_cut_off_before_the_arguments_has_none(self) -> None:
        """Not even the empty ones, with which a tool would run."""
        begun, cut = added(0, call("f", "")), call("f", "", status="incomplete")
        for last in (incomplete("max_output_tokens"), incomplete("max_output_tokens", cut)):
            (cut_call,) = decode(created(), begun, last).reply().calls
            assert (cut_call.name, cut_call.arguments, cut_call.raw) == ("f", None, "")
        (whole_one,) = decode(created(), done(0, call("f", "")), incomplete("max_output_tokens")).reply().calls
        assert whole_one.arguments == {}

    def test_nothing_is_read_after_the_end(self) -> None:
        late = sse(text(0, "x"), failed({"code": "server_error", "message": "late"}))
        assert decode(*whole(message("Hi")), more=late).reply().text == "Hi"

    @pytest.mark.parametrize("more", [b"", b"data: [DONE]\n\n", b"event: response.completed\ndata: {\n\n"])
    @pytest.mark.parametrize("last", [text(0, "Hi"), done(0, message("Hi"))])
    def test_stream_without_the_last_event_is_an_interruption(self, last: Event, more: bytes) -> None:
        error = failure(created(), last, more=more)
        assert error.cause is Cause.INTERRUPTED
        assert error.partial is not None
        assert error.partial.text == "Hi"

    def test_the_missing_event_is_named(self) -> None:
        assert "there was no response.completed event" in str(failure(created(), text(0, "Hi")))

    def test_empty_stream_is_an_interruption(self) -> None:
        for nothing in (b"", b": hello\n\n", b"data: [DONE]\n\n"):
            stream = ResponsesStream()
            stream.feed(nothing)
            stream.end()
            assert stream.error is not None
            assert stream.error.cause is Cause.INTERRUPTED

    def test_too_many_calls_are_refused(self) -> None:
        events = (added(number, call("f", "", f"call_{number}", f"fc_{number}")) for number in range(MAX_CALLS + 1))
        assert "calls" in str(failure(created(), *events))


class TestErrors:
    @pytest.mark.parametrize(
        ("code", "words", "cause"),
        [
            ("server_error", "The model produced an error.", Cause.SERVER_ERROR),
            ("rate_limit_exceeded", "Rate limit reached. Please try again in 1.5s.", Cause.RATE_LIMITED),
            ("server_is_overloaded", "Our servers are currently overloaded.", Cause.OVERLOADED),
            ("slow_down", "Slow down.", Cause.OVERLOADED),
            ("context_length_exceeded", "Your input exceeds the context window of this model.", Cause.CONTEXT_OVERFLOW),
            ("insufficient_quota", "You exceeded your current quota.", Cause.PERMISSION),
            (
                "invalid_prompt",
                "Your prompt was flagged as potentially violating our usage policy.",
                Cause.CONTENT_FILTER,
            ),
            ("invalid_prompt", "Invalid prompt.", Cause.BAD_REQUEST),
            ("image_too_large", "The image is too large.", Cause.BAD_REQUEST),
            ("heard_of_next_year", "It failed.", Cause.SERVER_ERROR),
        ],
    )
    def test_failure_has_a_cause_in_any_place(self, code: str, words: str, cause: Cause) -> None:
        error: Event = {"code": code, "message": words}
        flat: Event = {"type": "error", **error, "param": None, "sequence_number": 2}
        nested: Event = {"type": "error", "error": {"type": "x", **error}}
        for event in (failed(error), flat, nested):
            model_error = failure(created(), text(0, "Hi"), event)
            assert (model_error.cause, model_error.status) == (cause, None)
            assert words.rstrip(".") in str(model_error)
            assert model_error.partial is not None
            assert model_error.partial.text == "Hi"

    def test_wait_requested_by_the_provider_is_kept(self) -> None:
        error = failure(failed({"code": "rate_limit_exceeded", "message": "Please try again in 11.054s."}))
        assert error.retry_after == pytest.approx(11.054)

    @pytest.mark.parametrize("error", [None, {}, ""])
    def test_failed_response_without_an_error_is_a_failure(self, error: JsonValue) -> None:
        assert failure(created(), failed(error)).cause is Cause.SERVER_ERROR
        assert "cancelled" in str(failure({**completed(status="cancelled"), "type": "response.cancelled"}))


class TestBodies:
    def test_single_body_is_read_like_a_stream(self) -> None:
        items = (reasoning("Hm."), message("Hi"), call("f", "{}"))
        stream = ResponsesStream()
        stream.feed(json.dumps(completed(*items)["response"], indent=1).encode())
        assert stream.end() == [ReasoningDelta("Hm."), TextDelta("Hi"), ToolCallDelta(0, "f", "{}")]
        assert stream.reply() == decode(*whole(*items)).reply()

    def test_failed_body_has_a_cause(self) -> None:
        stream = ResponsesStream()
        stream.feed(json.dumps(failed({"code": "rate_limit_exceeded", "message": "Wait."})["response"]).encode())
        stream.end()
        assert stream.error is not None
        assert stream.error.cause is Cause.RATE_LIMITED

    @pytest.mark.parametrize("body", [{"status": "queued", "output": []}, {"choices": []}, {"output": None}])
    def test_other_json_is_no_reply(self, body: JsonValue) -> None:
        stream = ResponsesStream()
        stream.feed(json.dumps(body).encode())
        stream.end()
        assert stream.error is not None
        assert "not a reply of the Responses API" in str(stream.error)
