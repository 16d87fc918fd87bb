"""A stream of each shape that providers are known to send, and what it says."""

import json

import pytest
from tests.model.chunks import decode
from tests.model.provider_streams import STREAMS

from turnwright.model.protocol import ModelResponse

each_provider = pytest.mark.parametrize(
    ("data", "expected"), [pytest.param(*STREAMS[name], id=name) for name in STREAMS]
)


@each_provider
def test_the_reply_is_what_the_provider_said(data: bytes, expected: ModelResponse) -> None:
    stream = decode(data)
    assert stream.reply() == expected
    assert stream.complete


@each_provider
def test_it_is_the_same_byte_by_byte_and_with_other_line_ends(data: bytes, expected: ModelResponse) -> None:
    assert decode(bytes([byte]) for byte in data).reply() == expected
    if not data.startswith(b"{"):
        plain = data.replace(b"\r\n", b"\n")
        for end in (b"\r\n", b"\r"):
            assert decode(plain.replace(b"\n", end)).reply() == expected
        assert decode(b"\xef\xbb\xbf" + plain.replace(b"data: ", b"data:")).reply() == expected


@each_provider
def test_it_is_the_same_as_bare_json_lines(data: bytes, expected: ModelResponse) -> None:
    """Some servers forget the format, and write the chunks a line each."""
    lines = [line.removeprefix(b"data: ") for line in data.splitlines() if line and not line.startswith(b":")]
    assert all(line == b"[DONE]" or json.loads(line) for line in lines)
    assert decode(b"\n".join(lines)).reply() == expected
