"""The bounds of a tree of turns: what a turn and the turns of its sub-agents take together at most."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright import Agent, Engine, agent_tool, tool
from turnwright.model.protocol import Model
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright_proof import explain
from turnwright_proof.certificates.tree_bounds import Caller, OneTurn, TreeBounds, tree_bounds
from turnwright_states import facts as f


@tool
async def note(text: str) -> str:
    """Note something."""
    return text


@pytest.mark.anyio
async def test_team_can_reach_the_certified_bounds() -> None:
    """The bound is reached: two steps that each call the reader, whose only step calls its tool."""
    limits = {"max_retries": 0, "max_calls_per_step": 1, "doom_threshold": None, "budget": None}
    reader = Agent.model_validate(
        {"name": "Reader", "description": "Reads.", "model": "reader", "steps": 1, "tools": ["note"], **limits}
    )
    lead = Agent.model_validate({"name": "Lead", "model": "lead", "steps": 2, "tools": ["Reader"], **limits})
    reads = asks_for(("note", {"text": "x"}))
    models: dict[str, Model] = {
        "lead": ScriptedModel(asks_for(("Reader", {"prompt": "a"})), asks_for(("Reader", {"prompt": "b"})), "Done."),
        "reader": ScriptedModel(reads, "Read.", reads, "Read."),
    }
    store = MemoryStore()
    async with Engine(models=models.__getitem__, store=store, tools=[note, agent_tool(reader)]) as engine:
        sub_agents = explain(engine, lead).sub_agents
        turn = await engine.run(lead, "go")
    turns = [turn.id, *(f"{turn.id}:call0000{number}" for number in (1, 2))]
    facts = [fact for turn in turns for _, fact in await store.facts(turn)]

    def count(*kinds: type[f.Fact]) -> int:
        return sum(isinstance(fact, kinds) for fact in facts)

    assert sub_agents is not None
    assert sub_agents.tree == TreeBounds(
        turns=count(f.TurnStarted),
        steps=count(f.StepStarted),
        model_calls=count(f.ModelReplied, f.Concluded),
        tool_calls=count(f.CallStarted),
    )
    assert sub_agents.tree == TreeBounds(turns=3, steps=4, model_calls=7, tool_calls=4)


one_turn = st.builds(
    OneTurn,
    cap=st.integers(0, 5),
    allowance=st.integers(0, 5),
    model_calls=st.integers(1, 9),
    tool_calls=st.none() | st.integers(0, 9),
    calls_per_step=st.integers(1, 3),
)
names = st.lists(st.sampled_from("abc"), unique=True)
teams = st.tuples(
    st.tuples(one_turn, names), st.fixed_dictionaries({name: st.tuples(one_turn, names) for name in "abc"})
)


@given(teams, st.integers(0, 3))
def test_spending_of_calls_never_exceeds_the_bound(team: tuple[Caller, dict[str, Caller]], deep: int) -> None:
    """A tree in which each turn spends its calls on one sub-agent, to the last of a lease."""
    first, below = team
    bounds = tree_bounds(first, below, 3)

    def spend(caller: Caller, depth: int, lease: int | None) -> TreeBounds:
        limits, may_call = caller
        budget = limits.tool_calls if lease is None else limits.within(lease)
        turns, steps, model_calls, tool_calls = 1, limits.cap, limits.model_calls, 0
        for _ in range(limits.allowance * limits.calls_per_step):
            if budget is not None and budget - tool_calls <= 0:
                break
            tool_calls += 1
            rest = None if budget is None else budget - tool_calls
            if may_call and depth < deep and rest != 0:
                child = spend(below[may_call[0]], depth + 1, rest)
                turns, steps, model_calls = turns + child.turns, steps + child.steps, model_calls + child.model_calls
                tool_calls += child.tool_calls
        return TreeBounds(turns=turns, steps=steps, model_calls=model_calls, tool_calls=tool_calls)

    spent = spend(first, 0, None)
    assert all(getattr(spent, name) <= getattr(bounds, name) for name in TreeBounds.model_fields)


@given(teams)
def test_agent_without_sub_agents_is_bounded_by_own_limits(team: tuple[Caller, dict[str, Caller]]) -> None:
    limits = team[0][0]
    alone = TreeBounds(turns=1, steps=limits.cap, model_calls=limits.model_calls, tool_calls=limits.calls)
    assert tree_bounds((limits, ()), team[1], 3) == tree_bounds(team[0], team[1], 0) == alone
