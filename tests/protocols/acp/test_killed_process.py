"""An agent process that is killed in the middle of a turn, and the official Python client before and after it."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from acp import schema, spawn_agent_process
from acp.client.connection import ClientSideConnection
from acp.helpers import text_block
from tests.protocols.acp.test_agent import Editor
from tests.protocols.subject import make_engine
from tests.servers.forked_python import Python

from turnwright import Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

#: Seconds for a step of a process on a loaded machine.
PATIENCE = 60.0


@dataclass(frozen=True)
class Process:
    """A running agent, its client, the connection between them, and the function that kills it."""

    editor: Editor
    connection: ClientSideConnection
    kill: Callable[[], None]


async def wait_until(is_there: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE):
        while not is_there():  # noqa: ASYNC110 (another process makes it true)
            await anyio.sleep(0.01)


@asynccontextmanager
async def serving(python: Python, folder: Path) -> AsyncIterator[Process]:
    """Start the subject in a process of its own."""
    editor = Editor()
    client: Any = editor
    command = [*python.command, "-m", "tests.protocols.acp_server", str(folder)]
    agent = spawn_agent_process(client, *command, use_unstable_protocol=True)
    async with agent as (connection, process):
        await connection.initialize(1, schema.ClientCapabilities())
        yield Process(editor, connection, process.kill)


async def kill_during(python: Python, folder: Path, word: str, *, inside: str) -> str:
    """Send a word to an agent, and kill it with SIGKILL in the tool, or while its permission is open."""
    async with serving(python, folder) as process:
        session = (await process.connection.new_session(str(folder))).session_id
        editor = process.editor
        editor.waits = anyio.Event()
        async with anyio.create_task_group() as group:

            async def say() -> None:
                await process.connection.prompt(session, [text_block(word)])

            group.start_soon(say)
            is_there = (lambda: "in_progress" in editor.statuses()) if inside == "tool" else editor.waits.is_set
            await wait_until(is_there)
            process.kill()
            group.cancel_scope.cancel()
    return session


async def test_prompt_after_a_kill_inside_a_tool_works_at_once(
    tmp_path: Path, python: Python, record_property: Callable[[str, object], None]
) -> None:
    """It does not wait for the lease of the killed process, which is still there: its seconds are in the report."""
    session = await kill_during(python, tmp_path, "slow", inside="tool")
    async with serving(python, tmp_path) as process:
        await process.connection.load_session(str(tmp_path), session)
        begin = time.monotonic()
        response = await process.connection.prompt(session, [text_block("hello")])
        record_property("seconds", round(time.monotonic() - begin, 3))
        assert (response.stop_reason, process.editor.text) == ("end_turn", "You said: hello")
    async with make_engine(f"sqlite:///{tmp_path}/turns.db") as engine:
        assert sorted(str(row.status.outcome) for row in await engine.turns()) == ["aborted", "finished"]


async def test_approval_that_was_open_at_a_kill_is_asked_again(tmp_path: Path, python: Python) -> None:
    session = await kill_during(python, tmp_path, "approve", inside="permission")
    async with serving(python, tmp_path) as process:
        editor = process.editor
        await process.connection.load_session(str(tmp_path), session)
        await wait_until(lambda: "paid 5" in editor.text)
        assert [call.raw_input for call in editor.permissions] == [{"amount": 5}]
    async with make_engine(f"sqlite:///{tmp_path}/turns.db") as engine:
        (row,) = await engine.turns()
        assert row.status.outcome is Outcome.FINISHED
