"""The example behind FastAPI, as its own process on a real port: streams, attaches again, answers, survives."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest
from httpx_sse import connect_sse
from pydantic import JsonValue
from tests.servers.forked_python import Program, Python

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "fastapi_turns.py"

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'turnwright[examples]'")

Event = tuple[int, str, dict[str, JsonValue]]


@dataclass
class Server:
    """The example, while it serves."""

    client: httpx.Client
    program: Program

    def events(
        self, method: str, path: str, *, after: int = 0, take: int | None = None, **body: JsonValue
    ) -> list[Event]:
        """The events of an answer: all of them, or the first `take`, after which the connection is closed."""
        heard: list[Event] = []
        headers = {"last-event-id": str(after)}
        with connect_sse(self.client, method, path, json=body or None, headers=headers) as source:
            for event in source.iter_sse():
                if event.data:  # httpx-sse makes an event of a comment that keeps the connection open
                    heard.append((int(event.id), event.event, event.json()))
                if len(heard) == take:
                    break
        return heard


@contextmanager
def serving(python: Python, store: Path) -> Iterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"PORT": str(port), "TURNWRIGHT_STORE": f"sqlite:///{store}"}
    with (
        python.start("-W", "error", EXAMPLE, env=environment) as program,
        httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=30, transport=httpx.HTTPTransport(retries=10)
        ) as client,
    ):
        try:
            assert client.get("/docs").status_code == httpx.codes.OK
            yield Server(client, program)
        finally:
            program.end(signal.SIGTERM)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, python: Python) -> Iterator[Server]:
    with serving(python, tmp_path_factory.mktemp("turns") / "turns.db") as server:
        yield server


def kinds(heard: list[Event]) -> list[str]:
    return [kind for _, kind, _ in heard if not kind.endswith("_delta")]


def test_turn_is_streamed_paused_answered_and_ended(server: Server) -> None:
    heard = server.events("POST", "/turns", prompt="Delete old.log")
    turn = heard[0][2]["turn"]
    assert kinds(heard) == ["turn_started", "step_started", "model_replied", "call_waiting", "paused"]
    rest = server.events("POST", f"/turns/{turn}/answers", after=heard[-1][0], answers={"approval-1": "yes"})
    assert kinds(rest)[:3] == ["answered", "call_started", "call_settled"]
    assert rest[-1][1] == "turn_ended"
    assert rest[-1][2]["text"] == "Done. I have deleted it, and nothing else was touched."
    assert [seq for seq, kind, _ in rest if not kind.endswith("_delta")] == list(range(6, rest[-1][0] + 1))


def test_disconnecting_stops_nothing_and_reattaching_has_no_gap(server: Server) -> None:
    heard = server.events("POST", "/turns", take=1, prompt="Delete old.log")
    turn = heard[0][2]["turn"]
    rest = server.events("GET", f"/turns/{turn}/events", after=heard[0][0])
    assert [seq for seq, kind, _ in [*heard, *rest] if not kind.endswith("_delta")] == [1, 2, 3, 4, 5]
    assert rest[-1][1] == "paused"


def test_refused_request_has_a_status_and_a_message(server: Server) -> None:
    def refused(method: str, path: str, **body: JsonValue) -> tuple[int, str]:
        answer = server.client.request(method, path, json=body)
        return answer.status_code, answer.json()["detail"]

    status, words = refused("GET", "/turns/nothing/events")
    assert (status, "there is no turn 'nothing'" in words) == (404, True)
    turn = server.events("POST", "/turns", prompt="Delete old.log", session="busy")[0][2]["turn"]
    status, words = refused("POST", f"/turns/{turn}/answers", answers={"approval-1": "perhaps"})
    assert (status, "approval-1" in words) == (422, True)
    assert server.client.delete(f"/turns/{turn}").status_code == httpx.codes.NO_CONTENT
    status, words = refused("POST", f"/turns/{turn}/answers", answers={"approval-1": "yes"})
    assert (status, "aborted" in words) == (409, True)


def test_paused_turn_survives_the_server(tmp_path: Path, python: Python) -> None:
    with serving(python, tmp_path / "turns.db") as server:
        heard = server.events("POST", "/turns", prompt="Delete old.log")
        server.program.end()
    turn = heard[0][2]["turn"]
    with serving(python, tmp_path / "turns.db") as server:
        rest = server.events("POST", f"/turns/{turn}/answers", after=heard[-1][0], answers={"approval-1": "no"})
        assert rest[-1][1] == "turn_ended"
        settled = next(event for _, kind, event in rest if kind == "call_settled")
        assert settled["status"] == "rejected"
