"""docs/tools.md and docs/how-to/ask-a-person.md: the examples run, and every option of `@tool` is in its table."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

from turnwright import Agent, Engine, Tool, ToolContext
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.tools.tool import ToolOptions

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "tools.md").read_text(encoding="utf-8")
APPROVAL = (DOCS / "how-to" / "ask-a-person.md").read_text(encoding="utf-8")


def test_example_prints_the_output_of_the_page() -> None:
    example = PAGE.split("```python\n")[1].split("```", 1)[0]
    promised = PAGE.split("```text\n")[1].split("```", 1)[0]
    ran = subprocess.run([sys.executable, "-W", "error", "-c", example], capture_output=True, text=True, check=True)
    assert re.sub(r"key \w+:", "key 5b1c...:", ran.stdout) == promised


@pytest.mark.anyio
async def test_function_of_the_page_decides_about_approval() -> None:
    names: dict[str, object] = {}
    exec(APPROVAL.split("```python\n")[1].split("```", 1)[0], names)  # noqa: S102 (it is ours)
    refund, context = names["refund"], ToolContext(turn_id="t", call_id="c")
    assert isinstance(refund, Tool)
    assert await refund.asks_first({"order": "a", "amount": 100}, context) is None
    assert await refund.asks_first({"order": "a", "amount": "100.5"}, context) is not None


@pytest.mark.anyio
async def test_page_approves_with_other_arguments() -> None:
    names: dict[str, object] = {}
    for block in APPROVAL.split("```python\n")[1:3]:
        exec(block.split("```", 1)[0], names)  # noqa: S102 (it is ours)
    refund, lower = names["refund"], names["lower"]
    assert isinstance(refund, Tool)
    assert inspect.iscoroutinefunction(lower)
    model = ScriptedModel(asks_for(("refund", {"order": "A-1", "amount": 500})), "Refunded.")
    async with Engine(model=model, tools=[refund]) as engine:
        paused = await engine.run(Agent(name="Clerk"), "Refund.")
        await lower(engine, paused.id, paused.interrupts[0].id)
        assert "50 EUR refunded for A-1" in str((await engine.get(paused.id)).messages)


def words_under(heading: str) -> set[str]:
    """The words of the code in the first table under a heading."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return set(re.findall(r"\w+", " ".join(re.findall(r"`(.+?)`", "".join(rows)))))


def test_every_option_is_mentioned() -> None:
    assert set(get_type_hints(ToolOptions)) <= words_under("Options")


def test_every_attribute_of_the_tool_context_is_mentioned() -> None:
    assert {name for name in dir(ToolContext) if not name.startswith("_")} <= words_under("Context")
