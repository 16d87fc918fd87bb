"""The pages of sessions: titles, open turns, and the conversation with its totals."""

import html
import re

import httpx
import pytest
from tests.inspector.conftest import browser
from tests.inspector.turns_made import AGENT

from turnwright import Engine, tool
from turnwright.model import ScriptedModel, asks_for
from turnwright_inspector import Open, inspector_app
from turnwright_inspector.pages.sessions import TURNS
from turnwright_inspector.views.turn_query import PAGE

pytestmark = pytest.mark.anyio


@tool(needs_approval=True)
async def erase() -> str:
    """Erase something, with leave."""
    return "erased"


async def test_sessions_have_titles_open_turns_and_links() -> None:
    model = ScriptedModel("Hi.", asks_for(("erase", {})))
    async with (
        Engine(model=model, tools=[erase]) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        assert "No sessions yet" in (await client.get("/sessions")).text
        await engine.run(AGENT.model_copy(update={"tools": None}), "<b>Tidy</b> up", session="a&b")
        paused = await engine.run(AGENT.model_copy(update={"tools": None}), "Erase", session="a&b")
        page = (await client.get("/sessions")).text
        assert "&lt;b&gt;Tidy&lt;/b&gt; up" in page
        assert f'href="/turns/{paused.id}"' in page
        assert 'href="/session?session=a%26b"' in page
        turns = await client.get("/", params={"session": "a&b"})
        assert turns.status_code == httpx.codes.OK
        assert turns.text.count('id="row-') == 2


async def test_older_sessions_are_on_the_next_page() -> None:
    async with (
        Engine(model=ScriptedModel("Hi.", repeat=True)) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        for number in range(PAGE + 1):
            await engine.run(AGENT, f"prompt {number}.", session=f"s{number}")
        first = (await client.get("/sessions")).text
        before = (await engine.sessions(limit=PAGE))[-1].number
        assert f'href="/sessions?before={before}"' in first
        assert "prompt 0." not in first
        last = (await client.get("/sessions", params={"before": before})).text
        assert "prompt 0." in last
        assert "Older sessions" not in last


async def test_session_reads_as_a_conversation_with_totals() -> None:
    """The oldest turn comes first. What one turn was asked and answered is shown whole."""
    long = "word " * 2000
    model = ScriptedModel(f"First *answer*. {long}", asks_for(("erase", {})))
    async with (
        Engine(model=model, tools=[erase]) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        agent = AGENT.model_copy(update={"tools": None})
        await engine.run(agent, f"<b>One</b> {long}", session="a/b")
        await engine.run(agent, "Two", session="a/b")
        page = (await client.get("/session", params={"session": "a/b"})).text
        assert page.count(long.strip()) == 2
        assert "&lt;b&gt;One&lt;/b&gt;" in page
        assert "<em>answer</em>" in page
        assert page.index("First") < page.index("Two") < page.index("It waits for an answer.")
        assert '<dt>Turns</dt><dd><a href="/?session=a%2Fb">2</a></dd>' in page
        assert "<dt>Steps</dt><dd>2</dd>" in page
        missing = await client.get("/session", params={"session": "a"})
        assert missing.status_code == httpx.codes.NOT_FOUND
        assert (await client.get("/session")).status_code == httpx.codes.NOT_FOUND


async def test_earlier_turns_of_a_session_are_on_another_page() -> None:
    """A page summarizes turns for a short time only, so on a busy machine it is asked for again."""
    async with (
        Engine(model=ScriptedModel("Hi.", repeat=True)) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        for number in range(TURNS + 1):
            await engine.run(AGENT, f"prompt {number}.", session="s")
        page, link = "", None
        while link is None:
            page = (await client.get("/session", params={"session": "s"})).text
            link = re.search(r'href="(/session\?session=s&amp;before=\d+)">Earlier turns', page)
        assert ">prompt 0.</p>" not in page
        earlier = (await client.get(html.unescape(link[1]))).text
        assert ">prompt 0.</p>" in earlier
        assert ">prompt 1.</p>" not in earlier
