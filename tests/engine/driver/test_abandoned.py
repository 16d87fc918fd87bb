"""A tool that ignores its cancellation is abandoned after the grace: it stops neither its turn nor its program."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest

from turnwright import Agent, Engine, Limits, tool
from turnwright.journal.result import TurnResult
from turnwright.message import ToolResultPart
from turnwright.model import ScriptedModel, asks_for
from turnwright.tools import FunctionTool, Tool, ToolContext
from turnwright.transcript.events import ToolProgressEvent, TurnEvent
from turnwright_states import CallStatus, EndReason, Outcome

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")
GRACE = 0.01
LOGGER = "turnwright.tools.tool_work"


class Stubborn:
    """A tool that ignores every cancellation until it is released, and says then that it is done."""

    def __init__(self) -> None:
        self.started, self.released, self.ended = anyio.Event(), anyio.Event(), anyio.Event()
        self.swallowed = 0

    async def go_on(self) -> None:
        """Go on until it is released, in spite of cancellations."""
        try:
            await self._wait()
        finally:
            self.ended.set()

    async def _wait(self) -> None:
        self.started.set()
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.swallowed += 1

    def checked_tool(self, **options: float | None) -> Tool:
        """A tool whose approval check is the stubborn one: it finds in the end that nobody need be asked."""

        async def check() -> bool:
            await self.go_on()
            return False

        async def stubborn() -> str:
            """Do something."""
            return "done"

        return FunctionTool(stubborn, needs_approval=check, **options)  # type: ignore[arg-type]  # the options of the tests

    def tool(self, **options: float | bool | None) -> Tool:
        async def stubborn(context: ToolContext) -> str:
            """Go on whatever happens."""
            try:
                await self._wait()
                context.progress(1.0, message="late")
                context.ask("Is anybody there?")
            finally:
                self.ended.set()
            return "late"

        return FunctionTool(stubborn, **options)  # type: ignore[arg-type]  # the options of the tests

    async def let_go(self) -> None:
        """Let the tool end, and let what comes of that happen."""
        self.released.set()
        with anyio.fail_after(5):
            await self.ended.wait()
        await anyio.wait_all_tasks_blocked()


@tool
async def note() -> str:
    """Note it."""
    return "noted"


def results(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    parts = [part for message in turn.messages for part in message.parts]
    return [(part.status, part.text) for part in parts if isinstance(part, ToolResultPart)]


def staged(
    *tools: Tool, calls: Sequence[str] = ("stubborn",), limits: Limits | None = None, **options: object
) -> tuple[Engine, list[TurnEvent]]:
    """An engine whose model makes these calls at once and then is done, and its turns' events."""
    heard: list[TurnEvent] = []
    model = ScriptedModel(asks_for(*((name, {}) for name in calls)), "Done.")
    engine = Engine(model=model, tools=tools, limits=limits, cancel_grace=GRACE, on_event=[heard.append], **options)  # type: ignore[call-overload]
    return engine, heard


async def abort(engine: Engine, stubborn: Stubborn, **_: object) -> TurnResult:
    """Run a turn, abort it while the tool runs, and wait for its end."""
    async with engine.stream(AGENT, "hi") as events:
        turn_id = (await anext(aiter(events))).turn
        await stubborn.started.wait()
        await engine.abort(turn_id)
        async for _event in events:
            pass
    return await engine.get(turn_id)


async def test_timeout_of_a_tool_ignoring_cancellation_settles_the_call(caplog: pytest.LogCaptureFixture) -> None:
    stubborn = Stubborn()
    engine, heard = staged(stubborn.tool(timeout=0.01))
    with anyio.fail_after(5):
        turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
    ((status, text),) = results(turn)
    assert status is CallStatus.ERROR
    assert text == "stubborn did not finish within 0.01 s, and could not be stopped: it may still be running"
    facts, events = await engine.store.facts(turn.id), list(heard)
    await stubborn.let_go()
    assert (await engine.store.facts(turn.id), heard) == (facts, events)
    warned = [record for record in caplog.records if record.name == LOGGER]
    assert [record.levelno for record in warned] == [logging.WARNING]
    assert (
        warned[0].getMessage().startswith(f"tool stubborn: call call00001 of turn {turn.id} ignored its cancellation")
    )


async def test_abort_ends_the_turn_of_a_tool_ignoring_cancellation(caplog: pytest.LogCaptureFixture) -> None:
    stubborn = Stubborn()
    engine, heard = staged(stubborn.tool(), note, calls=["stubborn", "note"])
    with anyio.fail_after(5):
        turn = await abort(engine, stubborn)
    assert turn.outcome is Outcome.ABORTED
    assert [status for status, _ in results(turn)] == [CallStatus.ABORTED, CallStatus.OK]
    facts = await engine.store.facts(turn.id)
    await stubborn.let_go()
    assert await engine.store.facts(turn.id) == facts
    assert not any(isinstance(event, ToolProgressEvent) for event in heard)
    assert len([record for record in caplog.records if record.name == LOGGER]) == 1


async def test_deadline_ends_the_turn_of_a_tool_ignoring_cancellation() -> None:
    stubborn = Stubborn()
    engine, _ = staged(stubborn.tool(), limits=Limits(seconds=0.05))
    with anyio.fail_after(5):
        turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.CAP_HIT, EndReason.DEADLINE)
    await stubborn.let_go()


async def test_cancelled_task_lets_go_of_the_turn() -> None:
    """As a server does that stops: the engine closes, and another process may take the turn up."""
    stubborn = Stubborn()
    async with staged(stubborn.tool())[0] as engine:
        async with anyio.create_task_group() as group:
            group.start_soon(engine.run, AGENT, "hi")
            await stubborn.started.wait()
            group.cancel_scope.cancel()
        (row,) = await engine.turns(live=True)
        assert not await engine.store.is_driven(row.id)
    await stubborn.let_go()


async def test_abandoned_tool_is_not_cancelled_again() -> None:
    """A tool that continues is left alone: a cancellation in each round of the loop would keep the program busy."""
    stubborn = Stubborn()
    engine, _ = staged(stubborn.tool(timeout=0.01))
    await engine.run(AGENT, "hi")
    swallowed = stubborn.swallowed
    await anyio.wait_all_tasks_blocked()
    assert stubborn.swallowed == swallowed > 0
    await stubborn.let_go()


@pytest.mark.parametrize("options", [{"concurrency": 1}, {"sequential": True}, {}])
async def test_calls_behind_an_abandoned_tool_run(options: dict[str, bool]) -> None:
    """It gives back its place in the batch, and that among the calls of its tool."""
    stubborn = Stubborn()
    engine, _ = staged(
        stubborn.tool(timeout=0.01, **options), note, calls=["stubborn", "stubborn", "note"], max_parallel_tools=1
    )
    with anyio.fail_after(5):
        turn = await engine.run(AGENT, "hi")
    assert [status for status, _ in results(turn)] == [CallStatus.ERROR, CallStatus.ERROR, CallStatus.OK]
    await stubborn.let_go()


async def test_cleanup_within_the_grace_is_waited_for() -> None:
    tidied: list[str] = []

    @tool(timeout=0.01)
    async def careful() -> str:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.01)
            tidied.append("up")
        return "never"

    model = ScriptedModel(asks_for(("careful", {})), "Done.")
    turn = await Engine(model=model, tools=[careful], cancel_grace=60).run(AGENT, "hi")
    assert tidied == ["up"]
    assert [text for _, text in results(turn)] == ["careful did not finish within 0.01 s; part of its work may be done"]


@pytest.mark.parametrize("swallows", [asyncio.CancelledError, BaseException])
@pytest.mark.parametrize("ending", ["time-out", "abort", "cancelled"])
def test_loop_closes_without_waiting_for_an_abandoned_tool(
    ending: str, swallows: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """No message says that a task was destroyed, or that a coroutine ignored its end."""
    starts: list[asyncio.Event] = []

    async def endless() -> str:
        """Never end."""
        starts[0].set()
        while True:
            with suppress(swallows):
                await asyncio.sleep(3600)

    async def main() -> None:
        starts.append(asyncio.Event())
        engine, _ = staged(FunctionTool(endless, timeout=0.01 if ending == "time-out" else None), calls=["endless"])
        running = asyncio.ensure_future(engine.run(AGENT, "hi"))
        await starts[0].wait()
        if ending == "abort":
            (row,) = await engine.turns()
            await engine.abort(row.id)
        if ending != "cancelled":
            await running

    asyncio.run(main())
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


async def test_tool_ending_on_cancellation_is_never_reported_as_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    """A server's event loop continues after the turn: nothing is said of the tool once the grace is over."""
    start = anyio.Event()

    @tool
    async def waits() -> str:
        """Wait for nothing that comes."""
        start.set()
        await anyio.sleep_forever()
        return "never"

    engine, _ = staged(waits, calls=("waits", "waits"))
    async with engine, engine.stream(AGENT, "hi") as events:
        turn_id = (await anext(aiter(events))).turn
        await start.wait()
        await engine.abort(turn_id)
        async for _event in events:
            pass
    over = anyio.Event()
    # A timer of the loop that was set after that of the grace, and is due after it.
    asyncio.get_running_loop().call_later(2 * GRACE, over.set)
    await over.wait()
    assert [record for record in caplog.records if record.name == LOGGER] == []


async def test_an_approval_check_is_abandoned_as_a_tool_is(caplog: pytest.LogCaptureFixture) -> None:
    """Its call is refused, and does not run when the check says at last that nobody need be asked."""
    stubborn = Stubborn()
    engine, heard = staged(stubborn.checked_tool(timeout=0.01), note, calls=["stubborn", "note"])
    with anyio.fail_after(5):
        turn = await engine.run(AGENT, "hi")
    assert turn.outcome is Outcome.FINISHED
    refused = "refused and not run: the approval check of stubborn did not finish within 0.01 s, and could not be"
    refused += " stopped"
    assert results(turn) == [(CallStatus.ERROR, refused), (CallStatus.OK, "noted")]
    facts, events = await engine.store.facts(turn.id), list(heard)
    await stubborn.let_go()
    assert (await engine.store.facts(turn.id), heard) == (facts, events)
    (warned,) = [record for record in caplog.records if record.name == LOGGER]
    assert warned.getMessage().startswith("the approval check of tool stubborn ignored its cancellation")


@pytest.mark.parametrize("stop", ["abort", "deadline"])
async def test_turn_ends_despite_a_stubborn_approval_check(stop: str) -> None:
    stubborn = Stubborn()
    limits = Limits(seconds=0.05) if stop == "deadline" else None
    engine, _ = staged(stubborn.checked_tool(), limits=limits)
    with anyio.fail_after(5):
        turn = await (engine.run(AGENT, "hi") if limits else abort(engine, stubborn))
    assert turn.reason is (EndReason.DEADLINE if limits else EndReason.ABORTED)
    assert "done" not in [text for _, text in results(turn)]
    facts = await engine.store.facts(turn.id)
    await stubborn.let_go()
    assert await engine.store.facts(turn.id) == facts


async def in_a_task_group(stubborn: Stubborn) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(stubborn.go_on)
        group.start_soon(anyio.sleep, 0)


async def in_a_gathering(stubborn: Stubborn) -> None:
    await asyncio.gather(stubborn.go_on(), asyncio.sleep(0))


@pytest.mark.parametrize("work", [in_a_task_group, in_a_gathering])
async def test_tasks_of_an_abandoned_tool_are_not_cancelled_again(
    work: Callable[[Stubborn], Awaitable[None]],
) -> None:
    stubborn = Stubborn()

    @tool(name="stubborn")
    async def several() -> str:
        """Do two things at once."""
        await work(stubborn)
        return "late"

    engine, _ = staged(several)
    with anyio.fail_after(5):
        turn = await abort(engine, stubborn)
    assert [status for status, _ in results(turn)] == [CallStatus.ABORTED]
    with anyio.fail_after(5):
        await anyio.wait_all_tasks_blocked()
    swallowed = stubborn.swallowed
    for _ in range(10):
        await anyio.lowlevel.checkpoint()
    assert stubborn.swallowed == swallowed
    await stubborn.let_go()


def test_loop_closes_without_waiting_for_tasks_of_an_abandoned_tool() -> None:
    async def stubborn() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    @tool(name="stubborn", timeout=0.01)
    async def several() -> str:
        """Do two things at once."""
        async with anyio.create_task_group() as group:
            group.start_soon(stubborn)
            group.start_soon(anyio.sleep, 0)
        return "never"

    async def main() -> Outcome | None:
        return (await staged(several)[0].run(AGENT, "hi")).outcome

    assert asyncio.run(main()) is Outcome.FINISHED
