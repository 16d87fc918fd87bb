"""A turn is followed wherever it is driven: each fact arrives once, in order, and is read from the journal once."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright import Agent, Engine, TurnContext, after_model, tool
from turnwright.journal.event_bus import EventBus
from turnwright.journal.follow import follow
from turnwright.journal.held_events import HeldEvents
from turnwright.model import ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.runtime import Local
from turnwright.store import Claim, MemoryStore, NewTurn, Store, TurnRow
from turnwright.transcript.events import FactEvent, StreamEvent, TextDeltaEvent, TurnEndedEvent, TurnPausedEvent
from turnwright_states.facts import Fact
from turnwright_testing.faults import StoreWrapper


@tool
async def look(n: int = 0) -> str:
    """Look."""
    return f"nothing at {n}"


@tool(needs_approval=True)
async def erase() -> str:
    """Erase."""
    return "erased"


@dataclass(frozen=True)
class Played:
    """A turn that has ended: its row, its facts, and the event of each."""

    row: TurnRow
    facts: Sequence[Fact]
    events: Sequence[StreamEvent]


@after_model
async def allow(ctx: TurnContext, response: ModelResponse) -> None:
    """Object to nothing."""


def play(model: ScriptedModel, *, pauses: bool = False, reviews: bool = False) -> Played:
    async def drive() -> Played:
        events: list[StreamEvent] = []
        hooks = [allow] if reviews else []
        engine = Engine(model=model, tools=[look, erase], hooks=hooks, on_event=[events.append])
        turn = await engine.run(Agent(name="Tester"), "Look")
        if pauses:
            await engine.resume(turn.id, {"approval-1": True})
        facts = [fact for _, fact in await engine.store.facts(turn.id)]
        fact_events = [event for event in events if isinstance(event, FactEvent | TurnPausedEvent | TurnEndedEvent)]
        return Played(await engine.store.get(turn.id), facts, fact_events)

    return anyio.run(drive)


@pytest.fixture(scope="module")
def straight() -> Played:
    """Calls in two steps, then an answer."""
    two_calls = asks_for(("look", {}), ("look", {"n": 1}))
    return play(ScriptedModel(two_calls, asks_for(("look", {"n": 2})), "Nothing there."))


@pytest.fixture(scope="module")
def paused() -> Played:
    """A person was asked in the middle of it."""
    return play(ScriptedModel(asks_for(("look", {}), ("erase", {})), "Erased."), pauses=True)


@pytest.fixture(scope="module")
def reviewed() -> Played:
    """Each reply was kept back until a hook had seen it."""
    return play(ScriptedModel(asks_for(("look", {})), "Nothing there."), reviews=True)


@dataclass(frozen=True)
class Stretch:
    """The next `length` facts are written here, and published, or by another process.

    Another process wrote `before` facts right before that. With `piece` a reply begins to stream in at the end.
    """

    length: int
    here: bool
    piece: bool = False
    before: int = 0


class Growing(StoreWrapper):
    """A played turn's journal, which grows by a stretch right after each time that it is read.

    `read` has the seq of each fact that was read, in the order of the reads, and `positions` what each read was after.
    """

    def __init__(self, played: Played, hub: EventBus, stretches: Sequence[Stretch]) -> None:
        super().__init__(MemoryStore())
        self.read: list[int] = []
        self.positions: list[int] = []
        self.here = False
        self._played = played
        self._hub = hub
        self._stretches = list(stretches)
        self._claim: Claim | None = None
        self._held_events = HeldEvents()

    async def begin(self) -> None:
        """Write the turn's first fact."""
        row = self._played.row
        new = NewTurn(row.id, row.session, row.agent, row.model, row.created_at)
        self._claim = await self.inner.create(new, self._played.facts[:1], row.status)

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        """See `Store.facts`."""
        facts = await super().facts(turn_id, after)
        self.read += [seq for seq, _ in facts]
        self.positions.append(after)
        assert len(self.positions) < 100, "it spins"
        if self._claim is not None:
            await self._go_on(self._claim)
        return facts

    async def _go_on(self, claim: Claim) -> None:
        played, seq = self._played, claim.seq
        remaining = len(played.facts) - seq
        stretch = self._stretches.pop(0) if self._stretches else Stretch(remaining, here=False)
        self.here = stretch.here
        ours = seq + min(stretch.before, remaining)
        end = min(ours + stretch.length, len(played.facts))
        await self.inner.append(claim, played.facts[seq:end], played.row.status)
        if end == len(played.facts):
            self._claim = None
            await self.inner.release(claim)
        if not stretch.here or stretch.before:  # the next driver keeps back what it writes itself
            self._held_events = HeldEvents()
        if stretch.here:
            more = TextDeltaEvent(turn=played.row.id, seq=end, index=0, text="more")
            for event in [*played.events[ours:end], *([more] if stretch.piece else [])]:
                for released in self._held_events.take(event):
                    self._hub.publish(released)
            self._hub.close(played.row.id)


def heard_of(played: Played, *stretches: Stretch, after: int = 0) -> tuple[list[StreamEvent], Growing]:
    """Return the events of a follower while the turn is driven in these parts, then elsewhere; and the store."""
    hub = EventBus()
    store = Growing(played, hub, stretches)

    async def listen() -> list[StreamEvent]:
        await store.begin()
        followed = follow(store, hub, played.row.id, after=after, is_driven_here=lambda: store.here, poll_interval=0)
        return [event async for event in followed]

    return anyio.run(listen), store


def elsewhere(length: int) -> Stretch:
    return Stretch(length, here=False)


def here(length: int) -> Stretch:
    return Stretch(length, here=True)


def without_pieces(heard: Sequence[StreamEvent]) -> list[StreamEvent]:
    return [event for event in heard if not isinstance(event, TextDeltaEvent)]


@pytest.mark.parametrize("after", [0, 1, 4, 1000])
@pytest.mark.parametrize("scenario", ["straight", "paused"])
def test_each_fact_written_elsewhere_is_read_once(scenario: str, after: int, request: pytest.FixtureRequest) -> None:
    """Each event is what it would have been here: what a pause asks, what a step's tools came to, how it ended."""
    played: Played = request.getfixturevalue(scenario)
    total = len(played.facts)
    heard, store = heard_of(played, *[elsewhere(1)] * total, after=after)
    assert heard == played.events[after:]
    assert store.read == list(range(1, total + 1))
    assert store.positions == list(range(total))


def test_turn_moving_here_and_back_is_followed_seamlessly(straight: Played) -> None:
    """Live events are folded from the journal afterwards: once."""
    heard, store = heard_of(straight, elsewhere(2), here(3), elsewhere(2), here(2), elsewhere(1))
    assert heard == straight.events
    assert store.read == list(range(1, len(straight.facts) + 1))


def test_follower_after_a_later_fact_hears_a_turn_driven_anywhere(straight: Played) -> None:
    for after in range(len(straight.facts) + 2):
        heard, store = heard_of(straight, elsewhere(2), here(3), elsewhere(2), after=after)
        assert heard == straight.events[after:]
        assert store.read == list(range(1, len(straight.facts) + 1))


@pytest.mark.parametrize("after", [0, 2, 3, 5])
def test_fact_written_just_before_a_takeover_is_not_missed(straight: Played, after: int) -> None:
    """The follower had read the journal before, and asked only then who drives."""
    overtaken = Stretch(3, here=True, before=2)
    heard, store = heard_of(straight, overtaken, elsewhere(1), after=after)
    assert heard == straight.events[after:]
    assert store.read == list(range(1, len(straight.facts) + 1))


def test_live_piece_is_heard_after_the_preceding_facts(straight: Played) -> None:
    """Also when they were written elsewhere, and only the piece arrives here."""
    heard, _ = heard_of(straight, Stretch(0, here=True, before=2, piece=True))
    assert isinstance(heard[3], TextDeltaEvent)
    assert without_pieces(heard) == straight.events


@given(
    st.lists(
        st.builds(Stretch, st.integers(1, 4), here=st.booleans(), piece=st.booleans(), before=st.integers(0, 2)),
        max_size=12,
    ),
    st.integers(0, 20),
)
def test_each_fact_is_heard_once_in_order_under_any_driver(
    straight: Played, reviewed: Played, stretches: list[Stretch], after: int
) -> None:
    """And a piece never before the facts that led to it. A reply that is reviewed comes with its verdict."""
    for played in (straight, reviewed):
        heard, store = heard_of(played, *stretches, after=after)
        assert without_pieces(heard) == played.events[after:]
        assert len(store.read) == len(set(store.read))
    last = 0
    for event in heard_of(straight, *stretches, after=after)[0]:
        assert not isinstance(event, TextDeltaEvent) or event.seq <= max(last, after)
        last = max(last, event.seq)


def test_withheld_reply_heard_live_is_not_heard_again(reviewed: Played) -> None:
    """The journal was read up to the reply, it came live with its verdict, and then another process continued."""
    heard, _ = heard_of(reviewed, here(2), here(4))
    assert heard == reviewed.events


def working(store: Store, *replies: ModelResponse | str) -> Engine:
    return Engine(model=ScriptedModel(*replies), tools=[look, erase], store=store, runtime=Local(every=0.01))


@pytest.mark.anyio
async def test_submitted_turn_is_followed_until_a_worker_has_driven_the_turn() -> None:
    """By a follower that waits: from before a worker comes, over an answered pause, to the end."""
    store = MemoryStore()
    client = working(store)
    turn = await client.submit(Agent(name="Tester"), "Erase")
    heard: list[str] = []
    begun = anyio.Event()

    async def listen(after: int = 0) -> None:
        async for event in client.events(turn, after, wait=True):
            heard.append(event.type)
            begun.set()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as workers:
            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                await begun.wait()
                workers.start_soon(working(store, asks_for(("erase", {}))).run_worker)
            workers.cancel_scope.cancel()
        assert heard[-1] == "paused"
        await client.answer(turn, {"approval-1": True})
        async with anyio.create_task_group() as workers:
            async with anyio.create_task_group() as group:
                group.start_soon(listen, (await store.facts(turn))[-1][0])
                workers.start_soon(working(store, "Erased.").run_worker)
            workers.cancel_scope.cancel()
    assert heard[-1] == "turn_ended"
    assert heard.count("answered") == heard.count("paused") == 1


@pytest.mark.anyio
async def test_undriven_turn_is_not_waited_for_by_default() -> None:
    """Nor one that waits for a person."""
    store = MemoryStore()
    client = working(store, asks_for(("erase", {})))
    with anyio.fail_after(60):
        turn = await client.submit(Agent(name="Tester"), "Erase")
        assert [event.type async for event in client.events(turn)] == ["turn_started", "step_started"]
        await client.resume(turn)
        assert [event.type async for event in client.events(turn, wait=True)][-1] == "paused"


class Overtaken(StoreWrapper):
    """A store in which somebody drives a turn right after its follower has read the journal."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.drive: Callable[[], Awaitable[object]] | None = None

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        """See `Store.facts`."""
        facts = await super().facts(turn_id, after)
        drive, self.drive = self.drive, None
        if drive is not None:
            await drive()
        return facts


@pytest.mark.anyio
async def test_answered_pause_does_not_end_a_waiting_follower() -> None:
    """Its answer is taken, and the turn driven to its end, between the follower's read and its next question."""
    store = Overtaken()
    client = working(store, asks_for(("erase", {})), "Erased.")
    turn = await client.run(Agent(name="Tester"), "Erase")
    await client.answer(turn.id, {turn.interrupts[0].id: True})
    store.drive = partial(client.resume, turn.id)
    with anyio.fail_after(60):
        kinds = [event.type async for event in client.events(turn.id, wait=True)]
    assert kinds[-1] == "turn_ended"
    assert kinds.count("paused") == 1


class Ticking:
    """A clock that advances by a second each time that it is asked; `late` is set after a minute and a half."""

    def __init__(self) -> None:
        self.now = 0.0
        self.late = anyio.Event()

    def __call__(self) -> float:
        self.now += 1.0
        if self.now > 90:
            self.late.set()
        return self.now


@pytest.mark.anyio
async def test_waiting_without_a_worker_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """After some seconds by the engine's clock, and not as soon as the turn was submitted."""
    store, clock, told_early = MemoryStore(), Ticking(), ""
    client = Engine(model=ScriptedModel(), store=store, poll_interval=0.001, clock=clock)
    turn = await client.submit(Agent(name="Tester"), "Look")

    async def listen() -> None:
        nonlocal told_early
        async for event in client.events(turn, wait=True):
            if event.type == "step_started":
                told_early = caplog.text

    with anyio.fail_after(20):
        async with anyio.create_task_group() as workers:
            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                await clock.late.wait()
                workers.start_soon(working(store, "Done.").run_worker)
            workers.cancel_scope.cancel()
    assert "no worker" not in told_early
    (warning,) = [record.getMessage() for record in caplog.records if "no worker" in record.getMessage()]
    assert warning == (
        f"turn {turn} has had no worker for 5 s: start one (`engine.run_worker()`, or"
        " `turnwright worker`) on the same store, with the agent's tools and model"
    )


@pytest.mark.anyio
async def test_waiting_for_a_working_worker_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    """However long that takes."""
    store, clock, entered = MemoryStore(), Ticking(), anyio.Event()

    @tool
    async def slow() -> str:
        """Take long."""
        entered.set()
        await clock.late.wait()
        return "done"

    model = ScriptedModel(asks_for(("slow", {})), "Done.")
    worker = Engine(model=model, tools=[slow], store=store, runtime=Local(every=0.01))
    # Another process's: it asks the journal, and the store whether anybody drives.
    client = Engine(model=model, tools=[slow], store=store, poll_interval=0.001, clock=clock)
    turn = await client.submit(Agent(name="Tester"), "Look")
    heard: list[str] = []
    with anyio.fail_after(20):
        async with anyio.create_task_group() as workers:
            workers.start_soon(worker.run_worker)
            await entered.wait()
            heard += [event.type async for event in client.events(turn, wait=True)]
            workers.cancel_scope.cancel()
    assert heard[-1] == "turn_ended"
    assert "no worker" not in caplog.text
