"""BooCode: the cap on steps.

- `effective_cap = min(agent.steps or infinity, the ceiling of 200)`, with zero a number of its own.
- A step is one stream-and-tools iteration with any number of parallel calls.
- `steps: 0` is one text-only call; calls that come anyway are refused, noted once.
- `AGENTS.md` holds several agents with `steps:`: Refactorer 5, Architect 20, others unset.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turnwright import Agent, load_agents
from turnwright.message import ToolResultPart
from turnwright.model.scripted import asks_for
from turnwright_states import MAX_STEPS, CallStatus, Limits

if TYPE_CHECKING:
    from .conftest import Play

pytestmark = pytest.mark.anyio

UNBOUNDED = Limits(tool_calls=None)
AGENTS = Path(__file__).parents[3] / "examples" / "AGENTS.md"


@pytest.mark.parametrize(
    ("steps", "cap"),
    [*((steps, steps) for steps in (1, 2, 4, 5, 6, 19, 20, 21, 199, 200)), (201, 200), (10**6, 200), (None, 200)],
)
async def test_turn_takes_the_smaller_of_agent_steps_and_200(play: "Play", steps: int | None, cap: int) -> None:
    """Then the model is called once more, without tools."""
    turn = await play(play.endless(), agent=Agent(name="Tidier", steps=steps), limits=UNBOUNDED)
    assert turn.ended == ("cap_hit", "step_cap")
    assert (turn.result.steps, turn.result.tool_calls, len(turn.requests)) == (cap, cap, cap + 1)
    assert [request.tool_choice for request in turn.requests] == ["auto"] * cap + ["none"]
    assert MAX_STEPS == 200


async def test_unset_steps_are_200(play: "Play") -> None:
    turn = await play(play.endless(answer_at=3))
    assert turn.result.steps == 3
    assert turn.said("turn_started")[0]["limits"] == Limits.preset("boocode").for_tools("default").model_dump(
        mode="json"
    )
    assert Limits.preset("boocode") == Limits(
        doom_compare="calls", stall_errors=None, stall_rounds=None, idle_steps=None
    )
    assert (Limits().cap, Limits().concluding) == (200, "after")


@pytest.mark.parametrize("cap", [1, 5, 20, 200])
@pytest.mark.parametrize("beside", [-1, 0, 1])
async def test_answer_on_the_last_step_finishes_and_a_later_answer_is_capped(
    play: "Play", cap: int, beside: int
) -> None:
    """At N-1 and N the answer comes in time; for the step N+1 there is only the conclusion."""
    answer_at = cap + beside
    turn = await play(play.endless(answer_at=answer_at), agent=Agent(name="Tidier", steps=cap), limits=UNBOUNDED)
    if answer_at in range(1, cap + 1):
        assert (turn.ended, turn.result.steps, turn.sentinels) == (("finished", "answered"), answer_at, [])
    else:
        assert (turn.ended, turn.result.steps, len(turn.sentinels)) == (("cap_hit", "step_cap"), cap, 1)


async def test_step_is_a_reply_with_all_requested_calls(play: "Play") -> None:
    turn = await play(play.endless(4, answer_at=3), agent=Agent(name="Tidier", steps=3))
    assert (turn.ended[0], turn.result.steps, turn.result.tool_calls, len(turn.requests)) == ("finished", 3, 8, 3)


async def test_calls_of_the_last_step_still_run(play: "Play") -> None:
    turn = await play(play.endless(3), agent=Agent(name="Tidier", steps=1))
    assert (turn.ended, play.done) == (("cap_hit", "step_cap"), ["note 3", "note 4", "note 5"])


async def test_zero_steps_give_a_single_text_call(play: "Play") -> None:
    """It is a number of its own, and not "unset": no step, no sentinel, and the tools are disabled, not removed."""
    turn = await play("I would tidy it.", agent=Agent(name="Tidier", steps=0))
    assert (turn.ended, turn.result.text) == (("finished", "text_only"), "I would tidy it.")
    assert (turn.result.steps, turn.sentinels, len(turn.requests)) == (0, [], 1)
    assert (turn.requests[0].tool_choice, len(turn.requests[0].tools)) == ("none", len(turn.engine.setup.tools))


async def test_calls_with_zero_steps_are_refused_and_noted_once(play: "Play") -> None:
    reply = asks_for(("note", {"n": 1}), ("note", {"n": 2}), text="I would note it.")
    turn = await play(reply, agent=Agent(name="Tidier", steps=0))
    assert (turn.ended, turn.result.text, play.done) == (("finished", "text_only"), "I would note it.", [])
    refused = [(part.status, part.text) for part in turn.parts(ToolResultPart)]
    assert refused == [(CallStatus.REFUSED, "not executed: tools are disabled in this reply")] * 2
    assert len(turn.requests) == 1


async def test_agents_of_a_file_have_separate_steps(play: "Play") -> None:
    """Refactorer 5, Architect 20; the others are unset, and so have 200."""
    agents = {agent.name: agent for agent in load_agents(AGENTS)}
    assert {name: agent.steps for name, agent in agents.items()} == {
        "Refactorer": 5,
        "Architect": 20,
        "Explorer": None,
    }
    assert [agent.limits_for().cap for agent in agents.values()] == [5, 20, 200]
    for name, steps in (("Refactorer", 5), ("Architect", 20)):
        agent = agents[name].model_copy(update={"tools": ("note",)})
        turn = await play(play.endless(), agent=agent)
        assert (turn.ended, turn.result.steps) == (("cap_hit", "step_cap"), steps)
        assert turn.sentinels[0][2] == f"Stopped at the step limit ({steps} of {steps})"
