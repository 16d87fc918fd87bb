"""Names of tools and ids of calls that a model wrote, of any length."""

from collections.abc import Callable

import pytest
from pydantic import JsonValue
from pydantic_ai.messages import ModelResponse as PydanticResponse
from pydantic_ai.messages import ToolCallPart
from tests.engine.model import chunks
from tests.engine.model.anthropic import test_stream as messages
from tests.engine.model.openai_responses import events

from turnwright import Agent, Engine
from turnwright.model import ModelResponse, ResponseToolCall, ScriptedModel, ToolCallDelta
from turnwright.model.pydantic_ai.reply import whole_reply
from turnwright.transcript.events import FactEvent, StreamEvent, ToolCallDeltaEvent
from turnwright_states.facts import ModelReplied

NAME, ID = "n" * 201, "i" * 513
LONG = 2_000_000


def chat(name: str, call_id: str) -> ModelResponse:
    call: JsonValue = {"index": 0, "id": call_id, "function": {"name": name, "arguments": "{}"}}
    return chunks.reply(chunks.chunk({"tool_calls": [call]}), chunks.STOP)


def anthropic(name: str, call_id: str) -> ModelResponse:
    stream_events = [messages.start(), *messages.tool(0, name, call_id, "{}"), messages.end("tool_use"), messages.STOP]
    return messages.decode(messages.sse(*stream_events)).reply()


def responses(name: str, call_id: str) -> ModelResponse:
    return events.reply(*events.streamed(0, events.call(name, "{}", call_id)))


def pydantic_ai(name: str, call_id: str) -> ModelResponse:
    return whole_reply(PydanticResponse([ToolCallPart(name, {}, call_id)]))


@pytest.mark.parametrize("reply", [chat, anthropic, responses, pydantic_ai])
def test_a_long_name_and_a_long_id_are_cut(reply: Callable[[str, str], ModelResponse]) -> None:
    (short,) = reply(NAME[1:], ID[1:]).calls
    assert (short.name, short.id) == (NAME[1:], ID[1:])
    (cut,) = reply(NAME, ID).calls
    assert (cut.name, cut.id) == (NAME[:199] + "…", ID[:511] + "…")


def test_the_preview_of_a_call_has_the_cut_name() -> None:
    assert ToolCallDelta(0, NAME, "").tool == NAME[:199] + "…"


async def run(*calls: ResponseToolCall) -> tuple[str, list[StreamEvent]]:
    """Run a turn whose model asks for calls, and has nothing to say when it concludes."""
    model = ScriptedModel(ModelResponse(calls=calls), repeat=True, stream_calls=True)
    async with Engine(model=model) as engine, engine.stream(Agent(name="A", steps=1), "Go.") as events:
        turn_events = [event async for event in events]
        return events.result.text, turn_events


@pytest.mark.anyio
async def test_neither_journal_nor_events_nor_summary_have_a_long_name() -> None:
    calls = [ResponseToolCall(f"{number}" * LONG, {}, id="i" * LONG) for number in range(3)]
    text, turn_events = await run(*calls)
    assert {len(event.tool) for event in turn_events if isinstance(event, ToolCallDeltaEvent)} == {200}
    facts = [event.fact for event in turn_events if isinstance(event, FactEvent)]
    recorded_calls = [call for fact in facts if isinstance(fact, ModelReplied) for call in fact.calls]
    assert [(len(call.name), len(call.provider_id)) for call in recorded_calls] == [(200, 512)] * 3
    assert f"Tools used: {'0' * 99}… (1), {'1' * 99}… (1), {'2' * 99}… (1)." in text


@pytest.mark.anyio
async def test_the_fixed_summary_lists_ten_tools() -> None:
    text, _ = await run(*(ResponseToolCall(f"tool_{number}", {}) for number in range(100, 120)))
    assert "Tools used: tool_100 (1), " in text
    assert "tool_109 (1) and 10 more." in text
