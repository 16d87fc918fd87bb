"""The rounds of a turn so far, and what they have become: a doom loop or a stall."""

from collections.abc import Iterable, Sequence
from typing import Final
from zlib import crc32

from msgspec import Struct

from .call import Call
from .doom import Round, looping, make_round, remember
from .limits import Limits
from .stall import NO_STALLS, SettledCall, Stalls


class Rounds(Struct, frozen=True, gc=False):
    """The rounds of a turn. A copy of the turn shares them."""

    #: The latest rounds, as many as the doom-loop detector needs.
    latest: tuple[Round, ...] = ()
    #: A checksum of them for the hash of the turn; 0 without rounds.
    checksum: int = 0
    #: The tools of the loop that the last round closed; empty if it closed none.
    tools: tuple[str, ...] = ()
    stalls: Stalls = NO_STALLS

    def compared(self, latest: Round | None, threshold: int | None) -> "Rounds":
        """Return the rounds with the latest added, and the loop that it closes."""
        if threshold is None or latest is None:
            return Rounds(self.latest, self.checksum, (), self.stalls) if self.tools else self
        rounds = remember(self.latest, latest, threshold)
        return Rounds(rounds, crc32(b"".join(rounds)), looping(rounds, threshold), self.stalls)

    def settled(self, calls: Sequence[SettledCall], limits: Limits) -> "Rounds":
        """Return the rounds after a step whose calls have these results."""
        rounds = self
        if limits.doom_compare == "results":
            latest = make_round([(call.name, call.key + call.result) for call in calls])
            rounds = self.compared(latest, limits.doom_threshold)
        if not limits.watches_stalls:
            return rounds
        tools, stalls = rounds.tools, self.stalls.after(calls, limits)
        if not tools and stalls.stall and limits.stall_response == "loop":
            tools = tuple(sorted({call.name for call in calls}))
        return Rounds(rounds.latest, rounds.checksum, tools, stalls)

    def repeat_a_call(self, batch: Iterable[Call]) -> bool:
        """Return whether one of these calls is in a round of an earlier step. Most are in none."""
        seen = b"".join(self.latest)
        for call in batch:  # a plain loop, because this runs once a step
            key = call.made.key
            if key and key.encode() in seen:
                return True
        return False


NO_ROUNDS: Final = Rounds()
