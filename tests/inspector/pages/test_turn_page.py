"""The head of a turn's page names the step that took longest."""

import re

import pytest
from tests.inspector.conftest import browser

from turnwright import Agent, Engine, tool
from turnwright.model import ScriptedModel, asks_for
from turnwright_inspector import Open, inspector_app

pytestmark = pytest.mark.anyio


async def test_slowest_step_is_named_and_linked() -> None:
    now = [0.0]

    @tool
    async def wait(seconds: float) -> str:
        now[0] += seconds
        return "waited"

    waits = [asks_for(("wait", {"seconds": seconds})) for seconds in (2, 25, 3)]
    model = ScriptedModel(*waits, "Done.", waits[0], "Done.")
    async with (
        Engine(model=model, tools=[wait], clock=lambda: now[0]) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        turn = await engine.run(Agent(name="Waiter"), "Wait")
        page = (await client.get(f"/turns/{turn.id}?tab=timeline")).text
        short = await engine.run(Agent(name="Waiter"), "Wait")
        assert 'id="slowest"' not in (await client.get(f"/turns/{short.id}")).text
    match = re.search(r'<a id="slowest" href="([^"]*)">Step 2, 25.0 s</a>', page)
    assert match is not None
    assert "step=2" in match[1]
    assert "tab=timeline" in match[1]
