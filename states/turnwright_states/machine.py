"""The machine: what happened goes in, the facts that follow come out, and then it says what to do next.

It does no I/O and never waits. A driver, ours or yours, keeps four promises:

1. Feed each thing that happened once, in the order in which it happened.
2. Append the facts that `feed` returns to the journal, in one transaction, before doing anything else.
3. Then perform `action`. When it is `Halt`, stop.
4. After a crash, fold the journal (`TurnMachine.resume`) and go on from `action`.

`feed` either returns facts or raises; when it raises, nothing has changed.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NoReturn, Self

from . import batch
from . import facts as f
from .actions import Action, AwaitPerson, CallModel, Conclude, Halt, RunTools, Synthesize
from .call import CallState
from .chart import CHART, VERSION, Chart, Row
from .errors import AnswerMismatchError, IllegalInputError, InvalidCallError, InvalidJournalError
from .inputs import (
    DECISIONS,
    AbortInput,
    AnsweredInput,
    AttemptFailedInput,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    CallWaitingInput,
    ConcludedInput,
    Decision,
    ExpireInput,
    FailInput,
    Finish,
    Input,
    InterruptKind,
    ModelRepliedInput,
    StartedInput,
    SteeredInput,
    StopInput,
    SynthesizedInput,
    is_blank,
)
from .moves import Moves
from .payload import frozen
from .reasons import NOTHING_SAID, Cause
from .state import State, Trigger
from .turn import Turn

_SETTLES_AT_ONCE = {Decision.REJECT: CallStatus.REJECTED, Decision.UNKNOWN: CallStatus.UNKNOWN}


class TurnMachine(Moves):
    """One turn. Begin one with `start`, or go on with one from its journal with `resume`."""

    __slots__ = ()

    def __init__(self, turn: Turn, chart: Chart = CHART) -> None:
        super().__init__(turn, chart)

    @classmethod
    def start(cls, event: StartedInput, *, chart: Chart = CHART) -> tuple[Self, list[f.Fact]]:
        """Begin a turn. Returns the machine and the first facts. `chart` is another one only when it is checked."""
        machine = cls(Turn(event.limits), chart)
        machine._event, machine._elapsed = event, round(event.elapsed, 6)
        row = machine._fire(Trigger.PROCEED)
        started = f.TurnStarted(
            machine._elapsed,
            State.TEXT_ONLY if row.dest is State.TEXT_ONLY else State.CHECK,
            prompt=event.prompt,
            limits=event.limits.for_tools("default"),
            session=event.session,
            model=event.model,
            agent=event.agent,
            files=event.files,
            message_history=event.message_history,
            synthesis=event.synthesis,
            parent_turn=event.parent_turn,
            parent_call=event.parent_call,
            depth=event.depth,
            continue_from=event.continue_from,
            forked_from=event.forked_from,
            forked_at=event.forked_at,
            metadata=event.metadata,
            chart=VERSION,
        )
        started.freeze()
        machine._emit(started)
        if row.dest is not State.TEXT_ONLY:
            machine._leave_check(row)
        facts, machine._out = machine._out, []
        return machine, facts

    @classmethod
    def resume(cls, facts: Iterable[f.Fact], *, chart: Chart = CHART) -> "TurnMachine":
        """Go on with a turn from its facts, in the order of the journal. No guard is asked again.

        Raises `InvalidJournalError` when there are none, when they do not begin with `turn_started`, begin twice, or go
        on after the end.
        """
        turn = Turn()
        seq = 0
        for seq, fact in enumerate(facts, start=1):
            if isinstance(fact, f.TurnStarted) != (seq == 1):
                raise InvalidJournalError(seq, f"{fact.kind}: a journal begins with turn_started, and only once")
            if turn.state.outcome is not None:
                raise InvalidJournalError(seq, f"{fact.kind}: the turn had already ended ({turn.state.outcome})")
            try:
                turn.apply(fact)
            except KeyError as missing:
                raise InvalidJournalError(seq, f"{fact.kind} names {missing}, which nothing before it made") from None
        if not seq:
            raise InvalidJournalError(seq, "there is none")
        return cls(turn, chart)

    @property
    def action(self) -> Action:
        """What the driver must do now."""
        turn = self.turn
        match turn.state:
            case State.STREAM:
                return CallModel(True, turn.nudge, self._tokens_left())
            case State.TOOL_EXEC:
                runnable = self._runnable()
                return RunTools(runnable) if runnable else Synthesize(tuple(turn.batch.values()))
            case State.TEXT_ONLY:
                return CallModel(False, max_tokens=self._tokens_left())
            case State.PAUSED:
                return AwaitPerson(tuple(turn.interrupts.values()))
            case State.CONCLUDE if turn.carried is not None:
                limits, again = turn.limits, turn.counters.second_try
                return Conclude(turn.carried, limits.conclude_seconds, limits.conclude_tokens, again)
            case _:
                outcome, reason = turn.state.outcome, turn.reason
                if outcome is None or reason is None:
                    raise IllegalInputError("action", turn.state)
                return Halt(outcome, reason, turn.also_reached)

    def _tokens_left(self) -> int | None:
        tokens = self.turn.limits.tokens
        return None if tokens is None else max(tokens - self.turn.tokens, 1)

    def copy(self) -> "TurnMachine":
        """A copy that can be fed without changing this one."""
        return TurnMachine(self.turn.copy(), self._chart)

    def feed(self, event: Input) -> list[f.Fact]:
        """Take in what happened, and return the facts that follow, oldest first. Afterwards see `action`.

        Raises `IllegalInputError` when the chart has no row for the event in this state, `InvalidCallError` when it
        names a call that cannot take it, and `AnswerMismatchError` when it names an interrupt that is not open. Nothing
        has changed then, but for a chart that lacks a row in the middle of an event (`IllegalInputError.made`), which
        lint refuses.
        """
        elapsed, before = event.elapsed, self.turn.elapsed
        # To the microsecond that is written, so that whatever is computed of it follows from the journal alone.
        if elapsed > before:
            elapsed = round(elapsed, 6)
        self._elapsed = elapsed if elapsed > before else before  # noqa: FURB136 (likewise, and `max` is a call)
        self._event = event
        try:
            take = self._TAKES[type(event)]
        except KeyError:
            take = next((self._TAKES[kind] for kind in type(event).__mro__ if kind in self._TAKES), TurnMachine._refuse)
        take(self, event)
        facts, self._out = self._out, []
        return facts

    # What each event does. Everything that can be refused is refused before the first fact.

    def _refuse(self, event: Input) -> NoReturn:
        raise IllegalInputError(event.title(), self.state)

    def _replied(self, event: ModelRepliedInput) -> None:
        counters, calls = self.turn.counters, event.calls
        if not self._chart.accepts(self.state, Trigger.REPLIED):
            self._refuse(event)
        if not calls and is_blank(event.text) and event.finish is not Finish.CONTENT_FILTER:
            return self._attempt_failed(
                AttemptFailedInput(cause=Cause.EMPTY_REPLY, message=NOTHING_SAID, usage=event.usage)
            )
        made = self._decide(event)
        counters.made, counters.truncated = len(calls), event.finish is Finish.LENGTH
        counters.filtered = event.finish is Finish.CONTENT_FILTER
        before, row = self.state, self._fire(Trigger.REPLIED)
        replied = f.ModelReplied(
            self._elapsed,
            State.TOOL_EXEC if row.dest is State.TOOL_EXEC else before,
            text=event.text,
            reasoning=event.reasoning,
            reasoning_details=tuple(map(frozen, event.reasoning_details)) if event.reasoning_details else (),
            calls=made,
            finish=event.finish,
            usage=event.usage,
        )
        self._emit(replied)
        runs = False
        for call in made:
            if call.refused:
                status = CallStatus.ERROR if call.invalid else CallStatus.REFUSED
                self._settle_call(self.turn.batch[call.id], status, call.refused)
            else:
                runs = True
        if row.dest is not State.TOOL_EXEC:
            return self._halt(row)
        return None if runs else self._settle_if_done()

    def _decide(self, event: ModelRepliedInput) -> tuple[f.CallMade, ...]:
        return batch.decide(self.turn, event.calls, event.usage, allowed=self.state is State.STREAM)

    def _call_started(self, event: CallStartedInput) -> None:
        call = self._call(event, event.call)
        if call.state is CallState.STARTED and self.turn.counters.retries_left == 0:
            text = "outcome unknown: the process died while it ran, and no retry is left; verify before retrying"
            spent = batch.unaccounted(call)
            self._settle_call(call, CallStatus.UNKNOWN, text, spent)
            return self._settle_if_done()
        state = self.turn.state
        started = f.CallStarted(self._elapsed, state, call=call.id, attempt=call.attempt + 1, child=event.child)
        return self._emit(started)

    def _call_settled(self, event: CallSettledInput) -> None:
        call = self._call(event, event.call)
        if call.state is CallState.READY and event.status is CallStatus.OK:
            raise InvalidCallError("CallSettled", call.id, "it has a result but was never started")
        if event.spent is not None:
            batch.check_spent("CallSettled", call, event.spent)
        settled = f.CallSettled(
            self._elapsed,
            self.turn.state,
            call=call.id,
            status=event.status,
            result=event.result,
            structured=event.structured if event.structured is None else frozen(event.structured),
            files=tuple(map(frozen, event.files)) if event.files else (),
            spent=event.spent,
        )
        self._emit(settled)
        self._settle_if_done()

    def _call_waits(self, event: CallWaitingInput) -> None:
        call = self._call(event, event.call)
        kind = event.interrupt_kind
        if kind is InterruptKind.DOOM_LOOP and not event.forwarded:
            raise InvalidCallError("CallWaiting", call.id, "only the machine asks about a doom loop")
        if self.turn.counters.pauses_left == 0:
            # Counted: it has begun, though an answer may have made it ready to begin again.
            status = CallStatus.UNKNOWN if call.counted else CallStatus.REFUSED
            result = batch.UNKNOWN_OUTCOME if call.counted else batch.NO_PAUSE
            self._settle_call(call, status, result, batch.unaccounted(call))
            return self._settle_if_done()
        interrupt = f.InterruptRecord(
            id=f"{call.id}/{event.forwarded}" if event.forwarded else self._next_interrupt(kind),
            kind=kind,
            call=call.id,
            tool=call.name,
            question=event.question,
            choices=event.choices,
            grant=event.grant,
            arguments=frozen(event.arguments) if event.forwarded else None,
            expires_at=event.expires_at,
        )
        self._emit(f.CallWaiting(self._elapsed, self.turn.state, call=call.id, interrupt=interrupt))
        return self._settle_if_done()

    def _offered(self, event: SynthesizedInput) -> None:
        self._need_synthesis(event)
        self._synthesized(None if event.text is None or is_blank(event.text) else event.text)

    def _synthesized(self, text: str | None) -> None:
        self._emit(f.Synthesized(self._elapsed, self.turn.state, text=text))
        self._settle(synthesized=text is not None)

    def _attempt_failed(self, event: AttemptFailedInput) -> None:
        counters = self.turn.counters
        if self.state is State.CONCLUDE and event.cause is Cause.EMPTY_REPLY:
            return self._concluded(ConcludedInput(usage=event.usage))
        row: Row | None = None
        if self.state is State.TOOL_EXEC:
            self._need_synthesis(event)
            retry = counters.retries_left > 0 and event.cause.may_pass
        else:
            counters.may_pass = event.cause.may_pass
            before, row = self.state, self._fire(Trigger.ATTEMPT_FAILED)
            retry = row.dest is before
        failed = f.AttemptFailed(
            self._elapsed,
            self.turn.state,
            attempt=self.turn.limits.max_retries - counters.retries_left + 1,
            cause=event.cause,
            retry=retry,
            message=event.message,
            partial=event.partial,
            usage=event.usage,
            wait=event.wait if retry else 0.0,
        )
        self._emit(failed)
        if retry:
            return None
        if row is None:
            return self._synthesized(None)
        return self._halt(row, cause=event.cause, error=event.message, partial=event.partial)

    def _answered(self, event: AnsweredInput) -> None:
        if not self._chart.accepts(self.state, Trigger.ANSWERED):
            self._refuse(event)
        turn, counters, pending = self.turn, self.turn.counters, self.turn.interrupts
        asked = pending.get(event.interrupt)
        if asked is None:
            raise AnswerMismatchError(event.interrupt, "no such interrupt is open", pending)
        if event.decision not in DECISIONS[asked.kind]:
            takes = " or ".join(DECISIONS[asked.kind])
            raise AnswerMismatchError(asked.id, f"its kind, {asked.kind}, takes {takes}, not {event.decision}", pending)
        if asked.call and asked.call not in turn.batch:  # nothing of ours writes such a journal
            raise InvalidCallError("Answered", asked.call, "its interrupt is open, but no such call is in the batch")
        counters.waiting = len(pending) - 1
        counters.doom_asked = not asked.call
        counters.go_on = event.decision in (Decision.GO_ON, Decision.ALWAYS)
        row = self._fire(Trigger.ANSWERED)
        answered = f.Answered(
            self._elapsed,
            State.PAUSED if row.dest is State.CONCLUDE else row.dest,
            interrupt=asked.id,
            decision=event.decision,
            text=event.text,
            grant=asked.grant if event.decision is Decision.APPROVE else None,
            always_for=turn.loop_tools if event.decision is Decision.ALWAYS and not asked.call else (),
        )
        self._emit(answered)
        if event.decision in _SETTLES_AT_ONCE and not asked.forwarded:
            call = turn.batch[asked.call]
            self._settle_call(call, _SETTLES_AT_ONCE[event.decision], _result_of(event), batch.unaccounted(call))
        if row.dest is State.TOOL_EXEC:
            self._settle_if_done()
        elif row.dest is not State.PAUSED:
            self._leave_check(self._fire(Trigger.PROCEED) if row.dest is State.CHECK else row)

    def _steered(self, event: SteeredInput) -> None:
        self._need_ear(event)
        self._emit(f.MessageAdded(self._elapsed, self.turn.state, text=event.text))

    def _concluded(self, event: ConcludedInput) -> None:
        text = None if event.text is None or is_blank(event.text) else event.text
        self.turn.counters.no_text = text is None
        before, row = self.state, self._fire(Trigger.CONCLUDED)
        again = row.dest is before
        refused = tuple(call.name for call in event.calls)
        concluded = f.Concluded(
            self._elapsed, self.turn.state, text=text, refused=refused, usage=event.usage, retry=again
        )
        self._emit(concluded)
        if not again:
            self._halt(row)

    def _stopped_by(self, event: StopInput, trigger: Trigger) -> Row:
        """Check what the sub-agents are said to have used, then take the row."""
        if event.spent and self._chart.accepts(self.state, trigger):
            for call_id, spent in event.spent.items():
                batch.check_spent(event.title(), self._open_call(event, call_id), spent)
        return self._fire(trigger)

    def _expire(self, event: ExpireInput) -> None:
        row = self._stopped_by(event, Trigger.EXPIRE)
        if row.dest is State.CONCLUDE:
            self._close_calls("not finished: the turn's time is up", spent=event.spent)
            self._finish_step(usage=event.usage)
            self._stop(row, partial=event.partial, usage=event.usage)
        else:
            self._halt(row, partial=event.partial, usage=event.usage)

    def _abort(self, event: AbortInput) -> None:
        row = self._stopped_by(event, Trigger.ABORT)
        self._halt(row, aborted=event.reason, partial=event.partial, spent=event.spent)

    def _fail(self, event: FailInput) -> None:
        row = self._stopped_by(event, Trigger.FAIL)
        self._halt(row, error=event.error, partial=event.partial, spent=event.spent)

    _TAKES: ClassVar[dict[type, Callable[["TurnMachine", Any], None]]] = {
        ModelRepliedInput: _replied,
        CallStartedInput: _call_started,
        CallSettledInput: _call_settled,
        CallWaitingInput: _call_waits,
        SynthesizedInput: _offered,
        AttemptFailedInput: _attempt_failed,
        AnsweredInput: _answered,
        SteeredInput: _steered,
        ConcludedInput: _concluded,
        ExpireInput: _expire,
        AbortInput: _abort,
        FailInput: _fail,
    }


def _result_of(event: AnsweredInput) -> str:
    """What the model is told of a call that a person settled."""
    if event.decision is Decision.UNKNOWN:
        return "outcome unknown: verify before retrying"
    return f"rejected by the person: {event.text}" if event.text else "rejected by the person"
