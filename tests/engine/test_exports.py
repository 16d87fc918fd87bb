"""The public API is a list that somebody wrote down."""

import ast
import subprocess
import sys
from importlib.util import find_spec
from types import ModuleType

import pytest

import turnwright
import turnwright.model
import turnwright.runtime
import turnwright.store
import turnwright.tools
import turnwright_states

PACKAGES = [turnwright, turnwright.model, turnwright.runtime, turnwright.store, turnwright.tools, turnwright_states]
#: What an engine does without, and a turn in memory too.
HEAVY = frozenset({"httpx", "mcp", "psycopg", "pydantic_ai", "rich", "sqlite3", "temporalio", "typer", "yaml"})
#: What else importing does without: an event loop brings most of it.
LATER = frozenset({"ag_ui", "asyncio", "difflib", "multiprocessing", "ssl", "subprocess"})
#: What most programs import.
ENGINE = "from turnwright import Agent, Engine, tool"
#: Packages, and rooms of `turnwright`, that an engine does without.
ROOMS = frozenset(
    f"turnwright{room}"
    for room in (
        "_audit",
        "_guards",
        "_inspector",
        "_proof",
        "_protocols",
        "_testing",
        ".agents.files",
        ".agents.markdown",
        ".agents.opencode",
        ".cli",
        ".config",
        ".journal.fork",
        ".model.anthropic",
        ".model.http",
        ".model.local",
        ".model.openai_chat",
        ".model.openai_responses",
        ".model.providers",
        ".otel",
        ".runtime.temporal",
        ".store.postgres",
        ".store.sqlite",
        ".tools.builtin",
        ".tools.mcp",
    )
)
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
    """Run the code in a fresh process, and return which of these modules the process then has."""
    code += f"\nimport sys; print([m for m in {sorted(modules)} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names: list[str] = ast.literal_eval(ran.stdout)
    return names


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_exists_once(package: object) -> None:
    names: list[str] = package.__all__  # type: ignore[attr-defined]
    assert [name for name in names if not hasattr(package, name)] == []
    assert len(names) == len(set(names))


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_loads_no_heavy_module(package: ModuleType) -> None:
    assert loaded(f"import {package.__name__}", HEAVY | LATER) == []


def test_turn_in_memory_needs_no_http_file_or_command_line() -> None:
    assert loaded(TURN, HEAVY) == []


def test_engine_loads_no_rarely_needed_module() -> None:
    assert loaded(ENGINE, ROOMS | HEAVY | LATER) == []


def test_importing_turnwright_loads_no_submodule() -> None:
    code = "import sys; before = set(sys.modules); import turnwright; print(sorted(set(sys.modules) - before))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    base = ["turnwright", "turnwright._base", "turnwright._base.lazy_imports", "turnwright._base.startup"]
    assert ast.literal_eval(ran.stdout) == base


def test_every_exported_name_is_listed_before_the_first_access() -> None:
    code = "import turnwright; print(set(turnwright.__all__) <= set(dir(turnwright)), 'Engine' in vars(turnwright))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "True False\n"


def test_every_excluded_module_exists() -> None:
    """A module that was renamed would pass the tests above whatever is loaded."""
    assert [name for name in sorted(HEAVY | LATER | ROOMS) if find_spec(name) is None] == []


def test_names_of_the_design_are_public() -> None:
    assert {"Agent", "Engine", "tool"} <= set(turnwright.__all__)
    assert {"OpenAIChat", "OpenAIResponses"} <= set(turnwright.model.__all__)
    assert {"Limits", "ModelRepliedInput", "StartedInput", "ToolCall", "TurnMachine"} <= set(turnwright_states.__all__)
