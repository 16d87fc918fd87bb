"""Errors inside replies that are fine to HTTP, and what is not a stream at all."""

import json

import pytest
from pydantic import JsonValue
from tests.engine.model.chunks import STOP, Chunk, chunk, decode, failure, reply, sse

from turnwright.model.openai_chat.stream import ChatStream
from turnwright.model.protocol import ModelError, ModelResponse, ReasoningDelta, TextDelta, ToolCallDelta
from turnwright_states import Cause, Usage


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
        assert error.partial == ModelResponse(text="a")
        assert not decode(data).complete

    @pytest.mark.parametrize("nothing", [None, "", {}, False, [], {"message": "", "code": None}, {"code": 0}])
    def test_an_empty_error_is_none(self, nothing: JsonValue) -> None:
        assert reply(chunk({"content": "a"}, "stop", error=nothing)).text == "a"

    @pytest.mark.parametrize(
        ("broken", "cause"),
        [
            (chunk({}, "stop", x_groq={"id": "r", "error": "boom"}), Cause.SERVER_ERROR),
            ({"choices": [], "error": {"message": "boom", "code": 503}}, Cause.OVERLOADED),
            ({"choices": None, "base_resp": {"status_code": 1002, "status_msg": "boom"}}, Cause.RATE_LIMITED),
            ({"choices": None, "base_resp": {"status_code": 1008, "status_msg": "boom"}}, Cause.PERMISSION),
            (chunk({}, "stop", base_resp={"status_code": 1027, "status_msg": "boom"}), Cause.CONTENT_FILTER),
            ({"base_resp": {"status_code": 9999, "status_msg": "boom"}}, Cause.SERVER_ERROR),
            ({"code": 429, "message": "boom"}, Cause.RATE_LIMITED),
            ({"success": False, "errors": [{"code": 1, "message": "boom"}], "result": None}, Cause.SERVER_ERROR),
            ({"status_code": 400, "detail": [{"msg": "boom"}]}, Cause.BAD_REQUEST),
        ],
    )
    def test_error_in_a_provider_specific_shape_is_an_error(self, broken: Chunk, cause: Cause) -> None:
        """Groq, OpenRouter, MiniMax, and gateways that answer as they do to any request."""
        for data in (sse(chunk({"content": "a"}), broken), sse(broken, done=False), json.dumps(broken).encode()):
            error = failure(data)
            assert "boom" in str(error)
            assert error.cause is cause

    def test_error_without_a_message_is_an_error(self) -> None:
        assert failure(sse({"base_resp": {"status_code": 2013, "status_msg": ""}})).cause is Cause.BAD_REQUEST
        assert failure(sse({"base_resp": {"status_code": 9, "status_msg": None}})).cause is Cause.SERVER_ERROR

    @pytest.mark.parametrize(
        ("word", "cause"),
        [
            ("error", Cause.SERVER_ERROR),
            ("network_error", Cause.SERVER_ERROR),
            ("insufficient_system_resource", Cause.OVERLOADED),
            ("abort", Cause.INTERRUPTED),
            ("CANCELLED", Cause.INTERRUPTED),
            ("user_cancel", Cause.INTERRUPTED),
            ("generation_failed", Cause.SERVER_ERROR),
            ("internalError", Cause.SERVER_ERROR),
        ],
    )
    @pytest.mark.parametrize("done", [True, False])
    def test_finish_reason_may_report_a_broken_reply(self, word: str, cause: Cause, *, done: bool) -> None:
        stream = decode(sse(chunk({"content": "a"}), chunk({}, word), done=done))
        assert not stream.complete
        with pytest.raises(ModelError, match=word) as caught:
            stream.reply()
        assert (caught.value.cause, caught.value.partial) == (cause, ModelResponse(text="a"))

    def test_empty_event_is_ignored(self) -> None:
        assert reply({}, chunk({"content": "a"}), {}, STOP).text == "a"

    def test_error_beside_a_failing_finish_reason_adds_the_message(self) -> None:
        choice: Chunk = {"delta": {}, "finish_reason": "error", "error": {"code": 429, "message": "boom"}}
        inside: Chunk = {"choices": [choice]}
        for broken in (inside, chunk({}, "error", error={"code": 429, "message": "boom"})):
            error = failure(sse(chunk({"content": "a"}), broken))
            assert (error.cause, "boom" in str(error)) == (Cause.RATE_LIMITED, True)

    @pytest.mark.parametrize(
        "harmless",
        [
            {"base_resp": {"status_code": 0, "status_msg": "success"}},
            {"type": "heartbeat", "status": "ok", "message": "alive"},
            {"status": 200, "message": "alive"},
            {"code": 0, "message": "", "errors": []},
            {"x_groq": {"id": "r", "error": None}},
            {"usage": {"prompt_tokens": 429}, "message": "counted"},
        ],
    )
    def test_text_similar_to_an_error_is_none(self, harmless: Chunk) -> None:
        assert reply(harmless, chunk({"content": "a"}), harmless, STOP, harmless).text == "a"

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
        assert stream.end() == [ReasoningDelta("hm"), TextDelta("hi"), ToolCallDelta(0, "f", '{"a": 1}')]
        response = stream.reply()
        assert (response.text, response.reasoning, response.finish_reason) == ("hi", "hm", "tool_calls")
        assert [(call.name, call.arguments) for call in response.calls] == [("f", {"a": 1})]
        assert response.usage == Usage(input_tokens=1, output_tokens=2)

    def test_a_completion_without_a_finish_reason_is_whole(self) -> None:
        assert decode(b'{"choices": [{"message": {"content": "hi"}}]}').complete

    def test_truncated_completion_is_interrupted(self) -> None:
        assert failure(b'{"choices": [{"message": {"content": "hi').cause is Cause.INTERRUPTED

    def test_chunks_without_the_data_prefix_are_understood(self) -> None:
        lines = "".join(json.dumps(event) + "\n" for event in (chunk({"content": "a"}), STOP))
        assert decode(lines.encode()).reply().text == "a"

    @pytest.mark.parametrize("body", [b'{"error": {"message": "boom"}}', b'[{"error": {"message": "boom"}}]'])
    def test_an_error_body_is_an_error(self, body: bytes) -> None:
        assert "boom" in str(failure(body))

    @pytest.mark.parametrize("body", [b"{}", b"[]", b'{"detail": "what?"}', b"[1]"])
    def test_other_json_is_refused(self, body: bytes) -> None:
        error = failure(body)
        assert error.cause is Cause.REJECTED
        assert str(error).startswith("the server sent JSON that is not a chat completion")
        assert str(error).endswith(" Check the base URL and the account.")

    def test_other_json_is_quoted(self) -> None:
        wrapped: JsonValue = {"data": {"choices": []}}
        assert f"not a chat completion: {json.dumps(wrapped)}. " in str(failure(json.dumps(wrapped).encode()))

    @pytest.mark.parametrize(
        "page", [b"<!doctype html><title>Hello</title>", b"Hello there, stranger", b"<p>Hello" * 9999]
    )
    def test_a_page_is_refused(self, page: bytes) -> None:
        error = failure(page)
        assert error.cause is Cause.REJECTED
        assert str(error).startswith("the server sent something that is not a chat completion: Hello")
        assert str(error).endswith(". Check the base URL and the account.")
        assert len(str(error)) < 300
