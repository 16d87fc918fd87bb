"""The walk finds each planted fault, with its claim and the path to it (docs/rules.md#termination)."""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pytest
from msgspec.structs import replace

from turnwright_proof.rank import rank_of
from turnwright_proof.verify import Case, Property, ViolationError, WalkedMachine, walk
from turnwright_proof.verify.invariants import fault_of
from turnwright_states import (
    Call,
    CallStatus,
    EndReason,
    Input,
    Limits,
    ModelRepliedInput,
    Outcome,
    Spent,
    State,
    Trigger,
    facts,
)
from turnwright_states.chart import CHART, ROWS, Chart, Row
from turnwright_states.facts import Fact
from turnwright_states.guards import Guard
from turnwright_states.inputs import StopInput


def place(source: State, trigger: Trigger, guard: str) -> int:
    """Return the index of a row in the chart."""
    (at,) = (i for i, row in enumerate(ROWS) if (row.source, row.trigger, row.guard.text) == (source, trigger, guard))
    return at


def with_row(at: int, *row: Row) -> tuple[Row, ...]:
    """The chart with another row in one place, or with none."""
    return (*ROWS[:at], *row, *ROWS[at + 1 :])


def dropped(source: State, trigger: Trigger, guard: str) -> tuple[Row, ...]:
    return with_row(place(source, trigger, guard))


def guarded(source: State, trigger: Trigger, guard: str, guard_text: str) -> tuple[Row, ...]:
    at = place(source, trigger, guard)
    return with_row(at, ROWS[at]._replace(guard=Guard(guard_text)))


def led(source: State, trigger: Trigger, guard: str, dest: State) -> tuple[Row, ...]:
    at = place(source, trigger, guard)
    return with_row(at, ROWS[at]._replace(dest=dest))


def unreasoned(source: State, trigger: Trigger, guard: str) -> tuple[Row, ...]:
    at = place(source, trigger, guard)
    return with_row(at, ROWS[at]._replace(reason=None))


class Emitting(WalkedMachine):
    """A machine with a fault in what a fact does."""

    __slots__ = ()

    def _emit(self, fact: Fact) -> None:
        retries = self.turn.counters.retries_left
        super()._emit(fact)
        self.spoil(fact, retries)

    _emit_derived = _emit

    def spoil(self, fact: Fact, retries_left: int) -> None:
        """Undo something."""


class FreePauses(Emitting):
    __slots__ = ()

    def spoil(self, fact: Fact, retries_left: int) -> None:  # noqa: ARG002 (the hook's signature)
        self.turn.counters.pauses_left += isinstance(fact, facts.Paused)


class FreeSteps(Emitting):
    __slots__ = ()

    def spoil(self, fact: Fact, retries_left: int) -> None:  # noqa: ARG002 (the hook's signature)
        self.turn.counters.steps -= isinstance(fact, facts.StepStarted)


class AsksTheOtherWay(Emitting):
    """It asks a person about a doom loop where the limits say stop, and stops where they say ask."""

    __slots__ = ()

    def spoil(self, fact: Fact, retries_left: int) -> None:  # noqa: ARG002 (the hook's signature)
        if isinstance(fact, facts.TurnStarted):
            self.turn.counters.doom_asks = not self.turn.counters.doom_asks


class ConcludesBeyondTheCap(Emitting):
    """It keeps no step for a conclusion that is one."""

    __slots__ = ()

    def spoil(self, fact: Fact, retries_left: int) -> None:  # noqa: ARG002 (the hook's signature)
        self.turn.counters.allowance = self.turn.limits.cap


class FreeReruns(Emitting):
    __slots__ = ()

    def spoil(self, fact: Fact, retries_left: int) -> None:
        if isinstance(fact, facts.CallStarted):
            self.turn.counters.retries_left = retries_left


class RecountedReruns(Emitting):
    __slots__ = ()

    def spoil(self, fact: Fact, retries_left: int) -> None:  # noqa: ARG002 (the hook's signature)
        again = sum(call.attempt > 1 for call in self.turn.batch.values())
        self.turn.counters.calls += again if isinstance(fact, facts.CallStarted) else 0


class OneCallTooMany(WalkedMachine):
    __slots__ = ()

    def _decide(self, event: ModelRepliedInput) -> tuple[facts.CallMade, ...]:
        self.turn.counters.budget += 1
        decided_facts = super()._decide(event)
        self.turn.counters.budget -= 1
        return decided_facts


class OpenCallsStayOpen(WalkedMachine):
    __slots__ = ()

    def _close_calls(
        self,
        why: str,
        *,
        status: CallStatus = CallStatus.ABORTED,
        waiting: CallStatus = CallStatus.ABORTED,
        spent_by_call: Mapping[str, Spent] | None = None,
    ) -> None:
        pass


class SynthesizesForever(WalkedMachine):
    __slots__ = ()

    def _set_synthesis(self, text: str | None) -> None:
        super()._set_synthesis(text) if text else self._emit(facts.Synthesized(self._elapsed, self.turn.state))


class LendsTooMuch(WalkedMachine):
    """Each lease has a call more than is left."""

    __slots__ = ()

    def _decide(self, event: ModelRepliedInput) -> tuple[facts.CallMade, ...]:
        return tuple(
            replace(fact, lease=facts.Lease(calls=1 + (fact.lease.calls or 0))) if fact.lease else fact
            for fact in super()._decide(event)
        )


class Changing(WalkedMachine, ABC):
    """A machine with a fault in what it writes down."""

    __slots__ = ()

    def _emit(self, fact: Fact) -> None:
        super()._emit(self.change(fact))

    _emit_derived = _emit

    @abstractmethod
    def change(self, fact: Fact) -> Fact:
        """Write something else."""


class ForgetsTheLease(Changing):
    __slots__ = ()

    def change(self, fact: Fact) -> Fact:
        lost = isinstance(fact, facts.CallSettled) and fact.status is CallStatus.UNKNOWN
        return replace(fact, spent=None) if lost else fact


class BelievesAStop(WalkedMachine):
    """It takes over what a stop says that the sub-agents used, whatever they were lent."""

    __slots__ = ()

    def _stopped_by(self, event: StopInput, trigger: Trigger) -> Row:  # noqa: ARG002 (the hook's signature)
        return self._fire(trigger)


class BelievesTheNumber(WalkedMachine):
    """It asks whether a stopped call has a sub-agent, and not how many calls that was lent."""

    __slots__ = ()

    def _stopped_by(self, event: StopInput, trigger: Trigger) -> Row:
        return super()._stopped_by(replace(event, spent=dict.fromkeys(event.spent, Spent())), trigger)


class RefusesTooLate(WalkedMachine):
    """It refuses an event that names no call, and has spent a retry on it."""

    __slots__ = ()

    def _open_call(self, event: Input, call_id: str) -> Call:
        self.turn.counters.retries_left -= call_id not in self.turn.batch
        return super()._open_call(event, call_id)


class AlsoTheReason(Changing):
    __slots__ = ()

    def change(self, fact: Fact) -> Fact:
        return replace(fact, also_reached=(fact.reason,)) if isinstance(fact, facts.Stopping) else fact


class EndsAlsoForItsReason(Changing):
    __slots__ = ()

    def change(self, fact: Fact) -> Fact:
        return replace(fact, also_reached=(fact.reason,)) if isinstance(fact, facts.TurnEnded) else fact


class NothingElse(Changing):
    __slots__ = ()

    def change(self, fact: Fact) -> Fact:
        return replace(fact, also_reached=()) if isinstance(fact, facts.Stopping) else fact


class HaltsEarly(Emitting):
    """It says that the turn is over, and continues concluding."""

    __slots__ = ()

    def spoil(self, fact: Fact, retries_left: int) -> None:  # noqa: ARG002 (the hook's signature)
        if isinstance(fact, facts.Stopping):
            end = facts.TurnEnded(fact.elapsed, fact.state, outcome=Outcome.CAP_HIT, reason=EndReason.STEP_CAP)
            self._emit(end)


class HaltsTwice(Emitting):
    __slots__ = ()

    def spoil(self, fact: Fact, retries_left: int) -> None:  # noqa: ARG002 (the hook's signature)
        halts = [fact for fact in self._out if isinstance(fact, facts.TurnEnded)]
        if isinstance(fact, facts.TurnEnded) and len(halts) == 1:
            self._emit(replace(fact, reason=EndReason.STEP_CAP))


class StandsElsewhere(Changing):
    """Its facts say that a turn which concludes still runs its calls."""

    __slots__ = ()

    def change(self, fact: Fact) -> Fact:
        return replace(fact, state=State.TOOL_EXEC) if isinstance(fact, facts.Stopping) else fact


class EndsAsAnother(Changing):
    __slots__ = ()

    def change(self, fact: Fact) -> Fact:
        return replace(fact, outcome=Outcome.SYNTHESIS_DONE) if isinstance(fact, facts.TurnEnded) else fact


class FreeForwardedPauses(Emitting):
    __slots__ = ()

    def spoil(self, fact: Fact, retries_left: int) -> None:  # noqa: ARG002 (the hook's signature)
        forwarded = any(interrupt.forwarded for interrupt in self.turn.interrupts.values())
        self.turn.counters.pauses_left += isinstance(fact, facts.Paused) and forwarded


class MessagesCost(Emitting):
    __slots__ = ()

    def spoil(self, fact: Fact, retries_left: int) -> None:  # noqa: ARG002 (the hook's signature)
        self.turn.counters.retries_left -= isinstance(fact, facts.MessageAdded)


class MessagesComeBack(Emitting):
    """After two messages the turn is where it was before the first."""

    __slots__ = ()

    def spoil(self, fact: Fact, retries_left: int) -> None:  # noqa: ARG002 (the hook's signature)
        self.turn.nudge ^= isinstance(fact, facts.MessageAdded)


class RefillsRetries(Emitting):
    """A model call has all its retries again after a compaction."""

    __slots__ = ()

    def spoil(self, fact: Fact, retries_left: int) -> None:  # noqa: ARG002 (the hook's signature)
        if isinstance(fact, facts.Compacted):
            self.turn.counters.retries_left = self.turn.limits.max_retries


class FreeCompactions(Emitting):
    __slots__ = ()

    def spoil(self, fact: Fact, retries_left: int) -> None:  # noqa: ARG002 (the hook's signature)
        self.turn.counters.compactions_left += isinstance(fact, facts.CompactionStarted)


class PreparesAgain(Emitting):
    __slots__ = ()

    def spoil(self, fact: Fact, retries_left: int) -> None:  # noqa: ARG002 (the hook's signature)
        self.turn.counters.prepared = False


class ForgetsTheAnswer(Changing):
    """The typed answer is a result like any other."""

    __slots__ = ()

    def change(self, fact: Fact) -> Fact:
        return replace(fact, final=False) if isinstance(fact, facts.CallSettled) else fact


class StrictLimits(Limits, frozen=True):
    """Limits with a formula that forgets the concluding call."""

    @property
    def model_calls(self) -> int:
        return self.allowance * (1 + self.max_retries)


SMALL: Final = Case(Limits(steps=2, tool_calls=2, max_pauses=1, max_retries=1, doom_threshold=None))


@dataclass(frozen=True)
class Fault:
    """A fault, which claim it makes false, what the violation must say of it, and where to look for it."""

    claim: Property
    says: str
    rows: tuple[Row, ...] = ROWS
    machine: type[WalkedMachine] = WalkedMachine
    case: Case = SMALL


S, T = State, Trigger
NOBODY: Final = "doom and (not doom_asks or pauses_left == 0 or spent)"
PASSES: Final = "retries_left > 0 and may_pass"
DOOM: Final = Case(
    Limits(steps=4, tool_calls=4, doom_threshold=2, nudges=1, max_pauses=1, max_retries=0), synthesis=False, widest=1
)
NUDGE: Final = DOOM._replace(limits=DOOM.limits.model_copy(update={"tool_calls": 2}))
ASKS: Final = DOOM._replace(limits=DOOM.limits.model_copy(update={"nudges": 0, "doom_response": "ask"}))
LOOPS: Final = Case(
    Limits(steps=3, tool_calls=None, doom_threshold=2, doom_compare="calls", max_pauses=1, max_retries=0), widest=1
)
ASKED: Final = LOOPS._replace(limits=LOOPS.limits.model_copy(update={"doom_response": "ask"}))
WITHIN: Final = Case(Limits(steps=2, concluding="within", max_pauses=0, max_retries=0, doom_threshold=None), widest=1)
SPENT: Final = Case(Limits(steps=2, tool_calls=1, tokens=1, max_pauses=0, max_retries=0, doom_threshold=None), widest=1)
UNLIMITED: Final = Case(Limits(steps=2, tool_calls=None, max_pauses=0, max_retries=0, doom_threshold=None), widest=1)
CHILD: Final = Case(
    Limits(steps=2, tool_calls=3, max_pauses=1, max_retries=0, doom_threshold=None), widest=1, delegates=True
)
STRICT: Final = Case(StrictLimits(steps=1, max_pauses=0, max_retries=0, doom_threshold=None), widest=1)
BUDGET_ROW, TOKENS_ROW = (place(S.CHECK, T.PROCEED, guard) for guard in ("calls_spent", "tokens_spent"))
SYNTHESIS: Final = Case(Limits(steps=1, max_pauses=0, max_retries=0, doom_threshold=None), synthesis=True, widest=1)

HOOKED: Final = Case(
    Limits(
        steps=2, tool_calls=1, output_retries=1, max_compactions=1, max_pauses=0, max_retries=1, doom_threshold=None
    ),
    widest=1,
    hooked=True,
)
LATE: Final = HOOKED._replace(limits=HOOKED.limits.model_copy(update={"seconds": 1.0, "max_pauses": 1}), widest=2)

FAULTS: Final = {
    # The four faults of earlier charts.
    "an answer leads to CHECK without counting": Fault(
        Property.PAIRING, "a call without a result", led(S.PAUSED, T.ANSWERED, "", S.CHECK)
    ),
    "a call asks again without a bound": Fault(Property.RANK, "the rank did not fall", machine=FreePauses),
    "a person is asked although the limits say stop": Fault(
        Property.LOOPS, "a person is asked about a doom loop", machine=AsksTheOtherWay, case=LOOPS
    ),
    "nobody is asked although the limits say ask": Fault(
        Property.LOOPS, "a doom loop stops the turn", machine=AsksTheOtherWay, case=ASKED
    ),
    "no step is kept for the conclusion": Fault(
        Property.STEPS, "step 2 of 1 began", machine=ConcludesBeyondTheCap, case=WITHIN
    ),
    "a nudge runs past a spent budget": Fault(
        Property.SPENT,
        "a step started on a spent budget",
        guarded(S.CHECK, T.PROCEED, "doom and nudges_left > 0 and not spent", "doom and nudges_left > 0"),
        case=NUDGE,
    ),
    "a failed conclusion has no row left": Fault(
        Property.WAY_ON,
        "no way on: attempt_failed is not accepted in state CONCLUDE",
        dropped(S.CONCLUDE, T.ATTEMPT_FAILED, ""),
    ),
    # Steps that are not counted.
    "CONTINUE leads back to STREAM": Fault(
        Property.RANK, "the rank did not fall", led(S.CONTINUE, T.PROCEED, "", S.STREAM)
    ),
    "a step is not counted": Fault(Property.RANK, "the rank did not fall", machine=FreeSteps),
    "the step cap is not looked at": Fault(
        Property.STEPS,
        "3 steps of an allowance of 2",
        dropped(S.CHECK, T.PROCEED, "steps >= allowance"),
        case=UNLIMITED,
    ),
    # Retries and pauses that are not bounded.
    "a model call is retried without a bound": Fault(
        Property.RANK, "the rank went below", guarded(S.STREAM, T.ATTEMPT_FAILED, PASSES, "may_pass")
    ),
    "a text-only call is retried without a bound": Fault(
        Property.RANK,
        "the rank went below",
        guarded(S.TEXT_ONLY, T.ATTEMPT_FAILED, PASSES, "may_pass"),
        case=Case(Limits(steps=0, max_retries=1)),
    ),
    "a conclusion is retried without a bound": Fault(
        Property.RANK, "the rank went below", guarded(S.CONCLUDE, T.ATTEMPT_FAILED, PASSES, "may_pass")
    ),
    "a crashed call is rerun without a bound": Fault(Property.RANK, "the rank did not fall", machine=FreeReruns),
    "a synthesis of nothing is repeated": Fault(
        Property.RANK, "the rank did not fall", machine=SynthesizesForever, case=SYNTHESIS
    ),
    "a doom loop asks though no pause is left": Fault(
        Property.RANK,
        "the rank went below",
        guarded(S.CHECK, T.PROCEED, NOBODY, "doom and (not doom_asks or spent)"),
        case=ASKS,
    ),
    # The budget.
    "a place too many is reserved": Fault(Property.CALLS, "3 calls of a budget of 2", machine=OneCallTooMany),
    "a rerun counts again": Fault(Property.CALLS, "3 calls of a budget of 2", machine=RecountedReruns),
    "a spent budget is not looked at": Fault(
        Property.SPENT,
        "a step started on a spent budget",
        dropped(S.CHECK, T.PROCEED, "calls_spent"),
        case=Case(Limits(steps=2, tool_calls=1, max_pauses=0, max_retries=0, doom_threshold=None), widest=1),
    ),
    "spent tokens are not looked at": Fault(
        Property.SPENT,
        "a step started on a spent budget",
        dropped(S.CHECK, T.PROCEED, "tokens_spent"),
        case=Case(Limits(steps=2, tokens=1, max_pauses=0, max_retries=0, doom_threshold=None), widest=1),
    ),
    # Sub-agents.
    "a sub-agent is lent more than is left": Fault(
        Property.CALLS, "4 calls of a budget of 3", machine=LendsTooMuch, case=CHILD
    ),
    "what a sub-agent used is forgotten": Fault(
        Property.LEASES, "its usage was not counted", machine=ForgetsTheLease, case=CHILD
    ),
    "what a stop says of sub-agents is not checked": Fault(
        Property.LEASES, "an impossible usage of a sub-agent was counted", machine=BelievesAStop, case=CHILD
    ),
    "a stop says that a sub-agent ran more calls than it was lent": Fault(
        Property.CALLS, "4 calls of a budget of 3", machine=BelievesTheNumber, case=CHILD
    ),
    "a refusal is not without consequence": Fault(
        Property.LEASES, "a refusal changed the turn", machine=RefusesTooLate, case=CHILD
    ),
    "a sub-agent asks again without a bound": Fault(
        Property.RANK, "the rank did not fall", machine=FreeForwardedPauses, case=CHILD
    ),
    # Messages, which alone may leave the rank as it is.
    "a message costs a retry": Fault(Property.RANK, "a message changed the rank", machine=MessagesCost),
    "messages lead round in a circle": Fault(Property.CYCLE, "a cycle", machine=MessagesComeBack),
    # What is said of several limits.
    "tokens come before the tool calls": Fault(
        Property.PRECEDENCE,
        "stopped for tokens, although budget, tokens was reached",
        (*ROWS[:BUDGET_ROW], ROWS[TOKENS_ROW], ROWS[BUDGET_ROW], *ROWS[TOKENS_ROW + 1 :]),
        case=SPENT,
    ),
    "the reason is also reached": Fault(Property.ALSO, "and also for step_cap", machine=AlsoTheReason),
    "the reason of the end is also reached": Fault(Property.ALSO, "ended for ", machine=EndsAlsoForItsReason),
    "other limits are not reported": Fault(Property.ALSO, "and also for nothing", machine=NothingElse, case=SPENT),
    "the formula forgets the concluding call": Fault(
        Property.MODEL_CALLS, "2 model calls; the formula allows 1", case=STRICT
    ),
    # Reviews.
    "a reply with a typed answer is not reviewed": Fault(
        Property.CALLS, "2 calls of a budget of 1", dropped(S.STREAM, T.REPLIED, "review"), case=HOOKED
    ),
    "the calls of a refused reply run": Fault(
        Property.REFUSED,
        "a call of a refused reply is open",
        led(S.REVIEW, T.REVIEWED, "refused and output_retries_left > 0", S.TOOL_EXEC),
        case=HOOKED,
    ),
    "the last refusal is not looked at": Fault(
        Property.REFUSED, "a call of a refused reply is open", dropped(S.REVIEW, T.REVIEWED, "refused"), case=HOOKED
    ),
    "a reply is refused without a bound": Fault(
        Property.RANK,
        "the rank went below",
        guarded(S.REVIEW, T.REVIEWED, "refused and output_retries_left > 0", "refused"),
        case=HOOKED,
    ),
    "a refusal has no row left": Fault(
        Property.WAY_ON,
        "no way on: reviewed is not accepted in state REVIEW",
        dropped(S.REVIEW, T.REVIEWED, ""),
        case=HOOKED,
    ),
    "a review is retried without a bound": Fault(
        Property.RANK, "the rank went below", guarded(S.REVIEW, T.ATTEMPT_FAILED, PASSES, "may_pass"), case=HOOKED
    ),
    "a failed review has no row left": Fault(
        Property.WAY_ON,
        "no way on: attempt_failed is not accepted in state REVIEW",
        dropped(S.REVIEW, T.ATTEMPT_FAILED, ""),
        case=HOOKED,
    ),
    # Compactions.
    "a request is not compacted": Fault(
        Property.WAY_ON, "is not accepted in state STREAM", dropped(S.STREAM, T.OVERSIZED, ""), case=HOOKED
    ),
    "an overflow is compacted without a bound": Fault(
        Property.RANK,
        "the rank went below",
        guarded(S.STREAM, T.ATTEMPT_FAILED, "overflow and compactions_left > 0", "overflow"),
        case=HOOKED,
    ),
    "compactions do not count": Fault(Property.RANK, "the rank did not fall", machine=FreeCompactions, case=HOOKED),
    "a compaction is retried without a bound": Fault(
        Property.RANK, "the rank went below", guarded(S.COMPACT, T.ATTEMPT_FAILED, PASSES, "may_pass"), case=HOOKED
    ),
    "a compaction refills the retries": Fault(
        Property.MODEL_CALLS, "9 model calls; the formula allows 8", machine=RefillsRetries, case=HOOKED
    ),
    "a failed compaction fails the turn": Fault(
        Property.ONE_END, "failed/", led(S.COMPACT, T.ATTEMPT_FAILED, "", S.FAILED), case=HOOKED
    ),
    "a compaction leads nowhere": Fault(
        Property.WAY_ON,
        "no way on: compacted is not accepted in state COMPACT",
        dropped(S.COMPACT, T.COMPACTED, ""),
        case=HOOKED,
    ),
    "a request is prepared again and again": Fault(
        Property.RANK, "the rank did not fall", machine=PreparesAgain, case=HOOKED
    ),
    # Answers that a call gave.
    "the answer of a call is not looked at": Fault(
        Property.ANSWER, "although a call gave the answer", dropped(S.TOOL_EXEC, T.SETTLED, "final"), case=HOOKED
    ),
    "a deadline beats an answer": Fault(
        Property.ANSWER,
        "stopping although a call gave the answer",
        dropped(S.TOOL_EXEC, T.EXPIRE, "final"),
        case=LATE,
    ),
    **{
        f"no guardrail trips in {state}": Fault(
            Property.WAY_ON,
            f"is not accepted in state {state}",
            dropped(state, T.TRIPPED, ""),
            case=HOOKED if state is not S.TEXT_ONLY else HOOKED._replace(limits=Limits(steps=0)),
        )
        for state in (S.STREAM, S.REVIEW, S.TOOL_EXEC, S.CONCLUDE, S.TEXT_ONLY)
    },
    # Ends.
    "no step can start": Fault(Property.WAY_ON, "the turn cannot start", dropped(S.CHECK, T.PROCEED, "")),
    "the facts say another state": Fault(
        Property.WAY_ON, "the chart is in CONCLUDE, and the facts give TOOL_EXEC", machine=StandsElsewhere
    ),
    "an end has another outcome": Fault(
        Property.ONE_END, "an end without one outcome and one reason", machine=EndsAsAnother
    ),
    "a turn halts and continues": Fault(Property.ONE_END, "turn_ended outside a final state", machine=HaltsEarly),
    "a batch is left open": Fault(Property.PAIRING, "a call without a result", machine=OpenCallsStayOpen),
    "a paused turn cannot be aborted": Fault(
        Property.WAY_ON, "no way on: abort is not accepted in state PAUSED", dropped(S.PAUSED, T.ABORT, "")
    ),
    "a pair of state and trigger has no fallback": Fault(
        Property.WAY_ON, "no way on: settled is not accepted in state TOOL_EXEC", dropped(S.TOOL_EXEC, T.SETTLED, "")
    ),
    "a turn halts twice": Fault(
        Property.ONE_END, "an end needs exactly one turn_ended, as its last", machine=HaltsTwice
    ),
    "a conclusion loses its reason": Fault(
        Property.WAY_ON, "the machine broke", unreasoned(S.CHECK, T.PROCEED, "steps >= allowance")
    ),
    "an answer loses its reason": Fault(Property.ONE_END, "finished/", unreasoned(S.STREAM, T.REPLIED, "")),
    "a filtered reply is an answer": Fault(
        Property.ONE_END, "finished/content_filter", led(S.STREAM, T.REPLIED, "filtered", S.FINISHED)
    ),
    "a failed conclusion fails the turn": Fault(
        Property.ONE_END, "failed/step_cap", led(S.CONCLUDE, T.ATTEMPT_FAILED, "", S.FAILED)
    ),
    "a doom loop ends as a cap": Fault(
        Property.ONE_END, "cap_hit/doom_loop", dropped(S.CONCLUDE, T.CONCLUDED, "carried_doom"), case=DOOM
    ),
    "a final state has a way out": Fault(
        Property.ONE_END, "FINISHED", (*ROWS, Row(S.FINISHED, T.ABORT, Guard(""), S.ABORTED, EndReason.ABORTED))
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault_is_detected(name: str) -> None:
    """The violation says which claim is false and how, under which limits, and the way through the chart."""
    fault = FAULTS[name]
    with pytest.raises(ViolationError) as caught:
        walk(fault.case, chart=Chart(fault.rows), machine=fault.machine)
    violation = caught.value
    assert violation.claim is fault.claim
    assert fault.says in violation.what
    text = str(violation)
    assert text.startswith(violation.what)
    assert "limits: {" in text
    assert not violation.path or violation.path[0].happened == "the turn begins"
    assert all(f"  {number}. {edge.happened}" in text for number, edge in enumerate(violation.path, start=1))
    assert {row for edge in violation.path for row in edge.rows} <= set(fault.rows)


def test_every_path_claim_has_a_violating_fault() -> None:
    """A check that cannot fail checks nothing. The two others are those of a whole campaign."""
    assert {fault.claim for fault in FAULTS.values()} == set(Property) - {Property.ROWS, Property.ENDS}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow if (case.limits.steps or 0) > 2 else ())
        for case in {fault.case: None for fault in FAULTS.values() if fault.case is not STRICT}
    ],
    ids=lambda case: ",".join(map(str, case.changed.items())),
)
def test_walk_without_the_fault_passes(case: Case) -> None:
    """So that what was found above is the fault, and not the case."""
    assert walk(case, chart=CHART).configurations > 1


def test_step_after_the_answer_of_a_call_is_a_fault() -> None:
    machine, begun = WalkedMachine.start(SMALL.started)
    assert fault_of(machine, rank_of(machine.turn), begun) is None
    machine.turn.counters.final = True
    fault = Property.ANSWER, "step_started although a call gave the answer"
    assert fault_of(machine, rank_of(machine.turn), begun) == fault


def test_path_to_a_fault_is_described_by_events_and_rows() -> None:
    with pytest.raises(ViolationError) as caught:
        walk(SPENT, chart=Chart(FAULTS["tokens come before the tool calls"].rows))
    *_, last = caught.value.path
    assert (last.source, last.dest) == (S.TOOL_EXEC, S.CONCLUDE)
    assert [row.reason for row in last.rows] == [None, None, EndReason.TOKENS]
    assert str(last).startswith("a ends: ")
    assert str(last).endswith("CHECK --proceed [tokens_spent]--> CONCLUDE")


def test_violation_can_be_pickled() -> None:
    with pytest.raises(ViolationError) as caught:
        walk(SMALL, machine=FreeSteps)
    violation = caught.value
    back = pickle.loads(pickle.dumps(violation))  # noqa: S301 (our own bytes)
    assert isinstance(back, ViolationError)
    assert (str(back), back.claim, back.case, back.path) == (
        str(violation),
        violation.claim,
        violation.case,
        violation.path,
    )
