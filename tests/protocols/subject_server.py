"""Serves the subject through one door on a free port of this machine, which is the first line printed."""

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
from turnwright_protocols.responses import responses_routes
from turnwright_protocols.ui import ui_routes


def main(door: str, store: str) -> None:
    """Serve until the process is killed."""
    engine, gate = make_engine(store), Gate(lambda _request, _session: True)
    routes: Sequence[BaseRoute]
    if door == "ag-ui":
        routes = _ag_ui_routes(engine)
    else:
        routes = ui_routes(engine, [AGENT], gate) if door == "ui" else responses_routes(engine, [AGENT], gate)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
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
