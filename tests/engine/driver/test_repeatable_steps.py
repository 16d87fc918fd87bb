"""A step whose calls may run again is one append, if its agent says so; what a crash loses is asked for again."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest
from pydantic import JsonValue

from turnwright import Agent, CallView, Engine, LeaseLostError, StoreError, TurnResult, after_tool, tool
from turnwright.message import ToolResultPart
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.rules import Rule
from turnwright.store import Claim, InboxItem, MemoryStore, Status, Store
from turnwright.tools import Tool, ToolContext, ToolResult
from turnwright.transcript.events import FactEvent, ToolProgressEvent, TurnEvent
from turnwright.transcript.pairing import check_pairing
from turnwright_states import CallStatus, Cause, EndReason, Limits, Outcome
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Effect, Verdict
from turnwright_testing import FaultyStore
from turnwright_testing.faults.wrapper import StoreWrapper

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Reader", repeatable_steps=True)
STEP = ["model_replied", "call_started", "call_settled", "step_finished", "step_started"]
PAIR = ["model_replied", *["call_started"] * 2, *["call_settled"] * 2, "step_finished", "step_started"]
BEGIN = ["turn_started", "step_started"]
LAST = ["model_replied", "step_finished", "turn_ended"]

Call = tuple[str, Mapping[str, JsonValue]]


class Recording(StoreWrapper):
    """Keeps the kinds of the facts of each append."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.appended_kinds: list[list[str]] = []

    async def append(
        self, claim: Claim, facts: Sequence[f.Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """See `Store.append`."""
        waiting = await super().append(claim, facts, status, consumed)
        self.appended_kinds.append([fact.kind for fact in facts])
        return waiting


class Gate:
    """A tool that waits until it may go on. It reports progress before it waits."""

    def __init__(self) -> None:
        self.waits, self.go_on = anyio.Event(), anyio.Event()
        self.calls = 0

        @tool(read_only=True)
        async def slow(context: ToolContext) -> str:
            self.calls += 1
            context.progress(self.calls)
            await anyio.lowlevel.checkpoint()  # the report is passed on
            self.waits.set()
            await self.go_on.wait()
            return "at last"

        self.tool = slow


@tool(read_only=True)
async def look(n: int = 0) -> str:
    return f"seen {n}"


@tool(read_only=True)
async def look_again(context: ToolContext) -> str:
    return f"seen in step {context.step}"


@tool(idempotent=True)
async def put() -> str:
    return "put"


@tool(idempotent=True)
async def put_under_a_key(context: ToolContext) -> str:
    return f"put under {context.idempotency_key}"


@tool(idempotent=True, on_crash="ask")
async def put_carefully() -> str:
    return "put"


@tool
async def send() -> str:
    return "sent"


@tool(read_only=True, needs_approval=True)
async def spy() -> str:
    return "spied"


@tool(read_only=True)
async def ask(context: ToolContext) -> str:
    return f"answer: {context.ask('Where?')}"


TOOLS: Sequence[Tool] = (look, look_again, put, put_under_a_key, put_carefully, send, spy, ask)


def statuses(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    parts = (part for message in turn.messages for part in message.parts)
    return [(part.status, part.text) for part in parts if isinstance(part, ToolResultPart)]


def published(heard: Sequence[TurnEvent]) -> list[str]:
    """The kinds of the facts that were published."""
    return [event.fact.kind for event in heard if isinstance(event, FactEvent)]


async def follows(store: Store, turn: str) -> None:
    """Check that each fact of the turn follows from those before, and that each call has one result."""
    facts = await store.facts(turn)
    assert replay(facts).check.verdict is Verdict.HOLDS
    settled = [fact.call for _, fact in facts if isinstance(fact, f.CallSettled)]
    call_ids = [call.id for _, fact in facts if isinstance(fact, f.ModelReplied) for call in fact.calls]
    assert sorted(settled) == sorted(call_ids)
    assert [seq for seq, _ in facts] == [*range(1, len(facts) + 1)]


async def appends(*calls: Call, agent: Agent = AGENT, limits: Limits | None = None) -> list[list[str]]:
    """The kinds of facts of each append of a turn that makes these calls in its first step."""
    store = Recording(MemoryStore())
    async with Engine(
        model=ScriptedModel(asks_for(*calls), "Done."), tools=TOOLS, store=store, limits=limits
    ) as engine:
        turn = await engine.run(agent, "hi")
    if turn.outcome is not None:
        await follows(store, turn.id)
    return store.appended_kinds


@pytest.mark.parametrize("second", ["look", "look_again", "put"])
async def test_step_of_repeatable_calls_is_a_single_append(second: str) -> None:
    assert await appends(("look", {}), (second, {})) == [PAIR, LAST]


async def test_refused_calls_beside_repeatable_calls_change_nothing() -> None:
    settled_first = ["model_replied", "call_settled", "call_started", *STEP[2:]]
    assert await appends(("look", {"n": "many"}), ("look", {})) == [settled_first, LAST]
    assert await appends(("unknown", {}), ("look", {})) == [settled_first, LAST]


async def test_reply_of_refused_calls_waits_for_nothing() -> None:
    batches = await appends(("look", {}), limits=Limits(tool_calls=0, max_retries=0))
    assert batches[0][0] == "model_replied"
    store = Recording(MemoryStore())
    model = ScriptedModel(asks_for(("look", {})), asks_for(("look", {"n": 1}), ("look", {"n": 2})), "Done.")
    async with Engine(model=model, tools=TOOLS, store=store, limits=Limits(tool_calls=2)) as engine:
        turn = await engine.run(AGENT, "hi")
    assert [status for status, _ in statuses(turn)] == [CallStatus.OK, CallStatus.OK, CallStatus.REFUSED]
    assert [kinds[0] for kinds in store.appended_kinds] == ["model_replied", "model_replied", "concluded"]
    await follows(store, turn.id)


@pytest.mark.parametrize("second", ["send", "put_under_a_key", "put_carefully", "spy"])
async def test_unrepeatable_call_makes_the_step_ordinary(second: str) -> None:
    (first, *_) = await appends(("look", {}), (second, {}))
    assert "call_settled" not in first


@pytest.mark.parametrize(
    ("effect", "is_repeatable"), [("refuse", False), ("ask", False), ("end", False), ("report", True)]
)
async def test_step_with_a_tool_that_a_rule_enforces_is_durable(effect: Effect, is_repeatable: bool) -> None:
    """Meaning 18: a repeated call would be another start, so rules that do more than report need durable ones."""
    rule = Rule("few", at_most=9, of="look", effect=effect)
    agent = Agent(name="Reader", repeatable_steps=True, rules=[rule])
    (first, *_) = await appends(("look", {}), ("look_again", {}), agent=agent)
    assert ("call_settled" in first) is is_repeatable
    (first, *_) = await appends(("look_again", {}), agent=agent)  # no rule names it
    assert "call_settled" in first


async def test_agents_without_the_setting_write_the_reply_first() -> None:
    batches = await appends(("look", {}), ("look", {}), agent=Agent(name="Reader"))
    assert batches == [PAIR[:3], PAIR[3:], LAST]


async def test_hooks_of_tools_see_only_journaled_calls() -> None:
    store, start_flags = Recording(MemoryStore()), list[bool]()

    @after_tool
    async def note(ctx: ToolContext, call: CallView, result: ToolResult) -> None:
        assert (ctx.call_id, result.text) == (call.id, "seen 0")
        start_flags.append("call_started" in store.appended_kinds[-1])

    model = ScriptedModel(asks_for(("look", {})), "Done.")
    async with Engine(model=model, tools=TOOLS, store=store, hooks=[note]) as engine:
        await engine.run(AGENT, "hi")
    assert start_flags == [True]


async def test_first_result_writes_the_reply_and_later_results_follow() -> None:
    store, gate = Recording(MemoryStore()), Gate()
    model = ScriptedModel(asks_for(("slow", {}), ("slow", {}), ("look", {})), "Done.")
    engine = Engine(model=model, tools=[look, gate.tool], store=store)
    async with anyio.create_task_group() as group:
        group.start_soon(engine.run, AGENT, "hi")
        await gate.waits.wait()
        await anyio.wait_all_tasks_blocked()
        assert store.appended_kinds == [[*PAIR[:3], "call_started", "call_settled"]]
        gate.go_on.set()
    assert store.appended_kinds == [[*PAIR[:3], "call_started", "call_settled"], PAIR[3:], LAST]


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_first_result_writes_the_reply_under_trio() -> None:
    """Results do not come together there."""
    assert await appends(("look", {}), ("look", {})) == [PAIR[:4], PAIR[4:], LAST]


async def test_step_is_published_only_after_the_append() -> None:
    """Progress too: its call has started for nobody."""
    store, gate, heard = Recording(MemoryStore()), Gate(), list[TurnEvent]()
    model = ScriptedModel(asks_for(("slow", {})), "Done.")
    engine = Engine(model=model, tools=[gate.tool], store=store, on_event=[heard.append])
    async with anyio.create_task_group() as group:
        group.start_soon(engine.run, AGENT, "hi")
        await gate.waits.wait()
        assert (store.appended_kinds, published(heard)) == ([], BEGIN)
        gate.go_on.set()
    assert published(heard) == [*BEGIN, *STEP, *LAST[:2]]
    assert not any(isinstance(event, ToolProgressEvent) for event in heard)


async def test_message_during_the_step_is_in_the_next_request() -> None:
    store, gate, model = MemoryStore(), Gate(), ScriptedModel(asks_for(("slow", {})), "Done.")
    async with Engine(model=model, tools=[gate.tool], store=store) as engine, anyio.create_task_group() as group:
        group.start_soon(engine.run, AGENT, "hi")
        await gate.waits.wait()
        (row,) = await store.turns()
        await engine.steer(row.id, "And quickly.")
        gate.go_on.set()
    assert [message.text for message in model.requests[-1].messages if message.role == "user"] == ["hi", "And quickly."]


async def test_logging_switched_on_later_starts_with_the_next_step(caplog: pytest.LogCaptureFixture) -> None:
    """Such a turn is in one state whenever it writes."""
    logger = "turnwright.journal.turn_journal"
    caplog.set_level(logging.WARNING, logger)

    @tool(read_only=True)
    async def switch() -> str:
        caplog.set_level(logging.INFO, logger)
        return "on"

    model = ScriptedModel(asks_for(("switch", {})), "Done.")
    async with Engine(model=model, tools=[switch]) as engine:
        await engine.run(AGENT, "hi")
    assert any(getattr(record, "step", None) == 1 for record in caplog.records)


class Lines:
    """Replies by the conversation, and counts how often each was asked for."""

    def __init__(self, *steps: ModelResponse | str) -> None:
        self.steps = steps
        self.asked_steps: list[int] = []
        self.model = ScriptedModel(self.next, repeat=True)

    def next(self, request: ModelRequest) -> ModelResponse | str:
        """Check the request, and return its reply."""
        check_pairing(request.messages)
        step = sum(bool(message.calls) for message in request.messages)
        self.asked_steps.append(step)
        return self.steps[step]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 6))
async def test_crash_at_any_append_leads_to_the_same_end(at: int, after: bool) -> None:
    """The model is asked again for what was lost, and for nothing else; each call has one result."""
    memory, ran = MemoryStore(), list[str]()

    @tool(read_only=True)
    async def read(name: str) -> str:
        ran.append(name)
        return f"read {name}"

    @tool
    async def write(name: str) -> str:
        ran.append(f"write {name}")
        return f"wrote {name}"

    lines = Lines(
        asks_for(("read", {"name": "a"}), ("read", {"name": "b"})),
        asks_for(("read", {"name": "c"}), ("write", {"name": "d"})),
        asks_for(("read", {"name": "e"})),
        "Done.",
    )
    dying = Engine(model=lines.model, tools=[read, write], store=FaultyStore(memory, at=at, after=after))
    with suppress(StoreError):
        await dying.run(AGENT, "hi")
    await memory.aclose()
    (row,) = await memory.turns()
    async with Engine(model=lines.model, tools=[read, write], store=memory) as engine:
        turn = await engine.get(row.id) if row.status.outcome else await engine.resume(row.id)
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
    await follows(memory, turn.id)
    assert ran.count("write d") <= 1
    # Append 1 is step 1, 2 and 3 are the reply and the results of step 2, 4 is step 3, and 5 is the answer.
    lost, again = (None, "") if after else {1: (0, "ab"), 2: (1, ""), 3: (None, "c"), 4: (2, "e"), 5: (3, "")}[at]
    assert sorted(lines.asked_steps) == sorted([*range(4), *([] if lost is None else [lost])])
    assert sorted(name for name in ran if len(name) == 1) == sorted("abce" + again)


async def test_step_killing_the_process_each_time_ends_the_turn() -> None:
    """Each lost step is a failed attempt, so the retries bound them."""
    memory, turns = MemoryStore(), list[TurnResult]()
    model = ScriptedModel(asks_for(("look", {})), repeat=True)
    for _ in range(4):
        store = FaultyStore(memory, at=f.CallSettled)
        engine = Engine(model=model, tools=[look], store=store, limits=Limits(max_retries=2))
        rows = await memory.turns()
        with suppress(StoreError):
            turns.append(await (engine.resume(rows[0].id) if rows else engine.run(AGENT, "hi")))
        await memory.aclose()
    (turn,) = turns
    assert turn.reason is EndReason.CRASHED
    failed = [fact for _, fact in await memory.facts(turn.id) if isinstance(fact, f.AttemptFailed)]
    assert [fact.cause for fact in failed] == [Cause.CRASH] * 3


async def test_overtaken_driver_has_written_and_published_nothing() -> None:
    memory, gate, heard = MemoryStore(), Gate(), list[TurnEvent]()
    model = ScriptedModel(asks_for(("slow", {})), "I am late.")
    loser = Engine(model=model, tools=[gate.tool], store=memory, on_event=[heard.append])
    failures: list[LeaseLostError] = []
    winner = Engine(model=ScriptedModel("I am quick."), tools=[gate.tool], store=memory)

    async def drive() -> None:
        try:
            await loser.run(AGENT, "hi")
        except LeaseLostError as error:
            failures.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(drive)
        await gate.waits.wait()
        await memory.aclose()  # it looks dead to everybody
        (row,) = await memory.turns()
        await winner.resume(row.id)
        gate.go_on.set()
    (row,) = await memory.turns()
    assert (len(failures), (await winner.get(row.id)).text) == (1, "I am quick.")
    assert published(heard) == BEGIN
    await follows(memory, row.id)


@pytest.mark.parametrize("heeds", [True, False])
async def test_abort_midway_keeps_the_reply_and_settles_every_call(heeds: bool) -> None:
    store, waits = Recording(MemoryStore()), anyio.Event()

    @tool(read_only=True)
    async def heed(context: ToolContext) -> str:
        waits.set()
        await (context.abort_signal.wait() if heeds else anyio.sleep_forever())
        return "stopped early"

    async with Engine(model=ScriptedModel(asks_for(("heed", {}))), tools=[heed], store=store) as engine:
        started = await engine.start(AGENT, "hi")
        await waits.wait()
        await engine.abort(started.id)
        turn = await started.result()
    assert turn.outcome is Outcome.ABORTED
    begun = "not finished: the turn ended (aborted); it had begun: verify before retrying"
    assert statuses(turn) == [(CallStatus.OK, "stopped early") if heeds else (CallStatus.ABORTED, begun)]
    assert store.appended_kinds[0][:2] == ["model_replied", "call_started"]
    await follows(store, turn.id)


async def test_deadline_keeps_the_reply() -> None:
    store, gate = Recording(MemoryStore()), Gate()
    model = ScriptedModel(asks_for(("slow", {})), "It took too long.")
    async with Engine(model=model, tools=[gate.tool], store=store, limits=Limits(seconds=5)) as engine:
        turn = await engine.run(AGENT, "hi")
    assert (turn.reason, turn.text) == (EndReason.DEADLINE, "It took too long.")
    assert [status for status, _ in statuses(turn)] == [CallStatus.ABORTED]
    await follows(store, turn.id)


async def test_released_turn_keeps_the_reply_and_repeats_the_calls() -> None:
    """Only a crash loses the reply: a process that can still write, writes it."""
    memory, gate = MemoryStore(), Gate()
    lines = Lines(asks_for(("slow", {}), ("look", {})), asks_for(("look", {"n": 1})), "Done.")
    store, later = Recording(memory), Recording(memory)
    task = asyncio.ensure_future(Engine(model=lines.model, tools=[gate.tool, look], store=store).run(AGENT, "hi"))
    await gate.waits.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert store.appended_kinds[0][0] == "model_replied"
    gate.go_on.set()
    (row,) = await memory.turns()
    turn = await Engine(model=lines.model, tools=[gate.tool, look], store=later).resume(row.id)
    assert (turn.text, lines.asked_steps, gate.calls) == ("Done.", [0, 1, 2], 2)
    assert later.appended_kinds[-2:] == [STEP, LAST]  # the journal has the agent
    await follows(memory, turn.id)


async def test_a_tool_with_a_bug_fails_the_turn_and_the_reply_is_kept() -> None:
    class Broken(Tool):
        """Has a bug in the method that it overrides."""

        async def execute(self, values: Mapping[str, object], context: ToolContext) -> str:
            """Is not reached."""
            raise AssertionError(values, context)

        async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> str:  # type: ignore[override]
            """Raise the bug."""
            raise LookupError("a bug", arguments, context.call_id)

    broken = Broken(name="broken", description="", parameters={"type": "object"}, read_only=True)
    store = Recording(MemoryStore())
    async with Engine(model=ScriptedModel(asks_for(("broken", {}))), tools=[broken], store=store) as engine:
        turn = await engine.run(AGENT, "hi")
    assert (turn.reason, turn.error) == (EndReason.ENGINE_ERROR, "LookupError: ('a bug', {}, 'call00001')")
    assert len(store.appended_kinds) == 1
    await follows(store, turn.id)


async def test_question_of_a_running_call_is_journaled_before_reading() -> None:
    store = Recording(MemoryStore())
    model = ScriptedModel(asks_for(("ask", {}), ("look", {})), "Done.")
    async with Engine(model=model, tools=TOOLS, store=store) as engine:
        paused = await engine.run(AGENT, "hi")
        assert store.appended_kinds == [[*PAIR[:3], "call_waiting", "call_settled", "paused"]]
        (interrupt,) = paused.interrupts
        turn = await engine.resume(paused.id, {interrupt.id: "here"})
    assert [text for _, text in statuses(turn)] == ["answer: here", "seen 0"]
    await follows(store, turn.id)


async def test_approval_beside_a_repeatable_call_makes_the_step_ordinary() -> None:
    store = Recording(MemoryStore())
    model = ScriptedModel(asks_for(("look", {}), ("spy", {})), "Done.")
    async with Engine(model=model, tools=TOOLS, store=store) as engine:
        paused = await engine.run(AGENT, "hi")
        assert store.appended_kinds[0] == ["model_replied", "call_started", "call_waiting"]
        turn = await engine.resume(paused.id, {interrupt.id: True for interrupt in paused.interrupts})
    assert [text for _, text in statuses(turn)] == ["seen 0", "spied"]
    await follows(store, turn.id)
