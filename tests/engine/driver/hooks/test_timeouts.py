"""Each hook and each guardrail has a time limit of its own, 30 s by default."""

from typing import Never

import anyio
import pytest

from turnwright import (
    Agent,
    CallView,
    ConfigError,
    Engine,
    Guardrail,
    Hooks,
    ToolContext,
    ToolResult,
    TurnContext,
    TurnResult,
    after_model,
    after_tool,
    before_model,
    before_tool,
    input_guardrail,
    on_end,
    on_start,
    output_guardrail,
    tool,
    tool_input_guardrail,
    tool_output_guardrail,
)
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for
from turnwright_states import EndReason, Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Clerk")


@tool(idempotent=True)
async def look() -> str:
    return "seen"


async def hang(*_: object) -> Never:
    await anyio.sleep(20)
    raise AssertionError


@on_start(timeout=2)
async def starts(ctx: TurnContext) -> None:
    await hang()


@before_model(timeout=2)
async def prepares(ctx: TurnContext, request: ModelRequest) -> None:
    await hang()


@after_model(timeout=2)
async def judges(ctx: TurnContext, response: ModelResponse) -> None:
    await hang()


@before_tool(timeout=2)
async def decides(ctx: ToolContext, call: CallView) -> None:
    await hang()


@after_tool(tools=["look"], timeout=2)
async def replaces(ctx: ToolContext, call: CallView, result: ToolResult) -> None:
    await hang()


@input_guardrail(timeout=2)
async def reads(ctx: TurnContext, prompt: str) -> None:
    await hang()


@input_guardrail(run_in_parallel=False, timeout=2)
async def reads_first(ctx: TurnContext, prompt: str) -> None:
    await hang()


@output_guardrail(timeout=2)
async def proofreads(ctx: TurnContext, text: str) -> None:
    await hang()


@tool_input_guardrail(timeout=2)
async def checks(ctx: ToolContext, call: CallView) -> None:
    await hang()


@tool_output_guardrail(timeout=2)
async def checks_result(ctx: ToolContext, call: CallView, result: ToolResult) -> None:
    await hang()


HOOKS: list[Hooks[object]] = [starts, prepares, judges, decides, replaces]
GUARDRAILS: list[Guardrail[object]] = [reads, reads_first, proofreads, checks, checks_result]


def engine(*, hooks: list[Hooks[object]] | None = None, guardrails: list[Guardrail[object]] | None = None) -> Engine:
    model = ScriptedModel(asks_for(("look", {})), "Done.")
    return Engine(model=model, tools=[look], hooks=hooks or [], guardrails=guardrails or [])


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
async def test_hook_past_the_limit_ends_the_turn_and_is_named(hook: Hooks[object]) -> None:
    start = anyio.current_time()
    turn = await engine(hooks=[hook]).run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.ENGINE_ERROR)
    assert turn.error is not None
    assert turn.error.endswith(f"hook {hook.name!r} did not finish within 2 s")
    assert anyio.current_time() - start < 5


@pytest.mark.parametrize("guardrail", GUARDRAILS, ids=lambda guardrail: guardrail.name)
async def test_guardrail_past_the_limit_ends_the_turn_and_is_named(guardrail: Guardrail[object]) -> None:
    turn = await engine(guardrails=[guardrail]).run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.ENGINE_ERROR)
    assert turn.error is not None
    assert turn.error.endswith(f"guardrail {guardrail.name!r} did not finish within 2 s")


async def test_end_hook_past_the_limit_is_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @on_end(timeout=2)
    async def says_goodbye(ctx: TurnContext, result: TurnResult) -> None:
        await hang()

    turn = await engine(hooks=[says_goodbye]).run(AGENT, "hi")
    assert turn.outcome is Outcome.FINISHED
    assert "on_end hook 'says_goodbye' failed" in caplog.text


@pytest.mark.parametrize("limit", [None, 100])
async def test_a_longer_limit_or_none_replaces_the_30_s(limit: float | None) -> None:
    @before_model(timeout=limit)
    async def thinks(ctx: TurnContext, request: ModelRequest) -> None:
        await anyio.sleep(40)

    turn = await engine(hooks=[thinks]).run(AGENT, "hi")
    assert turn.outcome is Outcome.FINISHED


async def test_hook_without_a_limit_has_30_s() -> None:
    @before_model
    async def thinks(ctx: TurnContext, request: ModelRequest) -> None:
        await anyio.sleep(40)

    turn = await engine(hooks=[thinks]).run(AGENT, "hi")
    assert turn.error == "before_model hook 'thinks' did not finish within 30 s"


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), True, "3"])
def test_non_positive_or_non_numeric_limit_is_refused_early(timeout: float) -> None:
    message = "timeout must be a number of seconds above 0, or None"
    with pytest.raises(ConfigError, match=f"@after_tool: {message}"):
        after_tool(timeout=timeout)(hang)
    with pytest.raises(ConfigError, match=f"@output_guardrail: {message}"):
        output_guardrail(timeout=timeout)(hang)

    class Slow(Hooks):
        async def on_start(self, ctx: TurnContext) -> None: ...

    slow = Slow()
    slow.timeout = timeout
    with pytest.raises(ConfigError, match=f"engine: hooks: Slow: {message}"):
        engine(hooks=[slow])
