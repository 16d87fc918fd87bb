"""One driver: what a turn keeps that a bug or a guardrail stops, and how a released turn continues."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from itertools import count, pairwise
from typing import Self

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from turnwright import (
    Agent,
    CallView,
    CannotRunError,
    ConfigError,
    Engine,
    StoreError,
    ToolContext,
    ToolResult,
    Trip,
    TurnContext,
    agent_tool,
    output_guardrail,
    tool,
    tool_output_guardrail,
)
from turnwright._base.ids import child_id
from turnwright.driver.dependencies import Supplied
from turnwright.driver.driver import Driver
from turnwright.errors import StoreReplacedError, TurnBusyError, UnreadableTurnError
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for
from turnwright.model.protocol import ModelError, TextDelta
from turnwright.model.retry import Backoff
from turnwright.store import AbandonedDrivers, Claim, InboxItem, InboxKind, MemoryStore, Status, Store
from turnwright_states import Cause, EndReason, Outcome, Usage
from turnwright_states import facts as f
from turnwright_testing.faults import FaultyStore, StoreWrapper

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Helper")


@tool(idempotent=True)
async def look() -> str:
    return "seen"


@tool_output_guardrail
async def unseen(_: ToolContext, call: CallView, result: ToolResult) -> Trip | None:
    return Trip(f"{call.tool} has {result.text}")


@output_guardrail
async def broken(_: TurnContext, text: str) -> Trip | None:
    raise RuntimeError(f"it broke at {text}")


class AnsweredAtRelease(StoreWrapper):
    """A person answers at the first release of a turn, when its driver looks into the inbox no more."""

    busy = False
    answered = False

    async def release(self, claim: Claim, *, crashed: bool = False) -> None:
        await self.inner.release(claim, crashed=crashed)
        if not self.answered:
            self.answered = True
            payload = json.dumps({"interrupt": "approval-1", "decision": "approve", "text": ""})
            await self.inner.post(InboxItem(claim.turn, "answer:approval-1", InboxKind.ANSWER, payload))
            if self.busy:
                await self.inner.claim(claim.turn)


@tool(needs_approval=True)
async def whose(ctx: ToolContext[str]) -> str:
    return ctx.deps


@tool(needs_approval=True)
async def send() -> str:
    return "sent"


@tool(needs_approval=True)
async def erase() -> str:
    return "erased"


async def paused(memory: Store, *, busy: bool = False) -> tuple[Driver, str]:
    """A turn that waits for an approval, and a driver with a store where it is answered late."""
    engine = Engine(model=ScriptedModel(asks_for(("whose", {})), "Done."), tools=[whose], store=memory, deps_type=str)
    turn = await engine.run(AGENT, "Go.", deps="ours")
    store = AnsweredAtRelease(memory)
    store.busy = busy
    return Driver(store, engine.setup), turn.id


class BreaksOff:
    """A model with a bug, after a part of its reply."""

    name = "broken-1"
    supports_tools = True

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        yield TextDelta(text=f"To {len(request.messages)} message ")
        raise RuntimeError("it broke")


async def last_fact(store: Store) -> f.Fact:
    (row,) = await store.turns()
    return (await store.facts(row.id))[-1][1]


async def test_guardrail_of_a_repeated_call_ends_the_turn() -> None:
    memory = MemoryStore()
    model = ScriptedModel(asks_for(("look", {})), "Done.")
    with suppress(StoreError):  # dies when the result of the call is written
        dying = FaultyStore(memory, at=2)
        await Engine(model=model, tools=[look], guardrails=[unseen], store=dying).run(AGENT, "hi")
    await memory.aclose()
    (row,) = await memory.turns()
    turn = await Engine(model=model, tools=[look], guardrails=[unseen], store=memory).resume(row.id)
    assert (turn.outcome, turn.reason, turn.error) == (Outcome.FAILED, EndReason.GUARDRAIL, "unseen: look has seen")


async def test_turn_ended_by_a_bug_has_usage_and_time() -> None:
    store, seconds = MemoryStore(), count(100)
    reply = ModelResponse(text="Done.", usage=Usage(input_tokens=7))
    engine = Engine(model=ScriptedModel(reply), guardrails=[broken], store=store, clock=lambda: float(next(seconds)))
    turn = await engine.run(Agent(name="Helper", steps=0), "hi")
    assert (turn.outcome, turn.error) == (
        Outcome.FAILED,
        "output guardrail 'broken' raised RuntimeError: it broke at Done.",
    )
    assert turn.usage.input_tokens == 7
    assert (await last_fact(store)).elapsed


async def test_turn_ended_by_a_bug_keeps_the_partial_text() -> None:
    store = MemoryStore()
    turn = await Engine(model=BreaksOff(), store=store).run(AGENT, "hi")
    assert turn.error == "RuntimeError: it broke"
    assert turn.text == "To 1 message "


async def test_turn_ended_by_a_bug_calls_no_model() -> None:
    def breaks(_: ModelRequest) -> ModelResponse:
        raise LookupError("it broke")

    model = ScriptedModel(breaks, "Never said.")
    turn = await Engine(model=model).run(AGENT, "hi")
    assert (turn.outcome, turn.error, len(model.requests)) == (Outcome.FAILED, "LookupError: it broke", 1)


async def test_driver_after_a_late_answer_has_caller_deps_and_a_new_epoch() -> None:
    driver, turn_id = await paused(MemoryStore())
    epochs: list[int] = []
    result = await driver.drive(turn_id, on_claim=epochs.append, supplies=Supplied(deps="the caller's"))
    assert result is not None
    assert result.outcome is Outcome.FINISHED
    assert [part.text for message in result.messages for part in message.parts if part.type == "tool_result"] == [
        "the caller's"
    ]
    assert epochs == [2, 3]


async def test_late_answer_is_left_to_the_first_claimant() -> None:
    memory = MemoryStore()
    driver, turn_id = await paused(memory, busy=True)
    result = await driver.drive(turn_id, supplies=Supplied(deps="the caller's"))
    assert result is not None
    assert result.outcome is None
    assert [item.id for item in await memory.inbox(turn_id)] == ["answer:approval-1"]


async def test_an_engine_without_the_tools_of_open_calls_names_each() -> None:
    store, reply = MemoryStore(), asks_for(("send", {}), ("erase", {}))
    turn = await Engine(model=ScriptedModel(reply), tools=[send, erase], store=store).run(AGENT, "Go.")
    with pytest.raises(ConfigError) as raised:
        await Engine(model=ScriptedModel(), store=store).resume(turn.id, {"approval-1": True})
    assert str(raised.value) == f"turn {turn.id}: its open calls need the tools erase, send: give them (--tools)"


async def test_the_steps_of_a_turn_begin_at_the_time_of_the_engines_clock() -> None:
    lines = asks_for(("look", {})), asks_for(("send", {})), "Done."
    engine = Engine(model=ScriptedModel(*lines), tools=[look, send], store=MemoryStore(), now=lambda: 0.0)
    waits = await engine.run(AGENT, "Go.")
    turn = await engine.resume(waits.id, {"approval-1": True})
    begun = [part.started_at for message in turn.messages for part in message.parts if part.type == "step_start"]
    assert begun == ["1970-01-01T00:00:00.000Z"] * 3


class Observed(StoreWrapper):
    """Notes from where journals are read and how turns are released. It fails at either where a test says so."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.reads: list[int] = []
        self.released: list[bool] = []
        self.unreadable = self.full = False
        self.at_release: list[BaseException] = []

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, f.Fact]]:
        self.reads.append(after)
        if self.unreadable:
            raise StoreError("no such disk")
        return await self.inner.facts(turn_id, after)

    async def append(
        self, claim: Claim, facts: Sequence[f.Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        if self.full:
            raise StoreError("no room")
        return await self.inner.append(claim, facts, status, consumed)

    async def release(self, claim: Claim, *, crashed: bool = False) -> None:
        self.released.append(crashed)
        if self.at_release:
            raise self.at_release.pop(0)
        await anyio.lowlevel.checkpoint()
        await self.inner.release(claim, crashed=crashed)


async def asking() -> tuple[Observed, str]:
    """A turn that waits for the approval of `send`."""
    store = Observed(MemoryStore())
    turn = await Engine(model=ScriptedModel(asks_for(("send", {}))), tools=[send], store=store).run(AGENT, "Go.")
    store.released.clear()
    return store, turn.id


async def test_journal_read_for_an_answer_is_not_read_again() -> None:
    store, turn_id = await asking()
    turn = await Engine(model=ScriptedModel("Done."), tools=[send], store=store).resume(turn_id, {"approval-1": True})
    assert turn.outcome is Outcome.FINISHED
    assert store.reads.count(0) == 1


async def test_waiting_abort_needs_no_tools_and_no_second_read() -> None:
    store, turn_id = await asking()
    await store.post(InboxItem(turn_id, "abort", InboxKind.ABORT, ""))
    turn = await Engine(model=ScriptedModel(), store=store).resume(turn_id)
    assert turn.outcome is Outcome.ABORTED
    assert store.reads.count(0) == 1


class Renamed(StoreWrapper):
    """A store with a journal where a question is about a call that is not there."""

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, f.Fact]]:
        return [
            (
                seq,
                replace(fact, interrupt=replace(fact.interrupt, call="gone"))
                if isinstance(fact, f.CallWaiting)
                else fact,
            )
            for seq, fact in await self.inner.facts(turn_id, after)
        ]


async def test_inconsistent_journal_is_named() -> None:
    store, turn_id = await asking()
    payload = json.dumps({"interrupt": "approval-1", "decision": "approve", "text": ""})
    await store.post(InboxItem(turn_id, "answer:approval-1", InboxKind.ANSWER, payload))
    engine = Engine(model=ScriptedModel(), tools=[send], store=Renamed(store))
    with pytest.raises(UnreadableTurnError, match=f"^turn {turn_id}: fact 4 of the journal: call_waiting: "):
        await Driver(engine.store, engine.setup).drive(turn_id)


async def test_unreadable_journal_is_no_crash() -> None:
    store, turn_id = await asking()
    driver = Driver(store, Engine(model=ScriptedModel(), tools=[send], store=store).setup)
    store.unreadable = True
    with pytest.raises(StoreError, match="no such disk"):
        await driver.drive(turn_id)
    assert store.released == [False]


async def test_driver_canceled_during_the_release_still_records_the_crash() -> None:
    store, turn_id = await asking()
    driver = Driver(store, Engine(model=ScriptedModel(), tools=[send], store=store).setup)
    payload = json.dumps({"interrupt": "approval-1", "decision": "approve", "text": ""})
    await store.post(InboxItem(turn_id, "answer:approval-1", InboxKind.ANSWER, payload))
    store.full = True
    store.at_release.append(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await driver.drive(turn_id)
    assert store.released == [True, True]


async def test_journal_gone_at_the_release_hides_no_earlier_error() -> None:
    store, turn_id = await asking()
    store.at_release += [StoreReplacedError("gone"), StoreReplacedError("gone")]
    with pytest.raises(CannotRunError, match="need the tools send"):
        await Driver(store, Engine(model=ScriptedModel(), store=store).setup).drive(turn_id)
    await store.inner.release(await store.claim(turn_id, abandoned=AbandonedDrivers(frozenset({store.owner}))))
    with pytest.raises(StoreReplacedError, match="gone"):
        await Driver(store, Engine(model=ScriptedModel(), tools=[send], store=store).setup).drive(turn_id)


async def test_another_error_at_the_release_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    store, turn_id = await asking()
    store.at_release.append(StoreError("no room"))
    assert await Driver(store, Engine(model=ScriptedModel(), tools=[send], store=store).setup).drive(turn_id)
    (warned,) = caplog.records
    assert (warned.getMessage(), vars(warned)["turn"]) == (f"turn {turn_id} could not be released", turn_id)
    assert "StoreError: no room" in caplog.text


async def test_turn_of_a_canceled_driver_is_released_by_a_slow_store() -> None:
    store, turn_id = await asking()
    begun = anyio.Event()

    async def hangs(_: ModelRequest) -> ModelResponse:
        begun.set()
        await anyio.sleep_forever()
        raise AssertionError

    engine = Engine(model=ScriptedModel(hangs), tools=[send], store=store)
    async with anyio.create_task_group() as group:
        group.start_soon(engine.resume, turn_id, {"approval-1": True})
        await begun.wait()
        group.cancel_scope.cancel()
    assert (await store.get(turn_id)).owner is None


async def test_turn_needing_dependencies_is_named() -> None:
    driver, turn_id = await paused(MemoryStore())
    with pytest.raises(CannotRunError, match=f"^turn {turn_id}: it needs deps"):
        await driver.drive(turn_id)


async def test_model_without_waits_leaves_room_for_other_tasks() -> None:
    numbers, busy_numbers = count(), list[int]()

    def busy(_: ModelRequest) -> ModelResponse:
        busy_numbers.append(next(numbers))
        raise ModelError("busy", cause=Cause.OVERLOADED)

    async def work() -> None:
        while True:
            next(numbers)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        engine = Engine(model=ScriptedModel(busy, busy, busy, "Done."), backoff=Backoff(initial=0))
        assert (await engine.run(AGENT, "Go.")).text == "Done."
        group.cancel_scope.cancel()
    assert all(later > earlier + 1 for earlier, later in pairwise(busy_numbers))


async def test_ended_turn_is_not_claimed_again() -> None:
    store = MemoryStore()
    engine = Engine(model=ScriptedModel("Done."), store=store)
    turn = await engine.run(AGENT, "Go.")
    assert await Driver(store, engine.setup).drive(turn.id) is None
    assert (await store.get(turn.id)).epoch == 1


async def test_abandoned_driver_loses_the_turn() -> None:
    store, turn_id = await asking()
    driver = Driver(store, Engine(model=ScriptedModel(), tools=[send], store=store).setup)
    claim = await store.claim(turn_id)
    with pytest.raises(TurnBusyError):
        await driver.drive(turn_id)
    result = await driver.drive(
        turn_id, abandoned_drivers=AbandonedDrivers(frozenset({store.owner}), frozenset({claim.epoch}))
    )
    assert result is not None
    assert [interrupt.id for interrupt in result.interrupts] == ["approval-1"]


async def test_sub_agent_turn_is_taken_from_an_abandoned_driver() -> None:
    store = MemoryStore()
    reader = Agent(name="Reader", description="Reads files.")
    lines = asks_for(("Reader", {"prompt": "Read."})), asks_for(("send", {})), "Sent.", "Done."
    engine = Engine(model=ScriptedModel(*lines), tools=[send, agent_tool(reader)], store=store)
    turn = await engine.run(AGENT, "Go.")
    await engine.answer(turn.id, {turn.interrupts[0].id: True})
    claim = await store.claim(turn.id)
    await store.claim(child_id(turn.id, "call00001"))
    abandoned = AbandonedDrivers(frozenset({store.owner}), frozenset({claim.epoch}))
    result = await Driver(store, engine.setup).drive(turn.id, abandoned_drivers=abandoned)
    assert result is not None
    assert result.text == "Done."


class OneReply:
    """A model whose stream is an iterator that cannot be closed."""

    name = "plain-1"
    supports_tools = True

    def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        self.remaining = [ModelResponse(text=f"To {len(request.messages)} message.")]
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelResponse:
        return self.remaining.pop()


async def test_a_stream_of_a_model_need_not_have_a_close() -> None:
    assert (await Engine(model=OneReply()).run(AGENT, "hi")).text == "To 1 message."
