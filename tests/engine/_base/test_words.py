"""Counts, amounts of money, and texts that are cut or brought on one line."""

from hypothesis import given
from hypothesis import strategies as st

from turnwright._base.words import (
    collapse_controls,
    collapse_whitespace,
    count,
    cut,
    cut_after,
    cut_line,
    cut_tight,
    cut_utf8,
    escape_unprintable,
    money,
)


def test_count_has_commas_and_a_plural() -> None:
    assert [count(number, "run") for number in (0, 1, 1200)] == ["0 runs", "1 run", "1,200 runs"]
    assert [count(number, "reply", "replies") for number in (1, 2)] == ["1 reply", "2 replies"]


def test_money_has_three_digits_and_no_exponent() -> None:
    assert [money(amount) for amount in (0, 0.0123, 1234.5)] == ["0.00", "0.012", "1,234.50"]


def test_cut_counts_the_ellipsis() -> None:
    assert [cut("abcd", most) for most in (4, 3)] == ["abcd", "ab…"]


def test_cut_tight_leaves_no_blank_before_the_ellipsis() -> None:
    assert [shorten("abc efg", 5) for shorten in (cut, cut_tight)] == ["abc …", "abc…"]
    assert cut_tight("abc ", 4) == "abc "


def test_cut_after_adds_the_mark_to_the_limit() -> None:
    assert [cut_after("abcd", most) for most in (4, 3)] == ["abcd", "abc…"]
    assert cut_after("abcd", 2, "...") == "ab..."


def test_cut_line_joins_the_lines_and_then_cuts() -> None:
    assert cut_line("one\n  two\tthree", 9) == "one two …"


def test_cut_utf8_leaves_out_half_a_character() -> None:
    assert cut_utf8("aé".encode(), 2) == "a"


def test_collapse_controls_replaces_control_characters() -> None:
    assert collapse_whitespace(" a\x1b\n\tb ") == "a\x1b b"
    assert collapse_controls(" a\x1b\n\tb\0") == "a b"


@given(st.text(st.characters()))
def test_escape_unprintable_returns_a_printable_line(text: str) -> None:
    assert escape_unprintable(text).isprintable()
    assert escape_unprintable("a\nb") == r"a\nb"
