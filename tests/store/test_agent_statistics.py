"""The statistics of agents are made of rows that the stores group."""

import pytest

from turnwright.store.agent_statistics import AgentGroups

MEASURES = "2,10,0,1000,29000000,0,4,30,500000,3000,29000001,7"


@pytest.mark.parametrize("nameless", [None, ""])
def test_turns_that_a_migration_left_without_names_are_no_agent(nameless: str | None) -> None:
    rows = [(*names, "finished", "answered", 1.0, MEASURES) for names in ((nameless, nameless), ("Tidier", "scripted"))]
    groups = AgentGroups(rows)
    assert groups.failing == "7"
    found = groups.statistics([(7, "look_up", 3)])
    assert [(one.agent, one.turns, one.failures) for one in found.agents] == [("Tidier", 2, [("look_up", 3)])]
    assert {one.agent for one in found.spending} == {"Tidier"}
