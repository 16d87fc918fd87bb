"""`AGENTS.md` is also an open standard: plain prose for the agent that works in the folder."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint

PROSE = """# Contributing

Run `make check` before you finish. {{ not.a.template }}

---

Release notes: one line each.

```yaml
---
name: in a code fence
---
"""
FOREIGN = "---\ndescription: The rules of this repository.\nglobs: ['**/*.py']\nalwaysApply: true\n---\nUse tabs.\n"
OURS = "---\nname: Clerk\nsteps: 3\n---\nBe kind.\n"


@pytest.mark.parametrize(
    ("text", "instructions"),
    [
        (PROSE, "Run `make check` before you finish. {{ not.a.template }}"),
        (FOREIGN, "Use tabs."),
        ("\ufeff# Rules\r\n\r\nname it well\r\n", "name it well"),
        ("---\n\nRules begin with a rule.\n", "Rules begin with a rule."),
        ("---\n\nRules between rules.\n\nsteps: build, then test\n\n---\n", "Rules between rules."),
        ("---\nmetadata:\n  name: nested\n---\nUse spaces.\n", "Use spaces."),
        ("Text.\n\n---\nNote: be brief\n---\n\nMore.\n", "Note: be brief"),
        ("# Rules\n\n---\n\nname: no agent\n", "name: no agent"),
    ],
)
def test_plain_file_instructs_the_agent_of_the_folder(
    cli: "Cli", endpoint: "Endpoint", text: str, instructions: str
) -> None:
    cli.write("AGENTS.md", text)
    endpoint.says("Done.")
    done = cli.run("run", "Tidy up")
    assert (done.code, done.err) == (0, "")
    system = endpoint.requests[0].messages[0]
    assert system["role"] == "system"
    assert instructions in system["content"]
    assert "alwaysApply" not in system["content"]
    for command in (("agents", "--json"), ("agents", "AGENTS.md", "--json")):
        listed = cli.run(*command)
        assert (listed.code, [event["name"] for event in listed.events]) == (0, ["assistant"])
    assert cli.run("explain").code == cli.run("explain", "--agents", "AGENTS.md").code == 0


def test_plain_file_is_read_only_in_the_folder(cli: "Cli", endpoint: "Endpoint") -> None:
    """An agent with instructions of its own gets no others."""
    endpoint.says("Done.")
    cli.write("AGENTS.md", PROSE)
    cli.write("clerk.agent.md", OURS)
    (cli.folder / "below").mkdir()
    cli.run("run", "hi", folder=cli.folder / "below")
    cli.run("run", "hi", "--agents", "clerk.agent.md")
    assert ["make check" in str(request.messages) for request in endpoint.requests] == [False, False]


def test_empty_file_gives_no_instructions(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    cli.write("AGENTS.md", "\n")
    assert cli.run("run", "hi").code == 0
    assert "AGENTS.md" not in endpoint.requests[0].messages[0]["content"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("---\nsteps: 3\n---\nBe kind.\n", "AGENTS.md:1: name: is missing"),
        ("name: Clerk\nsteps: 3\n---\nBe kind.\n", "there is no `---` above this agent's keys"),
        ("---\nname: Clerk\nsteps: 3\nBe kind.\n", "the front matter that starts here is not closed"),
        (f"{OURS}\n---\nname: Clerk\n---\nAgain.\n", "has this name already"),
        (f"{FOREIGN}\n{OURS}", "AGENTS.md:1: name: is missing"),
        ("---\n\nname: Clerk\nstep: 3\n---\nBe kind.\n", "agent 'Clerk': step: is unknown"),
        ("---\n  name: Clerk\n  step: 3\n---\nBe kind.\n", "step: is unknown"),
        ("---\n{name: Clerk, step: 3}\n---\nBe kind.\n", "step: is unknown"),
        ("---\ndescription: Kind.\n\nname: Clerk\nstep: 3\n---\nBe kind.\n", "step: is unknown"),
    ],
)
def test_file_with_our_front_matter_has_agents(cli: "Cli", text: str, problem: str) -> None:
    """Mistakes in it are named: no agent with limits becomes prose."""
    cli.write("AGENTS.md", text)
    done = cli.run("agents")
    assert (done.code, problem in done.err) == (2, True), done.err


def test_unused_file_of_agents_is_named(cli: "Cli", endpoint: "Endpoint") -> None:
    """The remedy works as it is typed."""
    endpoint.says("Done.")
    cli.write("AGENTS.md", f"{OURS}\n---\nname: Payer\n---\nPay.\n")
    done = cli.run("run", "hi")
    remedy = "--agents AGENTS.md --agent NAME runs one of its agents: Clerk, Payer"
    assert (done.code, done.err) == (0, f"turnwright: AGENTS.md is not used: {remedy}\n")
    assert cli.run("run", "hi", "--agents", "AGENTS.md", "--agent", "Payer").code == 0
    (cli.folder / "AGENTS.md").write_bytes(b"\xff\xfe")
    done = cli.run("run", "hi")
    assert (done.code, "AGENTS.md is not used: it is not UTF-8 text" in done.err) == (0, True)


def test_folder_of_files_contains_agents(cli: "Cli") -> None:
    (cli.folder / "agents").mkdir()
    cli.write("agents/clerk.md", OURS)
    cli.write("agents/night.agent.md", OURS.replace("Clerk", "Night"))
    cli.write("agents/README.md", "# Our agents\n")
    for command in (("agents", "agents"), ("agents", "./agents/")):
        listed = cli.run(*command, "--json")
        assert (listed.code, [event["name"] for event in listed.events]) == (0, ["Clerk", "Night"])
    cli.write("turnwright.toml", 'agents = "agents"\n')
    assert [event["name"] for event in cli.run("agents", "--json").events] == ["Clerk", "Night"]


def test_files_of_agents_are_found_beside_a_plain_file(cli: "Cli", endpoint: "Endpoint") -> None:
    """`agents/*.md` and `*.agent.md`, unless `AGENTS.md` has agents."""
    endpoint.says("Done.")
    (cli.folder / "agents").mkdir()
    cli.write("AGENTS.md", PROSE)
    cli.write("agents/clerk.md", OURS)
    cli.write("night.agent.md", OURS.replace("Clerk", "Night"))
    assert [event["name"] for event in cli.run("agents", "--json").events] == ["Clerk", "Night"]
    assert cli.run("run", "hi", "--agent", "night").code == 0
    assert endpoint.requests[0].messages[0]["content"] == "Be kind."
    cli.write("AGENTS.md", OURS.replace("Clerk", "Only"))
    assert [event["name"] for event in cli.run("agents", "--json").events] == ["Only"]


def test_another_file_without_a_front_matter_is_a_mistake(cli: "Cli") -> None:
    cli.write("clerk.md", "# Clerk\n\nBe kind.\n")
    done = cli.run("agents", "clerk.md")
    assert (done.code, "clerk.md: has no agent" in done.err) == (2, True)
