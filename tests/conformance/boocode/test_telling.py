"""BooCode, and an addition of Turnwright: notices and messages say how much of each limit is left.

- At 80 % of steps, tool calls, tokens, cost and seconds there is a notice, once; never at 79 %.
- A notice has a text for people, one form for all: "Step 20/25 - 5 steps remaining".
- With `show_budget_to_model=True` each step's request ends with what is left, in exact numbers, in the user's
  role; it is sent and never stored. The text is replaceable.
"""

from typing import TYPE_CHECKING

import pytest

from turnwright import Agent, ConfigError, Engine, Price
from turnwright.model.protocol import ModelResponse, ResponseToolCall
from turnwright.model.scripted import asks_for
from turnwright.transcript.wording import notice_text
from turnwright_states import Limits, State, Usage
from turnwright_states import facts as f

if TYPE_CHECKING:
    from .conftest import Play, Turn

pytestmark = pytest.mark.anyio

PRICES = {"scripted": Price(input=10_000.0, output=0.0)}
NOTHING = Usage()


def texts(turn: "Turn", limit: str) -> list[object]:
    """The texts of the notices of a limit, as the JSON lines have them."""
    return [line["text"] for line in turn.said("notice") if line["limit"] == limit]


# Notices.


@pytest.mark.parametrize(("steps", "expected"), [(19, []), (20, [20]), (21, [20]), (25, [20])])
async def test_notice_appears_at_80_percent_of_the_steps(play: "Play", steps: int, expected: list[int]) -> None:
    turn = await play(play.endless(answer_at=steps), agent=Agent(name="T", steps=25))
    assert await turn.notices() == [("steps", amount, 25) for amount in expected]
    assert texts(turn, "steps") == ["Step 20/25 - 5 steps remaining"] * len(expected)


@pytest.mark.parametrize(("calls", "expected"), [(39, []), (40, [40]), (41, [40]), (49, [40])])
async def test_notice_appears_at_80_percent_of_the_tool_calls(play: "Play", calls: int, expected: list[int]) -> None:
    turn = await play(play.endless(20), play.endless(calls - 20), "Tidy.")
    assert await turn.notices() == [("tool_calls", amount, 50) for amount in expected]
    assert texts(turn, "tool_calls") == ["Tool calls 40/50 - 10 remaining"] * len(expected)


@pytest.mark.parametrize(("tokens", "expected"), [(799, []), (800, [800]), (801, [801])])
async def test_notice_appears_at_80_percent_of_the_tokens(play: "Play", tokens: int, expected: list[int]) -> None:
    reply = ModelResponse(text="Tidy.", usage=Usage(input_tokens=tokens - 5, output_tokens=5))
    turn = await play(reply, agent=Agent(name="T", budget=Limits(tokens=1000)))
    assert await turn.notices() == [("tokens", amount, 1000) for amount in expected]
    assert texts(turn, "tokens") == [f"Tokens {amount}/1000 - {1000 - amount} remaining" for amount in expected]


@pytest.mark.parametrize(("tokens", "expected"), [(39, []), (40, ["0.4/0.5 - 0.1"]), (41, ["0.41/0.5 - 0.09"])])
async def test_notice_appears_at_80_percent_of_the_cost(play: "Play", tokens: int, expected: list[str]) -> None:
    reply = ModelResponse(text="Tidy.", usage=Usage(input_tokens=tokens, output_tokens=0))
    turn = await play(reply, agent=Agent(name="T", budget=Limits(cost=0.5)), prices=PRICES)
    assert texts(turn, "cost") == [f"Cost {figures} remaining" for figures in expected]


@pytest.mark.parametrize(("seconds", "expected"), [(47.9, []), (48, ["48/60 - 12"]), (48.5, ["48.5/60 - 11.5"])])
async def test_notice_appears_at_80_percent_of_the_seconds(play: "Play", seconds: float, expected: list[str]) -> None:
    reply = asks_for(("work", {"seconds": seconds}))
    turn = await play(reply, "Tidy.", agent=Agent(name="T", budget=Limits(seconds=60)))
    assert texts(turn, "seconds") == [f"Seconds {figures} remaining" for figures in expected]


async def test_every_notice_appears_once_in_a_turn(play: "Play") -> None:
    reply = asks_for(("ask_user_input", {"question": "Which?"}))
    limits = Limits(steps=5, tool_calls=5, tokens=10)
    turn = await play(*[play.endless()] * 4, reply, limits=limits)
    await turn.answer(question_1="both")
    assert sorted(name for name, *_ in await turn.notices()) == ["steps", "tokens", "tool_calls"]


async def test_missing_usage_gives_a_notice(play: "Play") -> None:
    turn = await play(ModelResponse(text="Tidy."))
    assert texts(turn, "usage_unknown") == ["The provider reports no usage: token and cost limits cannot be enforced"]


@pytest.mark.parametrize(
    ("amount", "cap", "text"),
    [
        (20, 25, "Step 20/25 - 5 steps remaining"),
        (4, 5, "Step 4/5 - 1 step remaining"),
        (1, 1, "Step 1/1 - the last step"),
    ],
)
def test_remaining_steps_are_counted_to_the_cap(amount: int, cap: int, text: str) -> None:
    """Also where the concluding call is one of them."""
    for limits in (Limits(steps=cap), Limits(steps=cap, concluding="within")):
        notice = f.Notice(limit="steps", used=amount, of=limits.allowance, elapsed=0.0, state=State.STREAM)
        assert notice_text(notice, limits) == text


# Messages to the model.


def told(turn: "Turn") -> list[str]:
    """Return each request's last text; empty where the transcript has it."""
    texts = {message.text for message in turn.result.messages}
    return [request.messages[-1].text if request.messages[-1].text not in texts else "" for request in turn.requests]


async def test_remaining_budget_is_sent_to_the_model_before_each_step(play: "Play") -> None:
    """The step that begins is no longer left. A conclusion's request names the limit reached, and nothing else."""
    usage = Usage(input_tokens=40, output_tokens=2)
    agent = Agent(name="T", steps=2, budget=Limits(tool_calls=9, tokens=1000, cost=2.0, seconds=60))
    timed = ModelResponse(calls=(ResponseToolCall("work", {"seconds": 1.5}), ResponseToolCall("note", {})), usage=usage)
    turn = await play(
        timed, play.endless(3, usage=usage), "Enough.", agent=agent, show_budget_to_model="Left: {left}.", prices=PRICES
    )
    assert told(turn)[:2] == [
        "Left: 1 of 2 steps after this one, 9 of 9 tool calls, 1000 of 1000 tokens, 2 of 2 cost, 60 of 60 seconds.",
        "Left: 0 of 2 steps after this one, 7 of 9 tool calls, 958 of 1000 tokens, 1.6 of 2 cost, 58.5 of 60 seconds.",
    ]
    assert "Stopped at the step limit (2 of 2)" in told(turn)[2]
    assert "Left:" not in told(turn)[2]


async def test_disabled_limits_are_left_out(play: "Play") -> None:
    turn = await play("Tidy.", limits=Limits(tool_calls=None), show_budget_to_model="{left}")
    assert told(turn) == ["199 of 200 steps after this one"]


async def test_budget_message_is_the_last_and_has_the_user_role(play: "Play") -> None:
    turn = await play(play.endless(answer_at=3), show_budget_to_model=True)
    assert [request.messages[-1].role for request in turn.requests] == ["user"] * 3
    assert all("tool calls" in request.messages[-1].text for request in turn.requests)


async def test_budget_message_is_stored_nowhere(play: "Play") -> None:
    """Not in the transcript, not in the journal, not in a later request."""
    turn = await play(play.endless(answer_at=3), show_budget_to_model="This is left: {left}.")
    for request in turn.requests:
        assert sum("This is left" in message.text for message in request.messages) == 1
    assert not any("This is left" in message.text for message in turn.result.messages)
    journal = [fact.payload() for _, fact in await turn.engine.store.facts(turn.result.id)]
    assert not any("This is left" in payload for payload in journal)


async def test_budget_message_is_off_by_default(play: "Play") -> None:
    turn = await play(play.endless(answer_at=2))
    assert told(turn) == ["", ""]


async def test_budget_message_uses_the_configured_or_built_in_prompt(play: "Play") -> None:
    turn = await play("Tidy.", show_budget_to_model=True)
    assert told(turn)[0].startswith("Remaining in this turn: 199 of 200 steps after this one, 50 of 50 tool calls. ")
    with pytest.raises(ConfigError, match="show_budget_to_model is blank"):
        Engine(show_budget_to_model=" ")


async def test_text_only_call_has_no_budget_message(play: "Play") -> None:
    """It has no step, and no tools to spend on."""
    turn = await play("I would.", agent=Agent(name="T", steps=0), show_budget_to_model=True)
    assert told(turn) == [""]


async def test_nudge_follows_the_budget_message(play: "Play") -> None:
    turn = await play(
        *[asks_for(("note", {}))] * 3, "Done.", limits=Limits(nudges=1), show_budget_to_model="Left: {left}."
    )
    *_, budget_message, nudge = turn.requests[3].messages
    assert budget_message.text.startswith("Left: ")
    assert "Do not repeat them" in nudge.text
