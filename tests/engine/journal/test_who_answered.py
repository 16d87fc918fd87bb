"""The person who answered, the channel and the time (docs/rules.md#who-answered)."""

import pytest
from msgspec import structs

from turnwright import Agent, ConfigError, Engine, agent_tool, reject, tool
from turnwright.journal.answers import SignatureOptions
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright_states import Turn
from turnwright_states.facts import Answered
from turnwright_states.replay import replay

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Payer")
NOW = 1_795_892_520.0  # 2026-11-28 19:02 UTC


@tool(needs_approval=True)
async def pay(invoice: str = "") -> str:
    """Pay, with leave."""
    return f"paid {invoice}"


@tool(needs_approval=True, expires_in=60)
async def pay_soon() -> str:
    """Pay, with leave that expires."""
    return "paid"


def paying(store: MemoryStore, *lines: object, **options: object) -> Engine:
    model = ScriptedModel(*(lines or (asks_for(("pay", {})), "Done.")))  # type: ignore[arg-type]
    return Engine(model=model, tools=[pay, pay_soon], store=store, now=lambda: NOW, **options)  # type: ignore[call-overload,no-any-return]


async def answered(engine: Engine, turn: str) -> list[Answered]:
    return [fact for _, fact in await engine.store.facts(turn) if isinstance(fact, Answered)]


async def test_answer_keeps_person_channel_and_time() -> None:
    """Rule 13: `by` and `via` are the caller's words, `at` is the engine's clock; the words of the fact have all."""
    engine = paying(MemoryStore())
    turn = await engine.run(AGENT, "Pay.")
    await engine.resume(turn.id, {"approval-1": True}, by="ann", via="slack")
    (fact,) = await answered(engine, turn.id)
    assert (fact.by, fact.via, fact.at) == ("ann", "slack", NOW)
    assert fact.summary() == "approval-1: approve (by ann via slack, 2026-11-28 19:02 UTC)"
    assert replay(await engine.store.facts(turn.id)).fault is None


async def test_channel_of_the_api_is_the_default() -> None:
    """Rule 13: `answer`, `resume` and a handle say `api` unless the caller says otherwise."""
    engine = paying(MemoryStore())
    turn = await engine.run(AGENT, "Pay.")
    await engine.attach(turn.id, AGENT).answer({"approval-1": reject("no")}, by="bob")
    await engine.attach(turn.id, AGENT).result()
    (fact,) = await answered(engine, turn.id)
    assert (fact.by, fact.via, fact.at) == ("bob", "api", NOW)


async def test_signature_is_part_of_the_hash() -> None:
    """Rule 13: another name gives another hash than that of the fact."""
    engine = paying(MemoryStore())
    turn = await engine.run(AGENT, "Pay.")
    await engine.resume(turn.id, {"approval-1": True}, by="ann")
    hashes = set()
    for by in ("ann", "bob"):
        folded = Turn()
        for _, fact in await engine.store.facts(turn.id):
            folded.apply(structs.replace(fact, by=by) if isinstance(fact, Answered) else fact)
            if isinstance(fact, Answered):
                hashes.add(folded.digest())
                if by == "ann":
                    assert folded.digest() == fact.hash
    assert len(hashes) == 2


async def test_signature_passes_down_to_sub_agents() -> None:
    """Rule 13: the sub-agent's journal has the person who answered its caller's copy of the question."""
    helper = Agent(name="Helper", description="Helps.", tools=["pay"])
    lines = (asks_for(("Helper", {"prompt": "Pay."})), asks_for(("pay", {})), "Paid.", "Done.")
    engine = Engine(
        model=ScriptedModel(*lines), tools=[pay, agent_tool(helper)], agents=[helper], store="memory:", now=lambda: NOW
    )
    turn = await engine.run(AGENT, "Pay.")
    (interrupt,) = turn.interrupts
    await engine.resume(turn.id, {interrupt.id: True}, by="ann", via="slack")
    (child,) = [row.id for row in await engine.turns() if row.id != turn.id]
    for name in (turn.id, child):
        (fact,) = await answered(engine, name)
        assert (fact.by, fact.via, fact.at) == ("ann", "slack", NOW)


async def test_expiry_is_the_channel_of_its_answer() -> None:
    """Rule 13: an interrupt that nobody answered is closed via `expiry`, by nobody."""
    store = MemoryStore()
    engine = paying(store, asks_for(("pay_soon", {})), "Late.")
    turn = await engine.run(AGENT, "Pay.")
    later = Engine(model=ScriptedModel("Late."), tools=[pay, pay_soon], store=store, now=lambda: NOW + 61)
    await later.resume(turn.id)
    (fact,) = await answered(later, turn.id)
    assert (fact.by, fact.via, fact.at) == ("", "expiry", NOW + 61)


async def test_name_is_not_sent_to_browsers() -> None:
    """Rule 13: `by` is missing from public events, `via` and `at` are there."""
    engine = paying(MemoryStore())
    turn = await engine.run(AGENT, "Pay.")
    await engine.resume(turn.id, {"approval-1": True}, by="ann@example.com")
    events = [event.public() for event in await engine.snapshot(turn.id)]
    (event,) = [event for event in events if event["type"] == "answered"]
    assert "ann@example.com" not in str(events)
    assert "'via': 'api'" in str(event)


async def test_same_answer_of_another_person_is_accepted_once() -> None:
    """Rule 13: a repeated answer stays no error, and the first signature stands."""
    engine = paying(MemoryStore())
    turn = await engine.run(AGENT, "Pay.")
    await engine.answer(turn.id, {"approval-1": True}, by="ann")
    await engine.answer(turn.id, {"approval-1": True}, by="bob")
    await engine.resume(turn.id)
    (fact,) = await answered(engine, turn.id)
    assert fact.by == "ann"


@pytest.mark.parametrize("signature", [{"by": 3}, {"by": "x" * 257}, {"via": "x" * 65}, {"by": "\ud800"}])
async def test_invalid_name_stores_nothing(signature: SignatureOptions) -> None:
    """Rule 13: a name is text that can be stored, of at most 256 characters, a channel of at most 64."""
    engine = paying(MemoryStore())
    turn = await engine.run(AGENT, "Pay.")
    with pytest.raises(ConfigError, match=r"^(by|via)[ :]"):
        await engine.answer(turn.id, {"approval-1": True}, **signature)
    assert await engine.store.inbox(turn.id) == []
