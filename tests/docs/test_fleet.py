"""The fleet of the examples as plain processes, on a real PostgreSQL, without and with a real Temporal server."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import httpx
import pytest
from httpx_sse import connect_sse
from pydantic import JsonValue
from tests.servers.forked_python import Program, Python
from tests.servers.postgres_server import PostgresServer
from tests.servers.temporal_server import TemporalServer

FLEET: Final = Path(__file__).parents[2] / "examples" / "fleet"
#: Seconds in which whatever is to happen does.
SOON: Final = 60.0

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'turnwright[examples]'")

Json = dict[str, JsonValue]


class _Model(BaseHTTPRequestHandler):
    """A model that counts, orders, and ends. It keeps no state: each reply follows from the request alone."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        last = body["messages"][-1]
        delta: Json = {"content": "All is in order."}
        if last["role"] == "user":
            delta = _calls("take_stock", {"shelves": 2})
        elif "24 articles" in last["content"]:
            delta = _calls("order", {"article": "lamp", "count": 5})
        finish = "tool_calls" if "tool_calls" in delta else "stop"
        chunks = [{"index": 0, "delta": delta}, {"index": 0, "delta": {}, "finish_reason": finish}]
        lines = [*(json.dumps({"choices": [chunk]}) for chunk in chunks), "[DONE]"]
        self.send_response(httpx.codes.OK)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write("".join(f"data: {line}\n\n" for line in lines).encode())

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Be silent."""


def _calls(name: str, arguments: Json) -> Json:
    function: Json = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"index": 0, "id": f"c-{name}", "function": function}]}


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    """The base URL of a model server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Model) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


@pytest.fixture(scope="module")
def place(python: Python) -> Iterator[str]:
    """The address of a store."""
    reason = PostgresServer.reason_missing()
    if reason is not None:
        pytest.skip(reason)
    with PostgresServer(fsync=False) as server:
        assert python.run("-m", "turnwright", "migrate", "--store", server.address).returncode == 0
        yield server.address


@dataclass
class Worker:
    """`turnwright worker`, which has begun."""

    program: Program

    def said(self, kind: str) -> Json:
        """Read what it says until it says this."""
        for line in self.program.stdout:
            event: Json = json.loads(line)
            if event["type"] == kind:
                return event
        pytest.fail(f"ended without {kind}")


@dataclass
class Fleet:
    """The processes of one fleet: its API, and the workers that were started."""

    python: Python
    environment: dict[str, str]
    flags: list[str]
    client: httpx.Client
    programs: ExitStack
    api: Program = field(init=False)

    def __post_init__(self) -> None:
        self.api = self._start(str(FLEET / "api.py"))
        assert self.client.get("/openapi.json").status_code == httpx.codes.OK

    def _start(self, *arguments: str, **environment: str) -> Program:
        program = self.python.start("-W", "error", *arguments, env=self.environment | environment)
        return self.programs.enter_context(program)

    def work(self, pace: str) -> Worker:
        """Start a worker whose tools take so many seconds a shelf."""
        tools = ["--tools", str(FLEET / "tools.py")]
        worker = Worker(self._start("-m", "turnwright", "worker", "--json", *tools, *self.flags, FLEET_PACE=pace))
        worker.said("started")
        return worker

    def begin(self, **body: str) -> str:
        """Begin a turn, and return its id."""
        begun = self.client.post("/turns", json=body)
        assert begun.status_code == httpx.codes.ACCEPTED, begun.text
        turn: str = begun.json()["id"]
        return turn

    def events(self, turn: str, after: int = 0) -> Iterator[tuple[int, str, Json]]:
        """The events of a turn behind the fact `after`, as a browser gets them."""
        headers = {"last-event-id": str(after)}
        with connect_sse(self.client, "GET", f"/turns/{turn}/events", headers=headers) as source:
            for event in source.iter_sse():
                if event.data:  # httpx-sse makes an event of a comment that keeps the connection open
                    yield int(event.id), event.event, event.json()

    def refuses(self, method: str, path: str, **body: JsonValue) -> tuple[int, str]:
        """The status and the words with which a request is refused."""
        refused = self.client.request(method, path, json=body or None)
        words: str = refused.json()["detail"]
        return refused.status_code, words


@contextmanager
def fleet_of(python: Python, store: str, model: str, temporal: str | None = None) -> Iterator[Fleet]:
    """A fleet with no workers yet, on this PostgreSQL and, if it is given, this Temporal server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("OPENAI", "FLEET", "TEMPORAL"))
    }
    environment = variables | {"FLEET_STORE": store, "FLEET_TEMPORAL": temporal or "", "FLEET_PORT": str(port)}
    flags = ["--store", store, "--notify", "--base-url", model, *(["--temporal-address", temporal] if temporal else [])]
    transport = httpx.HTTPTransport(retries=10)
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=SOON, transport=transport) as client,
        ExitStack() as programs,
    ):
        yield Fleet(python, environment, flags, client, programs)


@pytest.fixture(scope="module")
def fleet(python: Python, place: str, model: str) -> Iterator[Fleet]:
    with fleet_of(python, place, model) as fleet:
        yield fleet


def goes_on_when_a_worker_is_killed(fleet: Fleet) -> None:
    """A turn is begun, followed, taken over from a worker that is killed, paused, answered, and followed to its end."""
    first = fleet.work(pace="600")
    turn = fleet.begin(prompt="Count two shelves, and order five lamps")
    following = fleet.events(turn)
    heard = [next(following)]
    while heard[-1][1] != "call_started":
        heard.append(next(following))
    assert first.said("claimed")["turn"] == turn
    second = fleet.work(pace="0.01")
    first.program.end()
    heard += following
    assert heard[-1][1] == "paused"
    standing = fleet.client.get(f"/turns/{turn}").json()
    assert (standing["state"], [interrupt["tool"] for interrupt in standing["interrupts"]]) == ("PAUSED", ["order"])
    status, words = fleet.refuses("POST", f"/turns/{turn}/answers", answers={"approval-1": "perhaps"})
    assert (status, "approval-1" in words) == (httpx.codes.UNPROCESSABLE_ENTITY, True)
    response = fleet.client.post(f"/turns/{turn}/answers", json={"answers": {"approval-1": "yes"}})
    assert response.status_code == httpx.codes.ACCEPTED
    heard += fleet.events(turn, heard[-1][0])
    assert [seq for seq, _, _ in heard] == list(range(1, len(heard) + 1))
    kinds = [kind for _, kind, _ in heard]
    assert (kinds.count("call_started"), kinds[-1]) == (3, "turn_ended")
    assert (heard[-1][2]["outcome"], heard[-1][2]["text"]) == ("finished", "All is in order.")
    assert fleet.client.get(f"/turns/{turn}").json()["outcome"] == "finished"
    second.program.send(signal.SIGTERM)
    second.said("stopped")
    assert second.program.wait() == 0


def test_turn_survives_a_killed_worker_and_is_paused_and_answered(fleet: Fleet) -> None:
    """Workers that share nothing but PostgreSQL."""
    goes_on_when_a_worker_is_killed(fleet)


def test_refused_request_has_a_status_and_a_message(fleet: Fleet) -> None:
    """Refusals need no worker, and neither does an abort of a turn that no worker has claimed."""
    for method, path in (("GET", ""), ("GET", "/events"), ("DELETE", "")):
        status, words = fleet.refuses(method, f"/turns/nothing{path}")
        assert (status, "there is no turn 'nothing'" in words) == (httpx.codes.NOT_FOUND, True)
    turn = fleet.begin(prompt="Count", session="s1")
    assert fleet.refuses("POST", "/turns", prompt="Again", session="s1")[0] == httpx.codes.CONFLICT
    assert fleet.client.post(f"/turns/{turn}/messages", json={"text": "Faster"}).status_code == httpx.codes.ACCEPTED
    assert fleet.refuses("POST", f"/turns/{turn}/messages", text="")[0] == httpx.codes.UNPROCESSABLE_ENTITY
    assert fleet.client.delete(f"/turns/{turn}").status_code == httpx.codes.NO_CONTENT
    assert fleet.client.delete(f"/turns/{turn}").status_code == httpx.codes.NO_CONTENT
    status, words = fleet.refuses("POST", f"/turns/{turn}/messages", text="Faster")
    assert (status, "aborted" in words) == (httpx.codes.CONFLICT, True)
    assert [kind for _, kind, _ in fleet.events(turn)][-1] == "turn_ended"


def test_turn_survives_the_accepting_api(python: Python, fleet: Fleet, place: str, model: str) -> None:
    """A client that followed the turn attaches to another API, and misses no event."""
    with fleet_of(python, place, model) as other_fleet:
        turn = other_fleet.begin(prompt="Count")
        heard = [next(other_fleet.events(turn))]
        other_fleet.api.end()
    assert fleet.client.delete(f"/turns/{turn}").status_code == httpx.codes.NO_CONTENT
    heard += fleet.events(turn, heard[-1][0])
    assert [seq for seq, _, _ in heard] == list(range(1, len(heard) + 1))
    assert heard[-1][1] == "turn_ended"


def test_turn_is_driven_by_workers_chosen_by_temporal(python: Python, place: str, model: str) -> None:
    """A worker that was killed is given up when it has been silent for ten seconds."""
    reason = TemporalServer.reason_missing()
    if reason is not None:
        pytest.skip(reason)
    with TemporalServer() as temporal, fleet_of(python, place, model, temporal.address) as fleet:
        goes_on_when_a_worker_is_killed(fleet)
