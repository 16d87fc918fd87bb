"""Which characters count as unseen: on a terminal and on a page alike."""

import pytest

from turnwright.cli.view import one_line, safe
from turnwright.inspector.render import visible
from turnwright.unseen import replaced


def marked(text: str) -> str:
    return replaced(text, lambda _: "?")


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
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert marked(text) == visible(text) == safe(text) == text


@pytest.mark.parametrize("code", [0x00, 0x1B, 0x7F, 0x85, 0xAD, 0x061C, 0x180E, 0x200B, 0x200E, 0x2028, 0x2029, 0x202E])
def test_what_nobody_sees_is_replaced(code: int) -> None:
    assert marked(f"a{chr(code)}b") == "a?b"


@pytest.mark.parametrize("code", [0x2060, 0x2066, 0x3164, 0xD800, 0xE000, 0xFEFF, 0xFFFE, 0xE0041, 0xE007F, 0xE0FFF])
def test_what_nobody_sees_is_replaced_behind_any_script(code: int) -> None:
    assert marked(f"漢{chr(code)}字") == "漢?字"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\u200d", "?"),
        ("pass\u200dword", "pass?word"),
        ("漢\u200d\u200c\u200d字", "漢\u200d??字"),
        ("\ufe0f", "?"),
        ("x\U000e0100\U000e0148\U000e0155", "x\U000e0100??"),
        ("漢\u200d\ufe0f\u200d\ufe0f", "漢\u200d?\u200d?"),
    ],
)
def test_joiners_and_selectors_that_do_nothing_are_replaced(text: str, shown: str) -> None:
    assert marked(text) == shown


def test_each_place_has_a_sign_of_its_own() -> None:
    text = "allow\u200b rm\r\nthis"
    assert visible(text) == "allow[U+200B] rm\r\nthis"
    assert safe(text) == "allow\N{REPLACEMENT CHARACTER} rm\nthis"
    assert one_line(text) == "allow rm this"
