"""`turnwright run --id`: a retried command starts no second turn (docs/rules.md#start-once)."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint


def test_repeated_command_prints_the_first_answer(cli: "Cli", endpoint: "Endpoint") -> None:
    """Rule 26: a second `run` with the id and the request asks no model, and prints the same answer and events."""
    endpoint.calls(("list_files", {})).says("Nothing here.")
    first = cli.run("run", "What is here?", "--id", "order-17", "--json")
    assert (first.code, first.err) == (0, "")
    request_count = len(endpoint.requests)
    second = cli.run("run", "What is here?", "--id", "order-17", "--json")
    assert (second.code, second.err) == (0, "")
    assert len(endpoint.requests) == request_count
    assert {event["turn"] for event in (*first.events, *second.events)} == {"order-17"}
    assert second.events[-1] == first.events[-1]
    plain = cli.run("run", "What is here?", "--id", "order-17")
    assert (plain.code, "Nothing here." in plain.out) == (0, True)


def test_id_with_another_prompt_is_refused(cli: "Cli", endpoint: "Endpoint") -> None:
    """Rule 26: the command exits with 2 and names what differs."""
    endpoint.says("Done.")
    assert cli.run("run", "Tidy.", "--id", "k1").code == 0
    conflict = cli.run("run", "Untidy.", "--id", "k1")
    assert (conflict.code, "turn k1 exists with another prompt" in conflict.err) == (2, True)


def test_id_of_other_characters_is_refused(cli: "Cli") -> None:
    """Rule 25: an id has 1 to 128 of the allowed characters."""
    refusal = cli.run("run", "Tidy.", "--id", "a:b")
    assert refusal.code == 2
    assert "id: 1 to 128 of A-Z a-z 0-9 . _ -, not 'a:b'" in refusal.err
