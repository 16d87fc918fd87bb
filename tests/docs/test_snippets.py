"""Pieces of programs, run with the rest around them: docs/models.md and docs/how-to/choose-a-model.md."""

import textwrap
from pathlib import Path

import pytest

from turnwright import Agent, Engine, FilePart
from turnwright.model import ScriptedModel

from .repository_pages import DOCS, blocks

pytestmark = pytest.mark.anyio


def python_of(page: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    here = "tested by tests/docs/test_snippets.py"
    return [block.text for block in blocks(text) if block.language == "python" and here in block.comments]


async def test_picture_is_sent_with_the_prompt(tmp_path: Path) -> None:
    """The example of `docs/models.md`, with a picture where it looks for one."""
    picture = tmp_path / "screenshot.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    (example,) = python_of("models.md")
    body = textwrap.indent(example.replace("screenshot.png", str(picture)), "    ")
    names: dict[str, object] = {}
    exec(f"async def run(engine, agent):\n{body}", names)  # noqa: S102 (it is ours)
    model = ScriptedModel("A full disk.")
    async with Engine(model=model) as engine:
        await names["run"](engine, Agent(name="Looker"))  # type: ignore[operator]
        (row,) = await engine.store.turns()
        turn = await engine.get(row.id)
    (screenshot,) = (part for message in turn.messages for part in message.parts if isinstance(part, FilePart))
    assert (screenshot.name, screenshot.media_type) == ("screenshot.png", "image/png")


@pytest.mark.parametrize("example", python_of("how-to/choose-a-model.md"))
async def test_engine_accepts_the_model_of_an_example(example: str) -> None:
    """Run the examples of a local server and of the Responses API, which send nothing."""
    names: dict[str, object] = {}
    exec(example, names)  # noqa: S102 (it is ours)
    engine = names["engine"]
    assert isinstance(engine, Engine)
    await engine.aclose()
