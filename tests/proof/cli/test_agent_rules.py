"""`turnwright verify --agents`: what the rules of agents guarantee, and their faults."""

import json
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli

#: Its walk takes two seconds.
VERIFY_FIRST: Final = "{name: verify-first, before: refund, need: verify if result.ok, same: [order_id]}"
TOOL: Final = '''
@tool
def {name}(order_id: str) -> str:
    """Do it."""
    return ""
'''


FLAGS: Final = ("verify", "--agents", "AGENTS.md", "--tools", "shop.py")


def write_agent(cli: "Cli", *rules: str) -> None:
    names = ("refund", "verify", "write_file", "run_tests")
    tools = "".join(TOOL.format(name=name) for name in names)
    (cli.folder / "shop.py").write_text(f"from turnwright import tool\n{tools}")
    lines = "".join(f"\n  - {rule}" for rule in rules)
    (cli.folder / "AGENTS.md").write_text(f"---\nname: Clerk\n{lines and 'rules:'}{lines}\n---\nYou pay back.\n")


@pytest.mark.slow
def test_fault_of_rules_has_its_path_its_place_and_exit_code(cli: "Cli") -> None:
    write_agent(cli, "{name: tested, after: write_file, then: run_tests}", "{name: no-tests, never: run_tests}")
    run, as_json = cli.each(FLAGS, [*FLAGS, "--json"])
    assert run.code == 1
    words = "no way to an answer: write_file, then `tested` needs run_tests, which no-tests forbids (AGENTS.md:4)"
    assert f"  fault   {words}" in run.out
    checks = json.loads(as_json.out)["checks"]
    assert [check["detail"] for check in checks if check["witness"] == ["write_file"]] == [words]


def test_argument_that_no_tool_has_is_a_fault(cli: "Cli") -> None:
    """A tool of an MCP server, which lists its tools when it runs, may have any."""
    write_agent(cli, "{name: typo, never: refund if args.ordr_id == '1'}", "{name: later, never: shop__sell if args.x}")
    (run,) = cli.each(FLAGS)
    faults = [line for line in run.out.splitlines() if line.startswith("  fault")]
    assert faults == ["  fault   refund has no argument 'ordr_id': did you mean 'order_id'? (AGENTS.md:4)"]
    assert run.code == 1


def test_agents_without_rules_are_no_fault(cli: "Cli") -> None:
    write_agent(cli)
    (run,) = cli.each(FLAGS)
    assert (run.code, run.out) == (0, "no agent has rules\n")


@pytest.mark.slow
def test_rules_of_agent_and_engine_are_theorems_and_walked(cli: "Cli") -> None:
    write_agent(cli, VERIFY_FIRST)
    (cli.folder / "rules.yaml").write_text("rules:\n  - {name: once, at_most: 1, of: refund, per: order_id}\n")
    (run,) = cli.each([*FLAGS, "--rules", "rules.yaml"])
    assert (run.code, run.err) == (0, "")
    assert "  holds   refund never starts before verify (verify-first); shortest: verify -> refund" in run.out
    sentence = "in the machine, no refund starts without an earlier ok verify with the same order_id (verify-first)"
    assert f"  holds   {sentence}; " in run.out
    assert "true or false as they please: result.ok" in run.out
    assert "  holds   in the machine, at most 1 start of refund with the same order_id (once); " in run.out


def test_rule_that_only_reports_is_no_guarantee(cli: "Cli") -> None:
    write_agent(cli, VERIFY_FIRST.replace("same:", "effect: report, same:"))
    (run,) = cli.each(FLAGS)
    assert run.code == 0
    assert "the machine only reports it: no refund starts without an earlier ok verify" in run.out
    assert "; shortest: refund" in run.out


def test_rules_of_an_engine_need_agents(cli: "Cli") -> None:
    (run,) = cli.each(["verify", "--rules", "rules.yaml"])
    assert (run.code, "--rules holds for agents: give --agents as well" in run.err) == (2, True)
