"""The guard names what exceeds which limit, by how much, and why that limit is there."""

import pytest
from bench.bare import Bare, bare
from bench.guard import (
    Figure,
    Limit,
    calls_with_results,
    cpu_with_results,
    levelled,
    limits,
    replay_calls,
    step_sizes,
    verdict,
)
from bench.turnwright_turns import Turnwright
from bench.yardstick import Looks, Script, padded

from turnwright_states import StartedInput, State, TurnMachine
from turnwright_states.facts import CallSettled, StepStarted

CALLS = Figure("calls", "function calls per step", 401)
ALLOWED = {"calls": Limit(400, "a step is to be cheap")}


def test_figure_at_the_limit_is_allowed() -> None:
    text, code = verdict([Figure("calls", "function calls per step", 400)], ALLOWED)
    assert code == 0
    assert text == "function calls per step       400, at most 400"


def test_figure_above_the_limit_is_named_with_reason_and_advice() -> None:
    text, code = verdict([CALLS], ALLOWED)
    assert code == 1
    assert "function calls per step: 401, above the limit of 400 by 1 (0% of it)" in text
    assert "[calls] is there because a step is to be cheap" in text
    assert "raise the limit in bench/guard.toml" in text


def test_limit_of_zero_is_exceeded_by_any_figure() -> None:
    text, code = verdict([Figure("spread", "spread of bytes", 1)], {"spread": Limit(0, "it is flat")})
    assert code == 1
    assert "spread of bytes: 1, above the limit of 0 by 1\n" in text


def test_figure_without_a_limit_is_wrong() -> None:
    text, code = verdict([CALLS], {})
    assert code == 1
    assert "no limit; write [calls] into bench/guard.toml" in text


def test_limit_without_a_figure_is_wrong() -> None:
    text, code = verdict([Figure("calls", "calls", 1)], {**ALLOWED, "gone": Limit(1, "it was counted once")})
    assert code == 1
    assert "a limit for gone, which is not counted" in text


def test_every_limit_has_a_reason() -> None:
    assert all(len(limit.reason.split()) > 3 for limit in limits().values())


def test_numbers_of_any_length_are_levelled_equally() -> None:
    short = levelled({"elapsed": 0.1, "call": "call00001", "result": "nothing at 1", "hash": "ff7111fc"})
    long = levelled({"elapsed": 12.345678, "call": "call00123", "result": "nothing at -123", "hash": "abcdefab"})
    assert short == long


def test_longer_text_is_not_levelled() -> None:
    assert levelled("nothing at 1") != levelled("nothing at all at 1")
    assert levelled(True) is True


def test_growing_fact_is_detected_in_the_step_sizes() -> None:
    def step(number: int, result: str) -> list[StepStarted | CallSettled]:
        started = StepStarted(elapsed=number / 7, state=State.STREAM, number=number)
        return [started, CallSettled(elapsed=number / 3, state=State.CHECK, call=f"call{number:05}", result=result)]

    flat = [fact for number in range(1, 12) for fact in step(number, f"nothing at {number}")]
    growing = [fact for number in range(1, 12) for fact in step(number, "nothing at " * number)]
    assert len(set(step_sizes(flat))) == 1
    assert len(set(step_sizes(growing))) == 10


def test_only_a_valid_replay_is_counted() -> None:
    _, facts = TurnMachine.start(StartedInput(prompt="x"))
    assert replay_calls(facts) > 1
    with pytest.raises(ValueError, match="fact 1 of the journal"):
        replay_calls(facts[1:])


@pytest.mark.anyio
async def test_long_results_add_a_fixed_number_of_calls_to_a_step() -> None:
    """A loop that reads each line of its results is measured as growing; Turnwright and the bare loop are not."""

    class Reading(Bare):
        """Walks over the lines of each result."""

        async def turn(self, script: Script) -> str:
            """One turn."""
            for line in Looks.padding.splitlines():
                abs(len(line))
            return await bare(script)

    for subject in (Bare(), Turnwright()):
        calls = await calls_with_results(subject)
        assert calls[4] - calls[0] < 12
        assert calls[48] - calls[4] < 1
    calls = await calls_with_results(Reading())
    assert calls[48] - calls[0] > 40


@pytest.mark.slow
@pytest.mark.anyio
async def test_long_results_cost_a_step_little_more_than_short_results() -> None:
    """The guard allows 1.6; twice that leaves room for a busy machine. It was 30."""
    cpu = await cpu_with_results(Turnwright(), turns=3)
    assert cpu[48][0] / cpu[0][0] < 3.2


def test_padded_results_have_the_length_and_end_with_the_block() -> None:
    with padded(4):
        assert len(Looks.padding) == 4096
        assert "nothing at" not in Looks.padding
    assert Looks.padding == ""
