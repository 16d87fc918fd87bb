"""The view of type checkers on dependencies. Nothing runs this: mypy and pyright read it in `make check`."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Unpack, assert_type

from pydantic import JsonValue

from turnwright import Agent, Engine, Tool, ToolContext, TurnContext, TurnInfo, TurnResult, agent_tool, tool
from turnwright_inspector import inspector_app
from turnwright_testing import EngineParts, Scenario, play


class Db:
    async def total(self, customer: str) -> float:
        return float(len(customer))

    async def close(self) -> None: ...


@dataclass
class Deps:
    db: Db
    user: str


class Other: ...


async def make_deps(turn: TurnInfo) -> Deps:
    return Deps(Db(), str(turn.metadata.get("user", "")))


async def make_and_close(turn: TurnInfo) -> AsyncIterator[Deps]:
    db = Db()
    yield Deps(db, str(turn.metadata.get("user", "")))
    await db.close()


async def make_others(_: TurnInfo) -> Other:
    return Other()


@tool
async def total(ctx: ToolContext[Deps], customer: str) -> float:
    return await ctx.deps.db.total(customer)


@tool
def add(a: int, b: int) -> int:
    return a + b


def risky(ctx: ToolContext[Deps], arguments: Mapping[str, JsonValue]) -> bool:
    return ctx.deps.user != "admin" and arguments["amount"] != 0


@tool(needs_approval=risky)
async def refund(ctx: ToolContext[Deps], customer: str, amount: float) -> str:
    return f"{ctx.idempotency_key} {customer} {amount}"


@tool(needs_approval=risky)
def book(amount: float) -> None: ...


@tool(needs_approval=lambda ctx, arguments: ctx.attempt > len(arguments))
def pay(amount: float) -> None: ...


@tool(read_only=True)
def whoami(ctx: ToolContext[Deps]) -> str:
    return ctx.deps.user


def tools_have_the_type_of_their_dependencies() -> None:
    needs: list[Tool[Deps]] = [total, refund, book, whoami, add]
    plain: list[Tool] = [add]
    same = [total, refund, whoami]
    Engine(deps=make_deps, tools=[*needs, *plain, *same])


def engines_have_the_type_of_their_dependencies() -> None:
    assert_type(Engine(deps=make_deps, tools=[total, add, refund, book, whoami]), Engine[Deps])
    assert_type(Engine(deps=make_and_close, tools=[total]), Engine[Deps])
    assert_type(Engine(deps_type=Deps, tools=[total]), Engine[Deps])
    assert_type(Engine(tools=[add]), Engine[None])
    assert_type(Engine(), Engine[None])


def a_context_has_the_type_of_its_dependencies() -> None:
    call = ToolContext(turn_id="t", call_id="c", deps=Deps(Db(), "ann"))
    assert_type(call, ToolContext[Deps])
    assert_type(call.deps, Deps)
    assert_type(TurnContext(turn_id="t", deps=Deps(Db(), "ann")).deps, Deps)
    takes_any(call)


def takes_any(ctx: TurnContext) -> object:
    return ctx.deps


invoicer: Agent[Deps, str] = Agent(name="invoicer")
plain = Agent(name="plain")
assert_type(plain, Agent[object, str])


async def results_have_the_type_of_the_answer() -> None:
    engine = Engine(deps=make_deps, tools=[total], agents=[invoicer, plain])
    result = await engine.run(invoicer, "Invoice ACME", session="s", metadata={"user": "ann"})
    assert_type(result, TurnResult[str])
    assert_type(result.output, str | None)
    assert_type(result.require_output(), str)
    result = await engine.resume(result.id, {"approval-1": True}, agent=invoicer)
    assert_type(await engine.resume(result.id), TurnResult[object])
    await engine.run(plain, "hi")
    await Engine(deps_type=Deps).run(invoicer, "hi", deps=Deps(Db(), "ann"))
    await Engine().run(plain, "hi")
    async with engine.stream(invoicer, "hi", deps=Deps(Db(), "ann")):
        pass


def build(**parts: Unpack[EngineParts]) -> Engine[Deps]:
    return Engine(deps=make_deps, **parts)


def tools_for_tests_and_pages_take_any_engine() -> None:
    inspector_app(Engine(deps=make_deps, tools=[total]))
    play(Scenario(), agent=invoicer, tools=[total], build=build)
    play(Scenario(), agent=plain, tools=[add])
    play(Scenario(), agent=invoicer, tools=[total])  # type: ignore[arg-type, list-item]  # pyright: ignore[reportCallIssue, reportArgumentType]


def subagents_need_what_their_agent_needs() -> None:
    Engine(deps=make_deps, tools=[agent_tool(invoicer, description="invoices")])
    Engine(tools=[agent_tool(plain, description="answers")])
    Engine(tools=[agent_tool(invoicer, description="")])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def mistakes_are_found() -> None:
    Engine(deps=make_others, tools=[total])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Engine(tools=[total])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Engine(tools=[book])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    await Engine(deps=make_others).run(invoicer, "x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await Engine().run(invoicer, "x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await Engine(deps=make_deps).run(invoicer, "x", deps=Other())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    result = await Engine(deps=make_deps).run(invoicer, "x")
    result.output.upper()  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
    result.require_output().nope()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
