"""opencode: three identical rounds, and a person is asked: go on, always for that tool, or stop.

opencode compares the calls of one message only, so that a loop over several messages was never seen, and three
identical calls side by side were taken for one. Here it is the rounds of the whole turn.
"""

from typing import TYPE_CHECKING

import pytest

from turnwright import Agent
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright_states import InterruptKind

if TYPE_CHECKING:
    from .conftest import Play

pytestmark = pytest.mark.anyio

SAME = asks_for(("note", {"n": 1}))
OTHER = asks_for(("look", {"n": 1}))


@pytest.mark.parametrize("threshold", [2, 3, 4])
@pytest.mark.parametrize("beside", [-1, 0, 1])
async def test_identical_rounds_at_the_threshold_ask_a_person(play: "Play", threshold: int, beside: int) -> None:
    """One fewer does not; and of one more none is made before the person has answered."""
    rounds = threshold + beside
    ran = await play(ScriptedModel(*[SAME] * rounds, "Done."), doom_threshold=threshold)
    if beside < 0:
        assert ran.ended == ("finished", "answered")
    else:
        assert (ran.turn.paused, len(ran.requests)) == (True, threshold)


async def test_preset_threshold_is_three(play: "Play") -> None:
    ran = await play(ScriptedModel(*[SAME] * 3))
    (interrupt,) = ran.turn.interrupts
    assert (interrupt.id, interrupt.kind) == ("doom-1", InterruptKind.DOOM_LOOP)
    assert interrupt.choices == ("go_on", "always", "stop")


async def test_rounds_of_the_whole_turn_are_compared(play: "Play") -> None:
    ran = await play(ScriptedModel(asks_for(*[("note", {"n": 1})] * 3), "Done."))
    assert ran.ended == ("finished", "answered")
    ran = await play(ScriptedModel(*[asks_for(("note", {"n": 1}), ("look", {}))] * 3))
    assert ran.turn.paused


async def test_loop_is_broken_by_other_arguments_or_another_tool(play: "Play") -> None:
    ran = await play(ScriptedModel(SAME, SAME, OTHER, SAME, SAME, asks_for(("note", {"n": 2})), "Done."))
    assert ran.ended == ("finished", "answered")


async def test_go_on_clears_the_rounds(play: "Play") -> None:
    """Two more are not a loop, the third asks again."""
    ran = await play(ScriptedModel(*[SAME] * 6))
    again = await ran.engine.resume(ran.turn.id, {"doom-1": "go_on"})
    assert ([interrupt.id for interrupt in again.interrupts], len(ran.requests)) == (["doom-2"], 6)


async def test_always_applies_to_the_tool_of_the_loop_only(play: "Play") -> None:
    ran = await play(ScriptedModel(*[SAME] * 9, *[OTHER] * 3))
    again = await ran.engine.resume(ran.turn.id, {"doom-1": "always"})
    assert ([interrupt.id for interrupt in again.interrupts], len(ran.requests)) == (["doom-2"], 12)


async def test_stop_concludes_with_a_reason(play: "Play") -> None:
    ran = await play(ScriptedModel(*[SAME] * 3, "I was going in circles."))
    turn = await ran.engine.resume(ran.turn.id, {"doom-1": "stop"})
    assert (turn.outcome, turn.reason, turn.text) == ("doom_loop", "doom_loop", "I was going in circles.")
    assert "repeated the same tool calls: note" in ran.requests[-1].messages[-1].text


@pytest.mark.parametrize(("steps", "asks"), [(3, False), (4, False), (5, True)])
async def test_loop_in_the_last_round_is_the_step_limit(play: "Play", steps: int, asks: bool) -> None:
    """With 4 steps the third round is the last one: there is nothing left to go on with."""
    ran = await play(ScriptedModel(*[SAME] * (min(steps, 4) - 1), "Done."), Agent(name="build", steps=steps))
    assert ran.turn.paused == asks
    assert asks or ran.ended == ("cap_hit", "step_cap")


async def test_question_to_a_person_costs_no_step(play: "Play") -> None:
    ran = await play(ScriptedModel(*[SAME] * 3, "Done."), Agent(name="build", steps=5))
    turn = await ran.engine.resume(ran.turn.id, {"doom-1": "go_on"})
    assert (turn.outcome, turn.steps) == ("finished", 4)
