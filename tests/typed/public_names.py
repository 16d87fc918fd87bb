"""Types of the public names. Nothing runs this file: mypy and pyright read it in `make check`."""

from collections.abc import Sequence
from functools import partial
from typing import assert_type

from turnwright import Agent, Engine, Limits, Tool, ToolCallLimits, ToolContext, TurnResult, agent_tool, tool
from turnwright.message import SentinelPart, TextPart, ToolCallPart, ToolResultPart
from turnwright.tools import ToolResult


@tool
def add(a: int, b: int = 1) -> int:
    return a + b


@tool(read_only=True)
async def look(place: str, context: ToolContext) -> ToolResult:
    return ToolResult(f"{place} {context.call_id}")


@tool
def stop() -> None: ...


def tool_calls_are_a_number_or_go_by_the_tools() -> None:
    assert_type(Limits(tool_calls=ToolCallLimits(writing=3)).tool_calls, int | ToolCallLimits | None)
    assert_type(Limits(tool_calls=30).for_tools("writing").call_limit, int | None)
    Agent(name="A", budget=Limits(tool_calls=3, tokens=1000))
    Agent(name="A", budget=3)


def takes_tools(tools: Sequence[Tool]) -> Sequence[Tool]:
    return tools


def tools_of_different_functions_are_a_list_of_tools() -> None:
    tools = [add, look, stop]
    named_tools: list[Tool] = [*tools]
    Engine(tools=tools)
    Engine(tools=[*takes_tools(tools), *named_tools, add, agent_tool(Agent(name="a", description="b"))])


async def a_tool_is_called_as_its_function() -> None:
    assert_type(add(1, b=2), int)
    assert_type(await look("here", ToolContext(turn_id="t", call_id="c")), ToolResult)
    add("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def the_type_of_a_part_narrows_it(turn: TurnResult) -> None:
    for message in turn.messages:
        for part in message.parts:
            if part.type == "tool_result":
                assert_type(part, ToolResultPart)
            elif part.type == "text" or part.type == "sentinel":  # noqa: PLR1714 (pyright narrows no `in`)
                assert_type(part, TextPart | SentinelPart)
            match part.type:
                case "tool_call":
                    assert_type(part, ToolCallPart)
                case _:
                    pass


def above(amount: float, limit: float = 100) -> bool:
    return amount > limit


async def soon_above(*, amount: float) -> bool:
    return amount > 100


def says_why(amount: float) -> str:
    return f"{amount} is much"


class Office:
    def approves(self, amount: float, context: ToolContext) -> bool:
        return amount > 100 and context.attempt == 1


def approval_takes_the_natural_forms() -> None:
    def pay(amount: float) -> None: ...

    tool(needs_approval=True)(pay)
    tool(needs_approval=lambda amount: amount > 100)(pay)
    tool(needs_approval=lambda amount, limit=100: amount > limit)(pay)
    tool(needs_approval=lambda **arguments: len(arguments) > 1)(pay)
    tool(needs_approval=above)(pay)
    tool(needs_approval=soon_above)(pay)
    tool(needs_approval=partial(above, limit=5))(pay)
    tool(needs_approval=Office().approves)(pay)
    tool(needs_approval=says_why)(pay)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    tool(needs_approval="always")(pay)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
