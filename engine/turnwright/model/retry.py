"""The wait before another attempt. The chart decides whether there is one (docs/rules.md#retries)."""

import math
import random
from dataclasses import dataclass
from typing import Final

from turnwright.errors import ConfigError, need_kind

#: The longest wait, in seconds, that a provider's Retry-After may cause.
MAX_RETRY_AFTER: Final = 120.0

#: A power of two with more doublings would not fit a float.
_MOST_DOUBLINGS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential waits with full jitter.

    The wait after the n-th failed attempt is random between 0 and `initial` * 2 ** (n - 1) seconds, at most `maximum`.
    So many turns that failed together do not retry together. `initial=0` never waits. `max_retry_after` limits, in
    seconds, the wait that a provider may ask for.

    Raises `ConfigError` for a number that is negative or not finite.
    """

    initial: float = 0.5
    maximum: float = 30.0
    max_retry_after: float = MAX_RETRY_AFTER

    def __post_init__(self) -> None:
        for name in ("initial", "maximum", "max_retry_after"):
            seconds: float = getattr(self, name)
            need_kind(f"Backoff.{name}", seconds, int | float, "a number of seconds")
            if not math.isfinite(seconds) or seconds < 0:
                raise ConfigError(f"Backoff.{name} is {seconds}: it must be a number of seconds, 0 or more")

    def wait(self, attempt: int, retry_after: float | None = None) -> float:
        """Return the seconds to wait after `attempt` (1 for the first) has failed.

        The wait is at least `retry_after`, the seconds that the provider asked for, up to `max_retry_after`.
        """
        doublings = min(max(attempt, 1) - 1, _MOST_DOUBLINGS)
        wait = random.uniform(0, min(self.initial * 2**doublings, self.maximum))  # noqa: S311 (no secret)
        if retry_after is None or math.isnan(retry_after):
            return wait
        return max(wait, min(retry_after, self.max_retry_after))
