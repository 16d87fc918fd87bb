"""The machine's knowledge of a turn: the fold of the journal's facts.

`Turn.apply` is the fold. It evaluates no guard and decides nothing, because each fact is a decision. The machine
(`machine.py`) applies each fact to the same object as it makes it, so the fold of a journal and the live turn cannot
differ. The counters change by the effects of `effects.py`, which proofs read too; the rest of a turn changes here.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final
from zlib import crc32

from msgspec import msgpack
from msgspec.structs import replace

from . import facts as f
from .amounts import LARGEST_FLOAT, is_cost_spent
from .call import Call, CallState
from .counters import Counters
from .doom import call_key, make_round
from .effects import REFILLS, RUN
from .inputs import DECISIONS, CallStatus, Decision, Finish, InterruptKind, Usage
from .limits import Limits, LimitThresholds
from .payload import FrozenDict, plain, text_of
from .reasons import Cause, EndReason
from .rounds import NO_ROUNDS, NO_STALLS, SettledCall
from .state import Stall, State

if TYPE_CHECKING:
    from .rules import History

_NOTHING_USED: Final = Usage()
#: Shared by all turns that have no calls, no arguments or no questions.
_EMPTY: Final[FrozenDict[Any]] = FrozenDict()

_pack: Final = msgpack.Encoder(enc_hook=plain).encode
#: The output retries and compactions of a turn that has the defaults of chart 3 and used none. Such a turn has the hash
#: that it had before they existed.
_UNUSED: Final = (2, 0)
#: The decisions after which a call does not run, or not again.
_ENDS_CALL: Final = frozenset({Decision.REJECT, Decision.UNKNOWN, Decision.SETTLE})
#: The limit of idle steps that a turn has by default, and that of a turn of chart 3. Their hashes are those of chart 3.
_IDLE_LIMITS: Final = (5, 0)


@cache
def _default_limits() -> Limits:
    """Return the limits of a turn that has not begun: the same object, because pydantic validates each new one."""
    return Limits()


def keep_open(
    interrupts: Mapping[str, f.InterruptRecord], interrupt: f.InterruptRecord, decision: Decision, by: str
) -> dict[str, f.InterruptRecord]:
    """Return the interrupts that an answer to one of them leaves open.

    An approval of several that are needed leaves the interrupt itself open. A result or a rejection of a call closes
    all questions of the call.
    """
    if decision is Decision.APPROVE and interrupt.approvals > 1:
        approved_by = (*interrupt.approved_by, by)
        return {
            **interrupts,
            interrupt.id: replace(interrupt, approvals=interrupt.approvals - 1, approved_by=approved_by),
        }
    if decision in _ENDS_CALL and interrupt.call and not interrupt.forwarded:
        return {name: question for name, question in interrupts.items() if question.call != interrupt.call}
    return {name: question for name, question in interrupts.items() if name != interrupt.id}


def count_answers(interrupts: Iterable[f.InterruptRecord], call: str | None = None) -> int:
    """Return the answers that these interrupts still need, or only those of one call."""
    return sum([interrupt.approvals for interrupt in interrupts if call is None or interrupt.call == call])


class Turn:
    """The fold of the facts so far.

    Its size is bounded for a turn of any length, because texts stay in the journal. The long results that have no key
    yet are an exception: its transcript holds their texts too.
    """

    # Few turns set these. Python shares the names of up to 30 attributes among the instances of a class, which saves a
    # kilobyte a turn.
    grants: tuple[str, ...] = ()
    #: The tools that the doom-loop detector ignores for the rest of the turn.
    always_for: frozenset[str] = frozenset()
    #: The keys of calls that a person approved always (`approval_key`), each with the interrupt's id.
    approved_calls: Mapping[str, str] = _EMPTY
    #: The signature of the last answer to a doom loop, which has no call that keeps it.
    loop_signature: tuple[str | float | None, ...] = ()
    #: The number of times that each tool raised `Retry`.
    tool_retries: Mapping[str, int] = MappingProxyType({})
    #: Whether the app must authorize each answer.
    restricted: bool = False
    #: A checksum of what decides later and is in no count: limits that are not the defaults, rules, the names of hooks
    #: and guardrails, tools of the client, the terms of waits, and what hooks and people gave calls; 0 without any.
    terms: int = 0
    #: The limits that have had a notice, in alphabetical order.
    noticed: tuple[str, ...] = ()
    #: Whether results have keys: a loop needs the same results, or stalls are watched. The end of a step finds both.
    keys_results: bool = True
    #: Whether a message came after the reply of the open step, so that its calls are not a round.
    round_forgotten: bool = False
    #: Whether a review refused the reply of the open step, so that its calls were not allowed to run.
    reply_refused: bool = False
    #: The stall of which this step's request has a hint.
    stall: Stall | None = None
    #: The history of the calls as the turn's rules read it; None without rules.
    rules: "History | None" = None
    #: The reason of a conclusion, then the reason of the end.
    carried: EndReason | None = None
    reason: EndReason | None = None
    also_reached: tuple[EndReason, ...] = ()
    #: The seconds of driving at the stop, before the concluding call, which no time limit counts.
    stopped_at: float | None = None

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or _default_limits()
        self.state: State = State.CHECK
        self.counters = Counters(self.limits)
        self.synthesis = False
        self.depth = 0
        #: Seconds of driving so far.
        self.elapsed = 0.0
        self.input_tokens = 0
        self.output_tokens = 0
        self.cost = 0.0
        #: Parts of the input and output tokens.
        self.cached_tokens = self.reasoning_tokens = 0
        #: The number of calls in all replies, from which their ids are made.
        self.calls_made = 0
        #: The calls of the open step by id, in the model's order.
        self.batch: dict[str, Call] = _EMPTY
        #: The open interrupts, by id.
        self.interrupts: Mapping[str, f.InterruptRecord] = _EMPTY
        self.interrupts_asked: Mapping[str, int] = _EMPTY
        self.rounds = NO_ROUNDS
        self.nudge = False
        self.step_open = False
        #: Whether the last reply was cut off.
        self.truncated = False
        self.step_started_at = 0.0
        self.step_usage = _NOTHING_USED
        #: Whether the open batch has been offered to the synthesis.
        self.synthesis_done = False
        self.marks = LimitThresholds.of(self.limits, self.noticed)
        #: Whether a notice may be due.
        self.near = False

    @property
    def seconds_used(self) -> float:
        """Seconds of driving, as the time limit counts them."""
        return self.elapsed if self.stopped_at is None else self.stopped_at

    @property
    def tokens(self) -> int:
        """Input and output tokens so far, as the token budget counts them."""
        return self.input_tokens + self.output_tokens

    @property
    def usage(self) -> Usage:
        """The usage of all model calls of the turn, including sub-agents."""
        return Usage(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cost=self.cost,
            cached_tokens=self.cached_tokens,
            reasoning_tokens=self.reasoning_tokens,
        )

    @property
    def steps_taken(self) -> int:
        """Steps that have started, as people count them: the conclusion too, if it is one (docs/rules.md#steps)."""
        steps, limits = self.counters.steps, self.limits
        if limits.concluding == "within" and (self.stopped_at is not None or self.counters.allowance == 0):
            return min(steps + 1, limits.cap)
        return steps

    @property
    def may_prepare(self) -> bool:
        """Whether the dynamic part of the next request may still be journaled: once a step."""
        return not self.counters.prepared and (self.state is State.STREAM or self.state is State.TEXT_ONLY)

    def use(self) -> Iterable[tuple[str, float, float]]:
        """Yield (name, used, limit) for each limit that is set."""
        c, limits = self.counters, self.limits
        yield "steps", c.steps, limits.cap
        if c.budgeted:
            yield "tool_calls", c.calls, c.budget
        if limits.tokens is not None:
            yield "tokens", self.tokens, limits.tokens
        if limits.cost is not None:
            yield "cost", self.cost, limits.cost
        if limits.seconds is not None:
            yield "seconds", self.seconds_used, limits.seconds

    @property
    def tokens_left(self) -> int | None:
        """The rest of the token budget, at least 1; None without such a budget."""
        return None if self.limits.tokens is None else max(self.limits.tokens - self.tokens, 1)

    def settled_calls(self, outcomes: Mapping[str, tuple[str, bool]] = _EMPTY) -> Sequence[SettledCall]:
        """Return the calls of the batch that are a part of its round.

        Those that have no result yet have the key of `outcomes` and whether they failed.
        """
        if self.round_forgotten:
            return ()
        calls: list[SettledCall] = []
        for name in self.batch:  # a plain loop, because this runs once a step
            call = self.batch[name]
            key, has_failed = call.result_key, call.failed
            if name in outcomes:
                key, has_failed = outcomes[name]
            if key:
                calls.append(SettledCall(call.name, call.made.key, key, has_failed, call.unkeyed))
        return calls

    def has_made(self, call: Call) -> bool:
        """Return whether the same call is in an earlier round, or comes twice in its batch."""
        key, count = call.made.key, 0
        for name in self.batch:
            count += self.batch[name].made.key == key
        return count > 1 or self.rounds.have(key)

    @property
    def idles(self) -> bool:
        """Whether the open step has calls, and none of them ran. A refused reply has its own limit."""
        if self.reply_refused or not self.batch:
            return False
        for name in self.batch:  # noqa: SIM110 (a plain loop, because this runs once a step)
            if self.batch[name].counted:
                return False
        return True

    def may_loop(self, outcomes: Mapping[str, tuple[str, bool]]) -> bool:
        """Return whether these results, which settle the batch, would close a doom loop."""
        return self.rounds.add_settled_step(self.settled_calls(outcomes), self.limits).tools != ()

    def runnable(self) -> tuple[Call, ...]:
        """Return the calls of the batch that may start, or have started without a result, in call order."""
        calls = self.batch.values()
        return tuple([call for call in calls if call.state is CallState.READY or call.state is CallState.STARTED])

    def startable(self) -> tuple[Call, ...]:
        """Return the runnable calls, without those that wait for a call that a rule couples with them."""
        calls = self.runnable()
        return calls if self.rules is None else tuple([call for call in calls if self.find_blocker(call) is None])

    def find_blocker(self, call: Call) -> Call | None:
        """Return the call that must end, or wait for a person, before this one starts (docs/rules.md#rules-over-calls).

        It is an earlier one of the reply that a rule couples with it, or one whose sub-agent is at work.
        """
        return None if call.counted else self._find_coupled(call, waiting=False)

    def find_paused_delegate(self, call: Call) -> Call | None:
        """Return a call whose sub-agent waits for a person, and that a rule couples with this one."""
        return self._find_coupled(call, waiting=True)

    def _find_coupled(self, call: Call, *, waiting: bool) -> Call | None:
        if self.rules is None or not (rules := self.rules.coupled_rules(call.name, call.made.reaches)):
            return None
        is_earlier = True
        for coupled_call in self.batch.values():
            is_earlier = is_earlier and coupled_call is not call
            has_begun = coupled_call.counted and coupled_call.made.lease is not None
            if coupled_call.state is CallState.SETTLED or coupled_call is call or not (is_earlier or has_begun):
                continue
            is_waiting = coupled_call.state is CallState.WAITING
            if is_waiting != waiting or (waiting and not has_begun):
                continue
            if not self.rules.coupled_rules(coupled_call.name, coupled_call.made.reaches).isdisjoint(rules):
                return coupled_call
        return None

    def named_tools(self, tools: Iterable[str]) -> tuple[str, ...]:
        """Return those of the tools that a rule names."""
        return () if self.rules is None else tuple(tool for tool in tools if self.rules.is_named(tool))

    def lacks_retry(self, call: Call) -> bool:
        """Return whether a crash interrupted this call, and it cannot run again: no retry is left or paid."""
        return call.state is CallState.STARTED and not call.crash_paid and not self.counters.retries_left

    def open_calls(self) -> list[Call]:
        """Return the calls of the batch without a result, in call order."""
        return [call for call in self.batch.values() if call.state is not CallState.SETTLED]

    def may_take(self, fact: f.Fact) -> bool:
        """Return whether a machine may have written this fact next, as far as its hash does not show.

        Time does not go back, a key is that of its call, a question is about its call, an answer fits its question, and
        a call settles once. A fact without a hash has only values that follow from the facts before it.
        """
        if fact.elapsed < self.elapsed:
            return False
        match fact:
            case f.StepStarted():
                return (self.state, fact.state, fact.number) == (State.CHECK, State.STREAM, self.counters.steps + 1)
            case f.StepFinished(hash=""):
                follows = fact.state is State.CHECK and self.state in {State.TOOL_EXEC, State.REVIEW}
                return follows and fact.number == self.counters.steps and not self.open_calls()
            case f.CallStarted(hash=""):
                is_plain = fact.attempt == 1 and fact.arguments is None and fact.child is None and not fact.decisions
                return is_plain and fact.state is self.state and self.batch[fact.call].state is CallState.READY
            case f.ModelReplied():
                follows = all(
                    call.own_key or not call.key or call.key == call_key(call.name, call.arguments, call.raw, None)
                    for call in fact.calls
                )
            case f.CallSettled():
                follows = self.batch[fact.call].state is not CallState.SETTLED
            case f.CallWaiting():
                follows = all(interrupt.call == fact.call for interrupt in fact.interrupts)
            case f.Answered():
                follows = fact.decision in DECISIONS[self.interrupts[fact.interrupt].kind]
            case _:
                follows = True
        return follows and bool(fact.hash)

    def may_rest(self, fact: f.Fact) -> bool:
        """Return whether an append may end with this fact, which was applied: a reply starts all calls or none."""
        if isinstance(fact, f.CallStarted) and not fact.hash and self.rules is None:
            return all(call.state is not CallState.READY for call in self.batch.values())
        return bool(fact.hash) or not isinstance(fact, f.StepFinished)

    def apply(self, fact: f.Fact) -> None:
        """Apply one fact. Nothing is checked here, so it must follow from the facts before."""
        try:
            take = self._TAKES[type(fact)]
        except KeyError:
            if type(fact) is f.Fact or not isinstance(fact, f.Fact):
                raise TypeError(f"{type(fact).__name__} is not a fact of a turn") from None
            take = next((self._TAKES[kind] for kind in type(fact).__mro__ if kind in self._TAKES), Turn._note)
        state = fact.state
        before = self.state
        self.state = state
        if fact.elapsed > self.elapsed:
            self.elapsed = fact.elapsed
            if self.limits.seconds is not None:
                self._pass_time()
        take(self, fact)
        if state is not before and (before, state) in REFILLS:
            RUN["phase"](self.counters, self.limits.max_retries)

    def _note(self, fact: f.Fact) -> None:
        """Apply a fact without an effect on the turn."""

    def _begin(self, fact: f.TurnStarted) -> None:
        self.limits = fact.limits
        self.counters = Counters(fact.limits)
        self.marks, self.near = LimitThresholds.of(fact.limits, self.noticed), False
        self.synthesis, self.depth = fact.synthesis, fact.depth
        if fact.restricted:
            self.restricted = True
        self._watch_for_loops()
        self._pass_time()
        if fact.rules:
            self._begin_rules(fact)
        if fact.limits != _default_limits():
            self._bind(fact.limits)
        if fact.rules or fact.client_tools or fact.hooks or fact.guardrails or fact.restricted:
            self._bind(fact.rules, fact.client_tools, fact.hooks, fact.guardrails, fact.restricted)

    def _bind(self, *values: object) -> None:
        self.terms = crc32(text_of(values).encode(), self.terms)

    def _begin_rules(self, fact: f.TurnStarted) -> None:
        from .rules import History  # noqa: PLC0415 (few turns have rules)

        self.rules = History.of_journal(fact.rules, fact.past)
        if not fact.depth:  # the prompt of a sub-agent is a model's
            self.rules.message(fact.prompt, "prompt")

    def _watch_for_loops(self) -> None:
        limits = self.limits
        if limits.doom_compare != "results" or limits.doom_threshold is None:
            self.keys_results = limits.watches_stalls

    def _pass_time(self) -> None:
        if self.limits.seconds is not None:
            self.counters.time_spent = self.elapsed >= self.limits.seconds
            self.near = self.near or 5 * self.elapsed >= self.marks.seconds

    def _begin_step(self, fact: f.StepStarted) -> None:
        RUN["step_started"](self.counters, fact.number, fact.nudge)
        self.near = self.near or 5 * fact.number >= self.marks.steps
        self.nudge, self.stall = fact.nudge, fact.stall
        self.step_open, self.step_started_at, self.step_usage = True, fact.elapsed, _NOTHING_USED
        self.batch, self.synthesis_done, self.reply_refused = _EMPTY, False, False

    def _prepare(self, fact: f.RequestPrepared) -> None:  # noqa: ARG002 (its values are only for the requests)
        RUN["request_prepared"](self.counters)

    def _review(self, fact: f.Reviewed) -> None:
        self.reply_refused = fact.retry
        RUN["reviewed"](self.counters, fact.retry)

    def _start_compaction(self, fact: f.CompactionStarted) -> None:  # noqa: ARG002 (its estimate is only for people)
        RUN["compaction_started"](self.counters)

    def _compact(self, fact: f.Compacted) -> None:
        self._use(fact.usage)

    def _reply(self, fact: f.ModelReplied) -> None:
        if fact.usage is not None:
            self._use(fact.usage)
        elif "usage_unknown" not in self.noticed:
            self.near = True
        self.batch = {call.id: Call(call, call.id, call.name, call.arguments or _EMPTY) for call in fact.calls}
        self.calls_made += len(fact.calls)
        self.synthesis_done = self.round_forgotten = False
        self.truncated = fact.finish is Finish.LENGTH
        runs = answers = lends = 0
        for call in fact.calls:
            if not call.refused:
                runs, answers = runs + (not call.output), answers + call.output
                if call.lease is not None:
                    lends += call.lease.calls or 0
        by_calls = self.limits.doom_compare == "calls"
        if by_calls or self.rounds.tools:
            latest = make_round([(call.name, call.key) for call in fact.calls if call.key]) if by_calls else None
            self.rounds = self.rounds.add_latest(latest, self.limits.doom_threshold)
        RUN["model_replied"](self.counters, runs, answers, lends, self.rounds.tools != ())

    def _fail_attempt(self, fact: f.AttemptFailed) -> None:
        self._use(fact.usage)
        silent = fact.retry and fact.cause is Cause.EMPTY_REPLY and fact.state is State.TEXT_ONLY
        RUN["attempt_failed"](self.counters, fact.retry, silent)

    def _use(self, usage: Usage | None) -> None:
        if usage is not None:
            self.step_usage = usage if self.step_usage is _NOTHING_USED else self.step_usage + usage
            self.input_tokens += usage.input_tokens
            self.output_tokens += usage.output_tokens
            cost = self.cost + usage.cost
            self.cost = cost if cost < LARGEST_FLOAT else LARGEST_FLOAT  # noqa: FURB136 (`min` is a call)
            if self.limits.tokens is not None or self.limits.cost is not None:
                self._spend()
            self.cached_tokens += usage.cached_tokens
            self.reasoning_tokens += usage.reasoning_tokens

    def _spend(self) -> None:
        limits = self.limits
        if limits.tokens is not None:
            self.counters.tokens_spent = self.tokens >= limits.tokens
            self.near = self.near or 5 * self.tokens >= self.marks.tokens
        if limits.cost is not None:
            self.counters.cost_spent = is_cost_spent(self.cost, limits.cost)
            self.near = self.near or 5 * self.cost >= self.marks.cost

    def _start(self, fact: f.CallStarted) -> None:
        call, counters = self.batch[fact.call], self.counters
        again, is_paid = call.state is CallState.STARTED, call.crash_paid
        RUN["call_started"](counters, again, call.counted, is_paid)
        if again and not is_paid:
            self._pay_for_crash()
        call.crash_paid = False
        is_first = not call.counted
        if is_first:
            call.counted = True
            self.near = self.near or 5 * counters.calls >= self.marks.tool_calls
        call.attempt = fact.attempt
        if fact.arguments is not None:
            call.arguments = fact.arguments
            self._bind(fact.arguments)
        call.state = CallState.STARTED
        if self.rules is not None and is_first:
            self.rules.started(call.id, call.name, call.arguments)
            if call.made.lease is not None:
                self.rules.delegate(call.id)

    def _pay_for_crash(self) -> None:
        """Let every call that runs in the journal run again: the retry of one pays for the crash of all."""
        for call in self.batch.values():
            if call.state is CallState.STARTED:
                call.crash_paid = True

    def _settle(self, fact: f.CallSettled) -> None:
        call = self.batch[fact.call]
        before, record, counters = call.state, call.made, self.counters
        is_ready = (
            before is CallState.READY and not record.refused
        )  # refused ones never run, so they were never counted
        was_waiting = before is CallState.WAITING
        spending = fact.spent
        RUN["call_settled"](
            counters,
            is_ready and not record.output,
            before is CallState.STARTED,
            was_waiting,
            is_ready and record.output,
            call.counted,
            call.crash_paid,
            0 if spending is None else spending.calls,
            0 if record.lease is None or before is CallState.SETTLED else record.lease.calls or 0,
            fact.final and fact.status is CallStatus.OK,
            count_answers(self.interrupts.values(), call.id) if was_waiting else 0,
        )
        call.state, call.crash_paid = CallState.SETTLED, False
        if self.rules is not None and call.counted:
            if record.lease is not None and before is not CallState.SETTLED:
                self.rules.rejoin(call.id, call.name, record.reaches, None if spending is None else spending.rules)
            result = fact.result if fact.structured is None else fact.structured
            self.rules.settle(call.id, fact.status, result, fact.result)
        call.result_key = fact.key
        if ":" in fact.key:
            call.unkeyed = fact
        call.failed = fact.status is CallStatus.ERROR
        if fact.retry:
            self.tool_retries = {**self.tool_retries, call.name: self.tool_retries.get(call.name, 0) + 1}
        if was_waiting:
            self.interrupts = {
                name: interrupt for name, interrupt in self.interrupts.items() if interrupt.call != call.id
            }
        if spending is not None:
            self.near = self.near or 5 * counters.calls >= self.marks.tool_calls
            self.input_tokens += spending.tokens
            self.cost = min(self.cost + spending.cost, LARGEST_FLOAT)
            self._spend()

    def _wait(self, fact: f.CallWaiting) -> None:
        call = self.batch[fact.call]
        answer_count = count_answers(fact.interrupts)
        RUN["call_waiting"](self.counters, call.state is CallState.READY, call.counted, call.crash_paid, answer_count)
        call.state, call.crash_paid, call.kept = CallState.WAITING, False, fact.interrupt.kept
        if fact.changed is not None:
            call.arguments = fact.changed
            self._bind(fact.changed)
        for interrupt in fact.interrupts:
            self._ask(interrupt)

    def _pause(self, fact: f.Paused) -> None:
        RUN["paused"](self.counters, fact.interrupt is not None)
        if fact.interrupt is not None:
            self._ask(fact.interrupt)

    def _ask(self, interrupt: f.InterruptRecord) -> None:
        is_shown = interrupt.arguments is not None or interrupt.restricted
        if is_shown or interrupt.kind is InterruptKind.RESULT or interrupt.kept is not None:
            self._bind(interrupt)
        # A copy of the turn, which observers receive, shares these.
        self.interrupts = FrozenDict({**self.interrupts, interrupt.id: interrupt})
        if not interrupt.forwarded:
            counts = self.interrupts_asked
            self.interrupts_asked = FrozenDict({**counts, interrupt.kind: counts.get(interrupt.kind, 0) + 1})

    def _answer(self, fact: f.Answered) -> None:
        interrupt = self.interrupts[fact.interrupt]
        call = self.batch[interrupt.call] if interrupt.call else None
        if call is None and (fact.by or fact.via or fact.at is not None):
            self.loop_signature = (fact.by, fact.via, fact.at)
        go_on = fact.decision in (Decision.GO_ON, Decision.ALWAYS)
        still_open = keep_open(self.interrupts, interrupt, fact.decision, fact.by)
        self.interrupts = FrozenDict(still_open)
        is_last = call is not None and not count_answers(still_open.values(), call.id)
        answers_left = count_answers(still_open.values())
        RUN["answered"](self.counters, call is None, go_on, call is not None and call.counted, answers_left, is_last)
        if fact.grant is not None:
            self.grants = (*self.grants, fact.grant)
        if call is not None:
            call.answers = (*call.answers, fact)
            if is_last:
                call.state = CallState.READY
            if fact.always:
                key = approval_key(call.made.name, call.arguments)
                self.approved_calls = FrozenDict({**self.approved_calls, key: interrupt.id})
            if fact.decision is Decision.APPROVE and interrupt.id not in still_open and not interrupt.forwarded:
                call.approved_rules += tuple(verdict.rule for verdict in interrupt.rules)
            call.has_result = fact.given is not None and not interrupt.forwarded
            if fact.given is not None or fact.decision is Decision.REPLY:  # the call continues with it
                self._bind(fact.text if fact.given is None else fact.given)
            if fact.arguments is not None and not interrupt.forwarded:
                call.arguments = fact.arguments
        elif go_on:
            self.rounds = NO_ROUNDS
            self.always_for |= frozenset(fact.always_for)

    def _synthesize(self, fact: f.Synthesized) -> None:  # noqa: ARG002 (its text is only for the transcript)
        self.synthesis_done = True

    def _end_step(self, fact: f.StepFinished) -> None:
        self.step_open, self.nudge, self.stall = False, False, None
        if fact.state is State.CHECK:
            if self.keys_results:
                self.rounds = self.rounds.add_settled_step(self.settled_calls(), self.limits)
            RUN["step_finished"](self.counters, self.rounds.tools != (), self.idles)

    def _stop(self, fact: f.Stopping) -> None:
        self._use(fact.usage)
        self.carried, self.also_reached, self.stopped_at = fact.reason, fact.also_reached, fact.elapsed
        RUN["stopping"](self.counters, fact.reason is EndReason.DOOM_LOOP)

    def _add_message(self, fact: f.MessageAdded) -> None:
        self.rounds = NO_ROUNDS
        if self.rules is not None:
            self.rules.steer(fact.text)
        if self.batch and self.keys_results:
            self.round_forgotten = True
        RUN["message_added"](self.counters)

    def _conclude(self, fact: f.Concluded) -> None:
        self._use(fact.usage)
        RUN["concluded"](self.counters, fact.retry)

    def _halt(self, fact: f.TurnEnded) -> None:
        self._use(fact.usage)
        self.reason, self.also_reached = fact.reason, fact.also_reached
        RUN["turn_ended"](self.counters)
        self.interrupts = _EMPTY

    def _notice(self, fact: f.Notice) -> None:
        self.noticed = tuple(sorted({*self.noticed, fact.limit}))
        self.marks = LimitThresholds.of(self.limits, self.noticed, self.counters.steps)
        # The machine, which has looked at all limits now, adds the other notices that are due in the same transaction.
        self.near = False

    _TAKES: ClassVar[dict[type[f.Fact], Callable[["Turn", Any], None]]] = {
        f.TurnStarted: _begin,
        f.StepStarted: _begin_step,
        f.RequestPrepared: _prepare,
        f.ModelReplied: _reply,
        f.Reviewed: _review,
        f.CompactionStarted: _start_compaction,
        f.Compacted: _compact,
        f.AttemptFailed: _fail_attempt,
        f.CallStarted: _start,
        f.CallSettled: _settle,
        f.CallWaiting: _wait,
        f.Paused: _pause,
        f.Synthesized: _synthesize,
        f.Answered: _answer,
        f.StepFinished: _end_step,
        f.Stopping: _stop,
        f.MessageAdded: _add_message,
        f.Concluded: _conclude,
        f.TurnEnded: _halt,
        f.Notice: _notice,
    }

    def digest(self) -> str:  # noqa: C901, PLR0912 (one value after the other: flat)
        """Return eight hexadecimal digits that depend on everything that can affect the rest of the turn.

        They are the same on every machine and under every version of Python and msgspec, because MessagePack defines
        each byte, including the eight bytes of the cost.
        """
        c, batch = self.counters, self.batch
        # fmt: off
        values: list[object] = [
            self.state, c.steps, c.allowance, c.calls, c.budgeted, c.budget, c.tokens_spent, c.cost_spent,
            c.time_spent, c.doom, c.doom_asks, c.nudges_left, c.pauses_left, c.retries_left, c.waiting,
            c.carried_doom, self.input_tokens, self.output_tokens, self.cost, self.calls_made, self.carried,
            self.reason, self.rounds.checksum, self.step_open, self.synthesis_done, self.noticed, self.grants,
        ]
        # fmt: on
        if self.always_for or self.interrupts:
            values += (sorted(self.always_for), [*self.interrupts])
            values += [
                (interrupt.id, interrupt.approvals, interrupt.approved_by)
                for interrupt in self.interrupts.values()
                if interrupt.approvals > 1 or interrupt.approved_by
            ]
        if self.approved_calls:
            values += ("approved", *sorted(self.approved_calls.items()))
        if self.loop_signature:
            values += ("loop", *self.loop_signature)
        if c.second_try:
            values.append("second_try")
        retries = c.output_retries_left, c.compactions_left
        if retries != _UNUSED or c.final or c.prepared or self.tool_retries:
            values += ("beside", *retries, c.final, c.prepared, sorted(self.tool_retries.items()))
        if c.idle or c.idle_limit not in _IDLE_LIMITS:
            values += ("idle", c.idle, c.idle_limit)
        if self.state is State.REVIEW:
            values.append(self.truncated)
        if self.cached_tokens or self.reasoning_tokens:  # likewise
            values += ("parts", self.cached_tokens, self.reasoning_tokens)
        has_keys, stalls, fails = self.keys_results, self.rounds.stalls, self.limits.stall_errors is not None
        if self.round_forgotten:
            values.append("forgotten")
        if stalls is not NO_STALLS:
            values += ("stalls", stalls.error, stalls.errors, stalls.idle, stalls.checksum, stalls.stall)
        if self.rules is not None:
            values += ("rules", self.rules.checksum)
        if self.terms:
            values += ("terms", self.terms)
        for name in batch:
            call = batch[name]
            values += (call.state, call.attempt, call.counted, call.made.own_key)
            for answer in call.answers:
                if answer.by or answer.via or answer.at is not None:
                    values += (answer.by, answer.via, answer.at)
                if answer.arguments is not None:
                    values += ("changed", approval_key(call.made.name, answer.arguments))
            if call.crash_paid:
                values.append("crash_paid")
            if call.has_result:
                values.append("given")
            if call.approved_rules:
                values.append(call.approved_rules)
            if has_keys:
                values += (call.made.key, f"{call.result_key}!" if call.failed and fails else call.result_key)
        try:
            digest_input = _pack(values)
        except (OverflowError, UnicodeEncodeError):  # a count of more than 64 bits, or half a surrogate pair
            digest_input = ascii(values).encode()
        return "%08x" % crc32(digest_input)  # noqa: UP031 (twice as fast as an f-string)

    def copy(self) -> "Turn":
        """Return a copy that shares only immutable values."""
        twin = object.__new__(Turn)
        twin.__dict__ = vars(self).copy()
        twin.counters = self.counters.copy()
        twin.batch = {name: replace(call) for name, call in self.batch.items()}
        if self.rules is not None:
            twin.rules = self.rules.copy()
        return twin


def approval_key(tool: str, arguments: Mapping[str, Any] | None) -> str:
    """Return the key of a call under which it is equal to another one: the same tool and the same arguments."""
    text = json.dumps([tool, arguments], sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:32]


def fold(facts: Iterable[f.Fact]) -> Turn:
    """Return the fold of the facts."""
    turn = Turn()
    for fact in facts:
        turn.apply(fact)
    return turn
