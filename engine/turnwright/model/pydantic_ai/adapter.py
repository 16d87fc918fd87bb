"""The adapter for models of pydantic-ai."""

import logging
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import ClassVar, Final, Self, cast
from urllib.parse import urlsplit

import anyio
from msgspec import structs
from pydantic_ai import direct
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelResponse as PydanticResponse
from pydantic_ai.messages import ToolCallPartDelta
from pydantic_ai.models import Model, StreamedResponse, infer_model
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.settings import ModelSettings

from turnwright.errors import ConfigError
from turnwright.model.capabilities import Capabilities, checked_capabilities
from turnwright.model.fit import fit, split_calls
from turnwright.model.http.errors import MIN_SECRET
from turnwright.model.http.timeouts import Timeouts, Waiting
from turnwright.model.model_settings import ModelSettings as TurnSettings
from turnwright.model.protocol import Delta, ModelRequest, ModelResponse
from turnwright.model.read_timeout import ReadTimedOutError, ReadTimeout, read_timeout
from turnwright.privacy.secrets import HTTP_LOGGERS, Secrets
from turnwright_states import Finish

from .errors import failure
from .reply import PartListener, reply_of, whole_reply
from .request import has_output_tool, map_pydantic_settings, messages_of, models_behind, parameters_of

_LOG = logging.getLogger(__name__)

# The longest time, in seconds, to close the connection of a canceled reply.
_CLOSING: Final = 2.0
# The clients that log the headers of answers.
_LOGGERS: Final = ("anthropic._base_client", "openai._base_client")
_SECRET_NAMES: Final = ("api_key", "auth_token", "_api_key")
#: The names of providers in OpenTelemetry's conventions, by pydantic-ai's names.
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


def _find_capabilities(model: Model) -> Capabilities:
    """Return the capabilities of a model: only chat completions have a limit on the calls of a message."""
    chats = any(
        kind.__name__ == "OpenAIChatModel" for inner_model in models_behind(model) for kind in type(inner_model).__mro__
    )
    return Capabilities() if chats else Capabilities(calls_per_message=None)


class PydanticAIModel:
    """A model of pydantic-ai. See `pydantic_ai_model` for its arguments and errors."""

    #: Its own timeouts apply.
    silence_timeout: ClassVar[None] = None

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
        # pydantic-ai does not expose bytes, so silence and bytes without a part of the reply look the same.
        self._patience = Timeouts(first_byte=idle_timeout, idle=idle_timeout)
        #: The model's id.
        self.name: Final = name or model.model_id
        #: The capabilities of the model; requests are fitted to them.
        self.capabilities: Final = (
            _find_capabilities(model) if capabilities is None else checked_capabilities(capabilities)
        )
        self._settings: dict[str, object] = {**(model.settings or {}), **(settings or {})}
        if "tool_choice" in self._settings:
            raise ConfigError("settings must not contain tool_choice: the request sets it")
        if self._settings.get("max_retries", 0) != 0:
            raise ConfigError("settings must not contain max_retries: the turn retries (Limits.max_retries)")
        self._settings |= _disable_retries(self.name, model)
        self._can_stream = all(map(_can_stream, models_behind(model)))
        self._secrets = frozenset(_secrets(model, self._settings))
        self._log_secrets = Secrets(secret for secret in self._secrets if len(secret) >= MIN_SECRET)

    def __repr__(self) -> str:
        return f"PydanticAIModel({self.name!r})"

    @property
    def model_name(self) -> str:
        """The model's id at the provider, whatever `name` is."""
        return self._model.model_name

    @property
    def provider_name(self) -> str:
        """The provider's name in telemetry; empty if the conventions have none."""
        return _PROVIDERS.get(self._model.system, "")

    @property
    def server(self) -> tuple[str, int] | None:
        """The server's host and port; None if the model has several servers, or does not expose it."""
        servers = {_server(inner_model) for inner_model in models_behind(self._model)}
        return servers.pop() if len(servers) == 1 else None

    async def __aenter__(self) -> Self:
        await self._model.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._model.__aexit__(kind, error, trace)

    async def aclose(self) -> None:
        """Close the connections, unless other code has entered the model. The next call opens new ones."""
        async with self._model:
            pass  # the last one to exit closes them

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelResponse, None]:
        """Stream the reply to `request`: deltas as they come, then the complete `ModelResponse`.

        A model that cannot stream returns its reply at once. Cancellation closes the connection. Raises `ModelError`,
        with its cause and any partial reply, for every failure.
        """
        listener = PartListener()
        stream: StreamedResponse | None = None
        start, first = time.perf_counter(), None
        clock = read_timeout()
        wait_limits = Waiting(self._patience, self.name, clock.now())
        try:
            async with self._send(fit(request, self.capabilities), clock) as answer:
                if isinstance(answer, PydanticResponse):
                    response = answer
                else:
                    stream = answer
                    events = aiter(stream)
                    while True:
                        now = clock.now()
                        with clock.until(now + wait_limits.limit(now, progress=listener.progress, whole=False)):
                            event = await anext(events, None)
                        if event is None:
                            break
                        if first is None:
                            first = time.perf_counter() - start
                        for delta in listener.take(event):
                            yield delta
                    response = stream.get()
            reply = self._check_reply(whole_reply(response, first), request, stream)
            for delta in listener.rest(reply):
                yield delta
            yield reply
        except ReadTimedOutError as late:
            over = wait_limits.over()
            over.partial = None if stream is None else _partial(stream, first)
            raise over from late
        except Exception as error:
            partial = None if stream is None else _partial(stream, first)
            raise failure(error, where=self.name, partial=partial, secrets=self._secrets) from error
        finally:
            clock.off()

    def _check_reply(
        self, reply: ModelResponse, request: ModelRequest, stream: StreamedResponse | None
    ) -> ModelResponse:
        """Return a reply with the limit that was sent, and with no call that lacks its arguments."""
        if reply.finish is Finish.LENGTH:
            reply = structs.replace(reply, max_tokens=self._settings_for(request).get("max_tokens"))
        if stream is None or not (_lacks_reason(stream) or _has_nameless(stream)):
            return reply
        calls = [call.without_arguments() if call.is_blank else call for call in reply.calls]
        return structs.replace(reply, calls=tuple(calls))

    @asynccontextmanager
    async def _send(
        self, request: ModelRequest, clock: ReadTimeout
    ) -> AsyncGenerator[StreamedResponse | PydanticResponse, None]:
        """Send the request. Returns a response to stream, or the complete one of a model that cannot stream."""
        # Connections belong to their event loop. pydantic-ai's own agents do the same when a run begins.
        refresh = getattr(self._model, "_refresh_http_client", None)
        if refresh is not None:
            refresh()
        parameters = parameters_of(request)
        most = self.capabilities.calls_per_message
        fitted_messages = request.messages if most is None else split_calls(request.messages, most)
        messages = self._model.prepare_messages(messages_of(fitted_messages), parameters)
        settings = self._settings_for(request)
        async with AsyncExitStack() as stack:
            stack.enter_context(self._log_secrets.hidden_in(*HTTP_LOGGERS, *_LOGGERS))
            answer: StreamedResponse | PydanticResponse | None = None
            if self._can_stream:
                # An adapter of pydantic-ai that cannot stream raises this before it sends anything.
                with suppress(NotImplementedError), clock.until(clock.now() + self._patience.first_byte):
                    answer = await stack.enter_async_context(
                        direct.model_request_stream(
                            self._model, messages, model_settings=settings, model_request_parameters=parameters
                        )
                    )
                    stack.push_async_callback(_close, answer)
            if answer is None:
                # If the adapter does not implement something else, it raises that here.
                with clock.until(clock.now() + self._patience.reply):
                    answer = await direct.model_request(
                        self._model, messages, model_settings=settings, model_request_parameters=parameters
                    )
            yield answer

    def unsupported_settings(self, settings: TurnSettings) -> Mapping[str, str]:
        """Return the reason for each setting that is not sent, by name."""
        return map_pydantic_settings(settings, self._model, self.capabilities).unsupported

    def _settings_for(self, request: ModelRequest) -> ModelSettings:
        settings = dict(self._settings)
        if request.settings is not None:
            mapped_settings = map_pydantic_settings(request.settings, self._model, self.capabilities).body
            own_body = settings.get("extra_body")
            if isinstance(own_body, Mapping) and isinstance(request_body := mapped_settings.get("extra_body"), Mapping):
                mapped_settings["extra_body"] = {**own_body, **request_body}
            settings |= mapped_settings
        # Providers reject any choice of tools, `none` included, in a request without tools. Of a typed answer,
        # `allow_text_output` says that it is required: with `required` pydantic-ai means one of the other tools.
        is_answer = request.tool_choice == "required" and has_output_tool(request)
        settings["tool_choice"] = request.tool_choice if request.tools and not is_answer else "auto"
        if request.max_tokens is not None:
            own_body = settings.get("max_tokens")
            settings["max_tokens"] = (
                min(own_body, request.max_tokens) if isinstance(own_body, int) else request.max_tokens
            )
        return cast("ModelSettings", settings)


def build_model(model: Model | str) -> Model:
    """Return the model of this name. Raises `ConfigError` if pydantic-ai cannot make it."""
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
        # Its clients raise errors of their own, such as for a missing region.
        raise ConfigError(f"model {model!r}: {error}") from error


async def _close(stream: StreamedResponse) -> None:
    """Close the connection of a stream that is not read to its end. Has no effect once it has ended."""
    with anyio.move_on_after(_CLOSING, shield=True), suppress(Exception):
        await stream.cancel()


def _partial(stream: StreamedResponse, first: float | None) -> ModelResponse | None:
    with suppress(Exception):
        reply = reply_of(stream.get(), first)
        if reply.text or reply.reasoning or reply.calls:
            return reply
    return None


def _lacks_reason(stream: StreamedResponse) -> bool:
    """Whether a chat completion ended without a finish reason, as one that broke off. pydantic-ai calls that `stop`.

    Only an attribute of its own shows it.
    """
    return not getattr(stream, "_has_finish_reason", True)


def _has_nameless(stream: StreamedResponse) -> bool:
    """Whether arguments came without the name of their call, as under another index. pydantic-ai leaves them out.

    Only an attribute of its own shows them.
    """
    parts = getattr(getattr(stream, "_parts_manager", None), "_parts", ())
    return any(isinstance(part, ToolCallPartDelta) for part in parts)


def _disable_retries(name: str, model: Model) -> Mapping[str, object]:
    """Return the setting that disables retries; empty, with a warning, if the adapter does not know it."""
    if all("max_retries" not in inner_model.unsupported_settings for inner_model in models_behind(model)):
        return {"max_retries": 0}
    _LOG.warning(
        "model %s: pydantic-ai cannot disable the retries of its client: disable them in the client, because the turn "
        "does not count them",
        name,
    )
    return {}


def _can_stream(model: Model) -> bool:
    """Whether a model can stream; a `FunctionModel` without a function that streams fails an assertion instead."""
    return not isinstance(model, FunctionModel) or model.stream_function is not None


def _server(model: Model) -> tuple[str, int] | None:
    """Return a model's server. The attributes of a foreign client may be anything, and may raise."""
    with suppress(Exception):
        url = urlsplit(model.base_url or "")
        if url.hostname:
            return url.hostname, url.port or (80 if url.scheme == "http" else 443)
    return None


def _secrets(model: Model, settings: Mapping[str, object]) -> Iterator[str]:
    """Return the visible keys of a model's clients, and the headers of every request."""
    for inner_model in models_behind(model):
        client = getattr(inner_model, "client", None)
        for owner in (inner_model, client, getattr(client, "_api_client", None)):
            yield from (value for name in _SECRET_NAMES if isinstance(value := getattr(owner, name, None), str))
    headers = settings.get("extra_headers")
    if isinstance(headers, Mapping):
        yield from (value for value in headers.values() if isinstance(value, str))
