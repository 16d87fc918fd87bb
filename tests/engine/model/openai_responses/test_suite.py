"""The suite of models over the Responses API, with a real server on a real socket."""

import json
import socket
import socketserver
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Final

import pytest
from pydantic import JsonValue, TypeAdapter

from turnwright.model import Model, OpenAIResponses
from turnwright_testing.exchange import (
    Exchange,
    Fails,
    ModelBench,
    Says,
    SentCall,
    SentMessage,
    SentRequest,
    Unreachable,
)
from turnwright_testing.model_suite import ModelSuite

from .events import Event, Item, added, arguments, call, completed, created, done, incomplete, message, sse, text

ITEMS: TypeAdapter[list[Item]] = TypeAdapter(list[Item])
ARGUMENTS: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])
#: Seconds that a server may take to notice that its client has closed a connection.
PATIENCE: Final = 5.0

_ABOUT: Final = {"": "server_said_no", "context": "context_length_exceeded", "filter": "content_filter"}
_REASONS: Final = {"length": "max_output_tokens", "filter": "content_filter"}


class _Connection(socketserver.StreamRequestHandler):
    @property
    def plays(self) -> "Server":
        assert isinstance(self.server, Server)
        return self.server

    def handle(self) -> None:
        length = 0
        while (line := self.rfile.readline()).strip():
            name, _, value = line.decode().partition(":")
            length = int(value) if name.lower() == "content-length" else length
        with self.plays.changed:
            self.plays.open += 1
        try:
            with suppress(OSError):
                self._answer(json.loads(self.rfile.read(length)))
        finally:
            with self.plays.changed:
                self.plays.open -= 1
                self.plays.changed.notify_all()

    def _answer(self, body: Event) -> None:
        self.plays.bodies.append(body)
        match self.plays.exchange:
            case Says() as says:
                self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
                self.wfile.write(b"transfer-encoding: chunked\r\n\r\n")
                for event in events_of(says):
                    self._send(sse(event))
                if says.then == "hangs":
                    self.connection.recv(1)
                elif says.then == "ends":
                    self.wfile.write(b"0\r\n\r\n")
            case Fails() as fails:
                error = {"error": {"message": "it cannot be done", "code": _ABOUT[fails.about]}}
                retry_line = "" if fails.retry_after is None else f"retry-after: {fails.retry_after:g}\r\n"
                self._whole(f"{fails.status} No", f"content-type: application/json\r\n{retry_line}", json.dumps(error))
            case _:
                self._whole("200 OK", "content-type: text/html\r\n", "<html><p>Log in</p></html>")

    def _send(self, piece: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    def _whole(self, status: str, headers: str, body: str) -> None:
        self.wfile.write(f"HTTP/1.1 {status}\r\n{headers}content-length: {len(body)}\r\n\r\n{body}".encode())


class Server(socketserver.ThreadingTCPServer):
    """Plays one exchange with every request, each on a connection of its own."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.exchange = exchange
        self.bodies: list[Event] = []
        self.open = 0
        self.changed = threading.Condition()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Stop listening."""
        self.shutdown()
        self.server_close()


def events_of(says: Says) -> Iterator[Event]:
    """The reply as the API streams it: the text piece by piece, the arguments in halves."""
    yield created()
    items: list[Item] = []
    if says.pieces:
        items.append(message("".join(says.pieces)))
        yield added(0, message())
        for piece in says.pieces:
            yield text(0, piece)
        if says.then == "ends":
            yield done(0, items[0])
    for number, tool_call in enumerate(says.calls):
        index = len(items)
        items.append(call(tool_call.name, tool_call.arguments, tool_call.id, f"fc_{number}"))
        half = len(tool_call.arguments) // 2
        yield added(index, {**items[-1], "arguments": ""})
        yield arguments(index, tool_call.arguments[:half], f"fc_{number}")
        yield arguments(index, tool_call.arguments[half:], f"fc_{number}")
        yield done(index, items[-1])
    if says.then != "ends":
        return
    usage: JsonValue = None
    if says.usage is not None:
        usage = {"input_tokens": says.usage.input_tokens, "output_tokens": says.usage.output_tokens}
    reason = _REASONS.get(says.finish)
    last = completed(*items) if reason is None else incomplete(reason, *items)
    response = last["response"]
    assert isinstance(response, dict)
    yield {**last, "response": {**response, "usage": usage}}


def sent(body: Event) -> SentRequest:
    """Read a request as the suite wants to see it."""
    choice, limit = body.get("tool_choice"), body.get("max_output_tokens")
    return SentRequest(
        messages=tuple(_messages(ITEMS.validate_python(body["input"]))),
        tools=tuple(str(tool["name"]) for tool in ITEMS.validate_python(body.get("tools", []))),
        tool_choice=choice if isinstance(choice, str) else None,
        max_tokens=limit if isinstance(limit, int) else None,
    )


def _messages(items: list[Item]) -> Iterator[SentMessage]:
    """The items of a request, as the messages that they were made of."""
    text, calls = "", list[SentCall]()
    for item in [*items, Item()]:
        kind = item.get("type", "message")
        if kind == "function_call":
            arguments = ARGUMENTS.validate_json(str(item["arguments"]))
            calls.append(SentCall(str(item["call_id"]), str(item["name"]), arguments))
        elif item.get("role") == "assistant":
            text = str(ITEMS.validate_python(item["content"])[0]["text"])
        else:
            if text or calls:
                yield SentMessage("assistant", text, tuple(calls))
            text, calls = "", []
            if kind == "function_call_output":
                yield SentMessage("tool", str(item["output"]), answers=str(item["call_id"]))
            elif item:
                yield SentMessage("system" if item["role"] == "system" else "user", str(item["content"]))


class ResponsesBench:
    """A server for each model."""

    def __init__(self) -> None:
        self.models: list[OpenAIResponses] = []
        self.servers: list[Server] = []

    @property
    def requests(self) -> list[SentRequest]:
        return [sent(body) for server in self.servers for body in server.bodies]

    @property
    def closed(self) -> bool:
        """Whether no connection is in use. A server needs a moment to see that its client has closed one."""
        for server in self.servers:
            with server.changed:
                while server.open:
                    if not server.changed.wait(PATIENCE):
                        return False
        return True

    def model(self, exchange: Exchange) -> Model:
        if isinstance(exchange, Unreachable):
            with socket.create_server(("127.0.0.1", 0)) as gone:
                port: int = gone.getsockname()[1]
        else:
            self.servers.append(Server(exchange))
            port = self.servers[-1].server_address[1]
        self.models.append(OpenAIResponses("m", base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-test"))
        return self.models[-1]


class TestOpenAIResponses(ModelSuite):
    @pytest.fixture
    async def bench(self) -> AsyncIterator[ModelBench]:
        bench = ResponsesBench()
        yield bench
        for model in bench.models:
            await model.aclose()
        for server in bench.servers:
            server.stop()
