"""Kill a driver while two tools run, and recover the turn in another process."""
# ruff: noqa: T201 (a program)

import anyio

from turnwright import Agent, Engine, tool
from turnwright.model import ScriptedModel, asks_for
from turnwright.tools import ToolContext
from turnwright_testing.faults import DriverProcess, kill_this_process

CALLS = asks_for(("book", {}), ("charge", {}), ("upload", {}), ("notify", {}))


@tool
async def book() -> str:
    return "booked"


@tool
async def charge() -> str:
    await anyio.sleep_forever()  # killed here: its outcome is unknown
    return "charged"


@tool(idempotent=True)
async def upload(context: ToolContext) -> str:
    if context.attempt == 1:
        kill_this_process()
    return f"uploaded as {context.call_id}"


@tool
async def notify() -> str:
    return "notified"


def engine() -> Engine:
    return Engine(
        model=ScriptedModel(
            lambda request: CALLS if request.first else "Settled; check the charge.",
            repeat=True,
        ),
        tools=[book, charge, upload, notify],
        store="sqlite:///turns.db",
        max_parallel_tools=2,
    )


async def run() -> None:
    async with engine() as driver:
        await driver.run(Agent(name="Clerk"), "Settle order 17.")


async def recover() -> None:
    async with engine() as driver:
        (turn,) = await driver.recover()
        print(turn.outcome, turn.text)


if __name__ == "__main__":
    with DriverProcess(run) as process:
        print("exit code", process.wait(60))
    anyio.run(recover)
