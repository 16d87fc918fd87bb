"""`examples/chat_service.py`: a chat whose turns survive `kill -9`, with typed answers and changed approvals."""

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path

import anyio
import httpx
import pytest
from tests.servers.forked_python import Program, Python

from turnwright.store import SqliteStore

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'turnwright[frameworks]'")

SERVICE = Path(__file__).parents[2] / "examples" / "chat_service.py"

pytestmark = pytest.mark.slow


class Service:
    """The service as a process of its own, which can be killed and started again in the same folder."""

    def __init__(self, folder: Path, python: Python) -> None:
        self.folder, self._python = folder, python
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self._program: Program | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        environment = os.environ | {"CHAT_FOLDER": str(self.folder), "PORT": str(self.port)}
        self._program = self._python.start(SERVICE, env=environment)
        with httpx.Client(transport=httpx.HTTPTransport(retries=100)) as client:
            client.get(f"http://127.0.0.1:{self.port}/docs", timeout=30)

    def kill(self) -> None:
        """Kill it, as `kill -9` does."""
        if self._program is not None:
            with self._program:
                self._program.end()

    def post(self, path: str, body: object, **query: str) -> dict[str, object]:
        response = httpx.post(f"http://127.0.0.1:{self.port}{path}", json=body, params=query, timeout=30)
        response.raise_for_status()
        data: dict[str, object] = response.json()
        return data

    def chat(self, text: str) -> dict[str, object]:
        return self.post("/chat", {"session": "s", "user": "ann", "text": text})


@pytest.fixture
def service(tmp_path: Path, python: Python) -> Iterator[Service]:
    service = Service(tmp_path, python)
    service.start()
    yield service
    service.kill()


def refunds(service: Service) -> list[str]:
    return [file.read_text() for file in (service.folder / "refunds").iterdir()]


def test_person_approves_another_amount_after_a_kill(service: Service) -> None:
    paused = service.chat("My wheel is broken, refund 20")
    assert paused["waiting"] == [
        {"id": "approval-1", "tool": "refund", "arguments": {"order": "wheel", "amount": 20.0}}
    ]
    service.kill()
    service.start()
    changed = {"order": "wheel", "amount": 15}
    done = service.post("/answers", changed, turn=str(paused["turn"]), interrupt="approval-1")
    assert (done["state"], done["reply"]) == ("FINISHED", {"text": "Done: refunded 15.", "refunded": 0.0})
    assert refunds(service) == ["ann wheel 15"]


def test_turn_of_a_killed_process_ends_after_the_next_start(service: Service) -> None:
    with ThreadPoolExecutor(1) as aside:
        future = aside.submit(service.chat, "Hello")
        anyio.run(until_a_turn_runs, service.folder)
        service.kill()
        with pytest.raises(httpx.HTTPError):
            future.result()
    service.start()
    anyio.run(until_it_has_ended, service.folder)
    assert service.chat("And now?")["reply"] == {"text": "You wrote: And now?", "refunded": 0.0}


async def until_a_turn_runs(folder: Path) -> None:
    async with aclosing(SqliteStore(folder / "chat.db")) as store:
        while not await store.turns():  # noqa: ASYNC110 (another process writes)
            await anyio.sleep(0.01)


async def until_it_has_ended(folder: Path) -> None:
    async with aclosing(SqliteStore(folder / "chat.db")) as store:
        while (await store.turns())[-1].status.outcome is None:  # noqa: ASYNC110 (likewise)
            await anyio.sleep(0.01)
