"""Annotations, defaults and results that pydantic or JSON read in another way than a tool means them."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from turnwright import Agent, Engine, TurnResult, tool
from turnwright.model import ModelResponse, ScriptedModel, asks_for
from turnwright.model.protocol import ResponseToolCall
from turnwright.tools import ToolInputError
from turnwright_states import CallStatus

pytestmark = [pytest.mark.anyio]

INFINITY = float("inf")


class Kind(Enum):
    CAT = "cat"
    DOG = "dog"
    FOUR = 4


class Cat(BaseModel):
    kind: Literal[Kind.CAT]


class Dog(BaseModel):
    kind: Literal[Kind.DOG]


@tool
def adopt(
    pet: Annotated[Cat | Dog, Field(discriminator="kind")], kind: Literal[Kind.CAT, Kind.FOUR] = Kind.CAT
) -> None:
    """Adopt a pet."""
    del pet, kind


def test_literal_of_an_enum_member_accepts_the_value() -> None:
    values = adopt.parse({"pet": {"kind": "dog"}, "kind": 4})
    assert values == {"pet": Dog(kind=Kind.DOG), "kind": Kind.FOUR}
    wrong_ones: list[Any] = [{"pet": {"kind": "cow"}}, {"pet": {"kind": "cat"}, "kind": "4"}]
    for wrong in wrong_ones:
        with pytest.raises(ToolInputError):
            adopt.parse(wrong)


async def test_typed_answer_with_an_enum_literal_is_accepted() -> None:
    answer = asks_for(("final_result", {"kind": "cat"}))
    turn = await Engine(model=ScriptedModel(answer)).run(Agent(name="Clerk", output_type=Cat), "go")
    assert turn.output == Cat(kind=Kind.CAT)


def test_an_infinite_default_is_left_out_of_the_schema() -> None:
    @tool
    def look(most: float = INFINITY, all_of: list[float] = [INFINITY], least: float = 1.5) -> None:  # noqa: B006
        """Look."""
        del most, all_of, least

    properties: Any = look.spec.parameters["properties"]
    assert ["default" in properties[name] for name in ("most", "all_of", "least")] == [False, False, True]


def test_an_unresolvable_annotation_of_the_result_refuses_no_tool() -> None:
    def look(n: int) -> int:
        """Look."""
        return n

    def approve(n: int) -> bool:
        return n > 100

    for function in (look, approve):
        function.__annotations__["return"] = "Absent"
    assert tool(needs_approval=approve)(look).parse({"n": "3"}) == {"n": 3}


def result(turn: TurnResult) -> tuple[CallStatus, str]:
    (part,) = (part for message in turn.messages for part in message.parts if part.type == "tool_result")
    return part.status, part.text


NAME = "caf\udce9.txt"


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ([NAME, "b.txt"], '["caf?.txt","b.txt"]'),
        ([Path(NAME)], '["caf?.txt"]'),
        ({NAME: (NAME,)}, '{"caf?.txt":["caf?.txt"]}'),
    ],
)
async def test_undecodable_name_loses_no_result(returned: object, text: str) -> None:
    @tool
    async def look() -> object:
        """Look."""
        return returned

    turn = await Engine(model=ScriptedModel(asks_for(("look", {})), "Done."), tools=[look]).run(Agent(name="A"), "go")
    assert result(turn) == (CallStatus.OK, text)


@pytest.mark.parametrize(("tool_", "runs"), [("look", True), ("find", False)])
async def test_null_is_no_arguments_for_a_tool_without_parameters(tool_: str, *, runs: bool) -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    @tool
    async def find(n: int = 0) -> str:
        """Find."""
        return f"found {n}"

    null = ModelResponse(calls=(ResponseToolCall(tool_, None, "null", "c1"),))
    turn = await Engine(model=ScriptedModel(null, "Done."), tools=[look, find]).run(Agent(name="A"), "go")
    assert (result(turn)[0] is CallStatus.OK) is runs


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ('{"n": 1, "m": [2, }', 'Expecting value at character 19 of 19, after `{"n": 1, "m": [2, `'),
        ('{"n": 1} {"n": 2}', 'Extra data at character 10 of 17, after `{"n": 1} `'),
        ("[1, 2]", "you passed a list, `[1, 2]`"),
        ('{"n": NaN}', "NaN is not JSON"),
    ],
)
async def test_malformed_arguments_error_tells_the_broken_place(raw: str, why: str) -> None:
    @tool
    async def find(n: int = 0) -> str:
        """Find."""
        return f"found {n}"

    damaged = ModelResponse(calls=(ResponseToolCall("find", None, raw, "c1"),))
    turn = await Engine(model=ScriptedModel(damaged, "Done."), tools=[find]).run(Agent(name="A"), "go")
    assert result(turn) == (
        CallStatus.ERROR,
        f"not executed: the arguments are not one whole JSON object: {why}",
    )
