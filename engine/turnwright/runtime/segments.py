"""The segments of a turn: the stretches of driving between its pauses, counted from 1."""

from collections.abc import Iterable

from turnwright_states.facts import Fact, Paused


def segment_of(facts: Iterable[tuple[int, Fact]]) -> int:
    """The segment that a turn with this journal is in; while it is paused, the one that the answers begin."""
    return 1 + sum(isinstance(fact, Paused) for _, fact in facts)
