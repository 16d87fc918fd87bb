"""Titles of sessions: on one line, not too long, and safe to print and to store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.errors import ConfigError
from turnwright.store.rows import session_info
from turnwright.store.sessions import MOST_TITLE, SessionInfo, checked_title, default_title


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("Tidy utils.py", "Tidy utils.py"),
        ("\n \t\n  Tidy   utils.py\t\nand more", "Tidy utils.py"),
        ("\x1b[31mred\x00 \x9balert", "[31mred alert"),
        ("", ""),
        (" \n\x00", ""),
        ("word " * 20, ("word " * 11).strip() + "..."),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 57 + "..."),
        (f"a {'x' * 100}", f"a {'x' * 55}..."),
        (f"{'x' * 57} y z", f"{'x' * 57}..."),
        ("👩‍🔬 looks", "👩‍🔬 looks"),
    ],
)
def test_first_title_is_the_beginning_of_the_prompt(prompt: str, title: str) -> None:
    assert default_title(prompt) == title


@given(st.text())
def test_every_first_title_is_valid_or_empty(prompt: str) -> None:
    """It is at most 60 characters on one line, without control characters."""
    title = default_title(prompt)
    assert len(title) <= 60
    assert title.splitlines() == ([title] if title else [])
    if title:
        assert checked_title(title) == title


def test_title_is_stored_on_a_single_line() -> None:
    assert checked_title(" My\ntitle \x1b ") == "My title"
    assert checked_title("x" * MOST_TITLE) == "x" * MOST_TITLE


@pytest.mark.parametrize(
    ("title", "why"),
    [
        (" \n", "the title is blank"),
        ("x" * 201, "the title has 201 characters: a title has at most 200"),
        ("\ud800", "half a surrogate pair"),
        (None, "must be text, not NoneType"),
    ],
)
def test_invalid_title_is_refused(title: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        checked_title(title)


def test_damaged_row_is_listed_with_empty_values() -> None:
    assert session_info((b"x", "\udc80", -1, "x", None, 5, None)) == SessionInfo(
        "", "", 0, 0.0, 0.0, None, -(2**63 - 1)
    )
