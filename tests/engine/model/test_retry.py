import math
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.errors import ConfigError
from turnwright.model.retry import MAX_RETRY_AFTER, Backoff

ATTEMPT = st.integers(-1, 5000)
SECONDS = st.floats(0, 1e6)


@given(attempt=ATTEMPT, initial=st.just(0.0) | st.floats(0.001, 100), maximum=st.floats(0, 100))
def test_a_wait_grows_exponentially_up_to_the_maximum(attempt: int, initial: float, maximum: float) -> None:
    wait = Backoff(initial=initial, maximum=maximum).wait(attempt)
    assert 0 <= wait <= min(maximum, initial * 2 ** min(max(attempt, 1) - 1, 100))


@pytest.mark.parametrize("attempt", [1, 1_001, 10**9])
def test_wait_after_a_huge_start_is_at_most_the_maximum(attempt: int) -> None:
    assert 0 <= Backoff(initial=1e308, maximum=7).wait(attempt) <= 7


def test_waits_are_spread_out() -> None:
    """Turns that failed together must not come back together."""
    assert len({Backoff(initial=1).wait(3) for _ in range(20)}) > 10


@given(attempt=ATTEMPT)
def test_an_initial_wait_of_zero_never_waits(attempt: int) -> None:
    assert Backoff(initial=0).wait(attempt) == 0


@given(attempt=ATTEMPT, retry_after=SECONDS)
def test_retry_after_is_waited_for_up_to_a_bound(attempt: int, retry_after: float) -> None:
    assert Backoff(initial=0).wait(attempt, retry_after) == min(retry_after, MAX_RETRY_AFTER)
    assert Backoff().wait(attempt, retry_after) >= min(retry_after, MAX_RETRY_AFTER)


def test_the_bound_of_retry_after_can_be_set() -> None:
    assert Backoff(initial=0, max_retry_after=3).wait(1, 60) == 3


@pytest.mark.parametrize(("retry_after", "wait"), [(-5, 0), (math.nan, 0), (math.inf, MAX_RETRY_AFTER)])
def test_a_senseless_retry_after_does_no_harm(retry_after: float, wait: float) -> None:
    assert Backoff(initial=0).wait(1, retry_after) == wait


@pytest.mark.parametrize("field", ["initial", "maximum", "max_retry_after"])
def test_wait_of_another_type_is_refused(field: str) -> None:
    with pytest.raises(ConfigError, match=rf"Backoff\.{field} must be a number of seconds, not '1'"):
        Backoff(**{field: cast("Any", "1")})


@pytest.mark.parametrize("field", ["initial", "maximum", "max_retry_after"])
@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf])
def test_invalid_number_of_seconds_is_refused(field: str, seconds: float) -> None:
    with pytest.raises(ConfigError, match=rf"Backoff\.{field} is {seconds}"):
        Backoff(**{field: seconds})
