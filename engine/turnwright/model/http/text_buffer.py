"""Text that arrives in pieces, with a limit on its length. No I/O."""

import io
from typing import Final

from turnwright_states.limits import MAX_CALLS_PER_REPLY

#: The longest reply, in characters of text, reasoning, calls and details: far more than any model writes.
MAX_REPLY: Final = 8 * 1024 * 1024
#: The longest arguments of one call, in characters: about four times the longest replies of today's models.
MAX_ARGUMENTS: Final = 2 * 1024 * 1024
#: The longest response, in decoded bytes. The JSON around each piece is far longer than the piece: 128,000 tokens take
#: 40 MB, and less than this limit even with their probabilities.
MAX_BYTES: Final = 256 * 1024 * 1024
#: The most chunks of one response: about eight times the tokens of the longest replies.
MAX_CHUNKS: Final = 1_000_000
#: The most calls of one reply. Decoding stops here, before the machine would reject the reply.
MAX_CALLS: Final = MAX_CALLS_PER_REPLY


class TooLargeError(ValueError):
    """A reply exceeds a limit. The message names the part and the limit."""


def check_arguments(length: int, most: int) -> None:
    """Raise `TooLargeError` for arguments of a call that are longer than `most` characters."""
    if length > most:
        raise TooLargeError(f"the arguments of a call are longer than {most:,} characters")


def check_calls(count: int) -> None:
    """Raise `TooLargeError` for more calls than a reply may ask for."""
    if count > MAX_CALLS:
        raise TooLargeError(f"the reply asks for more than {MAX_CALLS:,} calls")


class Meter:
    """A counter of a reply's memory, so that no server can fill it.

    `most` is in characters. An object without text (a call, a choice) counts as a few characters.
    """

    def __init__(self, most: int = MAX_REPLY) -> None:
        self._most = most
        self._reserved = 0
        #: The size of the reply. Chunks without a part of the reply leave it unchanged.
        self.progress = 0
        #: The largest count of tokens so far, by name.
        self._largest: dict[str, int] = {}

    def take(self, size: int) -> None:
        """Count `size` more characters of the reply. Raises `TooLargeError` once the bound is passed."""
        self.progress += size
        self.reserve(size)

    def reserve(self, size: int) -> None:
        """Count memory that holds no part of the reply yet. Raises `TooLargeError` once the bound is passed."""
        self._reserved += size
        if self._reserved > self._most:
            raise TooLargeError(f"the reply is longer than {self._most:,} characters")

    def grow(self, counts: dict[str, int], name: str, count: int) -> None:
        """Set a count of tokens in `counts`. Only a larger one is progress, because servers repeat counts.

        `name` identifies the count, whichever `counts` contains it.
        """
        if count > self._largest.get(name, -1):
            self._largest[name] = count
            self.progress += 1
        counts[name] = count


class Pieces:
    """One text of a reply that arrives in pieces.

    JSON can contain half a surrogate pair, and some servers cut an emoji there. The first half waits for the second; a
    single half becomes U+FFFD, because it can be neither stored nor printed.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        # Not a list of strings, which takes sixty bytes for each piece of one character.
        self._text = io.StringIO(newline="")
        self._half = ""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, piece: str) -> str:
        """Append `piece`. Returns the new readable part of the text. Raises `TooLargeError`."""
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
        """Append a piece that is not empty and has no half pair. Like `add`, but without checking each character."""
        if self._half:
            return self.add(piece)
        size = len(piece)
        self._meter.take(size)
        self._length += size
        self._text.write(piece)
        return piece

    def complete(self, whole: str) -> str:
        """Replace the text by its complete form. Returns the part of it behind the pieces; empty if those differ.

        An empty form changes nothing. Raises `TooLargeError`.
        """
        if not whole:
            return ""
        whole = mend(whole)
        text = self._text.getvalue()
        if not whole.startswith(text):
            self._text = io.StringIO(newline="")
            self._length = 0
        tail = whole[self._text.tell() :]
        self._half = ""
        self._meter.take(len(tail))
        self._length += len(tail)
        self._text.write(tail)
        return tail if whole.startswith(text) else ""

    def __str__(self) -> str:
        return self._text.getvalue() + ("\ufffd" if self._half else "")


def mend(text: str) -> str:
    """Join the surrogate pairs in `text`, and replace single halves by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
