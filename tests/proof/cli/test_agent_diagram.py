"""`turnwright diagram --agents` draws the chart of each agent, with its team, and keeps the pages beside the agents."""

import re
import shutil
from pathlib import Path
from typing import Final

import pytest
import typer
from typer.testing import CliRunner, Result

from turnwright_proof.cli.diagram import diagram
from turnwright_states.chart import ROWS

TEAM: Final = """\
---
name: Lead
steps: 12
budget: 30
---
Lead.

---
name: Editor
description: Edits.
mode: subagent
steps: 4
tools: [read_file, Reader, ask_user_input]
---
Edit.

---
name: Reader
description: Reads.
mode: subagent
steps: 3
tools: [read_file]
---
Read.
"""
TOOLS: Final = """\
from turnwright import tool

@tool(read_only=False, needs_approval=True)
def deploy() -> str:
    "Deploy."
    return ""

@tool(return_direct=True)
def quote() -> str:
    "Quote."
    return ""
"""
HOOKS: Final = """\
from turnwright import after_model, output_guardrail

@after_model
def picky(ctx, response): ...

@output_guardrail
def polite(ctx, text): ...
"""


pytestmark = pytest.mark.usefixtures("team")


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a team, tools and hooks."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("AGENTS.md", TEAM), ("my_tools.py", TOOLS), ("my_hooks.py", HOOKS)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(diagram)
    return CliRunner().invoke(app, arguments)


def rows(table: str) -> dict[int, list[str]]:
    cells = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if re.match(r"\| \d", line)
    )
    return {int(row[0]): row[1:] for row in cells}


def table(*options: str) -> dict[int, list[str]]:
    result = run("--agents", "AGENTS.md", "--format", "table", *options)
    assert (result.exit_code, result.stderr) == (0, "")
    return rows(result.stdout)


def test_rows_unreachable_by_an_agent_are_left_out() -> None:
    reader = table("--agent", "Reader")
    assert set(reader) < set(range(1, len(ROWS) + 1))
    assert {2, 11, 14, 16, 47} <= set(reader)
    assert not {
        row for row, (source, _, _, dest, *_) in reader.items() if {source, dest} & {"PAUSED", "REVIEW", "COMPACT"}
    }
    assert 4 not in reader, "a loop of three rounds does not fit into three steps"


def test_guards_contain_the_numbers_of_the_agent() -> None:
    lead = table("--agent", "Lead")
    assert lead[2][2] == "steps ≥ 12"
    assert lead[5][2] == "30 calls spent"
    assert lead[9][2] == "no call ran in 5 steps in a row"
    assert lead[17][2] == "a retry of 3 left and the cause may pass"


def test_row_of_idle_steps_is_left_out_without_the_limit(team: Path) -> None:
    """Other rows no longer say that a call ran lately."""
    (team / "AGENTS.md").write_text(TEAM.replace("steps: 12", "steps: 12\nidle_steps: null"), encoding="utf-8")
    lead = table("--agent", "Lead")
    assert 9 not in lead
    assert not [cells for cells in lead.values() if "lately" in cells[2] or "in a row" in cells[2]]


def test_tools_are_listed_at_the_rows_of_action() -> None:
    lead = table("--agent", "Lead", "--tools", "my_tools.py", "--hooks", "my_hooks.py")
    asks = "asks by deploy, may ask by ask_user_input, request_read_access"
    assert {row: cells[-1] for row, cells in lead.items() if cells[-1]} == {
        13: "by picky, polite",
        21: "by polite",
        35: "writes deploy, may write quote, delegates to Editor, Reader",
        40: "by polite",
        44: asks,
        45: "by quote",
        48: "by polite",
        65: "by polite",
    }
    assert 14 not in lead, "every reply is reviewed"


def test_asking_sub_agent_pauses_the_caller(team: Path) -> None:
    text = TEAM.replace("steps: 12\n", "steps: 12\ntools: [Editor]\n")
    (team / "AGENTS.md").write_text(text, encoding="utf-8")
    assert 44 in table("--agent", "Lead")
    (team / "AGENTS.md").write_text(text.replace(", ask_user_input", ""), encoding="utf-8")
    assert 44 not in table("--agent", "Lead")


def test_unknown_tools_may_take_every_action(team: Path) -> None:
    (team / "AGENTS.md").write_text("---\nname: One\ntools: [elsewhere]\n---\nGo.\n", encoding="utf-8")
    unknown = table()
    assert unknown[14][-1] == unknown[44][-1] == "(some tools are unknown)"
    assert 45 in unknown


def test_synthesis_of_an_app_has_a_row() -> None:
    assert 46 not in table("--agent", "Reader")
    assert 46 in table("--agent", "Reader", "--synthesis")


def test_page_has_the_chart_the_team_and_the_bounds() -> None:
    result = run("--agents", "AGENTS.md", "--agent", "lead")
    assert (result.exit_code, result.stderr) == (0, "")
    chart, flow = re.findall(r"```mermaid\n(.*?)```", result.stdout, re.DOTALL)
    assert "stateDiagram-v2" in chart
    assert flow == (
        "flowchart TD\n"
        '    first["Lead<br/>12 steps<br/>52 model calls<br/>30 tool calls"]\n'
        '    agent1["Editor<br/>4 steps<br/>20 model calls<br/>50 tool calls<br/>depth 1"]\n'
        '    agent2["Reader<br/>3 steps<br/>16 model calls<br/>50 tool calls<br/>depth 1"]\n'
        '    tree(["all turns together, at most<br/>31 turns<br/>132 steps<br/>652 model calls<br/>30 tool calls"])\n'
        '    first -->|"Editor"| agent1\n'
        '    first -->|"Reader"| agent2\n'
        '    agent1 -->|"Reader"| agent2\n'
        "    first -.- tree\n"
    )
    assert "Sub-agents are nested at most 3 deep. Leases: after a reply" in result.stdout
    assert re.search(r"\| model calls +\| 52 ", result.stdout)
    numbers = set(rows(result.stdout.partition("## Rows")[2]))
    assert f"can take {len(numbers)} of the {len(ROWS)} rows of the chart" in result.stdout


def test_all_agents_have_pages_without_a_given_name() -> None:
    result = run("--agents", "AGENTS.md")
    assert re.findall(r"(?m)^# (.*)", result.stdout) == ["Lead", "Editor", "Reader"]
    refused = run("--agents", "AGENTS.md", "--format", "mermaid")
    assert refused.exit_code == 2
    assert "a picture in mermaid shows one agent: choose one with --agent: Lead, Editor, Reader" in refused.stderr


def test_pages_are_written_beside_the_agents(team: Path) -> None:
    """The check names a stale page after a change of the agents, and the page of an agent that is gone."""
    result = run("--agents", "AGENTS.md", "--write", "agents")
    names = ["lead.md", "editor.md", "reader.md"]
    assert result.stdout.splitlines() == [f"wrote {Path('agents', name)}" for name in names]
    assert run("--agents", "AGENTS.md", "--write", "agents").stdout == "agents is up to date\n"
    (team / "agents" / "notes.md").write_text("Our own page.\n", encoding="utf-8")
    assert run("--agents", "AGENTS.md", "--check", "agents").exit_code == 0
    (team / "agents" / "reader.md").unlink()
    (team / "AGENTS.md").write_text(TEAM.replace("steps: 4", "steps: 5").replace("name: Lead", "name: Boss"), "utf-8")
    checked = run("--agents", "AGENTS.md", "--check", "agents")
    assert checked.exit_code == 1
    assert checked.stdout.splitlines() == [
        f"{Path('agents', 'boss.md')} is missing",
        f"{Path('agents', 'editor.md')} is stale",
        f"{Path('agents', 'reader.md')} is missing",
        f"{Path('agents', 'lead.md')} is of no agent",
    ]


def test_names_in_any_script_have_separate_pages(team: Path) -> None:
    (team / "AGENTS.md").write_text("---\nname: 日本 語\n---\nx\n\n---\nname: 中国\n---\ny\n", "utf-8")
    lines = run("--agents", "AGENTS.md", "--write", "agents").stdout.splitlines()
    assert lines == [f"wrote {Path('agents', name)}" for name in ("日本_語.md", "中国.md")]


@pytest.mark.parametrize(
    "options",
    [("--view", "overview"), ("--view", "full"), ("--turn", "x"), ("--coverage", "x")],
)
def test_agent_has_no_overlay(options: tuple[str, ...]) -> None:
    refused = run("--agents", "AGENTS.md", *options)
    assert (refused.exit_code, refused.stdout) == (2, "")


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_chart_of_an_agent_is_drawn_as_svg() -> None:
    result = run("--agents", "AGENTS.md", "--agent", "Reader", "--format", "svg")
    assert result.exit_code == 0
    assert "STREAM" in result.stdout
    assert "PAUSED" not in result.stdout


def test_agent_name_is_escaped_in_mermaid_and_markdown(team: Path) -> None:
    """Neither in Mermaid nor in Markdown."""
    name = 'Re"ad;er <b>`x`|%'
    (team / "AGENTS.md").write_text(
        TEAM.replace("name: Reader", f"name: '{name}'").replace("tools: [read_file, Reader, ", "tools: ["), "utf-8"
    )
    result = run("--agents", "AGENTS.md", "--agent", "Lead")
    labels = re.findall(r'(?m)^    (?:first|agent\d)\["([^"]*)"\]$', result.stdout)
    assert len(labels) == 3
    assert all(not set(label.replace("<br/>", "")) & set('"<>`|;') for label in labels)


@pytest.mark.slow
def test_rules_of_an_agent_are_drawn_with_own_rows(team: Path) -> None:
    """A refused answer passes through REVIEW, and a rule that asks pauses the turn."""
    rules = """rules:
  - {name: small, never: "read_file if args.lines > 10", effect: ask}
  - {name: read-first, before: "@answer", need: read_file}
"""
    (team / "AGENTS.md").write_text(TEAM.replace("steps: 3\n", f"steps: 3\n{rules}"), encoding="utf-8")
    reader = table("--agent", "Reader")
    states = {state for source, _, _, dest, *_ in reader.values() for state in (source, dest)}
    assert {"REVIEW", "PAUSED"} <= states
    words = [" ".join(cells) for cells in reader.values()]
    assert any("under small" in row and "TOOL_EXEC" in row for row in words)
    assert any("under read-first" in row and "REVIEW" in row for row in words)
    page = run("--agents", "AGENTS.md", "--agent", "Reader").stdout
    assert "| read-first | no answer comes without an earlier ok read_file | refuse |" in page
