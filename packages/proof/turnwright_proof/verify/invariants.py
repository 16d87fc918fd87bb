"""The invariants after every input: of the configuration, of the new facts, and of an end.

Each check names its claim. The checks read the turn's counters and limits and evaluate no guard. They repeat the
documented order of the limits (docs/rules.md#precedence) independently of the chart.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from turnwright_proof.rank import Rank
from turnwright_proof.theorems import PROMISED_STEPS
from turnwright_states import facts as f
from turnwright_states.actions import Halt
from turnwright_states.amounts import is_cost_spent
from turnwright_states.chart import Row
from turnwright_states.inputs import CallStatus
from turnwright_states.limits import MAX_STEPS, Limits
from turnwright_states.reasons import REASONS, REASONS_OF, EndReason
from turnwright_states.state import FINAL, OUTCOMES, State
from turnwright_states.turn import Turn

from .claims import Property
from .configuration import WalkedMachine

Fault = tuple[Property, str]


def fault_of(machine: WalkedMachine, rank: Rank, facts: list[f.Fact]) -> Fault | None:  # noqa: PLR0911 (one a check)
    """Return the fault of a configuration after these facts, or None."""
    turn, c = machine.turn, machine.turn.counters
    if machine.state is not turn.state:
        return Property.WAY_ON, f"the chart is in {machine.state}, and the facts give {turn.state}"
    if c.steps > c.allowance:
        return Property.STEPS, f"{c.steps} steps of an allowance of {c.allowance}"
    if min(rank) < 0:
        return Property.RANK, f"the rank went below zero: {rank}"
    if c.budgeted and c.calls > c.budget:
        return Property.CALLS, f"{c.calls} calls of a budget of {c.budget}"
    if turn.batch and turn.state not in _BATCH_OPEN and turn.open_calls():
        return Property.PAIRING, f"a call without a result in {turn.state}"
    for fact in facts:
        kind = type(fact)
        if kind in _FAULT_OF:
            fault = _FAULT_OF[kind](fact, turn, machine.rows)
            if fault is not None:
                return fault
    return None


_BATCH_OPEN: Final = frozenset({State.TOOL_EXEC, State.PAUSED, State.REVIEW})


def _fault_of_review(fact: f.Reviewed, turn: Turn, _: list[Row]) -> Fault | None:
    return (Property.REFUSED, "a call of a refused reply is open") if fact.refused and turn.open_calls() else None


def _fault_of_turn_ended(_: f.TurnEnded, turn: Turn, __: list[Row]) -> Fault | None:
    return None if turn.state in FINAL else (Property.ONE_END, "turn_ended outside a final state")


def _allowance(limits: Limits) -> int:
    """Return the steps that may call tools, from the numbers that people set (docs/rules.md#steps)."""
    cap = min(limits.ceiling if limits.steps is None else limits.steps, limits.ceiling, PROMISED_STEPS)
    return cap - (limits.concluding == "within")


def _fault_of_step(fact: f.StepStarted, turn: Turn, _: list[Row]) -> Fault | None:
    if fact.number > _allowance(turn.limits) or MAX_STEPS > PROMISED_STEPS:
        return Property.STEPS, f"step {fact.number} of {_allowance(turn.limits)} began, and {MAX_STEPS} may"
    if turn.counters.final:
        return Property.ANSWER, f"{fact.kind} although a call gave the answer"
    holds = [reason for reason in holding(turn) if reason is not EndReason.STEP_CAP]
    allowed_reasons = [EndReason.DOOM_LOOP] if fact.nudge else []
    if holds == allowed_reasons:
        return None
    return Property.SPENT, f"a step started on a spent budget: {_list_reasons(holds)} was reached"


def _fault_of_result(fact: f.CallSettled, turn: Turn, _: list[Row]) -> Fault | None:
    # A stopped turn runs no more calls, so nothing can be spent twice.
    if fact.status is CallStatus.ABORTED or fact.spent is not None or turn.state is State.ABORTED:
        return None
    call = turn.batch.get(fact.call)
    if call is None or not call.counted or call.made.lease is None:
        return None
    return Property.LEASES, "a sub-agent ended, and its usage was not counted"


def _fault_of_pause(fact: f.Paused, turn: Turn, _: list[Row]) -> Fault | None:
    if fact.interrupt is None or _asks(turn, pauses=turn.counters.pauses_left + 1):
        return None
    return Property.LOOPS, "a person is asked about a doom loop, although the limits do not allow it"


def _asks(turn: Turn, pauses: int) -> bool:
    """Return whether a person is to be asked about a doom loop, with so many pauses left."""
    spent_limits = set(holding(turn)) - {EndReason.DOOM_LOOP}
    return turn.limits.doom_response == "ask" and pauses > 0 and not spent_limits


def _fault_of_stopping(fact: f.Stopping, turn: Turn, rows: list[Row]) -> Fault | None:
    at_check = any(row.source is State.CHECK and row.dest is State.CONCLUDE for row in rows)
    if at_check and fact.reason is EndReason.DOOM_LOOP and _asks(turn, pauses=turn.counters.pauses_left):
        return Property.LOOPS, "a doom loop stops the turn, although a person is to be asked"
    if turn.counters.final:
        return Property.ANSWER, f"{fact.kind} although a call gave the answer"
    holds = holding(turn)
    if at_check and fact.reason is not holds[0]:
        return Property.PRECEDENCE, f"stopped for {fact.reason}, although {_list_reasons(holds)} was reached"
    also = tuple(reason for reason in holds if reason is not fact.reason)
    if fact.also_reached != also:
        reached_limits = _list_reasons(fact.also_reached)
        return (
            Property.ALSO,
            f"stopped for {fact.reason} and also for {reached_limits}, although {_list_reasons(holds)} was reached",
        )
    return None


#: The check of each kind of fact that has one, by class: one look-up for each fact.
_FAULT_OF: Final[dict[type[f.Fact], Callable[[Any, Turn, list[Row]], Fault | None]]] = {
    f.StepStarted: _fault_of_step,
    f.Paused: _fault_of_pause,
    f.Stopping: _fault_of_stopping,
    f.CallSettled: _fault_of_result,
    f.Reviewed: _fault_of_review,
    f.TurnEnded: _fault_of_turn_ended,
}


def holding(turn: Turn) -> list[EndReason]:
    """Return every limit that a turn has reached, in the documented order, from its limits and its usage."""
    full = {
        name
        for name, used_amount, most in turn.use()
        if (is_cost_spent(used_amount, most) if name == "cost" else used_amount >= most)
    }
    if turn.counters.steps >= turn.limits.allowance:  # the conclusion may be a step of the cap
        full.add("steps")
    if turn.rounds.tools:
        full.add("doom_threshold")
    if turn.limits.idle_steps is not None and turn.counters.idle >= turn.limits.idle_steps:
        full.add("idle_steps")
    return [reason for reason, meaning in REASONS.items() if meaning.limit in full]


def fault_of_end(machine: WalkedMachine, facts: list[f.Fact]) -> Fault | None:
    """Return the fault of an end after these facts, or None."""
    halts = [fact for fact in facts if type(fact) is f.TurnEnded]
    if len(halts) != 1 or facts[-1] is not halts[0]:
        return Property.ONE_END, "an end needs exactly one turn_ended, as its last fact"
    turn_ended, reason = halts[0], machine.turn.reason
    if reason is None or turn_ended.outcome is not OUTCOMES[machine.turn.state] or not isinstance(machine.action, Halt):
        return Property.ONE_END, "an end without one outcome and one reason"
    if reason not in REASONS_OF[turn_ended.outcome]:
        problem = f"{turn_ended.outcome}/{reason} is not an ending: the outcome has other reasons"
        return Property.ONE_END, problem
    also = turn_ended.also_reached
    if also and (reason in also or len(set(also)) != len(also)):
        return Property.ALSO, f"ended for {reason}, and also for {_list_reasons(also)}"
    return None


def _list_reasons(reasons: Iterable[EndReason]) -> str:
    return ", ".join(reasons) or "nothing"
