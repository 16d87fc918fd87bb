"""`turnwright agents` lists what a file says and what comes of it, and names every mistake."""

import io
import json
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner, Result

from turnwright.agent import Agent
from turnwright.cli.agents import COLUMNS, agents, row
from turnwright.cli.screen import Columns, plain_columns
from turnwright_states import Limits

EXAMPLE = Path(__file__).parents[3] / "examples" / "AGENTS.md"


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    app = typer.Typer()
    app.command()(agents)
    return CliRunner().invoke(app, arguments, env=env)


def cells(agent: Agent) -> str:
    return " ".join(plain_columns(COLUMNS, [row(agent, Limits())]).splitlines()[1].split())


def test_example_is_listed_in_aligned_columns() -> None:
    result = run(str(EXAMPLE))
    assert (result.exit_code, result.stderr) == (0, "")
    head, *rows = result.stdout.splitlines()
    assert head.split() == ["NAME", "MODE", "STEPS", "CAP", "ALLOWANCE", "BUDGET", "TOOLS", "MODEL", "DESCRIPTION"]
    column = head.index("BUDGET")
    assert [(line[:column].split(), line[column:].split("  ")[0]) for line in rows] == [
        (["Refactorer", "primary", "5", "5", "5", "(after)"], "50 calls"),
        (["Architect", "primary", "20", "20", "20", "(after)"], "60 calls, 600 s"),
        (["Explorer", "primary", "—", "200", "200", "(after)"], "50 calls"),
    ]


def test_json_has_an_object_for_each_line() -> None:
    result = run(str(EXAMPLE), "--json")
    assert result.exit_code == 0
    refactorer, architect, explorer = map(json.loads, result.stdout.splitlines())
    assert refactorer == {
        "name": "Refactorer",
        "description": "Proposes small, safe refactorings of one file.",
        "mode": "primary",
        "model": None,
        "tools": ["list_files", "read_file", "search_files", "ask_user_input"],
        "steps": 5,
        "cap": 5,
        "concluding": "after",
        "allowance": 5,
        "budget": {"tool_calls": 50, "tokens": None, "cost": None, "seconds": None},
    }
    assert architect["budget"] == {"tool_calls": 60, "tokens": None, "cost": None, "seconds": 600.0}
    assert (explorer["steps"], explorer["cap"]) == (None, 200)


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (Agent(name="A"), "A primary — 200 200 (after) 50 calls all —"),
        (Agent(name="A", steps=None), "A primary — 200 200 (after) 50 calls all —"),
        (Agent(name="A", steps=0), "A primary 0 0 0 (after) 50 calls all —"),
        (Agent(name="A", steps=500), "A primary 500 200 200 (after) 50 calls all —"),
        (Agent(name="A", steps=5, concluding="within"), "A primary 5 5 4 (within) 50 calls all —"),
        (Agent(name="A", tools=()), "A primary — 200 200 (after) 50 calls none —"),
        (Agent(name="A", budget=0, model="m"), "A primary — 200 200 (after) 0 calls all m"),
        (
            Agent(name="A", budget=Limits(tool_calls=None, tokens=9, cost=1.5, seconds=60)),
            "A primary — 200 200 (after) calls unlimited, 9 tokens, cost 1.5, 60 s all —",
        ),
        (Agent(name="A", mode="subagent", description="Reads."), "A subagent — 200 200 (after) 50 calls all — Reads."),
        (Agent(name="A", mode="all", description="Reads."), "A all — 200 200 (after) 50 calls all — Reads."),
        (Agent(name="A", description="a\nb\x1b[2J"), "A primary — 200 200 (after) 50 calls all — a b\\x1b[2J"),
    ],
)
def test_row_shows_steps_as_written_and_effective_limits(agent: Agent, expected: str) -> None:
    assert cells(agent) == expected


def test_table_on_a_terminal_fits_the_width_and_has_no_markup() -> None:
    out = io.StringIO()
    many = Agent(name="[red]A[/red]", description="word " * 40, tools=("read_file", "list_files"))
    Console(file=out, force_terminal=True, width=90, color_system=None).print(Columns(COLUMNS, [row(many, Limits())]))
    lines = out.getvalue().splitlines()
    assert "[red]A[/red]" in lines[1]
    assert max(map(len, lines)) <= 90
    assert out.getvalue().count("word") == 40


def test_table_is_printed_only_on_a_terminal() -> None:
    """Rich takes FORCE_COLOR for a terminal."""
    result = run(str(EXAMPLE), env={"FORCE_COLOR": "1", "COLUMNS": "100"})
    assert result.exit_code == 0
    assert "\x1b[1m" in result.stdout
    assert "\x1b" not in run(str(EXAMPLE)).stdout


def test_mistakes_go_to_stderr_with_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "AGENTS.md"
    path.write_text("---\nname: A\nsteps: -1\nnudges: 2.5\n---\n")
    for flags in ((), ("--json",)):
        result = run(str(path), *flags)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.splitlines() == [
            f"{path}:3: agent 'A': steps: must be a whole number of at least 0, not -1",
            f"{path}:4: agent 'A': nudges: must be a whole number of at least 0, not 2.5",
        ]


def test_missing_file_is_a_usage_error_without_a_traceback(tmp_path: Path) -> None:
    result = run(str(tmp_path / "none.md"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"{tmp_path / 'none.md'}: there is no such file: name an agent file, or create this one\n"


def test_configured_files_are_listed_without_a_name(tmp_path: Path) -> None:
    """Its limits are laid under the agents' own, too."""
    (tmp_path / "team.md").write_text("---\nname: A\n---\n")
    config = tmp_path / "turnwright.toml"
    config.write_text('preset = "glm-cli"\nagents = ["team.md"]\n')
    result = run("--config", str(config), "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    description = json.loads(result.stdout)
    assert (description["name"], description["cap"], description["concluding"]) == ("A", 25, "within")


TOOLS = """
from turnwright import tool

@tool(read_only=False)
def order(item: str) -> str:
    \"\"\"Order an item.\"\"\"
    return item
"""


def test_agents_with_tools_show_the_limits_and_unknown_tools_are_errors(tmp_path: Path) -> None:
    (file := tmp_path / "AGENTS.md").write_text("---\nname: Buyer\ntools: [order]\n---\nBuy.\n")
    (tools := tmp_path / "shop.py").write_text(TOOLS)
    assert "10 calls" in run(str(file), "--tools", str(tools)).stdout
    listed = run(str(file), "--tools", str(tools), "--json")
    assert json.loads(listed.stdout)["budget"]["tool_calls"] == 10
    file.write_text("---\nname: Buyer\ntools: [nope]\n---\nBuy.\n")
    refused = run(str(file), "--tools", str(tools))
    assert refused.exit_code == 2
    assert refused.stderr.startswith("agent 'Buyer': tools: there is no tool 'nope' (offered: list_files, ")
    file.write_text("---\nname: Buyer\ntools: [ordr]\n---\nBuy.\n")
    assert "; did you mean 'order'? " in run(str(file), "--tools", str(tools)).stderr
