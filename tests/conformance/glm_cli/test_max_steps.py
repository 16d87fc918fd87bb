"""GLM-CLI: `max_steps`, and the summary that is asked for when they are used up.

- The default is 25, absent means 25, "unlimited" means the ceiling.
- On the last call tools are disabled and a summary is requested; calls that come anyway are refused, and the turn still
  ends with text.
- The prompt can be replaced, with a built-in fallback.
- Doom loops are another matter.
"""

from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from turnwright import Agent, Limits
from turnwright.message import ToolResultPart
from turnwright.model.protocol import ModelError, ModelResponse, ResponseToolCall
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright_states import MAX_STEPS, Cause

if TYPE_CHECKING:
    from .conftest import Play

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("steps", "cap"),
    [(2, 2), (3, 3), (4, 4), (24, 24), (25, 25), (26, 26), (199, 199), (200, 200), (201, 200), (None, 200)],
)
async def test_last_of_max_steps_calls_is_in_text(play: "Play", steps: int | None, cap: int) -> None:
    ran = await play(play.endless(), steps=steps, tool_calls=None)
    assert (ran.ended, ran.choices) == (("cap_hit", "step_cap"), "a" * (cap - 1) + "n")
    assert ran.sentinels[0].startswith(f"Stopped at the step limit ({cap} of {cap}). ")


async def test_default_is_25_steps(play: "Play") -> None:
    ran = await play(play.endless())
    assert (len(ran.requests), ran.turn.steps) == (25, 25)


@pytest.mark.parametrize("answers_at", [23, 24, 25])
async def test_answer_in_time_finishes_the_turn(play: "Play", answers_at: int) -> None:
    """The 24th call may still answer of its own accord; the 25th is the summary."""
    ran = await play(play.endless(answers_at=answers_at))
    assert ran.ended == (("finished", "answered") if answers_at < 25 else ("cap_hit", "step_cap"))
    assert len(ran.requests) == answers_at


def test_absent_steps_are_25_and_none_is_unlimited_up_to_200() -> None:
    """They are two things, for the preset and for an agent; and `unlimited` still ends."""
    assert (Limits.preset("glm-cli").cap, Limits.preset("glm-cli", steps=None).cap, MAX_STEPS) == (25, 200, 200)
    base = Limits.preset("glm-cli")
    assert Agent(name="glm").limits_for(base).cap == 25
    assert Agent(name="glm", steps=None).limits_for(base).cap == 200


@pytest.mark.parametrize("steps", [24, 25, 26])
async def test_agent_steps_win_over_the_preset(play: "Play", steps: int) -> None:
    assert len((await play(play.endless(), Agent(name="glm", steps=steps))).requests) == steps


@pytest.mark.parametrize("steps", [0, 1])
async def test_zero_steps_and_a_single_step_answer_in_text_at_once(play: "Play", steps: int) -> None:
    ran = await play(play.endless(), steps=steps)
    assert (ran.ended, ran.choices, ran.sentinels) == (("finished", "text_only"), "n", [])


@pytest.mark.parametrize("steps", [-1, True, 2.5, float("nan"), "many"])
def test_invalid_number_of_steps_is_a_mistake(steps: object) -> None:
    with pytest.raises(ValueError, match=r"steps\n.*must be a whole number of at least 0"):
        Limits.preset("glm-cli", steps=steps)


async def test_last_call_disables_the_tools_and_asks_for_a_summary(play: "Play") -> None:
    """The definitions stay, and the request is the user's: GLM-CLI's own emptied list is refused by some providers."""
    ran = await play(play.endless(last="a.py is tidy, b.py is not."), steps=3)
    last = ran.requests[-1]
    assert (last.tool_choice, last.tools) == ("none", ran.requests[0].tools)
    assert last.messages[-1].role == "user"
    for words in ("Stopped at the step limit (3 of 3)", "accomplished", "remains"):
        assert words in last.messages[-1].text
    assert ran.turn.text == "a.py is tidy, b.py is not."


@pytest.mark.parametrize("text", ["", "One more."])
async def test_calls_of_the_last_reply_are_refused_and_the_turn_ends_in_text(play: "Play", text: str) -> None:
    """Also one whose arguments are not JSON, and one of a tool that there is not."""
    last = asks_for(("note", {}), ResponseToolCall("note", None, raw="{"), ("rm", {}), text=text)
    ran = await play(play.endless(last=last), steps=2)
    assert ran.ended == ("cap_hit", "step_cap")
    assert ran.turn.text.startswith(text or "Stopped at the step limit (2 of 2). The model gave no summary.")
    results = [part.text for m in ran.turn.messages for part in m.parts if isinstance(part, ToolResultPart)]
    assert (results, ran.turn.tool_calls, len(ran.requests)) == (["noted 1"], 1, 2 if text else 3)
    assert len(ran.sentinels) == 1


@pytest.mark.parametrize("last", ["", "  ", ModelResponse(reasoning="Hm."), ModelError("no", cause=Cause.BAD_REQUEST)])
async def test_missing_summary_is_replaced_by_a_fixed_summary(
    play: "Play", last: ModelResponse | str | ModelError
) -> None:
    ran = await play(play.endless(last=last), steps=3)
    assert ran.ended == ("cap_hit", "step_cap")
    assert ran.turn.text.startswith("Stopped at the step limit (3 of 3). The model gave no summary.")
    assert "Tools used: note (2)" in ran.turn.text


async def test_prompt_can_be_replaced(play: "Play") -> None:
    agent = Agent(name="glm", conclude_prompt="Stop: {limit}. Say what you did.")
    ran = await play(play.endless(), agent, steps=2)
    assert ran.requests[-1].messages[-1].text == "Stop: Stopped at the step limit (2 of 2). Say what you did."


async def test_built_in_prompt_is_the_default(play: "Play") -> None:
    built_in = (files("turnwright") / "prompts" / "conclude.txt").read_text(encoding="utf-8")
    ran = await play(play.endless(), steps=2)
    assert (
        ran.requests[-1].messages[-1].text == built_in.replace("{limit}", "Stopped at the step limit (2 of 2)").strip()
    )


@pytest.mark.parametrize(("rounds", "ended"), [(2, "finished"), (3, "doom_loop"), (4, "doom_loop")])
async def test_doom_loop_ends_the_turn_before_the_step_limit(play: "Play", rounds: int, ended: str) -> None:
    """It is looked for beside the limit, and is an outcome of its own; nobody is asked."""
    ran = await play(ScriptedModel(*[asks_for(("note", {"n": 1}))] * min(rounds, 3), "Done."))
    assert (ran.ended[0], len(ran.requests)) == (ended, min(rounds, 3) + 1)


@pytest.mark.parametrize(("steps", "ended"), [(3, "step_cap"), (4, "step_cap"), (5, "doom_loop")])
async def test_step_limit_precedes_the_doom_loop_in_the_last_round(play: "Play", steps: int, ended: str) -> None:
    ran = await play(ScriptedModel(*[asks_for(("note", {"n": 1}))] * min(steps - 1, 3), "Done."), steps=steps)
    assert ran.ended[1] == ended


async def test_step_limit_holds_with_doom_detection_off(play: "Play") -> None:
    ran = await play(ScriptedModel(*[asks_for(("note", {"n": 1}))] * 24, "Half is done."), doom_threshold=None)
    assert (ran.ended, len(ran.requests)) == (("cap_hit", "step_cap"), 25)
