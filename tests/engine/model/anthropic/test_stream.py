"""The decoder of the Messages API: streams of providers, and their deviations from the documentation."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import pytest
from pydantic import JsonValue

from turnwright.model.anthropic.reply_builder import MessageBuilder
from turnwright.model.anthropic.stream import MessagesStream
from turnwright.model.http.text_buffer import MAX_CALLS
from turnwright.model.protocol import (
    ModelError,
    ModelResponse,
    ReasoningDelta,
    ResponseToolCall,
    TextDelta,
    ToolCallDelta,
)
from turnwright_states import Cause, Finish, Usage

Event = dict[str, JsonValue]


def start(content: JsonValue = None, usage: JsonValue = None, **more: JsonValue) -> Event:
    """Begin a message, by default as the API does: no content, and a first token already counted."""
    message: Event = {
        "id": "msg_01G",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": content or [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage or {"input_tokens": 25, "output_tokens": 1},
        **more,
    }
    return {"type": "message_start", "message": message}


def begin(index: JsonValue, kind: str, **fields: JsonValue) -> Event:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}}


def change(index: JsonValue, kind: str, **fields: JsonValue) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def text(index: JsonValue, piece: JsonValue) -> Event:
    return change(index, "text_delta", text=piece)


def thinking(index: JsonValue, piece: JsonValue) -> Event:
    return change(index, "thinking_delta", thinking=piece)


def signature(index: JsonValue, piece: JsonValue) -> Event:
    return change(index, "signature_delta", signature=piece)


def arguments(index: JsonValue, piece: JsonValue) -> Event:
    return change(index, "input_json_delta", partial_json=piece)


def stop(index: JsonValue) -> Event:
    return {"type": "content_block_stop", "index": index}


def tool(index: JsonValue, name: str, call_id: str, *pieces: str, start_input: JsonValue = None) -> list[JsonValue]:
    """One call of a tool of ours, whole."""
    begun = begin(index, "tool_use", id=call_id, name=name, input=start_input or {})
    return [begun, *(arguments(index, piece) for piece in pieces), stop(index)]


def end(reason: JsonValue = "end_turn", usage: JsonValue = None) -> Event:
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}


STOP: Event = {"type": "message_stop"}
PING: Event = {"type": "ping"}
HI: list[JsonValue] = [begin(0, "text", text=""), text(0, "Hi"), stop(0)]


def sse(*events: JsonValue) -> bytes:
    """Encode events, each with its name as the API sends it."""
    return b"".join(
        f"event: {event.get('type') if isinstance(event, dict) else 'x'}\ndata: {json.dumps(event)}\n\n".encode()
        for event in events
    )


def decode(data: bytes | Iterable[bytes]) -> MessagesStream:
    stream = MessagesStream()
    for piece in [data] if isinstance(data, bytes) else data:
        stream.feed(piece)
    stream.end()
    return stream


def reply(*events: JsonValue) -> ModelResponse:
    """Decode a reply between a beginning and an end that are as usual."""
    return decode(sse(start(), *events, end(), STOP)).reply()


def failure(data: bytes) -> ModelError:
    with pytest.raises(ModelError) as caught:
        decode(data).reply()
    return caught.value


def called(name: str, arguments: Mapping[str, JsonValue] | None, raw: str, call_id: str) -> ResponseToolCall:
    return ResponseToolCall(name=name, arguments=arguments, raw=raw, id=call_id)


class TestStreams:
    """Whole streams, as the API sends them."""

    def test_text_streams_in_deltas(self) -> None:
        stream = MessagesStream()
        assert stream.feed(sse(start(), begin(0, "text", text=""), PING)) == []
        assert stream.feed(sse(text(0, "Hello"), text(0, "!"))) == [TextDelta("Hello"), TextDelta("!")]
        assert stream.feed(sse(stop(0), end(usage={"output_tokens": 15}))) == []
        assert stream.complete
        assert not stream.done
        assert stream.feed(sse(STOP)) == []
        assert stream.done
        assert stream.reply() == ModelResponse(text="Hello!", usage=Usage(input_tokens=25, output_tokens=15))
        assert stream.reply().finish_reason == "end_turn"

    def test_tool_call_after_text_is_read(self) -> None:
        pieces = ("", '{"location":', ' "San', ' Francisco, CA"', "}")
        response = decode(
            sse(start(), *HI, *tool(1, "get_weather", "toolu_01", *pieces), end("tool_use"), STOP)
        ).reply()
        assert response.text == "Hi"
        assert response.calls == (
            called("get_weather", {"location": "San Francisco, CA"}, "".join(pieces), "toolu_01"),
        )
        assert (response.finish, response.finish_reason) == (Finish.STOP, "tool_use")

    def test_parallel_calls_stand_in_their_order(self) -> None:
        response = reply(*tool(0, "f", "a", '{"x":', "1}"), *tool(1, "g", "b", ""), *tool(2, "f", "c", '{"x": 2}'))
        assert response.calls == (
            called("f", {"x": 1}, '{"x":1}', "a"),
            called("g", {}, "", "b"),
            called("f", {"x": 2}, '{"x": 2}', "c"),
        )

    def test_thinking_with_a_signature_is_read(self) -> None:
        stream = MessagesStream()
        deltas = stream.feed(
            sse(
                start(),
                begin(0, "thinking", thinking="", signature=""),
                thinking(0, "Let me "),
                thinking(0, "see."),
                signature(0, "EqQBCgIYAhIM"),
                stop(0),
                begin(1, "text", text=""),
                text(1, "12,231"),
                stop(1),
                end(),
                STOP,
            )
        )
        assert deltas == [ReasoningDelta("Let me "), ReasoningDelta("see."), TextDelta("12,231")]
        response = stream.reply()
        assert (response.text, response.reasoning) == ("12,231", "Let me see.")
        assert response.reasoning_details == (
            {"type": "thinking", "thinking": "Let me see.", "signature": "EqQBCgIYAhIM"},
        )

    def test_web_search_is_no_call_and_is_kept(self) -> None:
        result: Event = {"type": "web_search_result", "title": "T", "url": "https://example.com", "page_age": None}
        citation: Event = {"type": "web_search_result_location", "cited_text": "sunny"}
        response = reply(
            begin(0, "text", text=""),
            text(0, "I'll check."),
            stop(0),
            begin(1, "server_tool_use", id="srvtoolu_01", name="web_search", input={}),
            arguments(1, ""),
            arguments(1, '{"query": "weather"}'),
            stop(1),
            begin(2, "web_search_tool_result", tool_use_id="srvtoolu_01", content=[result]),
            stop(2),
            begin(3, "text", text="", citations=[]),
            change(3, "citations_delta", citation=citation),
            text(3, " It is sunny."),
            stop(3),
        )
        call = {"type": "server_tool_use", "id": "srvtoolu_01", "name": "web_search", "input": {"query": "weather"}}
        search = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_01", "content": [result]}
        order = {"type": "block_order", "blocks": [11, "thinking", "thinking", 13]}
        assert (response.text, response.calls) == ("I'll check. It is sunny.", ())
        assert response.reasoning_details == (call, search, order)

    def test_hosted_call_without_a_result_is_not_kept(self) -> None:
        """The API rejects it when it is sent back: a reply may be cut off in between, and a result may come alone."""
        hosted_call = begin(0, "server_tool_use", id="a", name="web_search", input={})
        hosted_result = begin(1, "web_search_tool_result", tool_use_id="b", content=[])
        assert reply(hosted_call, stop(0), hosted_result, stop(1), text(2, "Hi.")).reasoning_details == ()

    def test_refusal_finishes_as_content_filter(self) -> None:
        details: Event = {"type": "refusal", "category": "cyber", "explanation": None}
        last: Event = {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": details}}
        response = decode(sse(start(), *HI, last, STOP)).reply()
        assert (response.text, response.finish, response.finish_reason) == ("Hi", Finish.CONTENT_FILTER, "refusal")

    def test_error_in_the_middle_has_the_partial_reply(self) -> None:
        overloaded: Event = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        error = failure(sse(start(), *HI, *tool(1, "f", "a", '{"x'), overloaded))
        assert error.cause is Cause.OVERLOADED
        assert "Overloaded" in str(error)
        assert error.partial == ModelResponse(
            text="Hi", calls=(called("f", None, '{"x', "a"),), usage=Usage(input_tokens=25, output_tokens=1)
        )


class TestUsage:
    @pytest.mark.parametrize(
        ("first", "later", "expected"),
        [
            ({"input_tokens": 25, "output_tokens": 1}, [{"output_tokens": 15}], (25, 15)),
            ({"input_tokens": 25, "output_tokens": 3}, [{"input_tokens": 90, "output_tokens": 15}], (90, 15)),
            ({"input_tokens": 25, "output_tokens": 1}, [{"input_tokens": None, "output_tokens": 15}], (25, 15)),
            ({"input_tokens": 25, "output_tokens": 1}, [{"output_tokens": 5}, {"output_tokens": 15}], (25, 15)),
            ({"input_tokens": 25, "output_tokens": 1}, [{"output_tokens": 15}, None], (25, 15)),
            ({"input_tokens": 0, "output_tokens": 0}, [{"input_tokens": 25, "output_tokens": 15}], (25, 15)),
            # Envoy's gateway and SGLang.
            ({"input_tokens": 25, "output_tokens": 1}, [{"input_tokens": 0, "output_tokens": 15}], (25, 15)),
            ({"input_tokens": 25, "output_tokens": 1}, [None, "many", []], (25, 1)),
            ({"input_tokens": "25", "output_tokens": 1.0}, [{"output_tokens": True}], (25, 1)),
        ],
    )
    def test_last_count_wins_and_counts_are_not_summed(
        self, first: JsonValue, later: list[JsonValue], expected: tuple[int, int]
    ) -> None:
        ends = [end(usage=usage) for usage in later]
        read_usage = decode(sse(start(usage=first), *HI, *ends, STOP)).reply().usage
        assert read_usage == Usage(input_tokens=expected[0], output_tokens=expected[1])

    def test_input_tokens_include_cached_tokens(self) -> None:
        usage: Event = {
            "input_tokens": 3,
            "cache_creation_input_tokens": 200,
            "cache_read_input_tokens": 1000,
            "output_tokens": 1,
        }
        expected = Usage(input_tokens=1203, output_tokens=1, cached_tokens=1000)
        assert decode(sse(start(usage=usage), *HI, end(), STOP)).reply().usage == expected

    def test_usage_may_stand_inside_the_delta(self) -> None:
        last: Event = {"type": "message_delta", "delta": {"stop_reason": "end_turn", "usage": {"output_tokens": 15}}}
        assert decode(sse(start(), last, STOP)).reply().usage == Usage(input_tokens=25, output_tokens=15)

    def test_usage_without_any_number_is_none(self) -> None:
        assert decode(sse({"type": "message_start", "message": {}}, *HI, end(), STOP)).reply().usage is None

    @pytest.mark.parametrize("kind", ["ping", "content_block_stop", "x", ["message_delta"]])
    def test_usage_in_other_events_is_ignored(self, kind: JsonValue) -> None:
        wrong: Event = {"usage": {"input_tokens": 99, "output_tokens": 99}, "stop_reason": "refusal"}
        odd_event: Event = {"type": kind, "delta": wrong, "message": wrong, **wrong}
        response = decode(sse(start(), odd_event, *HI, end(), odd_event, STOP)).reply()
        assert response == decode(sse(start(), *HI, end(), STOP)).reply()

    def test_message_stop_may_count_last(self) -> None:
        last: Event = {**STOP, "usage": {"output_tokens": 15}}
        assert decode(sse(start(), *HI, end(), last)).reply().usage == Usage(input_tokens=25, output_tokens=15)


class TestCalls:
    @pytest.mark.parametrize("pieces", [(), ("",), ("", ""), ("{}",), (" ",)])
    def test_no_arguments_are_an_empty_object(self, pieces: tuple[str, ...]) -> None:
        (call,) = reply(*tool(0, "f", "a", *pieces)).calls
        assert call.arguments == {}

    def test_complete_input_counts_without_pieces(self) -> None:
        for pieces in ((), ("",)):
            (call,) = reply(*tool(0, "f", "a", *pieces, start_input={"x": "é"})).calls
            assert (call.arguments, call.raw) == ({"x": "é"}, '{"x": "é"}')

    def test_pieces_count_instead_of_the_input(self) -> None:
        (call,) = reply(*tool(0, "f", "a", '{"x": 2}', start_input={"x": 1})).calls
        assert (call.arguments, call.raw) == ({"x": 2}, '{"x": 2}')

    def test_misplaced_objects_and_texts_are_read_as_arguments(self) -> None:
        (call,) = reply(begin(0, "tool_use", id="a", name="f", input={}), arguments(0, {"x": 1})).calls
        assert call.arguments == {"x": 1}
        (call,) = reply(*tool(0, "f", "a", start_input='{"x": 1}')).calls
        assert call.arguments == {"x": 1}

    @pytest.mark.parametrize("raw", ['{"x": "y', "{", "[1]", "null", '{"x": NaN}', '{"x": 1}}'])
    def test_incomplete_arguments_do_not_run(self, raw: str) -> None:
        response = decode(sse(start(), *tool(0, "f", "a", raw), end("max_tokens"), STOP)).reply()
        assert response.calls == (called("f", None, raw, "a"),)
        assert response.finish is Finish.LENGTH

    def test_calls_may_be_interleaved(self) -> None:
        response = reply(
            begin(0, "tool_use", id="a", name="f", input={}),
            begin(1, "tool_use", id="b", name="g", input={}),
            arguments(0, '{"x"'),
            arguments(1, '{"y"'),
            arguments(0, ": 1}"),
            arguments(1, ": 2}"),
            stop(1),
            stop(0),
        )
        assert response.calls == (called("f", {"x": 1}, '{"x": 1}', "a"), called("g", {"y": 2}, '{"y": 2}', "b"))

    @pytest.mark.parametrize("index", [None, 0, 7, "x", -1, 1.5, True])
    @pytest.mark.parametrize("stopped", [True, False])
    def test_blocks_with_the_same_or_no_index_are_kept_apart(self, index: JsonValue, stopped: bool) -> None:
        events = [*tool(index, "f", "a", '{"x"', ": 1}"), *tool(index, "g", "b", "{}"), *tool(index, "g", "c")]
        response = reply(*(event for event in events if stopped or event != stop(index)))
        assert response.calls == (
            called("f", {"x": 1}, '{"x": 1}', "a"),
            called("g", {}, "{}", "b"),
            called("g", {}, "", "c"),
        )

    def test_an_index_may_be_missing_everywhere(self) -> None:
        events: list[JsonValue] = [*HI, *tool(1, "f", "a", "{", "}"), begin(2, "text", text=""), text(2, "!")]
        response = reply(
            *(
                {key: value for key, value in event.items() if key != "index"}
                for event in events
                if isinstance(event, dict)
            )
        )
        assert (response.text, response.calls) == ("Hi!", (called("f", {}, "{}", "a"),))

    def test_block_begun_twice_is_a_single_call(self) -> None:
        begun = begin(0, "tool_use", id="a", name="f", input={})
        assert reply(begun, begun, arguments(0, "{}"), stop(0)).calls == (called("f", {}, "{}", "a"),)

    def test_calls_without_an_id_are_all_kept(self) -> None:
        assert len(reply(*tool(0, "f", "", "{}"), *tool(0, "f", "", "{}")).calls) == 2

    def test_call_without_id_name_and_input_is_dropped(self) -> None:
        assert reply(begin(0, "tool_use", id=None, name=None, input=None), stop(0)).calls == ()

    @pytest.mark.parametrize(
        "kind",
        ["server_tool_use", "mcp_tool_use", "web_search_tool_result", "code_execution_tool_result", "new_next_year"],
    )
    @pytest.mark.parametrize("index", [1, None, 0])
    def test_foreign_block_leaves_nothing_in_the_reply(self, kind: str, index: JsonValue) -> None:
        response = reply(
            *tool(0, "f", "a", "{}"),
            begin(index, kind, id="b", name="g", input={"q": 1}, text="x", thinking="x", signature="x"),
            arguments(index, '{"q": 2}'),
            text(index, "x"),
            stop(index),
            arguments(index, '{"q": 3}'),
            *tool(2, "f", "c", "{}"),
        )
        assert response.calls == (called("f", {}, "{}", "a"), called("f", {}, "{}", "c"))
        assert (response.text, response.reasoning, response.reasoning_details) == ("", "", ())

    def test_arguments_under_a_wrong_index_belong_to_the_open_call(self) -> None:
        response = reply(*HI, begin(1, "tool_use", id="a", name="f", input={}), arguments(0, "{"), arguments(9, "}"))
        assert response.calls == (called("f", {}, "{}", "a"),)

    def test_arguments_of_no_call_are_left_out(self) -> None:
        response = reply(arguments(0, "{}"), *HI, arguments(0, "{}"), *tool(1, "f", "a", "{}"), arguments(5, "{}"))
        assert response.calls == (called("f", {}, "{}", "a"),)


class TestThinking:
    def test_a_signature_may_come_in_pieces_or_with_the_block(self) -> None:
        for events in (
            [begin(0, "thinking", thinking="hm"), signature(0, "ab"), signature(0, "cd")],
            [begin(0, "thinking", thinking="hm", signature="abcd")],
            [begin(0, "thinking", thinking="hm", signature="ab"), stop(0), signature(0, "cd")],
            [begin(0, "thinking", thinking="hm", signature="abcd"), signature(0, "abcd")],
        ):
            detail = {"type": "thinking", "thinking": "hm", "signature": "abcd"}
            assert reply(*events).reasoning_details == (detail,)

    def test_thinking_without_a_signature_is_not_sent_back(self) -> None:
        response = reply(begin(0, "thinking", thinking="", signature=""), thinking(0, "hm"), stop(0))
        assert (response.reasoning, response.reasoning_details) == ("hm", ())

    def test_hidden_thinking_keeps_the_signature(self) -> None:
        response = reply(begin(0, "thinking", thinking="", signature=""), signature(0, "sig"), stop(0))
        assert response.reasoning == ""
        assert response.reasoning_details == ({"type": "thinking", "thinking": "", "signature": "sig"},)

    def test_details_keep_their_order_and_encrypted_details_are_whole(self) -> None:
        response = reply(
            begin(0, "redacted_thinking", data="EmwKAhgB", extra=1),
            stop(0),
            begin(1, "thinking", thinking="", signature=""),
            thinking(1, "hm"),
            signature(1, "sig"),
            stop(1),
            begin(2, "redacted_thinking", data="EvoK"),
            stop(2),
            *tool(3, "f", "a"),
            begin(4, "thinking", thinking="so", signature="2"),
        )
        assert response.reasoning == "hmso"
        assert response.reasoning_details == (
            {"type": "redacted_thinking", "data": "EmwKAhgB", "extra": 1},
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            {"type": "redacted_thinking", "data": "EvoK"},
            {"type": "thinking", "thinking": "so", "signature": "2"},
            {"type": "block_order", "blocks": ["thinking", "thinking", "thinking", "call", "thinking"]},
        )

    def test_signature_of_another_block_is_no_thinking(self) -> None:
        assert reply(begin(0, "text", text="a", signature="x"), signature(0, "y")).reasoning_details == ()


class TestBlocks:
    def test_content_may_already_stand_in_the_beginning(self) -> None:
        content: list[JsonValue] = [
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            {"type": "text", "text": "a"},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}, "caller": {"type": "code_execution"}},
            {"type": "server_tool_use", "id": "b", "name": "g", "input": {"x": 1}},
        ]
        stream = MessagesStream()
        begun = start(content, stop_reason="tool_use")
        assert stream.feed(sse(begun)) == [ReasoningDelta("hm"), TextDelta("a"), ToolCallDelta(0, "f", "")]
        assert stream.feed(sse(text(1, "b"), end(None), STOP)) == [TextDelta("b")]
        response = stream.reply()
        assert response.text == "ab"
        assert response.calls == (called("f", {"x": 1}, '{"x": 1}', "a"),)
        assert response.reasoning_details == ({"type": "thinking", "thinking": "hm", "signature": "sig"},)
        assert response.finish_reason == "tool_use"

    def test_block_repeated_from_the_beginning_is_the_same_call(self) -> None:
        content: list[JsonValue] = [{"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}]
        response = decode(sse(start(content), *tool(0, "f", "a", '{"x": 1}'), end("tool_use"), STOP)).reply()
        assert response.calls == (called("f", {"x": 1}, '{"x": 1}', "a"),)

    def test_block_may_begin_with_the_whole_text(self) -> None:
        stream = MessagesStream()
        assert stream.feed(sse(start(), begin(0, "text", text="Hi"), text(0, "!"))) == [TextDelta("Hi"), TextDelta("!")]

    def test_interleaved_texts_are_joined_by_block(self) -> None:
        response = reply(begin(0, "text"), begin(1, "text"), text(0, "a"), text(1, "c"), text(0, "b"), text(1, "d"))
        assert response.text == "abcd"

    def test_delta_without_a_block_start_counts(self) -> None:
        response = reply(thinking(0, "h"), thinking(0, "m"), signature(0, "s"), text(1, "a"), text(None, "b"))
        assert (response.reasoning, response.text) == ("hm", "ab")
        assert response.reasoning_details == ({"type": "thinking", "thinking": "hm", "signature": "s"},)

    def test_a_delta_counts_in_a_block_of_another_kind(self) -> None:
        response = reply(
            begin(0, "text", text=""), thinking(0, "hm"), text(0, "a"), *tool(1, "f", "a", "{}"), text(1, "b")
        )
        assert (response.reasoning, response.text) == ("hm", "ab")
        assert response.calls == (called("f", {}, "{}", "a"),)

    def test_delta_after_a_foreign_block_counts(self) -> None:
        for index in (0, None):
            assert reply(begin(index, "server_tool_use"), stop(index), text(index, "a")).text == "a"

    def test_delta_without_a_type_is_known_by_the_field(self) -> None:
        begun = begin(0, "tool_use", id="a", name="f")
        pieces: list[JsonValue] = [{"thinking": "hm"}, {"type": None, "text": "a"}, {"partial_json": "{}"}]
        response = reply(begun, *({"type": "content_block_delta", "index": 0, "delta": piece} for piece in pieces))
        assert (response.reasoning, response.text, response.calls[0].raw) == ("hm", "a", "{}")

    @pytest.mark.parametrize(
        "odd",
        [
            PING,
            {"type": "ping", "index": 0, "delta": {"type": "text_delta", "text": "x"}},
            {"type": "vertex_event"},
            {"type": None},
            {"type": 5, "delta": 5},
            {},
            [],
            None,
            "text",
            5,
            {"type": "content_block_start"},
            {"type": "content_block_start", "index": 0, "content_block": None},
            {"type": "content_block_start", "index": {}, "content_block": {"type": ["text"]}},
            {"type": "content_block_delta"},
            {"type": "content_block_delta", "index": 0, "delta": None},
            {"type": "content_block_delta", "index": 0, "delta": []},
            {"type": "content_block_stop"},
            {"type": "content_block_stop", "index": []},
            {"type": "message_start"},
            {"type": "message_start", "message": "x"},
            {"type": "message_delta"},
            {"type": "message_delta", "delta": "x", "usage": "x"},
            begin(0, "compaction", content=None),
            begin(3, "redacted_thinking", data=None),
            change(4, "compaction_delta", content="x"),
            change(4, "citations_delta", citation={"type": "char_location"}),
            change(4, "text_delta", text=None),
            change(4, "thinking_delta", thinking=["x"]),
            change(4, "input_json_delta", partial_json=None),
        ],
    )
    def test_an_event_may_lack_anything(self, odd: JsonValue) -> None:
        response = reply(odd, begin(4, "text", text=None), text(4, "Hi"), odd, stop(4), odd)
        assert response == ModelResponse(text="Hi", usage=Usage(input_tokens=25, output_tokens=1))

    def test_event_name_counts_if_the_json_has_no_type(self) -> None:
        data = b"".join(
            f"event: {event.pop('type')}\ndata: {json.dumps(event)}\n\n".encode()
            for event in [start(), begin(0, "text"), text(0, "Hi"), PING | {}, end("max_tokens"), STOP | {}]
        )
        stream = decode(data)
        assert stream.done
        assert stream.reply().text == "Hi"
        assert stream.reply().finish is Finish.LENGTH

    def test_the_type_counts_before_the_name(self) -> None:
        data = sse(start(), *HI, end(), STOP)
        assert decode(data.replace(b"event: content_block_delta", b"event: ping")).reply().text == "Hi"
        assert decode(
            b"".join(b"data: " + line[6:] + b"\n\n" for line in data.split(b"\n") if line[:1] == b"d")
        ).complete

    def test_event_name_alone_may_end_the_message(self) -> None:
        assert decode(sse(start(), *HI) + b"event: message_stop\n\n").reply().text == "Hi"


class TestFraming:
    WHOLE = sse(start(), *HI, begin(1, "text"), text(1, " é\u2028😀"), stop(1), end(), STOP)

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
            lambda data: data.replace(b"data:", b"id: 1\ndata:"),
            lambda data: data + b"data: [DONE]\n\n",
            lambda data: data.replace(b"event: message_stop", b"data: [DONE]\n\nevent: message_stop"),
        ],
    )
    def test_every_way_to_write_the_events_is_read(self, spelt: Callable[[bytes], bytes]) -> None:
        assert decode(spelt(self.WHOLE)).reply().text == "Hi é\u2028😀"

    def test_an_emoji_may_be_cut_in_two(self) -> None:
        stream = MessagesStream()
        assert stream.feed(sse(start(), begin(0, "text"), text(0, "a\ud83d"))) == [TextDelta("a")]
        assert stream.feed(sse(text(0, "\ude00"), end(), STOP)) == [TextDelta("😀")]
        assert stream.reply().text == "a😀"

    def test_non_json_data_is_skipped(self) -> None:
        odd = b"event: content_block_delta\ndata: PROCESSING\n\ndata:\n\ndata: " + b"[" * 100_000 + b"\n\n"
        assert decode(sse(start()) + odd + sse(*HI, end(), STOP)).reply().text == "Hi"

    def test_truncated_json_event_breaks_the_reply(self) -> None:
        """A reply without it is another reply."""
        stream = decode(sse(start()) + b'event: content_block_delta\ndata: {"type\n\n' + sse(*HI, end(), STOP))
        assert (stream.complete, stream.error and stream.error.cause) == (False, Cause.INTERRUPTED)


class TestEnds:
    @pytest.mark.parametrize(
        ("word", "finish"),
        [
            ("end_turn", Finish.STOP),
            ("tool_use", Finish.STOP),
            ("stop_sequence", Finish.STOP),
            ("pause_turn", Finish.LENGTH),
            ("new_next_year", Finish.STOP),
            ("max_tokens", Finish.LENGTH),
            ("model_context_window_exceeded", Finish.LENGTH),
            ("refusal", Finish.CONTENT_FILTER),
            ("sensitive", Finish.CONTENT_FILTER),
        ],
    )
    def test_the_stop_reason_is_reduced_and_the_providers_word_is_kept(self, word: str, finish: Finish) -> None:
        response = decode(sse(start(), *HI, end(word), STOP)).reply()
        assert (response.finish, response.finish_reason) == (finish, word)

    def test_last_non_null_stop_reason_wins(self) -> None:
        ends = [end(word) for word in ("end_turn", "max_tokens", None, "", 5)]
        assert decode(sse(start(), *HI, *ends, STOP)).reply().finish_reason == "max_tokens"

    @pytest.mark.parametrize("last", [[end()], [STOP], [end(None), STOP], [end(), PING]])
    def test_a_stop_reason_or_message_stop_is_enough(self, last: list[JsonValue]) -> None:
        stream = decode(sse(start(), *HI, *last))
        assert stream.complete
        assert stream.reply().text == "Hi"

    def test_nothing_is_read_after_message_stop(self) -> None:
        stream = decode(sse(start(), *HI, end(), STOP, text(0, "x"), {"type": "error", "error": "late"}))
        assert stream.reply().text == "Hi"

    def test_events_after_the_stop_reason_count(self) -> None:
        assert decode(sse(start(), end(), *HI)).reply().text == "Hi"

    @pytest.mark.parametrize("last", [[], [end(None)], [PING], [stop(0)]])
    @pytest.mark.parametrize("done", [b"", b"data: [DONE]\n\n"])
    def test_end_without_stop_reason_and_message_stop_is_an_interruption(
        self, last: list[JsonValue], done: bytes
    ) -> None:
        error = failure(sse(start(), *HI, *last) + done)
        assert error.cause is Cause.INTERRUPTED
        assert error.partial == ModelResponse(text="Hi", usage=Usage(input_tokens=25, output_tokens=1))
        assert "no stop reason" in str(error)

    @pytest.mark.parametrize("nothing", [b"", b"\n\n", b": hello\n\n", sse(PING), b"data: [DONE]\n\n", b"data: {"])
    def test_empty_stream_is_an_interruption(self, nothing: bytes) -> None:
        assert failure(nothing).cause is Cause.INTERRUPTED

    def test_done_ends_a_reply_with_a_stop_reason(self) -> None:
        stream = MessagesStream()
        stream.feed(sse(start(), *HI) + b"data: [DONE]\n\n")
        assert not stream.done
        stream.feed(sse(end()) + b"data: [DONE]\n\n")
        assert stream.done
        assert stream.complete


class TestErrors:
    @pytest.mark.parametrize(
        "broken",
        [
            b'event: error\ndata: {"type": "error", "error": {"type": "api_error", "message": "boom"}}\n\n',
            b'data: {"type": "error", "error": {"message": "boom"}, "request_id": "req_1"}\n\n',
            b'data: {"error": {"message": "boom"}}\n\n',
            b'data: {"type": "error", "message": "boom"}\n\n',
            b'event: error\ndata: {"message": "boom"}\n\n',
            b"event: error\ndata: boom\n\n",
            b'{"type": "error", "error": {"message": "boom"}}\n\n',
        ],
    )
    @pytest.mark.parametrize("reason", [None, "end_turn"])
    def test_an_error_at_any_point_is_raised_with_the_partial_reply(self, broken: bytes, reason: str | None) -> None:
        data = sse(start(), *HI, end(reason)) + broken + sse(text(0, "x"), STOP)
        error = failure(data)
        assert "boom" in str(error)
        assert error.cause is Cause.SERVER_ERROR
        assert error.partial == ModelResponse(text="Hi", usage=Usage(input_tokens=25, output_tokens=1))
        assert not decode(data).complete

    @pytest.mark.parametrize(
        ("kind", "cause"),
        [
            ("overloaded_error", Cause.OVERLOADED),
            ("rate_limit_error", Cause.RATE_LIMITED),
            ("timeout_error", Cause.TIMEOUT),
            ("authentication_error", Cause.AUTHENTICATION),
            ("permission_error", Cause.PERMISSION),
            ("invalid_request_error", Cause.BAD_REQUEST),
            ("api_error", Cause.SERVER_ERROR),
        ],
    )
    def test_the_cause_is_read_from_the_error(self, kind: str, cause: Cause) -> None:
        assert failure(sse({"type": "error", "error": {"type": kind, "message": "boom"}})).cause is cause

    def test_error_of_a_hosted_tool_is_no_error_of_the_reply(self) -> None:
        content: Event = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
        assert reply(begin(0, "web_search_tool_result", tool_use_id="b", content=content), stop(0)).text == ""

    def test_secrets_are_not_quoted(self) -> None:
        stream = MessagesStream(secrets=["sk-ant-1234"])
        stream.feed(sse({"type": "error", "error": {"message": f"{'x' * 195} sk-ant-1234"}}))
        assert "sk-ant" not in str(stream.error)


class TestBodies:
    BODY: ClassVar[Event] = {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 25, "output_tokens": 15},
    }

    @pytest.mark.parametrize("lacks", ["", "type", "usage", "stop_reason"])
    def test_a_whole_message_instead_of_a_stream_is_understood(self, lacks: str) -> None:
        body = {key: value for key, value in self.BODY.items() if key != lacks}
        stream = MessagesStream()
        assert stream.feed(b"\n " + json.dumps(body, indent=2).encode()) == []
        assert stream.end() == [ReasoningDelta("hm"), TextDelta("Hi"), ToolCallDelta(0, "f", "")]
        response = stream.reply()
        assert (response.text, response.reasoning) == ("Hi", "hm")
        assert response.calls == (called("f", {"x": 1}, '{"x": 1}', "a"),)
        assert response.reasoning_details == ({"type": "thinking", "thinking": "hm", "signature": "sig"},)
        assert response.usage == (None if lacks == "usage" else Usage(input_tokens=25, output_tokens=15))
        assert response.finish_reason == (None if lacks == "stop_reason" else "tool_use")

    def test_a_whole_message_may_come_as_an_event(self) -> None:
        assert decode(b"data: " + json.dumps(self.BODY).encode()).reply().text == "Hi"

    def test_whole_message_repeating_the_events_is_left_out(self) -> None:
        assert decode(sse(start(), *HI, self.BODY)).reply() == ModelResponse(
            text="Hi", usage=Usage(input_tokens=25, output_tokens=15)
        )

    def test_content_may_be_a_text(self) -> None:
        assert decode(json.dumps(self.BODY | {"content": "Hi"}).encode()).reply().text == "Hi"

    def test_truncated_message_is_interrupted(self) -> None:
        assert failure(json.dumps(self.BODY).encode()[:-1]).cause is Cause.INTERRUPTED

    def test_events_without_the_data_prefix_are_understood(self) -> None:
        events = [start(), *HI, end()]
        assert decode("".join(json.dumps(event) + "\n" for event in events).encode()).reply().text == "Hi"
        assert decode(json.dumps(events).encode()).reply().text == "Hi"
        assert failure(json.dumps(start()).encode()).cause is Cause.INTERRUPTED

    @pytest.mark.parametrize(
        "body",
        [
            {"type": "error", "error": {"type": "overloaded_error", "message": "boom"}, "request_id": "req_1"},
            {"type": "error", "message": "boom"},
            {"error": {"message": "boom"}},
            [{"error": {"message": "boom"}}],
        ],
    )
    def test_an_error_body_is_an_error(self, body: JsonValue) -> None:
        error = failure(json.dumps(body).encode())
        assert error.cause in {Cause.SERVER_ERROR, Cause.OVERLOADED}
        assert "boom" in str(error)

    @pytest.mark.parametrize("body", [b"{}", b"[]", b'{"detail": "what?"}', b"[1]", b'{"choices": []}'])
    def test_other_json_is_refused(self, body: bytes) -> None:
        error = failure(body)
        assert error.cause is Cause.REJECTED
        assert "not a reply of the Messages API" in str(error)

    @pytest.mark.parametrize("page", [b"<!doctype html><title>Hello</title>", b"Hello there", b"<p>Hello" * 9999])
    def test_a_page_is_refused(self, page: bytes) -> None:
        error = failure(page)
        assert error.cause is Cause.REJECTED
        assert "Hello" in str(error)


class TestBounds:
    """No server can fill the memory, by whatever it repeats."""

    def test_an_event_is_bounded(self) -> None:
        stream = MessagesStream(max_event=1000)
        stream.feed(sse(*HI) + b"data: " + b"x" * 1000)
        assert stream.done
        with pytest.raises(ModelError, match="an event is longer than 1,000 bytes") as caught:
            stream.reply()
        assert (caught.value.cause, caught.value.partial) == (Cause.REJECTED, ModelResponse(text="Hi"))

    def test_a_body_is_bounded(self) -> None:
        stream = MessagesStream(max_event=1000)
        stream.feed(b"{" + b" " * 1000)
        with pytest.raises(ModelError, match="longer than 1,000 bytes"):
            stream.reply()

    @pytest.mark.parametrize(
        "event",
        [
            lambda _: text(0, "x" * 400),
            lambda _: thinking(0, "x" * 400),
            lambda number: signature(0, "x" * (400 + number)),
            lambda number: begin(number, "tool_use", id="x" * 400, name="f"),
            lambda number: begin(number, "tool_use", id="a", name="f", input={"x": "x" * 400}),
            lambda number: begin(number, "redacted_thinking", data="x" * 400),
            lambda number: begin(number, "text"),
            lambda number: begin(number, "server_tool_use"),
            lambda number: begin("x" * 400 + str(number), "server_tool_use"),
            lambda _: begin(None, "text"),
            lambda number: text(number, "x"),
            lambda _: end("x" * 400),
            lambda number: start([{"type": "server_tool_use"}], usage={"input_tokens": number}),
        ],
    )
    def test_kept_reply_is_bounded(self, event: Callable[[int], Event]) -> None:
        stream = MessagesStream(MessageBuilder(max_reply=20_000))
        for number in range(200):
            stream.feed(sse(event(number)))
        with pytest.raises(ModelError, match="longer than 20,000 characters") as caught:
            stream.reply()
        assert caught.value.cause is Cause.REJECTED

    def test_calls_are_bounded(self) -> None:
        stream = MessagesStream()
        for number in range(MAX_CALLS):
            stream.feed(sse(*tool(number, "f", str(number))))
        assert not stream.done
        stream.feed(sse(*tool(MAX_CALLS, "f", "x")))
        with pytest.raises(ModelError, match=r"asks for more than 512 calls\. Ask for a shorter reply\.") as caught:
            stream.reply()
        assert (caught.value.cause, len(stream.partial.calls)) == (Cause.REJECTED, MAX_CALLS)

    def test_reply_in_a_single_body_is_bounded(self) -> None:
        stream = MessagesStream(MessageBuilder(max_reply=2000))
        stream.feed(json.dumps({"type": "message", "content": [{"type": "text", "text": "x" * 2000}]}).encode())
        with pytest.raises(ModelError, match="longer than 2,000 characters"):
            stream.reply()

    @pytest.mark.parametrize(
        "events",
        [
            [arguments(0, "x" * 60), arguments(0, "x" * 60)],
            [begin(0, "tool_use", id="b", name="f", input={"x": "x" * 101})],
        ],
    )
    def test_the_arguments_of_a_call_are_bounded(self, events: list[JsonValue]) -> None:
        stream = MessagesStream(MessageBuilder(max_arguments=100))
        stream.feed(sse(start(), begin(0, "tool_use", id="a", name="f"), *events))
        with pytest.raises(ModelError, match="arguments of a call are longer than 100 characters"):
            stream.reply()
