"""The page that compares two turns."""

from typing import Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnwright.engine import Engine
from turnwright.inspector.views.comparison import Side, compare
from turnwright.inspector.views.summaries import Summaries
from turnwright.inspector.views.turn_record import TurnRecord, Turns, history_of
from turnwright.inspector.views.turn_side import turn_side
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
        other = await self._turns.read(right) if right else None
        if other is not None and not left:
            left = other.started.forked_from or ""
        one = await self._turns.read(left) if left else None
        started = None if other is None else other.started
        forked_at = started.forked_at if started is not None and started.forked_from == left else None
        values = {"noun": "turn", "path": "compare", "left": left, "right": right, "forked_at": forked_at}
        if one is None or other is None:
            known = one or other
            offered = await self._others(known) if known is not None else ()
            return page(request, "compare.html", {**values, "found": None, "offered": offered})
        chosen = place_in(request.query_params.get("pair", ""))
        sides = await self._side(one), await self._side(other)
        found = await anyio.to_thread.run_sync(compare, *sides, chosen)
        return page(request, "compare.html", {**values, "found": found})

    async def _others(self, turn: TurnRecord) -> list[SummarizedTurn]:
        """Return the newest turns of a turn's agent: first those with its prompt."""
        await self._summaries.current()
        row, prompt = turn.row, turn.started.prompt
        found = await self._summaries.read.find(TurnFilter(agent=row.agent), limit=_READ)
        others = [one for one in found if one.row.agent == row.agent and one.row.id != row.id]
        shown = redactor().hide(prompt)
        others.sort(key=lambda one: not one.prompt or not shown.startswith(one.prompt.rstrip("…")))
        return others[:_OFFERED]

    async def _side(self, turn: TurnRecord) -> Side:
        return turn_side(turn, await history_of(self._engine.store, turn), self._engine.setup)
