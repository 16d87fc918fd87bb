"""Forks a child for each command, out of a process that has imported the command line already.

Importing takes longer than most commands do, and the tests run more than a hundred of them. What is forked is a process
like any other: it has its own streams, environment and folder, takes signals, and is waited for.

Run as a script with the path of a socket to listen on. A client sends one JSON object with `arguments`, `env` and
`folder`, and three file descriptors; it is sent two lines: the process id, and, when that has ended, its exit code.
"""

import atexit
import gc
import importlib
import json
import os
import select
import socket
import sys
import threading
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import NoReturn

from turnwright import Agent
from turnwright.cli import main
from turnwright.cli.app import PLACES
from turnwright.cli.help_text import PACKAGE
from turnwright.cli.packages import COMMANDS

#: What the command line imports only when it runs a command, or drives a turn.
LATER = (
    *(f"turnwright.cli.{place}" for place in PLACES.values() if not place.startswith(PACKAGE)),
    *(entry.module for entry in entry_points(group=COMMANDS)),
    *(f"turnwright.model.{room}" for room in ("anthropic", "local", "openai_chat", "openai_responses")),
    "anyio._backends._asyncio",
    "httpcore",
    "httpx",
    "turnwright.config",
    "turnwright.model.openai_chat.client",
    "turnwright.store.sqlite.store",
)
#: Seconds between two looks at who has ended, and where nobody runs, at whether we are still wanted.
POLL = 0.005
IDLE = 0.5


def serve(path: str) -> None:
    """Fork for every client. It returns in each child, ready to be the command line.

    In this process it never returns. It exits when its parent process is gone.
    """
    listener = socket.socket(socket.AF_UNIX)
    unready = f"{path}.new"
    listener.bind(unready)
    listener.listen()
    Path(unready).rename(path)  # a client that sees the path may connect
    running: dict[int, socket.socket] = {}
    parent = os.getppid()
    while os.getppid() == parent:
        if select.select([listener], [], [], POLL if running else IDLE)[0]:
            client, _ = listener.accept()
            message, streams, _, _ = socket.recv_fds(client, 2**20, 3)
            request = json.loads(message)
            if request["arguments"][:1] == ["fuzz"]:
                prepare_fuzzing()
            pid = os.fork()
            if pid == 0:
                for connection in (listener, client, *running.values()):
                    connection.close()
                become(request, streams)
                return
            for stream in streams:
                os.close(stream)
            running[pid] = client
            client.sendall(f"{pid}\n".encode())
        for pid in tuple(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with running.pop(pid) as client, suppress(OSError):  # a test that failed waits for nobody
                    client.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    sys.exit()


@cache
def prepare_fuzzing() -> None:
    """Import what draws, and draw: Hypothesis then has read the constants in the sources of all modules of ours."""
    from hypothesis import strategies as st  # noqa: PLC0415 (few tests fuzz)

    from turnwright_testing.draw import draw_pool  # noqa: PLC0415

    draw_pool(st.integers(), seed=0)
    gc.freeze()


def become(request: dict[str, object], streams: list[int]) -> None:
    """Take on the streams, the environment, the folder and the arguments that a client asked for."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # The interpreter made its own for other files: they remember whether one can seek in them, and where they were.
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, buffering, encoding="utf-8", closefd=False)
        for number, mode, buffering in ((0, "r", -1), (1, "w", -1), (2, "w", 1))
    )
    env, arguments = request["env"], request["arguments"]
    if not isinstance(env, dict) or not isinstance(arguments, list):
        raise TypeError("env is an object, and arguments a list")
    os.environ.clear()
    os.environ.update(env)
    os.chdir(str(request["folder"]))
    sys.argv[1:] = arguments


def run() -> int:
    """Run the command line. Return its exit code."""
    try:
        main()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
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
    for module in LATER:
        importlib.import_module(module)
    del sys.modules["trio"]
    Agent(name="The first one builds what all others are checked with.")
    gc.freeze()  # a child need not look through all of this again
    serve(sys.argv[1])
    leave(run())
