"""An abort at every moment of a turn, and with every kind of tool; and a cancellation from outside, which is none."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from turnwright import Agent, Engine, InvalidAnswerError, Message, TurnAlreadyEndedError, TurnResult, tool
from turnwright.driver.dependencies import FinishedCall
from turnwright.message import ToolResultPart
from turnwright.model.protocol import ModelRequest, ModelResponse, TextDelta
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import NONE_ABANDONED, AbandonedDrivers, Claim, InboxItem, MemoryStore, SqliteStore, Status, Store
from turnwright.tools import Tool
from turnwright.transcript.events import DeltaEvent, ResponseRestartedEvent, TurnEvent
from turnwright.transcript.pairing import check_pairing
from turnwright_states import CallStatus, EndReason, Limits, Outcome, State
from turnwright_states import facts as f
from turnwright_states.facts import Fact
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing.faults import StoreWrapper

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Tidier")


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


@tool(needs_approval=True)
async def erase(path: str) -> str:
    return f"erased {path}"


def results(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    parts = (part for message in turn.messages for part in message.parts)
    return [(part.status, part.text) for part in parts if isinstance(part, ToolResultPart)]


class Run:
    """A turn in a task of its own: its events, and its result."""

    def __init__(self, engine: Engine, heard: list[TurnEvent]) -> None:
        self.engine = engine
        self.heard = heard
        self.before = asyncio.all_tasks()
        self.raised: BaseException | None = None

    @property
    def turn_id(self) -> str:
        return self.heard[0].turn

    async def ended(self) -> TurnResult:
        """The turn, once it is aborted for good."""
        turn = await self.engine.get(self.turn_id)
        facts = await self.engine.store.facts(self.turn_id)
        assert asyncio.all_tasks() <= self.before, "no task outlives the turn"
        assert (turn.outcome, turn.reason) == (Outcome.ABORTED, EndReason.ABORTED)
        assert self.heard[-1].type == "turn_ended"
        assert [event.type for event in self.heard].count("turn_ended") == 1
        assert replay(facts).check.verdict is Verdict.HOLDS
        live = [event for event in self.heard if not isinstance(event, DeltaEvent | ResponseRestartedEvent)]
        assert live == [event async for event in self.engine.events(self.turn_id)]
        assert not await self.engine.store.is_driven(self.turn_id)
        assert await self.engine.store.inbox(self.turn_id) == []
        check_pairing(turn.messages)
        return turn


async def abort_when(
    engine: Engine, heard: list[TurnEvent], when: anyio.Event, how: Callable[[str], Awaitable[object]] | None = None
) -> TurnResult:
    """Run a turn and abort it once `when` is set; the turn, which has then ended for good."""
    run = Run(engine, heard)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(engine.run, AGENT, "hi")
            await when.wait()
            await (how or engine.abort)(run.turn_id)
    return await run.ended()


def staged(
    *lines: Line,
    tools: Sequence[Tool] = (note, erase),
    store: Store | None = None,
    limits: Limits | None = None,
    grace: float = 0.01,
) -> tuple[Engine, list[TurnEvent], ScriptedModel]:
    heard: list[TurnEvent] = []
    model = ScriptedModel(*lines)
    engine = Engine(
        model=model,
        tools=tools,
        store=store or MemoryStore(),
        limits=limits,
        cancel_grace=grace,
        on_event=[heard.append],
    )
    return engine, heard, model


# Tools that ignore the signal.


@pytest.mark.no_waiting(False)
async def test_tool_in_a_thread_is_left_behind_and_the_late_result_dropped() -> None:
    """A thread cannot be stopped. No task waits for it."""
    started, go = anyio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool
    def block() -> str:
        loop.call_soon_threadsafe(started.set)
        go.wait(60)
        return "too late"

    engine, heard, _ = staged(asks_for(("block", {}), ("note", {})), tools=[block, note])
    try:
        turn = await abort_when(engine, heard, started)
    finally:
        go.set()
    assert [status for status, _ in results(turn)] == [CallStatus.ABORTED, CallStatus.OK]
    facts = await engine.store.facts(turn.id)
    await anyio.sleep(0.02)
    assert await engine.store.facts(turn.id) == facts


async def test_tool_raising_when_stopped_is_still_aborted() -> None:
    started = anyio.Event()

    @tool
    async def sulky() -> None:
        started.set()
        with suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep_forever()
        raise ValueError("how dare you")

    engine, heard, _ = staged(asks_for(("sulky", {}), ("note", {})), tools=[sulky, note])
    turn = await abort_when(engine, heard, started)
    assert results(turn)[0][0] in (CallStatus.ABORTED, CallStatus.ERROR)


@pytest.mark.parametrize("siblings", [0, 1])
async def test_tool_finishing_when_stopped_keeps_the_result(siblings: int) -> None:
    """It was signaled to stop, did, and reports its progress: it has finished."""
    started = anyio.Event()

    @tool
    async def polite() -> str:
        started.set()
        with suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep_forever()
        return "stopped at 5 of 10"

    asking = asks_for(("polite", {}), *[("note", {"n": n}) for n in range(siblings)])
    engine, heard, _ = staged(asking, tools=[polite, note])
    turn = await abort_when(engine, heard, started)
    assert results(turn)[0] == (CallStatus.OK, "stopped at 5 of 10")


class Slow(MemoryStore):
    """A disk that takes its time."""

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """See `Store.append`."""
        await anyio.sleep(0.02)
        return await super().append(claim, facts, status, consumed)


@pytest.mark.no_waiting(False)
async def test_results_waiting_for_the_journal_are_kept() -> None:
    """Four calls finish at once, each append takes longer than the grace: all are recorded as finished."""
    begun, all_done, done = list[int](), anyio.Event(), list[int]()
    go = anyio.Event()

    @tool
    async def work(n: int) -> str:
        begun.append(n)
        if len(begun) == 4:
            go.set()
        await go.wait()
        done.append(n)
        if len(done) == 4:
            all_done.set()
        return f"worked {n}"

    engine, heard, _ = staged(asks_for(*[("work", {"n": n}) for n in range(4)]), tools=[work], store=Slow())
    turn = await abort_when(engine, heard, all_done)
    assert [text for _, text in results(turn)] == [f"worked {n}" for n in range(4)]


# A tool that cancels itself: nobody has aborted the turn, or canceled its driver.


class Bounded(StoreWrapper):
    """Gives up after a thousand calls: an endless loop would hang the whole process, time-outs and all."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls = 0

    def enter(self) -> None:
        """Count."""
        self.calls += 1
        assert self.calls < 1000, "it goes round and round"


@tool
async def gives_itself_up(n: int = 0) -> str:
    """Waits for a task of its own that was canceled."""
    inner = asyncio.create_task(asyncio.sleep(60 + n))
    asyncio.get_running_loop().call_soon(inner.cancel)
    await inner
    return "never"


async def test_cancelled_task_of_a_call_does_not_hang_the_process() -> None:
    """Beside another call: the turn ends all the same."""
    store = Bounded(MemoryStore())
    engine, _, _ = staged(
        asks_for(("gives_itself_up", {}), ("note", {})), "Done.", tools=[gives_itself_up, note], store=store
    )
    turn = await engine.run(AGENT, "hi")
    assert turn.outcome is Outcome.FINISHED


async def test_cancelled_task_of_a_call_is_an_error_of_the_tool() -> None:
    """Alone in its batch: how a turn ends is never an exception, and nobody has canceled the driver."""
    engine, _, _ = staged(asks_for(("gives_itself_up", {})), "Done.", tools=[gives_itself_up])
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, results(turn)[0][0]) == (Outcome.FINISHED, CallStatus.ERROR)


# Hooks.


async def test_abort_during_a_history_processor_ends_the_turn() -> None:
    prepares = anyio.Event()

    async def prepare(messages: tuple[Message, ...]) -> Sequence[Message]:
        prepares.set()
        await anyio.sleep_forever()
        return messages

    heard: list[TurnEvent] = []
    model = ScriptedModel("never")
    engine = Engine(model=model, history_processor=prepare, on_event=[heard.append])
    turn = await abort_when(engine, heard, prepares)
    assert (turn.path[-2], model.requests) == (State.STREAM, [])


async def test_abort_during_a_synthesis_keeps_the_results() -> None:
    begun = anyio.Event()

    async def synthesize(batch: tuple[FinishedCall, ...]) -> str:
        begun.set()
        await anyio.sleep_forever()
        return f"{len(batch)}"

    heard: list[TurnEvent] = []
    model = ScriptedModel(asks_for(("note", {})), "never")
    engine = Engine(model=model, tools=[note], synthesize=synthesize, on_event=[heard.append], cancel_grace=0.01)
    turn = await abort_when(engine, heard, begun)
    assert (turn.path[-2], results(turn)) == (State.TOOL_EXEC, [(CallStatus.OK, "noted 0")])
    assert len(model.requests) == 1


# By whom.


class Hanging:
    """Says a few words and hangs. `hangs` is set when it does."""

    name = "hanging"

    def __init__(self, *first: ModelResponse) -> None:
        self.first = list(first)
        self.hangs = anyio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        """See `Model.stream`."""
        assert request.messages
        if self.first:
            yield self.first.pop(0)
            return
        yield TextDelta("So far")
        self.hangs.set()
        await anyio.sleep_forever()


async def test_abort_by_another_engine_on_a_memory_store_is_read_in_time() -> None:
    """It cannot poke a driver that it does not have; a store that other processes share is looked at meanwhile."""
    store, heard = MemoryStore(), list[TurnEvent]()

    @tool
    async def ask_elsewhere() -> str:
        await Engine(store=store).abort(heard[0].turn)
        return "asked"

    model = ScriptedModel(asks_for(("ask_elsewhere", {})), "It continues.")
    turn = await Engine(model=model, tools=[ask_elsewhere], store=store, on_event=[heard.append]).run(AGENT, "hi")
    assert (turn.outcome, len(model.requests)) == (Outcome.ABORTED, 1)


async def test_abort_at_a_cap_keeps_the_carried_reasons() -> None:
    model, heard = Hanging(asks_for(("note", {}))), list[TurnEvent]()
    limits = Limits(steps=1, tool_calls=1)
    engine = Engine(model=model, tools=[note], limits=limits, on_event=[heard.append])
    turn = await abort_when(engine, heard, model.hangs)
    assert turn.also_reached == (EndReason.STEP_CAP, EndReason.BUDGET)
    assert turn.text == "So far"


async def test_many_aborts_at_once_count_as_a_single_abort() -> None:
    model, heard = Hanging(), list[TurnEvent]()
    engine = Engine(model=model, on_event=[heard.append])

    async def often(turn_id: str) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(engine.abort, turn_id)

    turn = await abort_when(engine, heard, model.hangs, often)
    await engine.abort(turn.id)
    assert heard[-1].type == "turn_ended"


@pytest.mark.no_waiting(False)
async def test_turn_of_a_dead_driver_is_ended_by_the_aborter(tmp_path: Path) -> None:
    """Neither its tools nor its model are there, and the call that was started is closed without being run."""
    dead = SqliteStore(tmp_path / "turns.db")
    started = anyio.Event()

    @tool
    async def dawdle() -> None:
        started.set()
        await anyio.sleep_forever()

    engine = Engine(model=ScriptedModel(asks_for(("note", {}), ("dawdle", {}))), tools=[note, dawdle], store=dead)
    async with anyio.create_task_group() as group:
        group.start_soon(engine.run, AGENT, "hi")
        await started.wait()
        await anyio.lowlevel.checkpoint()
        async for lock in anyio.Path(tmp_path).glob("*-owner-*"):
            await lock.unlink()
        async with Engine(store=SqliteStore(tmp_path / "turns.db")) as other_engine:
            (row,) = await other_engine.store.turns()
            await other_engine.abort(row.id)
            turn = await other_engine.get(row.id)
            assert (turn.outcome, turn.reason) == (Outcome.ABORTED, EndReason.ABORTED)
            assert [status for status, _ in results(turn)] == [CallStatus.OK, CallStatus.ABORTED]
            assert replay(await other_engine.store.facts(row.id)).check.verdict is Verdict.HOLDS
        group.cancel_scope.cancel()
    await dead.aclose()


# At every moment.


class Interrupted(StoreWrapper):
    """Calls `action` at its `at`-th call, before it is done or after."""

    def __init__(self, inner: Store, action: Callable[[], Awaitable[object]], *, at: int, after: bool) -> None:
        super().__init__(inner)
        self._action, self._at, self._after = action, at, after
        self.calls = 0

    async def _due(self, *, after: bool) -> None:
        self.calls += not after
        if self.calls == self._at and after is self._after:
            self._at = 0
            await self._action()

    async def claim(self, turn_id: str, *, abandoned: AbandonedDrivers = NONE_ABANDONED) -> Claim:
        """See `Store.claim`."""
        await self._due(after=False)
        claim = await super().claim(turn_id, abandoned=abandoned)
        await self._due(after=True)
        return claim

    async def release(self, claim: Claim, *, crashed: bool = False) -> None:
        """See `Store.release`."""
        await self._due(after=False)
        await super().release(claim, crashed=crashed)
        await self._due(after=True)

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """See `Store.append`."""
        await self._due(after=False)
        waiting = await super().append(claim, facts, status, consumed)
        await self._due(after=True)
        return waiting

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        """See `Store.inbox`."""
        await self._due(after=False)
        items = await super().inbox(turn_id)
        await self._due(after=True)
        return items

    async def post(self, *items: InboxItem) -> tuple[InboxItem, ...]:
        """See `Store.post`."""
        await self._due(after=False)
        blocking = await super().post(*items)
        await self._due(after=True)
        return blocking


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_abort_at_any_call_of_the_store_ends_the_turn_once(after: bool) -> None:
    """A turn with a batch, a pause, an answer and a second batch: wherever the abort comes, it ends, and rests nowhere.

    It comes from another engine, as from another process.
    """
    at, calls = 0, 0  # the first one is not aborted, and says how many calls there are
    while at <= calls:
        memory, aborted_ids = MemoryStore(), list[str]()

        async def abort(memory: MemoryStore = memory, aborted_ids: list[str] = aborted_ids) -> None:
            (row,) = await memory.turns()
            aborted_ids.append(row.id)
            await Engine(store=memory).abort(row.id)

        lines: list[Line] = [asks_for(("note", {}), ("erase", {"path": "x"})), asks_for(("note", {"n": 1})), "Done."]
        store = Interrupted(memory, abort, at=at, after=after)
        engine, heard, model = staged(*lines, store=store)
        turn: TurnResult = await engine.run(AGENT, "hi")
        assert not aborted_ids or (await memory.get(turn.id)).status.outcome is not None, "it rests, and was to end"
        with suppress(TurnAlreadyEndedError, InvalidAnswerError):
            await engine.resume(turn.id, {"approval-1": True})
        turn = await Engine(store=memory).get(turn.id)
        facts = [fact for _, fact in await memory.facts(turn.id)]
        assert replay(await memory.facts(turn.id)).check.verdict is Verdict.HOLDS
        assert sum(isinstance(fact, f.TurnEnded) for fact in facts) == 1
        assert not await memory.is_driven(turn.id)
        check_pairing(turn.messages)
        if turn.outcome is not Outcome.ABORTED:  # the reply that ends the turn was there already
            assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
            assert len(model.requests) == 3
        assert [event.type for event in heard].count("turn_ended") <= 1
        at, calls = at + 1, calls or store.calls
    assert calls >= 15


@pytest.mark.parametrize("steps", [0, 1, 2, 4, 8, 16, 32])
async def test_abort_and_answer_at_once_end_the_turn_in_either_order(steps: int) -> None:
    """The turn is aborted either way: before the approved call, or after it."""
    engine, heard, _ = staged(asks_for(("erase", {"path": "x"})), asks_for(("note", {})), "Done.")
    paused = await engine.run(AGENT, "hi")

    async def answer() -> None:
        with suppress(TurnAlreadyEndedError):
            await engine.resume(paused.id, {"approval-1": True})

    async with anyio.create_task_group() as group:
        group.start_soon(answer)
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        await engine.abort(paused.id)
    turn = await engine.get(paused.id)
    assert turn.outcome in (Outcome.ABORTED, Outcome.FINISHED)
    assert heard[-1].type == "turn_ended"
    assert not await engine.store.is_driven(turn.id)
    assert replay(await engine.store.facts(turn.id)).check.verdict is Verdict.HOLDS


# A cancellation from outside.


async def _by_task(run: Callable[[], Awaitable[object]], when: anyio.Event) -> None:
    task = asyncio.ensure_future(run())
    await when.wait()
    task.cancel("enough")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def _by_timeout(run: Callable[[], Awaitable[object]], when: anyio.Event) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.03):
            await run()
    assert when.is_set()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def _by_wait_for(run: Callable[[], Awaitable[object]], when: anyio.Event) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(run(), 0.03)
    assert when.is_set()


async def _by_scope(run: Callable[[], Awaitable[object]], when: anyio.Event) -> None:
    with anyio.move_on_after(0.03) as scope:
        await run()
    assert scope.cancelled_caught
    assert when.is_set()


async def _twice(run: Callable[[], Awaitable[object]], when: anyio.Event) -> None:
    task = asyncio.ensure_future(run())
    await when.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


CANCELLATIONS = [_by_task, _by_timeout, _by_wait_for, _by_scope, _twice]


@pytest.mark.parametrize("cancel", CANCELLATIONS)
@pytest.mark.parametrize("where", ["stream", "tool", "tools", "conclusion", "synthesis"])
async def test_a_cancellation_goes_through_and_the_turn_can_be_taken_up(
    cancel: Callable[[Callable[[], Awaitable[object]], anyio.Event], Awaitable[None]], where: str
) -> None:
    """Nothing is written by it, nobody drives the turn afterwards, and it ends when somebody takes it up."""
    memory, started = MemoryStore(), anyio.Event()

    @tool
    async def dawdle() -> str:
        started.set()
        await anyio.sleep_forever()
        return ""

    async def synthesize(batch: tuple[FinishedCall, ...]) -> str | None:
        assert batch
        if where == "synthesis":
            started.set()
            await anyio.sleep_forever()
        return None

    names = {"tool": ["dawdle"], "tools": ["note", "dawdle"]}.get(where, ["note"])
    model = Hanging(*([] if where == "stream" else [asks_for(*[(name, {}) for name in names])]))
    if where in ("stream", "conclusion"):
        started = model.hangs
    limits = Limits(steps=1 if where == "conclusion" else None)
    tools: list[Tool] = [note, dawdle]
    engine = Engine(model=model, tools=tools, store=memory, limits=limits, synthesize=synthesize)
    before = asyncio.all_tasks()
    await cancel(lambda: engine.run(AGENT, "hi"), started)
    assert asyncio.all_tasks() <= before
    (row,) = await memory.turns()
    assert row.owner is None
    facts = await memory.facts(row.id)
    assert not any(isinstance(fact, f.TurnEnded | f.AttemptFailed) for _, fact in facts)
    other_engine = Engine(model=ScriptedModel("Done."), tools=tools, store=memory)
    (turn,) = await other_engine.recover()
    assert turn.outcome is (Outcome.CAP_HIT if where == "conclusion" else Outcome.FINISHED)
    assert (await memory.facts(row.id))[: len(facts)] == facts
    assert replay(await memory.facts(row.id)).check.verdict is Verdict.HOLDS


async def test_repeated_cancellation_leaves_a_resumable_turn() -> None:
    """Canceled again during the release, which takes a moment on a server.

    Otherwise the turn would stay this process's for ever, and nobody could resume or abort it.
    """

    class Far(StoreWrapper):
        async def release(self, claim: Claim, *, crashed: bool = False) -> None:
            await anyio.sleep(0.01)
            await super().release(claim, crashed=crashed)

    memory, model = MemoryStore(), Hanging()
    task = asyncio.create_task(Engine(model=model, store=Far(memory)).run(AGENT, "hi"))
    await model.hangs.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.002)
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.02)
    (row,) = await memory.turns()
    assert not await memory.is_driven(row.id)


@pytest.mark.parametrize("first", ["abort", "cancel"])
async def test_a_cancellation_is_not_swallowed_by_an_abort_at_the_same_moment(first: str) -> None:
    """The canceled caller gets its cancellation; the abort is done, or waits for the next driver."""
    model, heard, memory = Hanging(), list[TurnEvent](), MemoryStore()
    engine = Engine(model=model, store=memory, on_event=[heard.append])
    task = asyncio.create_task(engine.run(AGENT, "hi"))
    await model.hangs.wait()
    if first == "cancel":
        task.cancel()
    await engine.abort(heard[0].turn)
    if first == "abort":
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await Engine(model=ScriptedModel("never"), store=memory).recover()
    turn = await engine.get(heard[0].turn)
    assert (turn.outcome, turn.text) in ((Outcome.ABORTED, "So far"), (Outcome.ABORTED, ""))
