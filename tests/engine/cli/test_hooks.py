"""Code on the command line: hooks and guardrails from `--hooks`, and what agent files name."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint

POLICY = '''
from dataclasses import dataclass

from turnwright import (
    CallView, ChangeArguments, RequireApproval, ToolContext, ToolDecision, Trip, TurnContext,
    before_tool, input_guardrail, tool,
)


@dataclass
class Receipt:
    paid: int


@tool
def pay(to: str, amount: float) -> str:
    """Pay."""
    return f"paid {amount:g} to {to}"


@before_tool
async def cap(ctx: ToolContext, call: CallView) -> ToolDecision | None:
    return ChangeArguments({**call.arguments, "amount": 50})


@before_tool
async def ask(ctx: ToolContext, call: CallView) -> ToolDecision | None:
    return RequireApproval("Really?")


@input_guardrail(run_in_parallel=False)
async def on_topic(ctx: TurnContext, prompt: str) -> Trip | None:
    return Trip("Ask about invoices.") if "weather" in prompt else None
'''
AGENTS = "---\nname: Clerk\nhooks: [policy:cap, policy:ask]\nguardrails: [policy:on_topic]\n---\nBe kind.\n"


@pytest.fixture(autouse=True)
def _policy(cli: "Cli") -> None:
    cli.write("policy.py", POLICY)


@pytest.mark.parametrize("flags", [("--hooks", "policy.py"), ("--agents", "clerk.md")])
def test_paused_turn_is_resumed_with_the_original_hooks(
    cli: "Cli", endpoint: "Endpoint", flags: tuple[str, ...]
) -> None:
    cli.write("clerk.md", AGENTS)
    endpoint.calls(("pay", {"to": "Ann", "amount": 70})).says("Paid.")
    paused = cli.run("run", "Pay Ann 70", "--tools", "policy.py", *flags, "--json")
    assert paused.code == 3
    (interrupt,) = paused.interrupts
    assert (interrupt["question"], interrupt["arguments"]) == ("Really?", {"to": "Ann", "amount": 50})
    done = cli.run("resume", paused.turn, "--approve", interrupt["id"])
    assert done.code == 0
    assert "paid 50 to Ann" in str(endpoint.requests[-1].messages[-1]["content"])
    journal = cli.run("show", paused.turn, "--journal")
    assert "hook cap changed the arguments; hook ask asked for approval" in journal.out


def test_guardrail_ends_the_turn_with_a_reason(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Sunny.")
    done = cli.run("run", "How is the weather?", "--hooks", "policy:on_topic")
    assert (done.code, endpoint.requests) == (1, [])
    assert "Ask about invoices." in done.out + done.err


def test_agent_file_names_the_type_of_the_answer(cli: "Cli", endpoint: "Endpoint") -> None:
    cli.write("clerk.md", AGENTS.replace("hooks: [policy:cap, policy:ask]", "output_type: policy:Receipt"))
    endpoint.calls(("final_result", {"paid": "nothing"})).calls(("pay", {"to": "Ann", "amount": 7}))
    endpoint.calls(("final_result", {"paid": 7}))
    flags = ("--tools", "policy.py", "--agents", "clerk.md")
    done = cli.run("run", "Pay Ann 7", *flags, "--json")
    assert (done.code, done.last["steps"], done.last["text"]) == (0, 3, '{"paid": 7}')
    own = cli.run("run", "Pay Ann 7", *flags, "--output-schema", cli.write("any.json", "{}"))
    assert (own.code, "agent 'Clerk' has an output_type of its own" in own.err) == (2, True)


def test_continued_turn_has_the_guardrails_of_the_previous_turn(cli: "Cli", endpoint: "Endpoint") -> None:
    cli.write("clerk.md", AGENTS.replace("---\nBe", "steps: 1\n---\nBe").replace("policy:cap, policy:ask", ""))
    endpoint.calls(("pay", {"to": "Ann", "amount": 7})).says("Stopped.")
    turn = cli.run("run", "Pay Ann 7", "--tools", "policy.py", "--agents", "clerk.md", "--json").turn
    request_count = len(endpoint.requests)
    done = cli.run("run", "--continue", turn, "And the weather?")
    assert (done.code, len(endpoint.requests)) == (1, request_count)
    assert "Ask about invoices." in done.out + done.err
    cli.write("clerk.md", "---\nname: Clerk\nhooks: []\n---\nBe kind.\n")
    lost = cli.run("run", "--continue", turn, "And the weather?")
    assert (lost.code, "the earlier turn had guardrails, which no file names now" in lost.err) == (2, True)


def test_resumed_turn_has_the_guardrails_of_sub_agents(cli: "Cli", endpoint: "Endpoint") -> None:
    lead = "---\nname: Lead\n---\nLead.\n\n"
    helper = AGENTS.replace("hooks: [policy:cap, policy:ask]", "description: Pays.\nmode: subagent")
    cli.write("clerk.md", lead + helper)
    endpoint.calls(("ask_user_input", {"question": "What?"})).calls(("Clerk", {"prompt": "The weather"})).says("No.")
    paused = cli.run("run", "Work", "--agents", "clerk.md", "--agent", "Lead", "--json")
    done = cli.run("resume", paused.turn, "--answer", "question-1=the weather")
    assert done.code == 0
    assert "failed, guardrail" in str(endpoint.requests[-1].messages[-1]["content"])


def test_resumed_turn_needs_the_original_hooks(cli: "Cli", endpoint: "Endpoint") -> None:
    """The error names them, and its remedy works as it is typed."""
    endpoint.calls(("pay", {"to": "Ann", "amount": 70})).says("Paid.")
    turn = cli.run("run", "Pay Ann 70", "--tools", "policy.py", "--hooks", "policy.py", "--json").turn
    cli.write("policy.py", POLICY.replace("def cap", "def cap_payments"))
    lacks = f"turn {turn}: it began with hook 'cap' of its engine, missing here"
    for flags in ((), ("--hooks", "policy:on_topic", "--hooks", "policy:ask")):
        refused = cli.run("resume", turn, "--approve", "approval-1", *flags)
        assert (refused.code, lacks in refused.err) == (2, True), refused.err
    assert len(endpoint.requests) == 1
    cli.write("old.py", POLICY)
    done = cli.run("resume", turn, "--approve", "approval-1", "--hooks", "old.py", "--json")
    assert (done.code, done.last["text"]) == (0, "Paid.")


def test_worker_skips_a_turn_with_missing_hooks(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("pay", {"to": "Ann", "amount": 70})).says("Paid.")
    turn = cli.run("run", "Pay Ann 70", "--tools", "policy.py", "--hooks", "policy.py", "--json").turn
    cli.run("answer", turn, "--approve", "approval-1")
    first = cli.start("worker", "--tools", "policy.py", "--json")
    lacks = "it began with hooks 'ask', 'cap' and guardrail 'on_topic' of its engine, missing here"
    assert lacks in first.until("refused")["why"]
    first.terminate().done()
    cli.write("turnwright.toml", 'hooks = ["policy.py"]\n')
    second = cli.start("worker", "--tools", "policy.py", "--json")
    assert second.until("settled")["outcome"] == "finished"
    second.terminate().done()
    assert "paid 50 to Ann" in str(endpoint.requests[-1].messages[-1]["content"])


def test_configured_hooks_apply_to_every_turn(cli: "Cli", endpoint: "Endpoint") -> None:
    """A file starts at the folder of the configuration."""
    cli.write("turnwright.toml", 'hooks = ["policy.py:on_topic"]\n')
    below = cli.folder / "below"
    below.mkdir()
    done = cli.run("run", "How is the weather?", folder=below)
    assert (done.code, endpoint.requests) == (1, [])
    assert "Ask about invoices." in done.out + done.err


def test_continued_turn_has_the_engine_hooks_of_the_previous_turn(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("pay", {"to": "Ann", "amount": 7})).says("Stopped.")
    flags = ("--tools", "policy.py", "--hooks", "policy:on_topic", "--steps", "1")
    turn = cli.run("run", "Pay Ann 7", *flags, "--json").turn
    lost = cli.run("run", "--continue", turn, "Go on", "--hooks", "policy:cap")
    assert lost.code == 2
    assert "the earlier turn had guardrail 'on_topic' of its engine, missing here" in lost.err
    done = cli.run("run", "--continue", turn, "And the weather?", "--hooks", "policy:cap", "--hooks", "policy:on_topic")
    assert "Ask about invoices." in done.out + done.err


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("policy:nothing", "policy has no hook and no guardrail 'nothing'"),
        ("json", "json has no hooks and no guardrails"),
        ("nowhere", "there is no module 'nowhere'"),
    ],
)
def test_wrong_hook_name_is_a_usage_error(cli: "Cli", spec: str, problem: str) -> None:
    done = cli.run("run", "hi", "--hooks", spec)
    assert done.code == 2
    assert problem in done.err
