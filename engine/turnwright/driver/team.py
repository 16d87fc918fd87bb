"""Agents that work together: the sub-agents among them become tools of the others."""

from collections.abc import Iterable, Sequence

from turnwright.agent import Agent
from turnwright.errors import ConfigError

from .subagents import AgentTool, agent_tool


def agent_tools(agents: Iterable[Agent]) -> list[AgentTool]:
    """A tool for each agent that others may call (`mode: subagent` or `all`), in their order.

    Give them to the engine beside its other tools: `Engine(tools=[*tools, *agent_tools(agents)])`. Every agent that
    names no tools may call them then, but a sub-agent only those that its own `tools` names: one that calls its like is
    seldom meant. One that may do both is a sub-agent where it is called.

    Raises `ConfigError` for two whose tools would have one name. Source: DESIGN 4.14.
    """
    made: dict[str, AgentTool] = {}
    for agent in agents:
        if agent.mode == "primary":
            continue
        one = agent_tool(agent.model_copy(update={"mode": "subagent"}))
        if one.name in made:
            raise ConfigError(
                f"agent {agent.name!r}: its tool would be called {one.name}, as that of agent"
                f" {made[one.name].agent.name!r} is: give one of them another name"
            )
        made[one.name] = one
    return list(made.values())


def primary_agents(agents: Sequence[Agent]) -> list[Agent]:
    """The agents that people run: all but the sub-agents. A sub-agent may still be run by its name, to try it out."""
    return [agent for agent in agents if agent.mode != "subagent"]
