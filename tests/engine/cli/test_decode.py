import json
import os
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from turnwright.cli.decode import decode
from turnwright.cli.process import read_lines
from turnwright.errors import ConfigError

WHOLE = (
    b'data: {"choices":[{"delta":{"content":"h\xc3\xa9","reasoning":"hm","tool_calls":[{"id":"x","function":'
    b'{"name":"f","arguments":"{\\"a\\": 1}"}},{"id":"y","function":{"name":"g","arguments":"{\\"a"}}]},'
    b'"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}\r\n\r\ndata:[DONE]'
)
MESSAGE = b"""event: message_start
data: {"type":"message_start","message":{"content":[],"usage":{"input_tokens":3,"output_tokens":1}}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"h\xc3\xa9"}}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"x","name":"f","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\\"a\\": 1}"}}

event: content_block_start
data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"y","name":"g","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\\"a"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"length"},"usage":{"output_tokens":4}}

"""
RESPONSE = b"".join(
    f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
    for event in (
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "hm"},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "hé"},
        {
            "type": "response.output_item.done",
            "output_index": 2,
            "item": {"type": "function_call", "call_id": "x", "name": "f", "arguments": '{"a": 1}'},
        },
        {
            "type": "response.output_item.done",
            "output_index": 3,
            "item": {"type": "function_call", "call_id": "y", "name": "g", "arguments": '{"a'},
        },
        {
            "type": "response.incomplete",
            "response": {
                "status": "incomplete",
                "incomplete_details": {"reason": "length"},
                "usage": {"input_tokens": 3, "output_tokens": 4},
            },
        },
    )
)
DECODED = {
    "text": "hé",
    "reasoning": "hm",
    "tool_calls": [
        {"id": "x", "name": "f", "arguments": {"a": 1}, "arguments_raw": '{"a": 1}'},
        {"id": "y", "name": "g", "arguments": None, "arguments_raw": '{"a'},
    ],
    "finish_reason": "length",
    "usage": {"input_tokens": 3, "output_tokens": 4},
    "complete": True,
    "error": None,
}


def run(*arguments: str | Path, stdin: bytes = b"") -> Result:
    app = typer.Typer()
    app.command()(decode)
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.split("\n") if line]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "whole.sse"
    path.write_bytes(WHOLE)
    return path


def test_every_api_is_decoded_to_the_same_fields() -> None:
    for ending in (b"", b'event: message_stop\ndata: {"type":"message_stop"}\n\n'):
        result = run("--api", "anthropic-messages", "-", stdin=MESSAGE + ending)
        assert result.exit_code == 0
        assert lines(result) == [{"file": "-", **DECODED}]
        assert list(lines(result)[0]) == ["file", *DECODED]


def test_response_is_decoded_to_the_same_fields() -> None:
    result = run("--api", "openai-responses", "-", stdin=RESPONSE)
    assert result.exit_code == 0
    assert lines(result) == [{"file": "-", **DECODED}]


def test_interrupted_message_is_printed_with_the_received_part() -> None:
    overloaded = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    begun, _, _ = MESSAGE.partition(b"event: message_delta")
    for ending, error_text in ((b"", "no stop reason"), (overloaded, "Overloaded")):
        (line,) = lines(run("--api", "anthropic-messages", "-", stdin=begun + ending))
        assert (line["text"], line["complete"], line["finish_reason"]) == ("hé", False, None)
        assert line["usage"] == {"input_tokens": 3, "output_tokens": 1}
        assert error_text in line["error"]


def test_each_file_is_a_json_object_on_a_line(whole: Path) -> None:
    result = run("--api", "openai-chat", whole, whole)
    assert result.exit_code == 0
    assert lines(result) == [{"file": str(whole), **DECODED}] * 2
    assert list(lines(result)[0]) == ["file", *DECODED]


def test_dash_reads_standard_input() -> None:
    result = run("--api", "openai-chat", "-", stdin=WHOLE)
    assert lines(result) == [{"file": "-", **DECODED}]


def test_broken_stream_is_no_error_of_the_command() -> None:
    result = run("--api", "openai-chat", "-", stdin=b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')
    (line,) = lines(result)
    assert result.exit_code == 0
    assert (line["text"], line["complete"], line["finish_reason"], line["usage"]) == ("a", False, None, None)
    assert "ended before the reply did" in line["error"]


def test_refusal_is_decoded_as_text() -> None:
    refused = b'data: {"choices":[{"delta":{"refusal":"No."},"finish_reason":"stop"}]}\n\n'
    (line,) = lines(run("--api", "openai-chat", "-", stdin=refused))
    assert (line["text"], line["finish_reason"], line["complete"]) == ("No.", "stop", True)


def test_file_of_any_size_is_decoded_equally(tmp_path: Path) -> None:
    """It is read in pieces, and a piece may end anywhere."""
    path = tmp_path / "long.sse"
    path.write_bytes('data: {"choices":[{"delta":{"content":"é"}}]}\r\n\r\n'.encode() * 9_999 + b"data: [DONE]")
    (line,) = lines(run("--api", "openai-chat", path))
    assert (line["text"], line["complete"]) == ("é" * 9_999, True)


def test_unreadable_file_is_named_and_the_others_are_printed(whole: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.sse"
    result = run("--api", "openai-chat", missing, whole, tmp_path)
    assert result.exit_code == 2
    assert [line["file"] for line in lines(result)] == [str(whole)]
    assert result.stderr == (
        f"turnwright decode: cannot read {missing}: No such file or directory\n"
        f"turnwright decode: cannot read {tmp_path}: Is a directory\n"
    )


def test_unknown_api_is_refused_with_the_known_apis(whole: Path) -> None:
    result = run("--api", "telepathy", whole)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'telepathy' is not known: use openai-chat, openai-responses, anthropic-messages" in result.stderr


def test_irregular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = run("--api", "openai-chat", pipe)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"cannot read {pipe}: not a regular file" in result.stderr
    with pytest.raises(ConfigError, match="not a regular file"):
        read_lines(str(pipe))
