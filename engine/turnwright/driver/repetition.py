"""Notices a stream that repeats its own end again and again. No I/O."""

from typing import Final

from turnwright.model.protocol import Delta, ModelError, ToolCallDelta
from turnwright_states import Cause

#: The length of the end that is looked at, in characters: 4,000 tokens and more. Rows of dashes, empty tables and
#: matrices of zeros are shorter.
REPEATED: Final = 16 * 1024
#: The longest text whose repetitions count, in characters: a paragraph. So the end holds it eight times or more.
LONGEST_PERIOD: Final = 2 * 1024
#: The characters between two looks. A look costs about as much as a copy of the end.
_STRIDE: Final = 2 * 1024


class RepetitionGuard:
    """Looks at the end of a text, a reasoning, or the arguments of a call while it streams in.

    The verdict does not depend on the sizes of the pieces.
    """

    __slots__ = ("_ahead", "_part", "_pieces")

    def __init__(self) -> None:
        #: The part of the reply that streams in, and its end.
        self._part: object = None
        self._pieces: list[str] = []
        #: The characters that are missing before the next look.
        self._ahead = REPEATED

    def add(self, delta: Delta) -> bool:
        """Add a piece. Return whether the end is one text again and again."""
        part: object = type(delta)
        if isinstance(delta, ToolCallDelta):
            part, piece = delta.call_index, delta.arguments_delta
        else:
            piece = delta.text
        if part != self._part:
            self._part, self._pieces, self._ahead = part, [], REPEATED
        self._pieces.append(piece)
        self._ahead -= len(piece)
        return self._ahead <= 0 and self._look()

    def _look(self) -> bool:
        text = "".join(self._pieces)
        end = len(text) + self._ahead
        while end <= len(text):
            if repeats(text[end - REPEATED : end]):
                return True
            end += _STRIDE
        self._pieces = [text[end - REPEATED :]]
        self._ahead = end - len(text)
        return False


def repeats(text: str) -> bool:
    """Return whether a text of at least twice the longest period is one shorter text again and again.

    The last repetition may be cut off. If the text has a short period, its beginning comes again after it, and not
    before, because two shorter distances would have a common divisor that is a period too.
    """
    period = text.find(text[:LONGEST_PERIOD], 1, 2 * LONGEST_PERIOD)
    return period > 0 and text.startswith(text[period:])


def repeats_itself(model: str) -> ModelError:
    """Make the error of a reply that repeats its own end."""
    why = (
        f"the reply repeated one text for {REPEATED:,} characters, so it was stopped; "
        "to allow such a reply, set `stop_repetition` to false"
    )
    return ModelError(f"model {model}: {why}", cause=Cause.REPETITION)
