"""Blank texts, which count as no text."""

import unicodedata
from typing import Final

#: Space, line and paragraph separators, control and format characters.
_UNSEEN: Final = frozenset({"Zs", "Zl", "Zp", "Cc", "Cf"})
#: Invisible letters and marks, in addition to whitespace, control and format characters.
_INVISIBLE: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


def is_blank(text: str) -> bool:
    """Return whether a text has only whitespace, control characters and invisible ones, such as a zero-width space.

    A reply, a conclusion or a synthesis with a blank text counts as one without text (docs/rules.md#replies).
    """
    text = text.strip()
    if not text or "!" <= text[0] <= "~":
        return not text
    return all(one in _INVISIBLE or unicodedata.category(one) in _UNSEEN for one in text)
