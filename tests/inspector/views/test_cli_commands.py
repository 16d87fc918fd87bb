"""The commands that pages show: they name the turn and its store as a shell and the command line take them."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from anyio import to_thread
from pydantic import JsonValue
from tests.inspector.turns_made import AGENT, TOOLS, look, look_at_each_step

from turnwright import Agent, Engine
from turnwright.journal.fork import fork_places
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import MemoryStore, SqliteStore
from turnwright_inspector.background_turns import BackgroundTurns
from turnwright_inspector.tabs import reproduce
from turnwright_inspector.views.available_actions import available_actions
from turnwright_inspector.views.cli_commands import (
    IN_MEMORY,
    NO_ADDRESS,
    UNTOLD,
    fork_place,
    resume_command,
    store_flag,
)

pytestmark = pytest.mark.anyio


def test_resume_command_names_the_root_turn() -> None:
    assert resume_command("a:call00001:call00002", "", elsewhere=False) == "turnwright resume a"
    line = resume_command("it's", "sqlite:////tmp/my turns.db", elsewhere=False)
    assert shlex.split(line) == ["turnwright", "resume", "it's", "--store", "sqlite:////tmp/my turns.db"]


def test_foreign_turn_is_resumed_with_model_and_tools_flags() -> None:
    assert resume_command("a", "", elsewhere=True) == "turnwright resume a --base-url URL --tools FILE"


def test_store_without_an_address_has_no_flag() -> None:
    assert store_flag("") == ""
    assert store_flag("sqlite:///turns.db") == " --store sqlite:///turns.db"


async def test_unknown_store_address_is_omitted_from_commands(tmp_path: Path) -> None:
    async with Engine(model=ScriptedModel("done"), store=SqliteStore(tmp_path / "turns.db")) as engine:
        turn = await engine.run(AGENT, "hi")
        for looked in (await look(engine, turn.id), *(await look_at_each_step(engine, turn.id)).values()):
            known_store = await to_thread.run_sync(reproduce.view, looked)
            unknown = await to_thread.run_sync(reproduce.view, replace(looked, store=""))
            assert [command.line for command in unknown.commands] == [
                command.line.replace(" --store sqlite:///turns.db", "") for command in known_store.commands
            ]
            assert all("--store" not in command.line for command in unknown.commands)
            assert NO_ADDRESS not in known_store.lacks
            assert unknown.lacks.startswith(NO_ADDRESS)


async def lines_of(engine: Engine, name: str) -> list[str]:
    """The commands of the Reproduce tab that run models and tools, for the turn and for each of its steps."""
    looks = [await look(engine, name), *(await look_at_each_step(engine, name)).values()]
    views = [await to_thread.run_sync(reproduce.view, looked) for looked in looks]
    for view in views:
        runs = any(command.runs for command in view.commands)
        assert (UNTOLD in view.lacks) is (runs and any(" --base-url URL" in command.line for command in view.commands))
    return [command.line for view in views for command in view.commands if command.runs]


async def test_foreign_turn_is_rerun_only_with_an_explicit_model() -> None:
    async with Engine(model=ScriptedModel(asks_for(("ok", {})), "Capped."), tools=TOOLS, store=MemoryStore()) as engine:
        name = (await engine.run(Agent(name="A", steps=1), "hi")).id
        submitted = await engine.submit(Agent(name="A"), "hi")
        for lines in (await lines_of(engine, name), await lines_of(engine, submitted)):
            assert lines
            assert all(line.endswith(" --base-url URL --tools FILE") for line in lines)
        assert (await lines_of(engine, submitted))[0] == resume_command(submitted, "sqlite:///turns.db", elsewhere=True)


async def test_command_line_turn_is_rerun_unchanged() -> None:
    context: dict[str, JsonValue] = {"model": "gpt"}
    async with Engine(model=ScriptedModel(asks_for(("ok", {})), "Capped."), tools=TOOLS, store=MemoryStore()) as engine:
        name = (await engine.run(Agent(name="A", steps=1), "hi", metadata=context)).id
        submitted = await engine.submit(Agent(name="A"), "hi", metadata=context)
        lines = [*await lines_of(engine, name), *await lines_of(engine, submitted)]
        assert [shlex.split(line)[1] for line in lines][:1] == ["run"]
        assert all(" URL" not in line for line in lines)
        assert resume_command(submitted, "sqlite:///turns.db", elsewhere=False) in lines


async def test_memory_turn_has_no_reading_command() -> None:
    async with Engine(model=ScriptedModel("done"), store=MemoryStore()) as engine:
        looked = await look(engine, (await engine.run(AGENT, "hi")).id)
        for store in ("", "memory:"):
            view = await to_thread.run_sync(reproduce.view, replace(looked, store=store))
            assert (view.commands, view.lacks, view.missing) == ((), IN_MEMORY, "")


async def test_driven_turn_has_no_resume_command() -> None:
    """`resume` refuses it, and the page itself follows it."""
    async with Engine(model=ScriptedModel("done"), store=MemoryStore()) as engine:
        looked = await look(engine, await engine.submit(Agent(name="A"), "hi"))
        driven = replace(looked, turn=replace(looked.turn, driven=True))
        assert not any(" resume " in command.line for command in reproduce.commands_of(driven))


async def test_fork_begins_at_the_nearest_possible_fact() -> None:
    async with Engine(model=ScriptedModel(asks_for(("ok", {})), "done"), tools=TOOLS, store=MemoryStore()) as engine:
        name = (await engine.run(AGENT, "hi")).id
        turn = (await look(engine, name)).turn
        places = [group.last for group in fork_places(name, turn.journal)]
        for upto in range(turn.length + 1):
            assert fork_place(turn, upto) == max((place for place in places if place <= upto), default=None)


async def test_tabs_offer_the_same_command_for_each_action() -> None:
    async with Engine(model=ScriptedModel("done"), store=MemoryStore()) as engine:
        name = await engine.submit(Agent(name="A"), "hi")
        turn = (await look(engine, name)).turn
        for store in ("", "sqlite:///my turns.db"):
            offer = await available_actions(engine, BackgroundTurns(engine, drives=False), turn, turn.at, store=store)
            assert offer.command == resume_command(name, store, elsewhere=True)
