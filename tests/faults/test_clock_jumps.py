"""Somebody sets the clock while turns run and rest: order, budgets and interrupts come through."""

import pytest

from turnwright import Agent, Engine, TurnResult, tool
from turnwright.message import ToolResultPart
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore, SqliteStore, Store
from turnwright_states import CallStatus, Limits, Outcome
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing.faults import JumpingClock

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")
DAY = 86_400.0


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    if request.param == "memory":
        return MemoryStore()
    return SqliteStore(tmp_path_factory.mktemp("clock") / "turns.db", durability="normal")


def results(turn: TurnResult) -> list[CallStatus]:
    return [part.status for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]


async def test_clock_jump_neither_costs_nor_saves_turn_time(store: Store) -> None:
    """Its seconds are measured by a clock that does not jump."""
    clock = JumpingClock()

    @tool
    async def set_clock(by: float) -> str:
        clock.jump(by)
        return "set"

    lines = (asks_for(("set_clock", {"by": DAY})), asks_for(("set_clock", {"by": -2 * DAY})), "Done.")
    async with Engine(
        model=ScriptedModel(*lines), tools=[set_clock], store=store, limits=Limits(seconds=60), now=clock
    ) as engine:
        with clock.everywhere():
            turn = await engine.run(AGENT, "hi")
        assert (turn.outcome, turn.also_reached) == (Outcome.FINISHED, ())
        assert turn.seconds < 60
        facts = await store.facts(turn.id)
        elapsed = [fact.elapsed for _, fact in facts]
        assert elapsed == sorted(elapsed)
        assert replay(facts).check.verdict is Verdict.HOLDS


async def test_turns_keep_the_order_of_creation(store: Store) -> None:
    """Also those of a session, each of which continues what was said in the ones before."""
    clock, model = JumpingClock(), ScriptedModel("one", "two", "three")
    async with Engine(model=model, store=store, now=clock) as engine:
        with clock.everywhere():
            turn_ids: list[str] = []
            for number, jump in enumerate((0.0, -DAY, -DAY)):
                clock.jump(jump)
                turn_ids.append((await engine.run(AGENT, f"prompt {number}", session="s")).id)
        assert [row.id for row in await store.turns(session="s")] == turn_ids[::-1]
        texts = [message.text for message in model.requests[-1].messages if message.role in ("user", "assistant")]
        assert texts == ["prompt 0", "one", "prompt 1", "two", "prompt 2"]


@pytest.mark.parametrize(("jump", "status"), [(DAY, CallStatus.REJECTED), (-DAY, CallStatus.OK)])
async def test_interrupt_expires_only_by_the_wall_clock(store: Store, jump: float, status: CallStatus) -> None:
    """Forward, its time is over at the next touch. Back, it can be answered for longer, and is not denied."""
    clock = JumpingClock()

    @tool(needs_approval=True, expires_in=60)
    async def erase() -> str:
        return "erased"

    async with Engine(
        model=ScriptedModel(asks_for(("erase", {})), "Done."), tools=[erase], store=store, now=clock
    ) as engine:
        paused = await engine.run(AGENT, "hi")
        clock.jump(jump)
        recovered = await engine.recover()
        assert len(recovered) == (jump > 0)
        turn = recovered[0] if recovered else await engine.resume(paused.id, {paused.interrupts[0].id: True})
        assert (turn.outcome, results(turn)) == (Outcome.FINISHED, [status])
