"""`turnwright agents --diff` says what a change of an agents file does to the bounds of its agents."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from turnwright.cli.agents import agents
from turnwright.rules import RuleSet
from turnwright_proof.certificates.rule_diff import diff_rules

REFACTORER = """\
---
name: Refactorer
steps: 5
tools: [read_file]
---
Refactor.
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the file of before."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.md").write_text(REFACTORER, encoding="utf-8")
    return tmp_path


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(agents)
    return CliRunner().invoke(app, arguments)


def diff(text: str, *options: str) -> str:
    """Return what a change to this text is said to do."""
    Path("new.md").write_text(text, encoding="utf-8")
    result = run("--diff", "old.md", "new.md", *options)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_diff_lists_changed_bounds_with_old_and_new_value() -> None:
    """The example of a review: more steps, and a tool that asks."""
    text = REFACTORER.replace("steps: 5", "steps: 20").replace("[read_file]", "[read_file, ask_user_input]")
    assert " ".join(diff(text).split()) == (
        "Refactorer: steps 5 -> 20; model calls at most 24 -> 84; may now end as aborted: superseded;"
        " may now end as cap_hit: no_call_ran; may now pause; tool added: ask_user_input"
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("steps: 5", "steps: 5\nmax_retries: 0", "model calls at most 24 -> 6; attempts a phase 4 -> 1"),
        ("steps: 5", "steps: 5\nbudget: 9", "tool calls 50 -> 9"),
        (
            "steps: 5",
            "steps: 5\nbudget: {tokens: 9}",
            "tokens unlimited -> 9; may now end as cap_hit: tokens",
        ),
        (
            "steps: 5",
            "steps: 3",
            "steps 5 -> 3; model calls at most 24 -> 16; may no longer end as doom_loop: doom_loop",
        ),
        (
            "steps: 5",
            "steps: 5\ndoom_response: ask",
            "doom_response stop -> ask; may now end as aborted: superseded; may now pause",
        ),
        ("[read_file]", "[]", "may no longer end as cap_hit: budget; tool removed: read_file"),
        ("[read_file]", "[other]", "may now use tools that are unknown"),
        ("Refactor.", "Refactor well.", ""),
    ],
)
def test_diff_describes_the_effect_of_each_change(old: str, new: str, expected: str) -> None:
    text = " ".join(diff(REFACTORER.replace(old, new)).split())
    assert expected in text
    assert (text == "No bound of an agent changed.") == (expected == "")


def test_team_bounds_change_with_the_sub_agents() -> None:
    reader = "\n---\nname: Reader\ndescription: Reads.\nmode: subagent\nsteps: 3\ntools: [read_file]\n---\nRead.\n"
    text = " ".join(diff(REFACTORER.replace("[read_file]", "[read_file, Reader]") + reader).split())
    assert "steps of the whole tree none -> 155" in text
    assert "may now delegate" in text
    assert "sub-agent added: Reader" in text
    assert "Reader: new: steps 3; model calls at most 16; tool calls 50" in text


def test_agents_are_added_and_removed() -> None:
    Path("old.md").write_text("", encoding="utf-8")
    assert diff(REFACTORER) == "Refactorer: new: steps 5; model calls at most 24; tool calls 50\n"
    gone = run("--diff", "new.md", "old.md")
    assert gone.stdout == "Refactorer: removed\n"


def test_unreadable_version_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.md").write_bytes(b"\xe9")
    for file, why in (("none.md", "there is no such file: "), (str(tmp_path / "latin.md"), "is not UTF-8")):
        refused = run("--diff", "old.md", file)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith(f"{file}:")
        assert why in refused.stderr


def test_json_has_an_object_for_each_agent() -> None:
    (agent_diff,) = map(
        json.loads, diff(REFACTORER.replace("steps: 5", "steps: 20\nbudget: null"), "--json").splitlines()
    )
    changes: dict[str, Any] = {change["what"]: change for change in agent_diff.pop("changes")}
    assert agent_diff == {
        "agent": "Refactorer",
        "kind": "changed",
        "words": "Refactorer: steps 5 -> 20; model calls at most 24 -> 84; tool calls 50 -> unlimited;"
        " may now end as cap_hit: no_call_ran; may no longer end as cap_hit: budget",
    }
    assert changes["tool calls"] == {"what": "tool calls", "old": 50, "new": None, "wider": True}
    assert changes["may no longer end as cap_hit: budget"]["wider"] is False


def test_markdown_has_a_table_for_a_pull_request() -> None:
    table = diff(REFACTORER.replace("steps: 5", "steps: 20").replace("Refactorer", "Re|fac"), "--format", "markdown")
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    assert lines[2:] == [
        ["Re fac", "new agent", "", ""],
        ["Re fac", "steps 20", "", ""],
        ["Re fac", "model calls at most 84", "", ""],
        ["Re fac", "tool calls 50", "", ""],
        ["Refactorer", "removed", "", ""],
    ]
    assert diff(REFACTORER, "--format", "markdown") == "No bound of an agent changed.\n"
    wider = diff(REFACTORER.replace("steps: 5", "steps: 6"), "--format", "markdown")
    assert "steps ▲" in wider


def test_mistake_in_a_file_is_named() -> None:
    Path("new.md").write_text(REFACTORER.replace("steps: 5", "steps: many"), encoding="utf-8")
    Path("bytes.md").write_bytes(b"\xff\xfe")
    os.mkfifo("pipe.md")
    for arguments in (("old.md", "new.md"), ("old.md", "missing.md"), ("old.md", "bytes.md"), ("old.md", "pipe.md")):
        result = run("--diff", *arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert arguments[1] in result.stderr


def test_rules_are_added_and_removed() -> None:
    text = " ".join(
        diff(REFACTORER.replace("steps: 5", "steps: 5\nrules: [{name: few, at_most: 3, of: read_file}]")).split()
    )
    assert text == "Refactorer: rule added: few"
    removed = run("--diff", "new.md", "old.md", "--format", "markdown").stdout
    assert "rule removed: few ▲" in removed


NEED = "before: refund, need: verify"
BAR = "after: read_file, never: send"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (NEED, f"{NEED} if result.ok", "tightened"),
        (f"{NEED}, same: [order_id]", NEED, "loosened"),
        (NEED, f"{NEED}, once: true", "tightened"),
        (NEED, "before: refund, need: [verify, look]", "loosened"),
        (NEED, "before: [refund, pay], need: verify", "tightened"),
        (f"{NEED} if result.ok", f"{NEED} if result.fine", "changed"),
        (NEED, f"{NEED}, effect: ask", "loosened"),
        (f"{NEED}, effect: report", f"{NEED}, effect: end", "tightened"),
        (NEED, f"{NEED} if result.ok, effect: ask", "changed"),
        (NEED, f"{NEED}, scope: session", "changed"),
        ("at_most: 3, of: pay", "at_most: 2, of: pay", "tightened"),
        ("at_most: 1, of: pay", "at_most: 1, of: pay, per: order_id", "changed"),
        (BAR, "after: read_file, never: [send, post]", "tightened"),
        ('after: "read_file if args.secret", never: send', BAR, "tightened"),
        ("never: pay", 'never: "pay if args.amount > 100"', "loosened"),
        ("after: write, then: test", "after: write, then: [test, lint]", "loosened"),
        ('before: "@answer", need: test', 'before: "@answer", need: "test if result.passed"', "tightened"),
        ("not_both: [a, b]", "not_both: [a, b, c]", "tightened"),
        (NEED, "never: refund", "tightened"),
    ],
)
def test_change_of_a_rule_is_loosened_or_tightened(old: str, new: str, change: str) -> None:
    """A sequence of calls that only one version allows says which way a rule changed."""
    before, after = (RuleSet.parse(f"rules: [{{name: r, {words}}}]", "r.yaml") for words in (old, new))
    opposite = {"tightened": "loosened", "loosened": "tightened"}.get(change, change)
    assert list(diff_rules(before, after)) == [("r", change)]
    assert list(diff_rules(after, before)) == [("r", opposite)]


def test_other_words_of_a_refusal_are_no_change() -> None:
    before, after = (RuleSet.parse(f"rules: [{{name: r, never: pay{say}}}]", "r.yaml") for say in ("", ", say: No."))
    assert list(diff_rules(before, after)) == []
