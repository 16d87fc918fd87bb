"""Characters that nobody sees, or that make the text around them look otherwise than it is written.

A terminal may obey them, a page shows nothing for them, and some turn the order of the others around: a person who
allows a call would then allow another one than is read.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

#: Letters and marks by their category, which are drawn as nothing all the same: fillers, and a joiner of marks.
_FILLERS: Final = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"
#: What may be such a character. Most of any script is letters, which are found without a look at each of them.
_DOUBTFUL: Final = re.compile(rf"[^\w\x20-\x7e\t\n]|[{_FILLERS}]")
#: What joins two characters of an emoji or of a word in Persian or Hindi, or keeps them apart.
_JOINERS: Final = frozenset("\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}")
#: What says which form of the character before it is meant. A row of them shows nothing, and can hold any message.
_SELECTORS: Final = frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))


def replaced(text: str, sign: Callable[[str], str]) -> str:
    """The text with a `sign` for each character that nobody sees; line feeds, tabs and spaces of any width stay.

    What Unicode has not assigned counts as unseen, and so does half a surrogate pair. Joiners and selectors stay where
    they do something: one joiner behind what is not ASCII, one selector behind any other character.
    """

    def shown(found: re.Match[str]) -> str:
        place, character = found.start(), found[0]
        return character if _is_seen(character, text[place - 1 : place]) else sign(character)

    return _DOUBTFUL.sub(shown, text)


def _is_seen(character: str, before: str) -> bool:
    """Whether one sees the character. `before` is the one before it; empty at the beginning."""
    if character in _JOINERS:
        return not before.isascii() and before not in _JOINERS
    if character in _SELECTORS:
        return before != "" and before not in _JOINERS | _SELECTORS
    if character in _FILLERS:
        return False
    return character.isprintable() or unicodedata.category(character) == "Zs"
