"""The client of the Messages API, with the network replaced by a transport."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import httpx
import pytest
from pydantic import JsonValue

from turnwright.errors import ConfigError
from turnwright.message import Message, ToolCallPart, ToolSpec
from turnwright.model.anthropic.client import ANTHROPIC_API, AnthropicMessages
from turnwright.model.capabilities import Capabilities
from turnwright.model.protocol import (
    Delta,
    Model,
    ModelError,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from turnwright_states import Cause, Finish, Usage

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

HELLO = ModelRequest((Message.user("hello"),))
KEY = "sk-secret-1234"
START: JsonValue = {"type": "message_start", "message": {"type": "message", "usage": {"input_tokens": 9}}}
STOP: JsonValue = {"type": "message_stop"}


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (ANTHROPIC_API.address_variable, ANTHROPIC_API.key_variable, ANTHROPIC_API.token_variable):
        monkeypatch.delenv(variable, raising=False)


class Body(httpx.AsyncByteStream):
    """A body that comes in pieces: bytes, errors to raise, or seconds to be silent. It knows whether it was closed."""

    def __init__(self, *pieces: bytes | Exception | float) -> None:
        self._pieces = pieces
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, bytes):
                yield piece
            else:
                await anyio.sleep(piece)

    async def aclose(self) -> None:
        self.closed = True


def sse(*events: JsonValue) -> bytes:
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events if isinstance(event, dict)
    )


def block(index: int, kind: str, *deltas: JsonValue, **more: str) -> bytes:
    started: JsonValue = {"type": "content_block_start", "index": index, "content_block": {"type": kind, **more}}
    going_on = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return sse(started, *going_on, {"type": "content_block_stop", "index": index})


def text(*pieces: str, index: int = 0) -> bytes:
    deltas: list[JsonValue] = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, "text", *deltas, text="")


def stop(reason: str = "end_turn") -> JsonValue:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}}


USED = Usage(input_tokens=9, output_tokens=7)


def model(
    answer: Body | httpx.Response | Exception | Callable[[httpx.Request], httpx.Response],
    **options: Any,  # noqa: ANN401 (whatever the constructor takes)
) -> AnthropicMessages:
    """Make a model whose server always gives `answer`."""

    def handle(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Body):
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=answer)
        return answer if isinstance(answer, httpx.Response) else answer(request)

    options = {"base_url": "http://host", "api_key": KEY, "transport": httpx.MockTransport(handle), **options}
    return AnthropicMessages("m", **options)


async def ask(model: AnthropicMessages, request: ModelRequest = HELLO) -> list[Delta | ModelResponse]:
    async with model:
        return [item async for item in model.stream(request)]


async def failure(model: AnthropicMessages) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(model)
    return caught.value


async def bodies(request: ModelRequest, **options: Any) -> dict[str, Any]:  # noqa: ANN401 (whatever the constructor takes)
    """The body that a server is sent."""
    bodies: list[dict[str, Any]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, content=sse(START, stop(), STOP))

    await ask(model(handle, **options), request)
    (body,) = bodies
    return body


def accepts(model: Model) -> Model:
    return model


async def test_client_is_a_model() -> None:
    assert accepts(model(Body())).name == "m"


async def test_thinking_and_text_stream_and_the_reply_comes_last() -> None:
    thinking: JsonValue = {"type": "thinking_delta", "thinking": "hm"}
    signature: JsonValue = {"type": "signature_delta", "signature": "c2ln"}
    body = Body(sse(START) + block(0, "thinking", thinking, signature), text("a", "b", index=1), sse(stop(), STOP))
    *deltas, reply = await ask(model(body))
    assert deltas == [ReasoningDelta("hm"), TextDelta("a"), TextDelta("b")]
    details: tuple[dict[str, JsonValue], ...] = ({"type": "thinking", "thinking": "hm", "signature": "c2ln"},)
    assert reply == ModelResponse(text="ab", reasoning="hm", reasoning_details=details, usage=USED)
    assert body.closed


async def test_parallel_calls_are_given_in_their_order() -> None:
    def call(index: int, name: str, *arguments: str) -> bytes:
        deltas: list[JsonValue] = [{"type": "input_json_delta", "partial_json": piece} for piece in arguments]
        return block(index, "tool_use", *deltas, id=f"toolu_{index}", name=name)

    body = Body(sse(START), call(0, "f", '{"a"', ": 1}"), call(1, "g"), sse(stop("tool_use"), STOP))
    *deltas, reply = await ask(model(body))
    assert deltas == [
        ToolCallDelta(0, "f", ""),
        ToolCallDelta(0, "f", '{"a"'),
        ToolCallDelta(0, "f", ": 1}"),
        ToolCallDelta(1, "g", ""),
    ]
    assert isinstance(reply, ModelResponse)
    assert [(call.id, call.name, call.arguments) for call in reply.calls] == [
        ("toolu_0", "f", {"a": 1}),
        ("toolu_1", "g", {}),
    ]


async def test_request_goes_to_the_endpoint_with_key_version_and_headers() -> None:
    requests: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, content=sse(START, stop(), STOP))

    await ask(model(handle, headers={"anthropic-beta": "x-2025"}, extra_body={"temperature": 0}))
    (request,) = requests
    assert (request.method, str(request.url)) == ("POST", "http://host/v1/messages")
    assert request.headers["x-api-key"] == KEY
    assert "authorization" not in request.headers
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert request.headers["anthropic-beta"] == "x-2025"
    assert request.headers["content-type"] == "application/json"
    body = json.loads(request.content)
    assert (body["model"], body["stream"], body["temperature"]) == ("m", True, 0)


async def test_the_options_reach_the_request() -> None:
    thinking = {"type": "enabled", "budget_tokens": 2000}
    tools = (ToolSpec("f", "Do it.", {"type": "object"}),)
    request = ModelRequest(HELLO.messages, tools, first=True)
    body = await bodies(request, max_tokens=5000, thinking=thinking, cache=False)
    assert (body["max_tokens"], body["thinking"]) == (5000, thinking)
    assert "cache_control" not in json.dumps(body)
    body = await bodies(request, tool_choice_first="required")
    assert body["tool_choice"] == {"type": "any"}
    assert json.dumps(body).count("cache_control") == 2


class TestCapabilities:
    async def test_tools_are_defined_where_the_conversation_holds_calls(self) -> None:
        call = ToolCallPart(id="c1", name="f")
        messages = (*HELLO.messages, Message.assistant(calls=[call]), Message.result("c1", "f", "a"))
        body = await bodies(ModelRequest(messages))
        assert [tool["name"] for tool in body["tools"]] == ["f"]
        assert body["tool_choice"] == {"type": "none"}

    async def test_no_request_ends_with_the_assistant(self) -> None:
        body = await bodies(ModelRequest((*HELLO.messages, Message.assistant("a"))))
        assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]

    async def test_capabilities_can_be_given(self) -> None:
        mine = Capabilities(parallel_tool_calls=False)
        assert model(Body(), capabilities=mine).capabilities == mine
        tools = (ToolSpec("f", "Do it.", {"type": "object"}),)
        body = await bodies(ModelRequest(HELLO.messages, tools), capabilities=mine)
        assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


async def test_reply_without_a_stream_is_understood() -> None:
    body = {
        "type": "message",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 9, "output_tokens": 7},
    }
    assert await ask(model(httpx.Response(200, json=body))) == [TextDelta("hi"), ModelResponse(text="hi", usage=USED)]


async def test_refusal_finishes_as_content_filter() -> None:
    (reply,) = await ask(model(Body(sse(START, stop("refusal"), STOP))))
    assert isinstance(reply, ModelResponse)
    assert reply.finish is Finish.CONTENT_FILTER


class TestFailures:
    @pytest.mark.parametrize(
        ("status", "kind", "words", "cause"),
        [
            (400, "invalid_request_error", "messages: at least one message is required", Cause.BAD_REQUEST),
            (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000", Cause.CONTEXT_OVERFLOW),
            (400, "invalid_request_error", "Your credit balance is too low to access", Cause.PERMISSION),
            (400, "invalid_request_error", "Output blocked by content filtering policy", Cause.CONTENT_FILTER),
            (401, "authentication_error", "invalid x-api-key", Cause.AUTHENTICATION),
            (402, "billing_error", "There is an issue with your billing", Cause.PERMISSION),
            (403, "permission_error", "not allowed", Cause.PERMISSION),
            (404, "not_found_error", "model: m", Cause.NOT_FOUND),
            (413, "request_too_large", "Request exceeds the maximum size", Cause.CONTEXT_OVERFLOW),
            (429, "rate_limit_error", "too many tokens a minute", Cause.RATE_LIMITED),
            (500, "api_error", "Internal server error", Cause.SERVER_ERROR),
            (504, "timeout_error", "The request timed out", Cause.TIMEOUT),
            (529, "overloaded_error", "Overloaded", Cause.OVERLOADED),
        ],
    )
    async def test_each_status_has_a_cause(self, status: int, kind: str, words: str, cause: Cause) -> None:
        body = {"type": "error", "error": {"type": kind, "message": words}, "request_id": "req_1"}
        error = await failure(model(httpx.Response(status, json=body)))
        assert (error.cause, error.status, error.partial) == (cause, status, None)
        assert f"http://host answered {status}: {words}" in str(error)

    async def test_refused_key_names_the_variable(self) -> None:
        error = await failure(model(httpx.Response(401, json={"error": {"message": "invalid x-api-key"}})))
        assert "set ANTHROPIC_API_KEY, or pass api_key" in str(error)

    @pytest.mark.parametrize(
        ("kind", "cause"),
        [
            ("overloaded_error", Cause.OVERLOADED),
            ("rate_limit_error", Cause.RATE_LIMITED),
            ("api_error", Cause.SERVER_ERROR),
            ("timeout_error", Cause.TIMEOUT),
        ],
    )
    async def test_error_inside_the_reply_has_a_cause_and_the_partial_reply(self, kind: str, cause: Cause) -> None:
        lost: JsonValue = {"type": "error", "error": {"type": kind, "message": "the words"}}
        error = await failure(model(Body(sse(START), text("a"), sse(lost))))
        assert (error.cause, error.status) == (cause, None)
        assert error.partial is not None
        assert error.partial.text == "a"
        assert "the words" in str(error)

    async def test_requested_wait_is_passed_on(self) -> None:
        error = await failure(model(httpx.Response(429, headers={"Retry-After": "7"})))
        assert error.retry_after == 7
        spent = {
            "anthropic-ratelimit-requests-remaining": "0",
            "anthropic-ratelimit-requests-reset": "2020-01-01T00:00:00Z",
        }
        assert (await failure(model(httpx.Response(429, headers=spent)))).retry_after == 0

    async def test_broken_connection_is_an_interruption_with_the_partial_reply(self) -> None:
        body = Body(sse(START), text("a"), httpx.ReadError("reset"))
        error = await failure(model(body))
        assert error.cause is Cause.INTERRUPTED
        assert error.partial is not None
        assert error.partial.text == "a"
        assert body.closed

    async def test_broken_connection_after_the_stop_reason_loses_nothing(self) -> None:
        body = Body(sse(START), text("a"), sse(stop()), httpx.ReadError("reset"))
        assert await ask(model(body)) == [TextDelta("a"), ModelResponse(text="a", usage=USED)]

    async def test_silence_is_a_time_out(self) -> None:
        error = await failure(model(Body(sse(START), text("a"), 5.0), idle_timeout=0.01))
        assert error.cause is Cause.TIMEOUT
        assert (await failure(model(httpx.ConnectTimeout("")))).cause is Cause.TIMEOUT

    async def test_a_web_page_is_no_reply(self) -> None:
        error = await failure(model(httpx.Response(200, html="<html><title>Log in</title>")))
        assert error.cause is Cause.REJECTED
        assert str(error).startswith("http://host")
        assert "Log in" in str(error)

    @pytest.mark.parametrize(
        "answer",
        [
            httpx.Response(401, json={"error": {"message": f"invalid x-api-key: {KEY}"}}),
            httpx.Response(200, content=sse({"type": "error", "error": {"message": KEY}})),
            httpx.Response(302, headers={"location": f"https://host/?key={KEY}"}),
            httpx.ConnectError(f"cannot send {KEY}"),
        ],
    )
    async def test_the_key_is_never_told(self, answer: httpx.Response | Exception) -> None:
        assert "sk-" not in str(await failure(model(answer)))


async def test_cancellation_closes_the_connection() -> None:
    body = Body(sse(START), text("a"), 60.0)
    items: list[object] = []
    with anyio.move_on_after(0.02) as scope:
        async for item in model(body).stream(HELLO):
            items.append(item)  # noqa: PERF401 (a comprehension would be lost with the cancellation)
    assert scope.cancelled_caught
    assert items == [TextDelta("a")]
    assert body.closed


def test_model_outlives_the_event_loop() -> None:
    messages_model = model(lambda _: httpx.Response(200, content=sse(START) + text("a") + sse(stop(), STOP)))

    async def once() -> list[Delta | ModelResponse]:
        return [item async for item in messages_model.stream(HELLO)]

    assert anyio.run(once) == anyio.run(once)


class TestConstruction:
    async def test_repr_shows_no_secret(self) -> None:
        messages_model = AnthropicMessages(
            "m", base_url="http://me:hush@host/v1?key=hush", headers={"x-key": "hush"}, api_key=KEY
        )
        assert repr(messages_model) == "AnthropicMessages('m', base_url='http://host/v1')"

    async def test_anthropics_own_address_needs_a_key(self) -> None:
        with pytest.raises(ConfigError, match="set ANTHROPIC_API_KEY"):
            AnthropicMessages("m")

    @pytest.mark.parametrize(
        ("options", "fault"),
        [
            ({"base_url": "host/v1"}, "base URL"),
            ({"api_key": "a\nb"}, "API key"),
            ({"headers": {"x": "\n"}}, "header"),
            ({"extra_body": {"messages": []}}, "extra_body"),
            ({"thinking": {}}, "thinking has no type"),
            ({"max_tokens": 0}, "max_tokens is 0"),
            ({"connect_timeout": 0}, "connect timeout is 0"),
        ],
    )
    async def test_unusable_option_is_refused_at_once(self, options: dict[str, Any], fault: str) -> None:
        with pytest.raises(ConfigError, match=fault):
            model(Body(), **options)

    async def test_a_model_needs_a_name(self) -> None:
        with pytest.raises(ConfigError, match="no name"):
            AnthropicMessages("", base_url="http://host")
