"""The statistics of agents are made of rows that the stores group."""

import pytest

from turnwright.store.agent_statistics import AgentGroups, KnownGroups
from turnwright.store.summaries import Grouping

MEASURES = "2,10,0,1000,29000000,0,4,30,500000,3000,29000001,7"


@pytest.mark.parametrize("nameless", [None, ""])
def test_turns_without_names_count_as_no_agent(nameless: str | None) -> None:
    rows = [(*names, "finished", "answered", 1.0, MEASURES) for names in ((nameless, nameless), ("Tidier", "scripted"))]
    groups = AgentGroups(rows)
    assert groups.failing == [7]
    statistics = groups.statistics([(7, "look_up", 3)])
    assert [(agent.agent, agent.turns, agent.failures) for agent in statistics.agents] == [
        ("Tidier", 2, [("look_up", 3)])
    ]
    assert {expense.agent for expense in statistics.spending} == {"Tidier"}


def test_groups_of_the_same_rows_are_cached() -> None:
    """Other rows, or other groups of the same rows, are not mixed up with them."""
    rows, groups = [("Tidier", "scripted", "finished", "answered", 1.0, MEASURES)], KnownGroups()
    first = groups.of(rows, Grouping.BOTH)
    assert groups.of([*rows], Grouping.BOTH) is first
    assert [agent.turns for agent in groups.of([*rows, *rows], Grouping.BOTH).statistics([]).agents] == [4]
    assert [agent.model for agent in groups.of(rows, Grouping.AGENT).statistics([]).agents] == [""]
    assert [agent.failures for agent in first.statistics([(7, "look_up", 3)]).agents] == [[("look_up", 3)]]
    assert [agent.failures for agent in first.statistics([]).agents] == [[]]
    for number in range(99):
        groups.of([*rows, (f"Agent {number}", *rows[0][1:])], Grouping.BOTH)
    assert groups.of(rows, Grouping.BOTH) is not first


@pytest.mark.parametrize("measures", [None, "", "2,10,dreamt", "\udcff,1", "1e999", b"\xff"])
def test_damaged_summary_leaves_the_other_agents(measures: object) -> None:
    """Its own agent has no turns then. Half a pair of surrogates cannot be a part of an address."""
    rows = [("A\udcff", "\udcff", "finished", "answered", 1.0, measures), ("B", "m", None, None, 0.0, MEASURES)]
    first, second = KnownGroups().of(rows, Grouping.BOTH).statistics([]).agents
    assert (first.agent, first.turns, second.agent, second.model, second.turns) == ("B", 2, "A?", "?", 0)
