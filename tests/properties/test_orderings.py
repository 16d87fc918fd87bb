"""Pauses, answers, new messages, aborts, crashes and recoveries, in any order, over sessions of several turns.

Two machines: one over the real engine, each of whose rules is a process of its own over one store; and one over the
pure machine, which also takes messages in while its tools run. Source: docs/rules.md#pairing, #aborts, #messages.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

import anyio
from hypothesis import event, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.hypothesis_examples import percent_of_examples
from tests.rule_bounds import most_tool_calls, steps_with_tools

from turnwright import Agent, Engine, SessionBusyError, StoreError, TurnResult, tool
from turnwright.journal.answers import ANSWERABLE
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse, ResponseToolCall
from turnwright.model.retry import Backoff
from turnwright.store import MemoryStore, Queued, Store
from turnwright.tools import ToolContext
from turnwright.transcript.pairing import check_pairing
from turnwright_proof.rank import rank_of
from turnwright_states import (
    DECISIONS,
    AbortInput,
    Action,
    AnsweredInput,
    AttemptFailedInput,
    AwaitPerson,
    CallModel,
    CallSettledInput,
    CallStartedInput,
    CallState,
    CallWaitingInput,
    Cause,
    ConcludedInput,
    Decision,
    EndReason,
    ExpireInput,
    FailInput,
    Input,
    InterruptKind,
    Limits,
    MachineError,
    ModelRepliedInput,
    Outcome,
    RunTools,
    StartedInput,
    State,
    SteeredInput,
    SynthesizedInput,
    ToolCall,
    Turn,
    TurnMachine,
)
from turnwright_states import facts as f
from turnwright_states.counters import Counters
from turnwright_states.fact_parser import parse_fact
from turnwright_states.inputs import GivenResult
from turnwright_testing import FaultyStore

AGENT = Agent(name="Anybody")
SESSIONS = st.sampled_from(["s1", "s2", None])
LIMITS = Limits(steps=4, tool_calls=5, doom_threshold=2, doom_response="ask", max_retries=1, max_pauses=3)

#: Calls by (turn, call), each time that one really ran: what no crash may make run twice.
ran: Counter[tuple[str, str]] = Counter()


@tool
async def act(n: int, context: ToolContext) -> str:
    """Act once; a second time would be a fault."""
    ran[context.turn_id, context.call_id] += 1
    return f"done {n}"


@tool(needs_approval=True)
async def ask(n: int, context: ToolContext) -> str:
    """Act with a person's approval."""
    ran[context.turn_id, context.call_id] += 1
    return f"allowed {n}"


@tool(on_crash="ask")
async def careful(n: int, context: ToolContext) -> str:
    """Act; after a crash, a person is asked."""
    ran[context.turn_id, context.call_id] += 1
    return f"careful {n}"


calls = st.builds(
    lambda name, n: ResponseToolCall(name, {"n": n}), st.sampled_from(["act", "ask", "careful"]), st.integers(0, 1)
)
replies: st.SearchStrategy[ModelResponse | str | ModelError] = st.one_of(
    st.just("Done."),
    st.lists(calls, min_size=1, max_size=3).map(lambda calls: asks_for(*calls)),
    st.lists(calls, min_size=1, max_size=3).map(lambda calls: asks_for(*calls)),
    st.sampled_from([Cause.TIMEOUT, Cause.BAD_REQUEST]).map(lambda cause: ModelError(str(cause), cause=cause)),
)
scripts = st.lists(replies, min_size=1, max_size=4)


class Row(NamedTuple):
    """A turn of the store, as the rules look at it."""

    id: str
    session: str | None
    state: State | Queued


class Orderings(RuleBasedStateMachine):
    """Every rule is a process: it opens an engine over the store, does one thing, and is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        #: The journals of turns that have ended, as they were then.
        self.ended: dict[str, list[tuple[int, f.Fact]]] = {}
        self.requests: list[ModelRequest] = []
        ran.clear()

    @rule(session=SESSIONS, script=scripts)
    def new_message(self, session: str | None, script: list[ModelResponse | str | ModelError]) -> None:
        """A user writes: a paused turn of the session is superseded, one that a crash left is in the way."""
        before = self.live(session)
        open_rows = [row for row in before if row.state is not State.PAUSED]
        try:
            self.process(script, lambda engine: engine.run(AGENT, "hi", session=session))
        except SessionBusyError:
            assert open_rows, "the session was not busy"
            event("busy")
            return
        assert not open_rows
        for row in before:
            ended = self.turn(row.id)
            assert (ended.outcome, ended.reason) == (Outcome.ABORTED, EndReason.SUPERSEDED)

    @rule(session=SESSIONS, script=scripts, at=st.integers(1, 12), after=st.booleans())
    def new_message_and_crash(
        self, session: str | None, script: list[ModelResponse | str | ModelError], at: int, after: bool
    ) -> None:
        """Its process dies at one of its appends."""
        dying = FaultyStore(self.store, at=at, after=after)
        try:
            self.process(script, lambda engine: engine.run(AGENT, "hi", session=session), dying)
        except (StoreError, SessionBusyError) as error:
            event(type(error).__name__)
        anyio.run(dying.aclose)

    @rule(turn_index=st.integers(0, 9), decision=st.integers(0, 9), all_of_them=st.booleans(), script=scripts)
    def answer(
        self, turn_index: int, decision: int, all_of_them: bool, script: list[ModelResponse | str | ModelError]
    ) -> None:
        """A person answers one interrupt of a paused turn, or all of them."""
        paused = self.paused()
        if not paused:
            return
        turn = self.turn(paused[turn_index % len(paused)].id)
        interrupts = turn.interrupts if all_of_them else turn.interrupts[-1:]
        answers = {
            interrupt.id: str(ANSWERABLE[interrupt.kind][decision % len(ANSWERABLE[interrupt.kind])])
            for interrupt in interrupts
        }
        note(f"{turn.id}: {answers}")
        after = self.process(script, lambda engine: engine.resume(turn.id, answers))
        assert isinstance(after, TurnResult)
        assert not {interrupt.id for interrupt in after.interrupts} & set(answers)

    @rule(turn_index=st.integers(0, 9))
    def abort(self, turn_index: int) -> None:
        live = self.live()
        if not live:
            return
        turn = live[turn_index % len(live)]
        self.process([], lambda engine: engine.abort(turn.id))
        assert self.turn(turn.id).outcome is Outcome.ABORTED

    @rule(turn_index=st.integers(0, 9))
    def abort_once_more(self, turn_index: int) -> None:
        """Nothing happens to a turn that has ended."""
        if self.ended:
            turn = sorted(self.ended)[turn_index % len(self.ended)]
            self.process([], lambda engine: engine.abort(turn))

    @rule(script=scripts)
    def recover(self, script: list[ModelResponse | str | ModelError]) -> None:
        """A process recovers the turns of others: afterwards a live turn waits for a person."""
        self.process(script * 8, lambda engine: engine.recover())
        assert all(row.state is State.PAUSED for row in self.live())

    @invariant()
    def one_live_turn_a_session(self) -> None:
        sessions = [row.session for row in self.live() if row.session is not None]
        assert len(sessions) == len(set(sessions))

    @invariant()
    def what_has_ended_stays_as_it_is(self) -> None:
        for turn, facts in self.journals().items():
            if isinstance(facts[-1][1], f.TurnEnded):
                assert self.ended.setdefault(turn, facts) == facts

    @invariant()
    def every_journal_folds_within_its_bounds(self) -> None:
        for facts in self.journals().values():
            turn = Turn()
            for _, fact in facts:
                turn.apply(fact)
                assert fact.hash in ("", turn.digest())
            assert turn.counters.steps <= steps_with_tools(turn.limits)
            budget = most_tool_calls(turn.limits)
            assert budget is None or turn.counters.calls <= budget

    @invariant()
    def no_call_ran_twice(self) -> None:
        """But for those that a person let run again."""
        again = {
            (turn, self.call_of(facts, fact.interrupt))
            for turn, facts in self.journals().items()
            for _, fact in facts
            if isinstance(fact, f.Answered) and fact.decision == "rerun"
        }
        assert not [call for call, times in ran.items() if times > 1 and call not in again]

    @invariant()
    def every_request_was_paired(self) -> None:
        for request in self.requests:
            check_pairing(request.messages)
            assert request.messages[-1].role != "assistant"

    def teardown(self) -> None:
        """Recover each open turn and reject its interrupts: each ends."""
        self.process(["Done."] * 40, lambda engine: engine.recover())
        for _ in range(LIMITS.max_pauses + 1):
            for row in self.paused():
                answers = {
                    interrupt.id: str(ANSWERABLE[interrupt.kind][-1]) for interrupt in self.turn(row.id).interrupts
                }
                self.process(["Done."] * 40, partial(_resume, turn=row.id, answers=answers))
        assert not self.live()
        for turn in self.journals():
            check_pairing(self.turn(turn).messages)

    # What the rules are made of.

    def process(
        self,
        script: Sequence[ModelResponse | str | ModelError],
        work: Callable[[Engine], Awaitable[object]],
        store: Store | None = None,
    ) -> object:
        """Do one thing with an engine that is gone afterwards."""
        model = ScriptedModel(*script, "Enough.", repeat=True)

        async def live() -> object:
            engine = Engine(
                model=model,
                tools=[act, ask, careful],
                store=store or self.store,
                limits=LIMITS,
                backoff=Backoff(initial=0),
                cancel_grace=0,
            )
            return await work(engine)

        try:
            return anyio.run(live)
        finally:
            self.requests = model.requests

    def turn(self, turn: str) -> TurnResult:
        result = self.process([], lambda engine: engine.get(turn))
        assert isinstance(result, TurnResult)
        return result

    def rows(self) -> list[Row]:
        return [Row(row.id, row.session, row.status.state) for row in anyio.run(self.store.turns)]

    def live(self, session: str | None = "any") -> list[Row]:
        rows = [row for row in self.rows() if row.state.outcome is None]
        return rows if session == "any" else [row for row in rows if row.session == session and session is not None]

    def paused(self) -> list[Row]:
        return [row for row in self.live() if row.state is State.PAUSED]

    def journals(self) -> dict[str, list[tuple[int, f.Fact]]]:
        return {row.id: anyio.run(self.store.facts, row.id) for row in self.rows()}

    @staticmethod
    def call_of(facts: list[tuple[int, f.Fact]], interrupt: str) -> str:
        interrupts = [fact.interrupt for _, fact in facts if isinstance(fact, f.CallWaiting)]
        return next((question.call for question in interrupts if question.id == interrupt), "")


async def _resume(engine: Engine, turn: str, answers: dict[str, str]) -> TurnResult:
    return await engine.resume(turn, answers)


class Kept:
    """One turn of the pure machine with its journal, and what a driver would know of it."""

    def __init__(self, session: int, limits: Limits, synthesis: bool) -> None:
        self.session = session
        self.machine, first = TurnMachine.start(StartedInput(prompt="x", limits=limits, synthesis=synthesis))
        self.journal: list[f.Fact] = list(first)

    @property
    def over(self) -> bool:
        return self.machine.state.outcome is not None

    def feed(self, event: Input) -> None:
        self.journal += self.machine.feed(event)

    def only_goes_forward(self, before: Counters) -> bool:
        """Whether what is counted up did not fall, and what is counted down did not rise."""
        now = self.machine.turn.counters
        up = now.steps >= before.steps and now.calls >= before.calls
        return up and now.pauses_left <= before.pauses_left and now.nudges_left <= before.nudges_left


CAUSES = st.sampled_from([Cause.TIMEOUT, Cause.CRASH, Cause.BAD_REQUEST, Cause.CONTEXT_OVERFLOW])
asked_calls = st.lists(
    st.builds(
        lambda name, problem: ToolCall(name=name, arguments={}, problem=problem),
        st.sampled_from("ab"),
        st.sampled_from(["", "", "", "there is no such tool"]),
    ),
    min_size=1,
    max_size=3,
)
limits_of_a_turn = st.builds(
    Limits,
    steps=st.sampled_from([4, 3, 2, 1]),
    tool_calls=st.sampled_from([None, 6, 4, 2, 1]),
    doom_threshold=st.sampled_from([2, None]),
    doom_compare=st.sampled_from(("results", "calls")),
    doom_response=st.sampled_from(("ask", "stop")),
    nudges=st.integers(0, 1),
    max_retries=st.integers(0, 1),
    max_pauses=st.sampled_from([2, 1, 0]),
    seconds=st.none() | st.just(9.0),
)
happenings: st.SearchStrategy[Input] = st.one_of(
    st.builds(lambda calls: ModelRepliedInput(calls=tuple(calls)), asked_calls),
    st.builds(lambda calls: ModelRepliedInput(calls=tuple(calls)), asked_calls),
    st.sampled_from(
        [
            ModelRepliedInput(text="x"),
            ModelRepliedInput(),
            ConcludedInput(text="x"),
            SynthesizedInput(),
            SynthesizedInput(text="x"),
        ]
    ),
    st.builds(lambda cause: AttemptFailedInput(cause=cause), CAUSES),
    st.just(ExpireInput(elapsed=9)),
    st.just(FailInput(error="x")),
    st.just(AbortInput()),
    st.just(SteeredInput(text="x")),
    st.just(CallStartedInput(call="call00001")),
    st.just(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE)),
)


class Machines(RuleBasedStateMachine):
    """Turns of the pure machine in two sessions; any event may come at any time, legal or not."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[Kept] = []

    @initialize(synthesis=st.booleans(), limits=limits_of_a_turn)
    def first_message(self, synthesis: bool, limits: Limits) -> None:
        self.turns.append(Kept(0, limits, synthesis))

    @rule(session=st.integers(0, 1), synthesis=st.booleans(), limits=limits_of_a_turn)
    def new_message(self, session: int, synthesis: bool, limits: Limits) -> None:
        for turn in self.live(session):
            if not isinstance(turn.machine.action, AwaitPerson):
                return  # the session is busy
            turn.feed(AbortInput(reason=EndReason.SUPERSEDED))
            assert turn.machine.turn.reason is EndReason.SUPERSEDED
        self.turns.append(Kept(session, limits, synthesis))

    @rule(turn_index=st.integers(0, 9), happening=happenings, stays=st.integers(0, 3))
    def anything_happens(self, turn_index: int, happening: Input, stays: int) -> None:
        """An event that is refused changes nothing; one that is taken brings the end nearer, a message aside."""
        if stays and isinstance(happening, AbortInput | FailInput):
            return  # else few turns would grow old
        turn = self.turns[turn_index % len(self.turns)]
        before, rank, counted = known(turn.machine), rank_of(turn.machine.turn), turn.machine.turn.counters.copy()
        try:
            turn.feed(happening)
        except MachineError as error:
            event(f"refused: {type(error).__name__}")
            assert known(turn.machine) == before
            return
        assert turn.only_goes_forward(counted)
        if isinstance(happening, SteeredInput):
            assert rank_of(turn.machine.turn) == rank
            assert not turn.machine.turn.rounds.latest
        else:
            assert rank_of(turn.machine.turn) < rank

    @rule(turn_index=st.integers(0, 9), calls=asked_calls)
    def a_reply(self, turn_index: int, calls: list[ToolCall]) -> None:
        waiting = [turn for turn in self.at(CallModel) if turn.machine.state is State.STREAM]
        if waiting:
            turn = waiting[turn_index % len(waiting)]
            turn.feed(ModelRepliedInput(calls=tuple(calls)))
            assert turn.machine.state is not State.STREAM or all(call.problem for call in calls)

    @rule(turn_index=st.integers(0, 9), name=st.sampled_from("ab"), asks=st.booleans())
    def a_round(self, turn_index: int, name: str, asks: bool) -> None:
        """A step of two calls, one of which may want a person: what a loop is made of."""
        streaming = [turn for turn in self.at(CallModel) if turn.machine.state is State.STREAM]
        if not streaming:
            return
        turn = streaming[turn_index % len(streaming)]
        turn.feed(ModelRepliedInput(calls=(ToolCall(name=name, arguments={}),) * 2))
        action = turn.machine.action
        calls = action.calls if isinstance(action, RunTools) else ()
        for place, call in enumerate(calls):
            if asks and not place:
                turn.feed(CallWaitingInput(call=call.id, interrupt_kind=InterruptKind.APPROVAL))
            else:
                turn.feed(CallStartedInput(call=call.id))
                turn.feed(CallSettledInput(call=call.id))

    @rule(turn_index=st.integers(0, 9), place=st.integers(0, 2), deed=st.sampled_from(["run", "ask", "run", "start"]))
    def a_tool(self, turn_index: int, place: int, deed: str) -> None:
        running = self.at(RunTools)
        if not running:
            return
        turn = running[turn_index % len(running)]
        ready = [
            call for call in turn.machine.turn.batch.values() if call.state in (CallState.READY, CallState.STARTED)
        ]
        call, counted = ready[place % len(ready)], turn.machine.turn.counters.copy()
        if deed == "ask":
            kind = InterruptKind.APPROVAL if call.state is CallState.READY else InterruptKind.UNKNOWN_OUTCOME
            turn.feed(CallWaitingInput(call=call.id, interrupt_kind=kind))
        else:
            if call.state is CallState.READY:
                turn.feed(CallStartedInput(call=call.id))
            if deed == "run":
                turn.feed(CallSettledInput(call=call.id))
        assert turn.only_goes_forward(counted)

    @rule(turn_index=st.integers(0, 9), interrupt=st.integers(0, 9), decision=st.integers(0, 9))
    def an_answer(self, turn_index: int, interrupt: int, decision: int) -> None:
        resting = self.at(AwaitPerson)
        if not resting:
            return
        turn = resting[turn_index % len(resting)]
        pending = list(turn.machine.turn.interrupts.values())
        question = pending[interrupt % len(pending)]
        takes = DECISIONS[question.kind]
        choice = takes[decision % len(takes)]
        result = GivenResult(text="from outside") if choice is Decision.SETTLE else None
        turn.feed(AnsweredInput(interrupt=question.id, decision=choice, given=result))
        assert question.id not in turn.machine.turn.interrupts
        assert len(pending) == 1 or turn.machine.state is State.PAUSED, "nothing runs until the last one is answered"

    @rule(turn_index=st.integers(0, 9))
    def a_crash(self, turn_index: int) -> None:
        """Only the journal's text remains; a turn resumed from it equals the turn before."""
        turn = self.turns[turn_index % len(self.turns)]
        before = known(turn.machine)
        turn.journal = [parse_fact(fact.kind, fact.payload(), seq) for seq, fact in enumerate(turn.journal, 1)]
        turn.machine = TurnMachine.resume(turn.journal)
        assert known(turn.machine) == before

    @invariant()
    def one_live_turn_a_session(self) -> None:
        assert all(len(self.live(session)) <= 1 for session in (0, 1))

    @invariant()
    def every_turn_keeps_its_bounds(self) -> None:
        for turn in self.turns:
            counters, limits = turn.machine.turn.counters, turn.machine.turn.limits
            assert counters.steps == sum(isinstance(fact, f.StepStarted) for fact in turn.journal)
            assert counters.steps <= steps_with_tools(limits)
            budget = most_tool_calls(limits)
            assert budget is None or counters.calls <= budget
            assert min(rank_of(turn.machine.turn)) >= 0

    @invariant()
    def each_call_of_a_closed_step_has_its_one_result(self) -> None:
        for turn in self.turns:
            call_ids = [call.id for fact in turn.journal if isinstance(fact, f.ModelReplied) for call in fact.calls]
            results = Counter(fact.call for fact in turn.journal if isinstance(fact, f.CallSettled))
            still_open = {call.id for call in turn.machine.turn.open_calls()}
            assert results == {call: 1 for call in call_ids if call not in still_open}
            assert not still_open or turn.machine.state in (State.TOOL_EXEC, State.PAUSED)

    @invariant()
    def nothing_comes_after_the_end(self) -> None:
        for turn in self.turns:
            ends = [place for place, fact in enumerate(turn.journal, 1) if isinstance(fact, f.TurnEnded)]
            assert ends == ([len(turn.journal)] if turn.over else [])

    def live(self, session: int) -> list[Kept]:
        return [turn for turn in self.turns if turn.session == session and not turn.over]

    def at(self, action: type[Action]) -> list[Kept]:
        return [turn for turn in self.turns if isinstance(turn.machine.action, action)]


def known(machine: TurnMachine) -> dict[str, object]:
    """All that a machine knows, in a form that can be compared."""
    turn = machine.turn
    fields: dict[str, object] = dict(vars(turn))
    fields["counters"] = turn.counters.kept()
    fields["batch"] = [
        (call.made, call.state, call.attempt, call.counted, call.answers) for call in turn.batch.values()
    ]
    return fields | {"stands": machine.state}


#: A test of many rules costs more than one of a single turn.
_SETTINGS = settings(stateful_step_count=15, max_examples=percent_of_examples(50))

TestOrderings = Orderings.TestCase
TestOrderings.settings = _SETTINGS
TestMachines = Machines.TestCase
TestMachines.settings = settings(stateful_step_count=40)
