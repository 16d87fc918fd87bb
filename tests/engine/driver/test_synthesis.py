"""An orchestrator's own pipeline looks at each finished batch, and may turn it into the answer."""

import logging
from collections.abc import Sequence

import anyio
import pytest

from turnwright import Agent, Engine, FinishedCall, StoreError, tool
from turnwright.message import SentinelPart
from turnwright.model.protocol import ModelError
from turnwright.model.retry import Backoff
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright_states import CallStatus, Cause, EndReason, Limits, Outcome, State
from turnwright_states import facts as f
from turnwright_testing import FaultyStore

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Tidier")
AT_ONCE = Backoff(initial=0)


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


@tool(needs_approval=True)
async def erase(path: str) -> str:
    return path


class Pipeline:
    """Returns the given texts, batch by batch, and keeps the batches."""

    def __init__(self, *says: str | Exception | None) -> None:
        self.says = list(says)
        self.batches: list[tuple[FinishedCall, ...]] = []

    async def __call__(self, batch: tuple[FinishedCall, ...]) -> str | None:
        self.batches.append(batch)
        says = self.says.pop(0) if self.says else None
        if isinstance(says, Exception):
            raise says
        return says


async def test_a_text_is_the_answer_and_the_model_is_not_asked_again() -> None:
    pipeline, model = Pipeline("Report: 1, 2."), ScriptedModel(asks_for(("note", {"n": 1}), ("note", {"n": 2})))
    turn = await Engine(model=model, tools=[note], synthesize=pipeline).run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.SYNTHESIS_DONE, EndReason.SYNTHESIZED)
    assert (turn.text, turn.messages[-1].text) == ("Report: 1, 2.", "Report: 1, 2.")
    assert len(model.requests) == 1
    assert turn.path[-2:] == (State.TOOL_EXEC, State.SYNTHESIS_DONE)
    assert not any(isinstance(part, SentinelPart) for message in turn.messages for part in message.parts)


async def test_synthesis_sees_every_call_with_the_result_in_call_order() -> None:
    pipeline = Pipeline("Done.")
    asking = asks_for(("note", {"n": 1}), ("nowhere", {}), ("note", {"n": 2}))
    await Engine(model=ScriptedModel(asking), tools=[note], synthesize=pipeline).run(AGENT, "hi")
    (batch,) = pipeline.batches
    assert [(call.name, dict(call.arguments), call.status) for call in batch] == [
        ("note", {"n": 1}, CallStatus.OK),
        ("nowhere", {}, CallStatus.ERROR),
        ("note", {"n": 2}, CallStatus.OK),
    ]
    assert batch[2].text == "noted 2"


async def test_synthesis_returning_none_lets_the_turn_go_on() -> None:
    pipeline = Pipeline(None, None)
    model = ScriptedModel(asks_for(("note", {"n": 1})), asks_for(("note", {"n": 2})), "Done.")
    engine = Engine(model=model, tools=[note], synthesize=pipeline)
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.steps) == (Outcome.FINISHED, 3)
    assert [batch[0].text for batch in pipeline.batches] == ["noted 1", "noted 2"]
    synthesized = [fact for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.Synthesized)]
    assert [fact.text for fact in synthesized] == [None, None], "null is written too, else a crash would ask twice"


async def test_synthesis_is_stamped_with_the_time_of_creation() -> None:
    async def slow(_: tuple[FinishedCall, ...]) -> str:
        await anyio.sleep(3)
        return "Report."

    model = ScriptedModel(asks_for(("note", {})))
    engine = Engine(model=model, tools=[note], synthesize=slow, clock=anyio.current_time)
    turn = await engine.run(AGENT, "hi")
    (synthesized,) = [fact for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.Synthesized)]
    assert synthesized.elapsed == 3


async def test_synthesis_wins_on_the_last_step() -> None:
    pipeline = Pipeline("Report.")
    limits = Limits(steps=1)
    turn = await Engine(
        model=ScriptedModel(asks_for(("note", {}))), tools=[note], synthesize=pipeline, limits=limits
    ).run(AGENT, "hi")
    assert (turn.outcome, turn.steps) == (Outcome.SYNTHESIS_DONE, 1)


async def test_batch_with_a_waiting_call_is_offered_when_complete() -> None:
    pipeline = Pipeline("Report.")
    engine = Engine(
        model=ScriptedModel(asks_for(("note", {}), ("erase", {"path": "x"}))), tools=[note, erase], synthesize=pipeline
    )
    paused = await engine.run(AGENT, "hi")
    assert (paused.paused, pipeline.batches) == (True, [])
    turn = await engine.resume(paused.id, {"approval-1": True})
    assert turn.outcome is Outcome.SYNTHESIS_DONE
    assert [[call.text for call in batch] for batch in pipeline.batches] == [["noted 0", "x"]]


async def test_transient_error_of_a_synthesis_is_retried() -> None:
    """A synthesis that calls a model of its own meets its errors: a retry is another attempt."""
    pipeline = Pipeline(ModelError("busy", cause=Cause.OVERLOADED), "Report.")
    engine = Engine(model=ScriptedModel(asks_for(("note", {}))), tools=[note], synthesize=pipeline, backoff=AT_ONCE)
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.text, len(pipeline.batches)) == (Outcome.SYNTHESIS_DONE, "Report.", 2)
    failed = [fact for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.AttemptFailed)]
    assert [(fact.cause, fact.retry) for fact in failed] == [(Cause.OVERLOADED, True)]


async def test_failed_synthesis_without_a_retry_counts_as_none() -> None:
    busy: Sequence[Exception] = [ModelError("busy", cause=Cause.OVERLOADED)] * 2
    pipeline = Pipeline(*busy)
    engine = Engine(
        model=ScriptedModel(asks_for(("note", {})), "Done."),
        tools=[note],
        synthesize=pipeline,
        backoff=AT_ONCE,
        limits=Limits(max_retries=1),
    )
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.text, len(pipeline.batches)) == (Outcome.FINISHED, "Done.", 2)


async def test_permanent_error_of_a_synthesis_counts_as_none_at_once() -> None:
    """The turn continues: the model has the results, and the retries are left for its calls."""
    pipeline = Pipeline(ModelError("wrong key", cause=Cause.AUTHENTICATION))
    engine = Engine(model=ScriptedModel(asks_for(("note", {})), "Done."), tools=[note], synthesize=pipeline)
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.text, len(pipeline.batches)) == (Outcome.FINISHED, "Done.", 1)


async def test_bug_in_a_synthesis_ends_the_turn(caplog: pytest.LogCaptureFixture) -> None:
    pipeline = Pipeline(LookupError("no such chapter"))
    with caplog.at_level(logging.ERROR, "turnwright"):
        turn = await Engine(model=ScriptedModel(asks_for(("note", {}))), tools=[note], synthesize=pipeline).run(
            AGENT, "hi"
        )
    assert (turn.reason, turn.error) == (
        EndReason.ENGINE_ERROR,
        "synthesize 'Pipeline' raised LookupError: no such chapter",
    )
    assert any(record.exc_info for record in caplog.records)


async def test_deadline_holds_for_a_synthesis() -> None:
    async def dawdle(batch: tuple[FinishedCall, ...]) -> str | None:
        await anyio.sleep_forever()
        return str(batch)

    model = ScriptedModel(asks_for(("note", {})), "Out of time.")
    limits, clock = Limits(seconds=60), anyio.current_time
    engine = Engine(model=model, tools=[note], synthesize=dawdle, limits=limits, clock=clock)
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.reason, turn.text) == (Outcome.CAP_HIT, EndReason.DEADLINE, "Out of time.")


async def test_crash_during_a_synthesis_costs_a_retry() -> None:
    memory = MemoryStore()
    store = FaultyStore(memory, at=f.Synthesized)
    pipeline = Pipeline(None, "Report.")
    engine = Engine(model=ScriptedModel(asks_for(("note", {}))), tools=[note], synthesize=pipeline, store=store)
    with pytest.raises(StoreError):
        await engine.run(AGENT, "hi")
    await store.aclose()
    again = Engine(model=ScriptedModel(), tools=[note], synthesize=pipeline, store=memory)
    (turn,) = await again.recover()
    assert (turn.outcome, turn.text) == (Outcome.SYNTHESIS_DONE, "Report.")
    failed = [fact for _, fact in await memory.facts(turn.id) if isinstance(fact, f.AttemptFailed)]
    assert [fact.cause for fact in failed] == [Cause.CRASH]


async def test_turn_continues_on_an_engine_without_the_synthesis() -> None:
    """The pipeline is the embedder's; an engine without it says that it has nothing to say."""
    memory = MemoryStore()
    store = FaultyStore(memory, at=f.CallSettled)
    engine = Engine(model=ScriptedModel(asks_for(("note", {}))), tools=[note], synthesize=Pipeline(), store=store)
    with pytest.raises(StoreError):
        await engine.run(AGENT, "hi")
    await store.aclose()
    (turn,) = await Engine(model=ScriptedModel("Done."), tools=[note], store=memory).recover()
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")


@pytest.mark.parametrize("blank", ["", " \n", "\u200b"])
async def test_a_blank_text_is_no_synthesis(blank: str) -> None:
    """The turn continues with the model, and `finished` is its answer."""
    model = ScriptedModel(asks_for(("note", {})), "Noted.")
    turn = await Engine(model=model, tools=[note], synthesize=Pipeline(blank)).run(AGENT, "hi")
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Noted.")
