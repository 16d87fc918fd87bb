"""The characters that count as invisible, on a terminal and on a page."""

import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright._base.words import cut_line
from turnwright.privacy.invisible import escape_invisible, exact, replace_invisible
from turnwright_inspector.http.render import visible


def marked(text: str) -> str:
    return replace_invisible(text, lambda _: "?")


@pytest.mark.parametrize(
    "text",
    [
        "Plain text, with\ttabs and\nline feeds.",
        "\N{NO-BREAK SPACE}\N{EM SPACE}\N{IDEOGRAPHIC SPACE}",
        "ход 漢字 한국어 ไทย हिन्दी שלום",
        "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}",
        "\N{HEAVY BLACK HEART}\N{VARIATION SELECTOR-16}\N{ZERO WIDTH JOINER}\N{FIRE}",
        "1\N{VARIATION SELECTOR-16}\N{COMBINING ENCLOSING KEYCAP}",
        "می\N{ZERO WIDTH NON-JOINER}خواهم",
        "क्\N{ZERO WIDTH JOINER}ष",
    ],
)
def test_ordinary_text_stays_unchanged(text: str) -> None:
    assert marked(text) == visible(text) == escape_invisible(text) == text


@pytest.mark.parametrize("code", [0x00, 0x1B, 0x7F, 0x85, 0xAD, 0x061C, 0x180E, 0x200B, 0x200E, 0x2028, 0x2029, 0x202E])
def test_invisible_characters_are_replaced(code: int) -> None:
    assert marked(f"a{chr(code)}b") == "a?b"


@pytest.mark.parametrize("code", [0x2060, 0x2066, 0x3164, 0xD800, 0xE000, 0xFEFF, 0xFFFE, 0xE0041, 0xE007F, 0xE0FFF])
def test_invisible_characters_behind_any_script_are_replaced(code: int) -> None:
    assert marked(f"漢{chr(code)}字") == "漢?字"


@pytest.mark.parametrize(
    "code",
    [0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0xFFFC, 0x13441, 0x13442, 0x16FE4, 0x1D159],
)
def test_undrawn_letters_and_marks_are_replaced_by_every_python(code: int) -> None:
    """Some are assigned since Unicode 15: whether Python knows them makes no difference."""
    blank = chr(code)
    assert marked(f"a{blank}b") == "a?b"
    assert marked(f"漢{blank * 3}字") == "漢???字"
    sign = f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
    assert exact(f"ls{blank}x") == f"ls{sign}x"
    assert exact(f"ls{blank * 600}; evil") == f"ls{sign}{{600}}; evil"


#: Characters whose name speaks of a blank or a gap, and that are drawn: pictures of one, and strokes that fill one.
DRAWN = {0x2400, 0x2420, 0x2422, 0x303F, 0xA8F9, 0x10AF6, 0x1144E, 0x11945, 0x11C44, 0x11C45, 0x11F48, 0x1DA7F, 0x1DA80}


def test_characters_named_blank_or_filler_are_replaced() -> None:
    """Of all characters that the Unicode of this Python has: a later one may bring others."""
    called = re.compile(r"\b(BLANK|FILLER|NULL|INVISIBLE|SPACE)\b")
    blank = [
        code
        for code in range(sys.maxunicode + 1)
        if called.search(unicodedata.name(chr(code), "")) and unicodedata.category(chr(code)) != "Zs"
    ]
    assert {0x2800, 0x3164} < set(blank)
    visible_codes = {code for code in blank if marked(f"a{chr(code)}b") != "a?b"}
    assert visible_codes <= DRAWN


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\u200d", "?"),
        ("pass\u200dword", "pass?word"),
        ("漢\u200d\u200c\u200d字", "漢\u200d??字"),
        ("\ufe0f", "?"),
        ("x\U000e0100\U000e0148\U000e0155", "x\U000e0100??"),
        ("漢\u200d\ufe0f\u200d\ufe0f", "漢\u200d?\u200d?"),
    ],
)
def test_joiners_and_selectors_without_effect_are_replaced(text: str, expected: str) -> None:
    assert marked(text) == expected


def test_each_place_has_a_sign_for_invisible_characters() -> None:
    text = "allow\u200b rm\r\nthis"
    assert visible(text) == "allow[U+200B] rm\r\nthis"
    assert escape_invisible(text) == "allow\\u200b rm\nthis"
    assert cut_line(text) == "allow\u200b rm this", "it is escaped where it leaves"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\N{BRAILLE PATTERN BLANK}", "?"),
        ("\u1820\u180b", "\u1820\u180b"),
        ("e" + "\u0301" * 7, "e" + "\u0301" * 5 + "??"),
    ],
)
def test_blanks_and_piles_of_marks_are_replaced(text: str, expected: str) -> None:
    assert marked(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rm -rf ./build", "rm -rf ./build"),
        ("ход 漢字 हिन्दी", "ход 漢字 हिन्दी"),
        ("    indented", "    indented"),
        (" " * 25 + "x", r"\x20{25}x"),
        ("safe" + " " * 600 + "; evil", r"safe\x20{600}; evil"),
        ("a  b ", r"a\x20\x20b\x20"),
        ("a\tb\nc\rd", r"a\tb\nc\rd"),
        ("\x1b[2J", r"\x1b[2J"),
        (r"\x1b[2J", r"\\x1b[2J"),
        ("\x1b{4}", r"\x1b\x7b4}"),
        ("\x1b" * 4, r"\x1b{4}"),
        ("{a}", "{a}"),
        ("a\u202eb\u2066\u061c", r"a\u202eb\u2066\u061c"),
        ("pass\u200bw\u00adord\ufeff", r"pass\u200bw\xadord\ufeff"),
        ("a\u00a0b\u3000c\u2003", r"a\xa0b\u3000c\u2003"),
        ("\U000e0041\U000e007f", r"\U000e0041\U000e007f"),
        ("x\ufe0f漢\u200d字\U000e0100", r"x\ufe0f漢\u200d字\U000e0100"),
        ("\u2800\u3164\u180b", r"\u2800\u3164\u180b"),
        ("\u0301e\u0301", "\\u0301e\u0301"),
        ("e" + "\u0301" * 9, "e" + "\u0301" * 5 + r"\u0301{4}"),
        ("a\ud800b\x85\u2028", r"a\ud800b\x85\u2028"),
    ],
)
def test_approved_text_has_an_exact_and_unambiguous_form(text: str, expected: str) -> None:
    assert exact(text) == expected


TEXTS = st.text(st.sampled_from('ab \\{}4x20u"\x1b\u200b\u0301\n\t'))


@given(TEXTS, TEXTS)
def test_different_texts_are_written_differently(first: str, second: str) -> None:
    assert (exact(first) == exact(second)) == (first == second)
    assert read_back(exact(first)) == first


def read_back(text: str) -> str:
    """Decode an exact text by its rule."""
    signs = re.compile(r"\\\\|(\\(?:[ntr]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}))(?:\{(\d+)\})?")

    def decoded(match: re.Match[str]) -> str:
        if match[1] is None:
            return "\\"
        return match[1].encode().decode("unicode_escape") * int(match[2] or 1)

    return signs.sub(decoded, text)
