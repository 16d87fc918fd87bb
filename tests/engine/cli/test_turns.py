"""`turnwright turns`: the turns of a store, and those that need a person."""

import re
from typing import TYPE_CHECKING

import anyio
import pytest

from turnwright import Agent, Engine, tool
from turnwright.model.scripted import ScriptedModel, asks_for

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Done, Endpoint

LONG = "an-agent-with-quite-a-long-name-that-no-terminal-of-eighty-columns-has-room-for"


@pytest.fixture
def capped(cli: "Cli", endpoint: "Endpoint") -> "Done":
    """A turn that met its cap."""
    endpoint.calls(("list_files", {})).says("Not done.")
    cli.write("AGENTS.md", f"---\nname: {LONG}\nsteps: 1\n---\n")
    return cli.run("run", "Work", "--agents", "AGENTS.md", "--session", "s1", "--json")


def test_turns_are_listed_newest_first_with_full_ids(cli: "Cli", endpoint: "Endpoint", capped: "Done") -> None:
    endpoint.says("Done.")
    newer = cli.run("run", "Work", "--model", "a-model-with-a-name", "--json")
    listed = cli.run("turns")
    assert (listed.code, listed.err) == (0, "")
    head, first, second = listed.out.splitlines()
    assert head.split() == [
        *("TURN", "WHEN", "AGENT", "MODEL", "STEPS", "CALLS", "STATE", "DRIVER", "REASON", "SESSION"),
    ]
    assert re.fullmatch(
        rf"{newer.turn}  \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d  assistant +a-model-with-a-name  1 +0 +FINISHED +answered",
        first,
    )
    assert re.fullmatch(rf"{capped.turn}  \S+ \S+  {LONG}  default +1 +1 +CAP_HIT +step_cap +s1", second)
    assert first.index("FINISHED") == second.index("CAP_HIT") == head.index("STATE")


def test_turns_are_printed_as_json_and_by_session(cli: "Cli", endpoint: "Endpoint", capped: "Done") -> None:
    endpoint.says("Done.")
    cli.run("run", "Work")
    assert len(cli.run("turns", "--json").events) == 2
    (only,) = cli.run("turns", "--session", "s1", "--json").events
    assert only.pop("created_at") > 0
    assert only == {
        "turn": capped.turn,
        "parent": None,
        "session": "s1",
        "agent": LONG,
        "model": "default",
        "state": "CAP_HIT",
        "driver": None,
        "stopping": False,
        "answered": False,
        "outcome": "cap_hit",
        "reason": "step_cap",
        "steps": 1,
        "tool_calls": 1,
    }


def test_turn_list_fits_the_terminal_width(cli: "Cli", capped: "Done") -> None:
    listed = cli.run("turns", terminal=True, env={"TERM": "xterm", "COLUMNS": "100"})
    lines = re.sub(r"\x1b\[[0-9;]*m", "", listed.out).splitlines()
    assert capped.turn[:4] in listed.out
    assert max(map(len, lines)) <= 100


def test_session_without_turns_is_not_an_empty_store(cli: "Cli", capped: "Done") -> None:
    assert capped.turn in cli.run("turns", "--session", "s1").out
    done = cli.run("turns", "--session", "nope")
    assert (done.code, done.out, done.err) == (0, "", "no turns in session 'nope'\n")


def test_empty_store_is_reported(cli: "Cli") -> None:
    done = cli.run("turns")
    assert (done.code, done.out, done.err) == (0, "", "no turns yet in sqlite:///turns.db\n")
    assert cli.run("turns", "--json").out == ""


def test_undriven_turns_are_marked_with_the_resume_command(cli: "Cli", endpoint: "Endpoint") -> None:
    """One process died, one was stopped, and one runs. A turn that waits for a person is not listed as left."""
    endpoint.calls(("ask_user_input", {"question": "Which?"})).begins("Once").begins("Once").begins("Once")
    waits = cli.run("run", "Ask", "--json").turn
    crashed, terminated, runs = (cli.start("run", "A story", "--json") for _ in range(3))
    turns = [child.until("text_delta")["turn"] for child in (crashed, terminated, runs)]
    crashed.kill()
    assert terminated.terminate().done().code == 143
    drivers = {event["turn"]: (event["state"], event["driver"]) for event in cli.run("turns", "--json").events}
    assert [drivers[turn] for turn in turns] == [("STREAM", "crashed"), ("STREAM", "left"), ("STREAM", "running")]
    assert drivers[waits] == ("PAUSED", None)
    listed = cli.run("turns")
    assert re.search(rf"^{turns[0]} .* STREAM +crashed$", listed.out, re.MULTILINE)
    assert listed.err == (
        "turnwright: 2 turns crashed or left: `turnwright resume TURN` resumes one;"
        " turns of another program are resumed by its own `recover()` or worker\n"
    )
    runs.interrupt().done()
    cli.run("abort", turns[1])
    assert f"1 turn crashed or left: `turnwright resume {turns[0]}` resumes it;" in cli.run("turns").err


@pytest.mark.parametrize(
    ("number", "notice"),
    [(1, "1 turn crashed or left: {} it resumes it"), (2, "2 turns crashed or left: {} them resumes them")],
)
def test_turns_left_by_another_program_are_recovered_there(cli: "Cli", number: int, notice: str) -> None:
    async def leave() -> None:
        runs = anyio.Event()

        @tool
        async def wait() -> str:
            """Wait."""
            runs.set()
            await anyio.sleep_forever()
            return ""

        model, store = ScriptedModel(asks_for(("wait", {}))), f"sqlite:///{cli.folder}/turns.db"
        async with Engine(model=model, tools=[wait], store=store, cancel_grace=0) as engine:
            await engine.start(Agent(name="A"), "Wait")
            await runs.wait()

    for _ in range(number):
        anyio.run(leave)
    message = notice.format("`Engine.recover()` or a worker of the program that began")
    assert cli.run("turns").err == f"turnwright: {message}\n"
