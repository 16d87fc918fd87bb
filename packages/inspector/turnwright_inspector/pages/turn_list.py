"""The pages about many turns: the list and the statistics; and a turn's journal as a file."""

import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from turnwright.privacy.redaction import redactor, shown_fields
from turnwright.runtime.engine import Engine
from turnwright.store.summaries import Order
from turnwright_inspector.views.statistics import LAST, MOST, statistics_of
from turnwright_inspector.views.summaries import Summaries
from turnwright_inspector.views.turn_query import RANGES, STANDINGS, Query, list_turns, marks_of
from turnwright_inspector.views.turn_record import Journal
from turnwright_states import EndReason

from .turn_page import page

#: The lists that one click shows: their names, and the fields of their addresses.
VIEWS: Final = {
    "All": {},
    "Failed": {"outcome": "failed"},
    "Stopped by a limit": {"outcome": "cap_hit"},
    "Doom loops": {"outcome": "doom_loop"},
    "Unfinished": {"outcome": "unfinished"},
    "Most expensive this week": {"range": "7d", "sort": "cost"},
    "Slowest this week": {"range": "7d", "sort": "seconds"},
}
_NUMBERS: Final = len(str(MOST))


class Lists:
    def __init__(self, engine: Engine, summaries: Summaries) -> None:
        self._store = engine.store
        self._summaries = summaries

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/", self.turns, name="turns"),
            Route("/statistics", self.statistics, name="statistics"),
            Route("/turns/{turn}/journal.jsonl", self.journal, name="journal"),
        ]

    async def turns(self, request: Request) -> Response:
        query = Query.of(request.query_params)
        listing = await list_turns(self._summaries, query)
        path = request.url_for("turns").path
        following = listing.following
        marks = await marks_of(self._store, [entry.row.id for entry in listing.turns])
        values = {
            "query": query,
            "listing": listing,
            "marks": marks,
            "tags": sorted({mark.name for of_turn in marks.values() for mark in of_turn if mark.kind == "tag"}),
            "standings": STANDINGS,
            "reasons": tuple(EndReason),
            "ranges": RANGES,
            "views": VIEWS,
            "orders": Order,
            "older": None if following is None else f"{path}?{urlencode(query.address | following)}",
            # What is older does not change under the reader.
            "live": query.first,
        }
        return page(request, "turns.html", values)

    async def statistics(self, request: Request) -> Response:
        fields = request.query_params
        number = fields.get("last", "")
        last = int(number) if number.isascii() and number.isdecimal() and len(number) <= _NUMBERS else LAST
        agent = fields.get("agent", "").replace("\0", "").strip()
        last = min(max(last, 1), MOST)
        turn_statistics = await statistics_of(self._summaries, last=last, agent=agent)
        return page(request, "statistics.html", {"statistics": turn_statistics, "last": last, "agent": agent})

    async def journal(self, request: Request) -> Response:
        """Return the journal of a turn, a JSON object per line, with values that look like secrets hidden.

        Raises `TurnNotFoundError`.
        """
        turn = request.path_params["turn"]
        facts = await self._store.facts(turn)
        name = "".join(letter if letter.isalnum() else "_" for letter in turn)
        headers = {"Content-Disposition": f'attachment; filename="{name}.jsonl"'}
        return StreamingResponse(_lines(facts), media_type="application/jsonl", headers=headers)


def _lines(facts: Journal) -> Iterator[str]:
    for seq, fact in facts:
        line = {"seq": seq, "kind": fact.kind, **shown_fields(fact, redactor())}
        yield f"{json.dumps(line)}\n"
