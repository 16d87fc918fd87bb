"""A turn in the background: who drives it, who waits for it, and what releases it."""

import asyncio
import gc
import itertools
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from turnwright import (
    Agent,
    CannotRunError,
    ConfigError,
    Engine,
    EngineClosedError,
    InvalidAnswerError,
    Outcome,
    StoreError,
    TurnHandle,
    TurnNotFoundError,
    agent_tool,
    tool,
)
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for
from turnwright.runtime import Local
from turnwright.store import Claim, InboxItem, MemoryStore, SqliteStore, Status, Store
from turnwright.transcript.events import TextDeltaEvent, TurnEndedEvent, TurnEvent, TurnPausedEvent
from turnwright_states import EndReason
from turnwright_states.facts import Fact
from turnwright_testing.faults import FaultyStore, StoreWrapper

pytestmark = pytest.mark.anyio

CLERK = Agent(name="Clerk")
BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


@tool(needs_approval=True)
async def erase(name: str = "") -> str:
    """Erase something, with leave."""
    return f"erased {name}"


class Held:
    """A model that answers once it may. It counts the requests that it got."""

    name = "held"

    def __init__(self) -> None:
        self.requested = anyio.Event()
        self.may = anyio.Event()
        self.requests = 0

    def line(self) -> ScriptedModel:
        async def wait(_: ModelRequest) -> str:
            self.requests += 1
            self.requested.set()
            await self.may.wait()
            return "Done."

        return ScriptedModel(wait, wait)


async def seen(events: AsyncIterator[TurnEvent]) -> list[TurnEvent]:
    return [event async for event in events]


def said(events: list[TurnEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDeltaEvent))


@asynccontextmanager
async def two(folder: Path, *models: ScriptedModel) -> AsyncIterator[list[Engine]]:
    """Engines as two processes have them, on one store."""
    async with (
        Engine(
            model=models[0], tools=[erase], store=SqliteStore(folder / "turns.db"), poll_interval=0.01
        ) as first_engine,
        Engine(
            model=models[-1], tools=[erase], store=SqliteStore(folder / "turns.db"), poll_interval=0.01
        ) as other_engine,
    ):
        yield [first_engine, other_engine]


@BOTH
async def test_started_turn_runs_in_the_background_and_has_a_result() -> None:
    """It is in the store when `start` returns, and the result may be asked for any number of times."""
    async with Engine(model=ScriptedModel("Done.")) as engine:
        handle = await engine.start(CLERK, "hi", session="s")
        assert (await engine.turns())[0].id == handle.id
        result = await handle.result()
        assert (result.id, result.outcome, result.text) == (handle.id, Outcome.FINISHED, "Done.")
        assert await handle.result() == result == await engine.get(handle.id)
        assert repr(handle) == f"TurnHandle(id={handle.id!r}, agent='Clerk')"


@BOTH
async def test_events_are_live_from_the_first_piece_of_text() -> None:
    """For every follower, of the handle or the engine, and from any place in the journal."""
    hold = Held()
    async with Engine(model=hold.line()) as engine:
        handle = await engine.start(CLERK, "hi")
        events: dict[str, list[TurnEvent]] = {}

        async def follow(name: str, source: AsyncIterator[TurnEvent]) -> None:
            events[name] = await seen(source)

        async with anyio.create_task_group() as group:
            group.start_soon(follow, "handle", handle.events())
            group.start_soon(follow, "engine", engine.events(handle.id))
            group.start_soon(follow, "later", handle.events(after=2))
            await hold.requested.wait()
            hold.may.set()
        assert said(events["handle"]) == said(events["engine"]) == said(events["later"]) == "Done."
        assert isinstance(events["handle"][-1], TurnEndedEvent)
        assert [event.seq for event in events["later"]] == [2, 3, 4, 5]  # a piece has the number of the last fact
        assert [event.seq for event in await seen(handle.events(after=2))] == [3, 4, 5]


@BOTH
async def test_dropped_handle_or_canceled_task_does_not_stop_the_turn() -> None:
    """The engine drives the turn: who started it, who waits for it and who follows it may go."""
    hold = Held()
    async with Engine(model=hold.line()) as engine:
        turn_ids: list[str] = []

        async def starter() -> None:
            handle = await engine.start(CLERK, "hi")
            turn_ids.append(handle.id)
            async with anyio.create_task_group() as group:
                group.start_soon(handle.result)
                group.start_soon(seen, handle.events())

        async with anyio.create_task_group() as group:
            group.start_soon(starter)
            await hold.requested.wait()
            group.cancel_scope.cancel()
        hold.may.set()
        result = await engine.attach(turn_ids[0], CLERK).result()
        assert (result.outcome, hold.requests) == (Outcome.FINISHED, 1)


@BOTH
async def test_closed_engine_has_released_all_turns(tmp_path: Path) -> None:
    """A caller that waits for one is informed; another engine resumes it, and the journal has no crash."""
    hold = Held()
    engine = Engine(model=hold.line(), store=SqliteStore(tmp_path / "turns.db"))
    handle = await engine.start(CLERK, "hi")
    await hold.requested.wait()

    async def wait() -> None:
        with pytest.raises(EngineClosedError):
            await handle.result()

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        await engine.aclose()
    for call in (handle.result, handle.abort):
        with pytest.raises(EngineClosedError):
            await call()
    with pytest.raises(EngineClosedError):
        await engine.start(CLERK, "hi")
    async with Engine(model=ScriptedModel("Done."), store=f"sqlite:///{tmp_path}/turns.db") as other_engine:
        row = await other_engine.store.get(handle.id)
        assert (row.owner, row.status.outcome) == (None, None)
        assert (await other_engine.resume(handle.id)).text == "Done."
        assert "crash_detected" not in {fact.kind for _, fact in await other_engine.store.facts(handle.id)}


async def test_canceled_close_still_releases_all_turns(tmp_path: Path) -> None:
    hold = Held()
    store = SqliteStore(tmp_path / "turns.db")
    started: list[str] = []
    with anyio.CancelScope() as scope:
        async with Engine(model=hold.line(), store=store) as engine:
            started.append((await engine.start(CLERK, "hi")).id)
            await hold.requested.wait()
            scope.cancel()
    async with Engine(model=ScriptedModel("Done."), store=f"sqlite:///{tmp_path}/turns.db") as other_engine:
        assert (await other_engine.store.get(started[0])).owner is None


def test_end_of_the_event_loop_releases_the_turn(tmp_path: Path) -> None:
    """Even if nobody closed the engine."""
    hold = Held()
    engine = Engine(model=hold.line(), store=SqliteStore(tmp_path / "turns.db"))

    async def first() -> str:
        handle = await engine.start(CLERK, "hi")
        await hold.requested.wait()
        return handle.id

    async def second(turn_id: str) -> Outcome | None:
        async with Engine(model=ScriptedModel("Done."), store=f"sqlite:///{tmp_path}/turns.db") as other_engine:
            assert (await other_engine.store.get(turn_id)).owner is None
            return (await other_engine.attach(turn_id, CLERK).result()).outcome

    assert asyncio.run(second(asyncio.run(first()))) is Outcome.FINISHED
    asyncio.run(engine.aclose())


@BOTH
async def test_answered_turn_continues_in_the_background() -> None:
    """The handle's next result and events are those after the answer; each answer is checked at once."""
    lines = asks_for(("erase", {"name": "a"}), ("erase", {"name": "b"})), "Done."
    async with Engine(model=ScriptedModel(*lines), tools=[erase]) as engine:
        handle = await engine.start(CLERK, "erase them")
        before = await seen(handle.events())
        assert isinstance(before[-1], TurnPausedEvent)
        first_id, second_id = (interrupt.id for interrupt in (await handle.result()).interrupts)
        with pytest.raises(InvalidAnswerError, match="approval-9"):
            await handle.answer({"approval-9": True})
        await handle.answer({first_id: True})
        paused = await handle.result()
        assert [interrupt.id for interrupt in paused.interrupts] == [second_id]
        at = (await engine.store.facts(handle.id))[-1][0]
        await handle.answer({second_id: True})
        after = await seen(handle.events(after=at))
        assert (after[0].seq, type(after[-1])) == (at + 1, TurnEndedEvent)
        assert (await handle.result()).text == "Done."


@BOTH
@pytest.mark.parametrize("engines", [False, True])
async def test_events_after_an_answer_pass_the_old_pause(engines: bool) -> None:
    """From the beginning of the journal on, a pause that was answered is an event like others."""
    async with Engine(model=ScriptedModel(asks_for(("erase", {})), "Done."), tools=[erase]) as engine:
        handle = await engine.start(CLERK, "erase it")
        interrupts = (await handle.result()).interrupts
        await handle.answer({interrupts[0].id: True})
        events = await seen(engine.events(handle.id) if engines else handle.events())
        assert [type(event) for event in events if isinstance(event, TurnPausedEvent | TurnEndedEvent)] == [
            TurnPausedEvent,
            TurnEndedEvent,
        ]
        assert said(events) == "Done."


async def test_events_after_an_answer_end_at_the_next_pause() -> None:
    """The handle is one of an attached turn, which another engine has begun and has answered once."""
    lines = asks_for(("erase", {})), asks_for(("erase", {"name": "b"})), asks_for(("erase", {"name": "c"})), "Done."
    async with Engine(model=ScriptedModel(*lines), tools=[erase]) as engine:
        begun = await engine.run(CLERK, "erase them")
        handle = engine.attach(begun.id, CLERK)
        for pauses in (2, 3):
            await handle.answer({(await engine.get(handle.id)).interrupts[0].id: True})
            events = await seen(handle.events())
            assert isinstance(events[-1], TurnPausedEvent)
            assert sum(isinstance(event, TurnPausedEvent) for event in events) == pauses


async def test_partial_answer_ends_all_events_with_a_pause() -> None:
    """The last event names what is still open, also for a follower of the whole journal."""
    lines = asks_for(("erase", {"name": "a"}), ("erase", {"name": "b"})), "Done."
    async with Engine(model=ScriptedModel(*lines), tools=[erase]) as engine:
        handle = await engine.start(CLERK, "erase them")
        answered, open_one = (interrupt.id for interrupt in (await handle.result()).interrupts)
        await handle.answer({answered: True})
        last = (await seen(handle.events()))[-1]
        assert isinstance(last, TurnPausedEvent)
        assert [interrupt.id for interrupt in last.interrupts] == [open_one]


async def test_partial_answer_ends_the_later_events_with_a_pause() -> None:
    lines = asks_for(("erase", {"name": "a"}), ("erase", {"name": "b"})), "Done."
    async with Engine(model=ScriptedModel(*lines), tools=[erase]) as engine:
        handle = await engine.start(CLERK, "erase them")
        at = (await seen(handle.events()))[-1].seq
        first_id, second_id = (interrupt.id for interrupt in (await handle.result()).interrupts)
        await handle.answer({first_id: True})
        last = (await seen(handle.events(after=at)))[-1]
        assert isinstance(last, TurnPausedEvent)
        assert [interrupt.id for interrupt in last.interrupts] == [second_id]


async def test_answer_during_the_release_of_the_driver_is_not_lost() -> None:
    """It is posted after the last look into the inbox, before the task that drives the turn has ended."""

    class Answered(FaultyStore):
        """Someone answers while the turn's driver asks whether anybody drives it on."""

        handle: TurnHandle | None = None

        async def is_driven(self, turn_id: str) -> bool:
            handle, self.handle = self.handle, None
            if handle is not None:
                await handle.answer({"approval-1": True})
            return await super().is_driven(turn_id)

    store = Answered(MemoryStore())
    async with Engine(model=ScriptedModel(asks_for(("erase", {})), "Done."), tools=[erase], store=store) as engine:
        store.handle = handle = await engine.start(CLERK, "erase it")
        result = await handle.result()
        assert store.handle is None
        assert result.outcome is Outcome.FINISHED


async def test_running_turn_is_steered_and_aborted() -> None:
    hold = Held()
    async with Engine(model=hold.line()) as engine:
        steered = await engine.start(CLERK, "hi")
        await hold.requested.wait()
        await steered.steer("be brief")
        hold.may.set()
        assert (await steered.result()).undelivered == ("be brief",)
        hold.may = anyio.Event()
        aborted = await engine.start(CLERK, "hi")
        await aborted.abort()
        assert (await aborted.result()).reason is EndReason.ABORTED


class LooksSlowly(StoreWrapper):
    """Its first look into an inbox lasts until `may` is set."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.may = anyio.Event()
        self.looked = False

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        if not self.looked:
            self.looked = True
            await self.may.wait()
        return await self.inner.inbox(turn_id)


@pytest.mark.parametrize("act", ["steer", "abort"])
async def test_turn_may_end_while_the_inbox_is_read(act: str) -> None:
    """The message or the abort came when the turn was about to end: it has nothing to say to the driver any more."""
    hold, store = Held(), LooksSlowly(MemoryStore())
    async with Engine(model=hold.line(), store=store) as engine:
        handle = await engine.start(CLERK, "hi")
        await hold.requested.wait()
        async with anyio.create_task_group() as group:
            if act == "steer":
                group.start_soon(handle.steer, "be brief")
            else:
                group.start_soon(handle.abort)
            while not store.looked:
                await anyio.lowlevel.checkpoint()
            hold.may.set()
            await handle.result()
            store.may.set()
        result = await handle.result()
    assert result.undelivered == (("be brief",) if act == "steer" else ())
    assert result.outcome is (Outcome.FINISHED if act == "steer" else Outcome.ABORTED)


async def test_handle_waits_for_another_process_and_continues(tmp_path: Path) -> None:
    """The turn is driven once, even if another process attaches to it."""
    hold = Held()
    async with two(tmp_path, hold.line(), ScriptedModel("Done by the other.")) as (first_engine, other_engine):
        turn_id = (await first_engine.start(CLERK, "hi")).id
        await hold.requested.wait()
        results: list[str] = []

        async def wait() -> None:
            results.append((await other_engine.attach(turn_id, CLERK).result()).text)

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.sleep(0.05)
            hold.may.set()
        assert (results, hold.requests) == (["Done."], 1)
        hold.may, hold.requested = anyio.Event(), anyio.Event()
        turn_id = (await first_engine.start(CLERK, "hi")).id
        await hold.requested.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.sleep(0.05)
            await first_engine.aclose()
        assert results == ["Done.", "Done by the other."]


async def test_attached_paused_turn_is_not_driven(tmp_path: Path) -> None:
    """Its result needs neither its tools nor its model."""
    model, store = ScriptedModel(asks_for(("erase", {}))), f"sqlite:///{tmp_path}/t.db"
    async with Engine(model=model, tools=[erase], store=store) as engine:
        paused = await engine.run(CLERK, "hi")
    async with Engine(store=store) as bare:
        handle = bare.attach(paused.id, CLERK)
        assert (await handle.result()).interrupts == paused.interrupts
        assert (await bare.store.get(paused.id)).epoch == 1
        await handle.abort()
        assert (await handle.result()).reason is EndReason.ABORTED


async def test_turn_unable_to_run_here_is_unchanged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The result says what is missing, each time, and so does the log."""
    model, store = ScriptedModel(asks_for(("erase", {}))), f"sqlite:///{tmp_path}/t.db"
    async with Engine(model=model, tools=[erase], store=store) as engine:
        turn_id = (await engine.run(CLERK, "hi")).id
    async with Engine(model=ScriptedModel("Done."), store=store) as bare:
        handle = bare.attach(turn_id, CLERK)
        with caplog.at_level(logging.WARNING):
            await handle.answer({"approval-1": True})
            assert [type(event).__name__ for event in await seen(handle.events(after=100))] == ["TurnPausedEvent"]
        for _ in range(2):
            with pytest.raises(CannotRunError, match="its open calls need the tools erase"):
                await handle.result()
        assert f"turn {turn_id} is skipped" in caplog.text
        assert (await bare.store.get(turn_id)).owner is None


async def test_failing_store_ends_the_events_and_raises_in_the_result() -> None:
    """Once it works again, the next result resumes the turn."""

    class Failing(FaultyStore):
        fails = True

        async def append(
            self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
        ) -> list[InboxItem]:
            if self.fails:
                raise StoreError("the disk is full")
            return await super().append(claim, facts, status, consumed)

    store = Failing(MemoryStore())
    async with Engine(model=ScriptedModel("Done.", "Done again."), store=store) as engine:
        handle = await engine.start(CLERK, "hi")
        waiting = handle.result()
        assert not isinstance((await seen(handle.events()))[-1], TurnEndedEvent)
        with pytest.raises(StoreError, match="the disk is full"):
            await waiting
        store.fails = False
        assert (await handle.result()).text == "Done again."


async def test_bug_is_logged_and_raised(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FaultyStore):
        async def release(self, claim: Claim, *, crashed: bool = False) -> None:
            raise RuntimeError(f"broken: {claim.turn}, {crashed}")

    async with Engine(model=ScriptedModel("Done."), store=Broken(MemoryStore())) as engine:
        handle = await engine.start(CLERK, "hi")
        with pytest.raises(RuntimeError, match="broken"):
            await handle.result()
        assert "this is a bug" in caplog.text


async def test_refused_attachment_has_a_reason() -> None:
    lines = asks_for(("Clerk", {"prompt": "do it"})), "Done below.", "Done."
    model = ScriptedModel(*lines)
    async with Engine(model=model, tools=[agent_tool(CLERK, description="Does it.")]) as engine:
        result = await engine.run(Agent(name="Boss"), "hi")
        (sub_turn,) = (row.id for row in await engine.turns() if row.id != result.id)
        with pytest.raises(ConfigError, match=f"attach to turn {result.id}"):
            engine.attach(sub_turn, CLERK)
        with pytest.raises(TurnNotFoundError):
            engine.attach("nobody", CLERK)
        with pytest.raises(ConfigError, match="is a turn of agent 'Boss', not of 'Clerk'"):
            await engine.attach(result.id, CLERK).result()


@pytest.mark.parametrize("durable", [False, True])
async def test_started_turn_is_driven_by_workers_of_the_runtime(durable: bool, tmp_path: Path) -> None:
    """The handle waits for them, before and after an answer; closing the engine stops nothing there."""
    store: Store = SqliteStore(tmp_path / "t.db") if durable else MemoryStore()
    model = ScriptedModel(asks_for(("erase", {})), "Done.")
    runtime = Local(embedded=False, every=0.01)
    async with Engine(model=model, tools=[erase], store=store, runtime=runtime, poll_interval=0.01) as engine:
        handle = await engine.start(CLERK, "hi")
        async with anyio.create_task_group() as group:
            group.start_soon(engine.run_worker)
            assert (await handle.result()).paused
            await handle.answer({"approval-1": True})
            events = await seen(handle.events())
            assert isinstance(events[-1], TurnEndedEvent)
            assert (await handle.result()).text == "Done."
            group.cancel_scope.cancel()


@pytest.mark.slow
async def test_crash_at_any_append_does_not_change_the_final_transcript() -> None:
    """A handle of the next process has the same transcript."""

    @tool(read_only=True)
    async def look(name: str) -> str:
        """Look at something."""
        return f"seen {name}"

    def model() -> ScriptedModel:
        def say(request: ModelRequest) -> str | ModelResponse:
            return "Done." if request.messages[-1].role == "tool" else asks_for(("look", {"name": "a"}))

        return ScriptedModel(say, repeat=True)

    counting = FaultyStore(MemoryStore())
    async with Engine(model=model(), tools=[look], store=counting) as engine:
        whole = await (await engine.start(CLERK, "hi")).result()
    texts = [(message.role, message.text) for message in whole.messages]
    assert counting.appends == 3  # the reply with the start of its call, its result, the answer
    for at, after in itertools.product(range(1, counting.appends + 1), (False, True)):
        inner = MemoryStore()
        first = Engine(model=model(), tools=[look], store=FaultyStore(inner, at=at, after=after))
        handle = await first.start(CLERK, "hi")
        with pytest.raises(StoreError, match="as planned"):
            await handle.result()
        await inner.aclose()  # as the death of its process
        async with Engine(model=model(), tools=[look], store=inner) as second:
            result = await second.attach(handle.id, CLERK).result()
            assert result.outcome is Outcome.FINISHED
            assert [(message.role, message.text) for message in result.messages] == texts, (at, after)


async def test_events_have_the_text_of_a_reply_before_their_first_request() -> None:
    """`events()` subscribes when it is called: what the caller awaits in between loses no piece of a text."""
    async with Engine(model=ScriptedModel("A fast reply.")) as engine:
        handle = await engine.start(CLERK, "Hi.")
        followed, by_engine = handle.events(), engine.events(handle.id)
        await handle.result()
        events = await seen(followed)
        assert said(events) == "A fast reply."
        assert [event.type for event in events if not isinstance(event, TextDeltaEvent)] == [
            "turn_started",
            "step_started",
            "model_replied",
            "step_finished",
            "turn_ended",
        ]
        assert [event.type for event in events].index("model_replied") > [event.type for event in events].index(
            "text_delta"
        )
        assert await seen(by_engine) == events
        assert said(await seen(handle.events())) == ""


async def test_late_events_go_past_an_answered_pause_to_the_end() -> None:
    """The pause was answered before the first event was requested: it is an event like others."""
    async with Engine(model=ScriptedModel("Wait.", asks_for(("erase", {})), "Gone."), tools=[erase]) as engine:
        await engine.run(CLERK, "First.")
        handle = await engine.start(CLERK, "Erase.")
        followed = handle.events()
        assert (await handle.result()).paused
        await handle.answer({"approval-1": True})
        assert (await handle.result()).text == "Gone."
        types = [event.type for event in await seen(followed)]
        assert types.count("paused") == 1
        assert (types[0], types[-1]) == ("turn_started", "turn_ended")


async def test_late_events_of_sub_agents_come_before_the_result_of_their_call() -> None:
    """The journals of sub-agents are read up to their first live event too."""
    helper = Agent(name="Helper", description="Helps.")
    model = ScriptedModel(asks_for(("Helper", {"prompt": "Help."})), "Helped a lot.", "All done.")
    async with Engine(model=model, tools=[agent_tool(helper)], agents=[helper]) as engine:
        handle = await engine.start(CLERK, "Hi.")
        followed = handle.events(subagents=True)
        await handle.result()
        events = await seen(followed)
        child = [event for event in events if event.turn != handle.id]
        assert said(child) == "Helped a lot."
        settled = next(place for place, event in enumerate(events) if event.type == "call_settled")
        assert all(events.index(event) < settled for event in child)
        seqs = [event.seq for event in events if event.turn == handle.id]
        assert seqs == sorted(seqs)


async def test_events_that_nobody_reads_end_with_their_object() -> None:
    """A subscription that was never read leaves no follower behind."""
    held_model = Held()
    async with Engine(model=held_model.line()) as engine:
        handle = await engine.start(CLERK, "Hi.")
        followed = handle.events()
        await held_model.requested.wait()
        assert engine._hub._followers  # noqa: SLF001 (nothing public counts them)
        del followed
        gc.collect()
        assert not engine._hub._followers  # noqa: SLF001
        held_model.may.set()
        await handle.result()


async def test_snapshot_has_the_events_so_far_and_does_not_follow() -> None:
    """It returns at once while the turn runs, and `events` continues behind it."""
    held_model = Held()
    async with Engine(model=held_model.line()) as engine:
        handle = await engine.start(CLERK, "Hi.")
        await held_model.requested.wait()
        snapshot = await engine.snapshot(handle.id)
        assert [event.type for event in snapshot] == ["turn_started", "step_started"]
        held_model.may.set()
        await handle.result()
        behind = await seen(engine.events(handle.id, after=snapshot[-1].seq))
        assert [*snapshot, *behind] == await engine.snapshot(handle.id)
        assert await engine.snapshot(handle.id, after=snapshot[-1].seq) == behind
        with pytest.raises(TurnNotFoundError):
            await engine.snapshot("none")
