"""When two configurations of a turn are one, and the machine that a walk feeds.

Two configurations are one when nothing that can follow tells them apart. Names and texts are left out for that
reason, and so are, in the reduced key:

- *The order of the calls of a batch.* What depends on it (places, leases, refusals) was decided when the reply
  arrived, and stands in the calls. From then on the machine asks of a batch only whether some call can still run, how
  many there are in each condition, and who waits for what; an event names one call and changes that one alone. So a
  permutation of two calls in the same condition maps every way on of the one configuration to a way on of the
  other, event by event, with the same rows and ranks. It is enough to keep the multiset of conditions, and to let the
  surroundings do to one call of each condition what they may do to all.
- *Calls that have their result.* No event may name them any more (`InvalidCallError`), and no guard counts them.
- *What was counted against no limit:* calls where `tool_calls` is off. Only `calls_spent` and the places left read it,
  and neither can change within a walk.
- *What was spent above a limit,* and how often a call was started or answered: only facts and texts tell it.
- *Rounds that no loop can be made of any more* (`loops_ahead`).

The unreduced key keeps all of these. A test walks several cases with both and compares ends, rows and the longest way
in model calls.
"""

from typing import Final

from turnwright_states.call import Call, CallState
from turnwright_states.chart import CHART, Chart, Row
from turnwright_states.counters import KEPT
from turnwright_states.doom import LONGEST_PERIOD
from turnwright_states.machine import TurnMachine
from turnwright_states.state import State, Trigger
from turnwright_states.turn import Turn

Key = tuple[object, ...]

_CALLS: Final = list(KEPT).index("calls")


class WalkedMachine(TurnMachine):
    """The machine, noting the rows it takes, and without the hashes that nobody reads in a walk."""

    __slots__ = ("rows",)
    hashed = False

    def __init__(self, turn: Turn, chart: Chart = CHART) -> None:
        super().__init__(turn, chart)
        self.rows: list[Row] = []

    def _fire(self, trigger: Trigger) -> Row:
        row = super()._fire(trigger)
        self.rows.append(row)
        return row

    def twin(self) -> "WalkedMachine":
        """A copy of the same class that has taken no rows yet."""
        return type(self)(self.turn.copy(), self._chart)


def key_of(turn: Turn) -> Key:
    """What two configurations share when they are one, reduced as this module argues."""
    counters, limits = turn.counters, turn.limits
    kept = counters.kept()
    if not counters.budgeted:
        kept = (*kept[:_CALLS], *kept[_CALLS + 1 :])
    calls = [condition(turn, call) for call in turn.batch.values() if call.state is not CallState.SETTLED]
    if len(calls) > 1:
        calls.sort()
    return (
        turn.state,
        kept,
        tuple(calls),
        turn.carried,
        loops_ahead(turn),
        turn.loop_tools,
        turn.always_for,
        turn.step_open,
        turn.synthesis_done,
        turn.nudge,
        limits.tokens and max(limits.tokens - turn.input_tokens - turn.output_tokens, 0),
        limits.cost and max(limits.cost - turn.cost, 0.0),
    )


def loops_ahead(turn: Turn) -> Key:
    """What the rounds so far can still contribute to a loop.

    A period trips the detector once so many of the latest rounds, one after the other, equal the one a period before
    (`run`). Whether the next round lengthens a run depends on the last `period` rounds alone. A period whose run cannot
    become long enough in the steps that are left never trips, and nothing of it matters.
    """
    threshold, rounds = turn.limits.doom_threshold, turn.rounds
    if threshold is None or not rounds:
        return ()
    # In STREAM the reply of the step that has started is still to come.
    to_come = turn.counters.steps_left + (turn.state is State.STREAM)
    runs: list[tuple[int, int]] = []
    for period in range(1, LONGEST_PERIOD + 1):
        needed, most = period * (threshold - 1), len(rounds) - period
        run = 0
        while run < min(needed, most) and rounds[-1 - run] == rounds[-1 - run - period]:
            run += 1
        if to_come and min(run, most) + to_come >= needed:
            runs.append((period, run))
    return (rounds[-runs[-1][0] :], *runs) if runs else ()


def condition(turn: Turn, call: Call) -> tuple[object, ...]:
    """All that matters of a call that has no result yet: two calls of one batch that share it are interchangeable."""
    lease = call.made.lease
    return (
        call.state,
        call.counted,
        () if lease is None else (lease.calls, lease.tokens, lease.cost),
        _asked(turn, call) if call.state is CallState.WAITING else (),
    )


def _asked(turn: Turn, call: Call) -> tuple[tuple[str, bool], ...]:
    return tuple(sorted((one.kind, one.forwarded) for one in turn.interrupts.values() if one.call == call.id))


def whole_key_of(turn: Turn) -> Key:
    """All that a turn keeps but for names and texts: the key of the walk that is not reduced."""
    return (
        turn.state,
        turn.counters.kept(),
        turn.carried,
        turn.rounds,
        turn.loop_tools,
        turn.always_for,
        tuple(
            (*condition(turn, call), call.attempt, len(call.answers), bool(call.made.refused))
            for call in turn.batch.values()
        ),
        turn.step_open,
        turn.synthesis_done,
        turn.nudge,
        turn.input_tokens,
        turn.output_tokens,
        turn.cost,
    )
