"""A worker's job: the attempts before it, its segment, and the turn's owner."""

from pathlib import Path
from typing import Self

import pytest

from turnwright import Agent, Engine, Outcome, State, TurnBusyError, tool
from turnwright.model import ScriptedModel, asks_for
from turnwright.runtime import Local, WorkerApi
from turnwright.store import AbandonedDrivers, Claim, Queued, SqliteStore, Store

pytestmark = pytest.mark.anyio

CLERK = Agent(name="Clerk")


@tool(needs_approval=True)
async def erase() -> str:
    """Erase something, with leave."""
    return "erased"


class Kept(Local):
    """A runtime whose work a test does by hand."""

    def bind(self, work: WorkerApi) -> None:
        super().bind(work)
        self.work = work


class Two:
    """Two processes with one store. The first has claimed a turn that was paused and answered, and stalls."""

    def __init__(self, folder: Path) -> None:
        self.stalled: Store = SqliteStore(folder / "turns.db")
        self.store: Store = SqliteStore(folder / "turns.db")
        self.runtime = Kept()
        lines = (asks_for(("erase", {})), "Done.")
        self.engine = Engine(model=ScriptedModel(*lines), tools=[erase], store=self.store, runtime=self.runtime)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.engine.aclose()
        await self.stalled.aclose()

    async def begin(self) -> Claim:
        turn = await self.engine.run(CLERK, "erase")
        await self.engine.answer(turn.id, {"approval-1": True})
        return await self.stalled.claim(turn.id)

    async def drive(self, claim: Claim, segment: int, *epochs: int) -> State | Queued:
        abandoned = AbandonedDrivers(frozenset({self.stalled.owner}), frozenset(epochs))
        return (await self.runtime.work.drive(claim.turn, segment, abandoned_drivers=abandoned)).state


async def test_attempt_continues_the_segment_of_an_earlier_attempt(tmp_path: Path) -> None:
    async with Two(tmp_path) as two:
        claim = await two.begin()
        assert (await two.drive(claim, 1, claim.epoch)).outcome is Outcome.FINISHED


async def test_job_for_a_finished_segment_does_nothing(tmp_path: Path) -> None:
    async with Two(tmp_path) as two:
        claim = await two.begin()
        assert await two.drive(claim, 1) is State.PAUSED
        assert await two.drive(claim, 1, claim.epoch - 1) is State.PAUSED
        assert (await two.store.get(claim.turn)).epoch == claim.epoch


async def test_later_claim_of_an_abandoned_owner_is_kept(tmp_path: Path) -> None:
    async with Two(tmp_path) as two:
        claim = await two.begin()
        with pytest.raises(TurnBusyError):
            await two.drive(claim, 2, claim.epoch - 1)
        assert (await two.drive(claim, 2, claim.epoch - 1, claim.epoch)).outcome is Outcome.FINISHED


async def test_abandoned_owner_without_known_claims_loses_all_claims(tmp_path: Path) -> None:
    async with Two(tmp_path) as two:
        claim = await two.begin()
        assert (await two.drive(claim, 2)).outcome is Outcome.FINISHED
