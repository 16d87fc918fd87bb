"""BooCode, and the budgets that Turnwright adds to it: tokens, cost, seconds.

- Each is checked between calls: a turn that has used N - 1 of N continues, one that has used N or N + 1 concludes.
- `max_tokens` of a step's request is clamped to what is left.
- The concluding call has bounds of its own.
- A cost budget needs a price.
"""

from typing import TYPE_CHECKING

import pytest

from turnwright import Agent, ConfigError, Price
from turnwright.model.protocol import ModelResponse
from turnwright.model.scripted import asks_for
from turnwright_states import Limits, Usage

if TYPE_CHECKING:
    from .conftest import Play, Turn

pytestmark = pytest.mark.anyio

#: A thousandth for each token of input, and five thousandths for each of output.
PRICES = {"scripted": Price(input=1_000.0, output=5_000.0)}

BESIDE = pytest.mark.parametrize(
    ("beside", "ended"), [(-1, "finished"), (0, "cap_hit"), (1, "cap_hit")], ids=["N-1", "N", "N+1"]
)


def outcome(turn: "Turn", reason: str) -> str:
    """Return how the turn ended; check that no other limit stopped it."""
    kind = turn.ended[0]
    assert turn.ended == ((kind, reason) if kind == "cap_hit" else ("finished", "answered"))
    assert turn.result.steps == (1 if kind == "cap_hit" else 2)
    assert len(turn.sentinels) == (kind == "cap_hit")
    return kind


@BESIDE
async def test_token_budget_stops_the_turn(play: "Play", beside: int, ended: str) -> None:
    """Input and output together."""
    usage = Usage(input_tokens=90, output_tokens=10 + beside)
    turn = await play(asks_for(("note", {}), usage=usage), "Tidy.", agent=Agent(name="T", budget=Limits(tokens=100)))
    assert outcome(turn, "tokens") == ended
    if ended == "cap_hit":
        assert turn.sentinels[0][2].startswith("Stopped at the token limit (")


@BESIDE
async def test_cost_budget_stops_the_turn(play: "Play", beside: int, ended: str) -> None:
    """N is 0.5: 500 thousandths."""
    usage = Usage(input_tokens=450 + beside, output_tokens=10)
    agent = Agent(name="T", budget=Limits(cost=0.5))
    turn = await play(
        asks_for(("note", {}), usage=usage), ModelResponse(text="Tidy.", usage=Usage()), agent=agent, prices=PRICES
    )
    assert outcome(turn, "cost") == ended
    assert turn.result.usage.cost == pytest.approx(0.5 + beside / 1000)


@BESIDE
async def test_time_budget_stops_the_turn(play: "Play", beside: int, ended: str) -> None:
    """A tool takes 59, 60 or 61 of 60 seconds."""
    reply = asks_for(("work", {"seconds": 60 + beside}))
    turn = await play(reply, "Tidy.", agent=Agent(name="T", budget=Limits(seconds=60)))
    assert outcome(turn, "deadline") == ended
    assert turn.result.seconds == 60 + beside


@BESIDE
async def test_tool_call_budget_stops_the_turn(play: "Play", beside: int, ended: str) -> None:
    turn = await play(play.endless(5 + beside), "Tidy.", agent=Agent(name="T", budget=5))
    assert outcome(turn, "budget") == ended
    assert turn.result.tool_calls == min(5 + beside, 5)


@BESIDE
async def test_usage_accumulates_over_the_turn(play: "Play", beside: int, ended: str) -> None:
    """No step reaches a limit alone."""
    usages = [Usage(input_tokens=30, output_tokens=20), Usage(input_tokens=30, output_tokens=20 + beside)]
    script = [asks_for(("note", {"n": n}), usage=usage) for n, usage in enumerate(usages)]
    turn = await play(*script, "Tidy.", agent=Agent(name="T", budget=Limits(tokens=100)))
    assert (turn.ended[0], turn.result.steps) == (ended, 2 if ended == "cap_hit" else 3)


async def test_paused_time_is_not_counted(play: "Play") -> None:
    reply = asks_for(("ask_user_input", {"question": "Which?"}))
    turn = await play(reply, "Tidy.", agent=Agent(name="T", budget=Limits(seconds=60)))
    play.clock.now += 3600
    await turn.answer(question_1="both")
    assert (turn.ended, turn.result.seconds) == (("finished", "answered"), 0)


@pytest.mark.parametrize(("spent_tokens", "remaining"), [(98, 2), (99, 1), (100, None), (101, None)])
async def test_max_tokens_equals_the_remaining_token_budget(
    play: "Play", spent_tokens: int, remaining: int | None
) -> None:
    """Without tokens left there is no further step; the concluding call has a number of its own."""
    reply = asks_for(("note", {}), usage=Usage(input_tokens=spent_tokens, output_tokens=0))
    turn = await play(reply, "Tidy.", agent=Agent(name="T", budget=Limits(tokens=100)))
    second = Limits().conclude_tokens if remaining is None else remaining
    assert [request.max_tokens for request in turn.requests] == [100, second]


async def test_max_tokens_is_unset_without_a_token_budget(play: "Play") -> None:
    turn = await play(play.endless(answer_at=3))
    assert [request.max_tokens for request in turn.requests] == [None] * 3


async def test_text_only_call_is_clamped_too(play: "Play") -> None:
    turn = await play("Tidy.", agent=Agent(name="T", steps=0, budget=Limits(tokens=100)))
    assert [request.max_tokens for request in turn.requests] == [100]


async def test_conclusion_may_overshoot_tokens_and_cost_with_a_notice(play: "Play") -> None:
    """By the attempts of one reply and the concluding call, and by no more (docs/rules.md#steps)."""
    usage = Usage(input_tokens=100, output_tokens=10)
    turn = await play(play.endless(usage=usage), agent=Agent(name="T", budget=Limits(tokens=100)))
    assert (turn.ended, turn.result.usage.tokens) == (("cap_hit", "tokens"), 220)


async def test_cost_budget_without_a_price_is_an_error_of_configuration(play: "Play") -> None:
    with pytest.raises(ConfigError, match="cost: a cost budget needs the price of model 'scripted'"):
        await play("Tidy.", agent=Agent(name="T", budget=Limits(cost=0.5)))


@pytest.mark.parametrize("name", ["tokens", "cost", "seconds"])
@pytest.mark.parametrize("value", [0, -1, True, float("nan")])
def test_budget_of_zero_or_less_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        Agent.model_validate({"name": "T", "budget": {name: value}})
