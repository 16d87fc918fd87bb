"""Send events to an open page, at the pace at which it reads them."""

import json
import math
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from typing import Final, NamedTuple, Self

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

#: Seconds after which an idle connection sends a keep-alive.
_PING: Final = 15
#: The longest time, in seconds, for a browser to read an event.
_PATIENCE: Final = 60.0


class PageEvent(NamedTuple):
    """An event for a page: its data, and the last fact, after which a browser reconnects."""

    name: str
    fields: dict[str, str | float | None]
    seq: int | None = None

    @classmethod
    def of(cls, name: str, **fields: str | float | None) -> Self:
        return cls(name, fields)

    @classmethod
    def grown(cls, seq: int) -> Self:
        return cls("grown", {"seq": seq}, seq)

    @property
    def event(self) -> ServerSentEvent:
        number = None if self.seq is None else str(self.seq)
        return ServerSentEvent(json.dumps(self.fields), event=self.name, id=number)


def never() -> float:
    return 0.0


class PageEventStream(EventSourceResponse):
    """The events of a browser, until it disconnects, or stops reading.

    `pause` returns the least seconds between two `grown` events, each of which makes the browser load the page. Other
    events are sent at once.
    """

    def __init__(self, source: AsyncGenerator[PageEvent], pause: Callable[[], float] = never) -> None:
        self._paced = _Paced(pause)
        self._source = source
        super().__init__(self._paced.events(), ping=_PING, send_timeout=_PATIENCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._paced.take_in, self._source)
            with suppress(SendTimeoutError):
                await super().__call__(scope, receive, send)
            group.cancel_scope.cancel()


class _Paced:
    """Waiting events, and the delayed `grown`."""

    def __init__(self, pause: Callable[[], float]) -> None:
        self._rest = pause
        self._waiting: deque[PageEvent] = deque()
        self._changed = anyio.Event()
        self._over = False
        self._delayed: PageEvent | None = None
        self._due = -math.inf
        #: The pieces since the delayed `grown`. A page drops them when it receives that event.
        self._since: list[PageEvent] = []

    async def take_in(self, source: AsyncGenerator[PageEvent]) -> None:
        try:
            async with aclosing(source):
                async for event in source:
                    self._waiting.append(event)
                    self._changed.set()
        finally:
            self._over = True
            self._changed.set()

    async def events(self) -> AsyncIterator[ServerSentEvent]:
        while True:
            while self._waiting:
                for page_event in self._pace(self._waiting.popleft()):
                    yield page_event.event
            if self._over:
                for page_event in self._let_go():
                    yield page_event.event
                return
            self._changed = anyio.Event()
            with anyio.move_on_after(max(self._due - anyio.current_time(), 0.0) if self._delayed else math.inf):
                await self._changed.wait()
            if anyio.current_time() >= self._due:
                for page_event in self._let_go():
                    yield page_event.event

    def _pace(self, page_event: PageEvent) -> Iterator[PageEvent]:
        match page_event.name:
            case "grown":
                self._since.clear()
                if anyio.current_time() < self._due:
                    self._delayed = page_event
                    return
                self._delayed, self._due = None, anyio.current_time() + self._rest()
            case "piece" if self._delayed is not None:
                if page_event.fields["kind"] == "restarted":
                    self._since.clear()
                elif not self._since:
                    yield PageEvent.of("piece", kind="restarted", index=0, text="")
                self._since += [page_event] if page_event.fields["text"] else []
            case "ended" | "gone":
                yield from self._let_go()
            case _:
                pass
        yield page_event

    def _let_go(self) -> Iterator[PageEvent]:
        """Send the delayed `grown`, and the pieces since then again."""
        if self._delayed is not None:
            yield self._delayed
            yield from self._since
            self._delayed, self._due = None, anyio.current_time() + self._rest()
            self._since.clear()
