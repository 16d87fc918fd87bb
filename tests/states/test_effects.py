"""The effects as data: what the fold runs is what the texts say."""

from collections.abc import Mapping
from itertools import product
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_proof.texts import FLAGS, evaluate, names_in
from turnwright_states import Limits, State, facts
from turnwright_states.counters import Counters
from turnwright_states.effects import (
    EFFECTS,
    PHASE,
    REFILLS,
    RUN,
    Effect,
)
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


def test_retries_are_restored_at_the_beginning_of_a_phase() -> None:
    """Docs/rules.md#retries and #compaction: a compaction shares the retries of its model call."""
    for before, after in product(State, State):
        shared = {before, after} == {State.STREAM, State.COMPACT} or after is State.COMPACT
        assert ((before, after) in REFILLS) is (before is not after and after in LIVE and not shared)
