"""Interruptions of a driver: an abort, and the turn's deadline.

Both cancel one scope around everything that the driver does. A scope for each action would cost a tenth of a step.
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import anyio

from turnwright.journal.turn_journal import TurnJournal
from turnwright.store import InboxItem, InboxKind
from turnwright.tools.context import AbortSignal
from turnwright_states import AbortInput, ExpireInput, Input, State, Usage
from turnwright_states.state import FINAL

from .dependencies import Dependencies


class UnfedWork(Protocol):
    """Work that may be interrupted."""

    def elapsed(self) -> float:
        """Return the seconds of driving so far."""
        ...

    @property
    def partial(self) -> str:
        """The received text of a reply that is not journaled yet."""
        ...

    @property
    def unfed(self) -> Usage | None:
        """The usage of such a reply, if it is complete."""
        ...


class Interruption:
    """Interrupts the driver of one turn, which does `work`: an abort, or the turn's deadline."""

    __slots__ = (
        "_abort",
        "_began_in",
        "_busy",
        "_journal",
        "_late",
        "_scope",
        "_setup",
        "_work",
        "aborting",
        "signal",
    )

    def __init__(self, journal: TurnJournal, setup: Dependencies, work: UnfedWork) -> None:
        self._journal = journal
        self._setup = setup
        self._work = work
        #: Set by an abort, for those whom it does not cancel at once.
        self.signal = AbortSignal()
        self._abort: InboxItem | None = None
        #: Whether an abort was received and is not fed yet.
        self.aborting = False
        self._scope: anyio.CancelScope | None = None
        #: The machine's state when the current or last action began.
        self._began_in: State | None = None
        self._busy = False
        #: Whether the turn's time was up before its first action here.
        self._late = False

    @property
    def consumed(self) -> tuple[str, ...]:
        """The id of the received abort's inbox item."""
        return () if self._abort is None else (self._abort.id,)

    def scope(self) -> anyio.CancelScope:
        """Return a new scope, to be entered at once: its block is interruptible. After an interruption, use another."""
        self._scope = anyio.CancelScope()
        return self._scope

    def begin(self, *, deadline: bool = True) -> Input | None:
        """Begin an action inside of `scope`: an abort interrupts it, and (with `deadline`) the end of the turn's time.

        Returns the input to feed if it was interrupted before it began; else call `end` after it. A later interruption
        ends the scope.
        """
        if self._abort is not None:
            return self._abortion()
        machine, scope = self._journal.machine, self._scope
        limit = machine.turn.limits.seconds
        if deadline and limit is not None and scope is not None:
            seconds_left = limit - self._work.elapsed()
            if seconds_left <= 0 or self._late:
                return self._expiry(limit)
            scope.deadline = anyio.current_time() + seconds_left
        self._began_in, self._busy, self._journal.waiting = machine.state, True, None
        return None

    def end(self) -> None:
        """End an action that has begun."""
        self._busy = False
        limit, scope = self._journal.machine.turn.limits.seconds, self._scope
        if scope is not None and (limit is not None or self._abort is not None):
            scope.deadline = math.inf

    async def until_interrupted(self, work: Callable[[], Awaitable[object]]) -> None:
        """Await `work` before the first action, until it is done, an abort comes, or the turn's time is up.

        It gets at least `cancel_grace` seconds, and all that it needs before a conclusion, which has no deadline.
        """
        if not self._journal.store.shared:  # whose turns nobody watches from here on
            self._journal.waiting = None
            await self.look()
        if self._abort is not None:
            return
        turn = self._journal.machine.turn
        with self.scope() as scope:
            if turn.limits.seconds is not None and turn.state is not State.CONCLUDE:
                seconds_left = turn.limits.seconds - self._work.elapsed()
                scope.deadline = anyio.current_time() + max(seconds_left, self._setup.cancel_grace)
            self._busy = True
            try:
                await work()
            finally:
                self._busy = False
        self._late = scope.cancelled_caught and self._abort is None

    def event(self) -> Input | None:
        """Return the input for an action that was interrupted. Raises the error of an append that failed meanwhile."""
        self._journal.need_written()
        machine = self._journal.machine
        if machine.state in FINAL:
            return None  # the last result was the answer: nothing is left to abort
        if self._abort is not None:
            return self._abortion()
        if machine.state is not self._began_in:
            return None  # the time was up during the last append: nothing is left to stop
        return self._expiry(machine.turn.limits.seconds or 0.0)

    def abort(self, request: InboxItem) -> None:
        """Interrupt the driver, as `request` in the turn's inbox asks. A second abort changes nothing."""
        if self._abort is not None:
            return
        self._abort, self.aborting = request, True
        self.signal.set()
        if not self._busy or self._scope is None:
            return
        if self._journal.machine.state is State.TOOL_EXEC:
            # A tool that is about to finish need not lose its result.
            ends = anyio.current_time() + self._setup.cancel_grace
            self._scope.deadline = min(self._scope.deadline, ends)
        else:
            self._scope.cancel()

    async def look(self) -> Sequence[InboxItem]:
        """Return the items in the inbox. An abort among them interrupts the driver."""
        items = await self._journal.inbox()
        for item in items:
            if item.kind is InboxKind.ABORT:
                self.abort(item)
        return items

    def _abortion(self) -> AbortInput:
        return AbortInput(elapsed=self._work.elapsed(), partial=self._work.partial, usage=self._work.unfed)

    def _expiry(self, limit: float) -> ExpireInput:
        # The clocks of the event loop and of the turn may differ slightly. The time is up in any case.
        elapsed = max(self._work.elapsed(), limit)
        return ExpireInput(elapsed=elapsed, partial=self._work.partial, usage=self._work.unfed)
