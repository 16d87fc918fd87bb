"""The public API is a list that somebody wrote down."""

import ast
import subprocess
import sys
from types import ModuleType

import pytest

import turnwright
import turnwright.model
import turnwright.runtime
import turnwright.store
import turnwright.tools
import turnwright_states

PACKAGES = [turnwright, turnwright.model, turnwright.runtime, turnwright.store, turnwright.tools, turnwright_states]
#: What `import turnwright` does without, and a turn in memory too.
HEAVY = frozenset(
    {"httpx", "mcp", "psycopg", "pydantic_ai", "pydantic_settings", "rich", "sqlite3", "temporalio", "typer", "yaml"}
)
#: What else importing does without: an event loop brings most of it.
LATER = frozenset({"ag_ui", "asyncio", "difflib", "multiprocessing", "ssl", "subprocess", "tenacity"})
#: Runs one turn in memory.
TURN = """
from turnwright import Agent, Engine, tool
from turnwright.model import ScriptedModel, asks_for
@tool
async def look(place: int) -> str:
    return f"nothing at {place}"
async def run():
    async with Engine(model=ScriptedModel(asks_for(("look", {"place": 1})), "done"), tools=[look]) as engine:
        assert (await engine.run(Agent(name="A"), "Look")).text == "done"
import asyncio
asyncio.run(run())
"""


def loaded(code: str, modules: frozenset[str]) -> list[str]:
    """Which of these modules a fresh process has loaded when it has run this code."""
    code += f"\nimport sys; print([m for m in {sorted(modules)} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found: list[str] = ast.literal_eval(ran.stdout)
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_is_there_once(package: object) -> None:
    names: list[str] = package.__all__  # type: ignore[attr-defined]
    assert [name for name in names if not hasattr(package, name)] == []
    assert len(names) == len(set(names))


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_loads_nothing_that_few_need(package: ModuleType) -> None:
    assert loaded(f"import {package.__name__}", HEAVY | LATER) == []


def test_a_turn_in_memory_needs_neither_http_nor_a_file_nor_a_command_line() -> None:
    assert loaded(TURN, HEAVY) == []


def test_importing_turnwright_loads_none_of_its_own_rooms_that_few_need() -> None:
    rooms = ("agents_md", "certificate", "cli", "draw", "model.http_model", "store.sqlite", "testing", "tools.builtin")
    assert loaded("import turnwright", frozenset(f"turnwright.{room}" for room in rooms)) == []


def test_the_names_of_the_design_are_public() -> None:
    assert {"Agent", "Engine", "tool"} <= set(turnwright.__all__)
    assert "OpenAIChat" in turnwright.model.__all__
    assert {"Limits", "ModelRepliedInput", "StartedInput", "ToolCall", "TurnMachine"} <= set(turnwright_states.__all__)
