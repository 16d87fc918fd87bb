"""The test doubles of pydantic-ai, which see the same in a turn as in a run of pydantic-ai's agent."""

from typing import Any

import pydantic_ai
import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import ToolDefinition

from turnwright import Agent, Engine, Limits, Tool, tool
from turnwright.model import pydantic_ai_model
from turnwright_states import EndReason, Outcome

pytestmark = pytest.mark.anyio
INSTRUCTIONS = "Offer parts."


class Offer(BaseModel):
    """An offer of one part."""

    part: str
    price: float


def price_of(part: str) -> float:
    """Return the price of a part."""
    return len(part) * 4.0


OFFERED = {"part": "wheel", "price": 20}
CASES: list[tuple[Any, Any, object]] = [
    (Offer, OFFERED, Offer(part="wheel", price=20)),
    (int, 7, 7),
    (list[str], ["a", "b"], ["a", "b"]),
]


async def turn_output(model: pydantic_ai.models.Model, output_type: Any, *tools: Tool[Any]) -> object:  # noqa: ANN401
    agent = Agent(name="Seller", instructions=INSTRUCTIONS, output_type=output_type)
    async with Engine(model=pydantic_ai_model(model), tools=tools) as engine:
        turn = await engine.run(agent, "A wheel, please.")
    assert (turn.outcome, turn.reason) == (Outcome.FINISHED, EndReason.ANSWERED)
    return turn.output


@pytest.mark.parametrize("tools", [[], [tool(price_of)]], ids=["no tool", "a tool"])
@pytest.mark.parametrize(("output_type", "args", "output"), CASES, ids=["model", "scalar", "list"])
async def test_test_model_gives_the_typed_answer(
    output_type: Any,  # noqa: ANN401
    args: Any,  # noqa: ANN401
    output: object,
    tools: list[Tool[Any]],
) -> None:
    assert await turn_output(TestModel(custom_output_args=args), output_type, *tools) == output
    plain = pydantic_ai.Agent(TestModel(custom_output_args=args), output_type=output_type)
    assert (await plain.run("A wheel, please.")).output == output


async def test_test_model_makes_up_a_typed_answer() -> None:
    """Its answer is what it makes up for pydantic-ai's agent too."""
    plain = pydantic_ai.Agent(TestModel(), output_type=Offer)
    assert await turn_output(TestModel(), Offer) == (await plain.run("A wheel, please.")).output


async def test_test_model_calls_the_tools_and_gives_a_text() -> None:
    model = TestModel(custom_output_text="20 dollars.")
    async with Engine(model=pydantic_ai_model(model), tools=[tool(price_of)]) as engine:
        turn = await engine.run(Agent(name="Seller", instructions=INSTRUCTIONS), "A wheel, please.")
    assert (turn.text, turn.tool_calls) == ("20 dollars.", 1)
    assert model.last_model_request_parameters is not None
    assert model.last_model_request_parameters.output_tools == []


def _fields(definition: ToolDefinition) -> list[str]:
    return sorted(definition.parameters_json_schema.get("properties", {}))


class Watched:
    """Functions of a `FunctionModel`, which note what they are given and call the tool, then the output tool."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        functions, outputs = [
            [(tool.name, tool.kind, tool.outer_typed_dict_key, _fields(tool)) for tool in tools]
            for tools in (info.function_tools, info.output_tools)
        ]
        parts = [[type(part).__name__ for part in message.parts] for message in messages]
        given = [getattr(message, "instructions", None) for message in messages]
        self.seen.append((info.instructions, functions, outputs, info.allow_text_output, parts, given))
        if len(messages) == 1 and info.function_tools:
            return ModelResponse(parts=[ToolCallPart("price_of", {"part": "wheel"})])
        if info.output_tools:
            (output,) = info.output_tools
            args = {output.outer_typed_dict_key: 7} if output.outer_typed_dict_key else OFFERED
            return ModelResponse(parts=[ToolCallPart(output.name, args)])
        return ModelResponse(parts=[TextPart("20 dollars.")])


@pytest.mark.parametrize("output_type", [Offer, int, str])
async def test_function_model_gets_the_same_input_as_under_pydantic_ai(output_type: Any) -> None:  # noqa: ANN401
    ours, theirs = Watched(), Watched()
    own = {} if output_type is str else {"output_type": output_type}
    agent = Agent(name="Seller", instructions=INSTRUCTIONS, **own)
    async with Engine(model=pydantic_ai_model(FunctionModel(ours)), tools=[tool(price_of)]) as engine:
        turn = await engine.run(agent, "A wheel, please.")
    plain = pydantic_ai.Agent(
        FunctionModel(theirs), output_type=output_type, instructions=INSTRUCTIONS, tools=[price_of]
    )
    result = await plain.run("A wheel, please.")
    assert ours.seen == theirs.seen
    assert (turn.text if output_type is str else turn.output) == result.output


async def test_function_model_concludes_without_an_output_tool() -> None:
    """A conclusion is a text. pydantic-ai has none, and would let the model call its output tool."""
    watched: list[tuple[int, int, bool]] = []

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        watched.append((len(info.function_tools), len(info.output_tools), info.allow_text_output))
        if not info.output_tools:
            return ModelResponse(parts=[TextPart("I looked up one price.")])
        return ModelResponse(parts=[ToolCallPart("price_of", {"part": str(len(messages))})])

    agent = Agent(name="Seller", output_type=Offer)
    engine = Engine(model=pydantic_ai_model(FunctionModel(reply)), tools=[tool(price_of)], limits=Limits(steps=1))
    turn = await engine.run(agent, "A wheel, please.")
    assert (turn.reason, turn.text) == (EndReason.STEP_CAP, "I looked up one price.")
    assert watched == [(1, 1, False), (2, 0, True)]
