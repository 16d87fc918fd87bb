"""Servers that break HTTP itself, on a real socket: what no transport of httpx's can be made to do."""

import base64
import gzip
import logging
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from turnwright import Agent, Engine
from turnwright.journal.result import TurnResult
from turnwright.message import Message
from turnwright.model.anthropic.client import AnthropicMessages
from turnwright.model.openai_chat.client import OpenAIChat
from turnwright.model.openai_responses.client import OpenAIResponses
from turnwright.model.protocol import ModelRequest
from turnwright.model.retry import Backoff
from turnwright_states import Cause, EndReason, Outcome
from turnwright_states.facts import AttemptFailed

pytestmark = pytest.mark.anyio

KEY = "sk-secret-1234"
CHAT = b'data: {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
MESSAGE = (
    b'data: {"type": "message", "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"}\n\n'
    b'data: {"type": "message_stop"}\n\n'
)
RESPONSE = (
    b'data: {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "hi"}\n\n'
    b'data: {"type": "response.completed", "response": {"status": "completed"}}\n\n'
)
OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
GZIP = OK + b"content-encoding: gzip\r\n\r\n"

Client = Callable[[str], OpenAIChat | OpenAIResponses | AnthropicMessages]


def chat(address: str) -> OpenAIChat:
    return OpenAIChat("m", base_url=f"{address}/v1", api_key=KEY)


def messages(address: str) -> AnthropicMessages:
    return AnthropicMessages("m", base_url=address, api_key=KEY)


def responses(address: str) -> OpenAIResponses:
    return OpenAIResponses("m", base_url=f"{address}/v1", api_key=KEY)


CLIENTS = pytest.mark.parametrize(
    ("client", "good"),
    [(chat, CHAT), (responses, RESPONSE), (messages, MESSAGE)],
    ids=["chat", "responses", "messages"],
)


@asynccontextmanager
async def serving(*answers: bytes, keep: bool = False, heads: list[bytes] | None = None) -> AsyncIterator[str]:
    """A server that gives each connection the next of `answers`, and closes it, or keeps it for further requests.

    `heads` is given the head of each request.
    """
    remaining = list(answers)

    async def answer(connection: SocketStream) -> None:
        async with connection:
            received = b""
            while b"\r\n\r\n" not in received:
                received += await connection.receive()
            head, _, body = received.partition(b"\r\n\r\n")
            if heads is not None:
                heads.append(head)
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            while len(body) < length:
                body += await connection.receive()
            await connection.send(remaining.pop(0))
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while keep:
                    await connection.receive()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 (no Django)
        yield f"http://127.0.0.1:{port}"
        tasks.cancel_scope.cancel()


async def turn(client: Client, *answers: bytes, retries: int = 1) -> tuple[TurnResult, list[Cause]]:
    """Run one turn against the server: how it ended, and why each attempt that failed did."""
    async with serving(*answers) as address, client(address) as model:
        engine = Engine(model=model, backoff=Backoff(initial=0))
        result = await engine.run(Agent(name="a", max_retries=retries), "hello")
        facts = [fact for _, fact in await engine.store.facts(result.id)]
    assert KEY not in repr(facts) + repr(result)
    return result, [fact.cause for fact in facts if isinstance(fact, AttemptFailed)]


@CLIENTS
@pytest.mark.parametrize(
    "around",
    [
        lambda good: b"HTTP/1.0 200 OK\r\n\r\n" + good,
        lambda good: b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + OK + b"\r\n" + good,
        lambda good: OK + b"content-length: 99999999\r\n\r\n" + good,
        lambda good: CHUNKED + b"%x\r\n%s\r\n" % (len(good), good),
        lambda good: CHUNKED + b"%x\r\n%s\r\nzz\r\n" % (len(good), good),
        lambda good: OK + b"content-encoding: utf-8\r\n\r\n" + good,
        lambda good: GZIP + gzip.compress(good, mtime=0),
        lambda good: GZIP + gzip.compress(good, mtime=0)[:-4],
        lambda good: GZIP + b"".join(gzip.compress(line, mtime=0) for line in good.splitlines(keepends=True)),
        lambda good: OK + b"content-encoding: deflate\r\n\r\n" + zlib.compress(good),
    ],
    ids=[
        "http/1.0",
        "100-continue",
        "length too long",
        "no last chunk",
        "bad chunk behind it",
        "no encoding",
        "gzip",
        "gzip without its end",
        "gzip of each line",
        "deflate",
    ],
)
async def test_whole_reply_is_accepted_from_any_transport(
    client: Client, good: bytes, around: Callable[[bytes], bytes]
) -> None:
    result, causes = await turn(client, around(good))
    assert (result.reason, result.text, causes) == (EndReason.ANSWERED, "hi", [])


@CLIENTS
@pytest.mark.parametrize(
    ("broken", "cause"),
    [
        (b"", Cause.CONNECTION),
        (b"SSH-2.0-OpenSSH_9\r\n", Cause.CONNECTION),
        (bytes(range(256)), Cause.CONNECTION),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000, Cause.CONNECTION),
        (OK + b"content-length: abc\r\n\r\n", Cause.CONNECTION),
        (OK + b"content-length: 0\r\n\r\n", Cause.INTERRUPTED),
        (b"HTTP/1.1 204 No Content\r\n\r\n", Cause.INTERRUPTED),
        (CHUNKED + b"zz\r\nabc\r\n", Cause.INTERRUPTED),
        (CHUNKED + b"3\r\nabcdef\r\n", Cause.INTERRUPTED),
        (GZIP + b"data: 1\n\n", Cause.INTERRUPTED),
        (GZIP + gzip.compress(b"data: {}\n\n", mtime=0)[:-12], Cause.INTERRUPTED),
    ],
    ids=[
        "nothing",
        "SSH",
        "bytes",
        "an endless header",
        "a length that is not a number",
        "no body",
        "no content",
        "a chunk of no size",
        "a chunk of the wrong size",
        "gzip that is none",
        "half a gzip",
    ],
)
async def test_broken_http_is_retried_and_finally_ends_the_turn(
    client: Client, good: bytes, broken: bytes, cause: Cause
) -> None:
    result, causes = await turn(client, broken, broken)
    assert (result.outcome, result.reason, causes) == (Outcome.FAILED, EndReason.MODEL_ERROR, [cause, cause])
    result, causes = await turn(client, broken, OK + b"\r\n" + good)
    assert (result.text, causes) == ("hi", [cause])


@CLIENTS
@pytest.mark.parametrize("length", [1, 3, 7, 40])
async def test_reply_cut_at_any_byte_is_retried(client: Client, good: bytes, length: int) -> None:
    result, causes = await turn(client, OK + b"\r\n" + good[:length], OK + b"\r\n" + good)
    assert (result.text, causes) == ("hi", [Cause.INTERRUPTED])


@CLIENTS
async def test_error_marked_as_final_by_the_provider_is_not_retried(client: Client, good: bytes) -> None:  # noqa: ARG001
    words = b'data: {"error": {"message": "Ask for more usage."}}\n\n'
    head = b"HTTP/1.1 429 No\r\nx-should-retry: false\r\nretry-after: 60\r\n\r\n"
    result, causes = await turn(client, head + words)
    assert causes == [Cause.REJECTED]
    assert "answered 429: Ask for more usage. Check" in result.error


@CLIENTS
async def test_key_repeated_by_a_broken_answer_is_hidden(client: Client, good: bytes) -> None:  # noqa: ARG001
    """The line is quoted, and `turn` looks for the key in all that was written down."""
    result, _ = await turn(client, b"your key is " + KEY.encode() + b"\r\n\r\n" + b"x" * 9, retries=0)
    assert "[hidden]" in result.error


@CLIENTS
@pytest.mark.parametrize("encoding", [b"br", b"zstd", b"gzip, gzip"])
async def test_unrequested_encoding_is_named_and_not_retried(client: Client, good: bytes, encoding: bytes) -> None:
    """Unpacked by a library, a few hundred bytes under two layers may fill the memory."""
    packed = gzip.compress(gzip.compress(good, mtime=0), mtime=0)
    result, causes = await turn(client, OK + b"content-encoding: " + encoding + b"\r\n\r\n" + packed)
    assert causes == [Cause.REJECTED]
    assert repr(encoding.decode()) in result.error
    refused = b"HTTP/1.1 401 No\r\ncontent-encoding: " + encoding + b"\r\n\r\n" + packed
    result, causes = await turn(client, refused)
    assert causes == [Cause.AUTHENTICATION]
    assert repr(encoding.decode()) in result.error


@pytest.mark.slow
@CLIENTS
async def test_error_body_of_a_zip_bomb_is_read_at_the_beginning_only(client: Client, good: bytes) -> None:
    words = gzip.compress(b"boom" + b" " * 50_000_000, mtime=0)
    result, causes = await turn(
        client, b"HTTP/1.1 500 Oh\r\ncontent-encoding: gzip\r\n\r\n" + words, OK + b"\r\n" + good
    )
    assert (result.text, causes) == ("hi", [Cause.SERVER_ERROR])


@CLIENTS
@pytest.mark.parametrize("location", [b"http://[", b"\xff\xfe javascript:alert(1)", b"http://x:99999999/"])
async def test_redirect_without_a_target_is_not_retried(client: Client, good: bytes, location: bytes) -> None:  # noqa: ARG001
    redirect = b"HTTP/1.1 302 Found\r\ncontent-length: 0\r\nlocation: " + location + b"\r\n\r\n"
    result, causes = await turn(client, redirect)
    assert causes == [Cause.REJECTED]
    assert "answered 302. It redirects to" in result.error


@CLIENTS
async def test_data_after_an_answer_is_not_the_next_answer(client: Client, good: bytes) -> None:
    whole = CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(good), good)
    wrong = good.replace(b"hi", b"no")
    leftover = OK + b"content-length: %d\r\n\r\n%s" % (len(wrong), wrong)
    # To a server on this very machine no connection is kept anyway. This address is one, and does not look it.
    async with (
        serving(whole + leftover, whole, keep=True) as address,
        client(address.replace("127.0.0.1", "0.0.0.0")) as model,  # noqa: S104 (nobody binds to it)
    ):
        engine = Engine(model=model)
        agent = Agent(name="a", max_retries=0)
        assert [(await engine.run(agent, "hello")).text for _ in range(2)] == ["hi", "hi"]


@CLIENTS
@pytest.mark.parametrize(
    "shape", [str, lambda key: key[2:], lambda key: base64.b64encode(f"user:{key}".encode()).decode()]
)
async def test_key_echoed_by_an_answer_is_in_no_log(
    client: Client, good: bytes, shape: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    """httpcore logs the headers of each answer at level DEBUG, while it reads them and while it closes."""
    caplog.set_level(logging.DEBUG)
    echo = f"x-echo: {shape(KEY)}\r\nset-cookie: key={shape(KEY)}\r\n\r\n".encode()
    result, _ = await turn(client, OK + echo + good)
    assert result.outcome is Outcome.FINISHED
    lines = [record.getMessage() for record in caplog.records]
    assert any("x-echo" in line and "***" in line for line in lines)
    assert not [line for line in lines if shape(KEY)[8:] in line]


@pytest.mark.parametrize("client", [chat, messages])
async def test_no_cookie_is_kept(client: Client) -> None:
    heads: list[bytes] = []
    cookie = OK + b"set-cookie: session=somebody; Path=/\r\nset-cookie: b=c; Domain=127.0.0.1\r\n\r\n"
    good = CHAT if client is chat else MESSAGE
    async with serving(cookie + good, cookie + good, heads=heads) as address, client(address) as model:
        for _ in range(2):
            async for _piece in model.stream(ModelRequest((Message.user("hello"),))):
                pass
    assert len(heads) == 2
    assert not [head for head in heads if b"cookie" in head.lower()]
