"""Links to turns: with any text in a journal, a link leads to the turn that it names, or there is no link."""

import re
from urllib.parse import unquote

import httpx
import pytest
from msgspec import structs
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp
from tests.inspector.conftest import ADDRESS
from tests.inspector.turns_made import AGENT, TOOLS, keep

from turnwright import Engine
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright_inspector import Open, inspector_app
from turnwright_inspector.http.render import environment
from turnwright_inspector.http.urls import address
from turnwright_states import facts as f

pytestmark = pytest.mark.anyio

LINK = '{% import "parts.html" as parts %}{{ parts.turn(url, id, words, "x", at) }}'


def link(to: str, name: str, words: str = "", at: int | None = None) -> str:
    def url(_page: str, **_where: str) -> str:
        return to

    return environment().from_string(LINK).render(url=url, id=name, words=words, at=at)


def client_of(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=ADDRESS)


async def addressed(name: str) -> tuple[str, str]:
    """The address of a turn of that name, and the name that a server reads out of it."""
    addresses: list[str] = []

    async def turn(request: Request) -> Response:
        addresses.append(address(request, "turn", turn=name))
        return PlainTextResponse(request.path_params["turn"])

    app = Starlette(routes=[Route("/turns/{turn}", turn, name="turn")])
    async with client_of(app) as client:
        await client.get("/turns/any")
        answer = (await client.get(addresses[0])).text if addresses[0] else ""
    return addresses[0], answer


@pytest.mark.parametrize(
    "name", ["abc", "abc:call00001", "a b", "a?at=5", "a#b", "a%2Fb", "a\\b", "%2e%2e", "ход", "a'b", "...", "x" * 1000]
)
async def test_turn_address_opens_the_turn(name: str) -> None:
    path, answer = await addressed(name)
    assert path.isascii()
    assert unquote(path) == f"/turns/{name}"
    assert answer == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "/", "a\nb", "a\0", "\x7f", "\u202e", "\ud800", "\u200b", "x" * 1001]
)
async def test_unaddressable_turn_id_has_no_address(name: str) -> None:
    assert await addressed(name) == ("", "")


def test_turn_without_an_address_is_text() -> None:
    assert link("/turns/a", "a") == '<a class="x" href="/turns/a">a</a>'
    assert link("/turns/a", "a", "Anna", 7) == '<a class="x" href="/turns/a?at=7">Anna</a>'
    assert link("", "a/<b>") == '<span class="x">a/&lt;b&gt;</span>'
    assert link("", "a/b", "Anna") == '<span class="x">Anna</span>'
    assert len(link("", "x" * 10_000)) < 300


@pytest.mark.parametrize(("child", "expected"), [("a/b", "<span"), ("a:b", '<a class="cut mono" href="/turns/a:b"')])
async def test_call_lane_links_to_the_turn_if_addressable(child: str, expected: str) -> None:
    model = ScriptedModel(asks_for(("ok", {})), "done")
    async with Engine(model=model, tools=TOOLS, store=MemoryStore()) as engine:
        facts = [fact for _, fact in await engine.store.facts((await engine.run(AGENT, "hi")).id)]
        forged = [structs.replace(fact, child=child) if isinstance(fact, f.CallStarted) else fact for fact in facts]
        await keep(engine.store, "forged", forged)
        async with client_of(inspector_app(engine, access=Open())) as client:
            page = await client.get("/turns/forged?tab=timeline")
        assert page.status_code == httpx.codes.OK
        assert re.search(rf"{re.escape(expected)}[^>]*>ok</", page.text)
