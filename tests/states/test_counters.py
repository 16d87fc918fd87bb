"""The counters: the numbers and flags of which the guards speak."""

from turnwright_states import Limits
from turnwright_states.counters import BATCH, NAMES, Counters


def test_each_counter_begins_as_a_whole_number_or_a_flag() -> None:
    """The model that is checked knows no third kind, and no empty value."""
    counters = Counters(Limits())
    assert {type(getattr(counters, name)) for name in NAMES} == {int, bool}
    assert {*NAMES, *BATCH, "prepared", "place"} == {*Counters.__slots__}
    assert [getattr(counters, name) for name in BATCH] == [0] * len(BATCH)
