"""The machine does what the moves as data say: on every edge of walks, each row, fact, precondition and invariant.

The campaign of `test_verify.py` does the same for every case within a bound.
"""

from typing import Final

import pytest
from tests.proof.conformance import ConformingMachine

from turnwright_proof.verify import Case, Property, ViolationError, walk
from turnwright_states import CallState, Limits, ModelRepliedInput, State, facts
from turnwright_states.chart import ROWS, Chart
from turnwright_states.facts import Fact


def small(**changes: object) -> Limits:
    few = {"steps": 1, "tool_calls": 2, "max_pauses": 1, "max_retries": 1, "doom_threshold": None}
    return Limits.model_validate(few | changes)


CASES: Final = {
    "a synthesis": Case(small(), synthesis=True),
    "no budget": Case(small(tool_calls=None), widest=1),
    "no step": Case(small(steps=0)),
    "a doom loop that asks": Case(
        small(steps=3, doom_threshold=2, doom_response="ask", max_retries=0, nudges=1), widest=1
    ),
    "spent budgets": Case(small(tokens=1, cost=1.0, seconds=1.0, max_retries=0)),
    "sub-agents": Case(small(tool_calls=3), delegates=True),
    "hooks": Case(small(tool_calls=1, output_retries=1, max_compactions=1, tokens=2, max_pauses=0), hooked=True),
}


@pytest.mark.parametrize("name", CASES)
def test_machine_conforms_to_the_moves(name: str) -> None:
    """A machine that checks itself walks as far as one that does not."""
    checked, plain = walk(CASES[name], machine=ConformingMachine), walk(CASES[name])
    assert (checked.configurations, checked.edges, checked.ends) == (plain.configurations, plain.edges, plain.ends)


# Planted in the machine: each kind of difference is found.


class CountsBeside(ConformingMachine):
    """A pause gives a retry."""

    __slots__ = ()

    def _emit(self, fact: Fact) -> None:
        super()._emit(fact)
        self.turn.counters.retries_left += isinstance(fact, facts.Paused)


class CountsBefore(ConformingMachine):
    """A row is taken with one more call than there were."""

    __slots__ = ()

    def _close_step(self) -> None:
        self.turn.counters.calls += 1
        super()._close_step()


class PromisesTooMuch(ConformingMachine):
    """A reply runs a call more than the budget has."""

    __slots__ = ()

    def _decide(self, event: ModelRepliedInput) -> tuple[facts.CallMade, ...]:
        self.turn.counters.budget += 1
        calls = super()._decide(event)
        self.turn.counters.budget -= 1
        return calls


class ConfusesCalls(ConformingMachine):
    """A call waits, and the batch says that it is ready."""

    __slots__ = ()

    def _emit(self, fact: Fact) -> None:
        super()._emit(fact)
        if isinstance(fact, facts.CallWaiting):
            self.turn.batch[fact.call].state = CallState.STARTED


@pytest.mark.parametrize(
    ("machine", "case", "says"),
    [
        (CountsBeside, "a synthesis", "beside the facts: retries_left is"),
        (CountsBefore, "no budget", "before CONTINUE --proceed--> CHECK: calls is 2 and not 1"),
        (PromisesTooMuch, "a synthesis", "the model replies in STREAM, although not runs >= 0"),
        (ConfusesCalls, "a synthesis", "the batch has"),
    ],
)
def test_nonconforming_machine_is_detected(machine: type[ConformingMachine], case: str, says: str) -> None:
    with pytest.raises(ViolationError) as caught:
        walk(CASES[case]._replace(widest=3), machine=machine)
    assert caught.value.claim is Property.WAY_ON
    assert f"ConformanceError: {says}" in caught.value.what


def test_violated_invariant_is_detected() -> None:
    """An answer leads to CHECK, and the call that waited is still open."""
    (at,) = (at for at, row in enumerate(ROWS) if row.name == "PAUSED --answered--> TOOL_EXEC")
    rows = (*ROWS[:at], ROWS[at]._replace(dest=State.CHECK), *ROWS[at + 1 :])
    with pytest.raises(ViolationError, match="ConformanceError: a closed step has no open call: in CHECK with allow"):
        walk(CASES["a synthesis"], chart=Chart(rows), machine=ConformingMachine)
