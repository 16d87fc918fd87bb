"""Texts of people, models and tools leave the process only where that is switched on; keys never do."""

from pathlib import Path

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from turnwright import Agent, Engine, FilePart, Limits, Message, tool
from turnwright.model import AnthropicMessages, OpenAIChat, OpenAIResponses
from turnwright.model.protocol import Model, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.otel import OpenTelemetry
from turnwright.otel.blocks import SpanBlock
from turnwright.otel.telemetry import CAPTURE_VARIABLE
from turnwright.telemetry import Guarded

from .otel_collector import Collector, attributes, said

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier", instructions="INSTRUCTED")
KEY = "sk-never-to-be-told"


@tool
async def look(place: str) -> str:
    """Look somewhere."""
    if place == "WRONG-PLACE":
        raise ValueError("RAISED")
    return f"RESULT at {place}"


def model() -> ScriptedModel:
    return ScriptedModel(
        asks_for(("look", {"place": "HERE"}), ("look", {"place": "WRONG-PLACE"}), text="THOUGHT"),
        ModelResponse(text="ANSWERED", reasoning="REASONED"),
    )


async def test_texts_are_left_out_of_telemetry_by_default(collector: Collector) -> None:
    await Engine(model=model(), tools=[look], telemetry=collector.telemetry).run(AGENT, "PROMPTED")
    everything = collector.everything()
    words = ("INSTRUCTED", "PROMPTED", "THOUGHT", "HERE", "WRONG-PLACE", "RESULT", "RAISED", "ANSWERED", "REASONED")
    assert [word for word in words if word in everything] == []


async def test_captured_texts_have_the_form_of_the_conventions(collector: Collector) -> None:
    await Engine(model=model(), tools=[look], telemetry=collector.full).run(AGENT, "PROMPTED")
    first, last = collector.named("chat")
    prompt = {"role": "user", "parts": [{"type": "text", "content": "PROMPTED"}]}
    assert said(collector.one("invoke_agent"), "gen_ai.input.messages") == [prompt]
    assert said(first, "gen_ai.system_instructions") == [{"type": "text", "content": "INSTRUCTED"}]
    assert said(first, "gen_ai.input.messages") == [prompt]
    assert said(first, "gen_ai.output.messages") == [
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": "THOUGHT"},
                {"type": "tool_call", "id": None, "name": "look", "arguments": {"place": "HERE"}},
                {"type": "tool_call", "id": None, "name": "look", "arguments": {"place": "WRONG-PLACE"}},
            ],
            "finish_reason": "tool_call",
        }
    ]
    definitions = said(first, "gen_ai.tool.definitions")
    assert isinstance(definitions, list)
    assert [(definition["type"], definition["name"]) for definition in definitions] == [("function", "look")]
    right, wrong = collector.named("execute_tool")
    assert said(right, "gen_ai.tool.call.arguments") == {"place": "HERE"}
    assert attributes(right)["gen_ai.tool.call.result"] == "RESULT at HERE"
    assert attributes(wrong)["gen_ai.tool.call.result"] == "ValueError: RAISED"
    messages = said(last, "gen_ai.input.messages")
    assert isinstance(messages, list)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]
    call = attributes(right)["gen_ai.tool.call.id"]
    assert messages[1]["parts"][1]["id"] == call
    assert messages[2]["parts"] == [{"type": "tool_call_response", "id": call, "response": "RESULT at HERE"}]
    assert said(last, "gen_ai.output.messages") == [
        {
            "role": "assistant",
            "parts": [{"type": "reasoning", "content": "REASONED"}, {"type": "text", "content": "ANSWERED"}],
            "finish_reason": "stop",
        }
    ]


async def test_file_is_recorded_by_type_and_name_only(collector: Collector) -> None:
    files = [FilePart.of(b"PICTURED", "image/png", "a.png"), FilePart(media_type="image/png", url=f"http://h/?k={KEY}")]
    history = [Message.user("Look", files)]
    await Engine(model=ScriptedModel("Seen."), telemetry=collector.full).run(AGENT, "And?", message_history=history)
    messages = said(collector.one("chat"), "gen_ai.input.messages")
    assert isinstance(messages, list)
    assert messages[0]["parts"][1:] == [
        {"type": "turnwright.file", "mime_type": "image/png", "name": "a.png"},
        {"type": "turnwright.file", "mime_type": "image/png", "name": ""},
    ]
    assert KEY not in collector.everything()


@pytest.mark.parametrize(
    ("value", "captured"),
    [("true", True), ("TRUE", True), ("span_only", True), ("SPAN_AND_EVENT", True), ("false", False), ("", False)],
)
async def test_environment_may_switch_content_capture_on(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, value: str, *, captured: bool
) -> None:
    monkeypatch.setenv(CAPTURE_VARIABLE, value)
    telemetry = OpenTelemetry(collector.tracers, collector.meters)
    await Engine(model=model(), tools=[look], telemetry=telemetry).run(AGENT, "PROMPTED")
    assert ("PROMPTED" in collector.everything()) is captured


async def test_the_argument_goes_before_the_environment(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CAPTURE_VARIABLE, "true")
    telemetry = OpenTelemetry(collector.tracers, collector.meters, capture_content=False)
    await Engine(model=model(), tools=[look], telemetry=telemetry).run(AGENT, "PROMPTED")
    assert "PROMPTED" not in collector.everything()


@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses, AnthropicMessages])
async def test_api_key_is_never_recorded_even_if_the_server_repeats_the_key(
    collector: Collector, kind: type[OpenAIChat | OpenAIResponses | AnthropicMessages]
) -> None:
    async def refuse(request: httpx.Request) -> httpx.Response:
        assert KEY in str(request.headers)
        return httpx.Response(401, json={"error": {"message": f"wrong key {KEY}", "type": "authentication_error"}})

    model: Model = kind(
        "some-model",
        base_url=f"https://ann:{KEY}@models.example/v1?api_key={KEY}",
        headers={"x-api-key": KEY, "authorization": f"Bearer {KEY}"},
        transport=httpx.MockTransport(refuse),
    )
    async with Engine(model=model, limits=Limits(max_retries=0), telemetry=collector.full) as engine:
        await engine.run(AGENT, "PROMPTED")
    span = attributes(collector.one("chat"))
    assert (span["error.type"], span["server.address"], span["server.port"]) == (
        "authentication",
        "models.example",
        443,
    )
    assert KEY not in collector.everything()
    assert "wrong key" not in collector.everything()


async def test_lone_surrogate_is_recorded_as_valid_text(collector: Collector) -> None:
    engine = Engine(
        model=ScriptedModel(asks_for(("look", {"place": "\ud800"})), "No."), tools=[look], telemetry=collector.full
    )
    await engine.run(AGENT, "PROMPTED")
    texts = [text for span in collector.spans for text in attributes(span).values() if isinstance(text, str)]
    assert any('{"place": "?"}' in text for text in texts)
    assert [text for text in texts if not text.isascii()] == []


def test_block_failing_on_entry_leaves_no_open_span(collector: Collector) -> None:
    class Untold:
        def __repr__(self) -> str:
            raise RuntimeError("no text")

    class Block(SpanBlock):
        def _finish(self, error: BaseException | None, seconds: float) -> None:
            raise AssertionError(f"it never began: {error}, after {seconds} s")

    block = Block(collector.tracer, "untold", trace.SpanKind.INTERNAL, {}, content_of=lambda: {"what": Untold()})
    before = trace.get_current_span()
    with Guarded(block):
        assert trace.get_current_span() is before
    assert collector.one("untold").end_time is not None


async def test_unsampled_span_holds_nothing_up(collector: Collector) -> None:
    telemetry = OpenTelemetry(TracerProvider(sampler=ALWAYS_OFF), collector.meters, capture_content=True)
    turn = await Engine(model=model(), tools=[look], telemetry=telemetry).run(AGENT, "PROMPTED")
    assert turn.text == "ANSWERED"
    assert "PROMPTED" not in collector.everything()
    assert collector.points("turnwright.turns") != []


def test_the_page_names_the_same_variable() -> None:
    page = Path(__file__).parents[3] / "docs" / "telemetry.md"
    assert CAPTURE_VARIABLE in page.read_text(encoding="utf-8")
