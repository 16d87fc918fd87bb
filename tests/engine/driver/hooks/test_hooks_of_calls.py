"""Hooks before and after tool calls: what they may decide, in which order, and that each is asked once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import anyio
import pytest
from pydantic import AfterValidator, JsonValue

from turnwright import (
    Agent,
    CallView,
    ChangeArguments,
    ConfigError,
    Engine,
    Hooks,
    Reject,
    RequireApproval,
    ReturnResult,
    StoreError,
    Tool,
    ToolContext,
    ToolDecision,
    ToolResult,
    TurnResult,
    after_tool,
    agent_tool,
    before_tool,
    tool,
)
from turnwright.message import ToolResultPart
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.store import MemoryStore
from turnwright.tools import Ask
from turnwright_states import CallStatus, EndReason, InterruptKind, Limits, Outcome
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing import FaultyStore

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Clerk")


@dataclass
class Payments:
    """A tool that notes what it paid."""

    paid: list[tuple[str, float]] = field(default_factory=list)
    limit: float | None = None

    def tools(self, *, needs_approval: bool = False) -> list[Tool]:
        @tool(needs_approval=needs_approval, idempotent=True)
        async def pay(to: str, amount: float) -> str:
            self.paid.append((to, amount))
            if amount < 0:
                raise ValueError("negative")
            return f"paid {amount:g} to {to}"

        @tool(idempotent=True)
        async def look() -> ToolResult:
            return ToolResult("seen", {"secret": "s3"})

        return [pay, look]


PAY = asks_for(("pay", {"to": "Ann", "amount": 70}))


def results(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    parts = (part for message in turn.messages for part in message.parts)
    return [(part.status, part.text) for part in parts if isinstance(part, ToolResultPart)]


async def facts_of(engine: Engine, turn: TurnResult, kind: type[f.Fact]) -> list[f.Fact]:
    return [fact for _, fact in await engine.store.facts(turn.id) if isinstance(fact, kind)]


@before_tool(tools=["pay"])
async def cap(ctx: ToolContext, call: CallView) -> ToolDecision | None:
    return ChangeArguments({**call.arguments, "amount": 50})


@before_tool
async def refuse(ctx: ToolContext, call: CallView) -> ToolDecision | None:
    return Reject("no payments today")


@before_tool
async def ask(ctx: ToolContext, call: CallView) -> ToolDecision | None:
    return RequireApproval("Pay this?") if call.tool == "pay" else None


@before_tool
async def pretend(ctx: ToolContext, call: CallView) -> ToolDecision | None:
    return ReturnResult(ToolResult("done before", {"n": 1}))


async def test_hook_returning_none_changes_nothing() -> None:
    views: list[CallView] = []

    @before_tool
    async def look(ctx: ToolContext, call: CallView) -> None:
        views.append(call)
        assert (ctx.agent, ctx.step, ctx.call_id) == ("Clerk", 1, call.id)

    payments = Payments()
    engine = Engine(model=ScriptedModel(PAY, "Done."), tools=payments.tools(), hooks=[look])
    turn = await engine.run(AGENT, "hi")
    assert results(turn) == [(CallStatus.OK, "paid 70 to Ann")]
    assert [(view.tool, dict(view.arguments), view.status) for view in views] == [
        ("pay", {"to": "Ann", "amount": 70}, None)
    ]
    (started,) = await facts_of(engine, turn, f.CallStarted)
    assert isinstance(started, f.CallStarted)
    assert started.decisions == ()


async def test_changed_arguments_run_and_the_journal_has_both() -> None:
    payments = Payments()
    engine = Engine(model=ScriptedModel(PAY, "Done."), tools=payments.tools(), hooks=[cap])
    turn = await engine.run(AGENT, "hi")
    assert payments.paid == [("Ann", 50)]
    (started,) = await facts_of(engine, turn, f.CallStarted)
    assert isinstance(started, f.CallStarted)
    assert started.arguments == {"to": "Ann", "amount": 50}
    assert started.decisions == (
        {
            "hook": "cap",
            "on": "before_tool",
            "decision": "change_arguments",
            "replaced": {"to": "Ann", "amount": 70},
        },
    )
    (replied, _) = await facts_of(engine, turn, f.ModelReplied)
    assert isinstance(replied, f.ModelReplied)
    assert replied.calls[0].arguments == {"to": "Ann", "amount": 70}, "the reply keeps the model's"


async def test_changed_arguments_are_checked_against_the_schema() -> None:
    @before_tool
    async def spoil(ctx: ToolContext, call: CallView) -> ToolDecision | None:
        return ChangeArguments({"to": "Ann", "amount": "much"})

    payments = Payments()
    turn = await Engine(model=ScriptedModel(PAY, "Done."), tools=payments.tools(), hooks=[spoil]).run(AGENT, "hi")
    ((status, text),) = results(turn)
    assert (status, payments.paid) == (CallStatus.ERROR, [])
    assert text.startswith("refused and not run: a hook changed the arguments: ")
    assert "amount" in text


async def test_a_rejected_call_does_not_run_and_the_model_reads_why() -> None:
    payments = Payments()
    engine = Engine(model=ScriptedModel(PAY, "I see."), tools=payments.tools(), hooks=[refuse, cap])
    turn = await engine.run(AGENT, "hi")
    assert results(turn) == [(CallStatus.REJECTED, "rejected: no payments today")]
    assert (payments.paid, turn.tool_calls) == ([], 0)
    (settled,) = await facts_of(engine, turn, f.CallSettled)
    assert isinstance(settled, f.CallSettled)
    assert settled.decisions == (
        {"hook": "refuse", "on": "before_tool", "decision": "reject", "reason": "no payments today"},
    ), "the first rejection wins, and no other hook is asked"


async def test_result_of_a_hook_replaces_the_call_and_counts() -> None:
    payments = Payments()
    engine = Engine(model=ScriptedModel(PAY, "Done."), tools=payments.tools(), hooks=[pretend])
    turn = await engine.run(AGENT, "hi")
    assert results(turn) == [(CallStatus.OK, "done before")]
    assert (payments.paid, turn.tool_calls) == ([], 1)
    (started,) = await facts_of(engine, turn, f.CallStarted)
    assert isinstance(started, f.CallStarted)
    assert ([decision["hook"] for decision in started.decisions], started.arguments) == (["pretend"], None), (
        "none is changed"
    )
    (settled,) = await facts_of(engine, turn, f.CallSettled)
    assert isinstance(settled, f.CallSettled)
    assert settled.structured == {"n": 1}


async def test_hooks_result_for_a_direct_tool_ends_the_turn() -> None:
    @tool(return_direct=True)
    async def answer() -> str:
        return "42"

    engine = Engine(model=ScriptedModel(asks_for(("answer", {}))), tools=[answer], hooks=[pretend])
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "done before")


async def test_tool_needing_approval_asks_despite_a_permissive_hook() -> None:
    payments = Payments()
    engine = Engine(model=ScriptedModel(PAY, "Done."), tools=payments.tools(needs_approval=True), hooks=[Log("a", [])])
    paused = await engine.run(AGENT, "hi")
    assert [interrupt.tool for interrupt in paused.interrupts] == ["pay"]
    turn: TurnResult = await engine.resume(paused.id, {"approval-1": True})
    assert results(turn) == [(CallStatus.OK, "paid 70 to Ann")]


async def test_a_question_in_the_tools_own_words_comes_before_a_hooks() -> None:
    class Pay(Tool):
        def asks(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> Ask | None:
            return Ask(kind=InterruptKind.APPROVAL, question=f"Really pay {arguments['to']}?")

        async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
            raise AssertionError(values)

    pay = Pay(name="pay", description="Pays.", parameters={"type": "object"})
    turn = await Engine(model=ScriptedModel(PAY), tools=[pay], hooks=[ask]).run(AGENT, "hi")
    assert [interrupt.question for interrupt in turn.interrupts] == ["Really pay Ann?"]


@pytest.mark.parametrize(("limit", "questions"), [(60, 0), (40, 1)])
async def test_need_for_approval_is_decided_by_the_final_arguments(limit: float, questions: int) -> None:
    """A hook changed 70 to 50."""

    @tool(needs_approval=lambda amount: amount > limit)
    async def pay(to: str, amount: float) -> str:
        return "paid"

    turn = await Engine(model=ScriptedModel(PAY, "Done."), tools=[pay], hooks=[cap]).run(AGENT, "hi")
    assert len(turn.interrupts) == questions


async def test_approved_call_is_validated_again_before_the_start() -> None:
    """Because the world may have changed since the question."""
    names = ["Ann"]

    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"{name} has left")
        return name

    @tool(needs_approval=True)
    async def pay(to: Annotated[str, AfterValidator(check)], amount: float) -> str:
        return "paid"

    engine = Engine(model=ScriptedModel(PAY, "I see."), tools=[pay], hooks=[Log("a", [])])
    paused = await engine.run(AGENT, "hi")
    names.clear()
    turn: TurnResult = await engine.resume(paused.id, {"approval-1": True})
    ((status, text),) = results(turn)
    assert (status, "Ann has left" in text) == (CallStatus.ERROR, True)
    assert await facts_of(engine, turn, f.CallStarted) == []


@pytest.mark.parametrize("needs_approval", [False, True])
async def test_a_person_is_asked_once_and_sees_the_final_arguments(*, needs_approval: bool) -> None:
    payments, store = Payments(), MemoryStore()
    tools = payments.tools(needs_approval=needs_approval)
    model = ScriptedModel(PAY, "Done.")
    engine = Engine(model=model, tools=tools, hooks=[cap, ask], store=store)
    turn: TurnResult = await engine.run(AGENT, "hi")
    (question,) = turn.interrupts
    assert (question.question, question.arguments) == ("Pay this?", {"to": "Ann", "amount": 50})
    stricter = Engine(model=model, tools=tools, hooks=[refuse, cap, ask], store=store)
    turn = await stricter.resume(turn.id, {question.id: True})
    assert payments.paid == [("Ann", 50)], "no hook is asked again after the answer"
    assert results(turn) == [(CallStatus.OK, "paid 50 to Ann")]


async def test_a_rejection_by_the_person_asks_no_hook() -> None:
    payments, store = Payments(), MemoryStore()
    engine = Engine(model=ScriptedModel(PAY, "Done."), tools=payments.tools(), hooks=[ask], store=store)
    paused = await engine.run(AGENT, "hi")
    turn: TurnResult = await engine.resume(paused.id, {"approval-1": False})
    assert results(turn) == [(CallStatus.REJECTED, "rejected by the person")]


async def test_calls_waiting_for_a_slot_are_decided_per_turn() -> None:
    """The calls of all turns have the same ids."""
    names: list[str] = []
    go_on = anyio.Event()

    @before_tool
    async def note(ctx: ToolContext, _: CallView) -> None:
        names.append(ctx.turn_id)

    @tool(concurrency=1)
    async def slow() -> str:
        await go_on.wait()
        return "at last"

    def say(request: ModelRequest) -> ModelResponse | str:
        return "Done." if request.messages[-1].role == "tool" else asks_for(("slow", {}))

    engine = Engine(model=ScriptedModel(say, repeat=True), tools=[slow], hooks=[note])
    turns: list[str] = []

    async def run() -> None:
        turns.append((await engine.run(AGENT, "hi")).id)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(run)
            await anyio.wait_all_tasks_blocked()
        go_on.set()
    assert sorted(names) == sorted(turns)


class Log(Hooks):
    """Notes when it is asked."""

    def __init__(self, name: str, log: list[str], result: str = "") -> None:
        self._name = name
        self.log = log
        self.result = result

    @property
    def name(self) -> str:
        return self._name

    async def before_tool(self, ctx: ToolContext, call: CallView) -> ToolDecision | None:
        self.log.append(f"before {self._name}")
        return None

    async def after_tool(self, ctx: ToolContext, call: CallView, result: ToolResult) -> ReturnResult | None:
        self.log.append(f"after {self._name}: {result.text}")
        return ReturnResult(result.text + self.result) if self.result else None


async def test_the_engines_hooks_come_first_and_after_a_call_in_reverse() -> None:
    log: list[str] = []
    payments = Payments()
    engine = Engine(
        model=ScriptedModel(PAY, "Done."), tools=payments.tools(), hooks=[Log("a", log), Log("b", log, "!")]
    )
    agent = Agent(name="Clerk", hooks=[Log("c", log), Log("d", log, "?")])
    turn = await engine.run(agent, "hi")
    assert log == [
        *("before a", "before b", "before c", "before d"),
        *("after d: paid 70 to Ann", "after c: paid 70 to Ann?"),
        *("after b: paid 70 to Ann?", "after a: paid 70 to Ann?!"),
    ]
    (settled,) = await facts_of(engine, turn, f.CallSettled)
    assert isinstance(settled, f.CallSettled)
    assert settled.decisions[1] == {
        "hook": "b",
        "on": "after_tool",
        "decision": "return_result",
        "replaced": {"status": "ok", "result": "paid 70 to Ann?"},
    }


async def test_the_result_of_a_failed_call_can_be_replaced() -> None:
    @after_tool(tools=["pay"])
    async def soften(ctx: ToolContext, call: CallView, result: ToolResult) -> ReturnResult | None:
        return ReturnResult("no money moved") if call.status is CallStatus.ERROR else None

    lines = asks_for(("pay", {"to": "Ann", "amount": -1}), ("pay", {"to": "Bob", "amount": 1})), "Done."
    turn = await Engine(model=ScriptedModel(*lines), tools=Payments().tools(), hooks=[soften]).run(AGENT, "hi")
    assert results(turn) == [(CallStatus.OK, "no money moved"), (CallStatus.OK, "paid 1 to Bob")]


async def test_call_pausing_midway_has_no_result_for_hooks() -> None:
    log: list[str] = []

    @tool
    async def move(ctx: ToolContext) -> str:
        return f"moved to {ctx.ask('Where to?')}"

    engine = Engine(model=ScriptedModel(asks_for(("move", {})), "Done."), tools=[move], hooks=[Log("a", log)])
    paused = await engine.run(AGENT, "hi")
    assert (log, [interrupt.question for interrupt in paused.interrupts]) == (["before a"], ["Where to?"])
    turn: TurnResult = await engine.resume(paused.id, {"question-1": "Rome"})
    assert (turn.text, log) == ("Done.", ["before a", "after a: moved to Rome"])


async def test_aborted_sub_agent_has_no_result_for_hooks() -> None:
    log: list[str] = []

    async def reply(request: ModelRequest) -> ModelResponse | str:
        if "delegate" in request.messages[-1].text:
            return asks_for(("helper", {"prompt": "help"}))
        if request.messages[-1].role == "tool":
            return "Done."
        (child,) = [row.id for row in await engine.turns() if ":" in row.id]
        await engine.abort(child)
        await anyio.sleep_forever()
        raise AssertionError

    helper = agent_tool(Agent(name="helper", description="Helps."))
    engine = Engine(model=ScriptedModel(reply, repeat=True), tools=[helper], hooks=[Log("a", log, "?")])
    turn = await engine.run(AGENT, "delegate")
    assert [status for status, _ in results(turn)] == [CallStatus.ABORTED]
    assert log == ["before a"]


async def test_data_of_a_result_can_be_taken_away() -> None:
    @after_tool
    async def redact(ctx: ToolContext, call: CallView, result: ToolResult) -> ReturnResult | None:
        assert result.structured == {"secret": "s3"}
        return ReturnResult(result.text)

    engine = Engine(model=ScriptedModel(asks_for(("look", {})), "Done."), tools=Payments().tools(), hooks=[redact])
    turn = await engine.run(AGENT, "hi")
    (settled,) = await facts_of(engine, turn, f.CallSettled)
    assert isinstance(settled, f.CallSettled)
    assert (settled.result, settled.structured) == ("seen", None)
    public = [event.public() async for event in engine.events(turn.id)]
    assert "s3" not in repr(public), "what was replaced is not public"


async def test_exception_of_a_hook_ends_the_turn_and_names_the_hook() -> None:
    @before_tool
    async def broken(ctx: ToolContext, call: CallView) -> ToolDecision | None:
        raise ValueError("boom")

    payments = Payments()
    lines = asks_for(("pay", {"to": "Ann", "amount": 1}), ("look", {}))
    turn = await Engine(model=ScriptedModel(lines), tools=payments.tools(), hooks=[broken]).run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.ENGINE_ERROR)
    assert turn.error == "before_tool hook 'broken' raised ValueError: boom"
    assert [status for status, _ in results(turn)] == [CallStatus.ABORTED] * 2, "open calls get results"


@pytest.mark.parametrize("kind", [SystemExit, KeyError, StoreError, GeneratorExit])
async def test_a_hook_ends_neither_the_process_nor_the_lease(kind: type[BaseException]) -> None:
    @after_tool
    async def broken(ctx: ToolContext, call: CallView, result: ToolResult) -> ReturnResult | None:
        raise kind("boom")

    engine = Engine(model=ScriptedModel(PAY), tools=Payments().tools(), hooks=[broken])
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.ENGINE_ERROR)
    assert turn.error.startswith(f"after_tool hook 'broken' raised {kind.__name__}")
    assert not await engine.store.is_driven(turn.id)


@pytest.mark.parametrize("value", [True, "no", ReturnResult, ChangeArguments(3)])  # type: ignore[arg-type]
async def test_wrong_decision_ends_the_turn(value: object) -> None:
    @before_tool
    async def wrong(ctx: ToolContext, call: CallView) -> ToolDecision | None:
        return value  # type: ignore[return-value]

    turn = await Engine(model=ScriptedModel(PAY), tools=Payments().tools(), hooks=[wrong]).run(AGENT, "hi")
    assert turn.reason is EndReason.ENGINE_ERROR
    assert turn.error.startswith("before_tool hook 'wrong' returned ")


@pytest.mark.parametrize("hooks", [[cap.before_tool], [Hooks], [Hooks()], [3]])
def test_wrong_hook_object_is_refused(hooks: list[object]) -> None:
    with pytest.raises(ConfigError, match=r"^engine: hooks: "):
        Engine(hooks=hooks)  # type: ignore[arg-type]


# Crashes: each hook is asked once.


class Policy(Hooks):
    """Changes, rejects, asks and returns, by the tool's arguments; and notes what it was asked."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def before_tool(self, ctx: ToolContext, call: CallView) -> ToolDecision | None:
        self.log.append(f"before {call.id}")
        choice: Mapping[str, ToolDecision] = {
            "Ann": ChangeArguments({**call.arguments, "amount": 1}),
            "Bob": Reject("not him"),
            "Cid": RequireApproval(),
            "Dan": ReturnResult("paid already"),
        }
        return choice.get(str(call.arguments.get("to")))

    async def after_tool(self, ctx: ToolContext, call: CallView, result: ToolResult) -> ReturnResult | None:
        self.log.append(f"after {call.id}")
        return ReturnResult(f"{result.text}.")


NAMES = ("Ann", "Bob", "Cid", "Dan")


def _pay(*names: str) -> object:
    calls: list[tuple[str, Mapping[str, JsonValue]]] = [("pay", {"to": name, "amount": 9}) for name in names]
    return asks_for(*calls)


async def finish(store: MemoryStore | FaultyStore, turn_id: str, log: list[str]) -> TurnResult:
    turn = await engine_on(store, log).get(turn_id)
    while turn.outcome is None:
        turn = await engine_on(store, log).resume(turn_id, {interrupt.id: True for interrupt in turn.interrupts})
    return turn


def engine_on(store: MemoryStore | FaultyStore, log: list[str]) -> Engine:
    def reply(request: object) -> object:
        steps = sum(bool(message.calls) for message in request.messages)  # type: ignore[attr-defined]
        return (_pay(*NAMES), _pay("Ann", "Dan"), "Done.")[steps]

    model = ScriptedModel(reply, repeat=True)  # type: ignore[arg-type]
    return Engine(model=model, tools=Payments().tools(), hooks=[Policy(log)], store=store, limits=Limits(max_retries=9))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_crash_at_any_append_asks_no_hook_again(*, after: bool) -> None:
    undisturbed: list[str] = []
    store = MemoryStore()
    first = await engine_on(store, undisturbed).run(AGENT, "hi")
    whole = results(await finish(store, first.id, undisturbed))
    crashes, died = 0, True
    while died:
        memory, log = MemoryStore(), list[str]()
        dying = FaultyStore(memory, at=crashes + 1, after=after)
        try:
            (row_id,) = [(await engine_on(dying, log).run(AGENT, "hi")).id]
            await finish(dying, row_id, log)
        except StoreError:
            await dying.aclose()
        died = dying.dead
        (row,) = await memory.turns()
        turn = await finish(memory, row.id, log)
        assert results(turn) == whole
        facts = await memory.facts(row.id)
        assert replay(facts).check.verdict is Verdict.HOLDS
        decided = [fact for _, fact in facts if isinstance(fact, f.CallStarted | f.CallSettled | f.CallWaiting)]
        consulted = [
            decision["hook"] for fact in decided for decision in fact.decisions if decision["on"] == "before_tool"
        ]
        assert len(consulted) == 6, "each decision is in the journal once"
        if after:
            assert log.count("before call00001") == 1, "a journaled decision is not asked for again"
        crashes += died
    assert crashes >= 8
