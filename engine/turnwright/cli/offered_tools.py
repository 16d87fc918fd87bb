"""The tools that a configuration offers to the agents of a source."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from turnwright.agent import Agent
from turnwright.agents.bounds import class_of
from turnwright.driver.dependencies import no_such_tool
from turnwright.driver.subagents import AgentTool
from turnwright.tools import Tool
from turnwright_states.limits import ToolClass

from .options import choose_tools

if TYPE_CHECKING:
    from turnwright.config.config import Config


class OfferedTools:
    """The tools of a module, by name. `module` is the value of `--tools`, and else the configuration's."""

    def __init__(self, config: "Config", module: str | None) -> None:
        chosen = choose_tools(module or config.settings.tools, Path(config.settings.root))
        self.by_name: Mapping[str, Tool] = {tool.name: tool for tool in chosen.tools}

    def class_for(self, agent: Agent, helpers: Sequence[AgentTool]) -> ToolClass | None:
        """Return the class of an agent's tools (`class_of`); None if it names tools that are not offered."""
        tools = self.tools_for(agent, helpers)
        return None if tools is None else class_of(tools)

    def tools_for(self, agent: Agent, helpers: Sequence[AgentTool]) -> list[Tool] | None:
        """Return the tools that an agent may use; None if it names one that is not offered."""
        offered = {**self.by_name, **{tool.name: tool for tool in helpers}}
        if not offered.keys() >= set(agent.tools_needed):
            return None
        return [tool for name, tool in offered.items() if agent.may_use(name, delegates=tool.delegates)]

    def require(self, agent: Agent, helpers: Sequence[AgentTool]) -> None:
        """Raise `ConfigError` for a tool that the agent names and that is not offered."""
        if unknown := self.unknown_to(agent, helpers):
            raise no_such_tool(agent, unknown[0], [*self.by_name, *(tool.name for tool in helpers)])

    def unknown_to(self, agent: Agent, helpers: Sequence[AgentTool]) -> list[str]:
        """Return the tools that an agent names and that are not offered. An MCP server may have `server__tool`."""
        offered = self.by_name.keys() | {tool.name for tool in helpers}
        return [name for name in agent.tools_needed if name not in offered and "__" not in name]
