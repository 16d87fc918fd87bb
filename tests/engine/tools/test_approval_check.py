"""A function that says whether a person is asked before a call."""

import functools
import logging
from collections.abc import Callable, Mapping
from datetime import date
from typing import Annotated

import anyio
import pytest
from mcp.server import MCPServer
from pydantic import BaseModel, Field, JsonValue

from turnwright import Agent, Engine, TurnResult, agent_tool
from turnwright.errors import ConfigError
from turnwright.message import ToolResultPart
from turnwright.model import ScriptedModel, asks_for
from turnwright.tools import Ask, Tool, ToolContext, ToolError, ToolInputError, tool
from turnwright.tools.mcp import McpHints, mcp_tools
from turnwright.transcript.events import FactEvent
from turnwright_states import CallStatus, InterruptKind, Outcome
from turnwright_states import facts as f

pytestmark = pytest.mark.anyio

CONTEXT = ToolContext(turn_id="t1", call_id="c1")
ASKS = Ask(InterruptKind.APPROVAL)


def above_100(amount: float) -> bool:
    return amount > 100


async def soon_above_100(*, amount: float) -> bool:
    await anyio.lowlevel.checkpoint()
    return amount > 100


def above(limit: float, amount: float) -> bool:
    return amount > limit


def many_words(amount: float, **arguments: object) -> bool:
    return amount > 100 and arguments == {"to": "Ann"}


class Office:
    """Its methods are checks, and so is it."""

    def approves(self, amount: float, to: str) -> bool:
        return amount > 100 and to == "Ann"

    async def __call__(self, amount: float) -> bool:
        return amount > 100

    @staticmethod
    def asks_of(to: str, amount: float = 0.0, currency: str = "EUR") -> bool:
        return (to, currency) == ("Ann", "EUR") and amount > 100


@pytest.mark.parametrize(
    "check",
    [
        lambda amount: amount > 100,
        lambda amount, to, limit=100: amount > limit and to == "Ann",
        lambda *_, **arguments: arguments == {"amount": 500.0, "to": "Ann"},
        lambda amount, context: amount > 100 and context is CONTEXT,
        above_100,
        soon_above_100,
        functools.partial(above, 100),
        functools.partial(above, limit=100),
        functools.partial(soon_above_100),
        functools.partial(many_words),
        many_words,
        Office().approves,
        Office(),
        Office.asks_of,
    ],
)
async def test_check_is_called_with_the_named_arguments(check: Callable[..., bool]) -> None:
    @tool(needs_approval=check)
    async def pay(amount: float, context: ToolContext, to: str = "Ann") -> None: ...

    assert await pay.asks_first({"amount": "500"}, CONTEXT) == ASKS
    assert await pay.asks_first({"amount": 5}, CONTEXT) is None


class Order(BaseModel):
    """An argument that is a model."""

    day: date
    items: list[str] = []


async def test_check_gets_the_values_of_the_function() -> None:
    values: list[object] = []

    def check(order: Order, extra: list[str], rest: int, when: date) -> bool:
        values.extend((order, extra, rest, when))
        return False

    @tool(needs_approval=check)
    async def buy(
        order: Order,
        rest: Annotated[int, Field(ge=0)] = 3,
        extra: list[str] = ["a"],  # noqa: B006 (that is what is tested)
        when: date = Field(default=date(2026, 1, 1)),  # noqa: B008 (that is what is tested)
    ) -> None: ...

    assert await buy.asks_first({"order": {"day": "2026-11-23"}}, CONTEXT) is None
    assert values == [Order(day=date(2026, 11, 23)), ["a"], 3, date(2026, 1, 1)]


async def test_check_changing_arguments_has_no_effect() -> None:
    values: list[object] = []

    def check(items: list[str], extra: list[str]) -> bool:
        items.append("more")
        extra.append("more")
        return False

    @tool(needs_approval=check)
    async def buy(items: list[str], extra: list[str] = ["a"]) -> None:  # noqa: B006 (that is what is tested)
        values.append((items, extra))

    turn = await run(buy, asks_for(("buy", {"items": ["one"]})))
    assert (turn.outcome, values) == (Outcome.FINISHED, [(["one"], ["a"])])
    assert turn.messages[1].calls[0].arguments == {"items": ["one"]}


async def test_check_of_a_custom_tool_gets_a_copy() -> None:
    class Buy(Tool):
        async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
            return values, context

    schema: dict[str, JsonValue] = {"type": "object", "properties": {"items": {}}, "required": ["items"]}
    buy = Buy(
        name="buy", description="", parameters=schema, needs_approval=lambda items: items.append("more") is not None
    )
    arguments: dict[str, JsonValue] = {"items": ["one"]}
    assert await buy.asks_first(arguments, CONTEXT) is None
    assert arguments == {"items": ["one"]}


async def test_argument_called_context_is_an_ordinary_argument() -> None:
    @tool(needs_approval=lambda context: context == "of war")
    async def act(context: str) -> None: ...

    assert await act.asks_first({"context": "of war"}, CONTEXT) == ASKS


async def test_annotated_parameter_gets_the_context_under_any_name() -> None:
    def check(call: ToolContext, to: str) -> bool:
        return (call.turn_id, to) == ("t1", "Ann")

    @tool(needs_approval=check)
    async def pay(to: str) -> None: ...

    assert await pay.asks_first({"to": "Ann"}, CONTEXT) == ASKS


async def test_unfit_arguments_are_the_models_mistake_and_no_failed_check(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool(needs_approval=above_100)
    async def pay(amount: float) -> None: ...

    with pytest.raises(ToolInputError, match="amount"):
        await pay.asks_first({"amount": "much"}, CONTEXT)
    assert caplog.messages == []


def positional(amount: float, /) -> bool:
    return amount > 100


def unresolved(amount: "Nowhere") -> bool:  # type: ignore[name-defined]  # noqa: F821 (that is what is tested)
    return bool(amount)


async def test_a_check_may_take_the_context_and_all_arguments_as_json() -> None:
    checked: list[object] = []

    def risky(ctx: ToolContext[str], arguments: Mapping[str, JsonValue]) -> bool:
        checked.append((ctx.deps, arguments))
        return ctx.deps == "guest"

    @tool(needs_approval=risky)
    def book(day: date, nights: int = 1) -> None: ...

    for user, answer in (("guest", ASKS), ("admin", None)):
        context = ToolContext(turn_id="t1", call_id="c1", deps=user)
        assert await book.asks_first({"day": "2026-01-02"}, context) == answer
    assert checked == [(user, {"day": "2026-01-02", "nights": 1}) for user in ("guest", "admin")]


async def test_argument_of_the_tool_keeps_the_name_in_the_check() -> None:
    @tool(needs_approval=lambda ctx, arguments: (ctx, arguments) == ("north", ["a"]))
    def act(ctx: str, arguments: list[str]) -> None: ...

    assert await act.asks_first({"ctx": "north", "arguments": ["a"]}, CONTEXT) == ASKS


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (
            lambda sum_: sum_ > 100,
            "<lambda>: parameter 'sum_' is not an argument of the tool (its arguments: amount, to): they are passed",
        ),
        (functools.partial(above, amount=3), "above: parameter 'limit' is not an argument of the tool"),
        (positional, "positional: parameter 'amount' is positional-only: remove the '/'"),
        (unresolved, "unresolved: its annotations cannot be resolved (name 'Nowhere' is not defined)"),
        (dict.fromkeys, "fromkeys: parameter 'iterable' is positional-only"),
        (iter, "iter: its signature cannot be read"),
    ],
)
def test_uncallable_check_is_refused_at_the_definition(check: Callable[..., bool], message: str) -> None:
    with pytest.raises(ConfigError) as caught:

        @tool(needs_approval=check)
        def pay(amount: float, to: str = "Ann") -> None: ...

    assert str(caught.value).startswith("tool pay: needs_approval: ")
    assert message in str(caught.value)


def test_error_tells_the_correct_code() -> None:
    with pytest.raises(ConfigError, match=r"they are passed by name, as in needs_approval=lambda amount: \.\.\.$"):

        @tool(needs_approval=lambda price: price > 100)
        def pay(amount: float) -> None: ...


def test_a_generator_is_no_check() -> None:
    def check(amount: float) -> object:
        yield amount > 100

    with pytest.raises(ConfigError, match=r"tool pay: needs_approval: .*check is a generator"):

        @tool(needs_approval=check)  # type: ignore[arg-type]
        def pay(amount: float) -> None: ...


def test_error_for_a_tool_without_arguments_tells_the_correct_code() -> None:
    with pytest.raises(ConfigError, match="parameter 'x' is not an argument of the tool, which takes none"):

        @tool(needs_approval=lambda x: x > 1)
        def act(context: ToolContext) -> None: ...


def test_a_sub_agent_is_checked_as_any_tool() -> None:
    worker = Agent(name="worker", description="Works.")
    agent_tool(worker, needs_approval=lambda prompt: "delete" in prompt)
    with pytest.raises(ConfigError, match=r"tool worker: needs_approval: .*parameter 'task' is not an argument"):
        agent_tool(worker, needs_approval=lambda task: "delete" in task)


async def test_check_of_a_server_tool_follows_the_schema() -> None:
    server = MCPServer("shop")

    @server.tool()
    def pay(amount: float, to: str = "Ann") -> str:
        return f"{amount} to {to}"

    def policy(_: McpHints) -> Callable[..., bool]:
        return lambda amount, to=None: amount > 100 and to is None

    async with mcp_tools({"s": server}, approve=policy) as (paying,):
        assert await paying.asks_first({"amount": 500}, CONTEXT) == ASKS
        assert await paying.asks_first({"amount": 500, "to": "Ben"}, CONTEXT) is None
    with pytest.raises(ConfigError, match=r"tool s__pay: needs_approval: .*'to' is optional in a call: .* to=None"):
        async with mcp_tools({"s": server}, approve=lambda _: lambda amount, to: amount > 100 and to == "Ann"):
            pass


async def run(tool: Tool, *lines: object) -> TurnResult:
    async with Engine(model=ScriptedModel(*lines, "Done."), tools=[tool]) as engine:  # type: ignore[arg-type]
        return await engine.run(Agent(name="Payer"), "Pay.")


def nothing(amount: float) -> None:
    """Forgets its return."""


def leaves(amount: float) -> bool:
    raise SystemExit(amount)


def closes(amount: float) -> bool:
    raise GeneratorExit(amount)


async def cancels(amount: float) -> bool:
    raise anyio.get_cancelled_exc_class()(amount)


@pytest.mark.parametrize(
    ("check", "why"),
    [
        (lambda amount: amount / 0 > 1, "raised ZeroDivisionError: "),
        (lambda amount: amount.typo, "raised AttributeError: 'float' object has no attribute 'typo'"),
        (nothing, "raised TypeError: nothing returned None: return True (ask a person) or False"),
        (lambda amount: f"{amount} is much", "returned '5.0 is much': return True"),
        (lambda amount: amount or True, "returned 5.0: return True"),
        (leaves, "raised SystemExit: 5.0"),
        (closes, "raised GeneratorExit: 5.0"),
        (cancels, "Cancel"),
    ],
)
async def test_failing_check_refuses_the_call_visibly(check: Callable[..., bool], why: str) -> None:
    ran: list[float] = []

    @tool(needs_approval=check)
    async def pay(amount: float) -> None:
        ran.append(amount)

    model = ScriptedModel(asks_for(("pay", {"amount": 5})), "Done.")
    async with Engine(model=model, tools=[pay]) as engine, engine.stream(Agent(name="Payer"), "Pay.") as events:
        observed = [event async for event in events]
        turn = await engine.get(observed[0].turn)
    (settled,) = [
        event.fact for event in observed if isinstance(event, FactEvent) and isinstance(event.fact, f.CallSettled)
    ]
    (recorded,) = [part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]
    (heard,) = [part for part in model.requests[-1].messages[-1].parts if isinstance(part, ToolResultPart)]
    assert (turn.text, turn.tool_calls, ran) == ("Done.", 0, [])
    assert (recorded.status, recorded.text) == (settled.status, settled.result) == (heard.status, heard.text)
    assert recorded.status is CallStatus.ERROR
    assert why in recorded.text


async def test_failing_check_is_logged_with_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    @tool(needs_approval=lambda amount: amount.typo)
    async def pay(amount: float) -> None: ...

    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(ToolError, match=r"^refused and not run: .* of pay"),
    ):
        await pay.asks_first({"amount": 5}, CONTEXT)
    (record,) = caplog.records
    assert record.getMessage() == "the approval check of tool pay raised; its call is refused"
    assert record.exc_info is not None


async def test_a_check_may_take_as_long_as_a_call() -> None:
    async def check() -> bool:
        await anyio.sleep_forever()
        return False

    @tool(needs_approval=check, timeout=0.01)
    async def pay(amount: float) -> None: ...

    with pytest.raises(ToolError, match=r"the approval check of pay did not finish within 0.01 s"):
        await pay.asks_first({"amount": 5}, CONTEXT)


async def test_an_abort_ends_a_check_and_the_call_does_not_start() -> None:
    asking = anyio.Event()

    async def check() -> bool:
        asking.set()
        await anyio.sleep_forever()
        return False

    @tool(needs_approval=check)
    async def pay() -> None:
        raise AssertionError("it ran")

    model = ScriptedModel(asks_for(("pay", {})))
    async with Engine(model=model, tools=[pay], cancel_grace=0) as engine:
        turns: list[TurnResult] = []

        async def drive() -> None:
            turns.append(await engine.run(Agent(name="Payer"), "Pay."))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(drive)
                await asking.wait()
                (row,) = await engine.store.turns()
                await engine.abort(row.id)
    (turn,) = turns
    assert (turn.outcome, turn.tool_calls) == (Outcome.ABORTED, 0)


async def test_granted_call_is_not_checked_again() -> None:
    checked: list[float] = []

    def check(amount: float) -> bool:
        checked.append(amount)
        return True

    @tool(needs_approval=check)
    async def pay(amount: float) -> str:
        return f"paid {amount}"

    model = ScriptedModel(asks_for(("pay", {"amount": 5})), "Done.")
    async with Engine(model=model, tools=[pay]) as engine:
        paused = await engine.run(Agent(name="Payer"), "Pay.")
        turn = await engine.resume(paused.id, {paused.interrupts[0].id: True})
    assert (turn.text, turn.tool_calls, checked) == ("Done.", 1, [5.0])


async def test_check_may_ask_a_question() -> None:
    @tool(needs_approval=lambda context: context.ask("Sure?") != "yes")
    async def pay() -> str:
        return "paid"

    async with Engine(model=ScriptedModel(asks_for(("pay", {})), "Done."), tools=[pay]) as engine:
        paused = await engine.run(Agent(name="Payer"), "Pay.")
        turn = await engine.resume(paused.id, {paused.interrupts[0].id: "yes"})
    assert (paused.interrupts[0].question, turn.tool_calls) == ("Sure?", 1)
