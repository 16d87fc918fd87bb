"""The turns of an engine's store, for which no agent and no dependencies are needed."""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Never, Self, TypeVar, Unpack, overload

from turnwright._base.blocks import AsyncValues
from turnwright._base.ids import new_id
from turnwright.agent import Agent
from turnwright.events import StreamEvent
from turnwright.journal.message_history import session_messages
from turnwright.message import Message
from turnwright.result import TurnResult
from turnwright.store import SessionInfo, Store, TurnRow
from turnwright.store.sessions import checked_title

from .engine_turns import EngineTurns
from .opened_models import OpenedModels

if TYPE_CHECKING:
    from turnwright.journal.fork_changes import ForkChanges
    from turnwright_states.replay import FactGroup


OutT = TypeVar("OutT")


class StoredTurns:
    """The turns of an engine's store: listed, read, followed, steered, aborted, forked, deleted, and closed."""

    def __init__(self, store: Store, turns: EngineTurns, models: OpenedModels) -> None:
        self.store = store
        self._turns = turns
        self._models = models

    async def steer(self, turn_id: str, text: str) -> None:
        """Send a message to a running turn. The turn receives it before its next model call that may use tools.

        A turn that ends before that returns it as `undelivered`; a paused turn keeps it. The message resets the
        doom-loop detector, and refills no limit. Any process may steer. Raises `TurnNotFoundError`,
        `TurnAlreadyEndedError`, and `ConfigError` for a blank message. See docs/rules.md#messages.
        """
        await self._turns.steer(turn_id, text)

    async def abort(self, turn_id: str) -> None:
        """End a paused turn, or signal the driver of a running one. A turn that has ended stays as it is.

        Raises `TurnNotFoundError`.
        """
        await self._turns.abort(turn_id)

    def events(
        self, turn_id: str, after: int = 0, *, wait: bool = False, subagents: bool = False
    ) -> AsyncIterator[StreamEvent]:
        """Yield the events of a turn with a `seq` above `after`: from the journal, then live until it ends or pauses.

        Any process may drive the turn. With `wait`, or with a runtime, a turn without a driver is awaited, with a
        warning after some seconds. With `subagents`, the events of its sub-agents' turns are included, each with its
        own `turn` and `seq`: those of a call that is open at `after`, from the beginning of its turn. Raises
        `TurnNotFoundError` at the call, or with PostgreSQL when the first event is requested.
        """
        events = self._turns.events(turn_id, after, wait=wait, subagents=subagents)
        return AsyncValues(events, "async for event in engine.events(...):")

    @overload
    async def get(self, turn_id: str) -> TurnResult: ...
    @overload
    async def get(self, turn_id: str, *, agent: Agent[Never, OutT]) -> TurnResult[OutT]: ...
    async def get(self, turn_id: str, *, agent: Agent[Never, object] | None = None) -> TurnResult:
        """Return a turn's current result. Its `output` has the type of the engine's agent of that name.

        An answer that no longer fits the type is returned as JSON, with a warning. With `agent` the result has the type
        of this agent, and `ConfigError` is raised for an answer that does not fit, or another agent's turn. Raises
        `TurnNotFoundError`.
        """
        return await self._turns.get(turn_id, agent)

    async def turns(
        self,
        *,
        session: str | None = None,
        live: bool | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[TurnRow]:
        """Return the turns of the store, the newest first, including those of sub-agents.

        `session` selects one session, `live` unfinished turns (True) or ended ones (False). At most `limit` are
        returned, with a `number` below `before`: pass the last one's for the next page. `get` returns the details of
        one.
        """
        return await self._turns.store.turns(session=session, live=live, limit=limit, before=before)

    async def recover(self) -> list[TurnResult]:
        """Resume every turn whose driver is gone and that does not wait for a person, and drive each to its end.

        Paused turns are included if they were answered or an interrupt has expired. A turn that cannot run here is left
        alone with a warning: its tools, model, code or dependencies are missing. `max_parallel_tools` turns run at
        once.
        """
        return await self._turns.recover()

    async def fork(self, turn_id: str, *, at: int, **changes: "Unpack[ForkChanges]") -> str:
        """Copy the first `at` facts of a turn into a new turn, and return its id. `resume` drives it on from there.

        `changes` are what the fork has otherwise: `prompt`, `instructions`, `model`, `model_settings`, `limits` and
        `results`. Unlike a replay, a fork executes: actions of the original may be repeated. The original is not
        changed. `recover` and workers resume an unfinished fork too. Raises what `fork_turn` raises: `ConfigError` for
        an `at` that is not the end of an input, naming the nearest ones, and for changes that are not possible.
        """
        from turnwright.journal.fork import fork_turn  # noqa: PLC0415 (imports the replay, which no turn needs)

        return await fork_turn(self._turns.store, turn_id, at, new_id=f"fork-{new_id()}", changes=changes)

    async def fork_places(self, turn_id: str) -> "tuple[FactGroup, ...]":
        """Return the inputs after which `fork` can copy a turn, oldest first: the `last` of each is an `at`.

        The one that ended the turn is left out. Raises `TurnNotFoundError`, and `ConfigError` for an invalid journal.
        """
        from turnwright.journal.fork import fork_places  # noqa: PLC0415 (as above)

        return fork_places(turn_id, await self._turns.store.facts(turn_id))

    async def delete(self, turn_id: str) -> int:
        """Delete a turn and its sub-agents' turns. Returns how many were deleted.

        Its messages are then missing from its session, and from a turn that continues it. Raises `TurnNotFoundError`,
        `TurnBusyError` while it is driven, and `ConfigError` for a sub-agent's turn whose root turn has not ended.
        """
        from turnwright.journal.upkeep import delete_turn  # noqa: PLC0415 (most programs delete nothing)

        with self._turns.deleting() as store:
            return await delete_turn(store, turn_id)

    async def prune(self, *, older_than: float) -> int:
        """Delete turns that ended more than `older_than` seconds ago, and their sub-agents'. Returns how many."""
        from turnwright.journal.upkeep import prune_turns  # noqa: PLC0415 (as above)

        with self._turns.deleting() as store:
            return await prune_turns(store, older_than)

    async def sessions(self, *, limit: int = 50, before: int | None = None) -> list[SessionInfo]:
        """Return sessions, those with the newest turns first.

        At most `limit` are returned, with a `number` below `before`: pass the last one's for the next page.
        """
        return await self._turns.store.sessions(limit=limit, before=before)

    async def messages(self, session: str) -> list[Message]:
        """Return the whole conversation of a session, oldest message first, with what its first turn continues.

        The open turn is included as far as it is. Raises `SessionNotFoundError`, and `UnreadableTurnError` if one of
        its turns cannot be read.
        """
        return await session_messages(self._turns.store, session)

    async def set_title(self, session: str, title: str) -> None:
        """Set the title of a session. Its first title is the beginning of its first prompt.

        The title is stored on one line. Raises `SessionNotFoundError`, and `ConfigError` for a blank title, or one of
        more than 200 characters.
        """
        await self._turns.store.set_title(session, checked_title(title))

    async def delete_session(self, session: str) -> int:
        """Delete all turns of a session and their sub-agents' turns. Returns how many were deleted.

        Raises `SessionNotFoundError`, and `TurnBusyError` while one of them is driven; then nothing was deleted.
        """
        with self._turns.deleting() as store:
            return await store.delete_session(session)

    async def aclose(self) -> None:
        """Close the store, and the connections of each model that has an `aclose`.

        Turns of `start` are released and can be resumed. Other turns that are being driven lose their store: end them
        before.
        """
        await self._turns.aclose()
        await self._models.aclose()
        await self.store.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
