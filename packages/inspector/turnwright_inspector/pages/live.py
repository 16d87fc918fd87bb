"""Live events of open pages: server-sent events for the list of turns and for one turn.

They claim and lock nothing, and drivers do not know of them.
"""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import Final, TypeVar

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnwright.errors import TurnNotFoundError, UnreadableTurnError
from turnwright.privacy.redaction import redactor
from turnwright.runtime.engine import Engine
from turnwright.store import TurnRow
from turnwright.transcript.events import (
    DeltaEvent,
    ResponseRestartedEvent,
    ResponseWithdrawnEvent,
    ToolProgressEvent,
    TurnEvent,
)
from turnwright_inspector.http.event_stream import PageEvent, PageEventStream
from turnwright_inspector.http.refusals import UNREADABLE
from turnwright_inspector.views.redacted_stream import Replies, Words
from turnwright_inspector.views.turn_query import whole_number

#: Seconds between two reads of the list of turns, and of a turn that runs elsewhere.
_EVERY: Final = 1.0
_LOOK: Final = 0.4
#: The number of live turns that are read: the newest.
_MOST: Final = 200
#: The number of turns whose driver is checked in each read, because a store may have to ask a server.
_ASKED: Final = 20

_Found = TypeVar("_Found")


class Live:
    """The handlers of live events.

    The list of turns (`/live`) sends `changed`. A turn (`/turns/{turn}/live?after=SEQ`) sends `grown`, with the last
    fact's seq, after new facts or a change of its driver; `piece` and `progress` of the reply and of calls, while it
    runs in this process; `ended` at its end, and `gone` once it is deleted. Both send `trouble` when the store cannot
    be read. All data is JSON.

    A `piece` has the next words of the reply, or the kind `restarted`, which drops the words so far. A page that opens
    during a reply receives it from its beginning, with `…` for unknown parts. `pause` returns the least seconds between
    two `grown` events of a turn.
    """

    def __init__(self, engine: Engine, pause: Callable[[str], float] = lambda _: 0.0) -> None:
        self._engine = engine
        self._rest = pause
        self._replies = Replies()
        self._list = _List(engine)

    @property
    def routes(self) -> list[Route]:
        return [Route("/live", self.turns, name="live"), Route("/turns/{turn}/live", self.turn, name="turn-live")]

    async def turns(self, request: Request) -> Response:  # noqa: ARG002 (a route takes one)
        return PageEventStream(self._list.events())

    async def turn(self, request: Request) -> Response:
        """Stream the events of one turn after a fact: the last one on its page, or the last one sent."""
        name = request.path_params["turn"]
        last_event = request.headers.get("last-event-id") or request.query_params.get("after", "")
        after = whole_number(last_event) or 0
        row = await self._engine.store.get(name)
        if row.status.outcome is not None and not await self._engine.store.facts(name, after):
            return Response(status_code=204)  # no more events: the browser does not reconnect
        return PageEventStream(self._events(name, after), lambda: self._rest(name))

    async def _events(self, name: str, seq: int) -> AsyncGenerator[PageEvent]:
        store, has_trouble = self._engine.store, False
        sent_state: object = None
        async with store.watching(name) as wait_for_change:
            while True:
                try:
                    row, is_driven, waiting, last = await _whole(self._look(name, seq))
                    has_trouble = False
                except UNREADABLE as error:
                    if not has_trouble:
                        yield PageEvent.of("trouble", message=str(error))
                    has_trouble = True
                    await anyio.sleep(_EVERY)
                    continue
                except TurnNotFoundError:
                    yield PageEvent.of("gone")
                    return
                now = (row.epoch, row.owner, is_driven, waiting)
                if last > seq or sent_state not in (None, now):
                    seq = max(seq, last)
                    yield PageEvent.grown(seq)
                sent_state = now
                if row.status.outcome is not None:
                    yield PageEvent.of("ended", seq=seq)
                    return
                if is_driven and row.owner == store.owner:
                    async with aclosing(self._follow_here(name, seq)) as events:
                        async for event in events:
                            seq = max(seq, event.seq or 0)
                            yield event
                    sent_state = ()
                    continue
                await wait_for_change(_LOOK)

    async def _look(self, name: str, seq: int) -> tuple[TurnRow, bool, int, int]:
        """A turn's row, whether it is driven, how much waits in its inbox, and its last fact."""
        store = self._engine.store
        row = await store.get(name)
        facts = await store.facts(name, seq)
        is_driven, waiting = await store.is_driven(name), len(await store.inbox(name))
        return row, is_driven, waiting, facts[-1][0] if facts else seq

    async def _follow_here(self, name: str, seq: int) -> AsyncGenerator[PageEvent]:
        """Yield the events of a turn that runs in this process, until it ends or pauses."""
        words = Words(self._replies)
        try:
            events = self._engine.events(name, seq)
            try:
                async for event in events:
                    for page_event in _make_page_events(event, words):
                        yield page_event
            finally:
                if isinstance(events, AsyncGenerator):
                    await events.aclose()
        except UNREADABLE as error:
            yield PageEvent.of("trouble", message=str(error))
        except TurnNotFoundError:
            return
        await anyio.sleep(0.05)  # its driver is releasing it


class _List:
    """The list of turns for all of its open pages: one of them reads it, and the others wait."""

    def __init__(self, engine: Engine) -> None:
        self._store = engine.store
        self._lock = anyio.Lock()
        self._last_rows: object = None
        self._version = 0
        self._trouble = ""
        #: Whether those that have an owner were driven when it was asked last, the ones asked longest ago first.
        self._driven: OrderedDict[str, bool] = OrderedDict()

    async def events(self) -> AsyncGenerator[PageEvent]:
        """Yield `changed` after each change of a turn, and once for changes before the first listener."""
        version = self._version
        yield PageEvent.of("changed")
        while True:
            while version == self._version:
                async with self._lock:
                    if version == self._version:
                        await self._look()
            version = self._version
            yield PageEvent.of("trouble", message=self._trouble) if self._trouble else PageEvent.of("changed")

    async def _look(self) -> None:
        first = self._last_rows is None
        if not first:
            await anyio.sleep(_EVERY)
        trouble, rows = "", self._last_rows
        with anyio.CancelScope(shield=True):
            try:
                newest = await self._store.turns(limit=1)
                live = await self._store.turns(live=True, limit=_MOST)
                driven_by_name = await self._are_driven(live)
                rows = [
                    (row.id, row.updated_at, row.epoch, row.owner, row.status, driven_by_name.get(row.id))
                    for row in (*newest, *live)
                ]
            except UNREADABLE as error:
                trouble = str(error)
        if not first and (rows, trouble) != (self._last_rows, self._trouble):
            self._version += 1
        self._last_rows, self._trouble = rows or [], trouble

    async def _are_driven(self, rows: Sequence[TurnRow]) -> dict[str, bool]:
        owned_turns = {row.id for row in rows if row.owner}
        driven_by_name = OrderedDict(
            (name, is_driven) for name, is_driven in self._driven.items() if name in owned_turns
        )
        for name in [*(owned_turns - driven_by_name.keys()), *list(driven_by_name)[:_ASKED]]:
            with suppress(TurnNotFoundError, UnreadableTurnError):  # deleted since, or damaged
                driven_by_name[name] = await self._store.is_driven(name)
                driven_by_name.move_to_end(name)
        self._driven = driven_by_name
        return dict(driven_by_name)


async def _whole(query: Awaitable[_Found]) -> _Found:
    """Finish a query even if the page is closed, because cancellation would cost the store a connection."""
    results: list[_Found] = []
    with anyio.CancelScope(shield=True):
        results.append(await query)
    return results[0]


def _make_page_events(event: TurnEvent, words: Words) -> Iterator[PageEvent]:
    match event:
        case DeltaEvent():
            yield from words.add(event)
        case ResponseRestartedEvent() | ResponseWithdrawnEvent():
            words.forget()
            yield PageEvent.of("piece", kind="restarted", index=0, text="")
        case ToolProgressEvent():
            yield PageEvent.of(
                "progress",
                call=event.call,
                tool=event.tool,
                progress=event.progress,
                total=event.total,
                message=redactor().hide(event.message),
            )
        case _:
            yield from words.rest()
            yield PageEvent.grown(event.seq)
