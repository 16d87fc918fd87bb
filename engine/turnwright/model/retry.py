"""How long to wait before another attempt. Whether there is one is for the chart to say (DESIGN 4.10)."""

import math
from dataclasses import dataclass
from typing import Final

from turnwright.errors import ConfigError

#: The longest wait, in seconds, that a provider's Retry-After is granted. Who asks for more is asked again after this.
MAX_RETRY_AFTER: Final = 120.0

_MOST_ATTEMPTS: Final = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential waits with full jitter, computed by tenacity.

    After the n-th failed attempt it is anything from 0 to `initial` * 2 ** (n - 1) seconds, and never more than
    `maximum`: many turns that failed together do not come back together. `initial=0` never waits.
    `max_retry_after` bounds, in seconds, what a provider may ask for.

    Raises `ConfigError` for a number that is negative or not finite.
    """

    initial: float = 0.5
    maximum: float = 30.0
    max_retry_after: float = MAX_RETRY_AFTER

    def __post_init__(self) -> None:
        for name in ("initial", "maximum", "max_retry_after"):
            seconds: float = getattr(self, name)
            if not math.isfinite(seconds) or seconds < 0:
                raise ConfigError(f"Backoff.{name} is {seconds}: it must be a number of seconds, 0 or more")

    def wait(self, attempt: int, retry_after: float | None = None) -> float:
        """Return the seconds to wait after `attempt` (1 for the first) has failed.

        It is at least `retry_after`, what the provider asked for in seconds, up to `max_retry_after`.
        """
        # tenacity loads asyncio's neighbours; who never retries need not pay for it.
        import tenacity  # noqa: PLC0415

        state = tenacity.RetryCallState(tenacity.Retrying(), fn=None, args=(), kwargs={})
        # Far beyond any maximum; and after a thousand tenacity would give up and wait for the maximum, also from 0.
        state.attempt_number = min(max(attempt, 1), _MOST_ATTEMPTS)
        wait = tenacity.wait_random_exponential(multiplier=self.initial, max=self.maximum)(state)
        if retry_after is None or math.isnan(retry_after):
            return wait
        return max(wait, min(retry_after, self.max_retry_after))
