"""The turns of an engine, for programs without an event loop."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Never, Self, TypeVar, Unpack, cast, overload

from turnwright._base.blocks import Block
from turnwright.agent import Agent
from turnwright.context import NOT_GIVEN, DepsT, NotGiven
from turnwright.driver.admission import TurnOptions
from turnwright.errors import ConfigError
from turnwright.journal.answers import Answers
from turnwright.result import TurnResult
from turnwright.tools.loop_handle import in_event_loop

from .stored_turns import StoredTurns

if TYPE_CHECKING:
    from .sync_loop import SyncLoop
    from .turn_stream import SyncTurnStream, TurnStream

OutT = TypeVar("OutT")


class SyncTurns(StoredTurns, Generic[DepsT]):
    """The methods that drive turns without an event loop: each does what the method without `_sync` does.

    An engine that was used in this way can then be used in this way only. Ctrl-C releases the turn, which can be
    resumed, and raises `KeyboardInterrupt`. All raise `ConfigError` in an event loop, and while another thread uses the
    engine. See docs/rules.md#without-an-event-loop.
    """

    _sync_loop: "SyncLoop | None" = None

    @property
    def _sync(self) -> "SyncLoop":
        """The event loop of a program that has none."""
        if self._sync_loop is None:
            from .sync_loop import SyncLoop  # noqa: PLC0415 (most programs have an event loop)

            self._sync_loop = SyncLoop()
        return self._sync_loop

    def run_sync(
        self,
        agent: Agent[DepsT, OutT],
        prompt: str,
        *,
        deps: DepsT | NotGiven = NOT_GIVEN,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[OutT]:
        """Do what `run` does, in a program without an event loop. The engine can then be used in this way only.

        Ctrl-C releases the turn, which can be resumed, and raises `KeyboardInterrupt`. Raises `ConfigError` in an event
        loop, and while another thread uses the engine. See docs/rules.md#without-an-event-loop.
        """
        run = partial(self._turns.run, agent, prompt, options, deps)
        return cast("TurnResult[OutT]", self._sync.run(run, instead="`await engine.run(...)`"))

    def stream_sync(
        self,
        agent: Agent[DepsT, OutT],
        prompt: str,
        *,
        deps: DepsT | NotGiven = NOT_GIVEN,
        subagents: bool = False,
        **options: Unpack[TurnOptions],
    ) -> "AbstractContextManager[SyncTurnStream[OutT]]":
        """Do what `stream` does, in a program without an event loop: `with engine.stream_sync(...) as events: ...`.

        The turn runs only while the next event is awaited. Leaving the block early, or Ctrl-C, releases the turn, which
        can be resumed. Raises what `run_sync` does.
        """
        opened = partial(self._turns.stream, agent, prompt, options, deps, subagents=subagents)
        block = Block(
            self._streamed(opened, instead="`async with engine.stream(...)`"),
            "with engine.stream_sync(...) as events:` and in it `for event in events:",
        )
        return cast("AbstractContextManager[SyncTurnStream[OutT]]", block)

    @contextmanager
    def _streamed(
        self, opened: Callable[[], AbstractAsyncContextManager["TurnStream"]], *, instead: str
    ) -> "Iterator[SyncTurnStream]":
        from .turn_stream import SyncTurnStream  # noqa: PLC0415 (most programs have an event loop)

        streams: list[TurnStream] = []

        @asynccontextmanager
        async def keep() -> "AsyncIterator[TurnStream]":
            async with opened() as stream:
                streams.append(stream)
                yield stream

        with self._sync.stream(keep, instead=instead) as events:
            yield SyncTurnStream(streams[0], events)

    @overload
    def resume_sync(
        self, turn_id: str, answers: Answers | None = None, *, deps: DepsT | NotGiven = NOT_GIVEN
    ) -> TurnResult: ...
    @overload
    def resume_sync(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        agent: Agent[DepsT, OutT],
        deps: DepsT | NotGiven = NOT_GIVEN,
    ) -> TurnResult[OutT]: ...
    def resume_sync(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        agent: Agent[DepsT, object] | None = None,
        deps: DepsT | NotGiven = NOT_GIVEN,
    ) -> TurnResult:
        """Do what `resume` does, in a program without an event loop. Raises what `resume` and `run_sync` do."""
        resume = partial(self._turns.resume, turn_id, answers, agent, deps)
        return self._sync.run(resume, instead="`await engine.resume(...)`")

    @overload
    def stream_resume_sync(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        deps: DepsT | NotGiven = NOT_GIVEN,
        subagents: bool = False,
    ) -> "AbstractContextManager[SyncTurnStream]": ...
    @overload
    def stream_resume_sync(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        agent: Agent[DepsT, OutT],
        deps: DepsT | NotGiven = NOT_GIVEN,
        subagents: bool = False,
    ) -> "AbstractContextManager[SyncTurnStream[OutT]]": ...
    def stream_resume_sync(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        agent: Agent[DepsT, object] | None = None,
        deps: DepsT | NotGiven = NOT_GIVEN,
        subagents: bool = False,
    ) -> "AbstractContextManager[SyncTurnStream]":
        """Do what `stream_resume` does, as `stream_sync` does what `stream` does. Raises what both raise."""
        opened = partial(self._turns.stream_resume, turn_id, answers, agent, deps, subagents=subagents)
        return Block(
            self._streamed(opened, instead="`async with engine.stream_resume(...)`"),
            "with engine.stream_resume_sync(...) as events:` and in it `for event in events:",
        )

    def answer_sync(self, turn_id: str, answers: Answers) -> None:
        """Do what `answer` does, in a program without an event loop. Raises what `answer` and `run_sync` do."""
        self._sync.run(partial(self._turns.answer, turn_id, answers), instead="`await engine.answer(...)`")

    @overload
    def get_sync(self, turn_id: str) -> TurnResult: ...
    @overload
    def get_sync(self, turn_id: str, *, agent: Agent[Never, OutT]) -> TurnResult[OutT]: ...
    def get_sync(self, turn_id: str, *, agent: Agent[Never, object] | None = None) -> TurnResult:
        """Do what `get` does, in a program without an event loop. Raises what `get` and `run_sync` do."""
        return self._sync.run(partial(self._turns.get, turn_id, agent), instead="`await engine.get(...)`")

    def recover_sync(self) -> list[TurnResult]:
        """Do what `recover` does, in a program without an event loop. Raises what `run_sync` does."""
        return self._sync.run(self._turns.recover, instead="`await engine.recover()`")

    def close(self) -> None:
        """Do what `aclose` does, in a program without an event loop. Raises `ConfigError` in an event loop."""
        self._sync.run(self.aclose, instead="`await engine.aclose()`")
        self._sync.close()

    def __enter__(self) -> Self:
        """Raise `ConfigError` in an event loop, where the end of the block could not close the engine."""
        if in_event_loop():
            raise ConfigError(
                "an event loop runs here (as in Jupyter): write `async with Engine(...) as engine:` and"
                " `await engine.run(...)`"
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
