"""opencode: how many steps an agent may take, and what happens at the last one.

- `steps` per agent; unset means the ceiling here; 0 is invalid; 1 answers in text at once; 2 allows one round of tools.
- On the last call tools are disabled, the instruction is sent in the user's role, and the reply summarizes.
- A clear status when the limit is reached.
"""

from typing import TYPE_CHECKING

import pytest

from turnwright import Agent, Limits
from turnwright.message import ToolResultPart
from turnwright.model.protocol import ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright_states import MAX_STEPS

if TYPE_CHECKING:
    from .conftest import Play

pytestmark = pytest.mark.anyio

CAPS = [(2, 2), (3, 3), (4, 4), (24, 24), (25, 25), (26, 26), (199, 199), (200, 200), (201, 200), (None, 200)]


@pytest.mark.parametrize(("steps", "cap"), CAPS)
async def test_last_call_of_the_steps_is_in_text(play: "Play", steps: int | None, cap: int) -> None:
    ran = await play(play.endless(), Agent(name="build", steps=steps), tool_calls=None)
    assert ran.ended == ("cap_hit", "step_cap")
    assert ran.choices == "a" * (cap - 1) + "n"
    assert (ran.turn.steps, ran.turn.tool_calls) == (cap, cap - 1)


async def test_unset_steps_are_200(play: "Play") -> None:
    """opencode has no limit then; here nobody can switch the ceiling off."""
    ran = await play(play.endless(answers_at=3))
    assert (ran.ended, ran.turn.steps) == (("finished", "answered"), 3)
    assert (Limits.preset("opencode").steps, Limits.preset("opencode").cap, MAX_STEPS) == (None, 200, 200)


@pytest.mark.parametrize("cap", [2, 3, 25, 200])
@pytest.mark.parametrize("beside", [-1, 0])
async def test_answer_before_the_last_call_finishes_and_the_last_is_capped(play: "Play", cap: int, beside: int) -> None:
    """At N-1 the model answers of its own accord; at N it must, and that is CAP_HIT whatever it says."""
    ran = await play(play.endless(answers_at=cap + beside), Agent(name="build", steps=cap), tool_calls=None)
    assert ran.ended == (("finished", "answered") if beside else ("cap_hit", "step_cap"))
    assert len(ran.requests) == cap + beside


async def test_single_step_answers_in_text_at_once(play: "Play") -> None:
    """No tool runs, so that nothing was cut short: it is an answer, without a sentinel."""
    ran = await play(play.endless(last="I would tidy it."), Agent(name="build", steps=1))
    assert (ran.ended, ran.turn.text) == (("finished", "text_only"), "I would tidy it.")
    assert (ran.choices, ran.turn.steps, ran.sentinels) == ("n", 1, [])


async def test_tool_budget_of_0_answers_in_text_at_once(play: "Play") -> None:
    ran = await play(play.endless(), Agent(name="build", steps=5, budget=0))
    assert (ran.ended, ran.choices, ran.sentinels) == (
        ("finished", "text_only"),
        "n",
        ["The tool-call limit is 0, so no tool could run."],
    )


async def test_two_steps_allow_a_round_of_tools_and_then_text(play: "Play") -> None:
    model = ScriptedModel(asks_for(("note", {"n": 1}), ("look", {"n": 2})), "Half is done.")
    ran = await play(model, Agent(name="build", steps=2))
    assert (ran.ended, ran.turn.text) == (("cap_hit", "step_cap"), "Half is done.")
    assert (ran.choices, ran.turn.steps, ran.turn.tool_calls) == ("an", 2, 2)


def test_zero_steps_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="steps must be at least 1"):
        Limits.preset("opencode", steps=0)
    assert Limits.preset("opencode", steps=1).cap == 1


async def test_last_call_disables_tools_and_keeps_the_definitions(play: "Play") -> None:
    """opencode emptied the tools, which providers refuse with 400 once there are calls in the conversation."""
    ran = await play(play.endless(), Agent(name="build", steps=3))
    assert ran.requests[-1].tool_choice == "none"
    assert [request.tools for request in ran.requests] == [ran.requests[0].tools] * 3
    assert [spec.name for spec in ran.requests[-1].tools] == ["note", "look"]


async def test_max_steps_instruction_is_the_last_message_with_the_user_role(play: "Play") -> None:
    """opencode sent it as the assistant's, a prefill, which thinking models refuse with 400."""
    ran = await play(play.endless(), Agent(name="build", steps=3))
    last = ran.requests[-1].messages[-1]
    assert last.role == "user"
    for words in ("Stopped at the step limit (3 of 3)", "Tools are disabled", "accomplished", "remains", "next"):
        assert words in last.text


async def test_max_steps_instruction_is_sent_once_and_not_stored(play: "Play") -> None:
    ran = await play(play.endless(), Agent(name="build", steps=3))
    assert [m.text for m in ran.turn.messages if m.role == "user"] == ["Tidy up."]
    assert not any("Step limit" in m.text for request in ran.requests[:-1] for m in request.messages)


async def test_instruction_can_be_replaced_per_agent(play: "Play") -> None:
    """opencode's is fixed, and a parent that expects data gets prose from its sub-agent."""
    agent = Agent(name="build", steps=2, conclude_prompt="{limit}. Answer in JSON.")
    ran = await play(play.endless(), agent)
    assert ran.requests[-1].messages[-1].text == "Stopped at the step limit (2 of 2). Answer in JSON."


async def test_last_reply_is_the_text_of_the_turn(play: "Play") -> None:
    ran = await play(play.endless(last="a.py is tidy, b.py is not."), Agent(name="build", steps=3))
    assert ran.turn.text == "a.py is tidy, b.py is not."


@pytest.mark.parametrize("text", ["", "Let me look once more."])
async def test_calls_of_the_last_reply_are_refused(play: "Play", text: str) -> None:
    """Models ignore `tool_choice: none`; opencode ran into tools that were not there. Here the turn ends in text."""
    ran = await play(play.endless(last=asks_for(("note", {"n": 9}), text=text)), Agent(name="build", steps=2))
    assert ran.ended == ("cap_hit", "step_cap")
    assert ran.turn.text.startswith(text or "Stopped at the step limit (2 of 2). The model gave no summary.")
    ran_calls = [part.text for m in ran.turn.messages for part in m.parts if isinstance(part, ToolResultPart)]
    assert (ran.turn.tool_calls, ran_calls) == (1, ["noted 1"])
    noted = "note" if text else "note, note"  # without a text it was asked once more
    assert ran.sentinels[0].count(f"Calls asked for while concluding were refused: {noted}.") == 1


async def test_empty_last_reply_ends_in_a_fixed_summary(play: "Play") -> None:
    ran = await play(play.endless(last=ModelResponse()), Agent(name="build", steps=3))
    assert ran.turn.text.startswith("Stopped at the step limit (3 of 3). The model gave no summary.")


async def test_status_contains_the_limit_and_advice(play: "Play") -> None:
    """opencode's status was that of a finished turn. Here it is an outcome, a reason, and one sentinel."""
    ran = await play(play.endless(), Agent(name="build", steps=5))
    assert ran.ended == ("cap_hit", "step_cap")
    (sentinel,) = ran.sentinels
    assert sentinel.startswith("Stopped at the step limit (5 of 5). ")
    assert "You can continue in a new message." in sentinel


async def test_agents_of_an_engine_have_separate_steps(play: "Play") -> None:
    for name, steps in (("build", 4), ("plan", 2)):
        ran = await play(play.endless(), Agent(name=name, steps=steps))
        assert len(ran.requests) == steps


async def test_each_turn_of_a_session_counts_from_zero(play: "Play") -> None:
    ran = await play(play.endless(), Agent(name="build", steps=3))
    again = await ran.engine.run(Agent(name="build", steps=3), "Go on.", continue_from=ran.turn.id)
    assert (again.steps, len(ran.requests)) == (3, 6)
