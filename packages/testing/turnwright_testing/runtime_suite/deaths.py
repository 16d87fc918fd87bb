"""The contract of a runtime when workers die, stall, or are asked to stop."""

import os

import anyio
import pytest

from turnwright_states import CallStatus, InterruptKind, Outcome
from turnwright_states import facts as f

from .scene import Scene, SceneFacts
from .worker import helper, thinks


class DeathFacts(SceneFacts):
    async def test_another_worker_ends_the_turn_of_one_killed_during_tools(self, scene: Scene) -> None:
        """A finished call does not run again; for a started one, its tool's crash policy applies."""
        scene.workers(2)
        turn = await scene.submit([("put", 1), ("hold", 2), ("keep", 3)], [("send", 4)])
        process = await scene.begun(turn, "call00001", "call00002", "call00003")
        await scene.settled(turn, "call00001")
        scene.process(process).kill()
        scene.witness.open_gate(3)
        assert (await scene.ended(turn)).outcome is Outcome.FINISHED
        assert await scene.statuses(turn) == {
            "call00001": CallStatus.OK,
            "call00002": CallStatus.UNKNOWN,
            "call00003": CallStatus.OK,
            "call00004": CallStatus.OK,
        }
        ran = [run.call for run in scene.runs(turn)]
        assert sorted(ran) == ["call00001", "call00002", "call00003", "call00003", "call00004"]

    async def test_next_worker_makes_the_dependencies_of_a_turn_anew(self, scene: Scene) -> None:
        """They come from the turn's metadata, also in the turn of a sub-agent."""
        scene.workers(2)
        turn = await scene.submit([("tell_desk", 1), ("keep", 2)], [helper([("tell_desk", 3)])], desk="the north")
        process = await scene.begun(turn, "call00002")
        await scene.settled(turn, "call00001")
        scene.process(process).kill()
        scene.witness.open_gate(2)
        await scene.ended(turn)
        assert (await scene.told(turn))["call00001"] == "1 is for the north"
        assert await scene.told(f"{turn}:call00003") == {"call00001": "3 is for the north"}

    async def test_person_decides_about_the_call_of_a_dead_worker(self, scene: Scene) -> None:
        """With the policy `ask` the turn pauses, and continues with the answer."""
        worker = scene.worker()
        turn = await scene.submit([("stay", 1)])
        await scene.begun(turn, "call00001")
        worker.kill()
        scene.worker()
        (interrupt,) = (await scene.paused(turn)).interrupts
        assert interrupt.kind is InterruptKind.UNKNOWN_OUTCOME
        scene.witness.open_gate(1)
        await scene.client.answer(turn, {interrupt.id: "rerun"})
        assert (await scene.ended(turn)).outcome is Outcome.FINISHED
        assert await scene.statuses(turn) == {"call00001": CallStatus.OK}

    async def test_another_worker_ends_the_turns_of_one_killed_in_a_sub_agent(self, scene: Scene) -> None:
        """The parent's call continues with the same sub-agent, and its sibling does not run again."""
        scene.workers(2)
        turn = await scene.submit([helper([("put", 1)], [("keep", 2)]), ("send", 3)])
        child = f"{turn}:call00001"
        process = await scene.begun(child, "call00002")
        await scene.settled(turn, "call00002")
        scene.process(process).kill()
        scene.witness.open_gate(2)
        assert (await scene.ended(turn)).outcome is Outcome.FINISHED
        assert (await scene.client.get(child)).outcome is Outcome.FINISHED
        assert await scene.statuses(turn) == {"call00001": CallStatus.OK, "call00002": CallStatus.OK}
        assert [run.call for run in scene.runs(child)] == ["call00001", "call00002", "call00002"]
        assert len(scene.runs(turn)) == 1

    async def test_overtaken_worker_writes_nothing_when_continued(self, scene: Scene) -> None:
        """SIGSTOP and SIGCONT: its tool ends and the result is dropped; the worker then drives other turns."""
        if not scene.bench.takes_over_zombies:
            pytest.skip("a process that is stopped keeps its turns here")
        scene.workers(2)
        turn = await scene.submit([("hold", 1), helper([("keep", 2)])], [("send", 3)])
        await scene.begun(turn, "call00001")
        zombie = scene.process(await scene.begun(f"{turn}:call00002", "call00001"))
        zombie.stop()
        other_worker = await scene.begun(f"{turn}:call00002", "call00001", times=2)
        assert other_worker != zombie.pid
        scene.witness.open_gate(2)
        assert (await scene.ended(turn)).outcome is Outcome.FINISHED
        facts = await scene.client.store.facts(turn)
        assert (await scene.statuses(turn))["call00001"] is CallStatus.UNKNOWN
        assert scene.drivers(turn)[-1] == other_worker
        scene.process(other_worker).kill()
        zombie.go_on()
        scene.witness.open_gate(1)
        following = await scene.submit([("put", 1)])
        await scene.ended(following)
        assert {run.process for run in scene.runs(following)} == {zombie.pid}
        await scene.ended(turn)
        assert await scene.client.store.facts(turn) == facts

    async def test_stopped_worker_keeps_its_turn_and_continues(self, scene: Scene) -> None:
        """Other workers see that it is alive. Its tool does not run again."""
        if scene.bench.takes_over_zombies:
            pytest.skip("a process that is stopped loses its turns here")
        scene.workers(2)
        turn = await scene.submit([("hold", 1)], [("send", 2)])
        zombie = scene.process(await scene.begun(turn, "call00001"))
        zombie.stop()
        scene.witness.open_gate(1)
        await scene.ended(await scene.submit([("put", 1)]))  # the other one has looked for work, and left this
        assert await scene.client.store.is_driven(turn)
        assert scene.drivers(turn) == [os.getpid(), zombie.pid]
        zombie.go_on()
        assert (await scene.ended(turn)).outcome is Outcome.FINISHED
        assert [run.process for run in scene.runs(turn)] == [zombie.pid] * 2
        assert scene.drivers(turn) == [os.getpid(), zombie.pid]

    async def test_a_worker_that_stalls_and_is_alone_goes_on_afterwards(self, scene: Scene) -> None:
        """If its claim was abandoned meanwhile, it claims the turn again."""
        worker = scene.worker()
        turn = await scene.submit([("keep", 1)], [("send", 2)])
        await scene.begun(turn, "call00001")
        worker.stop()
        await anyio.sleep(scene.bench.patience)
        worker.go_on()
        scene.witness.open_gate(1)
        assert (await scene.ended(turn)).outcome is Outcome.FINISHED
        assert await scene.statuses(turn) == {"call00001": CallStatus.OK, "call00002": CallStatus.OK}

    async def test_stopping_worker_ends_short_work_and_begins_nothing(self, scene: Scene) -> None:
        """The running tool and the turn end, and the process exits by itself."""
        worker = scene.worker(patient=True)
        turn = await scene.submit([("hold", 1)])
        await scene.begun(turn, "call00001")
        await scene.told_to_stop(worker)
        waiting = await scene.submit([("put", 1)])
        scene.witness.open_gate(1)
        assert (await scene.ended(turn)).outcome is Outcome.FINISHED
        assert await scene.statuses(turn) == {"call00001": CallStatus.OK}
        await scene.gone(worker)
        assert scene.runs(waiting) == []
        scene.worker()
        await scene.ended(waiting)

    async def test_stopping_worker_releases_an_endless_turn_without_a_crash(self, scene: Scene) -> None:
        """Another worker resumes the turn: a tool runs again if it may, and no attempt of a model counts as failed."""
        worker = scene.worker()
        thinking, working = await scene.submit([thinks(1), ("put", 1)]), await scene.submit([("keep", 1)])
        await scene.until(lambda: any(line.words == ("thinks", "1") for line in scene.witness.lines()))
        await scene.begun(working, "call00001")
        await scene.told_to_stop(worker)
        other_worker = scene.worker()
        await scene.gone(worker)
        scene.witness.open_gate(1)
        for turn in (thinking, working):
            assert (await scene.ended(turn)).outcome is Outcome.FINISHED
            assert scene.drivers(turn)[-1] == other_worker.pid
            assert await scene.statuses(turn) == {"call00001": CallStatus.OK}
            facts = [fact for _, fact in await scene.client.store.facts(turn)]
            assert not any(isinstance(fact, f.AttemptFailed) for fact in facts)
