"""The embedded default model: SmolLM2-135M-Instruct on llama.cpp's own server, which runs as a child process.

It needs no key and no network, and fits on any machine. With it, `turnwright run` works at once and tests use a real
server; it is too small for real work.
"""

import itertools
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import ClassVar, Final
from weakref import WeakSet

import anyio.to_thread
from anyio.lowlevel import RunVar
from msgspec import structs

from turnwright.model.capabilities import Capabilities, known_capabilities
from turnwright.model.model_settings import ModelSettings
from turnwright.model.openai_chat.client import OpenAIChat
from turnwright.model.openai_chat.request import map_chat_settings
from turnwright.model.protocol import Delta, ModelError, ModelRequest, ModelResponse
from turnwright_states import Cause

from .server import LocalServer
from .weights import find_weights, model_name

#: The default limit of a reply, in tokens, because a small model may never stop.
_MAX_TOKENS: Final = 256
#: Seconds without a byte: one core reads a context of 8,192 tokens in half a minute, and calls may queue.
_IDLE_TIMEOUT: Final = 300.0

#: How llama.cpp's error begins when the calls that it has read so far do not fit the reply's next tokens.
_PARSER_FAILED: Final = "Invalid diff:"

_numbers: Final = itertools.count()


def malformed_reply(error: ModelError) -> ModelResponse:
    """Return the reply in which llama.cpp could not read a tool call, with its last call as a malformed one.

    Raises `ModelError` if no call had begun. Another attempt would fail too, because replies are repeatable.
    """
    reply = error.partial or ModelResponse()
    if not reply.calls:
        message = (
            "the embedded model wrote a malformed tool call: name the tool and its arguments in the message, or use"
            " another model"
        )
        raise ModelError(message, cause=Cause.REJECTED, partial=error.partial) from error
    *calls, last = reply.calls
    return structs.replace(reply, calls=(*calls, structs.replace(last, arguments=None)))


class _Servers:
    """The servers of this process: one for each pair of weights and threads, while a model uses it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers: dict[tuple[Path, int], tuple[LocalServer, WeakSet[LocalModel]]] = {}

    def join(self, model: "LocalModel") -> LocalServer:
        """Return the model's server, and count the model as its user. The server may not have started yet."""
        with self._lock:
            key = (model.weights, model.threads)
            if key not in self._servers:
                self._servers[key] = (LocalServer(model.weights, threads=model.threads), WeakSet())
            server, users = self._servers[key]
            users.add(model)
            return server

    def leave(self, model: "LocalModel") -> None:
        """Count the model out. The server stops when no model uses it."""
        with self._lock:
            key = (model.weights, model.threads)
            server, users = self._servers.get(key, (None, WeakSet[LocalModel]()))
            users.discard(model)
            if server is not None and not users:
                del self._servers[key]
                server.stop()


_SERVERS: Final = _Servers()


class LocalModel:
    """The local model. The first call starts its server, which it uses like `OpenAIChat`.

    `weights` and `threads` are `LocalServer`'s. Local models with the same ones share one server in a process.
    Replies are repeatable (temperature 0, a fixed seed). The first call of a turn with tools must use one, because a
    small model would ignore them. A reply has at most 256 tokens unless the request sets `max_tokens`.

    Raises `ConfigError` when llama.cpp or the weights are missing, or the weights are not a GGUF file.
    """

    #: Its own timeouts apply.
    silence_timeout: ClassVar[None] = None

    def __init__(self, weights: Path | None = None, *, threads: int = 1) -> None:
        self.weights: Final = find_weights(weights)
        self.threads: Final = threads
        # A client belongs to one event loop and one address, which changes when the server is restarted.
        self._client: RunVar[tuple[str, OpenAIChat] | None] = RunVar(f"turnwright.model.local.{next(_numbers)}", None)

    def __repr__(self) -> str:
        return f"LocalModel({str(self.weights)!r})"

    @property
    def name(self) -> str:
        """The model's id."""
        return model_name(self.weights)

    @property
    def capabilities(self) -> Capabilities:
        """The known capabilities of a model of this name."""
        return known_capabilities("localhost", self.name)

    def unsupported_settings(self, settings: ModelSettings) -> Mapping[str, str]:
        """See `OpenAIChat.unsupported_settings`."""
        return map_chat_settings(settings, self.capabilities).unsupported

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelResponse, None]:
        """Stream the reply to `request` (see `Model.stream`). Starts the server if necessary."""
        chat = await self._connect()
        if request.max_tokens is None:
            request = structs.replace(request, max_tokens=_MAX_TOKENS)
        try:
            async with aclosing(chat.stream(request)) as pieces:
                async for piece in pieces:
                    yield piece
        except ModelError as error:
            if _PARSER_FAILED not in str(error):
                raise
            yield malformed_reply(error)

    async def _connect(self) -> OpenAIChat:
        server = _SERVERS.join(self)
        # Cancellation only ends this wait: other turns may be waiting for the same server.
        url = await anyio.to_thread.run_sync(server.start, abandon_on_cancel=True)
        client = self._client.get()
        if client is not None and client[0] == url:
            return client[1]
        chat = OpenAIChat(
            self.name,
            base_url=url,
            api_key=server.api_key,
            idle_timeout=_IDLE_TIMEOUT,
            extra_body={"temperature": 0, "seed": 1},
            tool_choice_first="required",
            capabilities=self.capabilities,
        )
        self._client.set((url, chat))
        if client is not None:
            await client[1].aclose()
        return chat

    async def aclose(self) -> None:
        """Stop the server, unless another model uses it. The next call of a closed model starts it again."""
        _SERVERS.leave(self)
        client = self._client.get()
        self._client.set(None)
        if client is not None:
            await client[1].aclose()


def open_model(_: str) -> LocalModel:
    """See `Provider.opener`. There is only one embedded model."""
    return LocalModel()
