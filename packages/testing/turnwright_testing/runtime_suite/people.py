"""The contract of a runtime for people's input: answers, messages and aborts."""

import os
from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from turnwright.errors import InvalidAnswerError, TurnAlreadyEndedError
from turnwright.runtime.engine import Engine
from turnwright_states import CallStatus, EndReason, Outcome
from turnwright_states import facts as f

from .scene import Scene, SceneFacts
from .worker import Call, Desk, helper

_ASKS: tuple[Call, ...] = (("ask_user_input", {"question": "Which?"}),)


class PeopleFacts(SceneFacts):
    async def test_an_answer_that_is_left_to_a_worker_drives_the_turn_on(self, scene: Scene) -> None:
        """Each answer resumes the turn; another worker may drive it each time."""
        scene.workers(2)
        turn = await scene.submit(_ASKS, [("erase", 1)])
        for answer in ("This.", True):
            (interrupt,) = (await scene.paused(turn)).interrupts
            await scene.client.answer(turn, {interrupt.id: answer})
            await scene.answered(turn, interrupt.id)
        assert (await scene.ended(turn)).outcome is Outcome.FINISHED
        assert [run.call for run in scene.runs(turn)] == ["call00002"]

    async def test_when_two_give_the_same_answer_at_once_the_turn_goes_on_once(self, scene: Scene) -> None:
        """Neither caller learns of the other."""
        turn, interrupt, first = await _asking(scene)
        assert await _at_once(scene, partial(_answer, turn, interrupt), "This.", "This.") == []
        second = scene.worker()
        await scene.ended(turn)
        assert await _answers(scene, turn) == ["This."]
        assert scene.drivers(turn) == [os.getpid(), first, second.pid]

    async def test_when_two_give_different_answers_at_once_the_first_one_stands(self, scene: Scene) -> None:
        """The other one gets an error, and the turn continues once."""
        turn, interrupt, first = await _asking(scene)
        refused_texts = await _at_once(scene, partial(_answer, turn, interrupt), "This.", "That.")
        assert len(refused_texts) == 1
        second = scene.worker()
        await scene.ended(turn)
        assert set(await _answers(scene, turn)) == {"This.", "That."} - set(refused_texts)
        assert scene.drivers(turn) == [os.getpid(), first, second.pid]

    async def test_first_of_two_simultaneous_answers_stands(self, scene: Scene) -> None:
        """The first answer stands, also where a worker reads it before the second is posted."""
        turn, interrupt, _ = await _asking(scene)
        scene.worker()
        refused_texts = await _at_once(scene, partial(_resume, turn, interrupt), "This.", "That.")
        assert len(refused_texts) == 1
        await scene.ended(turn)
        assert set(await _answers(scene, turn)) == {"This.", "That."} - set(refused_texts)

    async def test_a_message_reaches_the_running_turn_before_its_next_model_call(self, scene: Scene) -> None:
        """Any process may send it, and any process may drive the turn."""
        scene.worker()
        turn = await scene.submit([("hold", 1)])
        await scene.begun(turn, "call00001")
        await scene.user().steer(turn, "Mind the step.")
        scene.witness.open_gate(1)
        result = await scene.ended(turn)
        assert (result.text, result.undelivered) == ("Well, that is all. Mind the step.", ())

    async def test_abort_reaches_a_running_tool_and_keeps_finished_results(self, scene: Scene) -> None:
        """A tool that would never end is stopped, and so is a sub-agent's."""
        scene.worker()
        turn = await scene.submit([("put", 1), ("hold", 2), helper([("hold", 3)])])
        await scene.begun(turn, "call00001", "call00002")
        await scene.begun(f"{turn}:call00003", "call00001")
        await scene.settled(turn, "call00001")
        await scene.client.abort(turn)
        result = await scene.ended(turn)
        assert (result.outcome, result.reason) == (Outcome.ABORTED, EndReason.ABORTED)
        assert await scene.statuses(turn) == {
            "call00001": CallStatus.OK,
            "call00002": CallStatus.ABORTED,
            "call00003": CallStatus.ABORTED,
        }
        assert (await scene.client.get(f"{turn}:call00003")).outcome is Outcome.ABORTED
        assert [run.ended for run in scene.runs(turn, "call00002")] == [False]
        # Its worker is free again.
        await scene.ended(await scene.submit([("put", 1)]))

    async def test_an_abort_ends_a_turn_that_no_worker_has_taken_yet(self, scene: Scene) -> None:
        """The turn ends at once, also without any worker; no worker drives it afterwards."""
        turn = await scene.submit([("put", 1)])
        await scene.client.abort(turn)
        assert (await scene.client.get(turn)).outcome is Outcome.ABORTED
        scene.worker()
        await scene.ended(await scene.submit([("put", 1)]))
        assert (await scene.ended(turn)).outcome is Outcome.ABORTED
        assert scene.runs(turn) == []

    async def test_an_abort_ends_a_turn_that_waits_for_a_person(self, scene: Scene) -> None:
        """The turn ends at once, with or without a worker; a second abort changes nothing."""
        turn, _, _ = await _asking(scene)
        await scene.client.abort(turn)
        assert (await scene.client.get(turn)).outcome is Outcome.ABORTED
        await scene.user().abort(turn)
        assert (await scene.ended(turn)).outcome is Outcome.ABORTED


async def _asking(scene: Scene) -> tuple[str, str, int]:
    """Return a paused turn, its interrupt, and the worker that drove it, which has stopped."""
    worker = scene.worker()
    turn = await scene.submit(_ASKS, [("send", 1)])
    (interrupt,) = (await scene.paused(turn)).interrupts
    worker.kill()
    return turn, interrupt.id, worker.pid


async def _answer(turn: str, interrupt: str, user: Engine[Desk], text: str) -> None:
    await user.answer(turn, {interrupt: text})


async def _resume(turn: str, interrupt: str, user: Engine[Desk], text: str) -> None:
    await user.resume(turn, {interrupt: text})


async def _at_once(scene: Scene, say: Callable[[Engine[Desk], str], Awaitable[None]], *texts: str) -> list[str]:
    """Make so many calls of users at once. Returns the errors of those refused."""
    refused_texts: list[str] = []

    async def say_one(user: Engine[Desk], words: str) -> None:
        try:
            await say(user, words)
        except (InvalidAnswerError, TurnAlreadyEndedError):
            refused_texts.append(words)

    async with anyio.create_task_group() as group:
        for words in texts:
            group.start_soon(say_one, scene.user(), words)
    return refused_texts


async def _answers(scene: Scene, turn: str) -> list[str]:
    return [fact.text for _, fact in await scene.client.store.facts(turn) if isinstance(fact, f.Answered)]
