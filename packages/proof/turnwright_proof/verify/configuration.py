"""The keys by which a walk compares configurations of a turn, and the machine that it feeds.

Two configurations have the same key if they have the same future. Names and texts do not affect it. The reduced key
also leaves out:

- *The order of the calls of a batch.* Places, leases and refusals depend on it, but they were decided when the reply
  arrived. Afterwards the machine reads only whether a call can still run, how many calls are in each condition, and
  which call waits for which answer; an input names one call and changes only that one. So a permutation of two calls in
  the same condition maps each continuation of one configuration to one of the other, with the same rows and ranks. The
  multiset of conditions is enough, and the environment needs to act on only one call of each condition.
- *Calls with a result.* No input may name them any more (`InvalidCallError`), and no guard counts them. Only whether
  one of the step's calls ran is kept, where idle steps are limited.
- *Counts without a limit:* calls without `tool_calls`. Only `calls_spent` and the places left read them, and neither
  can change within a walk.
- *Usage above a limit,* and how often a call was started or answered: only facts and texts have it.
- *The evidence of rules:* only their verdicts name earlier calls. Of their orders only the relations count.
- *Rounds that cannot become part of a loop any more* (`loops_ahead`), and stalls that only give a hint.

The unreduced key keeps all of these. A test walks several cases with both keys: from configurations with equal reduced
keys, inputs take the same rows to equal keys, and both walks have the same ends, rows and longest path in model calls.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, Self

from turnwright_states.call import Call, CallState
from turnwright_states.chart import CHART, Chart, Row
from turnwright_states.counters import KEPT
from turnwright_states.doom import LONGEST_PERIOD, Round
from turnwright_states.machine import TurnMachine
from turnwright_states.rounds import NO_STALLS
from turnwright_states.state import State, Trigger
from turnwright_states.turn import Turn

Key = tuple[object, ...]

_CALLS: Final = list(KEPT).index("calls")


class WalkedMachine(TurnMachine):
    """The machine, which records its rows, without the hashes, which a walk does not need."""

    __slots__ = ("rows",)
    hashed = False

    def __init__(self, turn: Turn, chart: Chart = CHART) -> None:
        super().__init__(turn, chart)
        self.rows: list[Row] = []

    def _fire(self, trigger: Trigger) -> Row:
        row = self._chart.fire(self, trigger, self.turn.counters)
        self.rows.append(row)
        return row

    def twin(self) -> Self:
        """Return a copy of the same class without recorded rows."""
        twin = object.__new__(type(self))
        twin.turn, twin.state, twin._chart, twin._out, twin.rows = self.turn.copy(), self.state, self._chart, [], []
        return twin


def key_of(turn: Turn) -> Key:
    """Return the reduced key of a configuration."""
    counters, limits = turn.counters, turn.limits
    kept_values = counters.kept()
    if not counters.budgeted:
        kept_values = (*kept_values[:_CALLS], *kept_values[_CALLS + 1 :])
    calls = [condition(turn, call) for call in turn.batch.values() if call.state is not CallState.SETTLED]
    if len(calls) > 1:
        calls.sort()
    return (
        turn.state,
        kept_values,
        tuple(calls),
        turn.carried,
        loops_ahead(turn),
        _results(turn),
        counters.idle_limit > 0 and turn.idles,
        turn.rounds.tools,
        stalls_ahead(turn),
        turn.always_for,
        turn.step_open,
        turn.synthesis_done,
        turn.nudge,
        turn.counters.prepared,
        # A review reads whether the reply was cut off, and whether it has calls, also settled ones.
        (turn.truncated, turn.batch != {}) if turn.state is State.REVIEW else (),
        limits.tokens and max(limits.tokens - turn.input_tokens - turn.output_tokens, 0),
        limits.cost and max(limits.cost - turn.cost, 0.0),
    )


def loops_ahead(turn: Turn) -> Key:
    """Return the part of the rounds so far that can still become part of a loop.

    For each period, the run is the number of latest rounds that equal the round one period before. The detector reports
    a loop once a run is long enough. Only the last `period` rounds decide whether the next round extends the run. A
    period is left out if its run cannot become long enough in the remaining steps.
    """
    threshold, rounds = turn.limits.doom_threshold, turn.rounds.latest
    if threshold is None or not rounds:
        return ()
    # In STREAM and COMPACT the reply of the started step is still missing, and its results until its end.
    is_started = turn.state is State.STREAM or turn.state is State.COMPACT
    to_come = turn.counters.steps_left + (is_started or (turn.limits.results_decide and turn.step_open))
    return _ahead(threshold, rounds, to_come)


@lru_cache(maxsize=1 << 16)  # a walk meets the same rounds in many configurations
def _ahead(threshold: int, rounds: tuple[Round, ...], to_come: int) -> Key:
    runs: list[tuple[int, int]] = []
    for period in range(1, LONGEST_PERIOD + 1):
        needed_count, most = period * (threshold - 1), len(rounds) - period
        run = 0
        while run < min(needed_count, most) and rounds[-1 - run] == rounds[-1 - run - period]:
            run += 1
        if to_come and min(run, most) + to_come >= needed_count:
            runs.append((period, run))
    return (rounds[-runs[-1][0] :], *runs) if runs else ()


def stalls_ahead(turn: Turn) -> Key:
    """Return what can still become a stall that is a doom loop. A hint changes no path."""
    stalls = turn.rounds.stalls
    if turn.limits.stall_response != "loop" or stalls == NO_STALLS:
        return ()
    # The order of what came before does not matter.
    return stalls.error, stalls.errors, stalls.idle, *sorted(stalls.seen.split())


def _results(turn: Turn) -> Key:
    """Return the results of the open step that become a part of its round."""
    if not turn.limits.results_decide or not turn.step_open:
        return ()
    calls = [call for call in turn.batch.values() if call.result_key]
    keys = sorted((call.name, call.made.key, call.result_key, call.failed) for call in calls)
    return (turn.round_forgotten, *keys)


def condition(turn: Turn, call: Call) -> tuple[object, ...]:
    """Return the condition of a call without a result. Two calls of a batch in one condition are interchangeable."""
    lease = call.made.lease
    return (
        call.state,
        call.crash_paid,
        call.counted,
        call.has_result,
        call.made.output,
        () if lease is None else (lease.calls, lease.tokens, lease.cost),
        (call.name, call.made.key) if turn.limits.results_decide else (),
        _list_questions(turn, call) if call.state is CallState.WAITING else (),
    )


def _list_questions(turn: Turn, call: Call) -> tuple[tuple[str, bool, int], ...]:
    return tuple(
        sorted(
            (interrupt.kind, interrupt.forwarded, interrupt.approvals)
            for interrupt in turn.interrupts.values()
            if interrupt.call == call.id
        )
    )


def whole_key_of(turn: Turn) -> Key:
    """Return the unreduced key: everything that a turn keeps, without names and texts."""
    return (
        turn.state,
        turn.counters.kept(),
        turn.carried,
        (turn.rounds.latest, turn.rounds.tools, turn.rounds.stalls, *turn.rounds.unkeyed),
        turn.round_forgotten,
        turn.stall,
        turn.always_for,
        tuple(
            (
                *(*condition(turn, call), call.attempt, len(call.answers), bool(call.made.refused)),
                *(call.result_key, call.failed),
            )
            for call in turn.batch.values()
        ),
        turn.step_open,
        turn.synthesis_done,
        turn.nudge,
        turn.counters.prepared,
        turn.truncated,
        turn.input_tokens,
        turn.output_tokens,
        turn.cost,
        _rule_key(turn),
    )


def _rule_key(turn: Turn) -> Key:
    """Return the state of the rules, and what they read of the calls without a result."""
    rules = turn.rules
    if rules is None:
        return ()
    open_ids = {call.id for call in turn.open_calls()}
    calls = tuple(
        (call.name, tuple(sorted(call.arguments.items())), call.approved_rules, call.state)
        for call in turn.batch.values()
    )
    states = [state for states in rules.save()["rules"].values() for state in states]
    ranks = {order: rank for rank, order in enumerate(sorted({order for state in states for order in _orders(state)}))}
    plain_states = tuple(str(_without_ids(state, ranks, open_ids)) for state in states)
    return calls if open_ids else (), plain_states, turn.counters.final


def _orders(state: Mapping[str, Any]) -> Iterator[int]:
    """Yield the places in the order of events in the state of a rule."""
    for _, _, last, uncertain in state.get("starts", ()):
        yield from (order for order, _, _ in (*last, *uncertain))
    for _, calls in state.get("ok", ()):
        yield from (order for _, order, _, _ in calls)
    for _, uses in state.get("uses", ()):
        yield from (order for _, order, _ in uses)


def _without_ids(state: Mapping[str, Any], ranks: Mapping[int, int], open_ids: Collection[str]) -> list[object]:
    """Return the state of a rule with ranks in place of its orders, and without the ids of calls that are settled."""

    def plain(event: str) -> str:
        return event if event in open_ids else ""

    return [
        [
            (
                key,
                total,
                *([(ranks[order], plain(event), amount) for order, event, amount in starts] for starts in parts),
            )
            for key, total, *parts in state.get("starts", ())
        ],
        [
            (key, [(tool, ranks[order], values) for tool, order, _, values in calls])
            for key, calls in state.get("ok", ())
        ],
        [
            (key, [(plain(event), ranks[order], is_open) for event, order, is_open in uses])
            for key, uses in state.get("uses", ())
        ],
        [plain(event) for event in state.get("met", ())],
    ]
