"""Somebody stops the turn: in every state, from here and from elsewhere, once and twice."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from turnwright import Agent, Engine, StoreError, TurnNotFoundError, TurnResult, tool
from turnwright.message import TextPart, ToolResultPart
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse, ResponseToolCall, TextDelta
from turnwright.model.retry import Backoff
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import InboxItem, InboxKind, MemoryStore
from turnwright.tools import Tool
from turnwright.transcript.events import FactEvent, TurnEndedEvent, TurnEvent
from turnwright_states import CallStatus, Cause, EndReason, Limits, Outcome, State
from turnwright_states import facts as f
from turnwright_testing import FaultyStore

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Tidier")


class Hanging:
    """Asks for what `first` says, then says a few words and hangs. `hangs` is set when it does."""

    name = "hanging"

    def __init__(self, *first: ModelResponse | ModelError) -> None:
        self.first = list(first)
        self.hangs = anyio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        assert request.messages
        if self.first:
            line = self.first.pop(0)
            if isinstance(line, ModelError):
                self.hangs.set()
                raise line
            yield line
            return
        yield TextDelta("So far")
        yield TextDelta(" so good")
        self.hangs.set()
        await anyio.sleep_forever()


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


def results(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    parts = (part for message in turn.messages for part in message.parts)
    return [(part.status, part.text) for part in parts if isinstance(part, ToolResultPart)]


async def aborted(
    engine: Engine, agent: Agent, when: anyio.Event, how: Callable[[str], Awaitable[object]] | None = None
) -> TurnResult:
    """Run a turn, abort it once `when` is set, and check that it stopped: at once, with all its tasks, for good."""
    before = asyncio.all_tasks()
    heard: list[TurnEvent] = []
    turns: list[TurnResult] = []

    async def run() -> None:
        async with engine.stream(agent, "hi") as events:
            heard.append(await anext(events))
            heard.extend([event async for event in events])
        turns.append(await engine.get(heard[0].turn))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await when.wait()
            while not heard:
                await anyio.lowlevel.checkpoint()
            await (how or engine.abort)(heard[0].turn)
    (turn,) = turns
    assert heard[-1].type == "turn_ended", "and nothing is published after it"
    assert asyncio.all_tasks() <= before, "no task outlives the turn"
    assert not await engine.store.is_driven(turn.id)
    assert await engine.store.inbox(turn.id) == []
    assert (turn.outcome, turn.reason) == (Outcome.ABORTED, EndReason.ABORTED)
    return turn


async def test_abort_during_a_stream_keeps_the_partial_text() -> None:
    model = Hanging()
    turn = await aborted(Engine(model=model), AGENT, model.hangs)
    assert (turn.text, turn.steps, turn.path[-2]) == ("So far so good", 1, State.STREAM)


async def test_abort_during_a_text_only_call_keeps_the_partial_text() -> None:
    model = Hanging()
    turn = await aborted(Engine(model=model, limits=Limits(steps=0)), AGENT, model.hangs)
    assert (turn.text, turn.steps, turn.path[-2]) == ("So far so good", 0, State.TEXT_ONLY)


async def test_abort_during_the_conclusion_keeps_the_limit_as_a_reason() -> None:
    """The abort wins; the reason that the conclusion carried is in `also_reached`, and its words are kept."""
    model = Hanging(asks_for(("note", {})))
    turn = await aborted(Engine(model=model, tools=[note], limits=Limits(steps=1)), AGENT, model.hangs)
    assert (turn.path[-2], turn.also_reached) == (State.CONCLUDE, (EndReason.STEP_CAP,))
    assert turn.text == "So far so good"


async def test_abort_during_the_wait_for_a_retry_ends_the_turn() -> None:
    model = Hanging(ModelError("busy", cause=Cause.OVERLOADED, retry_after=60))
    turn = await aborted(Engine(model=model, backoff=Backoff(initial=0)), AGENT, model.hangs)
    assert (turn.text, turn.path[-2]) == ("", State.STREAM)


async def test_tool_finishing_within_the_grace_keeps_the_result() -> None:
    """Within the grace; its result is kept, and the model is not called again."""
    started = anyio.Event()

    @tool
    async def work() -> str:
        started.set()
        await anyio.sleep(0.02)
        return "worked"

    model = ScriptedModel(asks_for(("work", {})), "never said")
    turn = await aborted(Engine(model=model, tools=[work], cancel_grace=1), AGENT, started)
    assert results(turn) == [(CallStatus.OK, "worked")]
    assert len(model.requests) == 1


async def test_call_started_with_a_reply_runs_despite_the_next_abort() -> None:
    """Between its start and its work nothing may come: its outcome would be lost."""
    aborts: list[asyncio.Task[None]] = []

    def listen(event: TurnEvent) -> None:
        if isinstance(event, FactEvent) and isinstance(event.fact, f.CallStarted):
            aborts.append(asyncio.create_task(engine.abort(event.turn)))

    engine = Engine(model=ScriptedModel(asks_for(("note", {}))), tools=[note], on_event=[listen])
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, results(turn)) == (Outcome.ABORTED, [(CallStatus.OK, "noted 0")])


async def test_unending_tool_is_stopped_and_sibling_results_are_kept() -> None:
    started, cancelled = anyio.Event(), anyio.Event()

    @tool
    async def dawdle() -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    asking = asks_for(("note", {"n": 1}), ("dawdle", {}), ("note", {"n": 2}), text="Let me see.")
    engine = Engine(model=ScriptedModel(asking), tools=[note, dawdle], cancel_grace=0.02)
    turn = await aborted(engine, AGENT, started)
    assert cancelled.is_set()
    assert results(turn) == [
        (CallStatus.OK, "noted 1"),
        (CallStatus.ABORTED, "not finished: the turn ended (aborted); it had begun: verify before retrying"),
        (CallStatus.OK, "noted 2"),
    ]
    texts = [p.text for m in turn.messages for p in m.parts if isinstance(p, TextPart)]
    assert texts == ["hi", "Let me see."], "a journaled reply is not partial text"


async def test_no_call_starts_after_the_abort() -> None:
    """Calls that wait for a place to run in never get it, grace or not."""
    started, ran = anyio.Event(), list[str]()

    @tool
    async def work(name: str) -> str:
        started.set()
        await anyio.sleep(0.02)
        ran.append(name)
        return name

    asking = asks_for(("work", {"name": "first"}), ("work", {"name": "second"}))
    engine = Engine(model=ScriptedModel(asking, "never said"), tools=[work], max_parallel_tools=1, cancel_grace=1)
    turn = await aborted(engine, AGENT, started)
    assert ran == ["first"]
    assert [status for status, _ in results(turn)] == [CallStatus.OK, CallStatus.ABORTED]
    assert turn.tool_calls == 1


async def test_tool_may_abort_the_running_turn() -> None:
    engines: list[Engine] = []
    ids: list[str] = []

    @tool
    async def give_up() -> None:
        await engines[0].abort(ids[0])
        await anyio.sleep_forever()

    model = ScriptedModel(asks_for(("give_up", {})))
    engine = Engine(model=model, tools=[give_up], cancel_grace=0.01, on_event=[lambda event: ids.append(event.turn)])
    engines.append(engine)
    with anyio.fail_after(60):
        turn = await engine.run(AGENT, "hi")
    assert turn.outcome is Outcome.ABORTED


async def test_aborting_twice_is_aborting_once() -> None:
    model = Hanging()
    engine = Engine(model=model)

    async def twice(turn_id: str) -> None:
        await engine.abort(turn_id)
        await engine.abort(turn_id)

    turn = await aborted(engine, AGENT, model.hangs, twice)
    await engine.abort(turn.id)
    assert await engine.get(turn.id) == turn


async def test_abort_of_an_ended_turn_changes_nothing() -> None:
    engine = Engine(model=ScriptedModel("Done."))
    turn = await engine.run(AGENT, "hi")
    await engine.abort(turn.id)
    assert await engine.get(turn.id) == turn


async def test_an_unknown_turn_cannot_be_aborted() -> None:
    with pytest.raises(TurnNotFoundError, match="nobody"):
        await Engine(model=ScriptedModel()).abort("nobody")


# A turn that rests.


@tool(needs_approval=True)
async def erase(path: str) -> str:
    return path


ERASING = asks_for(("erase", {"path": "x"}), ("note", {}))


async def test_a_paused_turn_is_ended_at_once() -> None:
    engine = Engine(model=ScriptedModel(ERASING), tools=[note, erase])
    paused = await engine.run(AGENT, "hi")
    await engine.abort(paused.id)
    turn = await engine.get(paused.id)
    assert (turn.outcome, turn.reason, turn.interrupts) == (Outcome.ABORTED, EndReason.ABORTED, ())
    assert [status for status, _ in results(turn)] == [CallStatus.ABORTED, CallStatus.OK]
    assert not await engine.store.is_driven(turn.id)


async def test_two_simultaneous_aborts_of_a_paused_turn_are_fine() -> None:
    """Neither raises for being second."""

    class Slow(MemoryStore):
        """Takes its time to say whether a turn is driven; in the meantime, somebody else is quicker."""

        async def is_driven(self, turn_id: str) -> bool:
            driven = await super().is_driven(turn_id)
            await anyio.sleep(0.01)
            return driven

    engine = Engine(model=ScriptedModel(ERASING), tools=[note, erase], store=Slow())
    paused = await engine.run(AGENT, "hi")
    async with anyio.create_task_group() as group:
        group.start_soon(engine.abort, paused.id)
        group.start_soon(engine.abort, paused.id)
    assert (await engine.get(paused.id)).outcome is Outcome.ABORTED
    assert not await engine.store.is_driven(paused.id)


async def test_abort_needs_neither_tools_nor_model() -> None:
    store = MemoryStore()
    paused = await Engine(model=ScriptedModel(ERASING), tools=[note, erase], store=store).run(AGENT, "hi")
    bare = Engine(store=store)
    await bare.abort(paused.id)
    assert (await bare.get(paused.id)).outcome is Outcome.ABORTED


async def test_events_of_an_abort_at_rest_equal_the_journal() -> None:
    """The live event and the one that is read again are one."""
    heard: list[TurnEvent] = []
    asking = asks_for(("erase", {"path": "x"}), text="I would erase it.")
    engine = Engine(model=ScriptedModel(asking), tools=[erase], on_event=[heard.append])
    paused = await engine.run(AGENT, "hi")
    await engine.abort(paused.id)
    recorded = [event async for event in engine.events(paused.id)]
    assert heard[-1] == recorded[-1]


# From another process.


async def test_another_process_aborts_through_the_inbox(tmp_path: Path) -> None:
    """It needs no claim, and does not wait."""
    address = f"sqlite:///{tmp_path / 'turns.db'}"
    model = Hanging()
    async with Engine(model=model, store=address) as engine, Engine(store=address) as other_engine:
        turn = await aborted(engine, AGENT, model.hangs, other_engine.abort)
        assert turn.text == "So far so good"


async def test_unconsumed_abort_survives_a_crash() -> None:
    """And then it comes first: a started call is not run again, and no retry is spent (docs/rules.md#leases)."""
    ran: list[str] = []

    @tool(idempotent=True)
    async def work() -> str:
        ran.append("work")
        return "worked"

    memory = MemoryStore()
    store = FaultyStore(memory, at=3)  # the reply, the start, and then the result
    engine = Engine(model=ScriptedModel(asks_for(("work", {}))), tools=[work], store=store)
    with pytest.raises(StoreError):
        await engine.run(AGENT, "hi")
    await store.aclose()
    (row,) = await memory.turns()
    await memory.post(InboxItem(row.id, "abort", InboxKind.ABORT))
    heard: list[TurnEvent] = []
    (turn,) = await Engine(model=ScriptedModel(), tools=[work], store=memory, on_event=[heard.append]).recover()
    assert turn.outcome is Outcome.ABORTED
    assert isinstance(heard[-1], TurnEndedEvent)
    assert ran == ["work"]
    assert await memory.inbox(row.id) == []


async def test_abort_is_consumed_only_with_the_fact_of_the_abort() -> None:
    """It comes while a reply is being finished; the reply is written, and then the process dies."""
    ids: list[str] = []
    memory = MemoryStore()
    store = FaultyStore(memory, at=2)

    class Finishing:
        name = "finishing"

        async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
            assert request.messages
            with anyio.CancelScope(shield=True):
                await engine.abort(ids[0])
                await anyio.sleep(0.01)
            yield ModelResponse(calls=(ResponseToolCall("note", {}),))

    engine = Engine(model=Finishing(), tools=[note], store=store, on_event=[lambda event: ids.append(event.turn)])
    with pytest.raises(StoreError):
        await engine.run(AGENT, "hi")
    facts = [fact for _, fact in await memory.facts(ids[0])]
    assert isinstance(facts[2], f.ModelReplied)
    assert [item.id for item in await memory.inbox(ids[0])] == ["abort"]


# An outer cancellation is not an abort.


async def test_a_cancellation_is_not_swallowed_and_costs_no_retry() -> None:
    """The journal stays as it is, the turn is released, and it continues later as if nothing had happened."""
    memory, model = MemoryStore(), Hanging()
    engine = Engine(model=model, store=memory, limits=Limits(max_retries=0))
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(engine.run, AGENT, "hi")
            await model.hangs.wait()
            scope.cancel()
    assert scope.cancelled_caught
    (row,) = await memory.turns()
    assert (row.owner, row.status.state) == (None, State.STREAM)
    assert [fact.kind for _, fact in await memory.facts(row.id)] == ["turn_started", "step_started"]
    again = Engine(model=ScriptedModel("Done."), store=memory)
    (turn,) = await again.recover()
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
    assert "attempt_failed" not in [fact.kind for _, fact in await memory.facts(row.id)]


async def test_native_cancellation_is_not_swallowed() -> None:
    memory, model = MemoryStore(), Hanging()
    engine = Engine(model=model, store=memory)
    task = asyncio.create_task(engine.run(AGENT, "hi"))
    await model.hangs.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await memory.turns())[0].owner is None


async def test_cancelled_tool_settles_as_unknown_when_the_turn_goes_on() -> None:
    """Its outcome is unknown, and the model receives that (docs/rules.md#recovery)."""
    started = anyio.Event()

    @tool
    async def dawdle() -> None:
        started.set()
        await anyio.sleep_forever()

    memory = MemoryStore()
    tools: list[Tool] = [dawdle]
    engine = Engine(model=ScriptedModel(asks_for(("dawdle", {}))), tools=tools, store=memory)
    async with anyio.create_task_group() as group:
        group.start_soon(engine.run, AGENT, "hi")
        await started.wait()
        group.cancel_scope.cancel()
    (turn,) = await Engine(model=ScriptedModel("I see."), tools=tools, store=memory).recover()
    ((status, text),) = results(turn)
    assert (status, turn.outcome) == (CallStatus.UNKNOWN, Outcome.FINISHED)
    assert "verify before retrying" in text


@pytest.mark.parametrize("seconds", [0.9, 1.0])
async def test_a_direct_result_within_the_grace_of_an_abort_is_the_answer(seconds: float) -> None:
    """It has ended the turn when the abort's turn comes, also at the very end of the grace."""
    start = anyio.Event()

    @tool(return_direct=True)
    async def give() -> str:
        start.set()
        await anyio.sleep(seconds)
        return "given"

    engine = Engine(model=ScriptedModel(asks_for(("give", {}))), tools=[give], cancel_grace=1.0)
    turn = await engine.start(AGENT, "hi")
    await start.wait()
    await turn.abort()
    result = await turn.result()
    assert (result.outcome, result.reason, result.text) == (Outcome.FINISHED, EndReason.ANSWERED, "given")
    await engine.aclose()


async def test_time_of_an_action_cut_off_by_an_abort_counts() -> None:
    model = ScriptedModel(asks_for(("rest", {})), "Done.")

    @tool
    async def rest() -> str:
        await anyio.sleep(60)
        return "rested"

    async with Engine(model=model, tools=[rest], clock=anyio.current_time, cancel_grace=1) as engine:
        handle = await engine.start(AGENT, "hi")
        await anyio.sleep(5)
        await handle.abort()
        await handle.result()
        (_, last) = (await engine.store.facts(handle.id))[-1]
    assert last.elapsed == 6
