"""A batch of calls that a release interrupted (docs/rules.md#recovery)."""

from pathlib import Path

import anyio
import pytest

from turnwright import Agent, Engine, Outcome, tool
from turnwright.message import ToolResultPart
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.tools import Tool
from turnwright_states import CallStatus

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Reader")
PAGES = 8


def reply(request: ModelRequest) -> ModelResponse | str:
    return asks_for(*[("fetch", {"page": page}) for page in range(PAGES)]) if request.first else "Read."


class Library:
    """Pages that nobody can read until the library opens."""

    def __init__(self) -> None:
        self.opened = anyio.Event()
        self.all_wait = anyio.Event()
        self.pages_read = 0

    def tool(self) -> Tool:
        @tool(read_only=True)
        async def fetch(page: int) -> str:
            self.pages_read += 1
            if self.pages_read == PAGES:
                self.all_wait.set()
            await self.opened.wait()
            return f"page {page}"

        return fetch


async def test_release_among_parallel_reads_loses_no_result(tmp_path: Path) -> None:
    """With the default of three retries."""
    store, library = f"sqlite:///{tmp_path}/turns.db", Library()
    async with Engine(model=ScriptedModel(reply, repeat=True), tools=[library.tool()], store=store) as engine:
        await engine.start(AGENT, "Read all pages.")
        await library.all_wait.wait()
    library.opened.set()
    async with Engine(model=ScriptedModel(reply, repeat=True), tools=[library.tool()], store=store) as engine:
        (turn,) = await engine.recover()
    results = [part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert turn.outcome is Outcome.FINISHED
    assert [(part.status, part.text) for part in results] == [(CallStatus.OK, f"page {page}") for page in range(PAGES)]
