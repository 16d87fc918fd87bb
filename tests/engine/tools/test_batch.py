"""Running the calls of one step with a real machine: the journaled facts and their order."""

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import anyio
import anyio.lowlevel
import pytest
from pydantic import JsonValue

from turnwright.context import TurnContext
from turnwright.errors import StoreError
from turnwright.message import FilePart
from turnwright.tools import AbortSignal, Ask, Rate, Tool, ToolContext, ToolFailedError, ToolResult, tool
from turnwright.tools.batch import CallReport, can_start_at_once, run_batch, settle_after_crash
from turnwright.tools.batch_context import NOTHING_DECIDED, BatchContext, BeforeCall, Execution
from turnwright.tools.rate_limiter import Slot
from turnwright_states import (
    AnsweredInput,
    Call,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    CallWaitingInput,
    Decision,
    InterruptKind,
    InvalidCallError,
    Limits,
    ModelRepliedInput,
    RunTools,
    StartedInput,
    State,
    ToolCall,
    TurnMachine,
)
from turnwright_states import facts as f
from turnwright_testing import clock

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

Event = CallStartedInput | CallSettledInput | CallWaitingInput
NOW = 1_700_000_000.0


class Batch:
    """The calls of one reply, one of each tool, and the facts that running them made."""

    def __init__(self, *tools: Tool, limits: Limits | None = None, times: int = 1) -> None:
        self.machine, _ = TurnMachine.start(StartedInput(prompt="hi", limits=limits or Limits()))
        calls = tuple(ToolCall(name=tool.name, arguments={}) for tool in tools) * times
        self.machine.feed(ModelRepliedInput(calls=calls))
        self.facts: list[f.Fact] = []
        self.context = BatchContext(
            turn="t1",
            tools={tool.name: tool for tool in tools},
            grants=("/g",),
            elapsed=lambda: 1.5,
            now=lambda: NOW,
            stopping=lambda: False,
            abort=AbortSignal(),
            progress=lambda *_: None,
            delegate=self.delegate,
            execute=None,
            checked_values={},
            cancel_grace=1.0,
            judge=None,
            decisions=NOTHING_DECIDED,
            context=lambda: TurnContext(turn_id="t1"),
        )

    async def delegate(self, call: Call) -> CallSettledInput | CallWaitingInput:
        """Refuse a sub-agent: no test here has one."""
        raise TypeError(call.name)

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls that the machine wants to run."""
        action = self.machine.action
        return action.calls if isinstance(action, RunTools) else ()

    async def report(self, *events: Event) -> None:
        for event in events:
            self.facts += self.machine.feed(event)

    async def run(self, *, parallel: int = 8, report: CallReport | None = None) -> None:
        with anyio.fail_after(60):
            await run_batch(self.calls, self.context, report or self.report, parallel)

    async def crash(self) -> None:
        """Start every call, and lose the process."""
        for call in self.calls:
            self.machine.feed(CallStartedInput(call=call.id))

    async def settle(self) -> None:
        await settle_after_crash(self.calls, self.context, self.report)

    def settled(self) -> list[tuple[CallStatus, str]]:
        return [(fact.status, fact.result) for fact in self.facts if isinstance(fact, f.CallSettled)]

    def kinds(self) -> list[str]:
        """The facts about calls, in the order of the journal."""
        return [
            f"{fact.kind} {fact.call}"
            for fact in self.facts
            if isinstance(fact, f.CallStarted | f.CallSettled | f.CallWaiting)
        ]


@tool
async def fine() -> str:
    return "fine"


@tool(name="other")
async def other() -> str:
    return "other"


@tool(needs_approval=True, expires_in=60)
async def erase() -> str:
    return "erased"


async def test_call_is_journaled_before_the_run() -> None:
    runs: list[list[str]] = []

    @tool
    async def look() -> None:
        runs.append(batch.kinds())

    batch = Batch(look)
    await batch.run()
    assert runs == [["call_started call00001"]]
    assert batch.kinds() == ["call_started call00001", "call_settled call00001"]


@pytest.mark.parametrize("checked", [False, True])
async def test_start_is_stamped_with_a_time_and_no_sub_agent(checked: bool) -> None:
    """Alone, and in one append with others."""
    batch = Batch(fine, other)
    if checked:
        batch.context.checked_values.update((call.id, {}) for call in batch.calls)
    await batch.run()
    started = [fact for fact in batch.facts if isinstance(fact, f.CallStarted)]
    assert [(fact.elapsed, fact.child) for fact in started] == [(1.5, None)] * 2


class Judge:
    """Decides nothing about calls. `judged` has those about which it was asked before they start."""

    def __init__(self, *, judges_before: bool = False, judges_after: bool = False) -> None:
        self.judges_before = judges_before
        self.judges_after = judges_after
        self.judged: list[str] = []

    async def before(self, call: Call, tool: Tool, batch: BatchContext) -> BeforeCall:  # noqa: ARG002 (given)
        self.judged.append(call.name)
        return BeforeCall(call.arguments)

    async def after(self, call: Call, batch: BatchContext, event: CallSettledInput) -> CallSettledInput:  # noqa: ARG002 (given)
        return event


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("concurrency", [None, 2])
@pytest.mark.parametrize("judges_after", [False, True])
@pytest.mark.parametrize("judges_before", [False, True])
async def test_arguments_validated_with_the_reply_are_not_validated_again(
    parallel: int, concurrency: int | None, judges_before: bool, judges_after: bool
) -> None:
    @tool(concurrency=concurrency)
    async def number(n: int = 0) -> int:
        return n

    batch = Batch(number, times=2)
    batch.context.judge = Judge(judges_before=judges_before, judges_after=judges_after)
    batch.context.decisions = {}
    batch.context.checked_values.update((call.id, {"n": 7}) for call in batch.calls)
    await batch.run(parallel=parallel)
    assert batch.settled() == [(CallStatus.OK, "7")] * 2


@pytest.mark.parametrize("checked", [False, True])
async def test_execute_wrapper_gets_the_call_and_the_tool_error(checked: bool) -> None:
    outcomes: list[tuple[str, str]] = []

    @tool
    async def explode() -> None:
        raise ValueError("boom")

    async def execute(call: Call, tool: Tool, run: Execution) -> CallSettledInput | CallWaitingInput:
        return await run(lambda error: outcomes.append((call.id, f"{tool.name}: {error.__cause__!r}")))

    batch = Batch(fine, explode)
    batch.context.execute = execute
    if checked:
        batch.context.checked_values.update((call.id, {}) for call in batch.calls)
    await batch.run()
    assert outcomes == [("call00002", "explode: ValueError('boom')")]


async def test_tool_context_has_the_call_and_the_grants() -> None:
    contexts: list[ToolContext] = []

    @tool
    async def look(context: ToolContext) -> None:
        contexts.append(context)

    await Batch(look).run()
    assert contexts == [ToolContext(turn_id="t1", call_id="call00001", attempt=1, answers=(), grants=("/g",))]
    assert contexts[0].idempotency_key == "t1:call00001"


async def test_calls_of_a_batch_run_in_parallel() -> None:
    """Each waits for the other: alone, neither would finish."""
    here, there = anyio.Event(), anyio.Event()

    @tool
    async def one() -> str:
        here.set()
        await there.wait()
        return "one"

    @tool
    async def two() -> str:
        there.set()
        await here.wait()
        return "two"

    batch = Batch(one, two)
    await batch.run()
    assert sorted(batch.settled()) == [(CallStatus.OK, "one"), (CallStatus.OK, "two")]
    assert batch.machine.state is State.STREAM


async def test_single_slot_runs_calls_in_call_order() -> None:
    batch = Batch(fine, times=3)
    await batch.run(parallel=1)
    assert batch.kinds() == [f"{kind} call0000{n}" for n in (1, 2, 3) for kind in ("call_started", "call_settled")]


async def test_exception_of_a_tool_is_the_result() -> None:
    @tool
    async def explode() -> None:
        raise ValueError("boom")

    @tool
    async def refuse() -> None:
        raise ToolFailedError("not today")

    @tool
    async def leave() -> None:
        raise SystemExit(3)

    batch = Batch(explode, refuse, leave)
    await batch.run()
    assert sorted(text for _, text in batch.settled()) == ["SystemExit: 3", "ValueError: boom", "not today"]
    assert {status for status, _ in batch.settled()} == {CallStatus.ERROR}


async def test_slow_tool_is_stopped_and_siblings_continue() -> None:
    @tool(timeout=0.01)
    async def dawdle() -> None:
        await anyio.sleep_forever()

    @tool
    async def slow() -> str:
        await anyio.sleep(0.03)
        return "slow"

    batch = Batch(dawdle, slow)
    await batch.run()
    assert batch.settled()[0][0] is CallStatus.ERROR
    assert "0.01 s" in batch.settled()[0][1]
    assert batch.settled()[1] == (CallStatus.OK, "slow")


async def test_a_long_result_is_cut() -> None:
    @tool
    async def long() -> str:
        return "x" * 100_000

    batch = Batch(long)
    await batch.run()
    assert len(batch.settled()[0][1]) < 66_000


async def test_data_and_files_are_settled_with_the_text() -> None:
    picture = FilePart.of(b"png", "image/png", "chart.png")

    @tool
    async def draw() -> ToolResult:
        return ToolResult("drawn", {"points": 3}, (picture,))

    batch = Batch(draw)
    await batch.run()
    (settled,) = (fact for fact in batch.facts if isinstance(fact, f.CallSettled))
    assert (settled.status, settled.result, settled.structured) == (CallStatus.OK, "drawn", {"points": 3})
    assert [FilePart.of_json(file) for file in settled.files] == [picture]


async def test_non_json_data_is_an_error_and_siblings_run() -> None:
    @tool
    async def measure() -> ToolResult:
        return ToolResult("measured", math.nan)

    batch = Batch(measure, fine)
    await batch.run()
    (status, text), sibling = sorted(batch.settled())
    assert (status, sibling) == (CallStatus.ERROR, (CallStatus.OK, "fine"))
    # What json says of the value differs between versions of Python.
    assert text.startswith(
        "measure: the data of its result is not JSON: Out of range float values are not JSON compliant"
    )


async def test_call_needing_approval_is_not_started() -> None:
    """It waits, with the time until which somebody may answer; its siblings run."""
    batch = Batch(erase, fine)
    await batch.run()
    assert batch.machine.state is State.PAUSED
    assert batch.kinds() == ["call_started call00002", "call_waiting call00001", "call_settled call00002"]
    (interrupt,) = batch.machine.turn.interrupts.values()
    assert (interrupt.kind, interrupt.tool, interrupt.expires_at) == (InterruptKind.APPROVAL, "erase", NOW + 60)


async def test_calls_that_ask_leave_the_only_place_to_other_calls() -> None:
    """Whether a call asks by its declaration, by its approval check, or in the middle of its work."""

    async def is_risky() -> bool:
        return True

    @tool(needs_approval=is_risky)
    async def deploy() -> str:
        return "deployed"

    @tool
    async def move(context: ToolContext) -> str:
        return context.ask("Where to?")

    batch = Batch(erase, deploy, move, fine)
    await batch.run(parallel=1)
    assert batch.settled() == [(CallStatus.OK, "fine")]
    assert list(batch.machine.turn.interrupts) == ["approval-1", "approval-2", "question-1"]


async def test_approved_call_runs() -> None:
    batch = Batch(erase)
    await batch.run()
    batch.machine.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    await batch.run()
    assert batch.settled() == [(CallStatus.OK, "erased")]


async def test_a_call_may_ask_again_and_again_until_no_pause_is_left() -> None:
    """The number of a call's questions is limited."""

    class Curious(Tool):
        def asks(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> Ask | None:
            assert not arguments
            return Ask(kind=InterruptKind.QUESTION, question=f"{len(context.answers)}?")

        async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
            raise AssertionError(f"{values} ran in {context}")

    curious = Curious(name="curious", description="", parameters={"type": "object"})
    batch = Batch(curious, limits=Limits(max_pauses=2))
    for n in (1, 2):
        await batch.run()
        assert batch.machine.turn.interrupts[f"question-{n}"].question == f"{n - 1}?"
        batch.machine.feed(AnsweredInput(interrupt=f"question-{n}", decision=Decision.REPLY, text="so"))
    await batch.run()
    assert batch.settled() == [(CallStatus.REFUSED, "not executed: this turn may not pause for a person any more")]


# Questions in the middle of the work.


async def test_call_asking_midway_waits_and_restarts_with_the_answer() -> None:
    """It takes its place in the budget once, and no retry."""
    starts: list[int] = []

    @tool
    async def move(context: ToolContext) -> str:
        starts.append(context.attempt)
        return f"moved to {context.ask('Where to?', ['here', 'there'], expires_in=60)}"

    batch = Batch(move, fine)
    retries = batch.machine.turn.counters.retries_left
    await batch.run()
    assert batch.machine.state is State.PAUSED
    (interrupt,) = batch.machine.turn.interrupts.values()
    assert (interrupt.id, interrupt.kind, interrupt.question) == ("question-1", InterruptKind.QUESTION, "Where to?")
    assert (interrupt.choices, interrupt.expires_at, interrupt.tool) == (("here", "there"), NOW + 60, "move")
    assert batch.settled() == [(CallStatus.OK, "fine")]
    batch.machine.feed(AnsweredInput(interrupt="question-1", decision=Decision.REPLY, text="there"))
    await batch.run()
    assert batch.settled() == [(CallStatus.OK, "fine"), (CallStatus.OK, "moved to there")]
    assert starts == [1, 2]
    assert (batch.machine.turn.counters.calls, batch.machine.turn.counters.retries_left) == (2, retries)


async def test_approval_answers_no_question_and_is_not_asked_again() -> None:
    @tool(needs_approval=True)
    async def move(context: ToolContext) -> str:
        return context.ask("Where to?")

    batch = Batch(move)
    await batch.run()
    batch.machine.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    await batch.run()
    assert list(batch.machine.turn.interrupts) == ["question-1"]
    batch.machine.feed(AnsweredInput(interrupt="question-1", decision=Decision.REPLY, text="there"))
    await batch.run()
    assert batch.settled() == [(CallStatus.OK, "there")]


async def test_call_rejected_midway_is_denied() -> None:
    @tool
    async def move(context: ToolContext) -> str:
        return context.ask("Where to?")

    batch = Batch(move)
    await batch.run()
    batch.facts += batch.machine.feed(AnsweredInput(interrupt="question-1", decision=Decision.REJECT, text="stay"))
    assert batch.settled() == [(CallStatus.REJECTED, "rejected by the person: stay")]


async def test_endlessly_asking_call_ends_with_the_pauses() -> None:
    @tool
    async def curious(context: ToolContext) -> None:
        for number in range(100):
            context.ask(f"{number}?")

    batch = Batch(curious, limits=Limits(max_pauses=2))
    for number in (1, 2):
        await batch.run()
        assert batch.machine.turn.interrupts[f"question-{number}"].question == f"{number - 1}?"
        batch.machine.feed(AnsweredInput(interrupt=f"question-{number}", decision=Decision.REPLY, text="so"))
    await batch.run()
    ((status, text),) = batch.settled()
    assert status is CallStatus.UNKNOWN
    assert "may not pause to ask" in text


async def test_question_before_the_run_may_be_repeated_in_the_run() -> None:
    class Early(Tool):
        def asks(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> Ask | None:
            assert not arguments
            context.ask("Where to?")
            return None

        async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
            assert not values
            return context.answers[0].text

    batch = Batch(Early(name="early", description="", parameters={"type": "object"}))
    await batch.run()
    assert batch.kinds() == ["call_waiting call00001"]
    batch.machine.feed(AnsweredInput(interrupt="question-1", decision=Decision.REPLY, text="there"))
    await batch.run()
    assert batch.settled() == [(CallStatus.OK, "there")]


async def test_idempotent_call_keeps_answers_when_repeated_after_a_crash() -> None:
    @tool(idempotent=True)
    async def move(context: ToolContext) -> str:
        return f"{context.attempt}: {context.ask('Where to?')}"

    batch = Batch(move)
    await batch.run()
    batch.machine.feed(AnsweredInput(interrupt="question-1", decision=Decision.REPLY, text="there"))
    await batch.crash()
    await batch.settle()
    assert batch.settled() == [(CallStatus.OK, "3: there")]


async def test_call_repeated_after_a_crash_may_ask() -> None:
    @tool(idempotent=True)
    async def move(context: ToolContext) -> str:
        return context.ask("Where to?")

    batch = Batch(move)
    await batch.crash()
    await batch.settle()
    assert batch.machine.state is State.PAUSED


# Barriers.


def walls(*shape: str) -> tuple[Batch, list[str]]:
    """A batch of calls that wait a little, `|` one of a sequential tool, and what came to pass."""
    log: list[str] = []

    def make_tool(name: str, *, wall: bool) -> Tool:
        @tool(name=name, sequential=wall)
        async def act() -> None:
            log.append(f"{name}+")
            await anyio.wait_all_tasks_blocked()
            log.append(f"{name}-")

        return act

    return Batch(
        *(
            make_tool(f"{'wall' if shape_name == '|' else shape_name}{place}", wall=shape_name == "|")
            for place, shape_name in enumerate(shape)
        )
    ), log


async def test_sequential_call_runs_alone_between_parallel_calls() -> None:
    batch, log = walls("a", "b", "|", "|", "c", "d", "|")
    await batch.run()
    assert [sorted(log[:2]), sorted(log[2:4])] == [["a0+", "b1+"], ["a0-", "b1-"]]
    assert log[4:8] == ["wall2+", "wall2-", "wall3+", "wall3-"]
    assert [sorted(log[8:10]), sorted(log[10:12])] == [["c4+", "d5+"], ["c4-", "d5-"]]
    assert log[12:] == ["wall6+", "wall6-"]
    kinds = batch.kinds()
    assert kinds.index("call_settled call00003") < kinds.index("call_started call00004")
    assert len(batch.settled()) == 7


async def test_sequential_calls_started_at_once_run_in_turn() -> None:
    @tool(sequential=True)
    async def alone() -> str:
        return "done"

    batch = Batch(alone, times=3)
    batch.context.checked_values.update((call.id, {}) for call in batch.calls)
    await batch.run()
    assert batch.kinds() == [f"{kind} call0000{n}" for n in (1, 2, 3) for kind in ("call_started", "call_settled")]


async def test_lost_started_call_is_an_error_without_other_calls() -> None:
    batch = Batch(fine, other)
    batch.machine.feed(CallStartedInput(call="call00001"))
    await batch.run()
    assert batch.settled() == [(CallStatus.OK, "other")]
    with pytest.raises(InvalidCallError) as raised:
        await batch.run()
    assert str(raised.value) == (
        "RunTools for call 'call00001': it started and has no outcome: the journal was changed; nothing was changed"
    )


async def test_calls_filling_the_batch_start_in_a_single_append() -> None:
    appends: list[int] = []
    batch = Batch(fine, other)
    batch.context.checked_values.update((call.id, {}) for call in batch.calls)

    async def report(*events: Event) -> None:
        appends.append(len(events))
        await batch.report(*events)

    await batch.run(parallel=2, report=report)
    assert appends[0] == 2


async def test_simultaneous_starts_and_results_share_an_append() -> None:
    appends: list[int] = []
    batch = Batch(fine, other)

    async def report(*events: Event) -> None:
        appends.append(len(events))
        await batch.report(*events)

    await batch.run(parallel=2, report=report)
    assert appends == [2, 2]


async def test_results_share_the_append_of_the_starts_that_take_their_places() -> None:
    kinds: list[list[str]] = []
    batch = Batch(fine, times=5)

    async def report(*events: Event) -> None:
        kinds.append([type(event).__name__.removesuffix("Input") for event in events])
        await batch.report(*events)

    await batch.run(parallel=2, report=report)
    two = [*["CallSettled"] * 2, *["CallStarted"] * 2]
    assert kinds == [two[2:], two, [*two[:2], "CallStarted"], ["CallSettled"]]


async def test_late_call_that_took_a_place_is_stopped() -> None:
    """The time of a call begins with its start, not with the batch."""

    @tool(timeout=1)
    async def sleep() -> None:
        await anyio.sleep(0.75 if len(batch.settled()) < 2 else 60)

    batch = Batch(sleep, times=3)
    await batch.run(parallel=1)
    assert [status for status, _ in batch.settled()] == [CallStatus.OK, CallStatus.OK, CallStatus.ERROR]


async def test_results_of_a_canceled_batch_start_no_further_call() -> None:
    ran: list[str] = []

    @tool
    async def outlive() -> str:
        ran.append("outlive")
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.1)
        return "outlived"

    batch = Batch(outlive, times=3)
    with anyio.move_on_after(0.05):
        await batch.run(parallel=1)
    assert (ran, batch.settled()) == (["outlive"], [(CallStatus.OK, "outlived")])
    assert batch.kinds()[-1] == "call_settled call00001"


async def test_result_held_back_for_a_check_is_kept_by_a_failing_check() -> None:
    """A check decides in the round in which another call of the batch has its result."""

    class Failing(Judge):
        """Fails for the third call."""

        async def before(self, call: Call, tool: Tool, batch: BatchContext) -> BeforeCall:
            if call.id == "call00003":
                await anyio.lowlevel.checkpoint()
                raise ValueError("wrong")
            return await super().before(call, tool, batch)

    batch = Batch(fine, times=3)
    batch.context.judge, batch.context.decisions = Failing(judges_before=True), {}
    with pytest.raises(ValueError, match="wrong"):
        await batch.run(parallel=2)
    assert batch.settled() == [(CallStatus.OK, "fine")] * 2


def test_can_start_at_once_needs_room_and_no_sequential_call() -> None:
    @tool(sequential=True)
    async def alone() -> str:
        return "alone"

    assert can_start_at_once([fine, other], 2)
    assert not can_start_at_once([fine, other], 1)
    assert can_start_at_once([alone], 1)
    assert not can_start_at_once([fine, alone], 2)


async def test_call_waiting_for_a_slot_does_not_start_in_a_stopping_turn() -> None:
    stopped: list[bool] = []

    @tool(concurrency=1)
    async def use() -> str:
        await anyio.lowlevel.checkpoint()
        stopped.append(True)
        return "used"

    batch = Batch(use, times=2)
    batch.context.stopping = lambda: bool(stopped)
    await batch.run()
    assert batch.kinds() == ["call_started call00001", "call_settled call00001"]


async def test_outcome_is_journaled_before_the_slot_is_free() -> None:
    @tool(concurrency=1)
    async def use() -> str:
        await anyio.lowlevel.checkpoint()
        return "used"

    batch = Batch(use, times=4)
    await batch.run()
    assert batch.kinds() == [f"{kind} call0000{n}" for n in (1, 2, 3, 4) for kind in ("call_started", "call_settled")]


async def test_unstarted_call_does_not_block_crash_policy_of_later_calls() -> None:
    batch = Batch(fine, other)
    batch.machine.feed(CallStartedInput(call="call00002"))
    await batch.settle()
    assert [status for status, _ in batch.settled()] == [CallStatus.UNKNOWN]


async def test_sequential_call_waiting_for_a_person_blocks_no_call() -> None:
    """Nor does one before it that waits: the other calls run, and keep their results."""

    @tool(sequential=True, needs_approval=True)
    async def deploy() -> str:
        return "deployed"

    @tool(sequential=True)
    async def move(context: ToolContext) -> str:
        return context.ask("Where to?")

    batch = Batch(erase, deploy, move, fine)
    await batch.run()
    assert batch.settled() == [(CallStatus.OK, "fine")]
    assert list(batch.machine.turn.interrupts) == ["approval-1", "approval-2", "question-1"]
    assert batch.kinds()[-2:] == ["call_started call00004", "call_settled call00004"]


async def test_failing_journal_at_a_barrier_lets_no_call_pass() -> None:
    @tool(sequential=True)
    async def never() -> None:
        raise AssertionError("it ran")

    batch = Batch(fine, never)

    async def failing(*events: Event) -> None:
        if any(isinstance(event, CallSettledInput) for event in events):
            raise StoreError("disk full")
        await batch.report(*events)

    with pytest.raises(StoreError):
        await batch.run(report=failing)


# Places of tools.


def rare_and_slot() -> tuple[Tool, Slot]:
    """Return a tool whose only place is taken, and that place."""

    @tool(concurrency=1)
    async def rare() -> str:
        return "rare"

    assert rare.limiter is not None
    slot = rare.limiter.take_now()
    assert slot is not None
    return rare, slot


async def test_call_waiting_for_a_tool_slot_holds_no_batch_slot() -> None:
    """One place in the batch, and the tool's is taken elsewhere: the siblings run meanwhile, in call order."""
    rare, slot = rare_and_slot()

    @tool
    async def let_go() -> str:
        slot.release()
        return "released"

    batch = Batch(rare, fine, let_go)
    await batch.run(parallel=1)
    assert [text for _, text in batch.settled()] == ["fine", "released", "rare"]
    assert batch.kinds()[-2:] == ["call_started call00001", "call_settled call00001"]


async def test_hooks_are_asked_once_about_a_call_waiting_for_two_slots() -> None:
    """The tool's becomes free when the batch's is taken."""
    rare, slot = rare_and_slot()

    @tool
    async def let_go() -> str:
        slot.release()
        await anyio.wait_all_tasks_blocked()
        return "released"

    batch, judge = Batch(rare, let_go), Judge(judges_before=True)
    batch.context.judge, batch.context.decisions = judge, {}
    await batch.run(parallel=1)
    assert [text for _, text in batch.settled()] == ["released", "rare"]
    assert judge.judged == ["rare", "let_go"]


def test_call_waiting_for_a_slot_is_unstarted_and_uses_no_time() -> None:
    """The event loop skips the time."""

    @tool(timeout=0.5, concurrency=1)
    async def rare() -> str:
        return "rare"

    batch = Batch(rare)

    async def scene() -> None:
        assert rare.limiter is not None
        slot = rare.limiter.take_now()
        assert slot is not None
        async with anyio.create_task_group() as group:
            group.start_soon(batch.run)
            await anyio.sleep(1)
            assert batch.kinds() == []
            slot.release()

    clock.run(scene)
    assert batch.settled() == [(CallStatus.OK, "rare")]


async def test_call_needing_approval_asks_before_waiting_for_a_slot() -> None:
    @tool(needs_approval=True, concurrency=1)
    async def rare() -> str:
        return "rare"

    assert rare.limiter is not None
    slot = rare.limiter.take_now()
    assert slot is not None
    batch = Batch(rare)
    await batch.run()
    assert batch.machine.state is State.PAUSED
    slot.release()
    batch.machine.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    await batch.run()
    assert batch.settled() == [(CallStatus.OK, "rare")]


@pytest.mark.parametrize("parallel", [1, 2, 8])
async def test_two_batches_share_the_slots_of_a_tool(parallel: int) -> None:
    running, most = 0, 0

    @tool(concurrency=2)
    async def rare() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.wait_all_tasks_blocked()
        running -= 1

    batches = [Batch(rare, fine, times=4) for _ in range(3)]
    async with anyio.create_task_group() as group:
        for batch in batches:
            group.start_soon(partial(batch.run, parallel=parallel))
    assert most == 2
    assert [len(batch.settled()) for batch in batches] == [8, 8, 8]


async def test_call_failing_to_be_journaled_gives_the_slot_back() -> None:
    @tool(concurrency=1, rate=Rate(1, 1000))
    async def rare() -> str:
        return "rare"

    async def failing(*events: Event) -> None:
        raise StoreError(f"disk full: {events[0].call}")

    with pytest.raises(StoreError):
        await Batch(rare).run(report=failing)
    batch = Batch(rare)
    await batch.run()
    assert batch.settled() == [(CallStatus.OK, "rare")]


async def test_turn_stopped_during_a_wait_for_a_slot_leaves_cleanly() -> None:
    rare, slot = rare_and_slot()
    stopped = Batch(rare, times=2)
    async with anyio.create_task_group() as group:
        group.start_soon(stopped.run)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert stopped.kinds() == []
    slot.release()
    batch = Batch(rare)
    await batch.run()
    assert batch.settled() == [(CallStatus.OK, "rare")]


@pytest.mark.parametrize("crashed", [False, True])
async def test_call_waiting_for_a_slot_hears_the_stop_of_the_turn(crashed: bool) -> None:
    """At the head of the queue as well as behind it: the batch is over at once, and no call of it has started."""

    @tool(concurrency=1, idempotent=True)
    async def rare() -> str:
        return "rare"

    assert rare.limiter is not None
    slot = rare.limiter.take_now()
    assert slot is not None
    batch = Batch(rare, times=2)
    if crashed:
        await batch.crash()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(batch.settle if crashed else batch.run)
            await anyio.wait_all_tasks_blocked()
            batch.context.abort.set()
    assert batch.kinds() == []
    slot.release()
    other_batch = Batch(rare)
    await other_batch.run()
    assert other_batch.settled() == [(CallStatus.OK, "rare")]


async def test_call_getting_a_slot_in_a_stopping_turn_does_not_start() -> None:
    rare, slot = rare_and_slot()
    batch = Batch(rare)
    stopping: list[bool] = []
    batch.context.stopping = lambda: bool(stopping)
    async with anyio.create_task_group() as group:
        group.start_soon(batch.run)
        await anyio.wait_all_tasks_blocked()
        stopping.append(True)
        slot.release()
    assert batch.kinds() == []


def test_rate_of_a_waiting_call_counts_from_the_start() -> None:
    """The event loop skips the time: the next call starts ten seconds after the last one's start, not its end."""
    starts: list[float] = []

    @tool(rate=Rate(1, 10))
    async def rare() -> None:
        starts.append(anyio.current_time())
        await anyio.sleep(7)

    async def scene() -> None:
        await Batch(rare, times=3).run()

    clock.run(scene)
    assert [round(start - starts[0]) for start in starts] == [0, 10, 20]


async def test_waiting_call_is_journaled_before_the_next_slot() -> None:
    @tool(concurrency=1)
    async def rare() -> str:
        return "rare"

    batch = Batch(rare, times=3)
    await batch.run()
    assert batch.kinds() == [f"{kind} call0000{n}" for n in (1, 2, 3) for kind in ("call_started", "call_settled")]


async def test_call_repeated_after_a_crash_waits_for_a_slot() -> None:
    @tool(idempotent=True, concurrency=1)
    async def put() -> str:
        return "put"

    assert put.limiter is not None
    slot = put.limiter.take_now()
    assert slot is not None
    batch = Batch(put)
    await batch.crash()
    async with anyio.create_task_group() as group:
        group.start_soon(batch.settle)
        await anyio.wait_all_tasks_blocked()
        assert batch.kinds() == []
        slot.release()
    assert batch.settled() == [(CallStatus.OK, "put")]


def test_call_repeated_after_a_crash_counts_for_the_rate() -> None:
    starts: list[float] = []

    @tool(idempotent=True, rate=Rate(1, 10))
    async def put() -> None:
        starts.append(anyio.current_time())

    async def scene() -> None:
        batch = Batch(put)
        await batch.crash()
        await batch.settle()
        await Batch(put).run()

    clock.run(scene)
    assert [round(start - starts[0]) for start in starts] == [0, 10]


async def test_failing_journal_stops_the_batch_and_is_raised_unchanged() -> None:
    """The other calls are canceled, because their results could not be written."""
    cancelled: list[str] = []

    @tool
    async def dawdle() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append("dawdle")

    batch = Batch(dawdle, fine)

    async def failing(*events: Event) -> None:
        if any(isinstance(event, CallSettledInput) for event in events):
            raise StoreError("disk full")
        await batch.report(*events)

    with pytest.raises(StoreError, match="disk full"):
        await batch.run(report=failing)
    assert cancelled == ["dawdle"]


# Cancellations: the tool's own are its result, and nobody else's is.


@tool
async def leak() -> None:
    """Wait for a task that somebody cancels."""
    task = asyncio.ensure_future(anyio.sleep_forever())
    asyncio.get_running_loop().call_soon(task.cancel, "enough")
    await task


@tool
async def make_up() -> None:
    raise asyncio.CancelledError("enough")


@tool
def leak_in_a_thread() -> None:
    raise asyncio.CancelledError("enough")


@tool
async def leak_a_group() -> None:
    raise BaseExceptionGroup("of a task group", [asyncio.CancelledError("enough")])


@tool
async def cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel("enough")
    await anyio.sleep_forever()


LEAKING = [leak, make_up, leak_in_a_thread, leak_a_group, cancel_itself]
NAMES: Callable[[Tool], str] = lambda leaking_tool: leaking_tool.name  # noqa: E731


@pytest.mark.no_waiting(False)
@pytest.mark.parametrize("leaking_tool", LEAKING, ids=NAMES)
async def test_cancellation_by_the_tool_alone_is_the_result(leaking_tool: Tool) -> None:
    batch = Batch(leaking_tool)
    await batch.run()
    assert batch.settled() == [(CallStatus.ERROR, "CancelledError: enough")]


@pytest.mark.no_waiting(False)
@pytest.mark.parametrize("leaking_tool", LEAKING, ids=NAMES)
async def test_cancellation_of_a_tool_spares_the_siblings(leaking_tool: Tool) -> None:
    @tool
    async def slow() -> str:
        await anyio.sleep(0.02)
        return "slow"

    batch = Batch(slow, leaking_tool, fine)
    await batch.run()
    assert sorted(batch.settled()) == [
        (CallStatus.ERROR, "CancelledError: enough"),
        (CallStatus.OK, "fine"),
        (CallStatus.OK, "slow"),
    ]


async def test_rerun_cancelling_without_a_request_is_settled_as_an_error() -> None:
    @tool(idempotent=True)
    async def put() -> None:
        raise asyncio.CancelledError("enough")

    batch = Batch(put)
    await batch.crash()
    await batch.settle()
    assert batch.settled() == [(CallStatus.ERROR, "CancelledError: enough")]


async def test_hand_made_timeout_leaves_no_cancellation_mark() -> None:
    """Its own task stays marked as canceled. The turn's task must not, or a scope would raise it."""

    @tool
    async def old() -> str:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        with suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        return "too late"

    batch = Batch(old)
    await batch.run()
    assert batch.settled() == [(CallStatus.OK, "too late")]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


class Stubborn:
    """Tools that hang, and that do something else with a cancellation than to let it pass."""

    def __init__(self) -> None:
        self.hang = anyio.Event()

    def tools(self) -> list[Tool]:
        @tool
        async def returns() -> str:
            return await self._hangs("kept")

        @tool
        async def fails() -> None:
            raise ValueError(await self._hangs("kept"))

        @tool
        async def leaks() -> None:
            raise asyncio.CancelledError(await self._hangs("kept"))

        @tool
        async def groups() -> None:
            raise BaseExceptionGroup("of a task group", [asyncio.CancelledError(await self._hangs("kept"))])

        @tool
        async def passes() -> None:
            self.hang.set()
            await anyio.sleep_forever()

        return [returns, fails, leaks, groups, passes]

    async def _hangs(self, text: str) -> str:
        self.hang.set()
        with suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        return text


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("number", range(5))
async def test_cancelled_scope_stops_the_batch_whatever_the_tool_does(number: int, times: int) -> None:
    stubborn = Stubborn()
    batch = Batch(stubborn.tools()[number], times=times)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(batch.run)
            await stubborn.hang.wait()
            group.cancel_scope.cancel()
    kept_results = {0: [(CallStatus.OK, "kept")], 1: [(CallStatus.ERROR, "ValueError: kept")]}
    assert batch.settled() == kept_results.get(number, []) * times


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("number", range(5))
async def test_cancelled_task_stays_cancelled_whatever_the_tool_does(number: int, times: int, everything: bool) -> None:
    """Also when all tasks of the loop are, in any order, as at its end: what was running is not settled then."""
    stubborn = Stubborn()
    batch = Batch(stubborn.tools()[number], times=times)
    before = asyncio.all_tasks()
    task = asyncio.ensure_future(batch.run())
    await stubborn.hang.wait()
    await anyio.lowlevel.checkpoint()
    cancelled = (
        [other_task for other_task in asyncio.all_tasks() - before if other_task is not task] if everything else []
    )
    for cancelled_task in [*cancelled, task]:
        cancelled_task.cancel()
    with anyio.fail_after(60):
        await asyncio.wait([task])
    assert task.cancelled()
    kept_results = {0: [(CallStatus.OK, "kept")], 1: [(CallStatus.ERROR, "ValueError: kept")]}
    assert batch.settled() == kept_results.get(number, []) * times
    assert asyncio.all_tasks() == before


async def test_question_canceled_with_the_batch_leaves_no_result() -> None:
    start = anyio.Event()

    class Careful(Tool):
        async def asks_first(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> Ask | None:
            start.set()
            await anyio.sleep_forever()
            raise AssertionError(arguments, context)

        async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
            raise AssertionError(values, context)

    batch = Batch(Careful(name="careful", description="", parameters={"type": "object"}))
    async with anyio.create_task_group() as group:
        group.start_soon(batch.run)
        await start.wait()
        group.cancel_scope.cancel()
    assert batch.facts == []


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), BaseExceptionGroup("of a task group", [asyncio.CancelledError(), KeyboardInterrupt()])],
    ids=repr,
)
async def test_ctrl_c_in_a_tool_ends_the_batch_and_is_raised_unchanged(error: BaseException, times: int) -> None:
    """It may have come to whichever task was running. It is a person's, and no tool's to answer for."""

    @tool
    async def interrupted() -> None:
        raise error

    batch = Batch(interrupted, times=times)
    with pytest.raises(type(error)) as caught:
        await batch.run()
    assert caught.value is error
    assert batch.settled() == []


# After a crash.


async def test_outcome_of_a_running_call_is_unknown() -> None:
    batch = Batch(fine, other)
    await batch.crash()
    await batch.settle()
    assert [status for status, _ in batch.settled()] == [CallStatus.UNKNOWN] * 2
    assert "verify before retrying" in batch.settled()[0][1]
    assert batch.machine.state is State.STREAM


async def test_an_idempotent_call_is_run_again_under_the_same_key() -> None:
    attempts: list[tuple[str, int]] = []

    @tool(idempotent=True)
    async def put(context: ToolContext) -> str:
        attempts.append((context.idempotency_key, context.attempt))
        return "put"

    batch = Batch(put)
    await batch.crash()
    retries = batch.machine.turn.counters.retries_left
    await batch.settle()
    assert batch.settled() == [(CallStatus.OK, "put")]
    assert attempts == [("t1:call00001", 2)]
    assert [fact.attempt for fact in batch.facts if isinstance(fact, f.CallStarted)] == [2]
    assert batch.machine.turn.counters.calls == 1, "it takes its place in the budget once"
    assert retries == 3


async def test_idempotent_call_without_a_retry_left_is_not_repeated() -> None:
    @tool(idempotent=True)
    async def put() -> None:
        raise AssertionError("it ran")

    batch = Batch(put, limits=Limits(max_retries=0))
    await batch.crash()
    await batch.settle()
    ((status, text),) = batch.settled()
    assert status is CallStatus.UNKNOWN
    assert "no retry is left" in text


@pytest.mark.parametrize(
    ("decision", "status"), [(Decision.RERUN, CallStatus.OK), (Decision.UNKNOWN, CallStatus.UNKNOWN)]
)
async def test_person_may_decide_about_a_crashed_call(decision: Decision, status: CallStatus) -> None:
    @tool(on_crash="ask")
    async def send() -> str:
        return "sent"

    batch = Batch(send)
    await batch.crash()
    await batch.settle()
    (interrupt,) = batch.machine.turn.interrupts.values()
    assert (interrupt.id, interrupt.kind) == ("unknown-1", InterruptKind.UNKNOWN_OUTCOME)
    assert interrupt.choices == ("rerun", "unknown")
    assert [fact.elapsed for fact in batch.facts if isinstance(fact, f.CallWaiting)] == [1.5]
    assert "send" in interrupt.question
    batch.facts += batch.machine.feed(AnsweredInput(interrupt="unknown-1", decision=decision))
    await batch.run()
    assert [call_status for call_status, _ in batch.settled()] == [status]


@pytest.mark.parametrize(("started", "sibling_text"), [("call00001", "other"), ("call00002", "fine")])
async def test_only_started_calls_are_settled(started: str, sibling_text: str) -> None:
    batch = Batch(fine, other)
    batch.machine.feed(CallStartedInput(call=started))
    await batch.settle()
    assert batch.kinds() == [f"call_settled {started}"]
    await batch.run()
    assert batch.settled()[1] == (CallStatus.OK, sibling_text)
