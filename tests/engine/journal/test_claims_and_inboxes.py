"""A claim's inbox: damage is reported first, answers in time count, and a late message is returned."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from turnwright import Agent, ConfigError, Engine, UnreadableTurnError, tool
from turnwright.journal.answers import Answer, answer_item
from turnwright.journal.inbox import abort_item, steer_item
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import AbandonedDrivers, Claim, InboxItem, InboxKind, MemoryStore, SqliteStore, Status
from turnwright.store.protocol import NONE_ABANDONED
from turnwright_states import Decision, Outcome
from turnwright_states.facts import Answered, Fact, TurnEnded

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")


async def test_damaged_item_stops_a_resumed_turn_before_the_model_call(tmp_path: Path) -> None:
    file, model = tmp_path / "turns.db", ScriptedModel("Done.")
    async with Engine(model=model, store=f"sqlite:///{file}") as engine:
        turn = await engine.submit(AGENT, "hi")
        await engine.steer(turn, "And y?")
        with sqlite3.connect(file) as rows:
            rows.execute("UPDATE inbox SET kind = 'bogus'")
        rows.close()
        with pytest.raises(UnreadableTurnError, match="kind is damaged"):
            await engine.resume(turn)
        assert model.requests == []


@pytest.mark.parametrize("payload", ["no JSON", "[]", "[" * 100_000])
async def test_item_of_another_program_that_is_no_object_is_dropped(payload: str) -> None:
    """It holds up neither its own turn nor others."""

    @tool(needs_approval=True)
    async def erase() -> str:
        return "erased"

    lines = asks_for(("erase", {})), "Other.", "Done."
    async with Engine(model=ScriptedModel(*lines), tools=[erase], store=MemoryStore()) as engine:
        turn, second_turn = (await engine.run(AGENT, "hi")).id, await engine.submit(AGENT, "hi")
        for kind, item in (InboxKind.ANSWER, "answer:approval-1"), (InboxKind.STEER, "steer:1"):
            await engine.store.post(InboxItem(turn, item, kind, payload))
        recovered = {result.id: result.outcome for result in await engine.recover()}
        assert recovered == {turn: None, second_turn: Outcome.FINISHED}
        assert (await engine.resume(turn, {"approval-1": True})).outcome is Outcome.FINISHED


@pytest.mark.parametrize("message", [None, 5, ["x"], b"x", "\ud800", " "])
def test_message_that_is_no_text_is_refused(message: object) -> None:
    with pytest.raises(ConfigError, match="the message"):
        steer_item("t1", cast("str", message))


async def test_timely_answer_after_the_claim_precedes_the_expiry(tmp_path: Path) -> None:
    """Nor does the message beside it get lost."""
    now, ran = [1000.0], []

    @tool(needs_approval=True, expires_in=100.0)
    async def erase() -> str:
        ran.append("erase")
        return "erased"

    address, name = f"sqlite:///{tmp_path}/turns.db", "approval-1"
    async with Engine(
        model=ScriptedModel(asks_for(("erase", {}))), tools=[erase], store=address, now=lambda: now[0]
    ) as engine:
        turn = (await engine.run(AGENT, "hi")).id
    other_store = SqliteStore(tmp_path / "turns.db")

    class Slow(SqliteStore):
        async def claim(self, turn_id: str, *, abandoned: AbandonedDrivers = NONE_ABANDONED) -> Claim:
            claim = await super().claim(turn_id, abandoned=abandoned)
            await other_store.post(steer_item(turn_id, "And quickly."))
            await other_store.post(answer_item(turn_id, name, Answer(Decision.APPROVE, "")))
            now[0] += 101
            return claim

    store, model = Slow(tmp_path / "turns.db"), ScriptedModel("Done.")
    async with Engine(model=model, tools=[erase], store=store, now=lambda: now[0]) as engine:
        assert (await engine.resume(turn)).outcome is Outcome.FINISHED
        facts = [fact for _, fact in await engine.store.facts(turn)]
    assert [fact.decision for fact in facts if isinstance(fact, Answered)] == [Decision.APPROVE]
    assert ran == ["erase"]
    assert model.requests[0].messages[-1].text == "And quickly."
    await other_store.aclose()


async def test_message_arriving_with_an_abort_is_handed_back(tmp_path: Path) -> None:
    @tool(needs_approval=True)
    async def erase() -> str:
        return "erased"

    other_store = SqliteStore(tmp_path / "turns.db")

    class Slow(SqliteStore):
        async def append(
            self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
        ) -> list[InboxItem]:
            if any(isinstance(fact, TurnEnded) for fact in facts):
                await other_store.post(steer_item(claim.turn, "late"))
            return await super().append(claim, facts, status, consumed)

    store = Slow(tmp_path / "turns.db")
    async with Engine(model=ScriptedModel(asks_for(("erase", {}))), tools=[erase], store=store) as engine:
        turn = (await engine.run(AGENT, "hi")).id
        await other_store.post(abort_item(turn))
        ended = await engine.resume(turn)
    assert (ended.outcome, ended.undelivered) == (Outcome.ABORTED, ("late",))
    await other_store.aclose()
