"""Serves the subject through a door on a port of this machine, or a free one, which is the first line printed."""

import socket
import sys
from collections.abc import Sequence

import uvicorn
from ag_ui.core import RunAgentInput
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import BaseRoute, Route
from tests.protocols.ag_ui.page import frames
from tests.protocols.subject import AGENT, make_engine

from turnwright import Engine
from turnwright_protocols.http import Gate
from turnwright_protocols.http_doors import door_routes


def main(door: str, store: str, port: str = "0") -> None:
    """Serve until the process is killed."""
    engine, gate = make_engine(store), Gate(lambda _request, _session: True)
    is_ag_ui = door == "ag-ui"
    routes: Sequence[BaseRoute] = _ag_ui_routes(engine) if is_ag_ui else door_routes(engine, [AGENT], gate, [door])
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(port)))
    listener.listen()
    print(listener.getsockname()[1], flush=True)  # noqa: T201 (read by the test)
    uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="error")).run(sockets=[listener])


def _ag_ui_routes(engine: Engine) -> list[Route]:
    """Serve the example of the page about AG-UI, which has no server of ours."""

    async def run(request: Request) -> StreamingResponse:
        run_input = RunAgentInput.model_validate_json(await request.body())
        return StreamingResponse(frames(engine, AGENT, run_input), media_type="text/event-stream")

    return [Route("/", run, methods=["POST"])]


if __name__ == "__main__":
    main(*sys.argv[1:])
