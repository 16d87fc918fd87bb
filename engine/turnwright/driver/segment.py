"""One stretch of driving: a claimed turn with its clock and its inbox, from taking it up to letting go."""

from collections.abc import Sequence
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
from turnwright.tools.batch_context import BatchContext, Delegate, Values, nobody_delegates
from turnwright.tools.tool import Tool
from turnwright.transcript.request_builder import Conversation
from turnwright_states import AbortInput, AnsweredInput, AnswerMismatchError, AwaitPerson, Call, Input, State

from .interruption import Interruption


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
        self.within: anyio.CancelScope | None = None
        stretch = journal.stretch
        self.model = (
            model
            if stretch is None
            else stretch.observed(
                model, setup.prices.get(model.name), lambda: self.within is not None and self.within.cancel_called
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
        self.delegate: Delegate = nobody_delegates
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

    async def _expire_interrupts(self) -> None:
        while isinstance(self.machine.action, AwaitPerson):
            now = self.setup.now()
            asked = self.machine.turn.interrupts.values()
            expired = next((i for i in asked if i.expires_at is not None and i.expires_at <= now), None)
            if expired is None:
                return
            decision, text = unanswered(expired.kind), "nobody answered in time"
            await self.feed(AnsweredInput(interrupt=expired.id, decision=decision, text=text, elapsed=self.elapsed()))
