"""`turnwright audit`: what is printed, and the exit code."""

import json
from pathlib import Path

import msgspec
import pytest
import typer
from tests.audit.recorded import call, run_of
from typer.testing import CliRunner, Result

from turnwright.cli.audit import audit
from turnwright.errors import ConfigError


def run(*arguments: str | Path) -> Result:
    app = typer.Typer()
    app.command()(audit)
    return CliRunner().invoke(app, list(map(str, arguments)))


def lines(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    for name, rounds in {"one": [call("read", "a")] * 4, "two": [call("read"), call("list", "", None)]}.items():
        (folder / f"{name}.json").write_bytes(msgspec.json.encode(run_of(*rounds, "Done.", name=name)))
    return folder


def test_each_run_is_a_line_and_the_last_line_is_the_summary(runs: Path) -> None:
    result = run(runs, "--json", "--jobs", "1")
    assert result.exit_code == 0
    one, two, summary = lines(result)
    assert one == one | {
        "kind": "run",
        "file": str(runs / "one.json"),
        "run": "one",
        "format": "atif",
        "turns": 1,
        "steps": 5,
        "calls": 4,
        "unpaired": 0,
        "ending": "answered",
        "tokens": 500,
        "loops": [{"tool": "read", "step": 1, "length": 4, "tokens_after": 200, "kind": "same result"}],
    }
    assert (two["unpaired"], two["loops"]) == (1, [])
    assert summary == summary | {"kind": "summary", "files": 2, "runs": 2, "steps": 8, "unpaired": 1, "looping": 1}
    assert summary["steps_distribution"] == {"p50": 3, "p95": 5, "p99": 5, "max": 5}


def test_secrets_are_hidden(tmp_path: Path) -> None:
    secret = "sk-" + "a1b2c3d4" * 4
    file = tmp_path / "run.json"
    file.write_bytes(msgspec.json.encode(run_of("Done.", ending=f"failed with {secret}", name=secret)))
    result = run(file, "--json")
    assert secret not in result.stdout
    assert lines(result)[0]["ending"] == "failed with ***"


def test_nothing_that_can_be_read_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no run")
    result = run(tmp_path, "--json")
    assert result.exit_code == 1
    assert [line["runs"] for line in lines(result)] == [0]


def test_mistakes_of_the_options_are_named(runs: Path) -> None:
    with pytest.raises(ConfigError, match="--format must be one of atif"):
        audit([str(runs)], format_="nonsense")
    with pytest.raises(ConfigError, match="No such file"):
        audit([str(runs)], outcomes=runs / "missing.csv")
    with pytest.raises(ConfigError, match="no row has a run"):
        audit([str(runs)], outcomes=runs / "one.json")
