"""A turn is followed while it runs: its events, its end, and leaving early."""

import logging
from collections.abc import AsyncIterator
from itertools import accumulate
from pathlib import Path

import anyio
import pytest

from turnwright import Agent, Engine, LeaseLostError, SessionBusyError, StoreError, TurnBusyError, tool
from turnwright.model import Backoff
from turnwright.model.protocol import (
    Delta,
    ModelError,
    ModelRequest,
    ModelResponse,
    ResponseToolCall,
    TextDelta,
    ToolCallDelta,
)
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore, SqliteStore
from turnwright.transcript.events import (
    FactEvent,
    ReasoningDeltaEvent,
    TextDeltaEvent,
    ToolCallDeltaEvent,
    TurnEndedEvent,
    TurnEvent,
    TurnPausedEvent,
    partial_arguments,
)
from turnwright_states import Cause, Outcome, State
from turnwright_states import facts as f
from turnwright_states.facts import Fact
from turnwright_testing import FaultyStore

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Tidier")


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


class Slow:
    """Says its words one by one, each after a moment."""

    name = "slow"

    def __init__(self, text: str = "one two three", pause: float = 0.01) -> None:
        self.text = text
        self.pause = pause
        self.speaking = anyio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        assert request.messages
        for word in self.text.split():
            yield TextDelta(word)
            self.speaking.set()
            await anyio.sleep(self.pause)
        yield ModelResponse(text=self.text)


async def test_every_fact_is_heard_once_in_order_with_a_seq() -> None:
    engine = Engine(model=ScriptedModel(asks_for(("note", {}), ("note", {"n": 1})), "Done."), tools=[note])
    async with engine.stream(AGENT, "hi") as events:
        heard = [event async for event in events]
    facts = await engine.store.facts(heard[0].turn)
    fact_events = [event for event in heard if not isinstance(event, TextDeltaEvent | ReasoningDeltaEvent)]
    assert [(event.seq, event.type) for event in fact_events] == [(seq, fact.kind) for seq, fact in facts]
    assert [event.fact for event in fact_events if isinstance(event, FactEvent)] == [fact for _, fact in facts[:-1]]


async def test_the_first_event_names_the_turn_before_anything_runs() -> None:
    model = ScriptedModel("Done.")
    async with Engine(model=model).stream(AGENT, "hi") as events:
        first = await anext(events)
        assert (first.type, first.seq) == ("turn_started", 1)
        assert first.turn


async def test_last_event_reports_the_end() -> None:
    engine = Engine(model=ScriptedModel("All tidy."))
    async with engine.stream(AGENT, "hi") as events:
        *_, last = [event async for event in events]
    assert isinstance(last, TurnEndedEvent)
    assert (last.outcome, last.text, last.steps) == (Outcome.FINISHED, "All tidy.", 1)
    assert (await engine.get(last.turn)).usage == last.usage


async def test_pausing_turn_ends_the_stream_with_the_interrupts() -> None:
    @tool(needs_approval=True)
    async def erase(path: str) -> str:
        return path

    engine = Engine(model=ScriptedModel(asks_for(("erase", {"path": "x"}))), tools=[erase])
    async with engine.stream(AGENT, "hi") as events:
        *_, last = [event async for event in events]
    assert isinstance(last, TurnPausedEvent)
    assert [interrupt.id for interrupt in last.interrupts] == ["approval-1"]
    assert last.interrupts == (await engine.get(last.turn)).interrupts


async def test_pieces_carry_the_last_seq_and_count_within_the_attempt() -> None:
    model = ScriptedModel(
        ModelResponse(reasoning="hm", text="let me see", calls=asks_for(("note", {})).calls), "it is tidy", name="m"
    )
    async with Engine(model=model, tools=[note]).stream(AGENT, "hi") as events:
        heard = [event async for event in events]
    pieces = [event for event in heard if isinstance(event, TextDeltaEvent | ReasoningDeltaEvent)]
    assert [(piece.type, piece.index, piece.text) for piece in pieces] == [
        ("reasoning_delta", 0, "hm"),
        ("text_delta", 1, "let"),
        ("text_delta", 2, " me"),
        ("text_delta", 3, " see"),
        ("text_delta", 0, "it"),
        ("text_delta", 1, " is"),
        ("text_delta", 2, " tidy"),
    ]
    starts = [event.seq for event in heard if event.type == "step_started"]
    assert [piece.seq for piece in pieces] == [starts[0]] * 4 + [starts[1]] * 3


class WritesCalls:
    """Streams the arguments of its calls in pieces of four characters, and breaks off in the first attempt."""

    name = "writes"

    def __init__(self, *lines: ModelResponse | str) -> None:
        self.script = ScriptedModel(*lines)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        async for item in self.script.stream(request):
            calls = item.calls if isinstance(item, ModelResponse) else ()
            for number, call in enumerate(calls):
                for at in range(0, len(call.raw), 4):
                    yield ToolCallDelta(number, call.name, call.raw[at : at + 4])
            if calls and len(self.script.requests) == 1:
                raise ModelError("it broke off", cause=Cause.INTERRUPTED)
            yield item


async def test_arguments_of_calls_stream_and_are_withdrawn_with_the_attempt() -> None:
    @tool
    async def write(text: str) -> str:
        return text

    asks = asks_for(ResponseToolCall("write", {"text": "abc"}, '{"text": "abc"}'))
    model = WritesCalls(asks, asks, "Done.")
    async with Engine(model=model, tools=[write], backoff=Backoff(initial=0)).stream(AGENT, "hi") as events:
        heard = [event async for event in events]
    kinds = [event.type for event in heard]
    assert kinds[2:12] == [
        *["tool_call_delta"] * 4,
        "attempt_failed",
        "response_restarted",
        *["tool_call_delta"] * 4,
    ]
    pieces = [event for event in heard if isinstance(event, ToolCallDeltaEvent)]
    assert {(piece.tool, piece.call_index) for piece in pieces} == {("write", 0)}
    assert [piece.index for piece in pieces] == [0, 1, 2, 3] * 2
    texts = list(accumulate(piece.arguments_delta for piece in pieces[4:]))
    assert [partial_arguments(text) for text in texts] == [{}, {}, {"text": "ab"}, {"text": "abc"}]


# Leaving, failing.


async def test_leaving_early_stops_driving_and_the_turn_can_be_taken_up_again() -> None:
    store = MemoryStore()
    async with Engine(model=Slow(), store=store).stream(AGENT, "hi") as events:
        async for event in events:
            if event.type == "text_delta":
                break
    (row,) = await store.turns()
    assert (row.owner, row.status.state) == (None, State.STREAM)
    turn = await Engine(model=ScriptedModel("Done."), store=store).resume(row.id)
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")


async def test_leaving_at_once_leaves_a_resumable_turn() -> None:
    store = MemoryStore()
    async with Engine(model=Slow(), store=store).stream(AGENT, "hi"):
        pass
    (row,) = await store.turns()
    assert not await store.is_driven(row.id)
    assert (await Engine(model=ScriptedModel("Done."), store=store).resume(row.id)).text == "Done."


async def test_error_of_the_follower_is_raised_unchanged() -> None:
    """No exception group, and the turn is released."""
    store = MemoryStore()
    engine = Engine(model=Slow(), store=store)

    async def follow() -> None:
        async with engine.stream(AGENT, "hi") as events:
            await anext(events)
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await follow()
    assert (await store.turns())[0].owner is None


async def test_error_of_the_store_is_raised_unchanged() -> None:
    store = FaultyStore(MemoryStore(), at=f.CallSettled)
    engine = Engine(model=ScriptedModel(asks_for(("note", {}))), tools=[note], store=store)
    heard: list[str] = []

    async def follow() -> None:
        async with engine.stream(AGENT, "hi") as events:
            heard.extend([event.type async for event in events])

    with pytest.raises(StoreError, match="append 2"):
        await follow()
    assert heard[-1] == "call_started", "an unwritten fact has no event"


async def test_busy_session_is_reported_before_the_stream_begins() -> None:
    engine = Engine(model=Slow())
    async with engine.stream(AGENT, "hi", session="s1") as events:
        await anext(events)
        with pytest.raises(SessionBusyError):
            async with engine.stream(AGENT, "hi", session="s1"):
                pytest.fail("it began")


async def test_closed_iterator_of_a_follower_changes_nothing() -> None:
    """The turn continues beside the block, and ends as it would have."""
    done = anyio.Event()

    def see(event: TurnEvent) -> None:
        if event.type == "turn_ended":
            done.set()

    engine = Engine(model=Slow(), on_event=[see])
    async with engine.stream(AGENT, "hi") as events:
        first = await anext(events)
        await events.aclose()
        with anyio.fail_after(60):
            await done.wait()
    assert (await engine.get(first.turn)).outcome is Outcome.FINISHED


# Observers.


async def test_raising_observer_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    def broken(event: TurnEvent) -> None:
        raise RuntimeError(f"cannot bear {event.type}")

    engine = Engine(model=ScriptedModel("Done."), on_event=[broken, lambda event: heard.append(event.type)])
    with caplog.at_level(logging.ERROR, "turnwright"):
        turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
    assert heard[0] == "turn_started"
    assert heard[-1] == "turn_ended"
    assert len(caplog.records) == len(heard)


# Re-attaching.


async def test_events_of_an_ended_turn_are_replayed_from_any_seq() -> None:
    engine = Engine(model=ScriptedModel(asks_for(("note", {})), "Done."), tools=[note])
    async with engine.stream(AGENT, "hi") as events:
        heard = [event async for event in events if not isinstance(event, TextDeltaEvent)]
    for after in range(len(heard) + 2):
        assert [event async for event in engine.events(heard[0].turn, after)] == heard[after:]


async def test_late_follower_hears_past_and_coming_facts() -> None:
    """Every fact once, none missing, whenever one joins; then the stream ends."""
    engine = Engine(model=Slow("one two three four"))
    heard: list[list[TurnEvent]] = [[], []]

    async def follow(turn_id: str, place: int) -> None:
        async for event in engine.events(turn_id):
            heard[place].append(event)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group, engine.stream(AGENT, "hi") as events:
            async for event in events:
                if event.type == "turn_started":
                    group.start_soon(follow, event.turn, 0)
                if event.type == "text_delta" and not heard[1]:
                    await anyio.sleep(0.015)
                    group.start_soon(follow, event.turn, 1)
                    break
            async for _ in events:
                pass
    (row,) = await engine.store.turns()
    facts = await engine.store.facts(row.id)
    for stream_events in heard:
        fact_events = [event for event in stream_events if event.type != "text_delta"]
        assert [(event.seq, event.type) for event in fact_events] == [(seq, fact.kind) for seq, fact in facts]
    assert 0 < len([event for event in heard[1] if event.type == "text_delta"]) < 4


async def test_follower_is_let_go_when_the_driver_is_gone() -> None:
    """Its task was canceled: no more events come, and nobody waits for it."""
    store, model = MemoryStore(), Slow(pause=30)
    ids: list[str] = []
    heard: list[str] = []
    engine = Engine(model=model, store=store, on_event=[lambda event: ids.append(event.turn)])

    async def follow() -> None:
        heard.extend([event.type async for event in engine.events(ids[0])])

    async with anyio.create_task_group() as following:
        async with anyio.create_task_group() as drivers:
            drivers.start_soon(engine.run, AGENT, "hi")
            await model.speaking.wait()
            following.start_soon(follow)
            await anyio.sleep(0.02)
            drivers.cancel_scope.cancel()
        following.cancel_scope.deadline = anyio.current_time() + 1
    assert heard[:2] == ["turn_started", "step_started"]


async def test_follower_of_a_turn_resumed_at_once_keeps_following() -> None:
    """The driver was stopped and another began before the follower could look: it neither spins nor misses a fact."""

    class Counting(MemoryStore):
        reads = 0

        async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
            self.reads += 1
            assert self.reads < 20, "it spins"
            return await super().facts(turn_id, after)

    store, model = Counting(), Slow(pause=0.1)
    ids: list[str] = []
    heard: list[TurnEvent] = []
    engine = Engine(model=model, store=store, on_event=[lambda event: ids.append(event.turn)])

    async def follow() -> None:
        heard.extend([event async for event in engine.events(ids[0])])

    first = anyio.CancelScope()

    async def drive() -> None:
        with first:
            await engine.run(AGENT, "hi")
        await engine.resume(ids[0])

    async with anyio.create_task_group() as group:
        group.start_soon(drive)
        await model.speaking.wait()
        group.start_soon(follow)
        await anyio.sleep(0.02)
        first.cancel()
    positions = [(event.seq, event.type) for event in heard if event.type not in ("text_delta", "response_restarted")]
    assert positions == [(seq, fact.kind) for seq, fact in await store.facts(ids[0])]


async def test_busy_error_does_not_silence_the_running_stream() -> None:
    """The turn's own stream continues to its end."""
    engine = Engine(model=Slow())
    async with engine.stream(AGENT, "hi") as events:
        first = await anext(events)
        with pytest.raises(TurnBusyError):
            await engine.resume(first.turn)
        *_, last = [event async for event in events]
    assert last.type == "turn_ended"


@pytest.mark.no_waiting(False)
async def test_another_process_follows_the_growing_journal(tmp_path: Path) -> None:
    """Without the pieces, which are nobody's but the driver's."""
    path = tmp_path / "turns.db"
    store, other_store = SqliteStore(path, durability="normal"), SqliteStore(path)
    model = Slow()
    heard: list[TurnEvent] = []
    ids: list[str] = []
    engine = Engine(model=model, store=store, on_event=[lambda event: ids.append(event.turn)])
    async with engine, Engine(store=other_store) as elsewhere:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(engine.run, AGENT, "hi")
                await model.speaking.wait()
                heard = [event async for event in elsewhere.events(ids[0])]
        facts = await store.facts(ids[0])
    assert [(event.seq, event.type) for event in heard] == [(seq, fact.kind) for seq, fact in facts]


async def test_lost_lease_is_raised_unchanged() -> None:
    """A driver that lost the turn stops, and raises that to its caller; it is not an outcome."""
    store, model = MemoryStore(), Slow()
    engine = Engine(model=model, store=store)

    async def follow() -> None:
        async with engine.stream(AGENT, "hi") as events:
            first = await anext(events)
            await model.speaking.wait()
            await store.aclose()  # the driver looks dead
            await store.claim(first.turn)
            async for _ in events:
                pass

    with pytest.raises(LeaseLostError):
        await follow()
    assert (await store.turns())[0].status.outcome is None
