"""Text that arrives in pieces, with a bound on how much of it there may be. No I/O."""

import io
from typing import Final

from turnwright_states.limits import MAX_CALLS_PER_REPLY

#: The longest reply, in characters, of text, reasoning, calls and details together: far more than any model writes.
MAX_REPLY: Final = 8 * 1024 * 1024
#: The longest arguments of one call, in characters: some four times what the longest replies of today's models have.
MAX_ARGUMENTS: Final = 2 * 1024 * 1024
#: The longest response, in bytes as they are decoded. The names around each piece take far more than the piece: 128,000
#: tokens come in 40 MB, and in less than this bound also where each has its probabilities beside it.
MAX_BYTES: Final = 256 * 1024 * 1024
#: The most chunks of one response: some eight times as many as the tokens of the longest replies.
MAX_CHUNKS: Final = 1_000_000
#: The most calls of one reply: a longer one is cut off here, before the machine would refuse it.
MAX_CALLS: Final = MAX_CALLS_PER_REPLY


class TooLargeError(ValueError):
    """A reply is larger than we take. The message says which part of it, and the bound."""


class Meter:
    """Counts what a reply has made us keep, so that no server can fill the memory.

    `most` is in characters. What costs memory without holding text (a call, a choice) is counted as a few.
    """

    def __init__(self, most: int = MAX_REPLY) -> None:
        self._most = most
        self._kept = 0
        #: How much the reply itself has grown. Chunks without a part of it leave this number unchanged.
        self.progress = 0
        #: The largest count of tokens that was told so far, by its name.
        self._largest: dict[str, int] = {}

    def take(self, size: int) -> None:
        """Count `size` more characters of the reply. Raises `TooLargeError` once the bound is passed."""
        self.progress += size
        self.reserve(size)

    def reserve(self, size: int) -> None:
        """Count memory that holds no part of the reply yet. Raises `TooLargeError` once the bound is passed."""
        self._kept += size
        if self._kept > self._most:
            raise TooLargeError(f"the reply is longer than {self._most:,} characters")

    def grow(self, counts: dict[str, int], name: str, count: int) -> None:
        """Set a count of tokens in `counts`. Only one that is larger than all before is progress: servers repeat them.

        `name` is one count of the reply, whatever `counts` it stands in.
        """
        if count > self._largest.get(name, -1):
            self._largest[name] = count
            self.progress += 1
        counts[name] = count


class Pieces:
    """One text of a reply, as its pieces come in.

    JSON can carry half a surrogate pair, and some servers cut an emoji there. The first half waits for the second;
    a half that stays alone becomes U+FFFD, since nothing that holds it can be stored or printed.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        # Not a list of strings: a reply in pieces of one character would cost sixty bytes for each.
        self._text = io.StringIO(newline="")
        self._half = ""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, piece: str) -> str:
        """Append `piece`; return what of the text became readable. Raises `TooLargeError`."""
        if not piece:
            return ""
        self._meter.take(len(piece))
        self._length += len(piece)
        piece = self._half + piece
        self._half = ""
        if "\ud800" <= piece[-1] <= "\udbff":
            self._half = piece[-1]
            piece = piece[:-1]
        piece = mend(piece)
        self._text.write(piece)
        return piece

    def add_mended(self, piece: str) -> str:
        """Append a piece that holds no half of a pair, and is not empty. As `add`, without a look at each character."""
        if self._half:
            return self.add(piece)
        size = len(piece)
        self._meter.take(size)
        self._length += size
        self._text.write(piece)
        return piece

    def __str__(self) -> str:
        return self._text.getvalue() + ("\ufffd" if self._half else "")


def mend(text: str) -> str:
    """Join the surrogate pairs in `text`, and replace halves that stand alone by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
