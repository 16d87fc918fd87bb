"""The tab of the transcript: what became of calls whose driver died, and of replies of which nothing came."""

from dataclasses import replace

import pytest
from tests.inspector.conftest import TOKEN, person_at
from tests.inspector.turns_made import TOOLS, keep, look

from turnwright import Agent, Engine
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelError
from turnwright.store import MemoryStore
from turnwright_inspector import Token, inspector_app
from turnwright_inspector.tabs import transcript
from turnwright_states import Cause, Outcome
from turnwright_states.facts import CallStarted

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("driven", "status"), [(True, "running"), (False, "interrupted")])
async def test_call_without_a_driver_is_interrupted(driven: bool, status: str) -> None:
    async with Engine(model=ScriptedModel(asks_for(("ok", {})), "Done."), tools=TOOLS, store=MemoryStore()) as engine:
        facts = [fact for _, fact in await engine.store.facts((await engine.run(Agent(name="Reader"), "Look")).id)]
        started = next(place for place, fact in enumerate(facts, start=1) if isinstance(fact, CallStarted))
        await keep(engine.store, "crashed", facts[:started])
        looked = await look(engine, "crashed")
        looked = replace(looked, turn=replace(looked.turn, driven=driven))
    rows = [part.row for line in transcript.view(looked).lines for part in line.parts if part.row]
    assert [row.status for row in rows] == [status]


async def test_empty_reply_has_no_row() -> None:
    async with Engine(model=ScriptedModel(asks_for(("ok", {}))), tools=TOOLS, store=MemoryStore()) as engine:
        looked = await look(engine, (await engine.run(Agent(name="Reader"), "Look")).id)
    assert looked.turn.result.outcome is Outcome.FAILED
    assert [[part.kind for part in line.parts] for line in transcript.view(looked).lines] == [
        ["text"],
        ["tool_call"],
        ["sentinel"],
    ]


@pytest.mark.no_waiting
async def test_failed_attempts_are_shown_beside_the_step() -> None:
    overloaded = ModelError("try again later", cause=Cause.OVERLOADED)
    model = ScriptedModel(overloaded, overloaded, "Done.")
    async with Engine(model=model, store=MemoryStore()) as engine:
        turn = (await engine.run(Agent(name="Reader"), "Look")).id
        async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
            page = await person.client.get(f"/turns/{turn}")
    assert "2 attempts failed: overloaded" in page.text
