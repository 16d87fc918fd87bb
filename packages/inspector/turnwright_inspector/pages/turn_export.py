"""A turn as one file that another inspector opens."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnwright.engine import Engine
from turnwright.journal.transfer import export_turn


class TurnExport:
    """The handler of the file."""

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
