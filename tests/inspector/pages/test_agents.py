"""The page of agents and models: what their turns take, and links to these turns."""

import html
import re

import pytest
from tests.inspector.conftest import browser
from tests.inspector.turns_made import TOOLS

from turnwright import Agent, Engine
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelResponse
from turnwright.store import MemoryStore
from turnwright_inspector import Open, inspector_app
from turnwright_states import Usage

pytestmark = pytest.mark.anyio


def line(text: str, tokens: int) -> ModelResponse:
    return ModelResponse(text=text, usage=Usage(input_tokens=tokens, output_tokens=0, cost=tokens / 1000))


async def test_agents_have_figures_and_links_to_turns() -> None:
    model = ScriptedModel(
        line("one", 100),
        line("two", 300),
        line("three", 900),
        asks_for(("broken", {})),
        asks_for(("broken", {})),
        "sorry",
    )
    async with (
        Engine(model=model, tools=TOOLS) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        assert "No turn has ended yet." in (await client.get("/agents")).text
        for _ in range(3):
            await engine.run(Agent(name="Steady"), "hi")
        await engine.run(Agent(name="Brief", steps=1), "hi")
        page = html.unescape((await client.get("/agents")).text)
        steady, brief = re.findall(r"<tr>\s*<td class=\"what\">.*?</tr>", page, re.DOTALL)
        assert "Steady" in steady
        assert ">3</td>" in steady
        assert "100 %" in steady
        assert '300 <span class="quiet">/ 900</span>' in steady
        assert '$0.3000 <span class="quiet">/ $0.9000</span>' in steady
        assert "$1.3000" in steady
        assert "Brief" in brief
        assert "0 %" in brief
        link = re.search(r'href="([^"]*reason=[^"]*)"', brief)
        assert link is not None
        assert "step cap" in brief
        turns = (await client.get(link[1])).text
        assert turns.count('id="row-') == 1
        assert "Brief" in turns
        assert "Cost over time" in page
        assert 'Steady <span class="num soft">$1.3000</span>' in page
        assert "Tokens over time" in page


async def test_agents_are_sorted_and_filtered_by_the_address() -> None:
    async with (
        Engine(model=ScriptedModel(line("one", 100), line("two", 900), line("three", 100))) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        for name in ("Cheap", "Dear", "Cheap"):
            await engine.run(Agent(name=name), "hi")
        for params, expected in (
            ({}, ["Cheap", "Dear"]),
            ({"sort": "cost", "by": "agent"}, ["Dear", "Cheap"]),
            ({"by": "model"}, ["scripted"]),
            ({"sort": "nonsense", "agent": "EAR"}, ["Dear"]),
            ({"range": "1h", "agent": "x"}, []),
        ):
            page = (await client.get("/agents", params=params)).text
            assert re.findall(r'<a class="cover cut" [^>]*>(\w+)</a>', page) == expected, params


async def test_link_sorts_the_most_failing_agents_first() -> None:
    async with (
        Engine(model=ScriptedModel("one", "two", asks_for(("broken", {})), "sorry"), tools=TOOLS) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        await engine.run(Agent(name="Steady"), "hi")
        await engine.run(Agent(name="Steady"), "hi")
        await engine.run(Agent(name="Brief", steps=1), "hi")
        link = re.search(r'href="([^"]*)">Fail most<', (await client.get("/agents")).text)
        assert link is not None
        page = (await client.get(html.unescape(link[1]))).text
    assert re.findall(r'<a class="cover cut" [^>]*>(\w+)</a>', page) == ["Brief", "Steady"]
    assert 'aria-sort="ascending"' in page


async def test_agent_is_summed_over_models_and_model_over_agents() -> None:
    store = MemoryStore()
    for name, model in (("Steady", "small"), ("Steady", "large"), ("Brief", "small")):
        async with Engine(model=ScriptedModel(line("one", 100), name=model), store=store) as engine:
            await engine.run(Agent(name=name), "hi")
    async with Engine(store=store) as engine, browser(inspector_app(engine, access=Open())) as client:
        by_agent = html.unescape((await client.get("/agents?by=agent&model=a")).text)
        by_model = html.unescape((await client.get("/agents?by=model")).text)
    steady, brief = re.findall(r"<tr>\s*<td class=\"what\">.*?</tr>", by_agent, re.DOTALL)
    assert ">2 models</span>" in steady
    assert ">1 model</span>" in brief
    assert "$0.2000" in steady
    assert 'href="/?agent=Steady&model=a&range=&since=&until="' in steady
    small, large = re.findall(r"<tr>\s*<td class=\"what\">.*?</tr>", by_model, re.DOTALL)
    assert ">2 agents</span>" in small
    assert ">1 agent</span>" in large
    assert 'large <span class="num soft">$0.1000</span>' in by_model
    assert '<option value="model" selected>model</option>' in by_model
