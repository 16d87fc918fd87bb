"""`turnwright worker`: drives submitted turns, and releases them in order. Workers of a store need no service."""

import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import anyio
import pytest

from turnwright import Agent, Engine
from turnwright.model import ScriptedModel

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Child, Cli, Done, Endpoint

TOOLS = '''
import os
import time
from pathlib import Path

import anyio

from turnwright import ToolContext, tool


@tool(idempotent=True)
async def meet(context: ToolContext) -> str:
    """Say that it runs, and wait until it may end."""
    with Path("met").open("a") as file:
        file.write(f"{context.turn_id} {os.getpid()}\\n")
    while not Path("go").exists():
        await anyio.sleep(0.02)
    return "met"


@tool(idempotent=True)
async def block() -> str:
    """Keep the event loop from doing anything else, the first time."""
    if not Path("blocked").exists():
        Path("blocked").write_text("+")
        time.sleep(3600)
    return "done"


@tool(needs_approval=True)
async def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"
'''

WORKER = ("worker", "--tools", "mine.py", "--json")


@pytest.fixture(autouse=True)
def _tools(cli: "Cli") -> None:
    cli.write("mine.py", TOOLS)


@pytest.fixture
def sqlite(cli: "Cli") -> str:
    """The address of the store that every command here uses by default, from this process's folder."""
    return f"sqlite:///{cli.folder}/turns.db"


def submit(store: str, *prompts: str, agent: Agent | None = None) -> list[str]:
    """Submit a turn for each prompt, and return their ids."""

    async def begin() -> list[str]:
        async with Engine(model=ScriptedModel(), models=lambda name: ScriptedModel(name=name), store=store) as engine:
            return [await engine.submit(agent or Agent(name="Tester"), prompt) for prompt in prompts]

    return anyio.run(begin)


def met(cli: "Cli") -> list[str]:
    """The turns whose tool ran, once for each time."""
    file = cli.folder / "met"
    return file.read_text().split()[::2] if file.exists() else []


def types(done: "Done") -> list[str]:
    return [event["type"] for event in done.events]


def drained(*children: "Child") -> "list[Done]":
    """Stop workers, and wait for their end."""
    done = [child.terminate() for child in children]
    ended = [child.done() for child in done]
    assert [(result.code, result.err) for result in ended] == [(0, "")] * len(ended)
    return ended


def test_workers_share_a_store_and_drive_each_turn_once(cli: "Cli", endpoint: "Endpoint", sqlite: str) -> None:
    endpoint.calls(("meet", {})).calls(("meet", {})).says("Done.")
    turns = submit(sqlite, "One", "Two")
    workers = [cli.start(*WORKER, "--concurrency", "1") for _ in range(2)]
    cli.await_until(lambda: len(met(cli)) == 2)
    (cli.folder / "go").touch()
    rested = [worker.until("settled") for worker in workers]
    assert sorted(met(cli)) == sorted(turns) == sorted(event["turn"] for event in rested)
    assert {(event["state"], event["outcome"], event["reason"]) for event in rested} == {
        ("FINISHED", "finished", "answered")
    }
    for result in drained(*workers):
        assert types(result) == ["started", "claimed", "settled", "draining", "stopped"]
        assert result.events[0]["store"] == "sqlite:///turns.db"
        assert {"meet", "delete"} < set(result.events[0]["tools"])
        assert result.of("draining") == [{"type": "draining", "turns": [], "seconds": 30.0}]


def test_paused_turn_of_a_worker_is_answered_by_resume(cli: "Cli", endpoint: "Endpoint", sqlite: str) -> None:
    endpoint.calls(("delete", {"path": "a"})).says("Gone.")
    (turn,) = submit(sqlite, "Tidy up")
    worker = cli.start(*WORKER)
    paused = worker.until("settled")
    assert (paused["turn"], paused["state"], paused["outcome"]) == (turn, "PAUSED", None)
    flags = ("--base-url", endpoint.url, "--tools", "mine.py")
    done = cli.run("resume", turn, "--approve", "approval-1", *flags, "--json")
    assert (done.code, done.last["text"]) == (0, "Gone.")  # driven by the worker or by the command
    drained(worker)
    assert len(endpoint.requests) == 2


def test_running_turns_may_end_before_the_worker(cli: "Cli", endpoint: "Endpoint", sqlite: str) -> None:
    endpoint.calls(("meet", {})).says("Done.")
    (turn,) = submit(sqlite, "Work")
    worker = cli.start(*WORKER)
    cli.await_file("met")
    worker.terminate()
    assert worker.until("draining")["turns"] == [turn]
    submit(sqlite, "Too late")
    (cli.folder / "go").touch()
    done = worker.done()
    assert (done.code, done.err) == (0, "")
    assert types(done) == ["started", "claimed", "draining", "settled", "stopped"]
    assert met(cli) == [turn]


def test_slow_turn_is_released_to_another_worker(cli: "Cli", endpoint: "Endpoint", sqlite: str) -> None:
    endpoint.calls(("meet", {})).says("Done.")
    (turn,) = submit(sqlite, "Work")
    first = cli.start(*WORKER, "--drain", "0.1")
    cli.await_file("met")
    done = first.terminate().done()
    assert (done.code, types(done)[-2:]) == (0, ["released", "stopped"])
    assert done.of("released") == [{"type": "released", "turn": turn, "why": "another worker can resume it"}]
    (cli.folder / "go").touch()
    second = cli.start(*WORKER)
    assert second.until("settled")["turn"] == turn
    drained(second)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"])
def test_second_signal_exits_at_once(
    cli: "Cli", endpoint: "Endpoint", sqlite: str, number: signal.Signals, code: int
) -> None:
    endpoint.calls(("meet", {}))
    (turn,) = submit(sqlite, "Work")
    worker = cli.start(*WORKER)
    cli.await_file("met")
    os.kill(worker.process.pid, number)
    worker.until("draining")
    os.kill(worker.process.pid, number)
    done = worker.done()
    assert (done.code, types(done)[-1]) == (code, "released")
    assert done.err == f"turnwright: left at once; other workers can resume one of its turns: {turn}\n"


@pytest.mark.slow
def test_blocking_tool_does_not_delay_the_exit(cli: "Cli", endpoint: "Endpoint", sqlite: str) -> None:
    endpoint.calls(("block", {})).says("Done.")
    (turn,) = submit(sqlite, "Work")
    worker = cli.start(*WORKER)
    cli.await_file("blocked")
    worker.terminate()
    time.sleep(0.5)  # nothing shows that a process has seen a signal when a tool blocks it
    done = worker.terminate().done()
    assert done.code == 143
    assert done.err == f"turnwright: left at once; other workers can resume one of its turns: {turn}\n"
    second = cli.start(*WORKER)
    assert second.until("settled")["outcome"] == "finished"
    drained(second)


def test_turn_with_missing_tools_is_skipped(cli: "Cli", endpoint: "Endpoint", sqlite: str) -> None:
    endpoint.calls(("meet", {})).says("Done.")
    (turn,) = submit(sqlite, "Work")
    first = cli.start(*WORKER)
    cli.await_file("met")
    first.kill()
    second = cli.start("worker", "--json")
    refusal = second.until("refused")
    assert refusal["turn"] == turn
    assert refusal["why"] == f"turn {turn}: its open calls need the tools meet: give them (--tools)"
    drained(second)


@pytest.mark.slow
def test_turn_with_a_silent_model_is_listed_and_released(cli: "Cli", endpoint: "Endpoint", sqlite: str) -> None:
    endpoint.plays(None)
    (turn,) = submit(sqlite, "Work")
    worker = cli.start(*WORKER, "--drain", "0")
    assert worker.until("claimed")["turn"] == turn
    (done,) = drained(worker)
    assert types(done)[-3:] == ["draining", "released", "stopped"]


def test_agent_uses_the_named_model_and_sub_agents_are_tools(cli: "Cli", endpoint: "Endpoint", sqlite: str) -> None:
    team = cli.write(
        "team.md",
        "---\nname: Lead\n---\nLead.\n\n---\nname: Reader\nmode: subagent\ndescription: Reads.\n---\nRead.\n",
    )
    endpoint.says("Done.")
    submit(sqlite, "Work", agent=Agent(name="A"))
    submit(sqlite, "Work", agent=Agent(name="B", model="special"))
    worker = cli.start(*WORKER, "--model", "usual", "--agents", team)
    assert "Reader" in worker.until("started")["tools"]
    worker.until("settled")
    worker.until("settled")
    drained(worker)
    assert sorted(request.body["model"] for request in endpoint.requests) == ["special", "usual"]


def test_worker_prints_a_line_for_each_event(cli: "Cli", endpoint: "Endpoint", sqlite: str) -> None:
    endpoint.says("Done.")
    (turn,) = submit(sqlite, "Work")
    worker = cli.start("worker", "--model", "usual")
    worker.shows("finished: answered")
    (done,) = drained(worker)
    lines = done.out.splitlines()
    assert re.fullmatch(r"worker of sqlite:///turns\.db  model usual  \d+ tools", lines[0])
    assert lines[1] == f"turn {turn}  claimed"
    assert re.fullmatch(rf"turn {turn}  finished: answered  \(\d+\.\d s\)", lines[2])
    assert lines[3:] == ["draining: 0 turns may continue for 30 s; a second signal leaves at once", "stopped"]


@pytest.mark.parametrize("command", [["worker"], ["serve", "--drive"]])
def test_command_without_a_model_names_the_option_with_values(cli: "Cli", command: list[str]) -> None:
    """The embedded model must be named: no server drives turns with it by accident."""
    refused = cli.run(*command, env={"OPENAI_BASE_URL": None, "OPENAI_API_KEY": None})
    assert (refused.code, "--model local" in refused.err, "--model gpt-5-mini" in refused.err) == (2, True, True)


@pytest.mark.slow
def test_workers_of_a_database_notify_followers(cli: "Cli", endpoint: "Endpoint", postgres: str) -> None:
    refused = cli.run(*WORKER, "--store", postgres)
    assert (refused.code, "turnwright migrate" in refused.err) == (2, True)
    assert cli.run("migrate", "--store", postgres).code == 0
    endpoint.calls(("delete", {"path": "a"})).says("Gone.")
    worker = cli.start(*WORKER, "--store", postgres, "--notify")
    worker.until("started")
    (turn,) = submit(postgres, "Tidy up")
    assert worker.until("settled")["state"] == "PAUSED"

    async def approve() -> None:
        async with Engine(store=postgres) as engine, engine.store.watching(turn) as changed:
            await engine.answer(turn, {"approval-1": "yes"})
            with anyio.fail_after(60):
                while (await engine.get(turn)).outcome is None:
                    await changed(60)  # each of them is notified

    anyio.run(approve)
    assert worker.until("settled")["outcome"] == "finished"
    (done,) = drained(worker)
    assert types(done) == ["started", *["claimed", "settled"] * 2, "draining", "stopped"]


@pytest.mark.slow
def test_worker_killed_during_a_tool_is_followed_by_another(cli: "Cli", endpoint: "Endpoint", postgres: str) -> None:
    cli.run("migrate", "--store", postgres)
    endpoint.calls(("meet", {})).says("Done.")
    (turn,) = submit(postgres, "Work")
    first, second = (cli.start(*WORKER, "--store", postgres) for _ in range(2))
    cli.await_file("met")
    pid = int((cli.folder / "met").read_text().split()[1])
    dead, alive = (first, second) if first.process.pid == pid else (second, first)
    dead.kill()
    (cli.folder / "go").touch()
    rested = alive.until("settled")
    assert (rested["turn"], rested["outcome"]) == (turn, "finished")
    assert met(cli) == [turn, turn]  # the tool says that it may be run again
    drained(alive)


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        pytest.param(("--store", "memory:"), 2, "--store memory: belongs to one process", id="memory"),
        pytest.param(("--store", "sqlite:///none/x.db"), 2, "store none/x.db: No such file", id="no folder"),
        pytest.param(("--notify", "--store", "sqlite:///made.db"), 2, "--notify: is for a PostgreSQL", id="notify"),
        pytest.param(("--rate", "2"), 2, "--rate: needs a Temporal server: name it with --temporal-address", id="rate"),
        pytest.param(("--queue", "q"), 2, "--queue: needs a Temporal server", id="queue"),
        pytest.param(("--serves", "q"), 2, "--serves: needs a Temporal server", id="serves"),
        pytest.param(
            ("--temporal-address", "h:1", "--serves", "q"),
            2,
            "--serves q: is not a queue of",
            id="no such queue",
        ),
        pytest.param(("--namespace", "n"), 2, "--namespace: needs a Temporal server", id="namespace"),
        pytest.param(
            ("--temporal-address", "host"),
            2,
            "--temporal-address host: write the Temporal server's HOST:PORT",
            id="address",
        ),
        pytest.param(("--temporal-address", "http://h:1"), 2, "write the Temporal server's HOST:PORT", id="a URL"),
        pytest.param(
            ("--temporal-address", "h:1", "--rate", "0"),
            2,
            "--rate: must be a number of turns",
            id="no rate",
        ),
        pytest.param(("--drain", "-1"), 2, "--drain: must be a number of seconds, at least 0, and is -1", id="drain"),
        pytest.param(("--concurrency", "0"), 2, "concurrency must be at least 1", id="concurrency"),
        pytest.param(("--tools", "none.py", "--store", "sqlite:///made.db"), 2, "there is no file none.py", id="tools"),
        pytest.param(("--store", "postgresql://127.0.0.1:1/x"), 1, "127.0.0.1:1", id="no server"),
    ],
)
def test_impossible_option_is_refused_in_a_line(cli: "Cli", flags: tuple[str, ...], code: int, words: str) -> None:
    (cli.folder / "made.db").touch()
    done = cli.run("worker", *flags)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "resume", "abort"])
def test_service_flags_need_the_service_address(cli: "Cli", command: str) -> None:
    done = cli.run(command, "x", "--queue", "q")
    assert (done.code, done.err) == (
        2,
        "turnwright: --queue: needs a Temporal server: name it with --temporal-address HOST:PORT\n",
    )


def test_submitting_needs_a_shared_store(cli: "Cli") -> None:
    done = cli.run("run", "Work", "--temporal-address", "127.0.0.1:1", "--store", "memory:")
    assert (done.code, "--store memory: belongs to one process" in done.err) == (2, True)


def test_local_worker_and_run_do_not_load_the_temporal_client() -> None:
    code = "import sys, turnwright.cli.worker, turnwright.cli.run; print('temporalio' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
