"""Kill this program during three calls, and recover its turn: each tool's crash policy applies."""
# ruff: noqa: T201, ARG001 (a program)

import asyncio
import subprocess
import sys

from turnwright import Agent, Engine, ToolContext, TurnResult, tool
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for

CLERK = Agent(name="Clerk", steps=5)
runs: list[str] = []


async def be_slow(context: ToolContext) -> None:
    """Sleep for an hour in the first attempt, and say when all three calls run."""
    runs.append(context.call_id)
    if context.attempt == 1 and len(runs) == 3:
        print("three calls run", flush=True)
    await asyncio.sleep(3600 if context.attempt == 1 else 0)


@tool
async def reserve(order: int) -> str:
    """Reserve the goods."""
    return f"order {order} is reserved"


@tool(idempotent=True)
async def invoice(order: int, context: ToolContext) -> str:
    """Write the invoice."""
    await be_slow(context)
    return f"invoice {order} is written, at attempt {context.attempt}"


@tool(on_crash="ask")
async def charge(order: int, context: ToolContext) -> str:
    """Charge the customer."""
    await be_slow(context)
    return f"order {order} is charged, at attempt {context.attempt}"


@tool
async def mail(order: int, context: ToolContext) -> str:
    """Write to the customer."""
    await be_slow(context)
    return "sent"


def say(request: ModelRequest) -> ModelResponse | str:
    """Reply by the results so far, in place of a model."""
    results = [message for message in request.messages if message.role == "tool"]
    if not results:
        return asks_for(("reserve", {"order": 17}))
    if len(results) == 1:
        order = {"order": 17}
        return asks_for(("invoice", order), ("charge", order), ("mail", order))
    return "Order 17 is settled. Check whether the customer got a mail."


def open_engine() -> Engine:
    model = ScriptedModel(say, repeat=True)
    tools = [reserve, invoice, charge, mail]
    return Engine(model=model, tools=tools, store="sqlite:///orders.db")


async def run() -> None:
    async with open_engine() as engine:
        await engine.run(CLERK, "Settle order 17.", session="order 17")


async def recover() -> TurnResult:
    async with open_engine() as engine:
        (turn,) = await engine.recover()
        for interrupt in turn.interrupts:
            print("asked:", interrupt.kind, interrupt.tool, *interrupt.choices)
        answers = {interrupt.id: "rerun" for interrupt in turn.interrupts}
        return await engine.resume(turn.id, answers)


if __name__ == "__main__" and sys.argv[1:] == ["run"]:
    asyncio.run(run())
elif __name__ == "__main__":
    command = [sys.executable, __file__, "run"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        print("child:", child.stdout.readline().strip())
        child.kill()
    print("child: exit code", child.returncode)
    turn = asyncio.run(recover())
    for message in turn.messages:
        for part in message.parts:
            if part.type == "tool_result":
                text = part.text.split(";")[0]
                print(f"{part.name}: {part.status}: {text}")
    print(turn.outcome, turn.text)
