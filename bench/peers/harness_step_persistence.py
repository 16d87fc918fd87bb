"""pydantic-ai's harness: an agent with StepPersistence, in SQLite and in PostgreSQL.

python -m bench.peers.harness_step_persistence
"""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, Final

# Peers are installed in environments of their own: who checks types need not have them.
import asyncpg  # pyright: ignore[reportMissingImports]
from bench.measure import main
from bench.peers.history import check
from bench.servers import Server, running
from bench.yardstick import PROMPT, Script, Subject, current, look, sqlite_bytes
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from pydantic_ai_harness.step_persistence import (  # pyright: ignore[reportMissingImports]
    PostgresStepStore,
    SqliteStepStore,
    StepPersistence,
    StepStore,
)

UNLIMITED: Final = UsageLimits(request_limit=None)


async def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The fake model."""
    del info
    script = current()
    move = await script.reply()
    if not move.calls:
        parts = (part for message in messages for part in message.parts)
        check(script, sum(isinstance(part, ToolReturnPart) for part in parts))
    calls = [ToolCallPart(call.name, call.arguments, tool_call_id=call.id) for call in move.calls]
    # Without a usage it would be estimated, from the whole history.
    return ModelResponse(parts=[TextPart(move.text), *calls], usage=RequestUsage(input_tokens=100, output_tokens=10))


class StepPersistenceSqlite(Subject):
    """The plain run, with its steps in SQLite."""

    name = "pydantic-ai with StepPersistence, SQLite"
    packages: ClassVar[tuple[str, ...]] = ("pydantic-ai-harness", "pydantic-ai-slim")
    durable = True
    store_kind = "SQLite"
    is_slow = True
    notes: ClassVar[tuple[str, ...]] = ("A snapshot of the history a step, and events; to be continued by hand.",)
    _server: Server | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """A temporary file."""
        with tempfile.TemporaryDirectory() as folder:
            self._path = Path(folder) / "steps.db"
            self._store: StepStore = SqliteStepStore(database=self._path)
            yield

    def server_cpu(self) -> float | None:
        """The CPU of the database."""
        return None if self._server is None else self._server.cpu()

    async def turn(self, script: Script) -> str:
        """One turn."""
        del script
        persistence = StepPersistence[None](store=self._store)
        agent: Agent[None, str] = Agent(FunctionModel(reply), capabilities=[persistence])
        agent.tool_plain(look)
        return (await agent.run(PROMPT, usage_limits=UNLIMITED)).output

    def stored(self) -> int | None:
        """The bytes of the rows."""
        return sqlite_bytes(self._path)


class StepPersistencePostgres(StepPersistenceSqlite):
    """The plain run, with its steps in PostgreSQL."""

    name = "pydantic-ai with StepPersistence, PostgreSQL"
    packages = ("pydantic-ai-harness", "pydantic-ai-slim", "asyncpg")
    store_kind = "PostgreSQL"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """A database."""
        with running("postgres") as self._server:
            async with asyncpg.create_pool(self._server.address) as pool:
                self._store = PostgresStepStore(pool)
                yield

    def stored(self) -> int | None:
        """Not counted."""
        return None


if __name__ == "__main__":
    main(StepPersistenceSqlite(), StepPersistencePostgres())
