"""Connections to a server by the SDK's transports: a child process, HTTP, or an object of the caller."""

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
from pydantic import ValidationError

from turnwright._base.background_task import background_task
from turnwright._base.words import escape_unprintable
from turnwright.privacy.secrets import HTTP_LOGGERS, Secrets

from .config import McpServer
from .wire import CODEC, BoundedBody, TooMuchError, refused, within_bounds, without_bad_tools

ReadStream: TypeAlias = _transport.ReadStream[SessionMessage | Exception]
Streams: TypeAlias = _transport.TransportStreams
#: A server object of the SDK, in this process.
InProcess: TypeAlias = Server[Any] | MCPServer

_LOG: Final = logging.getLogger(__name__)
#: Seconds to connect, and to send.
_CONNECT: Final = 30.0
#: Loggers that write addresses, headers and bodies, and so the keys in them.
_LOGGERS: Final = (
    *HTTP_LOGGERS,
    "client",
    "mcp.client.auth.oauth2",
    "mcp.client.auth.utils",
    "mcp.client.client",
    "mcp.client.sse",
    "mcp.client.stdio",
    "mcp.client.streamable_http",
    "mcp.shared.jsonrpc_dispatcher",
)
#: The values of `content-encoding` that mean no compression.
_PLAIN: Final = ("", "identity")
_LINES: Final = 5
_LINE: Final = 300
_CHUNK: Final = 65_536


class ServerLog:
    """The state of a server beside its answers: its last lines without a message, and its last HTTP status."""

    def __init__(self, name: str, secrets: Secrets) -> None:
        self.name = name
        self.secrets = secrets
        self.status: int | None = None
        #: The server ended the connection.
        self.has_ended = False
        #: A request of the server arrives in the context of its call.
        self.identifies_caller = False
        #: How to log in at the server, if a login may help.
        self.remedy = ""
        self.needs_login = False
        #: Why no more messages of the server are read, and the scope that ends a wait for its next message.
        self.refusal = ""
        self._scope: anyio.CancelScope | None = None
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._rest = b""

    def take(self, data: bytes) -> None:
        """Add a piece of the server's stderr."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _CHUNK:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self.add(line.decode(errors="replace"))

    def add(self, line: str) -> None:
        """Add a line that the server wrote, unless it is blank."""
        text = escape_unprintable(self.secrets.hide(line).strip())
        if text:
            self._lines.append(text[:_LINE])
            _LOG.info("%s: %s", self.name, text)

    def refuse(self, why: str) -> None:
        """Stop reading the server's messages."""
        self.refusal, self.has_ended = self.refusal or why, True
        if self._scope is not None:
            self._scope.cancel()

    def require_login(self) -> None:
        """Stop reading the server's messages until a person has logged in."""
        self.needs_login = True
        self.refuse(f"it needs a login: {self.remedy}")

    @contextmanager
    def wait_in_block(self) -> Iterator[None]:
        """Wait for the next message in the block. Raises `EndOfStream` once the server is refused."""
        with anyio.CancelScope() as self._scope:
            if not self.refusal:
                yield
        self._scope = None
        if self.refusal:
            raise anyio.EndOfStream

    def explain(self) -> str:
        """Return a suffix for an error message that may explain why the server does not answer."""
        if self.refusal:
            return f": {self.refusal}"
        if self._lines:
            return f"; it wrote: {' | '.join(self._lines)}"
        if self.status is None or self.status < HTTPStatus.BAD_REQUEST:
            return ""
        with suppress(ValueError):
            return f"; its HTTP status was {self.status} {HTTPStatus(self.status).phrase}"
        return f"; its HTTP status was {self.status}"


#: Makes the authorization of a connection. None: requests are sent without.
Authorize: TypeAlias = Callable[[ServerLog], httpx2.Auth | None]


class BoundedReadStream(ObjectReceiveStream[SessionMessage | Exception]):
    """The messages of a server, within the size limits. Notes the end of the stream, which the SDK does not report."""

    def __init__(self, stream: ReadStream, log: ServerLog) -> None:
        self._stream = stream
        self._log = log

    @property
    def last_context(self) -> Context | None:
        """The context in which the last message was sent, if known. The SDK reads this attribute."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Wait for the next message."""
        try:
            with self._log.wait_in_block():
                message = await self._stream.receive()
            if isinstance(message, Exception):
                if isinstance(message, ValidationError) and (why := message.errors()[0])["type"] == "json_invalid":
                    self._log.add(f"in place of a message: {why['input']}")
                return message
            return without_bad_tools(within_bounds(message), self._log.name)
        except anyio.EndOfStream:
            self._log.has_ended = True
            raise
        except TooMuchError as error:
            self._log.refuse(str(error))
            raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()


@asynccontextmanager
async def open_transport(connect: "Connect", log: ServerLog) -> AsyncIterator[Streams]:
    """Open a transport, note its end in `log`, and hide the server's secrets in the logs until then."""
    with log.secrets.hidden_in(*_LOGGERS):
        async with connect(log) as (reads, writes):
            yield BoundedReadStream(reads, log), writes


#: Makes an unopened transport, which records the server's state in the log.
Connect: TypeAlias = Callable[[ServerLog], Transport]


def connect_to(server: McpServer, authorize: Authorize) -> Connect:
    """Return the function that connects to a configured server. It can be called again after the server died."""
    if server.type == "stdio":
        return partial(_stdio, server)
    return partial(_http if server.type == "http" else _sse, server, authorize)


@asynccontextmanager
async def _stdio(server: McpServer, log: ServerLog) -> AsyncIterator[Streams]:
    parameters = StdioServerParameters(
        command=server.command, args=list(server.args), env=dict(server.env), cwd=server.cwd, encoding=CODEC
    )
    our_end, server_end = os.pipe()
    try:
        os.set_blocking(our_end, False)
        async with background_task(_read_stderr, our_end, log), AsyncExitStack() as stack:
            token = refused.set(log.refuse)
            try:
                with os.fdopen(server_end, "w") as errlog:
                    streams = await stack.enter_async_context(stdio_client(parameters, errlog))
            finally:
                refused.reset(token)
            yield streams
    finally:
        _read(our_end, log)  # the last lines, written before the process ended
        os.close(our_end)


async def _read_stderr(pipe: int, log: ServerLog) -> None:
    while True:
        await anyio.wait_readable(pipe)
        if not _read(pipe, log):
            return


def _read(pipe: int, log: ServerLog) -> bool:
    """Read the available output. Return whether there may be more."""
    try:
        while data := os.read(pipe, _CHUNK):
            log.take(data)
    except BlockingIOError:
        return True
    log.take(b"\n")
    return False


def _client(server: McpServer, authorize: Authorize, log: ServerLog) -> httpx2.AsyncClient:
    auth = authorize(log)

    async def note(response: httpx2.Response) -> None:
        log.status = response.status_code
        if auth is None and log.remedy and response.status_code == HTTPStatus.UNAUTHORIZED:
            log.require_login()
        if response.headers.get("content-encoding", "identity").lower() not in _PLAIN:
            raise httpx2.DecodingError("the answer is compressed, although the request forbids it")
        # In a stream, each event has a size limit of its own.
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = BoundedBody(cast("httpx2.AsyncByteStream", response.stream))

    # A call has a timeout of its own, and a stream of a server may be silent for any time.
    timeout = httpx2.Timeout(_CONNECT, read=None)
    headers = {"accept-encoding": "identity", **server.headers}
    return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, event_hooks={"response": [note]})


@asynccontextmanager
async def _http(server: McpServer, authorize: Authorize, log: ServerLog) -> AsyncIterator[Streams]:
    log.identifies_caller = True
    async with (
        _client(server, authorize, log) as client,
        streamable_http_client(server.url, http_client=client) as streams,
    ):
        yield streams


@asynccontextmanager
async def _sse(server: McpServer, authorize: Authorize, log: ServerLog) -> AsyncIterator[Streams]:
    def factory(
        headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        del headers, timeout, auth  # `_client` sets its own
        return _client(server, authorize, log)

    async with sse_client(server.url, httpx_client_factory=factory) as streams:
        yield streams
