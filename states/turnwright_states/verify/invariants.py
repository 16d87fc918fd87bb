"""The invariants after every input: of the configuration, of the new facts, and of an end.

Each check names its claim. The checks read the turn's counters and limits and evaluate no guard. They repeat the
documented order of the limits (docs/rules.md#precedence) independently of the chart.
"""

from collections.abc import Iterable

from turnwright_states import facts as f
from turnwright_states.actions import Halt
from turnwright_states.chart import Row
from turnwright_states.inputs import CallStatus
from turnwright_states.reasons import REASONS, REASONS_OF, EndReason
from turnwright_states.state import State
from turnwright_states.turn import Rank, Turn

from .claims import Property
from .configuration import WalkedMachine

Fault = tuple[Property, str]


def fault_of(machine: WalkedMachine, rank: Rank, facts: list[f.Fact]) -> Fault | None:  # noqa: PLR0911 (one a check)
    """Return the fault of a configuration after these facts, or None."""
    turn, c = machine.turn, machine.turn.counters
    if machine.state is not turn.state:
        return Property.WAY_ON, f"the chart is in {machine.state}, and the facts give {turn.state}"
    if c.steps_left < 0:
        return Property.STEPS, f"{c.steps} steps of an allowance of {c.allowance}"
    if min(rank) < 0:
        return Property.RANK, f"the rank went below zero: {rank}"
    if c.budgeted and c.calls > c.budget:
        return Property.CALLS, f"{c.calls} calls of a budget of {c.budget}"
    if turn.state not in _BATCH_OPEN and turn.open_calls():
        return Property.PAIRING, f"a call without a result in {turn.state}"
    for fact in facts:
        if type(fact) in _LOOKED_AT:
            fault = _fault_of_fact(fact, turn, machine.rows)
            if fault is not None:
                return fault
    return None


_BATCH_OPEN = frozenset({State.TOOL_EXEC, State.PAUSED, State.REVIEW})
_LOOKED_AT = frozenset({f.StepStarted, f.Stopping, f.CallSettled, f.Reviewed, f.TurnEnded})


def _fault_of_fact(fact: f.Fact, turn: Turn, rows: list[Row]) -> Fault | None:  # noqa: PLR0911 (one a check)
    match fact:
        case f.StepStarted() | f.Stopping() if turn.counters.final:
            return Property.ANSWER, f"{fact.kind} although a call gave the answer"
        case f.Reviewed() if fact.refused and turn.open_calls():
            return Property.REFUSED, "a call of a refused reply is open"
        case f.StepStarted():
            return _fault_of_step(fact, turn)
        case f.Stopping():
            return _fault_of_stopping(fact, turn, rows)
        case f.CallSettled():
            return _fault_of_result(fact, turn)
        case f.TurnEnded() if turn.state.outcome is None:
            return Property.ONE_END, "turn_ended outside a final state"
        case _:
            return None


def _fault_of_step(fact: f.StepStarted, turn: Turn) -> Fault | None:
    holds = [reason for reason in holding(turn) if reason is not EndReason.STEP_CAP]
    allowed = [EndReason.DOOM_LOOP] if fact.nudge else []
    if holds == allowed:
        return None
    return Property.SPENT, f"a step started on a spent budget: {_listed(holds)} was reached"


def _fault_of_result(fact: f.CallSettled, turn: Turn) -> Fault | None:
    call = turn.batch.get(fact.call)
    lent = call is not None and call.counted and call.made.lease is not None
    # A stopped turn runs no more calls, so nothing can be spent twice.
    stopped = fact.status is CallStatus.ABORTED or turn.state is State.ABORTED
    if not lent or fact.spent is not None or stopped:
        return None
    return Property.LEASES, "a sub-agent ended, and its usage was not counted"


def _fault_of_stopping(fact: f.Stopping, turn: Turn, rows: list[Row]) -> Fault | None:
    holds = holding(turn)
    if any(row.source is State.CHECK and row.dest is State.CONCLUDE for row in rows) and fact.reason is not holds[0]:
        return Property.PRECEDENCE, f"stopped for {fact.reason}, although {_listed(holds)} was reached"
    also = tuple(reason for reason in holds if reason is not fact.reason)
    if fact.also_reached != also:
        said = _listed(fact.also_reached)
        return Property.ALSO, f"stopped for {fact.reason} and also for {said}, although {_listed(holds)} was reached"
    return None


def holding(turn: Turn) -> list[EndReason]:
    """Return every limit that a turn has reached, in the documented order, from its limits and its usage."""
    full = {name for name, used, most in turn.use() if used >= most}
    if turn.counters.steps >= turn.limits.allowance:  # the conclusion may be a step of the cap
        full.add("steps")
    if turn.loop_tools:
        full.add("doom_threshold")
    return [reason for reason, meaning in REASONS.items() if meaning.limit in full]


def fault_of_end(machine: WalkedMachine, facts: list[f.Fact]) -> Fault | None:
    """Return the fault of an end after these facts, or None."""
    halts = [fact for fact in facts if isinstance(fact, f.TurnEnded)]
    if len(halts) != 1 or facts[-1] is not halts[0]:
        return Property.ONE_END, "an end needs exactly one turn_ended, as its last fact"
    turn_ended, reason = halts[0], machine.turn.reason
    if reason is None or turn_ended.outcome is not machine.turn.state.outcome or not isinstance(machine.action, Halt):
        return Property.ONE_END, "an end without one outcome and one reason"
    if reason not in REASONS_OF[turn_ended.outcome]:
        what = f"{turn_ended.outcome}/{reason} is no ending: the outcome has other reasons"
        return Property.ONE_END, what
    also = turn_ended.also_reached
    if reason in also or len(set(also)) != len(also):
        return Property.ALSO, f"ended for {reason}, and also for {_listed(also)}"
    return None


def _listed(reasons: Iterable[EndReason]) -> str:
    return ", ".join(reasons) or "nothing"
