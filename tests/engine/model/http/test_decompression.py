import gzip
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.model.http.decompression import UnknownEncodingError, Unpacker, UnpackError


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "X-GZip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": raw_deflate,
    "identity, gzip": gzip.compress,
    "": bytes,
    "identity": bytes,
    "UTF-8": bytes,
    "none": bytes,
}


def unpacked(encoding: str, *pieces: bytes) -> bytes:
    unpacker = Unpacker(encoding)
    data = b"".join(part for piece in pieces for part in unpacker.feed(piece))
    unpacker.close()
    return data


@given(encoding=st.sampled_from(sorted(PACKERS)), data=st.binary(max_size=500), size=st.integers(1, 100))
def test_compressed_data_is_unpacked_at_any_cuts(encoding: str, data: bytes, size: int) -> None:
    packed = PACKERS[encoding](data)
    assert unpacked(encoding, *(packed[at : at + size] for at in range(0, len(packed), size))) == data


@given(parts=st.lists(st.binary(max_size=50), max_size=5), size=st.integers(1, 100))
def test_each_member_of_gzip_is_unpacked_at_any_cuts(parts: list[bytes], size: int) -> None:
    """RFC 1952, section 2.2. Servers that compress each event alone send one member for each."""
    packed = b"".join(map(gzip.compress, parts))
    pieces = [packed[at : at + size] for at in range(0, len(packed), size)]
    assert unpacked("gzip", *pieces) == b"".join(parts)
    assert unpacked("gzip", *pieces, *([b"\x1f", b"rubbish"] if parts else [])) == b"".join(parts)


@pytest.mark.parametrize("length", [3, 10, 25])
def test_truncated_member_behind_another_is_an_error(length: int) -> None:
    packed = gzip.compress(b"first")
    with pytest.raises(UnpackError, match="too early"):
        unpacked("gzip", packed + gzip.compress(bytes(range(100)))[:length])


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_large_output_is_unpacked_in_small_pieces(encoding: str) -> None:
    packed = PACKERS[encoding](bytes(20_000_000))
    sizes = [len(piece) for piece in Unpacker(encoding).feed(packed)]
    assert (sum(sizes), max(sizes)) == (20_000_000, 64 * 1024)


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "deflate, gzip", "rot13", "gzip;q=1"])
def test_other_encodings_and_several_are_refused_by_name(encoding: str) -> None:
    with pytest.raises(UnknownEncodingError, match=encoding):
        Unpacker(encoding)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("length", [1, 5, 15])
def test_truncated_compressed_body_is_an_error(encoding: str, length: int) -> None:
    with pytest.raises(UnpackError, match="too early"):
        unpacked(encoding, PACKERS[encoding](bytes(range(100)))[:length])


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_damaged_compressed_body_is_reported(encoding: str) -> None:
    packed = bytearray(PACKERS[encoding](b"0123456789" * 9))
    packed[-3] ^= 255
    for broken in (bytes(packed), b"data: nothing of the kind\n\n"):
        with pytest.raises(UnpackError, match="damaged"):
            unpacked(encoding, broken)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_empty_body_is_fine_and_trailing_data_is_dropped(encoding: str) -> None:
    assert unpacked(encoding) == b""
    assert unpacked(encoding, PACKERS[encoding](b"a") + b"rest", b"more") == b"a"
