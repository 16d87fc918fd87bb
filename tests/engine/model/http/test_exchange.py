"""The clients' timeouts, with each event loop's timer."""

import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import chain, product, repeat

import anyio
import httpx
import pytest
from tests.engine.model.jumping import Loop, run

from turnwright.message import Message
from turnwright.model.anthropic.client import AnthropicMessages
from turnwright.model.http.exchange import unreachable
from turnwright.model.openai_chat.client import OpenAIChat
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse
from turnwright_states import Cause, Usage

PING = b": ping\n\n"
CHAT = {
    "begin": b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n',
    "more": b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n',
    "stop": b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n',
    "usage": b'data: {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}\n\n',
    "end": b"data: [DONE]\n\n",
    "alive": PING,
}
MESSAGES = {
    "begin": b'data: {"type": "message_start", "message": {"content": [{"type": "text", "text": "a"}]}}\n\n',
    "more": b'data: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}\n\n',
    "stop": b'data: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}\n\n',
    "usage": b'data: {"type": "message_delta", "usage": {"input_tokens": 1, "output_tokens": 2}}\n\n',
    "end": b'data: {"type": "message_stop"}\n\n',
    "alive": b'event: ping\ndata: {"type": "ping"}\n\n',
}
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
# A piece of a body: what is said, or seconds of silence.
Piece = str | float


class Body(httpx.AsyncByteStream):
    def __init__(self, pieces: Iterator[bytes | float]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, bytes):
                yield piece
            else:
                await anyio.sleep(piece)


@dataclass(frozen=True)
class Server:
    """A server that speaks an API, and a client of it on this event loop."""

    api: dict[str, bytes]
    loop: Loop

    def ask(
        self, *parts: Piece, then: tuple[Piece, ...] = (), slow: float = 0
    ) -> tuple[ModelResponse | ModelError, float]:
        """Send `parts`, and then `then` for ever; return the reply or the error, and the seconds until then.

        `slow` is the time in seconds that the reader of the stream takes for each delta.
        """
        pieces = (
            self.api[piece] if isinstance(piece, str) else piece
            for piece in chain(parts, *repeat(then, 10_000 if then else 0))
        )
        transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=Body(pieces)))

        async def asked() -> tuple[ModelResponse | ModelError, float]:
            model_type = OpenAIChat if self.api is CHAT else AnthropicMessages
            start = anyio.current_time()
            async with model_type("m", base_url="http://host", transport=transport) as model:
                received: list[object] = []
                try:
                    async for item in model.stream(ModelRequest((Message.user("hello"),))):
                        received.append(item)
                        await anyio.sleep(slow)
                except ModelError as error:
                    received.append(error)
            last = received[-1]
            assert isinstance(last, ModelResponse | ModelError)
            return last, anyio.current_time() - start

        return run(self.loop, asked)

    def timed_out(self, *pieces: Piece, then: tuple[Piece, ...] = ()) -> tuple[str, bool, int]:
        """The message of a time-out, whether a part of the reply came with it, and after how many seconds it came."""
        error, seconds = self.ask(*pieces, then=then)
        assert isinstance(error, ModelError)
        assert error.cause is Cause.TIMEOUT
        return str(error), bool(error.partial and error.partial.text), round(seconds)


LOOPS: tuple[Loop, ...] = ("asyncio", "trio")
SERVERS = pytest.mark.parametrize(
    "server",
    [Server(api, loop) for api, loop in product((CHAT, MESSAGES), LOOPS)],
    ids=[f"{api}-{loop}" for api, loop in product(("chat", "messages"), LOOPS)],
)


@SERVERS
class TestBeforeTheReply:
    def test_signs_of_life_do_not_extend_the_wait_for_the_first_part(self, server: Server) -> None:
        message, partial, seconds = server.timed_out(then=("alive", 10.0))
        assert "no part of a reply for 300 s" in message
        assert (partial, seconds) == (False, 300)

    def test_silence_after_a_sign_of_life_has_the_same_timeout(self, server: Server) -> None:
        reply, _ = server.ask("alive", 250.0, "begin", "stop", "end")
        assert isinstance(reply, ModelResponse)

    def test_silence_before_the_reply_has_the_same_timeout(self, server: Server) -> None:
        message, partial, seconds = server.timed_out(1000.0)
        assert "did not begin to answer within 300 s" in message
        assert (partial, seconds) == (False, 300)


@SERVERS
class TestInsideTheReply:
    def test_silence_inside_the_reply_has_the_shorter_timeout(self, server: Server) -> None:
        message, partial, seconds = server.timed_out(200.0, "begin", 1000.0)
        assert "silent for 60 s" in message
        assert (partial, seconds) == (True, 260)

    def test_signs_of_life_extend_the_silence_to_the_longer_timeout(self, server: Server) -> None:
        reply, _ = server.ask("begin", *("alive", 50.0) * 5, "begin", "stop", "end")
        assert isinstance(reply, ModelResponse)
        message, partial, seconds = server.timed_out(200.0, "begin", then=("alive", 50.0))
        assert "no part of a reply for 300 s" in message
        assert (partial, seconds) == (True, 500)

    def test_reply_in_progress_may_take_hours(self, server: Server) -> None:
        reply, seconds = server.ask("begin", *("more", 50.0) * 400, "stop", "end")
        assert (isinstance(reply, ModelResponse), round(seconds)) == (True, 20_000)
        message, partial, seconds = server.timed_out("begin", then=("more", 50.0))
        assert "had not ended its reply after 21600 s" in message
        assert (partial, seconds) == (True, 21_600)

    def test_a_server_may_keep_the_connection_open_for_some_minutes(self, server: Server) -> None:
        reply, _ = server.ask("begin", *("alive", 10.0) * 29, "more", *("alive", 10.0) * 29, "more", "stop", "end")
        assert isinstance(reply, ModelResponse)


@SERVERS
class TestAfterTheFinishReason:
    @pytest.mark.parametrize("then", [(1000.0,), ("alive", 0.1), ("usage", 0.1)])
    def test_reply_is_soon_returned_after_the_finish_reason(self, server: Server, then: tuple[Piece, ...]) -> None:
        reply, seconds = server.ask("begin", "stop", then=then)
        assert isinstance(reply, ModelResponse)
        assert (reply.text, round(seconds)) == ("a", 2)

    def test_usage_after_the_finish_reason_is_read(self, server: Server) -> None:
        reply, _ = server.ask("begin", "stop", "alive", 1.0, "usage", 1000.0)
        assert isinstance(reply, ModelResponse)
        assert reply.usage == Usage(input_tokens=1, output_tokens=2)

    def test_usage_after_the_finish_reason_is_read_by_a_slow_reader(self, server: Server) -> None:
        reply, _ = server.ask("begin", "stop", 1.0, "usage", "end", slow=50)
        assert isinstance(reply, ModelResponse)
        assert reply.usage == Usage(input_tokens=1, output_tokens=2)

    def test_open_end_is_hardly_waited_for(self, server: Server) -> None:
        reply, seconds = server.ask("begin", "stop", "end", then=("alive", 0.01))
        assert (isinstance(reply, ModelResponse), round(seconds, 1)) == (True, 0.1)


def unreached(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> ModelError:
    """Return the error of a request to an address that no server can have, in an environment with these variables."""
    for variable in (*PROXIES, *map(str.lower, PROXIES), "SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"):
        monkeypatch.delenv(variable, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    async def request() -> ModelError:
        async with OpenAIChat("m", base_url="https://255.255.255.255/v1") as model:
            with pytest.raises(ModelError) as caught:
                await anext(model.stream(ModelRequest((Message.user("hello"),))))
        return caught.value

    return anyio.run(request)


def made_from(error: Exception, *roots: Exception) -> Exception:
    """The error as it looks where it was made from `roots`, the last of which was first."""
    link = error
    for root in roots:
        link.__cause__ = root
        link = root
    return error


@pytest.mark.parametrize(
    ("error", "cause", "hint"),
    [
        (httpx.ConnectError("All connection attempts failed"), Cause.CONNECTION, "Check that a server is running"),
        (
            made_from(httpx.ConnectError("no"), OSError("no"), socket.gaierror(-2, "Name or service not known")),
            Cause.CONNECTION,
            "Check the host in the base URL",
        ),
        (
            made_from(httpx.ConnectError("no"), Exception(), ssl.SSLCertVerificationError("self-signed")),
            Cause.REJECTED,
            "SSL_CERT_FILE",
        ),
        (
            made_from(httpx.ConnectError("no"), ssl.SSLError("[SSL] record layer failure")),
            Cause.CONNECTION,
            "plain http: check the scheme (http or https) and the port",
        ),
        (httpx.RemoteProtocolError("illegal status line: 'SSH-2.0'"), Cause.CONNECTION, "does not speak HTTP: check"),
        (
            httpx.RemoteProtocolError("Server disconnected without sending a response."),
            Cause.CONNECTION,
            "closed the connection instead of answering: try again, or check the scheme",
        ),
        (httpx.ReadError(""), Cause.CONNECTION, "closed the connection instead of answering"),
        (httpx.ProxyError("403 Forbidden"), Cause.CONNECTION, "Check the proxy"),
        (OSError("no route"), Cause.CONNECTION, "Check that a server is running"),
    ],
)
def test_connection_error_gives_a_hint(error: Exception, cause: Cause, hint: str) -> None:
    failure = unreachable(error, "http://host")
    assert failure.cause is cause
    assert str(failure).startswith("no connection to http://host: ")
    assert hint in str(failure)


def test_an_error_without_words_is_named_and_no_secret_is_quoted() -> None:
    assert "http://host: ReadError. " in str(unreachable(httpx.ReadError(""), "http://host"))
    assert "sk-secret" not in str(unreachable(httpx.ConnectError("got sk-secret"), "http://host", ["sk-secret"]))


@pytest.mark.parametrize(
    ("variables", "is_named"),
    [
        ({}, False),
        ({"ALL_PROXY": "http://127.0.0.1:9"}, True),
        ({"HTTPS_PROXY": "127.0.0.1:9"}, True),
        ({"HTTP_PROXY": "http://127.0.0.1:9"}, False),
        ({"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "other,255.255.255.255"}, False),
    ],
)
def test_unreachable_proxy_is_named(
    variables: dict[str, str], *, is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server behind it may be running."""
    error = unreached(variables, monkeypatch)
    assert error.cause is Cause.CONNECTION
    assert ("Check the proxy that the environment names (HTTP_PROXY" in str(error)) is is_named


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ALL_PROXY", "socks4://127.0.0.1:9", "proxy"),
        ("HTTPS_PROXY", "ftp://user:sk-secret@127.0.0.1:9", "proxy"),
        ("HTTPS_PROXY", "http://user:sk-secret@127.0.0.1:99999", "port 99999 of a proxy does not exist"),
        ("SSL_CERT_FILE", "/no/such/file", "No such file"),
        ("SSL_CERT_FILE", __file__, "no certificate"),
        ("SSLKEYLOGFILE", "/no/such/folder/keys", "No such file"),
    ],
)
def test_unusable_environment_is_named_and_not_retried(
    name: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = unreached({name: value}, monkeypatch)
    assert error.cause is Cause.REJECTED
    assert words in str(error)
    assert "Check the proxy and the certificates that the environment names (HTTP_PROXY, " in str(error)
    assert name in str(error)
    assert "sk-secret" not in str(error)
