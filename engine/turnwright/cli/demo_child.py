"""The process that `turnwright demo` kills, and the scripts and tools that both demos share."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

from turnwright.agent import Agent
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.runtime.engine import Engine
from turnwright.store import SqliteStore, Store
from turnwright.tools import Tool, ToolContext, tool
from turnwright_states import facts as f

#: The code of this process, and the seconds that it may take to reach the call in which it is killed.
CHILD: Final = "from turnwright.cli.demo_child import be_killed; be_killed()"
_PATIENCE: Final = 20.0
#: The agent and the prompt of the turn.
CLERK: Final = Agent(name="Clerk")
PROMPT: Final = "Record order 17 and upload its invoice."


def crash_line(request: ModelRequest) -> ModelResponse | str:
    """Return two calls, then an answer, also after a recovery."""
    if any(message.role == "tool" for message in request.messages):
        return "Both are done."
    return asks_for(("record", {"what": "order 17"}), ("upload", {"what": "invoice 17"}))


def crash_script() -> ScriptedModel:
    return ScriptedModel(crash_line, repeat=True)


@tool(needs_approval=True)
async def delete_file(path: str) -> str:
    """Delete a file. Needs approval."""
    return f"{path} is deleted (not really: this is a demo)"


def keeps_looking_up(word: str) -> Callable[[ModelRequest], ModelResponse | str]:
    """Return a script that makes the same call until its tools are disabled."""

    def script(request: ModelRequest) -> ModelResponse | str:
        if request.tool_choice == "none":
            return f"I kept looking up {word}, and it is not there."
        return asks_for(("look_up", {"word": word}))

    return script


async def second_call(store: Store) -> str:
    """Wait until the child's first call has finished and its second has started. Returns the turn."""
    with anyio.fail_after(_PATIENCE):
        while True:
            for row in await store.turns():
                if row.agent == CLERK.name:
                    kinds = [type(fact) for _, fact in await store.facts(row.id)]
                    if kinds.count(f.CallStarted) > 1 and f.CallSettled in kinds:
                        return row.id
            await anyio.sleep(0.05)


def crash_tools(witness: Path) -> list[Tool]:
    """Return the tools of the crash demo. The first attempt at `upload` never ends."""

    def log_execution(line: str) -> None:
        with witness.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    @tool
    async def record(what: str) -> str:
        """Record something. Must not run twice."""
        log_execution(f"record({what})")
        return f"recorded {what}"

    @tool(idempotent=True)
    async def upload(what: str, context: ToolContext) -> str:
        """Upload something. Safe to repeat with the same key."""
        log_execution(f"upload({what}) attempt {context.attempt}, key {context.idempotency_key}")
        if context.attempt == 1:
            await anyio.sleep_forever()
        return f"uploaded {what}"

    return [record, upload]


def be_killed() -> None:
    """Drive the turn until this process is killed. The arguments are the database and the witness file."""
    database, witness = (Path(argument) for argument in sys.argv[1:])

    async def play() -> None:
        async with Engine(model=crash_script(), tools=crash_tools(witness), store=SqliteStore(database)) as engine:
            await engine.run(CLERK, PROMPT)

    anyio.run(play)
