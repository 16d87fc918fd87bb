"""The view of type checkers on agents with all that they can have. Nothing runs this: mypy and pyright read it."""
# ruff: noqa: ARG001, ARG002, T201 (the signatures are what is checked)

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Literal, assert_type

from pydantic import BaseModel, JsonValue

from turnwright import (
    Agent,
    CallView,
    ChangeArguments,
    ChangeRequest,
    Compact,
    Engine,
    Hooks,
    Message,
    ModelSettings,
    Reject,
    RequireApproval,
    Retry,
    SyncTurnStream,
    ToolContext,
    ToolDecision,
    Trip,
    TurnContext,
    TurnHandle,
    TurnInfo,
    TurnResult,
    TurnStream,
    after_model,
    approve,
    before_model,
    before_tool,
    input_guardrail,
    output_guardrail,
    reject,
    tool,
)
from turnwright.model import ModelRequest, ModelResponse
from turnwright.transcript.events import (
    FactEvent,
    StreamEvent,
    TextDeltaEvent,
    ToolCallDeltaEvent,
    TurnEndedEvent,
    TurnPausedEvent,
)


class Db:
    async def total(self, customer: str) -> float:
        return 0.0

    async def close(self) -> None:
        return None


@dataclass
class Deps:
    db: Db
    user: str


class Invoice(BaseModel):
    customer: str
    total: float


class Refusal(BaseModel):
    why: str


async def make_deps(info: TurnInfo) -> Deps:
    return Deps(Db(), str(info.metadata.get("user", "")))


async def make_deps_and_close(info: TurnInfo) -> AsyncIterator[Deps]:
    db = Db()
    yield Deps(db, "x")
    await db.close()


@tool
async def total(ctx: ToolContext[Deps], customer: str) -> float:
    return await ctx.deps.db.total(customer)


@tool
def add(a: int, b: int) -> int:
    return a + b


@tool(retries=2, return_direct=True)
async def lookup(ctx: ToolContext[Deps], customer: str) -> str:
    if not customer:
        raise Retry("name a customer")
    return ctx.deps.user


def risky(ctx: ToolContext[Deps], arguments: Mapping[str, JsonValue]) -> bool:
    return ctx.deps.user != "admin" and bool(arguments)


@tool(needs_approval=risky)
async def refund(ctx: ToolContext[Deps], customer: str, amount: float) -> str:
    return ctx.idempotency_key


def rules(ctx: TurnContext[Deps]) -> str:
    return f"You invoice for {ctx.deps.user}; step {ctx.step}."


@before_tool(tools=["refund"])
async def cap(ctx: ToolContext[Deps], call: CallView) -> ToolDecision | None:
    if ctx.deps.user == "guest":
        return Reject("guests get no refunds")
    if call.arguments.get("amount") == 0:
        return RequireApproval("Refund nothing?")
    return ChangeArguments({**call.arguments, "amount": 50})


@before_model
def remind(ctx: TurnContext[object], request: ModelRequest) -> ChangeRequest | None:
    return ChangeRequest(append=("Be brief.",), settings=ModelSettings(temperature=0))


@after_model
def no_urls(ctx: TurnContext[Deps], response: ModelResponse) -> None:
    if "http" in response.text:
        raise Retry("answer without links")


class Audit(Hooks[Deps]):
    async def on_start(self, ctx: TurnContext[Deps]) -> None:
        print(ctx.deps.user)


@input_guardrail(run_in_parallel=False)
async def on_topic(ctx: TurnContext[Deps], prompt: str) -> Trip | None:
    return Trip("off topic", {"score": 0.9}) if "weather" in prompt else None


@output_guardrail
async def no_secrets(ctx: TurnContext[object], text: str) -> Trip | None:
    return None


def positive(ctx: TurnContext[Deps], invoice: Invoice) -> Invoice:
    if invoice.total < 0:
        raise Retry("total is negative")
    return invoice


invoicer = Agent(
    name="invoicer",
    output_type=Invoice,
    output_validators=[positive],
    instructions=rules,
    hooks=[cap, Audit()],
    guardrails=[on_topic, no_secrets],
    model_settings=ModelSettings(thinking="low"),
    compaction=Compact(at_tokens=100_000),
    steps=8,
)
assert_type(invoicer, Agent[Deps, Invoice])
plain = Agent(name="plain")
assert_type(plain, Agent[object, str])
either = Agent(name="either", output_type=Invoice | Refusal)
assert_type(either, Agent[object, Invoice | Refusal])
many = Agent(name="many", output_type=list[Invoice])
assert_type(many, Agent[object, list[Invoice]])
mood = Agent(name="mood", output_type=Literal["good", "bad"])
union = Agent(name="union", output_type=Invoice | Refusal)

engine = Engine(deps=make_deps, tools=[total, add, lookup, refund], hooks=[remind, no_urls], agents=[invoicer, plain])
assert_type(engine, Engine[Deps])
closing = Engine(deps=make_deps_and_close, tools=[total])
assert_type(closing, Engine[Deps])
per_run = Engine(deps_type=Deps, tools=[total])
assert_type(per_run, Engine[Deps])
bare = Engine(tools=[add])
assert_type(bare, Engine[None])


def budgets_are_numbers_limits_or_mappings() -> None:
    Agent(name="A", budget={"tokens": 10})
    Agent(name="A", budget={"tool_calls": None, "cost": 0.5, "seconds": 60})
    Agent(name="A", budget=10, output_type=Invoice)
    Agent(name="A", budget={"tokens": 10}, output_type=Invoice)


async def events_are_narrowed_by_their_type() -> None:
    async with engine.stream(invoicer, "x", subagents=True) as stream:
        async for event in stream:
            assert_type(event, StreamEvent)
            if event.type == "text_delta":
                assert_type(event, TextDeltaEvent)
                assert_type(event.text, str)
            elif event.type == "turn_ended":
                assert_type(event, TurnEndedEvent)
            elif event.type == "call_started":
                assert_type(event, FactEvent)
            elif event.type == "tool_progress":
                assert_type(event.progress, float)
    async for event in engine.events("t", subagents=True):
        match event.type:
            case "reasoning_delta":
                assert_type(event.text, str)
            case _:
                pass


async def streams_have_the_types_of_their_agents() -> None:
    async with engine.stream(invoicer, "x") as stream:
        assert_type(stream, TurnStream[Invoice])
        async for part in stream.text():
            assert_type(part, str)
        assert_type(stream.result, TurnResult[Invoice])
        assert_type(stream.result.require_output(), Invoice)
    async with engine.stream_resume("t", agent=invoicer) as stream:
        assert_type(stream.result.output, Invoice | None)
    async with engine.stream_resume("t") as untyped:
        assert_type(untyped.result, TurnResult[object])
    with engine.stream_sync(invoicer, "x") as in_steps:
        assert_type(in_steps, SyncTurnStream[Invoice])
        for event in in_steps:
            if event.type == "paused":
                assert_type(event, TurnPausedEvent)
        assert_type(in_steps.result.output, Invoice | None)
    with engine.stream_resume_sync("t", agent=invoicer) as in_steps:
        assert_type(list(in_steps.text()), list[str])
    assert_type(await engine.get("t"), TurnResult[object])
    assert_type(await engine.get("t", agent=invoicer), TurnResult[Invoice])
    assert_type(engine.get_sync("t", agent=invoicer).output, Invoice | None)


async def turns_have_the_types_of_their_agents() -> None:
    result = await engine.run(invoicer, "Invoice ACME", session="s", metadata={"user": "ann"})
    assert_type(result, TurnResult[Invoice])
    assert_type(result.output, Invoice | None)
    assert_type(result.require_output(), Invoice)
    assert_type((await engine.run(plain, "hi")).output, str | None)
    assert_type((await engine.run(either, "hi")).require_output(), Invoice | Refusal)
    assert_type((await engine.run(mood, "hi")).require_output(), Literal["good", "bad"])
    assert_type((await engine.run(union, "hi")).require_output(), Invoice | Refusal)
    await per_run.run(invoicer, "x", deps=Deps(Db(), "u"))
    handle = await engine.start(invoicer, "x")
    assert_type(handle, TurnHandle[Invoice])
    async for event in handle.events():
        if isinstance(event, ToolCallDeltaEvent):
            print(event.arguments_delta)
        elif isinstance(event, TextDeltaEvent):
            print(event.text)
    for interrupt in result.interrupts:
        await handle.answer({interrupt.id: approve(arguments={**(interrupt.arguments or {}), "amount": 5})})
    again = await engine.resume(result.id, {"approval-1": reject("no")}, agent=invoicer)
    assert_type(again.output, Invoice | None)
    assert_type(engine.run_sync(invoicer, "x").output, Invoice | None)
    assert_type(engine.resume_sync(result.id, {"approval-1": "yes"}, agent=invoicer).output, Invoice | None)
    assert_type(result.new_messages(), tuple[Message, ...])


class Other: ...


async def make_others(_: TurnInfo) -> Other:
    return Other()


async def mistakes_are_found() -> None:
    Engine(deps=make_others, hooks=[cap])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Engine(hooks=[cap])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Engine(guardrails=[on_topic])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    await Engine(deps=make_others).run(invoicer, "x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await Engine().run(invoicer, "x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    turn = await Engine(deps=make_deps).run(invoicer, "x")
    _ = turn.output.total  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
    _ = turn.require_output().nope  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    Agent(name="x", output_type=str, output_validators=[positive])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Agent(name="x", instructions=positive)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
