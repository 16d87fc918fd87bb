"""A hook names the tools that it is about. A name that no tool has is a mistake, reported before a turn begins."""

import logging
from collections.abc import Sequence

import pytest

from turnwright import (
    Agent,
    CallView,
    ConfigError,
    Engine,
    Hooks,
    Reject,
    Tool,
    ToolContext,
    ToolDecision,
    agent_tool,
    before_tool,
    tool,
)
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright_proof import explain
from turnwright_states import Outcome

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Clerk")


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    return f"paid {amount}"


@tool
async def look() -> str:
    return "seen"


def about(*names: str) -> Hooks[object]:
    @before_tool(tools=names)
    async def policy(ctx: ToolContext, call: CallView) -> ToolDecision | None:
        return Reject("no")

    return policy


def engine(*tools: Tool, hooks: Sequence[Hooks[object]] = (), store: MemoryStore | None = None) -> Engine:
    model = ScriptedModel(asks_for(("pay", {"amount": 5})), "Done.")
    return Engine(model=model, tools=tools, hooks=hooks, store=store or MemoryStore())


async def test_unknown_tool_name_is_refused_with_hook_and_suggestion() -> None:
    message = "engine: hooks: policy: tools: there is no tool 'pays'; did you mean 'pay'?"
    clerk_engine = engine(pay, look, hooks=[about("look", "pays")])
    with pytest.raises(ConfigError) as caught:
        await clerk_engine.run(AGENT, "hi")
    assert str(caught.value) == message
    with pytest.raises(ConfigError) as caught:
        explain(clerk_engine, AGENT)
    assert str(caught.value) == message
    assert not await clerk_engine.store.turns(), "no turn has begun"


async def test_an_agents_hook_is_held_against_the_tools_of_the_engine() -> None:
    agent = Agent(name="Clerk", tools=["look"], hooks=[about("pay")])
    assert (await engine(pay, look).run(agent, "hi")).outcome is Outcome.FINISHED
    with pytest.raises(ConfigError) as caught:
        await engine(look).run(agent, "hi")
    assert str(caught.value) == "agent 'Clerk': hooks: policy: tools: there is no tool 'pay'; offered: look"


async def test_tools_of_a_hook_class_are_checked_and_must_be_names() -> None:
    class Policy(Hooks):
        tools = ("lok",)

        async def before_tool(self, ctx: ToolContext, call: CallView) -> ToolDecision | None:
            return None

    with pytest.raises(ConfigError, match=r"engine: hooks: Policy: tools: .*'lok'; did you mean 'look'\?"):
        await engine(look, hooks=[Policy()]).run(AGENT, "hi")
    with pytest.raises(ConfigError, match=r"policy: tools: .* is not a name"):
        await engine(look, hooks=[about(look)]).run(AGENT, "hi")  # type: ignore[arg-type]


async def test_missing_tool_of_an_mcp_server_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    clerk_engine = engine(pay, look, hooks=[about("bank__transfer")])
    for _ in range(2):
        with caplog.at_level(logging.WARNING):
            await clerk_engine.run(AGENT, "hi")
    message = "there is no tool 'bank__transfer' now, so the hook is not asked about it; offered: pay, look"
    assert caplog.messages == [f"engine: hooks: policy: tools: {message}"], "once for each agent"


async def test_tool_names_are_unchecked_on_an_engine_without_tools() -> None:
    turn = await Engine(model=ScriptedModel("Done."), hooks=[about("pay")]).run(AGENT, "hi")
    assert turn.outcome is Outcome.FINISHED


async def test_the_tool_of_a_sub_agent_is_a_tool() -> None:
    helper = agent_tool(Agent(name="helper", description="Helps."))
    assert (await engine(pay, helper, hooks=[about(helper.name)]).run(AGENT, "hi")).outcome is None


async def test_begun_turn_is_resumed_without_the_tool() -> None:
    """A release that removes a tool strands no paused turn."""
    store = MemoryStore()
    paused = await engine(pay, look, store=store).run(AGENT, "hi")
    later = Engine(model=ScriptedModel("Done."), tools=[pay], hooks=[about("look")], store=store)
    assert (await later.resume(paused.id, {"approval-1": True})).outcome is Outcome.FINISHED
