"""A turn goes to another store in one file: the same facts, its sub-agents, and what was said before; no secret."""

import json
from collections.abc import Callable

import pytest
from tests.engine.journal.test_fork import KINDS, holds, journals

from turnwright import Agent, ConfigError, Engine, StoreError, ToolContext, agent_tool, external_tool, tool
from turnwright.journal.message_history import messages_before
from turnwright.journal.turn_journal import first_fact
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright_audit.transfer import export_turn, import_turns

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_turn_of_each_kind_is_the_same_in_the_other_store(kind: str) -> None:
    store, other_store = MemoryStore(), MemoryStore()
    await KINDS[kind](store)
    before = await journals(store)
    for turn_id in before:
        assert await import_turns(other_store, await export_turn(store, turn_id)) == [turn_id]
        row, copy = await store.get(turn_id), await other_store.get(turn_id)
        assert (copy.agent, copy.model, copy.created_at) == (row.agent, row.model, row.created_at)
        assert (copy.status, copy.owner) == (row.status, None)
    after = await journals(other_store)
    assert {turn_id: facts[1:] for turn_id, facts in after.items()} == {
        turn_id: facts[1:] for turn_id, facts in before.items()
    }
    assert all(map(holds, after.values()))


async def test_sub_agents_and_earlier_messages_are_transferred() -> None:
    helper = agent_tool(Agent(name="Helper", description="Helps."), name="helper")
    script = ("Hello.", asks_for(("helper", {"prompt": "Help."})), "Helped.", "Done.")
    other_store = MemoryStore()
    async with Engine(model=ScriptedModel(*script), tools=[helper]) as engine:
        await engine.run(Agent(name="Clerk"), "hi", session="s")
        turn = await engine.run(Agent(name="Clerk"), "go on", session="s")
        lines = await export_turn(engine.store, turn.id)
        imported_ids = await import_turns(other_store, lines)
        history = await messages_before(engine.store, turn.id, first_fact(turn.id, await engine.store.facts(turn.id)))
    assert imported_ids[0] == turn.id
    assert imported_ids[1].startswith(f"{turn.id}:")
    first = first_fact(turn.id, await other_store.facts(turn.id))
    assert [message.to_json() for message in await messages_before(other_store, turn.id, first)] == [
        message.to_json() for message in history
    ]
    assert len(history) == 2


async def test_secrets_stay_and_the_journal_still_follows() -> None:
    @tool
    async def login(password: str) -> str:
        """Log in."""
        return f"password={password}"

    store = MemoryStore()
    script = [asks_for(("login", {"password": "hunter22hunter22"})) for _ in range(2)]
    async with Engine(model=ScriptedModel(*script, "password=hunter22hunter22"), tools=[login]) as engine:
        turn = await engine.run(Agent(name="Clerk"), "Use password=hunter22hunter22")
        lines = await export_turn(engine.store, turn.id)
    assert "hunter22" not in "".join(lines)
    await import_turns(store, lines)
    assert holds(await store.facts(turn.id))


async def test_secrets_given_to_calls_stay_and_the_journal_follows() -> None:
    """The hashes of these facts cover it."""

    @tool
    async def login(ctx: ToolContext) -> str:
        """Log in."""
        return "done" if ctx.ask("With what?") else "not done"

    fetch = external_tool(name="fetch", description="Fetch.", parameters={"type": "object", "properties": {}})
    store, secret = MemoryStore(), "password=hunter22hunter22"
    model = ScriptedModel(asks_for(("login", {}), ("fetch", {})), "Done.")
    async with Engine(model=model, tools=[login, fetch]) as engine:
        turn = await engine.run(Agent(name="Clerk"), "hi")
        await engine.settle(f"{turn.id}:call00002", secret)
        ended = await engine.resume(turn.id, {"question-1": secret})
        assert ended.text == "Done."
        lines = await export_turn(engine.store, turn.id)
    assert "hunter22" not in "".join(lines)
    await import_turns(store, lines)
    assert holds(await store.facts(turn.id))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("no JSON", "line 2: it is not a fact"),
        ("[1]", "line 2: it is not a fact"),
        ('{"turn": "t", "seq": 1, "kind": "nothing", "v": 1}', "unknown to this release"),
        ("\ud800", "line 2: it is not a fact"),
        ('{"turn": "\\ud800", "seq": 1, "kind": "message_added", "v": 1}', "line 2: it is not a fact"),
        *(
            (f'{{"turn": "t", "seq": 1, "kind": "message_added", "v": 1, "created_at": {at}}}', "is not a time")
            for at in ("1e999", "true", "9" * 400)
        ),
    ],
)
async def test_line_without_a_fact_is_refused_by_number(line: str, why: str) -> None:
    store = MemoryStore()
    async with Engine(model=ScriptedModel("Done.")) as engine:
        turn = await engine.run(Agent(name="Clerk"), "hi")
        lines = await export_turn(engine.store, turn.id)
    with pytest.raises(ConfigError, match=why):
        await import_turns(store, [lines[0], line, *lines[1:]])
    with pytest.raises(ConfigError, match=r"line 1: .*its seq is 2, and fact 1 of turn .* is missing"):
        await import_turns(store, lines[1:])
    with pytest.raises(ConfigError, match="does not begin with turn_started"):
        await import_turns(store, [json.dumps({**json.loads(lines[1]), "seq": 1})])
    assert await store.turns() == []
    await import_turns(store, ["", *lines])
    with pytest.raises(StoreError, match="already exists"):
        await import_turns(store, lines)
    assert json.loads(lines[0])["kind"] == "turn_started"


@pytest.mark.parametrize("change", [lambda two: two[:1], lambda two: [*two, two[1]], lambda two: [two[1], two[0]]])
async def test_omitted_doubled_or_moved_line_is_refused(change: Callable[[list[str]], list[str]]) -> None:
    store = MemoryStore()
    async with Engine(model=ScriptedModel("Done.")) as engine:
        turn = await engine.run(Agent(name="Clerk"), "hi")
        lines = await export_turn(engine.store, turn.id)
    with pytest.raises(ConfigError, match=r"its seq is \d, and fact \d of turn"):
        await import_turns(store, [lines[0], *change(lines[1:3]), *lines[3:]])
    assert await store.turns() == []
