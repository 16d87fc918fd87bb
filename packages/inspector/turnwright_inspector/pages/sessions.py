"""The pages of sessions: the list, and one session as a conversation."""

from dataclasses import dataclass, field
from typing import Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnwright.errors import TurnNotFoundError, UnreadableTurnError
from turnwright.journal.result import result_of
from turnwright.journal.turn_journal import first_fact
from turnwright.message import SentinelPart
from turnwright.privacy.redaction import redactor
from turnwright.runtime.engine import Engine
from turnwright.store import TurnRow
from turnwright.store.summaries import SummarizedTurn, TurnFilter
from turnwright_inspector.http.urls import address
from turnwright_inspector.views.summaries import Summaries
from turnwright_inspector.views.turn_query import PAGE, Query
from turnwright_states import Usage
from turnwright_states.facts import Fact

from .turn_page import page

#: Turns of a conversation that one page shows: each is read from its journal.
TURNS: Final = 20


@dataclass(frozen=True, slots=True)
class Exchange:
    """A turn of a conversation: the prompt, the answer, and why there is none or only a part of it (`stopped`)."""

    row: TurnRow
    prompt: str = ""
    answer: str = ""
    stopped: str = ""
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    fault: str = ""


class SessionPages:
    """The handlers of the pages."""

    def __init__(self, engine: Engine, summaries: Summaries) -> None:
        self._store = engine.store
        self._summaries = summaries

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/sessions", self.sessions, name="sessions"),
            Route("/session", self.session, name="session"),
        ]

    async def sessions(self, request: Request) -> Response:
        before = Query.of(request.query_params).before
        infos = await self._store.sessions(limit=PAGE + 1, before=before)
        shown_sessions = infos[:PAGE]
        older = f"{request.url_for('sessions').path}?before={shown_sessions[-1].number}" if len(infos) > PAGE else None
        return page(request, "sessions.html", {"sessions": shown_sessions, "older": older})

    async def session(self, request: Request) -> Response:
        """Show the newest turns of a session, or those before the turn with the number `before`; the oldest first.

        Its id may have any characters, so it is not part of the path.
        """
        query = Query.of(request.query_params)
        name = redactor().hide(query.session)  # as summaries have it
        await self._summaries.current()
        turn_filter = TurnFilter(session=name)
        totals = await self._summaries.read.totals(turn_filter)
        if not name or not totals.turns:
            message = {"title": "Session not found", "message": f"There is no session {name!r} in this store."}
            return page(request, "missing.html", message, 404)
        turns = await self._summaries.read.find(turn_filter, limit=TURNS + 1, after=query.before)
        exchanges = [await self._exchange(entry) for entry in reversed(turns[:TURNS])]
        values = {
            "session": name,
            "title": await self._title(name),
            "totals": totals,
            "exchanges": [entry for entry in exchanges if entry is not None],
            "earlier": {"session": name, "before": str(turns[TURNS - 1].row.number)} if len(turns) > TURNS else None,
            "path": address(request, "session"),
            "live": query.before is None,
        }
        return page(request, "session.html", values)

    async def _title(self, name: str) -> str:
        """Return the title of a session; its id if the session is not among the newest."""
        hide = redactor().hide
        titles = (
            session_info.title
            for session_info in await self._store.sessions(limit=PAGE)
            if hide(session_info.id) == name
        )
        return next(titles, "") or name

    async def _exchange(self, turn: SummarizedTurn) -> Exchange | None:
        try:
            facts = await self._store.facts(turn.row.id)
            return await anyio.to_thread.run_sync(_exchange, turn.row, facts)
        except TurnNotFoundError:
            return None
        except UnreadableTurnError as error:
            return Exchange(turn.row, fault=error.why)


def _exchange(row: TurnRow, facts: list[tuple[int, Fact]]) -> Exchange:
    result = result_of(row.id, facts)
    stops = [part.text for message in result.messages for part in message.parts if isinstance(part, SentinelPart)]
    return Exchange(
        row=row,
        prompt=first_fact(row.id, facts).prompt,
        answer=result.text,
        stopped=stops[-1] if stops else "",
        usage=result.usage,
        seconds=facts[-1][1].elapsed,
    )
