"""The contract of a runtime for turns that it was not notified of: it finds them again."""

import anyio
import pytest

from turnwright.errors import RuntimeUnavailableError
from turnwright.journal.inbox import abort_item
from turnwright.runtime import WorkerApi
from turnwright_states import Outcome
from turnwright_testing.faults.process import DriverProcess

from .scene import Scene, SceneFacts
from .worker import AGENT, begin, prompt


class SweepFacts(SceneFacts):
    async def test_sweep_finds_a_turn_that_was_never_submitted(self, scene: Scene) -> None:
        """A turn, an answer or an abort whose writer died, or could not reach the service, is found."""
        scene.worker()
        answered_turn, aborted_turn = [
            await scene.submit([("ask_user_input", {"question": "Which?"})]) for _ in range(2)
        ]
        (interrupt,) = (await scene.paused(answered_turn)).interrupts
        await scene.paused(aborted_turn)
        unreachable_user = scene.user(OutOfReach())
        with pytest.raises(RuntimeUnavailableError):
            await unreachable_user.submit(AGENT, prompt([("put", 1)]))
        with pytest.raises(RuntimeUnavailableError):
            await unreachable_user.answer(answered_turn, {interrupt.id: "This."})
        await scene.client.store.post(abort_item(aborted_turn))
        for row in await scene.client.store.turns():
            expected = Outcome.ABORTED if row.id == aborted_turn else Outcome.FINISHED
            assert (await scene.ended(row.id)).outcome is expected

    async def test_a_turn_outlives_its_client(self, scene: Scene) -> None:
        """Its client was killed while it ran the turn, or waited for it: with workers, the turn ends all the same."""
        if not scene.runtime.embedded:
            scene.worker()
        with DriverProcess(begin, scene.shift(), prompt([("keep", 1)], [("send", 2)])) as user:
            await scene.until(lambda: bool(scene.witness.ran()))
            (row,) = await scene.client.store.turns()
            user.kill()
        if scene.runtime.embedded:
            scene.worker()
        scene.witness.open_gate(1)
        assert (await scene.ended(row.id)).outcome is Outcome.FINISHED


class OutOfReach:
    """A runtime with an unreachable service, as for a client that dies before it has submitted."""

    embedded = False

    def bind(self, work: WorkerApi) -> None:
        """See `Runtime.bind`."""

    async def submit(self, turn_id: str, segment: int) -> None:
        raise RuntimeUnavailableError(f"turn {turn_id}, segment {segment}: there is nobody to submit it to")

    async def cancel(self, turn_id: str) -> None:
        raise RuntimeUnavailableError(f"turn {turn_id}: no worker to notify")

    async def failure(self, turn_id: str, segment: int) -> str | None:
        raise RuntimeUnavailableError(f"turn {turn_id}, segment {segment}: there is nobody to ask")

    async def run_worker(self, stopping: anyio.Event | None = None) -> None:
        raise RuntimeUnavailableError(f"there is nothing to work for (stopping: {stopping})")

    async def aclose(self) -> None:
        """See `Runtime.aclose`."""
