"""The page that starts a turn, where the server has agents."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from tests.inspector.conftest import engine_on, person_at

from turnwright import Agent, Engine, StoreError
from turnwright.model import ScriptedModel
from turnwright.model.protocol import ModelRequest
from turnwright.store import SqliteStore
from turnwright.store.protocol import Claim, InboxItem, Status
from turnwright_inspector import Open, inspector_app
from turnwright_states import Outcome
from turnwright_states.facts import Fact

pytestmark = pytest.mark.anyio

CLEANER = Agent(name="Cleaner", description="Cleans <up>")
READER = Agent(name="Reader", mode="subagent", description="Reads")


async def test_turn_is_started_and_shown(file: Path) -> None:
    async with (
        engine_on(file, "Done.") as engine,
        person_at(inspector_app(engine, access=Open(), drives=True, agents=[CLEANER, READER])) as person,
    ):
        assert 'href="/new"' in (await person.client.get("/")).text
        form = (await person.client.get("/new", params={"prompt": "Clean"})).text
        page = await person.does("/new", agent="Cleaner", prompt="Clean up", session="s1")
        row = (await engine.store.turns())[0]
        ended = await engine.attach(row.id, CLEANER).result()
    assert "Cleans &lt;up&gt;" in form
    assert "Reader" not in form
    assert page.url.path == f"/turns/{row.id}"
    assert (row.agent, row.session, ended.outcome) == ("Cleaner", "s1", Outcome.FINISHED)


async def test_invalid_new_turn_is_reported_with_the_typed_text(file: Path) -> None:
    async with engine_on(file) as engine:
        async with person_at(inspector_app(engine, access=Open(), drives=True, agents=[CLEANER])) as person:
            blank = await person.does("/new", agent="Cleaner", prompt=" ", session="s1")
            nobody = await person.does("/new", agent="Nobody", prompt="Clean")
        assert await engine.store.turns() == []
    assert (blank.status_code, "the prompt is blank" in blank.text, 'value="s1"' in blank.text) == (422, True, True)
    assert "choose an agent" in nobody.text


async def test_server_without_driving_or_agents_starts_nothing(file: Path) -> None:
    registered = Engine(model=ScriptedModel("Done."), agents=[CLEANER])
    for engine, drives in ((engine_on(file), True), (registered, False)):
        async with engine, person_at(inspector_app(engine, access=Open(), drives=drives)) as person:
            assert 'href="/new"' not in (await person.client.get("/")).text
            assert "This server starts no turns" in (await person.client.get("/new")).text


class Failing(SqliteStore):
    """A store that cannot be written while `down`."""

    down = False

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        if self.down:
            raise StoreError("the server is down")
        return await super().append(claim, facts, status, consumed)


async def test_failure_of_a_started_turn_is_shown_until_resumed(file: Path) -> None:
    """The store was down while it ran: nobody drives it any more, though this process lives."""
    store = Failing(file)

    def reply(request: ModelRequest) -> str:  # noqa: ARG001 (a script takes one)
        store.down = True
        return "Done."

    async with (
        Engine(model=ScriptedModel(reply, "Done."), store=store) as engine,
        person_at(inspector_app(engine, access=Open(), drives=True, agents=[CLEANER])) as person,
    ):
        path = (await person.does("/new", agent="Cleaner", prompt="Clean up")).url.path
        while "It could not run here." not in (failed := (await person.client.get(path)).text):  # noqa: ASYNC110 (a page has no event)
            await anyio.sleep(0.01)
        store.down = False
        await person.does(f"{path}/resume")
        ended = await engine.attach(path.rpartition("/")[2], CLEANER).result()
        resumed = (await person.client.get(path)).text
    assert "the server is down" in failed
    assert ended.outcome is Outcome.FINISHED
    assert "It could not run here." not in resumed
    await store.aclose()
