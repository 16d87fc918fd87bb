"""The doom-loop detector, compared with a naive one (docs/rules.md#doom-loops)."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright_states.doom import LONGEST_PERIOD, Round, call_key, looping, make_round, remember

NAMES = st.sampled_from("abcd")
JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text(), JSON, max_size=4)


def round_of(name: str) -> Round:
    new_round = make_round([(name, call_key(name, {}, "", None))])
    assert new_round is not None
    return new_round


def naive(history: list[str], threshold: int) -> set[str]:
    """The rounds of the loop that the last one closes, found by looking at the whole history."""
    for period in range(1, 5):
        length = period * threshold
        if len(history) >= length and all(history[-i] == history[-i - period] for i in range(1, length - period + 1)):
            return set(history[-period:])
    return set()


@given(st.lists(NAMES, max_size=60), st.integers(2, 5))
def test_detector_agrees_with_a_naive_detector(history: list[str], threshold: int) -> None:
    """At each point of any history, though it keeps only as many rounds as it can ever look at."""
    rounds: tuple[Round, ...] = ()
    for count, name in enumerate(history, start=1):
        rounds = remember(rounds, round_of(name), threshold)
        assert len(rounds) <= LONGEST_PERIOD * threshold
        assert set(looping(rounds, threshold)) == naive(history[:count], threshold)


@given(st.lists(NAMES, min_size=1, max_size=6), st.lists(NAMES, max_size=9), st.integers(2, 4))
def test_detector_agrees_with_a_naive_detector_on_repeated_cycles(
    cycle: list[str], before: list[str], threshold: int
) -> None:
    history = before + cycle * (threshold + 1)
    rounds: tuple[Round, ...] = ()
    for count, name in enumerate(history, start=1):
        rounds = remember(rounds, round_of(name), threshold)
        assert set(looping(rounds, threshold)) == naive(history[:count], threshold)


@pytest.mark.parametrize("period", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("threshold", [2, 3])
def test_cycle_is_detected_at_the_last_round_and_not_before(period: int, threshold: int) -> None:
    rounds = [round_of(name) for name in "abcde"[:period] * threshold]
    loop = looping(tuple(rounds), threshold)
    assert loop == (tuple("abcde"[:period]) if period <= 4 else ())
    assert looping(tuple(rounds[:-1]), threshold) == ()


def test_empty_rounds_are_no_loop() -> None:
    assert looping((), 2) == ()


@given(
    st.lists(st.tuples(NAMES, st.sampled_from(["1", "2"])), min_size=1, max_size=6), st.randoms(use_true_random=False)
)
def test_round_ignores_the_order_of_calls(calls: list[tuple[str, str]], chance: random.Random) -> None:
    shuffled = calls.copy()
    chance.shuffle(shuffled)
    keyed = [(name, call_key(name, None, raw, None)) for name, raw in calls]
    shuffled_keyed = [(name, call_key(name, None, raw, None)) for name, raw in shuffled]
    assert make_round(keyed) == make_round(shuffled_keyed)


@given(*[st.lists(st.tuples(NAMES, st.sampled_from(["1", "2"])), min_size=1, max_size=4)] * 2)
def test_rounds_are_equal_exactly_if_the_calls_are_equal(
    first: list[tuple[str, str]], second: list[tuple[str, str]]
) -> None:
    rounds = [make_round((name, call_key(name, None, raw, None)) for name, raw in calls) for calls in (first, second)]
    assert (rounds[0] == rounds[1]) is (sorted(first) == sorted(second))


def test_round_without_calls_is_none() -> None:
    assert make_round([]) is None


@given(ARGUMENTS)
def test_arguments_are_compared_as_canonical_json(arguments: dict[str, JsonValue]) -> None:
    """The order of the keys does not count, and what went through JSON is the same."""
    backwards = dict(reversed(arguments.items()))
    through_json = json.loads(json.dumps(arguments))
    key = call_key("read", arguments, "", None)
    assert key == call_key("read", backwards, "", None) == call_key("read", through_json, "", None)


@given(ARGUMENTS, ARGUMENTS)
def test_different_arguments_have_different_keys(first: dict[str, JsonValue], second: dict[str, JsonValue]) -> None:
    same = json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    assert (call_key("read", first, "", None) == call_key("read", second, "", None)) is same


def test_call_key_separates_name_arguments_raw_text_and_loop_key() -> None:
    """A raw text is never taken for arguments or for a loop key, nor a name for a part of what follows it."""
    keys = [
        call_key("read", {}, "", None),
        call_key("read", None, "{}", None),
        call_key("read", {}, "", "{}"),
        call_key("read", {}, "", ""),
        call_key("list", {}, "", None),
        call_key("read{}", None, "", None),
        call_key("read", {"a": 1}, "", None),
        call_key("read", {"a": "1"}, "", None),
    ]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 12 for key in keys)


def test_loop_key_replaces_the_arguments() -> None:
    assert call_key("fetch", {"n": 1}, "", "x") == call_key("fetch", {"n": 2}, "", "x")
    assert call_key("fetch", {"n": 1}, "", "x") != call_key("fetch", {"n": 1}, "", "y")
    assert call_key("fetch", {"n": 1}, "", "x") != call_key("get", {"n": 1}, "", "x")


def test_half_a_surrogate_pair_in_a_round_is_a_question_mark() -> None:
    for name, key in (("\ud800", "k"), ("read", "\udfff"), ("\ud800", "\udfff")):
        plain = [(name.replace("\ud800", "?"), key.replace("\udfff", "?"))]
        assert make_round([(name, key)]) == make_round(plain) is not None


def test_half_a_surrogate_pair_has_the_key_of_the_journaled_text() -> None:
    """Wherever it stands: in the text as it came, in a loop key, in arguments, in a name."""
    assert call_key("read", None, '{"path": "\ud800', None) == call_key("read", None, '{"path": "?', None)
    assert call_key("read", {}, "", "\ud800") == call_key("read", {}, "", "?")
    assert call_key("re\ud800", {}, "", "key") == call_key("re?", {}, "", "key")
    assert call_key("re\ud800", {"a": 1}, "", None) == call_key("re?", {"a": 1}, "", None)
    assert call_key("read", {"\udc00": ["\ud800", "\u00e9"]}, "", None) == call_key(
        "read", {"?": ["?", "\u00e9"]}, "", None
    )
