"""The test doubles of pydantic-ai, which see the same in a turn as in a run of pydantic-ai's agent."""

from collections.abc import Callable
from typing import Any

import pydantic_ai
import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import ToolDefinition

from turnwright import Agent, Engine, Limits, Retry, Tool, ToolError, tool
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
        self.inputs: list[object] = []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        functions, outputs = [
            [(tool.name, tool.kind, tool.outer_typed_dict_key, _fields(tool)) for tool in tools]
            for tools in (info.function_tools, info.output_tools)
        ]
        parts = [[type(part).__name__ for part in message.parts] for message in messages]
        instructions = [getattr(message, "instructions", None) for message in messages]
        self.inputs.append((info.instructions, functions, outputs, info.allow_text_output, parts, instructions))
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
    assert ours.inputs == theirs.inputs
    assert (turn.text if output_type is str else turn.output) == result.output


def _fails_once(error: Exception) -> Callable[[str], str]:
    errors = [error]

    def price_of(part: str) -> str:
        """Return the price of a part."""
        if errors:
            raise errors.pop()
        return f"{len(part)} dollars"

    return price_of


async def test_test_model_repeats_a_call_after_a_retry() -> None:
    """As it does under pydantic-ai, where such a result has an outcome of its own."""
    async with Engine(
        model=pydantic_ai_model(TestModel()), tools=[tool(retries=1)(_fails_once(Retry("not yet")))]
    ) as engine:
        turn = await engine.run(Agent(name="Seller"), "A wheel, please.")
    plain = pydantic_ai.Agent(TestModel(), tools=[_fails_once(pydantic_ai.ModelRetry("not yet"))])
    assert turn.tool_calls == 2
    assert turn.text == (await plain.run("A wheel, please.")).output


class Outcomes:
    """A function of a `FunctionModel` that makes these calls, one a reply, and notes the outcomes of its results."""

    def __init__(self, *calls: tuple[str, dict[str, object]]) -> None:
        self._calls = list(calls)
        self.outcomes: list[str] = []

    def __call__(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        self.outcomes += [part.outcome for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        return ModelResponse(parts=[ToolCallPart(*self._calls.pop(0)) if self._calls else TextPart("Done.")])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (None, None),
        (Retry("not yet"), pydantic_ai.ModelRetry("not yet")),
        (ToolError("sold"), pydantic_ai.ToolFailed("sold")),
    ],
    ids=["result", "retry", "error"],
)
@pytest.mark.parametrize(
    "call",
    [("price_of", {"part": "wheel"}), ("price_of", {"part": 7}), ("cost_of", {"part": "wheel"})],
    ids=["valid", "bad arguments", "unknown tool"],
)
async def test_function_model_sees_the_outcomes_of_pydantic_ai(
    ours: Exception | None, theirs: Exception | None, call: tuple[str, dict[str, object]]
) -> None:
    watched, expected = Outcomes(call), Outcomes(call)
    our_tool = price_of if ours is None else _fails_once(ours)
    their_tool = price_of if theirs is None else _fails_once(theirs)
    async with Engine(model=pydantic_ai_model(FunctionModel(watched)), tools=[tool(our_tool)]) as engine:
        turn = await engine.run(Agent(name="Seller"), "A wheel, please.")
    assert turn.text == "Done."
    await pydantic_ai.Agent(FunctionModel(expected), tools=[their_tool]).run("A wheel, please.")
    assert watched.outcomes == expected.outcomes
    assert len(expected.outcomes) == 1


async def test_function_model_sees_a_refused_answer_as_under_pydantic_ai() -> None:
    """Both ask for it again."""

    def answers(*prices: object) -> tuple[list[str], Callable[[list[ModelMessage], AgentInfo], ModelResponse]]:
        outcomes: list[str] = []
        open_prices = list(prices)

        def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            outcomes.extend(part.outcome for part in messages[-1].parts if isinstance(part, ToolReturnPart))
            (output,) = info.output_tools
            return ModelResponse(parts=[ToolCallPart(output.name, {"part": "wheel", "price": open_prices.pop(0)})])

        return outcomes, reply

    outcomes, reply = answers("much", 20)
    async with Engine(model=pydantic_ai_model(FunctionModel(reply))) as engine:
        turn = await engine.run(Agent(name="Seller", output_type=Offer), "A wheel, please.")
    expected, plain_reply = answers("much", 20)
    result = await pydantic_ai.Agent(FunctionModel(plain_reply), output_type=Offer).run("A wheel, please.")
    assert turn.output == result.output
    assert outcomes == expected == ["retried"]


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
