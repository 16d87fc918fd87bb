"""Turnwright, as a user would write it: in memory, and with its journal in SQLite or PostgreSQL.

python -m bench.turnwright_turns
"""

import json
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import psycopg
from bench.measure import SUBMITTED_AT_ONCE, main
from bench.proxy import Proxy
from bench.servers import Server, running
from bench.yardstick import FINAL, PROMPT, Move, QueueSubject, Script, Subject, current, look
from tests.servers.postgres_server import PostgresServer

from turnwright import Agent, Engine, Usage, tool
from turnwright.model.protocol import ModelRequest, ModelResponse, ResponseToolCall, TextDelta
from turnwright.runtime import Local
from turnwright.store import SqliteStore, Store
from turnwright.store.postgres.store import PostgresStore
from turnwright.store.sqlite.opening import Durability
from turnwright.tools import Tool

#: The longest turn is measured, so nothing but its last step may end it.
AGENT: Final = Agent(name="Looking", steps=200, budget=1_000)


class Fake:
    """The fake model. It parses the calls' arguments, as Turnwright's clients do."""

    name = "fake"
    silence_timeout: float | None = None  # as those of the clients, which have timeouts of their own

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
    modules: ClassVar[tuple[str, ...]] = ("turnwright", "turnwright.runtime.engine")
    packages: ClassVar[tuple[str, ...]] = ("turnwright", "anyio", "pydantic", "transitions")
    #: Seconds between looks at the store while a turn waits.
    poll_interval = 0.25
    has_sessions = True
    agent = AGENT
    model: type[Fake] = Fake

    def store(self) -> Store | str:
        """The store that the engine is given."""
        return "memory:"

    def tool(self) -> Tool[Any]:
        """The tool that the model calls."""
        return tool(look)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """One engine for all turns."""
        async with Engine(
            model=self.model(), tools=[self.tool()], store=self.store(), poll_interval=self.poll_interval
        ) as self._engine:
            yield

    async def turn(self, script: Script) -> str:
        """One turn."""
        del script
        return (await self._engine.run(self.agent, PROMPT, session=self.session)).text


class TurnwrightStreamed(Turnwright):
    """Turnwright in memory, with every event of the turn read."""

    name = "Turnwright, in memory, streamed"
    streamed = True

    async def turn(self, script: Script) -> str:
        """One turn, followed to its end."""
        del script
        async with self._engine.stream(self.agent, PROMPT, session=self.session) as events:
            async for _ in events:
                pass
        return events.result.text


class TurnwrightSqlite(Turnwright):
    """Turnwright with its journal in SQLite, safe against crashes of the process."""

    name = "Turnwright, SQLite NORMAL"
    durable = True
    store_kind = "SQLite NORMAL"
    durability: ClassVar[Durability] = "normal"

    def __init__(self, path: Path | None = None) -> None:
        self._path_given = path

    def store(self) -> Store:
        """The store of this file."""
        return SqliteStore(self._path, durability=self.durability)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """One engine and one file for all turns: a temporary one where none is given."""
        with tempfile.TemporaryDirectory() as folder:
            self._path = self._path_given or Path(folder) / "turns.db"
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


class TurnwrightRepeatable(TurnwrightSqlite):
    """Turnwright with its journal in SQLite, and an agent with repeatable steps."""

    name = "Turnwright, SQLite NORMAL, repeatable steps"
    agent = AGENT.model_copy(update={"repeatable_steps": True})

    def tool(self) -> Tool[Any]:
        """The tool that the model calls, declared read-only."""
        return tool(read_only=True)(look)


class TurnwrightSqliteFull(TurnwrightSqlite):
    """Turnwright with its journal in SQLite, safe against power loss."""

    name = "Turnwright, SQLite FULL"
    store_kind = "SQLite FULL"
    durability = "full"


class TurnwrightPostgres(Turnwright):
    """Turnwright with its journal in a PostgreSQL server of its own. `proxied`: behind a proxy that counts trips."""

    name = "Turnwright, PostgreSQL"
    modules = ("turnwright", "turnwright.runtime.engine", "psycopg")
    packages = ("turnwright", "psycopg", "anyio", "pydantic")
    durable = True
    store_kind = "PostgreSQL"
    most_in_flight = 1_000
    _server: Server

    def __init__(self, *, proxied: bool = False) -> None:
        self._proxied = proxied
        if proxied:
            self.poll_interval = 3_600.0  # how often it polls depends on the machine

    def store(self) -> str:
        """The store of this server."""
        return self._address

    def server_cpu(self) -> float:
        """The CPU of the database."""
        return self._server.cpu()

    def trips(self) -> int:
        """The round trips to the server so far."""
        return self._proxy.trips

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """One server and one engine for all turns."""
        with running("postgres") as self._server:
            self._address = self._server.address
            store = PostgresStore(self._address, connections=1)
            await store.migrate()
            await store.aclose()
            if not self._proxied:
                async with super().opened():
                    yield
                return
            parts = urlsplit(self._address)
            self._proxy = Proxy(str(parts.hostname), parts.port or 0)
            async with self._proxy.listening() as port:
                self._address = self._address.replace(f":{parts.port}/", f":{port}/")
                async with super().opened():
                    yield


class QueuedFake(Fake):
    """The fake model of a worker: two calls, and the final text when their results are there."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        """One reply, streamed at once."""
        results = sum(message.role == "tool" for message in request.messages)
        move = Move(FINAL, ()) if results else Script(2).reply_now()
        yield TextDelta(text=move.text)
        calls = tuple(
            ResponseToolCall(id=call.id, name=call.name, arguments={"place": call.place}) for call in move.calls
        )
        yield ModelResponse(text=move.text, calls=calls, usage=Usage(input_tokens=100, output_tokens=10))


class TurnwrightQueue(QueueSubject):
    """Turns that are submitted to PostgreSQL, and driven by workers."""

    name = "Turnwright, queue"
    packages = ("turnwright", "psycopg")
    notes = ("A worker drives up to 50 turns at once.",)

    async def prepare(self, address: str) -> None:
        """Make the tables."""
        store = PostgresStore(address)
        await store.migrate()
        await store.aclose()

    @asynccontextmanager
    async def opened(self, address: str) -> AsyncIterator[None]:
        """One engine that submits, and a connection that counts."""
        async with (
            await psycopg.AsyncConnection.connect(address, autocommit=True) as self._connection,
            Engine(model=QueuedFake(), tools=[tool(look)], store=address) as self._engine,
        ):
            yield

    async def submit(self, number: int) -> None:
        """Queue one turn."""
        del number
        await self._engine.submit(AGENT, PROMPT)

    async def count_ended(self) -> int:
        """Turns that answered, as their rows say."""
        rows = await self._connection.execute(
            "SELECT count(*) FROM turnwright_turns WHERE NOT live AND state = 'FINISHED'"
        )
        (count,) = await rows.fetchone() or (0,)
        return int(count)

    async def work(self, address: str) -> None:
        """A worker."""
        runtime = Local(embedded=False, concurrency=SUBMITTED_AT_ONCE)
        async with Engine(model=QueuedFake(), tools=[tool(look)], store=address, runtime=runtime) as engine:
            print("ready", flush=True)
            await engine.run_worker()


if __name__ == "__main__":
    postgres = () if PostgresServer.reason_missing() else (TurnwrightPostgres(), TurnwrightQueue())
    main(Turnwright(), TurnwrightStreamed(), TurnwrightSqlite(), TurnwrightSqliteFull(), *postgres)
