"""Hooks and guardrails have the type of the dependencies that they need, and mistakes are found by type checkers."""

from dataclasses import dataclass
from typing import assert_type

from turnwright import (
    Agent,
    CallView,
    ChangeArguments,
    ChangeRequest,
    Engine,
    Guardrail,
    Hooks,
    ModelSettings,
    Reject,
    RequireApproval,
    Retry,
    ToolContext,
    ToolDecision,
    Trip,
    TurnContext,
    TurnInfo,
    after_model,
    before_model,
    before_tool,
    input_guardrail,
    output_guardrail,
)
from turnwright.model import ModelRequest, ModelResponse


@dataclass
class Deps:
    user: str


@dataclass
class Other:
    pass


async def make_deps(turn: TurnInfo) -> Deps:
    return Deps(turn.agent)


async def make_others(turn: TurnInfo) -> Other:  # noqa: ARG001 (given)
    return Other()


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
def remind(ctx: TurnContext, request: ModelRequest) -> ChangeRequest | None:  # noqa: ARG001 (given)
    return ChangeRequest(append=("Be brief.",), settings=ModelSettings(temperature=0))


@after_model
def no_urls(ctx: TurnContext[Deps], response: ModelResponse) -> None:  # noqa: ARG001 (given)
    if "http" in response.text:
        raise Retry("answer without links")


class Audit(Hooks[Deps]):
    async def on_start(self, ctx: TurnContext[Deps]) -> None:
        pass


@input_guardrail(run_in_parallel=False)
async def on_topic(ctx: TurnContext[Deps], prompt: str) -> Trip | None:
    return Trip(f"{ctx.deps.user} is off topic", {"score": 0.9}) if "weather" in prompt else None


@output_guardrail
async def no_secrets(ctx: TurnContext, text: str) -> Trip | None:  # noqa: ARG001 (given)
    return None


assert_type(cap, Hooks[Deps])
assert_type(remind, Hooks[object])
assert_type(on_topic, Guardrail[Deps])
assert_type(no_secrets, Guardrail[object])

invoicer = Agent(name="invoicer", instructions=rules, hooks=[cap, Audit()], guardrails=[on_topic, no_secrets])
assert_type(invoicer, Agent[Deps, str])
plain = Agent(name="plain", hooks=[remind], guardrails=[no_secrets])
assert_type(plain, Agent[object, str])
typed = Agent(name="typed", output_type=int, instructions=rules, hooks=[no_urls])
assert_type(typed, Agent[Deps, int])


def engines_take_the_hooks_of_their_dependencies() -> None:
    Engine(deps=make_deps, hooks=[cap, remind, no_urls, Audit()], guardrails=[on_topic, no_secrets], agents=[invoicer])
    Engine(hooks=[remind], guardrails=[no_secrets], agents=[plain])


def mistakes_are_found() -> None:
    Engine(hooks=[cap])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Engine(deps=make_others, guardrails=[on_topic])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Engine(hooks=[on_topic])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Agent(name="x", hooks=[no_secrets])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
