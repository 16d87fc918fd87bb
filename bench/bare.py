"""The bare loop: what a competent engineer writes without a framework. The others are measured against it.

It streams, collects text and calls, runs the calls of a step at once, keeps the messages that the next model call would
be sent, and has a cap. It has no limits but that, no retries, no events, no validation and no journal; in its second
form it commits each step's messages to SQLite, with sqlite3 itself and nothing between.

    python -m bench.measure
"""

import asyncio
import json
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, ClassVar, Final

from bench.yardstick import PROMPT, Script, Subject, look, sqlite_bytes

CAP: Final = 200
Chunk = dict[str, Any]  # a piece of a reply, as a provider's stream has it: a text, a call, or the end
Message = dict[str, Any]  # as a provider takes it
TOOLS: Final[dict[str, Callable[..., Awaitable[str]]]] = {"look": look}


async def stream(script: Script, messages: list[Message]) -> AsyncIterator[Chunk]:
    """The fake model. A real one would send the messages."""
    del messages
    move = await script.reply()
    yield {"type": "text", "text": move.text}
    for call in move.calls:
        yield {"type": "call", "id": call.id, "name": call.name, "arguments": call.arguments}
    yield {"type": "finish", "usage": {"input_tokens": 100, "output_tokens": 10}}


async def execute(call: Chunk) -> str:
    """Run one call."""
    return await TOOLS[call["name"]](**json.loads(call["arguments"]))


async def bare(script: Script) -> str:
    """One turn, in memory."""
    messages: list[Message] = [{"role": "user", "content": PROMPT}]
    for _ in range(CAP):
        text = ""
        calls: list[Chunk] = []
        async for chunk in stream(script, messages):
            if chunk["type"] == "text":
                text += chunk["text"]
            elif chunk["type"] == "call":
                calls.append(chunk)
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        if not calls:
            return text
        results = await asyncio.gather(*(execute(call) for call in calls))
        for call, result in zip(calls, results, strict=True):
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return "The cap is reached."


async def bare_sqlite(script: Script, connection: sqlite3.Connection) -> str:
    """The same turn, each step's messages committed before the next step."""
    (turn,) = connection.execute("insert into turns default values returning id").fetchone()
    messages: list[Message] = [{"role": "user", "content": PROMPT}]
    known_count = 0
    for _ in range(CAP):
        text = ""
        calls: list[Chunk] = []
        async for chunk in stream(script, messages):
            if chunk["type"] == "text":
                text += chunk["text"]
            elif chunk["type"] == "call":
                calls.append(chunk)
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        if calls:
            results = await asyncio.gather(*(execute(call) for call in calls))
            for call, result in zip(calls, results, strict=True):
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        new = [(turn, number, json.dumps(messages[number])) for number in range(known_count, len(messages))]
        connection.executemany("insert into messages values (?, ?, ?)", new)
        connection.commit()
        known_count = len(messages)
        if not calls:
            return text
    return "The cap is reached."


class Bare(Subject):
    """The bare loop, in memory."""

    name = "bare loop"
    modules = ("asyncio", "json")

    async def turn(self, script: Script) -> str:
        """One turn."""
        return await bare(script)


class BareSqlite(Subject):
    """The bare loop with a commit a step, safe against crashes of the process."""

    name = "bare loop, SQLite NORMAL"
    modules = ("asyncio", "json", "sqlite3")
    durable = True
    store_kind: ClassVar[str] = "SQLite NORMAL"
    synchronous: ClassVar[str] = "normal"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """One connection for all turns."""
        with tempfile.TemporaryDirectory() as folder:
            self._path = Path(folder) / "turns.db"
            with closing(sqlite3.connect(self._path)) as self._connection:
                self._connection.execute("pragma journal_mode = wal")
                self._connection.execute(f"pragma synchronous = {self.synchronous}")
                self._connection.execute("create table turns (id integer primary key)")
                columns = "turn integer, number integer, message text, primary key (turn, number)"
                self._connection.execute(f"create table messages ({columns}) without rowid")
                yield

    async def turn(self, script: Script) -> str:
        """One turn."""
        return await bare_sqlite(script, self._connection)

    def stored(self) -> int:
        """The bytes of the rows."""
        return sqlite_bytes(self._path)


class BareSqliteFull(BareSqlite):
    """The bare loop with a commit a step, safe against power loss."""

    name = "bare loop, SQLite FULL"
    synchronous = "full"
    store_kind = "SQLite FULL"
