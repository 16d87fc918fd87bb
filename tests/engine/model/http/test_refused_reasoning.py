"""Reasoning is sealed by the account, the model or the server that wrote it, and others refuse the whole request.

A session that continues elsewhere would be lost, because its messages hold the seals.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from pydantic import JsonValue

from turnwright import Agent, Engine, TurnResult, tool
from turnwright.model import AnthropicMessages, OpenAIChat, OpenAIResponses
from turnwright.model.http.client import HttpModel
from turnwright.model.retry import Backoff
from turnwright.store import MemoryStore
from turnwright_states import EndReason

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Clerk")
WORDS = "messages.1.content.0: Invalid `signature` in `thinking` block"
UNVERIFIED = "The encrypted content gAAA...c90= could not be verified."


@tool
async def note() -> str:
    return "noted"


def messages(seal: str, *, asks: bool) -> JsonValue:
    block: JsonValue = (
        {"type": "tool_use", "id": "x", "name": "note", "input": {}} if asks else {"type": "text", "text": "Noted."}
    )
    content: list[JsonValue] = [{"type": "thinking", "thinking": "Hm.", "signature": seal}, block]
    return {"type": "message", "content": content, "stop_reason": "tool_use" if asks else "end_turn"}


def responses(seal: str, *, asks: bool) -> JsonValue:
    item: JsonValue = (
        {"type": "function_call", "call_id": "x", "name": "note", "arguments": "{}"}
        if asks
        else {"type": "message", "content": [{"type": "output_text", "text": "Noted."}]}
    )
    reasoning: JsonValue = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": seal}
    return {"object": "response", "status": "completed", "output": [reasoning, item]}


def chat(seal: str, *, asks: bool) -> JsonValue:
    details: JsonValue = [{"type": "reasoning.encrypted", "data": seal, "index": 0}]
    call: JsonValue = {"index": 0, "id": "x", "function": {"name": "note", "arguments": "{}"}}
    answer: dict[str, JsonValue] = {"tool_calls": [call]} if asks else {"content": "Noted."}
    return {"choices": [{"message": {"reasoning_details": details, **answer}, "finish_reason": "stop"}]}


@dataclass
class Server:
    """It refuses each seal but its own. `asks` is for a call before the answer."""

    reply: Callable[..., JsonValue]
    seal: str
    error: JsonValue
    status: int = 400
    asks: bool = False
    bodies: list[str] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = request.content.decode()
        self.bodies.append(body)
        if "sealed by" in body.replace(self.seal, ""):
            return httpx.Response(self.status, json=self.error)
        results = body.count("noted")
        return httpx.Response(200, json=self.reply(self.seal, asks=self.asks and not results % 2))


Make = Callable[..., HttpModel]
APIS = pytest.mark.parametrize(
    ("make", "reply", "error"),
    [
        (AnthropicMessages, messages, {"type": "error", "error": {"type": "invalid_request_error", "message": WORDS}}),
        (OpenAIResponses, responses, {"error": {"message": UNVERIFIED, "code": "invalid_encrypted_content"}}),
        (OpenAIResponses, responses, {"error": {"message": UNVERIFIED, "code": None}}),
        (OpenAIChat, chat, {"error": {"message": "Provider returned error", "metadata": {"raw": WORDS}}}),
    ],
    ids=["messages", "responses", "azure", "openrouter"],
)


async def run(make: Make, server: Server, store: MemoryStore, **options: Any) -> TurnResult:  # noqa: ANN401
    transport = httpx.MockTransport(server)
    async with make("m", base_url="http://host", api_key="k", transport=transport, **options) as model:
        engine = Engine(model=model, tools=[note], store=store, backoff=Backoff(initial=0))
        return await engine.run(AGENT, "Take a note.", session="s1")


@APIS
@pytest.mark.parametrize("status", [400, 200])
async def test_session_continues_without_the_reasoning_of_another_account(
    make: Make, reply: Callable[..., JsonValue], error: JsonValue, status: int
) -> None:
    """Also if the refusal comes in the reply. Each turn asks again, so that a session may return."""
    store, seal = MemoryStore(), "sealed by one"
    await run(make, Server(reply, seal, error), store)
    server = Server(reply, "sealed by two", error, status)
    for _ in range(2):
        turn = await run(make, server, store)
        assert (turn.text, turn.error) == ("Noted.", "")
    assert [seal in body for body in server.bodies] == [True, False, True, False]
    first = Server(reply, seal, error)
    assert (await run(make, first, store)).text == "Noted."


@pytest.mark.parametrize("thinking", [{"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1024}])
async def test_own_reasoning_of_the_turn_is_sent_beside_the_refusal(thinking: dict[str, JsonValue]) -> None:
    store = MemoryStore()
    error: JsonValue = {"type": "error", "error": {"type": "invalid_request_error", "message": WORDS}}
    await run(AnthropicMessages, Server(messages, "sealed by one", error), store)
    server = Server(messages, "sealed by two", error, asks=True)
    turn = await run(AnthropicMessages, server, store, thinking=thinking)
    assert (turn.text, turn.tool_calls) == ("Noted.", 1)
    assert ["sealed by one" in body for body in server.bodies] == [True, False, False]
    assert "sealed by two" in server.bodies[-1]
    assert json.loads(server.bodies[-1])["thinking"] == thinking


@APIS
@pytest.mark.parametrize("status", [400, 200])
async def test_server_that_refuses_all_requests_is_asked_twice(
    make: Make, reply: Callable[..., JsonValue], error: JsonValue, status: int
) -> None:
    store = MemoryStore()
    await run(make, Server(reply, "sealed by one", error), store)
    bodies: list[bytes] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        bodies.append(request.content)
        return httpx.Response(status, json=error)

    async with make("m", base_url="http://host", api_key="k", transport=httpx.MockTransport(refuse)) as model:
        engine = Engine(model=model, store=store, backoff=Backoff(initial=0))
        alone = await engine.run(Agent(name="Clerk", max_retries=0), "Hello.")
        assert (alone.reason, len(bodies)) == (EndReason.MODEL_ERROR, 1)
        bodies.clear()
        turn = await engine.run(Agent(name="Clerk", max_retries=0), "Go on.", session="s1")
    assert (turn.reason, len(bodies)) == (EndReason.MODEL_ERROR, 2)


REQUIRED = "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1"


def kimi(request: httpx.Request, bodies: list[bytes], status: int) -> httpx.Response:
    """Answer as Kimi does behind any gateway: each call needs the thinking before it."""
    bodies.append(request.content)
    history = json.loads(request.content)["messages"]
    if any(message.get("tool_calls") and message.get("reasoning_content") != "Hm." for message in history):
        return httpx.Response(status, json={"error": {"message": REQUIRED, "type": "invalid_request_error"}})
    call: JsonValue = {"index": 0, "id": "x", "function": {"name": "note", "arguments": "{}"}}
    asks: JsonValue = {"reasoning_content": "Hm.", "tool_calls": [call]}
    answer: JsonValue = {"content": "Noted."} if history[-1]["role"] == "tool" else asks
    return httpx.Response(200, json={"choices": [{"message": answer, "finish_reason": "stop"}]})


@pytest.mark.parametrize("status", [400, 200])
async def test_server_that_requires_reasoning_is_believed_once(status: int) -> None:
    bodies: list[bytes] = []
    transport = httpx.MockTransport(lambda request: kimi(request, bodies, status))
    async with OpenAIChat("m", base_url="http://host", transport=transport) as model:
        engine = Engine(model=model, tools=[note])
        for _ in range(2):
            turn = await engine.run(AGENT, "Take a note.", session="s1")
            assert (turn.text, turn.tool_calls) == ("Noted.", 1)
    assert [b"Hm." in body for body in bodies] == [False, False, True, True, True]


@pytest.mark.parametrize("make", [OpenAIChat, OpenAIResponses, AnthropicMessages])
@pytest.mark.parametrize(
    "words", [REQUIRED, "The `content[].thinking` in the thinking mode must be passed back to it."]
)
async def test_server_that_refuses_required_reasoning_is_asked_twice(make: Make, words: str) -> None:
    bodies: list[bytes] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        bodies.append(request.content)
        return httpx.Response(200, json={"error": {"message": words}})

    async with make("m", base_url="http://host", api_key="k", transport=httpx.MockTransport(refuse)) as model:
        history = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello."}]
        turn = await Engine(model=model).run(Agent(name="Clerk", max_retries=0), "Go on.", message_history=history)
    assert (turn.reason, len(bodies)) == (EndReason.MODEL_ERROR, 1 if make is OpenAIResponses else 2)
