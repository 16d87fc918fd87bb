"""The waterfall of a turn: its sub-agents and attempts, zoom, what runs now, and long turns without slivers."""

import html
import re
from dataclasses import replace
from itertools import count
from pathlib import Path

import anyio
import httpx
import pytest
from tests.inspector.conftest import browser
from tests.inspector.turns_made import AGENT, TOOLS, look

from turnwright import Agent, Engine, tool
from turnwright.driver.subagents import agent_tool
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.store import MemoryStore
from turnwright_inspector import Open, inspector_app
from turnwright_inspector.tabs import timeline
from turnwright_inspector.views.steps import sub_agents
from turnwright_inspector.views.timeline import WIDTH
from turnwright_inspector.views.turn_record import TabContext
from turnwright_inspector.views.waterfall import BarKind
from turnwright_states import Limits

pytestmark = pytest.mark.anyio

HELPER = Agent(name="Helper", description="It helps.", tools=("Under", "ok"))
UNDER = Agent(name="Under", description="It helps the helper.", tools=("ok",))
TEAM = (*TOOLS, agent_tool(HELPER), agent_tool(UNDER))


async def with_sub_agents(engine: Engine, name: str) -> TabContext:
    looked = await look(engine, name)
    return replace(looked, below=await sub_agents(engine.store, looked.turn.children))


async def test_sub_agent_steps_are_nested_within_the_call() -> None:
    model = ScriptedModel(
        asks_for(("Helper", {"prompt": "a"})),
        asks_for(("Under", {"prompt": "b"})),
        asks_for(("ok", {"n": 1})),
        "under is done",
        "helper is done",
        "done",
    )
    async with Engine(model=model, tools=TEAM, store=MemoryStore()) as engine:
        turn = await engine.run(AGENT, "hi")
        view = timeline.view(await with_sub_agents(engine, turn.id))
    assert [(lane.depth, lane.label) for lane in view.lanes] == [
        (0, "Step 1"),
        (1, "Helper"),
        (2, "Step 1"),
        (3, "Under"),
        (4, "Step 1"),
        (5, "ok"),
        (4, "Step 2"),
        (2, "Step 2"),
        (0, "Step 2"),
    ]
    assert {lane.step for lane in view.lanes} == {"1", "2"}
    rows = [lane.row for lane in view.lanes]
    outer = {row.call: row for row in rows if row is not None and row.depth == 1}
    (helper,) = outer.values()
    for row in rows:
        if row is not None and row.depth > 1:
            assert row.owner.startswith(turn.id)
            assert helper.began <= row.began <= row.ended <= helper.ended


async def long_turn(steps: int, calls: int) -> TabContext:
    """A turn of many calls, whose steps take the same time: a second passes each time that the clock is read."""
    ticks = count()
    limits, clock = Limits(tool_calls=1000), lambda: float(next(ticks))
    async with Engine(model=many_calls(calls), tools=TOOLS, store=MemoryStore(), limits=limits, clock=clock) as engine:
        return await look(engine, (await engine.run(Agent(name="A", steps=steps), "hi")).id)


def many_calls(calls: int) -> ScriptedModel:
    numbers = iter(range(10_000))

    def say(request: ModelRequest) -> ModelResponse | str:
        if request.tool_choice == "none":
            return "Enough."
        return asks_for(*[("ok", {"n": next(numbers)}) for _ in range(calls)])

    return ScriptedModel(say, repeat=True)


async def test_scale_covers_the_page_and_a_strip_covers_the_whole_turn() -> None:
    looked = await long_turn(steps=60, calls=4)
    view = timeline.view(looked)
    assert view.window.total == 60 * 5 + 1
    assert 0 < view.began < view.ended <= view.seconds
    widest = max(bar.width for lane in view.lanes for bar in lane.bars if bar.kind is BarKind.STEP)
    assert widest > WIDTH / 60
    assert [kind for kind, _ in view.strip] == [BarKind.MODEL, BarKind.CALL]
    assert len({words for _, words in view.marks}) == len(view.marks) > 1


async def test_zoom_shows_only_lanes_of_the_chosen_time() -> None:
    looked = await long_turn(steps=20, calls=2)
    whole = timeline.view(looked)
    step = looked.turn.steps[9]
    zoomed = timeline.view(replace(looked, zoom=f"{step.began:.9f}-{step.ended:.9f}"))
    assert zoomed.zoomed
    assert (zoomed.began, zoomed.ended) == pytest.approx((step.began, step.ended), abs=1e-6)
    assert step.key in {lane.step for lane in zoomed.lanes}
    assert len(zoomed.lanes) < len(whole.lanes)
    assert all(0 <= bar.x <= bar.x + bar.width <= WIDTH + 1e-6 for lane in zoomed.lanes for bar in lane.bars)
    closer = timeline.view(replace(looked, zoom=zoomed.zooms.closer))
    assert closer.ended - closer.began == pytest.approx((zoomed.ended - zoomed.began) / 2, rel=1e-3)
    for link in (zoomed.zooms.wider, zoomed.zooms.earlier, zoomed.zooms.later):
        assert link is not None
        assert timeline.view(replace(looked, zoom=link)).zoomed
    chosen = timeline.view(replace(looked, step=step))
    assert timeline.view(replace(looked, zoom=chosen.zooms.step)).began == pytest.approx(step.began, abs=1e-6)


@pytest.mark.parametrize("zoom", ["", "x", "1-", "5-1", "0-0", "1e9-2e9", "-1-2", "9" * 40 + "-1", "nan-inf"])
async def test_invalid_zoom_shows_the_whole_turn(zoom: str) -> None:
    async with Engine(model=ScriptedModel("done"), tools=TOOLS, store=MemoryStore()) as engine:
        name = (await engine.run(AGENT, "hi")).id
        assert not timeline.view(replace(await look(engine, name), zoom=zoom)).zoomed
        async with browser(inspector_app(engine, access=Open())) as client:
            page = await client.get(f"/turns/{name}", params={"tab": "timeline", "zoom": zoom})
            assert page.status_code == httpx.codes.OK


async def test_running_call_is_named_and_has_an_open_bar(tmp_path: Path) -> None:
    begun, open_ = anyio.Event(), anyio.Event()

    @tool
    async def wait_here() -> str:
        """Wait."""
        begun.set()
        await open_.wait()
        return "done"

    model = ScriptedModel(asks_for(("wait_here", {})), "done")
    name, store = "", f"sqlite:///{tmp_path / 'turns.db'}"
    async with (
        Engine(model=model, tools=(*TOOLS, wait_here), store=store, poll_interval=0.02) as engine,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(engine.run, AGENT, "hi")
        await begun.wait()
        (name,) = [row.id for row in await engine.store.turns()]
        view = timeline.view(await look(engine, name))
        assert [call.label for call in view.now] == ["wait_here (call00001)"]
        (call,) = [lane for lane in view.lanes if lane.label == "wait_here"]
        assert [bar.status for bar in call.bars] == ["running"]
        assert call.bars[0].x + call.bars[0].width == pytest.approx(WIDTH)
        open_.set()
    async with Engine(tools=TOOLS, store=store) as engine:
        assert timeline.view(await look(engine, name)).now == ()


async def test_running_sub_agent_call_is_named_with_the_turn() -> None:
    begun, open_ = anyio.Event(), anyio.Event()

    @tool
    async def wait_here() -> str:
        """Wait."""
        begun.set()
        await open_.wait()
        return "done"

    waiter = Agent(name="Waiter", description="It waits.", tools=("wait_here",))
    model = ScriptedModel(asks_for(("Waiter", {"prompt": "a"})), asks_for(("wait_here", {})), "waited", "done")
    async with (
        Engine(model=model, tools=(wait_here, agent_tool(waiter)), store=MemoryStore()) as engine,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(engine.run, AGENT, "hi")
        await begun.wait()
        name = next(row.id for row in await engine.store.turns() if ":" not in row.id)
        view = timeline.view(await with_sub_agents(engine, name))
        assert [(call.label, call.owner) for call in view.now] == [
            ("Waiter (call00001)", ""),
            ("wait_here (call00001)", f"{name}:call00001"),
        ]
        open_.set()


async def test_bars_and_labels_link_to_steps_even_of_sub_agents() -> None:
    model = ScriptedModel(asks_for(("Helper", {"prompt": "a"})), asks_for(("ok", {"n": 1})), "helped", "done")
    async with (
        Engine(model=model, tools=TEAM, store=MemoryStore()) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        turn = (await engine.run(AGENT, "hi")).id
        page = (await client.get(f"/turns/{turn}?tab=timeline")).text
        links = {html.unescape(link) for link in re.findall(r'data-href="([^"]+)"', page)}
        assert f"/turns/{turn}?step=1&tab=request" in links
        assert any(link.startswith(f"/turns/{turn}:call00001?") and "tab=request" in link for link in links)
        for address in links:
            assert (await client.get(address)).status_code == httpx.codes.OK
