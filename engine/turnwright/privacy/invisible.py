"""Invisible characters, and characters that change the appearance of the text around them.

A terminal may obey them, a page shows nothing for them, and some reverse the order of other characters. A person would
then approve another call than the one that is shown.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

#: Invisible characters whose category is letter, mark or symbol: fillers, blanks of braille, hieroglyphs and music, a
#: joiner of marks, and the object replacement character. All of Unicode 17, as escapes, because a Python with an older
#: Unicode has no names for some of them.
_FILLERS: Final = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufffc\U00013441\U00013442\U00016fe4\U0001d159"
#: Candidates for invisible characters. Letters, the most frequent characters, are excluded quickly.
_DOUBTFUL: Final = re.compile(rf"[^\w\x20-\x7e\t\n]|[{_FILLERS}]")
#: Join or separate two characters of an emoji, or of a word in Persian or Hindi.
_JOINERS: Final = frozenset("\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}")
#: Select the form of the character before them. A row of them is invisible and can encode any message.
_SELECTORS: Final = frozenset(
    map(chr, (*range(0x180B, 0x180E), 0x180F, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
)
#: The maximum number of marks on a letter. More would cover the lines above and below it.
_MOST_MARKS: Final = 5
#: Escapes with a letter. The others are numbers.
_NAMED: Final = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}
#: Candidates for an escape in `exact`: backslashes, runs of spaces, and characters that are not letters or digits. A
#: brace is escaped only after another escape, where it would look like a count.
_UNPLAIN: Final = re.compile(rf"\\|[ ]+|\{{|([^\w\x20-\x7e]|[{_FILLERS}])\1*")
#: The maximum number of leading spaces that are shown unchanged, as indentation.
_INDENTATION: Final = 24
#: From this number on, equal escapes in a row become one with a count.
_RUN_LENGTH: Final = 4


def replace_invisible(text: str, sign: Callable[[str], str]) -> str:
    """Replace each invisible character by its `sign`. Line feeds, tabs and spaces of any width stay.

    Unassigned characters and lone surrogates count as invisible. Joiners and selectors stay where they have an effect:
    one joiner after a character that is not ASCII, one selector after any other character.
    """

    def replace_match(match: re.Match[str]) -> str:
        place, character = match.start(), match[0]
        is_seen = _is_seen(character, text[place - 1 : place]) and not _is_piled_up(text, place)
        return character if is_seen else sign(character)

    return _DOUBTFUL.sub(replace_match, text)


def escape_invisible(text: str) -> str:
    r"""Return the text for a terminal, with an escape (`\x1b`, `\u202e`) for each invisible character.

    Line feeds and tabs stay. The result may be ambiguous, because backslashes of the text stay too. See `exact`.
    """
    return text if text.isascii() and text.isprintable() else replace_invisible(text.replace("\r\n", "\n"), escape)


def escape(character: str) -> str:
    r"""Return the character as a Python escape: `\n`, `\x1b`, `\u200b`, `\U000e0041`."""
    code = ord(character)
    if character in _NAMED:
        return _NAMED[character]
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004


def exact(text: str) -> str:
    r"""Return the text in one line, without ambiguity: different texts have different results. For approvals.

    A backslash is doubled. Line breaks, tabs, invisible characters, joiners, selectors and spaces other than U+0020
    become escapes. So do two or more spaces in a row, and spaces at the end; up to 24 leading spaces stay. Four or more
    equal escapes become one with a count: `\x20{600}`.
    """
    last = -1  # the end of the last escape

    def write_match(match: re.Match[str]) -> str:
        nonlocal last
        run = match[0]
        if run == "\\":
            return r"\\"
        kept_count = _count_kept(text, match.start(), run, behind_escape=match.start() == last)
        if kept_count == len(run):
            return run
        last = match.end()
        sign, times = escape(run[0]), len(run) - kept_count
        return run[:kept_count] + (f"{sign}{{{times}}}" if times >= _RUN_LENGTH else sign * times)

    return _UNPLAIN.sub(write_match, text)


def _count_kept(text: str, start: int, run: str, *, behind_escape: bool) -> int:
    """Return how many characters of a run of equal ones at `start` stay unchanged."""
    if run == "{":
        return int(not behind_escape)
    if run[0] == " ":
        inside = start + len(run) < len(text)
        return len(run) if inside and (len(run) == 1 or (start == 0 and len(run) <= _INDENTATION)) else 0
    if not run[0].isprintable() or run[0] in _SELECTORS or run[0] in _FILLERS:
        return 0
    if not _is_mark(run[0]):
        return len(run)
    before = text[max(start - _MOST_MARKS, 0) : start]
    if not before or behind_escape:  # it would be drawn over a character of ours
        return 0
    marks = len(before) - len(before.rstrip("".join(filter(_is_mark, before))))
    return min(len(run), _MOST_MARKS - marks)


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) in ("Mn", "Me")


def _is_piled_up(text: str, place: int) -> bool:
    """Whether the character is a mark after the maximum number of marks."""
    return place >= _MOST_MARKS and all(map(_is_mark, text[place - _MOST_MARKS : place + 1]))


def _is_seen(character: str, before: str) -> bool:
    """Whether the character is visible. `before` is the previous character, empty at the beginning."""
    if character in _JOINERS:
        return not before.isascii() and before not in _JOINERS
    if character in _SELECTORS:
        return before != "" and before not in _JOINERS | _SELECTORS
    if character in _FILLERS:
        return False
    return character.isprintable() or unicodedata.category(character) == "Zs"
