"""What may interrupt a driver in the middle of an action: somebody's abort, and the deadline of the turn.

Either cancels the one scope that is around all that the driver does, so that no action needs a scope of its own: two
for each step would cost a tenth of it.
"""

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

import anyio

from turnwright.journal.dependencies import Dependencies
from turnwright.journal.turn_journal import TurnJournal
from turnwright.store import InboxItem, InboxKind
from turnwright.tools.context import AbortSignal
from turnwright_states import AbortInput, ExpireInput, Input, State


class Interruption:
    """The ways in which the driver of one turn is interrupted.

    `elapsed` gives the seconds of driving so far, `partial` what was heard of a reply that is not journalled yet.
    """

    def __init__(
        self, journal: TurnJournal, setup: Dependencies, *, elapsed: Callable[[], float], partial: Callable[[], str]
    ) -> None:
        self._journal = journal
        self._setup = setup
        self._elapsed = elapsed
        self._partial = partial
        #: Set when an abort was taken in: for those who are not cancelled by it at once.
        self.signal = AbortSignal()
        self._abort: InboxItem | None = None
        self._scope: anyio.CancelScope | None = None
        #: Where the machine stood when the action began that is being done, or was done last.
        self._began: State | None = None
        self._busy = False

    @property
    def aborting(self) -> bool:
        """Whether an abort was taken in that is not fed yet."""
        return self._abort is not None

    @property
    def consumed(self) -> tuple[str, ...]:
        """The inbox item of the abort that was taken in."""
        return () if self._abort is None else (self._abort.id,)

    @contextmanager
    def scope(self) -> "Iterator[anyio.CancelScope]":
        """Let a block be interrupted while it does something. One that was has to begin anew, in a new scope."""
        with anyio.CancelScope() as self._scope:
            yield self._scope

    async def during(self, work: Callable[[], Awaitable[Input | None]], *, deadline: bool = True) -> Input | None:
        """Do I/O, inside of `scope`, until it is done, somebody aborts, or (with `deadline`) the turn's time is up.

        Returns what `work` returned, or what to feed instead if it was interrupted before it began. If it is
        interrupted later, the scope ends with it.
        """
        if self._abort is not None:
            return self._abortion()
        state, limit, scope = self._journal.machine.state, None, self._scope
        if deadline and (limit := self._journal.machine.turn.limits.seconds) is not None and scope is not None:
            left = limit - self._elapsed()
            if left <= 0:
                return self._expiry(limit)
            scope.deadline = anyio.current_time() + left
        self._began, self._busy, self._journal.waiting = state, True, None
        try:
            return await work()
        finally:
            self._busy = False
            if scope is not None and (limit is not None or self._abort is not None):
                scope.deadline = math.inf

    def event(self) -> Input | None:
        """What to feed for an action that was interrupted."""
        if self._abort is not None:
            return self._abortion()
        machine = self._journal.machine
        if machine.state is not self._began:
            return None  # its last append was under way when the time was up: there is nothing left to stop
        return self._expiry(machine.turn.limits.seconds or 0.0)

    def abort(self, request: InboxItem) -> None:
        """Stop what the driver does: `request`, which waits in the turn's inbox, asks for it.

        Nothing happens if an abort was taken in before.
        """
        if self._abort is not None:
            return
        self._abort = request
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
        """What waits in the inbox. An abort that is among it is taken in."""
        items = await self._journal.inbox()
        for item in items:
            if item.kind is InboxKind.ABORT:
                self.abort(item)
        return items

    def _abortion(self) -> AbortInput:
        return AbortInput(elapsed=self._elapsed(), partial=self._partial())

    def _expiry(self, limit: float) -> ExpireInput:
        # The clocks of the loop and of the turn may differ by a hair; the time is up all the same.
        return ExpireInput(elapsed=max(self._elapsed(), limit), partial=self._partial())
