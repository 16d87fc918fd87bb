"""Information beside replies: ids, models, cached tokens, and the time to the first chunk."""

from collections.abc import AsyncIterator

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage, TextPart
from pydantic_ai.messages import ModelResponse as PydanticResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.usage import RequestUsage

from turnwright.message import Message
from turnwright.model import ModelError, ModelRequest, ModelResponse, ResponseInfo, pydantic_ai_model
from turnwright.model.anthropic.reply_builder import MessageBuilder
from turnwright.model.openai_chat.reply_builder import ReplyBuilder
from turnwright_states import Usage

from .chunks import STOP, Chunk, chunk, decode, reply, sse
from .played_model import PlayedWhole

HELLO = ModelRequest((Message.user("hello"),))
# JSON that was read has no other: see `read_json`.
FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def told(response: ModelResponse) -> ResponseInfo:
    assert response.response is not None
    return response.response


def message(**fields: JsonValue) -> ResponseInfo:
    """Return the information of a Messages API message that starts with these fields."""
    builder = MessageBuilder()
    builder.add({"type": "message_start", "message": fields})
    return told(builder.reply())


class Served(TestModel):
    """A model that names its address, as those of providers do."""

    def __init__(self, model: str, host: str = "models.example") -> None:
        super().__init__(model_name=model)
        self._host = host

    @property
    def base_url(self) -> str:
        return f"https://{self._host}/v1"

    @property
    def system(self) -> str:
        return "openai"


async def replied(model: WrapperModel | PlayedWhole | FunctionModel) -> ModelResponse:
    last = [item async for item in pydantic_ai_model(model).stream(HELLO)][-1]
    assert isinstance(last, ModelResponse)
    return last


def test_replies_differing_only_in_info_are_equal() -> None:
    first, second = (
        ModelResponse(text="Hi", response=ResponseInfo(id="1")),
        ModelResponse(text="Hi", response=ResponseInfo(id="2")),
    )
    assert first == second == ModelResponse(text="Hi")
    assert hash(first) == hash(second)
    assert first != ModelResponse(text="Ho", response=ResponseInfo(id="1"))


class TestMessages:
    USAGE: JsonValue = {  # noqa: RUF012 (JSON)
        "input_tokens": 3,
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 200,
        "output_tokens": 1,
    }

    def test_message_begins_with_id_and_model(self) -> None:
        info = message(id="msg_1", model="claude-sonnet-4-5-20250929")
        assert (info.id, info.model) == ("msg_1", "claude-sonnet-4-5-20250929")

    def test_usage_counts_the_whole_prompt_and_the_cached_part(self) -> None:
        builder = MessageBuilder()
        builder.add({"type": "message_start", "message": {"usage": self.USAGE}})
        response = builder.reply()
        assert response.usage == Usage(input_tokens=1203, output_tokens=1, cached_tokens=1000)
        assert builder.reported == {"input_tokens": 3, "output_tokens": 1}
        info = told(response)
        assert (info.cache_read_input_tokens, info.cache_creation_input_tokens) == (1000, 200)

    def test_hourly_cache_tokens_are_counted_separately(self) -> None:
        created: JsonValue = {"ephemeral_5m_input_tokens": 50, "ephemeral_1h_input_tokens": 150}
        usage: JsonValue = {"input_tokens": 3, "cache_creation_input_tokens": 200, "cache_creation": created}
        info = message(usage=usage)
        assert (info.cache_creation_input_tokens, info.cache_creation_1h_input_tokens) == (200, 150)

    def test_thinking_is_a_part_of_the_output(self) -> None:
        builder = MessageBuilder()
        builder.add({"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}})
        usage: JsonValue = {"output_tokens": 90, "output_tokens_details": {"thinking_tokens": 70}}
        builder.add({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})
        assert builder.reply().usage == Usage(input_tokens=3, output_tokens=90, reasoning_tokens=70)

    def test_unreported_cache_is_none(self) -> None:
        info = message(usage={"input_tokens": 3, "cache_read_input_tokens": None})
        assert (info.cache_read_input_tokens, info.cache_creation_input_tokens) == (None, None)

    def test_later_count_replaces_an_earlier_count(self) -> None:
        builder = MessageBuilder()
        builder.add({"type": "message_start", "message": {"usage": self.USAGE}})
        builder.add({"type": "message_delta", "delta": {}, "usage": {"cache_read_input_tokens": 1100}})
        assert builder.reply().usage == Usage(input_tokens=1303, output_tokens=1, cached_tokens=1100)

    def test_cache_count_alone_is_no_usage(self) -> None:
        builder = MessageBuilder()
        builder.add({"type": "message_start", "message": {"usage": {"cache_read_input_tokens": 5}}})
        assert builder.reply().usage is None

    def test_a_whole_message_tells_the_same(self) -> None:
        builder = MessageBuilder()
        builder.add({"type": "message", "id": "msg_1", "model": "m", "usage": self.USAGE, "content": "Hi"})
        info = told(builder.reply())
        assert (info.id, info.model) == ("msg_1", "m")
        assert builder.reply().usage == Usage(input_tokens=1203, output_tokens=1, cached_tokens=1000)

    def test_the_first_block_is_the_first_chunk(self) -> None:
        builder = MessageBuilder()
        builder.add({"type": "message_start", "message": {}})
        assert told(builder.reply()).time_to_first_chunk is None
        builder.add({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "name": "f"}})
        first = told(builder.reply()).time_to_first_chunk
        assert first is not None
        assert first > 0.0
        builder.add({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "Hi"}})
        assert told(builder.reply()).time_to_first_chunk == first

    @given(JSON, JSON, JSON, JSON)
    def test_value_of_another_type_is_left_out(
        self, name: JsonValue, model: JsonValue, read: JsonValue, creation: JsonValue
    ) -> None:
        usage: JsonValue = {"cache_read_input_tokens": read, "cache_creation_input_tokens": creation}
        info = message(id=name, model=model, usage=usage)
        assert isinstance(info.id, str)
        assert isinstance(info.model, str)
        counts = (info.cache_creation_input_tokens, info.cache_read_input_tokens)
        assert all(count is None or count >= 0 for count in counts)


class TestChatCompletions:
    def test_first_chunk_with_both_gives_id_and_model(self) -> None:
        filtered: Chunk = {"id": "", "model": "", "choices": [], "prompt_filter_results": []}
        parts = [chunk({"content": part}, id=f"c{number}", model="gpt-x-0613") for number, part in enumerate("ab")]
        info = told(reply(filtered, *parts, STOP))
        assert (info.id, info.model) == ("c0", "gpt-x-0613")

    def test_cached_tokens_are_counted_separately(self) -> None:
        usage: JsonValue = {
            "prompt_tokens": 30,
            "completion_tokens": 4,
            "prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 5},
        }
        response = reply(chunk({"content": "a"}, "stop"), {"choices": [], "usage": usage})
        assert response.usage == Usage(input_tokens=30, output_tokens=4, cached_tokens=20)
        info = told(response)
        assert (info.cache_read_input_tokens, info.cache_creation_input_tokens) == (20, 5)

    @pytest.mark.parametrize(
        ("usage", "expected"),
        [
            # OpenAI, OpenRouter, Groq: reasoning is part of the completion.
            (
                {"completion_tokens": 90, "completion_tokens_details": {"reasoning_tokens": 64}, "total_tokens": 120},
                Usage(input_tokens=30, output_tokens=90, reasoning_tokens=64),
            ),
            # xAI counts it apart, as its total shows.
            (
                {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 64}, "total_tokens": 103},
                Usage(input_tokens=30, output_tokens=73, reasoning_tokens=64),
            ),
            # DeepSeek
            (
                {"completion_tokens": 9, "prompt_cache_hit_tokens": 20, "prompt_cache_miss_tokens": 10},
                Usage(input_tokens=30, output_tokens=9, cached_tokens=20),
            ),
            # Moonshot
            ({"completion_tokens": 9, "cached_tokens": 12}, Usage(input_tokens=30, output_tokens=9, cached_tokens=12)),
            # A server that counts more than there is.
            (
                {
                    "completion_tokens": 9,
                    "completion_tokens_details": {"reasoning_tokens": 10},
                    "prompt_tokens_details": {"cached_tokens": 31},
                },
                Usage(input_tokens=30, output_tokens=9, cached_tokens=30, reasoning_tokens=9),
            ),
            (
                {"completion_tokens": 9, "completion_tokens_details": None, "prompt_tokens_details": "x"},
                Usage(input_tokens=30, output_tokens=9),
            ),
        ],
        ids=["in the completion", "beside it", "deepseek", "moonshot", "too many", "no details"],
    )
    def test_cached_and_reasoning_tokens_are_parts_of_the_whole(
        self, usage: dict[str, JsonValue], expected: Usage
    ) -> None:
        last: Chunk = {"choices": [], "usage": {"prompt_tokens": 30, **usage}}
        assert reply(chunk({"content": "a"}, "stop"), last).usage == expected

    def test_usage_in_every_chunk_counts_as_the_last(self) -> None:
        def counted(count: int) -> JsonValue:
            return {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": count}}

        pieces = [sse(chunk({"content": "a"}, usage=counted(count)), done=False) for count in (1, 2, 3)]
        assert told(decode([*pieces, sse(STOP)]).reply()).cache_read_input_tokens == 3

    def test_the_first_choice_is_the_first_chunk(self) -> None:
        builder = ReplyBuilder()
        builder.add({"choices": []})
        assert told(builder.reply()).time_to_first_chunk is None
        builder.add(chunk({"tool_calls": [{"index": 0, "function": {"name": "f"}}]}))
        first = told(builder.reply()).time_to_first_chunk
        assert first is not None
        builder.add(chunk({"content": "a"}))
        assert told(builder.reply()).time_to_first_chunk == first

    def test_broken_reply_keeps_the_received_info(self) -> None:
        with pytest.raises(ModelError) as caught:
            decode(sse(chunk({"content": "a"}, id="c1"), {"error": {"message": "no"}}, done=False)).reply()
        assert caught.value.partial is not None
        assert told(caught.value.partial).id == "c1"

    @given(JSON, JSON, JSON)
    def test_value_of_another_type_is_left_out(self, name: JsonValue, model: JsonValue, details: JsonValue) -> None:
        usage: JsonValue = {"prompt_tokens_details": details, "input_tokens_details": {"cached_tokens": details}}
        builder = ReplyBuilder()
        builder.add(chunk({"content": "a"}, id=name, model=model, usage=usage))
        info = told(builder.reply())
        assert (info.id, info.model) == tuple(value if isinstance(value, str) else "" for value in (name, model))


@pytest.mark.parametrize(
    ("name", "read"), [("x" * 256, "x" * 256), ("x" * 257, ""), ("\ud800", "?"), (7, ""), ({}, "")]
)
def test_model_name_can_be_sent_on_and_is_bounded(name: JsonValue, read: str) -> None:
    assert message(id=name).id == read
    assert told(reply(chunk({"content": "a"}, "stop", id=name))).id == read


class TestPydanticAI:
    pytestmark = pytest.mark.anyio

    async def test_response_info_comes_from_the_pydantic_ai_response(self) -> None:
        usage = RequestUsage(input_tokens=30, output_tokens=4, cache_read_tokens=20, cache_write_tokens=5)
        parts = [TextPart("Hi")]
        played_response = PydanticResponse(parts, usage=usage, model_name="gemini-x-001", provider_response_id="r1")
        response = await replied(PlayedWhole(played_response))
        assert response.usage == Usage(input_tokens=30, output_tokens=4, cached_tokens=20)
        assert response.response == ResponseInfo(
            id="r1", model="gemini-x-001", cache_read_input_tokens=20, cache_creation_input_tokens=5
        )

    async def test_the_first_chunk_of_a_stream_is_timed(self) -> None:
        async def speak(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
            assert messages
            assert info
            await anyio.sleep(0.02)
            yield "Hi"
            await anyio.sleep(0.05)

        first = told(await replied(FunctionModel(stream_function=speak))).time_to_first_chunk
        assert first is not None
        assert first >= 0.02

    async def test_provider_name_of_a_model_differs_from_the_display_name(self) -> None:
        model = pydantic_ai_model(Served("gpt-x"), name="house")
        assert (model.name, model.model_name, model.provider_name) == ("house", "gpt-x", "openai")
        assert pydantic_ai_model(Served("gpt-x")).name == "openai:gpt-x"

    async def test_server_is_the_server_of_the_model(self) -> None:
        first, second = Served("gpt-x", "one.example:8443"), Served("gpt-y", "other.example")
        assert pydantic_ai_model(first).server == ("one.example", 8443)
        assert pydantic_ai_model(WrapperModel(second)).server == ("other.example", 443)
        assert pydantic_ai_model(FallbackModel(first, first)).server == ("one.example", 8443)
        assert pydantic_ai_model(FallbackModel(first, second)).server is None
        assert pydantic_ai_model("test").server is None

    async def test_invalid_address_is_no_server(self) -> None:
        class Odd(WrapperModel):
            @property
            def base_url(self) -> str:
                return "http://host:port"

        assert pydantic_ai_model(Odd(PlayedWhole())).server is None
