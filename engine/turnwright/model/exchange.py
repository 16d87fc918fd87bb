"""One request to a model server and the bytes of its answer. No httpx error leaves this module: each is a `ModelError`.

What the bytes mean is for a decoder to say; why they stopped coming is said here.
"""

import contextlib
import itertools
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, cast

import anyio
from anyio.lowlevel import RunVar

from turnwright.errors import ConfigError
from turnwright_states import Cause

from .endpoint import Endpoint
from .failure import excerpt, http_failure
from .protocol import ModelError

if TYPE_CHECKING:
    import httpx

# How much is read, in bytes, of an error's body and of what follows a finished answer.
_SHORT: Final = 64 * 1024
# How long the end of a finished answer is awaited, in seconds. A connection that was read to its end is used again
# for the next step; one that was cut is not. Servers that leave it open are not waited for.
_DRAIN: Final = 0.1

_numbers: Final = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait, in seconds: to connect, until an answer begins, and while it is silent.

    Raises `ConfigError` for a time that is not above zero.
    """

    connect: float = 10.0
    first_byte: float = 300.0
    idle: float = 60.0

    def __post_init__(self) -> None:
        for name in ("connect", "first_byte", "idle"):
            seconds: float = getattr(self, name)
            if not seconds > 0:
                raise ConfigError(f"the {name} time-out is {seconds}: it must be above 0 seconds")


class Poster:
    """Posts to one endpoint. It makes one HTTP client for each event loop that it is used in, at the first request."""

    def __init__(
        self, endpoint: Endpoint, patience: Patience, transport: "httpx.AsyncBaseTransport | None" = None
    ) -> None:
        self._endpoint = endpoint
        self._patience = patience
        self._transport = transport
        # A client is bound to the loop in which it first connected. Where that loop has ended its connections are
        # dead, and only a new client can help; RunVar forgets with the loop.
        self._client: RunVar[httpx.AsyncClient | None] = RunVar(f"turnwright.model.{next(_numbers)}", None)

    async def aclose(self) -> None:
        """Close the connections of this event loop. The next request opens new ones."""
        client = self._client.get()
        self._client.set(None)
        if client is not None:
            await client.aclose()

    async def post(self, body: bytes) -> "Answer":
        """Post a JSON body; return the answer once its headers say that all is well.

        Raises `ModelError`: the server was not reached, was silent, or answered with an error or a redirect.
        """
        import httpx  # noqa: PLC0415 (importing it costs half of what importing all of turnwright may cost)

        where = self._endpoint.shown
        try:
            client = self._connected()
            request = client.build_request(
                "POST",
                self._endpoint.url,
                content=body,
                headers={
                    "content-type": "application/json",
                    "accept": "text/event-stream, application/json",
                    "user-agent": "turnwright",
                    **self._endpoint.headers,
                },
            )
            with anyio.fail_after(self._patience.first_byte):
                response = await client.send(request, stream=True)
        except (httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise ModelError(
                f"no connection to {where} within {self._patience.connect:g} s. Check that a server is running there.",
                cause=Cause.TIMEOUT,
            ) from error
        except (httpx.TimeoutException, TimeoutError) as error:
            raise _too_late(where, self._patience.first_byte) from error
        except (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL) as error:
            said = excerpt(str(error), self._endpoint.secrets)
            raise ModelError(f"the request to {where} cannot be sent: {said}", cause=Cause.REJECTED) from error
        except (httpx.HTTPError, OSError, UnicodeError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            said = excerpt(str(error) or type(error).__name__, self._endpoint.secrets)
            raise ModelError(
                f"no connection to {where}: {said.rstrip('.')}. Check that a server is running there.",
                cause=Cause.CONNECTION,
            ) from error
        answer = Answer(response, self._endpoint, self._patience)
        if response.is_success:
            return answer
        async with answer:
            raise http_failure(
                response.status_code,
                response.headers,
                await answer.beginning(within=self._patience.idle),
                where=where,
                secrets=self._endpoint.secrets,
            )

    def _connected(self) -> "httpx.AsyncClient":
        import httpx  # noqa: PLC0415

        client = self._client.get()
        if client is None or client.is_closed:
            # A server on this machine is reached directly, whatever proxy the environment names, and by a new
            # connection each time, which costs next to nothing: llama.cpp closes one behind each reply, unannounced.
            local = self._endpoint.loopback
            client = httpx.AsyncClient(
                transport=self._transport,
                trust_env=not local,
                # Only connecting is left to httpx: its other time-outs know neither when an answer begins, nor, with
                # a transport of somebody else's, that there are any.
                timeout=httpx.Timeout(None, connect=self._patience.connect),
                # A turn that waits for another turn's connection would be a queue that nobody can see.
                # Most servers close a connection that was idle for five seconds. Who asks just then has lost a request.
                limits=httpx.Limits(
                    max_connections=None, max_keepalive_connections=0 if local else 20, keepalive_expiry=4.0
                ),
                follow_redirects=False,
            )
            self._client.set(client)
        return client


class Answer:
    """The bytes of one answer, as they come. `async with` closes the connection, also when cancelled."""

    def __init__(self, response: "httpx.Response", endpoint: Endpoint, patience: Patience) -> None:
        self._response = response
        self._endpoint = endpoint
        self._patience = patience
        self._begun = False
        # A generator, as httpx makes it; it is closed by hand, for one that is left open outlives its event loop.
        self._bytes = cast("AsyncGenerator[bytes, None]", response.aiter_bytes())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A cancelled task must still give the connection back.
        with anyio.CancelScope(shield=True):
            await self._bytes.aclose()
            await self._response.aclose()

    async def read(self) -> bytes:
        """Return the next bytes, empty at the end.

        Raises `ModelError`, without a partial reply, if there is silence for too long or the connection breaks.
        """
        import httpx  # noqa: PLC0415

        where = self._endpoint.shown
        patience = self._patience.idle if self._begun else self._patience.first_byte
        try:
            with anyio.fail_after(patience):
                data = await anext(self._bytes, b"")
        except (httpx.TimeoutException, TimeoutError) as error:
            raise (_gone_silent if self._begun else _too_late)(where, patience) from error
        except (
            httpx.HTTPError,
            httpx.StreamError,
            OSError,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
        ) as error:
            said = excerpt(str(error) or type(error).__name__, self._endpoint.secrets)
            raise ModelError(
                f"the connection to {where} broke in the middle of the reply: {said.rstrip('.')}. Try again.",
                cause=Cause.INTERRUPTED,
            ) from error
        self._begun = True
        return data

    async def beginning(self, *, within: float) -> bytes:
        """Return as much of a short body as comes `within` so many seconds; what goes wrong only makes it shorter."""
        body = bytearray()
        with anyio.move_on_after(within), contextlib.suppress(ModelError):
            while len(body) < _SHORT and (data := await self.read()):
                body += data
        return bytes(body[:_SHORT])

    async def drain(self) -> None:
        """Read to the end, if it is near, so that the connection can be used again."""
        await self.beginning(within=_DRAIN)


def _too_late(where: str, seconds: float) -> ModelError:
    return ModelError(
        f"{where} did not begin to answer within {seconds:g} s. Try again, or allow it more time (first_byte_timeout).",
        cause=Cause.TIMEOUT,
    )


def _gone_silent(where: str, seconds: float) -> ModelError:
    return ModelError(
        f"{where} was silent for {seconds:g} s in the middle of its reply. Try again, or allow it more time "
        "(idle_timeout).",
        cause=Cause.TIMEOUT,
    )
