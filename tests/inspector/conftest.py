"""Shared by the tests of the inspector: an engine with its own store, and an authorized client."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from turnwright import Agent, Engine, tool
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.scripted import Line
from turnwright.tools import builtin_tools
from turnwright_inspector import Inspector

TOKEN = "a-token-that-nobody-guesses"  # noqa: S105 (a test's)
ADDRESS = "http://127.0.0.1:8321"


@tool(needs_approval=True)
async def delete_file(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


@tool
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: <script>document.title = 'owned'</script>"


def engine_on(file: Path, *lines: Line, repeat: bool = False) -> Engine:
    """An engine whose model says these lines."""
    return Engine(
        model=ScriptedModel(*lines, repeat=repeat),
        tools=[delete_file, look_up, *(tool for tool in builtin_tools(Path()) if tool.name == "ask_user_input")],
        store=f"sqlite:///{file}",
        poll_interval=0.02,
    )


def browser(app: Inspector, address: str = ADDRESS, **headers: str) -> httpx.AsyncClient:
    """A client of the application; it keeps cookies, and does not follow redirects."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=address, headers=headers)


async def enter(client: httpx.AsyncClient, path: str = "/") -> httpx.Response:
    """Open a page with the token, as in the printed address."""
    response = await client.get(path, params={"token": TOKEN}, follow_redirects=True)
    assert response.status_code == httpx.codes.OK
    return response


def csrf_of(response: httpx.Response) -> str:
    """The token that the forms of a page send."""
    match = re.search(r'"X-CSRF-Token": "(\w+)"', response.text)
    assert match is not None
    return match[1]


@dataclass
class Person:
    """An authorized client that sends forms."""

    client: httpx.AsyncClient
    csrf: str

    async def does(self, path: str, **fields: str) -> httpx.Response:
        """Send a form, and follow its redirects."""
        return await self.client.post(path, data={"csrf": self.csrf, **fields}, follow_redirects=True)


@asynccontextmanager
async def person_at(app: Inspector) -> AsyncIterator[Person]:
    """Open the pages as an authorized person."""
    async with app.running(), browser(app) as client:
        yield Person(client, csrf_of(await enter(client)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "turns.db"


@pytest.fixture
def asking(file: Path) -> Callable[[], Engine]:
    """Makes an engine whose model asks to delete a file, and then is done."""
    return lambda: engine_on(file, asks_for(("delete_file", {"path": "old.log"})), "It is gone.")


async def paused_turn(engine: Engine) -> str:
    """Run a turn until it pauses, and return its id."""
    turn = await engine.run(Agent(name="Cleaner"), "Delete old.log")
    assert turn.paused
    return turn.id
