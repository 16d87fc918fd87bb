"""The effects as data: what the fold runs is what the texts say."""

from collections.abc import Mapping
from itertools import product
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_states import Limits, State, facts
from turnwright_states.counters import Counters
from turnwright_states.effects import (
    EFFECTS,
    FLAGS,
    PHASE,
    RANK,
    REFILLS,
    RUN,
    Effect,
    evaluate,
    names_in,
    parsed,
    rank_of,
    rank_values,
)
from turnwright_states.guards import GuardError
from turnwright_states.state import LIVE

COUNTERS: Final = tuple(name for name in Counters.__slots__ if name != "place")
ALL: Final[Mapping[str, Effect]] = {**EFFECTS, "phase": PHASE}
READS: Final = sorted({name for effect in ALL.values() for name in effect.reads})


def test_every_effect_belongs_to_a_fact_and_reads_only_known_names() -> None:
    assert EFFECTS.keys() <= facts.KINDS.keys()
    for effect in ALL.values():
        assert effect.sets.keys() <= set(COUNTERS)
        for text in effect.sets.values():
            assert names_in(text) <= {*COUNTERS, *effect.reads}
        for name in effect.reads:
            assert any(name in names_in(text) for text in effect.sets.values()), name


def test_flags_are_the_boolean_counters() -> None:
    counters = Counters(Limits())
    assert {name for name in COUNTERS if isinstance(getattr(counters, name), bool)} == FLAGS


numbers = st.integers(-3, 9)


@pytest.mark.parametrize("kind", ALL)
@given(st.fixed_dictionaries({name: st.booleans() if name in FLAGS else numbers for name in COUNTERS}), st.data())
def test_fold_agrees_with_the_effect_texts(kind: str, counts: dict[str, int], data: st.DataObject) -> None:
    """All assignments read the values before, and the values of a fact hide counters of the same name."""
    effect, counters = ALL[kind], Counters(Limits())
    for name, value in counts.items():
        setattr(counters, name, value)
    read = {name: data.draw(numbers if name in ("number", "used", "lease") else st.booleans()) for name in effect.reads}
    RUN[kind](counters, *read.values())
    expected = counts | {name: evaluate(text, counts | read) for name, text in effect.sets.items()}
    assert {name: getattr(counters, name) for name in COUNTERS} == expected


@given(st.fixed_dictionaries({name: st.booleans() if name in FLAGS else numbers for name in COUNTERS}))
def test_rank_agrees_with_the_rank_texts(counts: dict[str, int]) -> None:
    counters = Counters(Limits())
    for name, value in counts.items():
        setattr(counters, name, value)
    for state in State:
        values = counts | dict(zip(("stage", "paused", "asks_model"), rank_values(state), strict=True))
        assert rank_of(counters, state) == tuple(evaluate(text, values) for text in RANK.values())


def test_retries_are_restored_at_the_beginning_of_a_phase() -> None:
    """Docs/rules.md#retries and #compaction: a compaction shares the retries of its model call."""
    for before, after in product(State, State):
        shared = {before, after} == {State.STREAM, State.COMPACT} or after is State.COMPACT
        assert ((before, after) in REFILLS) is (before is not after and after in LIVE and not shared)


@pytest.mark.parametrize(
    "text", ["steps +", "len(steps)", "steps < calls < budget", "'steps'", "steps / 2", "-steps", "1.5", "[steps]"]
)
def test_text_outside_the_language_is_refused(text: str) -> None:
    with pytest.raises(GuardError, match="effect "):
        parsed(text)
