"""Serves the subject as an MCP server over HTTP, on a free port of this machine, which is the first line printed."""

import socket

import uvicorn
from tests.protocols.subject import AGENT, HELPER, make_engine

from turnwright_protocols.mcp import mcp_server


def main() -> None:
    """Serve until the process is killed."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)  # noqa: T201 (read by the test)
    app = mcp_server(make_engine(), [AGENT, HELPER]).streamable_http_app()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    main()
