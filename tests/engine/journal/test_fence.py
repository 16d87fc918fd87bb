"""Two drivers of one turn: one wins, the other stops at once and has written nothing. And sweeps, which drive many."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from turnwright import Agent, Engine, LeaseLostError, StoreError, TurnResult, tool
from turnwright.message import ToolResultPart
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import Claim, InboxItem, InboxKind, MemoryStore, SqliteStore, Status, Store
from turnwright.tools import Tool, ToolContext
from turnwright.transcript.events import FactEvent, TurnEvent
from turnwright_states import CallStatus, EndReason, Outcome
from turnwright_states import facts as f
from turnwright_states.facts import Fact
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing import FaultyStore
from turnwright_testing.faults import StoreWrapper

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Tidier")


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


async def wait_for_others() -> bool:
    """Need no approval, after a wait: so the reply is written before the start."""
    await anyio.lowlevel.checkpoint()
    return False


class Place:
    """A store that several processes open, and in which a living one can be made to look dead."""

    def __init__(self, folder: Path | None = None) -> None:
        self._memory = MemoryStore()
        self._folder = folder
        self._opened: list[Store] = []

    def open(self) -> Store:
        """A handle of another process."""
        store: Store = self._memory
        if self._folder is not None:
            store = SqliteStore(self._folder / "turns.db", durability="normal")
        self._opened.append(store)
        return store

    async def bury(self) -> None:
        """Everybody who drives looks dead, and does not know."""
        if self._folder is None:
            await self._memory.aclose()
        else:
            for lock in self._folder.glob("*-owner-*"):
                lock.unlink()

    async def close(self) -> None:
        for store in self._opened:
            await store.aclose()


@pytest.fixture(params=["memory", "sqlite"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path if request.param == "sqlite" else None)
    yield place
    await place.close()


def statuses(turn: TurnResult) -> list[CallStatus]:
    parts = (part for message in turn.messages for part in message.parts)
    return [part.status for part in parts if isinstance(part, ToolResultPart)]


class Interrupted(StoreWrapper):
    """Does `action` at its `at`-th call, before it is done or after."""

    def __init__(self, inner: Store, action: Callable[[], Awaitable[object]], *, at: int, after: bool) -> None:
        super().__init__(inner)
        self._action, self._at, self._after = action, at, after
        self.calls = 0

    async def _due(self, *, after: bool) -> None:
        self.calls += not after
        if self.calls == self._at and after is self._after:
            self._at = 0
            await self._action()

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

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        """See `Store.facts`."""
        await self._due(after=False)
        facts = await super().facts(turn_id, after)
        await self._due(after=True)
        return facts


class Takeover:
    """A turn of three batches, which is taken over from its driver, and what both did."""

    def __init__(self, place: Place) -> None:
        self.place = place
        #: (who, call) of each execution, and the loser's executions that began after it lost.
        self.ran: list[tuple[str, int]] = []
        self.after_the_loss: set[str] = set()
        #: The calls that the loser had written down as started: it may not know yet that it lost.
        self.begun: set[str] = set()
        self.lost = False
        self.facts: list[tuple[int, Fact]] = []
        self.heard: list[TurnEvent] = []
        self.winner = self.engine("winner", place.open(), "Won.")

    def engine(self, name: str, store: Store, *lines: Line, heard: "list[TurnEvent] | None" = None) -> Engine:
        @tool
        async def work(n: int, context: ToolContext) -> str:
            if name == "loser" and self.lost:
                self.after_the_loss.add(context.call_id)
            self.ran.append((name, n))
            await anyio.lowlevel.checkpoint()
            return f"worked {n}"

        observers = [] if heard is None else [heard.append]
        return Engine(model=ScriptedModel(*lines), tools=[work], store=store, max_parallel_tools=2, on_event=observers)

    async def happen(self) -> None:
        """The winner claims the turn and drives it to its end, while the loser waits for its store."""
        await self.place.bury()
        rows = await self.winner.store.turns()
        self.lost = True
        before = await self.winner.store.facts(rows[0].id)
        self.begun = {fact.call for _, fact in before if isinstance(fact, f.CallStarted)}
        if rows and rows[0].status.outcome is None:
            await self.winner.resume(rows[0].id)
        self.facts = await self.winner.store.facts(rows[0].id)


BATCHES = [asks_for(*[("work", {"n": 10 * step + n}) for n in range(3)]) for step in range(2)]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("in_file", [False, True], ids=["memory", "sqlite"])
async def test_loser_of_a_takeover_writes_and_starts_nothing(in_file: bool, after: bool, tmp_path: Path) -> None:
    """In a file every seventh call will do: what differs there is the store, which has a suite of its own."""
    at, reached = (4 if in_file and after else 1), True
    while reached:
        folder = tmp_path / str(at)
        folder.mkdir()
        here = Place(folder if in_file else None)
        takeover = Takeover(here)
        store = Interrupted(here.open(), takeover.happen, at=at, after=after)
        loser = takeover.engine("loser", store, *BATCHES, "Lost.", heard=takeover.heard)
        raised: LeaseLostError | None = None
        try:
            await loser.run(AGENT, "hi")
        except LeaseLostError as error:
            raised = error
        (row,) = await takeover.winner.store.turns()
        facts = await takeover.winner.store.facts(row.id)
        reached = takeover.lost
        assert facts == takeover.facts or not reached, f"call {at}: the loser wrote after it had lost"
        assert takeover.after_the_loss <= takeover.begun, f"call {at}: the loser started a tool after it had lost"
        assert replay(facts).check.verdict is Verdict.HOLDS
        assert (row.status.outcome, row.owner) == (Outcome.FINISHED, None)
        settled = [fact.call for _, fact in facts if isinstance(fact, f.CallSettled)]
        assert len(set(settled)) == len(settled) == len({n for _, n in takeover.ran})
        assert len(takeover.ran) == len(set(takeover.ran)), "nothing ran twice"
        reported = {event.seq: event.fact for event in takeover.heard if isinstance(event, FactEvent)}
        assert reported.items() <= dict(facts).items(), "the loser reported nothing false"
        if (await takeover.winner.get(row.id)).text == "Lost.":
            assert raised is None, "it had ended before it was taken over"
        await here.close()
        at += 7 if in_file else 1
    assert at > 10


class Hanging:
    """Hangs until `go`; then it answers."""

    name = "hanging"

    def __init__(self, text: str) -> None:
        self.hangs, self.go = anyio.Event(), anyio.Event()
        self._text = text

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelResponse]:
        """See `Model.stream`."""
        assert request.messages
        self.hangs.set()
        await self.go.wait()
        yield ModelResponse(text=self._text)


@dataclass
class TakenOver:
    """A turn whose first driver was given up for dead while its model hung; another one drives it now."""

    turn: str
    models: Sequence[Hanging]
    engines: Sequence[Engine]
    #: What the first driver's run raised.
    raised: list[LeaseLostError] = field(default_factory=list)


@asynccontextmanager
async def taken_over(place: Place) -> AsyncIterator[TakenOver]:
    """Both models hang when the block begins; the block ends when both drivers have."""
    models = [Hanging("Lost."), Hanging("Won.")]
    engines = [Engine(model=model, store=place.open()) for model in models]
    scene = TakenOver("", models, engines)

    async def lose() -> None:
        try:
            await engines[0].run(AGENT, "hi")
        except LeaseLostError as error:
            scene.raised.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(lose)
        await models[0].hangs.wait()
        await place.bury()
        (row,) = await engines[1].store.turns()
        scene.turn = row.id
        group.start_soon(engines[1].resume, row.id)
        await models[1].hangs.wait()
        yield scene


async def test_loser_leaves_the_claim_and_inbox_of_the_winner(place: Place) -> None:
    """Nor does it consume what others said to the turn meanwhile."""
    async with taken_over(place) as scene:
        (lost, won), winner, turn_id = scene.models, scene.engines[1], scene.turn
        await winner.steer(turn_id, "to whom it may concern")
        lost.go.set()
        await anyio.sleep(1)
        assert scene.raised
        assert await winner.store.is_driven(turn_id)
        assert [item.kind for item in await winner.store.inbox(turn_id)] == [InboxKind.STEER]
        won.go.set()
    (row,) = await winner.store.turns()
    (fenced,) = scene.raised
    assert (fenced.turn, fenced.epoch) == (row.id, 1)
    turn = await winner.get(row.id)
    assert (turn.text, turn.undelivered) == ("Won.", ("to whom it may concern",))
    assert "attempt_failed" in [fact.kind for _, fact in await winner.store.facts(row.id)], "it had crashed"


async def test_an_abort_of_the_loser_stops_the_winner(place: Place) -> None:
    """The turn is stopped whichever engine is asked; the loser's engine drives it no more, and finds that out."""
    async with taken_over(place) as scene:
        await scene.engines[1].abort(scene.turn)
        scene.models[0].go.set()
    assert len(scene.raised) == 1
    (row,) = await scene.engines[1].store.turns()
    turn = await scene.engines[1].get(row.id)
    assert (turn.outcome, turn.reason) == (Outcome.ABORTED, EndReason.ABORTED)


# Sweeps.


async def dead(store: Store, tools: Sequence[Tool], *lines: Line, at: int | type[f.Fact]) -> str:
    """A turn whose process died at the append `at` (see `FaultyStore`). Its id."""
    earlier_ids = {row.id for row in await store.turns()}
    faulty = FaultyStore(store, at=at)
    with pytest.raises(StoreError):
        await Engine(model=ScriptedModel(*lines), tools=tools, store=faulty).run(AGENT, "hi")
    return next(row.id for row in await store.turns() if row.id not in earlier_ids)


async def test_sweep_skips_unrunnable_and_driven_turns(caplog: pytest.LogCaptureFixture) -> None:
    """The rest is driven to its end, and comes back the oldest first."""

    @tool
    async def rare() -> str:
        return "rare"

    memory = MemoryStore()
    lines: list[Line] = [asks_for(("note", {})), asks_for(("note", {"n": 1})), "Done."]
    turns = [await dead(memory, [note], *lines, at=at) for at in (f.CallSettled, 1, 4)]
    needs_more = await dead(memory, [rare], asks_for(("rare", {})), "Done.", at=f.CallSettled)
    turns.append(await dead(memory, [note], *lines, at=3))
    await memory.aclose()
    hanging = Hanging("Mine.")
    mine = Engine(model=hanging, store=memory)
    journal = await memory.facts(needs_more)
    recovered: list[TurnResult] = []
    caplog.clear()
    async with anyio.create_task_group() as group:
        group.start_soon(mine.run, AGENT, "hi")
        await hanging.hangs.wait()
        sweeper = Engine(model=ScriptedModel("I see.", repeat=True), tools=[note], store=memory)
        with caplog.at_level(logging.WARNING, "turnwright"):
            recovered += await sweeper.recover()
        assert await sweeper.recover() == [], "the second sweep finds nothing to do, and again leaves the rare one"
        hanging.go.set()
    assert [turn.id for turn in recovered] == turns
    assert {turn.outcome for turn in recovered} == {Outcome.FINISHED}
    assert f"turn {needs_more} is skipped: turn {needs_more}: its open calls need the tools rare" in caplog.text
    assert len(caplog.records) == 2, "one a sweep"
    assert await memory.facts(needs_more) == journal
    (turn,) = await Engine(model=ScriptedModel("Got it."), tools=[rare], store=memory).recover()
    assert (turn.id, turn.outcome) == (needs_more, Outcome.FINISHED)


async def test_sweep_drives_many_turns_up_to_the_limit_at_once(place: Place) -> None:
    running, most = 0, 0

    @tool(idempotent=True)
    async def work() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(1)
        running -= 1
        return "worked"

    store = place.open()
    ids = [await dead(store, [work], asks_for(("work", {})), at=f.CallSettled) for _ in range(7)]
    await place.bury()
    other_engine = Engine(
        model=ScriptedModel("Done.", repeat=True), tools=[work], store=place.open(), max_parallel_tools=3
    )
    running = most = 0
    recovered = await other_engine.recover()
    assert ([turn.id for turn in recovered], most) == (ids, 3)
    assert all(turn.outcome is Outcome.FINISHED and statuses(turn) == [CallStatus.OK] for turn in recovered)


async def test_two_sweeps_at_once_drive_each_turn_once(place: Place) -> None:
    """Between them they find everything; neither raises for being second."""
    ran: list[str] = []

    @tool(needs_approval=wait_for_others)
    async def work(n: int) -> str:
        ran.append(f"{n}")
        await anyio.sleep(1)
        return f"worked {n}"

    store = place.open()
    ids = [await dead(store, [work], asks_for(("work", {"n": n})), at=2) for n in range(5)]
    await place.bury()
    assert ran == []
    sweepers = [
        Engine(model=ScriptedModel("Done.", repeat=True), tools=[work], store=place.open(), max_parallel_tools=2)
        for _ in range(2)
    ]
    turn_results: list[TurnResult] = []

    async def sweep(engine: Engine) -> None:
        turn_results.extend(await engine.recover())

    async with anyio.create_task_group() as group:
        for sweeper in sweepers:
            group.start_soon(sweep, sweeper)
    assert sorted(turn.id for turn in turn_results) == sorted(ids)
    assert sorted(ran) == [str(n) for n in range(5)]


async def dead_and_aborted(place: Place) -> tuple[Engine, str]:
    """A turn that was aborted, and whose process died before it looked; and an engine with neither tools nor model."""

    @tool(needs_approval=wait_for_others)
    async def rare() -> str:
        raise AssertionError("it ran")

    turn_id = await dead(place.open(), [rare], asks_for(("rare", {})), at=2)
    other_engine = Engine(store=place.open())
    await other_engine.store.post(InboxItem(turn_id, "abort", InboxKind.ABORT))
    await place.bury()
    return other_engine, turn_id


async def test_unconsumed_abort_may_be_requested_again(place: Place) -> None:
    """It comes first: nothing is run for it, and its tools are not asked for."""
    other_engine, turn_id = await dead_and_aborted(place)
    await other_engine.abort(turn_id)
    turn = await other_engine.get(turn_id)
    assert (turn.outcome, statuses(turn)) == (Outcome.ABORTED, [CallStatus.ABORTED])


async def test_sweep_ends_an_aborted_turn_without_the_tools(place: Place) -> None:
    """As an abort of a turn that rests does (decision 14): an unconsumed abort survives a crash."""
    other_engine, turn_id = await dead_and_aborted(place)
    await other_engine.recover()
    assert (await other_engine.get(turn_id)).outcome is Outcome.ABORTED
