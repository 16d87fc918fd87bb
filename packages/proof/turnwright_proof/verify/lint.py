"""The lint of the chart: a static check of the table of rows (docs/rules.md#termination).

It has nine claims. The seventh and the eighth together prove that no chain of rows is endless: every cycle lowers a
component of the rank, and a row lowers a component only above zero. Changes inside a state (calls that start and
settle, the synthesis, the effect of a fact on the counters) are not rows; the walk checks them.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from turnwright_proof.texts import describe_guard
from turnwright_states.chart import ILLEGAL, ROWS, ReasonFrom, Refused, Row
from turnwright_states.counters import Counters
from turnwright_states.guards import Guard, list_reached_limits
from turnwright_states.reasons import REASONS, REASONS_OF, EndReason
from turnwright_states.state import FINAL, Outcome, State, Trigger
from turnwright_states.verdict import Check, Verdict

from .cycles import (
    COMPACTIONS,
    INTERRUPTS,
    PAUSES,
    REFUSALS,
    RETRIES,
    STEPS,
    Placed,
    cyclic,
    endless,
    lowers,
    reachable,
    way,
)
from .guard_cases import ASSUMED, Assumption, Choice, guard_cases

#: The guards that must hold when a row lowers a component of the rank. A step also needs a budget and, in a doom loop,
#: a nudge.
_LEFT: Final = (
    (STEPS, Guard("not steps >= allowance")),
    (STEPS, Guard("not spent")),
    (STEPS, Guard("not doom or nudges_left > 0")),
    (REFUSALS, Guard("output_retries_left > 0")),
    (COMPACTIONS, Guard("compactions_left > 0")),
    (PAUSES, Guard("not pauses_left == 0")),
    (RETRIES, Guard("retries_left > 0")),
    (INTERRUPTS, Guard("waiting > 0")),
)
_CARRIED_DOOM: Final = Guard("carried_doom")
#: The triggers from outside that stop a turn.
_FROM_ANYWHERE: Final = (Trigger.TRIPPED, Trigger.ABORT, Trigger.FAIL)
_DOOM: Final = REASONS_OF[Outcome.DOOM_LOOP]
_LIMITS: Final = REASONS_OF[Outcome.CAP_HIT]

Pair = tuple[State, Trigger]


class Survey:
    """The behavior of one pair's rows over every small configuration of their counters."""

    def __init__(self, group: tuple[Placed, ...], assumptions: Iterable[Assumption]) -> None:
        self.group = group
        #: The guards that each row needs; most rows need none.
        self.needs = {
            placed_row: [guard for component, guard in _LEFT if lowers(placed_row.row, component)]
            for placed_row in group
        }
        self.case_count = 0
        self.taken_rows: set[Placed] = set()
        #: The faults of rows, each with the first configuration that shows it.
        self.overspent: dict[tuple[Placed, str], str] = {}
        self.untrue: dict[tuple[Placed, str], str] = {}
        also = [guard for guards in self.needs.values() for guard in guards]
        if any(placed_row.row.reason is ReasonFrom.CARRIED for placed_row in group):
            also.append(_CARRIED_DOOM)
        for choice in guard_cases(group, also, assumptions):
            self._add(choice)

    def _add(self, choice: Choice) -> None:
        self.case_count += 1
        placed_row = choice.taken
        if placed_row is None:
            return
        self.taken_rows.add(placed_row)
        for guard in self.needs[placed_row]:
            if not guard.holds(choice.counters):
                self.overspent.setdefault((placed_row, f"is taken even if not: {describe_guard(guard)}"), choice.shown)
        if wrong := _untrue(placed_row.row, choice.counters):
            self.untrue.setdefault((placed_row, wrong), choice.shown)


class Table(NamedTuple):
    """The input of the lint: the numbered rows, by pair of state and trigger, and the declared illegal pairs."""

    rows: tuple[Placed, ...]
    surveys: Mapping[Pair, Survey]
    illegal: Mapping[State, Refused]
    assumed: tuple[Assumption, ...]

    @classmethod
    def of(cls, rows: Iterable[Row], illegal: Mapping[State, Refused], assumptions: tuple[Assumption, ...]) -> "Table":
        """Number the rows, sort them by pair, and survey each pair."""
        placed_rows = tuple(Placed(number, row) for number, row in enumerate(rows, start=1))
        groups: dict[Pair, tuple[Placed, ...]] = {}
        for placed_row in placed_rows:
            pair = (placed_row.row.source, placed_row.row.trigger)
            groups[pair] = (*groups.get(pair, ()), placed_row)
        return cls(
            placed_rows, {pair: _survey(group, assumptions) for pair, group in groups.items()}, illegal, assumptions
        )


@lru_cache(maxsize=256)  # a chart with one other row has most pairs of the chart that ships
def _survey(group: tuple[Placed, ...], assumptions: tuple[Assumption, ...]) -> Survey:
    return Survey(group, assumptions)


def lint(
    rows: tuple[Row, ...] = ROWS,
    *,
    illegal: Mapping[State, Refused] = ILLEGAL,
    assumed: tuple[Assumption, ...] = ASSUMED,
) -> tuple[Check, ...]:
    """Check nine claims about a chart, without running a turn: one `Check` a claim, always in the same order.

    `illegal` declares the pairs without rows, and `assumed` has the machine's guarantees for the guards. A violated
    check names each faulty row. It never raises, for any rows.
    """
    table = Table.of(rows, illegal, assumed)
    return tuple(claim(table) for claim in _CLAIMS)


def _check(claim: str, over: str, faults: Iterable[str], witness: Iterable[Placed] = ()) -> Check:
    all_faults = "; ".join(faults)
    if all_faults:
        return Check(claim, Verdict.VIOLATED, all_faults, tuple(map(str, witness)))
    return Check(claim, Verdict.HOLDS, over)


def _every_state_is_reached(table: Table) -> Check:
    unreachable = sorted(set(State) - reachable(table.rows, State.CHECK))
    faults = []
    for state in unreachable:
        dead = [str(placed_row) for placed_row in table.rows if placed_row.row.source is state]
        faults.append(f"no path leads to {state}" + (f", so these rows are dead: {', '.join(dead)}" if dead else ""))
    return _check("every state can be reached from CHECK", f"{len(State)} states, {len(table.rows)} rows", faults)


def _no_row_leaves_an_end(table: Table) -> Check:
    faults = [f"{placed_row} leaves a final state" for placed_row in table.rows if placed_row.row.source in FINAL]
    return _check("no row leaves a final state", f"{len(FINAL)} final states", faults)


def _no_state_is_a_trap(table: Table) -> Check:
    own_rows = [placed_row for placed_row in table.rows if placed_row.row.trigger not in _FROM_ANYWHERE]
    faults = []
    for state in State:
        if FINAL.isdisjoint(reachable(own_rows, state)):
            inside = [str(placed_row) for placed_row in own_rows if placed_row.row.source is state]
            faults.append(f"{state} is a trap: " + (f"only {', '.join(inside)}" if inside else "no row leaves it"))
    over = f"{len(set(State) - FINAL)} states that are not final"
    claim = "from every state an end can be reached without a guardrail, an abort or a failure of the engine"
    return _check(claim, over, faults)


def _every_pair_is_decided(table: Table) -> Check:
    faults: list[str] = []
    pairs = [(state, trigger) for state in State if state not in FINAL for trigger in Trigger]
    for state, trigger in pairs:
        survey, refusal = table.surveys.get((state, trigger)), table.illegal.get(state)
        if refusal is not None and trigger in refusal.triggers:
            rows = survey.group if survey else ()
            faults += [f"{placed_row} is declared illegal: {refusal.why}" for placed_row in rows]
        elif survey is None:
            faults.append(f"{state} --{trigger}--> has no row, and is not declared illegal")
    over = f"{len(pairs)} pairs, {len(table.surveys)} of them with rows"
    return _check("every pair of a state and a trigger has rows, or is declared illegal", over, faults)


def _every_pair_ends_in_a_fallback(table: Table) -> Check:
    lasts = [survey.group[-1] for survey in table.surveys.values()]
    faults = [f"{last} is the last of its pair, and has a guard" for last in lasts if last.row.guard.text]
    return _check("every pair with rows ends in one without a guard", f"{len(lasts)} pairs", faults)


def _no_row_is_shadowed(table: Table) -> Check:
    surveys = table.surveys.values()
    faults = [
        f"{placed_row} is never the first that holds"
        for pair_survey in surveys
        for placed_row in pair_survey.group
        if placed_row not in pair_survey.taken_rows
    ]
    over = f"{sum(survey.case_count for survey in surveys):,} configurations of the counters"
    return _check("every row is the first that holds somewhere", over, faults)


def _every_cycle_ends(table: Table) -> Check:
    parts = endless(table.rows)
    faults = [f"nothing ends this cycle: {', '.join(map(str, part))}" for part in parts]
    witness: tuple[Placed, ...] = ()
    if parts:
        start = parts[0][0].row.source
        to = () if start is State.CHECK else way(table.rows, State.CHECK, start)
        witness = (*to, *way(parts[0], start, start))
    on_cycles = sum(map(len, cyclic(table.rows)))
    return _check("every cycle lowers the rank", f"{on_cycles} rows that lie on cycles", faults, witness)


def _nothing_is_spent_twice(table: Table) -> Check:
    spending, faults = 0, []
    for survey in table.surveys.values():
        spending += sum(map(bool, survey.needs.values()))
        faults += [f"{placed_row} {wrong} ({example})" for (placed_row, wrong), example in survey.overspent.items()]
    claim = "a row takes a step, a retry, a pause, a compaction or an interrupt only if one is left"
    assumption_words = [
        f"; assumed in {assumption.source} at {assumption.trigger}: {assumption.why}" for assumption in table.assumed
    ]
    return _check(claim, f"{spending} rows that take one{''.join(assumption_words)}", faults)


def _reasons_are_right(table: Table) -> Check:
    faults = [f"{placed_row} {wrong}" for placed_row in table.rows if (wrong := _find_misnamed(placed_row.row))]
    for survey in table.surveys.values():
        faults += [f"{placed_row} {wrong} ({example})" for (placed_row, wrong), example in survey.untrue.items()]
    naming = sum(placed_row.row.reason is not None for placed_row in table.rows)
    claim = "a row into an end or a conclusion names a reason that fits, and no other row names one"
    return _check(claim, f"{naming} rows with a reason", faults)


def _find_misnamed(row: Row) -> str:
    """Return the fault of a row's reason for any counters. Empty without one."""
    outcome = row.dest.outcome
    if row.source is State.CONCLUDE and (row.dest is State.CONCLUDE or (outcome and row.reason is ReasonFrom.CARRIED)):
        # The carried reason depends on the counters: see `_untrue`.
        return "" if row.reason is ReasonFrom.CARRIED else "drops the reason of the conclusion"
    if outcome is None and row.dest is not State.CONCLUDE:
        return "" if row.reason is None else f"names the reason {row.reason} without an ending"
    if row.reason is None:
        return "names no reason"
    given_values = _given_by(row)
    fitting = _LIMITS | _DOOM if outcome is None else REASONS_OF[outcome]
    return "" if given_values and given_values <= fitting else f"names the reason {row.reason}, which does not fit"


def _given_by(row: Row) -> frozenset[EndReason]:
    """Return the reasons that a row can give, without a carried one. Empty if its trigger gives none."""
    if isinstance(row.reason, EndReason):
        return frozenset({row.reason} if row.trigger in REASONS[row.reason].triggers else ())
    brings = {ReasonFrom.CAUSE: Trigger.ATTEMPT_FAILED, ReasonFrom.EVENT: Trigger.ABORT}
    if row.reason is None or brings.get(row.reason) is not row.trigger:
        return frozenset()
    return frozenset(reason for reason, meaning in REASONS.items() if row.trigger in meaning.triggers)


def _untrue(row: Row, counters: Counters) -> str:
    """Return the fault of a row's reason for counters that take the row. Empty without one."""
    if (
        row.source is State.CHECK
        and isinstance(row.reason, EndReason)
        and row.reason not in list_reached_limits(counters)
    ):
        return f"names the reason {row.reason}, which is not reached"
    if row.dest.outcome is not None and row.reason is ReasonFrom.CARRIED:
        possible_reasons = _DOOM if counters.carried_doom else _LIMITS
        if not possible_reasons <= REASONS_OF[row.dest.outcome]:
            return "carries a reason that does not fit"
    return ""


_CLAIMS: Final[tuple[Callable[[Table], Check], ...]] = (
    _every_state_is_reached,
    _no_row_leaves_an_end,
    _no_state_is_a_trap,
    _every_pair_is_decided,
    _every_pair_ends_in_a_fallback,
    _no_row_is_shadowed,
    _every_cycle_ends,
    _nothing_is_spent_twice,
    _reasons_are_right,
)
