"""BooCode: the budget of tool calls, by what the agent's tools do.

- The plan's constants are 50 / 10 / 50: 50 for read-only agents, 10 for agents that write, 50 as the general default.
- It is resolved for each agent, by the class of its tools; each class is configurable.
- The budget is exact: 49, 50 and 51 of 50.
"""

from typing import TYPE_CHECKING

import pytest

from turnwright import Agent, Engine, tool
from turnwright.driver.subagents import agent_tool
from turnwright.message import ToolResultPart
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright.tools import Tool
from turnwright_proof import explain
from turnwright_states import Limits
from turnwright_states import facts as f

if TYPE_CHECKING:
    from .conftest import Play

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def look(n: int = 0) -> str:
    return f"seen {n}"


@tool(read_only=False)
async def write(n: int = 0) -> str:
    return f"written {n}"


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


ALL: list[Tool] = [look, write, note]


def budget_of(engine: Engine, agent: Agent) -> tuple[float | None, str]:
    """The budget of tool calls that `turnwright explain` prints, and who set it."""
    (bound,) = (bound for bound in explain(engine, agent).bounds if bound.bound == "tool calls")
    return bound.value, bound.set_by


def by_class(**calls: int | None) -> Limits:
    return Limits.preset("boocode", tool_calls=calls)


@pytest.mark.parametrize(
    ("tools", "budget"),
    [
        (("look",), 50),
        (("write",), 10),
        (("note",), 50),
        (("look", "note"), 50),
        (("look", "write"), 10),
        (("note", "write"), 10),
        ((), 50),
    ],
    ids=lambda value: " and ".join(value) or "none" if isinstance(value, tuple) else str(value),
)
async def test_budget_is_50_for_readers_10_for_writers_and_50_for_others(
    play: "Play", tools: tuple[str, ...], budget: int
) -> None:
    """One tool that writes makes a writer; a tool that does not say makes a reader one of the others."""
    agent = Agent(name="Tidier", tools=tools)
    turn = await play("Tidy.", agent=agent, tools=ALL)
    limits = turn.said("turn_started")[0]["limits"]
    assert isinstance(limits, dict)
    assert limits["tool_calls"] == budget
    assert budget_of(turn.engine, agent) == (budget, "configuration")


@pytest.mark.parametrize(("tools", "budget"), [(("look",), 3), (("write",), 1), (("note",), 2)])
async def test_each_class_can_be_configured(play: "Play", tools: tuple[str, ...], budget: int) -> None:
    agent = Agent(name="Tidier", tools=tools)
    replies = [asks_for((tools[0], {"n": n})) for n in range(9)]
    turn = await play(*replies, agent=agent, tools=ALL, limits=by_class(read_only=3, writing=1, default=2))
    assert (turn.ended, turn.result.tool_calls) == (("cap_hit", "budget"), budget)
    assert turn.sentinels[0][2] == f"Stopped at the tool-call limit ({budget} of {budget} calls)"
    assert budget_of(turn.engine, agent) == (budget, "configuration")


async def test_none_switches_the_budget_of_a_class_off(play: "Play") -> None:
    turn = await play(play.endless(32, answer_at=3), limits=by_class(default=None))
    assert (turn.ended[0], turn.result.tool_calls) == ("finished", 64)


async def test_zero_is_a_budget_distinct_from_none(play: "Play") -> None:
    turn = await play("I would write.", tools=[write], limits=by_class(writing=0))
    assert turn.ended == ("finished", "text_only")


@pytest.mark.parametrize("budget", [20, Limits(tool_calls=20), None, 50, 0])
async def test_agent_budget_wins_over_the_class_budget(play: "Play", budget: int | Limits | None) -> None:
    """Also where it is the default's number, none at all, or 0."""
    agent = Agent(name="Tidier", tools=("write",), budget=budget)
    turn = await play("Tidy.", agent=agent, tools=ALL)
    limits = turn.said("turn_started")[0]["limits"]
    assert isinstance(limits, dict)
    own = budget.tool_calls if isinstance(budget, Limits) else budget
    assert limits["tool_calls"] == own
    assert budget_of(turn.engine, agent) == (own, "agent")


@pytest.mark.parametrize("budget", [20, 50, None])
async def test_engine_budget_wins_over_the_class_budget(play: "Play", budget: int | None) -> None:
    agent = Agent(name="Tidier", tools=("write",))
    turn = await play("Tidy.", agent=agent, tools=ALL, limits=Limits(tool_calls=budget))
    limits = turn.said("turn_started")[0]["limits"]
    assert isinstance(limits, dict)
    assert limits["tool_calls"] == budget
    assert budget_of(turn.engine, agent) == (budget, "configuration")


async def test_agent_budget_without_calls_leaves_the_class_budget(play: "Play") -> None:
    agent = Agent(name="Tidier", tools=("write",), budget=Limits(tokens=1000))
    turn = await play("Tidy.", agent=agent, tools=ALL)
    assert budget_of(turn.engine, agent) == (10, "configuration")


async def test_sub_agent_has_the_budget_of_the_own_class() -> None:
    """And no more than it is lent: a writing one below a reading one has 10 of the 48."""
    writer = agent_tool(Agent(name="Writer", description="Writes.", tools=("write",)), read_only=True)
    lead = Agent(name="Lead", tools=("look", "Writer"))
    script = (asks_for(("look", {}), ("Writer", {"prompt": "Write."})), "Written.", "Done.")
    store = MemoryStore()
    engine = Engine(model=ScriptedModel(*script), tools=[look, write, writer], store=store)
    turn = await engine.run(lead, "Tidy utils.py")
    started = [(await store.facts(name))[0][1] for name in (turn.id, f"{turn.id}:call00002")]
    assert [fact.limits.tool_calls for fact in started if isinstance(fact, f.TurnStarted)] == [50, 10]


@pytest.mark.parametrize(("call_count", "ended"), [(49, "finished"), (50, "cap_hit"), (51, "cap_hit")])
async def test_budget_is_exact(play: "Play", call_count: int, ended: str) -> None:
    """Places are given out in call order when the reply arrives; a call without one is answered, and does not run."""
    turn = await play(play.endless(25), play.endless(call_count - 25), "Tidy.")
    assert (turn.ended[0], turn.result.tool_calls, len(play.done)) == (ended, min(call_count, 50), min(call_count, 50))
    refused = [part.text for part in turn.parts(ToolResultPart) if part.status == "refused"]
    assert refused == ["not executed: the tool budget is spent"] * max(call_count - 50, 0)


async def test_batch_of_10_with_49_of_50_used_runs_a_single_call(play: "Play") -> None:
    turn = await play(play.endless(24), play.endless(25), play.endless(10), "Enough.")
    assert (turn.ended, turn.result.tool_calls) == (("cap_hit", "budget"), 50)
    assert [part.status for part in turn.parts(ToolResultPart)][-10:] == ["ok"] + ["refused"] * 9
