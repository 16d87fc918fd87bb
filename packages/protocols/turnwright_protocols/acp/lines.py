"""The lines of a client: messages of JSON-RPC are passed on, others refused. The protocol's library ends at them."""

import asyncio
import json
import logging
from typing import Final

from pydantic import JsonValue

_LOG: Final = logging.getLogger(__name__)

#: The most bytes of a line, which may have pictures.
MOST_BYTES: Final = 50 * 1024 * 1024
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600


async def pass_messages(
    source: asyncio.StreamReader, target: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Pass the messages of the client on to `target`, until it closes `source`, and answer other lines with errors."""
    while (line := await _read_line(source)) != b"":
        refusal = _refuse(line)
        if line is not None and refusal is None:
            target.feed_data(line if line.endswith(b"\n") else line + b"\n")
        elif refusal is not None:
            _LOG.warning("a line of the client is refused: %s", refusal["message"])
            answer: JsonValue = {"jsonrpc": "2.0", "id": None, "error": refusal}
            writer.write(json.dumps(answer).encode() + b"\n")
    target.feed_eof()


async def _read_line(source: asyncio.StreamReader) -> bytes | None:
    """Return the next line that is not blank, None for one that is too long; empty after the last one."""
    is_long = False
    while True:
        try:
            line = await source.readuntil(b"\n")
        except asyncio.IncompleteReadError as end:
            line = end.partial
        except asyncio.LimitOverrunError as overrun:
            await source.readexactly(overrun.consumed)
            is_long = True
            continue
        if is_long:
            return None
        if line.strip() or not line:
            return line


def _refuse(line: bytes | None) -> dict[str, JsonValue] | None:
    """Return the error of a line, or None for a message."""
    if line is None:
        return {"code": _INVALID_REQUEST, "message": "the line is too long"}
    try:
        message: JsonValue = json.loads(line)
    except (ValueError, RecursionError):
        return {"code": _PARSE_ERROR, "message": "the line is not valid JSON"}
    if not isinstance(message, dict):
        return {"code": _INVALID_REQUEST, "message": "the line is not an object"}
    identifier, error = message.get("id"), message.get("error")
    is_request = isinstance(message.get("method"), str)
    is_response = "method" not in message and "id" in message and isinstance(error, dict | None)
    if isinstance(identifier, str | int | None) and not isinstance(identifier, bool) and (is_request or is_response):
        return None
    return {"code": _INVALID_REQUEST, "message": "the line is neither a request nor a response"}
