"""The page that compares two turns."""

from typing import Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnwright.privacy.redaction import redactor
from turnwright.runtime.engine import Engine
from turnwright.store.summaries import SummarizedTurn, TurnFilter
from turnwright_inspector.views.comparison import Side, compare
from turnwright_inspector.views.summaries import Summaries
from turnwright_inspector.views.turn_query import whole_number
from turnwright_inspector.views.turn_record import TurnRecord, Turns, history_of
from turnwright_inspector.views.turn_side import turn_side

from .turn_page import page

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
        right_turn = await self._turns.read(right) if right else None
        similar_turns: list[SummarizedTurn] = []
        if right_turn is not None and not left:
            left = right_turn.started.forked_from or ""
            similar_turns = [] if left else await self._list_candidates(right_turn, earlier=True)
            if similar_turns and _same_prompt(right_turn, similar_turns[0]):
                left = similar_turns.pop(0).row.id
        left_turn = await self._turns.read(left) if left else None
        turn_start = None if right_turn is None else right_turn.started
        forked_at = turn_start.forked_at if turn_start is not None and turn_start.forked_from == left else None
        values = {"noun": "turn", "path": "compare", "left": left, "right": right, "forked_at": forked_at}
        if left_turn is None or right_turn is None:
            chosen_turn = left_turn or right_turn
            similar_turns = await self._list_candidates(chosen_turn) if chosen_turn is not None else []
            return page(request, "compare.html", {**values, "found": None, "offered": similar_turns})
        pair = whole_number(request.query_params.get("pair", ""))
        sides = await self._side(left_turn), await self._side(right_turn)
        comparison = await anyio.to_thread.run_sync(compare, *sides, pair)
        return page(request, "compare.html", {**values, "found": comparison, "offered": similar_turns})

    async def _list_candidates(self, turn: TurnRecord, *, earlier: bool = False) -> list[SummarizedTurn]:
        """Return the newest turns of a turn's agent: first those with its prompt. `earlier`: those before it."""
        await self._summaries.current()
        row = turn.row
        after = row.number if earlier else None
        turns = await self._summaries.read.find(TurnFilter(agent=row.agent), limit=_READ, after=after)
        similar = [summary for summary in turns if summary.row.agent == row.agent and summary.row.id != row.id]
        return sorted(similar, key=lambda summary: not _same_prompt(turn, summary))[:_OFFERED]

    async def _side(self, turn: TurnRecord) -> Side:
        return turn_side(turn, await history_of(self._engine.store, turn), self._engine.setup)


def _same_prompt(turn: TurnRecord, summary: SummarizedTurn) -> bool:
    return bool(summary.prompt) and redactor().hide(turn.started.prompt).startswith(summary.prompt.rstrip("…"))
