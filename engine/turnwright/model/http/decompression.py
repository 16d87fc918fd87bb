"""Decompress a response body piece by piece; at most one layer of compression. No I/O.

Requests ask for none, but some servers compress anyway. Each layer can expand a body a thousandfold and fill the
memory, so pieces have a limited size, and several layers are an error.
"""

import zlib
from collections.abc import Iterator
from typing import Final

# The largest decompressed piece, in bytes.
_PIECE: Final = 64 * 1024
_GZIP: Final = zlib.MAX_WBITS | 16
_HEAD: Final = 2
_GZIP_HEAD: Final = b"\x1f\x8b"
# Values of servers that do not compress: some name the charset, or `none`.
_NONE: Final = frozenset({"", "identity", "none", "binary", "utf-8", "utf8"})
_WINDOWS: Final = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}


class UnknownEncodingError(ValueError):
    """A body has an unknown encoding, or several; the text is the header's value."""


class UnpackError(ValueError):
    """The body does not match its encoding, or ended too early."""


class Unpacker:
    """Decompresses a body whose `Content-Encoding` header is `encoding`.

    Raises `UnknownEncodingError` for an encoding that is neither gzip nor deflate, and for several.
    Source: RFC 9110, section 8.4.
    """

    def __init__(self, encoding: str) -> None:
        names = [name for part in encoding.lower().split(",") if (name := part.strip()) not in _NONE]
        if len(names) > 1 or not _WINDOWS.keys() >= set(names):
            raise UnknownEncodingError(encoding)
        self._window = _WINDOWS[names[0]] if names else None
        #: Whether the body is compressed. If not, it is passed on unchanged.
        self.packed = self._window is not None
        self._inflate: zlib._Decompress | None = None
        self._head = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompress `data` in pieces of at most 64 KB. Uncompressed data is passed on unchanged.

        The result must be iterated to its end before the next call. Behind the end of gzip's data more of it may
        follow, as from servers that compress each event alone; other data there is dropped.
        Raises `UnpackError` if the data is damaged.
        """
        if self._window is None:
            if data:
                yield data
            return
        while data:
            if self._inflate is None or self._inflate.eof:
                data = self._head + data
                self._head = data[:_HEAD]
                if len(data) < _HEAD or (self._inflate and not (self._window == _GZIP and self._head == _GZIP_HEAD)):
                    return
                self._head = b""
                self._inflate = zlib.decompressobj(self._window if self._window == _GZIP else _window_of(data))
            while not self._inflate.eof:
                try:
                    piece = self._inflate.decompress(data, _PIECE)
                except zlib.error as error:
                    raise UnpackError(f"the compressed body is damaged ({error})") from error
                data = self._inflate.unconsumed_tail
                if piece:
                    yield piece
                if not (data or self._inflate.eof) and len(piece) < _PIECE:
                    return
            data = self._inflate.unused_data

    def close(self) -> None:
        """End the bytes. Raises `UnpackError` if that was too early."""
        if not self._inflate.eof if self._inflate else self._head:
            raise UnpackError("the compressed body ended too early")


def _window_of(head: bytes) -> int:
    """Return the window of zlib. Many servers send raw `deflate`, without its header of two bytes."""
    is_whole = head[0] & 15 == zlib.DEFLATED and int.from_bytes(head[:_HEAD], "big") % 31 == 0
    return zlib.MAX_WBITS if is_whole else -zlib.MAX_WBITS
