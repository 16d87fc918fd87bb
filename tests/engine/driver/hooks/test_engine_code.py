"""Hooks and guardrails of an engine: the journal has their names, and an engine without them leaves the turn alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import pytest

from turnwright import (
    Agent,
    CallView,
    CannotRunError,
    Engine,
    Guardrail,
    Hooks,
    Outcome,
    Reject,
    State,
    ToolContext,
    Trip,
    TurnContext,
    TurnResult,
    agent_tool,
    before_tool,
    output_guardrail,
    tool,
    tool_input_guardrail,
)
from turnwright.journal.turn_journal import first_fact
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.runtime import Local
from turnwright.store import MemoryStore

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Clerk")
LACKS = "it began with hook 'reject_wire' and guardrails 'no_secrets', 'no_wire' of its engine, missing here"


@tool(needs_approval=True)
async def sign() -> str:
    return "signed"


@before_tool(tools=["wire"])
async def reject_wire(ctx: ToolContext, call: CallView) -> Reject:
    return Reject("never")


@output_guardrail
async def no_secrets(ctx: TurnContext, text: str) -> Trip | None:
    return Trip("The answer had a secret.") if "hunter2" in text else None


@tool_input_guardrail
async def no_wire(ctx: ToolContext, call: CallView) -> Trip | None:
    return Trip("No wires.") if call.tool == "wire" and call.arguments["amount"] != 1 else None


def lines(request: ModelRequest) -> ModelResponse | str:
    """Ask for an approval, then wire money, then answer with the password."""
    replies = (
        asks_for(("sign", {})),
        asks_for(("wire", {"amount": 1})),
        "The password is hunter2.",
    )
    return replies[sum(message.role == "assistant" for message in request.messages)]


@dataclass
class Bank:
    """Engines of one store. `wired` are the amounts that the tool `wire` moved."""

    store: MemoryStore = field(default_factory=MemoryStore)
    wired: list[int] = field(default_factory=list)

    def engine(
        self, hooks: Sequence[Hooks] = (), guardrails: Sequence[Guardrail] = (), runtime: Local | None = None
    ) -> Engine:
        @tool
        async def wire(amount: int) -> str:
            self.wired.append(amount)
            return "sent"

        helper = agent_tool(Agent(name="Helper", mode="subagent", description="Helps."))
        return Engine(
            model=ScriptedModel(lines, repeat=True),
            tools=[sign, wire, helper],
            store=self.store,
            hooks=hooks,
            guardrails=guardrails,
            runtime=runtime,
        )

    def guarded(self, runtime: Local | None = None) -> Engine:
        return self.engine([reject_wire], [no_wire, no_secrets], runtime)

    async def paused(self) -> TurnResult:
        turn = await self.guarded().run(AGENT, "Wire it.")
        assert turn.paused
        return turn


async def test_turn_started_has_the_names_of_the_engines_code() -> None:
    bank = Bank()
    turn = await bank.paused()
    started = first_fact(turn.id, await bank.store.facts(turn.id))
    assert (started.hooks, started.guardrails) == (("reject_wire",), ("no_wire", "no_secrets"))


@pytest.mark.parametrize("with_answers", [True, False])
async def test_resume_without_the_engines_code_is_refused(*, with_answers: bool) -> None:
    """Nothing is written, so an engine with the code continues the turn."""
    bank = Bank()
    turn = await bank.paused()
    before = await bank.store.facts(turn.id)
    with pytest.raises(CannotRunError, match=LACKS):
        await bank.engine().resume(turn.id, {"approval-1": True} if with_answers else None)
    assert (await bank.store.facts(turn.id), await bank.store.inbox(turn.id)) == (before, [])
    done = await bank.guarded().resume(turn.id, {"approval-1": True})
    assert (done.outcome, str(done.reason), done.text, bank.wired) == (
        Outcome.FAILED,
        "guardrail",
        "withheld by no_secrets",
        [],
    )


async def test_error_names_only_the_missing_code() -> None:
    bank = Bank()
    turn = await bank.paused()
    with pytest.raises(CannotRunError, match="it began with guardrail 'no_secrets' of its engine"):
        await bank.engine([reject_wire], [no_wire]).resume(turn.id, {"approval-1": True})
    with pytest.raises(CannotRunError, match="it began with hook 'reject_wire' of its engine"):
        await bank.engine([], [no_secrets, no_wire]).resume(turn.id, {"approval-1": True})


async def test_an_engine_with_more_hooks_continues_the_turn() -> None:
    """Only missing code is refused: another policy is added to the turns that wait."""
    bank = Bank()
    turn = await bank.engine([reject_wire]).run(AGENT, "Wire it.")
    done = await bank.guarded().resume(turn.id, {"approval-1": True})
    assert (done.reason, bank.wired) == ("guardrail", [])


async def test_name_used_twice_is_needed_twice() -> None:
    def named() -> Hooks:
        @before_tool
        async def same(ctx: ToolContext, call: CallView) -> None:
            return None

        return same

    bank = Bank()
    turn = await bank.engine([named(), named()]).run(AGENT, "Wire it.")
    with pytest.raises(CannotRunError, match="it began with hook 'same' of its engine"):
        await bank.engine([named()]).resume(turn.id, {"approval-1": True})


async def test_followers_and_handles_without_the_code_are_refused() -> None:
    bank = Bank()
    turn = await bank.paused()
    with pytest.raises(CannotRunError, match=LACKS):
        async with bank.engine().stream_resume(turn.id, {"approval-1": True}) as events:
            assert [event async for event in events] == []
    with pytest.raises(CannotRunError, match=LACKS):
        await bank.engine().attach(turn.id, AGENT).answer({"approval-1": True})
    await bank.guarded().answer(turn.id, {"approval-1": True})
    with pytest.raises(CannotRunError, match=LACKS):
        await bank.engine().attach(turn.id, AGENT).result()
    assert bank.wired == []


async def test_recover_leaves_a_turn_without_the_engine_code(caplog: pytest.LogCaptureFixture) -> None:
    bank = Bank()
    turn = await bank.paused()
    await bank.guarded().answer(turn.id, {"approval-1": True})
    assert await bank.engine().recover() == []
    assert [LACKS in message for message in caplog.messages] == [True]
    (done,) = await bank.guarded().recover()
    assert (done.reason, bank.wired) == ("guardrail", [])


@pytest.mark.no_waiting
async def test_worker_leaves_a_turn_without_the_engine_code(caplog: pytest.LogCaptureFixture) -> None:
    bank = Bank()
    turn_id = await bank.guarded().submit(AGENT, "Wire it.")
    with anyio.move_on_after(5):
        await bank.engine(runtime=Local(embedded=False)).run_worker()
    assert any(LACKS in message for message in caplog.messages)
    assert [fact.kind for _, fact in await bank.store.facts(turn_id)] == ["turn_started", "step_started"]
    with anyio.move_on_after(5):
        await bank.guarded(Local(embedded=False)).run_worker()
    assert (await bank.guarded().get(turn_id)).state is State.PAUSED


async def test_fork_needs_the_code_of_the_original() -> None:
    bank = Bank()
    turn = await bank.paused()
    places = await bank.engine().fork_places(turn.id)
    fork = await bank.engine().fork(turn.id, at=places[-1].last)
    with pytest.raises(CannotRunError, match=f"turn {fork}: {LACKS}"):
        await bank.engine().resume(fork, {"approval-1": True})
    done = await bank.guarded().resume(fork, {"approval-1": True})
    assert (done.reason, bank.wired) == ("guardrail", [])


async def test_turn_of_a_sub_agent_has_the_names_of_the_engines_code() -> None:
    bank = Bank()
    lead = Engine(
        model=ScriptedModel(asks_for(("Helper", {"prompt": "Help."})), asks_for(("sign", {}))),
        tools=[*bank.engine().setup.tools.values()],
        store=bank.store,
        hooks=[reject_wire],
        guardrails=[no_wire, no_secrets],
    )
    turn = await lead.run(Agent(name="Lead"), "Ask for help.")
    (child,) = [row.id for row in await bank.store.turns() if row.id != turn.id]
    started = first_fact(child, await bank.store.facts(child))
    assert (started.hooks, started.guardrails) == (("reject_wire",), ("no_wire", "no_secrets"))
    with pytest.raises(CannotRunError, match=LACKS):
        await bank.engine().resume(turn.id, {turn.interrupts[0].id: True})


async def test_an_abort_needs_no_code_of_the_engine() -> None:
    bank = Bank()
    turn = await bank.paused()
    await bank.engine().abort(turn.id)
    assert (await bank.engine().get(turn.id)).outcome is Outcome.ABORTED
