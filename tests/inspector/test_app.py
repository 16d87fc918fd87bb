"""The inspector as an application: by itself, and mounted in another one."""

import ast
import re
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from turnwright import Agent, Engine, Links, tool
from turnwright.errors import ConfigError, StoreError
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import Annotation, AnnotationKind, InboxItem, MemoryStore, TurnRow
from turnwright_inspector import Inspector, Open, Token, inspector_app
from turnwright_inspector.tabs import TABS
from turnwright_inspector.views.summaries import Summaries

from .conftest import ADDRESS, TOKEN, csrf_of, delete_file, engine_on, enter, paused_turn, person_at

pytestmark = pytest.mark.anyio


@pytest.fixture
async def engine(asking: Callable[[], Engine]) -> AsyncIterator[Engine]:
    async with asking() as engine:
        yield engine


def fastapi_with(inspector: Inspector) -> FastAPI:
    """A server of somebody's own, with the inspector in it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with inspector.running():
            yield

    app = FastAPI(lifespan=lifespan)
    app.mount("/ops/turns", inspector)
    return app


async def test_address_in_place_of_an_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"must be an engine, as in inspector_app\(Engine\(store=\.\.\.\)\)"):
        inspector_app("sqlite:///turns.db")  # type: ignore[arg-type]


@pytest.mark.parametrize("mounting", [fastapi_with, lambda app: Starlette(routes=[Mount("/ops/turns", app)])])
async def test_mounted_inspector_keeps_all_addresses_below_the_mount(
    engine: Engine, mounting: Callable[[Inspector], Starlette]
) -> None:
    turn = await paused_turn(engine)
    inspector = inspector_app(engine, access=Token(TOKEN))
    app = mounting(inspector)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=ADDRESS) as client,
    ):
        assert (await client.get("/ops/turns/")).status_code == httpx.codes.UNAUTHORIZED
        entered = await client.get("/ops/turns/", params={"token": TOKEN})
        assert entered.headers["location"] == "/ops/turns/"
        assert "Path=/ops/turns;" in entered.headers["set-cookie"]
        pages = [await client.get(path) for path in ("/ops/turns/", f"/ops/turns/turns/{turn}")]
        for page in pages:
            assert page.status_code == httpx.codes.OK
            addresses = re.findall(r'\b(?:href|src|action|hx-get|hx-post|data-live)="([^"#]+)"', page.text)
            assert addresses
            assert [address for address in addresses if not address.startswith(("/ops/turns/", "?"))] == []
        assert (await client.get("/ops/turns/static/inspector.css")).status_code == httpx.codes.OK
        fields = {"csrf": csrf_of(pages[0]), "text": "Mind the gap"}
        done = await client.post(f"/ops/turns/turns/{turn}/steer", data=fields)
        assert (done.status_code, done.headers["location"]) == (303, f"/ops/turns/turns/{turn}")


async def test_inspector_error_page_hides_the_error() -> None:
    """Also one of the count that every page has. The server gets the error, for its log."""

    class Broken(MemoryStore):
        async def get(self, turn_id: str) -> TurnRow:
            raise RuntimeError(f"password=hunter22hunter22 of {turn_id}")

        async def turns(self, **_: object) -> list[TurnRow]:
            raise RuntimeError("password=hunter22hunter22")

    async with Engine(model=ScriptedModel(), store=Broken()) as engine:
        transport = httpx.ASGITransport(app=inspector_app(engine, access=Open()), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
            for path in ("/", "/turns/t1", "/turns/t1?tab=journal", "/statistics"):
                page = await client.get(path, headers={"HX-Request": "true"})
                assert page.status_code == httpx.codes.INTERNAL_SERVER_ERROR
                assert "<h1>The inspector failed</h1>" in page.text
                assert "style-src 'sha256-" in page.headers["Content-Security-Policy"]
                assert page.headers["X-Content-Type-Options"] == "nosniff"
                for part in ("hunter22", "RuntimeError", "Traceback", ".py"):
                    assert part not in page.text
        loud = httpx.ASGITransport(app=inspector_app(engine, access=Open()))
        async with httpx.AsyncClient(transport=loud, base_url=ADDRESS) as client:
            with pytest.raises(RuntimeError, match="hunter22"):
                await client.get("/")


async def test_read_only_store_is_shown_without_forms() -> None:
    """A form that was left open says why nothing is done. Nothing is written."""

    class Fixed(MemoryStore):
        read_only = False

        async def post(self, *items: InboxItem) -> tuple[InboxItem, ...]:
            if self.read_only:
                raise StoreError("the disk is read-only")
            return await super().post(*items)

    store = Fixed()
    model = ScriptedModel(asks_for(("delete_file", {"path": "old.log"})))
    async with Engine(model=model, tools=[delete_file], store=store) as engine:
        turn = await paused_turn(engine)
        await store.annotate(Annotation(turn, AnnotationKind.TAG, "slow"))
        store.read_only = True
        app = inspector_app(engine, access=Token(TOKEN), drives=True, agents=[Agent(name="A")])
        async with person_at(app) as person:
            for path in ("/", "/needs-you", f"/turns/{turn}", f"/turns/{turn}/edit", "/?q=old.log"):
                page = (await person.client.get(path)).text
                assert "This store can only be read: nothing can be changed here." in page
                assert 'method="post"' not in page, path
                assert path.endswith("/edit") or turn in page, path
            assert ">slow</a>" in (await person.client.get(f"/turns/{turn}")).text
            done = await person.does(f"/turns/{turn}/steer", text="Hurry")
            assert "the disk is read-only" in done.text
            assert done.status_code == httpx.codes.SERVICE_UNAVAILABLE


async def test_store_migrated_during_operation_shows_advice(tmp_path: Path) -> None:
    """A page says it, and the task that summarizes turns does not end the server."""
    file = tmp_path / "turns.db"
    async with engine_on(file, "Done.") as engine:
        await engine.run(Agent(name="A"), "Look")
        app = inspector_app(engine, access=Token(TOKEN))
        async with person_at(app) as person:
            with closing(sqlite3.connect(file)) as db:
                db.execute("PRAGMA user_version = 99")
            page = await person.client.get("/")
            assert page.status_code == httpx.codes.SERVICE_UNAVAILABLE
            assert "<h1>The store cannot be read</h1>" in page.text
            assert "upgrade turnwright" in page.text
            await Summaries(engine.store).catch_up()


async def test_mounted_inspector_drives_while_the_host_runs(engine: Engine) -> None:
    turn = await paused_turn(engine)
    inspector = inspector_app(engine, access=Open(), drives=True)
    app = fastapi_with(inspector)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=ADDRESS) as client:
        fields = {"interrupt": "approval-1", "decision": "approve"}
        page = await client.get(f"/ops/turns/turns/{turn}")
        async with app.router.lifespan_context(app):
            await client.post(f"/ops/turns/turns/{turn}/answer", data={"csrf": csrf_of(page), **fields})
            async for _ in engine.events(turn, wait=True):
                pass
    assert (await engine.get(turn)).text == "It is gone."


async def test_entry_of_a_mounted_inspector_leads_to_the_first_page(engine: Engine) -> None:
    inspector = inspector_app(engine, access=Token(TOKEN))
    app = Starlette(routes=[Mount("/ops/turns", inspector)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=ADDRESS) as client:
        response = await client.get(inspector.entry(f"{ADDRESS}/ops/turns"), follow_redirects=True)
        assert (response.status_code, response.url.path) == (httpx.codes.OK, "/ops/turns/")
    assert inspector_app(engine, access=Open()).entry(ADDRESS) == ADDRESS


@pytest.mark.parametrize("tab", TABS)
async def test_every_tab_of_every_step_is_a_page(engine: Engine, tab: str) -> None:
    turn = await paused_turn(engine)
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        for step in ("", "1", "nothing"):
            response = await person.client.get(f"/turns/{turn}", params={"tab": tab, "step": step})
            assert response.status_code == httpx.codes.OK


@pytest.mark.parametrize("at", ["0", "1", "x", "٣", "9" * 30, "9" * 5000])
async def test_invalid_place_is_the_nearest_or_the_last(engine: Engine, at: str) -> None:
    turn = await paused_turn(engine)
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        response = await person.client.get(f"/turns/{turn}", params={"at": at})
        assert response.status_code == httpx.codes.OK


async def test_unknown_path_is_a_not_found_page(engine: Engine) -> None:
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        for path in ("/nowhere", "/turns/nobody", "/static/nothing.js", "/static/../app.py", "/turns/a/b/c"):
            assert (await person.client.get(path)).status_code == httpx.codes.NOT_FOUND
        page = (await person.client.get("/turns/nobody")).text
        assert "This store has no turn &#39;nobody&#39;." in page
        assert 'name="q"' in page
        assert "<h1>Page not found</h1>" in (await person.client.get("/nowhere")).text


async def test_no_page_references_another_server(engine: Engine) -> None:
    turn = await paused_turn(engine)
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        for path in ("/", f"/turns/{turn}"):
            page = (await person.client.get(path)).text
            assert re.findall(r'(?:src|href|action|url\()\s*=?\s*"?https?://[^"]*', page) == []


async def test_pages_comply_with_the_content_policy(engine: Engine) -> None:
    turn = await paused_turn(engine)
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        for path in ("/", f"/turns/{turn}", *(f"/turns/{turn}?tab={tab}" for tab in TABS)):
            page = (await person.client.get(path)).text
            assert re.findall(r'<script(?![^>]* src=)[^>]*>|<style|\sstyle="|\son\w+="|javascript:', page) == []


async def test_first_page_is_the_list(engine: Engine) -> None:
    turn = await paused_turn(engine)
    async with person_at(inspector_app(engine, access=Token(TOKEN))) as person:
        assert f"/turns/{turn}" in (await enter(person.client)).text


LOADED = (
    "import sys, turnwright.cli.app; from turnwright import Engine; {};"
    " print([one for one in {} if one in sys.modules])"
)
WEB = ["starlette", "jinja2", "uvicorn", "sse_starlette", "turnwright_inspector.app"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "also", ["pass", *(f"turnwright.cli.app.command('{name}')" for name in ("turns", "demo", "serve"))]
)
async def test_other_modules_do_not_load_the_inspector_dependencies(also: str) -> None:
    script = LOADED.format(also, WEB)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: ASYNC221
    assert ast.literal_eval(ran.stdout) == []


async def test_writer_of_tests_is_loaded_only_when_needed() -> None:
    code = "import sys, turnwright_inspector; print('turnwright_testing.regression_test' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: ASYNC221
    assert ran.stdout == "False\n"


async def test_links_of_the_engine_are_served_without_the_token(tmp_path: Path) -> None:
    """A link has a token of its own; every other page needs that of the inspector."""

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    links = Links(f"{ADDRESS}/a", keys=["k" * 32])
    model = ScriptedModel(asks_for(("pay", {})))
    async with Engine(model=model, tools=[pay], store=f"sqlite:///{tmp_path}/t.db", links=links) as engine:
        turn = await engine.run(Agent(name="A"), "Go")
        app = inspector_app(engine, access=Token("t" * 32))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=ADDRESS) as client:
            page = await client.get(engine.link(turn.id, turn.interrupts[0], "approve"))
            assert (page.status_code, "may pay run?" in page.text) == (200, True)
            assert (await client.get("/a/nothing")).status_code == 404
            assert (await client.get("/")).status_code != 200
