"""A server on this machine that speaks chat completions: it plays replies in turn, and says no more after the last."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving(*replies: dict[str, object]) -> Iterator[str]:
    """The address of a server that gives these messages of the assistant, one a request."""
    remaining = list(replies)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            finish = "tool_calls" if "tool_calls" in remaining[0] else "stop"
            streams = bool(request.get("stream"))
            choice = {"index": 0, "delta" if streams else "message": remaining.pop(0), "finish_reason": finish}
            data = json.dumps({"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]})
            body = (f"data: {data}\n\ndata: [DONE]\n\n" if streams else data).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if streams else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the library's name)
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def calls(name: str, /, **arguments: object) -> dict[str, object]:
    """A message that asks for one call."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}


def says(text: str) -> dict[str, object]:
    """A message that is text."""
    return {"role": "assistant", "content": text}
