"""A tool during a turn: progress, the signal to stop, questions, and rate limits."""

import threading
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from msgspec import structs

from turnwright import (
    Agent,
    EndReason,
    Engine,
    FilePart,
    Outcome,
    StoreError,
    ToolContext,
    ToolResult,
    TurnResult,
    agent_tool,
    reject,
    tool,
)
from turnwright.journal.answers import Answer as PersonsReply
from turnwright.journal.answers import answer_item
from turnwright.message import ToolResultPart
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright.tools import Rate, Tool
from turnwright.transcript.events import FactEvent, ToolProgressEvent, TurnEvent
from turnwright_states import CallStatus, Decision, InterruptKind, Limits
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing import FaultyStore, clock

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")
#: What a thread looks up from now and then, as a tool would from its work.
PATIENCE = threading.Event()
PICTURE = FilePart.of(b"png", "image/png", "chart.png")


def parts(turn: TurnResult) -> list[ToolResultPart]:
    return [part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]


def results(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    return [(part.status, part.text) for part in parts(turn)]


async def heard(engine: Engine) -> list[TurnEvent]:
    async with engine.stream(AGENT, "hi") as events:
        return [event async for event in events]


async def facts_that_follow(engine: Engine, turn: str) -> list[f.Fact]:
    """The facts of a turn, each of which follows from those before it."""
    facts = await engine.store.facts(turn)
    check = replay(facts).check
    assert check.verdict is Verdict.HOLDS, check.detail
    return [fact for _, fact in facts]


# Data and files.


async def test_data_and_files_of_a_result_are_in_transcript_and_journal() -> None:
    @tool
    async def draw() -> ToolResult:
        return ToolResult("drawn", {"points": [1, 2]}, (PICTURE,))

    engine = Engine(model=ScriptedModel(asks_for(("draw", {})), "Done."), tools=[draw])
    turn = await engine.run(AGENT, "hi")
    (part,) = parts(turn)
    assert (part.text, part.structured) == ("drawn", {"points": [1, 2]})
    assert [structs.replace(file, seq=0) for file in part.files] == [PICTURE]
    await facts_that_follow(engine, turn.id)


async def test_picture_alone_is_a_result_with_the_file_name() -> None:
    @tool
    async def draw() -> FilePart:
        return PICTURE

    turn = await Engine(model=ScriptedModel(asks_for(("draw", {})), "Done."), tools=[draw]).run(AGENT, "hi")
    assert results(turn) == [(CallStatus.OK, "[file: chart.png, image/png]")]


async def test_non_json_data_does_not_end_the_turn() -> None:
    @tool
    async def measure() -> ToolResult:
        return ToolResult("measured", {"a": "\ud83d"})

    turn = await Engine(model=ScriptedModel(asks_for(("measure", {})), "Done."), tools=[measure]).run(AGENT, "hi")
    assert turn.outcome is Outcome.FINISHED
    ((status, text),) = results(turn)
    assert (status, "is not JSON" in text) == (CallStatus.ERROR, True)


# Progress.


async def test_progress_is_heard_between_start_and_result_of_the_call() -> None:
    @tool
    async def count(context: ToolContext) -> str:
        for number in range(3):
            context.progress(number, 3, f"at {number}")
            await anyio.lowlevel.checkpoint()
        return "counted"

    @tool
    def count_in_a_thread(context: ToolContext) -> str:
        for number in range(50):
            context.progress(number)
        return "counted"

    script = (asks_for(("count", {}), ("count_in_a_thread", {})), "Done.")
    events = await heard(Engine(model=ScriptedModel(*script), tools=[count, count_in_a_thread]))
    for call, name, steps in (("call00001", "count", 3), ("call00002", "count_in_a_thread", 50)):
        progress_events = [event for event in events if isinstance(event, ToolProgressEvent) and event.call == call]
        assert [event.progress for event in progress_events] == list(range(steps))
        assert {event.tool for event in progress_events} == {name}
        facts = {
            event.type: events.index(event)
            for event in events
            if isinstance(event, FactEvent) and getattr(event.fact, "call", "") == call
        }
        assert facts["call_started"] < events.index(progress_events[0])
        assert events.index(progress_events[-1]) < facts["call_settled"]
    seqs = [event.seq for event in events]
    assert seqs == sorted(seqs), "each has the place of the last fact"


async def test_the_line_of_progress_in_json() -> None:
    @tool
    async def count(context: ToolContext) -> None:
        context.progress(1, 3, "one")
        context.progress(2)

    events = await heard(Engine(model=ScriptedModel(asks_for(("count", {})), "Done."), tools=[count]))
    first, second = (event.to_json() for event in events if isinstance(event, ToolProgressEvent))
    assert first == {
        "type": "tool_progress",
        "turn": events[0].turn,
        "seq": 4,
        "call": "call00001",
        "tool": "count",
        "progress": 1,
        "total": 3,
        "message": "one",
    }
    assert (second["total"], second["message"]) == (None, "")


async def test_progress_is_not_journalled() -> None:
    @tool
    async def count(context: ToolContext) -> None:
        context.progress(1)

    engine = Engine(model=ScriptedModel(asks_for(("count", {})), "Done."), tools=[count])
    events = await heard(engine)
    kinds = [fact.kind for fact in await facts_that_follow(engine, events[0].turn)]
    assert kinds == [event.type for event in events if event.type not in ("tool_progress", "text_delta")]


async def test_bad_progress_is_the_tools_own_mistake() -> None:
    @tool
    async def count(context: ToolContext) -> None:
        context.progress(float("nan"))

    turn = await Engine(model=ScriptedModel(asks_for(("count", {})), "Done."), tools=[count]).run(AGENT, "hi")
    assert results(turn) == [(CallStatus.ERROR, "ValueError: progress must be a finite number, not nan")]


async def test_abandoned_thread_is_not_heard_any_more() -> None:
    """Its time was over: nobody waits for it, but it is still there."""
    contexts: list[ToolContext] = []
    go_on, gone = threading.Event(), threading.Event()

    @tool(timeout=0.25)
    def count(context: ToolContext) -> None:
        contexts.append(context)
        go_on.wait(60)
        context.progress(1)
        gone.set()

    @tool
    async def wait() -> None:
        go_on.set()
        await anyio.to_thread.run_sync(gone.wait, 60)
        contexts[0].progress(2)
        await anyio.lowlevel.checkpoint()

    script = (asks_for(("count", {})), asks_for(("wait", {})), "Done.")
    events = await heard(Engine(model=ScriptedModel(*script), tools=[count, wait]))
    assert gone.is_set()
    assert not any(isinstance(event, ToolProgressEvent) for event in events)


# The signal.


async def aborted(tools: Sequence[Tool], begun: Callable[[], Awaitable[object]], cancel_grace: float) -> TurnResult:
    """A turn that somebody aborts as soon as its tools have begun."""
    engine = Engine(
        model=ScriptedModel(asks_for(*[(tool.name, {}) for tool in tools])), tools=tools, cancel_grace=cancel_grace
    )
    turns: list[str] = []

    async def run() -> None:
        async with engine.stream(AGENT, "hi") as events:
            turns.append((await anext(events)).turn)
            assert [event async for event in events]

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await begun()
            await engine.abort(turns[0])
    turn = await engine.get(turns[0])
    assert turn.reason is EndReason.ABORTED
    return turn


async def test_abort_is_signalled_at_once_to_running_tools() -> None:
    """Within the grace time: what they return then is kept."""
    begun, begun_too = threading.Event(), anyio.Event()

    @tool
    async def save(context: ToolContext) -> str:
        begun_too.set()
        await context.abort_signal.wait()
        return f"saved: {context.abort_signal.aborted}"

    @tool
    def save_in_a_thread(context: ToolContext) -> str:
        begun.set()
        while not context.abort_signal.aborted:
            PATIENCE.wait(0.001)
        return "saved"

    async def both() -> None:
        await begun_too.wait()
        await anyio.to_thread.run_sync(begun.wait, 60)

    turn = await aborted([save, save_in_a_thread], both, cancel_grace=10)
    assert results(turn) == [(CallStatus.OK, "saved: True"), (CallStatus.OK, "saved")]


async def test_abandoned_thread_hears_the_abort() -> None:
    begun, stopped = threading.Event(), threading.Event()

    @tool
    def work(context: ToolContext) -> None:
        begun.set()
        while not context.abort_signal.aborted:
            PATIENCE.wait(0.001)
        stopped.set()

    turn = await aborted([work], lambda: anyio.to_thread.run_sync(begun.wait, 60), cancel_grace=0)
    assert await anyio.to_thread.run_sync(stopped.wait, 60)
    assert len(results(turn)) == 1


@pytest.mark.slow
async def test_the_deadline_tells_a_thread_as_well() -> None:
    stopped = threading.Event()

    @tool
    def work(context: ToolContext) -> None:
        while not context.abort_signal.aborted:
            PATIENCE.wait(0.001)
        stopped.set()

    engine = Engine(model=ScriptedModel(asks_for(("work", {})), "Late."), tools=[work], limits=Limits(seconds=2))
    turn = await engine.run(AGENT, "hi")
    assert turn.reason is EndReason.DEADLINE
    assert await anyio.to_thread.run_sync(stopped.wait, 60)


# Questions.


class Movers:
    """Two tools that ask in the middle of their work, and what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []

        @tool(description="Move something.")
        async def move(context: ToolContext) -> str:
            self.done.append(f"begin {context.attempt}")
            where = context.ask("Where to?", ["here", "there"])
            self.done.append(f"asked {where}")
            return f"moved {where}, {context.ask('How?')}"

        @tool(idempotent=True)
        def put(context: ToolContext) -> str:
            self.done.append(f"put {context.attempt}")
            return f"put {context.ask('Where to?')}"

        self.tools: list[Tool] = [move, put]

    def engine(self, *lines: Line, store: MemoryStore | FaultyStore | None = None, pauses: int = 100) -> Engine:
        limits = Limits(max_pauses=pauses)
        return Engine(model=ScriptedModel(*lines), tools=self.tools, store=store or MemoryStore(), limits=limits)


MOVE, PUT = asks_for(("move", {})), asks_for(("put", {}))


async def test_tool_asking_twice_restarts_each_time() -> None:
    movers = Movers()
    engine = movers.engine(MOVE, "Done.")
    paused = await engine.run(AGENT, "hi")
    (open_,) = paused.interrupts
    assert (open_.id, open_.kind, open_.tool) == ("question-1", InterruptKind.QUESTION, "move")
    assert (open_.question, open_.choices) == ("Where to?", ("here", "there"))
    again = await engine.resume(paused.id, {"question-1": "there"})
    assert [interrupt.question for interrupt in again.interrupts] == ["How?"]
    turn = await engine.resume(paused.id, {"question-2": "by train"})
    assert results(turn) == [(CallStatus.OK, "moved there, by train")]
    assert movers.done == ["begin 1", "begin 2", "asked there", "begin 3", "asked there"]
    assert (turn.outcome, turn.steps, turn.tool_calls) == (Outcome.FINISHED, 2, 1)
    await facts_that_follow(engine, turn.id)


async def test_another_process_may_take_the_answer(tmp_path: object) -> None:
    """Nothing of the question is kept but the journal."""
    movers, address = Movers(), f"sqlite:///{tmp_path}/turns.db"
    async with Engine(model=ScriptedModel(PUT), tools=movers.tools, store=address) as first:
        paused = await first.run(AGENT, "hi")
    assert paused.paused
    async with Engine(model=ScriptedModel("Done."), tools=movers.tools, store=address) as second:
        turn = await second.resume(paused.id, {"question-1": "there"})
        assert results(turn) == [(CallStatus.OK, "put there")]
        await facts_that_follow(second, turn.id)


async def test_rejected_question_denies_the_call() -> None:
    movers = Movers()
    engine = movers.engine(MOVE, "I see.")
    paused = await engine.run(AGENT, "hi")
    turn = await engine.resume(paused.id, {"question-1": reject("leave it")})
    assert results(turn) == [(CallStatus.REJECTED, "rejected by the person: leave it")]
    assert movers.done == ["begin 1"]
    await facts_that_follow(engine, turn.id)


async def test_unanswered_question_denies_the_call_in_time() -> None:
    now = [1000.0]

    @tool
    async def move(context: ToolContext) -> str:
        return context.ask("Where to?", expires_in=60)

    engine = Engine(model=ScriptedModel(MOVE, "Too late."), tools=[move], now=lambda: now[0])
    paused = await engine.run(AGENT, "hi")
    assert paused.interrupts[0].expires_at == 1060
    now[0] = 1061
    turn = await engine.resume(paused.id)
    assert results(turn) == [(CallStatus.REJECTED, "rejected by the person: nobody answered in time")]


@pytest.mark.parametrize(("pauses", "begun"), [(0, 1), (1, 2)])
async def test_question_without_a_pause_left_makes_the_outcome_unknown(pauses: int, begun: int) -> None:
    movers = Movers()
    engine = movers.engine(MOVE, "I see.", pauses=pauses)
    turn: TurnResult = await engine.run(AGENT, "hi")
    if pauses:
        turn = await engine.resume(turn.id, {"question-1": "there"})
    assert turn.outcome is Outcome.FINISHED
    ((status, text),) = results(turn)
    assert (status, "may not pause to ask" in text) == (CallStatus.UNKNOWN, True)
    assert movers.done.count(f"begin {begun}") == 1
    await facts_that_follow(engine, turn.id)


async def test_answer_before_a_crash_survives() -> None:
    """It was posted or journaled, and the turn was not driven since."""
    movers = Movers()
    engine = movers.engine(PUT, "Done.")
    paused = await engine.run(AGENT, "hi")
    await engine.store.post(answer_item(paused.id, "question-1", PersonsReply(Decision.REPLY, "there")))
    (turn,) = await engine.recover()
    assert results(turn) == [(CallStatus.OK, "put there")]
    await facts_that_follow(engine, turn.id)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("first", [PUT, MOVE], ids=["idempotent", "not"])
async def test_crash_during_a_repeated_call_is_like_any_crash(first: Line, at: int, after: bool) -> None:
    """At the append of the answer, of the second start, and of what comes of it: before and after it is written.

    The answer is posted before all of them, and never asked for again. Once it has started anew, what becomes of the
    call is as its tool says.
    """
    movers, memory = Movers(), MemoryStore()
    paused = await movers.engine(first, store=memory).run(AGENT, "hi")
    faulty = FaultyStore(memory, at=at, after=after)
    with pytest.raises(StoreError):
        await movers.engine("Done.", store=faulty).resume(paused.id, {"question-1": "there"})
    await faulty.aclose()
    engine = movers.engine("Done.", "Done.", store=memory)
    await engine.recover()
    turn = await engine.get(paused.id)
    if turn.paused:  # the answer is there, and the second question of `move`
        assert [interrupt.id for interrupt in turn.interrupts] == ["question-2"]
        turn = await engine.resume(turn.id, {"question-2": "by train"})
    assert turn.outcome is Outcome.FINISHED
    ((status, text),) = results(turn)
    if first is MOVE and (at, after) in ((2, True), (3, False)):
        assert status is CallStatus.UNKNOWN
    else:
        assert (status, text) == (CallStatus.OK, "put there" if first is PUT else "moved there, by train")
    begun = [name for name in movers.done if not name.startswith("asked")]
    assert len(begun) == len(set(begun)), "no attempt runs twice"
    await facts_that_follow(engine, turn.id)


async def test_sub_agents_tool_asks_through_the_caller() -> None:
    movers = Movers()
    reader = Agent(name="Reader", description="Reads.", model="reader", tools=("move",))
    script = {"lead": ScriptedModel(asks_for(("Reader", {"prompt": "go"})), "Done.", name="lead")}
    script["reader"] = ScriptedModel(MOVE, "It is there.", name="reader")
    engine = Engine(models=script.__getitem__, tools=[*movers.tools, agent_tool(reader)])
    turn: TurnResult = await engine.run(Agent(name="Lead", model="lead"), "hi")
    for number, words, answer in ((1, "Where to?", "there"), (2, "How?", "by train")):
        (open_,) = turn.interrupts
        assert (open_.id, open_.question) == (f"call00001/question-{number}", f"Reader: {words}")
        turn = await engine.resume(turn.id, {open_.id: answer})
    assert turn.outcome is Outcome.FINISHED
    child = await engine.get(f"{turn.id}:call00001")
    assert results(child) == [(CallStatus.OK, "moved there, by train")]
    for agent_turn in (turn, child):
        await facts_that_follow(engine, agent_turn.id)


async def test_siblings_of_an_asking_call_keep_their_results() -> None:
    movers = Movers()
    engine = movers.engine(asks_for(("move", {}), ("put", {})), "Done.")
    paused = await engine.run(AGENT, "hi")
    assert [interrupt.id for interrupt in paused.interrupts] == ["question-1", "question-2"]
    half = await engine.resume(paused.id, {"question-2": "there"})
    assert [interrupt.id for interrupt in half.interrupts] == ["question-1"]
    again = await engine.resume(paused.id, {"question-1": "here"})
    assert results(again) == [(CallStatus.OK, "put there")]
    turn = await engine.resume(paused.id, {"question-3": "by train"})
    assert results(turn) == [(CallStatus.OK, "moved here, by train"), (CallStatus.OK, "put there")]
    assert movers.done.count("put 2") == 1


# The pace.


async def test_sub_agent_and_caller_may_share_a_tool_with_a_single_slot() -> None:
    """A waiting call holds nothing. Otherwise the calls would wait for each other."""
    order: list[str] = []

    @tool(concurrency=1)
    async def rare(caller: str) -> str:
        order.append(caller)
        await anyio.lowlevel.checkpoint()
        return caller

    reader = Agent(name="Reader", description="Reads.", model="reader", tools=("rare",))
    lead = asks_for(("Reader", {"prompt": "go"}), ("rare", {"caller": "lead"}), ("Reader", {"prompt": "go"}))
    script = {"lead": ScriptedModel(lead, "Done.", name="lead")}
    ask = asks_for(("rare", {"caller": "reader"}), ("rare", {"caller": "reader"}))
    script["reader"] = ScriptedModel(ask, "Read.", ask, "Read.", name="reader")
    engine = Engine(models=script.__getitem__, tools=[rare, agent_tool(reader)], max_parallel_tools=1)
    with anyio.fail_after(60):
        turn = await engine.run(Agent(name="Lead", model="lead"), "hi")
    assert turn.outcome is Outcome.FINISHED
    assert sorted(order) == ["lead", *["reader"] * 4]


@pytest.mark.parametrize("parallel", [1, 3])
def test_all_turns_share_rate_and_slots_of_a_tool(parallel: int) -> None:
    """In an event loop that skips the time in which nothing happens."""
    starts: list[float] = []
    running, most = 0, 0

    @tool(concurrency=2, rate=Rate(3, 60), timeout=30)
    async def fetch() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        starts.append(anyio.current_time())
        await anyio.sleep(5)
        running -= 1
        return "fetched"

    @tool
    async def fine() -> str:
        return "fine"

    async def scene() -> list[TurnResult]:
        turns: list[TurnResult] = []

        async def run() -> None:
            script = (asks_for(("fetch", {}), ("fine", {}), ("fetch", {}), ("fetch", {})), "Done.")
            engine = Engine(model=ScriptedModel(*script), tools=[fetch, fine], max_parallel_tools=parallel)
            turns.append(await engine.run(AGENT, "hi"))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(run)
        return turns

    turns = clock.run(scene)
    assert [[text for _, text in results(turn)] for turn in turns] == [["fetched", "fine", "fetched", "fetched"]] * 3
    assert (most, len(starts)) == (2, 9)
    for first, beyond in zip(starts, starts[3:], strict=False):
        assert beyond - first >= 60 - 1e-9
    assert starts == sorted(starts)


async def test_sequential_calls_run_in_the_order_of_the_reply() -> None:
    done: list[str] = []

    @tool(sequential=True)
    async def write(text: str) -> None:
        await anyio.lowlevel.checkpoint()
        done.append(text)

    texts = [str(number) for number in range(6)]
    model = ScriptedModel(asks_for(*[("write", {"text": text}) for text in texts]), "Done.")
    engine = Engine(model=model, tools=[write])
    turn = await engine.run(AGENT, "hi")
    assert done == texts
    facts = [
        fact for fact in await facts_that_follow(engine, turn.id) if isinstance(fact, f.CallStarted | f.CallSettled)
    ]
    assert all(isinstance(then, f.CallSettled) for now, then in pairwise(facts) if isinstance(now, f.CallStarted)), (
        "none starts before the one before it has its result"
    )
