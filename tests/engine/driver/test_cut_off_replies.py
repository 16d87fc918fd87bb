"""Replies that were cut off inside a call: what the model and the developer read."""

import httpx
import pytest
from pydantic import BaseModel
from tests.engine.model import chunks
from tests.engine.model.anthropic import test_stream as messages
from tests.engine.model.openai_responses import events

from turnwright import Agent, Engine, tool
from turnwright.agent import OUTPUT_TOOL
from turnwright.journal.result import TurnResult
from turnwright.message import Message, ToolResultPart
from turnwright.model import (
    AnthropicMessages,
    Model,
    ModelRequest,
    ModelResponse,
    OpenAIChat,
    OpenAIResponses,
    ResponseToolCall,
    ScriptedModel,
)
from turnwright_states import EndReason, Finish, Usage

pytestmark = pytest.mark.anyio

CUT = ResponseToolCall("write", None, '{"html": "<p>ver')
BEFORE = "before the arguments were complete: send less in one call"


@tool
def write(html: str) -> str:
    """Write the page."""
    return html


def cut_off(
    *calls: ResponseToolCall, tokens: int | None = 4096, reason: str = "length", max_tokens: int | None = None
) -> ModelResponse:
    usage = None if tokens is None else Usage(input_tokens=10, output_tokens=tokens)
    return ModelResponse(
        calls=calls or (CUT,), finish=Finish.LENGTH, usage=usage, finish_reason=reason, max_tokens=max_tokens
    )


async def run(*lines: ModelResponse | str, steps: int = 3) -> tuple[TurnResult, ScriptedModel]:
    model = ScriptedModel(*lines)
    async with Engine(model=model, tools=[write]) as engine:
        return await engine.run(Agent(name="A", steps=steps), "Write a page."), model


def results(model: ScriptedModel) -> list[str]:
    parts = [part for message in model.requests[-1].messages for part in message.parts]
    return [part.text for part in parts if isinstance(part, ToolResultPart)]


@pytest.mark.parametrize(
    ("reply", "limit"),
    [
        (cut_off(max_tokens=8192), "its output limit of 8,192 tokens"),
        (cut_off(), "its output limit of 4,096 tokens"),
        (cut_off(tokens=None), "its output limit"),
        (cut_off(reason="model_context_window_exceeded"), "the end of the model's context window"),
    ],
)
async def test_cut_off_call_names_cause_and_limit(reply: ModelResponse, limit: str) -> None:
    turn, model = await run(reply, "I could not.")
    assert turn.text == "I could not."
    assert results(model) == [f"not executed: the reply was cut off at {limit} {BEFORE}"]


async def test_only_incomplete_calls_are_said_to_be_cut_off() -> None:
    complete, unknown = ResponseToolCall("write", {"html": "<p>"}), ResponseToolCall("read", {})
    _, model = await run(cut_off(complete, unknown, CUT), "done")
    page, missing, cut = results(model)
    assert (page, missing) == ("<p>", "there is no tool 'read'; the tools are: write")
    assert cut.endswith(BEFORE)


@pytest.mark.parametrize(
    ("reply", "advice"),
    [
        (cut_off(), "its output limit of 4,096 tokens, inside a call: raise `max_tokens` in the model settings"),
        (
            cut_off(reason="model_context_window_exceeded"),
            "the end of the model's context window, inside a call: set `compaction`",
        ),
    ],
)
async def test_the_advice_of_a_stopped_turn_names_the_output_limit(reply: ModelResponse, advice: str) -> None:
    turn, _ = await run(reply, reply, "I could not.", steps=2)
    assert turn.reason is EndReason.STEP_CAP
    assert turn.advice == (
        f"The last reply was cut off at {advice}, or ask for less in one call. Raise the agent's `steps` (now 2)."
    )
    assert turn.sentinel is not None
    assert "output limit" not in turn.sentinel.text


async def test_advice_names_only_an_output_limit_reached_by_the_last_reply() -> None:
    whole = ModelResponse(calls=(ResponseToolCall("write", {"html": "<p>"}),))
    malformed = ModelResponse(calls=(ResponseToolCall("write", None, "{"),))
    for last in (whole, malformed):
        turn, _ = await run(cut_off(), last, "I could not.", steps=2)
        assert turn.advice == "Raise the agent's `steps` (now 2)."


async def test_cut_off_typed_answer_is_asked_for_again_with_the_limit() -> None:
    class Page(BaseModel):
        html: str = "<p>"

    model = ScriptedModel(
        cut_off(ResponseToolCall(OUTPUT_TOOL, {})), ModelResponse(calls=(ResponseToolCall(OUTPUT_TOOL, {"html": "a"}),))
    )
    async with Engine(model=model) as engine:
        turn = await engine.run(Agent(name="A", output_type=Page), "Write a page.")
    assert turn.output == Page(html="a")
    assert f"cut off at its output limit of 4,096 tokens {BEFORE}" in results(model)[0]


CHAT = chunks.sse(chunks.chunk({"content": "a"}, "length"))
RESPONSES = events.sse(events.created(), events.text(0, "a"), events.incomplete("max_output_tokens"))
MESSAGES = messages.sse(messages.start(), *messages.HI, messages.end("max_tokens"), messages.STOP)


def served(body: bytes) -> httpx.MockTransport:
    return httpx.MockTransport(lambda _: httpx.Response(200, content=body))


@pytest.mark.parametrize(
    ("model", "limit"),
    [
        (OpenAIChat("m", base_url="http://h", transport=served(CHAT)), 9),
        (OpenAIChat("m", base_url="http://h", extra_body={"max_tokens": "many"}, transport=served(CHAT)), None),
        (OpenAIResponses("m", base_url="http://h", transport=served(RESPONSES)), 16),
        (AnthropicMessages("m", base_url="http://h", api_key="k", transport=served(MESSAGES)), 9),
    ],
)
async def test_cut_off_reply_records_the_sent_limit(model: Model, limit: int | None) -> None:
    request = ModelRequest((Message.user("Hi"),), max_tokens=9)
    replies = [item async for item in model.stream(request) if isinstance(item, ModelResponse)]
    assert [(reply.finish, reply.max_tokens) for reply in replies] == [(Finish.LENGTH, limit)]
