"""The ways to a server: a child process, HTTP, or what a caller has at hand. The SDK's transports do the talking."""

import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import Context
from functools import partial
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, cast

import anyio
import httpx2
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


class Diary:
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

    def tell(self) -> str:
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


class Ears:
    """What a server says, with a note in the diary when there will be no more: the SDK tells nobody."""

    def __init__(self, stream: ReadStream, diary: Diary) -> None:
        self._stream = stream
        self._diary = diary

    @property
    def last_context(self) -> Context | None:
        """In which context the last message was sent, where the stream knows: the SDK looks for it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Wait for the next message."""
        try:
            with self._diary.waiting():
                message = await self._stream.receive()
            return message if isinstance(message, Exception) else within_bounds(message)
        except anyio.EndOfStream:
            self._diary.ended = True
            raise
        except TooMuchError as error:
            self._diary.refuse(str(error))
            raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        """Listen no more."""
        await self._stream.aclose()

    def __aiter__(self) -> "Ears":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


@asynccontextmanager
async def heard(connect: "Connect", diary: Diary) -> AsyncIterator[Streams]:
    """Open a transport, note in the diary when it ends, and keep its secrets out of the logs until then."""
    with diary.secrets.hidden_in(*_LOGGERS):
        async with connect(diary) as (reads, writes):
            yield Ears(reads, diary), writes


#: Makes a transport that has not been opened; what is seen of the server beside goes into the diary.
Connect: TypeAlias = Callable[[Diary], Transport]


def connect_to(server: McpServer) -> Connect:
    """The way to a server of a configuration, which can be gone again after the server has died."""
    if server.type == "stdio":
        return partial(_stdio, server)
    return partial(_http if server.type == "http" else _sse, server)


@asynccontextmanager
async def _stdio(server: McpServer, diary: Diary) -> AsyncIterator[Streams]:
    parameters = StdioServerParameters(
        command=server.command, args=list(server.args), env=dict(server.env), cwd=server.cwd, encoding=CODEC
    )
    mine, its = os.pipe()
    try:
        os.set_blocking(mine, False)
        async with background_task(_read_stderr, mine, diary), AsyncExitStack() as stack:
            told = refused.set(diary.refuse)
            try:
                with os.fdopen(its, "w") as errlog:
                    streams = await stack.enter_async_context(stdio_client(parameters, errlog))
            finally:
                refused.reset(told)
            yield streams
    finally:
        _read(mine, diary)  # its last words, after which it has ended
        os.close(mine)


async def _read_stderr(pipe: int, diary: Diary) -> None:
    while True:
        await anyio.wait_readable(pipe)
        if not _read(pipe, diary):
            return


def _read(pipe: int, diary: Diary) -> bool:
    """Take in what there is; tell whether there may be more."""
    try:
        while data := os.read(pipe, _CHUNK):
            diary.take(data)
    except BlockingIOError:
        return True
    diary.take(b"\n")
    return False


def _client(server: McpServer, diary: Diary) -> httpx2.AsyncClient:
    async def note(response: httpx2.Response) -> None:
        diary.status = response.status_code
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
async def _http(server: McpServer, diary: Diary) -> AsyncIterator[Streams]:
    diary.tells_callers = True
    async with (
        _client(server, diary) as client,
        streamable_http_client(server.url, http_client=client) as streams,
    ):
        yield streams


@asynccontextmanager
async def _sse(server: McpServer, diary: Diary) -> AsyncIterator[Streams]:
    def factory(
        headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        del headers, timeout, auth  # ours know better
        return _client(server, diary)

    async with sse_client(server.url, httpx_client_factory=factory) as streams:
        yield streams
