"""Results are equal for the doom-loop detector if they differ in noise alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_states.result_key import result_key, without_noise

SAME = [
    ("done at 2026-11-27T12:00:01.250Z", "done at 2026-11-27T12:07:59Z"),
    ("[2026-11-27 12:00:01,250] ok", "[2026-11-27 13:00:01,999] ok"),
    ("12:00:01 ready", "23:59:59.5 ready"),
    ("-rw-r--r-- 1 me 7 Nov 27 12:25 a", "-rw-r--r-- 1 me 7 Nov  3 09:01 a"),
    ("3 passed in 0.25s", "3 passed in 1.5s"),
    ("took 12 ms", "took 7 ms"),
    ("real\t0m0.012s", "real\t1m3.5s"),
    ("after 3.4 seconds", "after 5 seconds"),
    ("id 566d3680-a5d0-11ea-8a15-5596f77b6c20", "id 6291ce1b-96cf-4b0f-9648-7f993fc15611"),
    ("container d2310f647359", "container b6819179d266"),
    ("<a object at 0x7eab4a29a8b0>", "<a object at 0x766ed2a9da60>"),
    ("wrote /tmp/pytest-1/a.txt.", "wrote /tmp/pytest-22/a.txt."),
    ("wrote /var/folders/x1/T/a", "wrote /var/folders/x2/T/b"),
    ("in tmp_9x2k3ab", "in tmpq1w2e3r4"),
    ("./proc/1518/task/1518/fdinfo/5: gone", "./proc/9260/task/9260/fdinfo/5: gone"),
    ("[sub-agent: finished; turn a1b2:call00001]", "[sub-agent: finished; turn a1b2:call00002]"),
    ("turn a1b2:call00001:call00007", "turn a1b2:call00003:call00002"),
]
DIFFERENT = [
    ("page 1", "page 2"),
    ("12 of 40", "13 of 40"),
    ("balance: 123456789012", "balance: 123456789013"),
    ("flight on 2026-11-27", "flight on 2026-11-28"),
    ("version 1.2.3", "version 1.2.4"),
    ("commit d2310f6", "commit b681917"),
    ("/process/1518", "/process/9260"),
    ("deadbeefdeadbeef", "feedfacefeedface"),
    ("the temperature is 12.5", "the temperature is 12.6"),
    ("line 10 sorted", "line 11 sorted"),
    ("a", ""),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_noise_does_not_count(one: str, other: str) -> None:
    assert without_noise(one) == without_noise(other)
    assert result_key(one) == result_key(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_everything_else_counts(one: str, other: str) -> None:
    assert result_key(one) != result_key(other)


@given(st.text())
def test_a_key_is_twelve_digits_for_every_text_and_noise_is_removed_once(text: str) -> None:
    assert len(bytes.fromhex(result_key(text))) == 6
    assert without_noise(without_noise(text)) == without_noise(text)


def test_a_text_with_half_a_surrogate_pair_has_a_key() -> None:
    assert result_key("\ud83d") == result_key("?")


def test_a_long_hostile_text_takes_linear_time() -> None:
    """Each of these would take hours if a pattern looked at the same characters again and again."""
    for text in (
        "a" * 200_000,
        "1" * 200_000,
        "/private/tmp" * 40_000,
        "0x" * 100_000,
        "Nov " * 50_000,
        "1m" * 100_000,
    ):
        assert result_key(text)
