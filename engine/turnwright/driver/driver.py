"""The loop that drives a turn: ask the machine for an action, perform it, feed the result back."""

import logging
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel
from msgspec import structs
from pydantic import ValidationError

from turnwright._base.background_task import NO_CONTEXT, background_task
from turnwright.agent import Agent
from turnwright.context import NOT_GIVEN
from turnwright.errors import (
    CannotRunError,
    ConfigError,
    HookFailedError,
    LeaseLostError,
    StoreError,
    StoreReplacedError,
    TurnBusyError,
    UnreadableTurnError,
)
from turnwright.journal.inbox import AbortPoller, has_request
from turnwright.journal.result import TurnResult
from turnwright.journal.session_histories import SessionHistories
from turnwright.journal.termination import end_children, end_claimed
from turnwright.journal.turn_journal import JournalFold, Listeners, TurnJournal, unsigned
from turnwright.message import Message
from turnwright.store import NONE_ABANDONED, AbandonedDrivers, Claim, InboxItem, InboxKind, Store
from turnwright.tools.batch_context import Delegate
from turnwright.tools.errors import describe
from turnwright.tools.loop_handle import THREADS
from turnwright.transcript.history import NO_HISTORY
from turnwright.transcript.pairing import UnpairedError, check_pairing, repair_pairs
from turnwright.transcript.transcript import Transcript, going_on
from turnwright_states import (
    AbortInput,
    Action,
    AwaitPerson,
    Call,
    CallSettledInput,
    CallWaitingInput,
    CompactHistory,
    Conclude,
    ExpireInput,
    FailInput,
    Halt,
    Input,
    TrippedInput,
)
from turnwright_states.state import FINAL, State

from .actions import account_for_crash, perform, refuse_compaction
from .admission import NewTurnClaim
from .dependencies import NOTHING_SUPPLIED, Dependencies, Supplied
from .participants import Participants
from .review import Review, TripError
from .segment import Segment
from .subagents import AgentTool, SubagentCalls

#: Inputs that close the open calls.
_STOPS: Final = frozenset[type[Input]]((AbortInput, ExpireInput, FailInput, TrippedInput))

_LOG = logging.getLogger(__name__)


class Driver:
    """Drives turns of one store with one set of dependencies. `listeners` receive events of followed turns."""

    def __init__(self, store: Store, setup: Dependencies, listeners: Listeners | None = None) -> None:
        self._store = store
        self._setup = setup
        self._listeners = listeners
        self._histories = SessionHistories(store)
        #: The turns that this process drives, by id.
        self.segments: dict[str, Segment] = {}
        self._watch = AbortPoller(store, setup.poll_interval, self.abort)

    async def drive(
        self,
        turn_id: str,
        new_turn: NewTurnClaim | None = None,
        *,
        claim: Claim | None = None,
        abandoned_drivers: AbandonedDrivers = NONE_ABANDONED,
        on_claim: Callable[[int], None] | None = None,
        on_open: Callable[[], None] | None = None,
        fold: JournalFold | None = None,
        supplies: Supplied = NOTHING_SUPPLIED,
    ) -> TurnResult | None:
        """Drive a turn until it ends or pauses. Returns at once if it already has.

        `new_turn` was just written, and `claim` is the claim of another turn. Without them the turn is
        claimed here, also from living drivers in `abandoned`. Only the part of its journal that is not in `fold` is
        read. `on_claim` is called with the epoch of each claim that is made here, and `on_open` each time that the turn
        was found to have what it needs here, but for dependencies.

        Returns the turn's result at its release, or None where only the journal has it. How the turn ends is never an
        exception. If the task is canceled, the turn is released and can be resumed. Raises `TurnNotFoundError`,
        `TurnBusyError`, `LeaseLostError`, `StoreError`, and `CannotRunError` if the turn's tools, model or dependencies
        are missing.
        """
        if new_turn is not None:
            claim = new_turn.claim
        elif claim is None:
            if (await self._store.get(turn_id)).status.outcome is not None:
                return None  # nothing is left to do, so neither its tools nor its model are needed
            claim = await self._store.claim(turn_id, abandoned=abandoned_drivers)
        claim.abandoned = abandoned_drivers
        if on_claim is not None:
            on_claim(claim.epoch)
        if new_turn is None and any(item.kind is InboxKind.ABORT for item in claim.waiting):
            # An abort needs neither tools nor model.
            if on_open is not None:
                on_open()
            return await end_claimed(self._store, claim, self._listeners, fold)
        with going_on(turn_id) if new_turn is None else NO_CONTEXT:
            segment = await self._drive_claimed(claim, new_turn, fold, supplies, on_open)
        result = segment.result()
        # A process that posts to a turn without a driver resumes it. An item that was posted during this release is
        # left to this driver.
        if (result is None or result.outcome is None) and await self._has_request(turn_id):
            with suppress(TurnBusyError):
                return await self.drive(turn_id, on_claim=on_claim, on_open=on_open, supplies=supplies)
        return result

    def forget(self) -> None:
        """Forget the histories of sessions, because turns were deleted."""
        self._histories.forget()

    def abort(self, request: InboxItem) -> None:
        """Interrupt the work on a turn, if it is driven here. `request` waits in its inbox."""
        if request.turn in self.segments:
            self.segments[request.turn].interruption.abort(request)

    async def _delegate(self, segment: Segment, call: Call) -> CallSettledInput | CallWaitingInput:
        abandoned_drivers = segment.journal.claim.abandoned.for_children
        tool = self._setup.tools.get(call.name)
        agent = tool.agent if isinstance(tool, AgentTool) else None
        # A sub-agent shares the dependencies of its caller, and works for the same person.
        supplies = Supplied(agent, segment.deps, segment.origin)
        drive = partial(self.drive, abandoned_drivers=abandoned_drivers, supplies=supplies)
        return await SubagentCalls(segment, drive, self.abort).run(call)

    async def _has_request(self, turn_id: str) -> bool:
        """Whether an abort or an answer waits for a turn that has not ended."""
        return has_request(await self._store.inbox(turn_id)) and (await self._store.get(turn_id)).status.outcome is None

    async def _drive_claimed(
        self,
        claim: Claim,
        new_turn: NewTurnClaim | None,
        fold: JournalFold | None,
        supplies: Supplied,
        on_open: Callable[[], None] | None,
    ) -> Segment:
        """Fold the journal, drive the turn and watch for an abort meanwhile, and release the turn in any case.

        Dependencies are made when all else is known to be there. They are closed after the release, so that a close
        that takes long holds no turn.
        """
        turn_id = claim.turn
        # Never set back: only the functions of turns read it, and a coroutine may be closed in another context.
        THREADS.set(self._setup.threads)
        segment: Segment | None = None
        # A crash that is not accounted for before the release is left to the next driver.
        has_crashed = claim.crashed
        # Few engines make dependencies, and a stack has memory of its own in each turn.
        async with AsyncExitStack() if self._setup.make_deps is not None else NO_CONTEXT as after_release:
            try:
                segment = await self._open_supplied(claim, new_turn, fold, supplies)
                self.segments[turn_id] = segment
                if on_open is not None:
                    on_open()
                await self._give_deps(segment, supplies, after_release)
                # A store that fails beside the work raises where the watch ends. The observer must receive that error.
                with segment.journal.observer or NO_CONTEXT:
                    async with self._watch_for_aborts():
                        await _feed(segment, await _account_for_crash(segment, crashed=has_crashed))
                        has_crashed = False
                        while not await _go_on(segment):
                            pass
                        on_end = segment.participants.on_end
                        if on_end is not None and segment.machine.state in FINAL:
                            await on_end(segment.journal.result())
            except StoreError:
                # Work that could not be written is lost, as if this process had died. The next driver repeats it and
                # accounts for the crash.
                has_crashed = has_crashed or (segment is not None and self.segments.get(turn_id) is segment)
                raise
            finally:
                if segment is not None and self.segments.get(turn_id) is segment:  # else this process claimed it again
                    del self.segments[turn_id]
                with anyio.CancelScope(shield=True):
                    try:
                        await self._release(claim, crashed=has_crashed)
                    except anyio.get_cancelled_exc_class():
                        # Canceled again, past the shield. A turn that is never released stays this process's for ever.
                        await self._release(claim, crashed=has_crashed)
                        raise
        assert segment is not None  # noqa: S101 (neither context above swallows an error)
        return segment

    async def _open_supplied(
        self, claim: Claim, new_turn: NewTurnClaim | None, fold: JournalFold | None, supplies: Supplied
    ) -> Segment:
        """Return a claimed turn, ready to be driven but for its dependencies. Raises `CannotRunError`."""
        try:
            segment = await self._open_segment(claim, new_turn, fold, supplies.agent)
            self._setup.need_supplied(claim.turn, segment.journal.started, supplies)
        except ConfigError as error:
            raise CannotRunError(str(error)) from error.__cause__  # the error that it quotes
        segment.origin = supplies.origin or segment.origin
        return segment

    async def _open_segment(
        self, claim: Claim, new_turn: NewTurnClaim | None, fold: JournalFold | None, supplied_agent: Agent | None
    ) -> Segment:
        """Return a claimed turn, ready to be driven but for its dependencies.

        A `new_turn`, which was just written, or one in `fold` is not read again. `supplied_agent` has the code of its
        agent, if the caller has it. Raises `ConfigError` if the model, its price for a cost limit, a tool of an open
        call or the agent's code is missing, or if unpaired history is to be rejected. Raises `StoreError` if the
        journal is unreadable.
        """
        setup = self._setup
        if new_turn is None:
            journal = await TurnJournal.open(self._store, claim, self._listeners, setup.now, fold)
            now = journal.machine.turn
            about = {"turn": claim.turn, "step": now.counters.steps, "state": str(now.state)}
            _LOG.info("turn %s: resumed in %s, step %d", claim.turn, now.state, now.counters.steps, extra=about)
            agent = _agent(journal, setup, supplied_agent)
        else:
            fold = JournalFold(claim.turn, list(enumerate(new_turn.facts, start=1)), new_turn.machine)
            journal = TurnJournal(self._store, claim, fold, self._listeners, now=setup.now)
            agent = new_turn.agent
            journal.log(new_turn.facts)
        _need_tools(journal, setup)
        model = setup.model_for(agent)
        if new_turn is None and journal.machine.turn.limits.cost is not None:
            setup.need_costs(agent, f"turn {claim.turn}: its cost budget")
        if model.name != journal.started.model:
            facts = [(seq, unsigned(fact)) for seq, fact in await self._store.facts(claim.turn)]
            journal.transcript = Transcript.following(journal.machine.turn, facts)
        history = NO_HISTORY
        turn_start = journal.started
        if turn_start.session is not None or turn_start.continue_from is not None or turn_start.message_history:
            journal.waiting = None  # reading takes time: something may be posted meanwhile
            earlier = {} if new_turn is None else new_turn.earlier
            pair_calls = partial(_pair_history, claim.turn, setup)
            history = await self._histories.before(claim.turn, turn_start, model.name, earlier, pair_calls)
        segment = Segment(setup, journal, agent=agent, model=model, history=history)
        segment.join(participants_of(segment, partial(self._delegate, segment)))
        return segment

    def _watch_for_aborts(self) -> AbstractAsyncContextManager[None]:
        """Watch for aborts during a block. A store of one process needs no watch: posting to it interrupts."""
        return background_task(self._watch.keep) if self._store.shared else NO_CONTEXT

    async def _give_deps(self, segment: Segment, supplies: Supplied, after_release: AsyncExitStack | None) -> None:
        """Give the segment its dependencies, which `after_release` closes."""
        setup = self._setup
        if supplies.deps is not NOT_GIVEN:
            segment.deps = supplies.deps
        elif setup.make_deps is not None and after_release is not None:
            from .turn_deps import give_deps  # noqa: PLC0415 (many engines have no deps)

            info = segment.info(resumed=segment.journal.claim.epoch > 1)
            await give_deps(segment, setup.make_deps, info, after_release, self._watch_for_aborts)

    async def _release(self, claim: Claim, *, crashed: bool) -> None:
        has_failed = sys.exception() is not None
        try:
            await self._store.release(claim, crashed=crashed)
        except StoreError as error:
            # The driving has already failed or finished, and the next claim detects the missing release. Nothing has
            # finished if the journal is gone.
            if isinstance(error, StoreReplacedError) and not has_failed:
                raise
            _LOG.warning("turn %s could not be released", claim.turn, exc_info=True, extra={"turn": claim.turn})


async def _go_on(segment: Segment) -> bool:
    """Perform one action after the other. Returns True when the turn rests, False after an interruption."""
    machine, interruption = segment.machine, segment.interruption
    event: Input | None = None
    before: type[Action] = Halt
    with interruption.scope() as scope:
        while not scope.cancel_called:
            if event is not None:
                await _feed(segment, event)
            event, waiting = None, segment.journal.waiting
            # The last append has usually returned an empty inbox. Only an action that an abort cuts off has none.
            if waiting or interruption.aborting or machine.state is State.PAUSED:
                event = await _take_in(segment)
            action = machine.action
            kind = type(action)
            if kind is Halt or (event is None and kind is AwaitPerson):
                return True
            # Yield to other tasks. Tools yield by themselves, but two actions of one kind ran no tool, and a model need
            # not have waited. A cancellation between the starts of calls and their work would lose their outcomes.
            is_started = segment.started or segment.journal.unwritten
            if not is_started and (kind is before or segment.journal.is_followed):
                await anyio.lowlevel.checkpoint()
            before = kind
            try:
                event = event or interruption.begin(deadline=kind is not Conclude)
                if event is None:
                    try:
                        event = await perform(segment, action)
                    finally:
                        interruption.end()
            except (StoreError, LeaseLostError, CannotRunError):
                raise
            except Exception as error:  # noqa: BLE001 (whatever it is, the turn ends and says so)
                event = _stopped_by(segment, error)
    # From here on nothing is canceled.
    await _feed(segment, event or interruption.event())
    return False


async def _take_in(segment: Segment) -> Input | None:
    """Do what `Segment.take_in` does. An input guardrail of a message, or of a fork, may end the turn."""
    try:
        event = await segment.take_in()
        if event is None:
            await _check_fork(segment)
    except (TripError, HookFailedError) as error:
        return _stopped_by(segment, error)
    return event


async def _check_fork(segment: Segment) -> None:
    """Check what a fork changed, before anything of it runs. Nothing can trip while a person is asked.

    Raises `TripError` and `HookFailedError`.
    """
    inputs, machine = segment.participants.inputs, segment.machine
    if inputs is None or not inputs.has_unchecked_fork or machine.state is State.PAUSED or machine.state in FINAL:
        return
    if isinstance(machine.action, CompactHistory):  # nor while a summary is made, which would read the prompt
        await segment.feed(await refuse_compaction())
    await inputs.check_fork()


def _stopped_by(segment: Segment, error: Exception) -> Input | None:
    """Return the input of an error that ends the turn: a guardrail tripped, or code of ours or of the app raised.

    None for a guardrail beside a reply that has ended the turn.
    """
    if segment.machine.state in FINAL and isinstance(error, TripError | HookFailedError):
        return None
    if isinstance(error, TripError):
        return error.event(segment.elapsed(), segment.unfed)
    machine = segment.machine
    name, steps = segment.journal.turn_id, machine.turn.counters.steps
    about = {"turn": name, "step": steps, "state": str(machine.state)}
    _LOG.exception("turn %s failed in %s", name, machine.state, extra=about, exc_info=error)
    message = str(error) if isinstance(error, HookFailedError) else describe(error)
    return FailInput(error=message, partial=segment.partial, usage=segment.unfed, elapsed=segment.elapsed())


async def _account_for_crash(segment: Segment, *, crashed: bool) -> Input | None:
    """Do what `account_for_crash` does. A hook or a guardrail of a call that runs again may end the turn."""
    try:
        await _check_fork(segment)
        return await account_for_crash(segment, crashed=crashed)
    except (TripError, HookFailedError) as error:
        return _stopped_by(segment, error)


async def _feed(segment: Segment, event: Input | None) -> None:
    """Feed an action's result. An input that stops the turn ends its sub-agents first, and includes what they used."""
    if event is None:
        return
    if type(event) in _STOPS:
        event = structs.replace(event, spent=await end_children(segment.journal))
    await segment.feed(event)


def participants_of(segment: Segment, settle: Delegate) -> Participants:
    """Return who acts in a turn: what its agent and its engine add to its model and its tools.

    Raises `ConfigError` for a model that writes summaries and is missing, and for hooks and guardrails that are none.
    """
    agent, setup, compaction = segment.agent, segment.setup, None
    review = None if segment.output is None else Review(segment.output.review)
    if agent.compaction is not None:
        from .compaction import Compactor  # noqa: PLC0415 (few agents have one)

        compaction = Compactor(segment, agent.compaction, setup.writer_for(agent) or segment.model)
    participants = Participants(settle=settle, review=review, compaction=compaction)
    if setup.hooks or setup.guardrails or agent.asks_code:
        from .segment_hooks import with_hooks  # noqa: PLC0415 (many turns have none)

        participants = with_hooks(segment, participants)
    return participants


def _agent(journal: TurnJournal, setup: Dependencies, agent: Agent | None) -> Agent:
    try:
        return setup.agent_of(journal.turn_id, journal.started.agent, agent)
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        raise UnreadableTurnError(journal.turn_id, f"its agent cannot be read: {why}") from error


def _pair_history(turn_id: str, setup: Dependencies, history: list[Message]) -> list[Message]:
    """Return the history as it may be sent: repaired here, so that hooks receive it and one warning is logged."""
    if setup.unpaired == "reject":
        try:
            check_pairing(history)
        except UnpairedError as error:
            raise ConfigError(
                f"turn {turn_id}: its history: {error}: a provider would refuse it;"
                ' drive the turn with unpaired="repair"'
            ) from None
        return history
    paired_messages, notes = repair_pairs(history)
    for note in notes:
        _LOG.warning("turn %s: its history is repaired: %s", turn_id, note, extra={"turn": turn_id})
    return paired_messages


def _need_tools(journal: TurnJournal, setup: Dependencies) -> None:
    turn_id, turn = journal.turn_id, journal.machine.turn
    tools = setup.tools_in_turn(turn_id, journal.started)
    calls = [call for call in turn.open_calls() if not call.made.output and call.name not in tools]
    if calls:
        names = ", ".join(sorted({call.name for call in calls}))
        flags = "--tools, --agents" if any(call.made.lease for call in calls) else "--tools"
        raise ConfigError(f"turn {turn_id}: its open calls need the tools {names}: give them ({flags})")
