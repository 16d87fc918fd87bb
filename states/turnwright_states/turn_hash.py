"""The hash of a turn, which its facts have."""

from typing import TYPE_CHECKING, Final
from zlib import crc32

from msgspec import msgpack

from .payload import plain
from .rounds import NO_STALLS
from .state import State

if TYPE_CHECKING:
    from .turn import Turn

_packed: Final = msgpack.Encoder(enc_hook=plain).encode
#: The output retries and compactions of a turn that has the defaults of chart 3 and used none. Such a turn has the hash
#: that it had before they existed.
_UNUSED: Final = (2, 0)
#: The limit of idle steps that a turn has by default, and that of a turn of chart 3. Their hashes are those of chart 3.
_IDLE_LIMITS: Final = (5, 0)


def digest_of(turn: "Turn") -> str:  # noqa: C901 (one value after the other: flat)
    """Return eight hexadecimal digits that depend on everything that can affect the rest of the turn.

    They are the same on every machine and under every version of Python and msgspec, because MessagePack defines
    each byte, including the eight bytes of the cost.
    """
    c, batch = turn.counters, turn.batch
    # fmt: off
    known: list[object] = [
        turn.state, c.steps, c.allowance, c.calls, c.budgeted, c.budget, c.tokens_spent, c.cost_spent,
        c.time_spent, c.doom, c.doom_asks, c.nudges_left, c.pauses_left, c.retries_left, c.waiting,
        c.carried_doom, turn.input_tokens, turn.output_tokens, turn.cost, turn.calls_made, turn.carried,
        turn.reason, turn.rounds.checksum, turn.step_open, turn.synthesis_done, turn.noticed, turn.grants,
    ]
    # fmt: on
    if turn.always_for or turn.interrupts:
        known += (sorted(turn.always_for), [*turn.interrupts])
    if c.second_try:
        known.append("second_try")
    left = c.output_retries_left, c.compactions_left
    if left != _UNUSED or c.final or c.prepared or turn.tool_retries:
        known += ("beside", *left, c.final, c.prepared, sorted(turn.tool_retries.items()))
    if c.idle or c.idle_limit not in _IDLE_LIMITS:
        known += ("idle", c.idle, c.idle_limit)
    if turn.state is State.REVIEW:
        known.append(turn.truncated)
    if turn.cached_tokens or turn.reasoning_tokens:  # likewise
        known += ("parts", turn.cached_tokens, turn.reasoning_tokens)
    keyed, stalls, fails = turn.keys_results, turn.rounds.stalls, turn.limits.stall_errors is not None
    if turn.round_forgotten:
        known.append("forgotten")
    if stalls is not NO_STALLS:
        known += ("stalls", stalls.error, stalls.errors, stalls.idle, stalls.checksum, stalls.stall)
    for name in batch:
        call = batch[name]
        known += (call.state, call.attempt, call.counted, call.made.own_key)
        if call.crash_paid:
            known.append("crash_paid")
        if keyed:
            known += (call.made.key, f"{call.result_key}!" if call.failed and fails else call.result_key)
    try:
        packed = _packed(known)
    except (OverflowError, UnicodeEncodeError):  # a count of more than 64 bits, or half a surrogate pair
        packed = ascii(known).encode()
    return "%08x" % crc32(packed)  # noqa: UP031 (twice as fast as an f-string)
