"""A distribution of whole numbers in bounded memory: exact below 1,024, within 0.1 % above."""

from math import ceil
from typing import Final

from msgspec import Struct, field

_EXACT_BITS: Final = 10
#: The shares that a report names.
QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class Distribution(Struct):
    """Counts of numbers of at least 0. Above 1,023 a number is rounded down to ten binary digits."""

    counts: dict[int, int] = field(default_factory=dict)
    n: int = 0
    total: int = 0
    max: int = 0

    def add(self, number: int) -> None:
        """Count a number."""
        shift = max(number.bit_length() - _EXACT_BITS, 0)
        key = number >> shift << shift
        self.counts[key] = self.counts.get(key, 0) + 1
        self.n += 1
        self.total += number
        self.max = max(self.max, number)

    def merge(self, addend: "Distribution") -> None:
        """Add all numbers of another distribution."""
        for key, count in addend.counts.items():
            self.counts[key] = self.counts.get(key, 0) + count
        self.n += addend.n
        self.total += addend.total
        self.max = max(self.max, addend.max)

    def quantile(self, share: float) -> int:
        """Return the smallest number that this share of all numbers does not exceed; 0 without numbers."""
        remaining = ceil(share * self.n)
        if remaining == self.n:
            return self.max
        for key in sorted(self.counts):
            remaining -= self.counts[key]
            if remaining <= 0:
                return key
        return self.max

    def shares(self) -> dict[str, int]:
        """Return p50, p95, p99 and max."""
        return {**{name: self.quantile(share) for name, share in QUANTILES.items()}, "max": self.max}
