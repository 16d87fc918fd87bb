"""The certificates of the agents of a source, as `explain`, `diagram` and `agents --diff` need them."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from turnwright.agent import Agent
from turnwright.agents.bounds import class_of
from turnwright.agents.certificate import Certificate, certificate
from turnwright.agents.files import read_agents
from turnwright.driver.certified_code import code_reader
from turnwright.driver.subagents import AgentTool, agent_tools, subagent_tools
from turnwright.journal.dependencies import no_such_tool
from turnwright.tools import Tool
from turnwright_states.limits import ToolClass

from .options import choose_hooks, choose_tools

if TYPE_CHECKING:
    from turnwright.config.config import Config


class Issuer:
    """Issues certificates under one configuration. `tools` is a module, and `hooks` are those of `--hooks`."""

    def __init__(self, said: "Config", tools: str | None, hooks: Sequence[str] = ()) -> None:
        self._said = said
        module = tools or said.settings.tools
        self._offered: dict[str, Tool] = {one.name: one for one in choose_tools(module, Path(said.settings.root)).tools}
        self._hooks, self._guardrails = choose_hooks(hooks or said.settings.hooks)

    def certificate(
        self,
        agent: Agent,
        beside: Sequence[AgentTool],
        *,
        steps: int | None = None,
        tool_timeout: float | None = None,
    ) -> Certificate:
        """Return the certificate of an agent as its file and the flags define it. `beside` are its sub-agents."""
        chosen = self._said.prepared(agent)
        helpers = {one.name: one for one in agent_tools(self._said.prepared(one.agent) for one in beside)}
        return certificate(
            chosen,
            self._said.limits(),
            steps=steps,
            tool_timeout=tool_timeout,
            subagent_tools=partial(subagent_tools, helpers),
            code_of=code_reader(
                partial(_tools_for, self._offered | helpers), self._hooks, self._guardrails, self._said.limits()
            ),
            model_settings=self._said.settings.model_settings,
        )

    def all(self, *sources: str) -> list[tuple[Agent, Certificate]]:
        """Return each agent of these files, folders and code with its certificate. Raises `ConfigError`."""
        found = read_agents(*sources, limits=self._said.limits())
        helpers = agent_tools(found)
        return [(agent, self.certificate(agent, helpers)) for agent in found]

    def tool_class(self, agent: Agent, beside: Sequence[AgentTool]) -> ToolClass | None:
        """Return the class of an agent's tools (`class_of`); None if it names tools that are not offered."""
        tools = _tools_for(self._offered | {one.name: one for one in beside}, agent)
        return None if tools is None else class_of(tools)

    def need_tools(self, agent: Agent, beside: Sequence[AgentTool]) -> None:
        """Raise `ConfigError` for a tool that the agent names and that is not offered."""
        if unknown := self.unknown_tools(agent, beside):
            raise no_such_tool(agent, unknown[0], [*self._offered, *(one.name for one in beside)])

    def unknown_tools(self, agent: Agent, beside: Sequence[AgentTool]) -> list[str]:
        """Return the tools that an agent names and that are not offered. An MCP server may have `server__tool`."""
        offered = self._offered.keys() | {one.name for one in beside}
        return [name for name in agent.tools_needed if name not in offered and "__" not in name]


def _tools_for(offered: Mapping[str, Tool], agent: Agent) -> list[Tool] | None:
    """Return the tools that an agent may use; None if it names one that is not offered."""
    if not offered.keys() >= set(agent.tools_needed):
        return None
    return [one for name, one in offered.items() if agent.may_use(name, delegates=one.delegates)]
