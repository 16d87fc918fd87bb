"""A tool asks the model to try again, as often as it may; and the result of a tool is the turn's answer."""

import pytest

from turnwright import (
    Agent,
    CallView,
    ConfigError,
    EndReason,
    Engine,
    Hooks,
    Outcome,
    Retry,
    ReturnResult,
    ToolContext,
    tool,
)
from turnwright.journal.result import TurnResult
from turnwright.message import ToolResultPart
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.tools import Tool, ToolResult
from turnwright_states import CallStatus
from turnwright_states.facts import CallSettled

pytestmark = pytest.mark.anyio

ON = "go on without it"
AGENT = Agent(name="Clerk", doom_threshold=None)


def results(turn: TurnResult[object]) -> list[tuple[CallStatus, str]]:
    parts = [part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]
    return [(part.status, part.text) for part in parts]


async def settled(engine: Engine, turn: str) -> list[CallSettled]:
    return [fact for _, fact in await engine.store.facts(turn) if isinstance(fact, CallSettled)]


def picky(retries: int = 1) -> Tool:
    @tool(retries=retries)
    def order(amount: int) -> str:
        if amount > 10:
            raise Retry(f"order at most 10, not {amount}")
        return f"ordered {amount}"

    return order


async def test_the_model_reads_why_and_tries_again() -> None:
    model = ScriptedModel(asks_for(("order", {"amount": 50})), asks_for(("order", {"amount": 5})), "Ordered.")
    async with Engine(model=model, tools=[picky()]) as engine:
        turn = await engine.run(AGENT, "Order.")
        assert turn.outcome is Outcome.FINISHED
        assert results(turn) == [
            (CallStatus.ERROR, "order at most 10, not 50"),
            (CallStatus.OK, "ordered 5"),
        ]
        assert [fact.retry for fact in await settled(engine, turn.id)] == [True, False]


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_tool_without_retries_left_is_not_called_again(retries: int) -> None:
    """The turn continues, and other tools too. The model reads what to do."""

    @tool
    def look() -> str:
        return "seen"

    asks = asks_for(("order", {"amount": 50}))
    model = ScriptedModel(*[asks] * (retries + 1), asks_for(("order", {"amount": 5}), ("look", {})), "Done.")
    async with Engine(model=model, tools=[picky(retries), look]) as engine:
        turn = await engine.run(AGENT, "Order.")
    assert turn.outcome is Outcome.FINISHED
    *refusals, last, look_result = results(turn)
    assert refusals == [(CallStatus.ERROR, "order at most 10, not 50")] * (retries + 1)
    assert look_result == (CallStatus.OK, "seen")
    assert last == (
        CallStatus.ERROR,
        f"order asked for another try more than {retries} times in this turn, and is not called again: {ON}",
    )


async def test_call_without_retries_left_keeps_the_loop_key() -> None:
    """So the third equal round is found, although its call is refused."""

    @tool(retries=0, loop_key=lambda _: "always the same")
    def order(amount: int) -> str:
        raise Retry(f"not {amount}")

    script = [asks_for(("order", {"amount": amount})) for amount in range(3)]
    async with Engine(model=ScriptedModel(*script, "I stop."), tools=[order]) as engine:
        turn = await engine.run(Agent(name="Clerk", doom_compare="calls"), "Order.")
    assert (turn.outcome, turn.steps) == (Outcome.DOOM_LOOP, 3)


async def test_retries_are_counted_over_a_pause_and_another_process() -> None:
    @tool
    def wait(context: ToolContext) -> str:
        return context.ask("Go on?")

    asks = asks_for(("order", {"amount": 50}), ("wait", {}))
    model = ScriptedModel(asks, asks_for(("order", {"amount": 50})), asks_for(("order", {"amount": 5})), "Done.")
    engine = Engine(model=model, tools=[picky(), wait])
    paused = await engine.run(AGENT, "Order.")
    again = Engine(model=model, tools=[picky(), wait], store=engine.store)
    turn = await again.resume(paused.id, {"question-1": "yes"})
    assert [status for status, _ in results(turn)] == [
        *(CallStatus.ERROR, CallStatus.OK, CallStatus.ERROR, CallStatus.ERROR),
    ]
    assert "is not called again" in results(turn)[-1][1]


async def test_a_retry_is_found_in_a_group_and_by_an_async_tool() -> None:
    @tool
    async def order() -> str:
        raise ExceptionGroup("both", [ValueError("x"), Retry("again")])

    model = ScriptedModel(asks_for(("order", {})), "Done.")
    async with Engine(model=model, tools=[order]) as engine:
        turn = await engine.run(AGENT, "Order.")
    assert results(turn) == [(CallStatus.ERROR, "again")]


@pytest.mark.parametrize("retries", [-1, 1.5, True, None])
def test_retries_are_a_whole_number(retries: object) -> None:
    with pytest.raises(ConfigError, match="order: retries must be a whole number, at least 0"):
        picky(retries)  # type: ignore[arg-type]


async def test_a_direct_result_is_the_answer_and_the_model_is_not_called_again() -> None:
    @tool(return_direct=True)
    def report() -> str:
        return "All is well."

    model = ScriptedModel(asks_for(("report", {}), text="I look."))
    async with Engine(model=model, tools=[report]) as engine:
        turn = await engine.run(AGENT, "How is it?")
        assert (turn.outcome, turn.reason, turn.text) == (Outcome.FINISHED, EndReason.ANSWERED, "All is well.")
        assert len(model.requests) == 1
        assert [fact.final for fact in await settled(engine, turn.id)] == [True]


async def test_failing_direct_tool_ends_nothing() -> None:
    @tool(return_direct=True)
    def report() -> str:
        raise ValueError("no report")

    model = ScriptedModel(asks_for(("report", {})), "There is none.")
    async with Engine(model=model, tools=[report]) as engine:
        turn = await engine.run(AGENT, "How is it?")
    assert turn.text == "There is none."


async def test_result_may_declare_the_answer() -> None:
    """Call by call: the tool decides."""

    @tool
    def search(query: str) -> ToolResult:
        return ToolResult(f"found {query}", final=query == "b")

    model = ScriptedModel(asks_for(("search", {"query": "a"})), asks_for(("search", {"query": "b"})))
    async with Engine(model=model, tools=[search]) as engine:
        turn = await engine.run(AGENT, "Where is it?")
        assert (turn.outcome, turn.reason, turn.text) == (Outcome.FINISHED, EndReason.ANSWERED, "found b")
        assert [fact.final for fact in await settled(engine, turn.id)] == [False, True]


async def test_a_long_final_result_is_cut_and_stays_final() -> None:
    @tool
    def search() -> ToolResult:
        return ToolResult("ü" * 100_000, final=True)

    async with Engine(model=ScriptedModel(asks_for(("search", {}))), tools=[search]) as engine:
        turn = await engine.run(AGENT, "Where is it?")
    assert turn.reason is EndReason.ANSWERED


async def test_a_hook_may_give_the_final_result() -> None:
    class Cache(Hooks):
        async def before_tool(self, ctx: ToolContext, call: CallView) -> ReturnResult:
            del ctx, call
            return ReturnResult(ToolResult("known", final=True))

    @tool
    def search() -> str:
        return "found"

    model = ScriptedModel(asks_for(("search", {})))
    async with Engine(model=model, tools=[search], hooks=[Cache()]) as engine:
        turn = await engine.run(AGENT, "Where is it?")
    assert (turn.reason, turn.text) == (EndReason.ANSWERED, "known")


def test_final_of_a_result_must_be_a_bool() -> None:
    with pytest.raises(TypeError, match="final must be True or False, not 'yes'"):
        ToolResult("x", final="yes")  # type: ignore[arg-type]


async def test_calls_beside_a_direct_call_have_results() -> None:
    @tool(return_direct=True)
    def report() -> str:
        return "All is well."

    @tool(needs_approval=True)
    def erase() -> str:
        return "erased"

    model = ScriptedModel(asks_for(("report", {}), ("erase", {})))
    async with Engine(model=model, tools=[report, erase]) as engine:
        paused = await engine.run(AGENT, "How is it?")
        assert paused.paused, "an open question stays open"
        turn = await engine.resume(paused.id, {"approval-1": True})
    assert (turn.text, results(turn)[1]) == ("All is well.", (CallStatus.OK, "erased"))
