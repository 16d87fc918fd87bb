"""`turnwright chat` with the code of an agent: its hooks, guardrails and dependencies, also in a later process."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from .tty import Tty, enter, plain

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint

CODE = '''
from pathlib import Path

import anyio

from turnwright import (
    CallView, ChangeArguments, RequireApproval, Retry, ToolContext, ToolDecision, Trip, TurnContext, TurnInfo,
    after_model, before_tool, input_guardrail, tool,
)
from turnwright.model import ModelResponse


async def make_deps(turn: TurnInfo) -> str:
    return f"clerk of {turn.session}"


@tool
async def pay(ctx: ToolContext[str], to: str, amount: int) -> str:
    """Pay."""
    Path("paid").open("a").write(f"{ctx.deps} paid {amount} to {to}\\n")
    return f"paid {amount} to {to}"


@tool
async def wait() -> str:
    """Never end."""
    await anyio.sleep_forever()
    return ""


@before_tool(tools=["pay"])
async def cap(ctx: ToolContext[str], call: CallView) -> ToolDecision | None:
    return ChangeArguments({**call.arguments, "amount": 50})


@before_tool(tools=["pay"])
async def ask(ctx: ToolContext[str], call: CallView) -> ToolDecision | None:
    return RequireApproval(f"May the {ctx.deps} pay?")


@after_model
async def no_links(ctx: TurnContext[str], response: ModelResponse) -> None:
    if "http" in response.text:
        raise Retry("without links")


@input_guardrail(run_in_parallel=False)
async def on_topic(ctx: TurnContext[str], prompt: str) -> Trip | None:
    return Trip("Ask about invoices.") if "weather" in prompt else None
'''
AGENT = (
    "---\nname: Clerk\nhooks: [policy:cap, policy:ask, policy:no_links]\nguardrails: [policy:on_topic]\n---\nBe kind.\n"
)


@pytest.fixture
def chat(cli: "Cli") -> Callable[..., Tty]:
    cli.write("policy.py", CODE)
    cli.write("clerk.md", AGENT)
    return lambda *arguments: Tty(cli, ("chat", *arguments))


@pytest.mark.slow
def test_later_process_finds_hooks_and_dependencies_of_a_paused_turn(
    cli: "Cli", endpoint: "Endpoint", chat: Callable[..., Tty]
) -> None:
    endpoint.calls(("pay", {"to": "Ann", "amount": 70})).says("See http://bank").says("Paid 50.")
    with chat("--tools", "policy.py", "--agents", "clerk.md", "--session", "s1") as terminal:
        enter(terminal, "How is the weather?", "on_topic: Ask about invoices.")
        enter(terminal, "Pay Ann", "approval-1: May the clerk of s1 pay?")
        terminal.until("[y/n/r/e/q] ")
        terminal.types("q\n").until("The last turn is paused.")
        enter(terminal, "/quit", "turnwright chat --session s1")
        assert terminal.done() == 0
    with chat("--continue") as terminal:
        terminal.until("The last turn is paused.")
        enter(terminal, "/why", "Paused: the turn waits for 1 answer.")
        terminal.until("> PAUSED")  # the path has the characters of the prompt
        enter(terminal, "/resume", "[y/n/r/e/q] ")
        terminal.types("y\n").until("Done in 3 steps")
        enter(terminal, "/why", "finished: answered")
        terminal.until("> FINISHED")
        terminal.until("> ")
        terminal.types("\x04")
        assert terminal.done() == 0
    assert (cli.folder / "paid").read_text() == "clerk of s1 paid 50 to Ann\n"
    screen = plain(terminal)
    assert "reviewed: refused: without links; hook no_links refused the reply" in screen
    assert "reviewed: accepted" not in screen, "that is so in every step, and says nothing"


@pytest.mark.slow
def test_ctrl_c_stops_a_call_of_a_continued_session(endpoint: "Endpoint", chat: Callable[..., Tty]) -> None:
    endpoint.says("Hello.").calls(("wait", {})).says("I am here.").calls(("pay", {"to": "Bob", "amount": 1}))
    with chat("--tools", "policy.py", "--agents", "clerk.md", "--session", "s1") as terminal:
        enter(terminal, "hi", "Done in 1 step")
        enter(terminal, "/quit", "turnwright chat --session s1")
        assert terminal.done() == 0
    with chat("--session", "s1") as terminal:
        enter(terminal, "wait", "Running wait")
        terminal.types("\x03").until("Stopped after 1 step")
        enter(terminal, "/why", "aborted: aborted")
        terminal.until("> ABORTED")
        enter(terminal, "there?", "Done in 1 step")
        enter(terminal, "Pay Bob", "[y/n/r/e/q] ")
        terminal.types("\x03").until("The last turn is paused.")
        enter(terminal, "/limits", "tool calls  50        0")
        terminal.until("> ")
        terminal.types("\x04")
        assert terminal.done() == 0
    assert "Traceback" not in terminal.shown
