"""The walk over all configurations: the chart passes it, and each planted fault is found (DESIGN 2)."""

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Final

import pytest

from turnwright_states import CallStatus, EndReason, Limits, ModelReplied, State, Trigger, Usage, facts
from turnwright_states.chart import CHART, ROWS, Chart, Row
from turnwright_states.guards import Guard
from turnwright_states.verify import Case, Violation, Walk, WalkedMachine, campaign, grid, walk

#: The ends that a turn may have (DESIGN 9), but for `context_overflow`: the walk has one cause that will not pass.
ENDS: Final = {
    *("finished/answered", "finished/text_only", "finished/truncated", "synthesis_done/synthesised"),
    *("cap_hit/step_cap", "cap_hit/budget", "cap_hit/tokens", "cap_hit/cost", "cap_hit/deadline"),
    *("doom_loop/doom_loop", "aborted/aborted", "aborted/superseded"),
    *("failed/model_error", "failed/empty_reply", "failed/content_filter", "failed/crashed", "failed/engine_error"),
}


def test_the_whole_campaign_passes_and_takes_every_row() -> None:
    """Two processes share it, in pieces small enough that both are busy to the end."""
    cases, total = list(grid()), Walk()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        for part in pool.map(campaign, [cases[start::16] for start in range(16)]):
            total.add(part)
    assert total.walks == len(cases) > 300
    assert total.configurations > 500_000
    assert total.edges > total.configurations
    assert total.untaken() == ()
    assert set(total.ends) == ENDS


def test_a_walk_counts_what_it_saw() -> None:
    """A turn without steps and retries: text, cut off, filtered, empty, calls, two causes, a crash, abort, failure."""
    seen = walk(Case(Limits(steps=0, max_retries=0)))
    assert (seen.walks, seen.model_calls) == (1, 1)
    assert set(seen.ends) == {
        *("finished/text_only", "failed/content_filter", "failed/empty_reply", "failed/model_error"),
        *("failed/crashed", "aborted/aborted", "failed/engine_error"),
    }
    assert {row.source for row in seen.rows} == {State.CHECK, State.TEXT_ONLY}
    assert len(seen.untaken()) == len(ROWS) - len(seen.rows)


@pytest.mark.parametrize(("steps", "retries"), [(1, 0), (1, 1), (2, 0), (2, 1)])
def test_the_longest_way_is_the_formula(steps: int, retries: int) -> None:
    """(allowance + 1) x (1 + max_retries) model calls are possible, so the bound could not be lower."""
    limits = Limits(steps=steps, max_retries=retries, max_pauses=0, tool_calls=4, doom_threshold=None)
    assert walk(Case(limits, widest=1)).model_calls == limits.model_calls


# Planted faults.


def place(source: State, trigger: Trigger, guard: str) -> int:
    """Where a row stands in the chart."""
    (at,) = (i for i, row in enumerate(ROWS) if (row.source, row.trigger, row.guard.text) == (source, trigger, guard))
    return at


def with_row(at: int, *row: Row) -> tuple[Row, ...]:
    """The chart with another row in one place, or with none."""
    return (*ROWS[:at], *row, *ROWS[at + 1 :])


def dropped(source: State, trigger: Trigger, guard: str) -> tuple[Row, ...]:
    return with_row(place(source, trigger, guard))


def guarded(source: State, trigger: Trigger, guard: str, other: str) -> tuple[Row, ...]:
    at = place(source, trigger, guard)
    return with_row(at, ROWS[at]._replace(guard=Guard(other)))


def led(source: State, trigger: Trigger, guard: str, dest: State) -> tuple[Row, ...]:
    at = place(source, trigger, guard)
    return with_row(at, ROWS[at]._replace(dest=dest))


def unreasoned(source: State, trigger: Trigger, guard: str) -> tuple[Row, ...]:
    at = place(source, trigger, guard)
    return with_row(at, ROWS[at]._replace(reason=None))


class Emitting(WalkedMachine):
    """A machine with a fault in what a fact does."""

    __slots__ = ()

    def _emit(self, kind: type[facts.Fact], *, state: State | None = None, **fields: object) -> None:
        left = self.turn.counters.retries_left
        super()._emit(kind, state=state, **fields)
        self.spoil(kind, left)

    def spoil(self, kind: type[facts.Fact], retries_left: int) -> None:
        """Undo something."""


class FreePauses(Emitting):
    __slots__ = ()

    def spoil(self, kind: type[facts.Fact], retries_left: int) -> None:  # noqa: ARG002 (the hook's signature)
        self.turn.counters.pauses_left += kind is facts.Paused


class FreeSteps(Emitting):
    __slots__ = ()

    def spoil(self, kind: type[facts.Fact], retries_left: int) -> None:  # noqa: ARG002 (the hook's signature)
        self.turn.counters.steps -= kind is facts.StepStarted


class FreeReruns(Emitting):
    __slots__ = ()

    def spoil(self, kind: type[facts.Fact], retries_left: int) -> None:
        if kind is facts.CallStarted:
            self.turn.counters.retries_left = retries_left


class RecountedReruns(Emitting):
    __slots__ = ()

    def spoil(self, kind: type[facts.Fact], retries_left: int) -> None:  # noqa: ARG002 (the hook's signature)
        again = sum(call.attempt > 1 for call in self.turn.batch.values())
        self.turn.counters.calls += again if kind is facts.CallStarted else 0


class OneCallTooMany(WalkedMachine):
    __slots__ = ()

    def _decide(self, event: ModelReplied) -> tuple[facts.CallMade, ...]:
        self.turn.counters.budget += 1
        made = super()._decide(event)
        self.turn.counters.budget -= 1
        return made


class OpenCallsStayOpen(WalkedMachine):
    __slots__ = ()

    def _close_step(
        self,
        why: str,
        *,
        state: State | None = None,
        waiting: CallStatus = CallStatus.ABORTED,
        usage: Usage | None = None,
    ) -> None:
        calls, self.turn.batch = self.turn.batch, {}
        super()._close_step(why, state=state, waiting=waiting, usage=usage)
        self.turn.batch = calls


class SynthesisesForever(WalkedMachine):
    __slots__ = ()

    def _synthesised(self, text: str | None) -> None:
        super()._synthesised(text) if text else self._emit(facts.Synthesised, text=None)


class HaltsTwice(WalkedMachine):
    __slots__ = ()

    def _concluded(self, event: object) -> None:
        super()._concluded(event)  # type: ignore[arg-type]
        self._emit(facts.Halted, outcome=self.state.outcome, reason=EndReason.STEP_CAP)


SMALL: Final = Case(Limits(steps=2, tool_calls=2, max_pauses=1, max_retries=1, doom_threshold=None))


@dataclass(frozen=True)
class Fault:
    """A fault, where to look for it, and what the violation must say."""

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
SYNTHESIS: Final = Case(Limits(steps=1, max_pauses=0, max_retries=0, doom_threshold=None), synthesis=True, widest=1)

FAULTS: Final = {
    # The four of the charts before this one (DESIGN 2).
    "an answer leads to CHECK without counting": Fault(
        "a call without a result", led(S.PAUSED, T.ANSWERED, "", S.CHECK)
    ),
    "a call asks again without a bound": Fault("the rank did not fall", machine=FreePauses),
    "a nudge runs past a spent budget": Fault(
        "a step started on a spent budget",
        guarded(S.CHECK, T.PROCEED, "doom and nudges_left > 0 and not spent", "doom and nudges_left > 0"),
        case=NUDGE,
    ),
    "a failed conclusion has no row left": Fault(
        "no way on: attempt_failed is not accepted in state CONCLUDE", dropped(S.CONCLUDE, T.ATTEMPT_FAILED, "")
    ),
    # Steps that are not counted.
    "CONTINUE leads back to STREAM": Fault("the rank did not fall", led(S.CONTINUE, T.PROCEED, "", S.STREAM)),
    "a step is not counted": Fault("the rank did not fall", machine=FreeSteps),
    "the step cap is not looked at": Fault("the rank went below", dropped(S.CHECK, T.PROCEED, "steps >= allowance")),
    # Retries and pauses that are not bounded.
    "a model call is retried without a bound": Fault(
        "the rank went below", guarded(S.STREAM, T.ATTEMPT_FAILED, PASSES, "may_pass")
    ),
    "a text-only call is retried without a bound": Fault(
        "the rank went below",
        guarded(S.TEXT_ONLY, T.ATTEMPT_FAILED, PASSES, "may_pass"),
        case=Case(Limits(steps=0, max_retries=1)),
    ),
    "a conclusion is retried without a bound": Fault(
        "the rank went below", guarded(S.CONCLUDE, T.ATTEMPT_FAILED, PASSES, "may_pass")
    ),
    "a crashed call is rerun without a bound": Fault("the rank did not fall", machine=FreeReruns),
    "a synthesis of nothing is repeated": Fault("the rank did not fall", machine=SynthesisesForever, case=SYNTHESIS),
    "a doom loop asks though no pause is left": Fault(
        "the rank went below",
        guarded(S.CHECK, T.PROCEED, NOBODY, "doom and (not doom_asks or spent)"),
        case=ASKS,
    ),
    # The budget.
    "a place too many is reserved": Fault("3 calls of a budget of 2", machine=OneCallTooMany),
    "a rerun counts again": Fault("3 calls of a budget of 2", machine=RecountedReruns),
    "a spent budget is not looked at": Fault(
        "a step started on a spent budget",
        dropped(S.CHECK, T.PROCEED, "calls >= budget"),
        case=Case(Limits(steps=2, tool_calls=1, max_pauses=0, max_retries=0, doom_threshold=None), widest=1),
    ),
    "spent tokens are not looked at": Fault(
        "a step started on a spent budget",
        dropped(S.CHECK, T.PROCEED, "tokens_spent"),
        case=Case(Limits(steps=2, tokens=1, max_pauses=0, max_retries=0, doom_threshold=None), widest=1),
    ),
    # Ends.
    "a batch is left open": Fault("a call without a result", machine=OpenCallsStayOpen),
    "a paused turn cannot be aborted": Fault(
        "no way on: abort is not accepted in state PAUSED", dropped(S.PAUSED, T.ABORT, "")
    ),
    "a pair of state and trigger has no fallback": Fault(
        "no way on: settled is not accepted in state TOOL_EXEC", dropped(S.TOOL_EXEC, T.SETTLED, "")
    ),
    "a turn halts twice": Fault("an end needs one halted, as its last fact", machine=HaltsTwice),
    "a conclusion loses its reason": Fault("the machine broke", unreasoned(S.CHECK, T.PROCEED, "steps >= allowance")),
    "an answer loses its reason": Fault("finished/", unreasoned(S.STREAM, T.REPLIED, "")),
    "a filtered reply is an answer": Fault("finished/content_filter", led(S.STREAM, T.REPLIED, "filtered", S.FINISHED)),
    "a failed conclusion fails the turn": Fault("failed/step_cap", led(S.CONCLUDE, T.ATTEMPT_FAILED, "", S.FAILED)),
    "a doom loop ends as a cap": Fault(
        "cap_hit/doom_loop", dropped(S.CONCLUDE, T.CONCLUDED, "carried_doom"), case=DOOM
    ),
    "a final state has a way out": Fault(
        "FINISHED", (*ROWS, Row(S.FINISHED, T.ABORT, Guard(""), S.ABORTED, EndReason.ABORTED))
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    """The violation says what is wrong, under which limits, and the way that leads there."""
    fault = FAULTS[name]
    with pytest.raises(Violation) as caught:
        walk(fault.case, chart=Chart(fault.rows), machine=fault.machine)
    assert fault.says in caught.value.what
    text = str(caught.value)
    assert text.startswith(caught.value.what)
    assert "limits: {" in text
    assert all(f"  {number}. {step}" in text for number, step in enumerate(caught.value.path, start=1))


@pytest.mark.parametrize(
    "case",
    {fault.case: None for fault in FAULTS.values()},
    ids=lambda case: ",".join(map(str, case.limits.model_dump(exclude_defaults=True).items())),
)
def test_without_the_fault_the_same_walk_passes(case: Case) -> None:
    """So that what was found above is the fault, and not the case."""
    assert walk(case, chart=CHART).configurations > 1


def test_a_violation_travels_between_processes() -> None:
    violation = Violation("the rank did not fall", Limits(steps=2), ("ModelReplied", "Abort"))
    back = pickle.loads(pickle.dumps(violation))  # noqa: S301 (our own bytes)
    assert isinstance(back, Violation)
    assert (str(back), back.path) == (str(violation), violation.path)
