"""The process dies at every append of a turn or of its sub-agents, before it or after it, and another continues.

The lead sends two readers and an editor side by side, who sends a reader of its own, then a reader once more. One of
the readers asks for leave, which is given.
"""

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from turnwright import Agent, Engine, Outcome, StoreError, TurnResult, tool
from turnwright.driver.subagents import agent_tool
from turnwright.model.protocol import Model, ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import Claim, MemoryStore, NewTurn, SqliteStore, Status, Store
from turnwright.tools import Tool, ToolContext
from turnwright.transcript.pairing import check_pairing
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing import FaultyStore

pytestmark = pytest.mark.anyio

LEAD = Agent(name="Lead", model="lead", tools=("Reader", "Editor"))
READER = Agent(name="Reader", description="Reads.", model="reader", tools=("note", "erase"))
EDITOR = Agent(name="Editor", description="Edits.", model="editor", tools=("Reader", "note"))
#: How often the four turns and the root are written to, making a sub-agent's turn included.
WRITES = 40
SWEEP = [
    pytest.param(at, after, id=f"{'after' if after else 'before'}-{at}")
    for at in range(1, WRITES + 1)
    for after in (False, True)
]
LINES: dict[str, tuple[ModelResponse | str, ...]] = {
    "lead": (
        asks_for(("Reader", {"prompt": "plain"}), ("Reader", {"prompt": "asking"}), ("Editor", {"prompt": "plain"})),
        asks_for(("Reader", {"prompt": "plain"})),
        "That is all.",
    ),
    "reader": (asks_for(("note", {"text": "a"})), asks_for(("note", {"text": "b"})), "Read."),
    "asking": (asks_for(("erase", {"path": "x"}), ("note", {"text": "c"})), "Erased."),
    "editor": (asks_for(("note", {"text": "d"}), ("Reader", {"prompt": "plain"})), "Edited."),
}


class MortalStore(FaultyStore):
    """Counts the making of a sub-agent's turn as an append of its caller."""

    async def create(self, new: NewTurn, facts: Sequence[f.Fact], status: Status, *, driven: bool = True) -> Claim:
        """See `Store.create`. Fails when its turn has come."""
        self.enter()
        if ":" not in new.id:
            return await self.inner.create(new, facts, status, driven=driven)
        self.appends += 1
        if self.appends != self.at:
            return await self.inner.create(new, facts, status, driven=driven)
        self.dead = True
        if self.after:
            await self.inner.create(new, facts, status, driven=driven)
        raise StoreError(f"making {new.id} fails, as planned")


class Toolbox:
    """Tools, and what they did, and every request: it outlives every process."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.requests: list[ModelRequest] = []

        @tool
        async def note(context: ToolContext, text: str) -> str:
            """Note something."""
            self.ran.append(context.idempotency_key)
            return f"noted {text}"

        @tool(needs_approval=True)
        async def erase(context: ToolContext, path: str) -> str:
            """Erase something."""
            self.ran.append(context.idempotency_key)
            return f"erased {path}"

        self.tools: list[Tool] = [note, erase, agent_tool(READER), agent_tool(EDITOR)]

    def next_line(self, request: ModelRequest, name: str) -> ModelResponse | str:
        """Choose the reply by the conversation, not by the number of calls."""
        self.requests.append(request)
        prompts = [message.text for message in request.messages if message.role == "user"]
        lines = LINES["asking" if name == "reader" and prompts[0] == "asking" else name]
        return lines[sum(bool(message.calls) for message in request.messages)]

    def find(self, name: str) -> Model:
        """The model of that name."""
        return ScriptedModel(lambda request: self.next_line(request, name), name=name, repeat=True)

    def engine(self, store: Store) -> Engine:
        """The engine of a process of its own."""
        return Engine(models=self.find, tools=self.tools, store=store)


async def finish(toolbox: Toolbox, store: Store, turn_id: str) -> TurnResult:
    """Take the tree up, give leave to whatever asks, until it has ended."""
    engine = toolbox.engine(store)
    turn = await engine.get(turn_id)
    while turn.outcome is None:
        turn = await toolbox.engine(store).resume(turn_id, {interrupt.id: True for interrupt in turn.interrupts})
    return turn


async def crashed(toolbox: Toolbox, store: FaultyStore) -> str:
    """Run the tree until its process dies. Returns the id of its root."""
    with pytest.raises(StoreError, match="as planned"):
        await finish(toolbox, store, (await toolbox.engine(store).run(LEAD, "hi")).id)
    (root,) = [row.id for row in await store.inner.turns() if ":" not in row.id]
    return root


async def journals(store: Store) -> dict[str, list[tuple[int, f.Fact]]]:
    return {row.id: await store.facts(row.id) for row in await store.turns()}


def settled(of: dict[str, list[tuple[int, f.Fact]]]) -> set[str]:
    """The calls whose result was written down, as their tools know them."""
    return {f"{turn}:{fact.call}" for turn, facts in of.items() for _, fact in facts if isinstance(fact, f.CallSettled)}


async def sound(toolbox: Toolbox, store: Store) -> None:
    """Every journal of the tree replays, and what was sent was paired."""
    for turn, facts in (await journals(store)).items():
        check = replay(facts).check
        assert check.verdict is Verdict.HOLDS, f"{turn}: {check.detail}"
    for request in toolbox.requests:
        check_pairing(request.messages)


async def test_number_of_appends_of_the_tree_equals_the_sweep() -> None:
    store, toolbox = MortalStore(MemoryStore()), Toolbox()
    turn = await finish(toolbox, store, (await toolbox.engine(store).run(LEAD, "hi")).id)
    assert (turn.outcome, turn.text, store.appends) == (Outcome.FINISHED, "That is all.", WRITES)
    assert len(await store.turns()) == 6
    await sound(toolbox, store)


@pytest.mark.parametrize(("at", "after"), SWEEP)
async def test_tree_ends_without_repeating_finished_work(at: int, after: bool) -> None:
    memory, toolbox = MemoryStore(), Toolbox()
    store = MortalStore(memory, at=at, after=after)
    root = await crashed(toolbox, store)
    left_journals, ran = await journals(memory), list(toolbox.ran)
    await store.aclose()
    turn = await finish(toolbox, memory, root)
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "That is all.")
    assert await memory.turns(live=True) == []
    assert len(await memory.turns()) == 6
    assert settled(left_journals).isdisjoint(toolbox.ran[len(ran) :])
    assert len(set(toolbox.ran)) == len(toolbox.ran), "none of these tools may run twice"
    now = await journals(memory)
    assert all(now[name][: len(facts)] == facts for name, facts in left_journals.items()), "what was written stays"
    await sound(toolbox, memory)


@pytest.mark.parametrize("at", [7, 19, 33])
async def test_tree_on_a_disk_ends_the_same(tmp_path: Path, at: int) -> None:
    toolbox, path = Toolbox(), tmp_path / "turns.db"
    store = MortalStore(SqliteStore(path, durability="normal"), at=at)
    with pytest.raises(StoreError, match="as planned"):
        await finish(toolbox, store, (await toolbox.engine(store).run(LEAD, "hi")).id)
    await store.aclose()
    again = SqliteStore(path, durability="normal")
    (root,) = [row.id for row in await again.turns() if ":" not in row.id]
    turn = await finish(toolbox, again, root)
    assert turn.outcome is Outcome.FINISHED
    assert await again.turns(live=True) == []
    await sound(toolbox, again)
    await again.aclose()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 16))
async def test_crash_during_the_stop_of_a_tree_leaves_no_live_turn(at: int, after: bool) -> None:
    """Sub-agents end first; the request outlives the process, and the next process ends the rest."""
    memory, toolbox = MemoryStore(), Toolbox()
    store = MortalStore(memory, after=after)
    engine = toolbox.engine(store)
    paused = await engine.run(LEAD, "hi")
    store.at = store.appends + at
    try:
        await engine.abort(paused.id)
    except StoreError:
        await store.aclose()
        await toolbox.engine(memory).recover()
    assert await memory.turns(live=True) == []
    await sound(toolbox, memory)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
async def test_crash_during_the_stop_of_a_running_tree_leaves_no_live_turn(at: int, after: bool) -> None:
    memory, toolbox = MemoryStore(), Toolbox()
    store = MortalStore(memory, after=after)
    stuck = anyio.Event()

    @tool(name="note")
    async def note(text: str) -> str:
        """Never end."""
        del text
        stuck.set()
        await anyio.sleep_forever()
        raise AssertionError

    engine = Engine(models=toolbox.find, tools=[note, *toolbox.tools[1:]], store=store, cancel_grace=0.0)

    async def stop() -> None:
        await stuck.wait()
        await anyio.wait_all_tasks_blocked()
        store.at = store.appends + at
        (root,) = [row.id for row in await memory.turns() if ":" not in row.id]
        await engine.abort(root)

    async with anyio.create_task_group() as group:
        group.start_soon(stop)
        try:
            await engine.run(LEAD, "hi")
        except StoreError:
            await store.aclose()
            await toolbox.engine(memory).recover()
    assert await memory.turns(live=True) == []
    await sound(toolbox, memory)
