"""The machine: it receives an input, returns the facts that follow, and then names the next action.

It does no I/O and never waits. A driver, ours or yours, must:

1. Feed each input once, in the order of the events.
2. Append the facts that `feed` returns to the journal, in one transaction, before anything else.
3. Then perform `action`. When it is `Halt`, stop.
4. After a crash, fold the journal (`TurnMachine.resume`) and continue with `action`.

`feed` either returns facts or raises. When it raises, nothing has changed (docs/rules.md#core).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Self

from msgspec.structs import force_setattr, replace

from . import batch
from . import facts as f
from .actions import Action, AwaitPerson, CallModel, CompactHistory, Conclude, Halt, ReviewReply, RunTools, Synthesize
from .amounts import is_cost_spent
from .call import Call, CallState
from .chart import CHART, VERSION, Chart, ReasonFrom, Row
from .construct import construct_unchecked
from .errors import AnswerMismatchError, IllegalInputError, InvalidCallError, InvalidJournalError
from .guards import list_reached_limits
from .inputs import (
    DECISIONS,
    AbortInput,
    AnsweredInput,
    AttemptFailedInput,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    CallWaitingInput,
    CompactedInput,
    ConcludedInput,
    Decision,
    ExpireInput,
    FailInput,
    Finish,
    Input,
    InterruptKind,
    ModelRepliedInput,
    OversizedInput,
    RequestPreparedInput,
    ReviewedInput,
    Spent,
    StartedInput,
    SteeredInput,
    StopInput,
    SynthesizedInput,
    TrippedInput,
    Usage,
    is_blank,
)
from .payload import freeze, text_of
from .reasons import CUT_SHORT, NOTHING_SAID, Cause, EndReason
from .result_key import SHORT, checksum, compared_text, result_key
from .state import FINAL, State, Trigger
from .turn import Turn, count_answers, keep_open
from .verdict import Broken

if TYPE_CHECKING:
    from pydantic import JsonValue

_APPROVED: Final = (InterruptKind.APPROVAL, Decision.APPROVE)
_SETTLES_AT_ONCE: Final = {Decision.REJECT: CallStatus.REJECTED, Decision.UNKNOWN: CallStatus.UNKNOWN}
#: The statuses of results that count for the doom-loop detector.
_COUNTS: Final = (CallStatus.OK, CallStatus.ERROR)
#: Seconds, by which rounding may raise the time of an input.
_MICROSECOND: Final = 1e-6
#: Facts after which a limit may be near.
_RAISES: Final = frozenset({f.StepStarted, f.ModelReplied, f.AttemptFailed, f.CallStarted, f.CallSettled, f.Compacted})
_NOTHING: Final[Mapping[str, Spent]] = {}
_CHANGED: Final = (
    "the turn is not in the state of its hash, so a fact up to here was changed, added, moved or lost, and"
    " `turnwright replay` names the first"
)
#: The fields that `turn_started` copies from its input.
_KEPT_OF_START: Final = {*StartedInput.__struct_fields__} & {*f.TurnStarted.__struct_fields__} - {"elapsed", "limits"}


class TurnMachine:
    """One turn. Begin one with `start`, or resume one from its journal with `resume`.

    `feed` passes an input to the method in `_TAKES` for its class. The method checks it, takes a row of the chart
    (`_fire`), and applies the facts that follow (`_emit`), so the machine's state is always the fold of its facts.
    """

    __slots__ = ("_chart", "_elapsed", "_out", "_undelivered", "state", "turn")

    #: Whether facts get their hashes. A walk turns them off, because it does not read them.
    hashed: ClassVar[bool] = True

    # The messages of the current input, and its time in microseconds.
    _undelivered: tuple[str, ...]
    _elapsed: float

    def __init__(self, turn: Turn, chart: Chart = CHART) -> None:
        #: The state of the turn: counters, the open batch, the open interrupts.
        self.turn = turn
        #: The state of `transitions.Machine`. It equals `turn.state` whenever `feed` or `apply` has returned.
        self.state: State = turn.state
        self._chart = chart
        self._out: list[f.Fact] = []

    @classmethod
    def start(cls, event: StartedInput, *, chart: Chart = CHART) -> tuple[Self, list[f.Fact]]:
        """Begin a turn. Return the machine and the first facts. Only checks pass another `chart`."""
        machine = cls(Turn(event.limits), chart)
        return machine, machine._begin(event)

    @classmethod
    def resume(cls, facts: Iterable[f.Fact], *, chart: Chart = CHART, verify: bool = False) -> "TurnMachine":
        """Resume a turn from its facts, in the order of the journal. No guard is evaluated again.

        With `verify`, which a driver needs and a reader does not, each fact must also lead to the state of its hash, so
        that a turn does not continue after a fact was changed, added, moved or lost. Hashes of another chart differ.

        Raises `InvalidJournalError` for an empty journal, for one that does not begin with its only `turn_started`, and
        for facts after the end.
        """
        turn = Turn()
        seq, fact = 0, None
        for seq, fact in enumerate(facts, start=1):
            if isinstance(fact, f.TurnStarted) != (seq == 1):
                raise InvalidJournalError(seq, f"{fact.kind}: a journal begins with its only turn_started")
            if turn.state.outcome is not None:
                raise InvalidJournalError(seq, f"{fact.kind}: the turn had already ended ({turn.state.outcome})")
            if isinstance(fact, f.TurnStarted):
                verify = verify and fact.chart == VERSION
            try:
                follows = not verify or turn.may_take(fact)
                turn.apply(fact)
            except KeyError as error:
                raise InvalidJournalError(seq, f"{fact.kind} names {error}, which no earlier fact made") from None
            if not follows or (verify and fact.hash and turn.digest() != fact.hash):
                raise InvalidJournalError(seq, f"{fact.kind}: {_CHANGED}")
        if fact is None:
            raise InvalidJournalError(seq, "the journal is empty")
        if verify and not turn.may_rest(fact):
            raise InvalidJournalError(seq, f"{fact.kind}: the journal ends within the facts of an input")
        return cls(turn, chart)

    def apply(self, fact: f.Fact) -> None:
        """Apply a fact that another driver has journaled since. As with `resume`, nothing is evaluated again."""
        self.turn.apply(fact)
        self.state = self.turn.state

    @property
    def action(self) -> Action:  # noqa: PLR0911 (one for each state)
        """The next action of the driver."""
        turn = self.turn
        match turn.state:
            case State.STREAM:
                return CallModel(True, turn.nudge, None if turn.limits.tokens is None else turn.tokens_left, turn.stall)
            case State.TOOL_EXEC:
                runnable = turn.startable()
                return RunTools(runnable) if runnable else Synthesize(tuple(turn.batch.values()))
            case State.REVIEW:
                return ReviewReply(tuple(turn.batch.values()))
            case State.COMPACT:
                return CompactHistory(turn.tokens_left)
            case State.TEXT_ONLY:
                return CallModel(False, max_tokens=turn.tokens_left, second_try=turn.counters.second_try)
            case State.PAUSED:
                return AwaitPerson(tuple(turn.interrupts.values()))
            case State.CONCLUDE if turn.carried is not None:
                limits, again = turn.limits, turn.counters.second_try
                asks_model = limits.asks_for_conclusion
                return Conclude(turn.carried, limits.conclude_seconds, limits.conclude_tokens, again, asks_model)
            case _:
                outcome, reason = turn.state.outcome, turn.reason
                if outcome is None or reason is None:
                    raise IllegalInputError("action", turn.state)
                return Halt(outcome, reason, turn.also_reached)

    def copy(self) -> "TurnMachine":
        """Return a copy that can be fed without changing this machine."""
        return TurnMachine(self.turn.copy(), self._chart)

    def may_end_with(self, event: Input, *later_events: Input) -> bool:
        """Return whether this input may end the turn now, for example because its row leads to a final state.

        `later_events` are fed with it: further outcomes of calls. Messages that still wait are too late then. Pass them
        in the `undelivered` of the last input. Nothing changes.
        """
        for later_event in later_events:
            if self.may_end_with(later_event):
                return True
        final = self.turn.counters.final
        match event:
            case CallSettledInput(final=True, status=CallStatus.OK) | ReviewedInput(answer=str()):
                return True
            case CallSettledInput() | CallStartedInput() | CallWaitingInput() | AnsweredInput() if final:
                return True
            case CallStartedInput() | CallWaitingInput() if self.turn.rules is not None and self.turn.rules.may_end:
                return True
            case _ if (self.state, event.trigger) not in self._chart.ending:
                return False
        row = self._chart.row(self.state, self._trigger(event), self.turn.counters)
        return row is not None and row.dest in FINAL

    def takes_messages_before(self, *events: Input) -> bool:
        """Return whether these inputs may settle the batch and CHECK may stop the turn. Feed messages first then.

        It is False for a batch with the turn's answer, because no CHECK follows: its messages are undelivered. It is
        also False if a step begins in any case: they can be fed before its model call.
        """
        turn, settled_count = self.turn, 0
        for event in events:
            match event:
                case CallSettledInput(final=True, status=CallStatus.OK):
                    return False
                case CallSettledInput() | CallWaitingInput():
                    settled_count += 1
                case CallStartedInput(call=call) if call in turn.batch:
                    # A rule may refuse the call.
                    is_judged = turn.rules is not None and turn.rules.is_named(turn.batch[call].name)
                    settled_count += is_judged or turn.lacks_retry(turn.batch[call])
                case AnsweredInput():
                    asks = [bool(interrupt.call) for interrupt in turn.interrupts.values()]
                    return turn.state is State.PAUSED and asks == [True] and not turn.counters.final
                case _:
                    pass
        if not settled_count or turn.state is not State.TOOL_EXEC or turn.counters.final:
            return False
        for name in turn.batch:  # a plain loop, because this runs once a step
            state = turn.batch[name].state
            settled_count -= state is CallState.READY or state is CallState.STARTED
        return settled_count == 0 and not self._begins_step(events)

    def _begins_step(self, events: Iterable[Input]) -> bool:
        """Return whether a step begins after these last inputs of a batch, with and without messages before them."""
        turn, counters, seconds = self.turn, self.turn.counters, self.turn.limits.seconds
        if turn.synthesis or counters.doom or counters.waiting:
            return False
        if counters.idle_limit and counters.idle + 1 >= counters.idle_limit and turn.idles:
            return False
        rounds = turn.rounds
        repeats = turn.keys_results and rounds.latest != () and rounds.repeat_a_call(turn.batch)
        # A stall may have other calls each time.
        repeats = repeats or turn.limits.stall_response == "loop"
        outcomes: dict[str, tuple[str, bool]] = {}
        for event in events:
            if type(event) is not CallSettledInput or event.spent is not None:
                return False
            if repeats and event.call in turn.batch:
                call = turn.batch[event.call]
                key = self._result_key(call, event.status, event.result, event.files)
                outcomes[call.id] = key, event.status is CallStatus.ERROR
            if seconds is not None and event.elapsed + _MICROSECOND >= seconds:
                return False
        if repeats and turn.may_loop(outcomes):
            return False
        row = self._chart.row(State.CHECK, Trigger.PROCEED, counters)
        return row is not None and row.dest is State.STREAM

    def feed(self, event: Input) -> list[f.Fact]:
        """Apply an input, and return the facts that follow, oldest first. Then perform `action`.

        Raises `IllegalInputError` when the chart has no row for the input in this state, `InvalidCallError` when it
        names a call that cannot accept it, and `AnswerMismatchError` when it names no open interrupt. Nothing has
        changed then, except for a chart that lacks a row in the middle of an input (`IllegalInputError.made`), which
        the lint refuses.
        """
        elapsed, before = event.elapsed, self.turn.elapsed
        # Rounded to the journal's microseconds, so that everything computed from it follows from the journal alone.
        if elapsed > before:
            elapsed = round(elapsed, 6)
        self._elapsed = elapsed if elapsed > before else before  # noqa: FURB136 (likewise, and `max` is a call)
        self._undelivered = event.undelivered
        try:
            take = self._TAKES[type(event)]
        except KeyError:
            take = next((self._TAKES[kind] for kind in type(event).__mro__ if kind in self._TAKES), TurnMachine._refuse)
        try:
            take(self, event)
        except IllegalInputError as error:
            if not self._out:
                raise
            # This happens only in a chart without a row that it needs.
            raise IllegalInputError(error.event, error.state, made=len(self._out)) from None
        facts, self._out = self._out, []
        return facts

    # One method for each input. Each refuses before it makes the first fact.

    def _begin(self, event: StartedInput) -> list[f.Fact]:
        self._undelivered, self._elapsed = event.undelivered, round(event.elapsed, 6)
        row = self._fire(Trigger.PROCEED)
        state = State.TEXT_ONLY if row.dest is State.TEXT_ONLY else State.CHECK
        start_fields = {name: getattr(event, name) for name in _KEPT_OF_START}
        fact = f.TurnStarted(
            self._elapsed, state, limits=event.limits.for_tools("default"), chart=VERSION, **start_fields
        )
        fact.freeze()
        self._emit(fact)
        if event.past.get("incomplete"):
            self._emit(f.Notice(self._elapsed, state, limit="rules_incomplete"))
        if row.dest is not State.TEXT_ONLY:
            self._leave_check(row)
        facts, self._out = self._out, []
        return facts

    def _trigger(self, event: Input) -> Trigger | None:
        """Return the input's trigger in this state, after setting the flags for its rows.

        It is usually that of the class. A blank reply is a failed attempt, and in CONCLUDE a conclusion without text.
        """
        counters = self.turn.counters
        match event:
            case ModelRepliedInput():
                counters.made, counters.truncated = len(event.calls), event.finish is Finish.LENGTH
                counters.filtered, counters.review = event.finish is Finish.CONTENT_FILTER, event.review
                # The single reply of a turn without steps is asked for once more if it has only calls.
                silent = self.state is State.TEXT_ONLY and counters.retries_left and not counters.second_try
                if not counters.filtered and (not counters.made or silent) and is_blank(event.text):
                    counters.may_pass, counters.overflow = Cause.EMPTY_REPLY.may_pass, False
                    return Trigger.ATTEMPT_FAILED
            case AttemptFailedInput():
                counters.may_pass = event.cause.may_pass
                counters.overflow = event.cause is Cause.CONTEXT_OVERFLOW
                if self.state is State.CONCLUDE and event.cause is Cause.EMPTY_REPLY:
                    counters.no_text = True
                    return Trigger.CONCLUDED
            case ReviewedInput():
                counters.made, counters.truncated = len(self.turn.batch), self.turn.truncated
                counters.refused = event.refused
            case SynthesizedInput():
                counters.synthesized = _drop_blank(event.text) is not None
            case ConcludedInput():
                # Where the model was not asked, its text is not missing.
                counters.no_text = _drop_blank(event.text) is None and self.turn.limits.asks_for_conclusion
            case _:
                pass
        return event.trigger

    def _take_reply(self, event: ModelRepliedInput) -> None:
        if self.state is not State.STREAM and not self._chart.accepts(self.state, Trigger.REPLIED):
            self._refuse(event)
        if self._trigger(event) is Trigger.ATTEMPT_FAILED:
            message = CUT_SHORT if event.finish is Finish.LENGTH else NOTHING_SAID
            failure = construct_unchecked(
                AttemptFailedInput, cause=Cause.EMPTY_REPLY, message=message, usage=event.usage
            )
            return self._take_failure(failure)
        calls = self._decide(event)
        broken_rules = self._judge_reply(event, calls) if self.turn.rules is not None else ()
        if broken_rules:  # an answer that a rule refuses is refused in the same append, before anybody reviews it
            self.turn.counters.review = True
        before, row = self.state, self._fire(Trigger.REPLIED)
        fact = f.ModelReplied(
            self._elapsed,
            row.dest if row.dest is State.TOOL_EXEC or row.dest is State.REVIEW else before,
            text=event.text,
            reasoning=event.reasoning,
            reasoning_details=tuple(map(freeze, event.reasoning_details)) if event.reasoning_details else (),
            calls=calls,
            finish=event.finish,
            usage=event.usage,
        )
        self._emit(fact)
        runs = False
        for call in calls:
            if call.refused:
                status = CallStatus.ERROR if call.invalid else CallStatus.REFUSED
                self._settle_call(self.turn.batch[call.id], status, call.refused)
            else:
                runs = True
        if broken_rules:
            return self._refuse_answer(broken_rules)
        if row.dest is State.REVIEW:
            return None
        if row.dest is not State.TOOL_EXEC:
            return self._halt(row)
        if not runs:
            return self._settle_if_done()
        return self._start_calls(calls) if event.starts else None

    def _start_calls(self, calls: tuple[f.CallMade, ...]) -> None:
        turn = self.turn
        if turn.rules is not None:
            for open_call in turn.runnable():
                if self.state is State.TOOL_EXEC and turn.find_blocker(open_call) is None:
                    start = construct_unchecked(CallStartedInput, call=open_call.id)
                    verdicts = self._judge_start(start, open_call, None)
                    if verdicts is not None:
                        self._emit_derived(
                            f.CallStarted(self._elapsed, State.TOOL_EXEC, call=open_call.id, attempt=1, rules=verdicts)
                        )
            return
        for call in calls:
            if not call.refused:
                self._emit_derived(f.CallStarted(self._elapsed, State.TOOL_EXEC, call=call.id, attempt=1))

    def _take_preparation(self, event: RequestPreparedInput) -> None:
        if not self.turn.may_prepare:
            self._refuse(event)
        preparation = f.RequestPrepared(
            self._elapsed,
            self.turn.state,
            instructions=event.instructions,
            tools=event.tools,
            settings=freeze(event.settings),
            append=event.append,
            model=event.model,
            decisions=tuple(map(freeze, event.decisions)),
        )
        self._emit(preparation)

    def _take_review(self, event: ReviewedInput) -> None:
        if not self._chart.accepts(self.state, Trigger.REVIEWED):
            self._refuse(event)
        self._check_answer(event)
        self._trigger(event)
        if event.answer is not None and self.turn.rules is not None:
            broken_rules = self._judge_answers([self.turn.batch[event.answer].arguments])
            if broken_rules:
                return self._refuse_answer(broken_rules, event)
        row = self._fire(Trigger.REVIEWED)
        review_fact = f.Reviewed(
            self._elapsed,
            State.TOOL_EXEC if row.dest is State.TOOL_EXEC else State.REVIEW,
            refused=event.refused,
            retry=row.dest is State.CONTINUE,
            feedback=event.feedback,
            answer=event.answer,
            output=freeze(event.output),
            decisions=tuple(map(freeze, event.decisions)),
        )
        self._emit(review_fact)
        if row.dest is State.TOOL_EXEC:
            self._settle_output_calls(event.answer)
            self._settle_if_done()
        elif row.dest is State.CONTINUE:
            self._close_calls(f"refused: {event.feedback}", status=CallStatus.REFUSED, spent_by_call=_NOTHING)
            self._close_step()
        else:
            self._halt(row, error=event.feedback)
        return None

    def _check_answer(self, event: ReviewedInput) -> None:
        """Refuse a review that accepts a call which is not a typed answer, or leaves such a call open."""
        answers = [call.id for call in self.turn.open_calls() if call.made.output]
        if event.answer is not None and (event.refused or event.answer not in answers):
            raise InvalidCallError(event.title(), event.answer, "it is not an open typed answer of an accepted reply")
        if event.answer is None and answers and not event.refused:
            raise InvalidCallError(event.title(), answers[0], "it is a typed answer, and an accepted reply names one")

    def _settle_output_calls(self, answer: str | None) -> None:
        """Settle the calls that are typed answers: `answer` as the turn's, and the others as not used."""
        for call in self.turn.open_calls():
            if call.id == answer:
                self._settle_call(call, CallStatus.OK, batch.OUTPUT_ACCEPTED, final=True)
            elif call.made.output:
                self._settle_call(call, CallStatus.REFUSED, batch.OUTPUT_UNUSED)

    def _take_oversize(self, event: OversizedInput) -> None:
        if not self.turn.counters.compactions_left:
            self._refuse(event)
        self._fire(Trigger.OVERSIZED)
        self._emit(f.CompactionStarted(self._elapsed, State.COMPACT, tokens=event.tokens))

    def _take_compaction(self, event: CompactedInput) -> None:
        if not self._chart.accepts(self.state, Trigger.COMPACTED):
            self._refuse(event)
        turn, usage = self.turn, event.usage
        if usage is not None:  # the row is chosen before the fact has added its usage
            limits, counters = turn.limits, turn.counters
            counters.tokens_spent = limits.tokens is not None and turn.tokens + usage.tokens >= limits.tokens
            cost = turn.cost + usage.cost
            counters.cost_spent = limits.cost is not None and is_cost_spent(cost, limits.cost)
        row = self._fire(Trigger.COMPACTED)
        compaction = f.Compacted(
            self._elapsed,
            State.STREAM if row.dest is State.STREAM else State.COMPACT,
            text=event.text,
            cleared=event.cleared,
            kept=event.kept,
            usage=usage,
        )
        self._emit(compaction)
        if row.dest is State.CONCLUDE:
            self._finish_step()
            self._stop(row)

    def _decide(self, event: ModelRepliedInput) -> tuple[f.CallMade, ...]:
        return batch.decide(self.turn, event.calls, event.usage, allowed=self.state is State.STREAM)

    def _take_failure(self, event: AttemptFailedInput) -> None:
        counters, row = self.turn.counters, None
        if self._trigger(event) is Trigger.CONCLUDED:
            return self._take_conclusion(construct_unchecked(ConcludedInput, usage=event.usage))
        if self.state is State.TOOL_EXEC:
            self._need_synthesis(event)
            retry = counters.retries_left > 0 and counters.may_pass
        else:
            before, row = self.state, self._fire(Trigger.ATTEMPT_FAILED)
            retry = row.dest is before
        fact = f.AttemptFailed(
            self._elapsed,
            State.STREAM if row is not None and row.dest is State.STREAM else self.turn.state,
            attempt=self.turn.limits.max_retries - counters.retries_left + 1,
            cause=event.cause,
            retry=retry,
            message=event.message,
            partial=event.partial,
            usage=event.usage,
            wait=event.wait if retry else 0.0,
        )
        self._emit(fact)
        if retry:
            return None
        if row is None:
            return self._set_synthesis(None)
        if row.dest is State.COMPACT:
            return self._emit(f.CompactionStarted(self._elapsed, State.COMPACT))
        if row.dest is State.STREAM:  # the compaction failed, and the model is called without it
            return None
        return self._halt(row, cause=event.cause, error=event.message, partial=event.partial)

    def _take_call_start(self, event: CallStartedInput) -> None:
        call = self._call(event, event.call)
        if call.has_result:
            raise InvalidCallError("CallStarted", call.id, "it has its result, and does not run")
        if self.turn.lacks_retry(call):
            self._settle_call(call, CallStatus.UNKNOWN, batch.NO_RERUN, batch.find_unaccounted_spending(call))
            return self._settle_if_done()
        verdicts = () if self.turn.rules is None or call.counted else self._judge_start(event, call, event.arguments)
        if verdicts is None:
            return None
        fact = f.CallStarted(
            self._elapsed,
            self.turn.state,
            call=call.id,
            attempt=call.attempt + 1,
            child=event.child,
            arguments=event.arguments if event.arguments is None else freeze(event.arguments),
            decisions=tuple(map(freeze, event.decisions)) if event.decisions else (),
            rules=verdicts,
        )
        return self._emit(fact)

    def _take_call_result(self, event: CallSettledInput) -> None:
        call = self._call(event, event.call)
        if call.state is CallState.READY and event.status is CallStatus.OK and not call.has_result:
            raise InvalidCallError("CallSettled", call.id, "it succeeded but was never started")
        if event.spent is not None:
            batch.check_spent("CallSettled", call, event.spent)
        spending = batch.find_unaccounted_spending(call) if call.has_result and event.spent is None else event.spent
        is_final = event.final
        if is_final and event.status is CallStatus.OK and self.turn.rules is not None:
            # While a rule refuses the answer, the result is an ordinary one.
            is_final = not _select_enforced(self.turn.rules.answer_after(call.id, event.structured, event.result))
        fact = f.CallSettled(
            self._elapsed,
            self.turn.state,
            call=call.id,
            status=event.status,
            result=event.result,
            structured=event.structured if event.structured is None else freeze(event.structured),
            files=tuple(map(freeze, event.files)) if event.files else (),
            spent=spending,
            final=is_final,
            retry=event.retry,
            decisions=tuple(map(freeze, event.decisions)) if event.decisions else (),
            key=self._result_key(call, event.status, event.result, event.files),
        )
        self._emit(fact)
        self._settle_if_done()

    def _take_call_wait(self, event: CallWaitingInput) -> None:
        call = self._call(event, event.call)
        kind = event.interrupt_kind
        if kind is InterruptKind.DOOM_LOOP and not event.forwarded:
            raise InvalidCallError("CallWaiting", call.id, "only the machine asks about a doom loop")
        if event.forwarded and call.made.lease is None:
            raise InvalidCallError("CallWaiting", call.id, "a sub-agent asks, and the call has no lease")
        if kind is InterruptKind.RESULT and not event.forwarded and not call.counted:
            raise InvalidCallError("CallWaiting", call.id, "its result comes later, but it was never started")
        if call.has_result:
            raise InvalidCallError("CallWaiting", call.id, "it has its result")
        interrupt, *more_interrupts = batch.ask(self.turn, call, event)
        if self.turn.rules is not None and not call.counted and not event.forwarded:
            verdicts = self._judge_call(event, call, event.changed)
            if verdicts is None:
                return None
            if interrupt.kind is InterruptKind.APPROVAL:  # one question for all: an approval covers the rules too
                interrupt = _with_rules(interrupt, [verdict for verdict in verdicts if verdict.broken == "ask"])
        if self.turn.counters.pauses_left == 0:
            # A counted call has started, although an answer may have made it ready again.
            status = CallStatus.UNKNOWN if call.counted else CallStatus.REFUSED
            result = batch.UNKNOWN_OUTCOME if call.counted else batch.NO_PAUSE
            self._settle_call(call, status, result, batch.find_unaccounted_spending(call))
            return self._settle_if_done()
        fact = f.CallWaiting(
            self._elapsed,
            self.turn.state,
            call=call.id,
            interrupt=interrupt,
            more=tuple(more_interrupts),
            changed=event.changed if event.changed is None else freeze(event.changed),
            decisions=tuple(map(freeze, event.decisions)) if event.decisions else (),
        )
        self._emit(fact)
        return self._settle_if_done()

    def _take_synthesis(self, event: SynthesizedInput) -> None:
        self._need_synthesis(event)
        text = _drop_blank(event.text)
        if text is not None and self.turn.rules is not None and _select_enforced(self.turn.rules.answer(text)):
            text = None
        self._set_synthesis(text)

    def _set_synthesis(self, text: str | None) -> None:
        self._emit(f.Synthesized(self._elapsed, self.turn.state, text=text))
        self._settle(synthesized=text is not None)

    def _take_answer(self, event: AnsweredInput) -> None:
        if not self._chart.accepts(self.state, Trigger.ANSWERED):
            self._refuse(event)
        turn, counters, interrupts = self.turn, self.turn.counters, self.turn.interrupts
        interrupt = interrupts.get(event.interrupt)
        if interrupt is None:
            raise AnswerMismatchError(event.interrupt, "no such interrupt is open", interrupts)
        self._check_decision(event, interrupt)
        counters.waiting = count_answers(keep_open(interrupts, interrupt, event.decision, event.by).values())
        counters.doom_asked = not interrupt.call
        counters.go_on = event.decision in (Decision.GO_ON, Decision.ALWAYS)
        row = self._fire(Trigger.ANSWERED)
        fact = f.Answered(
            self._elapsed,
            State.PAUSED if row.dest is State.CONCLUDE else row.dest,
            interrupt=interrupt.id,
            decision=event.decision,
            text=event.text,
            grant=interrupt.grant if event.decision is Decision.APPROVE else None,
            always_for=turn.rounds.tools if event.decision is Decision.ALWAYS and not interrupt.call else (),
            arguments=event.arguments if event.arguments is None else freeze(event.arguments),
            given=event.given,
            by=event.by,
            via=event.via,
            at=event.at,
            always=event.always,
        )
        self._emit(fact)
        if event.decision in _SETTLES_AT_ONCE and not interrupt.forwarded:
            call = turn.batch[interrupt.call]
            self._settle_call(
                call, _SETTLES_AT_ONCE[event.decision], batch.result_of(event), batch.find_unaccounted_spending(call)
            )
        if row.dest is State.TOOL_EXEC:
            self._settle_if_done()
        elif row.dest is not State.PAUSED:
            self._leave_check(self._fire(Trigger.PROCEED) if row.dest is State.CHECK else row)

    def _check_decision(self, event: AnsweredInput, interrupt: f.InterruptRecord) -> None:
        """Refuse a decision, arguments, a result or a name that does not fit the interrupt."""
        interrupts, why = self.turn.interrupts, ""
        if event.decision not in DECISIONS[interrupt.kind]:
            accepted_decisions = " or ".join(DECISIONS[interrupt.kind])
            why = f"its kind, {interrupt.kind}, accepts {accepted_decisions}, not {event.decision}"
        elif event.arguments is not None and (interrupt.kind, event.decision) != _APPROVED:
            why = "only the approval of a call may change its arguments"
        elif (event.decision is Decision.SETTLE) != (event.given is not None):
            why = "a result comes with settle, and only with it"
        elif event.always and not _may_cover_equal_calls(event, interrupt):
            why = "always covers equal calls: one person's approval of a call as it is, without rules or a sub-agent"
        elif event.decision is Decision.APPROVE and (interrupt.approvals > 1 or interrupt.approved_by):
            why = _approver_problem(event, interrupt)
        if why:
            raise AnswerMismatchError(interrupt.id, why, interrupts)
        if interrupt.call and interrupt.call not in self.turn.batch:  # only in a damaged journal
            raise InvalidCallError(
                "Answered", interrupt.call, "its interrupt is open, but no such call is in the batch"
            )

    def _take_message(self, event: SteeredInput) -> None:
        self._need_message_time(event)
        self._emit(f.MessageAdded(self._elapsed, self.turn.state, text=event.text))

    def _take_conclusion(self, event: ConcludedInput) -> None:
        self._trigger(event)
        before, row = self.state, self._fire(Trigger.CONCLUDED)
        again = row.dest is before
        text, refused_calls = _drop_blank(event.text), tuple(call.name for call in event.calls)
        self._emit(
            f.Concluded(
                self._elapsed, self.turn.state, text=text, refused=refused_calls, usage=event.usage, retry=again
            )
        )
        if not again:
            self._halt(row)

    def _take_expiry(self, event: ExpireInput) -> None:
        row = self._stopped_by(event, Trigger.EXPIRE)
        if row.dest is State.CONCLUDE:
            self._close_calls("not finished: the turn's time is up", spent_by_call=event.spent)
            self._finish_step(usage=event.usage)
            self._stop(row, partial=event.partial, usage=event.usage)
        else:
            self._halt(row, partial=event.partial, usage=event.usage, spending_by_call=event.spent)

    def _take_abort(self, event: AbortInput) -> None:
        row = self._stopped_by(event, Trigger.ABORT)
        self._halt(
            row, abort_reason=event.reason, partial=event.partial, usage=event.usage, spending_by_call=event.spent
        )

    def _take_crash(self, event: FailInput) -> None:
        row = self._stopped_by(event, Trigger.FAIL)
        self._halt(row, error=event.error, partial=event.partial, usage=event.usage, spending_by_call=event.spent)

    def _take_trip(self, event: TrippedInput) -> None:
        row = self._stopped_by(event, Trigger.TRIPPED)
        guardrail = f.TrippedGuardrail(
            name=event.guardrail, message=event.message, metadata=freeze(event.metadata), checks=event.checks
        )
        self._halt(row, partial=event.partial, usage=event.usage, spending_by_call=event.spent, guardrail=guardrail)

    # The rules over the calls (docs/rules.md#rules-over-calls).

    def is_obsolete(self, event: Input) -> bool:
        """Return whether a rule has decided otherwise since the driver made this input: drop it then.

        A rule may end the turn, refuse a call or let it ask, before the other inputs of the same append are fed.
        """
        if self.turn.rules is None or self.state in FINAL:
            return self.turn.rules is not None
        if not isinstance(event, CallSettledInput | CallWaitingInput) or event.call not in self.turn.batch:
            return False
        return self.turn.batch[event.call].state in (CallState.WAITING, CallState.SETTLED)

    def _judge_start(
        self, event: CallStartedInput, call: Call, new_arguments: "Mapping[str, JsonValue] | None"
    ) -> tuple[f.RuleVerdict, ...] | None:
        """Judge a call that is about to start. Return the verdicts for its fact.

        None if it does not start: a rule refused it, asks a person, or ended the turn.
        """
        verdicts = self._judge_call(event, call, new_arguments)
        asking_verdicts = [] if verdicts is None else [verdict for verdict in verdicts if verdict.broken == "ask"]
        if not asking_verdicts:
            return verdicts
        question = construct_unchecked(
            CallWaitingInput,
            call=call.id,
            interrupt_kind=InterruptKind.APPROVAL,
            restricted=self.turn.restricted,
        )
        interrupt = _with_rules(batch.ask(self.turn, call, question)[0], asking_verdicts)
        fact = f.CallWaiting(
            self._elapsed,
            self.turn.state,
            call=call.id,
            interrupt=interrupt,
            changed=new_arguments if new_arguments is None else freeze(new_arguments),
            decisions=tuple(map(freeze, event.decisions)) if event.decisions else (),
        )
        self._emit(fact)
        self._settle_if_done()
        return None

    def _judge_call(
        self, event: CallStartedInput | CallWaitingInput, call: Call, new_arguments: "Mapping[str, JsonValue] | None"
    ) -> tuple[f.RuleVerdict, ...] | None:
        """Judge a call with its final arguments. Return the verdicts that do not refuse it, or None if a rule did.

        Raises `InvalidCallError` for a call that has to wait for another one.
        """
        turn, rules = self.turn, self.turn.rules
        assert rules is not None  # noqa: S101 (the callers asked)
        if not call.made.reaches and not rules.is_named(call.name):
            return ()
        blocker = turn.find_blocker(call)
        if blocker is not None:
            raise InvalidCallError(event.title(), call.id, f"a rule couples it with {blocker.id}, which comes first")
        arguments = call.arguments if new_arguments is None else new_arguments
        judgment = rules.verdicts(call.name, arguments, call.id)
        broken_rules = [verdict for verdict in judgment.broken if verdict.rule not in call.approved_rules]
        conflict = self._find_conflict(call, arguments)
        if conflict is not None:
            broken_rules.append(conflict)
        verdicts = _record(broken_rules)
        effects = {verdict.effect for verdict in broken_rules}
        if "end" in effects:
            self._end_by_rule(broken_rules, call.id)
        elif "refuse" in effects or ("ask" in effects and not turn.counters.pauses_left):
            words = _explain(_select_enforced(broken_rules))
            fact = f.CallSettled(
                self._elapsed,
                turn.state,
                call=call.id,
                status=CallStatus.REFUSED,
                result=f"refused and not run: {words}",
                decisions=tuple(map(freeze, event.decisions)) if event.decisions else (),
                # A model that repeats a refused call is in a loop too.
                key=self._result_key(call, CallStatus.ERROR, words),
                rules=verdicts,
                arguments=new_arguments if new_arguments is None else freeze(new_arguments),
            )
            self._emit(fact)
            self._settle_if_done()
        else:
            return (*verdicts, *(f.RuleVerdict(rule=allowing.rule, by=allowing.by) for allowing in judgment.holding))
        return None

    def _find_conflict(self, call: Call, arguments: "Mapping[str, JsonValue]") -> "Broken | None":
        """Return why a call that no rule refuses must not start: an answer, or a paused sub-agent, comes before it."""
        turn, rules = self.turn, self.turn.rules
        assert rules is not None  # noqa: S101 (the callers asked)
        rule = rules.opened_by(call.name, arguments) if turn.counters.final else ""
        delegate = turn.find_paused_delegate(call)
        if not rule and delegate is None:
            return None
        if delegate is None:
            return Broken(rule, "refuse", call.id, (), "the answer of the turn was given before this call")
        shared_rules = {*rules.coupled_rules(call.name, call.made.reaches)}.intersection(
            rules.coupled_rules(delegate.name, delegate.made.reaches)
        )
        words = f"the sub-agent of {delegate.id} waits for a person, and both calls are named by this rule"
        return Broken(min(shared_rules), "refuse", call.id, (delegate.id,), words)

    def _judge_reply(self, event: ModelRepliedInput, calls: tuple[f.CallMade, ...]) -> "Sequence[Broken]":
        """Return the rules that the answer in a reply breaks: a text, or a typed answer. None for other replies."""
        rules = self.turn.rules
        if rules is None or self.state is not State.STREAM or event.finish is Finish.CONTENT_FILTER:
            return ()
        if not calls:
            return _select_enforced(rules.answer(event.text))
        return self._judge_answers([call.arguments or {} for call in calls if call.output and not call.refused])

    def _judge_answers(self, answers: "Sequence[Mapping[str, JsonValue]]") -> "Sequence[Broken]":
        """Return the rules that typed answers break; none if one of them breaks none."""
        rules = self.turn.rules
        assert rules is not None  # noqa: S101 (the callers asked)
        broken_rules: Sequence[Broken] = ()
        for answer in answers:
            broken_rules = _select_enforced(rules.answer(text_of(answer)))
            if not broken_rules:
                break
        return broken_rules

    def _refuse_answer(self, broken_rules: "Sequence[Broken]", event: ReviewedInput | None = None) -> None:
        """Refuse an answer within the output retries; after these, or by its effect, a rule ends the turn."""
        counters = self.turn.counters
        if not counters.output_retries_left or broken_rules[0].effect == "end":
            return self._end_by_rule(broken_rules)
        counters.refused = True
        feedback = _explain(broken_rules)
        row = self._fire(Trigger.REVIEWED)
        review_fact = f.Reviewed(
            self._elapsed,
            State.REVIEW,
            refused=True,
            retry=row.dest is State.CONTINUE,
            feedback=feedback,
            decisions=() if event is None else tuple(map(freeze, event.decisions)),
            rules=_record(broken_rules),
        )
        self._emit(review_fact)
        self._close_calls(f"refused: {feedback}", status=CallStatus.REFUSED, spent_by_call=_NOTHING)
        return self._close_step()

    def _end_by_rule(self, broken_rules: "Sequence[Broken]", call: str = "") -> None:
        """End the turn as a guardrail does."""
        worst, row = broken_rules[0], self._fire(Trigger.TRIPPED)
        metadata: dict[str, JsonValue] = {"by": list(worst.by), "broken": [verdict.rule for verdict in broken_rules]}
        guardrail = f.TrippedGuardrail(
            name=worst.rule,
            message=worst.words,
            metadata=freeze({**metadata, "call": call} if call else metadata),
            checks="rule",
        )
        spent_by_call = {
            open_call.id: batch.find_unaccounted_spending(open_call) for open_call in self.turn.open_calls()
        }
        self._halt(
            row,
            spending_by_call={call_id: usage for call_id, usage in spent_by_call.items() if usage is not None},
            guardrail=guardrail,
        )

    def _stopped_by(self, event: StopInput, trigger: Trigger) -> Row:
        """Check the reported usage of sub-agents, then take the row."""
        if event.spent and self._chart.accepts(self.state, trigger):
            for call_id, spending in event.spent.items():
                batch.check_spent(event.title(), self._open_call(event, call_id), spending)
        return self._fire(trigger)

    _TAKES: ClassVar[dict[type, Callable[["TurnMachine", Any], None]]] = {
        ModelRepliedInput: _take_reply,
        RequestPreparedInput: _take_preparation,
        ReviewedInput: _take_review,
        OversizedInput: _take_oversize,
        CompactedInput: _take_compaction,
        TrippedInput: _take_trip,
        CallStartedInput: _take_call_start,
        CallSettledInput: _take_call_result,
        CallWaitingInput: _take_call_wait,
        SynthesizedInput: _take_synthesis,
        AttemptFailedInput: _take_failure,
        AnsweredInput: _take_answer,
        SteeredInput: _take_message,
        ConcludedInput: _take_conclusion,
        ExpireInput: _take_expiry,
        AbortInput: _take_abort,
        FailInput: _take_crash,
    }

    # The conditions of inputs.

    def _refuse(self, event: Input) -> NoReturn:
        raise IllegalInputError(event.title(), self.state)

    def _need_message_time(self, event: Input) -> None:
        """Refuse a message unless CHECK or the next model call will include it (docs/rules.md#messages).

        So messages are accepted in STREAM, and before the last result of a batch, also while a call waits for a person.
        A question about a doom loop is too late, because CHECK has decided already. So is a batch with the answer.
        """
        match self.state:
            case _ if self.turn.counters.final:
                pass
            case State.STREAM:
                return
            case State.TOOL_EXEC if self.turn.runnable():
                return
            case State.PAUSED if all(interrupt.call for interrupt in self.turn.interrupts.values()):
                return
        raise IllegalInputError(event.title(), self.state)

    def _need_synthesis(self, event: Input) -> None:
        if self.state is not State.TOOL_EXEC or self.turn.runnable() or not self.turn.synthesis:
            raise IllegalInputError(event.title(), self.state)

    def _call(self, event: Input, call_id: str) -> Call:
        if self.state is not State.TOOL_EXEC:
            raise IllegalInputError(event.title(), self.state)
        batch = self.turn.batch
        call = batch[call_id] if call_id in batch else None  # noqa: SIM401 (`get` is a call)
        if call is None or (call.state is not CallState.READY and call.state is not CallState.STARTED):
            self._refuse_call(event, call_id, call)
        return call

    def _open_call(self, event: Input, call_id: str) -> Call:
        """Return the call of the open batch, or refuse the event if there is none or it has its result."""
        call = self.turn.batch.get(call_id)
        if call is None or call.state is CallState.SETTLED:
            self._refuse_call(event, call_id, call)
        return call

    def _refuse_call(self, event: Input, call_id: str, call: Call | None) -> NoReturn:
        why = "there is no such call in the open batch" if call is None else f"it is {call.state}"
        raise InvalidCallError(event.title(), call_id, why)

    # The paths between states. Each begins with a row of the chart.

    def _settle_if_done(self) -> None:
        """Leave TOOL_EXEC once no call can run and the synthesis has nothing to do."""
        turn = self.turn
        for name in turn.batch:
            state = turn.batch[name].state
            if state is CallState.READY or state is CallState.STARTED:
                return
        if turn.synthesis and not turn.counters.waiting and not turn.synthesis_done and not turn.counters.final:
            return
        self._settle()

    def _settle(self, *, synthesized: bool = False) -> None:
        self.turn.counters.synthesized = synthesized
        row = self._fire(Trigger.SETTLED)
        if row.dest is State.PAUSED:
            self._emit(f.Paused(self._elapsed, State.PAUSED))
        elif row.dest is State.CONTINUE:
            self._close_step()
        else:
            self._halt(row)

    def _close_step(self) -> None:
        row = self._fire(Trigger.PROCEED)
        self._finish_step(state=row.dest)
        if row.dest is State.CHECK:
            self._leave_check(self._fire(Trigger.PROCEED))

    def _finish_step(self, *, state: State | None = None, usage: Usage | None = None) -> None:
        """Finish the step, if one is open. A step that another may follow leads to this `state`, and needs no hash.

        `usage` is that of an attempt that was cut off, which the next fact will report too.
        """
        turn = self.turn
        if turn.step_open:
            emit = self._emit if state is None else self._emit_derived
            emit(
                f.StepFinished(
                    self._elapsed,
                    state or turn.state,
                    number=turn.counters.steps,
                    usage=turn.step_usage if usage is None else turn.step_usage + usage,
                    seconds=round(self._elapsed - turn.step_started_at, 6),
                )
            )

    def _leave_check(self, row: Row) -> None:
        """Record the decision of CHECK."""
        turn = self.turn
        if row.dest is State.STREAM:
            number, nudge, stall = turn.counters.steps + 1, turn.counters.doom, turn.rounds.stalls.stall
            self._emit_derived(f.StepStarted(self._elapsed, State.STREAM, number=number, nudge=nudge, stall=stall))
        elif row.dest is State.PAUSED:
            self._emit(f.Paused(self._elapsed, State.PAUSED, interrupt=batch.ask_about_loop(turn)))
        else:
            self._stop(row)

    def _stop(self, row: Row, *, partial: str = "", usage: Usage | None = None) -> None:
        assert isinstance(row.reason, EndReason)  # noqa: S101 (a row into CONCLUDE names its reason)
        also = tuple(reason for reason in list_reached_limits(self.turn.counters) if reason is not row.reason)
        self._emit(
            f.Stopping(
                self._elapsed, State.CONCLUDE, reason=row.reason, also_reached=also, partial=partial, usage=usage
            )
        )

    def _halt(
        self,
        row: Row,
        *,
        cause: Cause = Cause.CRASH,
        abort_reason: EndReason = EndReason.ABORTED,
        error: str = "",
        partial: str = "",
        usage: Usage | None = None,
        spending_by_call: Mapping[str, Spent] = _NOTHING,
        guardrail: f.TrippedGuardrail | None = None,
    ) -> None:
        """End the turn along `row`. `cause` and `aborted` give the reason where the row takes it from the input."""
        carried_reason = self.turn.carried
        if row.reason is ReasonFrom.CARRIED and carried_reason is not None:
            reason = carried_reason
        elif row.reason is ReasonFrom.CAUSE:
            reason = cause.reason
        else:
            reason = row.reason if isinstance(row.reason, EndReason) else abort_reason
        # Computed before the step is closed, in the state where the turn was stopped.
        also = self._list_also_reached(row, reason)
        # A person who writes a new message has rejected the open questions.
        waiting_status = CallStatus.REJECTED if reason is EndReason.SUPERSEDED else CallStatus.ABORTED
        self._close_calls(
            f"not finished: the turn ended ({reason})", waiting=waiting_status, spent_by_call=spending_by_call
        )
        self._finish_step(usage=usage)
        outcome = row.dest.outcome
        assert outcome is not None  # noqa: S101 (the rows that end a turn lead to final states)
        self._emit(
            f.TurnEnded(
                self._elapsed,
                row.dest,
                outcome=outcome,
                reason=reason,
                also_reached=also,
                partial=partial,
                undelivered=self._undelivered,
                error=error,
                usage=usage,
                guardrail=guardrail,
                unmet=() if self.turn.rules is None else self.turn.rules.unmet(),
            )
        )

    def _list_also_reached(self, row: Row, reason: EndReason) -> tuple[EndReason, ...]:
        """Return the other limits that were reached: none for a turn that was not stopped (decision 11)."""
        turn = self.turn
        if row.dest is State.FINISHED:
            return ()
        if row.trigger is Trigger.EXPIRE:
            return tuple(limit for limit in list_reached_limits(turn.counters) if limit is not reason)
        if row.reason is ReasonFrom.CARRIED:
            return turn.also_reached
        if turn.carried is not None:  # an abort, or a failure of the engine, takes precedence over the limit
            return (turn.carried, *turn.also_reached)
        asked_about_loop = turn.interrupts and any(not interrupt.call for interrupt in turn.interrupts.values())
        return (EndReason.DOOM_LOOP,) if asked_about_loop else ()

    def _close_calls(
        self,
        why: str,
        *,
        status: CallStatus = CallStatus.ABORTED,
        waiting: CallStatus = CallStatus.ABORTED,
        spent_by_call: Mapping[str, Spent],
    ) -> None:
        """Settle every open call as `status`, and one that waits for a person as `waiting`.

        `spent_by_call` has the usage of their sub-agents.
        """
        for call in self.turn.open_calls():
            # The progress of a call that has started is unknown, and a thread may even finish later. This includes a
            # call that asked a person after its start.
            result = f"{why}; it had begun: verify before retrying" if call.counted else why
            call_status = waiting if call.state is CallState.WAITING else status
            self._settle_call(call, call_status, result, spent_by_call.get(call.id))

    def _settle_call(
        self, call: Call, status: CallStatus, result: str, spending: Spent | None = None, *, final: bool = False
    ) -> None:
        """Settle a call with a result that no tool gave."""
        fact = f.CallSettled(
            self._elapsed,
            self.turn.state,
            call=call.id,
            status=status,
            result=result,
            spent=spending,
            final=final,
            key=self._result_key(call, status, result),
        )
        self._emit(fact)

    def _result_key(
        self, call: Call, status: CallStatus, result: str, files: "Sequence[Mapping[str, JsonValue]]" = ()
    ) -> str:
        """Return the key of a call's result for the doom-loop detector; empty if the result does not count.

        It counts if results are compared, the detector watches the call, and the result is that of the tool or of a
        mistake of the model. A call that was denied, refused or stopped says nothing about a loop. A long result has a
        checksum until its call recurs, unless it is an error: errors are compared whatever the call was.
        """
        turn = self.turn
        if not call.made.key or not turn.keys_results or status not in _COUNTS:
            return ""
        text = compared_text(result, files) if files else result
        if text[SHORT:] and status is CallStatus.OK and not turn.has_made(call):
            return checksum(text)
        return result_key(text)

    # The chart and the facts.

    def _fire(self, trigger: Trigger) -> Row:
        return self._chart.fire(self, trigger, self.turn.counters)

    def _emit(self, fact: f.Fact) -> None:
        """Apply a fact and set its hash, which includes its effect. The fact is frozen, but not published yet."""
        turn = self.turn
        turn.apply(fact)
        if self.hashed:
            force_setattr(fact, "hash", turn.digest())
        self._out.append(fact)
        if turn.near and type(fact) in _RAISES:
            self._notice(fact)

    def _emit_derived(self, fact: f.Fact) -> None:
        """Apply a fact without a hash: each of its fields follows from the facts before it."""
        turn = self.turn
        turn.apply(fact)
        self._out.append(fact)
        if turn.near and type(fact) in _RAISES:
            self._notice(fact)

    def _notice(self, fact: f.Fact) -> None:
        """Add a notice for each limit that is near, and for a reply without a usage."""
        turn = self.turn
        if isinstance(fact, f.ModelReplied) and fact.usage is None and "usage_unknown" not in turn.noticed:
            self._emit(f.Notice(self._elapsed, turn.state, limit="usage_unknown"))
        for limit, amount, most in turn.use():
            if 5 * amount >= getattr(turn.marks, limit):
                self._emit(f.Notice(self._elapsed, turn.state, limit=limit, used=amount, of=most))


def _select_enforced(broken_rules: "Sequence[Broken]") -> "Sequence[Broken]":
    """Return the broken rules that do more than report."""
    return [verdict for verdict in broken_rules if verdict.effect != "report"]


def _explain(broken_rules: "Sequence[Broken]") -> str:
    """Return the words of broken rules for the model, with the names of the rules."""
    return "; ".join([f"{verdict.words} (rule {verdict.rule})" for verdict in broken_rules])


def _record(broken_rules: "Sequence[Broken]") -> tuple[f.RuleVerdict, ...]:
    """Return the verdicts on broken rules as facts have them."""
    return tuple(
        [
            f.RuleVerdict(rule=verdict.rule, broken=verdict.effect, by=verdict.by, words=verdict.words)
            for verdict in broken_rules
        ]
    )


def _with_rules(interrupt: f.InterruptRecord, verdicts: Sequence[f.RuleVerdict]) -> f.InterruptRecord:
    """Return an approval that covers these broken rules too. Its question has their words."""
    words = [verdict.words for verdict in verdicts if verdict.words not in interrupt.question]
    question = " ".join(filter(None, [interrupt.question, *dict.fromkeys(words)]))
    return replace(interrupt, question=question, rules=tuple(verdicts)) if verdicts else interrupt


def _drop_blank(text: str | None) -> str | None:
    """Return the text, or None if it is blank."""
    return None if text is None or is_blank(text) else text


def _may_cover_equal_calls(event: AnsweredInput, interrupt: f.InterruptRecord) -> bool:
    """Return whether the answer may approve equal calls too."""
    is_shared = interrupt.approvals > 1 or interrupt.approved_by
    is_plain = event.arguments is None and not (is_shared or interrupt.rules or interrupt.forwarded)
    return is_plain and (interrupt.kind, event.decision) == _APPROVED


def _approver_problem(event: AnsweredInput, interrupt: f.InterruptRecord) -> str:
    """Return the reason why this approval does not count among those of several people; empty if it does."""
    if not event.by.strip():
        return "it needs a name: give by="
    if event.by in interrupt.approved_by:
        return f"it needs another approver: {event.by} has approved"
    return "" if event.arguments is None else "several people approve the same arguments: reject instead"
