"""The page that compares two turns."""

from functools import partial
from typing import Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnwright.engine import Engine
from turnwright.inspector.views.comparison import Side, compare
from turnwright.inspector.views.summaries import Summaries
from turnwright.inspector.views.turn_record import Turns, history_of
from turnwright.privacy.redaction import redactor
from turnwright.store.summaries import SummarizedTurn, TurnFilter

from .turn_page import page, place_in

#: The most characters of an id in the query.
_LONGEST: Final = 1000
#: Turns of the same agent that are read, and those that are offered.
_READ: Final = 100
_OFFERED: Final = 20


class ComparePages:
    """The handlers of the comparison. `turns` has the turns that were read last."""

    def __init__(self, engine: Engine, turns: Turns, summaries: Summaries) -> None:
        self._engine = engine
        self._turns = turns
        self._summaries = summaries

    @property
    def routes(self) -> list[Route]:
        return [Route("/compare", self.compare, name="compare")]

    async def compare(self, request: Request) -> Response:
        """Compare the turns `left` and `right`; without `left`, the origin of the fork `right`.

        `pair` is the number of the pair of steps to show. With one turn, others to compare it with are offered.
        Raises `TurnNotFoundError` and `StoreError`.
        """
        left, right = (request.query_params.get(name, "").strip()[:_LONGEST] for name in ("left", "right"))
        other = await self._side(right) if right else None
        if other is not None and not left:
            left = other.turn.started.forked_from or ""
        one = await self._side(left) if left else None
        values = {"one": one, "other": other, "left": left, "right": right}
        if one is None or other is None:
            known = one or other
            offered = await self._others(known) if known is not None else ()
            return page(request, "compare.html", {**values, "found": None, "offered": offered})
        chosen = place_in(request.query_params.get("pair", ""))
        found = await anyio.to_thread.run_sync(partial(compare, one, other, self._engine.setup, chosen))
        return page(request, "compare.html", {**values, "found": found})

    async def _others(self, side: Side) -> list[SummarizedTurn]:
        """Return the newest turns of a turn's agent: first those with its prompt."""
        await self._summaries.current()
        row, prompt = side.turn.row, side.turn.started.prompt
        found = await self._summaries.read.find(TurnFilter(agent=row.agent), limit=_READ)
        others = [one for one in found if one.row.agent == row.agent and one.row.id != row.id]
        shown = redactor().hide(prompt)
        others.sort(key=lambda one: not one.prompt or not shown.startswith(one.prompt.rstrip("…")))
        return others[:_OFFERED]

    async def _side(self, turn_id: str) -> Side:
        turn = await self._turns.read(turn_id)
        return Side(turn, await history_of(self._engine.store, turn))
