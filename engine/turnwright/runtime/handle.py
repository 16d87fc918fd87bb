"""A handle to one turn: its events, its result, and what can be sent to it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, Protocol, Unpack

from turnwright._base.blocks import AsyncValues
from turnwright.context import OutT_co
from turnwright.journal.answers import Answers, SignatureOptions
from turnwright.journal.result import TurnResult
from turnwright.transcript.events import StreamEvent


class Turns(Protocol):
    """The turns of an engine, as their handles need them. See `Engine`."""

    def events(
        self, turn_id: str, after: int = 0, *, wait: bool = False, subagents: bool = False
    ) -> AsyncIterator[StreamEvent]:
        """See `Engine.events`."""
        ...

    async def steer(self, turn_id: str, text: str) -> None:
        """See `Engine.steer`."""
        ...

    async def abort(self, turn_id: str) -> None:
        """See `Engine.abort`."""
        ...


class TurnHandle(Generic[OutT_co]):
    """A turn that was started or attached to, by `Engine.start` or `Engine.attach`.

    The engine drives the turn, not the handle: a dropped handle and a canceled `result()` stop nothing. The end of the
    engine or of the event loop releases the turn, which can be resumed. See docs/rules.md#handles.
    """

    __slots__ = ("_agent", "_answer", "_turns", "_wait", "id")

    def __init__(
        self,
        turns: Turns,
        turn_id: str,
        agent: str,
        wait: Callable[[], Awaitable[TurnResult[OutT_co]]],
        answer: Callable[..., Awaitable[None]],
    ) -> None:
        #: The turn's id.
        self.id = turn_id
        self._agent = agent
        self._turns = turns
        self._wait = wait
        self._answer = answer

    def __repr__(self) -> str:
        return f"TurnHandle(id={self.id!r}, agent={self._agent!r})"

    def events(self, after: int = 0, *, subagents: bool = False) -> AsyncIterator[StreamEvent]:
        """Yield the turn's events with a `seq` above `after`: from the journal, then live, until it ends or pauses.

        The live events are those since this call: text that streams in before the first event is requested is included.
        A pause that `answer` has answered does not end them. They end early if the driving fails; `result` then raises
        why. `subagents` is that of `Engine.events`. Raises `TurnNotFoundError`, at the call or with PostgreSQL when the
        first event is requested.
        """
        events = self._turns.events(self.id, after, subagents=subagents)
        return AsyncValues(aiter(events), "async for event in handle.events():")

    async def result(self) -> TurnResult[OutT_co]:
        """Wait until the turn ends or pauses, and return its result. How it ends is a value.

        If nobody drives the turn, the engine resumes it. Canceling the wait does not stop the turn. Raises
        `CannotRunError` if its tools, model, code or dependencies are missing, `StoreError`, `TurnNotFoundError`,
        `ConfigError` if the turn is another agent's, and `EngineClosedError` if the engine was closed, which released
        the turn.
        """
        return await self._wait()

    async def steer(self, text: str) -> None:
        """Send a message to the running turn. Takes and raises what `Engine.steer` does."""
        await self._turns.steer(self.id, text)

    async def answer(self, answers: Answers, **signature: Unpack[SignatureOptions]) -> None:
        """Answer the paused turn. The engine, or its runtime, drives it on: `result` waits for its next end or pause.

        All answers are written before this returns, or none is. Takes and raises what `Engine.answer` does.
        """
        await self._answer(answers, **signature)

    async def abort(self) -> None:
        """End the paused turn, or signal its driver. A turn that has ended stays as it is."""
        await self._turns.abort(self.id)
