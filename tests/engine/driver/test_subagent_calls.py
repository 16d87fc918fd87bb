"""The calls of sub-agents: their arguments, what they cost when they cannot run, and how often they are repeated."""

import anyio
import pytest

from turnwright import Agent, Answer, ConfigError, EndReason, Engine, Limits, TurnResult, tool
from turnwright.driver.subagents import agent_tool, subagent_tools
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright.tools import Tool, ToolContext
from turnwright_states import REASONS, CallStatus, Cause, Decision, Spent
from turnwright_states import facts as f

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

READER = Agent(name="Reader", description="Reads.", model="reader", tools=("erase", "choose"))
LEAD = Agent(name="Lead", model="lead")
DELEGATES = asks_for(("Reader", {"prompt": "Read."}))


@tool(needs_approval=True)
async def erase(path: str) -> str:
    """Erase a file."""
    return f"erased {path}"


@tool
async def choose(ctx: ToolContext[None], among: str = "") -> str:
    """Choose."""
    return ctx.ask(f"Which {among}?")


def engine(
    store: MemoryStore, lead: ScriptedModel, reader: ScriptedModel | None, limits: Limits | None = None
) -> Engine:
    """Return a process. Without the model of the sub-agent it cannot run there."""
    models = {"lead": lead} | ({} if reader is None else {"reader": reader})

    def find(name: str) -> ScriptedModel:
        if name not in models:
            raise ConfigError(f"there is no model {name!r}")
        return models[name]

    return Engine(
        models=find, tools=[erase, choose, agent_tool(READER)], store=store, limits=limits, clock=anyio.current_time
    )


async def facts_of(store: MemoryStore, turn: str) -> list[f.Fact]:
    return [fact for _, fact in await store.facts(turn)]


async def settled(store: MemoryStore, turn: TurnResult) -> f.CallSettled:
    (fact,) = [fact for fact in await facts_of(store, turn.id) if isinstance(fact, f.CallSettled)]
    return fact


async def test_repeated_task_with_the_same_answer_is_a_doom_loop() -> None:
    """The results differ in the ids of the sub-agent's turns alone."""
    lead, reader = ScriptedModel(DELEGATES, repeat=True), ScriptedModel("Nothing.", repeat=True)
    turn = await engine(MemoryStore(), lead, reader).run(LEAD, "Read on.")
    assert turn.reason is EndReason.DOOM_LOOP
    assert turn.steps == 3


async def test_a_sub_agents_tool_takes_a_prompt_and_runs_in_a_turn_alone() -> None:
    reader_tool = agent_tool(READER)
    assert reader_tool.parameters["required"] == ["prompt"]
    assert reader_tool.parse({"prompt": "Read."}) == {"prompt": "Read."}
    with pytest.raises(ConfigError, match=r"^Reader is a sub-agent \(call1, \['prompt'\]\): only a turn can run it$"):
        await reader_tool.execute({"prompt": "Read."}, ToolContext(turn_id="one", call_id="call1"))


def test_unknown_option_error_names_the_limits_of_a_sub_agent() -> None:
    options = {"timeout": 1}
    with pytest.raises(ConfigError, match=r"agent's `seconds` limits its time, and its own journal handles crashes$"):
        agent_tool(READER, **options)  # type: ignore[arg-type]


async def test_a_question_of_a_sub_agents_tool_is_asked_without_arguments() -> None:
    store = MemoryStore()
    reader = ScriptedModel(asks_for(("choose", {"among": "two"})), "Done.")
    paused = await engine(store, ScriptedModel(DELEGATES, "Done."), reader).run(LEAD, "Read.")
    (waiting,) = [fact for fact in await facts_of(store, paused.id) if isinstance(fact, f.CallWaiting)]
    assert waiting.interrupt.arguments is None


def test_unrestricted_agent_may_call_sub_agents_unless_a_sub_agent() -> None:
    tools = {"Reader": agent_tool(READER)}
    assert subagent_tools(tools, LEAD) == {"Reader": READER}
    assert subagent_tools(tools, LEAD.model_copy(update={"mode": "subagent", "description": "Leads."})) == {}


async def test_question_without_a_pause_of_the_caller_is_rejected() -> None:
    store = MemoryStore()
    reader = ScriptedModel(asks_for(("erase", {"path": "a"})), asks_for(("choose", {})), "Done.")
    tools: list[Tool[None]] = [erase, choose, agent_tool(READER.model_copy(update={"max_pauses": 5}))]
    models = {"lead": ScriptedModel(DELEGATES, "Done."), "reader": reader}
    running = Engine(models=models.__getitem__, tools=tools, store=store, limits=Limits(max_pauses=0))
    turn = await running.run(LEAD, "Read.")
    answers = [fact for fact in await facts_of(store, f"{turn.id}:call00001") if isinstance(fact, f.Answered)]
    no_pause = "the turn that called this sub-agent has no pause left"
    assert [(answer.decision, answer.text) for answer in answers] == [(Decision.REJECT, no_pause)] * 2


async def test_sub_agent_without_a_run_has_used_nothing() -> None:
    store = MemoryStore()
    turn = await engine(store, ScriptedModel(DELEGATES, "Done."), None).run(LEAD, "Read.")
    call = await settled(store, turn)
    assert call.status is CallStatus.ERROR
    assert call.spent == Spent()


async def test_changed_arguments_reach_the_tool_of_the_sub_agent() -> None:
    store = MemoryStore()
    running = engine(
        store, ScriptedModel(DELEGATES, "Done."), ScriptedModel(asks_for(("erase", {"path": "a"})), "Done.")
    )
    paused = await running.run(LEAD, "Read.")
    (interrupt,) = paused.interrupts
    assert interrupt.arguments == {"path": "a"}
    turn = await running.resume(paused.id, {interrupt.id: Answer(Decision.APPROVE, arguments={"path": "b"})})
    (call,) = [fact for fact in await facts_of(store, f"{turn.id}:call00001") if isinstance(fact, f.CallSettled)]
    assert call.result == "erased b"


async def test_sub_agent_result_has_a_time_and_begins_with_the_text() -> None:
    store = MemoryStore()

    async def reads(_: ModelRequest) -> str:
        await anyio.sleep(2)
        return "Read."

    running = engine(store, ScriptedModel(DELEGATES, "Done."), ScriptedModel(reads))
    turn = await running.run(LEAD, "Read.")
    call = await settled(store, turn)
    assert call.elapsed == pytest.approx(2, abs=0.5)
    assert call.result == f"Read.\n\n[sub-agent: finished, answered; turn {turn.id}:call00001]"


async def test_failed_sub_agent_without_a_text_gives_the_reason() -> None:
    store = MemoryStore()
    broken = ModelError("no", cause=Cause.BAD_REQUEST)
    turn = await engine(store, ScriptedModel(DELEGATES, "Done."), ScriptedModel(broken)).run(LEAD, "Read.")
    call = await settled(store, turn)
    assert call.status is CallStatus.ERROR
    means = REASONS[EndReason.MODEL_ERROR].means.removesuffix(".")
    assert call.result == f"[sub-agent: failed, model_error: {means}; turn {turn.id}:call00001]"


async def test_sub_agent_gets_the_remaining_time_of_the_caller() -> None:
    store = MemoryStore()

    async def delegates(_: ModelRequest) -> ModelResponse:
        await anyio.sleep(2)
        return DELEGATES

    running = engine(store, ScriptedModel(delegates, "Done."), ScriptedModel("Read."), Limits(seconds=2.5))
    turn = await running.run(LEAD, "Read.")
    first = (await facts_of(store, f"{turn.id}:call00001"))[0]
    assert isinstance(first, f.TurnStarted)
    assert first.limits.seconds is not None
    assert first.limits.seconds <= 0.5
