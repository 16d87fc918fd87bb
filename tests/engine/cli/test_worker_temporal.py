"""Turns that a Temporal server gives to `turnwright worker`: run, answered, aborted and followed from anywhere."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.servers.temporal_server import TemporalServer

from turnwright import Agent, Engine
from turnwright.model import ScriptedModel
from turnwright.runtime import Temporal

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Child, Cli, Endpoint

TOOLS = '''
import os
from pathlib import Path

import anyio

from turnwright import tool


@tool(idempotent=True)
async def meet() -> str:
    """Say who runs it, and wait until it may end."""
    with Path("met").open("a") as file:
        file.write(f"{os.getpid()}\\n")
    while not Path("go").exists():
        await anyio.sleep(0.02)
    return "met"


@tool(needs_approval=True)
async def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"
'''

#: Where nothing listens.
NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def temporal() -> Iterator[str]:
    """The address of a Temporal server."""
    reason = TemporalServer.reason_missing()
    if reason is not None:
        pytest.skip(reason)
    with TemporalServer() as server:
        yield server.address


@pytest.fixture
def flags(cli: "Cli", temporal: str, postgres: str, request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The flags of every command: a database that is ready, the server, and a queue of the test's own."""
    cli.write("mine.py", TOOLS)
    assert cli.run("migrate", "--store", postgres).code == 0
    return ("--store", postgres, "--temporal-address", temporal, "--queue", request.node.name[:60])


def started(cli: "Cli", *flags: str) -> "Child":
    """A worker that is ready."""
    worker = cli.start("worker", "--json", *flags)
    worker.until("started")
    return worker


def submitted(*flags: str) -> str:
    """A turn whose worker is given up sooner than others' are."""

    async def submit() -> str:
        runtime = Temporal(flags[3], queue=flags[5], patience=4.0)
        async with Engine(model=ScriptedModel(), store=flags[1], runtime=runtime) as engine:
            return await engine.submit(Agent(name="Tester"), "Work")

    return anyio.run(submit)


def drain(*workers: "Child") -> None:
    done = [worker.terminate() for worker in workers]
    assert [(result.code, result.err) for result in (worker.done() for worker in done)] == [(0, "")] * len(done)


def test_worker_killed_during_a_tool_is_followed_by_another(
    cli: "Cli", endpoint: "Endpoint", flags: tuple[str, ...]
) -> None:
    endpoint.calls(("meet", {})).says("Done.")
    workers = [started(cli, *flags, "--tools", "mine.py") for _ in range(2)]
    client = cli.start("resume", submitted(*flags), "--json", "--temporal-address", flags[3], *flags[:2])
    cli.await_file("met")
    pid = int((cli.folder / "met").read_text())
    dead, alive = sorted(workers, key=lambda worker: worker.process.pid != pid)
    dead.kill()
    (cli.folder / "go").touch()
    rested = alive.until("settled")
    done = client.done()
    assert (done.code, done.err, done.last["text"]) == (0, "", "Done.")
    seqs = [event["seq"] for event in done.events]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert done.of("call_started")[-1]["attempt"] == 2
    assert (rested["turn"], rested["outcome"]) == (done.turn, "finished")
    drain(alive)


def test_pause_is_answered_anywhere_with_the_printed_command(
    cli: "Cli", endpoint: "Endpoint", flags: tuple[str, ...]
) -> None:
    endpoint.calls(("delete", {"path": "a"})).says("Gone.")
    worker = started(cli, *flags, "--tools", "mine.py", "--notify", "--model", "usual")
    paused = cli.run("run", "Tidy up", "--model", "special", *flags)
    assert paused.code == 3
    (command,) = re.findall(
        r"turnwright (resume \w+ --store \S+ --temporal-address \S+ --queue \S+ --approve approval-1)", paused.out
    )
    words = command.split()
    assert worker.until("settled")["state"] == "PAUSED"
    done = cli.run(*words[:3], flags[1], *words[4:])  # what is printed has no password
    assert (done.code, "Done in 2 steps" in done.out) == (0, True)
    assert endpoint.requests[-1].body["model"] == "special"
    drain(worker)


def test_client_aborts_or_leaves_and_another_aborts_the_left_turn(
    cli: "Cli", endpoint: "Endpoint", flags: tuple[str, ...]
) -> None:
    endpoint.calls(("meet", {}))
    worker = started(cli, *flags, "--tools", "mine.py", "--concurrency", "2", "--rate", "50", "--queue-rate", "50")
    client = cli.start("run", "Work", "--json", *flags)
    client.until("call_started")
    aborted = client.interrupt().done()
    assert (aborted.code, aborted.last["outcome"]) == (130, "aborted")
    assert worker.until("settled")["turn"] == aborted.turn

    client = cli.start("run", "Work", "--json", *flags)
    client.until("call_started")
    terminated = client.terminate().done()
    assert (terminated.code, terminated.of("turn_ended")) == (143, [])
    assert (
        f"SIGTERM; the workers continue turn {terminated.turn}: `turnwright resume {terminated.turn} --store "
        in terminated.err
    )
    follower = cli.start("resume", terminated.turn, "--json", *flags)
    stopped = cli.run("abort", terminated.turn, *flags)
    assert (stopped.code, stopped.err) == (0, "")
    assert worker.until("settled")["outcome"] == "aborted"
    assert follower.done().code == 130
    drain(worker)


def test_undrivable_turn_is_skipped_and_the_client_gets_the_reason(
    cli: "Cli", endpoint: "Endpoint", flags: tuple[str, ...]
) -> None:
    agents = cli.agent("tools: [meet]")
    worker = started(cli, *flags)
    done = cli.run("run", "Work", "--agents", agents, "--tools", "mine.py", *flags)
    refusal = worker.until("refused")
    assert "there is no tool 'meet'" in refusal["why"]
    assert (done.code, refusal["why"] in done.err) == (2, True)
    assert endpoint.requests == []
    drain(worker)


@pytest.mark.parametrize("flag", ["--tools", "--mcp", "--base-url"])
def test_worker_only_flag_is_refused_by_resume(cli: "Cli", endpoint: "Endpoint", flag: str) -> None:
    endpoint.calls(("ask_user_input", {"question": "Which?"}))
    turn = cli.run("run", "Work", "--json").turn
    done = cli.run("resume", turn, "--temporal-address", NOBODY, flag, "x")
    assert done.code == 2
    why = "with --temporal-address the workers have the tools and the models"
    assert done.err == f"turnwright: {flag}: {why}: leave it out\n"


def test_unreachable_server_is_a_single_line_and_the_turn_is_kept(cli: "Cli", endpoint: "Endpoint") -> None:
    lost = cli.run("run", "Work", "--json", "--temporal-address", NOBODY)
    assert (lost.code, lost.turn in lost.err, lost.err.count("\n")) == (1, True, 1)
    idle = cli.run("worker", "--temporal-address", NOBODY)
    assert (idle.code, idle.out, NOBODY in idle.err, idle.err.count("\n")) == (1, "", True, 1)
    assert endpoint.requests == []
