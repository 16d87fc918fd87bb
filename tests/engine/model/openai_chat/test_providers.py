"""A stream of each shape that providers are known to send, and what it says."""

import json

import pytest
from pydantic import JsonValue
from tests.engine.model.chunks import chunk, decode, sse
from tests.engine.model.provider_streams import STREAMS

from turnwright.model.protocol import ModelResponse
from turnwright_states import Usage

each_provider = pytest.mark.parametrize(
    ("data", "expected"), [pytest.param(*STREAMS[name], id=name) for name in STREAMS]
)


@each_provider
def test_stream_of_each_provider_is_read(data: bytes, expected: ModelResponse) -> None:
    stream = decode(data)
    assert stream.reply() == expected
    assert stream.complete


@each_provider
def test_stream_is_read_alike_by_byte_and_with_other_line_ends(data: bytes, expected: ModelResponse) -> None:
    assert decode(bytes([byte]) for byte in data).reply() == expected
    if not data.startswith(b"{"):
        plain = data.replace(b"\r\n", b"\n")
        for end in (b"\r\n", b"\r"):
            assert decode(plain.replace(b"\n", end)).reply() == expected
        assert decode(b"\xef\xbb\xbf" + plain.replace(b"data: ", b"data:")).reply() == expected


@each_provider
def test_stream_is_read_alike_as_bare_json_lines(data: bytes, expected: ModelResponse) -> None:
    """Some servers forget the format, and write the chunks a line each."""
    lines = [line.removeprefix(b"data: ") for line in data.splitlines() if line and not line.startswith(b":")]
    assert all(line == b"[DONE]" or json.loads(line) for line in lines)
    assert decode(b"\n".join(lines)).reply() == expected


@pytest.mark.parametrize(
    ("fields", "cost"),
    [
        ({"cost": 0.25}, 0.25),
        ({"cost": 0.25, "cost_details": {"upstream_inference_cost": 0.5}}, 0.25),
        ({"cost": 0.25, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.5}}, 0.75),
        ({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.5}}, 0.5),
        ({"cost": {"total_cost": 0.25}}, 0.0),
        ({"cost": None}, 0.0),
        ({"cost": True}, 0.0),
        ({"cost": -1}, 0.0),
        ({"cost": "0.25"}, 0.0),
        ({"cost": 1e300}, 0.0),
        ({"cost": 0.25, "is_byok": True, "cost_details": "none"}, 0.25),
    ],
)
def test_cost_of_a_reply_is_the_cost_reported_by_the_server(fields: dict[str, JsonValue], cost: float) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 7, **fields}
    assert decode(sse(chunk({"content": "Hi"}, "stop", usage=usage))).reply().usage == Usage(
        input_tokens=5, output_tokens=7, cost=cost
    )
