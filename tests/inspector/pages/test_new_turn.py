"""The page that starts a turn, where the server has agents."""

from pathlib import Path

import pytest
from tests.inspector.conftest import engine_on, person_at

from turnwright import Agent, Engine
from turnwright.inspector import Open, inspector_app
from turnwright.model import ScriptedModel
from turnwright_states import Outcome

pytestmark = pytest.mark.anyio

CLEANER = Agent(name="Cleaner", description="Cleans <up>")
READER = Agent(name="Reader", mode="subagent", description="Reads")


async def test_a_turn_is_started_and_shown(file: Path) -> None:
    async with (
        engine_on(file, "Done.") as engine,
        person_at(inspector_app(engine, access=Open(), drives=True, agents=[CLEANER, READER])) as person,
    ):
        assert 'href="/new"' in (await person.client.get("/")).text
        form = (await person.client.get("/new", params={"prompt": "Clean"})).text
        shown = await person.does("/new", agent="Cleaner", prompt="Clean up", session="s1")
        row = (await engine.store.turns())[0]
        ended = await engine.attach(row.id, CLEANER).result()
    assert "Cleans &lt;up&gt;" in form
    assert "Reader" not in form
    assert shown.url.path == f"/turns/{row.id}"
    assert (row.agent, row.session, ended.outcome) == ("Cleaner", "s1", Outcome.FINISHED)


async def test_what_cannot_be_started_is_told_with_what_was_typed(file: Path) -> None:
    async with engine_on(file) as engine:
        async with person_at(inspector_app(engine, access=Open(), drives=True, agents=[CLEANER])) as person:
            blank = await person.does("/new", agent="Cleaner", prompt=" ", session="s1")
            nobody = await person.does("/new", agent="Nobody", prompt="Clean")
        assert await engine.store.turns() == []
    assert (blank.status_code, "the prompt is blank" in blank.text, 'value="s1"' in blank.text) == (422, True, True)
    assert "choose an agent" in nobody.text


async def test_a_server_that_runs_nothing_or_has_no_agents_starts_nothing(file: Path) -> None:
    registered = Engine(model=ScriptedModel("Done."), agents=[CLEANER])
    for engine, drives in ((engine_on(file), True), (registered, False)):
        async with engine, person_at(inspector_app(engine, access=Open(), drives=drives)) as person:
            assert 'href="/new"' not in (await person.client.get("/")).text
            assert "This server starts no turns" in (await person.client.get("/new")).text
