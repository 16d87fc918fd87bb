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

from .otel_collector import Collector, attributes

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


async def ran(collector: Collector, model: Model) -> dict[str, object]:
    """The attributes of the one attempt of a turn with this model."""
    await Engine(model=model, telemetry=collector.telemetry).run(AGENT, "Tidy up")
    return attributes(collector.one("chat"))


def measured(collector: Collector, name: str) -> list[tuple[dict[str, object], float]]:
    """The points of a histogram: attributes, and the sum."""
    return [(dict(p.attributes or {}), p.sum) for p in collector.points(name) if isinstance(p, HistogramDataPoint)]


async def test_input_tokens_cover_the_whole_prompt(collector: Collector) -> None:
    chat = await ran(collector, claude())
    assert chat["gen_ai.usage.input_tokens"] == 1203
    assert chat["gen_ai.usage.cache_read.input_tokens"] == 1000
    assert chat["gen_ai.usage.cache_write.input_tokens"] == 200
    assert chat["gen_ai.usage.output_tokens"] == 7
    kinds = ("operation.input_tokens", "operation.output_tokens")
    tokens = [total for kind in kinds for _, total in measured(collector, f"gen_ai.client.inference.{kind}")]
    assert tokens == [1203, 7]
    (point,) = collector.points("gen_ai.client.inference.usage.cache_write.input_tokens")
    assert getattr(point, "value", 0) == 200


async def test_the_journal_counts_as_the_telemetry_does(collector: Collector) -> None:
    turn = await Engine(model=claude(), telemetry=collector.telemetry).run(AGENT, "Tidy up")
    assert turn.usage == Usage(input_tokens=1203, output_tokens=7, cached_tokens=1000)
    assert attributes(collector.one("invoke_agent"))["gen_ai.usage.cache_read.input_tokens"] == 1000


async def test_reasoning_tokens_are_recorded_separately(collector: Collector) -> None:
    thought = ModelResponse(text="Done.", usage=Usage(input_tokens=3, output_tokens=9, reasoning_tokens=6))
    chat = await ran(collector, ScriptedModel(thought))
    assert chat["gen_ai.usage.output_tokens"] == 9
    assert chat["gen_ai.usage.reasoning.output_tokens"] == 6


async def test_request_settings_have_the_names_of_the_conventions(collector: Collector) -> None:
    settings = ModelSettings(
        temperature=0.2, top_p=0.9, max_tokens=70, seed=7, stop_sequences=("END",), thinking="low", extra_body={"a": 1}
    )
    await Engine(model=ScriptedModel("Done."), telemetry=collector.telemetry).run(AGENT, "Hi", model_settings=settings)
    chat = attributes(collector.one("chat"))
    assert {name: value for name, value in chat.items() if name.startswith("gen_ai.request.")} == {
        "gen_ai.request.model": "scripted",
        "gen_ai.request.temperature": 0.2,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.max_tokens": 70,
        "gen_ai.request.seed": 7,
        "gen_ai.request.stop_sequences": ("END",),
    }


async def test_cached_tokens_within_the_input_are_counted_once(collector: Collector) -> None:
    chat = await ran(collector, gpt())
    assert (chat["gen_ai.usage.input_tokens"], chat["gen_ai.usage.cache_read.input_tokens"]) == (30, 20)
    assert "gen_ai.usage.cache_write.input_tokens" not in chat


@pytest.mark.parametrize(
    ("model", "name", "response"),
    [(claude, "claude-x", ("msg_1", "claude-x-001")), (gpt, "gpt-x", ("c1", "gpt-x-001"))],
    ids=["messages", "chat completions"],
)
async def test_attempt_records_the_response_and_time_to_first_chunk(
    collector: Collector, model: Callable[[], Model], name: str, response: tuple[str, str]
) -> None:
    chat = await ran(collector, model())
    assert (chat["gen_ai.response.id"], chat["gen_ai.response.model"]) == response
    assert chat["gen_ai.request.model"] == name
    assert chat["gen_ai.request.stream"] is True
    first = chat["gen_ai.response.time_to_first_chunk"]
    assert isinstance(first, float)
    assert 0.0 < first < 60.0
    assert "gen_ai.request.stream" not in attributes(collector.one("invoke_agent"))


async def test_client_metrics_carry_response_model_and_server(collector: Collector) -> None:
    await ran(collector, gpt())
    by = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-x",
        "gen_ai.response.model": "gpt-x-001",
        "server.address": "models.example",
        "server.port": 80,
    }
    for name in ("gen_ai.client.inference.duration", "gen_ai.client.inference.time_to_first_chunk"):
        ((point, total),) = measured(collector, name)
        assert point == by
        assert total > 0.0
    tokens = [point for point, _ in measured(collector, "gen_ai.client.inference.operation.input_tokens")]
    assert tokens == [by]


async def test_failed_stream_request_is_marked_as_stream(collector: Collector) -> None:
    refused = httpx.MockTransport(lambda _: httpx.Response(400, json={"error": {"message": "no"}}))
    chat = await ran(collector, OpenAIChat("gpt-x", base_url="http://models.example/v1", transport=refused))
    assert chat["gen_ai.request.stream"] is True
    assert "gen_ai.response.time_to_first_chunk" not in chat
    assert measured(collector, "gen_ai.client.inference.time_to_first_chunk") == []


async def test_model_without_stream_details_is_not_marked_as_stream(collector: Collector) -> None:
    chat = await ran(collector, ScriptedModel("Done."))
    assert not [name for name in chat if name.startswith("gen_ai.response.") and "finish" not in name]
    assert "gen_ai.request.stream" not in chat
    assert measured(collector, "gen_ai.client.inference.time_to_first_chunk") == []


async def test_broken_reply_records_usage_and_first_chunk(collector: Collector) -> None:
    info = ResponseInfo(id="r1", cache_read_input_tokens=40, time_to_first_chunk=0.25)
    partial = ModelResponse(usage=Usage(input_tokens=50, cached_tokens=40), response=info)
    failed = ModelError("lost", cause=Cause.INTERRUPTED, partial=partial)
    engine = Engine(model=ScriptedModel(failed, "Done."), backoff=Backoff(initial=0.0), telemetry=collector.telemetry)
    await engine.run(AGENT, "Tidy up")
    chat = attributes(collector.named("chat")[0])
    assert chat["gen_ai.response.id"] == "r1"
    assert chat["gen_ai.usage.input_tokens"] == 50
    assert chat["gen_ai.response.time_to_first_chunk"] == 0.25
    assert chat["error.type"] == "interrupted"


async def test_turn_records_the_usage_of_all_attempts(collector: Collector) -> None:
    def counted(reply: ModelResponse, prompt: int) -> ModelResponse:
        usage = Usage(input_tokens=prompt, output_tokens=2, cost=0.5)
        return ModelResponse(text=reply.text, calls=reply.calls, usage=usage)

    reader = agent_tool(Agent(name="Reader", description="Reads."), name="reader")
    model = ScriptedModel(
        counted(asks_for(("reader", {"prompt": "Read"})), 100),
        counted(ModelResponse(text="Read it."), 10),
        counted(ModelResponse(text="Done."), 1000),
    )
    await Engine(model=model, tools=[reader], telemetry=collector.telemetry).run(AGENT, "Tidy up")
    above, below = attributes(collector.one("invoke_agent Tidier")), attributes(collector.one("invoke_agent Reader"))
    assert [turn_attributes["gen_ai.usage.input_tokens"] for turn_attributes in (above, below)] == [1110, 10]
    assert [turn_attributes["gen_ai.usage.output_tokens"] for turn_attributes in (above, below)] == [6, 2]
    assert [turn_attributes["turnwright.usage.cost"] for turn_attributes in (above, below)] == [1.5, 0.5]


async def test_nested_turn_of_a_model_adds_no_usage_to_the_outer_turn(collector: Collector) -> None:
    inner = Engine(model=ScriptedModel("Inner."), telemetry=collector.telemetry)

    class Asks:
        """A model that has a turn of its own driven."""

        name = "asks"

        async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
            assert request.messages
            await inner.run(Agent(name="Inner"), "Hello")
            yield ModelResponse(text="Done.", usage=Usage(input_tokens=5, output_tokens=5))

    await Engine(model=Asks(), telemetry=collector.telemetry).run(AGENT, "Tidy up")
    assert attributes(collector.one("invoke_agent Tidier"))["gen_ai.usage.input_tokens"] == 5


async def test_turn_without_counted_usage_records_no_usage(collector: Collector) -> None:
    await ran(collector, ScriptedModel(ModelResponse(text="Done.")))
    assert not [name for name in attributes(collector.one("invoke_agent")) if name.startswith("gen_ai.usage.")]


async def test_pydantic_ai_model_is_recorded_by_the_request_name(collector: Collector) -> None:
    class Served(TestModel):
        """A model that names its address, as those of providers do."""

        @property
        def base_url(self) -> str:
            return "http://models.example:8080/v1"

        @property
        def system(self) -> str:
            return "openai"

    model = pydantic_ai_model(Served(call_tools=[], model_name="gpt-x"))
    engine = Engine(model=model, telemetry=collector.telemetry)
    turn = await engine.run(AGENT, "Tidy up")
    chat, stretch = collector.one("chat"), attributes(collector.one("invoke_agent"))
    assert chat.name == "chat gpt-x"
    for point_attributes in (attributes(chat), stretch):
        assert (point_attributes["gen_ai.request.model"], point_attributes["gen_ai.provider.name"]) == (
            "gpt-x",
            "openai",
        )
        assert (point_attributes["server.address"], point_attributes["server.port"]) == ("models.example", 8080)
    assert model.name == "openai:gpt-x"
    (row,) = await engine.store.turns()
    assert (row.id, row.model) == (turn.id, "openai:gpt-x")
