"""The stream of a running turn: its events, its text, and then its result."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar, cast

import anyio

from turnwright._base.background_task import background_task
from turnwright.errors import ConfigError
from turnwright.journal.result import OutT_co, TurnResult
from turnwright.transcript.events import (
    FactEvent,
    ResponseRestartedEvent,
    StreamEvent,
    TextDeltaEvent,
    TurnEndedEvent,
    TurnPausedEvent,
)
from turnwright_states.facts import Concluded, ModelReplied

if TYPE_CHECKING:
    from turnwright.journal.event_bus import EventQueue

    from .sync_loop import SyncLoop

    ClosableEvents: TypeAlias = AsyncGenerator[StreamEvent, None] | EventQueue

OutT = TypeVar("OutT")
#: One of them is the last event of a stream.
_LAST: Final = (TurnEndedEvent, TurnPausedEvent)


class TurnStream(AsyncIterator[StreamEvent], Generic[OutT_co]):
    """The events of a running turn, of `Engine.stream` or `Engine.stream_resume`. It is read once.

    Iterate over the stream for its events, or over `text()` for its text. After that, `result` is the turn's result.
    """

    def __init__(self, turn_id: str, events: "ClosableEvents") -> None:
        #: The turn's id.
        self.turn_id = turn_id
        self._events = events
        self._next_event = events.__anext__
        self._ends = False
        self._done = anyio.Event()
        self._result: TurnResult | None = None

    async def __anext__(self) -> StreamEvent:
        try:
            event = await self._next_event()
        except StopAsyncIteration:
            await self.wait_for_result()
            raise
        if type(event) in _LAST and is_last(event, self.turn_id):  # few events need the call
            self._ends = True
        return event

    def text(self) -> AsyncIterator[str]:
        """Yield the text of the turn's replies as it arrives, and at the end a text that no reply had.

        A reply that did not stream in is yielded whole. The text of a sub-agent is left out. A reply that is tried
        again begins again: to remove the earlier part, iterate over the events, and see `ResponseRestartedEvent`.
        """
        return _Texts(self)

    @property
    def result(self) -> TurnResult[OutT_co]:
        """The turn's result. Raises `ConfigError` before the events have ended, and if they were left early."""
        if self._result is None:
            raise ConfigError(
                f"the stream of turn {self.turn_id} has no result yet: read its events to the end, or call"
                " `await engine.get(turn_id)`"
            )
        return cast("TurnResult[OutT_co]", self._result)

    async def aclose(self) -> None:
        """Follow the turn no longer. It continues until the end of the block."""
        await self._events.aclose()

    async def drive(self, drive: Callable[[], Awaitable[TurnResult]]) -> None:
        """Drive the turn, and keep its result."""
        self._result = await drive()
        self._done.set()

    async def wait_for_result(self) -> None:
        """Wait for the result once the last event was read, at which the reader may stop."""
        if self._ends:
            await self._done.wait()


class SyncTurnStream(Iterator[StreamEvent], Generic[OutT_co]):
    """The events of a running turn, of `Engine.stream_sync` or `Engine.stream_resume_sync`: as `TurnStream`."""

    def __init__(self, stream: TurnStream[OutT_co], events: Iterator[StreamEvent]) -> None:
        #: The turn's id.
        self.turn_id = stream.turn_id
        self._stream = stream
        self._events = events

    def __next__(self) -> StreamEvent:
        event = next(self._events)
        if is_last(event, self.turn_id):
            for _ in self._events:  # until the result is there
                pass
        return event

    def text(self) -> Iterator[str]:
        """Yield the turn's text as it arrives. See `TurnStream.text`."""
        reply = _ReplyText(self.turn_id)
        for event in self:
            if text := reply.take(event):
                yield text

    @property
    def result(self) -> TurnResult[OutT_co]:
        """The turn's result. See `TurnStream.result`."""
        return self._stream.result


@asynccontextmanager
async def driven_stream(
    turn_id: str, events: "ClosableEvents", drive: Callable[[], Awaitable[TurnResult]]
) -> AsyncIterator[TurnStream]:
    """Drive a turn during the block. Once its last event was read, the end of the block waits for its result."""
    stream = TurnStream(turn_id, events)
    async with background_task(stream.drive, drive):
        yield stream
        await stream.wait_for_result()


@contextmanager
def iterated_stream(
    loop: "SyncLoop", block: Callable[[], AbstractAsyncContextManager[TurnStream[OutT]]], *, instead: str
) -> Iterator[SyncTurnStream[OutT]]:
    """Follow a turn in a program without an event loop. Raises what `SyncLoop.stream` raises."""
    streams: list[TurnStream[OutT]] = []

    @asynccontextmanager
    async def open_stream() -> AsyncIterator[TurnStream[OutT]]:
        async with block() as stream:
            streams.append(stream)
            yield stream

    with loop.stream(open_stream, instead=instead) as events:
        yield SyncTurnStream(streams[0], events)


def is_last(event: StreamEvent, turn_id: str) -> bool:
    """Whether the turn's stream ends with this event. Those of its sub-agents may end or pause before."""
    return event.turn == turn_id and isinstance(event, _LAST)


class _Texts(AsyncIterator[str]):
    """The text of a stream. An object, since a generator that is left early must be closed."""

    def __init__(self, stream: TurnStream) -> None:
        self._stream = stream
        self._reply = _ReplyText(stream.turn_id)

    async def __anext__(self) -> str:
        while not (text := self._reply.take(await anext(self._stream))):
            pass
        return text


class _ReplyText:
    """The text of one turn's replies. Each event adds a part of it, or nothing."""

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        #: The reply that streams in, until it is complete.
        self._streamed = ""
        #: The last text that was yielded whole, or had streamed in.
        self._last = ""

    def take(self, event: StreamEvent) -> str:
        """Return the text that this event adds."""
        if event.turn != self._turn_id:
            return ""
        match event:
            case TextDeltaEvent():
                self._streamed += event.text
                return event.text
            case ResponseRestartedEvent():
                self._streamed = ""
            case FactEvent(fact=ModelReplied(text=text) | Concluded(text=text)):
                return self._complete(text or "")
            case TurnEndedEvent():
                return self._complete(event.text)
            case _:
                pass
        return ""

    def _complete(self, text: str) -> str:
        """Return a complete text, unless it has streamed in or is the last one again."""
        is_repeated = text in (self._streamed, self._last)
        self._streamed, self._last = "", text or self._last
        return "" if is_repeated else text
