"""Finish reasons in the words of each provider, and usage that they count apart."""

import pytest
from pydantic import JsonValue
from tests.engine.model.chunks import STOP, Chunk, chunk, failure, reply, sse

from turnwright.model.openai_chat.stream import ChatStream
from turnwright_states import Cause, Finish, Usage


@pytest.mark.parametrize(
    "reason",
    ["SAFETY", "RECITATION", "BLOCKLIST", "SPII", "IMAGE_SAFETY", "PROHIBITED_CONTENT", "content_filter: OTHER"],
)
@pytest.mark.parametrize("text", ["a", ""])
def test_reply_filtered_by_gemini_is_filtered(reason: str, text: str) -> None:
    response = reply(chunk({"content": text}), chunk({}, reason))
    assert (response.finish, response.finish_reason, response.text) == (Finish.CONTENT_FILTER, reason, text)


@pytest.mark.parametrize(
    "reason",
    ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "function_call_filter: MALFORMED_FUNCTION_CALL"],
)
def test_reply_with_a_call_dropped_by_gemini_is_no_answer(reason: str) -> None:
    error = failure(sse(chunk({"content": "Let me look."}), chunk({}, reason)))
    assert error.cause is Cause.SERVER_ERROR
    assert f"the finish reason was {reason!r}" in str(error)
    assert error.partial is not None
    assert error.partial.text == "Let me look."


@pytest.mark.parametrize("word", ["null", "None"])
def test_word_for_null_is_no_finish_reason(word: str) -> None:
    stream = ChatStream()
    stream.feed(sse(chunk({"content": "a"}, word), done=False))
    assert not stream.complete
    stream.feed(sse(chunk({"content": "b"}, word), STOP))
    assert (stream.reply().text, stream.reply().finish_reason) == ("ab", "stop")
    assert failure(sse(chunk({"content": "a"}, word), done=False)).cause is Cause.INTERRUPTED


@pytest.mark.parametrize(
    ("counts", "output"),
    [
        # Gemini's thinking is in the total only.
        ({"total_tokens": 30}, 20),
        # xAI reports it too, and others count it in the completion.
        ({"total_tokens": 30, "completion_tokens_details": {"reasoning_tokens": 17}}, 20),
        ({"total_tokens": 13, "completion_tokens_details": {"reasoning_tokens": 2}}, 3),
        # What else a total may have is not known.
        ({"total_tokens": 30, "completion_tokens_details": {"reasoning_tokens": 2}}, 3),
        ({"total_tokens": 30, "prompt_tokens_details": {"cached_tokens": 17}}, 3),
        ({"total_tokens": 9}, 3),
        ({"total_tokens": None}, 3),
    ],
)
def test_tokens_missing_from_the_parts_count_as_output(counts: dict[str, JsonValue], output: int) -> None:
    usage = reply(chunk({"content": "a"}, "stop", usage={"prompt_tokens": 10, "completion_tokens": 3, **counts})).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (10, output)


def test_zero_after_a_count_is_ignored() -> None:
    counted: Chunk = {"prompt_tokens": 7, "completion_tokens": 3}
    zeros: Chunk = {"prompt_tokens": 0, "completion_tokens": 0}
    expected = Usage(input_tokens=7, output_tokens=3)
    assert reply(chunk({"content": "a"}, usage=zeros), chunk({}, "stop", usage=counted)).usage == expected
    assert reply(chunk({"content": "a"}, usage=counted), chunk({}, "stop", usage=zeros)).usage == expected
