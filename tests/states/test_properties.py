"""Any turn under any limits ends, and its journal determines it (docs/rules.md#termination, #journal)."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from msgspec.structs import replace

from turnwright_proof.rank import rank_of
from turnwright_states import (
    DECISIONS,
    AbortInput,
    Action,
    AnsweredInput,
    AttemptFailedInput,
    AwaitPerson,
    Call,
    CallModel,
    CallSettledInput,
    CallStartedInput,
    CallState,
    CallStatus,
    CallWaitingInput,
    Cause,
    CompactedInput,
    CompactHistory,
    Conclude,
    ConcludedInput,
    Decision,
    ExpireInput,
    FailInput,
    Finish,
    Halt,
    Input,
    InterruptKind,
    Limits,
    ModelRepliedInput,
    OversizedInput,
    RequestPreparedInput,
    ReviewedInput,
    ReviewReply,
    RunTools,
    Spent,
    StartedInput,
    State,
    SteeredInput,
    Synthesize,
    SynthesizedInput,
    ToolCall,
    TrippedInput,
    TurnMachine,
    Usage,
    facts,
)
from turnwright_states.counters import BATCH
from turnwright_states.fact_parser import parse_fact
from turnwright_states.facts import Fact, Lease
from turnwright_states.inputs import GivenResult, StopInput
from turnwright_states.turn import Turn

# The surroundings: a model, tools and people who throw a die at each point where they could do this or that. The throws
# are repeated for as long as the turn lasts, so that a few of them make a long turn, and a loop.


class Dice:
    """Throws from a list, over and over: `pick` one of these, or take a `number` below a bound."""

    def __init__(self, throws: Sequence[int]) -> None:
        self.throws, self.thrown = throws, 0
        #: A person who never stops writing would be the one thing that has no end.
        self.messages_left = 9

    def number(self, below: int) -> int:
        self.thrown += 1
        return self.throws[self.thrown % len(self.throws)] % below

    def pick(self, *options: "Option") -> Input:
        return options[self.number(len(options))]()


Option = Callable[[], Input]

CAUSES = (Cause.TIMEOUT, Cause.CRASH, Cause.OVERLOADED, Cause.CONTEXT_OVERFLOW)
STATUSES = (CallStatus.OK, CallStatus.OK, CallStatus.ERROR, CallStatus.UNKNOWN)


class Setting(NamedTuple):
    """One turn to be: its limits, and what happens in it."""

    started: StartedInput
    throws: list[int]
    #: The number of the event that is an abort, or a failure of the engine; None for none.
    stopped_at: int | None
    #: Whether hooks, guardrails and typed answers act.
    hooked: bool = False


def usage(dice: Dice) -> Usage | None:
    return (None, Usage(input_tokens=3, cost=0.01), Usage(input_tokens=10, output_tokens=7, cost=0.1))[dice.number(3)]


def asked(dice: Dice) -> ToolCall:
    name = "abc"[dice.number(3)]
    return (
        ToolCall(name=name, arguments={}),
        ToolCall(name=name, arguments={"n": dice.number(2)}, provider_id="call_0"),
        ToolCall(name=name, raw='{"n":'),
        ToolCall(name=name, arguments={}, problem="there is no such tool"),
        ToolCall(name="poll", arguments={}, ignore_in_loop_detection=True),
        ToolCall(name="agent", arguments={}, delegates=True),
    )[dice.number(6)]


def reply(dice: Dice, *, hooked: bool) -> ModelRepliedInput:
    calls = tuple(asked(dice) for _ in range(1 + dice.number(4)))
    review = hooked and dice.number(4) > 0
    if review and dice.number(3) == 0:
        answer = ToolCall(name="answer", arguments={"n": dice.number(2)}, output=True)
        calls = (*calls, answer) if dice.number(2) else (answer, answer)
    return ModelRepliedInput(calls=calls, finish=tuple(Finish)[dice.number(2)], usage=usage(dice), review=review)


def final(dice: Dice, *, hooked: bool) -> ModelRepliedInput:
    text, finish = "x" * dice.number(2), tuple(Finish)[dice.number(3)]
    return ModelRepliedInput(text=text, finish=finish, usage=usage(dice), review=hooked and dice.number(4) > 0)


def reviewed(dice: Dice, calls: Sequence[Call]) -> ReviewedInput:
    decisions = ({"hook": "h"},) if dice.number(2) else ()
    if dice.number(3) == 0:
        return ReviewedInput(refused=True, feedback="no", decisions=decisions)
    answers = [call.id for call in calls if call.made.output and call.state is not CallState.SETTLED]
    if not answers:
        return ReviewedInput(output=[1] if dice.number(2) else None, decisions=decisions)
    return ReviewedInput(answer=answers[dice.number(len(answers))], output={"n": 1}, decisions=decisions)


def prepared(dice: Dice) -> RequestPreparedInput:
    return (
        RequestPreparedInput(instructions="x", decisions=({"hook": "h"},)),
        RequestPreparedInput(tools=("a",), settings={"temperature": 0}, append=("y",)),
    )[dice.number(2)]


def asks(dice: Dice, turn: Turn) -> list[Option]:
    """Return the options before a model call, or in place of it."""
    options: list[Option] = [lambda: prepared(dice)] if turn.may_prepare else []
    tools = turn.state is State.STREAM
    return options + ([lambda: OversizedInput(tokens=9)] * 2 if tools and turn.counters.compactions_left else [])


def tripped() -> TrippedInput:
    return TrippedInput(guardrail="g", message="no", metadata={"n": 1}, partial="x", usage=Usage(input_tokens=1))


def compacted(dice: Dice) -> CompactedInput:
    return CompactedInput(text="x", cleared=not dice.number(3), kept=2, usage=usage(dice))


def failed(dice: Dice) -> AttemptFailedInput:
    return AttemptFailedInput(cause=CAUSES[dice.number(len(CAUSES))], usage=usage(dice))


def settled(dice: Dice, call: Call) -> CallSettledInput:
    status = STATUSES[dice.number(4)] if call.state is CallState.STARTED else CallStatus.ERROR
    lease = call.made.lease
    spent = None
    if lease is not None and call.state is CallState.STARTED:
        spent = used_of(dice, lease)
    return CallSettledInput(call=call.id, status=status, result="x", spent=spent)


def hooks_settle(dice: Dice, call: Call) -> CallSettledInput:
    """The end of a call with the decisions of hooks: its result may be the answer, and its tool may raise `Retry`."""
    end = settled(dice, call)
    changes = ({"final": True}, {"retry": True}, {"decisions": ({"hook": "h"},), "structured": {"n": 1}})
    return replace(end, **changes[dice.number(3)])


def used_of(dice: Dice, lease: Lease) -> Spent:
    return Spent(calls=dice.number(4 if lease.calls is None else lease.calls + 1), tokens=2, cost=0.01)


def told(dice: Dice, stop: Input, turn: Turn) -> Input:
    """The event; if it is a stop, with what the open sub-agents used."""
    if not isinstance(stop, StopInput):
        return stop
    open_calls = [(call.id, call.made.lease) for call in turn.open_calls() if call.counted]
    return replace(stop, spent={call: used_of(dice, lease) for call, lease in open_calls if lease})


def waits(dice: Dice, call: Call) -> CallWaitingInput:
    # Of a sub-agent's call, it is an interrupt of the child, which may be about a doom loop of its own.
    forwarded = f"child-{call.attempt}" if call.made.lease is not None else None
    kind = tuple(InterruptKind)[dice.number(5 if forwarded else 4)]
    changed = {"n": 7} if call.made.arguments and dice.number(2) else None
    return CallWaitingInput(
        call=call.id,
        interrupt_kind=kind,
        grant="/tmp",  # noqa: S108 (a path to grant)
        forwarded=forwarded,
        changed=changed,
    )


def answers(dice: Dice, about: facts.InterruptRecord, *, hooked: bool) -> AnsweredInput:
    decision = DECISIONS[about.kind][dice.number(len(DECISIONS[about.kind]))]
    changes = hooked and about.kind is InterruptKind.APPROVAL and decision is Decision.APPROVE and dice.number(2)
    result = GivenResult(text="from outside") if decision is Decision.SETTLE else None
    return AnsweredInput(interrupt=about.id, decision=decision, arguments={"n": 8} if changes else None, given=result)


def message(dice: Dice, instead: Option) -> Input:
    dice.messages_left -= 1
    return SteeredInput(text="x") if dice.messages_left >= 0 else instead()


def runs(dice: Dice, turn: Turn, call: Call, late: list[Option], *, hooked: bool) -> Input:
    """Draw what happens to one of the calls that can run."""
    changed = {"n": 9} if hooked and call.made.arguments is not None and dice.number(2) else None
    start = CallStartedInput(call=call.id, arguments=changed, decisions=({"hook": "h"},) if changed else ())
    end: Option = lambda: hooks_settle(dice, call) if hooked and not dice.number(3) else settled(dice, call)  # noqa: E731 (one of several)
    if call.has_result:  # hooks and guardrails may end the turn instead
        return dice.pick(*[end] * 5, *late)
    run = [lambda: start] * 5 if call.state is CallState.READY else [end] * 5
    says: Option = end if turn.counters.final else lambda: message(dice, end)
    return dice.pick(*run, end, lambda: start, lambda: waits(dice, call), says, *late)


def happens(dice: Dice, action: Action, setting: Setting, turn: Turn) -> Input:  # noqa: PLR0911 (one an action)
    """Draw an input for the machine's action."""
    hooked = setting.hooked
    late: list[Option] = [ExpireInput] if setting.started.limits.seconds is not None else []
    if hooked and not isinstance(action, CompactHistory | AwaitPerson | Halt) and not dice.number(40):
        return tripped()
    match action:
        case CallModel(tools=tools):
            replies = [lambda: reply(dice, hooked=hooked)] * (6 if tools else 1)
            before = asks(dice, turn) if hooked else []
            return dice.pick(*replies, *before, lambda: final(dice, hooked=hooked), lambda: failed(dice), *late)
        case ReviewReply(calls=calls):
            return dice.pick(*[lambda: reviewed(dice, calls)] * 6, lambda: failed(dice), *late)
        case CompactHistory():
            return dice.pick(*[lambda: compacted(dice)] * 3, lambda: failed(dice), *late)
        case RunTools(calls=calls):
            return runs(dice, turn, calls[dice.number(len(calls))], late, hooked=hooked)
        case Synthesize():
            return dice.pick(*[SynthesizedInput] * 3, lambda: SynthesizedInput(text="x"), lambda: failed(dice), *late)
        case AwaitPerson(interrupts=interrupts):
            return answers(dice, interrupts[dice.number(len(interrupts))], hooked=hooked)
        case Conclude():
            texts = ("x", None)
            end_it: Option = lambda: ConcludedInput(text=texts[dice.number(2)], usage=usage(dice))  # noqa: E731 (likewise)
            return dice.pick(end_it, lambda: failed(dice))
        case Halt():
            raise AssertionError("nothing happens after the end")


def settings_of_a_turn(steps: st.SearchStrategy[int | None]) -> st.SearchStrategy[Setting]:
    limits = st.builds(
        Limits,
        steps=steps,
        concluding=st.sampled_from(("after", "within", "never")),
        tool_calls=st.none() | st.integers(0, 9) | st.integers(0, 600),
        max_calls_per_step=st.integers(1, 4),
        tokens=st.none() | st.none() | st.integers(1, 2000),
        cost=st.none() | st.none() | st.floats(0.01, 20),
        seconds=st.none() | st.none() | st.none() | st.floats(0.5, 500),
        doom_threshold=st.none() | st.integers(2, 4),
        doom_compare=st.sampled_from(("results", "calls")),
        doom_response=st.sampled_from(("stop", "ask")),
        nudges=st.integers(0, 2),
        max_retries=st.integers(0, 3),
        max_pauses=st.integers(0, 4),
        output_retries=st.integers(0, 3),
        max_compactions=st.integers(0, 3),
    )
    return st.builds(
        Setting,
        st.builds(
            StartedInput, prompt=st.just("x"), limits=limits, synthesis=st.booleans(), depth=st.sampled_from((0, 0, 3))
        ),
        st.lists(st.integers(0, 719), min_size=1, max_size=60),
        st.none() | st.none() | st.integers(0, 60),
        st.booleans(),
    )


SHORT = settings_of_a_turn(st.integers(0, 6))
ANY = settings_of_a_turn(st.none() | st.integers(0, 250))


class Played(NamedTuple):
    """A turn that was played to its end: what was fed, and what each feed gave; `started` gave the first."""

    events: list[Input]
    transactions: list[list[Fact]]
    machine: TurnMachine
    model_calls: int

    @property
    def journal(self) -> list[Fact]:
        return [fact for transaction in self.transactions for fact in transaction]


#: No turn of these settings comes near it: one that does would not end.
MOST_EVENTS = 20_000


def play(setting: Setting) -> Played:
    dice = Dice(setting.throws)
    machine, first = TurnMachine.start(setting.started)
    events: list[Input] = []
    transactions, model_calls = [first], 0
    while not isinstance(machine.action, Halt):
        action = machine.action
        if len(events) == setting.stopped_at:
            fails = dice.number(2) and not isinstance(action, AwaitPerson)
            events.append(told(dice, FailInput(error="x") if fails else AbortInput(), machine.turn))
        else:
            new = told(dice, happens(dice, action, setting, machine.turn), machine.turn)
            # The longer the number of throws, the slower the clock: some turns expire, most do not.
            events.append(replace(new, elapsed=0.37 * len(events) / len(setting.throws)))
        # What comes before the model call is none.
        begins = not isinstance(events[-1], RequestPreparedInput | OversizedInput)
        model_calls += isinstance(action, CallModel | CompactHistory | Conclude) and begins
        before = rank_of(machine.turn)
        transactions.append(machine.feed(events[-1]))
        if isinstance(events[-1], SteeredInput):
            assert rank_of(machine.turn) == before
        else:
            assert rank_of(machine.turn) < before, "each event brings the end nearer"
        assert len(events) < MOST_EVENTS
    return Played(events, transactions, machine, model_calls)


def of(journal: list[Fact], kind: type[Fact]) -> int:
    return sum(isinstance(fact, kind) for fact in journal)


@given(ANY)
def test_every_turn_ends_within_the_limits(setting: Setting) -> None:
    """Steps, model calls and tool calls, counted from the journal and not from the machine's own counters."""
    played, limits = play(setting), setting.started.limits
    journal = played.journal
    turn_ended = journal[-1]
    assert isinstance(turn_ended, facts.TurnEnded)
    event(f"{turn_ended.outcome}/{turn_ended.reason}")
    event(f"steps: {len(str(of(journal, facts.StepStarted)))} digits")
    assert of(journal, facts.StepStarted) <= min(limits.allowance, 200)
    assert of(journal, facts.StepStarted) == of(journal, facts.StepFinished)
    assert played.model_calls <= limits.model_calls
    started = {fact.call for fact in journal if isinstance(fact, facts.CallStarted)}
    lent = sum(fact.spent.calls for fact in journal if isinstance(fact, facts.CallSettled) and fact.spent)
    assert limits.call_limit is None or len(started) + lent <= limits.call_limit
    assert of(journal, facts.Paused) <= limits.max_pauses
    assert sum(isinstance(fact, facts.Reviewed) and fact.retry for fact in journal) <= limits.output_retries
    assert of(journal, facts.CompactionStarted) <= limits.max_compactions


@given(ANY)
def test_first_fact_of_each_input_has_a_hash(setting: Setting) -> None:
    """It has values of the input, which nothing else binds to the state."""
    assert all(transaction[0].hash for transaction in play(setting).transactions)


@given(ANY)
def test_each_call_has_exactly_one_result_and_only_allowed_calls_run(setting: Setting) -> None:
    journal = play(setting).journal
    calls = [call for fact in journal if isinstance(fact, facts.ModelReplied) for call in fact.calls]
    results = Counter(fact.call for fact in journal if isinstance(fact, facts.CallSettled))
    assert results == {call.id: 1 for call in calls}
    started = {fact.call for fact in journal if isinstance(fact, facts.CallStarted)}
    assert not started & {call.id for call in calls if call.refused}


@given(ANY)
def test_result_comes_before_the_next_model_call(setting: Setting) -> None:
    """At every quiescent point: when a step starts, or the turn concludes, no call is open."""
    open_calls: set[str] = set()
    for fact in play(setting).journal:
        if isinstance(fact, facts.ModelReplied):
            open_calls |= {call.id for call in fact.calls}
        elif isinstance(fact, facts.CallSettled):
            open_calls.remove(fact.call)
        elif isinstance(fact, facts.StepStarted | facts.Stopping | facts.TurnEnded):
            assert not open_calls


@given(ANY)
def test_turn_ended_is_last_and_each_notice_appears_once(setting: Setting) -> None:
    journal = play(setting).journal
    assert [fact.kind for fact in journal].index("turn_ended") == len(journal) - 1
    noticed = [fact.limit for fact in journal if isinstance(fact, facts.Notice)]
    assert len(noticed) == len(set(noticed))
    assert [fact.elapsed for fact in journal] == sorted(fact.elapsed for fact in journal)


#: After these a limit may have come near.
RAISING = (
    *(facts.StepStarted, facts.ModelReplied, facts.AttemptFailed),
    *(facts.CallStarted, facts.CallSettled, facts.Compacted),
)


@given(ANY)
def test_limit_is_noticed_by_the_first_fact_past_four_fifths(setting: Setting) -> None:
    """No sooner and no later, together with missing usage. A notice about steps needs another step."""
    turn, journal = Turn(), play(setting).journal
    due: list[str] = []
    for fact in journal:
        if isinstance(fact, facts.Notice):
            assert fact.limit == due.pop(0)
        else:
            assert not due
        turn.apply(fact)
        if isinstance(fact, RAISING):
            is_unmetered = isinstance(fact, facts.ModelReplied) and fact.usage is None
            due = ["usage_unknown"] if is_unmetered and "usage_unknown" not in turn.noticed else []
            uses = [
                (name, amount, most) for name, amount, most in turn.use() if name != "steps" or (most and amount < most)
            ]
            near = [name for name, amount, most in uses if most and 5 * amount >= 4 * most]
            due += [name for name in near if name not in turn.noticed]
    assert not due


@given(ANY)
def test_every_fact_of_the_machine_survives_a_round_trip(setting: Setting) -> None:
    """Nobody looks at what it makes: so a journal reads each of them, as it was."""
    for fact in play(setting).journal:
        payload = fact.payload()
        back = parse_fact(fact.kind, payload)
        assert back == fact
        assert back.payload() == payload


def known(turn: Turn) -> dict[str, object]:
    """All that a turn knows, in a form that can be compared."""
    values = vars(Turn) | vars(turn)
    values["counters"] = turn.counters.kept()
    values["batch"] = [
        (call.made, call.state, call.attempt, call.counted, call.answers, call.arguments)
        for call in turn.batch.values()
    ]
    return values


@given(ANY)
def test_fold_of_every_prefix_equals_the_state_of_the_machine(setting: Setting) -> None:
    """After going through the store's text, too: each fact carries the hash of the state after it."""
    played, turn = play(setting), Turn()
    for seq, fact in enumerate(played.journal, start=1):
        turn.apply(parse_fact(fact.kind, fact.payload(), seq))
        assert fact.hash in ("", turn.digest()), f"fact {seq}, {fact.kind}"
        assert turn.state is fact.state
    assert known(turn) == known(played.machine.turn)


def counted(turn: Turn) -> Counter[str]:
    """The open calls, by their condition, and the calls in all their leases."""
    counts = Counter[str]()
    for call in turn.open_calls():
        match call.state:
            case CallState.READY:
                name = "answering" if call.made.output else "ready"
            case CallState.STARTED:
                name = "running"
            case _:
                name = "asking"
        again = call.counted and not call.made.output and call.state is not CallState.STARTED
        counts[f"{name}_counted" if again else name] += 1
        counts["crash_paid"] += call.crash_paid
        counts["lent"] += (call.made.lease and call.made.lease.calls) or 0
    return counts


@given(ANY)
def test_batch_counters_count_the_calls_of_the_batch(setting: Setting) -> None:
    """After each event; a conclusion and an end close all calls."""
    turn = Turn()
    for transaction in play(setting).transactions:
        for fact in transaction:
            turn.apply(fact)
        assert counted(turn) == Counter({name: getattr(turn.counters, name) for name in BATCH})


@pytest.mark.parametrize("budget", [9, None])
def test_batch_counters_count_the_calls_of_every_kind_of_batch(budget: int | None) -> None:
    """Typed answers, refused calls, sub-agents, calls that run, ask, run again, and end."""
    machine, _ = TurnMachine.start(StartedInput(prompt="x", limits=Limits(tool_calls=budget, max_calls_per_step=6)))
    plain_call, child = ToolCall(name="a", arguments={}), ToolCall(name="b", arguments={}, delegates=True)
    answer, broken = ToolCall(name="c", arguments={}, output=True), ToolCall(name="d", raw="{")
    asks = CallWaitingInput(call="call00002", interrupt_kind=InterruptKind.APPROVAL)
    for fed in (
        ModelRepliedInput(calls=(plain_call, plain_call, child, child, answer, answer, broken), review=True),
        ReviewedInput(answer="call00005"),
        asks,
        *(CallStartedInput(call=call) for call in ("call00001", "call00003", "call00004")),
        replace(asks, call="call00001"),
        CallSettledInput(call="call00003", spent=Spent(calls=1)),
        CallSettledInput(call="call00004"),
        AnsweredInput(interrupt="approval-2", decision=Decision.APPROVE),
        AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE),
        CallStartedInput(call="call00001"),
        CallSettledInput(call="call00002", status=CallStatus.ERROR),
    ):
        machine.feed(fed)
        turn = machine.turn
        assert counted(turn) == Counter({name: getattr(turn.counters, name) for name in BATCH}), fed


def shown(action: Action) -> object:
    """An action, in a form that can be compared with that of another machine."""
    if isinstance(action, RunTools | ReviewReply | Synthesize):
        calls = action.batch if isinstance(action, Synthesize) else action.calls
        return type(action), [(call.id, call.state, call.attempt, call.answers) for call in calls]
    return action


@given(SHORT)
def test_turn_resumed_after_any_feed_continues_identically(setting: Setting) -> None:
    """A crash between two transactions, at each place where one can be: the same facts follow, to the end."""
    played = play(setting)
    prefix: list[Fact] = []
    live, _ = TurnMachine.start(setting.started)
    for place, transaction in enumerate(played.transactions):
        if place:
            resumed = TurnMachine.resume(prefix, verify=True)
            assert shown(resumed.action) == shown(live.action)
            assert rank_of(resumed.turn) == rank_of(live.turn)
            assert resumed.feed(played.events[place - 1]) == transaction
            assert live.feed(played.events[place - 1]) == transaction
            assert known(resumed.turn) == known(live.turn)
        prefix += [parse_fact(fact.kind, fact.payload()) for fact in transaction]


@given(ANY, st.integers(0, 10_000))
def test_resumed_turn_has_the_same_end(setting: Setting, at: int) -> None:
    """For a turn of any length: resumed at one place, and played from there."""
    played = play(setting)
    place = 1 + at % len(played.events)
    journal = [parse_fact(fact.kind, fact.payload()) for part in played.transactions[:place] for fact in part]
    resumed = TurnMachine.resume(journal, verify=True)
    for new, transaction in zip(played.events[place - 1 :], played.transactions[place:], strict=True):
        assert resumed.feed(new) == transaction
    assert resumed.action == played.machine.action


@given(SHORT, st.integers(0, 10_000))
def test_copied_turn_is_independent_of_the_original(setting: Setting, at: int) -> None:
    """Feeding a copy leaves the turn as it was, and a copy fed the same is the same."""
    played = play(setting)
    machine, _ = TurnMachine.start(setting.started)
    for new in played.events[: at % len(played.events)]:
        machine.feed(new)
    before, twin = known(machine.turn), machine.copy()
    for new in played.events[at % len(played.events) :]:
        twin.feed(new)
    assert known(machine.turn) == before
    assert known(twin.turn) == known(played.machine.turn)
