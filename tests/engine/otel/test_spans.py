"""A turn is a trace: its attempts and its calls below it, and below those what they do themselves."""

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import NumberDataPoint
from opentelemetry.trace import SpanKind, StatusCode
from tests.engine.ruled_turn import AGENT as RULED
from tests.engine.ruled_turn import engine_with_rules

from turnwright import Agent, Engine, Later, Limits, Price, ToolError, agent_tool, tool
from turnwright.journal.answers import approve
from turnwright.model.protocol import ModelError, ModelResponse
from turnwright.model.retry import Backoff
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright_states import Cause, Usage

from .otel_collector import Collector, attributes, moves

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier", description="Tidies up.")
NO_WAIT = Backoff(initial=0.0)


@tool
async def look(place: int) -> str:
    """Look somewhere."""
    if place < 0:
        raise ValueError("there is no such place")
    return f"nothing at {place}"


@tool
async def give_up() -> str:
    """Say that it cannot be done."""
    raise ToolError("it cannot be done")


async def test_turn_span_is_the_parent_of_attempts_and_calls(collector: Collector) -> None:
    model = ScriptedModel(asks_for(("look", {"place": 1})), "Done.")
    engine = Engine(model=model, tools=[look], telemetry=collector.telemetry)
    await engine.run(AGENT, "Tidy up")
    assert collector.tree() == ["invoke_agent Tidier", "  chat scripted", "  execute_tool look", "  chat scripted"]
    kinds = {span.name: span.kind for span in collector.spans}
    assert kinds == {
        "invoke_agent Tidier": SpanKind.INTERNAL,
        "chat scripted": SpanKind.CLIENT,
        "execute_tool look": SpanKind.INTERNAL,
    }
    assert {span.status.status_code for span in collector.spans} == {StatusCode.UNSET}


async def test_turn_span_has_all_attributes(collector: Collector) -> None:
    model = ScriptedModel(ModelResponse(text="Done.", usage=Usage(input_tokens=200, output_tokens=100)))
    engine = Engine(model=model, prices={"scripted": Price(input=1.0, output=2.0)}, telemetry=collector.telemetry)
    turn = await engine.run(AGENT, "Tidy up", session="s1")
    assert attributes(collector.one("invoke_agent")) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "_OTHER",
        "gen_ai.agent.name": "Tidier",
        "gen_ai.agent.description": "Tidies up.",
        "gen_ai.conversation.id": "s1",
        "gen_ai.request.model": "scripted",
        "gen_ai.usage.input_tokens": 200,
        "gen_ai.usage.output_tokens": 100,
        "turnwright.turn.id": turn.id,
        "turnwright.segment.epoch": 1,
        "turnwright.state": "FINISHED",
        "turnwright.outcome": "finished",
        "turnwright.reason": "answered",
        "turnwright.also_reached": (),
        "turnwright.steps": 1,
        "turnwright.tool_calls": 0,
        "turnwright.usage.cost": pytest.approx(0.0004),
    }


async def test_attempt_span_has_all_attributes(collector: Collector) -> None:
    model = ScriptedModel(
        ModelResponse(text="Done.", usage=Usage(input_tokens=2, output_tokens=1), finish_reason="end_turn")
    )
    engine = Engine(model=model, limits=Limits(tokens=1000), telemetry=collector.telemetry)
    turn = await engine.run(AGENT, "Tidy up")
    assert attributes(collector.one("chat")) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "_OTHER",
        "gen_ai.agent.name": "Tidier",
        "gen_ai.request.model": "scripted",
        "gen_ai.request.max_tokens": 1000,
        "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.usage.input_tokens": 2,
        "gen_ai.usage.output_tokens": 1,
        "turnwright.turn.id": turn.id,
        "turnwright.state": "STREAM",
        "turnwright.step": 1,
        "turnwright.attempt": 1,
    }


async def test_call_span_has_all_attributes(collector: Collector) -> None:
    model = ScriptedModel(asks_for(("look", {"place": 1})), "Done.")
    turn = await Engine(model=model, tools=[look], telemetry=collector.telemetry).run(AGENT, "Tidy up")
    assert attributes(collector.one("execute_tool")) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.agent.name": "Tidier",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Look somewhere.",
        "gen_ai.tool.call.id": turn.messages[1].calls[0].id,
        "turnwright.turn.id": turn.id,
        "turnwright.attempt": 1,
        "turnwright.call.status": "ok",
    }


async def test_each_transition_is_an_event(collector: Collector) -> None:
    model = ScriptedModel(asks_for(("look", {"place": 1})), "That is all.")
    await Engine(model=model, tools=[look], telemetry=collector.telemetry).run(Agent(name="A", steps=1), "Tidy up")
    assert moves(collector.one("invoke_agent")) == [
        "CHECK>STREAM",
        "STREAM>TOOL_EXEC",
        "TOOL_EXEC>CONTINUE",
        "CONTINUE>CHECK",
        "CHECK>CONCLUDE step_cap",
        "CONCLUDE>CAP_HIT step_cap",
    ]
    assert collector.named("chat")[-1].attributes is not None
    assert attributes(collector.named("chat")[-1])["turnwright.state"] == "CONCLUDE"


async def test_failed_attempt_is_a_separate_span(collector: Collector) -> None:
    failed = ModelError("overloaded", cause=Cause.OVERLOADED, partial=ModelResponse(usage=Usage(input_tokens=7)))
    # A zero-width space shows nothing: the machine takes it for no text, and so does the span.
    engine = Engine(model=ScriptedModel(failed, "\u200b", "Done."), backoff=NO_WAIT, telemetry=collector.telemetry)
    await engine.run(AGENT, "Tidy up")
    first, empty, last = collector.named("chat")
    assert [span.status.status_code for span in (first, empty, last)] == [
        StatusCode.ERROR,
        StatusCode.ERROR,
        StatusCode.UNSET,
    ]
    assert attributes(first)["error.type"] == "overloaded"
    assert attributes(first)["gen_ai.usage.input_tokens"] == 7
    assert attributes(empty)["error.type"] == "empty_reply"
    assert [attributes(span)["turnwright.attempt"] for span in (first, empty, last)] == [1, 2, 3]
    assert moves(collector.one("invoke_agent"))[1:3] == ["STREAM>STREAM overloaded", "STREAM>STREAM empty_reply"]


async def test_wait_before_an_attempt_is_outside_the_span(collector: Collector) -> None:
    failed = ModelError("busy", cause=Cause.RATE_LIMITED, retry_after=0.05)
    await Engine(model=ScriptedModel(failed, "Done."), telemetry=collector.telemetry).run(AGENT, "Tidy up")
    first, second = collector.named("chat")
    assert first.end_time is not None
    assert second.start_time is not None
    assert second.start_time - first.end_time >= 50_000_000


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_parallel_calls_are_sibling_spans_below_the_turn(collector: Collector) -> None:
    met = anyio.Event()

    @tool
    async def meet(first: bool) -> str:
        """Wait for the other call."""
        with collector.tracer.start_as_current_span(f"inner {first}"):
            if first:
                await met.wait()
            met.set()
            await anyio.lowlevel.checkpoint()
        return "met"

    model = ScriptedModel(asks_for(("meet", {"first": True}), ("meet", {"first": False})), "Done.")
    engine = Engine(model=model, tools=[meet], telemetry=collector.telemetry)
    with collector.tracer.start_as_current_span("caller"):
        await engine.run(AGENT, "Tidy up")
    lines = collector.tree()
    assert lines[:3] + lines[7:] == ["caller", "  invoke_agent Tidier", "    chat scripted", "    chat scripted"]
    # Which of them begins first is the event loop's to say.
    assert sorted(zip(lines[3:7:2], lines[4:7:2], strict=True)) == [
        ("    execute_tool meet", "      inner False"),
        ("    execute_tool meet", "      inner True"),
    ]


async def test_tool_in_a_thread_traces_below_the_call(collector: Collector) -> None:
    @tool
    def read() -> str:
        """Read."""
        with collector.tracer.start_as_current_span("disk"):
            return "read"

    model = ScriptedModel(asks_for(("read", {})), "Done.")
    await Engine(model=model, tools=[read], telemetry=collector.telemetry).run(AGENT, "Read")
    assert collector.tree()[2:4] == ["  execute_tool read", "    disk"]


async def test_turns_at_the_same_time_are_traces_of_their_own(collector: Collector) -> None:
    engine = Engine(model=ScriptedModel(*["Done."] * 8), telemetry=collector.telemetry)
    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(engine.run, AGENT, "Tidy up")
    assert collector.tree() == ["invoke_agent Tidier", "  chat scripted"] * 8
    assert trace.get_current_span() is trace.INVALID_SPAN


@pytest.mark.parametrize(
    ("call", "error"),
    [(("look", {"place": -1}), "ValueError"), (("give_up", {}), "ToolError")],
    ids=["raised", "said so"],
)
async def test_failed_call_records_the_class_of_the_error(
    collector: Collector, call: tuple[str, dict[str, int]], error: str
) -> None:
    engine = Engine(model=ScriptedModel(asks_for(call), "Done."), tools=[look, give_up], telemetry=collector.telemetry)
    await engine.run(AGENT, "Tidy up")
    span = collector.one("execute_tool")
    assert (span.status.status_code, attributes(span)["error.type"]) == (StatusCode.ERROR, error)
    assert attributes(span)["turnwright.call.status"] == "error"
    assert collector.one("invoke_agent").status.status_code is StatusCode.UNSET


async def test_call_refused_before_the_start_has_no_span(collector: Collector) -> None:
    model = ScriptedModel(asks_for(("look", {}), ("nobody", {})), "Done.")
    await Engine(model=model, tools=[look], telemetry=collector.telemetry).run(AGENT, "Tidy up")
    assert collector.named("execute_tool") == []


async def test_sub_agent_span_is_below_the_call(collector: Collector) -> None:
    reader = agent_tool(Agent(name="Reader", description="Reads."), name="reader")
    model = ScriptedModel(
        asks_for(("reader", {"prompt": "Read"})), asks_for(("look", {"place": 1})), "Read it.", "Done."
    )
    turn = await Engine(model=model, tools=[look, reader], telemetry=collector.telemetry).run(AGENT, "Tidy up")
    assert collector.tree() == [
        "invoke_agent Tidier",
        "  chat scripted",
        "  execute_tool reader",
        "    invoke_agent Reader",
        "      chat scripted",
        "      execute_tool look",
        "      chat scripted",
        "  chat scripted",
    ]
    child = attributes(collector.one("invoke_agent Reader"))
    assert child["turnwright.turn.parent"] == turn.id
    assert attributes(collector.one("execute_tool reader"))["turnwright.call.turn"] == child["turnwright.turn.id"]


async def test_continuing_turn_links_to_the_predecessor(collector: Collector) -> None:
    engine = Engine(model=ScriptedModel("One.", "Two."), telemetry=collector.telemetry)
    first = await engine.run(AGENT, "One")
    await engine.run(AGENT, "Two", continue_from=first.id)
    first_span, second = collector.named("invoke_agent")
    assert attributes(second)["turnwright.turn.continues"] == first.id
    assert [link.context for link in second.links] == [first_span.context]


async def test_result_from_outside_has_a_span_with_its_channel(collector: Collector) -> None:
    """The call's first span ends at the wait; the second one is in the segment that uses the result."""

    @tool
    async def render() -> str:
        """Render elsewhere."""
        raise Later

    model = ScriptedModel(asks_for(("render", {})), "Done.")
    engine = Engine(model=model, tools=[render], telemetry=collector.telemetry)
    turn = await engine.run(AGENT, "Render")
    await engine.settle(turn.interrupts[0].key, error="the farm is closed", via="webhook")
    await engine.resume(turn.id)
    before, after = map(attributes, collector.named("execute_tool"))
    assert (before["turnwright.call.status"], after["turnwright.call.status"]) == ("waiting", "error")
    assert "turnwright.answer.via" not in before
    assert "turnwright.wait.seconds" not in before
    wait = after["turnwright.wait.seconds"]
    assert isinstance(wait, float)
    assert 0 <= wait < 60
    assert after["turnwright.answer.via"] == "webhook"


async def test_call_that_breaks_a_rule_has_a_span_with_the_rule(collector: Collector) -> None:
    """A refused call has a span too, and a call that a person approved names the rule that asked."""
    async with engine_with_rules(MemoryStore(), collector.telemetry) as engine:
        turn = await engine.run(RULED, "Pay order 7 back.")
        await engine.answer(turn.id, {turn.interrupts[0].id: approve()}, by="ann")
        await engine.resume(turn.id)
    spans = [attributes(span) for span in collector.named("execute_tool")]
    judged = [
        (span["gen_ai.tool.call.id"], span["turnwright.call.status"], span["turnwright.rule.name"], effect)
        for span in spans
        if (effect := span.get("turnwright.rule.effect"))
    ]
    assert judged == [
        ("call00001", "refused", "verify-first", "refuse"),
        ("call00004", "ok", "noted", "report"),
        ("call00006", "waiting", "large", "ask"),
        ("call00006", "ok", "large", "ask"),
    ]
    answers = [event for span in collector.named("invoke_agent") for event in span.events]
    broken = [event.attributes for event in answers if event.name == "turnwright.rule.broken"]
    assert broken == [{"turnwright.rule.name": "tested", "turnwright.rule.effect": "refuse"}]
    segments = {span.context.span_id for span in collector.named("invoke_agent") if span.context is not None}
    assert {span.parent.span_id for span in collector.named("execute_tool") if span.parent is not None} <= segments


async def test_broken_rules_are_counted_once_each(collector: Collector) -> None:
    """Each call or answer that breaks a rule counts once, by the rule and its effect."""
    async with engine_with_rules(MemoryStore(), collector.telemetry) as engine:
        await engine.run(RULED, "Pay order 7 back.")
    counts = {
        (str((point.attributes or {})["turnwright.rule.name"]), (point.attributes or {}).get("gen_ai.tool.name")): (
            point.value
        )
        for point in collector.points("turnwright.rules.broken")
        if isinstance(point, NumberDataPoint)
    }
    assert counts == {
        ("verify-first", "refund"): 1,
        ("large", "refund"): 1,
        ("tested", None): 1,
        ("noted", "write_file"): 1,
    }
