"""Logging in at a server, and out: a person opens an address, and the browser returns to this machine."""

import html
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qs, urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream
from mcp.client.auth import OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult

from turnwright._base.words import cut_clean, escape_unprintable
from turnwright.errors import ConfigError

from .config import McpServer
from .connect import ServerLog, connect_to
from .oauth import LoginFile, LoginProvider
from .session import McpSession, ServerDownError

#: Shows a person the address to log in at.
Show = Callable[[str], object]
#: Waits for a person to type the address where the browser has ended, for a browser on another machine.
Typed = Callable[[], Awaitable[str]]

_PATH: Final = "/callback"
_MOST_BYTES: Final = 16 * 1024
_SHOWN: Final = 300
_PAGE: Final = "<!doctype html><meta charset=utf-8><title>Turnwright</title><p>{}</p>"


async def log_in(
    name: str,
    server: McpServer,
    *,
    show: Show,
    read_address: Typed | None,
    folder: Path | None,
    timeout: float,  # noqa: ASYNC109
) -> bool:
    """See `turnwright.tools.mcp.mcp_login`."""
    if not server.logs_in or server.oauth is None:
        raise ConfigError(f"MCP server {name!r}: nobody can log in: {_why_not(server)}")
    file = LoginFile(server, folder)
    before = file.read().tokens
    problem = ""
    async with (
        Loopback.open(server.oauth.callback_port, _registered_port(file)) as loopback,
        anyio.create_task_group() as group,
    ):

        def authorize(log: ServerLog) -> LoginProvider:
            async def ask(address: str) -> AuthorizationCodeResult:
                show(address)
                return await loopback.result(address, read_address)

            return LoginProvider(server, file, log, ask=ask, redirect=loopback.address)

        session = McpSession(name, connect_to(server, authorize), group, startup=timeout, secrets=server.secrets)
        try:
            await session.start()
        except ServerDownError as down:
            problem = str(down)
        finally:
            with anyio.CancelScope(shield=True):
                await session.close()
    if problem:
        raise ConfigError(f"MCP server {name!r}: the login failed: {problem}")
    return file.read().tokens != before


def log_out(server: McpServer, folder: Path | None) -> bool:
    """See `turnwright.tools.mcp.mcp_logout`."""
    return LoginFile(server, folder).remove()


class Loopback:
    """The address of this machine to which the browser returns, for one login."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._state = ""
        self._query: dict[str, str] = {}
        self._arrived = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls, port: int | None, registered_port: int | None) -> AsyncIterator["Loopback"]:
        """Listen at the configured port during the block, or at that of the registered client, or at a free one.

        Raises `ConfigError` if the configured port is in use.
        """
        host = "localhost" if port is not None else "127.0.0.1"
        try:
            listener = await anyio.create_tcp_listener(local_host=host, local_port=port or registered_port or 0)
        except OSError as error:
            if port is not None:
                raise ConfigError(f"the port {port} of the login is not free: {error.strerror or error}") from None
            listener = await anyio.create_tcp_listener(local_host=host)
        bound_port = listener.extra(SocketAttribute.local_port)  # noqa: S610 (not Django's)
        loopback = cls(f"http://{host}:{bound_port}{_PATH}")
        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, loopback._answer)
            yield loopback
            group.cancel_scope.cancel()

    async def result(self, address: str, read_address: Typed | None) -> AuthorizationCodeResult:
        """Wait for the browser, or for what a person types, after a login at `address`. Raises `OAuthFlowError`."""
        self._state, self._query, self._arrived = _fields(urlsplit(address)).get("state", ""), {}, anyio.Event()
        async with anyio.create_task_group() as group:
            if read_address is not None:
                group.start_soon(self._read, read_address)
            await self._arrived.wait()
            group.cancel_scope.cancel()
        if problem := self._query.get("error"):
            about = self._query.get("error_description", "")
            raise OAuthFlowError(
                f"it was refused: {escape_unprintable(cut_clean(f'{problem} {about}'.strip(), _SHOWN))}"
            )
        return AuthorizationCodeResult.model_validate(self._query)

    def _take(self, address: SplitResult) -> bool:
        """Take the result of a login from an address. Return whether it is that of this login."""
        query = _fields(address)
        if address.path != _PATH or query.get("state") != self._state or not ({"code", "error"} & query.keys()):
            return False
        self._query = query
        self._arrived.set()
        return True

    async def _answer(self, stream: SocketStream) -> None:
        """Answer one request of a browser. Other requests than the expected one change nothing."""
        async with stream:
            head = b""
            try:
                while b"\r\n\r\n" not in head and len(head) < _MOST_BYTES:
                    head += await stream.receive()
                method, target, *_ = head.decode("latin-1").split(" ", 2)
                is_expected = method == "GET" and self._take(urlsplit(target))
                status, message = "200 OK", "You are logged in. You may close this window."
                if not is_expected:
                    status, message = "404 Not Found", "This is not the login that Turnwright waits for."
                elif problem := self._query.get("error"):
                    message = f"The login was refused: {problem}"
                body = _PAGE.format(html.escape(message)).encode()
                lines = (f"HTTP/1.1 {status}", "content-type: text/html; charset=utf-8", f"content-length: {len(body)}")
                await stream.send("\r\n".join((*lines, "connection: close", "", "")).encode() + body)
            except (anyio.EndOfStream, anyio.BrokenResourceError, ValueError):
                return

    async def _read(self, read_address: Typed) -> None:
        while not self._take(urlsplit((await read_address()).strip())):
            pass


def _why_not(server: McpServer) -> str:
    if server.type == "stdio":
        return "it is a process of this machine"
    if server.oauth is None:
        return "its `oauth` is false"
    if server.oauth.grant == "client_credentials":
        return "its client has credentials of its own"
    return "its headers have an Authorization"


def _registered_port(file: LoginFile) -> int | None:
    """Return the port to which the registered client may return."""
    client = file.read().client
    return next((address.port for address in (client and client.redirect_uris) or ()), None)


def _fields(address: SplitResult) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(address.query).items()}
