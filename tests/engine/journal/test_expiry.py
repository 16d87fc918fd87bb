"""The time to answer is measured by the wall clock, and the next process that touches the turn applies it."""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from turnwright import Agent, Engine, InvalidAnswerError, TurnResult, tool
from turnwright.message import ToolResultPart
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import Claim, InboxItem, MemoryStore, SqliteStore, Status, Store
from turnwright.tools import Tool
from turnwright_states import CallStatus, Limits, Outcome, State
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing.faults import JumpingClock

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Tidier")
MINUTE = 60.0
EXPIRED = (CallStatus.REJECTED, "rejected by the person: nobody answered in time")


class Desk:
    """A call that waits a minute for leave, one that waits for ever, and what they did."""

    def __init__(self, store: Store | None = None) -> None:
        self.done: list[str] = []
        self.clock = JumpingClock()
        self.store = store or MemoryStore()

        @tool(needs_approval=True, expires_in=MINUTE)
        async def erase(path: str) -> str:
            self.done.append(f"erase {path}")
            return f"erased {path}"

        @tool(needs_approval=True)
        async def burn(path: str) -> str:
            self.done.append(f"burn {path}")
            return f"burnt {path}"

        @tool
        async def note(n: int = 0) -> str:
            return f"noted {n}"

        self.tools: list[Tool] = [erase, burn, note]

    def engine(self, *lines: Line, limits: Limits | None = None, now: Callable[[], float] | None = None) -> Engine:
        self.model = ScriptedModel(*lines)
        now = now or self.clock
        clock = anyio.current_time
        return Engine(model=self.model, tools=self.tools, store=self.store, limits=limits, now=now, clock=clock)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def erasing(*paths: str) -> Line:
    return asks_for(*[("erase", {"path": path}) for path in paths])


def results(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    parts = (part for message in turn.messages for part in message.parts)
    return [(part.status, part.text) for part in parts if isinstance(part, ToolResultPart)]


async def sound(engine: Engine, turn_id: str) -> None:
    result = replay(await engine.store.facts(turn_id)).check
    assert result.verdict is Verdict.HOLDS, result


@pytest.mark.parametrize("sweep", [True, False], ids=["recover", "resume"])
async def test_expiry_is_applied_by_the_next_process_at_the_turn(desk: Desk, sweep: bool) -> None:
    """Nothing happens a second before."""
    paused = await desk.engine(erasing("x")).run(AGENT, "hi")
    other_engine = desk.engine("I see.")

    async def touch() -> TurnResult:
        if sweep:
            await other_engine.recover()
            return await other_engine.get(paused.id)
        return await other_engine.resume(paused.id)

    desk.clock.jump(MINUTE - 1)
    facts = await desk.store.facts(paused.id)
    assert (await touch()).paused
    assert await desk.store.facts(paused.id) == facts
    desk.clock.jump(1)
    turn = await touch()
    assert (turn.outcome, desk.done, results(turn)) == (Outcome.FINISHED, [], [EXPIRED])
    await sound(other_engine, turn.id)


async def test_reading_a_turn_applies_no_expiry(desk: Desk) -> None:
    engine = desk.engine(erasing("x"))
    paused = await engine.run(AGENT, "hi")
    desk.clock.jump(10 * MINUTE)
    assert (await engine.get(paused.id)).paused
    assert [event.type async for event in engine.events(paused.id)][-1] == "paused"


async def test_each_interrupt_has_a_separate_expiry(desk: Desk) -> None:
    """One expires, the other still waits, and the turn with it."""
    asking = asks_for(("erase", {"path": "x"}), ("burn", {"path": "y"}), ("erase", {"path": "z"}))
    engine = desk.engine(asking, "I see.")
    paused = await engine.run(AGENT, "hi")
    desk.clock.jump(MINUTE + 1)
    (still,) = await engine.recover()
    assert [interrupt.id for interrupt in still.interrupts] == ["approval-2"]
    assert await engine.recover() == []
    turn = await engine.resume(paused.id, {"approval-2": True})
    assert results(turn) == [EXPIRED, (CallStatus.OK, "burnt y"), EXPIRED]
    assert (turn.tool_calls, desk.done) == (1, ["burn y"])
    await sound(engine, turn.id)


async def test_timely_answer_stands_although_driven_late(desk: Desk) -> None:
    """Answers are durable before anything runs on them (docs/rules.md#approvals)."""
    poor = Engine(model=ScriptedModel(), store=desk.store, now=desk.clock)
    paused = await desk.engine(erasing("x")).run(AGENT, "hi")
    with pytest.raises(Exception, match="need the tools erase"):
        await poor.resume(paused.id, {"approval-1": True})
    desk.clock.jump(2 * MINUTE)
    (turn,) = await desk.engine("Done.").recover()
    assert (turn.outcome, results(turn), desk.done) == (
        Outcome.FINISHED,
        [(CallStatus.OK, "erased x")],
        ["erase x"],
    )


async def test_late_answer_is_refused(desk: Desk) -> None:
    """The leave was to be given within a minute; it is denied at the next touch, and this one is the next."""
    engine = desk.engine(erasing("x"), "I see.")
    paused = await engine.run(AGENT, "hi")
    desk.clock.jump(60 * MINUTE)
    with pytest.raises(InvalidAnswerError, match="approval-1"):
        await engine.resume(paused.id, {"approval-1": True})
    assert desk.done == []


async def test_answer_after_the_applied_expiry_is_refused(desk: Desk) -> None:
    asking = asks_for(("erase", {"path": "x"}), ("burn", {"path": "y"}))
    engine = desk.engine(asking, "I see.")
    paused = await engine.run(AGENT, "hi")
    desk.clock.jump(MINUTE)
    await engine.recover()
    with pytest.raises(InvalidAnswerError, match="open: approval-2") as refusal:
        await engine.resume(paused.id, {"approval-1": True})
    assert refusal.value.__context__ is None, "its traceback is one"
    assert desk.done == []


async def test_clock_going_back_revokes_nothing(desk: Desk) -> None:
    """An expired interrupt stays rejected; an open one gets no more time, and loses none."""
    asking = asks_for(("erase", {"path": "x"}), ("burn", {"path": "y"}))
    engine = desk.engine(asking, "I see.", erasing("z"), "Done.")
    paused = await engine.run(AGENT, "hi")
    desk.clock.jump(MINUTE)
    await engine.recover()
    desk.clock.jump(-1000 * MINUTE)
    assert await engine.recover() == []
    turn = await engine.resume(paused.id, {"approval-2": False})
    assert results(turn)[0] == EXPIRED
    later = await engine.run(AGENT, "again")
    desk.clock.jump(MINUTE - 1)
    assert await engine.recover() == []
    assert (await engine.get(later.id)).paused
    await sound(engine, paused.id)


async def test_expiry_is_judged_by_the_clock_of_the_asking_engine(desk: Desk) -> None:
    paused = await desk.engine(erasing("x"), now=lambda: 1000.0).run(AGENT, "hi")
    (interrupt,) = paused.interrupts
    assert interrupt.expires_at == 1000.0 + MINUTE
    other_engine = desk.engine("I see.", now=lambda: 1000.0 + MINUTE)
    (turn,) = await other_engine.recover()
    assert turn.outcome is Outcome.FINISHED


async def test_expired_doom_loop_question_stops_the_turn() -> None:
    """It has no expiry of its own making; one that has is stopped, not denied (docs/rules.md#chart)."""
    memory = MemoryStore()
    clock = JumpingClock()

    class Expiring(MemoryStore):
        """Gives a doom loop a minute, as a later release might."""

        async def append(
            self, claim: Claim, facts: Sequence[f.Fact], status: Status, consumed: Sequence[str] = ()
        ) -> list[InboxItem]:
            """See `Store.append`."""
            if status.state is State.PAUSED:
                status = structs.replace(status, expires_at=1000.0)
            return await super().append(claim, [self._expiring(fact) for fact in facts], status, consumed)

        def _expiring(self, fact: f.Fact) -> f.Fact:
            if not isinstance(fact, f.Paused) or fact.interrupt is None:
                return fact
            return structs.replace(fact, interrupt=structs.replace(fact.interrupt, expires_at=1000.0))

    @tool
    async def note() -> str:
        return "noted"

    memory, seconds = Expiring(), count()
    limits = Limits(doom_response="ask")
    model = ScriptedModel(*[asks_for(("note", {}))] * 3, "In circles.")
    engine = Engine(
        model=model, tools=[note], store=memory, limits=limits, now=clock, clock=lambda: float(next(seconds))
    )
    paused = await engine.run(AGENT, "hi")
    (turn,) = await engine.recover()
    assert (turn.id, turn.outcome, turn.text) == (paused.id, Outcome.DOOM_LOOP, "In circles.")
    (answered,) = [fact for _, fact in await memory.facts(turn.id) if isinstance(fact, f.Answered)]
    assert (answered.decision, answered.text) == ("stop", "nobody answered in time")
    assert answered.elapsed > paused.seconds


# The turn's own time.


async def test_waiting_for_a_person_uses_no_time_of_the_turn(desk: Desk) -> None:
    """A deadline of a minute survives a pause of an hour, and two days of the wall's clock."""
    limits = Limits(seconds=60)
    paused: TurnResult = await desk.engine(asks_for(("burn", {"path": "x"})), limits=limits).run(AGENT, "hi")
    await anyio.sleep(3600)
    desk.clock.jump(48 * 60 * MINUTE)
    other_engine = desk.engine(asks_for(("burn", {"path": "y"})), "Done.")
    paused = await other_engine.resume(paused.id, {"approval-1": True})
    assert paused.paused
    turn = await other_engine.resume(paused.id, {"approval-2": True})
    assert turn.outcome is Outcome.FINISHED
    assert turn.seconds < 60
    await sound(other_engine, turn.id)


async def test_time_used_before_a_pause_counts_after_the_pause(desk: Desk) -> None:
    """The deadline is the whole turn's, over all the processes that drive it."""
    limits = Limits(seconds=100)

    @tool
    async def dawdle() -> str:
        await anyio.sleep(60)
        return "at last"

    desk.tools.append(dawdle)
    engine = desk.engine(asks_for(("dawdle", {}), ("burn", {"path": "x"})), limits=limits)
    paused = await engine.run(AGENT, "hi")
    assert paused.paused
    assert paused.seconds == 60
    other_engine = desk.engine(asks_for(("dawdle", {})), "Late.")
    turn = await other_engine.resume(paused.id, {"approval-1": True})
    assert (turn.outcome, str(turn.reason), turn.text) == (Outcome.CAP_HIT, "deadline", "Late.")


@pytest.mark.no_waiting(False)
async def test_expiry_survives_a_file_and_a_process(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "turns.db") for _ in range(2)]
    first = Desk(stores[0])
    paused = await first.engine(erasing("x")).run(AGENT, "hi")
    second = Desk(stores[1])
    second.clock.jump(MINUTE)
    (turn,) = await second.engine("I see.").recover()
    assert (turn.id, results(turn)) == (paused.id, [EXPIRED])
    assert await first.engine("never said").recover() == []
    for store in stores:
        await store.aclose()
