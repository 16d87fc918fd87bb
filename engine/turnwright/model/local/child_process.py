"""The child process of the local model: llama.cpp's own HTTP server, which ends when its parent ends.

It is run by its path, not as a module of the package, and imports nothing of it: so it starts without loading
httpx and pydantic. `server.py` is its only caller.
"""

import http.client
import json
import os
import select
import sys
import threading
import time
from typing import TypedDict
from urllib.parse import urlsplit

# Compiled, without stubs, and an optional extra: the type checker need not have it.
from xllamacpp import CommonParams, Server  # pyright: ignore[reportAttributeAccessIssue, reportMissingImports]


class ChildSettings(TypedDict):
    """The settings that the parent writes as one line of JSON; it then keeps the pipe open."""

    weights: str
    alias: str
    #: Empty: the template in the weights.
    template: str
    api_key: str
    context: int
    threads: int
    parent: int


def end_with(parent: int, lifeline: int) -> None:
    """End this process as soon as the process `parent` has ended, even by SIGKILL.

    Its end closes the pipe `lifeline`. A process that it forked may still hold the pipe, so the parent's id is checked
    too. PR_SET_PDEATHSIG does not help: it fires when the *thread* that started this process ends.
    """
    while os.getppid() == parent:
        readable, _, _ = select.select([lifeline], [], [], 1.0)
        if readable and not os.read(lifeline, 1024):
            break
    os._exit(0)


def server(settings: ChildSettings) -> Server:
    """Load the weights and start the server, in threads of its own. It stops when it is garbage-collected.

    Raises RuntimeError when llama.cpp fails; its log has the cause.
    """
    parameters = CommonParams()
    parameters.model.path = settings["weights"]
    parameters.model_alias = settings["alias"]
    parameters.chat_template = settings["template"]
    parameters.use_jinja = True
    parameters.api_keys = [settings["api_key"]]
    parameters.n_ctx = settings["context"]
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = settings["threads"]
    parameters.cpuparams_batch.n_threads = settings["threads"]
    parameters.hostname = "127.0.0.1"
    # The kernel picks a free port while binding, so that no other process can take it in between.
    parameters.port = 0
    # No endpoint that shows prompts, no web page, and no memory for old prompts.
    parameters.endpoint_slots = False
    parameters.webui = False
    parameters.cache_ram_mib = 0
    # Fitting takes a third of a second, and could shrink the requested context.
    parameters.fit_params = False
    # Warnings and errors only: the log is read after a failure.
    parameters.verbosity = 2
    return Server(parameters)


def healthy(netloc: str) -> bool:
    """Whether the server reports that it is ready."""
    connection = http.client.HTTPConnection(netloc, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


def main() -> None:
    """Read the settings, serve, write the address as one line, and stay until the parent is gone."""
    # The parent reads our standard output, so llama.cpp's prints must not land there.
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    settings: ChildSettings = json.loads(sys.stdin.readline())
    watch = threading.Thread(target=end_with, args=(settings["parent"], sys.stdin.fileno()), daemon=True)
    watch.start()
    try:
        llama_server = server(settings)
    except RuntimeError as error:
        sys.exit(str(error))
    address: str = llama_server.listening_address
    while not healthy(urlsplit(address).netloc):
        time.sleep(0.05)
    os.write(answer, address.encode() + b"\n")
    os.close(answer)
    watch.join()


if __name__ == "__main__":
    main()
