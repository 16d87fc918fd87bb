"""Hooks and guardrails on the command line: from `--hooks`, and from agent files."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import Cli, Endpoint

POLICY = '''
from turnwright import (
    CallView, ChangeArguments, RequireApproval, ToolContext, ToolDecision, Trip, TurnContext,
    before_tool, input_guardrail, tool,
)


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
def test_a_paused_turn_is_resumed_with_the_hooks_that_it_had(
    cli: "Cli", endpoint: "Endpoint", flags: tuple[str, ...]
) -> None:
    cli.write("clerk.md", AGENTS)
    endpoint.calls(("pay", {"to": "Ann", "amount": 70})).says("Paid.")
    paused = cli.run("run", "Pay Ann 70", "--tools", "policy.py", *flags, "--json")
    assert paused.code == 3
    (asked,) = paused.interrupts
    assert (asked["question"], asked["arguments"]) == ("Really?", {"to": "Ann", "amount": 50})
    done = cli.run("resume", paused.turn, "--approve", asked["id"])
    assert done.code == 0
    assert "paid 50 to Ann" in str(endpoint.requests[-1].messages[-1]["content"])
    shown = cli.run("show", paused.turn, "--journal")
    assert "hook cap changed the arguments; hook ask asked for approval" in shown.out


def test_a_guardrail_ends_the_turn_and_says_why(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Sunny.")
    done = cli.run("run", "How is the weather?", "--hooks", "policy:on_topic")
    assert (done.code, endpoint.requests) == (1, [])
    assert "Ask about invoices." in done.out + done.err


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("policy:nothing", "policy has no hook and no guardrail 'nothing'"),
        ("json", "json has no hooks and no guardrails"),
        ("nowhere", "there is no module 'nowhere'"),
    ],
)
def test_a_wrong_name_is_a_usage_error(cli: "Cli", spec: str, problem: str) -> None:
    done = cli.run("run", "hi", "--hooks", spec)
    assert done.code == 2
    assert problem in done.err
