"""`turnwright decode`: decodes recorded streams of model providers, as the clients do."""

from collections.abc import Iterator
from typing import Annotated, BinaryIO, Final

import typer
from pydantic import JsonValue

from turnwright._base.regular_files import open_regular
from turnwright.errors import ConfigError
from turnwright.model.http.reply_stream import ReplyStream
from turnwright.model.providers import DECODED, find_decoder

from . import codes
from .process import echo, echo_json, open_stdin

#: Bytes to read at once.
_CHUNK: Final = 64 * 1024


def decode(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Recorded response bodies; - is standard input.")],
    api: Annotated[
        str,
        typer.Option(
            "--api",
            metavar="|".join(DECODED),
            help="The API that sent the bodies.",
        ),
    ],
) -> None:
    """Decode recorded streams of model providers.

    Prints one JSON object per file. For a stream that broke off or contains an error, the object has the part that
    arrived, and an `error`. Exit code 2: a file could not be read; the others are still printed.
    """
    try:
        provider = find_decoder(api)
    except ConfigError as error:
        echo(f"turnwright decode: {error}", err=True)
        raise typer.Exit(codes.USAGE) from None
    unreadable = False
    for file in files:
        try:
            record = _decode(file, provider.new_decoder())
        except OSError as error:
            echo(f"turnwright decode: cannot read {file}: {error.strerror or error}", err=True)
            unreadable = True
        else:
            echo_json(record)
    if unreadable:
        raise typer.Exit(codes.USAGE)


def _decode(file: str, stream: ReplyStream) -> dict[str, JsonValue]:
    for data in _chunks(file):
        stream.feed(data)
        if stream.done:
            break
    stream.end()
    reply = stream.partial
    return {
        "file": file,
        "text": reply.text,
        "reasoning": reply.reasoning,
        "tool_calls": [
            {
                "id": call.id,
                "name": call.name,
                "arguments": None if call.arguments is None else dict(call.arguments),
                "arguments_raw": call.raw,
            }
            for call in reply.calls
        ],
        "finish_reason": reply.finish_reason,
        "usage": None if stream.reported_usage is None else {**stream.reported_usage},
        "complete": stream.complete,
        "error": str(stream.error) if stream.error else None,
    }


def _chunks(file: str) -> Iterator[bytes]:
    if file == "-":
        yield from _read(open_stdin())
        return
    with open_regular(file) as stream:
        yield from _read(stream)


def _read(stream: BinaryIO) -> Iterator[bytes]:
    while data := stream.read(_CHUNK):
        yield data
