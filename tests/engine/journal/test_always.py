"""Approvals that cover equal calls of a session (docs/rules.md#always)."""

from typing import Any

import pytest

from turnwright import (
    Agent,
    Answering,
    ConfigError,
    Engine,
    InvalidAnswerError,
    TurnResult,
    agent_tool,
    approve,
    reject,
    tool,
)
from turnwright.journal.answers import Answer
from turnwright.journal.standing_approvals import revoke_approvals
from turnwright.model import ScriptedModel, asks_for
from turnwright.rules import Rule
from turnwright.store import SqliteStore
from turnwright_states import AnsweredInput, AnswerMismatchError, Decision, Outcome, TurnMachine
from turnwright_states.facts import Answered, CallStarted
from turnwright_states.replay import replay

# ruff: noqa: ANN401 (what a test gives may be anything)

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")


@tool(needs_approval=True)
async def erase(path: str) -> str:
    """Erase a file."""
    return f"erased {path}"


def erases(*paths: str) -> Any:
    return asks_for(*(("erase", {"path": path}) for path in paths))


async def facts_of(engine: Engine, turn_id: str, kind: type) -> list[Any]:
    return [fact for _, fact in await engine.store.facts(turn_id) if isinstance(fact, kind)]


@pytest.mark.parametrize("answer", ["always", approve(always=True)])
async def test_equal_calls_of_the_session_are_not_asked_again(answer: str | Answer) -> None:
    """In this turn and in later ones of the session. The journal says which approval covers a call."""
    model = ScriptedModel(erases("x"), erases("x"), "Done.", erases("x"), "Again.")
    async with Engine(model=model, tools=[erase]) as engine:
        turn: TurnResult = await engine.run(AGENT, "Erase x.", session="s")
        turn = await engine.resume(turn.id, {"approval-1": answer}, by="ann")
        assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
        (answered,) = await facts_of(engine, turn.id, Answered)
        assert (answered.always, answered.decision, answered.by) == (True, Decision.APPROVE, "ann")
        assert "always for equal calls" in answered.summary()
        later: TurnResult = await engine.run(AGENT, "Erase x again.", session="s")
        assert later.text == "Again."
        (started,) = await facts_of(engine, later.id, CallStarted)
        assert started.decisions == ({"approval": f"{turn.id}/approval-1", "decision": "approved"},)
        assert f"approved always ({turn.id}/approval-1)" in started.summary()
        for turn_id in (turn.id, later.id):
            assert replay(await engine.store.facts(turn_id)).fault is None


async def test_other_calls_are_asked_as_before() -> None:
    """Other arguments, another session, and a turn without one."""
    model = ScriptedModel(erases("x"), erases("y"), *[erases("x")] * 2)
    async with Engine(model=model, tools=[erase]) as engine:
        turn = await engine.run(AGENT, "Erase.", session="s")
        paused = await engine.resume(turn.id, {"approval-1": approve(always=True)})
        (interrupt,) = paused.interrupts
        assert interrupt.arguments == {"path": "y"}
        assert (await engine.run(AGENT, "Erase.", session="s2")).paused
        assert (await engine.run(AGENT, "Erase.")).paused


async def test_plain_approval_covers_its_own_call_alone() -> None:
    async with Engine(model=ScriptedModel(erases("x"), erases("x")), tools=[erase]) as engine:
        turn = await engine.run(AGENT, "Erase.", session="s")
        assert (await engine.resume(turn.id, {"approval-1": True})).paused


async def test_approval_holds_in_another_process_until_revoked(tmp_path: Any) -> None:
    path = tmp_path / "turns.db"
    async with Engine(model=ScriptedModel(erases("x"), "Done."), tools=[erase], store=SqliteStore(path)) as engine:
        turn = await engine.run(AGENT, "Erase.", session="s")
        await engine.resume(turn.id, {"approval-1": approve(always=True)})
    model = ScriptedModel(erases("x"), "Done.", erases("x"))
    async with Engine(model=model, tools=[erase], store=SqliteStore(path)) as engine:
        assert (await engine.run(AGENT, "Erase.", session="s")).text == "Done."
        assert await engine.revoke_approvals("other") == 0
        assert await engine.revoke_approvals("s") == 1
        assert await engine.revoke_approvals("s") == 0
        assert (await engine.run(AGENT, "Erase.", session="s")).paused


async def test_approvals_are_listed_with_their_givers_and_calls() -> None:
    """An approval after a revocation counts again, also one in the same turn."""
    model = ScriptedModel(erases("x"), erases("y"), "Done.", erases("y"), "Again.", erases("x"))
    async with Engine(model=model, tools=[erase]) as engine:
        turn: TurnResult = await engine.run(AGENT, "Erase.", session="s")
        turn = await engine.resume(turn.id, {"approval-1": "always"}, by="ann", via="slack")
        (standing,) = await engine.approvals("s")
        assert (standing.id, standing.tool, standing.arguments) == (f"{turn.id}/approval-1", "erase", {"path": "x"})
        assert (standing.by, standing.via, standing.at is None) == ("ann", "slack", False)
        assert await engine.revoke_approvals("s") == 1
        assert await engine.approvals("s") == []
        (interrupt,) = turn.interrupts
        await engine.resume(turn.id, {interrupt.id: "always"}, by="bob")
        assert [(later.by, later.arguments) for later in await engine.approvals("s")] == [("bob", {"path": "y"})]
        assert (await engine.run(AGENT, "Erase y.", session="s")).text == "Again."
        assert (await engine.run(AGENT, "Erase x.", session="s")).paused


async def test_deleted_turn_takes_its_approval_along() -> None:
    async with Engine(model=ScriptedModel(erases("x"), "Done.", erases("x")), tools=[erase]) as engine:
        turn = await engine.run(AGENT, "Erase.", session="s")
        await engine.resume(turn.id, {"approval-1": approve(always=True)})
        await engine.delete(turn.id)
        assert (await engine.run(AGENT, "Erase.", session="s")).paused


async def test_app_may_refuse_an_approval_that_is_always() -> None:
    async def authorize(answering: Answering) -> bool | str:
        return "once only" if answering.always else True

    async with Engine(model=ScriptedModel(erases("x"), "Done."), tools=[erase], authorize=authorize) as engine:
        turn = await engine.run(AGENT, "Erase.")
        before = await engine.store.facts(turn.id)
        with pytest.raises(InvalidAnswerError, match="once only"):
            await engine.resume(turn.id, {"approval-1": "always"})
        assert (await engine.store.facts(turn.id), await engine.store.inbox(turn.id)) == (before, [])
        assert (await engine.resume(turn.id, {"approval-1": True})).text == "Done."


@tool(needs_approval=True, approvers=2)
async def pay() -> str:
    """Pay."""
    return "paid"


async def test_always_is_refused_for_more_than_one_plain_call() -> None:
    """Of several people, of a sub-agent, with other arguments, with rules, or with a rejection."""
    helper = agent_tool(Agent(name="Helper", description="Helps.", mode="subagent"))
    ruled = Agent(name="Ruled", rules=[Rule("asked", before="erase", need="look", effect="ask")])
    nested = asks_for(("Helper", {"prompt": "Erase."}))
    model = ScriptedModel(asks_for(("pay", {})), nested, erases("x"), erases("x"), erases("x"))

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    async with Engine(model=model, tools=[erase, pay, helper, look]) as engine:
        shared, below, plain = [await engine.run(AGENT, "Go.") for _ in range(3)]
        ruled_turn = await engine.run(ruled, "Go.")
        refused: list[tuple[TurnResult, Any]] = [
            (shared, approve(always=True)),
            (below, approve(always=True)),
            (ruled_turn, approve(always=True)),
            (plain, approve(arguments={"path": "y"}, always=True)),
            (plain, Answer(Decision.REJECT, always=True)),
        ]
        for turn, answer in refused:
            before = await engine.store.facts(turn.id)
            (interrupt,) = turn.interrupts
            with pytest.raises(InvalidAnswerError, match="always is one person's approval"):
                await engine.answer(turn.id, {interrupt.id: answer}, by="ann")
            assert (await engine.store.facts(turn.id), await engine.store.inbox(turn.id)) == (before, [])


async def test_machine_refuses_always_with_another_decision() -> None:
    """The core judges an answer that another door forged."""
    async with Engine(model=ScriptedModel(erases("x")), tools=[erase]) as engine:
        turn = await engine.run(AGENT, "Erase.")
        facts = [fact for _, fact in await engine.store.facts(turn.id)]
    forged: list[dict[str, Any]] = [
        {"decision": Decision.REJECT},
        {"decision": Decision.APPROVE, "arguments": {"path": "y"}},
    ]
    for fields in forged:
        machine = TurnMachine.resume(facts)
        with pytest.raises(AnswerMismatchError, match="always covers equal calls"):
            machine.feed(AnsweredInput(interrupt="approval-1", always=True, **fields))


async def test_revoking_needs_a_store_with_annotations() -> None:
    with pytest.raises(ConfigError, match="keeps no tags"):
        await revoke_approvals(object(), "s", 0.0)  # type: ignore[arg-type]


def test_rejection_is_never_always() -> None:
    assert not reject("no").always
