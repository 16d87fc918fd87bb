"""Serves the inspector until a signal stops it."""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from socket import socket
from typing import TYPE_CHECKING, Final

import anyio
import typer
import uvicorn
from starlette.types import ASGIApp

from turnwright._base.background_task import background_task
from turnwright.agent import Agent
from turnwright.cli import codes, process
from turnwright.cli.packages import import_part
from turnwright.cli.process import ORDERLY, QuitError, RepeatedSignal, json_line
from turnwright.runtime.engine import Engine
from turnwright_inspector import Inspector, Token, inspector_app

from .server_options import ServerOptions

if TYPE_CHECKING:
    from turnwright.cli.engines import Opening
    from turnwright_inspector.views.run_library import RunLibrary

#: Seconds that open requests may take after a signal. Streams of events end by themselves.
_DRAIN: Final = 2
#: Seconds after which the process is ended, because a tool may block it.
_BEYOND: Final = 5.0
_STOPPED_AT_ONCE: Final = "left at once"

#: Runs while the pages are served.
ServedTask = Callable[[Engine], Awaitable[object]]


def serve_pages(
    opening: "Opening",
    place: ServerOptions,
    *,
    store: str,
    drives: bool,
    as_json: bool,
    words: str = "",
    task: ServedTask | None = None,
    agents: Sequence[Agent] = (),
    runs: "RunLibrary | None" = None,
    doors: Sequence[str] = (),
) -> None:
    """Serve the inspector of the engine that `opening` opens, until Ctrl-C or SIGTERM. A second signal leaves at once.

    The first line on standard output is the address, or with `as_json` an object with it. `store` is printed unchanged,
    and `words` describe what is served. `task` runs at the same time. A page starts turns of `agents`. `runs` have
    pages too, and exported turns among them are put into the store. `doors` are protocols that are served beside the
    pages, to programs with the token.

    Raises `ConfigError` if the server cannot listen, and the errors of the engine and the task.
    """
    access = Token(place.token, place.hosts) if place.token else Token(hosts=place.hosts)
    out = process.Output(alone=as_json)

    def announce(address: str) -> None:
        fields = {"type": "started", "address": address, "store": store, "drives": drives}
        out.write(json_line(fields) if as_json else address)
        if not as_json:
            out.write(words or f"inspector of {store}; Ctrl-C stops it")

    async def listen(app: ASGIApp, pages: Inspector, engine: Engine) -> None:
        with place.listen() as listening:
            first_page = place.address(listening.getsockname()[1])
            server = _Server(
                uvicorn.Config(
                    app,
                    access_log=False,  # it would contain the token
                    log_config=None,
                    server_header=False,
                    ws="none",
                    lifespan="on",
                    root_path=place.root_path,
                    timeout_graceful_shutdown=_DRAIN,
                )
            )
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                # A tool may block the loop, which then receives no signal.
                handler = RepeatedSignal((_BEYOND, ORDERLY), lambda: _STOPPED_AT_ONCE)
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, handler)
                async with (
                    background_task(_stop_on_signals, signals, server),
                    background_task(task or _no_task, engine),
                ):
                    # The token is not printed for a server that others reach, because logs may keep the line.
                    announce(pages.entry(first_page) if place.is_loopback else f"{first_page}/")
                    await server.serve([listening])

    async def run() -> None:
        async with opening as engine:
            # An error of the store must appear before the first request.
            await engine.store.turns(limit=1)
            if runs is not None:
                await runs.take_turns(engine.store)
                runs.start()
            pages = inspector_app(engine, access=access, store=store, drives=drives, agents=agents, runs=runs)
            async with _with_doors(pages, engine, agents, access, doors) as app:
                await listen(app, pages, engine)
        if as_json:
            out.write(json_line({"type": "stopped"}))

    try:
        anyio.run(run)
    except QuitError as quit_error:
        process.say_last(str(quit_error))
        raise typer.Exit(quit_error.code) from None


@asynccontextmanager
async def _with_doors(
    pages: ASGIApp, engine: Engine, agents: Sequence[Agent], access: Token, doors: Sequence[str]
) -> AsyncIterator[ASGIApp]:
    """Yield the pages with the doors beside them, which work during the block."""
    if not doors:
        yield pages
        return
    protocols = import_part("turnwright_protocols.http_doors", "--http")
    async with protocols.open_doors(engine, agents, protocols.token_gate(access.token), doors) as routes:
        yield protocols.BesidePages(routes, pages)


class _Server(uvicorn.Server):
    """A server that leaves signals to us. Its own handler would raise the signal again at the end."""

    async def serve(self, sockets: list[socket] | None = None) -> None:
        """Serve. If canceled, end the application's lifespan: uvicorn logs the traceback of one that is canceled."""
        try:
            await super().serve(sockets)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self.lifespan.shutdown()
            raise

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]  # typed as a generator there
        """Capture nothing."""
        return nullcontext()


async def _stop_on_signals(signals: AsyncIterator[signal.Signals], server: uvicorn.Server) -> None:
    async for number in signals:
        if server.should_exit:
            raise QuitError(codes.TERMINATED if number == signal.SIGTERM else codes.ABORTED, _STOPPED_AT_ONCE)
        server.handle_exit(number, None)  # streams of events watch for this too


async def _no_task(_: Engine) -> None:
    """Do nothing."""
