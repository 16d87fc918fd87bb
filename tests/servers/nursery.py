"""Forks a process for each Python program, out of a process that has imported the engine already.

Importing takes longer than most programs of the tests do, and the tests run a thousand of them. What is forked is a
process like any other: it has its own streams, environment and folder, takes signals, and is waited for.

Run as a script with the path of a socket to listen on. A client sends one JSON object with `words`, `env`, `folder` and
`terminal`, and three file descriptors; it is sent two lines: the process id, and, when that has ended, its exit code.
It kills what runs for a client that is gone. The nursery ends when its standard input does.
"""

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import termios
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Final, NoReturn, TypedDict

import anyio

from turnwright import Agent, Engine
from turnwright.cli.app import PLACES
from turnwright.cli.help_text import PACKAGE
from turnwright.cli.packages import COMMANDS
from turnwright.model import ScriptedModel
from turnwright.model.capabilities import known_capabilities
from turnwright.tools.builtin import builtin_tools

#: What a program imports when it is the command line, or drives a turn.
MODULES: Final = (
    *(f"turnwright.cli.{place}" for place in PLACES.values() if not place.startswith(PACKAGE)),
    *(entry.module for entry in entry_points(group=COMMANDS)),
    "anyio._backends._asyncio",
    "anyio._core._signals",
    "httpcore",
    "httpx",
    "pydantic._internal._dataclasses",
    "turnwright.cli.markdown",
    "turnwright.config",
    *(f"turnwright.model.{room}" for room in ("anthropic", "local", "openai_chat", "openai_responses")),
    "turnwright.model.openai_chat.client",
    "turnwright.store.sqlite.store",
    "turnwright.tools.asyncio_tasks",
    "typer._adapters",
    "typer._click._textwrap",
    "typer._click.decorators",
)


class Request(TypedDict):
    """The program that a client asks for."""

    words: list[str]
    """The arguments of `python`: `-W ACTION` if need be; then `-c CODE`, `-m MODULE` or a file; then the program's."""
    env: dict[str, str]
    folder: str
    terminal: bool
    """Standard input is the terminal that controls the process."""


@dataclass(frozen=True)
class Child:
    """A forked process, a descriptor that is ready when it ends, and the connection to the client."""

    pid: int
    ending: int
    client: socket.socket

    def bury(self) -> None:
        """Send the exit code to the client. If the client is gone, kill the process first."""
        if not select.select([self.ending], [], [], 0)[0]:
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.ending)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        with self.client, suppress(OSError):
            self.client.sendall(f"{code}\n".encode())


def serve(path: str) -> Request:
    """Fork for every client. It returns in each child, with what the client asked for.

    In this process it never returns. It exits when nobody holds the other end of its standard input.
    """
    listener = socket.socket(socket.AF_UNIX)
    unready = f"{path}.new"
    listener.bind(unready)
    listener.listen()
    Path(unready).rename(path)  # a client that sees the path may connect
    children: list[Child] = []
    while True:
        descriptors = (descriptor for child in children for descriptor in (child.ending, child.client.fileno()))
        ready = select.select([0, listener.fileno(), *descriptors], [], [])[0]
        if 0 in ready:
            sys.exit()
        for child in [child for child in children if child.ending in ready or child.client.fileno() in ready]:
            children.remove(child)
            child.bury()
        if listener.fileno() not in ready:
            continue
        client, request, streams = accept(listener)
        pid = os.fork()
        if pid == 0:
            for connection in (listener, client, *(child.client for child in children)):
                connection.close()
            for child in children:
                os.close(child.ending)
            become(request, streams)
            return request
        for stream in streams:
            os.close(stream)
        children.append(Child(pid, os.pidfd_open(pid), client))
        client.sendall(f"{pid}\n".encode())


def accept(listener: socket.socket) -> tuple[socket.socket, Request, list[int]]:
    """Return a client, what it asks for, and the streams for that. What the program needs is then imported."""
    client, _ = listener.accept()
    message, streams, _, _ = socket.recv_fds(client, 2**20, 3)
    for word, preparation in LATER.items():
        if word in message:
            preparation()
    return client, json.loads(message), streams


@cache
def prepare(modules: tuple[str, ...]) -> None:
    """Import modules for all later programs. A warning is an error, because it would be one with `-W error`."""
    with warnings.catch_warnings(action="error"):
        for module in modules:
            importlib.import_module(module)
    gc.freeze()  # a child need not look through all of this again


@cache
def prepare_fuzzing() -> None:
    """Import what draws, and draw: Hypothesis then has read the constants in the sources of all modules of ours."""
    from hypothesis import strategies as st  # noqa: PLC0415 (few tests fuzz)

    from turnwright_testing.draw import draw_pool  # noqa: PLC0415

    draw_pool(st.integers(), seed=0)
    gc.freeze()


async def run_first_turn() -> None:
    """Run a turn in memory. It compiles and caches what each other turn would."""
    known_capabilities("127.0.0.1:80", "gpt-5-mini")
    async with Engine(model=ScriptedModel("Done."), tools=builtin_tools(Path())) as engine:
        await engine.run(Agent(name="First"), "Begin")


#: What is done before the first program whose request has such a word.
LATER: Final[dict[bytes, Callable[[], None]]] = {
    b"--mcp": partial(prepare, ("mcp.client.stdio", "turnwright.tools.mcp.connect")),
    b"acp": partial(prepare, ("acp", "turnwright_protocols.acp.acp_agent")),
    b"auto_instrumentation": partial(
        prepare,
        (
            "opentelemetry.distro",
            *(f"opentelemetry.exporter.otlp.proto.http.{kind}_exporter" for kind in ("metric", "trace")),
            "opentelemetry.instrumentation.auto_instrumentation",
            "turnwright.otel.instruments",
        ),
    ),
    b"fuzz": prepare_fuzzing,
    b"postgresql:": partial(prepare, ("psycopg_pool", "turnwright.store.postgres.store")),
    b"protocols.subject": partial(
        prepare,
        (
            *(f"turnwright_protocols.{door}" for door in ("a2a.routes", "ag_ui", "responses.routes", "ui.routes")),
            "turnwright_protocols.http_doors",
            "uvicorn.protocols.http.h11_impl",
        ),
    ),
    b"serve": partial(prepare, ("turnwright_inspector.app", "uvicorn.lifespan.on", "uvicorn.protocols.http.h11_impl")),
}


def become(request: Request, streams: list[int]) -> None:
    """Take on the streams, the environment and the folder that a client asked for."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if request["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    # The interpreter made its own for other files: they remember whether one can seek in them, and where they were.
    encoding = os.environ.get("PYTHONIOENCODING")
    unfit = "strict" if encoding else "surrogateescape"
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, buffering, encoding=encoding or "utf-8", errors=errors, closefd=False)
        for number, mode, buffering, errors in (
            (0, "r", -1, unfit),
            (1, "w", -1, unfit),
            (2, "w", 1, "backslashreplace"),
        )
    )


def run(words: list[str]) -> int:
    """Run a program as `python` does with these words. Return its exit code."""
    if words[0] == "-W":
        warnings.simplefilter(words[1])  # type: ignore[arg-type]
        sys.warnoptions.append(words[1])
        words = words[2:]
    if words[:2] == ["-m", "pytest"]:  # it would warn of plugins that were imported before it
        os.execv(sys.executable, [sys.executable, *(f"-W{action}" for action in sys.warnoptions), *words])  # noqa: S606 (what it asks for)
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    importlib.invalidate_caches()
    try:
        if words[0] == "-m":
            sys.argv, sys.path[0] = words[1:], str(Path.cwd())
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.argv, sys.path[0] = ["-c", *words[2:]], ""
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(words[1], "<string>", "exec"), vars(main))  # noqa: S102 (it is what the client asked for)
        else:
            sys.argv, sys.path[0] = words, str(Path(words[0]).parent)
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as ending:
        if isinstance(ending.code, str):
            sys.stderr.write(f"{ending.code}\n")
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    return 0


def leave(code: int) -> NoReturn:
    """End the process as the interpreter does, but for its objects: to free them one by one copies what was forked."""
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 (no public name)
    atexit._run_exitfuncs()  # noqa: SLF001 (no public name)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    # The HTTP library would import it where it is there, and it is a third of all imports; nobody here runs under it.
    sys.modules["trio"] = None  # type: ignore[assignment]
    prepare(MODULES)
    del sys.modules["trio"]
    anyio.run(run_first_turn)
    gc.freeze()
    leave(run(serve(sys.argv[1])["words"]))
