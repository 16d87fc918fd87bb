"""The process that the last scene of `turnwright demo` kills, and what it shares with the one that takes over."""

import sys
from pathlib import Path
from typing import Final

import anyio

from turnwright.agent import Agent
from turnwright.engine import Engine
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import SqliteStore
from turnwright.tools import Tool, ToolContext, tool

#: What the turn is asked.
PROMPT: Final = "Record order 17 and upload its invoice."


def crash_line(request: ModelRequest) -> ModelResponse | str:
    """What its model says: two calls, then an answer, wherever it is taken up."""
    if any(message.role == "tool" for message in request.messages):
        return "Both are done."
    return asks_for(("record", {"what": "order 17"}), ("upload", {"what": "invoice 17"}))


def crash_script() -> ScriptedModel:
    return ScriptedModel(crash_line, repeat=True)


def crash_tools(witness: Path) -> list[Tool]:
    """The tools of the last scene. The first attempt at `upload` takes for ever."""

    def executed(line: str) -> None:
        with witness.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    @tool
    async def record(what: str) -> str:
        """Record something; must not happen twice."""
        executed(f"record({what})")
        return f"recorded {what}"

    @tool(idempotent=True)
    async def upload(what: str, context: ToolContext) -> str:
        """Upload something; safe to repeat with the same key."""
        executed(f"upload({what}) attempt {context.attempt}, key {context.idempotency_key}")
        if context.attempt == 1:
            await anyio.sleep_forever()
        return f"uploaded {what}"

    return [record, upload]


def be_killed() -> None:
    """Drive the turn until somebody kills this process. Arguments: the database, the witness."""
    database, witness = (Path(argument) for argument in sys.argv[1:])

    async def play() -> None:
        async with Engine(model=crash_script(), tools=crash_tools(witness), store=SqliteStore(database)) as engine:
            await engine.run(Agent(name="Clerk"), PROMPT)

    anyio.run(play)
