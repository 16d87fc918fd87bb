"""Any exception of a tool or a hook is settled: the turn continues or ends, and neither hangs nor ends the program."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Annotated

import anyio
import anyio.lowlevel
import pytest
from pydantic import BeforeValidator, JsonValue

from turnwright import Agent, CannotRunError, Engine, LeaseLostError, StoreError, tool
from turnwright.journal.result import TurnResult
from turnwright.message import ToolResultPart
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for
from turnwright.model.protocol import Delta, TextDelta
from turnwright.model.retry import Backoff
from turnwright.tools import Ask, Tool, ToolContext, ToolResult
from turnwright.tools.errors import describe
from turnwright_states import CallStatus, Outcome

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")


class OwnError(BaseException):
    """An exception that is no `Exception` may be of any class."""


RAISED: list[Callable[[], BaseException]] = [
    ValueError,
    StopIteration,
    StopAsyncIteration,
    GeneratorExit,
    SystemExit,
    asyncio.CancelledError,
    OwnError,
    lambda: BaseExceptionGroup("of a task group", [GeneratorExit(), ValueError("inner")]),
    lambda: BaseExceptionGroup("of a task group", [asyncio.CancelledError(), OwnError()]),
]
#: Ctrl-C is a person's, who wants all of it to stop.
CTRL_C: list[Callable[[], BaseException]] = [
    KeyboardInterrupt,
    lambda: BaseExceptionGroup("of a task group", [KeyboardInterrupt(), ValueError("inner")]),
]
any_error = pytest.mark.parametrize("make_error", RAISED, ids=lambda make_error: type(make_error()).__name__)


def raising(make_error: Callable[[], BaseException], kind: str) -> Tool:
    """A tool that raises what is made."""

    def at_once() -> str:
        """Raise it."""
        raise make_error()

    async def soon() -> str:
        """Raise it."""
        await anyio.lowlevel.checkpoint()
        raise make_error()

    if kind == "thread":
        return tool(name="fails")(at_once)
    return tool(name="fails", timeout=30 if kind == "timed" else None)(soon)


async def run(*tools: Tool, **options: object) -> TurnResult:
    """Run a turn whose model calls the first tool once, and then is done."""
    model = ScriptedModel(asks_for((tools[0].name, {})), "Done.")
    engine: Engine = Engine(model=model, tools=tools, **options)  # type: ignore[call-overload]  # those of the tests
    with anyio.fail_after(10):
        return await engine.run(AGENT, "hi")


@tool
async def note() -> str:
    """Note it."""
    return "noted"


@any_error
@pytest.mark.parametrize("kind", ["thread", "async", "timed"])
async def test_exception_of_a_tool_is_the_result_of_the_call(
    make_error: Callable[[], BaseException], kind: str
) -> None:
    turn = await run(raising(make_error, kind))
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
    parts = [part for message in turn.messages for part in message.parts]
    assert [part.status for part in parts if isinstance(part, ToolResultPart)] == [CallStatus.ERROR]


@pytest.mark.parametrize("make_error", RAISED[3:], ids=lambda make_error: type(make_error()).__name__)
async def test_exception_of_a_custom_run_neither_hangs_nor_exits(
    make_error: Callable[[], BaseException],
) -> None:
    """But for an `Exception`, which is a bug like one of the engine, and ends the turn."""

    class Own(Tool):
        async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
            del arguments, context
            raise make_error()

        async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
            raise AssertionError(values, context)

    turn = await run(Own(name="own", description="Its own.", parameters={"type": "object"}))
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")


@pytest.mark.parametrize("make_error", RAISED, ids=lambda make_error: type(make_error()).__name__)
async def test_exception_of_a_tools_thread_spares_sibling_calls(
    make_error: Callable[[], BaseException],
) -> None:
    """A future that raises `GeneratorExit` closes the frames of its task, and none of them can settle the call."""

    def fails() -> None:
        raise make_error()

    @tool(name="fails")
    async def threaded() -> None:
        """Do it in a thread."""
        await anyio.to_thread.run_sync(fails)

    model = ScriptedModel(asks_for(("fails", {}), ("note", {})), "Done.")
    with anyio.fail_after(10):
        turn = await Engine(model=model, tools=[threaded, note]).run(AGENT, "hi")
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
    parts = [part for message in turn.messages for part in message.parts]
    assert [part.status for part in parts if isinstance(part, ToolResultPart)] == [CallStatus.ERROR, CallStatus.OK]


@any_error
async def test_exception_of_an_argument_check_refuses_the_call(make_error: Callable[[], BaseException]) -> None:
    def checks(_: object) -> object:
        raise make_error()

    @tool
    async def pay(to: Annotated[str, BeforeValidator(checks)]) -> str:
        """Pay somebody."""
        return to

    model = ScriptedModel(asks_for(("pay", {"to": "her"})), "Done.")
    turn = await Engine(model=model, tools=[pay]).run(AGENT, "hi")
    assert (turn.outcome, turn.text, turn.tool_calls) == (Outcome.FINISHED, "Done.", 0)


class Parsing(Tool):
    """A tool with a parse of its own, which raises what is made."""

    def __init__(self, make_error: Callable[[], BaseException]) -> None:
        super().__init__(name="own", description="Its own.", parameters={"type": "object"})
        self.make_error = make_error

    def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        del arguments
        raise self.make_error()

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
        raise AssertionError(values, context)


@pytest.mark.parametrize("make_error", RAISED[3:], ids=lambda make_error: type(make_error()).__name__)
async def test_exception_of_a_custom_parse_refuses_the_call(make_error: Callable[[], BaseException]) -> None:
    turn = await run(Parsing(make_error))
    assert (turn.outcome, turn.text, turn.tool_calls) == (Outcome.FINISHED, "Done.", 0)
    parts = [part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert [describe(make_error()) in part.text for part in parts] == [True]


async def test_bug_in_a_custom_parse_ends_the_turn() -> None:
    turn = await run(Parsing(partial(LookupError, "boom")))
    assert (turn.outcome, turn.error) == (Outcome.FAILED, "LookupError: boom")


@any_error
@pytest.mark.parametrize("hook", ["history_processor", "synthesize"])
async def test_exception_of_a_hook_ends_the_turn(make_error: Callable[[], BaseException], hook: str) -> None:
    async def fails(_: object) -> None:
        await anyio.lowlevel.checkpoint()
        raise make_error()

    turn = await run(note, **{hook: fails})
    assert turn.outcome is Outcome.FAILED
    assert turn.error


@any_error
async def test_exception_of_a_model_ends_the_turn(make_error: Callable[[], BaseException]) -> None:
    """A cancellation that nobody asked for, as from a client's own scopes, is tried again."""

    class Fails(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
            del request
            await anyio.lowlevel.checkpoint()
            yield TextDelta("So far")
            raise make_error()

    turn = await Engine(model=Fails(), backoff=Backoff(initial=0)).run(Agent(name="Tidier", max_retries=1), "Go.")
    assert turn.outcome is Outcome.FAILED
    assert turn.error


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_exception_of_a_hook_under_trio_ends_the_turn() -> None:
    async def fails(_: object) -> None:
        raise OwnError("boom")

    turn = await run(note, history_processor=fails)
    assert (turn.outcome, turn.error) == (Outcome.FAILED, "history_processor 'fails' raised OwnError: boom")


@any_error
@pytest.mark.parametrize("kind", ["thread", "async"])
async def test_exception_of_an_output_validator_ends_the_turn_and_is_named(
    make_error: Callable[[], BaseException], kind: str
) -> None:
    def at_once(*_: object) -> int:
        raise make_error()

    async def soon(*_: object) -> int:
        await anyio.lowlevel.checkpoint()
        raise make_error()

    validators = [at_once if kind == "thread" else soon]
    agent: Agent[object, int] = Agent(name="Counter", output_type=int, output_validators=validators)
    turn = await Engine(model=ScriptedModel(asks_for(("final_result", {"response": 3})))).run(agent, "hi")
    assert turn.outcome is Outcome.FAILED
    assert turn.error.startswith("agent 'Counter': output validator '")


@pytest.mark.parametrize("make_error", [StoreError, partial(LeaseLostError, "t", 1), partial(CannotRunError, "no")])
@pytest.mark.parametrize("hook", ["history_processor", "synthesize"])
async def test_engine_error_raised_by_a_hook_ends_the_turn(make_error: Callable[[], Exception], hook: str) -> None:
    """From the driver itself, each of them would release the turn."""

    async def fails(_: object) -> None:
        raise make_error()

    turn = await run(note, **{hook: fails})
    assert (turn.outcome, turn.error) == (Outcome.FAILED, f"{hook} 'fails' raised {describe(make_error())}")


@any_error
async def test_exception_of_an_approval_check_blocks_the_call(make_error: Callable[[], BaseException]) -> None:
    ran: list[str] = []

    def fails() -> bool:
        raise make_error()

    @tool(needs_approval=fails)
    async def pay() -> str:
        """Pay."""
        ran.append("paid")
        return "paid"

    turn = await run(pay)
    assert ran == []
    assert turn.outcome is not Outcome.FAILED


@pytest.mark.parametrize("make_error", RAISED[3:], ids=lambda make_error: type(make_error()).__name__)
async def test_exception_of_a_custom_question_is_the_result_of_the_call(
    make_error: Callable[[], BaseException],
) -> None:
    """But for an `Exception`, as above."""

    class Own(Tool):
        def asks(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> Ask | None:
            del arguments, context
            raise make_error()

        async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
            raise AssertionError(values, context)

    turn = await run(Own(name="own", description="Its own.", parameters={"type": "object"}))
    assert (turn.outcome, turn.tool_calls) == (Outcome.FINISHED, 0)
    parts = [part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert [(part.status, part.text) for part in parts] == [(CallStatus.ERROR, describe(make_error()))]


@any_error
async def test_exception_of_an_observer_or_loop_key_changes_nothing(make_error: Callable[[], BaseException]) -> None:
    def fails(_: object) -> str:
        raise make_error()

    @tool(loop_key=fails)
    async def look() -> str:
        """Look."""
        return "seen"

    turn = await run(look, on_event=[fails])
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")


@pytest.mark.parametrize("make_error", CTRL_C, ids=["alone", "in a group"])
@pytest.mark.parametrize("where", ["thread", "async", "parse", "history_processor", "synthesize", "on_event"])
async def test_ctrl_c_is_raised_unchanged(make_error: Callable[[], BaseException], where: str) -> None:
    async def hook(_: object) -> None:
        raise make_error()

    def observer(_: object) -> None:
        raise make_error()

    in_a_tool = where in {"thread", "async", "parse"}
    tools = [Parsing(make_error) if where == "parse" else raising(make_error, where)] if in_a_tool else [note]
    options = {} if in_a_tool else {where: [observer] if where == "on_event" else hook}
    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)):
        await run(*tools, **options)


@pytest.mark.parametrize("hook", ["history_processor", "synthesize"])
@pytest.mark.parametrize("native", [True, False])
async def test_cancelled_hook_releases_the_turn(hook: str, native: bool) -> None:
    """Its turn is released, as always, and can be resumed."""
    start = anyio.Event()

    async def waits(_: object) -> None:
        start.set()
        await anyio.sleep_forever()

    model = ScriptedModel(asks_for(("note", {})), "Done.")
    engine = Engine(model=model, tools=[note], **{hook: waits})  # type: ignore[call-overload]  # one of the two
    if native:
        running = asyncio.ensure_future(engine.run(AGENT, "hi"))
        await start.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    else:
        async with anyio.create_task_group() as group:
            group.start_soon(engine.run, AGENT, "hi")
            await start.wait()
            group.cancel_scope.cancel()
    (row,) = await engine.turns()
    assert row.status.outcome is None
    assert not await engine.store.is_driven(row.id)
