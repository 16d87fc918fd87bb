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

from .told import Told, attributes, moves

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
        self.began = anyio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
        assert request.messages
        yield TextDelta("I")
        self.began.set()
        await anyio.sleep_forever()


async def test_pause_ends_the_trace_and_the_resumed_trace_links_back(told: Told) -> None:
    model = ScriptedModel(asks_for(("erase", {"path": "a"})), "Erased.")
    engine = Engine(model=model, tools=[erase], telemetry=told.telemetry)
    paused = await engine.run(AGENT, "Erase a", session="s1")
    first = told.one("invoke_agent")
    assert attributes(first)["turnwright.state"] == "PAUSED"
    assert "turnwright.outcome" not in attributes(first)
    assert first.status.status_code is StatusCode.UNSET
    assert told.named("execute_tool") == []

    await engine.resume(paused.id, {paused.interrupts[0].id: True})
    _, second = told.named("invoke_agent")
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


async def test_turn_resumed_by_another_engine_has_no_link(told: Told) -> None:
    store, other = MemoryStore(), Told()
    model = ScriptedModel(asks_for(("erase", {"path": "a"})), "Erased.")
    paused = await Engine(model=model, tools=[erase], store=store, telemetry=told.telemetry).run(AGENT, "Erase a")
    engine = Engine(model=model, tools=[erase], store=store, telemetry=other.telemetry)
    await engine.resume(paused.id, {paused.interrupts[0].id: reject("no")})
    assert list(other.one("invoke_agent").links) == []
    assert attributes(other.one("invoke_agent"))["turnwright.turn.id"] == paused.id


@pytest.mark.parametrize("cause", [Cause.BAD_REQUEST, Cause.CONTENT_FILTER, Cause.CONTEXT_OVERFLOW])
async def test_failed_turn_is_an_error_with_the_reason(told: Told, cause: Cause) -> None:
    engine = Engine(model=ScriptedModel(ModelError("no", cause=cause)), limits=NO_RETRY, telemetry=told.telemetry)
    turn = await engine.run(AGENT, "Tidy up")
    assert [span.status.status_code for span in told.spans] == [StatusCode.ERROR] * 2
    assert attributes(told.one("chat"))["error.type"] == str(cause)
    assert attributes(told.one("invoke_agent"))["error.type"] == str(turn.reason)


async def test_unexpected_model_exception_is_named_by_class(told: Told) -> None:
    class Broken(Hangs):
        def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
            raise RuntimeError(f"broken, for {len(request.messages)} messages")

    engine = Engine(model=Broken(), telemetry=told.telemetry)
    await engine.run(AGENT, "Tidy up")
    assert attributes(told.one("chat"))["error.type"] == "RuntimeError"
    assert attributes(told.one("invoke_agent"))["error.type"] == "engine_error"


async def test_a_limit_is_no_error(told: Told) -> None:
    model = ScriptedModel(asks_for(("erase", {"path": "a"})), "That is all.")
    limits = Limits(max_pauses=0)
    engine = Engine(model=model, tools=[erase], limits=limits, telemetry=told.telemetry)
    await engine.run(Agent(name="A", steps=1), "Erase a")
    span = told.one("invoke_agent")
    assert attributes(span)["turnwright.outcome"] == "cap_hit"
    assert (span.status.status_code, "error.type" in attributes(span)) == (StatusCode.UNSET, False)


async def test_an_abort_interrupts_an_attempt_and_is_no_error(told: Told) -> None:
    model = Hangs()
    engine = Engine(model=model, telemetry=told.telemetry)
    async with engine.stream(AGENT, "Tidy up") as events:
        async for event in events:
            await model.began.wait()
            await engine.abort(event.turn)
    assert attributes(told.one("chat"))["turnwright.interrupted"] is True
    assert attributes(told.one("invoke_agent"))["turnwright.reason"] == "aborted"
    assert {span.status.status_code for span in told.spans} == {StatusCode.UNSET}


async def test_repetitive_reply_is_an_error(told: Told) -> None:
    engine = Engine(model=ScriptedModel("so on and " * 9_000), telemetry=told.telemetry, limits=Limits(max_retries=0))
    await engine.run(AGENT, "Tidy up")
    span = told.one("chat")
    assert (attributes(span)["error.type"], span.status.status_code) == ("repetition", StatusCode.ERROR)
    assert "turnwright.interrupted" not in attributes(span)


async def test_conclusion_past_the_deadline_is_a_timeout(told: Told) -> None:
    class Slow(Hangs):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
            if request.tool_choice != "none":
                yield asks_for(("erase", {"path": "a"}))
            async for one in super().stream(request):
                yield one

    agent = Agent(name="A", steps=1, conclude_seconds=0.01, max_retries=0, max_pauses=0)
    await Engine(model=Slow(), tools=[erase], telemetry=told.telemetry).run(agent, "Erase a")
    assert attributes(told.named("chat")[-1])["error.type"] == "timeout"


async def test_abort_of_a_paused_turn_is_a_separate_trace(told: Told) -> None:
    engine = Engine(model=ScriptedModel(asks_for(("erase", {"path": "a"}))), tools=[erase], telemetry=told.telemetry)
    paused = await engine.run(AGENT, "Erase a")
    await engine.abort(paused.id)
    _, ended = told.named("invoke_agent")
    assert moves(ended) == ["PAUSED>ABORTED aborted"]
    assert (attributes(ended)["turnwright.outcome"], ended.status.status_code) == ("aborted", StatusCode.UNSET)


async def test_superseded_turn_records_the_abort(told: Told) -> None:
    model = ScriptedModel(asks_for(("erase", {"path": "a"})), "Hello.")
    engine = Engine(model=model, tools=[erase], telemetry=told.telemetry)
    await engine.run(AGENT, "Erase a", session="s1")
    await engine.run(AGENT, "Never mind", session="s1")
    assert moves(told.named("invoke_agent")[1]) == ["PAUSED>ABORTED superseded"]


async def test_waiting_sub_agent_is_ended_with_the_parent(told: Told) -> None:
    eraser = agent_tool(Agent(name="Eraser", description="Erases."), name="eraser")
    model = ScriptedModel(asks_for(("eraser", {"prompt": "Erase a"})), asks_for(("erase", {"path": "a"})))
    engine = Engine(model=model, tools=[erase, eraser], telemetry=told.telemetry)
    paused = await engine.run(AGENT, "Erase a")
    assert attributes(told.one("execute_tool eraser"))["turnwright.call.status"] == "waiting"
    await engine.abort(paused.id)
    ended = [attributes(span) for span in told.named("invoke_agent") if moves(span)[-1].endswith("aborted")]
    assert sorted(str(one["gen_ai.agent.name"]) for one in ended) == ["Eraser", "Tidier"]


async def test_cancelled_turn_ends_all_spans(told: Told) -> None:
    model = Hangs()
    driving = asyncio.create_task(Engine(model=model, telemetry=told.telemetry).run(AGENT, "Tidy up"))
    await model.began.wait()
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    assert attributes(told.one("chat"))["turnwright.interrupted"] is True
    span = told.one("invoke_agent")
    assert attributes(span)["turnwright.released"] == "canceled"
    assert (attributes(span)["turnwright.state"], span.status.status_code) == ("STREAM", StatusCode.UNSET)


async def test_stream_left_early_restores_the_context(told: Told) -> None:
    engine = Engine(model=Hangs(), telemetry=told.telemetry)
    with told.tracer.start_as_current_span("caller") as caller:
        async with engine.stream(AGENT, "Tidy up") as events:
            async for _ in events:
                break
        assert trace.get_current_span() is caller
    assert told.tree()[:2] == ["caller", "  invoke_agent Tidier"]


def test_block_left_in_a_foreign_context_ends_the_span(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    """A coroutine that nobody awaits any more is closed wherever the garbage collector finds it."""
    machine, facts = TurnMachine.start(StartedInput(prompt="Tidy up", limits=Limits(), agent={"name": "Tidier"}))
    started = facts[0]
    assert isinstance(started, TurnStarted)
    stretch = ObservedSegment(told.telemetry, TurnWork(id="t1", epoch=1, started=started, turn=machine.turn))
    copy_context().run(stretch.__enter__)
    closed = GeneratorExit()
    stretch.__exit__(GeneratorExit, closed, None)
    assert attributes(told.one("invoke_agent"))["turnwright.released"] == "canceled"
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


async def test_turn_taken_by_a_new_driver_is_fenced_without_an_error(told: Told) -> None:
    model = ScriptedModel(asks_for(("note", {})))
    engine = Engine(model=model, tools=[note], store=Taken(MemoryStore()), telemetry=told.telemetry)
    with pytest.raises(LeaseLostError):
        await engine.run(AGENT, "Take a note")
    span = told.one("invoke_agent")
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
async def test_unwritten_end_is_not_counted(told: Told, error: Exception) -> None:
    store = EndsNot(MemoryStore())
    store.error = error
    engine = Engine(model=ScriptedModel("Tidy.", "Tidy."), store=store, telemetry=told.telemetry)
    with pytest.raises(type(error)):
        await engine.run(AGENT, "Tidy up")
    left = attributes(told.one("invoke_agent"))
    assert left["turnwright.state"] == "STREAM"
    assert "turnwright.outcome" not in left
    assert told.points("turnwright.turns") == []

    (row,) = await store.turns()
    await engine.resume(row.id)
    (counted,) = told.points("turnwright.turns")
    assert isinstance(counted, NumberDataPoint)
    assert counted.value == 1


async def test_store_failure_is_an_error_and_recovery_has_a_new_trace(told: Told) -> None:
    memory = MemoryStore()
    model = ScriptedModel(asks_for(("note", {})), "Noted.")
    store = FaultyStore(memory, at=CallSettled)
    with pytest.raises(StoreError):
        await Engine(model=model, tools=[note], store=store, telemetry=told.telemetry).run(AGENT, "Take a note")
    await store.aclose()
    left = told.one("invoke_agent")
    assert attributes(left)["turnwright.released"] == "error"
    assert (attributes(left)["error.type"], left.status.status_code) == ("StoreError", StatusCode.ERROR)

    (turn,) = await Engine(model=model, tools=[note], store=memory, telemetry=told.telemetry).recover()
    assert turn.text == "Noted."
    _, recovered = told.named("invoke_agent")
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
async def test_store_failure_beside_the_work_is_an_error(told: Told) -> None:
    engine = Engine(model=Hangs(), store=Deaf(MemoryStore()), poll_interval=0.01, telemetry=told.telemetry)
    with pytest.raises(StoreError):
        await engine.run(AGENT, "Tidy up")
    left = told.one("invoke_agent")
    assert attributes(left)["turnwright.released"] == "error"
    assert (attributes(left)["error.type"], left.status.status_code) == ("StoreError", StatusCode.ERROR)
    assert attributes(told.one("chat"))["turnwright.interrupted"] is True


async def test_call_repeated_after_a_crash_is_a_separate_attempt(told: Told) -> None:
    memory = MemoryStore()
    model = ScriptedModel(asks_for(("again", {})), "Done.")
    store = FaultyStore(memory, at=CallSettled)
    with pytest.raises(StoreError):
        await Engine(model=model, tools=[again], store=store, telemetry=told.telemetry).run(AGENT, "Do it")
    await store.aclose()
    await Engine(model=model, tools=[again], store=memory, telemetry=told.telemetry).recover()
    first, second = told.named("execute_tool")
    assert [attributes(span)["turnwright.attempt"] for span in (first, second)] == [1, 2]
    assert second.parent is not None
    recovered = told.named("invoke_agent")[1].context
    assert recovered is not None
    assert second.parent.span_id == recovered.span_id
