"""Models that speak OpenAI's chat completions over HTTP: OpenAI, llama.cpp, vLLM, Ollama and dozens of others."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pydantic import JsonValue

from turnwright.errors import ConfigError

from .endpoint import Endpoint
from .exchange import Answer, Patience, Poster
from .openai_stream import ChatStream
from .openai_wire import Encoder, MaxTokensField
from .protocol import ModelError, ReasoningDelta, Reply, Request, TextDelta, ToolChoice

if TYPE_CHECKING:
    import httpx


class OpenAIChat:
    """A model behind an address that speaks chat completions. It makes one attempt a call (DESIGN 4.10).

    `model` is the model's id, as the provider knows it. `base_url` is the address before `/chat/completions`, by
    default `OPENAI_BASE_URL` or OpenAI's own; `api_key` is by default `OPENAI_API_KEY`, and only OpenAI's own address
    requires one. Both variables are read here, not at the first call.

    Times are in seconds: `connect_timeout` to connect, `first_byte_timeout` until the reply begins, `idle_timeout` of
    silence inside it. Nothing bounds a reply that keeps coming: the turn's deadline does.

    `headers` and `extra_body` go with every request; a None in `extra_body` removes a field that is sent by default
    (`stream_options`, for servers that refuse it). `tool_choice_first` takes the place of `auto` in the first call of
    a turn. `max_tokens_field` is by default what the address wants. `transport` replaces the network.

    One HTTP client is made at the first call and used until `aclose`, or the end of `async with`. Each event loop gets
    one of its own, so a model may outlive the loop that it was first used in.

    Raises `ConfigError` for an address, a key, a header or an option that cannot be used, and for OpenAI's own address
    without a key.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        connect_timeout: float = 10.0,
        first_byte_timeout: float = 300.0,
        idle_timeout: float = 60.0,
        transport: "httpx.AsyncBaseTransport | None" = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, JsonValue] | None = None,
        tool_choice_first: ToolChoice | None = None,
        max_tokens_field: MaxTokensField | None = None,
    ) -> None:
        if not model:
            raise ConfigError("the model has no name: pass the id by which the provider knows it")
        self._name = model
        self._endpoint = Endpoint.of(base_url=base_url, api_key=api_key, headers=headers)
        self._encoder = Encoder(
            model,
            max_tokens_field=max_tokens_field or ("max_completion_tokens" if self._endpoint.openai else "max_tokens"),
            extra_body=extra_body,
            tool_choice_first=tool_choice_first,
        )
        patience = Patience(connect=connect_timeout, first_byte=first_byte_timeout, idle=idle_timeout)
        self._poster = Poster(self._endpoint, patience, transport)

    def __repr__(self) -> str:
        return f"OpenAIChat({self._name!r}, base_url={self._endpoint.shown!r})"

    @property
    def name(self) -> str:
        """The model's id."""
        return self._name

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of this event loop. The next call opens new ones."""
        await self._poster.aclose()

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | ReasoningDelta | Reply, None]:
        """Stream the reply to `request`: deltas as they come, then the whole `Reply`.

        Raises `ModelError` with its cause, and with the partial reply if it broke off, for everything that the
        network, the server or the model can do wrong. Cancelling it closes the connection.
        """
        decoder = ChatStream(secrets=self._endpoint.secrets)
        async with await self._poster.post(self._encoder.encode(request)) as answer:
            while not decoder.done and (data := await _more(answer, decoder)):
                for delta in decoder.feed(data):
                    yield delta
            for delta in decoder.end():
                yield delta
            if decoder.complete:
                await answer.drain()
        reply = decoder.reply()
        if decoder.refusal and not reply.text and not reply.calls:
            # It is the model's answer. Left out, the chart would see an empty reply and ask again.
            yield TextDelta(decoder.refusal)
            reply = replace(reply, text=decoder.refusal)
        yield reply


async def _more(answer: Answer, decoder: ChatStream) -> bytes:
    try:
        return await answer.read()
    except ModelError as lost:
        if decoder.complete:
            # After the finish reason at most the usage is lost, and asking again would be paid again.
            return b""
        lost.partial = decoder.partial
        raise
