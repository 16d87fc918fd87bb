"""Metrics: tokens and durations by the conventions, and turns by how they ended."""

import pytest
from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint

from turnwright import Agent, Engine, Limits, tool
from turnwright.model.protocol import ModelError, ModelResponse
from turnwright.model.retry import Backoff
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store.outbox import NoticeCounts
from turnwright_states import Cause, Usage

from .otel_collector import Collector

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "_OTHER", "gen_ai.request.model": "scripted"}


@tool
async def look(place: int) -> str:
    """Look somewhere."""
    if place < 0:
        raise ValueError("there is no such place")
    return f"nothing at {place}"


@tool(needs_approval=True)
async def erase() -> str:
    """Erase everything."""
    return "erased"


def histogram(collector: Collector, name: str) -> list[tuple[dict[str, object], int, float]]:
    """The points of a histogram: attributes, how often, and the sum."""
    points = collector.points(name)
    return [(dict(p.attributes or {}), p.count, p.sum) for p in points if isinstance(p, HistogramDataPoint)]


def counts(collector: Collector) -> dict[tuple[object, object], int | float]:
    """The turns that ended, by outcome and reason."""
    return {
        ((p.attributes or {})["turnwright.outcome"], (p.attributes or {})["turnwright.reason"]): p.value
        for p in collector.points("turnwright.turns")
        if isinstance(p, NumberDataPoint)
    }


USED = Usage(input_tokens=200, output_tokens=30, cached_tokens=150, reasoning_tokens=20)


async def test_tokens_are_counted_by_their_kind(collector: Collector) -> None:
    model = ScriptedModel(ModelResponse(text="Done.", usage=USED))
    await Engine(model=model, telemetry=collector.telemetry).run(AGENT, "Tidy up")
    inference = "gen_ai.client.inference"
    assert histogram(collector, f"{inference}.operation.input_tokens") == [(CHAT, 1, 200)]
    assert histogram(collector, f"{inference}.operation.output_tokens") == [(CHAT, 1, 30)]
    by = {**CHAT, "gen_ai.token.modality": "unknown"}
    kinds = ("input_tokens", "output_tokens", "cache_read.input_tokens", "reasoning.output_tokens")
    counted = {kind: collector.points(f"{inference}.usage.{kind}") for kind in kinds}
    assert {
        kind: [(dict(p.attributes or {}), p.value) for p in points if isinstance(p, NumberDataPoint)]
        for kind, points in counted.items()
    } == {
        "input_tokens": [(by, 200)],
        "output_tokens": [(by, 30)],
        "cache_read.input_tokens": [(by, 150)],
        "reasoning.output_tokens": [(by, 20)],
    }


async def test_missing_usage_is_not_counted(collector: Collector) -> None:
    model = ScriptedModel(ModelResponse(text="Done."))
    await Engine(model=model, telemetry=collector.telemetry).run(AGENT, "Tidy up")
    assert collector.points("gen_ai.client.inference.usage.input_tokens") == []


async def test_durations_carry_the_type_of_error(collector: Collector) -> None:
    failed = ModelError("overloaded", cause=Cause.OVERLOADED)
    model = ScriptedModel(failed, asks_for(("look", {"place": 1}), ("look", {"place": -1})), "Done.")
    backoff = Backoff(initial=0.0)
    await Engine(model=model, tools=[look], backoff=backoff, telemetry=collector.telemetry).run(AGENT, "Tidy up")
    assert [(a, n) for a, n, _ in histogram(collector, "gen_ai.client.inference.duration")] == [
        ({**CHAT, "error.type": "overloaded"}, 1),
        (CHAT, 2),
    ]
    tool_of = {"gen_ai.tool.name": "look", "gen_ai.agent.name": "Tidier"}
    calls = [(a, n) for a, n, _ in histogram(collector, "gen_ai.execute_tool.duration")]
    assert sorted(calls, key=str) == sorted([(tool_of, 1), ({**tool_of, "error.type": "ValueError"}, 1)], key=str)
    assert [(a, n) for a, n, _ in histogram(collector, "gen_ai.invoke_agent.duration")] == [
        ({"gen_ai.agent.name": "Tidier"}, 1)
    ]


async def test_bucket_bounds_follow_the_conventions(collector: Collector) -> None:
    await Engine(model=ScriptedModel("Done."), telemetry=collector.telemetry).run(AGENT, "Tidy up")
    bounds = {
        name: point.explicit_bounds
        for name in (
            "gen_ai.client.inference.operation.input_tokens",
            "gen_ai.client.inference.duration",
            "gen_ai.invoke_agent.duration",
        )
        for point in collector.points(name)
        if isinstance(point, HistogramDataPoint)
    }
    tokens = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
    seconds = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
    agents = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
    assert list(bounds.values()) == [pytest.approx(bound) for bound in (tokens, seconds, agents)]


async def test_turns_are_counted_once_by_outcome_and_reason(collector: Collector) -> None:
    async def ran(*lines: ModelResponse | ModelError | str, agent: Agent = AGENT, session: str | None = None) -> Engine:
        engine = Engine(
            model=ScriptedModel(*lines),
            tools=[look, erase],
            limits=Limits(max_retries=0),
            telemetry=collector.telemetry,
        )
        await engine.run(agent, "Tidy up", session=session)
        return engine

    once = asks_for(("look", {"place": 1}))
    await ran("Done.")
    await ran(once, "That is all.", agent=Agent(name="Short", steps=1))
    await ran(once, once, once, "I repeat myself.", agent=Agent(name="Loop", nudges=0))
    await ran(ModelError("no", cause=Cause.BAD_REQUEST))
    engine = await ran(asks_for(("erase", {})), "Erased.", "Hello.", session="s1")
    assert ("aborted", "superseded") not in counts(collector)
    await engine.run(AGENT, "Never mind", session="s1")
    engine = await ran(asks_for(("erase", {})), "Erased.")
    (paused,) = await engine.store.turns(live=True)
    await engine.resume(paused.id, {(await engine.get(paused.id)).interrupts[0].id: True})
    assert counts(collector) == {
        ("finished", "answered"): 3,
        ("cap_hit", "step_cap"): 1,
        ("doom_loop", "doom_loop"): 1,
        ("failed", "model_error"): 1,
        ("aborted", "superseded"): 1,
    }


async def test_steps_and_seconds_of_a_turn_cover_all_segments(collector: Collector) -> None:
    now = iter(range(1000))
    engine = Engine(
        model=ScriptedModel(asks_for(("erase", {})), "Erased."),
        tools=[erase],
        clock=lambda: float(next(now)),
        telemetry=collector.telemetry,
    )
    paused = await engine.run(AGENT, "Erase everything")
    turn = await engine.resume(paused.id, {paused.interrupts[0].id: True})
    assert [total for _, _, total in histogram(collector, "turnwright.turn.steps")] == [2]
    assert [total for _, _, total in histogram(collector, "turnwright.turn.duration")] == [turn.seconds]
    assert [n for _, n, _ in histogram(collector, "gen_ai.invoke_agent.duration")] == [2]


async def test_outbox_is_a_gauge(collector: Collector) -> None:
    """The notices that wait, and those that were given up."""
    collector.telemetry.outbox(NoticeCounts(3, 1))
    values = {
        name: [point.value for point in collector.points(name) if isinstance(point, NumberDataPoint)]
        for name in ("turnwright.outbox.pending", "turnwright.outbox.failed")
    }
    assert values == {"turnwright.outbox.pending": [3], "turnwright.outbox.failed": [1]}
