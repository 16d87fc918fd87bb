"""`turnwright export`: one turn in the format of other tools."""

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.audit.trajectories.reading import calls, read, without_events

from turnwright_audit.trajectories.atif import Trajectory

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint


@pytest.mark.slow
def test_exported_turn_equals_the_run_read_from_the_store(cli: "Cli", endpoint: "Endpoint") -> None:
    cli.write("here.txt", "first line")
    endpoint.calls(("read_file", {"path": "here.txt"})).says("One line.")
    turn = cli.run("run", "How long is it?", "--session", "s1", "--json").turn
    done = cli.run("export", turn[:6])
    assert (done.code, done.out.count("\n")) == (0, 1)
    exported = msgspec.json.decode(done.out, type=Trajectory)
    assert [exported] == list(map(without_events, read((cli.folder / "turns.db").read_bytes(), "turnwright")))
    assert (exported.trajectory_id, exported.session_id) == (turn, "s1")
    assert calls([exported]) == {("read_file", '{"path": "here.txt"}'): 1}
    assert exported.run_notes.ending == "finished: answered"


@pytest.mark.slow
def test_exported_file_contains_no_known_secret(cli: "Cli", endpoint: "Endpoint") -> None:
    key = "ghp_" + "a1B2" * 9
    endpoint.says(f"The key is {key}.")
    turn = cli.run("run", f"Keep {key}, tokens: 5", "--json").turn
    done = cli.run("export", turn, "--format", "atif", "--output", "run.json")
    assert (done.code, done.out) == (0, "")
    text = (cli.folder / "run.json").read_text()
    assert key not in text
    assert "The key is ***." in text
    spent = json.loads(text)["final_metrics"]
    assert (spent["total_prompt_tokens"], spent["total_completion_tokens"]) == (11, 7)


def test_unknown_turn_or_output_place_is_a_mistake(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Hello.")
    turn = cli.run("run", "Hi", "--json").turn
    nobody = cli.run("export", "nobody")
    assert (nobody.code, nobody.out) == (2, "")
    assert "nobody" in nobody.err
    nowhere = cli.run("export", turn, "--output", "none/run.json")
    assert nowhere.code == 2
    assert "--output none/run.json: No such file or directory" in nowhere.err


def test_journal_export_is_readable_by_an_audit(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("One line.")
    turn = cli.run("run", "How long is it?", "--json").turn
    done = cli.run("export", turn, "--format", "journal", "--output", "turn.jsonl")
    assert (done.code, done.out) == (0, "")
    first = json.loads((cli.folder / "turn.jsonl").read_text().splitlines()[0])
    assert (first["turn"], first["seq"], first["kind"]) == (turn, 1, "turn_started")
    run = cli.run("audit", "turn.jsonl", "--json").events[0]
    assert (run["format"], run["steps"], run["ending"]) == ("turnwright", 1, "finished: answered")
