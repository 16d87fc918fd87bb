"""Send one request to a model server and read the bytes of its answer.

Every error of httpx becomes a `ModelError` here. A decoder interprets the bytes.
"""

import contextlib
import itertools
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Collection, Iterator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, cast

import anyio
import anyio.lowlevel
from anyio.lowlevel import RunVar

from turnwright.model.protocol import ModelError
from turnwright.model.read_timeout import ReadTimedOutError, read_timeout
from turnwright.privacy.secrets import HTTP_LOGGERS, Secrets
from turnwright_states import Cause

from .decompression import UnknownEncodingError, Unpacker, UnpackError
from .endpoint import Endpoint
from .errors import MIN_SECRET, excerpt, http_failure
from .timeouts import Timeouts, Waiting

if TYPE_CHECKING:
    import httpx

# The most bytes that are read of an error's body, and behind a finished answer.
_SHORT: Final = 64 * 1024
# The longest wait for the end of a finished answer, in seconds. Many servers treat an earlier close as a client that
# gave up, and do not count its usage.
_DRAIN: Final = 0.1
# After so many pieces without waiting, other tasks and timeouts run.
_TURN: Final = 64
# The errors of an HTTP client that is made in an environment with an unusable proxy or file of certificates. Other
# errors, such as too many open files, may pass.
_BAD_ENVIRONMENT: Final = (
    ImportError,
    ValueError,
    ssl.SSLError,
    FileNotFoundError,
    IsADirectoryError,
    PermissionError,
)
_CHECK_PROXY: Final = "Check the proxy that the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY)."
_CHECK_ENVIRONMENT: Final = (
    "Check the proxy and the certificates that the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, "
    "SSL_CERT_FILE, SSL_CERT_DIR, SSLKEYLOGFILE)."
)

#: The kinds of requests for which httpx reads a proxy of the environment.
_PROXIED: Final = frozenset({"all", "http", "https"})
_HIGHEST_PORT: Final = 65_535
_numbers: Final = itertools.count()


class Poster:
    """A client of one endpoint. The first request in each event loop makes an HTTP client."""

    def __init__(
        self, endpoint: Endpoint, patience: Timeouts, transport: "httpx.AsyncBaseTransport | None" = None
    ) -> None:
        self._endpoint = endpoint
        self._patience = patience
        self._transport = transport
        self._log_secrets = Secrets(secret for secret in endpoint.secrets if len(secret) >= MIN_SECRET)
        # A client is bound to the loop in which it first connected. RunVar drops it with that loop.
        self._client: RunVar[httpx.AsyncClient | None] = RunVar(f"turnwright.model.{next(_numbers)}", None)

    async def aclose(self) -> None:
        """Close the connections of this event loop. The next request opens new ones."""
        client = self._client.get()
        self._client.set(None)
        if client is not None:
            await client.aclose()

    async def post(self, body: bytes) -> "HttpResponse":
        """Post a JSON body. Returns the answer once its headers report success.

        Raises `ModelError`: the server was not reached, was silent, or answered with an error or a redirect.
        """
        import httpx  # noqa: PLC0415 (importing it costs half of what importing all of turnwright may cost)

        where, secrets = self._endpoint.shown_url, self._endpoint.secrets
        try:
            client = self._connect()
            request = client.build_request(
                "POST",
                self._endpoint.url,
                content=body,
                headers={
                    "content-type": "application/json",
                    "accept": "text/event-stream, application/json",
                    # Compression gains nothing for a stream of small events, and its decompression needs limits.
                    "accept-encoding": "identity",
                    "user-agent": "turnwright",
                    **self._endpoint.headers,
                },
            )
            # Not earlier: the time to make a client is not the server's.
            wait_limits = Waiting(self._patience, where, anyio.current_time())
            # httpx and httpcore log addresses and headers, which may contain a key.
            with anyio.fail_after(self._patience.first_byte), self._log_secrets.hidden_in(*HTTP_LOGGERS):
                response = await client.send(request, stream=True)
        except (httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise ModelError(
                f"no connection to {where} within {self._patience.connect:g} s. Check that a server is running there.",
                cause=Cause.TIMEOUT,
            ) from error
        except (httpx.TimeoutException, TimeoutError) as error:
            raise Waiting(self._patience, where, 0).over() from error
        except (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL) as error:
            problem = excerpt(str(error), secrets)
            raise ModelError(f"the request to {where} cannot be sent: {problem}", cause=Cause.REJECTED) from error
        except (httpx.HTTPError, OSError, UnicodeError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise unreachable(error, where, secrets, is_proxied=self._is_proxied()) from error
        encoding = response.headers.get("content-encoding", "")
        try:
            unpacker = Unpacker(encoding)
        except UnknownEncodingError as error:
            problem = f"its answer is encoded as {excerpt(encoding, secrets)!r}, which was not asked for"
            await response.aclose()
            if response.is_success:
                hint = "Check the base URL, and any proxy on the way."
                raise ModelError(
                    f"{where}: {problem}. {hint}", cause=Cause.REJECTED, status=response.status_code
                ) from error
            raise self._failure(response, problem.encode()) from error
        answer = HttpResponse(response, unpacker, self._endpoint, wait_limits, self._log_secrets)
        if response.is_success:
            return answer
        async with answer:
            raise self._failure(response, await answer.beginning(seconds=self._patience.idle))

    def _failure(self, response: "httpx.Response", body: bytes) -> ModelError:
        return http_failure(
            response.status_code,
            response.headers,
            body,
            where=self._endpoint.shown_url,
            now=time.time(),
            key_hint=self._endpoint.key_hint,
            secrets=self._endpoint.secrets,
        )

    def _is_proxied(self) -> bool:
        """Whether requests go through a proxy of the environment, as httpx reads it."""
        from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 (only after a failure)

        if self._endpoint.loopback or self._transport is not None:
            return False
        url = self._endpoint.url
        return bool({url.scheme, "all"} & getproxies().keys()) and not proxy_bypass(url.host)

    async def _refuse_redirect(self, response: "httpx.Response") -> None:
        """Raise for a redirect. Httpx parses its target even if it does not follow it, and fails for an invalid one."""
        if response.is_redirect:
            raise self._failure(response, b"")

    def _connect(self) -> "httpx.AsyncClient":
        client = self._client.get()
        if client is None or client.is_closed:
            try:
                client = self._new_client()
            except _BAD_ENVIRONMENT as error:
                problem = excerpt(str(error), self._endpoint.secrets).rstrip(".")
                raise ModelError(
                    f"no connection to {self._endpoint.shown_url}: {problem}. {_CHECK_ENVIRONMENT}",
                    cause=Cause.REJECTED,
                ) from error
            self._client.set(client)
        return client

    def _new_client(self) -> "httpx.AsyncClient":
        import httpx  # noqa: PLC0415

        # A server on this machine is reached directly, whatever proxy the environment names.
        local = self._endpoint.loopback
        if not local and self._transport is None:
            _check_proxy_ports()
        return httpx.AsyncClient(
            transport=self._transport,
            trust_env=not local,
            verify=self._authorities() if local else True,
            # httpx only limits connecting. Its other timeouts do not distinguish the beginning of an answer, and a
            # custom transport may ignore them.
            timeout=httpx.Timeout(None, connect=self._patience.connect),
            # No limit, because a turn that waits for another turn's connection would be an invisible queue.
            # Each request has a new connection. Bytes that a broken server or proxy leaves behind an answer would
            # become the answer to the next request, and httpx does not report them. Servers also close idle
            # connections without notice (llama.cpp after each reply), which loses a request. A new connection costs
            # two or three round trips; a reply takes seconds.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            follow_redirects=False,
            # No cookies, which would let a server link the turns and sessions of a process.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            event_hooks={"response": [self._refuse_redirect]},
        )

    def _authorities(self) -> ssl.SSLContext:
        """Return the authorities to trust, which the environment may name; none without TLS, as loading takes 20 ms."""
        import httpx  # noqa: PLC0415

        secure = self._endpoint.url.scheme == "https"
        return httpx.create_ssl_context() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class HttpResponse:
    """The decompressed bytes of one answer, as they come. `async with` closes the connection, even when canceled."""

    def __init__(
        self,
        response: "httpx.Response",
        unpacker: Unpacker,
        endpoint: Endpoint,
        waiting: Waiting,
        log_secrets: Secrets,
    ) -> None:
        import httpx  # noqa: PLC0415

        self._response = response
        self._hidden_logs = log_secrets.hidden_in(*HTTP_LOGGERS)
        self._unpacker = unpacker
        self._endpoint = endpoint
        self._waiting = waiting
        self._timeout = read_timeout()
        self._late = httpx.TimeoutException
        self._connection_errors: tuple[type[Exception], ...] = (
            httpx.HTTPError,
            httpx.StreamError,
            UnpackError,
            OSError,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
        )
        # httpx decompresses without limits, and its iterators cost more per chunk than all of this module. httpx's
        # stream is a generator, which is closed by hand because an open one outlives its event loop.
        stream = cast("httpx.AsyncByteStream", response.stream)
        self._packed = cast("AsyncGenerator[bytes, None]", aiter(stream))
        self._pieces: Iterator[bytes] = iter(())
        self._pieces_in_row = 0

    async def __aenter__(self) -> Self:
        self._hidden_logs.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timeout.off()
        # A canceled task must still release the connection.
        try:
            with anyio.CancelScope(shield=True):
                await self._packed.aclose()
                await self._response.aclose()
        finally:
            self._hidden_logs.__exit__(None, None, None)

    async def read(self, *, progress: int, whole: bool) -> bytes:
        """Return the next bytes, empty at the end.

        `progress` is a number that changes with each part of the reply, and `whole` is whether the reply is complete.
        The timeout depends on both (see `Timeouts`).

        Raises `ModelError`, without a partial reply, after a timeout or when the connection breaks.
        """
        now = self._timeout.now()
        try:
            with self._timeout.until(now + self._waiting.limit(now, progress=progress, whole=whole)):
                if self._unpacker.packed or self._pieces_in_row == _TURN:
                    data = await self._next()
                else:
                    # Like `_next`, but without another coroutine.
                    self._pieces_in_row += 1
                    data = await self._packed.__anext__() or await self._next()
        except StopAsyncIteration:
            data = b""
        except (ReadTimedOutError, self._late) as error:
            raise self._waiting.over() from error
        except self._connection_errors as error:
            words = excerpt(str(error) or type(error).__name__, self._endpoint.secrets)
            raise ModelError(
                f"the connection to {self._endpoint.shown_url} broke in the middle of the reply: {words.rstrip('.')}. "
                "Try again.",
                cause=Cause.INTERRUPTED,
            ) from error
        if whole:
            self._waiting.note_read(self._timeout.now())
        return data

    async def beginning(self, *, seconds: float) -> bytes:
        """Return as much of a short body as arrives within so many `seconds`, or before an error."""
        body = bytearray()
        with anyio.move_on_after(seconds), contextlib.suppress(self._late, *self._connection_errors):
            while len(body) < _SHORT and (data := await self._next()):
                body += data
        return bytes(body[:_SHORT])

    async def drain(self) -> None:
        """Read to the end, if it is near, so that the server sees the answer received."""
        await self.beginning(seconds=_DRAIN)

    async def _next(self) -> bytes:
        """Return the next piece, empty at the end. Other tasks run between pieces of one compressed block."""
        self._pieces_in_row = 0
        await anyio.lowlevel.checkpoint()
        while True:
            for piece in self._pieces:
                return piece
            chunk = await anext(self._packed, None)
            if chunk is None:
                self._unpacker.close()
                return b""
            self._pieces = self._unpacker.feed(chunk)


def _check_proxy_ports() -> None:
    """Raise ValueError for a proxy whose port does not exist: httpx fails with an `OverflowError` when it connects."""
    from urllib.request import getproxies  # noqa: PLC0415 (httpx loads it)

    import httpx  # noqa: PLC0415 (importing it costs half of what importing all of turnwright may cost)

    for scheme, address in getproxies().items():
        if scheme in _PROXIED:
            port = httpx.URL(address if "://" in address else f"http://{address}").port
            if port is not None and port > _HIGHEST_PORT:
                raise ValueError(f"port {port} of a proxy does not exist: the highest is {_HIGHEST_PORT}")


def unreachable(error: Exception, where: str, secrets: Collection[str] = (), *, is_proxied: bool = False) -> ModelError:
    """Make the `ModelError` for an error of httpx, or of the network, before the headers of an answer.

    `where` names the server in the message; `secrets` are never quoted. `is_proxied` is whether the request went
    through a proxy, which may be the one that was not reached.
    """
    cause, hint = _explain(error)
    if is_proxied and _CHECK_PROXY not in hint:
        hint = f"{hint} {_CHECK_PROXY}"
    words = excerpt(str(error) or type(error).__name__, secrets).rstrip(".")
    return ModelError(f"no connection to {where}: {words}. {hint}", cause=cause)


def _explain(error: Exception) -> tuple[Cause, str]:
    import httpx  # noqa: PLC0415 (importing it costs half of what importing all of turnwright may cost)

    roots = tuple(_list_roots(error))
    if any(isinstance(root, ssl.SSLCertVerificationError) for root in roots):
        hint = (
            "Its certificate is not accepted: check the host in the base URL; if the certificate's authority is one of "
            "your own, name its file in SSL_CERT_FILE."
        )
        return Cause.REJECTED, hint
    port = "the scheme (http or https) and the port of the base URL"
    if any(isinstance(root, ssl.SSLError) for root in roots):
        hint = f"TLS was not agreed on, as with a server that speaks plain http: check {port}."
    elif isinstance(error, httpx.ProxyError):
        hint = _CHECK_PROXY
    elif any(isinstance(root, socket.gaierror) for root in roots):
        hint = "Check the host in the base URL."
    elif isinstance(error, httpx.RemoteProtocolError) and "disconnected" not in str(error):
        hint = f"What answers there does not speak HTTP: check {port}."
    elif isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError):
        hint = f"It closed the connection instead of answering: try again, or check {port}."
    else:
        hint = "Check that a server is running there."
    return Cause.CONNECTION, hint


def _list_roots(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(16):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__
