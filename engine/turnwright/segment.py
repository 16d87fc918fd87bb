"""One stretch of driving: a claimed turn with its clock and its inbox, from taking it up to letting go."""

import math
from collections.abc import Awaitable, Callable, Sequence

import anyio

from turnwright_states import (
    Abort,
    Answered,
    AwaitPerson,
    BadAnswer,
    Call,
    Event,
    Expire,
    State,
)

from .agent import Agent
from .answers import unanswered
from .events import ReasoningPiece, ReplyRestarted, TextPiece, ToolProgress
from .inbox import answered
from .ledger import Ledger
from .message import Message
from .model.protocol import Model, ReasoningDelta, TextDelta
from .setup import Setup
from .store import InboxItem, InboxKind
from .tools.batch import Delegate, Surroundings, nobody_delegates
from .tools.context import AbortSignal
from .tools.tool import Tool


class Draft:
    """The reply that is streaming in: what was heard of it so far."""

    __slots__ = ("pieces", "text")

    def __init__(self) -> None:
        self.text: list[str] = []
        self.pieces = 0


class Segment:
    """A turn that is being driven: its ledger, and what driving needs beside it."""

    def __init__(
        self,
        setup: Setup,
        ledger: Ledger,
        *,
        agent: Agent,
        model: Model,
        history: tuple[Message, ...],
    ) -> None:
        self.setup = setup
        self.ledger = ledger
        self.machine = ledger.machine
        self.agent = agent
        self.model = model
        self.tools: dict[str, Tool] = setup.tools_for(agent)
        self.history = history
        #: Drives its sub-agents: set by whoever drives turns.
        self.delegate: Delegate = nobody_delegates
        #: Seconds to wait before the next attempt.
        self.wait = 0.0
        self._draft = Draft()
        self._base = self.machine.turn.elapsed
        self._began = setup.clock()
        self._poked = anyio.Event()
        self._abort: InboxItem | None = None
        #: Set when an abort was taken in: for those who are not cancelled by it at once.
        self.stopped = AbortSignal()
        #: What the driver does now, and an event that is set when it is done.
        self._scope: anyio.CancelScope | None = None
        self._idle = anyio.Event()

    def elapsed(self) -> float:
        """Seconds of driving since the turn began, over all its segments."""
        return self._base + self.setup.clock() - self._began

    def surroundings(self) -> Surroundings:
        """What a batch of this turn needs to know."""
        return Surroundings(
            turn=self.ledger.turn_id,
            tools=self.setup.tools,
            grants=self.machine.turn.grants,
            elapsed=self.elapsed,
            delegate=self.delegate,
            now=self.setup.now,
            stopping=lambda: self.aborting,
            abort=self.stopped,
            progress=self._hear_of_call,
        )

    async def feed(self, event: Event) -> None:
        """Feed the ledger. An abort takes its inbox item along."""
        consumed = (self._abort.id,) if self._abort is not None and isinstance(event, Abort) else ()
        await self.ledger.feed(event, consumed)

    # The reply that streams in.

    @property
    def partial(self) -> str:
        """What was heard of a reply that is not journalled yet."""
        return "".join(self._draft.text)

    def hear(self, delta: TextDelta | ReasoningDelta) -> None:
        """Take a piece of the reply in, and pass it on to the listeners."""
        draft, ledger = self._draft, self.ledger
        if isinstance(delta, TextDelta):
            draft.text.append(delta.text)
        if ledger.publish is not None:
            piece = TextPiece if isinstance(delta, TextDelta) else ReasoningPiece
            ledger.publish(piece(turn=ledger.turn_id, seq=ledger.claim.seq, index=draft.pieces, text=delta.text))
        draft.pieces += 1

    def heard(self) -> None:
        """The reply is whole: what was heard of it is no longer only a draft."""
        self._draft = Draft()

    def restart(self) -> None:
        """Begin a reply. Listeners that heard pieces of one that failed are told to drop them."""
        ledger = self.ledger
        if self._draft.pieces and ledger.publish is not None:
            ledger.publish(ReplyRestarted(turn=ledger.turn_id, seq=ledger.claim.seq))
        self._draft = Draft()

    def _hear_of_call(self, call: Call, progress: float, total: float | None, message: str) -> None:
        """Pass on to the listeners how far a call is."""
        ledger = self.ledger
        if ledger.publish is not None:
            ledger.publish(
                ToolProgress(
                    turn=ledger.turn_id,
                    seq=ledger.claim.seq,
                    call=call.id,
                    tool=call.name,
                    progress=progress,
                    total=total,
                    message=message,
                )
            )

    # What may interrupt it.

    @property
    def aborting(self) -> bool:
        """Whether an abort was taken in that is not fed yet."""
        return self._abort is not None

    async def bounded(self, work: Callable[[], Awaitable[Event | None]], *, deadline: bool = True) -> Event | None:
        """Do I/O until it is done, somebody aborts, or (with `deadline`) the turn's time is up.

        Returns what `work` returned, or else the `Abort` or `Expire` to feed.
        """
        if self._abort is not None:
            return self._abortion()
        state, limit = self.machine.state, self.machine.turn.limits.seconds if deadline else None
        if limit is not None and self.elapsed() >= limit:
            return Expire(elapsed=self.elapsed(), partial=self.partial)
        ends = math.inf if limit is None else anyio.current_time() + limit - self.elapsed()
        self._idle = anyio.Event()
        try:
            with anyio.CancelScope(deadline=ends) as self._scope:
                return await work()
        finally:
            self._scope = None
            self._idle.set()
        if self.aborting:
            return self._abortion()
        if self.machine.state is not state:
            return None  # its last append was under way when the time was up: there is nothing left to stop
        # The clocks of the loop and of the turn may differ by a hair; the time is up all the same.
        return Expire(elapsed=max(self.elapsed(), limit or 0.0), partial=self.partial)

    def poke(self) -> None:
        """Look at the inbox now. For a writer in this process."""
        self._poked.set()

    async def watch(self) -> None:
        """Look for an abort whenever somebody pokes, and now and then if other processes may write to the inbox."""
        every = self.setup.poll if self.ledger.store.shared else math.inf
        while not await self._look_in_peace():
            with anyio.move_on_after(every):
                await self._poked.wait()
            self._poked = anyio.Event()
        self.stopped.set()
        if self.machine.state is State.TOOL_EXEC:
            # A tool that is about to finish need not lose its result.
            with anyio.move_on_after(self.setup.grace):
                await self._idle.wait()
        if self._scope is not None:
            self._scope.cancel()

    async def _look_in_peace(self) -> bool:
        # The watch ends with the segment, often in the middle of a look; a query that is cut off costs its connection.
        with anyio.CancelScope(shield=True):
            await self.look_for_abort()
        return self.aborting

    async def look_for_abort(self) -> bool:
        """Whether somebody wants the turn to stop."""
        if self._abort is None:
            await self._look()
        return self.aborting

    async def _look(self) -> Sequence[InboxItem]:
        items = await self.ledger.store.inbox(self.ledger.turn_id)
        self._abort = self._abort or next((item for item in items if item.kind is InboxKind.ABORT), None)
        return items

    async def take_in(self) -> Event | None:
        """What waits in the inbox for a turn at rest, or between two actions.

        Answers are fed here; an abort, found here or by the watch, is returned to be fed.
        """
        items = await self._look()
        if self.aborting:
            return self._abortion()
        if isinstance(self.machine.action, AwaitPerson):
            for item in items:
                if item.kind is InboxKind.ANSWER and isinstance(self.machine.action, AwaitPerson):
                    await self._answer(item)
            await self._expire_interrupts()
        return None

    async def hear_messages(self) -> None:
        """Take in the messages to the turn, right before a model call that may use tools."""
        await self.ledger.take_in(await self.ledger.store.inbox(self.ledger.turn_id), self.elapsed())

    def _abortion(self) -> Abort:
        return Abort(elapsed=self.elapsed(), partial=self.partial)

    async def _answer(self, item: InboxItem) -> None:
        event = answered(item, self.elapsed())
        try:
            if event is not None:
                return await self.ledger.feed(event, (item.id,))
        except BadAnswer:
            # It fitted when it was posted; since then somebody else answered, or the interrupt expired.
            pass
        await self.ledger.drop(item.id)
        return None

    async def _expire_interrupts(self) -> None:
        while isinstance(self.machine.action, AwaitPerson):
            now = self.setup.now()
            asked = self.machine.turn.interrupts.values()
            expired = next((i for i in asked if i.expires_at is not None and i.expires_at <= now), None)
            if expired is None:
                return
            decision, text = unanswered(expired.kind), "nobody answered in time"
            await self.feed(Answered(interrupt=expired.id, decision=decision, text=text, elapsed=self.elapsed()))
