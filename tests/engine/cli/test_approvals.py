"""`turnwright approvals` lists and revokes the approvals that cover equal calls (docs/rules.md#always)."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint

CODE = """
from turnwright import tool


@tool(needs_approval=True)
def erase(path: str) -> str:
    \"\"\"Erase a file.\"\"\"
    return f"erased {path}"
"""


def test_approvals_are_listed_shown_and_revoked(cli: "Cli", endpoint: "Endpoint") -> None:
    """With the person, the channel and the call. Later turns of the session ask again."""
    cli.write("tools.py", CODE)
    for _ in range(2):
        endpoint.calls(("erase", {"path": "x"}))
        endpoint.says("Done.")
    run = ("run", "Erase x", "--tools", "tools.py", "--session", "s1", "--json")
    turn = cli.run(*run).turn
    assert cli.run("approvals", "s1").out == "No approval covers equal calls in this session.\n"
    assert cli.run("resume", turn, "--answer", "approval-1=always", "--by", "ann").code == 0
    for command in (("approvals", "s1"), ("show", turn), ("show", "--session", "s1")):
        out = cli.run(*command).out
        assert f"{turn}/approval-1: approved always by ann via cli, 20" in out
        assert '  erase({"path": "x"})' in out
    row = json.loads(cli.run("approvals", "s", "--json").out)
    assert (row["turn"], row["tool"], row["arguments"], row["by"]) == (turn, "erase", {"path": "x"}, "ann")
    assert json.loads(cli.run("show", turn, "--json").out)["approved_always"] == [row]
    assert cli.run("approvals", "s1", "--revoke").out == "session s1: 1 approval revoked\n"
    assert "approved always by" not in cli.run("show", turn).out
    assert cli.run(*run).code == 3


def test_unknown_session_is_refused(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    cli.run("run", "Go", "--session", "s1")
    refused = cli.run("approvals", "other", "--revoke")
    assert refused.code == 2
    assert "other" in refused.err
