"""The doom-loop detector: has the model asked for the same round of calls again and again?

A round is the batch of one step as an order-free multiset of (tool, arguments). Results do not count: a call that
fails in a new way each time is still the same call. Calls of exempt tools are left out, and a round that is empty
then is no round at all. Source: DESIGN 4.6.
"""

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

from pydantic import JsonValue

#: The longest cycle of different rounds that is still seen as a loop.
LONGEST_PERIOD: Final = 4


class Round(NamedTuple):
    """One round: a digest of its multiset, and the names of its tools."""

    digest: str
    tools: tuple[str, ...]


def call_key(name: str, arguments: Mapping[str, JsonValue] | None, raw: str, loop_key: str | None) -> str:
    """What two calls must share to be the same call: twelve hexadecimal digits.

    The tool's `loop_key` stands for the arguments where it gives one; else their canonical JSON (sorted keys); else,
    where they were not JSON, the text as it came.
    """
    if loop_key is not None:
        shape = "key", loop_key
    elif arguments is not None:
        shape = "arguments", json.dumps(arguments, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    else:
        shape = "raw", raw
    return _digest((name, *shape))


def make_round(calls: Iterable[tuple[str, str]]) -> Round | None:
    """The round of a batch, from (name, key) of each call that the detector sees; None if there is none."""
    seen = sorted(calls, key=lambda call: call[1])
    if not seen:
        return None
    return Round(_digest(key for _, key in seen), tuple(sorted({name for name, _ in seen})))


def remember(rounds: tuple[Round, ...], latest: Round, threshold: int) -> tuple[Round, ...]:
    """The rounds with the latest added, cut to as many as the detector can ever look at."""
    return (*rounds, latest)[-LONGEST_PERIOD * threshold :]


def looping(rounds: tuple[Round, ...], threshold: int) -> tuple[str, ...]:
    """The tools of the loop that the latest round closes; empty if there is none.

    A loop is one round `threshold` times in a row, or a cycle of two to four rounds repeated as often.
    """
    for period in range(1, LONGEST_PERIOD + 1):
        tail = rounds[-period * threshold :]
        if len(tail) == period * threshold and tail == tail[:period] * threshold:
            return tuple(sorted({tool for one in tail[:period] for tool in one.tools}))
    return ()


def _digest(parts: Iterable[str]) -> str:
    # The unit separator keeps ("ab", "c") and ("a", "bc") apart. Half a surrogate pair becomes what a journal makes of
    # it, so that the key can be made again from there.
    return blake2b("\x1f".join(parts).encode(errors="replace"), digest_size=6).hexdigest()
