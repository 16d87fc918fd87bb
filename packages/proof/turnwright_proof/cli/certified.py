"""The certificates of the agents of a source, as `explain`, `diagram` and `agents --diff` need them."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from turnwright.agent import Agent
from turnwright.agents.files import read_agents
from turnwright.cli.agents import OfferedTools
from turnwright.cli.options import choose_hooks
from turnwright.driver.subagents import AgentTool, agent_tools, subagent_tools
from turnwright.rules import make_rule_sets
from turnwright_proof.certificates.certificate import Certificate, certificate
from turnwright_proof.certificates.code_reader import code_reader
from turnwright_states.rules import RuleList

if TYPE_CHECKING:
    from turnwright.config.config import Config


class Issuer:
    """Issues certificates under one configuration. `tools` is a module, and `hooks` are those of `--hooks`."""

    def __init__(self, config: "Config", tools: str | None, hooks: Sequence[str] = ()) -> None:
        self._config = config
        self.offered = OfferedTools(config, tools)
        self._hooks, self._guardrails = choose_hooks(hooks or config.settings.hooks)

    def certificate(
        self,
        agent: Agent,
        beside: Sequence[AgentTool],
        *,
        steps: int | None = None,
        tool_timeout: float | None = None,
    ) -> Certificate:
        """Return the certificate of an agent as its file and the flags define it. `beside` are its sub-agents."""
        config = self._config
        helpers = {tool.name: tool for tool in agent_tools(config.prepared(tool.agent) for tool in beside)}
        tools_for = partial(self.offered.tools_for, helpers=tuple(helpers.values()))
        return certificate(
            config.prepared(agent),
            config.limits(),
            steps=steps,
            tool_timeout=tool_timeout,
            subagent_tools=partial(subagent_tools, helpers),
            code_of=code_reader(tools_for, self._hooks, self._guardrails, config.limits()),
            model_settings=config.settings.model_settings,
        )

    def certify_all(self, *sources: str) -> list[tuple[Agent, Certificate]]:
        """Return each agent of these files, folders and code with its certificate. Raises `ConfigError`."""
        agents = read_agents(*sources, limits=self._config.limits())
        helpers = agent_tools(agents)
        return [(agent, self.certificate(agent, helpers)) for agent in agents]


def rules_of(agent: Agent) -> RuleList:
    """Return the rules of an agent as one list. Raises `RuleError` for two rules of one name."""
    return RuleList.of_sets(make_rule_sets(agent.rules, f"agent {agent.name!r}"))
