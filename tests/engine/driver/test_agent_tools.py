"""Agents that work together: which of them become tools, and of whom."""

import pytest

from turnwright import Agent, ConfigError
from turnwright.driver.subagents import agent_tools, primary_agents

BUILD = Agent(name="build")
LOOK = Agent(name="look", description="Looks.", mode="subagent", steps=2)
PLAN = Agent(name="plan", description="Plans.", mode="all")


def test_agents_of_mode_subagent_or_all_become_tools() -> None:
    tools = agent_tools([BUILD, LOOK, PLAN])
    assert [(tool.name, tool.description, tool.delegates) for tool in tools] == [
        ("look", "Looks.", True),
        ("plan", "Plans.", True),
    ]


def test_agent_of_mode_all_is_a_sub_agent_where_called() -> None:
    look, plan = agent_tools([LOOK, PLAN])
    assert look.agent == LOOK
    assert (plan.agent.mode, PLAN.mode) == ("subagent", "all")


def test_people_run_all_but_the_sub_agents() -> None:
    assert primary_agents([BUILD, LOOK, PLAN]) == [BUILD, PLAN]


def test_agents_with_equal_tool_names_are_refused() -> None:
    agents = [LOOK.model_copy(update={"name": name}) for name in ("do it", "do-it", "do_it")]
    with pytest.raises(ConfigError, match="its tool would be called do_it, like the tool of agent 'do it'"):
        agent_tools(agents)
