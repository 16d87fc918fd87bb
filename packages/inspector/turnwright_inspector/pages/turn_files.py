"""The files of a turn: the pictures in its messages, and all of it as one file that another inspector opens."""

import base64
from collections.abc import Iterator
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnwright.message import FilePart, Message, ToolResultPart
from turnwright.runtime.engine import Engine
from turnwright_audit.transfer import export_turn
from turnwright_inspector.views.turn_query import whole_number
from turnwright_inspector.views.turn_record import Turns

#: How a picture of each shown type begins. Other content is not sent: a text may hold a secret, and an SVG a program.
_BEGINS: Final = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}


class TurnFiles:
    """The handler of pictures: `/turns/{turn}/files/{seq}`, or with `/{place}` of the files of a tool's result."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/turns/{turn}/files/{seq}", self.file, name="turn-file"),
            Route("/turns/{turn}/files/{seq}/{place}", self.file),
        ]

    async def file(self, request: Request) -> Response:
        """Return a picture. Raises `HTTPException` (404) for anything else, and `TurnNotFoundError`."""
        seq, place = whole_number(request.path_params["seq"]), whole_number(request.path_params.get("place", "0"))
        turn = await self._turns.read(request.path_params["turn"])
        files = [file for at, number, file in _files(turn.result.messages) if (at, number) == (seq, place)]
        content = base64.b64decode(files[0].data) if files else b""
        if not files or not content.startswith(_BEGINS.get(files[0].media_type, ())):
            raise HTTPException(404)
        return Response(content, media_type=files[0].media_type)


def _files(messages: tuple[Message, ...]) -> Iterator[tuple[int, int, FilePart]]:
    for message in messages:
        for part in message.parts:
            if isinstance(part, FilePart):
                yield part.seq, 0, part
            elif isinstance(part, ToolResultPart):
                yield from ((part.seq, number, file) for number, file in enumerate(part.files))


class TurnExport:
    """The handler of the file of the whole turn."""

    def __init__(self, engine: Engine) -> None:
        self._store = engine.store

    @property
    def routes(self) -> list[Route]:
        return [Route("/turns/{turn}/export.jsonl", self.export, name="export")]

    async def export(self, request: Request) -> Response:
        """Return the journals of the turn and its sub-agents without secrets. Raises `TurnNotFoundError`."""
        turn = request.path_params["turn"]
        lines = await export_turn(self._store, turn)
        name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in turn)
        headers = {"Content-Disposition": f'attachment; filename="turn_{name}.jsonl"'}
        return Response("".join(f"{line}\n" for line in lines), media_type="application/jsonl", headers=headers)
