"""The environment of a turn: everything that the model, the tools, people, the clock and a crash can do to it.

The walk, and the search for a witness, use all of it at each configuration. Every kind of input is here, with all
values that the machine distinguishes: a cause that may pass and one that will not, a reply with and without calls, a
lease that was unused, used in part or in full, also by a sub-agent that a stop of its caller ended. `false_accounts`
has impossible inputs, which the machine must refuse.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations_with_replacement, product
from typing import Final

from msgspec.structs import replace

from turnwright_states.actions import (
    Action,
    AwaitPerson,
    CallModel,
    CompactHistory,
    Conclude,
    ReviewReply,
    RunTools,
    Synthesize,
)
from turnwright_states.call import Call, CallState
from turnwright_states.facts import Lease
from turnwright_states.inputs import (
    DECISIONS,
    AbortInput,
    AnsweredInput,
    AttemptFailedInput,
    CallQuestion,
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
    GivenResult,
    Input,
    InterruptKind,
    ModelRepliedInput,
    OversizedInput,
    RequestPreparedInput,
    ReviewedInput,
    Spent,
    SteeredInput,
    SynthesizedInput,
    ToolCall,
    TrippedInput,
    Usage,
)
from turnwright_states.reasons import Cause, EndReason
from turnwright_states.turn import Turn

from .case import Case
from .configuration import condition, key_of, loops_ahead, stalls_ahead, whole_key_of

_A, _B = ToolCall(name="a", arguments={}), ToolCall(name="b", arguments={})
_BAD = ToolCall(name="a", problem="unknown tool")
#: Calls that rules distinguish, by tool and by an argument.
_RULED: Final = (
    ToolCall(name="a", arguments={"k": 1}),
    ToolCall(name="b", arguments={"k": 1}),
    ToolCall(name="b", arguments={"k": 2}),
)
_CHILD = ToolCall(name="agent", arguments={}, delegates=True)
_ANSWER = ToolCall(name="answer", arguments={}, output=True)

_NOTHING: Final = Usage()
#: For each reason a cause that may pass and one that will not, if they exist. Replies cover the two that are excluded.
_CAUSES: Final = tuple(
    causes[0]
    for causes in (
        [cause for cause in Cause if (cause.reason, cause.may_pass) == kind]
        for kind in dict.fromkeys((cause.reason, cause.may_pass) for cause in Cause)
    )
    if causes[0] not in (Cause.EMPTY_REPLY, Cause.CONTENT_FILTER)
)
_FAILED: Final = tuple(AttemptFailedInput(cause=cause, usage=_NOTHING) for cause in _CAUSES)
_STOPPED: Final = (AbortInput(), FailInput(error="x"))
_LEFT: Final = (AbortInput(), AbortInput(reason=EndReason.SUPERSEDED))
#: A conclusion, a reply without text, and one with calls and a blank text.
_CONCLUDED: Final = (
    ConcludedInput(text="x", usage=_NOTHING),
    ConcludedInput(usage=_NOTHING),
    ConcludedInput(text=" ", calls=(_A,), usage=_NOTHING),
)
_SYNTHESIZED: Final = (
    SynthesizedInput(text="x"),
    SynthesizedInput(),
    SynthesizedInput(text=" "),
    AttemptFailedInput(cause=Cause.CRASH),
)
#: Replies without calls: an answer, a cut-off one, a filtered one, a blank one.
_TEXTS: Final = (
    ModelRepliedInput(text="x", usage=_NOTHING),
    ModelRepliedInput(text="x", finish=Finish.LENGTH, usage=_NOTHING),
    ModelRepliedInput(finish=Finish.CONTENT_FILTER, usage=_NOTHING),
    ModelRepliedInput(text=" ", usage=_NOTHING),
)
#: Calls in a reply that was filtered or cut off (docs/rules.md#replies).
_ODD_ENDINGS: Final = tuple(
    ModelRepliedInput(calls=(_A,), finish=finish, usage=_NOTHING) for finish in (Finish.CONTENT_FILTER, Finish.LENGTH)
)
_STEERED: Final = SteeredInput(text="x")
_PREPARED: Final = RequestPreparedInput(instructions="x")
_OVERSIZED: Final = OversizedInput(tokens=1)
_TRIPPED: Final = TrippedInput(guardrail="x")
#: Replies that are reviewed: an answer, a cut-off one, calls, a call that cannot run, typed answers.
_REVIEWED: Final = (
    ModelRepliedInput(text="x", usage=_NOTHING, review=True),
    ModelRepliedInput(text="x", finish=Finish.LENGTH, usage=_NOTHING, review=True),
    *(
        ModelRepliedInput(calls=calls, usage=_NOTHING, review=True)
        for calls in ((_A,), (_A, _BAD), (_BAD,), (_ANSWER,), (_A, _ANSWER), (_ANSWER, _ANSWER))
    ),
)
_REFUSED: Final = ReviewedInput(refused=True, feedback="x")
_REVIEW_FAILED: Final = (AttemptFailedInput(cause=Cause.CRASH), AttemptFailedInput(cause=Cause.BAD_REQUEST))
#: The interrupts of sub-agents that a parent forwards.
_FORWARDED: Final = (("question-1", InterruptKind.QUESTION), ("doom-1", InterruptKind.DOOM_LOOP))


class Environment:
    """The environment of the turns of one case.

    `reduced`: act on only one of several interchangeable calls (`configuration.py`), and on only one of two tools that
    the turn has not distinguished yet. Rules read the names and the order of calls, so turns with rules are never
    reduced. `key_of` is the key by which their configurations are compared.
    """

    def __init__(self, case: Case, *, reduced: bool = True) -> None:
        limits = case.limits
        self._reduced = reduced and not case.rules
        self.key_of = key_of if self._reduced else whole_key_of
        self._hooked = case.hooked
        self._waits = case.waits
        self._has_rules = case.rules != ()
        self._two_results = limits.results_decide
        self._timed = limits.seconds is not None
        #: Stops with a usage of sub-agents, and false accounts, each made once.
        self._stops_by_lease: dict[tuple[tuple[tuple[str, Lease], ...], bool], tuple[Input, ...]] = {}
        self._false: dict[tuple[str, int, bool, bool], tuple[Input, ...]] = {}
        #: All that a turn may spend, at once.
        self._spends = Usage(input_tokens=limits.tokens or 0, cost=limits.cost or 0.0)
        self._in_time = limits.seconds or 0.0
        expire = (ExpireInput(elapsed=self._in_time),) if self._timed else ()
        stops: tuple[Input, ...] = (_TRIPPED, *_STOPPED) if case.hooked else _STOPPED
        failures = (*_FAILED, *self._spending_failure())
        self._stopped = (*expire, *stops)
        self._cut_off = (*failures, *self._stopped)
        self._text_only = (*_TEXTS, ModelRepliedInput(calls=(_A,), usage=_NOTHING), *self._cut_off)
        self._conclusions = (*_CONCLUDED, *_FAILED, *stops)
        self._compactions = (*self._summaries(), *failures, *expire, *_STOPPED)
        batches = tuple(_batches(case))
        other_replies = (
            *self._spending_replies(batches),
            *_ODD_ENDINGS,
            *(_REVIEWED if case.hooked else ()),
            *self._cut_off,
        )
        self._replies = (*_TEXTS, *map(_asks, batches), *other_replies)
        # Until a turn has used a tool, both names mean the same.
        self._first_replies = (*_TEXTS, *(_asks(batch) for batch in batches if batch[0] is not _B), *other_replies)

    def moves(self, turn: Turn, action: Action) -> Iterator[Input]:
        """Yield every input that may come in the turn's configuration; `action` is its machine's action."""
        match action:
            case CallModel(tools=tools):
                yield from self._model_call(turn, tools=tools)
            case ReviewReply():
                yield from self._reviews(turn)
            case CompactHistory():
                yield from self._compactions
            case RunTools(calls=calls):
                yield from self._batch_moves(turn, calls)
            case Synthesize():
                yield from _SYNTHESIZED
                yield from self._stopped
            case AwaitPerson():
                yield from self._people(turn)
            case Conclude():
                yield from self._conclusions
            case _:  # Halt: a turn that is over gets no input
                pass

    def _model_call(self, turn: Turn, *, tools: bool) -> Iterator[Input]:
        if tools:
            without_names = self._reduced and not (turn.always_for or loops_ahead(turn) or stalls_ahead(turn))
            yield from self._first_replies if without_names else self._replies
            yield _STEERED
            if turn.counters.compactions_left:
                yield _OVERSIZED
        else:
            yield from self._text_only
        if self._hooked and turn.may_prepare:
            yield _PREPARED

    def _reviews(self, turn: Turn) -> Iterator[Input]:
        """Yield what hooks, guardrails and the output type say of a reply."""
        answers = [call.id for call in turn.open_calls() if call.made.output]
        yield from (ReviewedInput(answer=answer, output={}) for answer in answers) if answers else (ReviewedInput(),)
        yield _REFUSED
        yield from _REVIEW_FAILED
        yield from self._stopped

    def _batch_moves(self, turn: Turn, calls: tuple[Call, ...]) -> Iterator[Input]:
        for call in self._one_of_each(turn, calls):
            yield from self._call_moves(call)
        if not turn.counters.final:
            yield _STEERED
        yield from self._stops(turn, is_left=False)

    def _people(self, turn: Turn) -> Iterator[Input]:
        yield from self._answers(turn)
        if not turn.counters.final and all(interrupt.call for interrupt in turn.interrupts.values()):
            yield _STEERED
        yield from self._stops(turn, is_left=True)

    def _stops(self, turn: Turn, *, is_left: bool) -> tuple[Input, ...]:
        """Return the stops, and each again after the open sub-agents used their whole leases and one token more."""
        stops = _LEFT if is_left else self._stopped
        leases = tuple([(call.id, call.made.lease) for call in turn.open_calls() if call.counted and call.made.lease])
        if not leases:
            return stops
        if (leases, is_left) not in self._stops_by_lease:
            self._stops_by_lease[leases, is_left] = (*stops, *_with(stops, _used_up(leases)))
        return self._stops_by_lease[leases, is_left]

    def false_accounts(self, turn: Turn, action: Action) -> Iterator[Input]:
        """Yield inputs with an impossible usage of sub-agents, which the machine must refuse.

        They are more calls than the lease, usage before the start of the call, usage without a lease, and usage of a
        call that is in no open batch.
        """
        if not isinstance(action, RunTools | AwaitPerson):
            return
        is_left = isinstance(action, AwaitPerson)
        for call in self._one_of_each(turn, tuple(turn.open_calls())):
            lease, waits = call.made.lease, call.state is CallState.WAITING
            if lease is None or not call.counted:
                yield from self._false_account(call.id, 0, is_left=is_left, waits=waits)
            elif lease.calls is not None:
                yield from self._false_account(call.id, lease.calls + 1, is_left=is_left, waits=waits)
        yield from self._false_account("nobody", 0, is_left=is_left, waits=True)

    def _false_account(self, call: str, calls: int, *, is_left: bool, waits: bool) -> tuple[Input, ...]:
        key = call, calls, is_left, waits
        if key not in self._false:
            spending = Spent(calls=calls)
            ends = () if waits else (CallSettledInput(call=call, status=CallStatus.ERROR, spent=spending),)
            self._false[key] = (*ends, *_with(_LEFT if is_left else self._stopped, {call: spending}))
        return self._false[key]

    def _one_of_each(self, turn: Turn, calls: tuple[Call, ...]) -> Iterator[Call]:
        if not self._reduced or len(calls) == 1:
            yield from calls
            return
        yield from {condition(turn, call): call for call in calls}.values()

    def _call_moves(self, call: Call) -> Iterator[Input]:
        """Yield the inputs of one call.

        A ready call starts, fails its checks, or asks a person. A started call ends, asks, or loses its process; after
        a crash it runs again, asks, or has an unknown outcome.
        """
        lease = call.made.lease if call.counted else None
        ends = () if lease is None else _child_ends(call.id, lease.calls, lease.tokens, lease.cost)
        if call.state is CallState.READY:
            if call.has_result:  # hooks and guardrails see the result, then it settles the call
                yield from _settle(call.id)
                yield from _failed_check(call.id)
                if self._hooked:
                    yield from _final(call.id)
                return
            yield from _ready_moves(call.id)
            if self._waits:
                yield _needs_two(call.id)
            yield from ends or _failed_check(call.id)
            return
        yield from ends or _settle(call.id)
        if not ends:
            yield from self._other_results(call.id)
        if self._hooked and not ends:
            yield from _final(call.id)
        if lease is not None:
            yield from _child_asks(call.id)
        yield from _started_moves(call.id)
        if self._waits:
            yield from _later_moves(call.id, delegates=lease is not None)
        if self._timed:
            yield from _settle(call.id, elapsed=self._in_time)

    def _other_results(self, call: str) -> Iterator[Input]:
        """Yield the results that rules, or the detector of loops, distinguish from the first one."""
        if self._has_rules:
            yield from _failed_check(call)
        if self._two_results:
            yield _settled_otherwise(call)

    def _answers(self, turn: Turn) -> Iterator[Input]:
        questions: dict[object, tuple[str, tuple[Decision, ...]]] = {}
        for open_interrupt in turn.interrupts.values():
            alike = (
                open_interrupt.kind,
                open_interrupt.forwarded,
                open_interrupt.approvals,
                condition(turn, turn.batch[open_interrupt.call]) if open_interrupt.call else (),
            )
            questions[alike if self._reduced else open_interrupt.id] = (
                open_interrupt.id,
                DECISIONS[open_interrupt.kind],
            )
        for interrupt, decisions in questions.values():
            for decision in decisions:
                if decision is not Decision.SETTLE or self._waits:
                    yield _answer(interrupt, decision, len(turn.interrupts[interrupt].approved_by))

    def _spending_replies(self, batches: tuple[tuple[ToolCall, ...], ...]) -> Iterator[Input]:
        if self._spends != _NOTHING:
            yield from (ModelRepliedInput(calls=batch, usage=self._spends) for batch in batches)
            if self._hooked:
                yield ModelRepliedInput(text="x", usage=self._spends, review=True)
                yield ModelRepliedInput(calls=(_A,), usage=self._spends, review=True)
        if self._timed:
            yield ModelRepliedInput(calls=(_A,), usage=_NOTHING, elapsed=self._in_time)

    def _summaries(self) -> Iterator[Input]:
        yield CompactedInput(text="x", usage=_NOTHING)
        if self._spends != _NOTHING:
            yield CompactedInput(text="x", usage=self._spends)

    def _spending_failure(self) -> Iterator[Input]:
        if self._spends != _NOTHING:
            yield AttemptFailedInput(cause=Cause.INTERRUPTED, usage=self._spends)


def _batches(case: Case) -> Iterator[tuple[ToolCall, ...]]:
    """Yield the possible batches of a reply.

    They have up to `widest` calls of one tool, the last perhaps of an unknown tool. With the loop detector they use two
    tools, because otherwise a tool's name has no effect. With sub-agents they have every mixture of them and a plain
    tool, in every order, because places are given in call order. With rules they have every mixture of calls that
    rules distinguish.
    """
    for size in range(1, case.widest + 1):
        if case.rules:
            yield from product(_RULED, repeat=size)
        elif case.delegates:
            yield from product((_A, _CHILD), repeat=size)
        elif case.limits.shortest_loop is not None:
            yield from combinations_with_replacement((_A, _B), size)
        else:
            yield (_A,) * size
        yield (*((_A,) * (size - 1)), _BAD)


def _asks(batch: tuple[ToolCall, ...]) -> Input:
    return ModelRepliedInput(calls=batch, usage=_NOTHING)


# Inputs are frozen, and a walk feeds the same ones millions of times, so each is made once.


@cache
def _ready_moves(call: str) -> tuple[Input, ...]:
    return (CallStartedInput(call=call), CallWaitingInput(call=call, interrupt_kind=InterruptKind.APPROVAL))


@cache
def _failed_check(call: str) -> tuple[Input, ...]:
    return (CallSettledInput(call=call, status=CallStatus.ERROR),)


@cache
def _started_moves(call: str) -> tuple[Input, ...]:
    return (CallStartedInput(call=call), CallWaitingInput(call=call, interrupt_kind=InterruptKind.UNKNOWN_OUTCOME))


@cache
def _settle(call: str, *, elapsed: float = 0.0) -> tuple[Input, ...]:
    return (CallSettledInput(call=call, elapsed=elapsed),)


@cache
def _settled_otherwise(call: str) -> Input:
    return CallSettledInput(call=call, result="something else")


@cache
def _final(call: str) -> tuple[Input, ...]:
    return (CallSettledInput(call=call, final=True),)


@cache
def _child_asks(call: str) -> tuple[Input, ...]:
    return tuple(
        CallWaitingInput(call=call, interrupt_kind=kind, forwarded=is_forwarded) for is_forwarded, kind in _FORWARDED
    )


@cache
def _child_ends(call: str, calls: int | None, tokens: int | None, cost: float | None) -> tuple[Input, ...]:
    """Return the ends of a started sub-agent that used none, a part, or all of its lease.

    Its last reply may use more tokens than the lease.
    """
    spendings = [Spent(calls=count) for count in range(2 if calls is None else calls + 1)]
    spendings += [Spent(tokens=count) for count in (() if tokens is None else (tokens, tokens + 1))]
    spendings += [] if cost is None else [Spent(cost=cost)]
    # A call that an answer made ready again may end, but only with an error.
    return tuple(CallSettledInput(call=call, status=CallStatus.ERROR, spent=spending) for spending in spendings)


def _with(stops: tuple[Input, ...], spending_by_call: Mapping[str, Spent]) -> Iterator[Input]:
    return (replace(stop, spent=spending_by_call) for stop in stops)


@cache
def _used_up(leases: tuple[tuple[str, Lease], ...]) -> Mapping[str, Spent]:
    return {
        call: Spent(
            calls=1 if lease.calls is None else lease.calls,
            tokens=0 if lease.tokens is None else lease.tokens + 1,
            cost=lease.cost or 0.0,
        )
        for call, lease in leases
    }


@cache
def _needs_two(call: str) -> Input:
    return CallWaitingInput(call=call, interrupt_kind=InterruptKind.APPROVAL, approvals=2)


@cache
def _later_moves(call: str, *, delegates: bool) -> tuple[Input, ...]:
    """Return the waits of a started call: for its result, for two answers of one round, or for a sub-agent's tree."""
    if not delegates:
        more_questions = (CallQuestion(interrupt_kind=InterruptKind.QUESTION),)
        return (
            CallWaitingInput(call=call, interrupt_kind=InterruptKind.RESULT),
            CallWaitingInput(call=call, interrupt_kind=InterruptKind.QUESTION, more=more_questions),
        )
    tree = (
        CallQuestion(interrupt_kind=InterruptKind.RESULT, forwarded="call00001/result-1"),
        CallQuestion(interrupt_kind=InterruptKind.APPROVAL, forwarded="approval-2", approvals=2),
    )
    return (
        CallWaitingInput(call=call, interrupt_kind=InterruptKind.APPROVAL, forwarded="approval-1", more=tree[:1]),
        CallWaitingInput(call=call, interrupt_kind=InterruptKind.APPROVAL, forwarded="approval-1", more=tree[1:]),
    )


@cache
def _answer(interrupt: str, decision: Decision, approvals: int) -> Input:
    result = GivenResult(text="x") if decision is Decision.SETTLE else None
    return AnsweredInput(interrupt=interrupt, decision=decision, given=result, by=f"person {approvals}")
