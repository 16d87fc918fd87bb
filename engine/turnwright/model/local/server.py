"""Run llama.cpp's own server as a child process."""

import importlib.resources
import json
import os
import secrets
import selectors
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, cast

from turnwright.errors import ConfigError
from turnwright.model.protocol import ModelError
from turnwright_states import Cause

from .weights import find_weights, model_name, packaged_weights

#: The size of the model's context, in tokens.
_CONTEXT: Final = 8192
#: The bytes of the server's log that an error quotes.
_TAIL: Final = 2000
# The longest line with the child's address.
_LONGEST_LINE: Final = 4096
# The variables that an interpreter and a loader need. No others are passed on, least of all providers' keys.
_ENVIRONMENT: Final = (
    *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "PYTHONPATH", "PYTHONHOME"),
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"),
)


def read_line(stream: IO[bytes], seconds: float) -> str | None:
    """Read one line of an unbuffered pipe, without its end; empty where the pipe ends first.

    Returns None if the line has not ended after `seconds`, or is far too long.
    """
    line, until = b"", time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while len(line) <= _LONGEST_LINE and selector.select(max(until - time.monotonic(), 0)):
            piece = os.read(stream.fileno(), _LONGEST_LINE)
            line += piece
            if b"\n" in piece or not piece:
                whole, end, _ = line.partition(b"\n")
                return whole.decode(errors="replace").strip() if end else ""
    return None


class LocalServer:
    """llama.cpp's server in a child process, which ends with this process in any case.

    `weights` is a GGUF file; by default the one in `TURNWRIGHT_WEIGHTS`, else SmolLM2. `threads` is the number of
    cores; `start_timeout` is in seconds. Weights other than the packaged ones use their own chat template.

    It may be started again after it was stopped or has died. It listens on the loopback interface only and requires
    `api_key`, because a page in the user's browser could reach it otherwise.

    Raises `ConfigError` when llama.cpp or the weights are missing, or the weights are not a GGUF file.
    """

    def __init__(self, weights: Path | None = None, *, threads: int = 1, start_timeout: float = 60.0) -> None:
        self.weights: Final = find_weights(weights)
        self.api_key: Final = secrets.token_urlsafe(24)
        self._threads = threads
        self._start_timeout = start_timeout
        self._start_lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._address = ""
        # Ends the child and closes its files once: on stop(), at exit or when this object is garbage-collected.
        self._end: weakref.finalize[[subprocess.Popen[bytes], IO[bytes]], LocalServer] | None = None

    def __repr__(self) -> str:
        state = f"{self.base_url}, pid {self.pid}" if self.running else "not running"
        return f"<LocalServer {self.model}, {state}>"

    @property
    def packaged(self) -> bool:
        """Whether it runs the packaged weights."""
        return self.weights == packaged_weights()

    @property
    def model(self) -> str:
        """The model's name, which the server repeats in its replies."""
        return model_name(self.weights)

    @property
    def running(self) -> bool:
        """Whether the server has started and is alive."""
        return bool(self._address) and self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def base_url(self) -> str:
        """The address for `OpenAIChat`'s `base_url`. Raises `ConfigError` before the server was started."""
        if not self._address:
            raise ConfigError("the local server is not running: call start()")
        return f"{self._address}/v1"

    def start(self) -> str:
        """Start the server, unless it runs, and return its base URL once it has loaded the weights.

        Threads that call it at the same time wait for the same start.

        Raises `ModelError` with the end of the server's log when it dies (`rejected`: llama.cpp cannot run these
        weights; `connection`: it was killed), and after `start_timeout` (`timeout`).
        """
        with self._start_lock:
            if self.running:
                return self.base_url
            self._clear()
            log = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the child, and has no name)
            try:
                process = self._process = self._spawn(log)
            except OSError as error:
                log.close()
                raise ModelError(
                    f"the local model server cannot be started: {error}", cause=Cause.CONNECTION
                ) from error
            self._end = weakref.finalize(self, _end, process, log)
            try:
                self._address = self._answer(process, log)
            finally:
                if not self._address:
                    self._clear()
            return f"{self._address}/v1"

    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        template = importlib.resources.files("turnwright").joinpath("prompts", "smollm2.jinja")
        settings = {
            "weights": str(self.weights),
            "alias": self.model,
            "template": template.read_text(encoding="utf-8") if self.packaged else "",
            "api_key": self.api_key,
            "context": _CONTEXT,
            "threads": self._threads,
            "parent": os.getpid(),
        }
        process = subprocess.Popen(  # noqa: S603 (our own interpreter and our own file)
            # -P: a script's folder goes first on the path, and modules of this one would shadow others' names.
            [sys.executable, "-P", str(Path(__file__).with_name("child_process.py"))],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            # Ctrl-C in a terminal goes to the process group; the engine handles it, not the server.
            start_new_session=True,
        )
        # Reading the answer reports a child that has died already.
        with suppress(BrokenPipeError):
            cast("IO[bytes]", process.stdin).write(json.dumps(settings).encode() + b"\n")
        return process

    def _answer(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> str:
        """Wait for the line with the child's address. Raises `ModelError`."""
        answer = cast("IO[bytes]", process.stdout)
        line = read_line(answer, self._start_timeout)
        if line is None:
            raise ModelError(
                f"the local model server was not ready after {self._start_timeout:g} s: the machine may be busy, "
                f"so try again, or set OPENAI_API_KEY or --base-url to use another model.{_tail(log)}",
                cause=Cause.TIMEOUT,
            )
        if line:
            return line
        process.kill()
        code = process.wait()
        ending = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise ModelError(
            f"the local model server ended while it was starting ({ending}) with {self.weights}: try other weights or "
            f"another model.{_tail(log)}",
            cause=Cause.CONNECTION if code < 0 else Cause.REJECTED,
        )

    def stop(self) -> None:
        """Stop the server at once. It may be called at any time, from any thread, and repeatedly."""
        process = self._process
        if process is not None:
            # Not SIGTERM, which llama.cpp ignores. A start() in another thread sees the end and returns.
            process.kill()
        with self._start_lock:
            self._clear()

    def _clear(self) -> None:
        if self._end is not None:
            self._end()
        self._process = self._end = None
        self._address = ""


def _end(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for file in (process.stdin, process.stdout, log):
        if file is not None:
            file.close()


def _tail(log: IO[bytes]) -> str:
    """Return the end of the log, on lines of its own, or an empty text. The file's offset belongs to the child."""
    size = os.fstat(log.fileno()).st_size
    tail = os.pread(log.fileno(), _TAIL, max(0, size - _TAIL)).decode(errors="replace").strip()
    return f" The end of its log:\n{tail}" if tail else ""
