"""`turnwright settle`, and `--settle` of `answer` and `resume` (docs/rules.md#waits)."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint

CODE = """
from turnwright import Later, external_tool, tool

pick = external_tool(name="pick", description="Pick a color.", parameters={"type": "object", "properties": {}})


@tool
def render(scene: str) -> str:
    \"\"\"Render a scene elsewhere.\"\"\"
    raise Later(expires_in=3600, otherwise="no film")
"""


@pytest.fixture
def waiting(cli: "Cli", endpoint: "Endpoint") -> str:
    """A turn that waits for two results: of an external tool at module level, and of a tool that submits a job."""
    cli.write("tools.py", CODE)
    endpoint.calls(("pick", {}), ("render", {"scene": "1"}))
    endpoint.says("Done.")
    done = cli.run("run", "Pick and render", "--tools", "tools.py", "--json")
    assert done.code == 3
    return done.turn


def test_result_is_recorded_and_no_turn_runs(cli: "Cli", waiting: str) -> None:
    """Rules 6 and 13: the same result again changes nothing, another one is refused with the exit code 2."""
    page = cli.run("show", waiting)
    assert f'turnwright settle {waiting}:call00001 --result "..."' in page.out
    assert "after that: the result no film" in page.out
    done = cli.run("settle", f"{waiting}:call00001", "--result", "blue", "--by", "ann")
    assert (done.code, done.out) == (0, f"call {waiting}:call00001: recorded\n")
    again = cli.run("settle", f"{waiting}:call00001", "--result", "blue")
    assert (again.code, again.out) == (0, f"call {waiting}:call00001: has this result already\n")
    refused = cli.run("settle", f"{waiting}:call00001", "--result", "red")
    assert refused.code == 2
    assert f"call {waiting}:call00001 has another result since 20" in refused.err
    assert "(by ann)" in refused.err
    assert cli.run("settle", f"{waiting}:call00002", "--json", '{"file": "film.mp4"}').code == 0
    resumed = cli.run("resume", waiting)
    assert resumed.code == 0
    journal = cli.run("show", waiting, "--journal").out
    assert "settle" in journal
    assert "film.mp4" in journal


def test_progress_is_shown(cli: "Cli", waiting: str) -> None:
    """Rule 12."""
    assert cli.run("settle", f"{waiting}:call00002", "--progress", "0.5").code == 0
    assert "progress: 0.5" in cli.run("show", waiting).out


def test_answer_and_resume_give_results(cli: "Cli", waiting: str) -> None:
    """A result by the interrupt's id, as the other answers."""
    done = cli.run("answer", waiting, "--settle", "result-call00001=blue")
    assert done.code == 0
    assert cli.run("resume", waiting, "--settle", "result-call00002=film.mp4").code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "give one of --result, --json, --error and --progress"),
        (["--result", "a", "--error", "b"], "give one of --result, --json, --error and --progress"),
        (["--json", "{"], "--json: "),
        (["--json", "NaN"], "not JSON"),
    ],
)
def test_bad_result_is_refused(cli: "Cli", waiting: str, options: list[str], words: str) -> None:
    """Rule 7: nothing is stored."""
    done = cli.run("settle", f"{waiting}:call00001", *options)
    assert done.code == 2
    assert words in done.err
    unknown = cli.run("settle", f"{waiting}:call00009", "--result", "a")
    assert unknown.code == 2
    keys = ", ".join(f"{waiting}:call0000{number}" for number in (1, 2))
    assert f"turnwright: call '{waiting}:call00009': no open call has this key (open: {keys})" in unknown.err
