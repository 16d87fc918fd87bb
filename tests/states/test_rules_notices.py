"""Notices: 80 % of a limit, and missing usage, once each (docs/rules.md#notices)."""

from typing import TYPE_CHECKING

import pytest

from turnwright_states import (
    AttemptFailedInput,
    CallModel,
    CallSettledInput,
    CallStartedInput,
    Cause,
    Spent,
    ToolCall,
    TurnMachine,
    Usage,
    facts,
)

if TYPE_CHECKING:
    from .conftest import Begin


def notices(noticed: list[facts.Notice], limit: str) -> list[tuple[float, float]]:
    return [(fact.used, fact.of) for fact in noticed if fact.limit == limit]


def test_80_percent_of_the_steps_is_noticed_once(begin: "Begin") -> None:
    turn = begin(steps=10, doom_threshold=None)
    for number in range(2, 12):
        turn.step("look")
        expected = [(8.0, 10.0)] if number >= 8 else []
        assert notices(turn.of(facts.Notice), "steps") == expected


@pytest.mark.parametrize(
    ("limits", "at"),
    [
        ({"steps": 10}, [8, 9]),
        ({"steps": 10, "concluding": "within"}, [8, 9]),
        ({"steps": 25, "ceiling": 12}, [10, 11]),
        ({"steps": 6}, [5]),
        ({"steps": 5}, [4]),
        ({"steps": 4}, []),
        ({"steps": 1}, []),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_repeated", [True, False])
def test_steps_are_noticed_from_80_percent_while_a_step_remains(
    begin: "Begin", limits: dict[str, object], at: list[int], is_repeated: bool
) -> None:
    """At each of them where the limits say so, else at the first. There is no notice that nothing remains."""
    turn = begin(doom_threshold=None, step_notices="each" if is_repeated else "once", **limits)
    while isinstance(turn.action, CallModel):
        turn.step("look")
    expected = at if is_repeated else at[:1]
    assert [amount for amount, _ in notices(turn.of(facts.Notice), "steps")] == expected
    assert turn.machine.turn.digest() == TurnMachine.resume(turn.facts).turn.digest()


def test_resumed_turn_continues_the_step_notices(begin: "Begin") -> None:
    turn = begin(steps=10, doom_threshold=None, step_notices="each", tokens=100)
    while turn.steps < 8:
        turn.step("look", usage=Usage(input_tokens=10))
    turn.machine = TurnMachine.resume(turn.facts)
    turn.step("look", usage=Usage(input_tokens=10))
    assert notices(turn.of(facts.Notice), "steps") == [(8.0, 10.0), (9.0, 10.0)]
    assert notices(turn.of(facts.Notice), "tokens") == [(80.0, 100.0)]


def test_limit_is_noticed_once_in_a_turn_without_steps(begin: "Begin") -> None:
    turn = begin(steps=0, tokens=10)
    for amount in (8, 1):
        turn.feed(AttemptFailedInput(cause=Cause.CONNECTION, usage=Usage(input_tokens=amount)))
    assert notices(turn.of(facts.Notice), "tokens") == [(8.0, 10.0)]


def test_80_percent_of_the_tool_calls_is_noticed_once(begin: "Begin") -> None:
    turn = begin(doom_threshold=None)
    turn.step(*["look"] * 32)
    turn.step(*["look"] * 7)
    assert notices(turn.of(facts.Notice), "tool_calls") == []
    turn.step(*["look"] * 5)
    assert notices(turn.of(facts.Notice), "tool_calls") == [(40.0, 50.0)]


def test_80_percent_of_tokens_cost_and_time_is_noticed_once(begin: "Begin") -> None:
    turn = begin(tokens=1000, cost=2.0, seconds=60, doom_threshold=None)
    turn.clock = 47.9
    turn.step("look", usage=Usage(input_tokens=799, cost=1.5))
    assert not turn.of(facts.Notice)
    turn.clock = 48.0
    turn.step("look", usage=Usage(input_tokens=1, cost=0.1))
    turn.step("look", usage=Usage(input_tokens=1, cost=0.1))
    noticed = turn.of(facts.Notice)
    assert notices(noticed, "tokens") == [(800.0, 1000.0)]
    assert notices(noticed, "cost") == [(1.6, 2.0)]
    assert notices(noticed, "seconds") == [(48.0, 60.0)]


def test_exactly_80_percent_is_noticed_for_each_limit(begin: "Begin") -> None:
    for limits, name in (({"tokens": 1000}, "tokens"), ({"cost": 2.0}, "cost"), ({"seconds": 60}, "seconds")):
        turn = begin(**limits)
        turn.clock = 48.0
        turn.reply("look", usage=Usage(input_tokens=800, cost=1.6))
        assert [fact.limit for fact in turn.of(facts.Notice)] == [name]


def test_sub_agent_usage_of_80_percent_is_noticed(begin: "Begin") -> None:
    for limits, name, amount in (
        ({"tool_calls": 10}, "tool_calls", 8.0),
        ({"tokens": 1000, "tool_calls": None}, "tokens", 800.0),
        ({"cost": 2.0, "tool_calls": None}, "cost", 1.6),
    ):
        turn = begin(**limits)
        turn.reply(ToolCall(name="agent", arguments={}, delegates=True))
        turn.feed(CallStartedInput(call="call00001"))
        turn.feed(CallSettledInput(call="call00001", spent=Spent(calls=7, tokens=800, cost=1.6)))
        assert [(fact.limit, fact.used, fact.of) for fact in turn.of(facts.Notice)] == [(name, amount, limits[name])]


def test_limit_of_zero_is_not_noticed(begin: "Begin") -> None:
    """A turn without steps has used nothing of them: "0 of 0" would be noise on every text-only turn."""
    for turn in (begin(steps=0), begin(tool_calls=0)):
        turn.reply(text="42")
        assert not turn.of(facts.Notice)


def test_unknown_usage_is_noticed_once(begin: "Begin") -> None:
    turn = begin(seconds=10)
    turn.step("look", usage=None)
    turn.step("list", usage=None)
    assert [fact.limit for fact in turn.of(facts.Notice)] == ["usage_unknown"]
    turn.clock = 8.0
    turn.step("find", usage=None)
    assert [fact.limit for fact in turn.of(facts.Notice)] == ["usage_unknown", "seconds"]
