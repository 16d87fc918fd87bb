"""Serves the subject through one door on a free port of this machine, which is the first line printed."""

import socket
import sys

import uvicorn
from starlette.applications import Starlette
from tests.protocols.subject import AGENT, make_engine

from turnwright_protocols.http import Gate
from turnwright_protocols.responses import responses_routes
from turnwright_protocols.ui import ui_routes


def main(door: str, store: str) -> None:
    """Serve until the process is killed."""
    engine, gate = make_engine(store), Gate(lambda _request, _session: True)
    routes = ui_routes(engine, [AGENT], gate) if door == "ui" else responses_routes(engine, [AGENT], gate)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)  # noqa: T201 (read by the test)
    uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
