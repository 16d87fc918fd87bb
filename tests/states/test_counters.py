"""The counters: the numbers and flags of which the guards speak."""

from typing import get_type_hints

from turnwright_states import Limits
from turnwright_states.counters import NAMES, Counters


def test_each_is_a_whole_number_or_a_flag_from_the_beginning() -> None:
    """As it is declared: the model that is checked knows no third kind, and no empty value."""
    declared, counters = get_type_hints(Counters), Counters(Limits())
    assert {declared[name] for name in NAMES} == {int, bool}
    assert {name: type(getattr(counters, name)) for name in NAMES} == {name: declared[name] for name in NAMES}
