"""Conversations: their list, their messages, their titles, and their deletion."""

from pathlib import Path

import anyio
import pytest

from turnwright import (
    Agent,
    ConfigError,
    Engine,
    Message,
    SessionInfo,
    SessionNotFoundError,
    TurnBusyError,
    UnreadableTurnError,
    agent_tool,
    tool,
)
from turnwright.model import ModelRequest, ScriptedModel, asks_for
from turnwright.store import MemoryStore, SqliteStore, Store

pytestmark = pytest.mark.anyio

CLERK = Agent(name="Clerk")
BOTH = pytest.mark.parametrize("durable", [False, True])


@tool(needs_approval=True)
async def erase() -> str:
    """Erase something, with leave."""
    return "erased"


def made(folder: Path, *, durable: bool) -> Store:
    return SqliteStore(folder / "turns.db") if durable else MemoryStore()


def said(messages: list[Message]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages]


@BOTH
async def test_session_is_listed_with_the_title_and_the_open_turn(durable: bool, tmp_path: Path) -> None:
    """Sub-agents' turns are not counted."""
    below = agent_tool(Agent(name="Helper"), description="Helps.")
    model = ScriptedModel(asks_for(("Helper", {"prompt": "help"})), "Helped.", "One.", asks_for(("erase", {})))
    async with Engine(model=model, tools=[erase, below], store=made(tmp_path, durable=durable)) as engine:
        first = await engine.run(CLERK, "\nTidy  up, please.\nThanks!", session="s")
        paused = await engine.run(CLERK, "Erase it.", session="s")
        (session,) = await engine.sessions()
        created = (await engine.store.get(first.id)).created_at
        last = await engine.store.get(paused.id)
        assert session == SessionInfo("s", "Tidy up, please.", 2, created, last.updated_at, paused.id, last.number)
        await engine.set_title("s", " House\nwork ")
        assert [session.title for session in await engine.sessions()] == ["House work"]


async def test_sessions_are_listed_page_by_page() -> None:
    async with Engine(model=ScriptedModel("Hi.", repeat=True)) as engine:
        for number in range(3):
            await engine.run(CLERK, f"prompt {number}", session=f"s{number}")
        page = await engine.sessions(limit=2)
        assert [session.id for session in page] == ["s2", "s1"]
        assert [session.id for session in await engine.sessions(before=page[-1].number)] == ["s0"]


@BOTH
async def test_messages_of_a_session_include_all_turns(durable: bool, tmp_path: Path) -> None:
    """They include the open turn, what the session continues, and what was imported for that."""
    lines = "Before.", "One.", asks_for(("erase", {}), text="Two?")
    async with Engine(model=ScriptedModel(*lines), tools=[erase], store=made(tmp_path, durable=durable)) as engine:
        before = await engine.run(CLERK, "before", message_history=[Message.user("imported")])
        await engine.run(CLERK, "one", session="s", continue_from=before.id)
        paused = await engine.run(CLERK, "two", session="s")
        messages = await engine.messages("s")
        assert said(messages) == [
            ("user", "imported"),
            ("user", "before"),
            ("assistant", "Before."),
            ("user", "one"),
            ("assistant", "One."),
            ("user", "two"),
            ("assistant", "Two?"),
        ]
        assert messages[-2:] == [*paused.messages]


async def test_request_messages_equal_the_session_messages() -> None:
    model = ScriptedModel("One.", "Two.")
    async with Engine(model=model) as engine:
        await engine.run(CLERK, "one", session="s")
        messages = await engine.messages("s")
        await engine.run(CLERK, "two", session="s")
        assert said([*model.requests[1].messages]) == [*said(messages), ("user", "two")]


async def test_unknown_session_is_reported() -> None:
    async with Engine(model=ScriptedModel("Hi.")) as engine:
        for call in (engine.messages("s"), engine.set_title("s", "Title"), engine.delete_session("s")):
            with pytest.raises(SessionNotFoundError, match=r"no session 's' in this store: `Engine.sessions\(\)`"):
                await call
        await engine.run(CLERK, "hi", session="s")
        with pytest.raises(ConfigError, match="blank"):
            await engine.set_title("s", " ")


async def test_damaged_turn_is_named(tmp_path: Path) -> None:
    """Its messages are not left out in silence."""
    store = SqliteStore(tmp_path / "turns.db")
    async with Engine(model=ScriptedModel("Hi."), store=store) as engine:
        turn = await engine.run(CLERK, "hi", session="s")
        store._db.execute("UPDATE facts SET payload = '{}' WHERE seq = 1")  # noqa: SLF001 (as a failing disk would)
        with pytest.raises(UnreadableTurnError, match=turn.id):
            await engine.messages("s")
        assert await engine.delete_session("s") == 1


@BOTH
async def test_session_is_deleted_with_sub_agent_turns(durable: bool, tmp_path: Path) -> None:
    """Others stay, and a new conversation of the name begins at its beginning."""
    below = agent_tool(Agent(name="Helper"), description="Helps.")
    model = ScriptedModel(asks_for(("Helper", {"prompt": "help"})), "Helped.", "Done.", "Hi.", "Anew.")
    async with Engine(model=model, tools=[below], store=made(tmp_path, durable=durable)) as engine:
        await engine.run(CLERK, "first", session="s")
        await engine.run(CLERK, "other", session="t")
        assert await engine.delete_session("s") == 2
        assert [session.id for session in await engine.sessions()] == ["t"]
        await engine.run(CLERK, "anew", session="s")
        assert said(await engine.messages("s")) == [("user", "anew"), ("assistant", "Anew.")]
        assert [session.title for session in await engine.sessions()] == ["anew", "other"]


async def test_session_is_not_deleted_while_a_turn_runs() -> None:
    requested, may = anyio.Event(), anyio.Event()

    async def wait(_: ModelRequest) -> str:
        requested.set()
        await may.wait()
        return "Done."

    async with Engine(model=ScriptedModel(wait)) as engine:
        handle = await engine.start(CLERK, "hi", session="s")
        await requested.wait()
        with pytest.raises(TurnBusyError, match=handle.id):
            await engine.delete_session("s")
        may.set()
        assert (await handle.result()).text == "Done."
        assert await engine.delete_session("s") == 1


async def test_pruning_the_last_turn_deletes_the_session() -> None:
    async with Engine(model=ScriptedModel("Hi.")) as engine:
        await engine.run(CLERK, "hi", session="s")
        assert await engine.prune(older_than=-1) == 1
        assert await engine.sessions() == []
