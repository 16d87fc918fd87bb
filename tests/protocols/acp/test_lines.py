"""Lines of a client that are not messages: its agent would end at some of them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.servers.forked_python import Python

from turnwright_protocols.acp.lines import pass_messages

pytestmark = pytest.mark.anyio

REQUEST = b'{"jsonrpc": "2.0", "id": 1, "method": "session/list", "params": {}}'
MESSAGES = [
    REQUEST,
    b'{"jsonrpc": "2.0", "method": "session/cancel"}',
    b'{"jsonrpc": "2.0", "id": "a", "result": null}',
    b'{"jsonrpc": "2.0", "id": 2, "error": {"code": 1, "message": "no"}}',
    b'{"jsonrpc": "2.0", "id": 3, "method": "x", "params": "half \\ud800"}',
]
#: Lines, and the codes of their errors.
OTHERS = [
    (b"{", -32700),
    (b"\xff", -32700),
    (b'{"a":' * 100_000, -32700),
    (b"null", -32600),
    (b"[]", -32600),
    (b"7", -32600),
    (b"{}", -32600),
    (b'{"id": [1], "result": 5}', -32600),
    (b'{"id": true, "method": "x"}', -32600),
    (b'{"id": 1, "error": "no"}', -32600),
    (b'{"id": 1, "method": 5}', -32600),
]


class Written:
    """A writer that notes what it is given."""

    def __init__(self) -> None:
        self.lines: list[Any] = []

    def write(self, line: bytes) -> None:
        self.lines.append(json.loads(line))


async def passed(*lines: bytes, limit: int = 2**20) -> tuple[list[bytes], list[int]]:
    """Return the lines that are passed on, and the codes of the errors that are answered."""
    source, target, writer = asyncio.StreamReader(limit=limit), asyncio.StreamReader(), Written()
    source.feed_data(b"\n".join(lines))
    source.feed_eof()
    await pass_messages(source, target, writer)  # type: ignore[arg-type]
    assert all(answer["id"] is None for answer in writer.lines)
    return (await target.read()).splitlines(), [answer["error"]["code"] for answer in writer.lines]


async def test_messages_are_passed_on_and_others_answered() -> None:
    lines, codes = zip(*OTHERS, strict=True)
    assert await passed(*MESSAGES, b"", b" ", *lines, REQUEST) == ([*MESSAGES, REQUEST], [*codes])


async def test_line_that_is_too_long_is_dropped() -> None:
    assert await passed(b'{"a": "' + b"x" * 500 + b'"}', REQUEST, limit=100) == ([REQUEST], [-32600])


@pytest.mark.slow
async def test_agent_outlives_lines_that_are_not_messages(python: Python, tmp_path: Path) -> None:
    command = [*python.command, "-m", "tests.protocols.acp_server", str(tmp_path)]
    content = b"".join(line + b"\n" for line in (*(line for line, _ in OTHERS), REQUEST))
    process = await anyio.run_process(command, input=content, check=True)
    *refusals, answer = map(json.loads, process.stdout.splitlines())
    assert [refusal["error"]["code"] for refusal in refusals] == [code for _, code in OTHERS]
    assert answer == {"jsonrpc": "2.0", "id": 1, "result": {"sessions": []}}
