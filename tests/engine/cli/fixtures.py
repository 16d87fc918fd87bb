"""The command line as a child process, and a model server that plays a test's script.

Every child gets a clean environment with a key in it. That key must never come out again: each run is checked for it,
and so is each file that a test leaves behind. No run may end in a traceback.
"""

import json
import os
import pty
import signal
import socketserver
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, Self, TypedDict, Unpack

import pytest
from tests.servers.forked_python import PATIENCE, Process, Python, open_nursery, spawn, wait_until
from tests.servers.postgres_server import PostgresServer

#: The key that every child is given.
SECRET = "sk-secret-0123456789abcdef"  # noqa: S105 (nobody's)
#: The program of OpenTelemetry that configures its SDK, and then starts a command.
INSTRUMENT = (str(Path(sys.executable).with_name("opentelemetry-instrument")),)
#: What that program has the command do first.
INSTRUMENTED = """
from opentelemetry.instrumentation.auto_instrumentation import initialize
initialize()
from turnwright.cli import main
main()
"""

#: What an answer is made of: bytes to send, seconds to be silent, None to stay silent until the client has gone.
Move = bytes | float | None
Json = dict[str, Any]

#: The head of an event stream that ends when its connection does.
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
USAGE: Json = {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}}


def delta(finish: str | None = None, **fields: object) -> Json:
    """One chunk of a reply."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def sse(*chunks: Json | str) -> bytes:
    """Chunks as events."""
    return b"".join(f"data: {chunk if isinstance(chunk, str) else json.dumps(chunk)}\n\n".encode() for chunk in chunks)


@dataclass(frozen=True)
class Asked:
    """A request that the server received."""

    path: str
    headers: Mapping[str, str]
    body: Json

    @property
    def messages(self) -> list[Json]:
        """The messages of the request."""
        messages: list[Json] = self.body["messages"]
        return messages


class Endpoint(socketserver.ThreadingTCPServer):
    """A model server on a real socket. It plays the scripted answers in order, and then repeats the last one."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.over = threading.Event()
        self.requests: list[Asked] = []
        self._script: list[tuple[Move, ...]] = []
        self._last: tuple[Move, ...] = ()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def plays(self, *moves: Move) -> Self:
        """Script one more answer, byte by byte."""
        self._script.append(moves)
        return self

    def forgets(self) -> Self:
        """Drop the answers that were not played yet."""
        with self._lock:
            self._script.clear()
        return self

    def streams(self, *chunks: Json) -> Self:
        """Script one more answer: these chunks, then the end of the stream."""
        return self.plays(STREAM + sse(*chunks, "[DONE]"))

    def says(self, text: str) -> Self:
        """Script one more answer: a text."""
        return self.streams(delta(content=text), delta("stop"), USAGE)

    def begins(self, text: str) -> Self:
        """Script one more answer: the beginning of a text, and then silence."""
        return self.plays(STREAM + sse(delta(content=text)), None)

    def calls(self, *calls: tuple[str, Json]) -> Self:
        """Script one more answer: calls of tools, with their arguments."""
        tool_calls = [
            {"index": n, "id": f"c{n}", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for n, (name, arguments) in enumerate(calls)
        ]
        return self.streams(delta(tool_calls=tool_calls), delta("tool_calls"), USAGE)

    def next_answer(self, request: Asked) -> tuple[Move, ...]:
        """Return the answer to this request."""
        with self._lock:
            self.requests.append(request)
            if self._script:
                self._last = self._script.pop(0)
            return self._last

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Endpoint)
        self._endpoint = self.server
        request = self.rfile.readline().decode().split(" ")
        headers: dict[str, str] = {}
        while line := self.rfile.readline().decode().strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = json.loads(self.rfile.read(int(headers.get("content-length", 0))) or b"{}")
        try:
            for move in self._endpoint.next_answer(Asked(request[1], headers, body)):
                if isinstance(move, bytes):
                    self.wfile.write(move)
                elif self._silent(move):
                    return
        except OSError:
            return  # the client has gone

    def _silent(self, seconds: float | None) -> bool:
        """Wait, at most until the client disconnects. Return whether to close the connection."""
        if seconds is not None:
            return self._endpoint.over.wait(seconds)
        self.connection.settimeout(0.05)
        while not self._endpoint.over.is_set():
            try:
                return not self.connection.recv(1)
            except TimeoutError:
                continue
        return True


@dataclass(frozen=True)
class Done:
    """The exit code and the output of a child process."""

    code: int
    out: str
    err: str

    @cached_property
    def events(self) -> list[Json]:
        """The lines of `--json`."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def last(self) -> Json:
        """The last line of `--json`."""
        return self.events[-1]

    @property
    def turn(self) -> str:
        """The turn's id, out of the first line of `--json`."""
        turn: str = self.events[0]["turn"]
        return turn

    @property
    def interrupts(self) -> list[Json]:
        """The open interrupts of a paused turn."""
        assert self.last["type"] == "paused", self.out
        pending: list[Json] = self.last["interrupts"]
        return pending

    def of(self, kind: str) -> list[Json]:
        """The events of one type."""
        return [event for event in self.events if event["type"] == kind]


class Child:
    """A command that runs. Its output is read line by line, or all at once when it ends."""

    def __init__(self, process: Process, out: IO[str], err: IO[str]) -> None:
        self.process = process
        self._out: list[str] = []
        self._err: list[str] = []
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._readers = [
            threading.Thread(target=_read, args=(out, self._out.append, self._lines.put), daemon=True),
            threading.Thread(target=_read, args=(err, self._err.append), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def until(self, kind: str) -> Json:
        """Read JSON lines until one of this type comes, and return it."""
        ends = time.monotonic() + PATIENCE
        while line := self._lines.get(timeout=ends - time.monotonic()):
            event: Json = json.loads(line)
            if event["type"] == kind:
                return event
        pytest.fail(f"ended without {kind}: {self.done()}")

    def shows(self, words: str) -> str:
        """Read lines until one has these words, and return it."""
        ends = time.monotonic() + PATIENCE
        while line := self._lines.get(timeout=ends - time.monotonic()):
            if words in line:
                return line
        pytest.fail(f"ended without {words}: {self.done()}")

    def interrupt(self) -> Self:
        """Ctrl-C."""
        return self._tell(signal.SIGINT)

    def terminate(self) -> Self:
        """SIGTERM, as sent by a service manager or a container runtime."""
        return self._tell(signal.SIGTERM)

    def kill(self) -> None:
        """`kill -9`, if it still runs."""
        if any(reader.is_alive() for reader in self._readers):
            os.kill(self.process.pid, signal.SIGKILL)
        self._end()

    def done(self) -> Done:
        """Wait for its end."""
        code = self._end()
        done = Done(code, "".join(self._out), "".join(self._err))
        assert "Traceback" not in done.err, done.err
        assert SECRET not in done.out + done.err
        return done

    def _tell(self, number: signal.Signals) -> Self:
        """Send a signal, and wait until it is delivered: two equal pending signals are delivered as one."""
        os.kill(self.process.pid, number)
        wait_until(lambda: not _is_pending(self.process.pid, number))
        return self

    def _end(self) -> int:
        code = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        return code


def _is_pending(pid: int, number: signal.Signals) -> bool:
    """Whether a signal is sent but not delivered. Always False outside Linux."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False
    pending = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(mask >> (number - 1) & 1 for mask in pending)


def _read(stream: IO[str], *takers: Callable[[str], None]) -> None:
    """Pass each line of a stream to the takers, and an empty line at its end to the last taker."""
    with stream, suppress(OSError):  # a terminal whose other side has gone ends in one
        for line in stream:
            for take in takers:
                take(line)
    takers[-1]("")


class Options(TypedDict, total=False):
    """Options of a command's process."""

    env: Mapping[str, str | None]
    """Changes to the environment; None takes a variable out."""
    stdin: str
    folder: Path
    fresh: bool
    """Begin with a new interpreter."""
    instrumented: bool
    """Configure the SDK of OpenTelemetry first; in a new interpreter, by `opentelemetry-instrument`."""
    terminal: bool
    """The output goes to a terminal."""


@dataclass
class Cli:
    """`turnwright` in a folder of its own, with the environment that every child gets."""

    folder: Path
    env: dict[str, str]
    python: Python
    children: list[Child] = field(default_factory=list)

    def start(self, *arguments: str | Path, **options: Unpack[Options]) -> Child:
        """Start a command."""
        changed = {**self.env, **options.get("env", {})}
        env = {name: value for name, value in changed.items() if value is not None}
        folder, words = options.get("folder", self.folder), ["-m", "turnwright", *map(str, arguments)]
        with ExitStack() as ours, tempfile.TemporaryFile() as stdin:
            stdin.write(options.get("stdin", "").encode(errors="surrogateescape"))
            stdin.seek(0)
            (out, to_out), (err, to_err) = pty.openpty() if options.get("terminal") else os.pipe(), os.pipe()
            for descriptor in (to_out, to_err):
                ours.callback(os.close, descriptor)
            streams = (stdin.fileno(), to_out, to_err)
            fresh, instrumented = options.get("fresh", False), options.get("instrumented", False)
            if fresh and instrumented:
                process: Process = spawn([*INSTRUMENT, sys.executable, *words], streams, env, folder)
            else:
                program = ["-c", INSTRUMENTED, *words[2:]] if instrumented else words
                process = (Python(None) if fresh else self.python).begin(program, streams, env, folder)
        child = Child(process, os.fdopen(out, encoding="utf-8"), os.fdopen(err, encoding="utf-8"))
        self.children.append(child)
        return child

    def run(self, *arguments: str | Path, **options: Unpack[Options]) -> Done:
        """Run a command to its end."""
        return self.start(*arguments, **options).done()

    def each(self, *commands: Sequence[str | Path]) -> list[Done]:
        """Run several commands, a few at once."""
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda command: self.run(*command), commands))

    def await_request(self, endpoint: Endpoint) -> None:
        """Wait until a request has come in."""
        wait_until(lambda: endpoint.requests)

    def await_file(self, name: str) -> None:
        """Wait until a tool has written a file in the folder."""
        path = self.folder / name
        wait_until(lambda: path.exists() and path.stat().st_size)

    def await_until(self, holds: Callable[[], object]) -> None:
        """Wait until a condition holds that another process makes true."""
        wait_until(holds)

    def await_abort(self) -> None:
        """Wait until an abort is written into the store, where its turn will find it."""

        def is_written() -> bool:
            with closing(sqlite3.connect(self.folder / "turns.db")) as database:
                return bool(database.execute("SELECT 1 FROM inbox WHERE kind = 'abort'").fetchone())

        wait_until(is_written)

    def await_time(self, at: float) -> None:
        """Wait until so many seconds have passed since the epoch of Unix."""
        wait_until(lambda: time.time() > at)

    def await_children(self, pid: int, number: int) -> None:
        """Wait until a process has so many children."""

        def children() -> int:
            completed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, check=False)  # noqa: S607
            return len(completed.stdout.split())

        wait_until(lambda: children() >= number)

    def write(self, name: str, text: str) -> Path:
        """Make a file in the folder."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def agent(self, *front_matter: str) -> Path:
        """Make an agent file with one agent in it."""
        return self.write("AGENTS.md", "\n".join(["---", "name: Tester", *front_matter, "---", "Test well."]) + "\n")

    def close(self) -> None:
        """Kill the children, and check that no file contains the key."""
        for child in self.children:
            child.kill()
        for path in self.folder.rglob("*"):
            if path.is_file():
                assert SECRET.encode() not in path.read_bytes(), f"the key is in {path}"


@pytest.fixture(scope="session")
def python() -> Iterator[Python]:
    """Starts Python programs in forked processes."""
    with open_nursery() as path:
        yield Python(path)


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[], Endpoint]]:
    """Makes model servers."""
    with ExitStack() as servers:
        yield lambda: servers.enter_context(Endpoint())


@pytest.fixture(scope="session")
def settle(python: Python) -> Iterator[Callable[[Path, Endpoint], Cli]]:
    """Makes command lines, each in a folder, with a server as its endpoint."""
    with ExitStack() as ends:

        def make(folder: Path, endpoint: Endpoint) -> Cli:
            env = {
                "PATH": os.environ.get("PATH", ""),
                "HOME": str(folder),
                "LANG": "C.UTF-8",
                "OPENAI_API_KEY": SECRET,
                "OPENAI_BASE_URL": endpoint.url,
            }
            new_cli = Cli(folder, env, python)
            ends.callback(new_cli.close)
            return new_cli

        yield make


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """A scripted model server."""
    with Endpoint() as server:
        yield server


@pytest.fixture
def cli(tmp_path: Path, endpoint: Endpoint, settle: Callable[[Path, Endpoint], Cli]) -> Iterator[Cli]:
    """The command line in an empty folder, with the scripted server as its endpoint."""
    new_cli = settle(tmp_path, endpoint)
    yield new_cli
    new_cli.close()


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> str:
    """The address of an empty database."""
    return postgres_server.new_database()
