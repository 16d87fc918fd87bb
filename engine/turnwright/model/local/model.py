"""The embedded default model: SmolLM2-135M-Instruct on llama.cpp's own server, which runs as a child process.

It needs no key and no network, and is small enough for any machine. It is there so that `turnwright run` works at
once, and so that tests meet a real server; it is no model to get work done with.
"""

import itertools
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Final
from weakref import WeakSet

import anyio.to_thread
from anyio.lowlevel import RunVar
from msgspec import structs

from turnwright.model.capabilities import Capabilities
from turnwright.model.http.known_servers import known_capabilities
from turnwright.model.openai_chat.client import OpenAIChat
from turnwright.model.protocol import ModelRequest, ModelResponse, ReasoningDelta, TextDelta

from .server import LocalServer
from .weights import find_weights, model_name

#: A small model may go on for ever; unasked, it gets this many tokens for a reply.
_MAX_TOKENS: Final = 256
#: Seconds without a byte: a context of 8,192 tokens is read in half a minute on one core, and calls may queue.
_IDLE_TIMEOUT: Final = 300.0

_numbers: Final = itertools.count()


class _Servers:
    """The servers of this process: one for each choice of weights and threads, for as long as a model uses it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: dict[tuple[Path, int], tuple[LocalServer, WeakSet[LocalModel]]] = {}

    def join(self, model: "LocalModel") -> LocalServer:
        """The model's server, which it uses from now on. It may have to be started."""
        with self._lock:
            key = (model.weights, model.threads)
            if key not in self._used:
                self._used[key] = (LocalServer(model.weights, threads=model.threads), WeakSet())
            server, users = self._used[key]
            users.add(model)
            return server

    def leave(self, model: "LocalModel") -> None:
        """The model uses its server no longer. The last one that leaves stops it."""
        with self._lock:
            key = (model.weights, model.threads)
            server, users = self._used.get(key, (None, WeakSet[LocalModel]()))
            users.discard(model)
            if server is not None and not users:
                del self._used[key]
                server.stop()


_SERVERS: Final = _Servers()


class LocalModel:
    """The local model: starts its server when it is first asked, and asks it as `OpenAIChat` does.

    `weights` and `threads` are `LocalServer`'s. All local models of a process with the same ones share one server.
    Replies are repeatable (temperature 0, a fixed seed). A small model does not think of its tools: on the first
    call of a turn that may call tools it must. A reply for which the request sets no `max_tokens` gets 256.

    Raises `ConfigError` when llama.cpp or the weights are missing, or the weights are no GGUF file.
    """

    def __init__(self, weights: Path | None = None, *, threads: int = 1) -> None:
        self.weights: Final = find_weights(weights)
        self.threads: Final = threads
        # A client belongs to one event loop and to one address: a server that was started again has another.
        self._client: RunVar[tuple[str, OpenAIChat] | None] = RunVar(f"turnwright.model.local.{next(_numbers)}", None)

    def __repr__(self) -> str:
        return f"LocalModel({str(self.weights)!r})"

    @property
    def name(self) -> str:
        """The model's id."""
        return model_name(self.weights)

    @property
    def capabilities(self) -> Capabilities:
        """What the model takes: what is known of its name."""
        return known_capabilities("localhost", self.name)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ReasoningDelta | ModelResponse, None]:
        """Stream the reply to `request` (see `Model.stream`). Starts the server if it does not run."""
        chat = await self._connected()
        if request.max_tokens is None:
            request = structs.replace(request, max_tokens=_MAX_TOKENS)
        async with aclosing(chat.stream(request)) as pieces:
            async for piece in pieces:
                yield piece

    async def _connected(self) -> OpenAIChat:
        server = _SERVERS.join(self)
        # Cancelling only ends the waiting: other turns may be waiting for the same server.
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
        """Stop the server, unless another model still uses it. A closed model that is asked again starts it again."""
        _SERVERS.leave(self)
        client = self._client.get()
        self._client.set(None)
        if client is not None:
            await client[1].aclose()


def open_model(_: str) -> LocalModel:
    """See `Provider.opener`. There is but one embedded model."""
    return LocalModel()
