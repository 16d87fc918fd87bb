"""A model of pydantic-ai, as a model of ours."""

import logging
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import Final, Self, cast
from urllib.parse import urlsplit

import anyio
from pydantic_ai import direct
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelResponse as PydanticResponse
from pydantic_ai.models import Model, StreamedResponse, infer_model
from pydantic_ai.settings import ModelSettings

from turnwright.errors import ConfigError
from turnwright.model.capabilities import Capabilities, checked_capabilities
from turnwright.model.fit import fit
from turnwright.model.http.errors import MIN_SECRET
from turnwright.model.http.read_timeout import ReadTimedOutError, ReadTimeout, read_timeout
from turnwright.model.http.timeouts import Timeouts, Waiting
from turnwright.model.protocol import Delta, ModelRequest, ModelResponse
from turnwright.privacy.secrets import HTTP_LOGGERS, Secrets

from .errors import failure
from .reply import Hearing, reply_of, whole_reply
from .request import messages_of, parameters_of

_LOG = logging.getLogger(__name__)

# How long, in seconds, closing a connection may take once nobody wants its reply any more.
_CLOSING: Final = 2.0
# The clients that log the headers of what they get.
_LOGGERS: Final = ("anthropic._base_client", "openai._base_client")
_SECRET_NAMES: Final = ("api_key", "auth_token", "_api_key")
#: By pydantic-ai's name of a provider: its name in the conventions of OpenTelemetry.
_PROVIDERS: Final = {
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "bedrock-mantle": "aws.bedrock",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "google": "gcp.gemini",
    "google-cloud": "gcp.vertex_ai",
    "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "grok": "x_ai",
    "groq": "groq",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
    "openai": "openai",
    "xai": "x_ai",
}


class PydanticAIModel:
    """A model of pydantic-ai. See `pydantic_ai_model`, which makes one, for its arguments and what it raises."""

    def __init__(
        self,
        model: Model,
        *,
        settings: Mapping[str, object] | None = None,
        capabilities: Capabilities | None = None,
        name: str | None = None,
        idle_timeout: float = 300.0,
    ) -> None:
        self._model = model
        # pydantic-ai shows no bytes, so silence and bytes without a part of the reply look the same.
        self._patience = Timeouts(first_byte=idle_timeout, idle=idle_timeout)
        self._name = name or model.model_id
        self._capabilities = Capabilities() if capabilities is None else checked_capabilities(capabilities)
        self._settings: dict[str, object] = {**(model.settings or {}), **(settings or {})}
        if "tool_choice" in self._settings:
            raise ConfigError("settings may not hold tool_choice: the request itself says that")
        if self._settings.get("max_retries", 0) != 0:
            raise ConfigError("settings may not hold max_retries: the turn itself retries (Limits.max_retries)")
        self._settings |= _no_retries(self._name, model)
        self._secrets = frozenset(_secrets(model, self._settings))
        self._unsaid = Secrets(secret for secret in self._secrets if len(secret) >= MIN_SECRET)

    def __repr__(self) -> str:
        return f"PydanticAIModel({self._name!r})"

    @property
    def name(self) -> str:
        """The model's id."""
        return self._name

    @property
    def model_name(self) -> str:
        """The id by which the provider knows the model: without the provider, whatever `name` is."""
        return self._model.model_name

    @property
    def provider_name(self) -> str:
        """The provider in telemetry; empty where the conventions have no name for it."""
        return _PROVIDERS.get(self._model.system, "")

    @property
    def server(self) -> tuple[str, int] | None:
        """The host and the port of the server that is asked; None where the model does not say, or has several."""
        servers = {_server(each) for each in _models(self._model)}
        return servers.pop() if len(servers) == 1 else None

    @property
    def capabilities(self) -> Capabilities:
        """What the model takes. What it is asked is made to fit."""
        return self._capabilities

    async def __aenter__(self) -> Self:
        await self._model.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._model.__aexit__(kind, error, trace)

    async def aclose(self) -> None:
        """Close the connections. The next call opens new ones, and those of somebody who has entered the model stay."""
        async with self._model:
            pass  # whoever leaves last closes

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelResponse, None]:
        """Stream the reply to `request`: deltas as they come, then the whole `ModelResponse`.

        A model that cannot stream is asked for its reply at once. Raises `ModelError` with its cause, and with the
        partial reply if it broke off, for everything that goes wrong. Cancelling it closes the connection.
        """
        hearing = Hearing()
        stream: StreamedResponse | None = None
        began, first = time.perf_counter(), None
        clock = read_timeout()
        waiting = Waiting(self._patience, self._name, clock.now())
        try:
            async with self._asked(fit(request, self._capabilities), clock) as answer:
                if isinstance(answer, PydanticResponse):
                    response = answer
                else:
                    stream = answer
                    events = aiter(stream)
                    while True:
                        now = clock.now()
                        with clock.until(now + waiting.limit(now, came=hearing.progress, whole=False)):
                            event = await anext(events, None)
                        if event is None:
                            break
                        if first is None:
                            first = time.perf_counter() - began
                        for delta in hearing.take(event):
                            yield delta
                    response = stream.get()
            reply = whole_reply(response, first)
            for delta in hearing.rest(reply):
                yield delta
            yield reply
        except ReadTimedOutError as late:
            over = waiting.over()
            over.partial = None if stream is None else _partial(stream, first)
            raise over from late
        except Exception as error:
            partial = None if stream is None else _partial(stream, first)
            raise failure(error, where=self._name, partial=partial, secrets=self._secrets) from error
        finally:
            clock.off()

    @asynccontextmanager
    async def _asked(
        self, request: ModelRequest, clock: ReadTimeout
    ) -> AsyncGenerator[StreamedResponse | PydanticResponse, None]:
        """Send the request: a response to stream, or a whole one from a model that cannot."""
        # Connections belong to their event loop. pydantic-ai's own agents do this when a run begins.
        refresh = getattr(self._model, "_refresh_http_client", None)
        if refresh is not None:
            refresh()
        parameters = parameters_of(request.tools)
        messages = self._model.prepare_messages(messages_of(request.messages), parameters)
        settings = self._settings_for(request)
        async with AsyncExitStack() as stack:
            stack.enter_context(self._unsaid.hidden_in(*HTTP_LOGGERS, *_LOGGERS))
            answer: StreamedResponse | PydanticResponse
            try:
                with clock.until(clock.now() + self._patience.first_byte):
                    answer = await stack.enter_async_context(
                        direct.model_request_stream(
                            self._model, messages, model_settings=settings, model_request_parameters=parameters
                        )
                    )
                stack.push_async_callback(_close, answer)
            except NotImplementedError:
                # So says an adapter of pydantic-ai that cannot stream. Nothing has been sent. What it does not
                # implement may be something else; then this says so too.
                with clock.until(clock.now() + self._patience.reply):
                    answer = await direct.model_request(
                        self._model, messages, model_settings=settings, model_request_parameters=parameters
                    )
            yield answer

    def _settings_for(self, request: ModelRequest) -> ModelSettings:
        settings = dict(self._settings)
        # Without tools there is nothing to choose from, and a choice of none is refused like any other.
        settings["tool_choice"] = request.tool_choice if request.tools else "auto"
        if request.max_tokens is not None:
            own = settings.get("max_tokens")
            settings["max_tokens"] = min(own, request.max_tokens) if isinstance(own, int) else request.max_tokens
        return cast("ModelSettings", settings)


def made_of(model: Model | str) -> Model:
    """Give the model that a name stands for. Raises `ConfigError` if pydantic-ai cannot make it."""
    if isinstance(model, Model):
        return model
    if not isinstance(model, str):
        raise ConfigError(
            f"a model is one of pydantic-ai's, or a name such as 'google:...', not {type(model).__name__}"
        )
    try:
        return infer_model(model)
    except UserError as error:
        raise ConfigError(f"model {model!r}: {error.message}") from error
    except Exception as error:
        # The clients that it makes raise errors of their own, such as for a region that is not set.
        raise ConfigError(f"model {model!r}: {error}") from error


async def _close(stream: StreamedResponse) -> None:
    """Close the connection of a stream that nobody reads to its end. Nothing is closed once it has ended."""
    with anyio.move_on_after(_CLOSING, shield=True), suppress(Exception):
        await stream.cancel()


def _partial(stream: StreamedResponse, first: float | None) -> ModelResponse | None:
    with suppress(Exception):
        reply = reply_of(stream.get(), first)
        if reply.text or reply.reasoning or reply.calls:
            return reply
    return None


def _no_retries(name: str, model: Model) -> Mapping[str, object]:
    """The setting that switches retries off, or none where the adapter does not know it, with a warning."""
    if all("max_retries" not in each.unsupported_settings for each in _models(model)):
        return {"max_retries": 0}
    _LOG.warning(
        "model %s: pydantic-ai cannot tell its client not to retry: switch that off in the client, since each of its "
        "attempts is one that the turn does not count",
        name,
    )
    return {}


def _models(model: Model) -> Iterator[Model]:
    """The models that a model asks: itself, the one that it wraps, or those that it falls back on."""
    inner = getattr(model, "models", None) or [getattr(model, "wrapped", None)]
    for each in inner if isinstance(inner, list) else ():
        if isinstance(each, Model):
            yield from _models(each)
    yield model


def _server(model: Model) -> tuple[str, int] | None:
    """Where a model asks. What a client of somebody else's says of itself may be anything, and may raise."""
    with suppress(Exception):
        url = urlsplit(model.base_url or "")
        if url.hostname:
            return url.hostname, url.port or (80 if url.scheme == "http" else 443)
    return None


def _secrets(model: Model, settings: Mapping[str, object]) -> Iterator[str]:
    """The keys of its clients, as far as they can be seen, and the headers that are sent with every request."""
    for each in _models(model):
        client = getattr(each, "client", None)
        for owner in (each, client, getattr(client, "_api_client", None)):
            yield from (value for name in _SECRET_NAMES if isinstance(value := getattr(owner, name, None), str))
    headers = settings.get("extra_headers")
    if isinstance(headers, Mapping):
        yield from (value for value in headers.values() if isinstance(value, str))
