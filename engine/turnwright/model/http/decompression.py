"""What was done to a body on its way, undone piece by piece: at most one layer of compression. No I/O.

We ask for none, but some servers compress whatever they are asked. A small body may unpack to one that fills the
memory, a thousandfold a layer, so what is unpacked is given in pieces of a bounded size, and layers are not stacked.
"""

import zlib
from collections.abc import Iterator
from typing import Final

# The largest piece that is unpacked at once, in bytes.
_PIECE: Final = 64 * 1024
_GZIP: Final = zlib.MAX_WBITS | 16
_ZLIB_HEAD: Final = 2
# What servers write who mean no encoding at all: some name the charset, or say that there is none.
_NONE: Final = frozenset({"", "identity", "none", "binary", "utf-8", "utf8"})
_WINDOWS: Final = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}


class UnknownEncodingError(ValueError):
    """A body is encoded in a way that nobody asked for, or in several; the text is the header's value."""


class UnpackError(ValueError):
    """What arrives is not what the header says that it is, or it ended too early."""


class Unpacker:
    """Unpacks a body whose `Content-Encoding` header is `encoding`.

    Raises `UnknownEncodingError` for an encoding that is neither gzip nor deflate, and for several.
    Source: RFC 9110, section 8.4.
    """

    def __init__(self, encoding: str) -> None:
        names = [name for each in encoding.lower().split(",") if (name := each.strip()) not in _NONE]
        if len(names) > 1 or not _WINDOWS.keys() >= set(names):
            raise UnknownEncodingError(encoding)
        self._window = _WINDOWS[names[0]] if names else None
        #: Whether there is anything to unpack. If not, what is fed is given as it is.
        self.packed = self._window is not None
        self._inflate: zlib._Decompress | None = None
        self._head = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Give what `data` unpacks to, in pieces of at most 64 KB, but for what is not packed: that is given as it is.

        The result must be iterated to its end before more is fed. What follows the end of the packed data is dropped.
        Raises `UnpackError` if the data is damaged.
        """
        if self._window is None:
            if data:
                yield data
            return
        if self._inflate is None:
            data = self._head = self._head + data
            if len(data) < _ZLIB_HEAD:
                return
            self._inflate = zlib.decompressobj(self._window if self._window == _GZIP else _window_of(data))
        while not self._inflate.eof:
            try:
                piece = self._inflate.decompress(data, _PIECE)
            except zlib.error as error:
                raise UnpackError(f"the compressed body is damaged ({error})") from error
            data = self._inflate.unconsumed_tail
            if piece:
                yield piece
            if not data and len(piece) < _PIECE:
                return

    def close(self) -> None:
        """Say that the bytes have ended. Raises `UnpackError` if that was too early."""
        if self._head and (self._inflate is None or not self._inflate.eof):
            raise UnpackError("the compressed body ended too early")


def _window_of(head: bytes) -> int:
    """Many servers mean by `deflate` what is inside of it, without the two bytes that begin it."""
    is_whole = head[0] & 15 == zlib.DEFLATED and int.from_bytes(head[:_ZLIB_HEAD], "big") % 31 == 0
    return zlib.MAX_WBITS if is_whole else -zlib.MAX_WBITS
