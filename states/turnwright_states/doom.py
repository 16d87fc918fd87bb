"""The doom-loop detector: has the model asked for the same round of calls again and again?

A round is the batch of one step as an order-free multiset of (tool, arguments). Results do not count: a call that
fails in a new way each time is still the same call. Calls of exempt tools are left out, and a round that is empty
then is no round at all. Source: DESIGN 4.6.
"""

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

from msgspec import json as json_format
from msgspec import msgpack
from pydantic import JsonValue

#: The longest cycle of different rounds that is still seen as a loop.
LONGEST_PERIOD: Final = 4

#: One round: its multiset of (name, key), sorted, as MessagePack. Two rounds are one if these bytes are.
Round = bytes

_canonical: Final = json_format.Encoder(order="sorted").encode
_packed: Final = msgpack.Encoder().encode
_unpacked: Final = msgpack.Decoder(list[tuple[str, str]]).decode


def call_key(name: str, arguments: Mapping[str, JsonValue] | None, raw: str, loop_key: str | None) -> str:
    """What two calls must share to be the same call: twelve hexadecimal digits.

    The tool's `loop_key` stands for the arguments where it gives one; else their canonical JSON (sorted keys); else,
    where they were not JSON, the text as it came.
    """
    # The unit separator keeps ("ab", "c") and ("a", "bc") apart. Half a surrogate pair becomes what a journal makes of
    # it, so that the key can be made again from there.
    if loop_key is not None:
        text = f"{name}\x1fkey\x1f{loop_key}".encode(errors="replace")
    elif arguments is not None:
        try:
            text = f"{name}\x1farguments\x1f".encode() + _canonical(arguments)
        except UnicodeEncodeError:
            return call_key(_mended(name), json.loads(_mended(json.dumps(arguments, ensure_ascii=False))), raw, None)
    else:
        text = f"{name}\x1fraw\x1f{raw}".encode(errors="replace")
    return blake2b(text, digest_size=6).hexdigest()


def make_round(calls: Iterable[tuple[str, str]]) -> Round | None:
    """The round of a batch, from (name, key) of each call that the detector sees; None if there is none."""
    seen = sorted(calls)
    if not seen:
        return None
    try:
        return _packed(seen)
    except UnicodeEncodeError:
        return make_round((_mended(name), _mended(key)) for name, key in seen)


def remember(rounds: tuple[Round, ...], latest: Round, threshold: int) -> tuple[Round, ...]:
    """The rounds with the latest added, cut to as many as the detector can ever look at."""
    return (*rounds, latest)[-LONGEST_PERIOD * threshold :]


def looping(rounds: tuple[Round, ...], threshold: int) -> tuple[str, ...]:
    """The tools of the loop that the latest round closes; empty if there is none.

    A loop is one round `threshold` times in a row, or a cycle of two to four rounds repeated as often.
    """
    if not rounds or rounds[-1] not in rounds[:-1]:
        return ()  # whatever the period, the latest round has been there before
    for period in range(1, LONGEST_PERIOD + 1):
        tail = rounds[-period * threshold :]
        if len(tail) == period * threshold and tail == tail[:period] * threshold:
            return tuple(sorted({name for one in tail[:period] for name, _ in _unpacked(one)}))
    return ()


def _mended(text: str) -> str:
    return text.encode(errors="replace").decode()
