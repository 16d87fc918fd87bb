"""Stalls: rounds in a row that have the same error alone, or bring nothing new (docs/rules.md#stalls).

A stall is no doom loop: the calls may differ. By default it gives the model a hint and stops nothing.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final
from zlib import crc32

from msgspec import Struct

from .limits import Limits


class Stall(StrEnum):
    """The kind of a stall, which decides the words of the hint."""

    SAME_ERROR = "same_error"
    NOTHING_NEW = "nothing_new"


class SettledCall(Struct, frozen=True, gc=False):
    """A call that counts in the comparison of rounds: its tool, its key, the key of its result, whether it failed."""

    name: str
    key: str
    result: str
    failed: bool


class Stalls(Struct, frozen=True, gc=False):
    """The rounds that bring nothing new, counted. No count exceeds its limit.

    The calls of the whole turn are kept with their results, 25 characters each.
    """

    #: The error of the last rounds, and how many of them have it alone.
    error: str = ""
    errors: int = 0
    #: How many of the last rounds have only calls that were made before, with the same results.
    idle: int = 0
    #: Each different call with its result.
    seen: str = ""
    #: A checksum of `seen` for the hash of the turn.
    checksum: int = 0
    #: The stall that the last round belongs to.
    stall: Stall | None = None

    def after(self, calls: Sequence[SettledCall], limits: Limits) -> "Stalls":
        """Return the counts after a round of these calls. A round without calls neither counts nor breaks a row."""
        if not calls:
            return Stalls(self.error, self.errors, self.idle, self.seen, self.checksum) if self.stall else self
        error, errors, idle, seen, checksum = "", 0, 0, self.seen, self.checksum
        if limits.stall_errors is not None:
            error = _common_error(calls)
            if error:
                errors = min(self.errors + 1, limits.stall_errors) if error == self.error else 1
        if limits.stall_rounds is not None:
            new = ""
            for call in calls:
                exchange = f"{call.key}{call.result} "
                if exchange not in seen and exchange not in new:
                    new += exchange
            if new:
                seen, checksum = seen + new, crc32(new.encode(), checksum)
            else:
                idle = min(self.idle + 1, limits.stall_rounds)
        stall = None
        if error and errors == limits.stall_errors:
            stall = Stall.SAME_ERROR
        elif idle and idle == limits.stall_rounds:
            stall = Stall.NOTHING_NEW
        return Stalls(error, errors, idle, seen, checksum, stall)


#: A turn without rounds.
NO_STALLS: Final = Stalls()


def _common_error(calls: Sequence[SettledCall]) -> str:
    """Return the key of the error that all calls have; empty if one succeeded, or errors differ."""
    error = calls[0].result
    for call in calls:
        if not call.failed or call.result != error:
            return ""
    return error
