"""One stretch of driving: a claimed turn with its clock, its inbox, and what may interrupt it.

An abort and the deadline of the turn cancel the one scope that is around all that the driver does, so that no action
needs a scope of its own: two for each step would cost a tenth of it.
"""

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import anyio

from turnwright.agent import Agent
from turnwright.events import ReasoningDeltaEvent, ResponseRestartedEvent, TextDeltaEvent, ToolProgressEvent
from turnwright.journal.answers import unanswered
from turnwright.journal.dependencies import Dependencies
from turnwright.journal.inbox import answered, steers
from turnwright.journal.turn_journal import TurnJournal
from turnwright.message import Message
from turnwright.model.protocol import Model, ReasoningDelta, TextDelta
from turnwright.result import TurnResult
from turnwright.store import InboxItem, InboxKind
from turnwright.tools.batch_context import BatchContext, Delegate, Values, refuse_subagent
from turnwright.tools.context import AbortSignal
from turnwright.tools.tool import Tool
from turnwright.transcript.request_builder import Conversation
from turnwright_states import (
    AbortInput,
    AnsweredInput,
    AnswerMismatchError,
    AwaitPerson,
    Call,
    ExpireInput,
    Input,
    State,
)
from turnwright_states.facts import InterruptRecord


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


class ReplyDraft:
    """The reply that is streaming in: what was heard of it so far."""

    __slots__ = ("pieces", "text")

    def __init__(self) -> None:
        self.text: list[str] = []
        self.pieces = 0


class Segment:
    """A turn that is being driven: its journal, and what driving needs beside it."""

    def __init__(
        self,
        setup: Dependencies,
        journal: TurnJournal,
        *,
        agent: Agent,
        model: Model,
        history: tuple[Message, ...],
    ) -> None:
        self.setup = setup
        self.journal = journal
        self.machine = journal.machine
        #: Bounds the attempt that is under way, if its action does.
        self.action_scope: anyio.CancelScope | None = None
        stretch = journal.stretch
        self.model = (
            model
            if stretch is None
            else stretch.observed(
                model,
                setup.prices.get(model.name),
                lambda: self.action_scope is not None and self.action_scope.cancel_called,
            )
        )
        self.tools: dict[str, Tool] = setup.tools_for(agent)
        self.conversation = Conversation(
            agent,
            history=history,
            transcript=journal.transcript,
            tools=[tool.spec for tool in self.tools.values()],
            mode=setup.unpaired,
            show_budget_to_model=setup.show_budget_to_model,
            turn_id=journal.turn_id,
        )
        #: Drives its sub-agents: set by whoever drives turns.
        self.delegate: Delegate = refuse_subagent
        #: Seconds to wait before the next attempt.
        self.wait = 0.0
        #: What the tools of the last reply's calls made of their arguments, in its order, until the calls run.
        self.checked: list[Values | None] = []
        self._draft = ReplyDraft()
        self._base = self.machine.turn.elapsed
        self._began = setup.clock()
        self.interruption = Interruption(journal, setup, elapsed=self.elapsed, partial=lambda: self.partial)
        self._around = BatchContext(
            turn=journal.turn_id,
            tools=setup.tools,
            grants=(),
            elapsed=self.elapsed,
            now=setup.now,
            stopping=lambda: self.interruption.aborting,
            abort=self.interruption.signal,
            progress=self._hear_of_call,
            execute=None if stretch is None else stretch.execute,
            grace=setup.cancel_grace,
        )

    def elapsed(self) -> float:
        """Seconds of driving since the turn began, over all its segments."""
        return self._base + self.setup.clock() - self._began

    def batch_context(self) -> BatchContext:
        """What the batch that is about to run needs to know."""
        around, turn = self._around, self.machine.turn
        around.grants, around.delegate = turn.grants, self.delegate
        # The batch has the calls of the last reply, in its order; one that was taken up from a journal was not checked.
        checked = zip(turn.batch, self.checked, strict=False)
        around.checked = {call: values for call, values in checked if values is not None}
        self.checked = []
        return around

    def result(self) -> TurnResult | None:
        """How the turn stands, with the messages that its inbox still had when it ended.

        None where its transcript is not the journal's: a turn that another model began is without its signatures.
        """
        if self.model.name != self.journal.started.model:
            return None
        result = self.journal.result()
        late = () if result.outcome is None else tuple(steers(self.journal.waiting or ()).values())
        return replace(result, undelivered=(*result.undelivered, *late)) if late else result

    async def feed(self, event: Input) -> None:
        """Feed the journal. An abort takes its inbox item along."""
        await self.journal.feed(event, consumed=self.interruption.consumed if type(event) is AbortInput else ())

    # The reply that streams in.

    @property
    def partial(self) -> str:
        """What was heard of a reply that is not journalled yet."""
        return "".join(self._draft.text)

    def hear(self, delta: TextDelta | ReasoningDelta) -> None:
        """Take a piece of the reply in, and pass it on to the listeners."""
        draft, journal = self._draft, self.journal
        if isinstance(delta, TextDelta):
            draft.text.append(delta.text)
        if journal.heard:
            piece = TextDeltaEvent if isinstance(delta, TextDelta) else ReasoningDeltaEvent
            journal.publish(piece(turn=journal.turn_id, seq=journal.claim.seq, index=draft.pieces, text=delta.text))
        draft.pieces += 1

    def heard(self) -> None:
        """The reply is whole: what was heard of it is no longer only a draft."""
        self._draft = ReplyDraft()

    def restart(self) -> None:
        """Begin a reply. Listeners that heard pieces of one that failed are told to drop them."""
        if self._draft.pieces:
            self.journal.publish(ResponseRestartedEvent(turn=self.journal.turn_id, seq=self.journal.claim.seq))
            self._draft = ReplyDraft()

    def _hear_of_call(self, call: Call, progress: float, total: float | None, message: str) -> None:
        """Pass on to the listeners how far a call is."""
        journal = self.journal
        if journal.heard:
            journal.publish(
                ToolProgressEvent(
                    turn=journal.turn_id,
                    seq=journal.claim.seq,
                    call=call.id,
                    tool=call.name,
                    progress=progress,
                    total=total,
                    message=message,
                )
            )

    # What waits in its inbox.

    async def take_in(self) -> Input | None:
        """What waits in the inbox for a turn at rest, or between two actions.

        Answers are fed here, and so are messages before a step's model call; an abort, found here or by the watch, is
        returned to be fed.
        """
        items = self.journal.waiting
        if items is None or items:  # the last append told that nothing waits, as a rule
            items = await self.interruption.look()
        if self.interruption.aborting:
            return self.interruption.event()
        if self.machine.state is State.PAUSED:
            for item in items:
                if item.kind is InboxKind.ANSWER and isinstance(self.machine.action, AwaitPerson):
                    await self._answer(item)
            if self._expired() is not None:
                # An answer that was accepted in time stands, also one that came after the claim.
                self.journal.waiting = None
                for item in await self.interruption.look():
                    if item.kind is InboxKind.ANSWER and isinstance(self.machine.action, AwaitPerson):
                        await self._answer(item)
            await self._expire_interrupts()
            items = await self.interruption.look()
        if items and self.machine.state is State.STREAM and not self.wait:
            await self._hear(items)
        return None

    async def hear_messages(self) -> None:
        """Take in what people said while the next attempt was waited for."""
        await self._hear(await self.journal.store.inbox(self.journal.turn_id))

    async def _hear(self, items: Sequence[InboxItem]) -> None:
        await self.journal.take_in(items, self.elapsed())

    async def _answer(self, item: InboxItem) -> None:
        event = answered(item, self.elapsed())
        try:
            if event is not None:
                return await self.journal.feed(event, consumed=(item.id,))
        except AnswerMismatchError:
            # It fitted when it was posted; since then somebody else answered, or the interrupt expired.
            pass
        await self.journal.drop(item.id)
        return None

    def _expired(self) -> InterruptRecord | None:
        if not isinstance(self.machine.action, AwaitPerson):
            return None
        now, asked = self.setup.now(), self.machine.turn.interrupts.values()
        return next((one for one in asked if one.expires_at is not None and one.expires_at <= now), None)

    async def _expire_interrupts(self) -> None:
        while (expired := self._expired()) is not None:
            decision, text = unanswered(expired.kind), "nobody answered in time"
            await self.feed(AnsweredInput(interrupt=expired.id, decision=decision, text=text, elapsed=self.elapsed()))
