"""Turnwright, as a user would write it: in memory, and with its journal in SQLite.

python -m bench.turnwright_turns
"""

import json
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import ClassVar, Final

from bench.measure import main
from bench.yardstick import PROMPT, Script, Subject, current, look

from turnwright import Agent, Engine, Usage, tool
from turnwright.model.protocol import ModelRequest, ModelResponse, ResponseToolCall, TextDelta
from turnwright.store import SqliteStore, Store
from turnwright.store.sqlite.store import Durability

#: The longest turn is measured, so nothing but its last step may end it.
AGENT: Final = Agent(name="Looking", steps=200, budget=1_000)


class Fake:
    """The fake model. It parses the calls' arguments, as Turnwright's clients do."""

    name = "fake"

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        """One reply, streamed at once."""
        del request
        move = await current().reply()
        yield TextDelta(text=move.text)
        calls = tuple(
            ResponseToolCall(id=call.id, name=call.name, arguments=json.loads(call.arguments)) for call in move.calls
        )
        yield ModelResponse(text=move.text, calls=calls, usage=Usage(input_tokens=100, output_tokens=10))


class Turnwright(Subject):
    """Turnwright in memory."""

    name = "Turnwright, in memory"
    #: The session of all turns, if they share one.
    session: str | None = None
    modules = ("turnwright", "turnwright.engine")
    packages = ("turnwright", "anyio", "pydantic", "transitions")

    def store(self) -> Store | str:
        """The store that the engine is given."""
        return "memory:"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """One engine for all turns."""
        async with Engine(model=Fake(), tools=[tool(look)], store=self.store()) as self._engine:
            yield

    async def turn(self, script: Script) -> str:
        """One turn."""
        del script
        return (await self._engine.run(AGENT, PROMPT, session=self.session)).text


class TurnwrightSqlite(Turnwright):
    """Turnwright with its journal in SQLite, safe against crashes of the process."""

    name = "Turnwright, SQLite NORMAL"
    durability: ClassVar[Durability] = "normal"

    def store(self) -> Store:
        """The store of this file."""
        return SqliteStore(self._path, durability=self.durability)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """One engine and one file for all turns."""
        with tempfile.TemporaryDirectory() as folder:
            self._path = Path(folder) / "turns.db"
            async with super().opened():
                yield

    def stored(self) -> int:
        """The bytes of the facts, as they are written. The columns beside them take about 50 more each."""
        with closing(sqlite3.connect(self._path)) as database:
            (total,) = database.execute("SELECT ifnull(sum(length(CAST(payload AS BLOB))), 0) FROM facts").fetchone()
        return int(total)

    def appends(self) -> int:
        """The appends of all turns: each is one row, and one commit where few turns run."""
        with closing(sqlite3.connect(self._path)) as database:
            (total,) = database.execute("SELECT count(*) FROM facts").fetchone()
        return int(total)


class TurnwrightSqliteFull(TurnwrightSqlite):
    """Turnwright with its journal in SQLite, safe against power loss."""

    name = "Turnwright, SQLite FULL"
    durability = "full"


if __name__ == "__main__":
    main(Turnwright(), TurnwrightSqlite(), TurnwrightSqliteFull())
