"""The client against llama.cpp's real server. What the model says is its own business: only the shapes are tested."""

import json
from collections.abc import Iterator, Mapping

import anyio
import httpx
import pytest
from pydantic import JsonValue
from tests.engine.model.chunks import decode
from tests.engine.model.llama_cpp import MULTIPLY, PRODUCT, WEATHER, ask, failure, needs_model

from turnwright.message import Message, ToolCallPart
from turnwright.model.local.server import LocalServer
from turnwright.model.openai_chat.client import OpenAIChat
from turnwright.model.protocol import ModelRequest, TextDelta
from turnwright_states import Cause, Finish


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """One server for all tests that do not end it."""
    server = LocalServer()
    server.start()
    yield server
    server.stop()


def client(server: LocalServer, extra: Mapping[str, JsonValue] | None = None) -> OpenAIChat:
    """A plain client: what the server does is tested, not what `LocalModel` adds."""
    return OpenAIChat(
        server.model,
        base_url=server.base_url,
        api_key=server.api_key,
        extra_body={"temperature": 0, "seed": 1, **(extra or {})},
    )


# What the server answers


@needs_model
@pytest.mark.anyio
async def test_streamed_pieces_make_up_the_reply(server: LocalServer) -> None:
    async with client(server) as model:
        deltas, reply = await ask(model, ModelRequest((Message.user("Say hello."),), max_tokens=32))
    assert len(deltas) > 1
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == reply.text
    assert reply.calls == ()
    assert reply.usage is not None
    assert reply.usage.input_tokens > 0
    assert 0 < reply.usage.output_tokens <= 32


@needs_model
@pytest.mark.anyio
async def test_a_required_call_arrives_with_whole_arguments(server: LocalServer) -> None:
    async with client(server) as model:
        _, reply = await ask(model, ModelRequest((PRODUCT,), (MULTIPLY,), tool_choice="required", max_tokens=64))
    (call,) = reply.calls
    assert call.name == "multiply"
    assert call.id
    assert call.arguments is not None
    assert set(call.arguments) == {"a", "b"}
    assert all(isinstance(value, int) for value in call.arguments.values())
    assert reply.finish is Finish.STOP


@needs_model
@pytest.mark.anyio
async def test_parallel_calls_each_have_an_id_and_whole_arguments(server: LocalServer) -> None:
    async with client(server, {"parallel_tool_calls": True}) as model:
        question = Message.user("What is the weather in Paris and in Rome?")
        _, reply = await ask(model, ModelRequest((question,), (WEATHER,), tool_choice="required", max_tokens=128))
    assert len(reply.calls) > 1
    assert len({call.id for call in reply.calls}) == len(reply.calls)
    assert all(call.arguments is not None and set(call.arguments) == {"city"} for call in reply.calls)


@needs_model
@pytest.mark.anyio
async def test_server_stream_is_read_alike_at_any_cuts(server: LocalServer) -> None:
    """With two calls in it, which it streams in pieces one after the other."""
    body = {
        "messages": [{"role": "user", "content": "What is the weather in Paris and in Rome?"}],
        "tools": [
            {
                "type": "function",
                "function": {"name": WEATHER.name, "description": "", "parameters": WEATHER.parameters},
            }
        ],
        "tool_choice": "required",
        "parallel_tool_calls": True,
        "temperature": 0,
        "seed": 1,
        "max_tokens": 128,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"Authorization": f"Bearer {server.api_key}"}
    async with httpx.AsyncClient(trust_env=False, timeout=60) as plain:
        response = await plain.post(f"{server.base_url}/chat/completions", json=body, headers=headers)
    data = response.content
    deltas = [json.loads(line[6:]) for line in response.text.split("\n") if line.startswith("data: {")]
    pieces = [
        piece for delta in deltas for choice in delta["choices"] for piece in choice["delta"].get("tool_calls", [])
    ]
    assert len({piece["index"] for piece in pieces}) > 1
    assert len(pieces) > len({piece["index"] for piece in pieces})
    whole = decode(data)
    assert whole.complete
    assert len(whole.reply().calls) > 1
    assert all(call.arguments for call in whole.reply().calls)
    assert whole.reply().usage is not None
    for size in (1, 7, 100):
        assert decode(data[start : start + size] for start in range(0, len(data), size)).reply() == whole.reply()


@needs_model
@pytest.mark.anyio
async def test_history_with_a_call_and_a_result_is_answered_in_text(server: LocalServer) -> None:
    history = (
        PRODUCT,
        Message.assistant(calls=[ToolCallPart(id="t1", name="multiply", arguments={"a": 17, "b": 23})]),
        Message.result("t1", "multiply", "391"),
    )
    async with client(server) as model:
        _, reply = await ask(model, ModelRequest(history, (MULTIPLY,), max_tokens=128))
    assert reply.text
    assert reply.calls == ()
    assert reply.finish is Finish.STOP


@needs_model
@pytest.mark.anyio
async def test_reply_cut_by_max_tokens_finishes_as_length(server: LocalServer) -> None:
    async with client(server) as model:
        _, reply = await ask(model, ModelRequest((Message.user("Write a long story."),), max_tokens=4))
    assert reply.finish is Finish.LENGTH
    assert reply.usage is not None
    assert reply.usage.output_tokens == 4


@needs_model
@pytest.mark.anyio
async def test_tool_choice_none_gives_text_though_the_tools_are_kept(server: LocalServer) -> None:
    async with client(server) as model:
        _, reply = await ask(model, ModelRequest((PRODUCT,), (MULTIPLY,), tool_choice="none", max_tokens=64))
    assert reply.calls == ()
    assert reply.text


# What the server refuses


@needs_model
@pytest.mark.anyio
async def test_a_bad_request_is_an_error_in_the_servers_words(server: LocalServer) -> None:
    async with client(server, {"response_format": {"type": "nonsense"}}) as model:
        error = await failure(model, ModelRequest((Message.user("Hello."),), max_tokens=4))
    assert (error.cause, error.status) == (Cause.BAD_REQUEST, 400)
    assert "response_format" in str(error)


@needs_model
@pytest.mark.anyio
async def test_request_beyond_the_context_is_an_overflow(server: LocalServer) -> None:
    async with client(server) as model:
        error = await failure(model, ModelRequest((Message.user("word " * 9000),), max_tokens=4))
    assert (error.cause, error.status) == (Cause.CONTEXT_OVERFLOW, 400)
    assert "8192" in str(error)


@needs_model
@pytest.mark.anyio
async def test_wrong_key_is_refused(server: LocalServer) -> None:
    async with OpenAIChat(server.model, base_url=server.base_url, api_key="a-wrong-key") as model:
        error = await failure(model, ModelRequest((Message.user("Hello."),), max_tokens=4))
    assert (error.cause, error.status) == (Cause.AUTHENTICATION, 401)


@needs_model
@pytest.mark.anyio
async def test_call_cancelled_midstream_frees_the_server(server: LocalServer) -> None:
    """It has one slot: were the first call not given up, the second would wait until it has its 4,000 tokens."""
    async with client(server, {"ignore_eos": True}) as endless, client(server) as model:
        with anyio.CancelScope() as scope:
            async for _ in endless.stream(ModelRequest((Message.user("Write a story."),), max_tokens=4000)):
                scope.cancel()
        assert scope.cancelled_caught
        with anyio.fail_after(60):
            _, reply = await ask(model, ModelRequest((Message.user("Say hello."),), max_tokens=4))
    assert reply.text
