"""A deadline spans actions, spares the conclusion and stops nothing that is over; an abort is read before the first."""

from collections.abc import AsyncIterator, Callable, Sequence

import anyio
import pytest

from turnwright import Agent, Engine, StoreError, ToolContext, TurnInfo, TurnResult, tool
from turnwright.journal.inbox import abort_item
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse
from turnwright.model.retry import Backoff
from turnwright.model.scripted import asks_for
from turnwright.store import Claim, InboxItem, MemoryStore, NewTurn, Status, Store
from turnwright_states import Cause, EndReason, Limits, Outcome, State
from turnwright_states import facts as f
from turnwright_states.facts import Fact
from turnwright_testing import FaultyStore
from turnwright_testing.faults import StoreWrapper

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Anybody")
OVERLOADED = ModelError("overloaded", cause=Cause.OVERLOADED)


class TimedModel:
    """A model whose calls take time, each the seconds beside its reply: they pass by `wait`, if it is given."""

    name = "timed"

    def __init__(
        self, *replies: tuple[float, ModelResponse | ModelError], wait: Callable[[float], object] | None = None
    ) -> None:
        self.replies = list(replies)
        self.calls = 0
        self._wait = wait

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelResponse]:
        """See `Model.stream`."""
        assert request.messages
        self.calls += 1
        seconds, reply = self.replies.pop(0)
        if self._wait is None:
            await anyio.sleep(seconds)
        else:
            self._wait(seconds)
        if isinstance(reply, ModelError):
            raise reply
        yield reply


@tool
async def rest(seconds: float) -> str:
    await anyio.sleep(seconds)
    return "rested"


@tool(needs_approval=True)
async def erase() -> str:
    return "erased"


RESTS = asks_for(("rest", {"seconds": 3}))
DONE = ModelResponse(text="Done.")


async def facts_of(store: Store, turn: str) -> list[Fact]:
    return [fact for _, fact in await store.facts(turn)]


@pytest.mark.parametrize("speed", [1.0, 0.9])
async def test_deadline_spans_all_actions_of_the_turn(speed: float) -> None:
    """A second of the first action is a second less for the next one, also if the turn's clock is slow."""
    model = TimedModel((0, RESTS), (9, DONE), (0, DONE))
    slow = Engine(model=model, tools=[rest], limits=Limits(seconds=5), clock=lambda: anyio.current_time() * speed)
    async with slow as engine:
        turn = await engine.run(AGENT, "hi")
        (stopping,) = [fact for fact in await facts_of(engine.store, turn.id) if isinstance(fact, f.Stopping)]
    assert (turn.reason, model.calls) == (EndReason.DEADLINE, 3)
    assert stopping.elapsed == 5


@pytest.mark.parametrize("seconds", [5.0, 9.0])
async def test_attempt_does_not_begin_after_the_deadline(seconds: float) -> None:
    now = [0.0]

    def pass_by(elapsed: float) -> None:
        now[0] += elapsed

    model = TimedModel((seconds, OVERLOADED), (0, DONE), wait=pass_by)
    async with Engine(
        model=model, limits=Limits(seconds=5), clock=lambda: now[0], backoff=Backoff(initial=0)
    ) as engine:
        turn = await engine.run(AGENT, "hi")
    assert (turn.reason, turn.text, model.calls) == (EndReason.DEADLINE, "Done.", 2)


@pytest.mark.parametrize("seconds", [5.0, 9.0])
async def test_call_does_not_start_after_the_deadline(seconds: float) -> None:
    now = [0.0]

    def pass_by(elapsed: float) -> None:
        now[0] += elapsed

    model = TimedModel((seconds, RESTS), (0, DONE), wait=pass_by)
    async with Engine(model=model, tools=[rest], limits=Limits(seconds=5), clock=lambda: now[0]) as engine:
        turn = await engine.run(AGENT, "hi")
        facts = await facts_of(engine.store, turn.id)
    assert (turn.reason, turn.text, turn.tool_calls) == (EndReason.DEADLINE, "Done.", 0)
    assert not any(isinstance(fact, f.CallStarted) for fact in facts)


@pytest.mark.parametrize("speed", [1.0, 0.9])
async def test_deadline_stops_a_call_repeated_after_a_crash(speed: float) -> None:
    """Also if the turn's clock is slow, by which some time is left."""

    @tool(idempotent=True)
    async def dig(context: ToolContext) -> str:
        await anyio.sleep(0 if context.attempt == 1 else 9)
        return "dug"

    def engine_on(store: Store, *lines: ModelResponse) -> Engine:
        model = TimedModel(*((0, line) for line in lines))
        clock = lambda: anyio.current_time() * speed  # noqa: E731
        return Engine(model=model, tools=[dig], store=store, limits=Limits(seconds=5), clock=clock)

    memory = MemoryStore()
    with pytest.raises(StoreError):
        await engine_on(FaultyStore(memory, at=f.CallSettled), asks_for(("dig", {}))).run(AGENT, "hi")
    await memory.aclose()
    (row,) = await memory.turns()
    turn: TurnResult = await engine_on(memory, DONE).resume(row.id)
    assert (turn.outcome, turn.reason, turn.text) == (Outcome.CAP_HIT, EndReason.DEADLINE, "Done.")


async def test_a_conclusion_for_another_reason_is_spared() -> None:
    """The deadline of the action before it is gone."""
    model = TimedModel((0, RESTS), (4, DONE))
    limits = Limits(seconds=5, steps=1)
    async with Engine(model=model, tools=[rest], limits=limits, clock=anyio.current_time) as engine:
        turn = await engine.run(AGENT, "hi")
    assert (turn.reason, turn.text, model.calls) == (EndReason.STEP_CAP, "Done.", 2)


class SlowPause(StoreWrapper):
    """A store that needs ten seconds to write that a turn pauses."""

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """See `Store.append`."""
        if status.state is State.PAUSED:
            await anyio.sleep(10)
        return await super().append(claim, facts, status, consumed)


async def test_a_deadline_during_the_append_of_a_pause_stops_nothing() -> None:
    model = TimedModel((0, asks_for(("erase", {}))))
    async with Engine(
        model=model,
        tools=[erase],
        store=SlowPause(MemoryStore()),
        limits=Limits(seconds=5),
        clock=anyio.current_time,
    ) as engine:
        turn = await engine.run(AGENT, "hi")
    assert (turn.state, turn.error) == (State.PAUSED, "")


class UnwrittenResults(StoreWrapper):
    """A store that fails to write a result a moment after the deadline."""

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """See `Store.append`."""
        if any(isinstance(fact, f.CallSettled) for fact in facts):
            await anyio.sleep(5.1)
            raise StoreError("the disk is full")
        return await super().append(claim, facts, status, consumed)


@pytest.mark.parametrize("return_direct", [False, True])
async def test_unwritten_results_at_the_deadline_have_no_effect(return_direct: bool) -> None:
    """Neither a model call, for which a slow clock leaves time, nor the turn's result."""

    @tool(return_direct=return_direct)
    async def look_up() -> str:
        return "found"

    model = TimedModel((0, asks_for(("look_up", {}))), (0, DONE))
    engine = Engine(
        model=model,
        tools=[look_up],
        store=UnwrittenResults(MemoryStore()),
        limits=Limits(seconds=5),
        clock=lambda: anyio.current_time() * 0.9,
    )
    with pytest.raises(StoreError, match="resume the turn"):
        await engine.run(AGENT, "hi")
    assert model.calls == 1


class Factory:
    """Dependencies that take `seconds` to make. `count` counts them."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.count = 0

    async def __call__(self, info: TurnInfo) -> str:
        """Make them."""
        await anyio.sleep(self.seconds)
        self.count += 1
        return info.turn_id


async def test_dependencies_may_take_the_remaining_time() -> None:
    """The turn has used three of its five seconds when a person answers."""
    store, limits = MemoryStore(), Limits(seconds=5)
    asks = TimedModel((3, asks_for(("erase", {}))))
    first = Engine(model=asks, tools=[erase], store=store, limits=limits, deps=Factory(0), clock=anyio.current_time)
    paused = await first.run(AGENT, "hi")
    model = TimedModel((0, DONE))
    second = Engine(model=model, tools=[erase], store=store, deps=Factory(60), clock=anyio.current_time, cancel_grace=1)
    turn = await second.resume(paused.id, {"approval-1": True})
    (stopping,) = [fact for fact in await facts_of(store, turn.id) if isinstance(fact, f.Stopping)]
    assert (turn.reason, turn.text, stopping.elapsed) == (EndReason.DEADLINE, "Done.", 5)


class AbortedAtOnce(StoreWrapper):
    """A store in which somebody aborts each turn when it is created."""

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status, *, driven: bool = True) -> Claim:
        """See `Store.create`."""
        claim = await super().create(new, facts, status, driven=driven)
        await self.inner.post(abort_item(new.id))
        return claim


async def test_waiting_abort_ends_the_wait_for_dependencies() -> None:
    factory = Factory(60)
    engine = Engine(model=TimedModel((0, DONE)), store=AbortedAtOnce(MemoryStore()), deps=factory)
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, factory.count) == (Outcome.ABORTED, 0)
