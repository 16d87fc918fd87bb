"""`turnwright run --continue`: a new turn continues from one that was stopped, with the transcript, and limits anew."""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Child, Cli, Endpoint, Json

TOOLS = '''
from pathlib import Path

import anyio

from turnwright import tool


def count() -> None:
    with Path("ran").open("a") as file:
        file.write("+")


@tool
def book(what: str) -> str:
    """Must not happen twice."""
    count()
    return f"{what} is booked"


@tool
async def wait() -> str:
    """Take for ever."""
    count()
    await anyio.sleep_forever()
    return "never"
'''

REFUSED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
BOOK = ("book", {"what": "a room"})


def run_on(child: "Child") -> None:
    """Leave it alone."""


def press_in_stream(child: "Child") -> None:
    child.until("text_delta")
    child.interrupt()


def press_in_tool(child: "Child") -> None:
    child.until("call_settled")
    child.interrupt()


@dataclass(frozen=True)
class Stopped:
    """A way to stop a turn that has booked a room. `ran` is the number of calls that ran, `told` a kept text."""

    name: str
    script: "Callable[[Endpoint], object]"
    code: int
    outcome: str
    ran: int
    notice: str
    stop: "Callable[[Child], None]" = run_on
    front_matter: tuple[str, ...] = ("steps: 2",)


STOPPED = (
    Stopped("a limit", lambda e: e.calls(BOOK).calls(BOOK).says("Not done."), 4, "cap_hit", 2, "Not done."),
    Stopped(
        "a loop",
        lambda e: e.calls(BOOK).calls(BOOK).says("I looped."),
        5,
        "doom_loop",
        2,
        "I looped.",
        front_matter=("steps: 3", "doom_threshold: 2"),
    ),
    Stopped("a refusal", lambda e: e.calls(BOOK).plays(REFUSED), 1, "failed", 1, "a room is booked"),
    Stopped("Ctrl-C", lambda e: e.calls(BOOK).begins("Once"), 130, "aborted", 1, "Once", press_in_stream),
    Stopped(
        "Ctrl-C in a tool", lambda e: e.calls(BOOK, ("wait", {})), 130, "aborted", 2, "a room is booked", press_in_tool
    ),
)


def check_paired(messages: "list[Json]") -> None:
    """Each call has its one result, right behind it: a provider would refuse anything else."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert waiting == []
        waiting = [call["id"] for call in message.get("tool_calls", ())]
    assert waiting == []


@pytest.mark.parametrize("stopped", STOPPED, ids=lambda case: case.name)
@pytest.mark.slow
def test_stopped_turn_is_continued(cli: "Cli", endpoint: "Endpoint", stopped: Stopped) -> None:
    """By the command that its end names. What ran is not run again; the old turn stays as it is."""
    cli.write("mine.py", TOOLS)
    stopped.script(endpoint)
    endpoint.calls(("book", {"what": "a car"})).says("All is booked.")
    agents = cli.agent(*stopped.front_matter)
    child = cli.start("run", "Book", "--agents", agents, "--tools", "mine.py", "--json")
    stopped.stop(child)
    before = child.done()
    assert (before.code, before.last["outcome"]) == (stopped.code, stopped.outcome), before
    assert (cli.folder / "ran").read_text() == "+" * stopped.ran
    journal = cli.run("show", before.turn, "--journal").out
    match = re.search(
        r'^To continue in a new turn:\n  turnwright (.*) "\.\.\."$', cli.run("show", before.turn).out, re.MULTILINE
    )
    assert match is not None
    request_count = len(endpoint.requests)
    after = cli.run(*shlex.split(match[1]), "Book a car too.", "--json")
    assert (after.code, after.last["text"]) == (0, "All is booked.")
    assert after.events[0]["continue_from"] == before.turn
    more = {"steps": 4} if stopped.outcome == "cap_hit" else {}
    assert after.events[0]["limits"] == before.events[0]["limits"] | more
    assert (after.last["steps"], after.last["tool_calls"]) == (2, 1)
    assert (cli.folder / "ran").read_text() == "+" * (stopped.ran + 1)
    first = endpoint.requests[request_count].messages
    assert [m["content"] for m in first if m["role"] == "user"][-1] == "Book a car too."
    assert stopped.notice in str(first)
    for request in endpoint.requests[request_count:]:
        check_paired(request.messages)
    assert cli.run("show", before.turn, "--journal").out == journal


def test_continuation_without_a_prompt_stays_in_the_session(cli: "Cli", endpoint: "Endpoint") -> None:
    """And from that turn one can go on again."""
    endpoint.calls(("list_files", {})).says("Not done.").calls(("list_files", {})).says("Still not.").says("Done.")
    first = cli.run("run", "Work", "--steps", "1", "--session", "s1", "--json")
    second = cli.run("run", "--continue", first.turn, "--json")
    assert (second.code, second.last["reason"], second.events[0]["prompt"]) == (4, "step_cap", "Go on.")
    third = cli.run("run", "--continue", second.turn, "--json")
    assert (third.code, third.last["text"]) == (0, "Done.")
    assert [m["content"] for m in endpoint.requests[-1].messages if m["role"] == "user"] == ["Work", "Go on.", "Go on."]
    listed = cli.run("turns", "--session", "s1", "--json").events
    assert [row["turn"] for row in listed] == [third.turn, second.turn, first.turn]


@pytest.mark.parametrize("paused", [True, False], ids=["it waits", "its process died"])
def test_unfinished_turn_is_not_continued(cli: "Cli", endpoint: "Endpoint", *, paused: bool) -> None:
    if paused:
        endpoint.calls(("ask_user_input", {"question": "Which?"}))
        turn = cli.run("run", "Work", "--json").turn
    else:
        endpoint.begins("Once")
        child = cli.start("run", "Work", "--json")
        turn = child.until("text_delta")["turn"]
        child.kill()
    done = cli.run("run", "Go on", "--continue", turn)
    assert (done.code, done.out) == (2, "")
    assert f"turn {turn} has not ended: resume it, or abort it, before continuing from it" in done.err
    assert len(cli.run("turns", "--json").events) == 1
