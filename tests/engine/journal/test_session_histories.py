"""The histories that a process keeps: how much is read again, after what, and how many there are."""

import cProfile
import gc
import sqlite3
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from turnwright import Agent, Engine, TurnResult
from turnwright.journal.session_histories import SessionHistories
from turnwright.journal.turn_journal import first_fact
from turnwright.message import Message
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel
from turnwright.store import MemoryStore, SqliteStore, Store
from turnwright.transcript.history import History
from turnwright_states.facts import Fact
from turnwright_testing.faults.wrapper import StoreWrapper

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Clerk")


class Counting(StoreWrapper):
    """Counts the facts that are read."""

    read = 0

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        facts = await super().facts(turn_id, after)
        self.read += len(facts)
        return facts


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Open the same store again: as another process does, if it is in a file."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "turns.db", durability="normal")
    store = MemoryStore()
    return lambda: store


def unrepaired(messages: list[Message]) -> list[Message]:
    """Fail: nothing here needs a repair."""
    raise AssertionError(messages)


async def history(histories: SessionHistories, store: Store, turn: TurnResult) -> History:
    started = first_fact(turn.id, await store.facts(turn.id))
    return await histories.before(turn.id, started, started.model, {}, unrepaired)


async def test_each_turn_reads_the_facts_of_the_previous_turn_only(opened: Callable[[], Store]) -> None:
    store = Counting(opened())
    reads: list[int] = []
    async with Engine(model=ScriptedModel("Done.", repeat=True), store=store) as engine:
        for number in range(12):
            before = store.read
            await engine.run(AGENT, f"prompt {number}", session="s")
            reads.append(store.read - before)
    assert reads[0] == 0
    assert set(reads[1:]) == {reads[1]}


async def test_cold_session_judges_each_turn_once_and_equal_limits_once(opened: Callable[[], Store]) -> None:
    """The first turn of a process reads all turns: work for each pair of them was a tenth of it in a session of 500."""
    async with Engine(model=ScriptedModel("Done.", repeat=True), store=opened()) as engine:
        turns = [await engine.run(AGENT, f"prompt {number}", session="s") for number in range(30)]
    store = opened()
    with cProfile.Profile() as profile:
        await history(SessionHistories(store), store, turns[-1])
    await store.aclose()
    calls = Counter[str]()
    for entry in profile.getstats():
        calls["" if isinstance(entry.code, str) else entry.code.co_name] += entry.callcount
    assert calls["history_needed"] == len(turns) - 1
    assert calls["_refuse_unknown"] <= 4  # of pydantic's models of limits: those of a turn, and their defaults


async def test_the_next_history_begins_with_the_same_messages(opened: Callable[[], Store]) -> None:
    """Encoders keep what they encoded by identity."""
    store = opened()
    histories = SessionHistories(store)
    async with Engine(model=ScriptedModel("Done.", repeat=True), store=store) as engine:
        turns = [await engine.run(AGENT, f"prompt {number}", session="s") for number in range(2)]
        first = await history(histories, store, turns[-1])
        last = await history(histories, store, await engine.run(AGENT, "prompt 2", session="s"))
    assert list(map(id, last.messages[: len(first.messages)])) == list(map(id, first.messages))
    assert [message.text for message in last.sent_messages] == ["prompt 0", "Done.", "prompt 1", "Done."]


async def test_turn_deleted_by_another_process_is_forgotten(opened: Callable[[], Store]) -> None:
    model = ScriptedModel("Done.", repeat=True)
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(Engine(model=model, store=opened())) for _ in range(2)]
        turns = [await here.run(AGENT, f"prompt {number}", session="s") for number in range(3)]
        await there.delete(turns[1].id)
        await there.run(AGENT, "prompt 3", session="s")
        await here.run(AGENT, "prompt 4", session="s")
    prompts = [message.text for message in model.requests[-1].messages if message.role == "user"]
    assert prompts == ["prompt 0", "prompt 2", "prompt 3", "prompt 4"]


async def test_restored_backup_forgets_the_later_turns(tmp_path: Path) -> None:
    """The turns after the backup get the numbers of those that are gone."""
    model, path = ScriptedModel("Done.", repeat=True), tmp_path / "turns.db"
    async with (
        Engine(model=model, store=SqliteStore(path)) as here,
        Engine(model=model, store=SqliteStore(path)) as there,
    ):
        await here.run(AGENT, "prompt 0", session="s")
        with closing(sqlite3.connect(path)) as live, closing(sqlite3.connect(tmp_path / "backup.db")) as backup:
            live.backup(backup)
            for prompt in ("gone 1", "gone 2"):
                await here.run(AGENT, prompt, session="s")
            backup.backup(live)
        for prompt in ("prompt 1", "prompt 2"):
            await there.run(AGENT, prompt, session="s")
        await here.run(AGENT, "prompt 3", session="s")
    prompts = [message.text for message in model.requests[-1].messages if message.role == "user"]
    assert prompts == [f"prompt {number}" for number in range(4)]


async def test_deleted_turn_outside_the_session_is_forgotten(opened: Callable[[], Store]) -> None:
    model, store = ScriptedModel("Done.", repeat=True), opened()
    async with Engine(model=model, store=store) as engine:
        outside = await engine.run(AGENT, "outside")
        await engine.run(AGENT, "prompt 0", session="s", continue_from=outside.id)
        for number in (1, 2):
            await engine.run(AGENT, f"prompt {number}", session="s")
        await engine.delete(outside.id)
        await engine.run(AGENT, "prompt 3", session="s")
    prompts = [
        [message.text for message in request.messages if message.role == "user"] for request in model.requests[-2:]
    ]
    assert prompts == [
        ["outside", "prompt 0", "prompt 1", "prompt 2"],
        ["prompt 0", "prompt 1", "prompt 2", "prompt 3"],
    ]


class Watching:
    """A model that keeps weak references to the messages of its requests."""

    name = "watching"

    def __init__(self) -> None:
        self.message_refs: list[weakref.ref[Message]] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelResponse]:
        self.message_refs += [weakref.ref(message) for message in request.messages]
        yield ModelResponse(text="Done.")

    def count(self) -> int:
        """Return how many of the messages are still in memory."""
        gc.collect()
        return sum(message() is not None for message in self.message_refs)


@pytest.mark.parametrize("how", ["session", "turn", "prune"])
async def test_deleted_text_is_gone_from_memory(how: str) -> None:
    """Also not in the history of a session that continued it."""
    model = Watching()
    async with Engine(model=model) as engine:
        first = (await engine.run(AGENT, "private", session="s")).id
        await engine.run(AGENT, "p", session="s")
        await engine.run(AGENT, "p", session="t", continue_from=first)
        await engine.run(AGENT, "p", session="t")
        assert model.count() > 0
        match how:
            case "session":
                await engine.delete_session("s")
            case "turn":
                await engine.delete(first)
            case _:
                await engine.prune(older_than=-1)
        assert model.count() == 0


async def test_history_read_during_a_deletion_is_not_cached() -> None:
    """It may have a text that is deleted."""
    store = MemoryStore()

    class Deleting(StoreWrapper):
        async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
            facts = await super().facts(turn_id, after)
            histories.forget()
            return facts

    histories = SessionHistories(Deleting(store))
    async with Engine(model=ScriptedModel("Done.", repeat=True), store=store) as engine:
        await engine.run(AGENT, "p", session="s")
        session_history = await history(histories, store, await engine.run(AGENT, "p", session="s"))
    assert [message.text for message in session_history.sent_messages] == ["p", "Done."]
    assert not len(histories)


async def test_the_sessions_used_last_are_kept() -> None:
    store = MemoryStore()
    histories = SessionHistories(store, most=4_000)
    async with Engine(model=ScriptedModel("Done.", repeat=True), store=store) as engine:
        for session in "abcd":
            await engine.run(AGENT, "p", session=session)
            await history(histories, store, await engine.run(AGENT, "p", session=session))
        assert len(histories) == 3
        long = await engine.run(AGENT, "p" * 4_000, session="e")
        assert not (await history(histories, store, long)).messages
        session_history = await history(histories, store, await engine.run(AGENT, "p", session="e"))
    assert session_history.messages[0].text == "p" * 4_000
    assert len(histories) == 3, "one that is too long alone is not kept, and the others stay"


async def test_reasoning_details_count_for_the_cache_size() -> None:
    """A provider's encrypted reasoning, and the results of its hosted tools."""
    store = MemoryStore()
    histories = SessionHistories(store, most=4_000)
    details = ({"type": "reasoning.encrypted", "data": "x" * 4_000},)
    async with Engine(
        model=ScriptedModel(ModelResponse(text="Done.", reasoning_details=details), "Done."), store=store
    ) as engine:
        await engine.run(AGENT, "p", session="s")
        session_history = await history(histories, store, await engine.run(AGENT, "p", session="s"))
    assert session_history.size.tokens < 1_000
    assert not len(histories)
