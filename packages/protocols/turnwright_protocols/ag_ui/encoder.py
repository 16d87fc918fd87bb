"""Encode the events of a turn as one run of AG-UI, or as several if the turn paused."""

from collections.abc import AsyncIterable, AsyncIterator, Iterator, Sequence
from typing import Final

from ag_ui.core import (
    PROTOCOL_VERSION,
    BaseEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentFinishedSuccessOutcome,
    SubagentFinishedSuspendedOutcome,
    SubagentStartedEvent,
    TokenUsage,
)
from ag_ui.encoder import EventEncoder

from turnwright._base.ids import root_of
from turnwright.runtime.engine import Engine
from turnwright.runtime.handle import TurnHandle
from turnwright.transcript.events import (
    DeltaEvent,
    FactEvent,
    OutputDeltaEvent,
    ResponseRestartedEvent,
    ResponseWithdrawnEvent,
    ToolProgressEvent,
    TurnEndedEvent,
    TurnEvent,
    TurnPausedEvent,
)
from turnwright.transcript.interrupt import Interrupt
from turnwright_protocols.client_tools import client_tools_in, settleable, waits_for_client
from turnwright_protocols.conversations import events_for_client
from turnwright_protocols.endings import DONE, explain_end, record_end
from turnwright_protocols.items import clean, clean_json, left_open
from turnwright_protocols.segment_usage import SegmentUsage
from turnwright_states import Outcome
from turnwright_states import facts as f

from .interrupts import interrupt_id, interrupt_of
from .messages import AgUiConversation, call_id, metadata
from .turn_encoder import TurnEncoder

#: Events that the journal does not keep.
_PASSING: Final = (DeltaEvent, OutputDeltaEvent, ResponseRestartedEvent, ResponseWithdrawnEvent, ToolProgressEvent)
_LEFT: Final = "turn {turn} has no driver: resume it"


class AgUiEncoder:
    """Translates the events of one turn and its sub-agents into a valid stream of AG-UI events. No I/O.

    `run` is the client's input, with the messages that the client has. `after` is the `seq` of the last event of this
    turn that the client received: 0 for a new turn, that of the pause for a resumed one, any other for a client that
    reconnects. Pass all events from the turn's first one on (`engine.stream`, or `engine.events(turn)`): the encoder
    sends nothing up to `after`, and then begins with a snapshot of the messages. With later events alone, the stream
    is valid but has no snapshot. A run lasts while its turn waits for results that others than the client owe.

    Call `close` after the last event, because every run must end. Source: AG-UI 1.0, "Runs and Steps", "Streaming
    Messages", "Subagents".
    """

    def __init__(self, run: RunAgentInput, *, after: int = 0) -> None:
        self._run = run
        self.after = after
        #: Nothing has been sent yet: the client needs a snapshot first.
        self._behind = after > 0
        self._conversation = AgUiConversation(run.messages)
        self._usage = SegmentUsage()
        self._turn = ""
        #: The tools that the client runs: those of the turn's first fact, as soon as that is received.
        self._client_tools = frozenset(tool.name for tool in run.tools or ())
        self._lanes: dict[str, TurnEncoder] = {}
        #: The sub-agents that this run has announced; those that ended.
        self._announced: set[str] = set()
        self._ended: set[str] = set()
        self._runs = 0
        self._open = False
        self._over = False
        #: The turn's pause or end so far; None while it runs.
        self._rests: TurnPausedEvent | TurnEndedEvent | None = None

    def choose_questions(self, interrupts: Sequence[Interrupt]) -> list[Interrupt]:
        """Return the interrupts without results that others than the client owe."""
        return settleable(interrupts, self._client_tools)

    def encode(self, event: TurnEvent) -> list[BaseEvent]:
        """Return the client's events for an event, in order; empty for one that it received, and for other turns."""
        self._turn = self._turn or root_of(event.turn)
        if root_of(event.turn) != self._turn or self._over:
            return []
        return list(self._encode(event))

    def close(self, error: str = "") -> list[BaseEvent]:
        """End the stream: with nothing if its run has ended, with the turn's pause or end, or else with an error.

        `error` is the message of an exception of the engine.
        """
        return [] if self._over else list(self._close(error))

    def _encode(self, event: TurnEvent) -> Iterator[BaseEvent]:
        is_own = event.turn == self._turn
        lane = self._lane(event.turn)
        if is_own:
            self._look_whether_it_rests(event)
            if isinstance(event, TurnPausedEvent) and not self.choose_questions(event.interrupts):
                return
        if is_own and self._behind and not self._is_new(event):
            self._absorb(lane, event)
            return
        if self._behind and not is_own:
            self._absorb_subagent(lane, event)
            return
        if not self._open:
            if self._runs and (isinstance(event, _PASSING) or (is_own and isinstance(event, TurnPausedEvent))):
                return  # of the finished run: another one begins with a recorded fact other than a pause
            yield from self._begin()
        if not is_own:
            yield from self._announce(lane, event)
        yield from lane.encode(event)
        if is_own:
            yield from self._account(event)
        elif isinstance(event, TurnEndedEvent):
            yield from self._end_subagent(lane, event)

    def _is_new(self, event: TurnEvent) -> bool:
        if isinstance(event, _PASSING):
            return event.seq >= self.after
        return event.seq > self.after

    def _look_whether_it_rests(self, event: TurnEvent) -> None:
        if isinstance(event, FactEvent) and isinstance(event.fact, f.TurnStarted):
            self._client_tools = client_tools_in(event.fact)
        if isinstance(event, TurnPausedEvent | TurnEndedEvent):
            self._rests = event
        elif isinstance(event, FactEvent) and isinstance(self._rests, TurnPausedEvent):
            self._rests = left_open(self._rests, event)

    def _absorb(self, lane: TurnEncoder, event: TurnEvent) -> None:
        """Read an event that the client already has, without sending anything."""
        list(lane.encode(event))
        if isinstance(event, FactEvent):
            self._usage.add(event.fact)
        elif isinstance(event, TurnPausedEvent):
            self._usage.begin()

    def _absorb_subagent(self, lane: TurnEncoder, event: TurnEvent) -> None:
        list(lane.encode(event))
        if isinstance(event, TurnEndedEvent):
            self._ended.add(lane.turn)

    def _account(self, event: TurnEvent) -> Iterator[BaseEvent]:
        if isinstance(event, FactEvent):
            self._usage.add(event.fact)
        elif isinstance(event, TurnPausedEvent | TurnEndedEvent):
            yield from self._finish(event)

    # The run.

    def _begin(self) -> Iterator[BaseEvent]:
        self._open = True
        self._runs += 1
        yield RunStartedEvent(
            thread_id=self._run.thread_id,
            run_id=self._run_id,
            protocol_version=PROTOCOL_VERSION,
            parent_run_id=self._run.parent_run_id,
            metadata=metadata(turn=self._turn),
        )
        if self._behind:
            self._behind = False
            for lane in self._lanes.values():
                lane.restate()
            yield self._conversation.snapshot()
        yield from self._lane(self._turn).resume()

    @property
    def _run_id(self) -> str:
        """Return the requested id; a stream that continues after a pause has further runs."""
        return self._run.run_id if self._runs <= 1 else f"{self._run.run_id}/{self._runs}"

    def _finish(self, event: TurnPausedEvent | TurnEndedEvent) -> Iterator[BaseEvent]:
        pause = event if isinstance(event, TurnPausedEvent) else None
        open_interrupts = [] if pause is None else self.choose_questions(pause.interrupts)
        interrupt_ids = [interrupt_id(self._turn, interrupt.id) for interrupt in open_interrupts]
        for turn in sorted(self._announced, reverse=True):  # a sub-agent's own ones first
            yield from self._close_subagent(turn, None if pause is None else interrupt_ids)
        root = self._lane(self._turn)
        yield from root.suspend()
        client_calls = [interrupt for interrupt in open_interrupts if waits_for_client(interrupt, self._client_tools)]
        changed_calls = [
            interrupt.call
            for interrupt in client_calls
            if self._conversation.change_arguments(
                call_id(self._turn, interrupt.call), clean_json({**(interrupt.arguments or {})})
            )
        ]
        if changed_calls:
            yield self._conversation.snapshot()  # a hook or a person changed what the client runs
        self._open = False
        self._announced.clear()
        thread, run = self._run.thread_id, self._run_id
        if isinstance(event, TurnPausedEvent):
            # The client runs its tools after a run, and begins another one. Its resume must answer all interrupts.
            interrupts = [
                interrupt_of(self._turn, interrupt) for interrupt in open_interrupts if interrupt not in client_calls
            ]
            waits = RunFinishedInterruptOutcome(interrupts=interrupts) if interrupts else RunFinishedSuccessOutcome()
            yield RunFinishedEvent(thread_id=thread, run_id=run, outcome=waits, usage=_usage_of(self._usage))
            self._usage.begin()
            return
        self._over = True
        self._usage.end(event.usage)
        record, usage = record_end(event), _usage_of(self._usage)
        yield root.own.named("turn_ended", record)
        if event.outcome is Outcome.FAILED:
            yield RunErrorEvent(message=explain_end(event), code=str(event.reason), usage=usage)
            return
        # A run that a limit or a person stopped has no return value, only messages.
        is_done = event.outcome in DONE
        outcome = RunFinishedSuccessOutcome() if is_done else RunFinishedCancelledOutcome()
        result = record if is_done else None
        yield RunFinishedEvent(thread_id=thread, run_id=run, outcome=outcome, result=result, usage=usage)

    def _close(self, error: str) -> Iterator[BaseEvent]:
        if self._turn and self._behind:
            yield from self._begin()
        if self._open and self._rests is not None and not error:
            yield from self._finish(self._rests)
        elif self._open or error or not self._runs:
            for turn in sorted(self._announced, reverse=True):
                yield from self._lanes[turn].suspend()
            if self._turn:
                yield from self._lane(self._turn).suspend()
            message = error or (_LEFT.format(turn=self._turn) if self._turn else "no event of the turn was received")
            yield RunErrorEvent(message=clean(message), code="error" if error else "left", usage=_usage_of(self._usage))
        self._over = True

    # Sub-agents.

    def _lane(self, turn: str) -> TurnEncoder:
        if turn not in self._lanes:
            self._lanes[turn] = TurnEncoder(turn, self._conversation, None if turn == self._turn else turn)
        return self._lanes[turn]

    def _announce(self, lane: TurnEncoder, event: TurnEvent | None = None) -> Iterator[BaseEvent]:
        if lane.turn in self._announced | self._ended:
            return
        parent, _, call = lane.turn.rpartition(":")
        if parent != self._turn:
            yield from self._announce(self._lane(parent))
        self._announced.add(lane.turn)
        if isinstance(event, FactEvent):
            lane.meet(event.fact)
        yield SubagentStartedEvent(
            subagent_run_id=lane.turn,
            name=lane.name or lane.turn,
            parent_subagent_run_id=None if parent == self._turn else parent,
            parent_tool_call_id=call_id(parent, call),
        )
        yield from lane.resume()

    def _end_subagent(self, lane: TurnEncoder, event: TurnEndedEvent) -> Iterator[BaseEvent]:
        yield from lane.suspend()
        yield lane.own.named("turn_ended", record_end(event))
        self._announced.discard(lane.turn)
        self._ended.add(lane.turn)
        if event.outcome in DONE:
            yield SubagentFinishedEvent(subagent_run_id=lane.turn, outcome=SubagentFinishedSuccessOutcome())
        else:  # AG-UI has no state between success and failure
            yield SubagentErrorEvent(subagent_run_id=lane.turn, message=explain_end(event), code=str(event.reason))

    def _close_subagent(self, turn: str, interrupt_ids: list[str] | None) -> Iterator[BaseEvent]:
        """End the invocation of a sub-agent that is still open: it waits, or its end was not received."""
        yield from self._lanes[turn].suspend()
        if interrupt_ids is not None:
            raised_ids = [
                raised_id for raised_id in interrupt_ids if raised_id.rpartition("/")[0] == turn.replace(":", "/")
            ]
            outcome = SubagentFinishedSuspendedOutcome(interrupt_ids=raised_ids or None)
            yield SubagentFinishedEvent(subagent_run_id=turn, outcome=outcome)
        else:
            self._ended.add(turn)
            yield SubagentErrorEvent(subagent_run_id=turn, message="its end was not received", code="left")


def _usage_of(usage: SegmentUsage) -> list[TokenUsage] | None:
    """Return the usage of a run: one entry for the turn's model and one for its sub-agents; None if it is unknown."""
    own_usage, entries = usage.own, list[TokenUsage]()
    if usage.is_known and own_usage.tokens:
        entries.append(
            TokenUsage(
                model=usage.model or None,
                input_tokens=own_usage.input_tokens,
                output_tokens=own_usage.output_tokens,
                reasoning_tokens=own_usage.reasoning_tokens or None,
                cached_input_tokens=own_usage.cached_tokens or None,
                total_tokens=own_usage.tokens,
            )
        )
    if usage.is_known and usage.delegated:
        entries.append(TokenUsage(total_tokens=usage.delegated))
    return entries or None


async def encode_events(events: AsyncIterable[TurnEvent], encoder: AgUiEncoder) -> AsyncIterator[BaseEvent]:
    """Encode the events of a turn as they come, and the end: `engine.stream(...)` or `engine.events(turn)`."""
    async for event in events:
        for encoded_event in encoder.encode(event):
            yield encoded_event
    for encoded_event in encoder.close():
        yield encoded_event


def encode_turn(engine: Engine, handle: TurnHandle[str], encoder: AgUiEncoder) -> AsyncIterator[BaseEvent]:
    """Encode a turn as it runs, until it ends or asks the client. It may wait for results from elsewhere meanwhile.

    The turn runs on if nobody reads the events.
    """
    return encode_events(events_for_client(engine, handle, encoder.after, encoder.choose_questions), encoder)


def to_sse(event: BaseEvent) -> str:
    """Return the event as a server-sent event, in the format of the protocol's own library."""
    return EventEncoder().encode(event)
