"""The page of the turns that need a person: which are there, and what is done to one or to several."""

import html
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
from tests.inspector.conftest import TOKEN, browser, csrf_of, engine_on, enter, paused_turn
from tests.inspector.turns_made import AGENT, TOOLS

from turnwright import Engine, Outcome
from turnwright.journal.result import TurnResult
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import NewTurn, SqliteStore, Status
from turnwright_inspector import Inspector, Open, Token, inspector_app
from turnwright_states import State

pytestmark = pytest.mark.anyio


@pytest.fixture
async def engine(asking: Callable[[], Engine]) -> AsyncIterator[Engine]:
    async with asking() as engine:
        yield engine


def boxes(page: str) -> list[str]:
    """Return the values of the boxes of a page."""
    return [html.unescape(value) for value in re.findall(r'name="chosen" form="all-form" value="([^"]*)"', page)]


async def ended(engine: Engine, turn: str) -> TurnResult:
    async for _ in engine.events(turn, wait=True):
        pass
    return await engine.get(turn)


async def send(client: httpx.AsyncClient, page: httpx.Response, do: str, chosen: list[str]) -> httpx.Response:
    return await client.post("/needs-you", data={"csrf": csrf_of(page), "do": do, "chosen": chosen})


async def test_every_page_shows_the_number_of_open_turns(engine: Engine) -> None:
    async with browser(inspector_app(engine, access=Open())) as client:
        nobody = (await client.get("/")).text
        assert '<span class="count" id="needs-count" hidden></span>' in nobody
        assert "<title>Turns" in nobody
    await paused_turn(engine)
    async with browser(inspector_app(engine, access=Open())) as client:
        for path in ("/", "/sessions", "/statistics"):
            page = (await client.get(path)).text
            assert '<span class="count" id="needs-count">1</span>' in page, path
            assert "<title>(1) " in page, path
        assert (await client.get("/needs-you/count")).json() == {"count": 1}


async def test_turn_is_answered_on_the_page_and_the_page_stays(engine: Engine) -> None:
    turn = await paused_turn(engine)
    app = inspector_app(engine, access=Token(TOKEN), drives=True)
    async with app.running(), browser(app) as client:
        page = await enter(client, "/needs-you")
        assert "old.log" in page.text
        answer = {"csrf": csrf_of(page), "interrupt": "approval-1", "decision": "approve", "back": "needs-you"}
        response = await client.post(f"/turns/{turn}/answer", data=answer)
        assert (response.status_code, response.headers["location"]) == (303, "/needs-you")
        assert (await ended(engine, turn)).outcome is Outcome.FINISHED
        again = await client.post(f"/turns/{turn}/answer", data=answer)
        assert again.status_code == httpx.codes.CONFLICT
        assert "<h1>Needs you</h1>" in again.text
        assert "Not done." in again.text
        assert "No turn needs you" in again.text


async def several(app: Inspector, engine: Engine, do: str) -> list[TurnResult]:
    """Do something to all the turns of the page, and return them."""
    turns = [await engine.run(AGENT, f"Prompt {number}") for number in range(3)]
    async with app.running(), browser(app) as client:
        page = await client.get("/needs-you")
        assert [json.loads(box) for box in boxes(page.text)] == [[turn.id, ["approval-1"]] for turn in turns]
        assert (await send(client, page, do, boxes(page.text))).status_code == httpx.codes.SEE_OTHER
        return [await ended(engine, turn.id) for turn in turns]


@pytest.mark.parametrize(("do", "outcome"), [("approve", Outcome.FINISHED), ("abort", Outcome.ABORTED)])
async def test_several_turns_are_approved_or_stopped_at_once(do: str, outcome: Outcome) -> None:
    asks = [asks_for(("ask", {"n": number})) for number in range(3)]
    async with Engine(model=ScriptedModel(*asks, "one", "two", "three"), tools=TOOLS) as engine:
        app = inspector_app(engine, access=Open(), drives=True)
        assert [turn.outcome for turn in await several(app, engine, do)] == [outcome] * 3


async def test_unchangeable_turns_of_a_selection_are_named(engine: Engine) -> None:
    """The others are changed. A question that was not on the page stays open."""
    turn = await paused_turn(engine)
    async with browser(inspector_app(engine, access=Open())) as client:
        page = await client.get("/needs-you")
        wrong = [json.dumps(choice) for choice in ([turn, []], ["gone", ["a"]], 5, [turn, ["approval-9"]])]
        refused = await send(client, page, "approve", wrong)
        assert refused.status_code == httpx.codes.CONFLICT
        for words in (f"{turn}: it asks for more than an approval", "gone: ", "does not say which", "approval-9"):
            assert words in html.unescape(refused.text), words
        assert (await send(client, page, "resume", boxes(page.text))).status_code == httpx.codes.CONFLICT
        assert (await send(client, page, "approve", [])).status_code == httpx.codes.CONFLICT
        assert (await engine.store.inbox(turn)) == []
        assert (await send(client, page, "approve", boxes(page.text))).status_code == httpx.codes.SEE_OTHER
        answered = await client.get("/needs-you")
        assert "It was answered, and has no driver yet." in answered.text
        assert [json.loads(box) for box in boxes(answered.text)] == [[turn, []]]


async def test_approval_with_hidden_parts_is_refused_for_several_turns(file: Path) -> None:
    """Nobody has seen all of it."""
    hidden = asks_for(("delete_file", {"path": "sk-abcdefghijklmnop1234"}))
    async with (
        engine_on(file, hidden) as engine,
        browser(inspector_app(engine, access=Open())) as client,
    ):
        turn = await paused_turn(engine)
        page = (await client.get("/needs-you")).text
        assert [json.loads(box) for box in boxes(page)] == [[turn, []]]
        assert "abcdefghijklmnop" not in page


async def test_crashed_turn_is_listed_with_the_resume_command(engine: Engine) -> None:
    store = engine.store
    assert isinstance(store, SqliteStore)
    facts = [fact for _, fact in await store.facts(await paused_turn(engine))]
    claim = await store.create(NewTurn("dead", None, "A", "m", 1.0), facts[:2], Status(State.STREAM, 1))
    await store.release(claim, crashed=True)
    async with browser(inspector_app(engine, access=Open(), store="sqlite:///a.db")) as client:
        page = (await client.get("/needs-you")).text
        assert "turnwright resume dead --store sqlite:///a.db" in page
        assert "<dt>Wait for an answer</dt><dd>1</dd>" in page
        assert "<dt>Without a driver</dt><dd>1</dd>" in page
        assert '<span class="count" id="needs-count">2</span>' in (await client.get("/")).text
