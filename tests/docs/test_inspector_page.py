"""Both example servers of `docs/inspector.md` admit exactly the users that the page names."""

import inspect
import re
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from turnwright import Engine
from turnwright.cli import demo, options
from turnwright.cli.app import PLACES
from turnwright_inspector.cli import serve, server_options

from .page_blocks import blocks_of, text_of

PAGE = "inspector.md"

pytestmark = pytest.mark.anyio


def example(title: str) -> dict[str, object]:
    """The names of an example, which is run as a file would be."""
    (block,) = (block for block in blocks_of(PAGE) if block.title == title)
    names: dict[str, object] = {}
    exec(compile(block.text, title, "exec"), names)  # noqa: S102 (it is ours)
    return names


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples keep their turns in the folder that they are run in, and ask nobody."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")


@pytest.mark.usefixtures("_here")
async def test_mounted_inspector_opens_at_the_printed_address(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = example("server.py")["app"]
    assert isinstance(app, FastAPI)
    transport = httpx.ASGITransport(app=app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as client:
        address = capsys.readouterr().out.removeprefix("turns: ").strip()
        assert (await client.get("http://127.0.0.1:8000/turns/")).status_code == httpx.codes.UNAUTHORIZED
        response = await client.get(address, follow_redirects=True)
        assert (response.status_code, response.url.path) == (httpx.codes.OK, "/turns/")


@pytest.mark.usefixtures("_here")
async def test_guarded_server_admits_only_the_own_operators() -> None:
    names = example("guarded.py")
    app, engine = names["app"], names["engine"]
    assert isinstance(app, FastAPI)
    assert isinstance(engine, Engine)
    transport = httpx.ASGITransport(app=app)
    async with engine, httpx.AsyncClient(transport=transport, base_url="https://ops.example.com") as client:
        assert (await client.get("/turns/")).status_code == httpx.codes.FORBIDDEN
        response = await client.get("/turns/", headers={"X-User": "operator"})
        assert (response.status_code, "content-security-policy" in response.headers) == (httpx.codes.OK, True)


async def test_commands_and_flags_of_the_page_exist() -> None:
    commands = set(re.findall(r"(?<!from )\bturnwright (\w+)", text_of(PAGE)))
    assert commands <= PLACES.keys()
    source = "".join(map(inspect.getsource, (serve, server_options, options, demo)))
    flags = set(re.findall(r"(?<!-)--[a-z][a-z-]+", text_of(PAGE)))
    assert {flag for flag in flags if f'"{flag}"' not in source} == set()
