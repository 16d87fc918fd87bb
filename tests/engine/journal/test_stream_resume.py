"""A turn is resumed and followed: the events begin where its journal ended, and end when it does."""

from pathlib import Path

import anyio
import pytest

from turnwright import Agent, Engine, InvalidAnswerError, TurnAlreadyEndedError, tool
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import SqliteStore
from turnwright.transcript.events import TextDeltaEvent, TurnEndedEvent, TurnEvent, TurnPausedEvent
from turnwright_states import Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Cleaner")


@tool(needs_approval=True)
async def erase(path: str = "a") -> str:
    """Erase a file."""
    return f"erased {path}"


def says(request: ModelRequest) -> ModelResponse:
    """As every process would have it: first it wants two files erased, then it is done."""
    if request.messages[-1].role == "tool":
        return ModelResponse(text="All gone.")
    return asks_for(("erase", {"path": "a"}), ("erase", {"path": "b"}))


def engine_of(store: SqliteStore | str = "memory:") -> Engine:
    return Engine(model=ScriptedModel(says, repeat=True), tools=[erase], store=store, poll_interval=0.01)


async def test_resumed_stream_begins_after_the_journal() -> None:
    engine = engine_of()
    paused = await engine.run(AGENT, "Clean up")
    before = len(await engine.store.facts(paused.id))
    with anyio.fail_after(60):
        async with engine.stream_resume(paused.id, {"approval-1": True, "approval-2": False}) as events:
            heard = [event async for event in events]
    facts = await engine.store.facts(paused.id)
    fact_events = [event for event in heard if not isinstance(event, TextDeltaEvent)]
    assert [(event.seq, event.type) for event in fact_events] == [(seq, fact.kind) for seq, fact in facts[before:]]
    assert [event.text for event in heard if isinstance(event, TextDeltaEvent)] == ["All", " gone."]
    assert isinstance(heard[-1], TurnEndedEvent)


async def test_partial_answers_end_the_stream_with_the_open_interrupts() -> None:
    """No second pause is written down: nothing more comes until the other interrupt is answered."""
    engine = engine_of()
    paused = await engine.run(AGENT, "Clean up")
    with anyio.fail_after(60):
        async with engine.stream_resume(paused.id, {"approval-1": True}) as events:
            answered, rests = [event async for event in events]
        assert (answered.type, rests.type, rests.seq) == ("answered", "paused", answered.seq)
        assert isinstance(rests, TurnPausedEvent)
        assert [interrupt.id for interrupt in rests.interrupts] == ["approval-2"]
        async with engine.stream_resume(paused.id, {"approval-2": True}) as events:
            assert [event.type async for event in events][-1] == "turn_ended"


@pytest.mark.parametrize("answers", [None, {}])
async def test_unanswered_turn_repeats_the_pending_pause(answers: dict[str, str] | None) -> None:
    engine = engine_of()
    paused = await engine.run(AGENT, "Clean up")
    with anyio.fail_after(60):
        async with engine.stream_resume(paused.id, answers) as events:
            (rests,) = [event async for event in events]
    assert isinstance(rests, TurnPausedEvent)
    assert rests.interrupts == paused.interrupts


async def test_unfit_answer_is_raised_and_changes_nothing() -> None:
    engine = engine_of()
    paused = await engine.run(AGENT, "Clean up")
    before = await engine.store.facts(paused.id)
    with pytest.raises(InvalidAnswerError, match="perhaps"), anyio.fail_after(60):
        async with engine.stream_resume(paused.id, {"approval-1": "perhaps"}) as events:
            assert [event async for event in events] == []
    assert await engine.store.facts(paused.id) == before


async def test_ended_turn_cannot_be_resumed() -> None:
    engine = Engine(model=ScriptedModel("Hello."))
    ended = await engine.run(AGENT, "Hi")
    with pytest.raises(TurnAlreadyEndedError), anyio.fail_after(60):
        async with engine.stream_resume(ended.id) as events:
            assert [event async for event in events] == []


async def test_leaving_early_stops_driving_and_the_turn_can_be_taken_up_again() -> None:
    engine = engine_of()
    paused = await engine.run(AGENT, "Clean up")
    with anyio.fail_after(60):
        async with engine.stream_resume(paused.id, {"approval-1": True, "approval-2": True}) as events:
            async for event in events:
                if event.type == "call_started":
                    break
        assert (await engine.get(paused.id)).outcome is None
        async with engine.stream_resume(paused.id) as events:
            assert isinstance([event async for event in events][-1], TurnEndedEvent)
    assert (await engine.get(paused.id)).outcome is Outcome.FINISHED


@pytest.mark.no_waiting(False)
async def test_turn_driven_elsewhere_takes_the_answers_and_is_followed(tmp_path: Path) -> None:
    """As two processes do, two stores share one file."""
    address = tmp_path / "turns.db"
    heard: list[TurnEvent] = []
    async with (
        engine_of(SqliteStore(address)) as first,
        engine_of(SqliteStore(address)) as second,
    ):
        paused = await first.run(AGENT, "Clean up")
        claim = await first.store.claim(paused.id)

        async def let_go() -> None:
            while len(await first.store.inbox(paused.id)) < 2:  # noqa: ASYNC110 (another process writes it)
                await anyio.sleep(0.01)
            await first.store.release(claim)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(let_go)
                async with second.stream_resume(paused.id, {"approval-1": True, "approval-2": True}) as events:
                    heard += [event async for event in events]
    assert [event.type for event in heard if event.type == "answered"] == ["answered", "answered"]
    assert isinstance(heard[-1], TurnEndedEvent)
