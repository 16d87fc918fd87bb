"""The base of all models over HTTP: one attempt for each call, and one client for each event loop."""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypedDict

import msgspec
from msgspec import structs
from pydantic import JsonValue

from turnwright.errors import ConfigError, need_kind, need_method
from turnwright.model.capabilities import Capabilities, known_capabilities
from turnwright.model.fit import fit
from turnwright.model.model_settings import ModelSettings
from turnwright.model.protocol import Delta, ModelError, ModelRequest, ModelResponse, ToolChoice
from turnwright_states import Finish

from .encoding import EncoderOptions, RequestEncoder
from .endpoint import Api, Endpoint
from .errors import LimitFieldError, MissingReasoningError, RefusedReasoningError
from .exchange import HttpResponse, Poster
from .reply_stream import ReplyStream
from .timeouts import REPLY_TIMEOUT, Timeouts

if TYPE_CHECKING:
    import httpx

_LOG: Final = logging.getLogger(__name__)


class _SentLimits(msgspec.Struct):
    """The fields of a request's body that limit its reply, by the names of the APIs."""

    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None


class HttpOptions(TypedDict, total=False):
    """The options that all models over HTTP have. See `OpenAIChat`."""

    base_url: str | None
    api_key: str | None
    headers: Mapping[str, str] | None
    connect_timeout: float
    first_byte_timeout: float
    idle_timeout: float
    reply_timeout: float
    transport: "httpx.AsyncBaseTransport | None"
    extra_body: Mapping[str, JsonValue] | None
    tool_choice_first: ToolChoice | None
    capabilities: Capabilities | None


class HttpModel:
    """A model of an endpoint of `api`. `decoder` makes the decoder of a reply.

    A subclass makes its encoder of request bodies with `_encoder_options`. Raises `ConfigError` for a model without a
    name, and for another kind of transport.
    """

    api: ClassVar[Api]
    decoder: ClassVar[Callable[..., ReplyStream]]
    always_streams: ClassVar[bool] = True
    #: Its own timeouts apply.
    silence_timeout: ClassVar[None] = None

    _encoder: RequestEncoder[Any]

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float = 10.0,
        first_byte_timeout: float = 300.0,
        idle_timeout: float = 60.0,
        reply_timeout: float = REPLY_TIMEOUT,
        transport: "httpx.AsyncBaseTransport | None" = None,
        extra_body: Mapping[str, JsonValue] | None = None,
        tool_choice_first: ToolChoice | None = None,
        capabilities: Capabilities | None = None,
    ) -> None:
        need_kind("model", model, str, "the model's id")
        if transport is not None:
            need_method("transport", transport, "handle_async_request", "a transport of httpx that is async")
        if not model.strip():
            raise ConfigError("the model has no name: pass its id at the provider")
        #: The model's id.
        self.name: Final = model
        self._endpoint = Endpoint.of(self.api, base_url=base_url, api_key=api_key, headers=headers)
        patience = Timeouts(
            connect=connect_timeout, first_byte=first_byte_timeout, idle=idle_timeout, reply=reply_timeout
        )
        self._poster = Poster(self._endpoint, patience, transport)
        if capabilities is None:
            capabilities = self._find_capabilities(self._endpoint.url.netloc.decode("ascii"))
        self._encoder_options: EncoderOptions = {
            "extra_body": extra_body,
            "tool_choice_first": tool_choice_first,
            "capabilities": capabilities,
        }

    def _find_capabilities(self, host: str) -> Capabilities:
        """Return the known capabilities of the model at this host, with its port."""
        return known_capabilities(host, self.name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, base_url={self._endpoint.shown_url!r})"

    @property
    def server(self) -> tuple[str, int]:
        """The server's host and port."""
        url = self._endpoint.url
        return url.host, url.port or (443 if url.scheme == "https" else 80)

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the model and its server; requests are fitted to them."""
        return self._encoder.capabilities

    def unsupported_settings(self, settings: ModelSettings) -> Mapping[str, str]:
        """Return the reason for each setting that is not sent, by name.

        Raises `ConfigError` for an `extra_body` with a field that the request sets.
        """
        return self._encoder.map_settings(settings).unsupported

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of this event loop. The next call opens new ones."""
        await self._poster.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelResponse, None]:
        """Stream the reply to `request`: deltas as they come, then the complete `ModelResponse`.

        A request that is refused because of its limit's name, or of earlier reasoning, is changed and sent again in the
        same attempt. Cancellation closes the connection. Raises `ModelError`, with its cause and any partial reply, for
        every failure of the network, the server or the model.
        """
        request = fit(request, self._encoder.capabilities)
        decoder = self._new_decoder()
        answer, body = await self._post(request)
        while True:
            async with answer:
                while not decoder.done:
                    try:
                        data = await answer.read(progress=decoder.progress, whole=decoder.complete)
                    except ModelError as error:
                        if decoder.complete:
                            # After the finish reason at most the usage is lost, and a retry would cost the reply again.
                            break
                        error.partial = decoder.partial
                        raise
                    if not data:
                        break
                    for delta in decoder.feed(data):
                        yield delta
                for delta in decoder.end():
                    yield delta
                if decoder.complete:
                    await answer.drain()
            continuation = await self._continue_reply(decoder, request, body)
            if continuation is None:
                break
            answer, decoder, body = continuation
        reply = decoder.reply()
        yield structs.replace(reply, max_tokens=_read_sent_limit(body)) if reply.finish is Finish.LENGTH else reply

    def _new_decoder(self) -> ReplyStream:
        return type(self).decoder(secrets=self._endpoint.secrets, where=self._endpoint.shown_url)

    async def _post(self, request: ModelRequest) -> tuple[HttpResponse, bytes]:
        """Post a request. Returns its answer, and the body that the server accepted."""
        body = self._encoder.encode(request)
        try:
            return await self._poster.post(body), body
        except ModelError as error:
            amended_body = self._amend(error, request, body)
            if amended_body is None:
                raise
        return await self._poster.post(amended_body), amended_body

    def _amend(self, error: ModelError | None, request: ModelRequest, body: bytes) -> bytes | None:
        """Return the body to send instead of a refused one; None if the error has no known remedy."""
        if isinstance(error, LimitFieldError):
            return self._encoder.rename_limit(request, body)
        if isinstance(error, MissingReasoningError):
            return self._encoder.require_reasoning(request, body)
        if not isinstance(error, RefusedReasoningError):
            return None
        amended_body = self._encoder.refuse_reasoning(request, body)
        if amended_body is not None:
            _LOG.warning("model %s: the reasoning of earlier replies is left out, because %s", self.name, error)
        return amended_body

    async def _continue_reply(
        self, paused_stream: ReplyStream, request: ModelRequest, body: bytes
    ) -> tuple[HttpResponse, ReplyStream, bytes] | None:
        """Request the rest of a paused reply to `body`, or repeat a request that was refused in its reply.

        Returns None if the reply has ended, or if the server refuses the rest.
        """
        amended_body = None if paused_stream.progress else self._amend(paused_stream.error, request, body)
        if amended_body is not None:
            return await self._poster.post(amended_body), self._new_decoder(), amended_body
        resumption = paused_stream.continue_reply(body)
        if resumption is None:
            return None
        decoder, longer = resumption
        try:
            return await self._poster.post(longer), decoder, body
        except ModelError as error:
            if not error.cause.may_pass:
                _LOG.warning("model %s: the reply stays as it was paused, because %s", self.name, error)
                return None
            error.partial = paused_stream.partial
            raise


def _read_sent_limit(body: bytes) -> int | None:
    """Return the limit of the reply to a request, in tokens. An `extra_body` may set it, to anything."""
    try:
        limits = msgspec.json.decode(body, type=_SentLimits)
    except msgspec.ValidationError:
        return None
    return limits.max_tokens or limits.max_completion_tokens or limits.max_output_tokens
