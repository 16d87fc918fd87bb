"""The rounds of a turn so far, and what they have become: a doom loop, or a stall.

A stall are rounds in a row that have the same error alone, or bring nothing new (docs/rules.md#stalls). It is not a
doom loop, since the calls may differ: by default it gives the model a hint and stops nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from .call import Call
from .doom import Round, looping, make_round, remember
from .facts import CallSettled
from .limits import Limits
from .payload import FrozenDict
from .result_key import compared_text, result_key
from .state import Stall


class SettledCall(Struct, frozen=True, gc=False):
    """A call that counts in the comparison of rounds: its tool, its key, the key of its result, whether it failed.

    `unkeyed` is the result itself, if `result` is a checksum.
    """

    name: str
    key: str
    result: str
    failed: bool
    unkeyed: CallSettled | None = None


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
        error, errors, idle, exchanges, checksum = "", 0, 0, self.seen, self.checksum
        if limits.stall_errors is not None and calls[0].failed:
            error = _find_common_error(calls)
            if error:
                errors = min(self.errors + 1, limits.stall_errors) if error == self.error else 1
        if limits.stall_rounds is not None:
            new = ""
            for call in calls:
                exchange = f"{call.key}{call.result} "
                if exchange not in exchanges and exchange not in new:
                    new += exchange
            if new:
                exchanges, checksum = exchanges + new, crc32(new.encode(), checksum)
            else:
                idle = min(self.idle + 1, limits.stall_rounds)
        stall = None
        if errors == limits.stall_errors:
            stall = Stall.SAME_ERROR
        elif idle == limits.stall_rounds:
            stall = Stall.NOTHING_NEW
        return Stalls(error, errors, idle, exchanges, checksum, stall)


#: A turn without rounds.
NO_STALLS: Final = Stalls()


class Rounds(Struct, frozen=True, gc=False):
    """The rounds of a turn. A copy of the turn shares them."""

    #: The latest rounds, as many as the doom-loop detector needs.
    latest: tuple[Round, ...] = ()
    #: A checksum of them for the hash of the turn; 0 without rounds.
    checksum: int = 0
    #: The tools of the loop that the last round closed; empty if it closed none.
    tools: tuple[str, ...] = ()
    stalls: Stalls = NO_STALLS
    #: The long results of calls that were made once, by the keys of the calls; `latest` and `seen` have checksums of
    #: them.
    unkeyed: FrozenDict[CallSettled] = FrozenDict()

    def add_latest(self, latest: Round | None, threshold: int | None) -> "Rounds":
        """Return the rounds with the latest added, and the loop that it closes."""
        if threshold is None or latest is None:
            return Rounds(self.latest, self.checksum, (), self.stalls, self.unkeyed) if self.tools else self
        rounds = remember(self.latest, latest, threshold)
        return Rounds(rounds, crc32(b"".join(rounds)), looping(rounds, threshold), self.stalls, self.unkeyed)

    def add_settled_step(self, calls: Sequence[SettledCall], limits: Limits) -> "Rounds":
        """Return the rounds after a step whose calls have these results."""
        rounds = self._key_results(calls)
        if limits.doom_compare == "results":
            latest = make_round([(call.name, call.key + call.result) for call in calls])
            rounds = rounds.add_latest(latest, limits.doom_threshold)
        if limits.stall_errors is None and limits.stall_rounds is None:
            return rounds
        tools, stalls = rounds.tools, rounds.stalls.after(calls, limits)
        if not tools and stalls.stall and limits.stall_response == "loop":
            tools = tuple(sorted({call.name for call in calls}))
        return Rounds(rounds.latest, rounds.checksum, tools, stalls, rounds.unkeyed)

    def _key_results(self, calls: Sequence[SettledCall]) -> "Rounds":
        """Return the rounds with keys for the results of calls that recur, and with the new results without keys."""
        rounds, unkeyed_counts = self, self.unkeyed
        for call in calls:
            if call.unkeyed is not None:
                unkeyed_counts = FrozenDict({**unkeyed_counts, call.key: call.unkeyed})
            elif call.key in unkeyed_counts:
                rounds = rounds._with_key(call.key, unkeyed_counts[call.key])
                unkeyed_counts = FrozenDict({key: fact for key, fact in unkeyed_counts.items() if key != call.key})
        if unkeyed_counts is self.unkeyed:
            return self
        return Rounds(rounds.latest, rounds.checksum, rounds.tools, rounds.stalls, unkeyed_counts)

    def _with_key(self, call: str, fact: CallSettled) -> "Rounds":
        """Return the rounds in which the result of the call with this key has its key instead of its checksum."""
        old, new = call + fact.key, call + result_key(compared_text(fact.result, fact.files))
        latest = tuple(round_.replace(old.encode(), new.encode()) for round_ in self.latest)
        stalls = replace(self.stalls, seen=self.stalls.seen.replace(old, new))
        return Rounds(latest, crc32(b"".join(latest)), self.tools, stalls)

    def have(self, call: str) -> bool:
        """Return whether the call with this key was made in one of the rounds."""
        return call in self.stalls.seen or call.encode() in b"".join(self.latest)

    def repeat_a_call(self, batch: Mapping[str, Call]) -> bool:
        """Return whether a call of the batch is in a round of an earlier step. Most are in none."""
        latest_keys = b"".join(self.latest)
        for name in batch:  # a plain loop, because this runs once a step
            key = batch[name].made.key
            if key and key.encode() in latest_keys:
                return True
        return False


NO_ROUNDS: Final = Rounds()


def _find_common_error(calls: Sequence[SettledCall]) -> str:
    """Return the key of the error that all calls have; empty if one succeeded, or errors differ."""
    error = calls[0].result
    for call in calls:
        if not call.failed or call.result != error:
            return ""
    return error
