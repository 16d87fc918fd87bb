"""`turnwright fork`: a new turn continues from a place in another one's past."""

from typing import TYPE_CHECKING

import anyio
import pytest

from turnwright import Agent, Engine
from turnwright.model import ScriptedModel
from turnwright.store import SqliteStore

from .tty import Tty

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Done, Endpoint, Json

ASK: "tuple[str, Json]" = ("ask_user_input", {"question": "Which color?", "choices": ["red", "blue"]})


@pytest.fixture
def turn(cli: "Cli", endpoint: "Endpoint") -> "Done":
    """A turn that asked, was answered, and ended."""
    endpoint.calls(ASK).says("Red it is.")
    begun = cli.run("run", "Paint it", "--session", "s1", "--json")
    return cli.run("resume", begun.turn, "--answer", "question-1=red", "--json")


def paused_at(cli: "Cli", turn: "Done") -> int:
    journal = cli.run("show", turn.turn, "--journal", "--json").events
    return int(next(fact["seq"] for fact in journal if fact["kind"] == "paused"))


def test_fork_without_a_place_lists_the_places_and_does_nothing(cli: "Cli", turn: "Done") -> None:
    done = cli.run("fork", turn.turn)
    assert done.code == 2
    assert f"choose a fact: turnwright fork {turn.turn} --at SEQ" in done.err
    head, *rows = done.out.splitlines()
    assert head.split() == ["AT", "STATE", "AFTER"]
    assert [row.split(maxsplit=2) for row in rows] == [
        ["2", "STREAM", "turn_started Paint it"],
        ["3", "TOOL_EXEC", "model_replied ask_user_input (call00001)"],
        ["5", "PAUSED", "call_waiting ask_user_input (call00001) waits for question-1"],
        ["6", "TOOL_EXEC", "answered question-1: reply: red"],
        ["7", "TOOL_EXEC", "call_started ask_user_input (call00001)"],
        ["10", "STREAM", "call_settled ask_user_input (call00001): ok: red"],
    ]
    listed = cli.run("fork", turn.turn, "--json").events
    assert [place["at"] for place in listed] == [2, 3, 5, 6, 7, 10]
    assert len(cli.run("turns", "--json").events) == 1


def test_fork_continues_from_the_place_and_leaves_the_original(cli: "Cli", endpoint: "Endpoint", turn: "Done") -> None:
    """It is answered otherwise, by a command that the output names; both turns replay."""
    before = cli.run("show", turn.turn, "--journal").out
    request_count = len(endpoint.requests)
    done = cli.run("fork", turn.turn, "--at", str(paused_at(cli, turn)), "--json")
    assert done.code == 3
    assert len(endpoint.requests) == request_count
    first, last = done.events[0], done.last
    assert (first["type"], first["forked_from"], first["forked_at"]) == ("turn_started", turn.turn, 5)
    assert (last["type"], [interrupt["id"] for interrupt in last["interrupts"]]) == ("paused", ["question-1"])
    assert first["turn"] == last["turn"] != turn.turn
    endpoint.says("Blue it is.")
    ended = cli.run("resume", done.turn, "--answer", "question-1=blue", "--json")
    assert (ended.code, ended.last["text"]) == (0, "Blue it is.")
    assert endpoint.requests[-1].messages[-1]["content"] == "blue"
    assert cli.run("show", turn.turn, "--journal").out == before
    assert [replay.code for replay in cli.each(["replay", turn.turn], ["replay", done.turn])] == [0, 0]


def test_fork_has_the_output_and_exit_code_of_a_resumption(cli: "Cli", endpoint: "Endpoint", turn: "Done") -> None:
    endpoint.says("Once more.")
    done = cli.run("fork", turn.turn, "--at", "10")
    assert (done.code, done.err) == (0, "")
    assert f"forked from {turn.turn} at fact 10" in done.out
    assert "Done in " in done.out
    endpoint.plays(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    assert cli.run("fork", turn.turn, "--at", "10").code == 1


@pytest.mark.slow
def test_fork_asks_on_a_terminal_unless_no_input_is_set(cli: "Cli", endpoint: "Endpoint", turn: "Done") -> None:
    fork = ("fork", turn.turn, "--at", str(paused_at(cli, turn)))
    with Tty(cli, (*fork, "--no-input")) as terminal:
        terminal.until("turnwright resume fork-")
        assert terminal.done() == 3
    endpoint.says("Blue it is.")
    with Tty(cli, fork) as terminal:
        terminal.until("Answer: ")
        terminal.types("blue\n").until("Blue it is.")
        assert terminal.done() == 0


def test_fork_with_no_run_is_only_copied(cli: "Cli", endpoint: "Endpoint", turn: "Done") -> None:
    request_count = len(endpoint.requests)
    done = cli.run("fork", turn.turn, "--at", "5", "--no-run")
    assert (done.code, done.err) == (0, "")
    first, *rest = done.out.splitlines()
    copied = first.split()[1].rstrip(",")
    assert first == f"turn {copied}, forked from {turn.turn} at fact 5: nothing has run yet"
    assert any(f'turnwright resume {copied} --answer question-1="..."' in line for line in rest)
    first, last = cli.run("fork", turn.turn, "--at", "2", "--no-run").out.splitlines()
    assert (
        last == f"Released while waiting for the model: `turnwright resume {first.split()[1].rstrip(',')}` resumes it."
    )
    (line,) = cli.run("fork", turn.turn, "--at", "2", "--no-run", "--json").events
    assert (line["type"], line["seq"], line["forked_at"]) == ("turn_started", 1, 2)
    assert len(endpoint.requests) == request_count
    states = {event["turn"]: event["state"] for event in cli.run("turns", "--json").events}
    assert (states[copied], states[line["turn"]]) == ("PAUSED", "STREAM")


def test_turns_and_show_mark_forks(cli: "Cli", turn: "Done") -> None:
    copied = cli.run("fork", turn.turn, "--at", "5", "--no-run", "--json").turn
    assert copied.startswith("fork-")
    assert copied in cli.run("turns").out
    assert cli.run("show", copied).out.splitlines()[0] == f"forked from {turn.turn} at fact 5"
    (event,) = cli.run("show", copied, "--json").events
    assert (event["forked_from"], event["forked_at"]) == (turn.turn, 5)
    assert "forked" not in cli.run("show", turn.turn).out


def test_place_inside_an_event_or_after_the_end_is_a_mistake(cli: "Cli", turn: "Done") -> None:
    for at, words in {
        "4": "fact 4 and the next one come from one input: fork it at fact 3 or 5",
        "99": "has no fact 99: it has 13: fork it at fact 10",
        "0": "has no fact 0: it has 13: fork it at fact 2",
        "13": "ended with fact 13: fork it at fact 10",
    }.items():
        done = cli.run("fork", turn.turn, "--at", at)
        assert (done.code, done.out) == (2, "")
        assert words in done.err
    assert len(cli.run("turns", "--json").events) == 1


def test_missing_parts_are_reported_before_copying(cli: "Cli", turn: "Done") -> None:
    """A turn, a store, the tools: no copy is left behind that nobody asked for."""
    for arguments, words in (
        (["nobody", "--at", "2"], "there is no turn 'nobody'"),
        ([turn.turn, "--at", "2", "--store", "sqlite:///other.db"], "there is no store other.db"),
        ([turn.turn, "--at", "2", "--tools", "nowhere.py"], "nowhere.py"),
    ):
        done = cli.run("fork", *arguments)
        assert (done.code, done.out) == (2, "")
        assert words in done.err
    assert len(cli.run("turns", "--json").events) == 1
    assert not (cli.folder / "other.db").exists()


def test_turn_of_another_program_is_forked_with_a_given_model(cli: "Cli", endpoint: "Endpoint") -> None:
    async def begin() -> str:
        store = SqliteStore(cli.folder / "turns.db")
        async with Engine(model=ScriptedModel("Red."), store=store) as engine:
            return (await engine.run(Agent(name="A"), "Paint it")).id

    turn = anyio.run(begin)
    refused = cli.run("fork", turn, "--at", "2")
    assert refused.code == 2
    assert "`Engine.fork` forks it there. To fork it here, name the model with --model" in refused.err
    endpoint.says("Blue.")
    done = cli.run("fork", turn, "--at", "2", "--model", "other", "--json")
    assert (done.code, done.last["text"], endpoint.requests[-1].body["model"]) == (0, "Blue.", "other")


def test_help_of_replay_and_fork_names_the_executing_command(cli: "Cli") -> None:
    replay, fork = cli.each(["replay", "--help"], ["fork", "--help"])
    assert "No model is called, no tool runs, and nothing is written" in " ".join(replay.out.split())
    assert "the model is called and tools run" in " ".join(fork.out.split())


def test_fork_runs_with_another_prompt_model_setting_limit_and_result(
    cli: "Cli", endpoint: "Endpoint", turn: "Done"
) -> None:
    endpoint.says("Green it is.")
    flags = ("--prompt", "Paint it all", "--model", "other", "--setting", "seed=1", "--limit", "steps=4")
    done = cli.run("fork", turn.turn, "--at", "10", *flags, "--result", "call00001=green", "--json")
    assert (done.code, done.last["text"]) == (0, "Green it is.")
    request = endpoint.requests[-1]
    assert (request.body["model"], request.body["seed"]) == ("other", 1)
    contents = [message["content"] for message in request.messages]
    assert contents[-3] == "Paint it all"
    assert contents[-1] == "green"
    changed = ["prompt", "model", "model_settings", "limits.steps", "results.call00001"]
    assert done.events[0]["forked_with"] == changed
    first_line = cli.run("show", done.turn).out.splitlines()[0]
    assert first_line == f"forked from {turn.turn} at fact 10, with another {', '.join(changed)}"
    refused = cli.run("fork", turn.turn, "--at", "10", "--limit", "steps")
    assert (refused.code, "write it as NAME=VALUE" in refused.err) == (2, True)
    assert "write it as CALL=TEXT" in cli.run("fork", turn.turn, "--at", "10", "--result", "x").err
