"""Values of strategies, drawn outside of a property test, and a block in which Hypothesis leaves nothing behind."""

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, configuration, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning

T = TypeVar("T")

#: The values that are drawn of each strategy.
_POOL: Final = 60
#: Strategies of users may be slow, and refuse much: a pool is drawn once.
_SLOW: Final = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)


def draw_pool(strategy: st.SearchStrategy[T], seed: int) -> list[T]:
    """Draw values of a strategy, as the seed has them; fewer where it has no more."""
    values: list[T] = []

    @seeded(seed)
    @settings(
        max_examples=_POOL,
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


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the log and the warnings about intended failures, and Hypothesis's files in the working directory."""
    before = logging.root.manager.disable
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", HypothesisWarning)  # it finds examples too large to be shown, and nobody asks
        configuration.set_hypothesis_home_dir(Path(folder))
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)
            configuration.set_hypothesis_home_dir(None)
