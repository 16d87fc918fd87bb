"""A tool's own cancellation is its result, and one from outside is never swallowed."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import pytest

from turnwright import Agent, Engine, TurnResult, tool
from turnwright.message import ToolResultPart
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.tools import Tool
from turnwright_states import CallStatus, EndReason, Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Tidier")


class Skipped(BaseException):
    """As test runners have them, so that no code under test catches it."""


@tool
async def leak() -> None:
    """Wait for a canceled task."""
    task = asyncio.ensure_future(anyio.sleep_forever())
    asyncio.get_running_loop().call_soon(task.cancel)
    await task


@tool
async def skip() -> None:
    raise Skipped("not here")


@tool
def skip_in_a_thread() -> None:
    raise Skipped("not here")


def engine_for(*tools: Tool, times: int = 1) -> Engine:
    """An engine whose model asks for each tool, in a step of its own, `times` times at once."""
    lines = [asks_for(*[(tool.name, {})] * times) for tool in tools]
    return Engine(model=ScriptedModel(*lines, "Done."), tools=tools, cancel_grace=0.0)


def results(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    parts = (part for message in turn.messages for part in message.parts)
    return [(part.status, part.text) for part in parts if isinstance(part, ToolResultPart)]


@pytest.mark.parametrize("times", [1, 2])
async def test_no_exception_of_a_tool_leaves_a_turn_unfinished(times: int) -> None:
    turn = await engine_for(leak, skip, skip_in_a_thread, times=times).run(AGENT, "hi")
    assert (turn.outcome, turn.reason, turn.text) == (Outcome.FINISHED, EndReason.ANSWERED, "Done.")
    texts = ["CancelledError", "Skipped: not here", "Skipped: not here"]
    assert results(turn) == [(CallStatus.ERROR, text) for text in texts for _ in range(times)]


class Stubborn:
    """Tools that hang until their first cancellation, and then misbehave."""

    def __init__(self) -> None:
        self.hangs = anyio.Event()

    def tools(self) -> dict[str, Tool]:
        @tool(idempotent=True)
        async def swallow() -> str:
            return await self._hang()

        @tool(idempotent=True)
        async def fail() -> str:
            if self.hangs.is_set():
                return "again"
            raise Skipped(await self._hang())

        @tool(idempotent=True)
        async def make_up() -> str:
            if self.hangs.is_set():
                return "again"
            raise asyncio.CancelledError(await self._hang())

        @tool(idempotent=True)
        async def uncancel() -> str:
            text = await self._hang()
            task = asyncio.current_task()
            while task is not None and task.uncancel():
                pass
            return text

        return {tool.name: tool for tool in (swallow, fail, make_up, uncancel)}

    async def _hang(self) -> str:
        if self.hangs.is_set():
            return "again"
        self.hangs.set()
        with suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        return "kept"


async def by_task(engine: Engine, hangs: anyio.Event) -> None:
    task = asyncio.ensure_future(engine.run(AGENT, "hi"))
    await hangs.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def by_scope(engine: Engine, hangs: anyio.Event) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(engine.run, AGENT, "hi")
        await hangs.wait()
        group.cancel_scope.cancel()


async def by_timeout(engine: Engine, hangs: anyio.Event) -> None:
    limit = asyncio.timeout(None)

    async def run_out() -> None:
        await hangs.wait()
        limit.reschedule(asyncio.get_running_loop().time())

    async def run() -> None:
        async with limit:
            await engine.run(AGENT, "hi")

    running_out = asyncio.ensure_future(run_out())
    with pytest.raises(TimeoutError):
        await run()
    await running_out


@pytest.mark.parametrize("cancelled", [by_task, by_scope, by_timeout])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("name", ["swallow", "fail", "make_up", "uncancel"])
async def test_outer_cancellation_is_not_swallowed_and_the_turn_resumable(
    name: str, times: int, cancelled: Callable[[Engine, anyio.Event], Awaitable[None]]
) -> None:
    """The tool may do anything with it. In the end the journal has one result for each call."""
    stubborn = Stubborn()
    engine = engine_for(stubborn.tools()[name], times=times)
    before = asyncio.all_tasks()
    with anyio.fail_after(60):
        await cancelled(engine, stubborn.hangs)
        assert asyncio.all_tasks() == before
        (row,) = await engine.store.turns(live=True)
        assert row.owner is None
        (turn,) = await engine.recover()
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
    assert len(results(turn)) == times


@pytest.mark.parametrize("name", ["swallow", "fail", "make_up", "uncancel"])
async def test_abort_ends_the_turn_whatever_the_tool_does(name: str) -> None:
    stubborn = Stubborn()
    engine = engine_for(stubborn.tools()[name])
    turns: list[TurnResult] = []

    async def run() -> None:
        turns.append(await engine.run(AGENT, "hi"))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await stubborn.hangs.wait()
            (row,) = await engine.store.turns()
            await engine.abort(row.id)
    (turn,) = turns
    assert (turn.outcome, turn.reason) == (Outcome.ABORTED, EndReason.ABORTED)
    assert len(results(turn)) == 1


async def test_hand_made_timeout_does_not_leak_a_later_abort() -> None:
    """It leaves its task marked as canceled, which a scope would take for a cancellation from outside."""
    stubborn = Stubborn()

    @tool
    async def old() -> str:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        with suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        return "too late"

    engine = engine_for(old, stubborn.tools()["swallow"])
    task = asyncio.ensure_future(engine.run(AGENT, "hi"))
    with anyio.fail_after(60):
        await stubborn.hangs.wait()
        (row,) = await engine.store.turns()
        await engine.abort(row.id)
        turn = await task
    assert turn.outcome is Outcome.ABORTED
    assert results(turn)[0] == (CallStatus.OK, "too late")
