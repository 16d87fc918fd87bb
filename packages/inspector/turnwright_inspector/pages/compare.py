"""The page that compares two turns."""

from typing import Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnwright.engine import Engine
from turnwright.privacy.redaction import redactor
from turnwright.store.summaries import SummarizedTurn, TurnFilter
from turnwright_inspector.views.comparison import Side, compare
from turnwright_inspector.views.summaries import Summaries
from turnwright_inspector.views.turn_record import TurnRecord, Turns, history_of
from turnwright_inspector.views.turn_side import turn_side

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
        """Compare the turns `left` and `right`. `pair` is the number of the pair of steps to show.

        Without `left`, `right` is compared with its origin if it is a fork, else with the newest turn before it that
        has its agent and its prompt. Where one turn was named, others to compare it with are offered.
        Raises `TurnNotFoundError` and `StoreError`.
        """
        left, right = (request.query_params.get(name, "").strip()[:_LONGEST] for name in ("left", "right"))
        other = await self._turns.read(right) if right else None
        offered: list[SummarizedTurn] = []
        if other is not None and not left:
            left = other.started.forked_from or ""
            offered = [] if left else await self._others(other, earlier=True)
            if offered and _same_prompt(other, offered[0]):
                left = offered.pop(0).row.id
        one = await self._turns.read(left) if left else None
        started = None if other is None else other.started
        forked_at = started.forked_at if started is not None and started.forked_from == left else None
        values = {"noun": "turn", "path": "compare", "left": left, "right": right, "forked_at": forked_at}
        if one is None or other is None:
            known = one or other
            offered = await self._others(known) if known is not None else []
            return page(request, "compare.html", {**values, "found": None, "offered": offered})
        chosen = place_in(request.query_params.get("pair", ""))
        sides = await self._side(one), await self._side(other)
        found = await anyio.to_thread.run_sync(compare, *sides, chosen)
        return page(request, "compare.html", {**values, "found": found, "offered": offered})

    async def _others(self, turn: TurnRecord, *, earlier: bool = False) -> list[SummarizedTurn]:
        """Return the newest turns of a turn's agent: first those with its prompt. `earlier`: those before it."""
        await self._summaries.current()
        row = turn.row
        after = row.number if earlier else None
        found = await self._summaries.read.find(TurnFilter(agent=row.agent), limit=_READ, after=after)
        others = [one for one in found if one.row.agent == row.agent and one.row.id != row.id]
        return sorted(others, key=lambda one: not _same_prompt(turn, one))[:_OFFERED]

    async def _side(self, turn: TurnRecord) -> Side:
        return turn_side(turn, await history_of(self._engine.store, turn), self._engine.setup)


def _same_prompt(turn: TurnRecord, other: SummarizedTurn) -> bool:
    return bool(other.prompt) and redactor().hide(turn.started.prompt).startswith(other.prompt.rstrip("…"))
