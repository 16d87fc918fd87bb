"""A turn's spans end however its driver leaves it, and only a failure is an error."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextvars import copy_context

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import NumberDataPoint
from opentelemetry.trace import StatusCode

from turnwright import Agent, Engine, LeaseLostError, Limits, StoreError, agent_tool, reject, tool
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse, TextDelta
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import Claim, InboxItem, InboxKind, MemoryStore, Status
from turnwright.telemetry import ObservedSegment, TurnWork
from turnwright_states import Cause, StartedInput, TurnMachine
from turnwright_states.facts import CallSettled, Fact, TurnStarted
from turnwright_testing.faults import FaultyStore, StoreWrapper

from .otel_collector import Collector, attributes, moves

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Tidier")
NO_RETRY = Limits(max_retries=0)


@tool(needs_approval=True)
async def erase(path: str) -> str:
    """Erase a file."""
    return f"erased {path}"


@tool
async def note() -> str:
    """Take a note."""
    return "noted"


@tool(idempotent=True)
async def again() -> str:
    """Do what can be done twice."""
    return "done"


class Hangs:
    """A model that begins to answer, and then says nothing more."""

    name = "hangs"

    def __init__(self) -> None:
        self.started = anyio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
        assert request.messages
        yield TextDelta("I")
        self.started.set()
        await anyio.sleep_forever()


async def test_pause_ends_the_trace_and_the_resumed_trace_links_back(collector: Collector) -> None:
    model = ScriptedModel(asks_for(("erase", {"path": "a"})), "Erased.")
    engine = Engine(model=model, tools=[erase], telemetry=collector.telemetry)
    paused = await engine.run(AGENT, "Erase a", session="s1")
    first = collector.one("invoke_agent")
    assert attributes(first)["turnwright.state"] == "PAUSED"
    assert "turnwright.outcome" not in attributes(first)
    assert first.status.status_code is StatusCode.UNSET
    assert collector.named("execute_tool") == []

    await engine.resume(paused.id, {paused.interrupts[0].id: True})
    _, second = collector.named("invoke_agent")
    assert moves(second)[0] == "PAUSED>TOOL_EXEC"
    assert attributes(second)["turnwright.segment.epoch"] == 2
    assert [attributes(span)["turnwright.turn.id"] for span in (first, second)] == [paused.id] * 2
    assert [attributes(span)["gen_ai.conversation.id"] for span in (first, second)] == ["s1"] * 2
    assert [link.context for link in second.links] == [first.context]
    assert first.context is not None
    assert second.context is not None
    assert first.context.trace_id != second.context.trace_id
    # Each stretch says what it used itself.
    assert [attributes(span)["gen_ai.usage.output_tokens"] for span in (first, second)] == [1, 1]


async def test_turn_resumed_by_another_engine_has_no_link(collector: Collector) -> None:
    store, other_collector = MemoryStore(), Collector()
    model = ScriptedModel(asks_for(("erase", {"path": "a"})), "Erased.")
    paused = await Engine(model=model, tools=[erase], store=store, telemetry=collector.telemetry).run(AGENT, "Erase a")
    engine = Engine(model=model, tools=[erase], store=store, telemetry=other_collector.telemetry)
    await engine.resume(paused.id, {paused.interrupts[0].id: reject("no")})
    assert list(other_collector.one("invoke_agent").links) == []
    assert attributes(other_collector.one("invoke_agent"))["turnwright.turn.id"] == paused.id


@pytest.mark.parametrize("cause", [Cause.BAD_REQUEST, Cause.CONTENT_FILTER, Cause.CONTEXT_OVERFLOW])
async def test_failed_turn_is_an_error_with_the_reason(collector: Collector, cause: Cause) -> None:
    engine = Engine(model=ScriptedModel(ModelError("no", cause=cause)), limits=NO_RETRY, telemetry=collector.telemetry)
    turn = await engine.run(AGENT, "Tidy up")
    assert [span.status.status_code for span in collector.spans] == [StatusCode.ERROR] * 2
    assert attributes(collector.one("chat"))["error.type"] == str(cause)
    assert attributes(collector.one("invoke_agent"))["error.type"] == str(turn.reason)


async def test_unexpected_model_exception_is_named_by_class(collector: Collector) -> None:
    class Broken(Hangs):
        def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
            raise RuntimeError(f"broken, for {len(request.messages)} messages")

    engine = Engine(model=Broken(), telemetry=collector.telemetry)
    await engine.run(AGENT, "Tidy up")
    assert attributes(collector.one("chat"))["error.type"] == "RuntimeError"
    assert attributes(collector.one("invoke_agent"))["error.type"] == "engine_error"


async def test_a_limit_is_no_error(collector: Collector) -> None:
    model = ScriptedModel(asks_for(("erase", {"path": "a"})), "That is all.")
    limits = Limits(max_pauses=0)
    engine = Engine(model=model, tools=[erase], limits=limits, telemetry=collector.telemetry)
    await engine.run(Agent(name="A", steps=1), "Erase a")
    span = collector.one("invoke_agent")
    assert attributes(span)["turnwright.outcome"] == "cap_hit"
    assert (span.status.status_code, "error.type" in attributes(span)) == (StatusCode.UNSET, False)


async def test_an_abort_interrupts_an_attempt_and_is_no_error(collector: Collector) -> None:
    model = Hangs()
    engine = Engine(model=model, telemetry=collector.telemetry)
    async with engine.stream(AGENT, "Tidy up") as events:
        async for event in events:
            await model.started.wait()
            await engine.abort(event.turn)
    assert attributes(collector.one("chat"))["turnwright.interrupted"] is True
    assert attributes(collector.one("invoke_agent"))["turnwright.reason"] == "aborted"
    assert {span.status.status_code for span in collector.spans} == {StatusCode.UNSET}


async def test_repetitive_reply_is_an_error(collector: Collector) -> None:
    engine = Engine(
        model=ScriptedModel("so on and " * 9_000), telemetry=collector.telemetry, limits=Limits(max_retries=0)
    )
    await engine.run(AGENT, "Tidy up")
    span = collector.one("chat")
    assert (attributes(span)["error.type"], span.status.status_code) == ("repetition", StatusCode.ERROR)
    assert "turnwright.interrupted" not in attributes(span)


async def test_conclusion_past_the_deadline_is_a_timeout(collector: Collector) -> None:
    class Slow(Hangs):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
            if request.tool_choice != "none":
                yield asks_for(("erase", {"path": "a"}))
            async for delta in super().stream(request):
                yield delta

    agent = Agent(name="A", steps=1, conclude_seconds=0.01, max_retries=0, max_pauses=0)
    await Engine(model=Slow(), tools=[erase], telemetry=collector.telemetry).run(agent, "Erase a")
    assert attributes(collector.named("chat")[-1])["error.type"] == "timeout"


async def test_abort_of_a_paused_turn_is_a_separate_trace(collector: Collector) -> None:
    engine = Engine(
        model=ScriptedModel(asks_for(("erase", {"path": "a"}))), tools=[erase], telemetry=collector.telemetry
    )
    paused = await engine.run(AGENT, "Erase a")
    await engine.abort(paused.id)
    _, ended = collector.named("invoke_agent")
    assert moves(ended) == ["PAUSED>ABORTED aborted"]
    assert (attributes(ended)["turnwright.outcome"], ended.status.status_code) == ("aborted", StatusCode.UNSET)


async def test_superseded_turn_records_the_abort(collector: Collector) -> None:
    model = ScriptedModel(asks_for(("erase", {"path": "a"})), "Hello.")
    engine = Engine(model=model, tools=[erase], telemetry=collector.telemetry)
    await engine.run(AGENT, "Erase a", session="s1")
    await engine.run(AGENT, "Never mind", session="s1")
    assert moves(collector.named("invoke_agent")[1]) == ["PAUSED>ABORTED superseded"]


async def test_waiting_sub_agent_is_ended_with_the_parent(collector: Collector) -> None:
    eraser = agent_tool(Agent(name="Eraser", description="Erases."), name="eraser")
    model = ScriptedModel(asks_for(("eraser", {"prompt": "Erase a"})), asks_for(("erase", {"path": "a"})))
    engine = Engine(model=model, tools=[erase, eraser], telemetry=collector.telemetry)
    paused = await engine.run(AGENT, "Erase a")
    assert attributes(collector.one("execute_tool eraser"))["turnwright.call.status"] == "waiting"
    await engine.abort(paused.id)
    ended = [attributes(span) for span in collector.named("invoke_agent") if moves(span)[-1].endswith("aborted")]
    assert sorted(str(turn_attributes["gen_ai.agent.name"]) for turn_attributes in ended) == ["Eraser", "Tidier"]


async def test_cancelled_turn_ends_all_spans(collector: Collector) -> None:
    model = Hangs()
    task = asyncio.create_task(Engine(model=model, telemetry=collector.telemetry).run(AGENT, "Tidy up"))
    await model.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert attributes(collector.one("chat"))["turnwright.interrupted"] is True
    span = collector.one("invoke_agent")
    assert attributes(span)["turnwright.released"] == "canceled"
    assert (attributes(span)["turnwright.state"], span.status.status_code) == ("STREAM", StatusCode.UNSET)


async def test_stream_left_early_restores_the_context(collector: Collector) -> None:
    engine = Engine(model=Hangs(), telemetry=collector.telemetry)
    with collector.tracer.start_as_current_span("caller") as caller:
        async with engine.stream(AGENT, "Tidy up") as events:
            async for _ in events:
                break
        assert trace.get_current_span() is caller
    assert collector.tree()[:2] == ["caller", "  invoke_agent Tidier"]


def test_block_left_in_a_foreign_context_ends_the_span(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    """A coroutine that nobody awaits any more is closed wherever the garbage collector finds it."""
    machine, facts = TurnMachine.start(StartedInput(prompt="Tidy up", limits=Limits(), agent={"name": "Tidier"}))
    started = facts[0]
    assert isinstance(started, TurnStarted)
    stretch = ObservedSegment(collector.telemetry, TurnWork(id="t1", epoch=1, started=started, turn=machine.turn))
    copy_context().run(stretch.__enter__)
    closed = GeneratorExit()
    stretch.__exit__(GeneratorExit, closed, None)
    assert attributes(collector.one("invoke_agent"))["turnwright.released"] == "canceled"
    assert caplog.records == []


class Taken(StoreWrapper):
    """A store in which another driver takes the turn before its second append."""

    appends = 0

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        self.appends += 1
        if self.appends > 1:
            raise LeaseLostError(claim.turn, claim.epoch)
        return await super().append(claim, facts, status, consumed)


async def test_turn_taken_by_a_new_driver_is_fenced_without_an_error(collector: Collector) -> None:
    model = ScriptedModel(asks_for(("note", {})))
    engine = Engine(model=model, tools=[note], store=Taken(MemoryStore()), telemetry=collector.telemetry)
    with pytest.raises(LeaseLostError):
        await engine.run(AGENT, "Take a note")
    span = collector.one("invoke_agent")
    assert (attributes(span)["turnwright.released"], span.status.status_code) == ("lease_lost", StatusCode.UNSET)


class EndsNot(StoreWrapper):
    """A store that raises `error` for the first append that ends a turn."""

    error: Exception | None = None

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        if status.outcome is not None and self.error is not None:
            error, self.error = self.error, None
            raise error
        return await super().append(claim, facts, status, consumed)


@pytest.mark.parametrize("error", [StoreError("the disk is full"), LeaseLostError("t1", 1)])
async def test_unwritten_end_is_not_counted(collector: Collector, error: Exception) -> None:
    store = EndsNot(MemoryStore())
    store.error = error
    engine = Engine(model=ScriptedModel("Tidy.", "Tidy."), store=store, telemetry=collector.telemetry)
    with pytest.raises(type(error)):
        await engine.run(AGENT, "Tidy up")
    turn_attributes = attributes(collector.one("invoke_agent"))
    assert turn_attributes["turnwright.state"] == "STREAM"
    assert "turnwright.outcome" not in turn_attributes
    assert collector.points("turnwright.turns") == []

    (row,) = await store.turns()
    await engine.resume(row.id)
    (counted,) = collector.points("turnwright.turns")
    assert isinstance(counted, NumberDataPoint)
    assert counted.value == 1


async def test_store_failure_is_an_error_and_recovery_has_a_new_trace(collector: Collector) -> None:
    memory = MemoryStore()
    model = ScriptedModel(asks_for(("note", {})), "Noted.")
    store = FaultyStore(memory, at=CallSettled)
    with pytest.raises(StoreError):
        await Engine(model=model, tools=[note], store=store, telemetry=collector.telemetry).run(AGENT, "Take a note")
    await store.aclose()
    turn_span = collector.one("invoke_agent")
    assert attributes(turn_span)["turnwright.released"] == "error"
    assert (attributes(turn_span)["error.type"], turn_span.status.status_code) == ("StoreError", StatusCode.ERROR)

    (turn,) = await Engine(model=model, tools=[note], store=memory, telemetry=collector.telemetry).recover()
    assert turn.text == "Noted."
    _, recovered = collector.named("invoke_agent")
    assert attributes(recovered)["turnwright.segment.epoch"] == 2
    assert moves(recovered)[-1] == "STREAM>FINISHED answered"


class Deaf(StoreWrapper):
    """A store that other processes write to, and that cannot be asked what they want."""

    @property
    def shared(self) -> bool:
        return True

    async def requests(self, *kinds: InboxKind) -> list[InboxItem]:
        raise StoreError(f"nobody answers for {kinds}")


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_store_failure_beside_the_work_is_an_error(collector: Collector) -> None:
    engine = Engine(model=Hangs(), store=Deaf(MemoryStore()), poll_interval=0.01, telemetry=collector.telemetry)
    with pytest.raises(StoreError):
        await engine.run(AGENT, "Tidy up")
    turn_span = collector.one("invoke_agent")
    assert attributes(turn_span)["turnwright.released"] == "error"
    assert (attributes(turn_span)["error.type"], turn_span.status.status_code) == ("StoreError", StatusCode.ERROR)
    assert attributes(collector.one("chat"))["turnwright.interrupted"] is True


async def test_call_repeated_after_a_crash_is_a_separate_attempt(collector: Collector) -> None:
    memory = MemoryStore()
    model = ScriptedModel(asks_for(("again", {})), "Done.")
    store = FaultyStore(memory, at=CallSettled)
    with pytest.raises(StoreError):
        await Engine(model=model, tools=[again], store=store, telemetry=collector.telemetry).run(AGENT, "Do it")
    await store.aclose()
    await Engine(model=model, tools=[again], store=memory, telemetry=collector.telemetry).recover()
    first, second = collector.named("execute_tool")
    assert [attributes(span)["turnwright.attempt"] for span in (first, second)] == [1, 2]
    assert second.parent is not None
    recovered = collector.named("invoke_agent")[1].context
    assert recovered is not None
    assert second.parent.span_id == recovered.span_id
