"""The configuration applies to the commands that run turns. A flag wins over it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint


def test_file_sets_steps_model_and_store(cli: "Cli", endpoint: "Endpoint") -> None:
    """And a subfolder uses the same store; the front matter goes before the file, the flag before both."""
    endpoint.calls(("list_files", {}))
    (cli.folder / ".git").mkdir()
    (cli.folder / "sub").mkdir()
    cli.write(
        "turnwright.toml", "model = 'configured'\nstore = 'sqlite:///own.db'\n[limits]\nsteps = 1\nmax_retries = 0"
    )
    first = cli.run("run", "go", "--json")
    assert (first.last["reason"], first.last["steps"]) == ("step_cap", 1)
    assert endpoint.requests[0].body["model"] == "configured"
    second = cli.run("run", "go", "--json", "--steps", "2", "--model", "other", folder=cli.folder / "sub")
    assert second.last["steps"] == 2
    assert endpoint.requests[-1].body["model"] == "other"
    cli.agent("steps: 3")
    assert cli.run("run", "go", "--agent", "Tester", "--json").last["steps"] == 3
    assert (cli.folder / "own.db").exists()
    assert not (cli.folder / "turns.db").exists()
    assert len(cli.run("turns", "--json", folder=cli.folder / "sub").events) == 3


def test_explain_reads_the_configuration(cli: "Cli") -> None:
    cli.write("turnwright.toml", "[limits]\nsteps = 7\n")
    bound = cli.run("explain", "--json").last["bounds"][0]
    assert (bound["value"], bound["set_by"]) == (7, "configuration")


def test_mistake_in_the_file_stops_every_command(cli: "Cli") -> None:
    cli.write("turnwright.toml", "stroe = 'memory:'")
    for command in (["run", "go"], ["turns"], ["explain"]):
        done = cli.run(*command)
        assert (done.code, done.out) == (2, "")
        assert "stroe: is unknown: did you mean `store`?" in done.err
