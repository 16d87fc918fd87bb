"""Errors and values of the app that fail to print: nothing of the turn is lost, and its error names whose they are."""

from collections.abc import AsyncIterator, Callable
from typing import Never

import pytest

from turnwright import (
    Agent,
    CallView,
    Engine,
    ToolContext,
    TurnContext,
    TurnResult,
    before_tool,
    input_guardrail,
    on_end,
    tool,
)
from turnwright.context import HooksBase
from turnwright.driver.hooks.guardrails import Guardrail
from turnwright.message import ToolResultPart
from turnwright.model import ModelError, ModelRequest, ModelResponse, ScriptedModel, asks_for
from turnwright.tools.errors import ToolError
from turnwright_states import Cause, EndReason, Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Clerk")


class Unprintable:
    def __str__(self) -> Never:
        raise RuntimeError

    __repr__ = __str__


class UnprintableError(Unprintable, Exception): ...


class UnprintableToolError(Unprintable, ToolError): ...


class UnprintableModelError(Unprintable, ModelError): ...


@tool
async def look() -> str:
    return "seen"


async def played(engine: Engine) -> TurnResult:
    async with engine:
        return await engine.run(AGENT, "hi")


async def test_tool_error_that_fails_to_print_is_a_result() -> None:
    @tool
    async def pay() -> str:
        raise UnprintableToolError("broke")

    turn = await played(Engine(model=ScriptedModel(asks_for(("pay", {})), "Done."), tools=[pay]))
    [result] = [part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert (turn.text, result.text) == ("Done.", "(the text of UnprintableToolError cannot be shown)")


@before_tool
async def raises(ctx: ToolContext, call: CallView) -> None:
    raise UnprintableError


@before_tool
async def returns(ctx: ToolContext, call: CallView) -> None:
    return Unprintable()  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


@input_guardrail
async def checks(ctx: TurnContext, prompt: str) -> None:
    raise UnprintableError


@pytest.mark.parametrize(
    ("hooks", "guardrails", "error"),
    [
        ([raises], [], "before_tool hook 'raises' raised UnprintableError: "),
        ([returns], [], "before_tool hook 'returns' returned a Unprintable that cannot be shown: "),
        ([], [checks], "input guardrail 'checks' raised UnprintableError: "),
    ],
)
async def test_error_names_the_hook_or_guardrail(
    hooks: list[HooksBase], guardrails: list[Guardrail], error: str
) -> None:
    model = ScriptedModel(asks_for(("look", {})), "Done.")
    turn = await played(Engine(model=model, tools=[look], hooks=hooks, guardrails=guardrails))
    assert turn.reason is EndReason.ENGINE_ERROR
    assert turn.error.startswith(error)


async def test_hook_after_the_end_that_fails_to_print_leaves_the_result() -> None:
    @on_end
    async def audits(ctx: TurnContext, result: TurnResult) -> None:
        raise UnprintableError

    turn = await played(Engine(model=ScriptedModel("Done."), hooks=[audits]))
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")


class BrokenModel:
    name = "broken"

    def __init__(self, error: Callable[[], Exception]) -> None:
        self._error = error

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelResponse]:
        raise self._error()
        yield


async def test_model_error_that_fails_to_print_ends_the_turn() -> None:
    failed = await played(Engine(model=BrokenModel(lambda: UnprintableModelError("", cause=Cause.REJECTED))))
    assert (failed.reason, failed.error) == (
        EndReason.MODEL_ERROR,
        "(the text of UnprintableModelError cannot be shown)",
    )
    crashed = await played(Engine(model=BrokenModel(UnprintableError)))
    assert (crashed.reason, crashed.error[:17]) == (EndReason.ENGINE_ERROR, "UnprintableError:")
