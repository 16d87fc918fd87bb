"""The contract of a runtime when workers of another release replace the old ones."""

from turnwright.journal.result import TurnResult
from turnwright.message import ToolResultPart
from turnwright_states import Outcome

from .scene import Scene, SceneFacts
from .worker import NEW, POOR, Call

_STEPS: tuple[list[Call], ...] = ([("erase", 1)], [("stamp", 2)])


class DeployFacts(SceneFacts):
    async def test_a_turn_that_was_paused_goes_on_with_the_tools_of_the_next_release(self, scene: Scene) -> None:
        """An approved call runs the new release's tool, and new tools are available."""
        old = scene.worker()
        turn = await scene.submit(*_STEPS)
        (interrupt,) = (await scene.paused(turn)).interrupts
        await scene.told_to_stop(old)
        await scene.gone(old)
        scene.worker(NEW)
        await scene.client.answer(turn, {interrupt.id: True})
        result = await scene.ended(turn)
        assert result.outcome is Outcome.FINISHED
        assert _results(result) == ["erased 1 for good", "stamped 2"]

    async def test_worker_without_a_tool_leaves_the_turn_to_another(self, scene: Scene) -> None:
        """The worker without the tool writes nothing to the turn."""
        old = scene.worker()
        turn = await scene.submit(*_STEPS)
        (interrupt,) = (await scene.paused(turn)).interrupts
        await scene.told_to_stop(old)
        await scene.gone(old)
        facts = await scene.client.store.facts(turn)
        poor = scene.worker(POOR)
        await scene.client.answer(turn, {interrupt.id: True})
        await scene.until(lambda: "need the tools erase" in scene.logged())
        assert "WARNING" in scene.logged()
        assert (await scene.client.store.facts(turn)) == facts
        await scene.ended(await scene.submit([("put", 1)]))  # what it has tools for it drives
        scene.worker(NEW)
        result = await scene.ended(turn)
        assert result.outcome is Outcome.FINISHED
        assert _results(result) == ["erased 1 for good", "stamped 2"]
        assert poor.pid not in {run.process for run in scene.runs(turn)}


def _results(turn: TurnResult) -> list[str]:
    return [part.text for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]
