"""The decoder against each habit that STREAMS counts as wrong."""

import json
from collections.abc import Iterable

import pytest
from pydantic import JsonValue

from turnwright.model.openai_stream import ChatStream
from turnwright.model.protocol import ModelError, ReasoningDelta, Reply, TextDelta
from turnwright_states import Cause, Finish, Usage

Chunk = dict[str, JsonValue]


def chunk(delta: JsonValue = None, finish: JsonValue = None, **more: JsonValue) -> Chunk:
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        **more,
    }


def sse(*chunks: JsonValue, done: bool = True) -> bytes:
    return b"".join(f"data: {json.dumps(each)}\n\n".encode() for each in chunks) + (
        b"data: [DONE]\n\n" if done else b""
    )


def decode(data: bytes | Iterable[bytes]) -> ChatStream:
    stream = ChatStream()
    for piece in [data] if isinstance(data, bytes) else data:
        stream.feed(piece)
    stream.end()
    return stream


def reply(*chunks: JsonValue, done: bool = True) -> Reply:
    return decode(sse(*chunks, done=done)).reply()


def failure(data: bytes) -> ModelError:
    with pytest.raises(ModelError) as caught:
        decode(data).reply()
    return caught.value


STOP = chunk({}, "stop")


def test_text_and_reasoning_are_given_as_they_come() -> None:
    stream = ChatStream()
    assert stream.feed(sse(chunk({"role": "assistant", "content": ""}), done=False)) == []
    assert stream.feed(sse(chunk({"reasoning_content": "hm"}), done=False)) == [ReasoningDelta("hm")]
    assert stream.feed(sse(chunk({"content": "a"}), chunk({"content": "b"}), done=False)) == [
        TextDelta("a"),
        TextDelta("b"),
    ]
    assert not stream.done
    assert stream.feed(sse(STOP)) == []
    assert stream.done
    assert stream.reply() == Reply(text="ab", reasoning="hm")


def test_the_last_event_may_be_unterminated() -> None:
    stream = ChatStream()
    stream.feed(sse(chunk({"content": "a"}), STOP, done=False) + b'data: {"choices":[{"delta":{"content":"b"}}]}')
    assert stream.end() == [TextDelta("b")]
    assert stream.reply().text == "ab"


class TestUsage:
    def test_it_may_come_with_choices(self) -> None:
        usage: Chunk = {"prompt_tokens": 3, "completion_tokens": 4}
        assert reply(chunk({"content": "a"}, "stop", usage=usage)).usage == Usage(input_tokens=3, output_tokens=4)

    def test_it_may_come_without_choices(self) -> None:
        usage: Chunk = {"prompt_tokens": 3, "completion_tokens": 4}
        assert reply(STOP, {"choices": [], "usage": usage}).usage == Usage(input_tokens=3, output_tokens=4)
        assert reply(STOP, {"usage": usage}).usage == Usage(input_tokens=3, output_tokens=4)

    def test_groq_puts_it_elsewhere(self) -> None:
        groq: Chunk = {"id": "r", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
        assert reply(chunk({}, "stop", x_groq=groq)).usage == Usage(input_tokens=3, output_tokens=4)

    def test_the_last_one_counts_and_nothing_is_summed(self) -> None:
        parts: list[Chunk] = [{"prompt_tokens": 3, "completion_tokens": count} for count in (0, 1, 2)]
        given = reply(*(chunk({"content": "a"}, usage=part) for part in parts), chunk({}, "stop", usage=None))
        assert given.usage == Usage(input_tokens=3, output_tokens=2)

    @pytest.mark.parametrize("usage", [None, {}, [], "3", {"prompt_tokens": None, "completion_tokens": None}])
    def test_one_that_counts_nothing_is_none(self, usage: JsonValue) -> None:
        assert reply(chunk({}, "stop", usage=usage)).usage is None

    @pytest.mark.parametrize(
        ("usage", "expected"),
        [
            ({"prompt_tokens": "7", "completion_tokens": 2.0}, (7, 2)),
            ({"prompt_tokens": -1, "completion_tokens": 5}, (0, 5)),
            ({"prompt_tokens": 7}, (7, 0)),
            ({"prompt_tokens": 7, "completion_tokens": None}, (7, 0)),
            ({"prompt_tokens": True, "completion_tokens": "x"}, None),
            ({"prompt_tokens": 10**400, "completion_tokens": 0}, (2**53, 0)),
        ],
    )
    def test_numbers_of_any_kind_are_read(self, usage: JsonValue, expected: tuple[int, int] | None) -> None:
        given = reply(chunk({}, "stop", usage=usage)).usage
        assert given == (expected and Usage(input_tokens=expected[0], output_tokens=expected[1]))


class TestChunks:
    def test_text_after_the_finish_reason_counts(self) -> None:
        assert reply(chunk({"content": "a"}, "stop"), chunk({"content": "b"})).text == "ab"

    @pytest.mark.parametrize(
        "odd",
        [
            {"choices": []},
            {"choices": None},
            {"choices": [None]},
            {"choices": [{}]},
            {"choices": {"0": 1}},
            {"type": "heartbeat"},
            {"object": "", "id": "", "audio": {"data": "x"}},
            chunk(None),
            chunk("text"),
            chunk([]),
            chunk({"content": None, "tool_calls": None, "role": None, "reasoning": None}),
            chunk({"content": 1, "tool_calls": "x", "function_call": "y", "reasoning_details": {}}),
            [],
            None,
            "text",
            5,
        ],
    )
    def test_a_chunk_may_lack_anything(self, odd: JsonValue) -> None:
        assert reply(odd, chunk({"content": "a"}), odd, STOP, odd).text == "a"

    def test_content_may_be_a_list_of_parts(self) -> None:
        thinking: Chunk = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
        given = reply(
            chunk({"content": [thinking]}),
            chunk({"content": [{"type": "text", "text": "a"}, None, {"type": "image"}, "b"]}),
            STOP,
        )
        assert (given.text, given.reasoning) == ("ab", "hm")

    def test_malformed_data_is_skipped(self) -> None:
        data = b'data: {"cho\n\ndata:\n\ndata: ' + b"[" * 100_000 + b"\n\n" + sse(chunk({"content": "a"}), STOP)
        assert decode(data).reply().text == "a"

    def test_chunks_without_empty_lines_between_them_are_read(self) -> None:
        data = sse(chunk({"content": "a"}), chunk({"content": "b"}), STOP).replace(b"\n\n", b"\n")
        assert decode(data).reply().text == "ab"

    def test_json_may_run_over_several_data_lines(self) -> None:
        text = json.dumps(chunk({"content": "a"}, "stop"), indent=1)
        assert decode("".join(f"data: {line}\n" for line in text.split("\n")).encode()).reply().text == "a"

    def test_only_the_choice_of_index_0_counts(self) -> None:
        def choice(index: int, text: str) -> JsonValue:
            return {"index": index, "delta": {"content": text}, "finish_reason": "length" if index else "stop"}

        stream = ChatStream()
        deltas = stream.feed(
            sse(
                {"choices": [choice(0, "a")]},
                {"choices": [choice(1, "x"), choice(0, "b")]},
                {"choices": [choice(1, "y")]},
            )
        )
        assert deltas == [TextDelta("a"), TextDelta("b")]
        assert (stream.reply().text, stream.reply().finish_reason) == ("ab", "stop")

    def test_without_an_index_0_the_first_choice_counts(self) -> None:
        first: Chunk = {"choices": [{"index": 2, "delta": {"content": "a"}, "finish_reason": "stop"}]}
        other: Chunk = {"choices": [{"index": 1, "delta": {"content": "x"}, "finish_reason": "stop"}]}
        assert reply(first, other).text == "a"

    def test_a_closing_message_that_repeats_the_deltas_is_left_out(self) -> None:
        whole: Chunk = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "ab"}}]}
        assert reply(chunk({"content": "a"}), chunk({"content": "b"}), whole).text == "ab"
        assert reply(whole).text == "ab"

    def test_a_refusal_is_kept_apart_from_the_text(self) -> None:
        stream = decode(sse(chunk({"refusal": "I can"}), chunk({"refusal": "not."}), STOP))
        assert (stream.reply().text, stream.refusal) == ("", "I cannot.")


class TestReasoning:
    @pytest.mark.parametrize(
        "delta",
        [
            {"reasoning_content": "hm"},
            {"reasoning": "hm"},
            {"thinking": "hm"},
            {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
            {"reasoning_details": [{"text": "h"}, {"text": "m"}, {"text": None}, None]},
            {"reasoning_content": "", "reasoning": "hm"},
            {"reasoning_content": None, "reasoning": None, "thinking": "hm"},
        ],
    )
    def test_every_name_for_it_is_known(self, delta: Chunk) -> None:
        assert reply(chunk(delta), STOP).reasoning == "hm"

    def test_of_several_in_a_chunk_one_is_taken(self) -> None:
        delta: Chunk = {"reasoning_content": "hm", "reasoning": "hm", "reasoning_details": [{"text": "hm"}]}
        assert reply(chunk(delta), chunk(delta), STOP).reasoning == "hmhm"

    def test_details_that_must_go_back_are_kept(self) -> None:
        signed: Chunk = {"type": "reasoning.text", "text": "hm", "signature": "sig", "index": 0}
        hidden: Chunk = {"type": "reasoning.encrypted", "data": "blob"}
        plain: Chunk = {"type": "reasoning.text", "text": "hm", "signature": None}
        assert reply(chunk({"reasoning_details": [plain, signed, hidden]}), STOP).reasoning_details == (signed, hidden)


class TestFinish:
    @pytest.mark.parametrize(
        ("word", "finish"),
        [
            ("stop", Finish.STOP),
            ("tool_calls", Finish.STOP),
            ("eos", Finish.STOP),
            ("length", Finish.LENGTH),
            ("max_tokens", Finish.LENGTH),
            ("MAX_TOKENS", Finish.LENGTH),
            ("content_filter", Finish.CONTENT_FILTER),
        ],
    )
    def test_it_is_reduced_and_the_providers_word_is_kept(self, word: str, finish: Finish) -> None:
        given = reply(chunk({"content": "a"}, word))
        assert (given.finish, given.finish_reason) == (finish, word)

    def test_the_last_that_is_not_null_wins(self) -> None:
        given = reply(chunk({}, "stop"), chunk({}, "length"), chunk({}, None), chunk({}, ""))
        assert given.finish_reason == "length"

    def test_calls_count_whatever_the_finish_reason_says(self) -> None:
        call: Chunk = {"index": 0, "id": "x", "function": {"name": "f", "arguments": "{}"}}
        for finish in ("stop", "length", None):
            assert [each.name for each in reply(chunk({"tool_calls": [call]}, finish)).calls] == ["f"]

    def test_the_deprecated_function_call_is_a_call(self) -> None:
        given = reply(chunk({"function_call": {"name": "f", "arguments": ""}}), chunk({}, "function_call"))
        assert [(each.name, each.arguments) for each in given.calls] == [("f", {})]

    def test_done_is_not_required(self) -> None:
        assert reply(chunk({"content": "a"}, "stop"), done=False).text == "a"

    def test_a_finish_reason_is_not_required_before_done(self) -> None:
        assert reply(chunk({"content": "a"})) == Reply(text="a", finish_reason=None)

    def test_done_ends_the_stream_even_if_more_follows(self) -> None:
        stream = ChatStream()
        stream.feed(sse(chunk({"content": "a"})) + sse(chunk({"content": "b"}), {"error": "late"}))
        assert stream.done
        stream.feed(sse(chunk({"content": "c"})))
        assert stream.reply().text == "a"

    @pytest.mark.parametrize(
        "done", [b"data:[DONE]", b"data: [DONE] ", b'data: "[DONE]"', b"event: done\ndata: [DONE]"]
    )
    def test_done_is_recognised_however_it_is_spelt(self, done: bytes) -> None:
        assert decode(sse(chunk({"content": "a"}), done=False) + done).complete

    def test_an_end_with_neither_is_an_interruption(self) -> None:
        error = failure(sse(chunk({"content": "a"}), done=False))
        assert error.cause is Cause.INTERRUPTED
        assert error.partial == Reply(text="a")
        assert "no finish reason" in str(error)

    @pytest.mark.parametrize("nothing", [b"", b"\n\n", b"\xef\xbb\xbf", b": PROCESSING\n\n", b"data: {"])
    def test_a_stream_of_nothing_is_an_interruption(self, nothing: bytes) -> None:
        assert failure(nothing).cause is Cause.INTERRUPTED


class TestErrors:
    @pytest.mark.parametrize(
        "broken",
        [
            b'data: {"error": {"message": "boom", "type": "server_error"}}\n\n',
            b'data: {"error": "boom"}\n\n',
            b'data: {"error": {"message": "boom"}, "choices": [{"delta": {}, "finish_reason": "error"}]}\n\n',
            b'data: {"choices": [{"delta": {}, "error": {"message": "boom"}}]}\n\n',
            b'data: {"object": "error", "message": "boom"}\n\n',
            b'data: [{"error": {"message": "boom"}}]\n\n',
            b'event: error\ndata: {"error": {"message": "boom"}}\n\n',
            b'event: error\ndata: {"message": "boom"}\n\n',
            b"event: error\ndata: boom\n\n",
            b'error: {"message": "boom"}\n\n',
            b'{"error": {"message": "boom"}}\n\n',
            b'{"error": {"message": "boom"}}\n',
        ],
    )
    @pytest.mark.parametrize("finish", [None, "stop"])
    def test_an_error_inside_the_stream_is_raised_with_the_partial_reply(
        self, broken: bytes, finish: str | None
    ) -> None:
        data = sse(chunk({"content": "a"}, finish), done=False) + broken + sse(chunk({"content": "b"}))
        error = failure(data)
        assert "boom" in str(error)
        assert error.cause is Cause.SERVER_ERROR
        assert error.partial == Reply(text="a")
        assert not decode(data).complete

    @pytest.mark.parametrize("nothing", [None, "", {}, False])
    def test_an_empty_error_is_none(self, nothing: JsonValue) -> None:
        assert reply(chunk({"content": "a"}, "stop", error=nothing)).text == "a"

    def test_the_cause_is_read_from_the_error(self) -> None:
        error = failure(sse({"error": {"code": 429, "message": "slow down"}}))
        assert (error.cause, error.status) == (Cause.RATE_LIMITED, 429)

    def test_secrets_are_not_quoted(self) -> None:
        stream = ChatStream(secrets=["sk-1234"])
        stream.feed(sse({"error": f"{'x' * 197}sk-1234"}))
        assert "sk-1" not in str(stream.error)


class TestBodies:
    def test_a_whole_completion_instead_of_a_stream_is_understood(self) -> None:
        call: Chunk = {"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
        message: Chunk = {"role": "assistant", "content": "hi", "reasoning_content": "hm", "tool_calls": [call]}
        body: Chunk = {
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2},
        }
        stream = ChatStream()
        assert stream.feed(b"\n " + json.dumps(body, indent=2).encode()) == []
        assert stream.end() == [ReasoningDelta("hm"), TextDelta("hi")]
        given = stream.reply()
        assert (given.text, given.reasoning, given.finish_reason) == ("hi", "hm", "tool_calls")
        assert [(each.name, each.arguments) for each in given.calls] == [("f", {"a": 1})]
        assert given.usage == Usage(input_tokens=1, output_tokens=2)

    def test_a_completion_without_a_finish_reason_is_whole(self) -> None:
        assert decode(b'{"choices": [{"message": {"content": "hi"}}]}').complete

    def test_a_completion_that_was_cut_off_is_interrupted(self) -> None:
        assert failure(b'{"choices": [{"message": {"content": "hi').cause is Cause.INTERRUPTED

    def test_chunks_without_the_data_prefix_are_understood(self) -> None:
        lines = "".join(json.dumps(each) + "\n" for each in (chunk({"content": "a"}), STOP))
        assert decode(lines.encode()).reply().text == "a"

    @pytest.mark.parametrize("body", [b'{"error": {"message": "boom"}}', b'[{"error": {"message": "boom"}}]'])
    def test_an_error_body_is_an_error(self, body: bytes) -> None:
        assert "boom" in str(failure(body))

    @pytest.mark.parametrize("body", [b"{}", b"[]", b'{"detail": "what?"}', b"[1]"])
    def test_other_json_is_refused(self, body: bytes) -> None:
        error = failure(body)
        assert error.cause is Cause.REJECTED
        assert "no chat completion" in str(error)

    @pytest.mark.parametrize(
        "page", [b"<!doctype html><title>Hello</title>", b"Hello there, stranger", b"<p>Hello" * 9999]
    )
    def test_a_page_is_refused(self, page: bytes) -> None:
        error = failure(page)
        assert error.cause is Cause.REJECTED
        assert "Hello" in str(error)
        assert len(str(error)) < 300


class TestBounds:
    def test_an_event_is_bounded(self) -> None:
        stream = ChatStream(max_event=1000)
        stream.feed(sse(chunk({"content": "a"}), done=False))
        stream.feed(b"data: " + b"x" * 1000)
        assert stream.done
        with pytest.raises(ModelError, match="an event is longer than 1,000 bytes") as caught:
            stream.reply()
        assert (caught.value.cause, caught.value.partial) == (Cause.REJECTED, Reply(text="a"))

    def test_a_body_is_bounded(self) -> None:
        stream = ChatStream(max_event=1000)
        stream.feed(b"{" + b" " * 1000)
        with pytest.raises(ModelError, match="longer than 1,000 bytes"):
            stream.reply()

    def test_a_reply_in_one_body_is_bounded(self) -> None:
        stream = ChatStream(max_reply=2000)
        stream.feed(json.dumps({"choices": [{"message": {"content": "x" * 2000}}]}).encode())
        with pytest.raises(ModelError, match="longer than 2,000 characters"):
            stream.reply()

    def test_a_reply_is_bounded(self) -> None:
        stream = ChatStream(max_reply=2000)
        stream.feed(sse(*(chunk({"content": "x" * 400}) for _ in range(9))))
        with pytest.raises(ModelError, match="longer than 2,000 characters") as caught:
            stream.reply()
        assert caught.value.partial is not None
        assert len(caught.value.partial.text) == 800

    def test_arguments_are_bounded(self) -> None:
        stream = ChatStream(max_arguments=100)
        call: Chunk = {"index": 0, "function": {"name": "f", "arguments": "x" * 60}}
        stream.feed(sse(chunk({"tool_calls": [call]}), chunk({"tool_calls": [call]})))
        with pytest.raises(ModelError, match="arguments of a call are longer than 100 characters"):
            stream.reply()

    def test_choices_are_bounded(self) -> None:
        stream = ChatStream(max_reply=10_000)
        stream.feed(sse({"choices": [{"index": index} for index in range(100)]}))
        with pytest.raises(ModelError, match="longer than 10,000 characters"):
            stream.reply()
