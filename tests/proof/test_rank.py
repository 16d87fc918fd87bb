"""The rank: what a walk compares is what its texts say."""

from hypothesis import given
from hypothesis import strategies as st
from tests.states.test_effects import COUNTERS, numbers

from turnwright_proof.rank import RANK, rank_of, rank_values
from turnwright_proof.texts import FLAGS, evaluate
from turnwright_states import State, Turn


@given(st.fixed_dictionaries({name: st.booleans() if name in FLAGS else numbers for name in COUNTERS}))
def test_rank_agrees_with_the_rank_texts(counts: dict[str, int]) -> None:
    turn = Turn()
    for name, value in counts.items():
        setattr(turn.counters, name, value)
    for state in State:
        turn.state = state
        values = counts | dict(zip(("stage", "paused", "asks_model"), rank_values(state), strict=True))
        assert rank_of(turn) == tuple(evaluate(text, values) for text in RANK.values())
