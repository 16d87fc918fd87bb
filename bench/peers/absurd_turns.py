"""Absurd: a task whose model calls and tool calls are steps, in PostgreSQL.

python -m bench.peers.absurd_turns
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar

# Peers are installed in environments of their own: who checks types need not have them.
import psycopg
from absurd_sdk import AsyncAbsurd, AsyncTaskContext  # pyright: ignore[reportMissingImports]
from absurdctl import BUNDLED_SCHEMA_SQL  # pyright: ignore[reportMissingImports]
from bench.measure import SUBMITTED_AT_ONCE, main
from bench.peers.history import check
from bench.servers import Server, running
from bench.yardstick import FINAL, PROMPT, QueueSubject, Script, Subject, look

Message = dict[str, Any]


class Running:
    """The script of the turn that runs."""

    script: ClassVar[Script]


async def ask_model(messages: list[Message]) -> Message:
    """The fake model."""
    move = await Running.script.reply()
    if not move.calls:
        check(Running.script, sum(message["role"] == "tool" for message in messages))
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in move.calls]
    return {"role": "assistant", "content": move.text, "tool_calls": calls}


async def ask_queued(messages: list[Message]) -> Message:
    """The fake model of a queued turn: two calls, and the final text when their results are there."""
    if sum(message["role"] == "tool" for message in messages) == 2:  # noqa: PLR2004
        return {"role": "assistant", "content": FINAL, "tool_calls": []}
    move = Script(2).reply_now()
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in move.calls]
    return {"role": "assistant", "content": move.text, "tool_calls": calls}


async def call_tool(call: Message) -> Message:
    """One call."""
    return {"role": "tool", "tool_call_id": call["id"], "content": await look(**json.loads(call["arguments"]))}


async def loop(params: Message, context: AsyncTaskContext) -> Message:
    """A turn."""
    ask = ask_queued if params["queued"] else ask_model
    messages: list[Message] = [{"role": "user", "content": params["prompt"]}]
    while True:
        reply = await context.step(f"model-{len(messages)}", partial(ask, messages))
        messages.append(reply)
        if not reply["tool_calls"]:
            return {"text": reply["content"]}
        steps = (context.step(f"tool-{call['id']}", partial(call_tool, call)) for call in reply["tool_calls"])
        messages += await asyncio.gather(*steps)


async def migrate(address: str) -> None:
    """Make the tables and the queue."""
    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
        await connection.execute(BUNDLED_SCHEMA_SQL)
    app = made(address)
    await app.create_queue()
    await app.close()


def made(address: str) -> AsyncAbsurd:
    """A client with the task."""
    app = AsyncAbsurd(address)
    app.register_task(name="loop")(loop)
    return app


class Absurd(Subject):
    """Tasks that are spawned and worked off one after the other."""

    name = "Absurd, PostgreSQL"
    packages = ("absurd-sdk", "psycopg")
    durable = True
    store_kind = "PostgreSQL"
    is_slow = True
    notes: ClassVar[tuple[str, ...]] = ("Each model call and each tool call is a step; its client has one connection.",)
    _server: Server

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """A database and a client."""
        with running("postgres") as self._server:
            await migrate(self._server.address)
            self._app = made(self._server.address)
            yield
            await self._app.close()

    def server_cpu(self) -> float:
        """The CPU of the database."""
        return self._server.cpu()

    async def turn(self, script: Script) -> str:
        """One turn."""
        Running.script = script
        task = await self._app.spawn("loop", {"prompt": PROMPT, "queued": False}, max_attempts=1)
        await self._app.work_batch()
        ended = await self._app.fetch_task_result(task["task_id"])
        return str(ended.result["text"]) if ended and ended.result else repr(ended)


class AbsurdQueue(QueueSubject):
    """Tasks in a queue, and workers."""

    name = "Absurd, queue"
    packages = ("absurd-sdk", "psycopg")
    notes = ("A worker runs up to 50 tasks at once, on its one connection.",)

    async def prepare(self, address: str) -> None:
        """Make the tables and the queue."""
        await migrate(address)

    @asynccontextmanager
    async def opened(self, address: str) -> AsyncIterator[None]:
        """A client, and a connection that counts."""
        self._app = made(address)
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as self._connection:
            yield
        await self._app.close()

    async def submit(self, number: int) -> None:
        """Queue one task."""
        del number
        await self._app.spawn("loop", {"prompt": PROMPT, "queued": True}, max_attempts=1)

    async def count_ended(self) -> int:
        """Tasks that ended with the final text."""
        rows = await self._connection.execute(
            "SELECT count(*) FROM absurd.t_default WHERE completed_payload->>'text' = %s", [FINAL]
        )
        (count,) = await rows.fetchone() or (0,)
        return int(count)

    async def work(self, address: str) -> None:
        """A worker."""
        app = made(address)
        print("ready", flush=True)
        await app.start_worker(concurrency=SUBMITTED_AT_ONCE)


if __name__ == "__main__":
    main(Absurd(), AbsurdQueue())
