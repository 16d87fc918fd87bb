"""Events that take the quick way through a stream. The decoders' properties show that both ways read alike."""

import cProfile
import json
import pstats
from collections.abc import Mapping
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright.model.anthropic.reply_builder import read_event
from turnwright.model.anthropic.stream import MessagesStream
from turnwright.model.http.json_text import MAX_DEPTH
from turnwright.model.http.reply_builder import Builder
from turnwright.model.http.reply_stream import MAX_QUICK, NOT_QUICK, ReplyStream, is_flat
from turnwright.model.http.sse import MAX_EVENT
from turnwright.model.openai_chat.reply_builder import ReplyBuilder, read_chunk
from turnwright.model.openai_chat.stream import ChatStream
from turnwright.model.openai_responses.stream import ResponsesStream
from turnwright.model.protocol import Delta, ModelResponse, ReasoningDelta, TextDelta, ToolCallDelta

from .chunks import chunk, sse
from .streams import events_in, run

MESSAGES_HEAD = "event: content_block_delta\ndata: "


def delta(index: int, **fields: JsonValue) -> bytes:
    """An event of the Messages API that continues with a block."""
    event = {"type": "content_block_delta", "index": index, "delta": fields}
    return f"{MESSAGES_HEAD}{json.dumps(event)}\n\n".encode()


def responses_delta(text: str) -> bytes:
    """An event of the Responses API that continues a message."""
    kind = "response.output_text.delta"
    event = {"type": kind, "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": text, "logprobs": []}
    return f"event: {kind}\ndata: {json.dumps(event)}\n\n".encode()


def begun(*kinds: str) -> bytes:
    """Events of the Messages API that begin blocks of these kinds."""
    events = [
        {"type": "content_block_start", "index": index, "content_block": {"type": kind, "id": "a", "name": "f"}}
        for index, kind in enumerate(kinds)
    ]
    return b"".join(f"event: content_block_start\ndata: {json.dumps(event)}\n\n".encode() for event in events)


class Shown(Builder):
    """A builder that takes nothing, and shows what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.quick: list[bytes] = []

    @property
    def finished(self) -> bool:
        return False

    def add(self, chunk: Mapping[str, JsonValue], /) -> list[Delta]:  # noqa: ARG002 (the interface's)
        return []

    def add_quickly(self, data: bytes, deltas: list[Delta], /) -> bool:  # noqa: ARG002 (the interface's)
        self.quick.append(data)
        return True

    def reply(self) -> ModelResponse:
        return ModelResponse()


class Stream(ReplyStream):
    """A stream of events whose builder is `shown`."""

    REPLY: ClassVar = "reply"
    REASON: ClassVar = "reason"
    QUICK: ClassVar = b"data: {"

    def __init__(self, *, max_event: int = MAX_EVENT) -> None:
        self.recorder = Shown()
        super().__init__(self.recorder, secrets=(), where="here", max_event=max_event)

    def _put(self, event: str, chunk: dict[str, JsonValue]) -> list[Delta]:  # noqa: ARG002 (the interface's)
        return []

    def _finish(self) -> None:
        self._whole = True

    def _is_reply(self, body: dict[str, JsonValue]) -> bool:  # noqa: ARG002 (the interface's)
        return False


def quick_in(*pieces: bytes, max_event: int = MAX_EVENT) -> list[bytes]:
    """Return the data that took the quick way, behind an event that never does."""
    stream = Stream(max_event=max_event)
    for piece in (b"data: 1\n\n", *pieces):
        stream.feed(piece)
    return stream.recorder.quick


class TestTheBytes:
    def test_data_is_taken_out_in_place(self) -> None:
        assert quick_in(b'data: {"a": 1}\n\ndata: {"b": 2}\n\n') == [b'{"a": 1}', b'{"b": 2}']

    def test_truncated_event_takes_the_plain_path_and_later_events_the_fast(self) -> None:
        assert quick_in(b"data: {}\n\ndata: {", b"}\n\n", b'data: {"b": 2}\n\n') == [b"{}", b'{"b": 2}']

    def test_first_event_takes_the_plain_path(self) -> None:
        """The first event shows the kind of stream, and a byte order mark."""
        stream = Stream()
        stream.feed(b"data: {}\n\n")
        assert stream.recorder.quick == []

    @pytest.mark.parametrize(
        "event",
        [
            b"data: {}",
            b"data: {}\n",
            b'data: {"a":\ndata: 1}\n\n',
            b"data: {}\nid: 1\n\n",
            b"data:{}\n\n",
            b"data: 1\n\n",
            b": {}\n\n",
            b"\ndata: {}\n\n",
            b"event: x\ndata: {}\n\n",
            b"data: {}\r\n\r\n",
        ],
    )
    def test_event_of_another_form_takes_the_plain_path(self, event: bytes) -> None:
        assert quick_in(event) == []
        assert quick_in(b"data: {}\n\n" + event) == ([] if b"\r" in event else [b"{}"])

    def test_long_event_takes_the_plain_path(self) -> None:
        most = b'data: {"a": "%s"}\n\n' % (b"x" * (MAX_QUICK - 17))
        assert len(most) == MAX_QUICK
        assert quick_in(most) != []
        assert quick_in(most.replace(b"xx", b"xxx", 1)) == []
        assert quick_in(most, max_event=MAX_QUICK) != []
        assert quick_in(most, max_event=MAX_QUICK - 1) == []

    def test_deeply_nested_event_takes_the_plain_path(self) -> None:
        def nested(levels: int) -> bytes:
            return b'data: {"a": %s%s}\n\n' % (b"[" * levels, b"]" * levels)

        assert quick_in(nested(MAX_DEPTH - 2)) != []
        assert quick_in(nested(MAX_DEPTH)) == []

    @given(lists=st.lists(st.booleans(), min_size=MAX_DEPTH + 1, max_size=2 * MAX_DEPTH))
    def test_deeply_nested_data_is_not_flat(self, lists: list[bool]) -> None:
        opened = b"".join(b"[" if is_list else b'{"":' for is_list in lists)
        closed = b"".join(b"]" if is_list else b"}" for is_list in reversed(lists))
        assert not is_flat(opened + b"1" + closed)

    def test_events_after_the_end_are_not_read(self) -> None:
        assert quick_in(b"data: {}\n\ndata: [DONE]\n\n", b'data: {"b": 2}\n\n') == [b"{}"]


@pytest.mark.parametrize(
    "sent_chunk",
    [
        chunk({"content": "Hello"}, id="chatcmpl-1", created=1, model="gpt", service_tier="default", obfuscation="x"),
        chunk({"content": "Hello", "role": "assistant", "refusal": None}, usage=None, system_fingerprint=None),
        chunk({"content": "Hello", "tool_calls": None, "function_call": None}, usage={"prompt_tokens": 1}),
        chunk({"content": "Hello", "reasoning": None, "reasoning_details": []}, provider="OpenRouter"),
        chunk({"content": None, "reasoning_content": "Hm."}),
        chunk({"content": "", "reasoning": "Hm."}, token_ids=[1, 2]),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a'}}]}),
        chunk(
            {"tool_calls": [{"index": 0, "id": "", "type": "function", "function": {"name": None, "arguments": ""}}]}
        ),
        chunk({"content": "Hello"}, content_filter_results={"hate": {"filtered": False}}),
        {"choices": [{"delta": {"content": "Hello"}, "finish_reason": ""}]},
    ],
)
def test_chunk_extending_open_parts_is_fast(sent_chunk: JsonValue) -> None:
    assert read_chunk(json.dumps(sent_chunk).encode())


@pytest.mark.parametrize(
    "sent_chunk",
    [
        chunk({"content": "Hello"}, "stop"),
        chunk({"content": [{"type": "text", "text": "Hello"}]}),
        chunk({"content": "\ud83d"}),
        chunk({"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "f", "arguments": ""}}]}),
        chunk({"tool_calls": [{"function": {"arguments": "a"}}]}),
        chunk({"content": "Hello"}, error={"message": "down"}),
        {"choices": []},
        {"choices": [{"index": 1, "delta": {"content": "Hello"}}]},
        {"error": "down"},
        {},
    ],
)
def test_chunk_with_other_fields_is_not_fast(sent_chunk: JsonValue) -> None:
    with pytest.raises(NOT_QUICK):
        read_chunk(json.dumps(sent_chunk).encode())


def test_non_standard_json_is_not_fast() -> None:
    for data in (b'{"choices": [{"delta": {"content": "a\tb"}}]}', b'{"choices": [{"delta": {"content": "\xff"}}]}'):
        with pytest.raises(NOT_QUICK):
            read_chunk(data)
    with pytest.raises(NOT_QUICK):
        read_event(b'{"type": "content_block_delta", "index": NaN, "delta": {"type": "text_delta", "text": "a"}}')


class TestChatCompletions:
    def test_deltas_equal_the_plain_path_in_order(self) -> None:
        mixed = chunk({"content": "a", "reasoning_content": "b", "reasoning": "c"})
        for pieces in (
            [sse(chunk({}), mixed, mixed, done=False)],
            [sse(chunk({}), done=False), sse(mixed, mixed, done=False)],
        ):
            stream = ChatStream()
            deltas = [delta for piece in pieces for delta in stream.feed(piece)]
            assert deltas == [ReasoningDelta("b"), TextDelta("a")] * 2

    def test_half_a_surrogate_pair_before_a_fast_chunk_is_replaced(self) -> None:
        data = sse(chunk({"content": "a\ud83d"}), chunk({"content": "b"}))
        assert run(ChatStream, *events_in(data)) == run(ChatStream, data)
        assert run(ChatStream, *events_in(data))[0] == "a\ufffdb"

    def test_choice_of_index_0_is_taken_over_the_first_choice(self) -> None:
        data = sse({"choices": [{"index": 1, "delta": {"content": "no"}}]}, chunk({"content": "yes"}))
        assert run(ChatStream, *events_in(data))[2].text == "yes"

    def test_bound_exceeded_by_a_fast_chunk_ends_the_stream(self) -> None:
        """The text stays, the reply is none, and it is not complete, though a finish reason had come."""
        stream = ChatStream(ReplyBuilder(max_reply=1100))
        stream.feed(sse(chunk({"content": "a"}, "stop"), done=False))
        assert stream.complete
        assert stream.feed(sse(chunk({"content": "b" * 200}), chunk({"content": "c"}), done=False)) == []
        assert (stream.done, stream.complete, stream.partial.text) == (True, False, "a")
        assert "1,100 characters" in str(stream.error)
        assert stream.feed(sse(chunk({"content": "d"}))) == []

    def test_event_length_is_bounded(self) -> None:
        data = sse(chunk({"content": "a"}), chunk({"content": "b" * 300}))
        outcome = run(lambda: ChatStream(max_event=300), *events_in(data))
        assert outcome == run(lambda: ChatStream(max_event=300), data)
        assert "longer than 300 bytes" in str(outcome[5])

    def test_other_line_end_takes_the_plain_path(self) -> None:
        """A CR ends a line: what would be blank to JSON makes two lines of an event, and the second is none of ours."""
        data = sse(chunk({"content": "a"}), done=False)
        data += b'data: {"created":\r1, "choices": [{"delta": {"content": "b"}}]}\n\n'
        assert run(ChatStream, *events_in(data)) == run(ChatStream, data)
        assert run(ChatStream, data)[0] == "a"

    def test_fast_chunk_continues_the_last_call(self) -> None:
        """A chunk without an index belongs to the last call."""

        def begun(index: int) -> JsonValue:
            return chunk(
                {"tool_calls": [{"index": index, "id": f"c{index}", "function": {"name": "f", "arguments": ""}}]}
            )

        more = chunk({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]})
        data = sse(begun(0), begun(1), more, chunk({"tool_calls": [{"function": {"arguments": "}"}}]}))
        assert [call.raw for call in run(ChatStream, *events_in(data))[2].calls] == ["{}", ""]

    def test_stream_broken_after_a_fast_chunk_quotes_the_last_data(self) -> None:
        data = sse(chunk({"content": "a"}), chunk({"content": "b"}, message="the worker was stopped"), done=False)
        error = run(ChatStream, *events_in(data))[5]
        assert error == run(ChatStream, data)[5]
        assert "the worker was stopped" in str(error)


class TestMessages:
    def test_each_kind_of_delta_continues_the_block(self) -> None:
        stream = MessagesStream()
        stream.feed(begun("text", "thinking", "tool_use"))
        assert stream.feed(delta(0, type="text_delta", text="a") + delta(0, type="text_delta", text="")) == [
            TextDelta("a")
        ]
        assert stream.feed(delta(1, type="thinking_delta", thinking="b")) == [ReasoningDelta("b")]
        assert stream.feed(delta(2, type="input_json_delta", partial_json="{}")) == [ToolCallDelta(0, "f", "{}")]
        assert [call.raw for call in stream.partial.calls] == ["{}"]

    @pytest.mark.parametrize("kind", ["tool_use", "server_tool_use", "web_search_tool_result"])
    def test_mismatched_delta_takes_the_plain_path(self, kind: str) -> None:
        data = begun(kind, "text") + delta(0, type="text_delta", text="a") + delta(5, type="text_delta", text="b")
        data += delta(1, type="input_json_delta", partial_json="{}")
        assert run(MessagesStream, *events_in(data)) == run(MessagesStream, data)

    def test_mismatched_arguments_belong_to_the_open_call(self) -> None:
        data = begun("text", "tool_use") + delta(0, type="input_json_delta", partial_json="{}")
        assert [call.raw for call in run(MessagesStream, *events_in(data))[2].calls] == ["{}"]


@pytest.mark.parametrize(
    ("stream", "first", "more"),
    [
        (ChatStream(), sse(chunk({"content": "a"}), done=False), sse(chunk({"content": "b"}), done=False)),
        (MessagesStream(), begun("text"), delta(0, type="text_delta", text="b")),
        (ResponsesStream(), responses_delta("a"), responses_delta("b")),
    ],
    ids=["chat completions", "messages", "responses"],
)
def test_fast_event_costs_few_calls(stream: ReplyStream, first: bytes, more: bytes) -> None:
    """The plain way takes more than a hundred; no other test would notice a chunk that takes it by mistake."""
    stream.feed(first)
    profile = cProfile.Profile()
    profile.enable()
    deltas = stream.feed(more)
    profile.disable()
    assert deltas == [TextDelta("b")]
    calls: int = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    assert calls <= 30
