"""Print what happens when one of two real workers is killed while its tools run.

    python -m bench.scale.two_workers

The workers are `turnwright worker`, the client is `turnwright run`, each a process of its own. PostgreSQL and Temporal
are real ones on free ports. The model is a server that knows one turn.
"""

import http.server
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.servers.postgres_server import PostgresServer
from tests.servers.temporal_server import TemporalServer

#: What the model asks for: a call that ends soon, two that run when the worker dies, and one that waits for them.
_CALLS: Final = ("look_up", "upload", "charge", "send_mail")
_TOOLS: Final = '''
import time

from turnwright import tool


@tool
def look_up(order: int) -> str:
    """Look an order up."""
    return f"order {order}: 5 lamps"


@tool(idempotent=True)
def upload(order: int) -> str:
    """Upload its invoice; twice does no harm."""
    time.sleep(6)
    return "uploaded"


@tool
def charge(order: int) -> str:
    """Charge the customer; twice is one too many."""
    time.sleep(6)
    return "charged"


@tool(sequential=True)
def send_mail(order: int) -> str:
    """Send the mail that it is on its way, when all else is done."""
    return "sent"
'''
#: Seconds after which what should have happened did not.
_LONG: Final = 90.0


class _Model(http.server.BaseHTTPRequestHandler):
    """A server of chat completions: it asks for the calls, and answers when it has their results."""

    def do_POST(self) -> None:
        """Reply to one request, as a stream."""
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        delta: dict[str, object] = {"content": "Order 7 is on its way; I do not know whether it was charged."}
        if request["messages"][-1]["role"] != "tool":
            calls = [
                {"index": n, "id": f"c{n}", "function": {"name": name, "arguments": '{"order": 7}'}}
                for n, name in enumerate(_CALLS)
            ]
            delta = {"tool_calls": calls}
        finish = "tool_calls" if "tool_calls" in delta else "stop"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for choice in ({"index": 0, "delta": delta}, {"index": 0, "delta": {}, "finish_reason": finish}):
            self.wfile.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name there)
        """Say nothing."""


class _Line:
    """A line that a process printed: who, when, and what."""

    def __init__(self, process: str, at: float, fields: dict[str, object]) -> None:
        self.process = process
        self.at = at
        self.fields = fields


class _Stage:
    """The processes, and their messages, in the order of arrival."""

    def __init__(self, folder: Path, store: str, address: str, model: str) -> None:
        self.lines: list[_Line] = []
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self._folder = folder
        self._where = ["--store", store, "--temporal-address", address, "--tools", "tools.py", "--json"]
        self._model = ["--model", "orders", "--base-url", model]

    def worker(self, name: str) -> None:
        """Start a worker, and return when it can be given turns."""
        self._start(name, "worker", *self._where, *self._model, "--notify")
        self.heard(lambda line: line.process == name and line.fields["type"] == "started")

    def client(self) -> None:
        """Submit the turn, and follow it."""
        self._start("client", "run", "Ship order 7", *self._where)

    def heard(self, of: Callable[[_Line], bool]) -> _Line:
        """Wait for a line. Raises `TimeoutError`."""
        ends = time.monotonic() + _LONG
        while time.monotonic() < ends:
            for line in tuple(self.lines):
                if of(line):
                    return line
            time.sleep(0.01)
        raise TimeoutError("\n".join(f"{line.process}: {line.fields}" for line in self.lines))

    def _start(self, name: str, *command: str) -> None:
        program = str(Path(sys.executable).with_name("turnwright"))
        environment = {**os.environ, "OPENAI_API_KEY": "none", "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(  # noqa: S603 (our own program)
            [program, *command], cwd=self._folder, env=environment, stdout=subprocess.PIPE, text=True
        )
        self.processes[name] = process
        threading.Thread(target=self._read, args=(name, process), daemon=True).start()

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            self.lines.append(_Line(name, time.monotonic(), json.loads(line)))


@contextmanager
def _stage() -> Iterator[_Stage]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "tools.py").write_text(_TOOLS)
        model = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Model)
        threading.Thread(target=model.serve_forever, daemon=True).start()
        stack.callback(model.shutdown)
        postgres, temporal = stack.enter_context(PostgresServer()), stack.enter_context(TemporalServer())
        store = postgres.new_database()
        program = str(Path(sys.executable).with_name("turnwright"))
        subprocess.run([program, "migrate", "--store", store], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        stage = _Stage(folder, store, temporal.address, f"http://127.0.0.1:{model.server_port}/v1")
        try:
            yield stage
        finally:
            for process in stage.processes.values():
                process.kill()
                process.wait()


def play() -> list[tuple[float, str, str]]:
    """Do it, and return what happened: seconds since the turn was submitted, who, and what."""
    with _stage() as stage:
        for name in ("worker 1", "worker 2"):
            stage.worker(name)
        stage.client()
        claim = stage.heard(lambda line: line.fields["type"] == "claimed")
        stage.heard(lambda line: line.fields["type"] == "call_settled" and line.fields["call"] == "call00001")
        time.sleep(2)
        stage.processes[claim.process].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        stage.heard(lambda line: line.process == "client" and line.fields["type"] == "turn_ended")
        survivor = next(name for name in ("worker 1", "worker 2") if name != claim.process)
        stage.heard(lambda line: line.process == survivor and line.fields["type"] == "settled")
        stage.processes["client"].wait(_LONG)
        stage.processes[survivor].send_signal(signal.SIGTERM)
        stage.processes[survivor].wait(_LONG)
        time.sleep(0.2)
        first = next(line.at for line in stage.lines if line.fields["type"] == "turn_started")
        rows = [(killed - first, claim.process, "**killed** (SIGKILL), two of its tools running")]
        rows += [(line.at - first, line.process, words) for line in stage.lines if (words := _words(line))]
        return sorted(rows)


def _words(line: _Line) -> str:
    """Return a line for the table; empty if it is left out."""
    fields = line.fields
    call = {f"call0000{n}": name for n, name in enumerate(_CALLS, start=1)}.get(str(fields.get("call", "")), "")
    again = f", attempt {fields['attempt']}" if fields.get("attempt", 1) != 1 else ""
    words = {
        "claimed": "claims the turn",
        "settled": f"reports the outcome: {fields.get('outcome')}, {fields.get('reason')}",
        "turn_started": "`turn_started`",
        "model_replied": "`model_replied`" + ("" if fields.get("calls") else f": {fields.get('text')}"),
        "call_started": f"`call_started` {call}{again}",
        "call_settled": f"`call_settled` {call}, {fields.get('status')}: {str(fields.get('result'))[:60]}",
        "turn_ended": f"`turn_ended`: {fields.get('outcome')}, {fields.get('reason')}",
    }
    return words.get(str(fields["type"]), "")


def table(rows: list[tuple[float, str, str]]) -> str:
    """The rows as Markdown."""
    lines = [
        f"| {seconds:.1f} | {'journal' if process == 'client' else process} | {label} |"
        for seconds, process, label in rows
    ]
    return "\n".join(("| s | who | what |", "| ---: | --- | --- |", *lines))


def main() -> None:
    """Print the table."""
    print(table(play()))


if __name__ == "__main__":
    main()
