"""Values of a strategy, drawn outside of a property test."""

from typing import Final, TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

T = TypeVar("T")

#: The values that are drawn of each strategy.
_POOL: Final = 60
#: Strategies of users may be slow, and refuse much: a pool is drawn once.
_SLOW: Final = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)


def draw_pool(strategy: st.SearchStrategy[T], seed: int, most: int = _POOL) -> list[T]:
    """Draw values of a strategy, as the seed has them; fewer where it has no more."""
    values: list[T] = []

    @seeded(seed)
    @settings(
        max_examples=most,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=_SLOW,
        verbosity=Verbosity.quiet,
    )
    @given(strategy)
    def collect(value: T) -> None:
        values.append(value)

    collect()
    return values
