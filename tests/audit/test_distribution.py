"""A distribution is exact for small numbers, close for large ones, and can be merged."""

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from turnwright_audit.distribution import Distribution


def of(numbers: list[int]) -> Distribution:
    distribution = Distribution()
    for number in numbers:
        distribution.add(number)
    return distribution


@given(st.lists(st.integers(0, 1023), min_size=1), st.sampled_from((0.5, 0.95, 0.99)))
def test_small_numbers_are_exact(numbers: list[int], share: float) -> None:
    assert of(numbers).quantile(share) == sorted(numbers)[ceil(share * len(numbers)) - 1]


@given(st.lists(st.integers(0, 10**12), min_size=1), st.sampled_from((0.5, 0.99)))
def test_large_numbers_have_an_error_below_a_thousandth(numbers: list[int], share: float) -> None:
    exact = sorted(numbers)[ceil(share * len(numbers)) - 1]
    assert exact * 0.998 <= of(numbers).quantile(share) <= exact
    assert of(numbers).max == of(numbers).quantile(1) == max(numbers)


@given(st.lists(st.integers(0, 10**9)), st.lists(st.integers(0, 10**9)))
def test_merged_distributions_equal_the_distribution_of_all_numbers(
    numbers: list[int], more_numbers: list[int]
) -> None:
    merged = of(numbers)
    merged.merge(of(more_numbers))
    assert merged == of(numbers + more_numbers)


def test_empty_distribution_has_shares_of_zero() -> None:
    assert Distribution().shares() == {"p50": 0, "p95": 0, "p99": 0, "max": 0}
