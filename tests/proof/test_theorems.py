"""The theorems as data: their texts are in the language, name what there is, and agree with `Limits`."""

from hypothesis import given
from hypothesis import strategies as st
from tests.proof.conformance import values_of

from turnwright_proof.moves import APPLIED, CHOSEN, MOVES, facts_of
from turnwright_proof.texts import evaluate, names_in
from turnwright_proof.theorems import (
    ALLOWANCE,
    BOUNDS,
    CAP,
    CEILING,
    CHANGING,
    CONSTANTS,
    EVENTS,
    HERE,
    INVARIANTS,
    LIMITS,
    PROMISED_STEPS,
    START,
    claims_of,
    potential,
)
from turnwright_states import Limits, State
from turnwright_states.chart import ROWS
from turnwright_states.counters import PASSING
from turnwright_states.limits import MAX_STEPS
from turnwright_states.state import FINAL
from turnwright_states.turn import Turn

KNOWN = {*CONSTANTS, *CHANGING}


def test_every_invariant_text_uses_known_names() -> None:
    texts = [LIMITS, START, EVENTS, *BOUNDS.values(), *(invariant.text for invariant in INVARIANTS.values())]
    texts += [potential(state) for state in State]
    for text in texts:
        assert names_in(text) <= KNOWN, text
    for row in ROWS:
        for _, text in claims_of(row):
            assert names_in(text) <= KNOWN | set(PASSING), text
    for move in MOVES:
        for text in (move.assume, *move.before.values(), *move.example.values()):
            assert names_in(text) <= {*KNOWN, *CHOSEN}, text
        assert {*move.example} <= {*CHOSEN}


def test_every_row_fact_supplies_the_values_read_by_the_effect() -> None:
    facts = [fact for row in ROWS for fact in facts_of(row)] + [fact for move in MOVES for fact in move.facts]
    for fact in facts:
        assert set(APPLIED[fact.kind].reads if fact.kind in APPLIED else ()) == set(fact.values), fact.kind


@given(
    st.none() | st.integers(0, 400), st.integers(0, MAX_STEPS), st.sampled_from(["after", "within"]), st.integers(0, 9)
)
def test_texts_agree_with_the_limits(steps: int | None, ceiling: int, concluding: str, few: int) -> None:
    """The allowance, the formula of model calls, and the configuration that begins."""
    limits = Limits.model_validate(
        {"steps": steps, "ceiling": ceiling, "concluding": concluding, "max_retries": few, "max_compactions": few}
    )
    values = {"asked": steps or 0, "no_steps": steps is None, "ceiling": ceiling, "after": concluding == "after"}
    assert evaluate(CEILING, values)
    values["cap"] = evaluate(CAP, values)
    assert (values["cap"], evaluate(ALLOWANCE, values)) == (limits.cap, limits.allowance)
    begun = values_of(Turn(limits)) | {"model_calls": 0}
    assert evaluate(LIMITS, begun)
    assert evaluate(START, begun)
    most = BOUNDS["model calls <= the formula"].removeprefix("model_calls <= ")
    assert evaluate(most, begun) == limits.model_calls
    assert evaluate(potential(State.CHECK), begun) == evaluate(EVENTS, begun)


def test_promised_steps_are_written_out() -> None:
    """The proof of the allowance compares with this number, and not with the constant of the limits."""
    assert PROMISED_STEPS == 200 == MAX_STEPS


def test_ended_state_has_no_move() -> None:
    assert {state for move in MOVES for state in move.states} == set(State) - FINAL
    assert {HERE[state] for state in FINAL} == {"0"}
