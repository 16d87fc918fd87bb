"""Requests to an ASGI application in this event loop: their responses come in pieces, as over a network."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
from starlette.types import ASGIApp, Message

Json = dict[str, Any]
JSON_TYPE = "application/json"


@dataclass
class Reply:
    """A response, as far as it has arrived."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""

    @property
    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:  # noqa: ANN401 (a test looks into it)
        return json.loads(self.content)

    def data(self) -> list[Json]:
        """Return the data of the server-sent events, without comments and the last `[DONE]`."""
        lines = [line.removeprefix("data: ") for line in self.text.splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]


@dataclass
class Client:
    """A client of an application."""

    app: ASGIApp
    headers: Mapping[str, str] = field(default_factory=dict)

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        pieces: Sequence[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        leaves: Callable[[str], bool] = lambda _: False,
        stalls: bool = False,
    ) -> Reply:
        """Send a request, and return its response.

        `pieces` are the body's bytes; one that `stalls` never sends the last piece. The client disconnects as soon as
        it `leaves`, which is asked with the content so far, and first without any.
        """
        if pieces is None:
            pieces = [b"" if body is None else json.dumps(body).encode()]
        rest = [*pieces]
        reply, gone = Reply(), anyio.Event()
        if leaves(""):
            gone.set()
        path, _, query = path.partition("?")
        all_headers = {"content-type": JSON_TYPE, "host": "test", **self.headers, **(headers or {})}

        async def receive() -> Message:
            if rest:
                piece = rest.pop(0)
                return {"type": "http.request", "body": piece, "more_body": bool(rest) or stalls}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = {name.decode(): value.decode() for name, value in message["headers"]}
                return
            reply.content += message.get("body", b"")
            if leaves(reply.content.decode(errors="ignore")):
                gone.set()
                await anyio.lowlevel.checkpoint()

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in all_headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("test", 80),
        }
        await self.app(scope, receive, send)
        return reply
