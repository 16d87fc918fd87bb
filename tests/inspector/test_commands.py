"""The commands that pages show: they name the turn and its store as a shell and the command line take them."""

import shlex
from dataclasses import replace

import pytest
from anyio import to_thread

from turnwright import Agent, Engine
from turnwright.fork import fork_places
from turnwright.inspector.commands import NO_ADDRESS, fork_place, resume_command, store_flag
from turnwright.inspector.crew import Crew
from turnwright.inspector.offer import offer_of
from turnwright.inspector.tabs import reproduce
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import MemoryStore

from .turns_made import AGENT, TOOLS, look, look_at_each_step

pytestmark = pytest.mark.anyio


def test_a_command_takes_up_the_turn_that_a_person_began() -> None:
    assert resume_command("a:call00001:call00002", "", elsewhere=False) == "turnwright resume a"
    line = resume_command("it's", "sqlite:////tmp/my turns.db", elsewhere=False)
    assert shlex.split(line) == ["turnwright", "resume", "it's", "--store", "sqlite:////tmp/my turns.db"]


def test_what_another_program_began_is_taken_up_with_its_model_and_its_tools_named() -> None:
    assert resume_command("a", "", elsewhere=True) == "turnwright resume a --base-url URL --tools FILE"


def test_a_store_without_an_address_has_no_flag() -> None:
    assert store_flag("") == ""
    assert store_flag("sqlite:///turns.db") == " --store sqlite:///turns.db"


async def test_no_command_names_a_store_that_nobody_knows() -> None:
    async with Engine(model=ScriptedModel("done"), store=MemoryStore()) as engine:
        turn = await engine.run(AGENT, "hi")
        for one in (await look(engine, turn.id), *(await look_at_each_step(engine, turn.id)).values()):
            known = await to_thread.run_sync(reproduce.view, one)
            unknown = await to_thread.run_sync(reproduce.view, replace(one, store=""))
            assert [command.line for command in unknown.commands] == [
                command.line.removesuffix(" --store sqlite:///turns.db") for command in known.commands
            ]
            assert all("--store" not in command.line for command in unknown.commands)
            assert (known.lacks, unknown.lacks) == ("", NO_ADDRESS)


async def test_a_fork_begins_at_the_nearest_place_where_the_engine_forks() -> None:
    async with Engine(model=ScriptedModel(asks_for(("ok", {})), "done"), tools=TOOLS, store=MemoryStore()) as engine:
        name = (await engine.run(AGENT, "hi")).id
        turn = (await look(engine, name)).turn
        places = [group.last for group in fork_places(name, turn.journal)]
        for upto in range(turn.length + 1):
            assert fork_place(turn, upto) == max((one for one in places if one <= upto), default=None)


async def test_what_can_be_done_is_offered_with_the_same_command() -> None:
    async with Engine(model=ScriptedModel("done"), store=MemoryStore()) as engine:
        name = await engine.submit(Agent(name="A"), "hi")
        turn = (await look(engine, name)).turn
        for store in ("", "sqlite:///my turns.db"):
            offer = await offer_of(engine, Crew(engine, drives=False), turn, turn.at, store=store)
            assert offer.command == resume_command(name, store, elsewhere=True)
