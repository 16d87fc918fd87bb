"""Replies that Anthropic pauses while its own tools run: they continue in further responses, as one reply."""

import json
from typing import Any, Final

import httpx
import pytest
from pydantic import JsonValue

from turnwright import Agent, Engine
from turnwright.message import Message
from turnwright.model.anthropic.client import AnthropicMessages
from turnwright.model.protocol import Delta, ModelError, ModelRequest, ModelResponse, TextDelta
from turnwright.model.retry import Backoff
from turnwright_states import Cause, EndReason, Finish, Outcome, Usage

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

Block = dict[str, JsonValue]

HELLO = ModelRequest((Message.user("hello"),))
USE: Final[Block] = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}}
FOUND: Final[Block] = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
THOUGHT: Final[Block] = {"type": "thinking", "thinking": "hm", "signature": "sig"}
MOST_RESPONSES: Final = 11


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def response(reason: str, *blocks: Block) -> httpx.Response:
    """A response of ten tokens in and five out with these blocks."""
    events: list[JsonValue] = [{"type": "message_start", "message": {"usage": {"input_tokens": 10}}}]
    for index, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}})
    events.append({"type": "message_stop"})
    return httpx.Response(200, content="".join(f"data: {json.dumps(event)}\n\n" for event in events))


def refused(status: int) -> httpx.Response:
    return httpx.Response(status, json={"error": {"message": "No."}})


class Provider:
    """A provider that gives each request the next response, and the last one to all further ones."""

    def __init__(self, *responses: httpx.Response) -> None:
        self._responses = list(responses)
        self.bodies: list[dict[str, Any]] = []
        self.model = AnthropicMessages(
            "m", base_url="http://host", api_key="key", cache=False, transport=httpx.MockTransport(self._answer)
        )

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(json.loads(request.content))
        response = self._responses.pop(0) if len(self._responses) > 1 else self._responses[0]
        return httpx.Response(response.status_code, content=response.content)

    async def ask(self) -> list[Delta | ModelResponse]:
        async with self.model:
            return [item async for item in self.model.stream(HELLO)]

    async def reply(self) -> ModelResponse:
        reply = (await self.ask())[-1]
        assert isinstance(reply, ModelResponse)
        return reply


async def test_paused_reply_continues_to_the_end() -> None:
    provider = Provider(
        response("pause_turn", THOUGHT, text("Let me look."), USE),
        response("pause_turn", FOUND, text(" Still looking. ")),
        response("end_turn", text("Found.")),
    )
    *deltas, reply = await provider.ask()
    assert isinstance(reply, ModelResponse)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == reply.text
    assert reply.text == "Let me look. Still looking. Found."
    assert (reply.finish, reply.finish_reason) == (Finish.STOP, "end_turn")
    assert reply.usage == Usage(input_tokens=30, output_tokens=15)
    original, first, second = (body["messages"] for body in provider.bodies)
    assert first == [*original, {"role": "assistant", "content": [THOUGHT, text("Let me look."), USE]}]
    content = [THOUGHT, text("Let me look."), USE, FOUND, text(" Still looking.")]
    assert second == [*original, {"role": "assistant", "content": content}]
    assert [detail for detail in reply.reasoning_details if detail["type"] != "block_order"] == [THOUGHT, USE, FOUND]
    assert {**provider.bodies[2], "messages": original} == provider.bodies[0]


async def test_paused_reply_counts_as_a_single_model_call() -> None:
    provider = Provider(response("pause_turn", USE), response("end_turn", FOUND, text("Found.")))
    engine = Engine(model=provider.model)
    turn = await engine.run(Agent(name="a", steps=1), "hello")
    assert (turn.outcome, turn.text, turn.usage.input_tokens) == (Outcome.FINISHED, "Found.", 20)
    assert (turn.reason, len(provider.bodies)) == (EndReason.ANSWERED, 2)


async def test_endlessly_pausing_reply_is_cut_off() -> None:
    provider = Provider(response("pause_turn", text("a"), USE))
    reply = await provider.reply()
    assert (reply.finish, reply.finish_reason, reply.text) == (Finish.LENGTH, "pause_turn", "a" * MOST_RESPONSES)
    assert len(provider.bodies) == MOST_RESPONSES


async def test_refused_continuation_leaves_the_paused_reply(caplog: pytest.LogCaptureFixture) -> None:
    provider = Provider(response("pause_turn", text("a"), USE), refused(400))
    reply = await provider.reply()
    assert (reply.finish, reply.finish_reason, reply.text) == (Finish.LENGTH, "pause_turn", "a")
    assert reply.usage == Usage(input_tokens=10, output_tokens=5)
    assert "because http://host answered 400: No." in caplog.text


async def test_failed_continuation_restarts_the_reply() -> None:
    provider = Provider(
        response("pause_turn", text("a"), USE),
        refused(529),
        response("pause_turn", USE),
        response("end_turn", text("b")),
    )
    engine = Engine(model=provider.model, backoff=Backoff(initial=0))
    turn = await engine.run(Agent(name="a"), "hello")
    assert (turn.text, turn.usage.input_tokens) == ("b", 30)
    failing = Provider(response("pause_turn", text("a"), USE), refused(529))
    with pytest.raises(ModelError) as error:
        await failing.ask()
    assert error.value.cause is Cause.OVERLOADED
    assert error.value.partial is not None
    assert (error.value.partial.text, error.value.partial.usage) == ("a", Usage(input_tokens=10, output_tokens=5))


@pytest.mark.parametrize("blocks", [[], [text(" ")], [THOUGHT], [USE, {"type": "tool_use", "id": "t", "name": "f"}]])
async def test_pause_without_blocks_or_with_a_call_ends_the_reply(blocks: list[Block]) -> None:
    provider = Provider(response("pause_turn", *blocks))
    reply = await provider.reply()
    assert (reply.finish, len(provider.bodies)) == (Finish.LENGTH, 1)


async def test_final_stop_reason_ends_the_reply() -> None:
    provider = Provider(response("max_tokens", text("a"), USE))
    assert (await provider.reply()).finish is Finish.LENGTH
    assert len(provider.bodies) == 1
