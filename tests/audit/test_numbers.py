"""Numbers are short, and small shares are not zero."""

import pytest

from turnwright_audit.numbers import abbreviate, percent


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [(0, 0, ""), (0, 200, "0%"), (1, 200, "0.5%"), (3, 200, "2%"), (199, 200, "100%"), (1, 100_000, "0.0%")],
)
def test_percent_has_the_digits_needed_by_a_small_share(part: int, whole: int, expected: str) -> None:
    assert percent(part, whole) == expected


def test_abbreviate_adds_the_unit() -> None:
    assert [abbreviate(number) for number in (0, 950, 12_345, 4_560_000, 2e9)] == ["0", "950", "12.3k", "4.56M", "2G"]
