"""The contract of a runtime in outages: its service restarts, the store's server, and everything at once."""

from turnwright_states import CallStatus, Outcome

from .scene import Scene, SceneFacts


class OutageFacts(SceneFacts):
    async def test_a_pause_outlives_a_restart_of_everything(self, scene: Scene) -> None:
        """Workers, service, store and client restart: a new client's answer is enough for a new worker to continue."""
        worker = scene.worker()
        turn = await scene.submit([("send", 1)], [("erase", 2), ("put", 3)])
        (interrupt,) = (await scene.paused(turn)).interrupts
        worker.kill()
        await scene.close(scene.client)
        for restart in (scene.bench.restart_store, scene.bench.restart_service):
            if restart is not None:
                await restart()
        scene.client = scene.user()
        await scene.client.answer(turn, {interrupt.id: True})
        scene.worker()
        assert (await scene.ended(turn)).outcome is Outcome.FINISHED
        assert sorted(run.call for run in scene.runs(turn)) == ["call00001", "call00002", "call00003"]

    async def test_a_turn_outlives_a_restart_of_the_database_while_a_tool_runs(self, scene: Scene) -> None:
        """The turn ends whether its worker noticed or not, and with any next worker."""
        scene.worker()
        turn = await scene.submit([("put", 1)], [("keep", 2)], [("send", 3)])
        await scene.begun(turn, "call00002")
        await scene.restart_store()
        scene.witness.open_gate(2)
        assert (await scene.ended(turn)).outcome is Outcome.FINISHED
        assert set((await scene.statuses(turn)).values()) == {CallStatus.OK}

    async def test_a_turn_outlives_a_restart_of_the_database_while_tools_end(self, scene: Scene) -> None:
        """The results may be lost with the connection: then recovery is that of a dead worker."""
        scene.worker()
        turn = await scene.submit([("keep", 1)], [("keep", 1), ("keep", 2)], [("send", 3)])
        await scene.begun(turn, "call00001")
        scene.witness.open_gate(1)
        await scene.restart_store()
        scene.witness.open_gate(2)
        assert (await scene.ended(turn)).outcome is Outcome.FINISHED

    async def test_a_turn_outlives_a_restart_of_the_service_while_a_tool_runs(self, scene: Scene) -> None:
        """The worker finds the service again by itself."""
        scene.worker()
        turn = await scene.submit([("put", 1)], [("keep", 2)], [("send", 3)])
        await scene.begun(turn, "call00002")
        await scene.restart_service()
        scene.witness.open_gate(2)
        assert (await scene.ended(turn)).outcome is Outcome.FINISHED
        assert set((await scene.statuses(turn)).values()) == {CallStatus.OK}

    async def test_a_pause_outlives_a_restart_of_the_service(self, scene: Scene) -> None:
        """The same client answers, and the same worker continues the turn."""
        scene.worker()
        turn = await scene.submit([("erase", 1)])
        (interrupt,) = (await scene.paused(turn)).interrupts
        await scene.restart_service()
        await scene.client.answer(turn, {interrupt.id: True})
        assert (await scene.ended(turn)).outcome is Outcome.FINISHED
