"""The participants of a turn besides its model and its tools: one object, made before the turn is driven."""

from dataclasses import FrozenInstanceError, replace

import pytest

from turnwright import Agent, EndReason, Engine
from turnwright.driver.participants import Participants
from turnwright.driver.review import Review, Reviewing
from turnwright.driver.segment import Segment
from turnwright.driver.segment_hooks import SegmentHooks
from turnwright.errors import Retry
from turnwright.model.scripted import ScriptedModel
from turnwright_states import CallModel, Limits, RequestPreparedInput

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]


class Editor(SegmentHooks):
    """Changes the instructions of each step, and refuses the first reply."""

    def __init__(self) -> None:
        self.participants_of_turns: list[Participants] = []
        self._refused = False

    def participants(self, segment: Segment, participants: Participants) -> Participants:
        del segment
        self.participants_of_turns.append(replace(participants, prepare=self._prepare, review=Review(self._check)))
        return self.participants_of_turns[-1]

    async def _prepare(self, _: CallModel) -> RequestPreparedInput:
        return RequestPreparedInput(instructions="Be brief.")

    async def _check(self, _: Reviewing) -> None:
        if not self._refused:
            self._refused = True
            raise Retry("Shorter.")


async def test_participant_at_each_place_acts_without_a_branch_in_the_loop() -> None:
    model, editor = ScriptedModel("A long answer.", "Short."), Editor()
    engine = Engine(model=model, hooks=[editor], limits=Limits(output_retries=1))
    turn = await engine.run(Agent(name="Clerk"), "Go.")
    assert (turn.reason, turn.text) == (EndReason.ANSWERED, "Short.")
    assert [request.messages[0].text for request in model.requests] == ["Be brief."] * 2
    assert len(editor.participants_of_turns) == 1


async def test_participants_of_a_turn_cannot_be_changed() -> None:
    editor = Editor()
    await Engine(model=ScriptedModel("Yes.", "Yes."), hooks=[editor]).run(Agent(name="Clerk"), "Go.")
    with pytest.raises(FrozenInstanceError):
        setattr(editor.participants_of_turns[0], "judge", None)  # noqa: B010 (the type checkers know that it is frozen)


def test_segment_hooks_without_participants_cannot_be_made() -> None:
    class Silent(SegmentHooks):
        """Says nothing about who acts."""

    with pytest.raises(TypeError, match="abstract"):
        Silent()  # type: ignore[abstract]  # pyright: ignore[reportAbstractUsage]  # that is the test
