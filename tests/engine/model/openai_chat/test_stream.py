"""The decoder of chat completions: deviations of providers from the documentation."""

import json

import pytest
from pydantic import JsonValue
from tests.engine.model.chunks import STOP, Chunk, chunk, decode, failure, reply, sse

from turnwright.model.http.json_text import MAX_PARTS
from turnwright.model.http.sse import MAX_LINES
from turnwright.model.http.text_buffer import MAX_ARGUMENTS, MAX_CALLS
from turnwright.model.openai_chat.reply_builder import ReplyBuilder
from turnwright.model.openai_chat.stream import ChatStream
from turnwright.model.protocol import ModelError, ModelResponse, ReasoningDelta, TextDelta
from turnwright_states import Cause, Finish, Usage


def test_text_and_reasoning_are_given_on_arrival() -> None:
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
    assert stream.reply() == ModelResponse(text="ab", reasoning="hm")


def test_the_last_event_may_be_unterminated() -> None:
    stream = ChatStream()
    stream.feed(sse(chunk({"content": "a"}), STOP, done=False) + b'data: {"choices":[{"delta":{"content":"b"}}]}')
    assert stream.end() == [TextDelta("b")]
    assert stream.reply().text == "ab"


class TestUsage:
    def test_usage_may_come_with_choices(self) -> None:
        usage: Chunk = {"prompt_tokens": 3, "completion_tokens": 4}
        assert reply(chunk({"content": "a"}, "stop", usage=usage)).usage == Usage(input_tokens=3, output_tokens=4)

    def test_usage_may_come_without_choices(self) -> None:
        usage: Chunk = {"prompt_tokens": 3, "completion_tokens": 4}
        assert reply(STOP, {"choices": [], "usage": usage}).usage == Usage(input_tokens=3, output_tokens=4)
        assert reply(STOP, {"usage": usage}).usage == Usage(input_tokens=3, output_tokens=4)

    def test_usage_of_groq_is_read(self) -> None:
        groq: Chunk = {"id": "r", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
        assert reply(chunk({}, "stop", x_groq=groq)).usage == Usage(input_tokens=3, output_tokens=4)

    def test_usage_of_moonshot_is_read_from_the_choice(self) -> None:
        def choice(index: int, count: int) -> JsonValue:
            counted: Chunk = {"prompt_tokens": 3, "completion_tokens": count}
            return {"index": index, "delta": {}, "finish_reason": "stop", "usage": counted}

        assert reply({"choices": [choice(0, 4)]}).usage == Usage(input_tokens=3, output_tokens=4)
        assert reply({"choices": [choice(0, 4), choice(1, 9)]}).usage == Usage(input_tokens=3, output_tokens=4)

    def test_usage_may_follow_the_finish_reason_and_an_empty_usage(self) -> None:
        usage: Chunk = {"prompt_tokens": 3, "completion_tokens": 4}
        assert reply(STOP, {"choices": [], "usage": {}}, chunk({}, usage=usage), {"choices": []}).usage == Usage(
            input_tokens=3, output_tokens=4
        )

    def test_later_usage_may_omit_earlier_counts(self) -> None:
        first: Chunk = {"prompt_tokens": 3, "completion_tokens": 1}
        assert reply(chunk({}, usage=first), chunk({}, "stop", usage={"completion_tokens": 4})).usage == Usage(
            input_tokens=3, output_tokens=4
        )

    def test_last_usage_counts_and_usages_are_not_summed(self) -> None:
        parts: list[Chunk] = [{"prompt_tokens": 3, "completion_tokens": count} for count in (0, 1, 2)]
        response = reply(*(chunk({"content": "a"}, usage=part) for part in parts), chunk({}, "stop", usage=None))
        assert response.usage == Usage(input_tokens=3, output_tokens=2)

    @pytest.mark.parametrize("usage", [None, {}, [], "3", {"prompt_tokens": None, "completion_tokens": None}])
    def test_usage_without_counts_is_none(self, usage: JsonValue) -> None:
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
        read_usage = reply(chunk({}, "stop", usage=usage)).usage
        assert read_usage == (expected and Usage(input_tokens=expected[0], output_tokens=expected[1]))


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
        response = reply(
            chunk({"content": [thinking]}),
            chunk({"content": [{"type": "text", "text": "a"}, None, {"type": "image"}, "b"]}),
            STOP,
        )
        assert (response.text, response.reasoning) == ("ab", "hm")

    @pytest.mark.parametrize("kind", [{}, [], 5, None])
    def test_the_type_of_a_part_may_be_anything(self, kind: JsonValue) -> None:
        assert reply(chunk({"content": [{"type": kind, "text": "x"}, {"type": "text", "text": "a"}]}), STOP).text == "a"

    def test_line_ends_and_tabs_in_a_text_need_no_escape(self) -> None:
        data = 'data: {"choices": [{"delta": {"content": "a\tb"}, "finish_reason": "stop"}]}'
        assert decode(data.encode()).reply().text == "a\tb"

    @pytest.mark.parametrize("name", ["user", "", None, 5, []])
    def test_role_object_and_id_may_be_anything(self, name: JsonValue) -> None:
        odd: Chunk = {"choices": [{"delta": {"role": name, "content": "a"}}], "object": name, "id": name, "model": name}
        assert reply(odd, {**odd, "id": "other"}, STOP).text == "aa"

    def test_a_separator_of_lines_inside_a_text_stays(self) -> None:
        data = json.dumps(chunk({"content": "a\u2028b\x85c"}, "stop"), ensure_ascii=False)
        assert decode(f"data: {data}\n\n".encode()).reply().text == "a\u2028b\x85c"

    def test_non_json_data_is_skipped(self) -> None:
        data = b"data: PROCESSING\n\ndata:\n\ndata: " + b"[" * 100_000 + b"\n\n" + sse(chunk({"content": "a"}), STOP)
        assert decode(data).reply().text == "a"

    def test_truncated_json_chunk_breaks_the_reply(self) -> None:
        """Without the chunk the reply is another one: its arguments would parse, with a tenth of the amount."""
        begun, rest = (
            sse(chunk({"tool_calls": [{"index": 0, "function": {"name": "pay", "arguments": text}}]}), done=False)
            for text in ('{"amount": 1', "}")
        )
        lost = sse(chunk({"tool_calls": [{"index": 0, "function": {"arguments": "0"}}]}), done=False)
        stream = decode(begun + lost[:-9] + b"\n\n" + rest + sse(STOP))
        assert not stream.complete
        with pytest.raises(ModelError, match="a chunk of the stream from the server is not complete JSON") as error:
            stream.reply()
        assert error.value.cause is Cause.INTERRUPTED
        assert error.value.partial is not None
        assert [call.arguments for call in error.value.partial.calls] == [None]

    def test_broken_chunk_after_the_finish_reason_breaks_nothing(self) -> None:
        """At most the usage was in it."""
        data = sse(chunk({"content": "a"}), STOP, done=False) + b'data: {"usage": {"prom\n\n' + b"data: [DONE]\n\n"
        assert decode(data).reply().text == "a"

    def test_chunks_without_empty_lines_between_are_read(self) -> None:
        data = sse(chunk({"content": "a"}), chunk({"content": "b"}), STOP).replace(b"\n\n", b"\n")
        assert decode(data).reply().text == "ab"

    @pytest.mark.parametrize("between", ["", " ", "data: ", " data:"])
    def test_chunks_without_a_line_end_between_are_read(self, between: str) -> None:
        texts = [json.dumps(chunk({"content": content})) for content in ('a"}{', "b")]
        data = f"data: {between.join([*texts, json.dumps(STOP)])}\n\n".encode()
        assert decode(data).reply().text == 'a"}{b'
        done = f"data: {between.join([*texts, '[DONE]'])}\n\n".encode()
        assert decode(done).reply().text == 'a"}{b'
        cut = failure(f"data: {between.join(texts)[:-1]}\n\n".encode())
        assert (cut.cause, "not complete JSON" in str(cut)) == (Cause.INTERRUPTED, True)

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

    def test_first_choice_counts_without_an_index_0(self) -> None:
        first: Chunk = {"choices": [{"index": 2, "delta": {"content": "a"}, "finish_reason": "stop"}]}
        second: Chunk = {"choices": [{"index": 1, "delta": {"content": "x"}, "finish_reason": "stop"}]}
        assert reply(first, second).text == "a"

    def test_closing_message_repeating_the_deltas_is_left_out(self) -> None:
        whole: Chunk = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "ab"}}]}
        assert reply(chunk({"content": "a"}), chunk({"content": "b"}), whole).text == "ab"
        assert reply(whole).text == "ab"

    def test_message_fills_in_parts_missing_from_the_deltas(self) -> None:
        call: Chunk = {"id": "x", "function": {"name": "f", "arguments": "{}"}}
        message: Chunk = {"content": "ab", "reasoning_content": "hm", "tool_calls": [call], "refusal": None}
        response = reply(chunk({"content": "ab"}), {"choices": [{"message": message, "finish_reason": "stop"}]})
        assert (response.text, response.reasoning, [call.name for call in response.calls]) == ("ab", "hm", ["f"])

    def test_message_beside_each_delta_is_a_repetition(self) -> None:
        def both(text: str, so_far: str) -> JsonValue:
            return {"choices": [{"index": 0, "delta": {"content": text}, "message": {"content": so_far}}]}

        assert reply(both("", ""), both("a", "a"), both("b", "ab"), STOP).text == "ab"

    def test_choice_index_may_be_a_string(self) -> None:
        first: Chunk = {"index": "0", "delta": {"content": "0"}}
        second: Chunk = {"index": "1", "delta": {"content": "1"}}
        assert reply({"choices": [second, first]}, STOP).text == "0"

    def test_a_refusal_may_be_a_part(self) -> None:
        assert reply(chunk({"content": [{"type": "refusal", "refusal": "No."}]}), STOP).text == "No."

    def test_a_refusal_is_the_text_if_there_is_no_other(self) -> None:
        """Else the chart would see an empty reply, and ask again and again."""
        stream = ChatStream()
        assert stream.feed(sse(chunk({"refusal": "I can"}), chunk({"refusal": "not."}), STOP)) == []
        assert (stream.end(), stream.end()) == ([TextDelta("I cannot.")], [])
        assert (stream.reply().text, stream.reply().finish_reason) == ("I cannot.", "stop")

    @pytest.mark.parametrize(
        "answer", [{"content": "Yes."}, {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}]
    )
    def test_a_refusal_beside_an_answer_is_left_out(self, answer: Chunk) -> None:
        assert decode(sse(chunk({"refusal": "No."}), chunk(answer), STOP)).reply() == reply(chunk(answer), STOP)

    def test_truncated_refusal_is_the_partial_text(self) -> None:
        assert failure(sse(chunk({"refusal": "I can"}), done=False)).partial == ModelResponse(text="I can")


class TestReasoning:
    @pytest.mark.parametrize(
        "delta",
        [
            {"reasoning_content": "hm"},
            {"reasoning": "hm"},
            {"thinking": "hm"},
            {"reasoning_text": "hm"},
            {"thinking_blocks": [{"type": "thinking", "thinking": "hm"}]},
            {"content": {"type": "thinking", "thinking": "hm"}},
            {"content": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}]},
            {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
            {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
            {"reasoning_details": [{"text": "h"}, {"text": "m"}, {"text": None}, None]},
            {"reasoning_content": "", "reasoning": "hm"},
            {"reasoning_content": None, "reasoning": None, "thinking": "hm"},
        ],
    )
    def test_every_field_of_reasoning_is_known(self, delta: Chunk) -> None:
        assert reply(chunk(delta), STOP).reasoning == "hm"

    def test_repeated_reasoning_in_a_chunk_counts_once(self) -> None:
        delta: Chunk = {"reasoning_content": "hm", "reasoning": "hm", "reasoning_details": [{"text": "hm"}]}
        assert reply(chunk(delta), chunk(delta), STOP).reasoning == "hmhm"

    def test_signed_and_encrypted_details_are_kept(self) -> None:
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
            ("SAFETY", Finish.CONTENT_FILTER),
            ("sensitive", Finish.CONTENT_FILTER),
        ],
    )
    def test_finish_reason_is_reduced_and_the_providers_word_kept(self, word: str, finish: Finish) -> None:
        response = reply(chunk({"content": "a"}, word))
        assert (response.finish, response.finish_reason) == (finish, word)

    def test_last_non_null_finish_reason_wins(self) -> None:
        response = reply(chunk({}, "stop"), chunk({}, "length"), chunk({}, None), chunk({}, ""))
        assert response.finish_reason == "length"

    def test_calls_count_under_any_finish_reason(self) -> None:
        call: Chunk = {"index": 0, "id": "x", "function": {"name": "f", "arguments": "{}"}}
        for finish in ("stop", "length", None):
            assert [read_call.name for read_call in reply(chunk({"tool_calls": [call]}, finish)).calls] == ["f"]

    def test_the_deprecated_function_call_is_a_call(self) -> None:
        response = reply(chunk({"function_call": {"name": "f", "arguments": ""}}), chunk({}, "function_call"))
        assert [(call.name, call.arguments) for call in response.calls] == [("f", {})]

    def test_done_is_not_required(self) -> None:
        assert reply(chunk({"content": "a"}, "stop"), done=False).text == "a"

    def test_a_finish_reason_is_not_required_before_done(self) -> None:
        assert reply(chunk({"content": "a"})) == ModelResponse(text="a", finish_reason=None)

    def test_done_ends_the_stream_even_if_more_follows(self) -> None:
        stream = ChatStream()
        stream.feed(sse(chunk({"content": "a"})) + sse(chunk({"content": "b"}), {"error": "late"}))
        assert stream.done
        stream.feed(sse(chunk({"content": "c"})))
        assert stream.reply().text == "a"

    @pytest.mark.parametrize(
        "done", [b"data:[DONE]", b"data: [DONE] ", b'data: "[DONE]"', b"event: done\ndata: [DONE]"]
    )
    def test_done_is_recognised_in_any_spelling(self, done: bytes) -> None:
        assert decode(sse(chunk({"content": "a"}), done=False) + done).complete

    def test_end_without_finish_reason_and_done_is_an_interruption(self) -> None:
        error = failure(sse(chunk({"content": "a"}), done=False))
        assert error.cause is Cause.INTERRUPTED
        assert error.partial == ModelResponse(text="a")
        assert str(error) == (
            "the stream from the server ended before the reply did: there was no finish reason. Try again."
        )

    def test_the_last_words_of_an_interrupted_stream_are_quoted(self) -> None:
        stream = ChatStream(where="http://there", secrets=["sk-1234"])
        stream.feed(sse(chunk({"content": "a"}), {"detail": "boom sk-1234"}, done=False))
        with pytest.raises(ModelError, match=r"from http://there ended .* last text: boom \[hidden\]. Try again.$"):
            stream.reply()

    @pytest.mark.parametrize("nothing", [b"", b"\n\n", b"\xef\xbb\xbf", b": PROCESSING\n\n", b"data: {"])
    def test_empty_stream_is_an_interruption(self, nothing: bytes) -> None:
        assert failure(nothing).cause is Cause.INTERRUPTED


class TestBounds:
    def test_an_event_is_bounded(self) -> None:
        stream = ChatStream(max_event=1000)
        stream.feed(sse(chunk({"content": "a"}), done=False))
        stream.feed(b"data: " + b"x" * 1000)
        assert stream.done
        with pytest.raises(ModelError, match="an event is longer than 1,000 bytes") as caught:
            stream.reply()
        assert (caught.value.cause, caught.value.partial) == (Cause.REJECTED, ModelResponse(text="a"))

    def test_a_body_is_bounded(self) -> None:
        stream = ChatStream(max_event=1000)
        stream.feed(b"{" + b" " * 1000)
        with pytest.raises(ModelError, match="longer than 1,000 bytes"):
            stream.reply()

    def test_reply_in_a_single_body_is_bounded(self) -> None:
        stream = ChatStream(ReplyBuilder(max_reply=2000))
        stream.feed(json.dumps({"choices": [{"message": {"content": "x" * 2000}}]}).encode())
        with pytest.raises(ModelError, match="longer than 2,000 characters"):
            stream.reply()

    def test_a_reply_is_bounded(self) -> None:
        stream = ChatStream(ReplyBuilder(max_reply=2000))
        stream.feed(sse(*(chunk({"content": "x" * 400}) for _ in range(9))))
        with pytest.raises(ModelError, match="longer than 2,000 characters") as caught:
            stream.reply()
        assert caught.value.partial is not None
        assert len(caught.value.partial.text) == 800

    def test_arguments_are_bounded(self) -> None:
        stream = ChatStream(ReplyBuilder(max_arguments=100))
        call: Chunk = {"index": 0, "function": {"name": "f", "arguments": "x" * 60}}
        stream.feed(sse(chunk({"tool_calls": [call]}), chunk({"tool_calls": [call]})))
        with pytest.raises(ModelError, match="arguments of a call are longer than 100 characters"):
            stream.reply()

    def test_calls_are_bounded(self) -> None:
        calls: list[JsonValue] = [{"index": index, "function": {"name": "f"}} for index in range(MAX_CALLS + 1)]
        error = failure(sse(chunk({"tool_calls": calls})))
        assert error.cause is Cause.REJECTED
        assert "asks for more than 512 calls. Ask for a shorter reply." in str(error)

    @pytest.mark.parametrize(
        ("event", "bound"),
        [
            ("[" + "{}," * MAX_LINES + "{}]", "50,000 chunks"),
            ("{}\ndata: " * MAX_LINES + "{}", "50,000 lines"),
            ('{"choices": [' + "{}," * (MAX_PARTS // 2) + "{}]}", "600,000 parts"),
        ],
    )
    def test_parts_of_an_event_are_bounded(self, event: str, bound: str) -> None:
        """A million nearly empty parts would keep all other turns waiting."""
        for data in (f"data: {event}\n\n", event):
            error = failure(sse(chunk({"content": "a"}), done=False) + data.encode())
            assert (error.cause, error.partial) == (Cause.REJECTED, ModelResponse(text="a"))
            assert bound in str(error)

    def test_endless_non_json_lines_are_given_up(self) -> None:
        payload = json.dumps(chunk({"content": "a"}, "stop"))
        few, many = (f"data: {payload}\n" + "data: [[\n" * number + f"data: {payload}\n" for number in (16, 17))
        assert (decode(few.encode()).reply().text, decode(many.encode()).reply().text) == ("aa", "a")

    @pytest.mark.slow
    def test_longest_arguments_fit_into_an_event(self) -> None:
        for letter, times in (("\u20ac", MAX_ARGUMENTS), ('"', MAX_ARGUMENTS // 2)):
            raw = json.dumps({"a": letter * (times - 20)}, ensure_ascii=False)
            call: Chunk = {"index": 0, "function": {"name": "f", "arguments": raw}}
            event = json.dumps(chunk({"tool_calls": [call]}, "stop"), ensure_ascii=False)
            (whole_call,) = decode(f"data: {event}\n\n".encode()).reply().calls
            assert whole_call.arguments == {"a": letter * (times - 20)}

    def test_choices_are_bounded(self) -> None:
        stream = ChatStream(ReplyBuilder(max_reply=10_000))
        stream.feed(sse({"choices": [{"index": index} for index in range(100)]}))
        with pytest.raises(ModelError, match="longer than 10,000 characters"):
            stream.reply()
