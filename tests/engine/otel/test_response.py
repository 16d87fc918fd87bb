"""Spans carry the provider's information about a reply, and count tokens as the conventions do."""

import json
from collections.abc import AsyncGenerator, Callable

import httpx
import pytest
from opentelemetry.sdk.metrics.export import HistogramDataPoint
from pydantic import JsonValue
from pydantic_ai.models.test import TestModel

from turnwright import Agent, Engine, ModelSettings, agent_tool
from turnwright.model import AnthropicMessages, Model, OpenAIChat, pydantic_ai_model
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse, ResponseInfo, TextDelta
from turnwright.model.retry import Backoff
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright_states import Cause, Usage

from .told import Told, attributes

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")
MESSAGE: tuple[JsonValue, ...] = (
    {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "model": "claude-x-001",
            "usage": {
                "input_tokens": 3,
                "cache_read_input_tokens": 1000,
                "cache_creation_input_tokens": 200,
                "output_tokens": 1,
            },
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Done."}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}},
    {"type": "message_stop"},
)
COMPLETION: tuple[JsonValue, ...] = (
    {"id": "c1", "model": "gpt-x-001", "choices": [{"index": 0, "delta": {"content": "Done."}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {
        "choices": [],
        "usage": {"prompt_tokens": 30, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 20}},
    },
)


def answers(events: tuple[JsonValue, ...]) -> httpx.MockTransport:
    """A server that streams this to everybody."""
    body = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)
    return httpx.MockTransport(lambda _: httpx.Response(200, content=body))


def claude() -> AnthropicMessages:
    return AnthropicMessages("claude-x", base_url="http://models.example", api_key="k", transport=answers(MESSAGE))


def gpt() -> OpenAIChat:
    return OpenAIChat("gpt-x", base_url="http://models.example/v1", transport=answers(COMPLETION))


async def ran(told: Told, model: Model) -> dict[str, object]:
    """The attributes of the one attempt of a turn with this model."""
    await Engine(model=model, telemetry=told.telemetry).run(AGENT, "Tidy up")
    return attributes(told.one("chat"))


def measured(told: Told, name: str) -> list[tuple[dict[str, object], float]]:
    """The points of a histogram: attributes, and the sum."""
    return [(dict(p.attributes or {}), p.sum) for p in told.points(name) if isinstance(p, HistogramDataPoint)]


async def test_input_tokens_cover_the_whole_prompt(told: Told) -> None:
    chat = await ran(told, claude())
    assert chat["gen_ai.usage.input_tokens"] == 1203
    assert chat["gen_ai.usage.cache_read.input_tokens"] == 1000
    assert chat["gen_ai.usage.cache_write.input_tokens"] == 200
    assert chat["gen_ai.usage.output_tokens"] == 7
    kinds = ("operation.input_tokens", "operation.output_tokens")
    tokens = [total for kind in kinds for _, total in measured(told, f"gen_ai.client.inference.{kind}")]
    assert tokens == [1203, 7]
    (written,) = told.points("gen_ai.client.inference.usage.cache_write.input_tokens")
    assert getattr(written, "value", 0) == 200


async def test_the_journal_counts_as_the_telemetry_does(told: Told) -> None:
    turn = await Engine(model=claude(), telemetry=told.telemetry).run(AGENT, "Tidy up")
    assert turn.usage == Usage(input_tokens=1203, output_tokens=7, cached_tokens=1000)
    assert attributes(told.one("invoke_agent"))["gen_ai.usage.cache_read.input_tokens"] == 1000


async def test_reasoning_tokens_are_recorded_separately(told: Told) -> None:
    thought = ModelResponse(text="Done.", usage=Usage(input_tokens=3, output_tokens=9, reasoning_tokens=6))
    chat = await ran(told, ScriptedModel(thought))
    assert chat["gen_ai.usage.output_tokens"] == 9
    assert chat["gen_ai.usage.reasoning.output_tokens"] == 6


async def test_request_settings_have_the_names_of_the_conventions(told: Told) -> None:
    settings = ModelSettings(
        temperature=0.2, top_p=0.9, max_tokens=70, seed=7, stop_sequences=("END",), thinking="low", extra_body={"a": 1}
    )
    await Engine(model=ScriptedModel("Done."), telemetry=told.telemetry).run(AGENT, "Hi", model_settings=settings)
    chat = attributes(told.one("chat"))
    assert {name: value for name, value in chat.items() if name.startswith("gen_ai.request.")} == {
        "gen_ai.request.model": "scripted",
        "gen_ai.request.temperature": 0.2,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.max_tokens": 70,
        "gen_ai.request.seed": 7,
        "gen_ai.request.stop_sequences": ("END",),
    }


async def test_cached_tokens_within_the_input_are_counted_once(told: Told) -> None:
    chat = await ran(told, gpt())
    assert (chat["gen_ai.usage.input_tokens"], chat["gen_ai.usage.cache_read.input_tokens"]) == (30, 20)
    assert "gen_ai.usage.cache_write.input_tokens" not in chat


@pytest.mark.parametrize(
    ("model", "name", "response"),
    [(claude, "claude-x", ("msg_1", "claude-x-001")), (gpt, "gpt-x", ("c1", "gpt-x-001"))],
    ids=["messages", "chat completions"],
)
async def test_attempt_records_the_response_and_time_to_first_chunk(
    told: Told, model: Callable[[], Model], name: str, response: tuple[str, str]
) -> None:
    chat = await ran(told, model())
    assert (chat["gen_ai.response.id"], chat["gen_ai.response.model"]) == response
    assert chat["gen_ai.request.model"] == name
    assert chat["gen_ai.request.stream"] is True
    first = chat["gen_ai.response.time_to_first_chunk"]
    assert isinstance(first, float)
    assert 0.0 < first < 60.0
    assert "gen_ai.request.stream" not in attributes(told.one("invoke_agent"))


async def test_client_metrics_carry_response_model_and_server(told: Told) -> None:
    await ran(told, gpt())
    by = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-x",
        "gen_ai.response.model": "gpt-x-001",
        "server.address": "models.example",
        "server.port": 80,
    }
    for name in ("gen_ai.client.inference.duration", "gen_ai.client.inference.time_to_first_chunk"):
        ((point, total),) = measured(told, name)
        assert point == by
        assert total > 0.0
    tokens = [point for point, _ in measured(told, "gen_ai.client.inference.operation.input_tokens")]
    assert tokens == [by]


async def test_failed_stream_request_is_marked_as_stream(told: Told) -> None:
    refused = httpx.MockTransport(lambda _: httpx.Response(400, json={"error": {"message": "no"}}))
    chat = await ran(told, OpenAIChat("gpt-x", base_url="http://models.example/v1", transport=refused))
    assert chat["gen_ai.request.stream"] is True
    assert "gen_ai.response.time_to_first_chunk" not in chat
    assert measured(told, "gen_ai.client.inference.time_to_first_chunk") == []


async def test_model_without_stream_details_is_not_marked_as_stream(told: Told) -> None:
    chat = await ran(told, ScriptedModel("Done."))
    assert not [name for name in chat if name.startswith("gen_ai.response.") and "finish" not in name]
    assert "gen_ai.request.stream" not in chat
    assert measured(told, "gen_ai.client.inference.time_to_first_chunk") == []


async def test_broken_reply_records_usage_and_first_chunk(told: Told) -> None:
    info = ResponseInfo(id="r1", cache_read_input_tokens=40, time_to_first_chunk=0.25)
    partial = ModelResponse(usage=Usage(input_tokens=50, cached_tokens=40), response=info)
    failed = ModelError("lost", cause=Cause.INTERRUPTED, partial=partial)
    engine = Engine(model=ScriptedModel(failed, "Done."), backoff=Backoff(initial=0.0), telemetry=told.telemetry)
    await engine.run(AGENT, "Tidy up")
    chat = attributes(told.named("chat")[0])
    assert chat["gen_ai.response.id"] == "r1"
    assert chat["gen_ai.usage.input_tokens"] == 50
    assert chat["gen_ai.response.time_to_first_chunk"] == 0.25
    assert chat["error.type"] == "interrupted"


async def test_turn_records_the_usage_of_all_attempts(told: Told) -> None:
    def counted(reply: ModelResponse, prompt: int) -> ModelResponse:
        usage = Usage(input_tokens=prompt, output_tokens=2, cost=0.5)
        return ModelResponse(text=reply.text, calls=reply.calls, usage=usage)

    reader = agent_tool(Agent(name="Reader", description="Reads."), name="reader")
    model = ScriptedModel(
        counted(asks_for(("reader", {"prompt": "Read"})), 100),
        counted(ModelResponse(text="Read it."), 10),
        counted(ModelResponse(text="Done."), 1000),
    )
    await Engine(model=model, tools=[reader], telemetry=told.telemetry).run(AGENT, "Tidy up")
    above, below = attributes(told.one("invoke_agent Tidier")), attributes(told.one("invoke_agent Reader"))
    assert [one["gen_ai.usage.input_tokens"] for one in (above, below)] == [1110, 10]
    assert [one["gen_ai.usage.output_tokens"] for one in (above, below)] == [6, 2]
    assert [one["turnwright.usage.cost"] for one in (above, below)] == [1.5, 0.5]


async def test_nested_turn_of_a_model_adds_no_usage_to_the_outer_turn(told: Told) -> None:
    inner = Engine(model=ScriptedModel("Inner."), telemetry=told.telemetry)

    class Asks:
        """A model that has a turn of its own driven."""

        name = "asks"

        async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
            assert request.messages
            await inner.run(Agent(name="Inner"), "Hello")
            yield ModelResponse(text="Done.", usage=Usage(input_tokens=5, output_tokens=5))

    await Engine(model=Asks(), telemetry=told.telemetry).run(AGENT, "Tidy up")
    assert attributes(told.one("invoke_agent Tidier"))["gen_ai.usage.input_tokens"] == 5


async def test_turn_without_counted_usage_records_no_usage(told: Told) -> None:
    await ran(told, ScriptedModel(ModelResponse(text="Done.")))
    assert not [name for name in attributes(told.one("invoke_agent")) if name.startswith("gen_ai.usage.")]


async def test_pydantic_ai_model_is_recorded_by_the_request_name(told: Told) -> None:
    class Served(TestModel):
        """A model that names its address, as those of providers do."""

        @property
        def base_url(self) -> str:
            return "http://models.example:8080/v1"

        @property
        def system(self) -> str:
            return "openai"

    model = pydantic_ai_model(Served(call_tools=[], model_name="gpt-x"))
    engine = Engine(model=model, telemetry=told.telemetry)
    turn = await engine.run(AGENT, "Tidy up")
    chat, stretch = told.one("chat"), attributes(told.one("invoke_agent"))
    assert chat.name == "chat gpt-x"
    for one in (attributes(chat), stretch):
        assert (one["gen_ai.request.model"], one["gen_ai.provider.name"]) == ("gpt-x", "openai")
        assert (one["server.address"], one["server.port"]) == ("models.example", 8080)
    assert model.name == "openai:gpt-x"
    (row,) = await engine.store.turns()
    assert (row.id, row.model) == (turn.id, "openai:gpt-x")
