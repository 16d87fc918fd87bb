"""The client, with the network replaced by a transport."""

import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import httpx
import pytest
from pydantic import JsonValue

from turnwright import Agent, Engine
from turnwright.errors import ConfigError
from turnwright.message import Message, ToolSpec
from turnwright.model.capabilities import Capabilities
from turnwright.model.openai_chat.client import OpenAIChat
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
from turnwright_states import Cause, Usage

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

HELLO = ModelRequest((Message.user("hello"),))
KEY = "sk-secret-1234"


class Body(httpx.AsyncByteStream):
    """A body that comes in pieces: bytes, errors to raise, or seconds to be silent. It knows whether it was closed."""

    def __init__(self, *pieces: bytes | Exception | float) -> None:
        self._pieces = pieces
        self.closed = False
        self.read = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, bytes):
                self.read += 1
                yield piece
            else:
                await anyio.sleep(piece)

    async def aclose(self) -> None:
        self.closed = True


def sse(*chunks: JsonValue, done: bool = True) -> bytes:
    return b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks) + (
        b"data: [DONE]\n\n" if done else b""
    )


def chunk(delta: JsonValue, finish: str | None = None) -> JsonValue:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def model(
    answer: Body | httpx.Response | Exception | Callable[[httpx.Request], httpx.Response],
    **options: Any,  # noqa: ANN401 (whatever the constructor takes)
) -> OpenAIChat:
    """Make a model whose server always gives `answer`."""

    def handle(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Body):
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=answer)
        return answer if isinstance(answer, httpx.Response) else answer(request)

    options = {"base_url": "http://host/v1", "api_key": KEY, "transport": httpx.MockTransport(handle), **options}
    return OpenAIChat("m", **options)


async def ask(model: OpenAIChat, request: ModelRequest = HELLO) -> list[Delta | ModelResponse]:
    async with model:
        return [item async for item in model.stream(request)]


async def failure(model: OpenAIChat) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(model)
    return caught.value


def accepts(model: Model) -> Model:
    return model


async def test_key_in_the_address_is_in_no_http_log(caplog: pytest.LogCaptureFixture) -> None:
    """The library passes the full address of each request to its log handlers."""
    caplog.set_level("INFO")
    answers = httpx.MockTransport(lambda _: httpx.Response(200, content=sse(chunk({"content": "a"}, "stop"))))
    async with OpenAIChat("m", base_url=f"http://h.test/v1?api-key={KEY}", transport=answers) as client:
        assert [item async for item in client.stream(HELLO)]
    assert "HTTP Request: POST http://h.test/v1/chat/completions?api-key=***" in caplog.text
    assert KEY not in caplog.text


async def test_client_is_a_model() -> None:
    assert accepts(model(Body())).name == "m"


async def test_text_streams_and_the_reply_comes_last() -> None:
    usage: JsonValue = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}
    body = Body(
        sse(chunk({"reasoning_content": "hm"}), chunk({"content": "a"}), done=False),
        sse(chunk({"content": "b"}), chunk({}, "stop"), usage),
    )
    assert await ask(model(body)) == [
        ReasoningDelta("hm"),
        TextDelta("a"),
        TextDelta("b"),
        ModelResponse(text="ab", reasoning="hm", usage=Usage(input_tokens=1, output_tokens=2)),
    ]
    assert body.closed


async def test_parallel_calls_are_given_in_their_order() -> None:
    def call(index: int, name: str, arguments: str) -> JsonValue:
        return {"index": index, "id": f"id{index}", "function": {"name": name, "arguments": arguments}}

    body = Body(
        sse(chunk({"tool_calls": [call(0, "f", '{"a"'), call(1, "g", "")]}), done=False),
        sse(chunk({"tool_calls": [call(0, "", ": 1}")]}), chunk({}, "tool_calls")),
    )
    *deltas, reply = await ask(model(body))
    assert deltas == [ToolCallDelta(0, "f", '{"a"'), ToolCallDelta(1, "g", ""), ToolCallDelta(0, "f", ": 1}")]
    assert isinstance(reply, ModelResponse)
    assert [(call.id, call.name, call.arguments) for call in reply.calls] == [("id0", "f", {"a": 1}), ("id1", "g", {})]


async def test_request_goes_to_the_endpoint_with_key_and_headers() -> None:
    requests: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, content=sse(chunk({"content": "a"}, "stop")))

    await ask(model(handle, headers={"X-Title": "t"}, extra_body={"seed": 1}))
    (request,) = requests
    assert (request.method, str(request.url)) == ("POST", "http://host/v1/chat/completions")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["x-title"] == "t"
    assert request.headers["content-type"] == "application/json"
    body = json.loads(request.content)
    assert (body["model"], body["stream"], body["seed"]) == ("m", True, 1)
    assert body["messages"] == [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("base_url", "options", "field"),
    [
        ("https://api.openai.com/v1", {}, "max_completion_tokens"),
        ("https://mine.openai.azure.com/openai/v1", {}, "max_completion_tokens"),
        ("https://mine.openai.azure.com/openai/v1", {"max_tokens_field": "max_tokens"}, "max_tokens"),
        ("https://openai.azure.com.evil.example/v1", {}, "max_tokens"),
        ("http://host/v1", {}, "max_tokens"),
        ("http://host/v1", {"max_tokens_field": "max_completion_tokens"}, "max_completion_tokens"),
    ],
)
async def test_max_tokens_has_the_name_known_to_the_server(base_url: str, options: dict[str, Any], field: str) -> None:
    bodies: list[dict[str, JsonValue]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, content=sse(chunk({}, "stop")))

    await ask(model(handle, base_url=base_url, **options), ModelRequest(HELLO.messages, max_tokens=9))
    assert {name: value for name, value in bodies[0].items() if name.startswith("max")} == {field: 9}


REFUSED = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
UNKNOWN = "Unrecognized request argument supplied: max_completion_tokens"


class Renaming:
    """A server that takes the limit of a reply under one name only, and answers the other with these words."""

    def __init__(self, field: str, words: str, *, streams: bool = False) -> None:
        self.field, self.words, self.streams = field, words, streams
        self.sent_fields: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        (field,) = {"max_tokens", "max_completion_tokens"} & set(body)
        self.sent_fields.append(field)
        if field == self.field:
            return httpx.Response(200, content=sse(chunk({"content": "a"}, "stop")))
        error: JsonValue = {"error": {"message": self.words, "type": "invalid_request_error", "param": field}}
        return httpx.Response(200, content=sse(error)) if self.streams else httpx.Response(400, json=error)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("base_url", "field", "words"),
    [
        ("http://gateway/v1", "max_completion_tokens", REFUSED),
        ("http://gateway/v1", "max_completion_tokens", f"litellm.BadRequestError: {'x' * 300} {REFUSED}"),
        ("http://gateway/v1", "max_completion_tokens", "use max_completion_tokens"),
        ("https://mine.openai.azure.com/openai/v1", "max_tokens", UNKNOWN),
    ],
)
async def test_a_refused_name_of_the_limit_is_replaced_once_and_remembered(
    base_url: str, field: str, words: str, *, streams: bool
) -> None:
    server = Renaming(field, words, streams=streams)
    client, request = model(server, base_url=base_url), ModelRequest(HELLO.messages, max_tokens=9)
    for _ in range(3):
        assert await ask(client, request) == [TextDelta("a"), ModelResponse(text="a")]
    assert [name == field for name in server.sent_fields] == [False, True, True, True]


async def test_calls_at_the_same_time_all_use_the_other_name() -> None:
    server = Renaming("max_completion_tokens", REFUSED)
    client, request = model(server), ModelRequest(HELLO.messages, max_tokens=9)
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(ask, client, request)
    assert server.sent_fields.count("max_completion_tokens") == 3


@pytest.mark.parametrize(
    ("options", "words", "requests"),
    [
        ({}, "max_completion_tokens is too large: 9. This model supports at most 8.", 1),
        ({}, "max_tokens is too large: 9", 1),
        ({"max_tokens_field": "max_tokens"}, REFUSED, 1),
        ({}, REFUSED, 2),
    ],
)
async def test_refusal_unrelated_to_the_limit_name_is_an_error(
    options: dict[str, Any], words: str, requests: int
) -> None:
    server = Renaming("neither", words)
    client = model(server, **options)
    for _ in range(2):
        with pytest.raises(ModelError, match="answered 400") as caught:
            await ask(client, ModelRequest(HELLO.messages, max_tokens=9))
        assert caught.value.cause is Cause.BAD_REQUEST
    assert len(server.sent_fields) == requests + 1


async def test_the_first_call_may_require_a_tool() -> None:
    choices: list[JsonValue] = []

    def handle(request: httpx.Request) -> httpx.Response:
        choices.append(json.loads(request.content).get("tool_choice"))
        return httpx.Response(200, content=sse(chunk({}, "stop")))

    tools = (ToolSpec("f", "Do it.", {"type": "object"}),)
    local = model(handle, tool_choice_first="required")
    for request in (ModelRequest(HELLO.messages, tools, first=True), ModelRequest(HELLO.messages, tools)):
        await ask(local, request)
    assert choices == ["required", None]


async def test_reply_without_a_stream_is_understood() -> None:
    body = {"object": "chat.completion", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
    assert await ask(model(httpx.Response(200, json=body))) == [TextDelta("hi"), ModelResponse(text="hi")]


async def test_refusal_without_text_is_the_answer() -> None:
    """Else the chart would see an empty reply, and ask again and again."""
    assert await ask(model(Body(sse(chunk({"refusal": "No."}, "stop"))))) == [
        TextDelta("No."),
        ModelResponse(text="No."),
    ]


class TestFailures:
    @pytest.mark.parametrize(
        ("status", "cause"),
        [
            (400, Cause.BAD_REQUEST),
            (401, Cause.AUTHENTICATION),
            (403, Cause.PERMISSION),
            (404, Cause.NOT_FOUND),
            (408, Cause.TIMEOUT),
            (409, Cause.CONFLICT),
            (413, Cause.CONTEXT_OVERFLOW),
            (418, Cause.REJECTED),
            (422, Cause.BAD_REQUEST),
            (429, Cause.RATE_LIMITED),
            (500, Cause.SERVER_ERROR),
            (503, Cause.OVERLOADED),
            (529, Cause.OVERLOADED),
        ],
    )
    async def test_each_status_has_a_cause(self, status: int, cause: Cause) -> None:
        error = await failure(model(httpx.Response(status, json={"error": {"message": "the words"}})))
        assert (error.cause, error.status, error.partial) == (cause, status, None)
        assert f"http://host/v1 answered {status}: the words" in str(error)

    async def test_retry_after_is_passed_on(self) -> None:
        error = await failure(model(httpx.Response(429, headers={"Retry-After": "7"})))
        assert error.retry_after == 7
        error = await failure(model(httpx.Response(429, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})))
        assert error.retry_after == 0

    @pytest.mark.parametrize(
        ("header", "low", "high"),
        [
            ("1000000000", 120, 120),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 120, 120),
            ("119.5", 119.5, 119.5),
            ("-1000000000", 0, 0.5),
            ("NaN", 0, 0.5),
            ("9" * 400, 0, 0.5),
        ],
    )
    async def test_turn_waits_at_most_two_minutes(self, header: str, low: float, high: float) -> None:
        busy = httpx.Response(429, headers={"Retry-After": header})
        answers = iter([busy, httpx.Response(200, content=sse(chunk({"content": "hi"}, "stop")))])
        client = model(lambda _: next(answers))
        begin = anyio.current_time()
        turn = await Engine(model=client, clock=anyio.current_time).run(Agent(name="a"), "hello")
        assert turn.text == "hi"
        assert low <= anyio.current_time() - begin <= high + 0.01

    @pytest.mark.parametrize(
        ("lost", "cause", "words"),
        [
            (
                httpx.ConnectError("Connection refused"),
                Cause.CONNECTION,
                "Connection refused. Check that a server is running",
            ),
            (httpx.RemoteProtocolError("Server disconnected"), Cause.CONNECTION, "Server disconnected"),
            (httpx.ReadError(""), Cause.CONNECTION, "ReadError"),
            (httpx.ProxyError("no proxy"), Cause.CONNECTION, "no proxy"),
            (OSError("no route"), Cause.CONNECTION, "no route"),
            (httpx.ConnectTimeout(""), Cause.TIMEOUT, "no connection to http://host/v1 within 10 s"),
            (httpx.ReadTimeout(""), Cause.TIMEOUT, "did not begin to answer within 300 s"),
            (httpx.UnsupportedProtocol("odd"), Cause.REJECTED, "cannot be sent"),
        ],
    )
    async def test_unreachable_server_is_an_error_with_a_cause(self, lost: Exception, cause: Cause, words: str) -> None:
        error = await failure(model(lost))
        assert (error.cause, error.status) == (cause, None)
        assert words in str(error)

    async def test_silence_before_the_reply_is_a_time_out(self) -> None:
        async def handle(_: httpx.Request) -> httpx.Response:
            await anyio.sleep(5)
            return httpx.Response(200)

        error = await failure(model(Body(), transport=httpx.MockTransport(handle), first_byte_timeout=0.01))
        assert error.cause is Cause.TIMEOUT
        assert "did not begin to answer within 0.01 s" in str(error)
        body = Body(5.0)
        assert (await failure(model(body, first_byte_timeout=0.01))).cause is Cause.TIMEOUT
        assert body.closed

    async def test_silence_inside_the_reply_is_a_timeout_with_the_partial_reply(self) -> None:
        body = Body(sse(chunk({"content": "a"}), done=False), 5.0, sse(chunk({"content": "b"})))
        error = await failure(model(body, idle_timeout=0.01))
        assert (error.cause, error.partial) == (Cause.TIMEOUT, ModelResponse(text="a"))
        assert "silent for 0.01 s" in str(error)
        assert body.closed

    @pytest.mark.parametrize(
        "lost", [httpx.RemoteProtocolError("peer closed connection"), httpx.ReadError("reset"), OSError()]
    )
    async def test_broken_connection_is_an_interruption_with_the_partial_reply(self, lost: Exception) -> None:
        body = Body(sse(chunk({"content": "a"}), done=False), lost)
        error = await failure(model(body))
        assert (error.cause, error.partial) == (Cause.INTERRUPTED, ModelResponse(text="a"))
        assert body.closed

    async def test_stream_without_an_end_is_an_interruption(self) -> None:
        error = await failure(model(Body(sse(chunk({"content": "a"}), done=False) + b"data: {")))
        assert (error.cause, error.partial) == (Cause.INTERRUPTED, ModelResponse(text="a"))

    async def test_broken_connection_after_the_finish_reason_loses_nothing(self) -> None:
        for lost in (httpx.ReadError("reset"), 5.0):
            body = Body(sse(chunk({"content": "a"}, "stop"), done=False), lost)
            assert await ask(model(body, idle_timeout=0.01)) == [TextDelta("a"), ModelResponse(text="a")]

    async def test_error_inside_the_reply_has_the_partial_reply(self) -> None:
        error = await failure(model(Body(sse(chunk({"content": "a"}), {"error": {"code": 503, "message": "busy"}}))))
        assert (error.cause, error.partial) == (Cause.OVERLOADED, ModelResponse(text="a"))
        assert "busy" in str(error)

    async def test_an_error_object_with_status_200_is_an_error(self) -> None:
        error = await failure(model(httpx.Response(200, json={"error": {"message": "bad key", "code": 401}})))
        assert (error.cause, error.status) == (Cause.AUTHENTICATION, 401)

    async def test_a_web_page_is_no_reply(self) -> None:
        error = await failure(model(httpx.Response(200, html="<html><title>Log in</title>")))
        assert error.cause is Cause.REJECTED
        assert str(error).startswith("http://host/v1")
        assert str(error).endswith(
            " sent something that is not a chat completion: Log in. Check the base URL and the account."
        )

    async def test_a_redirect_is_not_followed(self) -> None:
        error = await failure(model(httpx.Response(307, headers={"location": "https://elsewhere/v1"})))
        assert (error.cause, error.status) == (Cause.REJECTED, 307)
        assert "https://elsewhere/v1" in str(error)

    async def test_error_with_a_hanging_or_broken_body_is_still_reported(self) -> None:
        for rest in (5.0, httpx.ReadError("reset")):
            response = httpx.Response(500, stream=Body(b"the words", rest))
            error = await failure(model(response, idle_timeout=0.01))
            assert "answered 500: the words" in str(error)

    async def test_compression_is_not_requested_but_understood(self) -> None:
        encodings: list[str] = []

        def handle(request: httpx.Request) -> httpx.Response:
            encodings.append(request.headers["accept-encoding"])
            body = Body(gzip.compress(sse(chunk({"content": "a"}, "stop"))))
            return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=body)

        assert await ask(model(handle)) == [TextDelta("a"), ModelResponse(text="a")]
        assert encodings == ["identity"]

    async def test_truncated_compressed_body_is_an_interruption(self) -> None:
        packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
        body = Body(packer.compress(sse(chunk({"content": "a"}), done=False)) + packer.flush(zlib.Z_SYNC_FLUSH))
        error = await failure(model(httpx.Response(200, headers={"content-encoding": "gzip"}, stream=body)))
        assert (error.cause, error.partial) == (Cause.INTERRUPTED, ModelResponse(text="a"))
        assert "ended too early" in str(error)
        assert body.closed

    async def test_unrequested_encoding_is_named(self) -> None:
        body = Body(b"packed")
        error = await failure(model(httpx.Response(200, headers={"content-encoding": "br"}, stream=body)))
        assert error.cause is Cause.REJECTED
        assert "its answer is encoded as 'br', which was not asked for" in str(error)
        assert (body.closed, body.read) == (True, 0)

    async def test_damaged_compressed_body_is_an_interruption(self) -> None:
        response = httpx.Response(200, headers={"content-encoding": "gzip"}, stream=Body(b"no gzip"))
        assert (await failure(model(response))).cause is Cause.INTERRUPTED

    @pytest.mark.parametrize(
        "answer",
        [
            httpx.Response(401, json={"error": {"message": f"Incorrect API key: {KEY}"}}),
            httpx.Response(500, text=f"{'x' * 195}{KEY}"),
            httpx.Response(302, headers={"location": f"https://host/?key={KEY}"}),
            httpx.Response(200, json={"error": f"no {KEY}"}),
            httpx.Response(200, html=f"<p>{KEY}"),
            httpx.Response(200, content=sse({"error": {"message": KEY}})),
            httpx.ConnectError(f"cannot send {KEY}"),
            httpx.LocalProtocolError(f"Illegal header value {KEY!r}"),
        ],
    )
    async def test_the_key_is_never_told(self, answer: httpx.Response | Exception) -> None:
        assert "sk-" not in str(await failure(model(answer)))


class TestConnections:
    async def test_cancellation_closes_the_connection(self) -> None:
        body = Body(sse(chunk({"content": "a"}), done=False), 60.0)
        items: list[object] = []
        with anyio.move_on_after(0.02) as scope:
            async for item in model(body).stream(HELLO):
                items.append(item)  # noqa: PERF401 (a comprehension would be lost with the cancellation)
        assert scope.cancelled_caught
        assert items == [TextDelta("a")]
        assert body.closed

    async def test_leaving_the_stream_early_closes_the_connection(self) -> None:
        body = Body(sse(chunk({"content": "a"}), done=False), sse(chunk({"content": "b"})))
        stream = model(body).stream(HELLO)
        assert await anext(stream) == TextDelta("a")
        await stream.aclose()
        assert body.closed

    async def test_nothing_is_read_after_done_but_a_short_end(self) -> None:
        """Data after `[DONE]` is not part of the reply, and a connection that stays open is not waited for."""
        body = Body(sse(chunk({"content": "a"})), sse(chunk({"content": "b"})), 60.0)
        with anyio.fail_after(60):
            assert await ask(model(body)) == [TextDelta("a"), ModelResponse(text="a")]
        assert body.closed

    async def test_the_connection_is_closed_before_the_reply_is_given(self) -> None:
        body = Body(sse(chunk({"content": "a"})))
        async for item in model(body).stream(HELLO):
            assert body.closed is isinstance(item, ModelResponse)

    async def test_model_can_be_used_again_after_closing(self) -> None:
        chat_model = model(lambda _: httpx.Response(200, content=sse(chunk({"content": "a"}))))
        assert await ask(chat_model) == await ask(chat_model)
        await chat_model.aclose()
        await chat_model.aclose()


def test_model_outlives_the_event_loop() -> None:
    chat_model = model(lambda _: httpx.Response(200, content=sse(chunk({"content": "a"}))))

    async def once() -> list[Delta | ModelResponse]:
        return [item async for item in chat_model.stream(HELLO)]

    assert anyio.run(once) == anyio.run(once)


class TestCapabilities:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({}, Capabilities()),
            ({"base_url": "http://localhost:11434/v1"}, Capabilities(supports_tool_choice_none=False)),
            ({"base_url": "https://api.groq.com/openai/v1"}, Capabilities(reasoning_details=False)),
            ({"base_url": "https://api.mistral.ai/v1", "capabilities": Capabilities()}, Capabilities()),
        ],
    )
    async def test_capabilities_follow_the_server_unless_given(
        self, options: dict[str, Any], expected: Capabilities
    ) -> None:
        assert model(Body(), **options).capabilities == expected

    async def test_a_request_is_made_to_fit(self) -> None:
        """Requests of an engine and of other callers are fitted alike."""
        bodies: list[dict[str, Any]] = []

        def handle(request: httpx.Request) -> httpx.Response:
            bodies.append(json.loads(request.content))
            return httpx.Response(200, content=sse(chunk({"content": "a"}, "stop")))

        request = ModelRequest(
            (Message.user("a"), Message.user("b")), tools=(ToolSpec("f", "", {"type": "object"}),), tool_choice="none"
        )
        await ask(model(handle), request)
        await ask(
            model(handle, capabilities=Capabilities(strict_alternation=True, supports_tool_choice_none=False)), request
        )
        assert (len(bodies[0]["messages"]), "tools" in bodies[0], bodies[0]["tool_choice"]) == (2, True, "none")
        assert bodies[1]["messages"] == [{"role": "user", "content": "a\n\nb"}]
        assert "tools" not in bodies[1]


class TestConstruction:
    async def test_repr_shows_no_secret(self) -> None:
        chat_model = OpenAIChat("m", base_url="http://me:hush@host/v1?key=hush", headers={"x-key": "hush"}, api_key=KEY)
        assert repr(chat_model) == "OpenAIChat('m', base_url='http://host/v1')"

    @pytest.mark.parametrize(
        ("options", "fault"),
        [
            ({"base_url": "host/v1"}, "base URL"),
            ({"api_key": "a\nb"}, "API key"),
            ({"headers": {"x": "\n"}}, "header"),
            ({"extra_body": {"messages": []}}, "extra_body"),
            ({"connect_timeout": 0}, "connect timeout is 0"),
            ({"first_byte_timeout": -1}, "first_byte timeout is -1"),
            ({"idle_timeout": float("nan")}, "idle timeout is nan"),
        ],
    )
    async def test_unusable_option_is_refused_at_once(self, options: dict[str, Any], fault: str) -> None:
        with pytest.raises(ConfigError, match=fault):
            model(Body(), **options)

    async def test_a_model_needs_a_name(self) -> None:
        with pytest.raises(ConfigError, match="no name"):
            OpenAIChat("", base_url="http://host")
