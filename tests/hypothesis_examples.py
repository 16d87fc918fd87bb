"""Numbers of examples for tests that run more or fewer of them than Hypothesis's profile says."""

from hypothesis import settings


def percent_of_examples(percent: int) -> int:
    """Return so many percent of the profile's examples, at least 1."""
    return max(1, settings().max_examples * percent // 100)
