"""The ways to a server: a child process, HTTP, or what a caller has at hand. The SDK's transports do the talking."""

import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import Context
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeAlias, cast

import anyio
import httpx2
from anyio.abc import ObjectReceiveStream
from mcp.client import Transport, _transport
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import MCPServer, Server
from mcp.shared.message import SessionMessage

from turnwright._base.background_task import background_task
from turnwright.privacy.secrets import HTTP_LOGGERS, Secrets
from turnwright.tools.text import one_line

from .config import McpServer
from .wire import CODEC, BoundedBody, TooMuchError, refused, within_bounds

ReadStream: TypeAlias = _transport.ReadStream[SessionMessage | Exception]
Streams: TypeAlias = _transport.TransportStreams
#: A server of the SDK's own making, in this process.
InProcess: TypeAlias = Server[Any] | MCPServer

_LOG: Final = logging.getLogger(__name__)
#: Seconds to connect, and to send.
_CONNECT: Final = 30.0
#: Who writes addresses, headers and bodies into the log: they would show the keys in them.
_LOGGERS: Final = (
    *HTTP_LOGGERS,
    "client",
    "mcp.client.client",
    "mcp.client.sse",
    "mcp.client.stdio",
    "mcp.client.streamable_http",
    "mcp.shared.jsonrpc_dispatcher",
)
#: Encodings of a body that are none.
_PLAIN: Final = ("", "identity")
_LINES: Final = 5
_LINE: Final = 300
_CHUNK: Final = 65_536


class ServerLog:
    """What is known of a server beside its answers: its last words on stderr, and the last status of its HTTP."""

    def __init__(self, name: str, secrets: Secrets) -> None:
        self.name = name
        self.secrets = secrets
        self.status: int | None = None
        #: The server ended the connection.
        self.ended = False
        #: A request of the server comes in the context of the call that it is about.
        self.tells_callers = False
        #: Why the server is not listened to any more, and what ends a wait for its next message.
        self.refused = ""
        self._scope: anyio.CancelScope | None = None
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._rest = b""

    def take(self, data: bytes) -> None:
        """Take in what the server wrote to its stderr."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _CHUNK:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            said = one_line(self.secrets.hide(line.decode(errors="replace")).strip())
            if said:
                self._lines.append(said[:_LINE])
                _LOG.info("%s: %s", self.name, said)

    def refuse(self, why: str) -> None:
        """Listen to the server no more."""
        self.refused, self.ended = self.refused or why, True
        if self._scope is not None:
            self._scope.cancel()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait in this block for the next message. Raises `EndOfStream` once the server is refused."""
        with anyio.CancelScope() as self._scope:
            if not self.refused:
                yield
        self._scope = None
        if self.refused:
            raise anyio.EndOfStream

    def explain(self) -> str:
        """What may help to understand why it does not answer, to be put behind a message."""
        if self.refused:
            return f": {self.refused}"
        if self._lines:
            return f"; it wrote: {' | '.join(self._lines)}"
        if self.status is None or self.status < HTTPStatus.BAD_REQUEST:
            return ""
        with suppress(ValueError):
            return f"; its HTTP said {self.status} {HTTPStatus(self.status).phrase}"
        return f"; its HTTP said {self.status}"


class BoundedReadStream(ObjectReceiveStream[SessionMessage | Exception]):
    """The messages of a server, within bounds. Its log says when there will be no more: the SDK tells nobody."""

    def __init__(self, stream: ReadStream, log: ServerLog) -> None:
        self._stream = stream
        self._log = log

    @property
    def last_context(self) -> Context | None:
        """In which context the last message was sent, where the stream knows: the SDK looks for it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Wait for the next message."""
        try:
            with self._log.waiting():
                message = await self._stream.receive()
            return message if isinstance(message, Exception) else within_bounds(message)
        except anyio.EndOfStream:
            self._log.ended = True
            raise
        except TooMuchError as error:
            self._log.refuse(str(error))
            raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        """Listen no more."""
        await self._stream.aclose()


@asynccontextmanager
async def open_transport(connect: "Connect", log: ServerLog) -> AsyncIterator[Streams]:
    """Open a transport, note when it ends, and keep the secrets of its server out of the logs until then."""
    with log.secrets.hidden_in(*_LOGGERS):
        async with connect(log) as (reads, writes):
            yield BoundedReadStream(reads, log), writes


#: Makes a transport that has not been opened; what is seen of the server beside it goes into the log.
Connect: TypeAlias = Callable[[ServerLog], Transport]


def connect_to(server: McpServer) -> Connect:
    """The way to a server of a configuration, which can be gone again after the server has died."""
    if server.type == "stdio":
        return partial(_stdio, server)
    return partial(_http if server.type == "http" else _sse, server)


@asynccontextmanager
async def _stdio(server: McpServer, log: ServerLog) -> AsyncIterator[Streams]:
    parameters = StdioServerParameters(
        command=server.command, args=list(server.args), env=dict(server.env), cwd=server.cwd, encoding=CODEC
    )
    mine, its = os.pipe()
    try:
        os.set_blocking(mine, False)
        async with background_task(_read_stderr, mine, log), AsyncExitStack() as stack:
            token = refused.set(log.refuse)
            try:
                with os.fdopen(its, "w") as errlog:
                    streams = await stack.enter_async_context(stdio_client(parameters, errlog))
            finally:
                refused.reset(token)
            yield streams
    finally:
        _read(mine, log)  # its last words, after which it has ended
        os.close(mine)


async def _read_stderr(pipe: int, log: ServerLog) -> None:
    while True:
        await anyio.wait_readable(pipe)
        if not _read(pipe, log):
            return


def _read(pipe: int, log: ServerLog) -> bool:
    """Take in what there is; tell whether there may be more."""
    try:
        while data := os.read(pipe, _CHUNK):
            log.take(data)
    except BlockingIOError:
        return True
    log.take(b"\n")
    return False


def _client(server: McpServer, log: ServerLog) -> httpx2.AsyncClient:
    async def note(response: httpx2.Response) -> None:
        log.status = response.status_code
        if response.headers.get("content-encoding", "identity").lower() not in _PLAIN:
            raise httpx2.DecodingError("the answer is compressed, which was not asked for")
        # Of a stream each event is bounded.
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = BoundedBody(cast("httpx2.AsyncByteStream", response.stream))

    # A call has a time-out of its own; the streams of a server may be silent for as long as they like.
    timeout = httpx2.Timeout(_CONNECT, read=None)
    headers = {"accept-encoding": "identity", **server.headers}
    return httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks={"response": [note]})


@asynccontextmanager
async def _http(server: McpServer, log: ServerLog) -> AsyncIterator[Streams]:
    log.tells_callers = True
    async with (
        _client(server, log) as client,
        streamable_http_client(server.url, http_client=client) as streams,
    ):
        yield streams


@asynccontextmanager
async def _sse(server: McpServer, log: ServerLog) -> AsyncIterator[Streams]:
    def factory(
        headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        del headers, timeout, auth  # ours know better
        return _client(server, log)

    async with sse_client(server.url, httpx_client_factory=factory) as streams:
        yield streams
