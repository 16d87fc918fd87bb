"""Characters that nobody sees, or that make the text around them look otherwise than it is written.

A terminal may obey them, a page shows nothing for them, and some turn the order of the others around: a person who
allows a call would then allow another one than is read.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

#: Characters that are drawn as nothing although their category says letter, mark or symbol: fillers, blanks of braille,
#: of hieroglyphs and of music, a joiner of marks, and what stands for an object that is not there. All that Unicode 17
#: has, by their numbers: a Python that knows an older one takes some of them for unassigned.
_FILLERS: Final = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufffc\U00013441\U00013442\U00016fe4\U0001d159"
#: What may be such a character. Most of any script is letters, which are found without a look at each of them.
_DOUBTFUL: Final = re.compile(rf"[^\w\x20-\x7e\t\n]|[{_FILLERS}]")
#: What joins two characters of an emoji or of a word in Persian or Hindi, or keeps them apart.
_JOINERS: Final = frozenset("\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}")
#: What says which form of the character before it is meant. A row of them shows nothing, and can hold any message.
_SELECTORS: Final = frozenset(
    map(chr, (*range(0x180B, 0x180E), 0x180F, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
)
#: A letter may carry this many marks. A pile of more covers the lines above and below it.
_MOST_MARKS: Final = 5
#: Escapes that have a letter of their own. The others are numbers.
_NAMED: Final = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}
#: What `exact` may have to write otherwise: a backslash, a run of spaces, and all that is no letter or digit. A brace
#: is one only behind an escape, where it would read as a count.
_UNPLAIN: Final = re.compile(rf"\\|[ ]+|\{{|([^\w\x20-\x7e]|[{_FILLERS}])\1*")
#: Spaces at the beginning of a line that are shown as they are: indentation.
_INDENTATION: Final = 24
#: So many equal escapes in a row are one, with a count.
_RUN_LENGTH: Final = 4


def replaced(text: str, sign: Callable[[str], str]) -> str:
    """The text with a `sign` for each character that nobody sees; line feeds, tabs and spaces of any width stay.

    What Unicode has not assigned counts as unseen, and so does half a surrogate pair. Joiners and selectors stay where
    they do something: one joiner behind what is not ASCII, one selector behind any other character.
    """

    def shown(found: re.Match[str]) -> str:
        place, character = found.start(), found[0]
        seen = _is_seen(character, text[place - 1 : place]) and not _is_piled_up(text, place)
        return character if seen else sign(character)

    return _DOUBTFUL.sub(shown, text)


def escaped(text: str) -> str:
    r"""The text as a terminal may be sent it: an escape (`\x1b`, `\u202e`) for each character that nobody sees.

    Line feeds and tabs stay. It is for reading: a backslash of the text's own stays one. See `exact`.
    """
    return text if text.isascii() and text.isprintable() else replaced(text.replace("\r\n", "\n"), escape)


def escape(character: str) -> str:
    r"""The character as an escape of Python: `\n`, `\x1b`, `\u200b`, `\U000e0041`."""
    code = ord(character)
    if character in _NAMED:
        return _NAMED[character]
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004


def exact(text: str) -> str:
    r"""The text in one line, written so that no other text is written the same: for what a person approves.

    A backslash is two. Line breaks, tabs, what nobody sees, joiners, selectors and spaces other than U+0020 are
    escapes. So are two spaces or more in a row, and spaces at the end; up to 24 at the beginning are indentation and
    stay. Four equal escapes or more are one with a count: `\x20{600}`.
    """
    last = -1  # where the last escape ended

    def written(found: re.Match[str]) -> str:
        nonlocal last
        run = found[0]
        if run == "\\":
            return r"\\"
        kept = _kept(text, found.start(), run, behind_escape=found.start() == last)
        if kept == len(run):
            return run
        last = found.end()
        sign, times = escape(run[0]), len(run) - kept
        return run[:kept] + (f"{sign}{{{times}}}" if times >= _RUN_LENGTH else sign * times)

    return _UNPLAIN.sub(written, text)


def _kept(text: str, start: int, run: str, *, behind_escape: bool) -> int:
    """How many of equal characters that stand at `start` are shown as they are."""
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
    if not before or behind_escape:  # it would be drawn over what is ours
        return 0
    marks = len(before) - len(before.rstrip("".join(filter(_is_mark, before))))
    return min(len(run), _MOST_MARKS - marks)


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) in ("Mn", "Me")


def _is_piled_up(text: str, place: int) -> bool:
    """Whether the character is a mark with as many marks before it as a letter may carry."""
    return place >= _MOST_MARKS and all(map(_is_mark, text[place - _MOST_MARKS : place + 1]))


def _is_seen(character: str, before: str) -> bool:
    """Whether one sees the character. `before` is the one before it; empty at the beginning."""
    if character in _JOINERS:
        return not before.isascii() and before not in _JOINERS
    if character in _SELECTORS:
        return before != "" and before not in _JOINERS | _SELECTORS
    if character in _FILLERS:
        return False
    return character.isprintable() or unicodedata.category(character) == "Zs"
