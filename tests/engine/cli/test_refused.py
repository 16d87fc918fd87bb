"""The messages for a missing turn and a busy session name commands that work unchanged."""

import re
import shlex
from typing import TYPE_CHECKING

import anyio
import pytest

from turnwright import Agent, Engine, SessionBusyError, TurnNotFoundError
from turnwright.cli.refused import busy_words
from turnwright.model.scripted import ScriptedModel
from turnwright.store import SqliteStore

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint

#: A store that a command finds only where it is named.
STORE = ("--store", "sqlite:///the turns.db")


def commands_in(words: str) -> list[list[str]]:
    """The commands of the command line that are named, as a shell takes them."""
    return [shlex.split(command)[1:] for command in re.findall(r"`(turnwright [^`]*)`", words)]


@pytest.mark.parametrize("command", [("show",), ("resume",), ("abort",), ("delete",), ("fork",), ("replay",)])
def test_advised_list_is_of_the_named_store(cli: "Cli", endpoint: "Endpoint", command: tuple[str, ...]) -> None:
    endpoint.says("Done.")
    turn = cli.run("run", "Work", *STORE, "--json").turn
    done = cli.run(*command, "nope", *STORE)
    assert (done.code, "there is no turn 'nope' in this store" in done.err) == (2, True)
    (advised,) = commands_in(done.err)
    assert turn in cli.run(*advised).out


def test_advised_list_for_a_sub_agent_turn_includes_sub_agents(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    cli.run("run", "Work")
    assert commands_in(cli.run("show", "nope:call00001").err) == [["turns", "--all"]]


def test_memory_store_error_advises_no_list(cli: "Cli") -> None:
    done = cli.run("show", "nope", "--store", "memory:")
    assert (done.code, commands_in(done.err)) == (2, [])
    assert "there is no turn 'nope': a store in memory is empty when a command starts" in done.err


def test_busy_session_names_the_turn_and_a_working_stop_command(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.plays(None)
    busy = cli.start("run", "hi", "--session", "s1", *STORE, "--json")
    turn = busy.until("step_started")["turn"]
    refusal = cli.run("run", "hi", "--session", "s1", *STORE)
    assert (refusal.code, refusal.out) == (2, "")
    assert f"session 's1' is busy with turn {turn}, which is running: wait for it, or stop it with " in refusal.err
    (stop,) = commands_in(refusal.err)
    assert cli.run(*stop).code == 0
    assert busy.done().code == 130


@pytest.mark.slow
def test_session_of_a_dead_process_is_freed_by_either_command(cli: "Cli", endpoint: "Endpoint") -> None:
    for place in range(2):
        endpoint.forgets().plays(None)
        busy = cli.start("run", "hi", "--session", "s1", *STORE, "--json")
        busy.until("step_started")
        busy.kill()
        endpoint.forgets().says("Done.")
        refusal = cli.run("run", "hi", "--session", "s1", *STORE)
        assert (refusal.code, "whose driver is gone" in refusal.err) == (2, True)
        commands = commands_in(refusal.err)
        assert [command[0] for command in commands] == ["resume", "abort"]
        assert cli.run(*commands[place]).code == 0
        assert cli.run("run", "hi", "--session", "s1", *STORE).code == 0


def test_turn_of_another_program_cannot_be_resumed_but_aborted(cli: "Cli", endpoint: "Endpoint") -> None:
    async def begin() -> str:
        async with Engine(model=ScriptedModel("x"), store=SqliteStore(cli.folder / "the turns.db")) as engine:
            return await engine.submit(Agent(name="A"), "hi", session="s1")

    turn = anyio.run(begin)
    endpoint.says("Done.")
    refusal = cli.run("run", "hi", "--session", "s1", *STORE)
    assert refusal.code == 2
    assert (
        f"turn {turn}, whose driver is gone: `Engine.recover()` or a worker of the program that began it resumes it,"
        in refusal.err
    )
    refused = cli.run("resume", turn, *STORE).err
    assert "and its tools: `Engine.recover()` or a worker of the program that began it resumes it. " in refused
    assert "turnwright answer" not in refused
    (stop,) = commands_in(refusal.err)
    assert stop[0] == "abort"
    assert cli.run(*stop).code == 0
    assert cli.run("run", "hi", "--session", "s1", *STORE).code == 0


def test_advised_command_includes_the_service_flags() -> None:
    service = " --temporal-address here:7233"
    words = busy_words(SessionBusyError("s", "t"), "", service=service, driven=False, elsewhere=False)
    assert commands_in(words) == [
        ["resume", "t", "--temporal-address", "here:7233"],
        ["abort", "t", "--temporal-address", "here:7233"],
    ]


def test_library_errors_name_no_command_line() -> None:
    for error in (SessionBusyError("s", "t"), TurnNotFoundError("t")):
        assert "turnwright " not in str(error)
