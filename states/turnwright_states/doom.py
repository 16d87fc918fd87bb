"""The doom-loop detector: finds a round of calls that the model repeats (docs/rules.md#doom-loops).

A round is the batch of one step as an unordered multiset of (tool, arguments, result), or of (tool, arguments) where
the limits compare calls (`doom_compare`). Calls of exempt tools, and calls without a result that counts, are left out.
A batch without other calls is not a round.
"""

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

from msgspec import json as json_format
from msgspec import msgpack
from pydantic import JsonValue

from .construct import writable
from .payload import plain

#: The longest cycle of different rounds that counts as a loop.
LONGEST_PERIOD: Final = 4

#: One round: its multiset of (name, key), sorted, as MessagePack. Equal bytes mean equal rounds.
Round = bytes

_canonical: Final = json_format.Encoder(enc_hook=plain, order="sorted").encode
_pack: Final = msgpack.Encoder(enc_hook=plain).encode
_unpack: Final = msgpack.Decoder(list[tuple[str, str]]).decode


def call_key(name: str, arguments: Mapping[str, JsonValue] | None, raw: str, loop_key: str | None) -> str:
    """Return twelve hexadecimal digits that are equal for two calls which count as the same.

    They are made from the tool's `loop_key` if it gives one, else from the arguments as canonical JSON (sorted keys),
    else from the raw text that was not JSON.
    """
    # The unit separator distinguishes ("ab", "c") from ("a", "bc"). Half a surrogate pair becomes a question mark, as
    # in a journal, so that the key can be recomputed from there.
    if loop_key is not None:
        text = f"{name}\x1fkey\x1f{loop_key}".encode(errors="replace")
    elif arguments is not None:
        text = f"{name}\x1farguments\x1f".encode(errors="replace") + canonical(arguments)
    else:
        text = f"{name}\x1fraw\x1f{raw}".encode(errors="replace")
    return blake2b(text, digest_size=6).hexdigest()


def canonical(value: object) -> bytes:
    """Return a value of JSON with its keys sorted, so that equal values have equal bytes."""
    try:
        return _canonical(value)
    except UnicodeEncodeError:
        return _canonical(json.loads(writable(json.dumps(value, ensure_ascii=False))))


def make_round(calls: Iterable[tuple[str, str]]) -> Round | None:
    """Return the round of a batch, from the (name, key) of its calls that count; None if none is left.

    A key is that of the call, followed by that of its result where results are compared.
    """
    pairs = sorted(calls)
    if not pairs:
        return None
    try:
        return _pack(pairs)
    except UnicodeEncodeError:
        return make_round((writable(name), writable(key)) for name, key in pairs)


def remember(rounds: tuple[Round, ...], latest: Round, threshold: int) -> tuple[Round, ...]:
    """Return the rounds with the latest added, cut to as many as the detector needs."""
    return (*rounds, latest)[-LONGEST_PERIOD * threshold :]


def looping(rounds: tuple[Round, ...], threshold: int) -> tuple[str, ...]:
    """Return the tools of the loop that the latest round closes; empty if there is none.

    A loop is one round `threshold` times in a row, or a cycle of two to four rounds repeated `threshold` times.
    """
    if not rounds or rounds[-1] not in rounds[:-1]:
        return ()  # in a loop of any period, the latest round occurred before
    for period in range(1, LONGEST_PERIOD + 1):
        tail = rounds[-period * threshold :]
        if len(tail) == period * threshold and tail == tail[:period] * threshold:
            return tuple(sorted({name for round_ in tail[:period] for name, _ in _unpack(round_)}))
    return ()
