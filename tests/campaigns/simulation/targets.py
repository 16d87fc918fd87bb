"""The agents that `python -m tests.campaigns.simulation` simulates: each with another part of the engine.

Their hooks and guardrails decide by their arguments alone, so a decision that is asked for twice is the same.
"""

from collections.abc import Callable
from functools import partial
from typing import Final
from zlib import crc32

import anyio
from pydantic import BaseModel

from turnwright.agent import Agent, Compact
from turnwright.context import TurnContext
from turnwright.driver.dependencies import FinishedCall
from turnwright.driver.hooks.decisions import (
    CallView,
    ChangeArguments,
    Reject,
    RequireApproval,
    ReturnResult,
    ToolDecision,
    Trip,
)
from turnwright.driver.hooks.guardrails import input_guardrail, output_guardrail, tool_input_guardrail
from turnwright.driver.hooks.hooks import after_model, after_tool, before_tool
from turnwright.driver.subagents import agent_tool
from turnwright.errors import Retry
from turnwright.model.protocol import ModelResponse
from turnwright.runtime.engine import Engine
from turnwright.tools import ToolContext, ToolResult, tool
from turnwright_testing.simulation import SimulationTarget


class Invoice(BaseModel):
    """A typed answer."""

    customer: str
    total: int = 0


@tool(idempotent=True)
def look(n: int) -> str:
    """Look something up."""
    return f"{n}"


@tool(read_only=True)
def read(place: str) -> str:
    """Read a text."""
    return place


@tool
def pay(amount: int, note: str = "") -> str:
    """Pay an amount."""
    return f"{amount} {note}"


@tool(needs_approval=True, expires_in=10.0)
def erase(name: str) -> str:
    """Erase something."""
    return name


@tool(sequential=True, on_crash="ask", timeout=5.0)
def sync(part: str = "all") -> str:
    """Synchronize."""
    return part


def _number(*parts: object) -> int:
    """Return a number that depends on nothing but the parts."""
    return crc32(repr(parts).encode())


@before_tool
async def decide(context: ToolContext, call: CallView) -> ToolDecision | None:
    """Reject, change or answer some calls, or ask a person."""
    await anyio.sleep(0.01 * (_number(call.id) % 3))
    options: tuple[ToolDecision | None, ...] = (
        None,
        None,
        Reject("not now"),
        RequireApproval("Really?"),
        ReturnResult("known"),
        ChangeArguments(call.arguments),
    )
    return options[_number(context.turn_id, call.id) % len(options)]


@after_tool
async def shorten(_: ToolContext, call: CallView, result: ToolResult) -> ReturnResult | None:
    """Replace some results."""
    await anyio.sleep(0.01)
    return ReturnResult("short") if _number(call.id) % 3 == 0 and result.text else None


@after_model
async def refuse(context: TurnContext, response: ModelResponse) -> None:
    """Refuse one reply in eight."""
    await anyio.sleep(0.02)
    if _number(context.turn_id, response.text, len(response.calls)) % 8 == 0:
        raise Retry("say it otherwise")


@input_guardrail
async def on_topic(context: TurnContext, prompt: str) -> Trip | None:
    """Refuse one prompt in eight, beside the first model call."""
    await anyio.sleep(0.5)
    return Trip("off topic") if _number(context.turn_id, prompt) % 8 == 0 else None


@output_guardrail
async def no_secrets(context: TurnContext, text: str) -> Trip | None:
    """Refuse one answer in eight."""
    await anyio.sleep(0.1)
    return Trip("a secret") if _number(context.turn_id, text) % 8 == 0 else None


@tool_input_guardrail
async def afford(_: ToolContext, call: CallView) -> Trip | None:
    """Refuse one call in eight."""
    return Trip("too much") if _number(call.tool, call.arguments) % 8 == 0 else None


async def synthesize(batch: tuple[FinishedCall, ...]) -> str | None:
    """End some turns with a text of the app."""
    await anyio.sleep(0.1)
    return "In short." if _number([message.text for message in batch]) % 4 == 0 else None


def positive(_: TurnContext, invoice: Invoice) -> Invoice:
    """Refuse an invoice about nothing. It is not async, so it runs in a thread elsewhere."""
    if invoice.total < 0:
        raise Retry("the total must not be negative")
    return invoice


#: A builder of engines, as targets have it.
ENGINE: Final[Callable[..., Engine[None]]] = Engine
_TOOLS: Final = (look, pay, erase, sync)
_READER: Final = Agent(name="Reader", description="Finds facts.", steps=2)
_WRITER: Final = Agent(name="Writer", description="Writes texts.", steps=3, tools=["look", "pay", "Reader"])
_BILLER: Final[Agent[None, Invoice]] = Agent(name="Biller", output_type=Invoice, output_validators=[positive])
#: Every target, by what it shows.
TARGETS: Final[dict[str, SimulationTarget]] = {
    "plain": SimulationTarget(Agent(name="Plain"), _TOOLS, ENGINE),
    "sub-agents": SimulationTarget(Agent(name="Lead"), (*_TOOLS, agent_tool(_READER), agent_tool(_WRITER)), ENGINE),
    "hooks": SimulationTarget(Agent(name="Hooked"), _TOOLS, partial(ENGINE, hooks=[decide, shorten, refuse])),
    "guardrails": SimulationTarget(
        Agent(name="Guarded"), _TOOLS, partial(ENGINE, guardrails=[on_topic, no_secrets, afford])
    ),
    "typed": SimulationTarget(_BILLER, (look, erase), ENGINE),
    "compaction": SimulationTarget(
        Agent(name="Counter", compaction=Compact(at_tokens=60, keep_steps=1)), _TOOLS, ENGINE
    ),
    "repeatable": SimulationTarget(Agent(name="Reader", repeatable_steps=True), (read, pay), ENGINE),
    "synthesis": SimulationTarget(Agent(name="Brief"), _TOOLS, partial(ENGINE, synthesize=synthesize)),
}
