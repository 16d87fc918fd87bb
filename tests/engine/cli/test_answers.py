"""Answers from several processes: while the turn still runs, at the same time, too late."""

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.servers.forked_python import wait_until

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Child, Cli, Done, Endpoint

TOOLS = '''
from pathlib import Path

import anyio

from turnwright import tool


@tool
async def gate() -> str:
    """Be done when there is a file `open`."""
    Path("runs").write_text("gate")
    while not Path("open").exists():
        await anyio.sleep(0.02)
    return "through"


@tool(needs_approval=True)
def delete_file(path: str) -> str:
    """Delete a file."""
    with Path("deleted").open("a") as file:
        file.write("+")
    return f"{path} is gone"


@tool(needs_approval=True, expires_in=3600)
def send() -> str:
    """Ask for an hour."""
    return "sent"


@tool(needs_approval=True, expires_in=1)
def hurry() -> str:
    """Ask for a moment."""
    return "hurried"
'''


@pytest.fixture(autouse=True)
def _tools(cli: "Cli") -> None:
    cli.write("mine.py", TOOLS)


@pytest.fixture
def driver(cli: "Cli", endpoint: "Endpoint") -> "Child":
    """A process that drives a turn of which one call waits for a person, and another runs until it is let through."""
    endpoint.calls(("delete_file", {"path": "a"}), ("gate", {})).says("All done.")
    child = cli.start("run", "Work", "--tools", "mine.py", "--json")
    cli.await_file("runs")
    child.until("call_waiting")
    return child


def await_answer(cli: "Cli") -> None:
    """Wait until an answer is in the inbox."""
    with closing(sqlite3.connect(cli.folder / "turns.db")) as db:
        wait_until(lambda: db.execute("SELECT 1 FROM inbox WHERE kind = 'answer'").fetchone())


def turn_of(cli: "Cli") -> str:
    turn: str = cli.run("turns", "--json").last["turn"]
    return turn


def check_refused(done: "Done", *words: str) -> None:
    assert (done.code, done.out) == (2, "")
    for word in words:
        assert word in done.err


def test_answer_reaches_the_driving_process_and_the_end_is_awaited(
    cli: "Cli", endpoint: "Endpoint", driver: "Child"
) -> None:
    """The process that answers shows the events from then on. A second answer is refused."""
    turn = turn_of(cli)
    answering = cli.start("resume", turn, "--approve", "approval-1", "--json")
    await_answer(cli)
    check_refused(cli.run("resume", turn, "--reject", "approval-1"), "it was answered before", "(none is open)")
    check_refused(cli.run("resume", turn, "--approve", "doom-1"), "no such interrupt is open", "(none is open)")
    check_refused(cli.run("resume", turn, "--reject", "app"), "'approval-1': it was answered before", "(none is open)")
    busy = cli.run("resume", turn)
    check_refused(busy, "is being driven by")
    assert "you can answer" not in busy.err
    cli.write("open", "")
    driven, answered = driver.done(), answering.done()
    assert (driven.code, answered.code) == (0, 0)
    assert driven.last == answered.last
    assert driven.last["text"] == "All done."
    facts = [event for event in driven.events if not event["type"].endswith("_delta")]
    assert answered.events == facts[-len(answered.events) :]
    assert {event["type"] for event in answered.events} >= {"answered", "call_started", "turn_ended"}
    assert (cli.folder / "deleted").read_text() == "+"
    assert answered.err == (f"turnwright: another process drives turn {turn} and gets the answers; waiting for it\n")
    assert len(endpoint.requests) == 2


def test_waiting_process_takes_over_from_a_dead_driver(cli: "Cli", endpoint: "Endpoint", driver: "Child") -> None:
    """The answer is not lost, and each fact is shown once."""
    turn = turn_of(cli)
    answering = cli.start("resume", turn, "--approve", "approval-1", "--json")
    await_answer(cli)
    driver.kill()
    done = answering.done()
    assert (done.code, done.last["text"], len(endpoint.requests)) == (0, "All done.", 2)
    seqs = [event["seq"] for event in done.events if not event["type"].endswith("_delta")]
    journal = cli.run("show", turn, "--journal", "--json").events
    assert seqs == list(range(seqs[0], len(journal) + 1))
    assert (cli.folder / "deleted").read_text() == "+"


def test_ctrl_c_of_a_waiting_process_leaves_the_turn_to_the_driver(cli: "Cli", driver: "Child") -> None:
    turn = turn_of(cli)
    answering = cli.start("resume", turn, "--approve", "approval-1")
    await_answer(cli)
    interrupted = answering.interrupt().done()
    assert interrupted.code == 130
    assert f"left at once; another process drives turn {turn}: `turnwright abort {turn}` stops it\n" in interrupted.err
    cli.write("open", "")
    done = driver.done()
    assert (done.code, done.last["tool_calls"]) == (0, 2)


def test_second_of_two_conflicting_answers_is_refused(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("delete_file", {"path": "a"})).says("So be it.")
    paused = cli.run("run", "Work", "--tools", "mine.py", "--json")
    answers = (["--approve", "approval-1"], ["--reject", "approval-1"])
    yes, no = cli.each(*(["resume", paused.turn, *answer, "--json"] for answer in answers))
    assert sorted((yes.code, no.code)) == [0, 2]
    accepted, refused = (yes, no) if yes.code == 0 else (no, yes)
    assert re.search(r"it was answered before|no such interrupt is open|has ended", refused.err)
    (answered,) = accepted.of("answered")
    assert answered["decision"] == ("approve" if accepted is yes else "reject")
    assert (cli.folder / "deleted").exists() is (accepted is yes)
    assert len(endpoint.requests) == 2


def test_pause_shows_the_deadline_for_an_answer(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("send", {}))
    paused = cli.run("run", "Work", "--tools", "mine.py", "--json")
    (interrupt,) = paused.interrupts
    (row,) = cli.run("turns", "--json").events
    assert 3590 < interrupt["expires_at"] - row["created_at"] < 3700
    summary = cli.run("show", paused.turn)
    assert re.search(
        r"^    until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}; after that: rejected$", summary.out, re.MULTILINE
    )


@pytest.mark.slow
def test_expired_question_is_rejected_when_the_turn_is_resumed(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("hurry", {})).says("A pity.")
    paused = cli.run("run", "Work", "--tools", "mine.py", "--json")
    (interrupt,) = paused.interrupts
    cli.await_time(interrupt["expires_at"])
    done = cli.run("resume", paused.turn, "--json")
    assert (done.code, done.last["text"], done.last["tool_calls"]) == (0, "A pity.", 0)
    assert [event["decision"] for event in done.of("answered")] == ["reject"]
