"""The texts of guards and effects: their language, their words, and a guard without the atoms that are known."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.states.test_guards import GUARDS, OTHERS, atom_holds

from turnwright_proof.texts import describe_guard, parse_text, simplify_guard
from turnwright_states import Limits
from turnwright_states.counters import NAMES, Counters
from turnwright_states.guards import WORDS, Guard, GuardError


@pytest.mark.parametrize(
    "text", ["steps +", "len(steps)", "steps < calls < budget", "'steps'", "steps / 2", "-steps", "1.5", "[steps]"]
)
def test_text_outside_the_language_is_refused(text: str) -> None:
    with pytest.raises(GuardError, match="effect "):
        parse_text(text)


def test_words_of_denied_alternatives_are_put_in_parentheses() -> None:
    assert (
        describe_guard(Guard("doom and not (go_on or filtered)"))
        == "doom loop and (do not go on and no content filter)"
    )
    assert (
        describe_guard(Guard("not (doom and not (go_on or filtered))")) == "no doom loop or (go on or content filter)"
    )


@given(st.sampled_from((*GUARDS, *OTHERS)), st.data())
def test_guard_without_known_atoms_holds_for_the_same_counters(text: str, data: st.DataObject) -> None:
    """The chart of one agent leaves out what its limits decide. An atom that is left is one of the guard's own."""
    counters = Counters(Limits())
    for name in NAMES:
        of_flag = isinstance(getattr(counters, name), bool)
        setattr(counters, name, data.draw(st.booleans() if of_flag else st.integers(0, 2), name))
    values = {name: getattr(counters, name) for name in NAMES}
    atoms = data.draw(st.sets(st.sampled_from(sorted(WORDS))), "known")
    guard, facts = Guard(text), {atom: atom_holds(atom, values) for atom in atoms}
    reduced = simplify_guard(guard, facts)
    assert reduced.holds(counters) == guard.holds(counters)
    if reduced != guard:
        assert not [atom for atom in atoms if re.search(rf"(?<![\w]){re.escape(atom)}(?!\w| [<>=])", reduced.text)]


def test_guard_with_all_atoms_known_is_a_fallback_or_unchanged() -> None:
    guard = Guard("doom and (not doom_asks or pauses_left == 0 or spent)")
    assert simplify_guard(guard, {"doom_asks": False}) == Guard("doom")
    assert simplify_guard(guard, {"doom": True, "doom_asks": False}) == Guard("")
    assert simplify_guard(guard, {"doom": False}) == guard
    assert simplify_guard(guard, {"doom_asks": True, "spent": False}) == Guard("doom and pauses_left == 0")
    assert simplify_guard(guard, {}) == guard
    guard_of_both = Guard("doom or final")
    assert simplify_guard(guard_of_both, {"doom": False, "final": False}) == guard_of_both
