"""`turnwright decode`: recorded streams of model providers, read as the clients read them."""

from collections.abc import Iterator
from typing import Annotated, BinaryIO, Final

import typer
from pydantic import JsonValue

from turnwright._base.regular_files import open_regular
from turnwright.errors import ConfigError
from turnwright.model.http.reply_stream import ReplyStream
from turnwright.model.providers import DECODED, find_decoder

from .process import echo, echo_json

# How much of a file is read at once, in bytes.
_PIECE: Final = 64 * 1024

_USAGE_ERROR: Final = 2


def decode(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Recorded response bodies; - reads standard input.")
    ],
    api: Annotated[
        str,
        typer.Option(
            "--api",
            metavar="|".join(DECODED),
            help="The API that the bodies came from.",
        ),
    ],
) -> None:
    """Print the reply that each recorded stream holds: one JSON object a line, in the order of the files.

    A stream that broke off or holds an error is printed with what had arrived and an `error`. Exit code 2 means that
    a file could not be read; the others are printed all the same.
    """
    try:
        provider = find_decoder(api)
    except ConfigError as error:
        echo(f"turnwright decode: {error}", err=True)
        raise typer.Exit(_USAGE_ERROR) from None
    unreadable = False
    for file in files:
        try:
            decoded = _decode(file, provider.new_decoder())
        except OSError as error:
            echo(f"turnwright decode: cannot read {file}: {error.strerror or error}", err=True)
            unreadable = True
        else:
            echo_json(decoded)
    if unreadable:
        raise typer.Exit(_USAGE_ERROR)


def _decode(file: str, stream: ReplyStream) -> dict[str, JsonValue]:
    for data in _pieces(file):
        stream.feed(data)
        if stream.done:
            break
    stream.end()
    reply = stream.partial
    usage = reply.usage
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
        "usage": None if usage is None else usage.model_dump(include={"input_tokens", "output_tokens"}),
        "complete": stream.complete,
        "error": str(stream.error) if stream.error else None,
    }


def _pieces(file: str) -> Iterator[bytes]:
    if file == "-":
        yield from _read(typer.get_binary_stream("stdin"))
        return
    with open_regular(file) as opened:
        yield from _read(opened)


def _read(opened: BinaryIO) -> Iterator[bytes]:
    while data := opened.read(_PIECE):
        yield data
