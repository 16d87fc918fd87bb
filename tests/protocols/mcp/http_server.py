"""Serves the subject as an MCP server over HTTP, on a free port of this machine, which is the first line printed."""

import socket

import uvicorn
from starlette.requests import Request
from tests.protocols.subject import AGENT, HELPER, make_engine

from turnwright_protocols.mcp import Gate, mcp_app


def authorize(request: Request, _conversation: str) -> bool:
    """Let in only programs of this machine: a page of another host could be sent here by its name server."""
    origin = request.headers.get("origin", "")
    return request.url.hostname == "localhost" and origin.removeprefix("http://").partition(":")[0] in ("", "localhost")


def main() -> None:
    """Serve until the process is killed."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)  # noqa: T201 (read by the test)
    app = mcp_app(make_engine(), [AGENT, HELPER], Gate(authorize))
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    main()
