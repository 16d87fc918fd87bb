"""DBOS: a workflow whose model calls and tool calls are steps, by hand and with pydantic-ai.

    python -m bench.peers.dbos_turns

A turn is a workflow, each call of the model and of a tool a step of it, whose output is stored before the next begins.
"""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

# Peers are installed in environments of their own: who checks types need not have them.
import psycopg
from bench.measure import SUBMITTED_AT_ONCE, main
from bench.peers.history import check
from bench.servers import Server, running
from bench.yardstick import FINAL, PROMPT, QueueSubject, Script, Subject, look
from dbos import DBOS, DBOSClient, DBOSConfig  # pyright: ignore[reportMissingImports]
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

UNLIMITED: Final = UsageLimits(request_limit=None)
VERSION: Final = "bench"
QUEUE: Final = "turns"

Message = dict[str, Any]


class Running:
    """The script of the turn that runs: steps need not inherit the context of their caller."""

    script: ClassVar[Script]


@DBOS.step()  # type: ignore[untyped-decorator]
async def ask_model(messages: list[Message]) -> Message:
    """The fake model."""
    move = await Running.script.reply()
    if not move.calls:
        check(Running.script, sum(message["role"] == "tool" for message in messages))
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in move.calls]
    return {"role": "assistant", "content": move.text, "tool_calls": calls}


@DBOS.step()  # type: ignore[untyped-decorator]
async def call_tool(call: Message) -> Message:
    """One call."""
    return {"role": "tool", "tool_call_id": call["id"], "content": await look(**json.loads(call["arguments"]))}


@DBOS.workflow()  # type: ignore[untyped-decorator]
async def loop(prompt: str) -> str:
    """A turn."""
    messages: list[Message] = [{"role": "user", "content": prompt}]
    while True:
        reply = await ask_model(messages)
        messages.append(reply)
        if not reply["tool_calls"]:
            return str(reply["content"])
        messages += await asyncio.gather(*(call_tool(call) for call in reply["tool_calls"]))


async def reply_whole(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The fake model of pydantic-ai."""
    del info
    move = await Running.script.reply()
    if not move.calls:
        parts = (part for message in messages for part in message.parts)
        check(Running.script, sum(isinstance(part, ToolReturnPart) for part in parts))
    calls = [ToolCallPart(call.name, call.arguments, tool_call_id=call.id) for call in move.calls]
    # Without a usage it would be estimated, from the whole history.
    return ModelResponse(parts=[TextPart(move.text), *calls], usage=RequestUsage(input_tokens=100, output_tokens=10))


@DBOS.step()  # type: ignore[untyped-decorator]
async def look_durably(place: int) -> str:
    """Look at a place. Its own step: pydantic-ai makes steps of model calls and of MCP servers, not of functions."""
    return await look(place)


agent: Agent[None, str] = Agent(FunctionModel(reply_whole), name="looker", capabilities=[DBOSDurability()])
agent.tool_plain(name="look")(look_durably)


@DBOS.workflow()  # type: ignore[untyped-decorator]
async def agent_loop(prompt: str) -> str:
    """A turn of the agent."""
    return (await agent.run(prompt, usage_limits=UNLIMITED)).output


def config(address: str) -> DBOSConfig:
    """The configuration, without reports."""
    return DBOSConfig(name="bench", system_database_url=address, log_level="ERROR", application_version=VERSION)


class DbosPostgres(Subject):
    """The workflow on PostgreSQL."""

    name = "DBOS, PostgreSQL"
    packages: ClassVar[tuple[str, ...]] = ("dbos", "psycopg")
    durable = True
    store_kind = "PostgreSQL"
    is_slow = True
    notes: ClassVar[tuple[str, ...]] = ("Each model call and each tool call is a step, written when it ends.",)
    _server: Server | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Launch it on a database."""
        with running("postgres") as self._server:
            async with self.launched(self._server.address):
                yield

    @asynccontextmanager
    async def launched(self, address: str) -> AsyncIterator[None]:
        """Launch it on the database at this address."""
        DBOS(config=config(address))
        DBOS.launch()
        try:
            yield
        finally:
            DBOS.destroy()

    def server_cpu(self) -> float | None:
        """The CPU of the database."""
        return None if self._server is None else self._server.cpu()

    async def turn(self, script: Script) -> str:
        """One turn."""
        Running.script = script
        return str(await loop(PROMPT))


class DbosSqlite(DbosPostgres):
    """The workflow on SQLite."""

    name = "DBOS, SQLite"
    store_kind = "SQLite"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Launch it on a temporary file."""
        with tempfile.TemporaryDirectory() as folder:
            async with self.launched(f"sqlite:///{Path(folder) / 'dbos.db'}"):
                yield


class PydanticAiDbos(DbosPostgres):
    """pydantic-ai's agent with its capability for DBOS, on PostgreSQL."""

    name = "pydantic-ai on DBOS, PostgreSQL"
    packages = ("pydantic-ai-slim", "dbos", "psycopg")
    notes: ClassVar[tuple[str, ...]] = ("The plain `run`; its tool is a step of DBOS.",)

    async def turn(self, script: Script) -> str:
        """One turn."""
        Running.script = script
        return str(await agent_loop(PROMPT))


@DBOS.workflow()  # type: ignore[untyped-decorator]
async def queued_loop(prompt: str) -> str:
    """A turn of two steps, with the same steps as the others."""
    messages: list[Message] = [{"role": "user", "content": prompt}]
    for _ in range(2):
        reply = await ask_queued(messages)
        messages.append(reply)
        messages += await asyncio.gather(*(call_tool(call) for call in reply["tool_calls"]))
    if messages[-1]["content"] != FINAL:
        raise RuntimeError(f"the turn ended with {messages[-1]['content']!r}")
    return FINAL


@DBOS.step()  # type: ignore[untyped-decorator]
async def ask_queued(messages: list[Message]) -> Message:
    """The fake model: two calls, and the final text when their results are there."""
    if sum(message["role"] == "tool" for message in messages) == 2:  # noqa: PLR2004
        return {"role": "assistant", "content": FINAL, "tool_calls": []}
    move = Script(2).reply_now()
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in move.calls]
    return {"role": "assistant", "content": move.text, "tool_calls": calls}


class DbosQueue(QueueSubject):
    """Workflows on a queue in PostgreSQL."""

    name = "DBOS, queue"
    packages = ("dbos", "psycopg")
    notes = ("A worker runs up to 50 workflows at once.",)

    async def prepare(self, address: str) -> None:
        """Make the tables and the queue."""

        def register() -> None:
            DBOS(config=config(address))
            DBOS.launch()
            DBOS.register_queue(QUEUE, worker_concurrency=SUBMITTED_AT_ONCE)
            DBOS.destroy()

        await asyncio.to_thread(register)  # its end shuts down the executor of a loop that it was launched in

    @asynccontextmanager
    async def opened(self, address: str) -> AsyncIterator[None]:
        """A client."""
        self._client = DBOSClient(system_database_url=address)
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as self._connection:
            yield
        self._client.destroy()

    async def submit(self, number: int) -> None:
        """Queue one workflow."""
        del number
        options = {"queue_name": QUEUE, "workflow_name": queued_loop.__qualname__, "app_version": VERSION}
        await self._client.enqueue_async(options, PROMPT)

    async def count_ended(self) -> int:
        """Workflows that succeeded: one without the final text would fail."""
        rows = await self._connection.execute("SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'")
        (count,) = await rows.fetchone() or (0,)
        return int(count)

    async def work(self, address: str) -> None:
        """A worker."""
        DBOS(config=config(address))
        DBOS.launch()
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    main(DbosPostgres(), DbosSqlite(), PydanticAiDbos(), DbosQueue())
