"""Notices: 80 % of a limit, and usage that is not told, once each; the end of rule 5 of DESIGN 4."""

from typing import TYPE_CHECKING

from turnwright_states import Usage, facts

if TYPE_CHECKING:
    from tests.states.conftest import Begin


def notices(found: list[facts.Notice], limit: str) -> list[tuple[float, float]]:
    return [(fact.used, fact.of) for fact in found if fact.limit == limit]


def test_80_percent_of_the_steps_is_noticed_once(begin: "Begin") -> None:
    turn = begin(steps=10, doom_threshold=None)
    for number in range(2, 12):
        turn.step("look")
        expected = [(8.0, 10.0)] if number >= 8 else []
        assert notices(turn.of(facts.Notice), "steps") == expected


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
    found = turn.of(facts.Notice)
    assert notices(found, "tokens") == [(800.0, 1000.0)]
    assert notices(found, "cost") == [(1.6, 2.0)]
    assert notices(found, "seconds") == [(48.0, 60.0)]


def test_a_limit_of_nothing_is_not_noticed(begin: "Begin") -> None:
    """A turn without steps has used nothing of them: "0 of 0" would be noise on every text-only turn."""
    for turn in (begin(steps=0), begin(tool_calls=0)):
        turn.reply(text="42")
        assert not turn.of(facts.Notice)


def test_usage_that_a_provider_omits_is_noticed_once(begin: "Begin") -> None:
    turn = begin()
    turn.step("look", usage=None)
    turn.step("list", usage=None)
    assert [fact.limit for fact in turn.of(facts.Notice)] == ["usage_unknown"]
