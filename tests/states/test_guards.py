"""Guards as data: the function that runs and the words that a reviewer reads have one meaning."""

import operator
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Final

import pytest

from turnwright_proof.texts import describe_guard
from turnwright_states import Limits
from turnwright_states.chart import ROWS
from turnwright_states.counters import NAMES, Counters
from turnwright_states.guards import SHORTHANDS, WORDS, Guard, GuardError

Values = Mapping[str, int | bool]

FLAGS: Final = frozenset(name for name in NAMES if isinstance(getattr(Counters(Limits()), name), bool))
COMPARE: Final[dict[str, Callable[[int, int], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
GUARDS: Final = sorted({row.guard.text for row in ROWS})
#: Shapes that the chart does not have, but might.
OTHERS: Final = (
    "not (doom and spent)",
    "not (doom or not spent)",
    "not not doom",
    "(doom or go_on) and (filtered or truncated)",
    "doom and go_on or filtered and truncated",
    "not steps >= allowance and not (no_calls or doom and retries_left > 0)",
)


def atom_holds(atom: str, values: Values) -> bool:
    """One atom of the guards' language, read without any of the code under test."""
    if atom in SHORTHANDS:
        joined, word = (all, " and ") if " and " in SHORTHANDS[atom] else (any, " or ")
        return joined(atom_holds(part, values) for part in SHORTHANDS[atom].split(word))
    name, *rest = atom.split()
    if not rest:
        return bool(values[name])
    sign, right = rest
    return COMPARE[sign](values[name], int(right) if right.isdigit() else values[right])


class Reader:
    """Reads a printed expression: terms joined by "and" or by "or", and parentheses."""

    def __init__(self, tokens: list[str], holds: Callable[[str], bool]) -> None:
        self.tokens, self.holds = tokens, holds

    def expression(self) -> bool:
        values, joint = [self.term()], ""
        while self.tokens and self.tokens[0] != ")":
            word = self.tokens.pop(0)
            # One joint a level: a reader never has to know which of the two binds closer.
            assert word in ("and", "or")
            assert joint in ("", word)
            joint = word
            values.append(self.term())
        return any(values) if joint == "or" else all(values)

    def term(self) -> bool:
        match self.tokens.pop(0):
            case "(":
                value = self.expression()
                assert self.tokens.pop(0) == ")"
                return value
            case atom:
                return self.holds(atom)


PHRASES: Final = {
    phrase: (atom, means) for atom, pair in WORDS.items() for phrase, means in zip(pair, (True, False), strict=True)
}


def words_hold(words: str, values: Values) -> bool:
    """Whether the words are true, reading each phrase back with `WORDS`."""
    if not words:
        return True

    def holds(phrase: str) -> bool:
        atom, means = PHRASES[phrase]
        return atom_holds(atom, values) is means

    tokens = [token.strip() for token in re.split(r"(\(|\)| and | or )", words) if token.strip()]
    return Reader(tokens, holds).expression()


def names_in(text: str) -> list[str]:
    for short, full in reversed(SHORTHANDS.items()):  # one may use those before it
        text = re.sub(rf"\b{short}\b", full, text)
    return [name for name in NAMES if re.search(rf"\b{name}\b", text)]


def configurations(text: str) -> Iterator[dict[str, int | bool]]:
    """Every small value of every name in the guard: numbers 0 to 2, flags off and on."""
    names = names_in(text)
    for values in product(*((False, True) if name in FLAGS else (0, 1, 2) for name in names)):
        yield dict(zip(names, values, strict=True))


@pytest.mark.parametrize("text", [*GUARDS, *OTHERS])
def test_guard_agrees_with_the_words_on_all_small_configurations(text: str) -> None:
    guard, results = Guard(text), set()
    for values in configurations(text):
        counters = Counters(Limits())
        for name, value in values.items():
            setattr(counters, name, value)
        runs = guard.holds(counters)
        # The lean event compares with `is`: a guard must give a bool, not something that is as good as one.
        assert isinstance(runs, bool)
        assert runs == words_hold(describe_guard(guard), values), values
        results.add(runs)
    assert results == ({True, False} if text else {True})


def test_guard_agrees_with_the_python_expression() -> None:
    """Against a reading of our own, for the guard that decides whether a person is asked."""
    text = "doom and (not doom_asks or pauses_left == 0 or spent)"
    assert text in GUARDS
    for values in configurations(text):
        counters = Counters(Limits())
        for name, value in values.items():
            setattr(counters, name, value)
        spent = (values["budgeted"] and values["calls"] >= values["budget"]) or any(
            values[f"{unit}_spent"] for unit in ("tokens", "cost", "time")
        )
        spent = spent or (values["idle_limit"] > 0 and values["idle"] >= values["idle_limit"])
        expected = values["doom"] and (not values["doom_asks"] or values["pauses_left"] == 0 or spent)
        assert Guard(text).holds(counters) is bool(expected)


def test_fallback_guard_always_holds_and_has_no_words() -> None:
    fallback = Guard("")
    assert fallback.holds(Counters(Limits()))
    assert (describe_guard(fallback), fallback.expanded) == ("", "True")


def test_different_guards_have_different_words() -> None:
    """Each phrase means one atom, true or false, and contains no word that joins phrases."""
    phrases = [phrase for pair in WORDS.values() for phrase in pair]
    assert len(phrases) == len(set(phrases))
    assert not [phrase for phrase in phrases if re.search(r" and | or |[()]", phrase)]


def test_every_atom_with_words_is_used_by_the_chart() -> None:
    text = " ".join(GUARDS) + " " + " ".join(SHORTHANDS.values())
    assert [atom for atom in WORDS if atom not in text] == []


@pytest.mark.parametrize(
    ("text", "blamed"),
    [
        ("stepz >= allowance", "stepz >= allowance"),
        ("steps >= limit", "steps >= limit"),
        ("doom_loop", "doom_loop"),
        ("doom and nobody", "nobody"),
        ("spent >= budget", "spent >= budget"),
    ],
)
def test_unknown_name_is_refused(text: str, blamed: str) -> None:
    with pytest.raises(GuardError) as caught:
        Guard(text)
    assert f"guard {text!r}: {blamed!r}" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "len(steps) > 0",
        "steps.real",
        "__import__('os')",
        "lambda: True",
        "doom if go_on else filtered",
        "steps + 1 >= allowance",
        "0 <= steps <= allowance",
        "steps in allowance",
        "doom is True",
        "steps[0]",
        "(doom := go_on)",
        "True",
        "1",
        "'doom'",
        "-steps > 0",
        "[doom]",
        "0 < steps",
        "not 1",
        "f'{doom}'",
    ],
)
def test_foreign_syntax_is_refused(text: str) -> None:
    with pytest.raises(GuardError, match="language"):
        Guard(text)


@pytest.mark.parametrize(
    "text", ["doom and", "doom go_on", "and", "(doom", "doom; go_on", "doom = go_on", "return", " "]
)
def test_invalid_expression_is_refused(text: str) -> None:
    with pytest.raises(GuardError) as caught:
        Guard(text)
    assert str(caught.value).startswith(f"guard {text!r}: ")
    assert not str(caught.value).endswith(": ")


@pytest.mark.parametrize("text", ["not len(steps)", "doom and not (go_on or steps)", "not steps"])
def test_guard_error_contains_the_whole_guard_at_any_depth(text: str) -> None:
    with pytest.raises(GuardError, match=re.escape(f"guard {text!r}: ")):
        Guard(text)


@pytest.mark.parametrize(
    "text", ["steps", "steps >= 3", "allowance == steps", "calls == 0", "nudges_left >= 1", "steps < allowance"]
)
def test_atom_without_words_is_refused(text: str) -> None:
    """It could be run, but not drawn."""
    with pytest.raises(GuardError, match=re.escape(text)):
        Guard(text)


def test_guard_repr_contains_the_text() -> None:
    assert repr(Guard("doom and go_on")) == "Guard('doom and go_on')"


def test_guards_with_equal_text_are_equal_even_after_pickling() -> None:
    """Two of one text are one, also after a journey to another process."""
    guard = Guard("doom and go_on")
    travelled = pickle.loads(pickle.dumps(guard))  # noqa: S301 (our own bytes)
    assert guard == travelled == Guard("doom and go_on")
    assert len({guard, travelled}) == 1
    assert guard not in (Guard("go_on and doom"), "doom and go_on")
    assert travelled.holds(Counters(Limits())) is False


def test_guard_has_access_only_to_the_counters() -> None:
    """No builtins; and where it shows in a traceback, it says what it is."""
    assert Guard("doom").holds.__globals__ == {"__builtins__": {}}
    assert Guard("doom").holds.__code__.co_filename == "<guard>"


def test_guards_are_equal_exactly_if_the_texts_are_equal() -> None:
    assert Guard("doom") == Guard("doom") != Guard("go_on")
    assert len({Guard("doom"), Guard("doom"), Guard("go_on")}) == 2
    assert hash(Guard("doom")) == hash("doom")
    assert Guard("doom") != "doom"
