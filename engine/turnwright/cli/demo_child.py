"""The process that `turnwright demo` kills, and the scripts and tools that both kinds of demo have."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

from turnwright.agent import Agent
from turnwright.engine import Engine
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import SqliteStore, Store
from turnwright.tools import Tool, ToolContext, tool
from turnwright_states import facts as f

#: Python that is this process, and the seconds that it has to reach the call in which it is killed.
CHILD: Final = "from turnwright.cli.demo_child import be_killed; be_killed()"
_PATIENCE: Final = 20.0
#: What the turn is asked, and who is asked.
CLERK: Final = Agent(name="Clerk")
PROMPT: Final = "Record order 17 and upload its invoice."


def crash_line(request: ModelRequest) -> ModelResponse | str:
    """What its model says: two calls, then an answer, wherever it is taken up."""
    if any(message.role == "tool" for message in request.messages):
        return "Both are done."
    return asks_for(("record", {"what": "order 17"}), ("upload", {"what": "invoice 17"}))


def crash_script() -> ScriptedModel:
    return ScriptedModel(crash_line, repeat=True)


@tool(needs_approval=True)
async def delete_file(path: str) -> str:
    """Delete a file; a person must approve it."""
    return f"{path} is deleted (not really: this is a demonstration)"


def keeps_looking_up(word: str) -> Callable[[ModelRequest], ModelResponse | str]:
    """A script that makes the same call until its tools are disabled."""

    def script(request: ModelRequest) -> ModelResponse | str:
        if request.tool_choice == "none":
            return f"I kept looking up {word}, and it is not there."
        return asks_for(("look_up", {"word": word}))

    return script


async def second_call(store: Store) -> str:
    """Return the turn of the child once its second call has begun, and its first one is done."""
    with anyio.fail_after(_PATIENCE):
        while True:
            for row in await store.turns():
                if row.agent == CLERK.name:
                    kinds = [type(fact) for _, fact in await store.facts(row.id)]
                    if kinds.count(f.CallStarted) > 1 and f.CallSettled in kinds:
                        return row.id
            await anyio.sleep(0.05)


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
            await engine.run(CLERK, PROMPT)

    anyio.run(play)
