"""The pictures of a turn are sent to its page, and nothing else of its files is."""

import re

import pytest
from tests.inspector.conftest import browser

from turnwright import Agent, Engine, tool
from turnwright.message import FilePart
from turnwright.model import ScriptedModel, asks_for
from turnwright.tools import ToolResult
from turnwright_inspector import Open, inspector_app

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\nthe rest"


@tool
async def draw() -> ToolResult:
    """Draw."""
    return ToolResult(
        text="drawn", files=(FilePart.of(b"no picture", "image/png"), FilePart.of(PNG, "image/png", "b.png"))
    )


async def test_pictures_are_thumbnails_and_other_content_is_not_sent() -> None:
    files = [
        FilePart.of(PNG, "image/png", "a <b>.png"),
        FilePart.of(b"<svg onload='x'/>", "image/svg+xml"),
        FilePart.of(b"password=hunter22", "text/plain"),
        FilePart(media_type="image/png", url="https://a.example/cat.png"),
    ]
    model = ScriptedModel(asks_for(("draw", {})), "Done.")
    async with Engine(model=model, tools=[draw]) as engine, browser(inspector_app(engine, access=Open())) as client:
        turn = await engine.run(Agent(name="A"), "Look.", files=files)
        page = (await client.get(f"/turns/{turn.id}")).text
        png, svg, text, elsewhere = (file.seq for file in turn.messages[0].files)
        (result,) = [part for message in turn.messages for part in message.parts if part.type == "tool_result"]
        here = f"/turns/{turn.id}/files"
        addresses = re.findall(rf'<img src="{here}/([^"]*)"', page)
        assert addresses == [str(png), f"{result.seq}/0", f"{result.seq}/1"]
        for address in (addresses[0], addresses[2]):
            response = await client.get(f"{here}/{address}")
            assert (response.status_code, response.content, response.headers["content-type"]) == (200, PNG, "image/png")
            assert response.headers["x-content-type-options"] == "nosniff"
        refused = [svg, text, elsewhere, f"{result.seq}/0", f"{result.seq}/9", "1", "x", "9" * 30]
        assert [(await client.get(f"{here}/{address}")).status_code for address in refused] == [404] * len(refused)
