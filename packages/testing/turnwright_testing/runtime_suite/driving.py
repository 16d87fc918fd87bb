"""The contract of a runtime without failures: each turn is driven to its end, once."""

import os
from pathlib import Path
from typing import Final

import anyio

from turnwright.journal.result import TurnResult
from turnwright.runtime import Local
from turnwright.runtime.engine import Engine
from turnwright.transcript.events import FactEvent, TurnEndedEvent, TurnEvent, TurnPausedEvent
from turnwright_states import CallStatus, Outcome

from .scene import Scene, SceneFacts
from .worker import AGENT, Desk, Shift, engine_of, helper, prompt

#: A turn that pauses on its way.
_PLAN: Final = prompt([("put", 1)], [("ask_user_input", {"question": "Which?"})], [("fail", 2)], [("send", 3)])
_MANY: Final = 20


class DrivingFacts(SceneFacts):
    async def test_a_submitted_turn_is_driven_and_ends(self, scene: Scene) -> None:
        """A worker drives it, for any submitter; each of its calls runs once."""
        worker = scene.worker()
        turn = await scene.submit([("put", 1), ("send", 2)], [("put", 3)])
        result = await scene.ended(turn)
        assert (result.outcome, result.text, result.steps) == (Outcome.FINISHED, "Well, that is all.", 3)
        assert sorted(run.call for run in scene.runs(turn)) == ["call00001", "call00002", "call00003"]
        assert {run.process for run in scene.runs(turn)} == {worker.pid}

    async def test_many_turns_on_two_workers_all_end_and_each_call_runs_once(self, scene: Scene) -> None:
        """Both workers drive turns, and no turn is driven by both."""
        turns = [await scene.submit([("hold", 1)], [("send", n), ("put", n)]) for n in range(_MANY)]
        workers = scene.workers(2)
        pids = {worker.pid for worker in workers}
        await scene.until(lambda: pids <= {run.process for run in scene.witness.ran()})
        scene.witness.open_gate(1)
        for turn in turns:
            assert (await scene.ended(turn)).outcome is Outcome.FINISHED
            assert sorted(run.call for run in scene.runs(turn)) == ["call00001", "call00002", "call00003"]
            assert scene.drivers(turn) in [[os.getpid(), worker.pid] for worker in workers]

    async def test_run_and_resume_give_the_result_of_one_process(self, scene: Scene, tmp_path: Path) -> None:
        """The results are the same; with workers, a worker drives the turn."""
        async with _alone(tmp_path) as alone:
            worker = scene.worker()
            turn, local_turn = await scene.client.run(AGENT, _PLAN), await alone.run(AGENT, _PLAN)
            assert _compare_parts(turn) == _compare_parts(local_turn)
            (interrupt,) = turn.interrupts
            result = await scene.client.resume(turn.id, {interrupt.id: "This."})
            assert _compare_parts(result) == _compare_parts(await alone.resume(local_turn.id, {interrupt.id: "This."}))
            assert result.outcome is Outcome.FINISHED
            await scene.ended(turn.id)
            driver = os.getpid() if scene.runtime.embedded else worker.pid
            assert {run.process for run in scene.runs(turn.id)} == {driver}

    async def test_stream_shows_the_events_of_one_process(self, scene: Scene, tmp_path: Path) -> None:
        """The events of facts are the same, in their order, up to the pause and from there to the end."""
        async with _alone(tmp_path) as alone:
            scene.worker()
            streams = [await _list_streamed(engine) for engine in (scene.client, alone)]
            assert streams[0] == streams[1]

    async def test_a_client_that_stops_waiting_may_follow_the_turn_later(self, scene: Scene) -> None:
        """A submitted turn can be followed from any process, from its beginning."""
        turn = await scene.submit([("put", 1)])
        scene.worker()
        await scene.ended(turn)
        events = [event async for event in scene.user().events(turn)]
        assert isinstance(events[-1], TurnEndedEvent)
        assert [event.seq for event in events] == sorted(event.seq for event in events)

    async def test_a_segment_that_is_submitted_again_is_driven_once(self, scene: Scene) -> None:
        """Submissions twice at once, during the run and after the end do not drive it again."""
        turn = await scene.submit([("hold", 1)])
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(scene.runtime.submit, turn, 1)
        worker = scene.worker()
        await scene.begun(turn, "call00001")
        await scene.runtime.submit(turn, 1)
        scene.witness.open_gate(1)
        await scene.ended(turn)
        facts = await scene.client.store.facts(turn)
        await scene.runtime.submit(turn, 1)
        await scene.ended(await scene.submit([("put", 2)]))
        assert await scene.client.store.facts(turn) == facts
        assert [run.call for run in scene.runs(turn)] == ["call00001"]
        assert scene.drivers(turn) == [os.getpid(), worker.pid]

    async def test_a_sub_agent_is_driven_by_the_driver_of_its_parent(self, scene: Scene) -> None:
        """Its turn is not submitted, and no other worker claims it."""
        workers = {worker.pid for worker in scene.workers(2)}
        turn = await scene.submit([helper([("put", 1)]), ("put", 2)])
        assert (await scene.ended(turn)).outcome is Outcome.FINISHED
        child = f"{turn}:call00001"
        assert {*scene.drivers(child), *scene.drivers(turn)[1:]} < workers
        assert (await scene.statuses(turn)) == {"call00001": CallStatus.OK, "call00002": CallStatus.OK}


def _alone(folder: Path) -> Engine[Desk]:
    return engine_of(Shift("memory:", folder / "alone", Local), Local())


def _compare_parts(turn: TurnResult) -> object:
    """Return the parts in which two turns with the same work are equal."""
    messages = [
        (message.role, message.text, [(call.name, call.id) for call in message.calls]) for message in turn.messages
    ]
    interrupts = [(interrupt.id, interrupt.kind, interrupt.question) for interrupt in turn.interrupts]
    return turn.state, turn.reason, turn.text, turn.steps, turn.tool_calls, turn.usage, turn.path, messages, interrupts


async def _list_streamed(engine: Engine[Desk]) -> list[tuple[int, str, str]]:
    events: list[TurnEvent] = []
    async with engine.stream(AGENT, _PLAN) as stream:
        events += [event async for event in stream]
    last = events[-1]
    assert isinstance(last, TurnPausedEvent)
    async with engine.stream_resume(last.turn, {last.interrupts[0].id: "This."}) as stream:
        events += [event async for event in stream]
    return [_event_key(event) for event in events if isinstance(event, FactEvent | TurnPausedEvent | TurnEndedEvent)]


def _event_key(event: TurnEvent) -> tuple[int, str, str]:
    kind = event.fact.kind if isinstance(event, FactEvent) else type(event).__name__
    # A message's id begins with its turn's.
    message = event.message.partition("/")[2] if isinstance(event, FactEvent) else ""
    return event.seq, kind, message
